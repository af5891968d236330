"""The exported and the required symbols of the built extension."""

import re
import shutil

import pytest

import arrowdev._core
import compiler

# The C library, and the sanitizers of a test build.
MAY_NEED = r"(libc|libm|libdl|libpthread|librt|libgcc_s|libasan|libubsan|ld-linux[-\w]*)\.so\.\d+"


def output_of(tool, *arguments):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed (binutils)")
    done = compiler.run([tool, *arguments, arrowdev._core.__file__])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_the_init_function_is_exported():
    lines = output_of("nm", "-D", "--defined-only").splitlines()
    assert [line.split()[-1] for line in lines] == ["PyInit__core"]


def test_needs_the_c_library_only():
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-d"))
    assert [name for name in needed if not re.fullmatch(MAY_NEED, name)] == []


def test_variables_of_threads_are_few():
    """The static blocks of threads have some 1.5 kB for all libraries that are loaded late."""
    headers = re.findall(r"^ +TLS +(?:0x\w+ +){4}0x(\w+)", output_of("readelf", "-lW"), re.M)
    assert [header for header in headers if int(header, 16) > 256] == []
    assert headers
