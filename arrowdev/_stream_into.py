"""ArrayStream.into(): a stream as objects of another library, whole or batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from arrowdev._convert import OWN_ERRORS, find_target, other_class, refused_by_library
from arrowdev._core import (
    Array,
    ArrayStream,
    DeviceType,
    ExchangeError,
    Tensor,
    array,
    array_stream,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from arrowdev._convert import Target
    from arrowdev._core import Schema
    from arrowdev._given import Make
    from arrowdev.aio import AsyncArrayStream

_T = TypeVar("_T")


class _Results(Generic[_T]):
    """What ConvertedStream and AsyncConvertedStream have in common: they are read once."""

    __slots__ = ("__weakref__", "_stream")

    _stream: ArrayStream | AsyncArrayStream

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"cannot pickle or copy {type(self).__name__}: it can be read only once")

    def __repr__(self) -> str:
        return f"<arrowdev.{type(self).__name__} of {self._stream!r}>"


class ConvertedStream(_Results[_T]):
    """The batches of a stream as objects of other libraries, one after another.

    :meth:`ArrayStream.into` creates it. An iterator and a context manager with one reader at a
    time. What was read stays valid when the stream is closed.
    """

    __slots__ = ("_convert",)

    _stream: ArrayStream

    def __init__(self, stream: ArrayStream, convert: Callable[[Array], _T]) -> None:
        self._stream = stream
        self._convert = convert

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        batch = next(self._stream)
        try:
            return self._convert(batch)
        except BaseException:
            self._stream.close()  # to go on would leave out a batch
            raise

    def close(self) -> None:
        """Release the producer now, or as soon as the call that is reading it returns."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self._stream.close()


class AsyncConvertedStream(_Results[_T]):
    """The same of an AsyncArrayStream, whose schema may be still to come."""

    __slots__ = ("_arguments", "_convert")

    _stream: AsyncArrayStream

    def __init__(
        self, source: AsyncArrayStream, cls: Any, stream: object, copy: bool | None
    ) -> None:
        _classes(cls)
        if not isinstance(cls, Mapping) and _takes_whole(cls):
            raise TypeError(
                f"{cls.__qualname__} takes a stream as a whole, and an AsyncArrayStream has "
                "nothing to read at once; use x.to_stream().into(cls)"
            )
        self._stream = source
        self._arguments = cls, stream, copy
        self._convert: Callable[[Array], Any] | None = None
        if source._poll_schema() is not None:
            self._convert = batch_converter(source.schema, *self._arguments)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        batch = await self._stream.__anext__()
        try:
            if self._convert is None:
                self._convert = batch_converter(self._stream.schema, *self._arguments)
            result: _T = self._convert(batch)
        except BaseException:
            await self._stream.aclose()
            raise
        return result

    async def aclose(self) -> None:
        """Close the stream, as :meth:`AsyncArrayStream.aclose` does."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self._stream.aclose()


def plan(
    source: ArrayStream, cls: Any, stream: object, copy: bool | None
) -> Callable[[ArrayStream], Any]:
    """Return the function that makes the result of ``source.into(cls)`` of the stream."""
    if isinstance(cls, Mapping) or not _takes_whole(cls):
        convert = batch_converter(source.schema, cls, stream, copy)
        return lambda taken: ConvertedStream(taken, convert)
    target = find_target(cls)
    whole = target.whole
    assert whole is not None
    if target.is_tried:
        _try_whole(source, cls, whole, copy, stream)

    def read(taken: ArrayStream) -> Any:
        if copy or stream is not None:
            taken = taken.map(
                lambda batch: array(batch, copy=copy, stream=stream), schema=taken.schema
            )
        return whole(taken, copy, stream)

    return read


def _try_whole(
    source: ArrayStream, cls: type, whole: Make, copy: bool | None, stream: object
) -> None:
    """Raise what the library says of the type, before the stream is handed over."""
    batches = [_empty(source.schema)] if source.device_type == DeviceType.CPU else []
    empty = array_stream(iter(batches), schema=source.schema, device_type=source.device_type)
    try:
        result = whole(empty, copy, stream)
    except OWN_ERRORS:
        raise
    except Exception as error:
        raise refused_by_library(cls, source, error) from error
    if not isinstance(result, cls):
        raise other_class(cls, result)


def _empty(schema: Schema) -> Array:
    """Return an Array of this type without rows."""
    return array_stream(iter(()), schema=schema, device_type=DeviceType.CPU).read_all()


def batch_converter(
    schema: Schema, cls: Any, stream: object, copy: bool | None
) -> Callable[[Array], Any]:
    """Return the function that converts a batch, for a class or a mapping of names to classes.

    The classes are tried on a batch without rows, so that what they say of the types is raised
    before a batch is read. What was registered and __arrowdev_from__() are not: they may count
    their calls.
    """
    classes = _classes(cls)
    empty = _empty(schema)
    if not isinstance(cls, Mapping):
        _try_type(empty, cls)
        return lambda batch: batch.into(cls, stream=stream, copy=copy)
    pairs = list(zip(cls, classes, strict=True))
    for name, each in pairs:
        _try_type(empty.field(name), each)
    return lambda batch: {
        name: batch.field(name).into(each, stream=stream, copy=copy) for name, each in pairs
    }


def _try_type(empty: Array, cls: type) -> None:
    target = _find(cls)
    if target is None or target.is_tried:
        try:
            empty.into(cls)
        except ExchangeError as error:
            if error.reason == "dtype":
                raise


def _classes(cls: Any) -> list[type]:
    """The classes of the argument, each of which can be made; or TypeError or ValueError."""
    classes = list(cls.values()) if isinstance(cls, Mapping) else [cls]
    if not classes:
        raise ValueError("the mapping of column names to classes is empty")
    for each in classes:
        _find(each)
    return classes


def _takes_whole(cls: Any) -> bool:
    target = _find(cls)
    return target is not None and target.whole is not None


def _find(cls: Any) -> Target | None:
    """How a class is made; None for those that need no search; or TypeError."""
    if not isinstance(cls, type):
        raise TypeError(
            "the target must be a class such as torch.Tensor or a mapping of column names to "
            f"classes, not {type(cls).__name__}"
        )
    if cls in (Array, Tensor) or "__dlpack_c_exchange_api__" in vars(cls):
        return None
    return find_target(cls)
