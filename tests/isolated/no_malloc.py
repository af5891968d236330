"""Fails each of arrowdev's own malloc calls in turn."""

import sys

import c_library
import operations

name, library = sys.argv[1:]
malloc = c_library.FailingMalloc(library)
malloc.watch_library(sys.modules["arrowdev._core"].__file__)
failed = 0


def stop():
    global failed
    counted = malloc.arm(-1)
    failed += counted > asked


def start(n):
    global asked
    asked = n
    malloc.arm(n)


asked = 0
seen = operations.run(name, start, stop)
# Every failure is reported as MemoryError.
assert seen == failed, (seen, failed)
print(f"{seen} MemoryErrors")
operations.common.end()
