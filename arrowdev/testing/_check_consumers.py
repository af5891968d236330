"""Checks the rules for consumers of arrays, streams and tensors."""

from __future__ import annotations

import ctypes
import gc
from errno import EIO
from functools import partial

import arrowdev
from arrowdev.testing import _check_async, step
from arrowdev.testing._abi import call, get_name, set_name, take
from arrowdev.testing._async_producer import ScriptedAsyncProducer
from arrowdev.testing._check_arrays import NAMES
from arrowdev.testing._check_order import Gate
from arrowdev.testing._engine import EXT_DEV
from arrowdev.testing._rules import BrokenRule
from arrowdev.testing._software import SoftwareDevice
from arrowdev.testing._spoiling import Batch, Column, DeviceArray, HostArray, Tensor
from arrowdev.testing._streams import ScriptedStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from arrowdev.testing._report import Report

VALUES: list[int | None] = [7, None, -9, 12]
CHUNKS: list[list[int | None]] = [[7, None], [], [-9, 12]]
NUMBERS = [3, -1, 4]
KINDS = (Column, Batch)
STREAMS = ("__arrow_c_stream__", "__arrow_c_device_stream__")
OTHER_NAME = "arrow_capsule_of_another_name"
# A capsule keeps the address of its name.
_NAMES = {
    name: ctypes.create_string_buffer(name.encode())
    for name in (OTHER_NAME, "arrow_array_stream", "arrow_device_array_stream")
}
MESSAGE = "arrowdev planned this failure"


def plain(value: Any) -> Any:
    """Return the value of the only column of a row."""
    if isinstance(value, dict) and len(value) == 1:
        return next(iter(value.values()))
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


class Consumer:
    """The function under test, with its result or exception."""

    def __init__(self, function: Callable[[Any], Any], read: Callable[[Any], Any] | None) -> None:
        self.function, self.read = function, read
        self.result: Any = None
        self.error: BaseException | None = None

    def take(self, obj: Any) -> bool:
        self.result, self.error = None, None
        try:
            self.result = _check_async.run_to_the_end(self.function(obj))
        except BaseException as error:  # a panic of Rust is not an Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            self.error = error.with_traceback(None)
        gc.collect()
        return self.error is None

    def values(self) -> Any:
        """Return the values as a list; an exception of the reader counts as a wrong value."""
        try:
            return None if self.read is None else [plain(v) for v in self.read_all()]
        except Exception as error:
            return [error]

    def read_all(self) -> Any:
        assert self.read is not None
        return _check_async.run_to_the_end(self.read(self.result))

    @property
    def has_values(self) -> bool:
        """Whether the values are correct: a lazy reader may still refuse them."""
        return self.error is None and (self.read is None or self.values() == VALUES)

    def drop(self) -> None:
        self.result, self.error = None, None
        gc.collect()


# --- arrays ------------------------------------------------------------------------------------


def _check_releases(report: Report, column: Column, when: str) -> None:
    n = column.array.released
    report.hold("consumer.release", n == 1, f"released {n} times {when}")
    n = column.schema.released
    report.hold("consumer.release_schema", n == 1, f"released {n} times {when}")


def _check_values(
    report: Report, consumer: Consumer, found: Any, again: Any, expected: Any = VALUES
) -> None:
    """Check the values that were read. The release of `again`, the same data, overwrites nothing:
    other values of it tell that the first were read after the release."""
    if consumer.read is None:
        return
    if found == expected:
        report.hold("consumer.lifetime", True, "")
    else:
        kept = consumer.values() if consumer.take(again) else [consumer.error]
        what = f"{found}, and {kept} of memory that the release does not overwrite"
        report.hold("consumer.lifetime", repr(found) == repr(kept), what)
        found = kept
    report.hold("consumer.values", found == expected, f"{found}, not {expected}")


def _check_sound(report: Report, consumer: Consumer, kind: type[Column], make: Any) -> bool:
    column = kind(VALUES)
    if not consumer.take(make(column)):
        consumer.drop()
        return False
    found = consumer.values()
    if not column.array.is_given:  # it uses another protocol, or none
        consumer.drop()
        return False
    consumer.drop()
    _check_releases(report, column, "in all")
    _check_values(report, consumer, found, make(kind(VALUES, spoils=False)))
    consumer.drop()
    return True


