"""The C compiler, for the tests that compile code."""

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CSRC = ROOT / "csrc"
PYTHON_INCLUDE = sysconfig.get_path("include")

STRICT = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
]

# csrc/kernels/kernels.c with the steps of devices that are no processors. They access the elements
# by types of their own.
KERNELS_OF_DEVICES = ["-DAD_ON_DEVICE=1", "-fno-strict-aliasing"]


def headers_to_read_first():
    """By folder of csrc, lowest first: the table in docs/internals/architecture.md."""
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("<!-- layers -->")[1].split("<!-- layers end -->")[0]
    return dict(re.findall(r"^\| `(\w+)/` \|.*\| `([\w/.]+)` \|$", table, re.M))


def layers():
    """The folders of csrc, lowest first."""
    return list(headers_to_read_first())


def sources_without_python():
    """The sources of the layers below support/, which never include Python.h."""
    names = layers()
    folders = names[: names.index("support")]
    return sorted(path for name in folders for path in (CSRC / name).rglob("*.c"))


def clean_environment():
    """The environment without LD_PRELOAD: a sanitizer loaded for Python breaks the compiler."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def command(language="c"):
    """The compiler as an argument list; skips if there is none."""
    variable, names = ("CXX", ["g++", "c++"]) if language == "c++" else ("CC", ["gcc", "cc"])
    found = shlex.split(os.environ.get(variable, ""))
    found = found or [name for name in names if shutil.which(name)][:1]
    if not found:
        pytest.skip(f"no {language} compiler found")
    return [*found, "-std=gnu++17" if language == "c++" else "-std=gnu11"]


def run(arguments, **options):
    return subprocess.run(
        arguments, capture_output=True, text=True, env=clean_environment(), **options
    )


def check(source, *arguments, language="c", include=(CSRC,)):
    """Compile `source` without writing anything; fail with the compiler's words."""
    flags = [f"-I{folder}" for folder in include]
    done = run(
        [*command(language), "-fsyntax-only", *arguments, *flags, "-x", language, "-"],
        input=source,
    )
    assert done.returncode == 0, f"{source}\n{done.stderr}"


def preprocess(path):
    """A header's own text, without comments, directives and included files."""
    done = run([*command(), "-E", "-x", "c", str(path)])
    assert done.returncode == 0, done.stderr
    own = []
    is_own = False
    for line in done.stdout.splitlines():
        if line.startswith("# "):  # # NUMBER "FILE" ...
            is_own = line.split('"')[1] == str(path)
        elif is_own:
            own.append(line)
    return "\n".join(own)


def shared_folder(config, tmp_path_factory, name):
    """A folder that all workers of pytest-xdist share.

    It is in pytest's cache, so that a second run is quick, or in the temporary folder of the run.
    """
    cache = getattr(config, "cache", None)  # missing with -p no:cacheprovider
    if cache is not None:
        return cache.mkdir(name)
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if hasattr(config, "workerinput") else root) / name
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(folder):
    """One process at a time builds in a folder."""
    with open(folder / "lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_folder(request, tmp_path_factory, name, sanitizers):
    """A shared folder for the objects of tests/c/Makefile; skips without the sanitizers."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    folder = shared_folder(request.config, tmp_path_factory, name)
    source = folder / "sanitizers.c"
    probe = folder / "sanitizers"
    with locked(folder):
        source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
        done = run([*command(), f"-fsanitize={sanitizers}", str(source), "-o", str(probe)])
        if done.returncode != 0 or run([str(probe)]).returncode != 0:
            pytest.skip(f"the compiler has no sanitizers {sanitizers}: {done.stderr}")
    return folder


def make(folder, target, *variables):
    """Build a target of tests/c/Makefile in a folder that build_folder() gave."""
    arguments = ["make", "-C", str(ROOT / "tests" / "c"), f"-j{os.cpu_count()}", f"BUILD={folder}"]
    with locked(folder):
        built = run([*arguments, *variables, str(target)])
    assert built.returncode == 0, built.stdout + built.stderr


def core_objects(folder):
    """The objects of the core under AddressSanitizer, built in that folder."""
    make(folder, "objects")
    return [folder / path.relative_to(CSRC).with_suffix(".o") for path in sources_without_python()]
