"""Pickles of Array, Tensor, Buffer and Schema.

A pickle has the rows of the object and nothing else of its memory, in host memory. The names
and arguments of the load functions are the format: later versions of arrowdev read pickles of
earlier ones. The core checks all parts, as those of any foreign struct.
"""

from __future__ import annotations

import contextvars

from arrowdev import _core
from arrowdev._core import Array, Buffer, DeviceError, DeviceType, ExchangeError, Schema
from arrowdev._errors import exchange_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsIndex

    from typing_extensions import Self

    from arrowdev._core import Device, Tensor
    from arrowdev.typing import DeviceLike

# The first argument of each load function.
FORMAT = 1

# Device memory is copied through memory to which the runtime copies directly.
_PINNED = {DeviceType.CUDA: DeviceType.CUDA_HOST, DeviceType.ROCM: DeviceType.ROCM_HOST}

_target: contextvars.ContextVar[Device | None] = contextvars.ContextVar(
    "arrowdev.unpickle_on", default=None
)


class unpickle_on:
    """Put what is unpickled on `device`, inside ``with``.

    Without it, memory comes back on the device that it was pickled on, which has to be there.
    ``with arrowdev.unpickle_on("cpu"):`` leaves all memory on the host. The device is in a context
    variable: it holds on this thread, or in this asyncio task and the tasks that it creates.
    """

    def __init__(self, device: DeviceLike) -> None:
        self._device = _core.device(device)
        self._tokens: list[contextvars.Token[Device | None]] = []

    def __repr__(self) -> str:
        return f"arrowdev.unpickle_on({str(self._device)!r})"

    def __enter__(self) -> Self:
        self._tokens.append(_target.set(self._device))
        return self

    def __exit__(self, *args: object) -> None:
        _target.reset(self._tokens.pop())


# --- pickling ------------------------------------------------------------------------------------


class _Memory:
    """A buffer in a pickle. pickle has each object once, so equal memory needs one object."""

    __slots__ = ("__weakref__", "_buffer")

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        from pickle import PickleBuffer

        if protocol.__index__() >= 5:
            return load_memory, (PickleBuffer(self._buffer),)
        view = memoryview(self._buffer)
        return load_memory, (bytes(view) if view.readonly else bytearray(view),)


# The memory in pickles that are being made, by address, size and read-only flag. The Buffer of a
# _Memory keeps its address from being used again.
_memories: Any = None


def _memory(buffer: Buffer | None) -> _Memory | None:
    global _memories
    if buffer is None:
        return None
    if _memories is None:
        from weakref import WeakValueDictionary

        _memories = WeakValueDictionary()
    key = (buffer.data_ptr, buffer.nbytes, buffer.readonly)
    found = _memories.get(key)
    if found is None:
        found = _memories[key] = _Memory(buffer)
    return found


def _on_host(value: Any) -> tuple[Any, tuple[int, int] | None]:
    """`value` in host memory that is ready, and the device to return it to."""
    device = value.device
    if device.type == DeviceType.CPU:
        return value, None
    pinned = _PINNED.get(device.type)
    if pinned is not None:
        value = value.to((pinned, device.id))
    return value.to("cpu"), (int(device.type), device.id)


def reduce(value: Any, protocol: int) -> tuple[Any, ...]:
    """What ``__reduce_ex__`` of the types of the core returns."""
    if type(value) is Schema:
        return load_schema, (FORMAT, _core._schema_parts(value))
    host, device = _on_host(value)
    parts = _core._parts(host)
    if type(value) is Array:
        schema, numbers, buffers = parts
        memories = tuple(map(_memory, buffers))
        return load_array, (FORMAT, schema, numbers, memories, device)
    load = load_buffer if type(value) is Buffer else load_tensor
    return load, (FORMAT, *parts[:-1], _memory(parts[-1]), device)


# --- unpickling ----------------------------------------------------------------------------------


def _damaged(error: Exception) -> Exception:
    from pickle import UnpicklingError

    return UnpicklingError(f"the pickle of an arrowdev object is damaged: {error}")


def _check(version: int) -> None:
    from pickle import UnpicklingError

    if version != FORMAT:
        raise UnpicklingError(
            f"the pickle has format {version!r} of arrowdev, but arrowdev "
            f"{_core.__version__} reads format {FORMAT}; it is of a later version, or damaged"
        )


def _placed(value: Any, origin: tuple[int, int] | None) -> Any:
    """`value`, which is on the host, on the device of unpickle_on(), or else on its own."""
    target = _target.get()
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
    except (ExchangeError, DeviceError) as error:
        raise exchange_error(
            f"the pickled memory was on {device}, and cannot be put there: {error}",
            reason=getattr(error, "reason", None) or "device",
            hint='unpickle it in `with arrowdev.unpickle_on("cpu"):`, or pickle x.to("cpu")',
            device=device,
        ) from error


def load_memory(data: Any) -> Any:
    return data


def load_schema(version: int, parts: Any) -> Schema:
    _check(version)
    try:
        return _core._schema_of_parts(parts)
    except TypeError as error:
        raise _damaged(error) from error


def load_array(
    version: int, schema: Any, numbers: Any, memories: Any, device: tuple[int, int] | None
) -> Array:
    _check(version)
    try:
        array = _core._array_of_parts(schema, numbers, memories)
    except (TypeError, BufferError) as error:
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


def load_tensor(version: int, *parts: Any) -> Tensor:
    return _load_block(version, False, parts)


def load_buffer(version: int, *parts: Any) -> Buffer:
    return _load_block(version, True, parts)
