"""arrowdev.testing's scripted ends of streams: against each other, against peers and arrowdev."""

import ctypes
import errno
import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from ctypes import addressof
from pathlib import Path

import numpy as np
import pytest

import arrowdev as ad
from arrowdev.testing import (
    RULES,
    BrokenRule,
    ScriptedAsyncHandler,
    ScriptedAsyncProducer,
    ScriptedReader,
    ScriptedStream,
    _abi,
    step,
)

LIMIT = 20  # seconds that any wait of these tests may take
TABLE = {"a": [1, 2], "s": ["x", None]}


def broken_by(end, **options):
    """The names of the rules that the other end broke."""
    with pytest.raises(BrokenRule) as info:
        end.check(**options)
    for one in info.value.broken:
        assert one.what in str(info.value)
        assert RULES[one.rule].source in str(info.value)
    return [one.rule for one in info.value.broken]


def rows(batches):
    return [row for batch in batches for row in batch.to_pylist()]


# --- a consumer that is careless, in C's manner --------------------------------------------------


class Struct:
    """A stream's struct moved out of a capsule, to be called in any order."""

    def __init__(self, stream):
        capsule = stream.__arrow_c_device_stream__()
        self.struct = _abi.take(capsule, "arrow_device_array_stream")
        self.functions = {
            name: _abi.CALLBACKS[name](getattr(self.struct, name))
            for name in ("get_schema", "get_next", "get_last_error", "release")
        }

    def __call__(self, name, *arguments):
        return self.functions[name](addressof(self.struct), *arguments)

    def schema(self):
        out = _abi.ArrowSchema()
        assert self("get_schema", addressof(out)) == 0
        return out

    def batch(self):
        out = _abi.ArrowDeviceArray()
        assert self("get_next", addressof(out)) == 0
        return out


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
    """get_next on two threads; the first one's step holds it up."""
    struct = Struct(stream)
    thread = threading.Thread(target=lambda: _abi.call(struct.batch().array, "release"))
    thread.start()
    stream.wait_inside()
    _abi.call(struct.batch().array, "release")
    stream.go_on.set()
    thread.join(LIMIT)
    struct("release")


class Slow(ScriptedStream):
    """The first get_next waits until it is let go."""

    def __init__(self):
        self.inside, self.go_on = threading.Event(), threading.Event()
        super().__init__([self.block, [1], [2]])

    def block(self, _):
        self.inside.set()
        assert self.go_on.wait(LIMIT)

    def wait_inside(self):
        assert self.inside.wait(LIMIT)


PULL_CONSUMERS = {
    "stream released twice": (release_twice, ["released-once"]),
    "batch released twice": (release_a_batch_twice, ["released-once"]),
    "stream forgotten": (Struct, ["released-once"]),
    "batch forgotten": (forget("batch"), ["released-once"]),
    "schema forgotten": (forget("schema"), ["released-once"]),
    "get_next after release": (call_late("get_next", 1), ["not-after-release"]),
    "get_schema after release": (call_late("get_schema", 1), ["not-after-release"]),
    "get_last_error after release": (call_late("get_last_error"), ["not-after-release"]),
    "no error": (ask_for_no_error, ["error-before-last-error"]),
    "NULL": (write_to_nothing, ["mandatory"]),
    "two at once": (call_at_once, ["one-at-a-time"]),
}


@pytest.mark.parametrize("name", PULL_CONSUMERS)
def test_careless_pull_consumer(name):
    consume, expected = PULL_CONSUMERS[name]
    stream = Slow() if consume is call_at_once else ScriptedStream([[1], [2]])
    consume(stream)
    assert broken_by(stream) == expected
    assert stream.is_all_released == (expected != ["released-once"] or "twice" in name)
    stream.check(ignore=expected)


# --- producers that are careless, in C's manner --------------------------------------------------


