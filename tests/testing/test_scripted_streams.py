"""arrowdev.testing's scripted ends of streams: the violations that each end detects in a peer."""

import ctypes
import errno
import re
import threading
from ctypes import addressof
from pathlib import Path

import broken_ends
import numpy as np
import pytest
from broken_ends import END, RELEASE, REQUESTED, SCHEMA, Reentrant
from scripted_samples import LIMIT, Handler, Struct, broken_by

import arrowdev as ad
from arrowdev.testing import (
    RULES,
    ScriptedAsyncHandler,
    ScriptedAsyncProducer,
    ScriptedReader,
    ScriptedStream,
    _abi,
    _device,
    step,
)

# --- pull consumers with violations --------------------------------------------------------------


def release_twice(stream):
    struct = Struct(stream)
    struct("release")
    struct("release")


def release_a_batch_twice(stream):
    struct = Struct(stream)
    batch = struct.batch()
    copy = _abi.ArrowArray.from_buffer_copy(batch.array)
    _abi.call(batch.array, "release")
    _abi.call(copy, "release")
    struct("release")


def forget(what):
    def run(stream):
        struct = Struct(stream)
        getattr(struct, what)()
        struct("release")

    return run


def call_late(name, *arguments):
    def run(stream):
        struct = Struct(stream)
        struct("release")
        struct(name, *arguments)

    return run


def ask_for_no_error(stream):
    struct = Struct(stream)
    assert struct("get_last_error") is None
    struct("release")


def write_to_nothing(stream):
    struct = Struct(stream)
    assert struct("get_next", None) == errno.EINVAL
    struct("release")


def call_at_once(stream):
    """Calls get_next on two threads; the step of the first one blocks."""
    struct = Struct(stream)
    thread = threading.Thread(target=lambda: _abi.call(struct.batch().array, "release"))
    thread.start()
    stream.wait_inside()
    _abi.call(struct.batch().array, "release")
    stream.go_on.set()
    thread.join(LIMIT)
    struct("release")


class Slow(ScriptedStream):
    """The first get_next blocks until the test releases it."""

    def __init__(self):
        self.inside, self.go_on = threading.Event(), threading.Event()
        super().__init__([self.block, [1], [2]])

    def block(self, _):
        self.inside.set()
        assert self.go_on.wait(LIMIT)

    def wait_inside(self):
        assert self.inside.wait(LIMIT)


PULL_CONSUMERS = {
    "stream released twice": (release_twice, ["consumer.stream"]),
    "batch released twice": (release_a_batch_twice, ["consumer.release"]),
    "stream forgotten": (Struct, ["consumer.stream"]),
    "batch forgotten": (forget("batch"), ["consumer.release"]),
    "schema forgotten": (forget("schema"), ["consumer.release_schema"]),
    "get_next after release": (call_late("get_next", 1), ["consumer.stream_released"]),
    "get_schema after release": (call_late("get_schema", 1), ["consumer.stream_released"]),
    "get_last_error after release": (call_late("get_last_error"), ["consumer.stream_released"]),
    "no error": (ask_for_no_error, ["consumer.stream_last_error"]),
    "NULL": (write_to_nothing, ["consumer.stream_out"]),
    "two at once": (call_at_once, ["consumer.stream_threads"]),
}


@pytest.mark.parametrize("name", PULL_CONSUMERS)
def test_violations_of_pull_consumer(name):
    consume, expected = PULL_CONSUMERS[name]
    stream = Slow() if consume is call_at_once else ScriptedStream([[1], [2]])
    consume(stream)
    assert broken_by(stream) == expected
    assert stream.is_all_released == ("forgotten" not in name)
    stream.check(ignore=expected)


# --- pull producers with violations --------------------------------------------------------------


class Patched:
    """A stream of arrowdev with one callback replaced by function(original callback, ...)."""

    def __init__(self, name, function, *, source=None):
        self.inner = source or ad.array_stream([ad.array(np.arange(3))])
        self.name, self.function = name, function

    def __arrow_c_device_stream__(self):
        self.capsule = self.inner.__arrow_c_device_stream__()
        struct = _abi.inside(self.capsule, "arrow_device_array_stream")
        if self.function is None:
            setattr(struct, self.name, None)
            return self.capsule
        self.real = _abi.CALLBACKS[self.name](getattr(struct, self.name))
        self.patch = _abi.CALLBACKS[self.name](lambda *args: self.function(self.real, *args))
        setattr(struct, self.name, _abi.address_of(self.patch))
        return self.capsule


