"""Arrays on the software device, for tests of other libraries."""

from __future__ import annotations

from array import array as host_numbers

import arrowdev
from arrowdev.testing import _device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from typing_extensions import CapsuleType

    from arrowdev import Array
    from arrowdev.testing._queue import Queue
    from arrowdev.typing import TypeLike


def _bits(flags: Iterable[bool]) -> bytes:
    values = list(flags)
    packed = bytearray((len(values) + 7) // 8)
    for i, flag in enumerate(values):
        packed[i // 8] |= flag << i % 8
    return bytes(packed)


def _from_list(values: list[Any]) -> Array:
    """Return a column of bools, ints, floats or strings, with None for null."""
    validity = _bits(value is not None for value in values) if None in values else None
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds <= {str}:
        texts = [(value or "").encode() for value in values]
        offsets = host_numbers("i", [0])
        for text in texts:
            offsets.append(offsets[-1] + len(text))
        buffers: list[Any] = [validity, offsets, b"".join(texts)]
        return arrowdev.Array.from_buffers("utf8", len(values), buffers)
    if kinds == {bool}:
        data: Any = _bits(bool(value) for value in values)
        return arrowdev.Array.from_buffers("bool", len(values), [validity, data])
    if kinds <= {int, float}:
        name, code = ("int64", "q") if kinds == {int} else ("float64", "d")
        data = host_numbers(code, [value or 0 for value in values])
        return arrowdev.Array.from_buffers(name, len(values), [validity, data])
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(
        f"a list of {names} is no column of bools, numbers or strings; pass an array of NumPy, "
        "pyarrow or any other library on the host"
    )


def host_array(values: Any, type: TypeLike | None = None) -> Array:
    """Return an Array from plain values (a list, or a dict of columns) or from any array."""
    if isinstance(values, dict):
        values = arrowdev.record_batch(
            {name: host_array(column) for name, column in values.items()}
        )
    if isinstance(values, (list, tuple, range)):
        values = _from_list(list(values))
        if type is not None and values.schema != arrowdev.schema(type):
            values = _numbers_as(values.to_pylist(), type)
    return arrowdev.array(values, type)


def _numbers_as(values: list[Any], type: TypeLike) -> Array:
    """Return the numbers as a column of a type that a list does not have by itself."""
    codes = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I"}
    codes |= {"l": "q", "L": "Q", "f": "f", "g": "d"}
    code = codes.get(arrowdev.schema(type).format)
    if code is None:
        raise TypeError(f"a list cannot be made a column of type {type}; pass an array of it")
    validity = _bits(value is not None for value in values) if None in values else None
    numbers = host_numbers(code, [value or 0 for value in values])
    return arrowdev.Array.from_buffers(type, len(values), [validity, numbers])


def refuse_unknown(kwargs: dict[str, object]) -> None:
    """Refuse unknown arguments unless they are None, as the protocols demand of a producer."""
    unknown = [name for name, value in kwargs.items() if value is not None]
    if unknown:
        raise NotImplementedError(f"keyword arguments that are not known: {unknown}")


def _sizes(array: Array) -> Iterator[int]:
    """Yield the bytes of each buffer: those of a node, its children, and its dictionary."""
    for buffer in array.buffers:
        yield (0 if buffer is None else buffer.nbytes) or 0
    for child in array.children:
        yield from _sizes(child)
    if array.dictionary is not None:
        yield from _sizes(array.dictionary)


class ArrayProducer:
    """A foreign library's array on the software device, created by ``SoftwareDevice.array``.

    Each call of ``__arrow_c_device_array__`` returns a new array: new memory, which the queue
    fills with the values, and the event of this write. After the release of the array its memory
    is freed in the order of the queue, as by the memory pool of a GPU. arrowdev's copies and its
    export of device arrays are not used.
    """

    def __init__(self, values: Array, queue: Queue, with_event: bool) -> None:
        self._values = values
        self.queue = queue
        self._with_event = with_event

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._values!r} on {self.queue!r}>"

    def __arrow_c_schema__(self) -> CapsuleType:
        return self._values.__arrow_c_schema__()

    def __arrow_c_device_array__(
        self, requested_schema: CapsuleType | None = None, **kwargs: object
    ) -> tuple[CapsuleType, CapsuleType]:
        refuse_unknown(kwargs)
        _, host = self._values.__arrow_c_array__()
        sizes = tuple(_sizes(self._values))
        array = _device.produce(host, sizes, self.queue.handle, self._with_event)
        if not self._with_event:
            self.queue.synchronize()
        return self.__arrow_c_schema__(), array


def consume(producer: Any, queue: Queue, wait: bool) -> Array:
    """Read a producer's device array on a queue, as a C consumer does, and check it."""
    if not hasattr(producer, "__arrow_c_device_array__"):
        raise TypeError(
            "to_host() reads an object with __arrow_c_device_array__, not "
            f"{type(producer).__name__!r}"
        )
    schema, array = producer.__arrow_c_device_array__()
    return arrowdev.array((schema, _device.consume(array, queue.handle, wait)))