class Patched:
    """A stream of arrowdev with one callback replaced: function(call of the real one, ...)."""

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
    """get_schema that gives another type the second time."""

    def __init__(self):
        self.types = iter([ad.schema("int64"), ad.schema("utf8")])

    def __call__(self, real, address, out):
        capsule = next(self.types).__arrow_c_schema__()
        _abi.move(_abi.inside(capsule, "arrow_schema"), out)
        return 0


LATIN = ctypes.create_string_buffer("é".encode("latin-1"))

PULL_PRODUCERS = {
    "release does not mark": (lambda: Patched("release", release_without_mark), "release-marks"),
    "get_next is NULL": (lambda: Patched("get_next", None), "mandatory"),
    "no schema": (lambda: Patched("get_schema", lambda *_: 0), "mandatory"),
    "nothing written": (lambda: Patched("get_next", lambda *_: 0), "valid-array"),
    "schema changes": (lambda: Patched("get_schema", OtherSchema()), "one-schema"),
    "other type": (lambda: ScriptedStream([[1], {"a": [1]}]), "valid-array"),
    "other device type": (
        lambda: ScriptedStream([[1], step.batch([2], device_type=13)]),
        "device-type",
    ),
    "batch after the end": (lambda: ScriptedStream([[1], step.end(), [2]]), "end-stays"),
    "text": (
        lambda: Patched(
            "get_last_error",
            lambda *_: addressof(LATIN),
            source=ScriptedStream([step.error(errno.EIO)], type="int64"),
        ),
        "error-text",
    ),
}


@pytest.mark.parametrize("name", PULL_PRODUCERS)
def test_careless_pull_producer(name):
    make, expected = PULL_PRODUCERS[name]
    source = make()
    steps = [step.get_schema(), step.get_schema(), step.get_next(4), step.release()]
    reader = ScriptedReader(steps).read(source)
    found = broken_by(reader)
    assert found[0] == expected and len(set(found)) == 1
    del reader


# --- careless consumers and producers of async streams -------------------------------------------


class Handler:
    """A handler in C's manner, whose callbacks are functions of this object's class."""

    def __init__(self, **functions):
        self.struct = _abi.ArrowAsyncDeviceStreamHandler()
        self.callbacks = {
            name: _abi.CALLBACKS[name](functions.get(name, getattr(self, name)))
            for name in ("on_schema", "on_next_task", "on_error", "release")
        }
        for name, callback in self.callbacks.items():
            setattr(self.struct, name, _abi.address_of(callback))
        self.tasks = []

    @property
    def address(self):
        return addressof(self.struct)

    def producer(self, name, *arguments):
        pointer = self.struct.producer
        _abi.call(_abi.ArrowAsyncProducer.from_address(pointer), name, *arguments)

    def on_schema(self, _, schema):
        _abi.call(_abi.ArrowSchema.from_address(schema), "release")
        self.producer("request", 3)
        return 0

    def on_next_task(self, _, task, metadata):
        if task:
            self.extract(_abi.ArrowAsyncTask.from_address(task))
        return 0

    def on_error(self, *_):
        pass

    def release(self, address):
        pass

    def extract(self, task):
        return _abi.call(task, "extract_data", None)


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
    "never extracted": (Forgetful, ["extract-once", "extract-once"]),
    "extracted twice": (Twice, ["extract-once", "extract-once"]),
    "extracted by the pointer": (ByPointer, ["task-copied", "task-copied"]),
    "schema left": (LeavesSchema, ["schema-moved"]),
    "request in release": (AsksTooLate, ["producer-untouched"]),
    "request(0)": (lambda: AsksNothing(0), ["request-positive"]),
    "request(-1)": (lambda: AsksNothing(-1), ["request-positive"]),
    "handler without release": (NoRelease, ["mandatory"]),
}


@pytest.mark.parametrize("name", ASYNC_CONSUMERS)
def test_careless_async_consumer(name):
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


