"""A C++ thread releases many arrays, each with a Python owner, while the interpreter exits."""

import array
import ctypes
import sys
import time

import common

N = 20_000
library = ctypes.CDLL(sys.argv[1])
structs = (ctypes.c_void_p * N)()
releases = (ctypes.c_void_p * N)()
for i in range(N):
    pair = common.ad.array(array.array("q", [i])).__arrow_c_array__()
    struct = common.moved(pair[1], "arrow_array")
    structs[i], releases[i] = common.ac.address(struct), struct.release
pair = None
for kept in (structs, releases):  # the thread reads them to the end of the process
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
library.release_on_thread(releases, structs, N)
while library.released_so_far() < N // 50:
    time.sleep(0)
common.end()