def _check_refused(report: Report, consumer: Consumer, kind: type[Column], make: Any) -> None:
    """Check that a released struct and a capsule of another name are refused."""
    how = f"it was taken from a {make.__name__}"
    column = kind(VALUES)
    column.array.struct.release = None
    consumer.take(make(column))
    report.hold("consumer.released", not consumer.has_values, how)
    consumer.drop()
    column = kind(VALUES)
    consumer.take(make(column, OTHER_NAME))
    report.hold("consumer.name", not consumer.has_values, how)
    consumer.drop()


def _check_malformed(report: Report, consumer: Consumer, kind: type[Column], make: Any) -> None:
    column = kind(VALUES, "no format")
    consumer.take(make(column))
    consumer.drop()
    counts = column.array.released, column.schema.released
    report.hold("consumer.malformed", counts == (1, 1), f"array, schema: {counts} times")


def _check_device(report: Report, consumer: Consumer, kind: type[Column]) -> None:
    """Check memory of an unknown device type."""
    column = kind(VALUES)
    if consumer.take(DeviceArray(column, device=(EXT_DEV, 0))) and consumer.read is not None:
        found = consumer.values()
        report.hold("consumer.device", found != VALUES, "the values of device memory were read")
    else:
        report.hold("consumer.device", True, "")
    consumer.drop()
    column = kind(VALUES)
    taken = consumer.take(DeviceArray(column, reserved=-1))
    report.hold("consumer.reserved", taken, f"refused: {consumer.error}")
    consumer.drop()


def _check_wait(report: Report, consumer: Consumer) -> None:
    """Offer data that are not written yet: the queue is held until the consumer waits for it."""
    device = SoftwareDevice._current
    if device is None or consumer.read is None:
        missing = "the software device" if device is None else "read="
        report.untry("consumer.wait", f"it needs {missing}")
        return
    ready = device.array(VALUES, queue=device.queue(), with_event=False)
    can_read = consumer.take(ready) and consumer.values() == VALUES
    consumer.drop()
    if not can_read:
        report.untry("consumer.wait", "it does not read memory of the software device")
        return
    producer = device.array(VALUES, queue=ready.queue)
    for backwards in (False, True):
        with Gate(backwards) as gate, gate.stepped_if_blocked():
            found = consumer.values() if consumer.take(producer) else consumer.error
        consumer.drop()
        report.hold("consumer.wait", found == VALUES, f"{found}, not {VALUES}")
    producer.queue.close()


def check_taken(report: Report, function: Any, read: Any) -> bool:
    """Check arrays and streams; return whether the consumer takes any kind of them."""
    consumer = Consumer(function, read)
    taken = False
    for kind in KINDS:
        for make in (HostArray, DeviceArray):
            if not _check_sound(report, consumer, kind, make):
                continue
            taken = True
            _check_malformed(report, consumer, kind, make)
            _check_refused(report, consumer, kind, make)
            if make is DeviceArray:
                _check_device(report, consumer, kind)
        for is_device in (False, True):
            taken |= _check_stream(report, consumer, kind, is_device)
        taken |= _check_push(report, consumer, kind)
    if taken and not report.broken:
        _check_wait(report, consumer)
    return taken


# --- streams -----------------------------------------------------------------------------------


def _batches(kind: type[Column], **options: Any) -> list[Any]:
    """Return a step for each chunk. The release of a batch overwrites its memory."""
    return [step.batch(partial(_fresh, kind, chunk, **options)) for chunk in CHUNKS]


def _tarry(stream: ScriptedStream) -> None:
    """Delay get_next, so that forbidden calls of another thread happen meanwhile."""
    n = len(stream.calls)
    with stream._changed:
        stream._changed.wait_for(lambda: len(stream.calls) > n, _check_async.PATIENCE)


def _fresh(kind: type[Column], chunk: list[int | None], **options: Any) -> arrowdev.Array:
    return arrowdev.array(HostArray(kind(chunk, **options)))


