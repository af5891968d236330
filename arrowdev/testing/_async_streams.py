"""Both ends of an async stream, by a script."""

from __future__ import annotations

import ctypes
import errno
import threading
from contextlib import contextmanager

import arrowdev
from arrowdev.testing._abi import (
    CALLBACKS,
    ArrowAsyncDeviceStreamHandler,
    ArrowAsyncProducer,
    ArrowAsyncTask,
    ArrowDeviceArray,
    ArrowSchema,
    call,
    decode_metadata,
    encode_metadata,
    get_pointer,
    new_capsule,
    rename_capsule,
)
from arrowdev.testing._recording import TIMEOUT, Call, Given, Output, Recorder
from arrowdev.testing._rules import Broken
from arrowdev.testing._streams import (
    Announced,
    array_output,
    as_batches,
    import_batch,
    import_schema,
    is_untouched,
    schema_output,
    untouched,
)
from arrowdev.testing.step import (
    Step,
    batch,
    end,
    extract,
    release,
    request,
    schema,
    wait_for_request,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from typing_extensions import CapsuleType, Self

    from arrowdev import Array, Schema
    from arrowdev.testing.step import _Metadata
    from arrowdev.typing import TypeLike

_CAPSULE = b"arrowdev_async_device_stream_handler"
_USED = b"used_" + _CAPSULE


def _blob(metadata: _Metadata | None) -> ctypes.Array[ctypes.c_char] | None:
    if metadata is None:
        return None
    pairs = ((_bytes(key), _bytes(value)) for key, value in metadata.items())
    return ctypes.create_string_buffer(encode_metadata(pairs))


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _text(text: str | None) -> ctypes.Array[ctypes.c_char] | None:
    return None if text is None else ctypes.create_string_buffer(text.encode())


def _address(buffer: ctypes.Array[ctypes.c_char] | None) -> int | None:
    return None if buffer is None else ctypes.addressof(buffer)


class _Spans:
    """Which calls of the peer each thread is inside of."""

    def __init__(self) -> None:
        self._names: dict[int, list[str]] = {}

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        stack = self._names.setdefault(threading.get_ident(), [])
        stack.append(name)
        try:
            yield
        finally:
            stack.pop()

    def now(self) -> str | None:
        """The innermost call of this thread."""
        stack = self._names.get(threading.get_ident())
        return stack[-1] if stack else None


# --- the producer --------------------------------------------------------------------------------


class _Producer(Given):
    """ArrowAsyncProducer."""

    recorder: ScriptedAsyncProducer

    def __init__(self, recorder: ScriptedAsyncProducer) -> None:
        super().__init__(recorder, ArrowAsyncProducer, "the producer")
        self.struct = ArrowAsyncProducer()
        self.metadata = _blob(recorder.metadata)
        self.struct.device_type = recorder.device_type
        self.struct.additional_metadata = _address(self.metadata)
        self.write(ctypes.addressof(self.struct))

    def _judge(self, name: str) -> None:
        end = self.recorder
        if not end.has_schema:
            end._broke("producer-alive", f"{name} was called before on_schema")
        elif end.is_freed:
            end._broke("producer-alive", f"{name} was called when the producer was gone")
        inside = end._spans.now()
        if inside in ("on_error", "release"):
            end._broke("producer-untouched", f"{name} was called from inside {inside}")

    def request(self, _: int, n: int) -> None:
        end = self.recorder
        self._judge("request")
        if n <= 0:
            end._broke("request-positive", f"request({n}) was called")
        with end._changed:
            if n <= 0:
                end.bad_request = n if end.bad_request is None else end.bad_request
            elif not end.is_cancelled:
                end.n_requested += n
        end._note("request", f"n={n}")

    def cancel(self, _: int) -> None:
        self._judge("cancel")
        self.recorder.is_cancelled = True
        self.recorder._note("cancel")


class _Task(Given):
    """ArrowAsyncTask, at the address that on_next_task gets and wherever it is copied to."""

    recorder: ScriptedAsyncProducer

    def __init__(self, recorder: ScriptedAsyncProducer, output: Output, step: Step) -> None:
        super().__init__(recorder, ArrowAsyncTask, output.about)
        self.output = output
        self.code: int = step.options["code"]
        self.is_empty: bool = step.options["empty"]
        self.struct = ArrowAsyncTask()
        self.n_extracted = 0
        self.is_accepted = False
        self.stale: _StaleTask | None = None
        self.write(ctypes.addressof(self.struct))

    def extract_data(self, _: int, out: int | None) -> int:
        one = self.recorder._note("extract_data", self.about if out else f"{self.about}, NULL")
        with self.recorder._changed:
            self.n_extracted += 1
            is_first = self.n_extracted == 1
        if not is_first:
            self.recorder._broke("extract-once", f"{self.about} was extracted again")
            one.result = errno.EINVAL
            return one.result
        one.result = self.code
        if out and not self.code and not self.is_empty:
            self.output.give(out)
        else:
            self.output.drop()
            if out and self.is_empty:
                ctypes.memset(out, 0, ctypes.sizeof(ArrowDeviceArray))
        self.close()
        return one.result

    def take_back(self) -> None:
        """It was refused: it stays ours."""
        self.n_extracted += 1
        self.output.drop()
        self.close()


class _StaleTask(Given):
    """What stands where a task was during on_next_task."""

    recorder: ScriptedAsyncProducer

    def __init__(self, task: _Task) -> None:
        super().__init__(task.recorder, ArrowAsyncTask, task.about)
        self.task = task
        self.write(ctypes.addressof(task.struct))

    def extract_data(self, address: int, out: int | None) -> int:
        self.recorder._broke(
            "task-copied",
            f"{self.about} was extracted by the pointer that on_next_task got, after it returned",
        )
        return self.task.extract_data(address, out)


class ScriptedAsyncProducer(Recorder):
    """A producer of an async stream that does what its script says, for the tests of a consumer.

    ``connect`` takes the consumer's handler (as does ``__arrowdev_async_device_stream__``, for
    ``arrowdev.aio.connect``) and runs the script on a thread of its own; ``wait`` waits for its
    end. ``check`` says what the consumer did wrong. ``ScriptedAsyncProducer.of`` makes the script
    of a producer that keeps the rules.

    steps
        ``step.schema``, ``batch`` (or just an array), ``error``, ``end``, ``release``, which call
        the handler; ``wait_for_request``, ``wait_for_cancel``, ``free_producer``. In any order:
        most orders are against the specification, and a consumer should find that out. A function
        is called with the producer.
    type, device_type
        The schema and the device type, where they are not the first batch's.
    metadata
        The producer's ``additional_metadata``.
    on_thread
        False: the script runs inside ``connect``.
    obey
        False: go on with the script although the consumer refused a call, or asked to stop.
    """

    def __init__(
        self,
        steps: Iterable[Any],
        *,
        type: TypeLike | None = None,
        device_type: int | None = None,
        metadata: _Metadata | None = None,
        on_thread: bool = True,
        obey: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(timeout)
        self.steps = as_batches(steps)
        announced = Announced(self.steps, type, device_type)
        self.schema = announced.schema
        self.device_type = announced.device_type
        self.metadata = metadata
        self.on_thread = on_thread
        self.obey = obey
        self.n_requested = 0
        """The sum of all requests."""
        self.n_sent = 0
        self.refusal = 0
        """What the consumer refused a call with."""
        self.bad_request: int | None = None
        self.is_cancelled = False
        self.has_schema = False
        self.is_freed = False
        self.is_released = False
        self.is_over = False
        """Whether the script has come to its end."""
        self._is_leaving = False
        self._spans = _Spans()
        self._stale: list[object] = []
        self._tasks: list[_Task] = []
        self._handler = 0
        self._producer: _Producer | None = None
        self._functions: dict[str, Any] = {}

    @classmethod
    def of(cls, batches: Iterable[Any], **options: Any) -> Self:
        """A producer that keeps the rules: each batch when it was requested."""
        steps: list[Step] = []
        for one in batches:
            steps += [wait_for_request(), batch(one)]
        return cls([schema(), *steps, end(), release()], **options)

    def connect(self, handler: CapsuleType) -> None:
        """Take over the handler in a capsule ``arrowdev_async_device_stream_handler``.

        A library that has another way to hand its handler over passes its address to
        ``connect_address``.
        """
        address = get_pointer(handler, _CAPSULE)
        rename_capsule(handler, _USED)
        self.connect_address(address)

    __arrowdev_async_device_stream__ = connect

    def connect_address(self, handler: int) -> None:
        """Take over the ``struct ArrowAsyncDeviceStreamHandler`` at this address."""
        if self._handler:
            raise RuntimeError("this producer has a consumer already; make another one")
        if handler == 0:
            raise ValueError("the address of the handler is NULL")
        self._handler = handler
        struct = ArrowAsyncDeviceStreamHandler.from_address(handler)
        for member in ("on_schema", "on_next_task", "on_error", "release"):
            function = getattr(struct, member)
            if not function:
                self._broke("mandatory", f"{member} of the handler is NULL")
                return
            # By itself: when it was released, nothing of the handler may be read.
            self._functions[member] = CALLBACKS[member](function)
        self._producer = _Producer(self)
        struct.producer = ctypes.addressof(self._producer.struct)
        if self.on_thread:
            threading.Thread(target=self._run, daemon=True).start()
        else:
            self._run()

    def wait(self) -> None:
        """Wait until the script is over; raise what went wrong in it."""
        self._wait(lambda: self.is_over, "the end of the script")
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            for one in self.steps:
                self._follow(one)
        except BaseException as error:
            self._failed(error)
            self._give_up(error)
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def _follow(self, one: Any) -> None:
        """One step, or none of it where a producer that obeys has to leave."""
        if self.obey and self.refusal:
            self._is_leaving = True
        if self._is_leaving and isinstance(one, Step) and one.name != "release":
            return
        self._perform(one)

    def _give_up(self, error: BaseException) -> None:
        """The script is broken: the consumer shall not wait for the rest of it."""
        if not self.is_released:
            if not self.refusal:
                self._do_error(errno.EIO, f"the script failed: {error}")
            self._do_release()

    def _tell(self, name: str, *arguments: Any, about: str = "") -> int:
        """Call the handler."""
        one = self._note(name, about)
        with self._spans.span(name):
            one.result = self._functions[name](self._handler, *arguments)
        if one.result:
            self.refusal = one.result
        return one.result or 0

    def _leaks(self) -> Iterator[Broken]:
        for task in self._tasks:
            if task.is_accepted and not task.n_extracted:
                yield Broken("extract-once", f"{task.about} was never extracted")
        yield from super()._leaks()

    # --- steps -------------------------------------------------------------------------------

    def _do_schema(self, type: Any, populate: bool) -> None:
        if not populate:
            ArrowAsyncDeviceStreamHandler.from_address(self._handler).producer = None
        given = self.schema if type is None else arrowdev.schema(type)
        output = schema_output(self, given)
        out = ArrowSchema()
        output.give(ctypes.addressof(out))
        self.has_schema = True
        code = self._tell("on_schema", ctypes.addressof(out))
        if out.release:
            if code == 0:
                self._broke(
                    "schema-moved", "on_schema returned 0 and left the schema where it was"
                )
            call(out, "release")
        self._spoil(out)

    def _do_batch(
        self,
        values: Array,
        metadata: _Metadata | None,
        device_type: int | None,
        code: int,
        empty: bool,
    ) -> None:
        about = f"batch {len(self._tasks)}"
        output = array_output(self, values, about, type=device_type)
        task = _Task(self, output, Step("batch", {"code": code, "empty": empty}))
        self._tasks.append(task)
        blob = _blob(metadata)
        self.n_sent += 1
        struct = ctypes.addressof(task.struct)
        if self._tell("on_next_task", struct, _address(blob), about=about) == 0:
            task.is_accepted = True
        else:
            task.take_back()
        task.stale = _StaleTask(task)
        task.stale.close()
        self._spoil(blob)

    def _do_error(
        self, code: int, text: str | None = None, metadata: _Metadata | None = None
    ) -> None:
        message, blob = _text(text), _blob(metadata)
        self._tell("on_error", code, _address(message), _address(blob), about=f"code={code}")
        self._spoil(message, blob)

    def _do_end(self) -> None:
        self._tell("on_next_task", None, None, about="NULL")

    def _do_release(self, anyway: bool = False) -> None:
        if self.is_released and not anyway:
            raise ValueError("the script releases twice; say anyway=True where that is meant")
        # The struct is still there during release, but who may come in now does so too late.
        self._tell("release")
        self.is_released = self.is_freed = True
        if self._producer is not None:
            self._producer.close()

    def _do_wait_for_request(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"wait_for_request({n}) waits for nothing")
        self._wait(
            lambda: bool(
                self.is_cancelled
                or self.bad_request is not None
                or self.n_requested >= self.n_sent + n
            ),
            f"a request for batch {self.n_sent + n - 1}",
        )
        if not self.obey:
            return
        if self.bad_request is not None:
            self._do_error(errno.EINVAL, f"request({self.bad_request}): n must be above 0")
            self._is_leaving = True
        self._is_leaving |= self.is_cancelled

    def _do_wait_for_cancel(self) -> None:
        self._wait(lambda: self.is_cancelled, "a cancel")
        self._is_leaving |= self.obey

    def _do_free_producer(self) -> None:
        self.is_freed = True

    def _spoil(self, *memory: ctypes.Array[ctypes.c_char] | ArrowSchema | None) -> None:
        """What is valid during a call only: who keeps a pointer shall see it, and not crash."""
        for stale in memory:
            if stale is not None:
                ctypes.memset(ctypes.addressof(stale), 0, ctypes.sizeof(stale))
                self._stale.append(stale)


# --- the consumer --------------------------------------------------------------------------------


class _Handler(Given):
    """ArrowAsyncDeviceStreamHandler."""

    recorder: ScriptedAsyncHandler

    def __init__(self, recorder: ScriptedAsyncHandler) -> None:
        super().__init__(recorder, ArrowAsyncDeviceStreamHandler, "the handler")
        self.struct = ArrowAsyncDeviceStreamHandler()

    def on_schema(self, _: int, schema: int | None) -> int:
        with self.recorder._called("on_schema") as one:
            return self.recorder._answer(one, self.recorder._on_schema(schema))

    def on_next_task(self, _: int, task: int | None, metadata: int | None) -> int:
        about = f"task {self.recorder.n_tasks}" if task else "NULL"
        with self.recorder._called("on_next_task", about) as one:
            return self.recorder._answer(one, self.recorder._on_next_task(task, metadata))

    def on_error(self, _: int, code: int, message: int | None, metadata: int | None) -> None:
        with self.recorder._called("on_error", f"code={code}"):
            self.recorder._on_error(code, message, metadata)

    def release(self, address: int) -> None:
        with self.recorder._called("release"):
            self.recorder._on_release()
        self.struct_type.from_address(address).release = None
        self.close()


class ScriptedAsyncHandler(Recorder):
    """A consumer of an async stream that does what its script says, for the tests of a producer.

    Give ``capsule`` (or ``address``) to the code under test as the consumer's handler, or let
    ``connect`` call ``__arrowdev_async_device_stream__``; then wait with ``wait_for_release`` and
    call ``check``.

    on_schema, on_task
        The steps inside these two callbacks: ``step.request``, ``cancel``, ``extract``,
        ``discard``, ``refuse``, and ``step.at`` for a single task. By default as in the
        specification: five batches are requested at first, and one more for each that was
        extracted. A function is called with the handler.

    The same steps are methods, for the thread of the test: a task that no step extracts is kept
    until ``extract`` or ``discard``.
    """

    def __init__(
        self,
        on_schema: Iterable[Any] | None = None,
        on_task: Iterable[Any] | None = None,
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(timeout)
        self._schema_steps = [request(5)] if on_schema is None else list(on_schema)
        self._task_steps = [request(1), extract()] if on_task is None else list(on_task)
        self.schema: Schema | None = None
        self.device_type: int | None = None
        self.metadata: dict[bytes, bytes] | None = None
        """The producer's ``additional_metadata``."""
        self.batches: list[Array] = []
        self.batch_metadata: list[dict[bytes, bytes] | None] = []
        """The metadata of every task."""
        self.error: tuple[int, str | None, dict[bytes, bytes] | None] | None = None
        """What ``on_error`` brought: code, message and metadata."""
        self.n_requested = 0
        self.n_tasks = 0
        self.is_ended = False
        """A task that is NULL has come."""
        self.is_cancelled = False
        self.is_released = False
        self._is_open = False
        self._refused = 0
        self._bad_request: int | None = None
        self._failed_extract: str | None = None
        self._refusal = 0
        self._spans = _Spans()
        self._kept: list[tuple[ArrowAsyncTask, str]] = []
        self._producer: ArrowAsyncProducer | None = None
        self._handler = _Handler(self)
        self._capsule: CapsuleType | None = None

    @property
    def address(self) -> int:
        """Of the ``struct ArrowAsyncDeviceStreamHandler``."""
        address = ctypes.addressof(self._handler.struct)
        if self._capsule is None:  # for the first time
            self._handler.write(address)
            self._capsule = new_capsule(address, _CAPSULE, None)
        return address

    @property
    def capsule(self) -> CapsuleType:
        """The handler in a capsule ``arrowdev_async_device_stream_handler``, always the same."""
        assert self.address
        assert self._capsule is not None
        return self._capsule

    def connect(self, producer: Any) -> Self:
        """Hand the handler to an object with ``__arrowdev_async_device_stream__``."""
        producer.__arrowdev_async_device_stream__(self.capsule)
        return self

    def wait_for_schema(self) -> None:
        """Wait until the stream can be asked for batches."""
        self._wait(lambda: self._is_open, "on_schema")

    def wait_for_tasks(self, n: int) -> None:
        """Wait until `n` tasks have come in all."""
        self._wait(lambda: self.n_tasks >= n, f"task {n - 1}")

    def wait_for_release(self) -> None:
        """Wait until the producer has released the handler."""
        self._wait(lambda: self.is_released, "the release of the handler")

    # --- what a consumer does ----------------------------------------------------------------

    def request(self, n: int) -> None:
        """Ask for more."""
        producer = self._living_producer("request")
        with self._changed:
            self.n_requested += max(n, 0)
            if n <= 0 and self._bad_request is None:
                self._bad_request = n
        self._note("request", f"n={n}")
        with self._spans.span("request"):
            call(producer, "request", n)

    def cancel(self) -> None:
        """Ask the producer to stop."""
        producer = self._living_producer("cancel")
        self.is_cancelled = True
        self._note("cancel")
        with self._spans.span("cancel"):
            call(producer, "cancel")

    def extract(self) -> Array | None:
        """Take the oldest task's batch; None where that failed."""
        task, about = self._oldest()
        out = untouched(ArrowDeviceArray)
        one = self._note("extract_data", about)
        one.result = call(task, "extract_data", ctypes.addressof(out))
        if one.result:
            self._failed_extract = about
            return None
        if is_untouched(out) or not out.array.release:
            self._broke("valid-array", f"extract_data returned 0 for {about} and gave no array")
            return None
        if out.device_type != self.device_type:
            self._broke(
                "device-type", f"{about} has device type {out.device_type}, not {self.device_type}"
            )
        assert self.schema is not None
        try:
            batch = import_batch(out, self.schema)
        except (ValueError, BufferError) as error:
            self._broke("valid-array", f"{about}: {error}")
            return None
        self.batches.append(batch)
        return batch

    def discard(self) -> None:
        """Extract the oldest task with NULL."""
        task, about = self._oldest()
        one = self._note("extract_data", f"{about}, NULL")
        one.result = call(task, "extract_data", None)

    def _living_producer(self, name: str) -> ArrowAsyncProducer:
        if self._producer is None or self.is_released:
            when = "before on_schema" if self._producer is None else "after release"
            raise ValueError(f"{name} {when} would read memory that need not be there")
        return self._producer

    def _oldest(self) -> tuple[ArrowAsyncTask, str]:
        with self._changed:
            if not self._kept:
                raise ValueError("there is no task to extract")
            return self._kept.pop(0)

    # --- what a producer calls ---------------------------------------------------------------

    @contextmanager
    def _called(self, name: str, about: str = "") -> Iterator[Call]:
        one = self._note(name, about)
        self._judge(name)
        with self._alone(name, "serialized"), self._spans.span(name):
            yield one

    def _answer(self, one: Call, code: int) -> int:
        one.result = code
        self._refused = self._refused or code
        return code

    def _judge(self, name: str) -> None:
        """The rules that any call of the handler can break."""
        inside = self._spans.now()
        if inside == "request" and name in ("on_next_task", "on_error"):
            self._broke("not-reentrant", f"request called {name} before it returned")
        if inside == "cancel" and name != "on_error":
            self._broke("cancel-quiet", f"cancel called {name} before it returned")
        if self.is_released:
            self._broke("release-last", f"{name} was called after release")
        elif name != "release":
            over = "on_error" if self.error else "the end" if self.is_ended else None
            over = over or (f"a call was refused with {self._refused}" if self._refused else None)
            if over:
                self._broke("only-release-follows", f"{name} was called after {over}")

    def _on_schema(self, address: int | None) -> int:
        if self.schema is not None:
            self._broke("schema-first", "on_schema was called again")
        struct = ArrowSchema()
        if address:
            ctypes.memmove(ctypes.addressof(struct), address, ctypes.sizeof(struct))
            ArrowSchema.from_address(address).release = None
        if not struct.release:
            self._broke("mandatory", "on_schema was called without a schema")
            return errno.EINVAL
        self.schema = import_schema(struct)
        pointer = self._handler.struct.producer
        if not pointer:
            self._broke("producer-populated", "handler->producer is NULL in on_schema")
            return errno.EINVAL
        self._producer = ArrowAsyncProducer.from_address(pointer)
        for member in ("request", "cancel"):
            if not getattr(self._producer, member):
                self._broke("mandatory", f"{member} of the producer is NULL")
                return errno.EINVAL
        self.device_type = self._producer.device_type
        self.metadata = decode_metadata(self._producer.additional_metadata)
        code = self._do_all(self._schema_steps)
        with self._changed:
            self._is_open = True
            self._changed.notify_all()
        return code

    def _on_next_task(self, address: int | None, metadata: int | None) -> int:
        if self.schema is None:
            self._broke("schema-first", "on_next_task was called before on_schema")
            return errno.EINVAL
        if not address:
            with self._changed:
                self.is_ended = True
                self._changed.notify_all()
            return 0
        task = ArrowAsyncTask()
        ctypes.memmove(ctypes.addressof(task), address, ctypes.sizeof(task))
        with self._changed:
            about = f"task {self.n_tasks}"
            self.n_tasks += 1
            self.batch_metadata.append(decode_metadata(metadata))
            if self.n_tasks > self.n_requested:
                self._broke("requested", f"{about} came, but {self.n_requested} were requested")
            if not task.extract_data:
                self._broke("mandatory", f"extract_data of {about} is NULL")
                return errno.EINVAL
            self._kept.append((task, about))
            n_kept = len(self._kept)
            self._changed.notify_all()
        code = self._do_all(self._task_steps)
        if code and len(self._kept) == n_kept:  # refused, and not extracted: the producer's
            self._kept.pop()
        return code

    def _on_error(self, code: int, message: int | None, metadata: int | None) -> None:
        text = ctypes.string_at(message).decode(errors="replace") if message else None
        if self.is_cancelled and self._bad_request is None and self._failed_extract is None:
            self._broke("cancel-no-error", f"on_error({code}, {text!r}) followed a cancel")
        with self._changed:
            self.error = (code, text, decode_metadata(metadata))
            self._changed.notify_all()

    def _on_release(self) -> None:
        with self._changed:
            self.is_released = True
            self._changed.notify_all()

    def _leaks(self) -> Iterator[Broken]:
        if not self.is_released:
            yield Broken("release-last", "the handler was never released")
        elif self._bad_request is not None and self.error is None:
            yield Broken("request-refused", f"request({self._bad_request}) led to no on_error")
        elif self._failed_extract is not None and self.error is None:
            yield Broken("extract-error", f"{self._failed_extract} failed, and no on_error came")
        yield from super()._leaks()

    # --- steps -------------------------------------------------------------------------------

    def _do_all(self, steps: Iterable[Step | Callable[[Any], object]]) -> int:
        """The steps inside a callback, and what it is to return."""
        self._refusal = 0
        for one in steps:
            self._perform(one)
        return self._refusal

    def _do_request(self, n: int) -> None:
        self.request(n)

    def _do_cancel(self) -> None:
        self.cancel()

    def _do_extract(self) -> None:
        self.extract()

    def _do_discard(self) -> None:
        self.discard()

    def _do_refuse(self, code: int) -> None:
        self._refusal = code

    def _do_at(self, task: int, steps: Iterable[Step | Callable[[Any], object]]) -> None:
        if self.n_tasks - 1 == task:
            for one in steps:
                self._perform(one)
