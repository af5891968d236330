"""Checks whether a call leaks memory."""

from __future__ import annotations

import ctypes
import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_N_CALLS = 256
_N_BYTES = 48  # of each call; the smallest struct of an exchange has 72


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


def _measure() -> tuple[int, int]:
    """Return the blocks of Python's allocator, and the bytes of malloc (glibc only)."""
    gc.collect()
    blocks = sys.getallocatedblocks()
    try:
        function = ctypes.CFUNCTYPE(_MallInfo)(("mallinfo2", ctypes.CDLL(None)))
    except AttributeError:
        return blocks, 0
    info = function()
    return blocks, info.uordblks + info.hblkhd


def leaks(call: Callable[[], object]) -> bool:
    """Whether each of many calls leaks memory, although its result is dropped.

    Memory of a library's own allocator is not counted.
    """
    # Caches fill up, and other threads allocate: only continued growth is a leak.
    return all(_grows(call) for _ in range(3))


def _grows(call: Callable[[], object]) -> bool:
    before = _measure()
    for _ in range(_N_CALLS):
        call()
    after = _measure()
    return after[0] - before[0] >= _N_CALLS or after[1] - before[1] >= _N_CALLS * _N_BYTES
