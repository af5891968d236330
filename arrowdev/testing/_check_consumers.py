"""The rules about those who take arrays, streams and tensors."""

from __future__ import annotations

import gc

from arrowdev.testing._dlpack import get_name
from arrowdev.testing._scripted import (
    MESSAGE,
    Batch,
    Column,
    DeviceArray,
    HostArray,
    HostStream,
    Tensor,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from arrowdev.testing._conformance_rules import Report

VALUES: list[int | None] = [7, None, -9, 12]
CHUNKS: list[list[int | None]] = [[7, None], [], [-9, 12]]
NUMBERS = [3, -1, 4]
KINDS = (Column, Batch)
EXT_DEV = 12


def plain(value: Any) -> Any:
    """The value of the only column of a row."""
    if isinstance(value, dict) and len(value) == 1:
        return next(iter(value.values()))
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


class Consumer:
    """The function under test: what it returned, or raised."""

    def __init__(self, function: Callable[[Any], Any], read: Callable[[Any], Any] | None) -> None:
        self.function, self.read = function, read
        self.result: Any = None
        self.error: BaseException | None = None

    def take(self, obj: Any) -> bool:
        self.result, self.error = None, None
        try:
            self.result = self.function(obj)
        except BaseException as error:  # a panic of Rust's is no Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            self.error = error.with_traceback(None)
        gc.collect()
        return self.error is None

    def values(self) -> Any:
        """As a list; an exception of the reader is one of the values, and wrong."""
        try:
            return None if self.read is None else [plain(v) for v in self.read(self.result)]
        except Exception as error:
            return [error]

    @property
    def has_values(self) -> bool:
        """Whether what was taken is the data: readers that are lazy may yet refuse them."""
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


def _check_sound(report: Report, consumer: Consumer, obj: Any, column: Column) -> bool:
    if not consumer.take(obj):
        consumer.drop()
        return False
    if consumer.read is not None:
        early = column.array.released > 0
        found = consumer.values()
        rule = "consumer.lifetime" if early else "consumer.values"
        report.hold(rule, found == VALUES, f"{found}, not {VALUES}")
        report.hold("consumer.lifetime", not early or found == VALUES, "released while in use")
    consumer.drop()
    del obj
    gc.collect()
    _check_releases(report, column, "in all")
    return True


def _check_refused(report: Report, consumer: Consumer, kind: type[Column], make: Any) -> None:
    """A released struct, and a capsule of another name."""
    column = kind(VALUES)
    column.array.struct.release = None
    consumer.take(make(column))
    report.hold("consumer.released", not consumer.has_values, "it was taken")
    consumer.drop()
    column = kind(VALUES)
    consumer.take(HostArray(column, "arrow_array_of_another_name"))
    report.hold("consumer.name", not consumer.has_values, "it was taken")
    consumer.drop()


def _check_malformed(report: Report, consumer: Consumer, kind: type[Column], make: Any) -> None:
    column = kind(VALUES, "no format")
    consumer.take(make(column))
    consumer.drop()
    counts = column.array.released, column.schema.released
    report.hold("consumer.malformed", counts == (1, 1), f"array, schema: {counts} times")


def _check_device(report: Report, consumer: Consumer, kind: type[Column]) -> None:
    """Memory of a device type that the consumer has never seen."""
    column = kind(VALUES)
    if consumer.take(DeviceArray(column, (EXT_DEV, 0))) and consumer.read is not None:
        found = consumer.values()
        report.hold("consumer.device", found != VALUES, "the values of device memory were read")
    else:
        report.hold("consumer.device", True, "")
    consumer.drop()
    column = kind(VALUES)
    taken = consumer.take(DeviceArray(column, reserved=-1))
    report.hold("consumer.reserved", taken, f"refused: {consumer.error}")
    consumer.drop()


def check_taken(report: Report, function: Any, read: Any) -> bool:
    """Arrays and streams; whether any kind of them is taken."""
    consumer = Consumer(function, read)
    taken = False
    for kind in KINDS:
        for make in (HostArray, DeviceArray):
            column = kind(VALUES)
            if not _check_sound(report, consumer, make(column), column):
                continue
            taken = True
            _check_malformed(report, consumer, kind, make)
            if make is HostArray:
                _check_refused(report, consumer, kind, make)
            else:
                _check_device(report, consumer, kind)
        taken |= _check_stream(report, consumer, kind)
    return taken


# --- streams -----------------------------------------------------------------------------------


def _check_stream(report: Report, consumer: Consumer, kind: type[Column]) -> bool:
    stream = HostStream(kind, CHUNKS)
    if not consumer.take(stream):
        consumer.drop()
        return False
    if consumer.read is not None:
        found = consumer.values()
        report.hold("consumer.values", found == VALUES, f"{found}, not {VALUES}")
    _check_end(report, consumer, stream)
    failing = HostStream(kind, CHUNKS, fails=True)
    if consumer.take(failing) and consumer.read is not None:
        try:
            consumer.read(consumer.result)  # readers that are lazy find out now
        except Exception as error:
            consumer.error = error.with_traceback(None)
    said = str(consumer.error)
    if consumer.error is not None or consumer.read is not None:
        report.hold("consumer.stream_error", MESSAGE in said, f"the exception is {said!r}")
    _check_end(report, consumer, failing)
    return True


def _check_end(report: Report, consumer: Consumer, stream: HostStream) -> None:
    consumer.drop()
    counts = [part.released for part in stream.streams]
    report.hold("consumer.stream", set(counts) <= {1}, f"released {counts} times")
    counts = [part.released for part in stream.given]
    report.hold("consumer.stream_chunks", set(counts) <= {1}, f"released {counts} times")
    n = stream.calls_after_end
    report.hold("consumer.stream_end", n == 0, f"{n} calls after it")


# --- tensors -----------------------------------------------------------------------------------


def check_tensors_taken(report: Report, function: Any, read: Any) -> bool:
    consumer = Consumer(function, read)
    tensor = Tensor(NUMBERS)
    if not consumer.take(tensor):
        consumer.drop()
        return False
    name = get_name(tensor.capsule) or b""
    report.hold("consumer.renamed", name.startswith(b"used_"), f"its name is {name!r}")
    if read is not None:
        early, found = tensor.deleted > 0, consumer.values()
        rule = "consumer.lifetime" if early else "consumer.values"
        report.hold(rule, found == NUMBERS, f"{found}, not {NUMBERS}")
    _check_deleted(report, consumer, tensor, "consumer.deleter")
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