def _judge(report: Report, end: ScriptedStream | ScriptedAsyncProducer, *rules: str) -> None:
    """Report the findings of a scripted end after the exchange; `rules` were checked."""
    with end._changed:
        end._changed.wait_for(lambda: end.is_all_released, _check_async.LINGER)
    try:
        end.check()
    except BrokenRule as error:
        for rule, what in error.broken:
            report.hold(rule, False, what)
    for rule in ("consumer.release", "consumer.release_schema", *rules):
        report.hold(rule, True, "")


def _check_error(report: Report, rule: str, consumer: Consumer) -> None:
    """Check that the function, or a lazy reader, raises if the producer fails."""
    if consumer.error is None and consumer.read is not None:
        try:
            consumer.read_all()
        except Exception as error:
            consumer.error = error.with_traceback(None)
    said = str(consumer.error)
    if consumer.error is not None or consumer.read is not None:
        report.hold(rule, MESSAGE in said, f"the exception is {said!r}")


def _check_stream(report: Report, consumer: Consumer, kind: type[Column], is_device: bool) -> bool:
    """Check streams with only one of the two methods."""
    shown: Any = {"device": is_device, "host": not is_device}
    sound = ScriptedStream([_tarry, *_batches(kind)], **shown)
    if not consumer.take(sound):
        consumer.drop()
        return False
    found = consumer.values()
    if not sound.n_exports:
        consumer.drop()
        return False
    _judge_stream(report, consumer, sound)
    _check_values(report, consumer, found, ScriptedStream(_batches(kind, spoils=False), **shown))
    consumer.drop()
    _check_refused_stream(report, consumer, kind, shown)
    failing = ScriptedStream([*_batches(kind), step.error(EIO, MESSAGE)], **shown)
    consumer.take(failing)
    _check_error(report, "consumer.stream_error", consumer)
    _judge_stream(report, consumer, failing)
    if is_device:
        _check_foreign_stream(report, consumer, kind)
    return True


class _Altered:
    """Shows the method that a stream shows; `alter` changes the capsule and returns an undo."""

    def __init__(self, stream: ScriptedStream, alter: Callable[[Any, str], Any]) -> None:
        self.stream, self.alter = stream, alter
        self.undo: list[Any] = []

    def __getattr__(self, method: str) -> Any:
        if method not in STREAMS:
            raise AttributeError(method)
        export = getattr(self.stream, method)

        def altered(*arguments: Any, **keywords: Any) -> Any:
            capsule = export(*arguments, **keywords)
            self.undo.append(self.alter(capsule, NAMES[method][0]))
            return capsule

        return altered


def _mark_released(capsule: Any, name: str) -> Any:
    stream = take(capsule, name)  # moved out: all but the release is still there
    return partial(call, stream, "release")


def _rename(capsule: Any, name: str) -> Any:
    set_name(capsule, ctypes.addressof(_NAMES[OTHER_NAME]))
    return partial(set_name, capsule, ctypes.addressof(_NAMES[name]))


def _check_refused_stream(
    report: Report, consumer: Consumer, kind: type[Column], shown: Any
) -> None:
    """Check that a released stream and a capsule of another name are refused."""
    how = f"it was taken as a {'device ' if shown['device'] else ''}stream"
    for rule, alter in (("consumer.released", _mark_released), ("consumer.name", _rename)):
        altered = _Altered(ScriptedStream(_batches(kind), **shown), alter)
        consumer.take(altered)
        report.hold(rule, not consumer.has_values, how)
        consumer.drop()
        for undo in altered.undo:  # so that the stream is released
            undo()


def _check_foreign_stream(report: Report, consumer: Consumer, kind: type[Column]) -> None:
    """Check batches of an unknown device type."""
    batches = [step.batch(partial(_fresh, kind, chunk), device_type=EXT_DEV) for chunk in CHUNKS]
    foreign = ScriptedStream(batches, device_type=EXT_DEV, host=False)
    is_read = consumer.take(foreign) and consumer.read is not None and consumer.values() == VALUES
    report.hold("consumer.device", not is_read, "the values of device memory were read")
    _judge_stream(report, consumer, foreign)