def release_without_mark(real, address):
    copy = _abi.ArrowDeviceArrayStream()
    ctypes.memmove(addressof(copy), address, ctypes.sizeof(copy))
    real(addressof(copy))


class OtherSchema:
    """get_schema returns another type on the second call."""

    def __init__(self):
        self.types = iter([ad.schema("int64"), ad.schema("utf8")])

    def __call__(self, real, address, out):
        capsule = next(self.types).__arrow_c_schema__()
        _abi.move(_abi.inside(capsule, "arrow_schema"), out)
        return 0


LATIN = ctypes.create_string_buffer("é".encode("latin-1"))

PULL_PRODUCERS = {
    "release does not mark": (lambda: Patched("release", release_without_mark), "release.marked"),
    "get_next is NULL": (lambda: Patched("get_next", None), "stream.callbacks"),
    "no schema": (lambda: Patched("get_schema", lambda *_: 0), "stream.schema"),
    "nothing written": (lambda: Patched("get_next", lambda *_: 0), "stream.next"),
    "schema changes": (lambda: Patched("get_schema", OtherSchema()), "stream.schema"),
    "other type": (lambda: ScriptedStream([[1], {"a": [1]}]), "stream.same_schema"),
    "other device type": (
        lambda: ScriptedStream([[1], step.batch([2], device_type=13)]),
        "stream.device_type",
    ),
    "batch after the end": (lambda: ScriptedStream([[1], step.end(), [2]]), "stream.end"),
    "text": (
        lambda: Patched(
            "get_last_error",
            lambda *_: addressof(LATIN),
            source=ScriptedStream([step.error(errno.EIO)], type="int64"),
        ),
        "stream.error",
    ),
}


@pytest.mark.parametrize("name", PULL_PRODUCERS)
def test_violations_of_pull_producer(name):
    make, expected = PULL_PRODUCERS[name]
    source = make()
    steps = [step.get_schema(), step.get_schema(), step.get_next(4), step.release()]
    reader = ScriptedReader(steps).read(source)
    found = broken_by(reader)
    assert found[0] == expected and len(set(found)) == 1
    del reader


# --- async consumers and producers with violations -----------------------------------------------


class Forgetful(Handler):
    def on_next_task(self, *_):
        return 0


class Twice(Handler):
    def on_next_task(self, _, task, metadata):
        if task:
            copy = _abi.ArrowAsyncTask.from_buffer_copy(_abi.ArrowAsyncTask.from_address(task))
            assert self.extract(copy) == 0
            assert self.extract(copy) == errno.EINVAL
        return 0


class ByPointer(Handler):
    """Keeps the pointer to the task, which is valid during the call only."""

    def on_next_task(self, _, task, metadata):
        if task:
            self.tasks.append(task)
        else:
            for address in self.tasks:
                assert self.extract(_abi.ArrowAsyncTask.from_address(address)) == 0
        return 0


class LeavesSchema(Handler):
    def on_schema(self, _, schema):
        self.producer("request", 3)
        return 0


class AsksTooLate(Handler):
    def release(self, _):
        self.producer("request", 1)


class AsksAfterwards(Handler):
    def release(self, _):
        self.is_released = True


class AsksNothing(Handler):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def on_schema(self, _, schema):
        _abi.call(_abi.ArrowSchema.from_address(schema), "release")
        self.producer("request", self.n)
        return 0


class NoRelease(Handler):
    def __init__(self):
        super().__init__()
        self.struct.release = None


ASYNC_CONSUMERS = {
    "correct": (Handler, []),
    "never extracted": (Forgetful, ["consumer.async_extract", "consumer.async_extract"]),
    "extracted twice": (Twice, ["consumer.async_extract", "consumer.async_extract"]),
    "extracted by the pointer": (ByPointer, ["consumer.async_task", "consumer.async_task"]),
    "schema left": (LeavesSchema, ["consumer.async_schema"]),
    "request in release": (AsksTooLate, ["consumer.async_quiet"]),
    "request(0)": (lambda: AsksNothing(0), ["consumer.async_request"]),
    "request(-1)": (lambda: AsksNothing(-1), ["consumer.async_request"]),
    "handler without release": (NoRelease, ["consumer.async_handler"]),
}


