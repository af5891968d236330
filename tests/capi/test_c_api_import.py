"""ArrowDev_Import(): versions of the table, and what is missing."""

import ctypes
import re
import sys
from pathlib import Path

import extension
import pytest
from isolation import run

import arrowdev as ad

NAME = b"arrowdev._C_API"


class Table(ctypes.Structure):
    """The beginning of ArrowDevAPI, which never changes."""

    _fields_ = [
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("package", ctypes.c_char_p),
    ]


def capsule_of(table):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(table), NAME, None)


def table_of(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return Table.from_address(get(capsule, NAME))


def test_table_says_its_versions(capi):
    table = table_of(ad._C_API)
    assert table.version == capi.version
    assert table.package.decode() == ad.__version__


def test_newer_table_is_accepted(capi, monkeypatch):
    newer = (ctypes.c_char * 4096).from_buffer_copy(
        ctypes.string_at(ctypes.addressof(table_of(ad._C_API)), 88).ljust(4096, b"\0")
    )
    Table.from_buffer(newer).version = capi.version + 1
    with monkeypatch.context() as patched:
        patched.setattr(ad, "_C_API", capsule_of(newer))
        capi.import_again()
    capi.import_again()


def test_older_table_is_an_import_error_with_both_versions(capi, monkeypatch):
    older = Table(capi.version - 1, 0, b"0.0.7")
    monkeypatch.setattr(ad, "_C_API", capsule_of(older))
    text = (
        f"this extension needs version {capi.version} of the C API of arrowdev, and the "
        f"installed arrowdev 0.0.7 has version {capi.version - 1}; upgrade arrowdev"
    )
    with pytest.raises(ImportError, match=re.escape(text)):
        capi.import_again()
    with pytest.raises(ImportError, match=re.escape(text)):
        extension.load(Path(capi.__file__))


def test_package_without_a_table(capi, monkeypatch):
    monkeypatch.delattr(ad, "_C_API")
    with pytest.raises(ImportError, match="installed arrowdev has none; upgrade arrowdev"):
        capi.import_again()


def test_no_package(capi, monkeypatch):
    monkeypatch.setitem(sys.modules, "arrowdev", None)
    with pytest.raises(ImportError, match="arrowdev"):
        capi.import_again()


def test_capsule_of_something_else(capi, monkeypatch):
    monkeypatch.setattr(ad, "_C_API", ad._C_API.__class__)
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        capi.import_again()


def test_failed_import_leaves_the_table_in_place(capi, monkeypatch):
    with monkeypatch.context() as patched:
        patched.delattr(ad, "_C_API")
        with pytest.raises(ImportError):
            capi.import_again()
    with pytest.raises(SystemError):
        capi.import_dlpack(0)  # the table is there


@pytest.mark.slow
def test_sub_interpreter(capi):
    said = run("c_api_subinterpreter", capi.__file__)
    assert ("imported" if sys.version_info >= (3, 12) else "refused") in said
