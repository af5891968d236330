"""Checks whether a struct that nobody consumed is leaked.

The structs of Arrow are counted: each has a release, whose calls are seen. Those of DLPack may be
deleted unseen; there the memory is measured. That it grows is no proof by itself: events may be
pending, whose work releases it. It counts once the device has done its work, and only if the
struct itself is still there untouched.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time

import arrowdev
from arrowdev.testing import _engine, _host_read
from arrowdev.testing._memory import Untold, name_of
from arrowdev.testing._software import SoftwareDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

LINGER = 1.0
"""How many seconds a release by another thread may take once the device has done its work."""

_TIMEOUT_MS = 20_000

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


def settle(device: tuple[int, int]) -> None:
    """Let the device do its work. Untold if nothing tells when it is done."""
    gc.collect()
    if device[0] == arrowdev.DeviceType.CPU:
        return
    try:
        arrowdev.device(device).synchronize()
        if device[0] == _engine.EXT_DEV and SoftwareDevice._current is not None:
            _engine.call("synchronize", -1, _TIMEOUT_MS)
    except Exception as error:
        raise Untold(f"the work of {name_of(device)} cannot be waited for: {error}") from None


def happens(condition: Callable[[], bool], device: tuple[int, int]) -> bool:
    """Whether a condition is fulfilled, at the latest when the device has done its work."""
    if condition():
        return True
    settle(device)
    last = time.monotonic() + LINGER
    while not condition():
        if time.monotonic() > last:
            return False
        time.sleep(0.001)
    return True


class Trace:
    """The bytes of a struct, which change when it is released or its memory is freed."""

    def __init__(self, struct: Any) -> None:
        self._address = ctypes.addressof(struct)
        self._before = ctypes.string_at(self._address, ctypes.sizeof(struct))

    def is_changed(self) -> bool:
        try:
            return _host_read.read(self._address, len(self._before)) != self._before
        except _host_read.Malformed:
            return True


def is_kept_forever(
    address: int,
    is_alive: Callable[[], bool],
    more: Callable[[Collection[int]], tuple[int, Callable[[], bool]] | None],
) -> bool:
    """Whether the struct at an address stays alive, as do those of many more exports.

    `more` exports a new object, drops its capsules, and returns the address of the struct and
    whether that is alive; None for a struct that is known. So a capsule that is shared shows, and
    a cache lets go of one in the end. A producer that cannot export again leaks nothing more.
    """
    live = {address: is_alive}
    try:
        for _ in range(_N_CALLS):
            one = more(live)
            if one is None or not one[1]():
                return False
            live[one[0]] = one[1]
    except Exception:
        return False
    gc.collect()
    return all(is_one_alive() for is_one_alive in live.values())


def is_leaked(
    trace: Trace, exporter: Callable[[], Callable[[], object]], device: tuple[int, int]
) -> bool:
    """Whether a struct is leaked, as are those of more exports whose result is dropped.

    `exporter` returns the function that exports. Memory of a library's own allocator is not
    counted. A producer that cannot export again leaks nothing more.
    """
    if trace.is_changed():
        return False
    try:
        export = exporter()
        # Caches fill up, and other threads allocate: only continued growth is a leak.
        grows = all(_grows(export, device) for _ in range(3))
    except Untold:
        raise
    except Exception:
        return False
    return grows and not happens(trace.is_changed, device)


def _grows(export: Callable[[], object], device: tuple[int, int]) -> bool:
    settle(device)
    before = _measure()
    for _ in range(_N_CALLS):
        export()
    settle(device)
    after = _measure()
    return after[0] - before[0] >= _N_CALLS or after[1] - before[1] >= _N_CALLS * _N_BYTES
