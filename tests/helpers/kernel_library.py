"""The library that runs the kernels on the host and has their sources."""

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_void_p

import c_library

OPENCL, HIP = range(2)


def load(path):
    found = ctypes.CDLL(str(path))
    spans = [c_void_p, c_int64] * 2
    found.helper_run.argtypes = [c_int, *spans, *[c_int64] * 3, c_void_p, c_void_p]
    found.helper_run.restype = None
    return found


def load_library():
    found = load(c_library.build("kernels"))
    for function in (found.helper_text, found.helper_ptx, found.helper_name):
        function.restype = c_char_p
    return found


def text_of(library, dialect):
    return library.helper_text(dialect).decode()


def ptx_modules(library):
    return [library.helper_ptx(kernel).decode() for kernel in range(len(names(library)))]


def names(library):
    found = [library.helper_name(kernel) for kernel in range(100)]
    return [name.decode() for name in found if name is not None]
