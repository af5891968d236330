"""Async device streams for asyncio and trio.

Both ends of the specification's ``ArrowAsyncDeviceStreamHandler`` are state
machines in the extension; this module awaits them. A peer's thread never needs
the GIL: it wakes a waker, a file descriptor that the event loop watches.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

from arrowdev._core import _async_consumer, _async_producer, array_stream, protocols

TYPE_CHECKING = False  # typing itself would cost a millisecond of import
if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Any, NoReturn

    from typing_extensions import CapsuleType, Self

    from arrowdev._core import (
        Array,
        ArrayStream,
        DeviceType,
        Schema,
        _AsyncConsumer,
        _AsyncProducer,
    )
    from arrowdev._stream_into import AsyncConvertedStream
    from arrowdev.typing import ArrayLike, SupportsAsyncDeviceStream, TypeLike

    _Metadata = Mapping[bytes, bytes | str] | Mapping[str, bytes | str]
    _Description = tuple[Schema, DeviceType | int, dict[bytes, bytes] | None]
    _Element = ArrayLike | tuple[ArrayLike, _Metadata | None]


__all__ = ["AsyncArrayStream", "connect", "consumer", "produce"]

# The interval at which a source that never suspends yields to the event loop.
_SLICE_SECONDS = 0.001


# --- the two kinds of event loops -----------------------------------------------


def _trio() -> Any:
    """The module trio if one of its tasks is running, else None."""
    trio = sys.modules.get("trio")
    if trio is not None:
        try:
            trio.lowlevel.current_task()
        except RuntimeError:
            trio = None
    return trio


def _has_event_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    return (asyncio is not None and asyncio._get_running_loop() is not None) or _trio() is not None


async def _wait_readable(descriptor: int) -> None:
    trio = _trio()
    if trio is not None:
        await trio.lowlevel.wait_readable(descriptor)
        return
    import asyncio

    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():  # the loop calls this repeatedly until the task runs
            woken.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        await woken
    finally:
        if not loop.is_closed():
            loop.remove_reader(descriptor)


class _Watch:
    """The watch of an event loop of asyncio over a waker. Only the loop refers to it.

    To begin and to end a watch takes longer than a wait, so it lasts from one wait to the
    next. A wake-up that no task waits for ends it: closing or collecting the stream causes
    one. `descriptor` is taken over: one of its own, since the waker may be closed first.
    """

    __slots__ = ("__weakref__", "_descriptor", "_woken", "loop")

    def __init__(self, descriptor: int, loop: Any) -> None:
        self._descriptor = descriptor
        self.loop = loop
        self._woken: Any = None
        loop.add_reader(self._descriptor, self._on_wake)

    def __del__(self) -> None:
        os.close(self._descriptor)

    async def wait(self) -> None:
        self._woken = self.loop.create_future()
        try:
            await self._woken
        finally:
            self._woken = None

    def _on_wake(self) -> None:
        if self._woken is None or self._woken.done():
            self.loop.remove_reader(self._descriptor)
        else:
            os.read(self._descriptor, 8)  # clears the waker
            self._woken.set_result(None)


def _no_watch() -> None:
    """The watch of a stream that has none."""


class _AsyncioScope:
    """A block that is cancelled when the consumer wants no more."""

    def __init__(self, producer: _AsyncProducer) -> None:
        self._producer = producer
        self._woken: Any = None
        self._is_left = False

    async def __aenter__(self) -> Self:
        import asyncio

        self._cancelled = asyncio.CancelledError
        self._loop = asyncio.get_running_loop()
        self._task: Any = asyncio.current_task()
        # Python 3.10 cannot report whether other code cancels the task as well.
        cancelling = getattr(self._task, "cancelling", None)
        self._n_cancels: int | None = cancelling() if cancelling is not None else None
        self._sleep = asyncio.sleep
        self._loop.add_reader(self._producer.fileno(), self._on_wake)
        return self

    def _on_wake(self) -> None:
        self._producer.clear_waker()
        if self._woken is not None:
            if not self._woken.done():
                self._woken.set_result(None)
        elif self._producer.is_ended and not self._is_left:
            self._is_left = True
            self._task.cancel()

    async def pause(self) -> None:
        await self._sleep(0)

    async def woken(self) -> None:
        """Wait for the waker."""
        self._woken = self._loop.create_future()
        try:
            await self._woken
        finally:
            self._woken = None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not self._loop.is_closed():
            self._loop.remove_reader(self._producer.fileno())
        if not self._is_left:
            return False
        is_ours_alone = self._n_cancels is None or self._task.uncancel() <= self._n_cancels
        return is_ours_alone and kind is not None and issubclass(kind, self._cancelled)


class _TrioScope:
    """_AsyncioScope for trio."""

    def __init__(self, producer: _AsyncProducer, trio: Any) -> None:
        self._producer = producer
        self._trio = trio
        self._woken: Any = None
        self._is_left = False

    async def __aenter__(self) -> Self:
        self._manager = self._trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._watch)
        return self

    async def _watch(self) -> None:
        while True:
            await self._trio.lowlevel.wait_readable(self._producer.fileno())
            self._producer.clear_waker()
            if self._woken is not None:
                self._woken.set()
            elif self._producer.is_ended:
                self._is_left = True
                self._nursery.cancel_scope.cancel()
                return

    async def pause(self) -> None:
        await self._trio.lowlevel.checkpoint()

    async def woken(self) -> None:
        self._woken = self._trio.Event()
        try:
            await self._woken.wait()
        finally:
            self._woken = None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        # Exits with None, so that trio does not wrap the block's exception in an
        # ExceptionGroup.
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)
        return self._is_left and kind is not None and issubclass(kind, self._trio.Cancelled)


def _scope(producer: _AsyncProducer) -> _AsyncioScope | _TrioScope:
    trio = _trio()
    return _AsyncioScope(producer) if trio is None else _TrioScope(producer, trio)


# --- consumer -----------------------------------------------------------------------


class AsyncArrayStream:
    """Arrays that a producer pushes, read with ``async for``.

    :func:`arrowdev.aio.consumer` and :func:`arrowdev.aio.connect` create it. The
    batches have one schema and are accessible from devices of one type, and each
    keeps its event. The stream is an async iterator, and an async context manager
    that closes it. One task reads at a time. The stream asks the producer to stop
    when it is closed or garbage-collected, or when the task that reads it is
    cancelled.

    Source: specification, "Async Device Stream Interface".
    """

    __slots__ = ("__weakref__", "_consumer", "_description", "_watch")

    def __init__(self, consumer: _AsyncConsumer) -> None:
        self._consumer = consumer
        self._description: _Description | None = None
        self._watch: Callable[[], _Watch | None] = _no_watch

    def _poll_schema(self) -> _Description | None:
        """The schema, device type and metadata, which stay known after the end."""
        description = self._description
        if description is None:
            description = self._consumer.poll_schema()
            if description is not None:  # another thread may have found it meanwhile
                self._description = description
        return description

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "cannot pickle or copy an AsyncArrayStream, which can be read only once; "
            "pickle each Array that it gives"
        )

    def _described(self, name: str) -> _Description:
        description = self._poll_schema()
        if description is None:
            raise AttributeError(
                f"{name} is not known yet: the producer has not called on_schema; "
                "await get_schema() first"
            )
        return description

    @property
    def schema(self) -> Schema:
        """The Schema of every batch. AttributeError before it has arrived."""
        return self._described("schema")[0]

    @property
    def device_type(self) -> DeviceType | int:
        """DeviceType of every batch. AttributeError before the schema has arrived."""
        return self._described("device_type")[1]

    @property
    def metadata(self) -> dict[bytes, bytes] | None:
        """The producer's metadata of the stream (``additional_metadata``).

        AttributeError before the schema has arrived.
        """
        metadata = self._described("metadata")[2]
        return None if metadata is None else dict(metadata)

    async def get_schema(self) -> Schema:
        """Wait for the schema.

        Raises
        ------
        ExchangeError
            The stream failed or ended before its schema arrived.
        """
        while (description := self._poll_schema()) is None:
            await self._wait()
        return description[0]

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "an AsyncArrayStream is read with `async for`; for `for`, take x.to_stream()"
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Array:
        while (batch := self._consumer.pop(False)) is None:
            await self._wait()
        return batch

    def with_metadata(self) -> AsyncIterator[tuple[Array, dict[bytes, bytes] | None]]:
        """Read the stream as pairs of a batch and its metadata.

        ``async for batch in stream`` ignores the metadata of the batches.
        """
        return _WithMetadata(self)

    def into(
        self, cls: Any, *, stream: object = None, copy: bool | None = None
    ) -> AsyncConvertedStream[Any]:
        """Read the stream as objects of another library, one per batch, with ``async for``.

        The parameters are those of :meth:`ArrayStream.into`. A class that takes a stream as a
        whole is refused: use ``x.to_stream().into(cls)``.

        Raises
        ------
        TypeError
            There is no way to make an instance of a class.
        KeyError, ExchangeError
            A column is absent, or a class has no equivalent of its type. Raised here if the
            schema has arrived, else with the first batch.
        """
        from arrowdev._stream_into import AsyncConvertedStream

        return AsyncConvertedStream(self, cls, stream, copy)

    async def _wait(self) -> None:
        """Wait until something may have arrived."""
        descriptor = self._consumer.begin_wait()
        try:
            if _trio() is not None:
                await _wait_readable(descriptor)
            else:
                await self._watch_in_loop(descriptor).wait()
        except BaseException:
            self._consumer.close()
            raise
        finally:
            self._consumer.end_wait()

    def _watch_in_loop(self, descriptor: int) -> _Watch:
        import asyncio
        import weakref

        loop = asyncio.get_running_loop()
        watch = self._watch()
        if watch is None or watch.loop is not loop:
            watch = _Watch(os.dup(descriptor), loop)
            self._watch = weakref.ref(watch)
        return watch

    def cancel(self) -> None:
        """Ask the producer to stop. From any thread, any number of times.

        Batches that are queued or still arrive can be read; then the stream
        ends, even if the producer answers with an error.
        """
        self._consumer.cancel()

    async def aclose(self) -> None:
        """Cancel, and drop the queued batches. Batches that were read stay valid.

        It does not wait for the producer.
        """
        self._consumer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *args: object) -> None:
        self._consumer.close()

    def to_stream(self, *, drop_metadata: bool = False) -> ArrayStream:
        """An ArrayStream of the remaining batches, which blocks until they arrive.

        It can be exported, and read on any thread, without the GIL. This object
        is handed over to it; only :meth:`cancel` still works.

        Parameters
        ----------
        drop_metadata : bool
            Ignore the metadata of batches. A pull stream cannot pass it on, so
            otherwise a batch with metadata is an error.

        Raises
        ------
        RuntimeError
            The schema has not arrived, and this thread runs an event loop, which
            must not be blocked: await :meth:`get_schema` first.
        ExchangeError
            The stream failed or ended without a schema.
        """
        if _has_event_loop() and self._poll_schema() is None:
            raise RuntimeError(
                "the schema has not arrived, and waiting for it would block the event "
                "loop; await get_schema() first"
            )
        return self._consumer.stream(drop_metadata)

    def __repr__(self) -> str:
        return f"<arrowdev.AsyncArrayStream, {self._consumer.condition}>"

    def _repr_html_(self) -> str | None:
        """Return the schema as a table for a notebook; None before it has arrived."""
        from arrowdev._repr import html_of_schema

        description = self._poll_schema()
        return None if description is None else html_of_schema(description[0], repr(self)[1:-1])


class _WithMetadata:
    __slots__ = ("_stream",)

    def __init__(self, stream: AsyncArrayStream) -> None:
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Array, dict[bytes, bytes] | None]:
        while (pair := self._stream._consumer.pop(True)) is None:
            await self._stream._wait()
        return pair


def consumer(
    queue_size: int = 5, *, cancel_at_once: bool = False
) -> tuple[AsyncArrayStream, CapsuleType]:
    """Create the consumer end of an async stream.

    Parameters
    ----------
    queue_size : int
        The upper limit of batches that are requested from the producer and not
        read: 1 to 1048576. From 32 on, several batches are taken out of the
        queue at a time.
    cancel_at_once : bool
        The producer keeps its struct until it releases the handler, as the
        specification demands. Otherwise a cancel is delayed until the producer
        is certain to exist, that is, until it sends a batch or one is queued:
        Arrow C++ and arrow-go free it earlier. A producer without a new batch may
        then never hear of the cancel. It has no effect on producers of arrowdev.

    Returns
    -------
    AsyncArrayStream
    capsule
        ``"arrowdev_async_device_stream_handler"``, with an
        ``ArrowAsyncDeviceStreamHandler`` for one producer. The producer renames
        the capsule to ``"used_arrowdev_async_device_stream_handler"``, and
        releases the handler as the specification demands. A capsule that no
        producer took releases the handler itself.

    Examples
    --------
    >>> import asyncio
    >>> async def main():
    ...     stream, handler = ad.aio.consumer()
    ...     producing = asyncio.create_task(ad.aio.produce(handler, [b"ab", b"c"]))
    ...     async with stream:
    ...         sizes = [len(batch) async for batch in stream]
    ...     await producing
    ...     return sizes
    >>> asyncio.run(main())
    [2, 1]
    """
    reader, handler = _async_consumer(queue_size, cancel_at_once)
    return AsyncArrayStream(reader), handler


def connect(
    producer: SupportsAsyncDeviceStream, *, queue_size: int = 5, cancel_at_once: bool = False
) -> AsyncArrayStream:
    """Read the batches that a producer pushes.

    Parameters
    ----------
    producer
        An object with ``__arrowdev_async_device_stream__(handler)``, which takes
        the capsule of :func:`consumer`, starts to produce on threads of its own
        and returns None. An ArrayStream has this method.
    queue_size, cancel_at_once
        As for :func:`consumer`.

    Returns
    -------
    AsyncArrayStream

    Raises
    ------
    TypeError
        The object has no such method, or the method did not return None.

    Examples
    --------
    >>> import asyncio
    >>> async def main(producer):
    ...     async with ad.aio.connect(producer) as stream:
    ...         return [len(batch) async for batch in stream]
    >>> asyncio.run(main(ad.array_stream([b"ab", b"c"])))
    [2, 1]
    """
    try:
        push = producer.__arrowdev_async_device_stream__
    except AttributeError:
        raise TypeError(
            f"{type(producer).__name__} has no __arrowdev_async_device_stream__; "
            "arrowdev.array_stream(obj) gives one to all that can be pulled, and produce() "
            "takes any iterable"
        ) from None
    stream, handler = consumer(queue_size, cancel_at_once=cancel_at_once)
    try:
        result: object = push(handler)
        if result is not None:
            if hasattr(result, "close"):  # a coroutine, which would never be awaited
                result.close()
            raise TypeError(
                f"{type(producer).__name__}.__arrowdev_async_device_stream__ returned a "
                f"{type(result).__name__}; it must start to produce and return None"
            )
    except BaseException:
        stream._consumer.close()
        raise
    return stream


# --- producer -----------------------------------------------------------------------


async def produce(
    handler: CapsuleType,
    source: AsyncIterable[_Element] | Iterable[_Element] | ArrayLike,
    schema: TypeLike | None = None,
    *,
    metadata: _Metadata | None = None,
) -> None:
    """Push the batches of a source to a handler, as its consumer requests them.

    It returns once the handler is released: after the last batch, or as soon as
    the consumer cancels. Cancelling the task, or an exception of the source, ends
    the stream with an error. After a cancel of the consumer only an exception of
    the source does.

    Parameters
    ----------
    handler : capsule
        ``"arrowdev_async_device_stream_handler"``, of :func:`consumer` or of
        another library. This call takes ownership of it.
    source
        An async iterable or an iterable, or anything that ``array_stream()``
        takes. Its elements are anything that ``array()`` takes, or pairs of that
        and metadata, as ``AsyncArrayStream.with_metadata()`` yields them.
        Iterables run in this task. A thread reads sources that can be read from
        C, so that they may block.
    schema : str or object with ``__arrow_c_schema__``, optional
        The type of every batch, as for ``array_stream()``. The default is the
        type of the first batch.
    metadata : mapping of bytes or str, optional
        The metadata of the stream: ``additional_metadata``.

    Returns
    -------
    None
        Once the handler is released.

    Raises
    ------
    ExchangeError
        The handler was taken by another producer (reason "consumed"); the
        consumer refused a call or broke a rule, a batch has another schema or
        device type (reason "stream", "schema", "device").
    ValueError
        There are no batches and no schema.
    Exception
        The source raised it, and it was reported to the consumer.

    Source: specification, "Async Device Stream Interface".

    Examples
    --------
    >>> import asyncio
    >>> async def source():
    ...     yield b"ab"
    ...     yield b"c"
    >>> async def read(stream):
    ...     return [len(batch) async for batch in stream]
    >>> async def main():
    ...     stream, handler = ad.aio.consumer()
    ...     return await asyncio.gather(read(stream), ad.aio.produce(handler, source()))
    >>> asyncio.run(main())
    [[2, 1], None]
    """
    producer = _async_producer(handler)
    try:
        await _drive(producer, source, schema, metadata)
    except Exception as error:
        producer.fail(error)
        raise
    finally:
        producer.close()


async def _drive(
    producer: _AsyncProducer, source: Any, schema: TypeLike | None, metadata: _Metadata | None
) -> None:
    if isinstance(source, AsyncArrayStream):
        await _relay(producer, source, schema, metadata)
    elif hasattr(type(source), "__aiter__"):
        producer.declare(schema, metadata)
        await _push(producer, source)
    elif hasattr(type(source), "__iter__") and not protocols(source):
        producer.declare(schema, metadata)
        await _push(producer, _Iterated(source))
    else:
        producer.declare(None, metadata)
        await _feed(producer, array_stream(source, schema=schema))


async def _relay(
    producer: _AsyncProducer,
    source: AsyncArrayStream,
    schema: TypeLike | None,
    metadata: _Metadata | None,
) -> None:
    """Pass on the batches, schema and metadata of a stream."""
    own = await source.get_schema()
    producer.declare(
        own if schema is None else schema, source.metadata if metadata is None else metadata
    )
    try:
        await _push(producer, source.with_metadata())
    finally:
        await source.aclose()


async def _feed(producer: _AsyncProducer, stream: ArrayStream) -> None:
    producer.pump(stream)
    while not producer.is_over():
        await _wait_readable(producer.fileno())


class _Iterated:
    """An async iterable over an iterable."""

    def __init__(self, source: Iterable[Any]) -> None:
        self._iterator = iter(source)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self._iterator)
        except StopIteration:
            raise StopAsyncIteration from None
        except StopAsyncIteration as error:  # would end the stream without an error
            raise RuntimeError("the iterator raised StopAsyncIteration") from error

    async def aclose(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()


async def _push(producer: _AsyncProducer, source: AsyncIterable[Any]) -> None:
    iterator = aiter(source)
    close = getattr(iterator, "aclose", None)
    try:
        async with _scope(producer) as scope:
            await _send_all(producer, iterator, scope)
    except GeneratorExit:
        close = None  # the event loop is closed: nothing can be awaited
        raise
    finally:
        if close is not None:
            await close()
    producer.finish()


async def _send_all(
    producer: _AsyncProducer, iterator: AsyncIterator[Any], scope: _AsyncioScope | _TrioScope
) -> None:
    pause_at = monotonic() + _SLICE_SECONDS
    async for element in iterator:
        if type(element) is tuple and len(element) == 2 and isinstance(element[1], dict | None):
            producer.put(*element)
        else:
            producer.put(element, None)
        while not (is_sent := producer.flush()):
            if is_sent is None:
                return
            await scope.woken()
            pause_at = monotonic() + _SLICE_SECONDS
        if monotonic() >= pause_at:
            await scope.pause()
            pause_at = monotonic() + _SLICE_SECONDS