@pytest.mark.parametrize("name", ASYNC_CONSUMERS)
def test_violations_of_async_consumer(name):
    make, expected = ASYNC_CONSUMERS[name]
    producer = ScriptedAsyncProducer.of([[1], [2]], on_thread=False, timeout=LIMIT)
    handler = make()
    producer.connect_address(handler.address)
    found = [one.rule for one in producer.broken]
    if (expected and not found) or "never" in name:
        found = broken_by(producer)
    assert found == expected
    producer.check(ignore=expected)
    if name.startswith("request("):
        assert producer.names[-2:] == ["on_error", "release"]


def test_missing_handler():
    with pytest.raises(ValueError, match="NULL"):
        ScriptedAsyncProducer.of([[1]]).connect_address(0)


def test_call_of_the_producer_before_the_schema():
    handler = Handler()
    steps = [lambda _: handler.producer("cancel"), step.schema(), step.end(), step.release()]
    producer = ScriptedAsyncProducer(steps, type="int64", on_thread=False, timeout=LIMIT)
    producer.connect_address(handler.address)
    assert broken_by(producer) == ["consumer.async_alive"]


def test_call_of_the_producer_after_release():
    producer = ScriptedAsyncProducer.of([[1]], on_thread=False, timeout=LIMIT)
    handler = AsksAfterwards()
    producer.connect_address(handler.address)
    handler.producer("cancel")
    assert broken_by(producer) == ["consumer.async_alive"]


def test_early_release_of_producer():
    steps = [step.schema(), step.wait_for_request(), [1], step.free_producer(), step.release()]
    producer = ScriptedAsyncProducer(steps, on_thread=False, timeout=LIMIT)
    handler = Handler()

    def release(_):
        handler.producer("cancel")

    handler.callbacks["release"] = _abi.CALLBACKS["release"](release)
    handler.struct.release = _abi.address_of(handler.callbacks["release"])
    producer.connect_address(handler.address)
    assert broken_by(producer) == ["consumer.async_alive", "consumer.async_quiet"]


def no_callbacks():
    producer = ScriptedAsyncProducer.of([[1]])
    producer.steps.insert(0, lambda it: setattr(it._producer.struct, "request", None))
    return producer


def at_once(producer):
    """Calls on_next_task on two threads; the consumer blocks the first one."""
    inside, go_on = threading.Event(), threading.Event()

    def block(_):
        if not inside.is_set():
            inside.set()
            assert go_on.wait(LIMIT)

    handler = ScriptedAsyncHandler(on_task=[block, step.extract()], timeout=LIMIT)

    def second(_):
        assert inside.wait(LIMIT)
        producer._do_batch(**step.batch(ad.array(np.arange(1))).options)
        go_on.set()

    thread = threading.Thread(target=second, args=(None,), daemon=True)
    thread.start()
    handler.connect(producer)
    thread.join(LIMIT)
    handler.wait_for_release()
    return handler


