"""Fails each of Python's own allocations in turn, with _testcapi.set_nomemory."""

import _testcapi
import sys

import operations

seen = operations.run(
    sys.argv[1],
    lambda n: _testcapi.set_nomemory(n, n + 1),
    _testcapi.remove_mem_hooks,
)
print(f"{seen} MemoryErrors")
operations.common.end()
