"""The stubs match the extension and help their users."""

import ast
import importlib.util
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

import arrowdev as ad

pytest.importorskip("mypy")

HERE = Path(__file__).parent
PACKAGE = Path(ad.__file__).parent
HAS_DASK = importlib.util.find_spec("distributed") is not None  # arrowdev.dask imports it


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mypy")
    # mypy does not follow an editable installation, so the path is the checkout.
    is_installed = PACKAGE.parent.name == "site-packages"

    def run(*args):
        done = subprocess.run(
            [sys.executable, "-m", *args],
            cwd=folder if is_installed else PACKAGE.parent,
            env={**os.environ, "MYPY_CACHE_DIR": str(folder / "cache")},
            capture_output=True,
            text=True,
            timeout=390,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_stubtest(run, tmp_path):
    allowed = [HERE / "stubtest_allowlist.txt"]
    if not HAS_DASK:
        allowed.append(tmp_path / "without_dask.txt")
        allowed[-1].write_text(r"arrowdev\.dask")
    run("mypy.stubtest", "arrowdev", *(f"--allowlist={path}" for path in allowed), "--concise")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_strict(run):
    """All of the package but the command line."""
    files = [*PACKAGE.glob("*.py*"), *(PACKAGE / "testing").glob("*.py*")]
    paths = {path.relative_to(PACKAGE.parent).with_suffix("") for path in files}
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    names -= {"arrowdev.__main__"} if HAS_DASK else {"arrowdev.__main__", "arrowdev.dask"}
    # With a name: mypy takes the folder of a file as the root of its modules.
    modules = [part for name in sorted(names) for part in ("-m", name)]
    run("mypy", "--strict", "--follow-imports=silent", *modules)
    run("mypy", "--strict", str(HERE / "typed_user.py"))


def test_private_names_have_stubs():
    """stubtest does not check private names."""
    stub = ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8"))
    known = {getattr(node, "name", None) for node in stub.body}
    known |= {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert {name for name in dir(ad._core) if not name.startswith("__")} <= known


def test_every_allowlist_entry_has_a_reason():
    lines = (HERE / "stubtest_allowlist.txt").read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        assert not line or line.startswith("#") or lines[i - 1].startswith("#"), line


def test_typed():
    assert resources.files("arrowdev").joinpath("py.typed").is_file()
    assert resources.files("arrowdev").joinpath("_core.pyi").is_file()


def test_import_does_not_need_typing():
    code = "import sys, arrowdev; assert not {'typing', 'arrowdev.typing'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=PACKAGE.parent, check=False)
    assert done.returncode == 0
