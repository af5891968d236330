"""Devices of other libraries as the argument of ``device=``.

This module imports no library: the library of the device has been imported already.
"""

from __future__ import annotations

import sys

from arrowdev._core import DeviceType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def as_device(device: object) -> str | tuple[int, int] | None:
    """Return what arrowdev.device() takes, or None for an object of another class."""
    for base in type(device).__mro__:
        # jax.Device calls itself "jaxlib._jax.Device".
        name = base.__name__.rpartition(".")[2]
        read = _READERS.get((base.__module__.partition(".")[0], name))
        if read is not None:
            return read(device)
    return None


def _unknown(device: object) -> ValueError:
    return ValueError(f"unknown device {device!r}; arrowdev.DeviceType has the types of devices")


def _torch(device: Any) -> str | tuple[int, int]:
    torch: Any = sys.modules["torch"]
    cuda = DeviceType.ROCM if torch.version.hip else DeviceType.CUDA
    types = {"cuda": cuda, "xpu": DeviceType.ONEAPI, "mps": DeviceType.METAL}
    if device.type == "cpu":
        return "cpu"
    if device.type not in types:
        raise _unknown(device)
    index = device.index
    if index is None:  # the current device, which is 0 until the runtime is started
        runtime = getattr(torch, device.type)
        started = getattr(runtime, "is_initialized", bool)
        index = runtime.current_device() if started() else 0
    return int(types[device.type]), index


def _jax(device: Any) -> str | tuple[int, int]:
    if device.platform == "cpu":
        return "cpu"
    version = device.client.platform_version
    for name in ("cuda", "rocm"):
        if name in version.lower():
            return int(DeviceType[name.upper()]), device.local_hardware_id
    raise _unknown(device)


def _dpctl(device: Any) -> tuple[int, int]:
    return int(DeviceType.ONEAPI), device.get_device_id()


def _cupy(device: Any) -> tuple[int, int]:
    is_hip = sys.modules["cupy"].cuda.runtime.is_hip
    return int(DeviceType.ROCM if is_hip else DeviceType.CUDA), device.id


_READERS = {
    ("torch", "device"): _torch,
    ("jax", "Device"): _jax,
    ("jaxlib", "Device"): _jax,
    ("dpctl", "SyclDevice"): _dpctl,
    ("cupy", "Device"): _cupy,
}
