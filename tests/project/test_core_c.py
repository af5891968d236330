"""The C tests of the core, tests/c/test_*.c, one pytest case per program.

They are built by tests/c/Makefile without Python, under AddressSanitizer and
UndefinedBehaviorSanitizer. Tests with several threads also run under
ThreadSanitizer.
"""

import pytest

import compiler

FOLDER = compiler.ROOT / "tests" / "c"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("test_*.c"))
THREADED = [
    "test_sync",
    "test_device_owner",
    "test_deferred_release",
    "test_backend",
    "test_software",
    "test_async",
    "test_pump",
    "test_array_stream",
]


@pytest.fixture(scope="module")
def build_folder(request, tmp_path_factory):
    return compiler.build_folder(request, tmp_path_factory, "core_c", "address,undefined")


@pytest.fixture(scope="module")
def thread_folder(request, tmp_path_factory):
    return compiler.build_folder(request, tmp_path_factory, "core_c_threads", "thread")


def build_and_run(program, folder, *variables):
    target = folder / program
    compiler.make(folder, target, *variables)
    done = compiler.run([str(target)], timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)  # the first test compiles the whole core
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program, build_folder):
    build_and_run(program, build_folder)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", THREADED)
def test_threads(program, thread_folder):
    build_and_run(program, thread_folder, "SANITIZE=-fsanitize=thread")
