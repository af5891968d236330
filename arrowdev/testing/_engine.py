"""The functions of the engine, and conversions of their arguments."""

from __future__ import annotations

from operator import index

from arrowdev import DeviceType
from arrowdev.testing import _device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# The device type of the software device, ARROW_DEVICE_EXT_DEV.
EXT_DEV = DeviceType.EXT_DEV.value

# The kinds of memory, by their number in _device.find().
KINDS = ("device", "pinned", "managed", "registered")

_LONGEST = 10**9
_MOST = 2**63 - 1


def call(name: str, *numbers: int) -> int:
    """Call a function of the engine. Its errors are raised as DeviceError or MemoryError."""
    return _device.call(name, *numbers)


def milliseconds(timeout: float | None) -> int:
    """The engine's timeout: -1 means as long as the device's own."""
    return -1 if timeout is None else scaled("timeout", timeout, 1000)


def scaled(name: str, seconds: float, per_second: int) -> int:
    """Return a time in the engine's unit. The error for anything else names the argument."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {seconds!r}")
    if not 0 <= seconds <= _LONGEST:
        raise ValueError(f"{name} must be from 0 to {_LONGEST} seconds, not {seconds!r}")
    return round(seconds * per_second)


def whole(name: str, value: int, least: int, most: int) -> int:
    """Return an integer argument within a range. Bools and floats are refused."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} must be an int, not {value!r}")
    number = index(value)
    if not least <= number <= most:
        allowed = f"{least} or more" if number < least == 0 else f"from {least} to {most}"
        raise ValueError(f"{name} must be {allowed}, not {number}")
    return number


def size(name: str, value: int) -> int:
    return whole(name, value, 0, _MOST)


def find(address: int) -> tuple[int, int, int, int] | None:
    """Return (base, nbytes, device, kind) of the live memory that contains `address`."""
    return _device.find(address)


def peek(address: int, nbytes: int) -> bytes:
    """Return the bytes that are there now."""
    return _device.peek(address, nbytes)


def calls() -> Sequence[str]:
    return _device.calls()


def write(queue: int, address: int, data: Any) -> None:
    _device.write(queue, address, data)


def read(queue: int, address: int, nbytes: int, timeout: float | None = None) -> bytes:
    return _device.read(queue, address, nbytes, milliseconds(timeout))