def test_no_handler():
    with pytest.raises(ValueError, match="NULL"):
        ScriptedAsyncProducer.of([[1]]).connect_address(0)


def test_call_of_the_producer_before_the_schema():
    handler = Handler()
    steps = [lambda _: handler.producer("cancel"), step.schema(), step.end(), step.release()]
    producer = ScriptedAsyncProducer(steps, type="int64", on_thread=False, timeout=LIMIT)
    producer.connect_address(handler.address)
    assert broken_by(producer) == ["producer-alive"]


def test_call_of_the_producer_after_release():
    producer = ScriptedAsyncProducer.of([[1]], on_thread=False, timeout=LIMIT)
    handler = AsksAfterwards()
    producer.connect_address(handler.address)
    handler.producer("cancel")
    assert broken_by(producer) == ["producer-alive"]


def test_producer_that_is_gone_early():
    steps = [step.schema(), step.wait_for_request(), [1], step.free_producer(), step.release()]
    producer = ScriptedAsyncProducer(steps, on_thread=False, timeout=LIMIT)
    handler = Handler()

    def release(_):
        handler.producer("cancel")

    handler.callbacks["release"] = _abi.CALLBACKS["release"](release)
    handler.struct.release = _abi.address_of(handler.callbacks["release"])
    producer.connect_address(handler.address)
    assert broken_by(producer) == ["producer-alive", "producer-untouched"]


class Reentrant:
    """A producer in C's manner whose request and cancel call the handler before they return."""

    def __init__(self, request=None, cancel=None):
        self.calls = {"request": request, "cancel": cancel}

    def __arrowdev_async_device_stream__(self, capsule):
        pointer = _abi.get_pointer(capsule, b"arrowdev_async_device_stream_handler")
        self.handler = _abi.ArrowAsyncDeviceStreamHandler.from_address(pointer)
        self.struct = _abi.ArrowAsyncProducer(device_type=1)
        self.kept = [
            _abi.CALLBACKS["request"](lambda *_: self.call("request")),
            _abi.CALLBACKS["cancel"](lambda *_: self.call("cancel")),
        ]
        self.struct.request, self.struct.cancel = map(_abi.address_of, self.kept)
        self.handler.producer = addressof(self.struct)
        schema = _abi.take(ad.schema("int64").__arrow_c_schema__(), "arrow_schema")
        _abi.call(self.handler, "on_schema", addressof(schema))
        _abi.call(self.handler, "release")

    def call(self, name):
        if self.calls[name] is not None:
            self.calls[name](self.handler)


def end_now(handler):
    _abi.call(handler, "on_next_task", None, None)


def no_callbacks():
    producer = ScriptedAsyncProducer.of([[1]])
    producer.steps.insert(0, lambda it: setattr(it._producer.struct, "request", None))
    return producer


def at_once(producer):
    """on_next_task on two threads: the consumer holds the first one up."""
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


SCHEMA, REQUESTED = step.schema(), step.wait_for_request()
END, RELEASE = step.end(), step.release()

