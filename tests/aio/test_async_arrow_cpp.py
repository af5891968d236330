"""Async streams with Arrow C++, from the library inside pyarrow's wheel, in both
directions.

The scenarios are C functions in tests/cpp/async_arrow.c. Each runs in a separate
process, so that a hang in a peer does not hang the test run.
"""

import subprocess
from pathlib import Path

import pytest

import compiler

pytestmark = pytest.mark.slow

FOLDER = compiler.ROOT / "tests" / "cpp"

IMPORTS = ["import_counts", "import_error", "import_slow", "import_cancel", "import_drop"]
EXPORTS = ["export_counts", "export_slow", "export_request_of_nothing"]
# Arrow C++ leaks the tasks that it did not read, because it never extracts them.
LEAKS_OF_ARROW = ["export_error", "export_drop"]


def run_checked(command):
    done = compiler.run([str(word) for word in command])
    assert done.returncode == 0, done.stdout + done.stderr


def library_of(pyarrow):
    """Path of libarrow.so.NUMBER, and the compiler flags for its headers."""
    folder = Path(pyarrow.__file__).parent
    found = sorted(folder.glob("libarrow.so*"))
    if not found or not (folder / "include" / "arrow" / "c" / "bridge.h").exists():
        pytest.fail(f"{folder} has no libarrow.so or no headers")
    return found[0]


@pytest.fixture(scope="module")
def program(request, tmp_path_factory):
    pyarrow = pytest.importorskip("pyarrow", "25")
    library = library_of(pyarrow)
    built = compiler.build_folder(request, tmp_path_factory, "core_c", "address,undefined")
    objects = [*compiler.core_objects(built), built / "check.o"]
    folder = tmp_path_factory.mktemp("async_arrow")
    c_tests = compiler.ROOT / "tests" / "c"
    sanitize = "-fsanitize=address,undefined"
    includes = [f"-I{compiler.CSRC}", f"-I{c_tests}", f"-I{FOLDER}"]
    scenarios, peer = folder / "async_arrow_c.o", folder / "async_arrow_peer.o"
    compile_c = [*compiler.command(), *compiler.STRICT, "-Wno-unused-function", "-O1", "-g"]
    run_checked([*compile_c, sanitize, *includes, "-c", FOLDER / "async_arrow.c", "-o", scenarios])
    compile_cpp = [*compiler.command("c++"), "-std=c++20", "-O1", "-g", *includes]
    headers = ["-isystem", library.parent / "include"]
    run_checked([*compile_cpp, *headers, "-c", FOLDER / "arrow_peer.cpp", "-o", peer])
    target = folder / "async_arrow"
    wraps = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc")]
    link = [*compiler.command("c++"), sanitize, scenarios, peer, *objects]
    link += [*wraps, library, f"-Wl,-rpath,{library.parent}", "-lpthread", "-ldl", "-lm"]
    run_checked([*link, "-o", target])
    return target


def run_scenario(program, name, leaks):
    environment = compiler.clean_environment() | {"ASAN_OPTIONS": f"detect_leaks={leaks}"}
    done = subprocess.run(
        [str(program), name], capture_output=True, text=True, env=environment, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.timeout(600)  # the first test compiles the core and Arrow's headers
@pytest.mark.parametrize("name", IMPORTS + EXPORTS)
def test_exchange(program, name):
    run_scenario(program, name, leaks=1)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LEAKS_OF_ARROW)
def test_exchange_in_which_arrow_leaks(program, name):
    run_scenario(program, name, leaks=0)
