"""Checks the rules for producers of async streams."""

from __future__ import annotations

import errno
import gc
import inspect
import threading

from arrowdev.testing._abi import get_name, inside
from arrowdev.testing._async_handler import ScriptedAsyncHandler
from arrowdev.testing._async_producer import CAPSULE
from arrowdev.testing._check_arrays import (
    check_array,
    check_contents,
    check_device,
    check_schema,
    dirty_the_heap,
    hold_released,
    snapshot,
    watched_below,
)
from arrowdev.testing._recording import TIMEOUT
from arrowdev.testing._report import Report
from arrowdev.testing.step import at, cancel, discard, extract, refuse, request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from arrowdev.testing._check_arrays import Watched

METHOD = "__arrowdev_async_device_stream__"

NOTHING = "offers neither Arrow capsules, nor an async stream, nor DLPack, nor an array interface"


class NoProducerError(TypeError):
    """The function under test is no producer."""


# How long an end is watched for forbidden calls, in seconds.
PATIENCE = 0.1

# The delay of a release by another thread, in seconds.
LINGER = 1.0

# A longer stream is cancelled.
MAX_TASKS = 64

# The rules for each call of a handler, and those for reading a whole stream.
_CALLS = (
    "async.schema_first", "async.schema", "async.metadata", "async.producer",
    "async.producer_alive", "async.serialized", "async.not_reentrant", "async.over",
    "async.release",
)  # fmt: skip
_READING = ("async.task", "async.array", "async.device_type", "async.requested", "async.end")
_CANCEL = ("async.cancel_quiet", "async.cancel_no_error", "async.after_cancel")


def run_to_the_end(result: Any) -> Any:
    """Return the result of a coroutine; anything else is returned as it is."""
    if not inspect.iscoroutine(result):
        return result
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(result)
    with ThreadPoolExecutor(1) as pool:  # a thread has one loop at a time
        return pool.submit(asyncio.run, result).result()


class _StrictHandler(ScriptedAsyncHandler):
    """Checks each struct with the rules for structs in capsules."""

    def __init__(self, report: Report, on_schema: Any, on_task: Any) -> None:
        super().__init__(on_schema, on_task, timeout=TIMEOUT)
        self.report = report
        self.watched: dict[str, Watched] = {}

    def _look_at_schema(self, struct: Any) -> None:
        if check_schema(self.report, struct):
            self.watched |= watched_below(struct, "schema")

    def _look_at_array(self, struct: Any, about: str) -> None:
        check_device(self.report, struct)
        if self.schema is not None:
            schema = self.schema.__arrow_c_schema__()
            if check_array(self.report, inside(schema, "arrow_schema"), struct.array, about):
                self.watched |= watched_below(struct.array, about)


class _Run:
    """One handler, passed to a new producer. Broken rules become findings."""

    def __init__(
        self, report: Report, make: Callable[[], Any], on_schema: Any, on_task: Any
    ) -> None:
        self.report = report
        self.handler = _StrictHandler(report, on_schema, on_task)
        self.failure: str | None = None
        producer = make()
        self.is_function = not hasattr(producer, METHOD)
        # A producer may do all of its work before it returns.
        self.thread = threading.Thread(target=self._push, args=(producer,), daemon=True)
        self.thread.start()

    def _push(self, producer: Any) -> None:
        try:
            run_to_the_end(getattr(producer, METHOD, producer)(self.handler.capsule))
        except BaseException as error:
            self._failed(f"it raised {error!r}")
        else:
            if self.is_function and not self._is_taken():
                self._failed("it returned, and left the capsule alone")

    def _failed(self, how: str) -> None:
        with self.handler._changed:
            self.failure = how
            self.handler._changed.notify_all()

    def _is_taken(self) -> bool:
        """Whether the capsule was renamed, or the handler is called within LINGER seconds."""
        is_renamed = get_name(self.handler.capsule) != CAPSULE
        return is_renamed or self.happens(lambda: self.handler.calls, LINGER)

    def happens(self, condition: Callable[[], object], seconds: float) -> bool:
        """Whether the condition becomes true within this time."""
        with self.handler._changed:
            return bool(self.handler._changed.wait_for(condition, seconds))

    def until(self, condition: Callable[[], object]) -> bool:
        """Wait for a condition that a correct producer fulfils, or for the handler's release."""
        handler = self.handler
        self.happens(lambda: condition() or handler.is_released or self.failure, TIMEOUT)
        return bool(condition())

    def over(self, *rules: str) -> bool:
        """Wait for the release. `rules` were checked, in addition to the common ones."""
        handler = self.handler
        if not self.until(lambda: handler.is_released):
            self.happens(lambda: handler.is_released, PATIENCE)
        self.thread.join(PATIENCE if not handler.is_released else TIMEOUT)
        if handler._failure is not None:
            raise handler._failure
        with handler._changed:
            broken = [*handler._broken, *handler._leaks()]
        for one in broken:
            because = f"; {self.failure}" if self.failure and not handler.calls else ""
            self.report.hold(one.rule, False, one.what + because)
        if handler.calls:
            for rule in (*_CALLS, *rules):
                self.report.hold(rule, True, "")
        return "async.release" not in self.report.findings


