"""The engine's functions, with the numbers that Python objects stand for."""

from __future__ import annotations

from arrowdev import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# What _testing_find() calls the kinds of memory, by number.
KINDS = ("device", "pinned", "managed", "registered")


def call(name: str, *numbers: int) -> int:
    """One function of the engine; its error is raised as DeviceError or MemoryError."""
    return _core._testing_call(name, *numbers)


def milliseconds(timeout: float | None) -> int:
    """The engine's timeout: -1 means as long as the device's own."""
    if timeout is None:
        return -1
    if timeout < 0:
        raise ValueError(f"timeout must not be negative, got {timeout!r}")
    return round(timeout * 1000)


def find(address: int) -> tuple[int, int, int, int] | None:
    """(base, nbytes, device, kind) of the live memory that `address` lies in."""
    return _core._testing_find(address)


def calls() -> Sequence[str]:
    return _core._testing_calls()


def write(queue: int, address: int, data: Any) -> None:
    _core._testing_write(queue, address, data)


def read(queue: int, address: int, nbytes: int, timeout: float | None = None) -> bytes:
    return _core._testing_read(queue, address, nbytes, milliseconds(timeout))
