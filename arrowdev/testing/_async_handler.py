"""A scripted consumer of an async stream."""

from __future__ import annotations

import ctypes
import errno
from contextlib import contextmanager

from arrowdev.testing import _device
from arrowdev.testing._abi import (
    ArrowAsyncDeviceStreamHandler,
    ArrowAsyncProducer,
    ArrowAsyncTask,
    ArrowDeviceArray,
    ArrowSchema,
    call,
    new_capsule,
)
from arrowdev.testing._async_producer import CAPSULE
from arrowdev.testing._host_read import Malformed, metadata_at
from arrowdev.testing._recording import TIMEOUT, Call, CallbackStruct, Recorder, Spans
from arrowdev.testing._rules import Broken
from arrowdev.testing._streams import import_batch, import_schema, is_untouched, untouched
from arrowdev.testing.step import Step, extract, request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from typing_extensions import CapsuleType, Self

    from arrowdev import Array, Schema


# (state, event): next state, id of the broken rule, its text. The C code uses the same table.
_STEPS = _device.async_states()


class _HandlerStruct(CallbackStruct):
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
        event = "on_next_task" if task else "end"
        with self.recorder._called("on_next_task", about, event) as one:
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
    """A consumer of an async stream that follows a script, for tests of a producer.

    Pass ``capsule`` (or ``address``) to the code under test as the consumer's handler, or let
    ``connect`` call ``__arrowdev_async_device_stream__``; then wait with ``wait_for_release`` and
    call ``check``.

    on_schema, on_task
        The steps inside these two callbacks: ``step.request``, ``cancel``, ``extract``,
        ``discard``, ``refuse``, and ``step.at`` for a single task. The default follows the
        specification: five batches are requested at first, and one more for each extracted
        batch. A function is called with the handler.

    The same steps are methods, for the thread of the test. A task that no step extracts is kept
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
        """The arguments of ``on_error``: code, message and metadata."""
        self.n_requested = 0
        self.n_tasks = 0
        self.is_ended = False
        """Whether the stream has ended by a task that is NULL."""
        self.is_cancelled = False
        self.is_released = False
        self._is_open = False
        self._state = "new"
        self._is_refused = False
        self._bad_request: int | None = None
        self._is_asked_late = False
        self._failed_extract: str | None = None
        self._refusal = 0
        self._spans = Spans()
        self._kept: list[tuple[ArrowAsyncTask, str]] = []
        self._producer: ArrowAsyncProducer | None = None
        self._first_producer = b""
        self._handler = _HandlerStruct(self)
        self._capsule: CapsuleType | None = None

    @property
    def address(self) -> int:
        """The address of the ``struct ArrowAsyncDeviceStreamHandler``."""
        address = ctypes.addressof(self._handler.struct)
        if self._capsule is None:  # for the first time
            self._handler.write(address)
            self._capsule = new_capsule(address, CAPSULE, None)
        return address

    @property
    def capsule(self) -> CapsuleType:
        """The handler in a capsule ``arrowdev_async_device_stream_handler``, always the same."""
        assert self.address
        assert self._capsule is not None
        return self._capsule

    def connect(self, producer: Any) -> Self:
        """Pass the handler to an object with ``__arrowdev_async_device_stream__``."""
        producer.__arrowdev_async_device_stream__(self.capsule)
        return self

    def wait_for_schema(self) -> None:
        """Wait until ``on_schema`` is over, so that batches can be requested."""
        self._wait(lambda: self._is_open, "on_schema")

    def wait_for_tasks(self, n: int) -> None:
        """Wait until `n` tasks in total have arrived."""
        self._wait(lambda: self.n_tasks >= n, f"task {n - 1}")

    def wait_for_release(self) -> None:
        """Wait until the producer has released the handler."""
        self._wait(lambda: self.is_released, "the release of the handler")

    # --- calls of the consumer ---------------------------------------------------------------

    def request(self, n: int) -> None:
        """Request `n` more batches."""
        producer = self._living_producer("request")
        with self._changed:
            if self.is_cancelled:
                self._is_asked_late = True  # the call must have no effect
            else:
                self.n_requested += max(n, 0)
            if n <= 0 and self._bad_request is None:
                self._bad_request = n
        self._record("request", f"n={n}")
        with self._spans.span("request"):
            call(producer, "request", n)

    def cancel(self) -> None:
        """Ask the producer to stop."""
        producer = self._living_producer("cancel")
        self.is_cancelled = True
        self._record("cancel")
        with self._spans.span("cancel"):
            call(producer, "cancel")

    def extract(self) -> Array | None:
        """Take the oldest task's batch; return None if that failed."""
        task, about = self._oldest()
        out = untouched(ArrowDeviceArray)
        one = self._record("extract_data", about)
        one.result = call(task, "extract_data", ctypes.addressof(out))
        if one.result:
            self._failed_extract = about
            return None
        if is_untouched(out) or not out.array.release:
            self._violated("async.array", f"extract_data returned 0 for {about} and gave no array")
            return None
        self._look_at_array(out, about)
        if out.device_type != self.device_type:
            self._violated(
                "async.device_type",
                f"{about} has device type {out.device_type}, not {self.device_type}",
            )
        assert self.schema is not None
        try:
            batch = import_batch(out, self.schema)
        except (ValueError, BufferError) as error:
            self._violated("async.array", f"{about}: {error}")
            return None
        self.batches.append(batch)
        return batch

    def discard(self) -> None:
        """Extract the oldest task with NULL."""
        task, about = self._oldest()
        one = self._record("extract_data", f"{about}, NULL")
        one.result = call(task, "extract_data", None)
        if one.result:
            self._failed_extract = about

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

    # --- callbacks of the handler ------------------------------------------------------------

    @contextmanager
    def _called(self, name: str, about: str = "", event: str = "") -> Iterator[Call]:
        one = self._record(name, about)
        self._judge(name, event or name)
        with self._without_overlap(name, "async.serialized"), self._spans.span(name):
            yield one

    def _answer(self, one: Call, code: int) -> int:
        one.result = code
        if code:
            self._is_refused = True
            self._state = _STEPS[self._state, "refusal"][0]
        return code

    def _judge(self, name: str, event: str) -> None:
        """Check the rules that any call of the handler can break."""
        inside = self._spans.now()
        if inside == "request" and name in ("on_next_task", "on_error"):
            self._violated("async.not_reentrant", f"request called {name} before it returned")
        if inside == "cancel" and name != "on_error":
            self._violated("async.cancel_quiet", f"cancel called {name} before it returned")
        state, rule, words = _STEPS[self._state, event]
        if rule is None or rule == "async.end":  # _leaks checks for a missing end
            self._state = state
        else:
            self._violated(rule, f"{name} was called {words}")
        if self._producer is not None and not self.is_released:
            self._judge_producer(name, self._producer)

    def _judge_producer(self, name: str, producer: ArrowAsyncProducer) -> None:
        """Check ``producer``: it may be called in on_next_task; else only its address is valid."""
        is_same = self._handler.struct.producer == ctypes.addressof(producer)
        if is_same and name == "on_next_task":
            is_same = self._first_producer == bytes(producer)
        if not is_same:
            self._violated("async.producer_alive", f"in {name} handler->producer is another one")

    def _read_metadata(self, address: int | None, about: str) -> dict[bytes, bytes] | None:
        try:
            pairs = metadata_at(address)
        except Malformed as error:
            self._violated("async.metadata", f"{about}: {error}")
            return None
        return None if pairs is None else dict(pairs)

    def _look_at_schema(self, struct: ArrowSchema) -> None:
        """Hook of subclasses, called with each schema."""

    def _look_at_array(self, struct: ArrowDeviceArray, about: str) -> None:
        """Hook of subclasses, called with each array before it is imported."""

    def _on_schema(self, address: int | None) -> int:
        struct = ArrowSchema()
        if address:
            ctypes.memmove(ctypes.addressof(struct), address, ctypes.sizeof(struct))
            ArrowSchema.from_address(address).release = None
        if not struct.release:
            self._violated("async.schema", "on_schema was called without a schema")
            return errno.EINVAL
        self._look_at_schema(struct)
        self.schema = import_schema(struct)
        pointer = self._handler.struct.producer
        if not pointer:
            self._violated("async.producer", "handler->producer is NULL in on_schema")
            return errno.EINVAL
        self._producer = ArrowAsyncProducer.from_address(pointer)
        for member in ("request", "cancel"):
            if not getattr(self._producer, member):
                self._violated("async.producer", f"{member} of the producer is NULL")
                return errno.EINVAL
        self._first_producer = bytes(self._producer)
        self.device_type = self._producer.device_type
        self.metadata = self._read_metadata(
            self._producer.additional_metadata, "additional_metadata"
        )
        code = self._do_all(self._schema_steps)
        with self._changed:
            self._is_open = True
            self._changed.notify_all()
        return code

    def _on_next_task(self, address: int | None, metadata: int | None) -> int:
        if self.schema is None:
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
            self.batch_metadata.append(self._read_metadata(metadata, about))
            if self.n_tasks > self.n_requested:
                rule = "async.after_cancel" if self._is_asked_late else "async.requested"
                self._violated(rule, f"{about} came, but {self.n_requested} were requested")
            if not task.extract_data:
                self._violated("async.task", f"extract_data of {about} is NULL")
                return errno.EINVAL
            self._kept.append((task, about))
            n_kept = len(self._kept)
            self._changed.notify_all()
        code = self._do_all(self._task_steps)
        if code and len(self._kept) == n_kept:  # refused and not extracted: the producer owns it
            self._kept.pop()
        return code

    def _on_error(self, code: int, message: int | None, metadata: int | None) -> None:
        raw = ctypes.string_at(message) if message else b""
        text = raw.decode(errors="replace") if message else None
        if code == 0 or (text or "").encode() != raw:
            self._violated("async.error", f"on_error({code}, {raw!r})")
        if self.is_cancelled and self._bad_request is None and self._failed_extract is None:
            self._violated(
                "async.cancel_no_error", f"on_error({code}, {text!r}) followed a cancel"
            )
        with self._changed:
            self.error = (code, text, self._read_metadata(metadata, "the error"))
            self._changed.notify_all()

    def _on_release(self) -> None:
        with self._changed:
            self.is_released = True
            self._changed.notify_all()

    def _leaks(self) -> Iterator[Broken]:
        if not self.is_released:
            yield Broken("async.release", "the handler was never released")
        elif self.schema is None and not (self.error or self._broken):
            yield Broken("async.schema_first", "on_schema was never called")
        elif not (self.is_ended or self.error or self._is_refused or self.is_cancelled):
            yield Broken("async.end", "the handler was released without an end")
        elif self._bad_request is not None and self.error is None:
            yield Broken(
                "async.request_refused", f"request({self._bad_request}) led to no on_error"
            )
        elif self._failed_extract is not None and self.error is None:
            yield Broken(
                "async.extract_error", f"{self._failed_extract} failed, and no on_error came"
            )
        yield from super()._leaks()

    # --- steps -------------------------------------------------------------------------------

    def _do_all(self, steps: Iterable[Step | Callable[[Any], object]]) -> int:
        """Do the steps inside a callback; return the callback's result."""
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