# steps, behaviour of the consumer's callbacks, and the broken rules that are found
ASYNC_PRODUCERS = {
    "correct": ([SCHEMA, REQUESTED, [1], END, RELEASE], {}, []),
    "without an end": ([SCHEMA, REQUESTED, [1], RELEASE], {}, ["async.end"]),
    "error at once": ([step.error(errno.EIO, "no"), RELEASE], {}, []),
    "error without a code": ([step.error(0, "no"), RELEASE], {}, ["async.error"]),
    "nothing": ([RELEASE], {}, ["async.schema_first"]),
    "no schema": ([[1], RELEASE], {}, ["async.schema_first"]),
    "two schemas": ([SCHEMA, SCHEMA, END, RELEASE], {}, ["async.schema_first"]),
    "too many": ([SCHEMA, [1], [2], END, RELEASE], {"on_schema": [], "on_task": [step.discard()]},
                 ["async.requested", "async.requested"]),
    "error after the end": ([SCHEMA, END, step.error(5), RELEASE], {}, ["async.over"]),
    "task after the end": ([SCHEMA, REQUESTED, END, [1], RELEASE], {}, ["async.over"]),
    "task after an error": (
        [SCHEMA, REQUESTED, step.error(5), [1], RELEASE], {}, ["async.over"]
    ),
    "end after a refusal": (
        [SCHEMA, END, RELEASE], {"on_schema": [step.refuse(7)]}, ["async.over"]
    ),
    "never released": ([SCHEMA, END], {}, ["async.release"]),
    "released twice": ([SCHEMA, END, RELEASE, step.release(anyway=True)], {}, ["async.release"]),
    "end after release": ([SCHEMA, RELEASE, END], {}, ["async.release"]),
    "no producer": ([step.schema(populate=False), RELEASE], {}, ["async.producer"]),
    "released schema": ([broken_ends.released_schema, RELEASE], {}, ["async.schema"]),
    "producer gone": (
        [SCHEMA, REQUESTED, broken_ends.no_producer, END, RELEASE],
        {},
        ["async.producer_alive"] * 2,
    ),
    "metadata": ([broken_ends.bad_metadata, SCHEMA, END, RELEASE], {}, ["async.metadata"]),
    "task without a function": (
        [SCHEMA, REQUESTED, broken_ends.empty_task, RELEASE], {}, ["async.task"]
    ),
    "released array": (
        [SCHEMA, REQUESTED, step.batch([1], empty=True), END, RELEASE], {}, ["async.array"]
    ),
    "other schema": ([SCHEMA, REQUESTED, [1], {"a": [1]}, END, RELEASE], {}, ["async.array"]),
    "other device": (
        [SCHEMA, REQUESTED, step.batch([1], device_type=13), END, RELEASE],
        {},
        ["async.device_type"],
    ),
    "failed task without an error": (
        [SCHEMA, REQUESTED, step.batch([1], code=5), END, RELEASE], {}, ["async.extract_error"]
    ),
    "failed task": ([SCHEMA, REQUESTED, step.batch([1], code=5), step.error(5), RELEASE], {}, []),
    "bad request": (
        [SCHEMA, END, RELEASE], {"on_schema": [step.request(-1)]}, ["async.request_refused"]
    ),
    "task for a request after a cancel": (
        [SCHEMA, [1], END, RELEASE],
        {"on_schema": [step.cancel(), step.request(1)], "on_task": [step.discard()]},
        ["async.after_cancel"],
    ),
    "cancel with an error": (
        [SCHEMA, step.error(errno.EINVAL, "cancelled"), RELEASE],
        {"on_schema": [step.cancel()]},
        ["async.cancel_no_error"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("on_thread", [False, True], ids=["caller", "thread"])
@pytest.mark.parametrize("name", ASYNC_PRODUCERS)
def test_violations_of_async_producer(name, on_thread):
    steps, script, expected = ASYNC_PRODUCERS[name]
    producer = ScriptedAsyncProducer(
        steps, type="int64", on_thread=on_thread, obey=False, timeout=LIMIT
    )
    handler = ScriptedAsyncHandler(**script, timeout=LIMIT).connect(producer)
    producer.wait()
    if expected:
        assert broken_by(handler) == expected
    else:
        handler.check()
    handler.batches.clear()
    handler.schema = None
    producer.check(ignore=["consumer.async_request"])


@pytest.mark.parametrize(
    ("producer", "script", "expected"),
    [
        (Reentrant(request=Reentrant.end), {}, "async.not_reentrant"),
        (Reentrant(cancel=Reentrant.end), {"on_schema": [step.cancel()]}, "async.cancel_quiet"),
        (no_callbacks(), {}, "async.producer"),
    ],
)
def test_wrong_calls_of_producer(producer, script, expected):
    handler = ScriptedAsyncHandler(**script, timeout=LIMIT).connect(producer)
    handler.wait_for_release()
    assert broken_by(handler)[0] == expected


def test_concurrent_calls_of_handler():
    producer = ScriptedAsyncProducer.of([np.arange(1)], timeout=LIMIT)
    handler = at_once(producer)
    assert "async.serialized" in broken_by(handler)


SOURCE = "".join(
    (Path(ad.__file__).parent / "testing" / name).read_text(encoding="utf-8")
    for name in ("_async_handler.py", "_async_producer.py", "_recording.py", "_streams.py")
)


def test_every_rule_can_be_broken():
    found = {rule for _, rules in PULL_CONSUMERS.values() for rule in rules}
    found |= {rule for _, rule in PULL_PRODUCERS.values()}
    found |= {rule for _, rules in ASYNC_CONSUMERS.values() for rule in rules}
    found |= {rule for _, _, rules in ASYNC_PRODUCERS.values() for rule in rules}
    found |= {"async.not_reentrant", "async.cancel_quiet", "async.serialized"}  # tested above
    found |= {"async.producer", "consumer.async_alive"}
    judged = set(re.findall(r'"((?:stream|async|consumer|release)\.[a-z_]+)"', SOURCE))
    judged |= {rule for _, rule, _ in _device.async_states().values() if rule}
    assert found == judged and judged < set(RULES)