# --- trials -------------------------------------------------------------------------------------

_LIMIT = at(MAX_TASKS - 1, cancel())


def _check_reading(report: Report, make: Callable[[], Any]) -> list[Any] | None:
    """Read all batches, as in the specification's diagram; return their values if all is well."""
    early: list[Any] = []

    def look(handler: ScriptedAsyncHandler) -> None:
        if len(handler.batches) > len(early):
            early.append(snapshot(handler.batches[-1]))

    run = _Run(report, make, [request(5)], [request(1), extract(), look, _LIMIT])
    is_over = run.over(*_READING)
    if run.is_function and run.failure and not run.handler.calls:
        raise NoProducerError(f"{report.subject} {NOTHING}; called with a handler, {run.failure}")
    arrays = run.handler.batches
    for i in range(len(arrays)):  # no name of an array is left behind
        check_contents(report, arrays[i])
    schema, watched = run.handler.schema, run.handler.watched
    report.hold("async.end", not run.handler.error, f"it failed: {run.handler.error}")
    del run
    gc.collect()
    dirty_the_heap()
    same = early == [snapshot(array) for array in arrays]
    report.hold("async.lifetime", same, "other data after the release of the handler")
    same = all(array.schema == schema for array in arrays)
    report.hold("async.lifetime", same, "another schema after the release of the handler")
    del arrays, schema
    gc.collect()
    if not report.broken:
        hold_released(report, watched, "async stream")
    return early if is_over and not report.broken else None


def _check_elsewhere(report: Report, make: Callable[[], Any], expected: list[Any]) -> bool:
    """Extract tasks on another thread, after a later call shows that on_next_task has returned."""
    run = _Run(report, make, [request(MAX_TASKS)], [_LIMIT])
    handler = run.handler
    while run.until(lambda: len(handler._kept) > 1 or handler.is_ended) and handler._kept:
        handler.extract()
    is_over = run.over("async.task_copied")
    while handler._kept:  # it was cancelled
        handler.extract()
    found = [snapshot(array) for array in handler.batches]
    report.hold(
        "async.task_copied",
        found == expected,
        f"{len(found)} of {len(expected)} batches, or other data",
    )
    return is_over


def _check_discarding(report: Report, make: Callable[[], Any]) -> bool:
    run = _Run(report, make, [request(5)], [request(1), discard(), _LIMIT])
    is_over = run.over("async.discard")
    failed = run.handler._failed_extract or run.handler.error
    report.hold("async.discard", not failed, f"it failed: {failed}")
    return is_over


def _check_waiting(report: Report, make: Callable[[], Any]) -> bool:
    """Request nothing, then cancel the stream from another thread."""
    run = _Run(report, make, [], [discard()])
    handler = run.handler
    if run.until(lambda: handler._is_open) and not run.happens(
        lambda: handler.n_tasks or handler.is_ended or handler.is_released, PATIENCE
    ):
        handler.cancel()
    return run.over("async.requested", *_CANCEL)


def _check_cancels(report: Report, make: Callable[[], Any]) -> bool:
    again = [cancel(), cancel(), request(3), cancel()]
    if not _Run(report, make, again, [discard()]).over(*_CANCEL):
        return False
    steps = [discard(), at(0, *again)]
    return _Run(report, make, [request(1)], steps).over(*_CANCEL)


def _check_refusals(report: Report, make: Callable[[], Any]) -> bool:
    if not _Run(report, make, [refuse(errno.EINVAL)], []).over():
        return False
    return _Run(report, make, [request(5)], [refuse(errno.EINVAL)]).over()


def _check_bad_requests(report: Report, make: Callable[[], Any]) -> bool:
    for n in (0, -1):
        # A producer that ignores the cancellation continues, and is stopped.
        run = _Run(report, make, [request(n), request(1)], [discard(), at(0, cancel())])
        if not run.over("async.request_refused"):
            return False
    return True


def check_async(report: Report, make: Callable[[], Any]) -> None:
    """Check what `make` returns: an object with METHOD, or a function that takes the handler."""
    own = report.part()  # without the findings about the object's other methods
    _check_in_turn(own, make)
    report.add(own)


def _check_in_turn(report: Report, make: Callable[[], Any]) -> None:
    """Run each trial, as long as the ones before it succeed."""
    expected = _check_reading(report, make)
    if expected is None:
        return
    if not _check_elsewhere(report, make, expected) or not _check_discarding(report, make):
        return
    if not _check_cancels(report, make) or not _check_refusals(report, make):
        return
    if expected and not _check_waiting(report, make):  # an empty stream may end by itself
        return
    _check_bad_requests(report, make)


def check_async_failing(report: Report, make: Callable[[], Any]) -> None:
    """Check a stream that fails: it calls on_error, with a readable message."""
    run = _Run(report, make, [request(5)], [request(1), extract(), _LIMIT])
    run.over("async.error", "async.extract_error")
    report.hold("async.error", run.handler.error, "it was to fail, and did not")
