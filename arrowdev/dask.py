"""Serializers of Array, Tensor and Buffer for Dask, registered by the import of this module.

Between workers, Dask pickles with protocol 5, and memory is not copied. For a result that a client
asks for, the scheduler wants protocol 4, which copies the memory into the pickle. These
serializers keep it outside. The worker and the client have to import this module.

Between workers whose connections carry memory of CUDA devices (ucxx), Dask asks the family "cuda"
first: memory of a device is sent from there, and what is on the host takes the other families.
"""

from __future__ import annotations

import pickle

from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from arrowdev import _core, _share
from arrowdev._core import Array, Buffer, DeviceType, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["deserialize", "deserialize_on_device", "serialize", "serialize_on_device"]

# The formats whose memory for values has a size that only the last offset tells.
_OFFSETS = {"u": "int32", "z": "int32", "U": "int64", "Z": "int64"}


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


def serialize_on_device(value: Any) -> tuple[dict[str, Any], list[Buffer]]:
    """The header and the frames of the family "cuda". The frames are the memory of `value`.

    They are ready: a transport knows no streams. Memory that is elsewhere, and binary views, take
    the next family.
    """
    if value.device_type != DeviceType.CUDA:
        raise NotImplementedError("only for memory of CUDA devices")
    if isinstance(value, Array) and _is_slice(value):
        value = _core._copied(value, "only the rows of a slice are sent", None)
    schema, numbers, buffers = _share._parts_on_device(value)
    sized = iter(_sized(value)) if isinstance(value, Array) else iter(buffers)
    frames: list[Buffer] = []
    positions: list[int | None] = []  # of each buffer among the frames; -1 if it is empty
    for buffer in sized:
        if buffer is None:
            positions.append(None)
        elif buffer.nbytes == 0:
            positions.append(-1)
        else:
            positions.append(len(frames))
            frames.append(buffer)
    if not frames:
        raise NotImplementedError("there is no memory to send")
    for frame in frames:
        frame.synchronize()
    return {"parts": [type(value).__name__, schema, numbers, positions]}, frames


def _is_slice(value: Array) -> bool:
    return value.offset != 0 or any(map(_is_slice, value.children))


def _sized(value: Array) -> Iterator[Buffer | None]:
    """The buffers of an array and its children, in the order of the parts, with their sizes."""
    format_ = value.schema.format
    own = list(value.buffers)
    if format_ in _OFFSETS:
        validity, offsets, data = own
        n = value.offset + len(value)
        size = 0
        if offsets is not None and n > 0:
            ends = Array.from_buffers(_OFFSETS[format_], n + 1, [None, offsets])
            size = ends[n:].to("cpu")[0]
        own = [validity, offsets, data and _core._view_buffer(data, size, False)]
    if any(buffer is not None and buffer.nbytes is None for buffer in own):
        raise NotImplementedError(f"the sizes of {value.schema} are on the device")
    yield from own
    for child in value.children:
        yield from _sized(child)
    if value.dictionary is not None:
        yield from _sized(value.dictionary)


def deserialize_on_device(header: dict[str, Any], frames: list[Any]) -> Any:
    """What was serialized, in the memory of the frames."""
    kind, schema, numbers, positions = header["parts"]
    found = [_core.array(frame).buffers[1] for frame in frames]
    device = _core.tensor(frames[0]).device
    empty = device.empty(0)
    buffers = tuple(None if i is None else empty if i < 0 else found[i] for i in positions)
    return _share._made_on(device, kind, schema, numbers, buffers)


_of_dask: Any = (dask_serialize, dask_deserialize)  # Dask has no types
_of_cuda: Any = (cuda_serialize, cuda_deserialize)
for _class in (Array, Tensor, Buffer):
    _of_dask[0].register(_class, serialize)
    _of_dask[1].register(_class, deserialize)
    _of_cuda[0].register(_class, serialize_on_device)
    _of_cuda[1].register(_class, deserialize_on_device)
