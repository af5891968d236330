"""Backends of installed packages, which are loaded when a device type is first needed."""

from __future__ import annotations

from arrowdev._core import DeviceType, _offer_backend, _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "arrowdev.backends"
# What the code of a package may raise. An interrupt is the user's.
_FAILURES = (Exception, SystemExit)

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


def _why(what: str, error: BaseException) -> str:
    try:
        text = str(error)
    except _FAILURES:
        text = "<exception str() failed>"
    return _shown(f"{what} ({type(error).__name__}: {text})")


def find(device_type: int) -> str | None:
    """Register the backend of a device type. Return what failed, or None; for the core.

    The function of an entry point returns the capsule of a backend, or None where importing its
    module has registered one. Two threads may call it at once: a lock would be held during
    imports.
    """
    names = _names(device_type)
    try:
        points = _entry_points()
    except Exception as error:  # the files of any package
        return _why(f"the entry points of {GROUP} cannot be read", error)
    for point in points:
        if point.name.lower() not in names:
            continue
        try:
            capsule = point.load()()
            if capsule is not None:
                _offer_backend(capsule, device_type)
        except _FAILURES as error:
            return _why(f"the entry point {point.name} = {point.value} of {GROUP} failed", error)
    return None
