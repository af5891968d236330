"""Sizes of arrays for Dask, which finds this module by the entry point "dask.sizeof".

Dask decides by the size of a result where it is used and when it is written to disk.
"""

from __future__ import annotations

from arrowdev._core import Array, Buffer, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _array_size(array: Array) -> int:
    """The bytes of an array. Sizes that only a wait for a device would tell count as 0."""
    if array.nbytes is not None:
        return array.nbytes
    below = [*array.children, *([array.dictionary] if array.dictionary is not None else [])]
    own = sum(_block_size(buffer) for buffer in array.buffers if buffer is not None)
    return own + sum(map(_array_size, below))


def _block_size(block: Tensor | Buffer) -> int:
    return block.nbytes or 0


def register(sizeof: Any) -> None:
    """Make ``dask.sizeof.sizeof`` know the bytes of an Array, Tensor and Buffer."""
    sizeof.register(Array, _array_size)
    sizeof.register((Tensor, Buffer), _block_size)