# steps, what the consumer's callbacks do, the rules that are found broken
ASYNC_PRODUCERS = {
    "correct": ([SCHEMA, REQUESTED, [1], END, RELEASE], {}, []),
    "without an end": ([SCHEMA, REQUESTED, [1], RELEASE], {}, []),
    "error at once": ([step.error(errno.EIO, "no"), RELEASE], {}, []),
    "no schema": ([[1], RELEASE], {}, ["schema-first"]),
    "two schemas": ([SCHEMA, SCHEMA, END, RELEASE], {}, ["schema-first"]),
    "too many": ([SCHEMA, [1], [2], END, RELEASE], {"on_schema": [], "on_task": [step.discard()]},
                 ["requested", "requested"]),
    "error after the end": ([SCHEMA, END, step.error(5), RELEASE], {}, ["only-release-follows"]),
    "task after the end": ([SCHEMA, REQUESTED, END, [1], RELEASE], {}, ["only-release-follows"]),
    "task after an error": (
        [SCHEMA, REQUESTED, step.error(5), [1], RELEASE], {}, ["only-release-follows"]
    ),
    "end after a refusal": (
        [SCHEMA, END, RELEASE], {"on_schema": [step.refuse(7)]}, ["only-release-follows"]
    ),
    "never released": ([SCHEMA, END], {}, ["release-last"]),
    "released twice": ([SCHEMA, END, RELEASE, step.release(anyway=True)], {}, ["release-last"]),
    "end after release": ([SCHEMA, RELEASE, END], {}, ["release-last"]),
    "no producer": ([step.schema(populate=False), RELEASE], {}, ["producer-populated"]),
    "released array": (
        [SCHEMA, REQUESTED, step.batch([1], empty=True), END, RELEASE], {}, ["valid-array"]
    ),
    "other schema": ([SCHEMA, REQUESTED, [1], {"a": [1]}, END, RELEASE], {}, ["valid-array"]),
    "other device": (
        [SCHEMA, REQUESTED, step.batch([1], device_type=13), END, RELEASE], {}, ["device-type"]
    ),
    "failed task without an error": (
        [SCHEMA, REQUESTED, step.batch([1], code=5), END, RELEASE], {}, ["extract-error"]
    ),
    "failed task": ([SCHEMA, REQUESTED, step.batch([1], code=5), step.error(5), RELEASE], {}, []),
    "bad request": (
        [SCHEMA, END, RELEASE], {"on_schema": [step.request(-1)]}, ["request-refused"]
    ),
    "cancel with an error": (
        [SCHEMA, step.error(errno.EINVAL, "cancelled"), RELEASE],
        {"on_schema": [step.cancel()]},
        ["cancel-no-error"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("on_thread", [False, True], ids=["caller", "thread"])
@pytest.mark.parametrize("name", ASYNC_PRODUCERS)
def test_careless_async_producer(name, on_thread):
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
    producer.check(ignore=["request-positive"])


@pytest.mark.parametrize(
    ("producer", "script", "expected"),
    [
        (Reentrant(request=end_now), {}, "not-reentrant"),
        (Reentrant(cancel=end_now), {"on_schema": [step.cancel()]}, "cancel-quiet"),
        (no_callbacks(), {}, "mandatory"),
    ],
)
def test_producer_whose_calls_are_wrong(producer, script, expected):
    handler = ScriptedAsyncHandler(**script, timeout=LIMIT).connect(producer)
    handler.wait_for_release()
    assert broken_by(handler)[0] == expected


def test_handler_that_is_called_twice_at_once():
    producer = ScriptedAsyncProducer.of([np.arange(1)], timeout=LIMIT)
    handler = at_once(producer)
    assert "serialized" in broken_by(handler)


def test_every_rule_can_be_broken():
    found = {rule for _, rules in PULL_CONSUMERS.values() for rule in rules}
    found |= {rule for _, rule in PULL_PRODUCERS.values()}
    found |= {rule for _, rules in ASYNC_CONSUMERS.values() for rule in rules}
    found |= {rule for _, _, rules in ASYNC_PRODUCERS.values() for rule in rules}
    found |= {"not-reentrant", "cancel-quiet", "serialized", "producer-alive"}  # by tests above
    assert found == set(RULES)


# --- the ends say what is wrong with a script ----------------------------------------------------


def test_steps_that_an_end_has_not():
    with pytest.raises(ValueError, match=r"cannot request\(n=1\)"):
        ScriptedStream([[1], step.request(1)])
    with pytest.raises(ValueError, match="get_next, get_schema, on_thread, read_to_end, release"):
        ScriptedReader([step.cancel()]).read(ScriptedStream([[1]]))
    producer = ScriptedAsyncProducer([step.schema(), step.extract()], type="int64")
    handler = ScriptedAsyncHandler(timeout=LIMIT).connect(producer)
    with pytest.raises(ValueError, match="has no step extract"):
        producer.wait()
    handler.wait_for_release()  # the consumer does not wait for a script that is broken
    assert handler.error[:2] == (errno.EIO, str(handler.error[1])) and "script" in handler.error[1]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ScriptedStream([]), "pass type="),
        (lambda: ScriptedStream([[1]]).check(ignore=["no-rule"]), "no-rule"),
        (lambda: ScriptedReader([step.release()] * 2).read(ScriptedStream([[1]])), "anyway=True"),
        (
            lambda: ScriptedReader([step.release(), step.get_next()]).read(ScriptedStream([[1]])),
            "after release",
        ),
        (lambda: ScriptedAsyncHandler().request(1), "before on_schema"),
        (lambda: ScriptedAsyncHandler().extract(), "no task"),
    ],
)
def test_scripts_that_cannot_be(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_reader_of_nothing():
    with pytest.raises(TypeError, match="is no stream"):
        ScriptedReader().read(5)
    with pytest.raises(RuntimeError, match="read"):
        ScriptedReader().run(step.get_next())
    stream = ScriptedStream([[1]])
    reader = ScriptedReader().read(stream)
    with pytest.raises(RuntimeError, match="another one"):
        reader.read(stream)


def test_one_consumer_at_a_producer():
    producer = ScriptedAsyncProducer.of([[1]], timeout=LIMIT)
    ScriptedAsyncHandler(timeout=LIMIT).connect(producer).wait_for_release()
    with pytest.raises(RuntimeError, match="another one"):
        ScriptedAsyncHandler().connect(producer)


def test_waits_have_a_limit():
    handler = ScriptedAsyncHandler(on_schema=[], timeout=0.05)
    producer = ScriptedAsyncProducer.of([[1]], timeout=0.05)
    handler.connect(producer)
    handler.timeout = LIMIT
    handler.wait_for_release()  # by a script that gave up
    handler.timeout = 0.05
    with pytest.raises(TimeoutError, match="task 0"):
        handler.wait_for_tasks(1)
    producer.timeout = LIMIT
    for call in (producer.wait, producer.check):
        with pytest.raises(TimeoutError, match="request for batch 0"):
            call()


def test_which_methods_are_shown():
    both, device, host = (
        ScriptedStream([[1]], device=d, host=h)
        for d, h in ((True, True), (True, False), (False, True))
    )
    shown = [
        [hasattr(s, "__arrow_c_device_stream__"), hasattr(s, "__arrow_c_stream__")]
        for s in (both, device, host)
    ]
    assert shown == [[True, True], [True, False], [False, True]]
    with pytest.raises(NotImplementedError, match="later"):
        both.__arrow_c_device_stream__(later=1)


# --- scripted ends with each other ---------------------------------------------------------------


def test_record_of_a_stream():
    stream = ScriptedStream([[1, 2], step.error(errno.EIO, "the disk is gone"), [3]])
    reader = ScriptedReader([step.get_schema(), step.get_next(4), step.release()]).read(stream)
    assert reader.errors == [(errno.EIO, "the disk is gone")]
    assert rows(reader.batches) == [1, 2, 3]
    assert [str(one) for one in stream.calls] == [
        "get_schema() -> 0",
        "get_next(batch 0) -> 0",
        f"get_next(error) -> {errno.EIO}",
        "get_last_error()",
        "get_next(batch 1) -> 0",
        "get_next(end) -> 0",
        "release(stream 0)",
    ]
    assert {one.thread for one in stream.calls} == {threading.get_ident()}
    assert not stream.is_all_released
    reader.check()
    del reader
    stream.check()
    assert stream.is_all_released


def test_calls_from_another_thread():
    stream = ScriptedStream([[1], [2]])
    steps = [step.get_next(), step.on_thread(step.get_next(2), step.release())]
    reader = ScriptedReader(steps, timeout=LIMIT).read(stream)
    threads = [one.thread for one in stream.calls if one.name == "get_next"]
    assert threads[0] == threading.get_ident() != threads[1] == threads[2]
    assert rows(reader.batches) == [1, 2] and reader.is_at_end
    reader.check()


def test_text_of_an_error_is_valid_until_the_next_call():
    struct = Struct(ScriptedStream([step.error(5, "gone")], type="int64"))
    assert struct("get_next", addressof(_abi.ArrowDeviceArray())) == 5
    text = struct("get_last_error")
    assert ctypes.string_at(text) == b"gone"
    _abi.call(struct.schema(), "release")
    assert ctypes.string_at(text) == b"????"
    struct("release")


def test_exported_twice_it_starts_anew():
    stream = ScriptedStream([[1], [2]])
    for _ in range(2):
        assert rows(ScriptedReader().read(stream).batches) == [1, 2]
    assert stream.n_exports == 2
    stream.check()


def test_capsule_that_nobody_takes():
    stream = ScriptedStream([[1]])
    stream.__arrow_c_stream__()
    stream.__arrow_c_device_stream__()
    assert stream.names == ["release", "release"]
    stream.check()


def test_columns_and_nulls():
    stream = ScriptedStream([TABLE, TABLE])
    batches = ScriptedReader(host=True).read(stream).batches
    assert rows(batches) == [{"a": 1, "s": "x"}, {"a": 2, "s": None}] * 2


def pair(steps, *, on_schema=None, on_task=None, **options):
    producer = ScriptedAsyncProducer(steps, timeout=LIMIT, **options)
    handler = ScriptedAsyncHandler(on_schema, on_task, timeout=LIMIT)
    handler.connect(producer)
    return producer, handler


def test_record_of_an_async_stream():
    steps = [step.schema(), step.wait_for_request(), step.batch([1], metadata={"k": "v"})]
    steps += [step.error(errno.EIO, "broken", {"at": "1"}), step.release()]
    producer, handler = pair(steps, on_schema=[step.request(2)], metadata={"rows": "1"})
    handler.wait_for_release()
    producer.wait()
    assert handler.metadata == {b"rows": b"1"} and handler.batch_metadata == [{b"k": b"v"}]
    assert handler.error == (errno.EIO, "broken", {b"at": b"1"})
    assert rows(handler.batches) == [1] and not handler.is_ended
    assert [str(one) for one in handler.calls] == [
        "on_schema() -> 0",
        "request(n=2)",
        "on_next_task(task 0) -> 0",
        "request(n=1)",
        "extract_data(task 0) -> 0",
        f"on_error(code={errno.EIO})",
        "release()",
    ]
    assert producer.n_requested == 3 and producer.n_sent == 1
    handler.check()


def test_cancel_ends_a_script():
    producer = ScriptedAsyncProducer.of([[i] for i in range(100)], timeout=LIMIT)
    script = [step.request(1), step.extract(), step.at(3, step.cancel())]
    handler = ScriptedAsyncHandler([step.request(1)], script, timeout=LIMIT).connect(producer)
    handler.wait_for_release()
    producer.wait()
    assert 4 <= handler.n_tasks < 100 and producer.is_cancelled
    assert producer.names[-1] == "release" and handler.error is None and not handler.is_ended
    handler.check()


@pytest.mark.parametrize("where", ["on_schema", "on_task"])
def test_refusal_ends_a_script(where):
    producer = ScriptedAsyncProducer.of([[1], [2]], timeout=LIMIT)
    handler = ScriptedAsyncHandler(**{where: [step.refuse(7)]}, timeout=LIMIT).connect(producer)
    handler.wait_for_release()
    producer.wait()
    assert producer.refusal == 7 and producer.names[-1] == "release"
    assert handler.batches == [] and handler.error is None
    handler.check()
    handler.schema = None
    producer.check()


def test_script_that_does_not_obey():
    steps = [step.schema(), [1], step.error(errno.EINVAL, "refused"), step.release()]
    producer, handler = pair(steps, on_schema=[step.refuse(7)], on_task=[], obey=False)
    producer.wait()
    assert handler.names == ["on_schema", "on_next_task", "on_error", "release"]
    assert broken_by(handler)[0] == "only-release-follows"


def test_tasks_are_kept_until_the_test_takes_them():
    producer = ScriptedAsyncProducer.of([[1], [2], [3]], timeout=LIMIT)
    handler = ScriptedAsyncHandler([step.request(3)], on_task=[], timeout=LIMIT).connect(producer)
    handler.wait_for_tasks(3)
    assert handler.extract().to_pylist() == [1]
    handler.discard()
    handler.wait_for_release()
    assert broken_by(producer, ignore=["released-once"]) == ["extract-once"]
    assert handler.extract().to_pylist() == [3]  # a task outlives the handler
    handler.check()
    handler.batches.clear()
    handler.schema = None
    producer.check()


def test_metadata_is_valid_during_the_call():
    kept = []

    class Keeps(Handler):
        def on_error(self, _, code, message, metadata):
            kept.append((message, ctypes.string_at(message)))

    steps = [step.schema(), step.error(5, "gone"), step.release()]
    producer = ScriptedAsyncProducer(steps, type="int64", on_thread=False)
    handler = Keeps()
    producer.connect_address(handler.address)
    address, text = kept[0]
    assert text == b"gone" and ctypes.string_at(address) == b""


# --- processes that end --------------------------------------------------------------------------


def test_exit_with_everything_alive():
    """Foreign libraries release what they hold when Python is gone, or half so."""
    script = """
    import builtins, sys, threading
    import pyarrow as pa
    from arrowdev.testing import *

    stream = ScriptedStream([{"a": [1]}, {"a": [2]}])
    builtins.reader = pa.RecordBatchReader.from_stream(stream)
    builtins.batch = builtins.reader.read_next_batch()
    pa.kept = pa.table(ScriptedStream([{"a": [1]}]))
    builtins.handler = ScriptedAsyncHandler([step.request(1)], [])
    producer = ScriptedAsyncProducer.of([[1], [2]], timeout=600)
    builtins.handler.connect(producer)
    builtins.handler.wait_for_tasks(1)
    print("end of the script", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(ad.__file__).parent.parent,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end of the script\n", "")


def test_call_when_the_end_is_gone():
    """A stale struct is found out, although nobody is left to be told."""
    stream = ScriptedStream([[1]])
    struct = Struct(stream)
    struct("release")
    del stream
    gc.collect()
    told = []
    hook, sys.unraisablehook = sys.unraisablehook, told.append
    try:
        assert struct("get_next", addressof(_abi.ArrowDeviceArray())) == errno.EIO
    finally:
        sys.unraisablehook = hook
    assert "get_next" in str(told[0].exc_value)


def test_ends_are_garbage_when_they_are_over():
    """Nothing keeps a script alive whose structs are gone, or were never given away."""
    producer = ScriptedAsyncProducer.of([[1]], timeout=LIMIT)
    handler = ScriptedAsyncHandler(timeout=LIMIT).connect(producer)
    handler.wait_for_release()
    producer.wait()
    stream = ScriptedStream([[1]])
    reader = ScriptedReader().read(stream)
    unused = [ScriptedAsyncHandler(), ScriptedAsyncProducer.of([[1]]), ScriptedStream([[1]])]
    references = [weakref.ref(end) for end in (producer, handler, stream, reader, *unused)]
    del producer, handler, stream, reader, unused
    for _ in range(2):  # what a consumer keeps is a producer's
        gc.collect()
    assert [reference() for reference in references] == [None] * 7
