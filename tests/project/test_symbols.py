"""The exported and the required symbols of the built extensions."""

import re
import shutil
import sys

import pytest

import arrowdev._core
import compiler
from arrowdev.testing import _device

EXTENSIONS = [arrowdev._core, _device]

# The C library, and the sanitizers of a test build.
MAY_NEED = r"(libc|libm|libdl|libpthread|librt|libgcc_s|libasan|libubsan|ld-linux[-\w]*)\.so\.\d+"


def name_of(extension):
    return extension.__name__.rpartition(".")[2]


def output_of(extension, tool, *arguments):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed (binutils)")
    done = compiler.run([tool, *arguments, extension.__file__])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("extension", EXTENSIONS, ids=name_of)
def test_only_the_init_functions_are_exported(extension):
    lines = output_of(extension, "nm", "-D", "--defined-only").splitlines()
    wanted = {f"PyInit_{name_of(extension)}"}
    if sys.version_info >= (3, 15):
        wanted.add(f"PyModExport_{name_of(extension)}")
    assert {line.split()[-1] for line in lines} == wanted


@pytest.mark.parametrize("extension", EXTENSIONS, ids=name_of)
def test_needs_the_c_library_only(extension):
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output_of(extension, "readelf", "-d"))
    assert [name for name in needed if not re.fullmatch(MAY_NEED, name)] == []


@pytest.mark.parametrize("extension", EXTENSIONS, ids=name_of)
def test_needs_no_symbol_of_the_other_extension(extension):
    """The linker does not refuse one: symbols of CPython are undefined, too."""
    undefined = output_of(extension, "nm", "-D", "--undefined-only").split()
    assert "PyModuleDef_Init" in undefined
    assert [name for name in undefined if name.startswith("ad_")] == []


def test_variables_of_threads_are_few():
    """The static blocks of threads have some 1.5 kB for all libraries that are loaded late."""
    table = output_of(arrowdev._core, "readelf", "-lW")
    headers = re.findall(r"^ +TLS +(?:0x\w+ +){4}0x(\w+)", table, re.M)
    assert [header for header in headers if int(header, 16) > 256] == []
    assert headers
