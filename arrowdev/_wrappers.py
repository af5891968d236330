"""Wrappers that show exactly one side of the Arrow PyCapsule protocol."""

from __future__ import annotations

from arrowdev._core import _require_host, array

TYPE_CHECKING = False  # typing itself would cost a millisecond of import
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import CapsuleType

    from arrowdev._core import Array
    from arrowdev.typing import ArrayLike


class _HostOnly:
    """What ``as_host`` returns: the CPU-only methods and nothing else."""

    __slots__ = ("_array",)

    def __init__(self, wrapped: Array) -> None:
        self._array = wrapped

    def __repr__(self) -> str:
        return f"arrowdev.as_host({self._array!r})"

    def __arrow_c_schema__(self) -> CapsuleType:
        return self._array.__arrow_c_schema__()

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[CapsuleType, CapsuleType]:
        return self._array.__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType:
        return self._array.__arrow_c_stream__(requested_schema)


class _DeviceOnly:
    """What ``as_device`` returns: the device methods and nothing else."""

    __slots__ = ("_array",)

    def __init__(self, wrapped: Array) -> None:
        self._array = wrapped

    def __repr__(self) -> str:
        return f"arrowdev.as_device({self._array!r})"

    def __arrow_c_schema__(self) -> CapsuleType:
        return self._array.__arrow_c_schema__()

    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **kwargs: Any
    ) -> tuple[CapsuleType, CapsuleType]:
        return self._array.__arrow_c_device_array__(requested_schema, **kwargs)

    def __arrow_c_device_stream__(
        self, requested_schema: object | None = None, **kwargs: Any
    ) -> CapsuleType:
        return self._array.__arrow_c_device_stream__(requested_schema, **kwargs)


def as_host(obj: ArrayLike) -> _HostOnly:
    """Wrap `obj` so that it has only the CPU methods of the protocol.

    The wrapper has ``__arrow_c_schema__``, ``__arrow_c_array__`` and
    ``__arrow_c_stream__``, so a consumer that prefers the device protocol and
    cannot handle it takes the host protocol instead.

    Returns
    -------
    object
        A wrapper, which keeps `obj` alive.

    Raises
    ------
    ExchangeError
        The host cannot read the memory. It is never copied to the host.

    Examples
    --------
    >>> hasattr(ad.as_host(b"abc"), "__arrow_c_device_array__")
    False
    """
    wrapped = array(obj)
    _require_host(wrapped, "as_host()")
    return _HostOnly(wrapped)


def as_device(obj: ArrayLike) -> _DeviceOnly:
    """Wrap `obj` so that it has only the device methods of the protocol.

    The wrapper has ``__arrow_c_schema__``, ``__arrow_c_device_array__`` and
    ``__arrow_c_device_stream__``.

    Returns
    -------
    object
        A wrapper, which keeps `obj` alive.

    Examples
    --------
    >>> hasattr(ad.as_device(b"abc"), "__arrow_c_array__")
    False
    """
    return _DeviceOnly(array(obj))
