"""Serializers of Array, Tensor and Buffer for Dask, registered by the import of this module.

Between workers, Dask pickles with protocol 5, and memory is not copied. For a result that a client
asks for, the scheduler wants protocol 4, which copies the memory into the pickle. These
serializers keep it outside. The worker and the client have to import this module.
"""

from __future__ import annotations

import pickle

from distributed.protocol.serialize import dask_deserialize, dask_serialize

from arrowdev._core import Array, Buffer, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["deserialize", "serialize"]


class _UsePickle(NotImplementedError, TypeError):
    """Dask tries the next family after the first, and its own pickler goes on after the second."""


def serialize(
    value: Any, context: dict[str, Any] | None = None
) -> tuple[dict[str, Any], list[memoryview]]:
    """The header and the frames of the family "dask". The frames are the memory of `value`."""
    if (context or {}).get("pickle-protocol", 5) >= 5:
        raise _UsePickle("pickle sends the same frames, and every worker can read it")
    frames: list[memoryview] = []
    data = pickle.dumps(value, 5, buffer_callback=lambda buffer: frames.append(buffer.raw()))
    return {"pickle": data}, frames


def deserialize(header: dict[str, Any], frames: list[memoryview]) -> Any:
    """What was serialized, in the memory of the frames."""
    return pickle.loads(header["pickle"], buffers=frames)


_serializers: Any = dask_serialize  # Dask has no types
_deserializers: Any = dask_deserialize
for _class in (Array, Tensor, Buffer):
    _serializers.register(_class, serialize)
    _deserializers.register(_class, deserialize)
