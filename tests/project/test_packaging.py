"""What an index, a wheel and a recipe say and hold."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
import setuptools

import arrowdev
import compiler
from arrowdev.testing import _device

ROOT = compiler.ROOT
ON_SOFTWARE_DEVICE = """
import arrowdev as ad
from arrowdev.testing import software_device
with software_device() as device:
    print(ad.array(device.array([1, 2])).to("cpu").to_pylist())
"""
LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(text):
    return [link for link in LINK.findall(text) if not link.startswith("#")]


def test_recipe_has_the_version():
    recipe = (ROOT / "tools" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{arrowdev.__version__}"' in recipe


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md", "CONTRIBUTING.md"])
def test_links_lead_to_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    local = [link.partition("#")[0] for link in links(text) if not link.startswith("http")]
    assert local and [link for link in local if not (ROOT / link).exists()] == []


def test_index_page_has_absolute_links_only():
    command = [sys.executable, "setup.py", "-q", "--long-description"]
    page = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert links(page) and [link for link in links(page) if not link.startswith("http")] == []
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page)
    assert pictures and all("/raw/main/" in link for link in pictures)


@pytest.mark.parametrize(
    ("variable", "debug"), [(None, "-g0"), ("ARROWDEV_DEBUG", "-g"), ("ARROWDEV_SANITIZE", "-g")]
)
def test_debug_text_is_there_where_it_is_asked_for(variable, debug, monkeypatch):
    """The flags of CPython's own build, which may have -g, come before these."""
    made = []
    for name in ("ARROWDEV_DEBUG", "ARROWDEV_SANITIZE"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(setuptools, "setup", lambda **options: made.extend(options["ext_modules"]))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    assert len(made) == 2
    for extension in made:
        flags = [flag for flag in extension.extra_compile_args if flag.startswith("-g")]
        assert flags[-1] == debug


def check_sections(wheel, folder):
    """Debug text is left out; names of functions are not, for backtraces."""
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    zipfile.ZipFile(wheel).extractall(folder)
    extensions = sorted(map(str, folder.rglob("*.so")))
    assert len(extensions) == 2
    for extension in extensions:
        sections = compiler.run(["readelf", "-SW", extension]).stdout
        assert ".text" in sections and ".symtab" in sections and ".debug_" not in sections


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_wheel_runs_without_a_compiler(tmp_path):
    pip = [sys.executable, "-m", "pip", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    stubs = {"arrowdev/_core.pyi", "arrowdev/testing/_device.pyi"}
    assert {"arrowdev/py.typed", *stubs} <= set(names)
    assert [name for name in names if not name.startswith(("arrowdev/", "arrowdev-"))] == []
    check_sections(wheel, tmp_path / "unpacked")
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", bare], check=True)

    def run(*arguments):
        return subprocess.run(
            [bare / "bin" / "python", *arguments],
            env={"PATH": str(bare / "bin")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    install = run("-m", "pip", "-q", "install", "--no-index", wheel)
    assert install.returncode == 0, install.stderr
    matrix = run("-m", "arrowdev", "matrix")
    assert matrix.returncode == 0 and "zero-copy" in matrix.stdout, matrix.stdout + matrix.stderr
    values = run("-c", ON_SOFTWARE_DEVICE)
    assert (values.returncode, values.stdout) == (0, "[1, 2]\n"), values.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sdist_has_what_the_tests_read(tmp_path):
    build = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", tmp_path]
    build += ["sdist", "--dist-dir", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)
    tree = tmp_path / f"arrowdev-{arrowdev.__version__}"
    shutil.copy(arrowdev._core.__file__, tree / "arrowdev")
    shutil.copy(_device.__file__, tree / "arrowdev" / "testing")
    readers = ["packaging", "layering", "shape_of_code"]
    for arguments in [
        ["--collect-only"],
        ["-m", "not slow", *(f"tests/project/test_{name}.py" for name in readers)],
    ]:
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": "", "ARROWDEV_NO_SKIPS": "0"},
            capture_output=True,
            text=True,
        )
        assert found.returncode == 0, found.stdout + found.stderr
