"""The C tests of the core, tests/c/test_*.c, one pytest case per program.

They are built by tests/c/Makefile without Python and under AddressSanitizer
and UndefinedBehaviorSanitizer.
"""

import os
import shutil

import pytest

import compiler

FOLDER = compiler.ROOT / "tests" / "c"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("test_*.c"))


@pytest.fixture(scope="module")
def build_folder(request):
    """Objects live in pytest's cache, so that a second run is quick."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    folder = request.config.cache.mkdir("core_c")
    source = folder / "sanitizers.c"
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    probe = folder / "sanitizers"
    done = compiler.run(
        [*compiler.command(), "-fsanitize=address,undefined", str(source), "-o", str(probe)]
    )
    if done.returncode != 0 or compiler.run([str(probe)]).returncode != 0:
        pytest.skip(f"the compiler has no address and undefined sanitizers: {done.stderr}")
    return folder


@pytest.mark.timeout(900)  # the first one compiles the whole core
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program, build_folder):
    target = build_folder / program
    make = ["make", "-C", str(FOLDER), f"-j{os.cpu_count()}", f"BUILD={build_folder}", str(target)]
    built = compiler.run(make)
    assert built.returncode == 0, built.stdout + built.stderr
    done = compiler.run([str(target)], timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