def _judge_stream(report: Report, consumer: Consumer, stream: ScriptedStream) -> None:
    consumer.drop()
    n = stream.n_after_end
    report.hold("consumer.stream_end", n == 0, f"{n} calls after it")
    _judge(
        report,
        stream,
        "consumer.stream",
        "consumer.stream_released",
        "consumer.stream_out",
        "consumer.stream_threads",
        "consumer.stream_last_error",
    )


# --- async streams -----------------------------------------------------------------------------

_ASYNC = (
    "consumer.async_handler", "consumer.async_schema", "consumer.async_request",
    "consumer.async_alive", "consumer.async_quiet", "consumer.async_task",
    "consumer.async_extract",
)  # fmt: skip


def _check_pushed(report: Report, consumer: Consumer, producer: Any) -> None:
    consumer.drop()
    try:
        producer.wait()
    except TimeoutError as error:
        report.hold("consumer.async_request", False, str(error))
        return
    _judge(report, producer, *_ASYNC)


def _paced(batches: list[Any]) -> list[Any]:
    return [one for batch in batches for one in (step.wait_for_request(), batch)]


def _check_push(report: Report, consumer: Consumer, kind: type[Column]) -> bool:
    """Check batches from a thread, batches from the call that takes the handler, and errors."""
    start, over = [step.schema(), *_paced(_batches(kind))], [step.end(), step.release()]
    sound = ScriptedAsyncProducer([*start, *over])
    taken = consumer.take(sound)
    if not sound.is_connected:
        consumer.drop()
        return False
    found = consumer.values() if taken else None
    _check_pushed(report, consumer, sound)
    if taken:
        batches = _paced(_batches(kind, spoils=False))
        again = ScriptedAsyncProducer([step.schema(), *batches, *over], type=sound.schema)
        _check_values(report, consumer, found, again)
        consumer.drop()
    if not taken or "consumer.async_handler" in report.findings:
        return taken
    at_once = ScriptedAsyncProducer([step.schema(), *over], type=sound.schema, on_thread=False)
    taken = consumer.take(at_once)
    found = [] if consumer.read is None or not taken else consumer.values()
    report.hold("consumer.async_ready", taken and found == [], f"{consumer.error or found}")
    _check_pushed(report, consumer, at_once)
    failure = [step.error(EIO, MESSAGE, {"key": "value"}), step.release()]
    for steps in ([*start, *failure], failure):
        failing = ScriptedAsyncProducer(steps, type=sound.schema)
        consumer.take(failing)
        _check_error(report, "consumer.async_error", consumer)
        _check_pushed(report, consumer, failing)
    return True


# --- tensors -----------------------------------------------------------------------------------


def check_tensors_taken(report: Report, function: Any, read: Any) -> bool:
    consumer = Consumer(function, read)
    tensor = Tensor(NUMBERS)
    if not consumer.take(tensor):
        consumer.drop()
        return False
    found = consumer.values()
    if not tensor.capsules:
        consumer.drop()
        return False
    name = get_name(tensor.capsule) or b""
    report.hold("consumer.renamed", name.startswith(b"used_"), f"its name is {name!r}")
    _check_deleted(report, consumer, tensor, "consumer.deleter")
    _check_values(report, consumer, found, Tensor(NUMBERS, spoils=False), NUMBERS)
    consumer.drop()
    old = Tensor(NUMBERS, knows_versions=False)
    taken = consumer.take(old)
    report.hold("consumer.max_version", taken, f"refused: {consumer.error}")
    _check_deleted(report, consumer, old, "consumer.deleter")
    later = Tensor(NUMBERS, major=2)
    taken = consumer.take(later)
    if "dltensor_versioned" in later.capsules:
        report.hold("consumer.major", not taken, "version 2.0 was taken")
        _check_deleted(report, consumer, later, "consumer.major")
    consumer.drop()
    return True


def _check_deleted(report: Report, consumer: Consumer, tensor: Tensor, rule: str) -> None:
    consumer.drop()
    if tensor.capsules:
        del tensor.capsule
        gc.collect()
        n, made = tensor.deleted, len(tensor.capsules)
        report.hold(rule, n == made, f"called {n} times for {made} capsules")
