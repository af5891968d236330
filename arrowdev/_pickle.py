"""Pickles of Array, Tensor, Buffer and Schema.

A pickle has the rows of the object and nothing else of its memory, in host memory. The names
and arguments of the load functions are the format: later versions of arrowdev read pickles of
earlier ones. The core checks all parts, as those of any foreign struct.
"""

from __future__ import annotations

from pickle import PickleBuffer, UnpicklingError
from weakref import WeakValueDictionary

from arrowdev import _core
from arrowdev._core import Array, Buffer, DeviceType, ExchangeError, Schema
from arrowdev._errors import exchange_error
from arrowdev._unpickle_on import current_target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, SupportsIndex, TypeVar

    from arrowdev._core import Tensor

    _Value = TypeVar("_Value", Array, Tensor, Buffer)

# The first argument of each load function.
FORMAT = 1

# Device memory is copied through memory to which the runtime copies directly.
_PINNED = {DeviceType.CUDA: DeviceType.CUDA_HOST, DeviceType.ROCM: DeviceType.ROCM_HOST}

# What returns a text in place of the data, while sharing() is on (_share.py).
share_once: Callable[[Any], str] | None = None

# --- pickling ------------------------------------------------------------------------------------


class _Memory:
    """A buffer in a pickle. pickle has each object once, so equal memory needs one object."""

    __slots__ = ("__weakref__", "_buffer")

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        if protocol.__index__() >= 5:
            return load_memory, (PickleBuffer(self._buffer),)
        view = memoryview(self._buffer)
        return load_memory, (bytes(view) if view.readonly else bytearray(view),)


# The memory in pickles that are being made, by address, size and read-only flag. The Buffer of a
# _Memory keeps its address from being used again.
_memories: WeakValueDictionary[tuple[int, int | None, bool], _Memory] = WeakValueDictionary()


def _memory(buffer: Buffer | None) -> _Memory | None:
    if buffer is None:
        return None
    key = (buffer.data_ptr, buffer.nbytes, buffer.readonly)
    found = _memories.get(key)
    if found is None:
        found = _memories[key] = _Memory(buffer)
    return found


def _origin(value: Any) -> tuple[int, int] | None:
    """The device to return it to."""
    if value.device_type is DeviceType.CPU:
        return None
    return int(value.device.type), value.device.id


def on_host(value: Any) -> tuple[Any, tuple[int, int] | None]:
    """`value` in host memory that is ready, and the device to return it to."""
    origin = _origin(value)
    if origin is None:
        return value, None
    pinned = _PINNED.get(value.device.type)
    copied = value if pinned is None else value.to((pinned, value.device.id))
    return copied.to("cpu"), origin


def reduce(value: Any, protocol: int) -> tuple[Any, ...]:
    """What ``__reduce_ex__`` of the types of the core returns."""
    if type(value) is Schema:
        return load_schema, (FORMAT, _core._schema_parts(value))
    by_share = share_once  # another thread may switch it off
    if by_share is not None:
        return load_shared, (FORMAT, by_share(value), _origin(value))
    host, device = on_host(value)
    parts = _core._parts(host)
    if type(value) is Array:
        schema, numbers, buffers = parts
        memories = tuple(map(_memory, buffers))
        return load_array, (FORMAT, schema, numbers, memories, device)
    load = load_buffer if type(value) is Buffer else load_tensor
    return load, (FORMAT, *parts[:-1], _memory(parts[-1]), device)


# --- unpickling ----------------------------------------------------------------------------------


def _damaged(error: Exception) -> Exception:
    return UnpicklingError(f"the pickle of an arrowdev object is damaged: {error}")


def _check(version: int) -> None:
    if version != FORMAT:
        raise UnpicklingError(
            f"the pickle has format {version!r} of arrowdev, but arrowdev "
            f"{_core.__version__} reads format {FORMAT}; it is of a later version, or damaged"
        )


def _placed(value: _Value, origin: tuple[int, int] | None) -> _Value:
    """`value`, which is on the host, on the device of unpickle_on() or of the process, or else on
    its own."""
    target = current_target()
    if target is not None:
        return value.to(target)
    if origin is None:
        return value
    try:
        device = _core.device(origin)
    except (TypeError, ValueError, OverflowError) as error:
        raise _damaged(error) from error
    try:
        return value.to(device)
    except ExchangeError as error:
        raise exchange_error(
            f"the pickled memory was on {device}, and cannot be put there: {error}",
            reason=error.reason or "device",
            hint='unpickle it in `with arrowdev.unpickle_on("cpu"):`, start the process with '
            'ARROWDEV_UNPICKLE_ON=cpu, or pickle x.to("cpu")',
            device=device,
        ) from error


def load_memory(data: Any) -> Any:
    return data


def load_schema(version: int, parts: Any) -> Schema:
    _check(version)
    try:
        return _core._schema_of_parts(parts)
    except (TypeError, OverflowError) as error:
        raise _damaged(error) from error


def load_shared(version: int, text: str, device: tuple[int, int] | None) -> Any:
    from arrowdev._share import attach

    _check(version)
    value = attach(text)
    is_there = value.device_type is not DeviceType.CPU and current_target() is None
    return value if is_there else _placed(value, device)


def load_array(
    version: int, schema: Any, numbers: Any, memories: Any, device: tuple[int, int] | None
) -> Array:
    _check(version)
    try:
        array = _core._array_of_parts(schema, numbers, memories)
    except (TypeError, OverflowError, BufferError) as error:
        raise _damaged(error) from error
    return _placed(array, device)


def _load_block(version: int, is_buffer: bool, parts: tuple[Any, ...]) -> Any:
    _check(version)
    *found, device = parts
    try:
        block = _core._tensor_of_parts(is_buffer, *found)
    except (TypeError, OverflowError, BufferError) as error:
        raise _damaged(error) from error
    return _placed(block, device)


def load_tensor(version: int, *parts: Any) -> Any:
    return _load_block(version, False, parts)


def load_buffer(version: int, *parts: Any) -> Any:
    return _load_block(version, True, parts)
