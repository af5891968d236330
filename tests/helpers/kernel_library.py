"""The library that runs the kernels on the host and has their sources."""

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_void_p

import c_library

OPENCL, HIP, PTX = range(3)


def load(path):
    found = ctypes.CDLL(str(path))
    spans = [c_void_p, c_int64] * 2
    found.helper_run.argtypes = [c_int, *spans, *[c_int64] * 3, c_void_p, c_void_p]
    found.helper_run.restype = None
    return found


def load_library():
    found = load(c_library.build("kernels"))
    found.helper_text.restype = found.helper_name.restype = c_char_p
    return found


def text_of(library, dialect):
    return library.helper_text(dialect).decode()


def names(library):
    found = [library.helper_name(kernel) for kernel in range(100)]
    return [name.decode() for name in found if name is not None]
