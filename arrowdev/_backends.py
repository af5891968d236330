"""Backends of installed packages, which are loaded when a device type is first needed."""

from __future__ import annotations

from arrowdev._core import DeviceType, _offer_backend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "arrowdev.backends"

_points: list[EntryPoint] | None = None


def _entry_points() -> list[EntryPoint]:
    """Return the entry points of the group, which are read once."""
    global _points
    if _points is None:
        from importlib import metadata

        _points = list(metadata.entry_points(group=GROUP))
    return _points


def _names(device_type: int) -> set[str]:
    """Return what an entry point for this type may be called: "vulkan", "7"."""
    known = device_type in DeviceType._value2member_map_
    name = DeviceType(device_type).name.lower() if known else ""
    return {str(device_type), name}


def find(device_type: int) -> str | None:
    """Register the backend of a device type. Return what failed, or None; for the core.

    The function of an entry point returns the capsule of a backend, or None where importing its
    module has registered one. Two threads may call it at once: a lock would be held during
    imports.
    """
    names = _names(device_type)
    for point in _entry_points():
        if point.name.lower() not in names:
            continue
        try:
            capsule = point.load()()
            if capsule is not None:
                _offer_backend(capsule, device_type)
        except Exception as error:
            return (
                f"the entry point {point.name} = {point.value} of {GROUP} failed "
                f"({type(error).__name__}: {error})"
            )
    return None
