"""A scripted producer of an async stream."""

from __future__ import annotations

import ctypes
import errno
import threading

import arrowdev
from arrowdev.testing._abi import (
    CALLBACKS,
    ArrowAsyncDeviceStreamHandler,
    ArrowAsyncProducer,
    ArrowAsyncTask,
    ArrowDeviceArray,
    ArrowSchema,
    call,
    encode_metadata,
    get_pointer,
    mark_used,
)
from arrowdev.testing._recording import TIMEOUT, CallbackStruct, Output, Recorder, Spans
from arrowdev.testing._rules import Broken
from arrowdev.testing._streams import (
    Announced,
    array_of_batch,
    array_output,
    as_batches,
    schema_output,
)
from arrowdev.testing.step import Step, batch, end, release, schema, wait_for_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from typing_extensions import CapsuleType, Self

    from arrowdev.testing.step import _Metadata
    from arrowdev.typing import TypeLike

CAPSULE = b"arrowdev_async_device_stream_handler"


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


class _Producer(CallbackStruct):
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
            end._violated("consumer.async_alive", f"{name} was called before on_schema")
        elif end.is_freed:
            end._violated("consumer.async_alive", f"{name} was called when the producer was gone")
        inside = end._spans.now()
        if inside in ("on_error", "release"):
            end._violated("consumer.async_quiet", f"{name} was called from inside {inside}")

    def request(self, _: int, n: int) -> None:
        end = self.recorder
        self._judge("request")
        if n <= 0:
            end._violated("consumer.async_request", f"request({n}) was called")
        with end._changed:
            if n <= 0:
                end.bad_request = n if end.bad_request is None else end.bad_request
            elif not end.is_cancelled:
                end.n_requested += n
        end._record("request", f"n={n}")

    def cancel(self, _: int) -> None:
        self._judge("cancel")
        self.recorder.is_cancelled = True
        self.recorder._record("cancel")


class _Task(CallbackStruct):
    """ArrowAsyncTask, at the address passed to on_next_task and in its copies."""

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
        one = self.recorder._record("extract_data", self.about if out else f"{self.about}, NULL")
        with self.recorder._changed:
            self.n_extracted += 1
            is_first = self.n_extracted == 1
        if not is_first:
            self.recorder._violated("consumer.async_extract", f"{self.about} was extracted again")
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
        """Keep the task, which the consumer has refused."""
        self.n_extracted += 1
        self.output.drop()
        self.close()


class _StaleTask(CallbackStruct):
    """Replaces the task at its address after on_next_task."""

    recorder: ScriptedAsyncProducer

    def __init__(self, task: _Task) -> None:
        super().__init__(task.recorder, ArrowAsyncTask, task.about)
        self.task = task
        self.write(ctypes.addressof(task.struct))

    def extract_data(self, address: int, out: int | None) -> int:
        self.recorder._violated(
            "consumer.async_task",
            f"{self.about} was extracted by the pointer that on_next_task got, after it returned",
        )
        return self.task.extract_data(address, out)


class ScriptedAsyncProducer(Recorder):
    """A producer of an async stream that follows a script, for tests of a consumer.

    ``connect`` takes the consumer's handler (as does ``__arrowdev_async_device_stream__``, for
    ``arrowdev.aio.connect``) and runs the script on a new thread; ``wait`` waits for its end.
    ``check`` reports the mistakes of the consumer. ``ScriptedAsyncProducer.of`` returns a producer
    that keeps the rules.

    steps
        ``step.schema``, ``batch`` (or just an array), ``error``, ``end``, ``release``, which call
        the handler; ``wait_for_request``, ``wait_for_cancel``, ``free_producer``. Any order is
        possible: most orders are against the specification, and a consumer should detect that. A
        function is called with the producer.
    type, device_type
        The schema and the device type, if they differ from the first batch's.
    metadata
        The producer's ``additional_metadata``.
    on_thread
        False: the script runs inside ``connect``.
    obey
        False: continue the script although the consumer refused a call or cancelled.
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
        """The code with which the consumer refused a call; 0: none."""
        self.bad_request: int | None = None
        self.is_cancelled = False
        self.has_schema = False
        self.is_freed = False
        self.is_released = False
        self.is_over = False
        """Whether the script has ended."""
        self._is_leaving = False
        self._spans = Spans()
        self._stale: list[object] = []
        self._tasks: list[_Task] = []
        self._handler = 0
        self._producer: _Producer | None = None
        self._functions: dict[str, Any] = {}

    @classmethod
    def of(cls, batches: Iterable[Any], **options: Any) -> Self:
        """Return a producer that keeps the rules: it sends each batch after a request."""
        steps: list[Step] = []
        for one in batches:
            steps += [wait_for_request(), one if isinstance(one, Step) else batch(one)]
        return cls([schema(), *steps, end(), release()], **options)

    @property
    def is_connected(self) -> bool:
        """Whether a consumer has passed its handler."""
        return self._handler != 0

    def connect(self, handler: CapsuleType) -> None:
        """Take over the handler in a capsule ``arrowdev_async_device_stream_handler``.

        For a library without such a capsule, pass the address of its handler to
        ``connect_address``.
        """
        address = get_pointer(handler, CAPSULE)
        mark_used(handler)
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
                self._violated("consumer.async_handler", f"{member} of the handler is NULL")
                self.is_over = True
                return
            # A copy, since no member of the handler may be read after its release.
            self._functions[member] = CALLBACKS[member](function)
        self._producer = _Producer(self)
        struct.producer = ctypes.addressof(self._producer.struct)
        if self.on_thread:
            threading.Thread(target=self._run, daemon=True).start()
        else:
            self._run()

    def wait(self) -> None:
        """Wait for the end of the script; raise its first error."""
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
        """Do one step, unless a producer with ``obey`` has to stop."""
        if self.obey and self.refusal:
            self._is_leaving = True
        if self._is_leaving and isinstance(one, Step) and one.name != "release":
            return
        self._perform(one)

    def _give_up(self, error: BaseException) -> None:
        """End a script that failed, so that the consumer does not wait for the rest."""
        if not self.is_released:
            if not self.refusal:
                self._do_error(errno.EIO, f"the script failed: {error}")
            self._do_release()

    def _tell(self, name: str, *arguments: Any, about: str = "") -> int:
        """Call the handler."""
        one = self._record(name, about)
        with self._spans.span(name):
            one.result = self._functions[name](self._handler, *arguments)
        if one.result:
            self.refusal = one.result
        return one.result or 0

    def _leaks(self) -> Iterator[Broken]:
        for task in self._tasks:
            if task.is_accepted and not task.n_extracted:
                yield Broken("consumer.async_extract", f"{task.about} was never extracted")
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
                self._violated(
                    "consumer.async_schema",
                    "on_schema returned 0 and left the schema where it was",
                )
            call(out, "release")
        self._spoil(out)

    def _do_batch(
        self,
        values: Any,
        metadata: _Metadata | None,
        device_type: int | None,
        code: int,
        empty: bool,
    ) -> None:
        about = f"batch {len(self._tasks)}"
        output = array_output(self, array_of_batch(values), about, type=device_type)
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
        # The struct exists until release returns, but new calls of it are too late.
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
        """Overwrite data that is valid only during a call, so that later reads are detected."""
        for stale in memory:
            if stale is not None:
                ctypes.memset(ctypes.addressof(stale), 0, ctypes.sizeof(stale))
                self._stale.append(stale)
