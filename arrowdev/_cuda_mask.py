"""The mask in the dict of ``Array.__cuda_array_interface__``."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself would cost a millisecond of import
if TYPE_CHECKING:
    from typing import Any

    from arrowdev._core import Array


class CudaMask:
    """The validity bits of an Array, which it keeps alive."""

    __slots__ = ("__cuda_array_interface__", "_array")

    def __init__(self, array: Array, interface: dict[str, Any]) -> None:
        self._array = array
        self.__cuda_array_interface__ = interface
