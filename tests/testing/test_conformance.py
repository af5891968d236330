"""check_producer and check_consumer: every rule has a fault that they detect, and correct ends
pass."""

import asyncio
import errno
import gc
import re
from contextlib import nullcontext

import broken_devices as devices
import broken_ends as broken
import broken_exports as exports
import numpy as np
import pytest
from arrow_samples import SAMPLES
from broken_consumers import Consumer
from broken_ends import (
    END,
    RELEASE,
    SCHEMA,
    CudaDict,
    Dict,
    Host,
    HostBatch,
    OnDevice,
    ReadOnly,
    Reentrant,
    Stream,
    SyclDict,
    Tensor,
    of,
    pushed,
    set_array,
    set_buffers,
    set_device,
    set_schema,
    set_tensor,
)

import arrowdev as ad
import compiler
from arrowdev import aio
from arrowdev.testing import (
    ConformanceError,
    _check_async,
    _conformance,
    _leaks,
    check_consumer,
    check_producer,
    software_device,
    step,
)
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES, RULES

pa = pytest.importorskip("pyarrow")

NESTED = pa.array([[[1], []], None, [[2, 3]]])
DICTIONARY = pa.array(["a", "b", None, "a"]).dictionary_encode()

# Arrow arrays are immutable, and NumPy's interface marks them read-only. DLPack's legacy
# consumers get them anyway.
ARRAYS = {"recommended": True, "ignore": ["dlpack.read_only_legacy"]}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Short waits, and no garbage collection of objects that the checks keep permanently."""
    gc.freeze()
    monkeypatch.setattr(_check_async, "PATIENCE", 0.001)
    monkeypatch.setattr(_leaks, "LINGER", 0.01)


# --- correct ends ---------------------------------------------------------------------

STANDING = {
    "an array": Host,
    "a batch": HostBatch,
    "a device array": OnDevice,
    "a stream": Stream,
    "an async stream": broken.sound_async,
    "a tensor": Tensor,
    "a tensor with an exchange API": exports.exchange,
    "an array in a requested type": broken.Casts,
    "one array by two protocols": lambda: exports.Both(Host(), OnDevice()),
    "a dict of NumPy's": lambda: Dict(descr=[("", "<i8")], strides=(24, 8)),
    "a dict of CUDA's": lambda: CudaDict(stream=1, mask=CudaDict(typestr="|b1", shape=(3,))),
    "a dict of SYCL's": SyclDict,
    "a read-only tensor": lambda: ReadOnly(broken.set_flags(1)),
}


@pytest.mark.parametrize("name", STANDING)
def test_sound_producers(name):
    report = check_producer(STANDING[name], recommended=True)
    assert len(report.held) > 7 and not report.findings


@pytest.mark.parametrize("name", SAMPLES)
def test_own_arrays(name):
    """A copy, so that fields that pyarrow leaves unset do not count against arrowdev."""
    if name == "dense_union":
        pytest.xfail("its offsets run backwards on purpose")
    check_producer(lambda: ad.array(SAMPLES[name], copy=True), **ARRAYS)


OURS = {
    "slice": lambda: ad.array(np.arange(9))[3:7],
    "batch": lambda: ad.record_batch({"a": np.arange(3), "b": np.arange(3.0)}),
    "batch of a matrix": lambda: ad.record_batch(
        np.arange(6).reshape(3, 2, order="F"), names=["a", "b"]
    ),
    "schema metadata": lambda: ad.array(
        pa.record_batch({"a": [1, None]}).replace_schema_metadata({"k": "v"}), copy=True
    ),
    "tensor": lambda: ad.tensor(np.arange(6).reshape(2, 3)),
    "strided tensor": lambda: ad.tensor(np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1]),
    "0-d tensor": lambda: ad.tensor(np.array(1.5)),
    "empty tensor": lambda: ad.tensor(np.empty((3, 0))),
    "read-only tensor": lambda: ad.tensor(np.frombuffer(b"12345678", "i4")),
    "buffer": lambda: ad.array(np.arange(3)).buffers[1],
    "stream": lambda: ad.array_stream([np.arange(2), np.arange(3)]),
    "stream of batches": lambda: ad.array_stream(pa.table({"a": [1, 2], "b": ["x", None]})),
    "pushed by a coroutine": lambda: (
        lambda handler: aio.produce(handler, [np.arange(2), np.arange(3)])
    ),
    "as_host": lambda: ad.as_host(np.arange(3)),
    "as_device": lambda: ad.as_device(np.arange(3)),
}


@pytest.mark.parametrize("name", OURS)
def test_other_own_objects(name):
    check_producer(OURS[name], **ARRAYS)


def test_own_arrays_on_a_device():
    with software_device():
        check_producer(lambda: ad.array(np.arange(5)).to("ext_dev:0"), recommended=True)
        check_producer(lambda: ad.tensor(np.arange(5)).to("ext_dev:0"), recommended=True)


async def read_pushed(producer):
    async with aio.connect(producer) as stream:
        return [value async for array in stream for value in array.to_pylist()]


@pytest.mark.parametrize(
    ("consume", "read"),
    [
        (Consumer(), Consumer.read),
        (ad.array, lambda array: array.to_pylist()),
        (ad.array_stream, lambda stream: [v for array in stream for v in array.to_pylist()]),
        (ad.tensor, lambda tensor: np.from_dlpack(tensor).tolist()),
        (aio.connect, lambda stream: [v for a in stream.to_stream() for v in a.to_pylist()]),
        (read_pushed, lambda values: values),
    ],
)
def test_sound_consumers(consume, read):
    assert not check_consumer(consume, read=read, recommended=True).findings
    assert not check_consumer(consume, recommended=True).findings


# --- ends with a fault ----------------------------------------------------------------


def forgets(struct):
    struct.deleter = None


def other_memory(copy):
    return copy is False or bool(copy)


PRODUCERS = {
    "capsule.result": broken.Returns,
    "capsule.name": lambda: Host(name="arrow_arr"),
    "capsule.live": lambda: Host(broken.released),
    "capsule.unconsumed": broken.NoDestructor,
    "capsule.consumed": broken.Careless,
    "capsule.again": broken.Once,
    "capsule.schema": broken.OtherSchema,
    "capsule.requested": broken.NoRequests,
    "capsule.incompatible": broken.AnyRequest,
    "capsule.cast": broken.Relabels,
    "capsule.keyword_none": broken.NoKeywords,
    "capsule.keyword": broken.AnyKeywords,
    "schema.format": lambda: Host(set_schema(format=broken.text(b"no format"))),
    "schema.name": lambda: Host(set_schema(name=broken.text(b"\xff"))),
    "schema.metadata": lambda: Host(set_schema(metadata=broken.text(b"\xff" * 8))),
    "schema.flags": lambda: Host(set_schema(flags=64)),
    "schema.children": lambda: Host(set_schema(format=broken.text(b"+l"))),
    "schema.dictionary": lambda: Host(broken.dictionary_of_floats),
    "array.length": lambda: Host(set_array(length=-1)),
    "array.null_count": lambda: Host(set_array(null_count=99)),
    "array.nullable": lambda: Host(broken.nulls_against_the_schema),
    "array.offset": lambda: Host(set_array(offset=-1)),
    "array.n_buffers": lambda: Host(set_array(n_buffers=3)),
    "array.buffers": lambda: Host(set_buffers(lambda found: [None, found[1]])),
    "array.alignment": lambda: Host(set_buffers(broken.misaligned)),
    "array.children": lambda: HostBatch(broken.lost_child),
    "array.child_length": lambda: HostBatch(broken.short_child),
    "array.dictionary": lambda: Host(broken.extra_dictionary),
    "array.contents": lambda: Host(set_array(null_count=2)),
    "exports.usable": lambda: Tensor(set_tensor(data=1 << 63, byte_offset=1 << 63)),
    "exports.same": lambda: exports.Both(Host(), exports.OtherOnDevice()),
    "release.marked": lambda: Host(broken.unmarked),
    "release.below": lambda: broken.Forgets(DICTIONARY, "array"),
    "release.schema": lambda: Host(broken.spoilt_by_the_schema),
    "release.children": lambda: HostBatch(broken.spoils_its_child),
    "release.independent": broken.Shared,
    "release.lifetime": broken.Short,
    "device.type": lambda: OnDevice(spoil_device=set_device(device_type=99)),
    "device.id": lambda: OnDevice(spoil_device=set_device(device_id=5)),
    "device.memory": lambda: Host(set_buffers(broken.unmapped)),
    "device.order": lambda: devices.Numbers(event=False),
    "device.event": lambda: OnDevice(spoil_device=set_device(sync_event=64)),
    "device.reserved": lambda: OnDevice(spoil_device=lambda s: s.reserved.__setitem__(2, 1)),
    "stream.callbacks": lambda: Stream(broken.null_callback),
    "stream.schema": lambda: Stream(broken.other_schemas()),
    "stream.next": broken.failing,
    "stream.same_schema": lambda: Stream(steps=[[1], {"a": [1]}]),
    "stream.device_type": lambda: broken.DeviceStream(
        steps=[step.batch([1], device_type=3)], device_type=1
    ),
    "stream.end": lambda: Stream(steps=[[1], step.end(), [2]]),
    "stream.lifetime": lambda: Stream(broken.spoilt_by_release()),
    "async.producer": lambda: pushed(step.schema(populate=False), RELEASE),
    "async.producer_alive": lambda: of([1], broken.no_producer),
    "async.schema_first": lambda: pushed(SCHEMA, SCHEMA, END, RELEASE),
    "async.schema": lambda: pushed(broken.released_schema, RELEASE),
    "async.metadata": lambda: pushed(broken.bad_metadata, SCHEMA, END, RELEASE),
    "async.task": lambda: of(broken.empty_task),
    "async.array": lambda: of(step.batch([1], empty=True)),
    "async.device_type": lambda: of(step.batch([1], device_type=3)),
    "async.task_copied": lambda: of([1], broken.clean_up_early),
    "async.discard": lambda: of([1], broken.fail_where_discarded),
    "async.extract_error": lambda: of(step.batch([1], code=errno.EIO)),
    "async.requested": lambda: pushed(SCHEMA, [1], [2], END, RELEASE),
    "async.request_refused": lambda: pushed(SCHEMA, END, RELEASE),
    "async.not_reentrant": lambda: Reentrant(request=Reentrant.end),
    "async.cancel_quiet": lambda: Reentrant(cancel=Reentrant.end),
    "async.cancel_no_error": lambda: pushed(SCHEMA, broken.fail_where_cancelled, END, RELEASE),
    "async.after_cancel": lambda: pushed(SCHEMA, [1], END, RELEASE),
    "async.serialized": lambda: Reentrant(request=Reentrant.end_on_thread),
    "async.end": lambda: pushed(SCHEMA, RELEASE),
    "async.over": lambda: pushed(SCHEMA, END, step.error(errno.EIO), RELEASE),
    "async.release": lambda: pushed(SCHEMA, END, RELEASE, step.release(anyway=True)),
    "async.lifetime": broken.spoilt_batch,
    "interface.dict": broken.NoDict,
    "interface.version": lambda: Dict(version=2),
    "interface.shape": lambda: Dict(shape=[2, 3]),
    "interface.typestr": lambda: Dict(typestr="int64"),
    "interface.descr": lambda: Dict(descr=[("", "<i4")]),
    "interface.data": lambda: Dict(data=(0, False)),
    "interface.strides": lambda: Dict(strides=(8,)),
    "interface.offset": lambda: Dict(offset=8),
    "interface.mask": lambda: CudaDict(mask=CudaDict(shape=(3, 2), typestr="|b1")),
    "interface.read_only": broken.Unflagged,
    "interface.again": broken.Fickle,
    "interface.lifetime": broken.Fleeting,
    "cuda.stream": lambda: CudaDict(stream=0),
    "cuda.zero_size": lambda: CudaDict(shape=(0, 3)),
    "sycl.syclobj": lambda: SyclDict(syclobj=None),
    "dlpack.name": broken.BadName,
    "dlpack.refusal": broken.Refuses,
    "dlpack.max_version": lambda: broken.Only(knows=("stream", "copy", "dl_device")),
    "dlpack.versioned": lambda: Tensor(is_legacy=lambda max_version: True),
    "dlpack.version": lambda: Tensor(major=2),
    "dlpack.legacy": lambda: Tensor(is_legacy=lambda max_version: False),
    "dlpack.unconsumed": lambda: broken.WithDestructor(destroy=lambda struct: None),
    "dlpack.consumed": lambda: broken.WithDestructor(destroy=broken._dlpack.delete),
    "dlpack.device": lambda: Tensor(device=(1, 7)),
    "dlpack.dl_device": lambda: broken.Only(knows=("stream", "copy", "max_version")),
    "dlpack.stream": lambda: broken.Only(knows=("dl_device", "copy", "max_version")),
    "dlpack.copy_true": lambda: Tensor(is_flagged=False),
    "dlpack.copy_false": lambda: Tensor(copies=other_memory),
    "dlpack.read_only": ReadOnly,
    "dlpack.read_only_legacy": lambda: ReadOnly(broken.set_flags(1), refuses=False),
    "dlpack.flags": lambda: Tensor(broken.set_flags(64)),
    "dlpack.shape": lambda: Tensor(set_tensor(shape=None)),
    "dlpack.strides": lambda: Tensor(set_tensor(strides=None)),
    "dlpack.data": lambda: Tensor(set_tensor(data=None)),
    "dlpack.dtype": lambda: Tensor(set_tensor(dtype=broken._dlpack.DLDataType(0, 0, 1))),
    "dlpack.lifetime": broken.ShortTensor,
    "dlpack.exchange": lambda: exports.exchange(major=2),
    "dlpack.exchange_error": lambda: exports.exchange(
        managed_tensor_from_py_object_no_sync=exports.fail
    ),
}

FAILING = {
    "stream.error": Stream,  # this end never fails
    "stream.after_error": lambda: broken.failing(broken.unmarked_stream),
    "async.error": lambda: pushed(SCHEMA, step.error(0, "no"), RELEASE),
}

CONSUMERS = {
    "consumer.release": "release",
    "consumer.release_schema": "schema",
    "consumer.values": "offset",
    "consumer.lifetime": "early",
    "consumer.released": "released",
    "consumer.name": "name",
    "consumer.malformed": "malformed",
    "consumer.wait": devices.Forgetful(waits=False),
    "consumer.device": "device",
    "consumer.reserved": "reserved",
    "consumer.stream": "stream",
    "consumer.stream_released": "late",
    "consumer.stream_out": "out",
    "consumer.stream_threads": "threads",
    "consumer.stream_last_error": "no error",
    "consumer.async_handler": "handler",
    "consumer.async_ready": "ready",
    "consumer.async_schema": "leaves schema",
    "consumer.async_request": "request",
    "consumer.async_alive": "alive",
    "consumer.async_quiet": "quiet",
    "consumer.async_task": "task",
    "consumer.async_extract": "extract",
    "consumer.async_error": "swallows",
    "consumer.stream_end": "after",
    "consumer.stream_error": "swallows",
    "consumer.exception": "exits",
    "consumer.deleter": "deleter",
    "consumer.renamed": "renamed",
    "consumer.max_version": "max_version",
    "consumer.major": "major",
}


def test_every_rule_has_a_fault():
    by_the_command = {"process.alive"}  # test_planted_faults.py
    assert set(PRODUCERS) | set(FAILING) == set(PRODUCER_RULES) - by_the_command
    assert set(CONSUMERS) == set(CONSUMER_RULES) - by_the_command


@pytest.mark.parametrize("rule", PRODUCERS)
def test_producer_fault(rule):
    with software_device() if rule == "device.order" else nullcontext():
        report = _conformance.producer_report(PRODUCERS[rule])
    assert rule in report.findings, report
    with pytest.raises(ConformanceError, match=re.escape(RULES[rule].source)):
        report.require(recommended=True)


@pytest.mark.parametrize("method", ["__arrow_c_schema__", "__arrow_c_stream__", "__dlpack__"])
@pytest.mark.parametrize("is_property", [False, True], ids=["method", "property"])
def test_exception_that_ends_the_program(method, is_property):
    report = _conformance.producer_report(lambda: broken.Exits(method, is_property))
    assert report.findings["exports.usable"].what == f"{method}: SystemExit: 0"


def test_exceptions_of_the_user_end_a_check():
    """Those of the factory are none of the objects': pytest's skip is one of them."""
    for raised in (SystemExit(3), GeneratorExit()):

        def make(raised=raised):
            raise raised

        with pytest.raises(type(raised)) as caught:
            check_producer(make)
        assert caught.value is raised
    with pytest.raises(KeyboardInterrupt):
        check_producer(lambda: broken.Exits("__arrow_c_array__", raised=KeyboardInterrupt))


def test_leaked_schema():
    sound = _conformance.producer_report(lambda: ad.Array.from_buffers("int64", 0, [None, None]))
    assert "capsule.unconsumed" in sound.held
    report = _conformance.producer_report(broken.LeaksSchemas)
    assert set(report.findings) == {"capsule.unconsumed"}


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        ("release.below", lambda: broken.Forgets(DICTIONARY, "array")),
        ("release.below", lambda: broken.Forgets(DICTIONARY, "schema")),
        ("release.below", lambda: broken.Forgets(NESTED, "array")),
        ("release.below", lambda: broken.Forgets(NESTED, "schema")),
        ("release.below", lambda: broken.forgets_in_stream("get_schema", 0)),
        ("release.below", lambda: broken.forgets_in_stream("get_next", 1)),
        ("release.below", lambda: pushed(broken.forgetful_schema, END, RELEASE)),
        ("release.schema", lambda: Host(broken.spoilt_by_the_schema)),
        ("release.schema", lambda: Host(broken.spoilt_by_the_array)),
    ],
)
def test_further_faults_of_releases(rule, make):
    report = _conformance.producer_report(make)
    assert [finding.rule.id for finding in report.broken] == [rule]


def masked_by_itself(kind):
    found = kind(typestr="|b1")
    found.found["mask"] = found
    return found


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        ("interface.version", lambda: CudaDict(version=4)),
        ("interface.version", lambda: SyclDict(version=None)),
        ("interface.shape", lambda: Dict(shape=(-1, 3))),
        ("interface.shape", lambda: Dict(shape=(2, 3.0))),
        ("interface.shape", lambda: Dict(shape=(2**62,))),
        ("interface.typestr", lambda: Dict(typestr="<i")),
        ("interface.typestr", lambda: Dict(typestr="<i8[us]")),
        ("interface.descr", lambda: Dict(descr=[("a", "<i4"), ("b", "<i2", (3,))])),
        ("interface.descr", lambda: Dict(descr=[("", ">i8")])),
        ("interface.descr", lambda: Dict(descr=[("", "<f8")])),
        ("interface.data", lambda: Dict(data=(-8, False))),
        ("interface.data", lambda: Dict(data=7)),
        ("interface.data", lambda: SyclDict(data=None)),
        ("interface.data", lambda: CudaDict(data=(8, "no"))),
        ("interface.data", lambda: CudaDict(data=(8, np.zeros(2, bool)))),
        ("interface.version", lambda: Dict(version=np.arange(3))),
        ("interface.mask", lambda: masked_by_itself(Dict)),
        ("interface.mask", lambda: masked_by_itself(CudaDict)),
        ("interface.strides", lambda: Dict(strides=(24, "8"))),
        ("interface.offset", lambda: SyclDict(offset=1.5)),
        ("interface.mask", lambda: Dict(mask=[True] * 3)),
        ("interface.mask", lambda: CudaDict(mask=CudaDict())),
        ("interface.mask", lambda: CudaDict(mask=CudaDict(typestr="|b1", shape=(2,)))),
        ("cuda.stream", lambda: CudaDict(stream=-1)),
        ("cuda.stream", lambda: CudaDict(stream="legacy")),
    ],
)
def test_further_faults_of_dicts(rule, make):
    assert set(_conformance.producer_report(make).findings) == {rule}


def test_dict_of_a_buffer():
    check_producer(lambda: Dict(data=np.arange(6)), recommended=True)


class BothDicts(Dict):
    """Each dict is its own mask."""

    __cuda_array_interface__ = property(lambda self: self.show())


def test_valid_dict_not_read_if_another_is_malformed():
    report = _conformance.producer_report(lambda: masked_by_itself(BothDicts))
    assert set(report.findings) == {"interface.mask"}


class AsyncToo(Host):
    """Also offers a correct async stream."""

    __arrowdev_async_device_stream__ = property(lambda self: broken.sound_async().connect)


def test_fault_of_another_method_keeps_async_rules():
    alone = _conformance.producer_report(broken.sound_async).held
    report = _conformance.producer_report(lambda: AsyncToo(broken.nulls_against_the_schema))
    assert set(report.findings) == {"array.nullable"}
    assert {rule for rule in alone if rule.startswith("async.")} <= report.held


@pytest.mark.parametrize("rule", FAILING)
def test_failing_producer_fault(rule):
    is_async = rule.startswith("async.")
    make = broken.sound_async if is_async else Stream
    fail = broken.failing_async if is_async else broken.failing
    sound = _conformance.producer_report(make, failing=fail)
    assert not sound.findings and rule in sound.held
    report = _conformance.producer_report(make, failing=FAILING[rule])
    assert set(report.findings) == {rule}


def wait_for_no_release(monkeypatch):
    """What a broken consumer keeps would be waited for in vain."""
    monkeypatch.setattr(_check_async, "LINGER", 0.001)


@pytest.mark.parametrize("rule", CONSUMERS)
def test_consumer_fault(rule, monkeypatch):
    wait_for_no_release(monkeypatch)
    if rule == "consumer.stream_threads":
        monkeypatch.setattr(_check_async, "PATIENCE", 20)
    fault = CONSUMERS[rule]
    with nullcontext() if isinstance(fault, str) else software_device():
        consumer = Consumer(fault) if isinstance(fault, str) else fault
        report = _conformance.consumer_report(consumer, read=type(consumer).read)
    assert rule in report.findings, report


@pytest.mark.parametrize(
    "rule", ["consumer.stream_end", "consumer.release", "consumer.stream", "consumer.device"]
)
def test_consumer_of_device_streams_only(rule, monkeypatch):
    def consumer(*faults):
        full = Consumer(*faults)
        return lambda obj: full.stream(
            obj.__arrow_c_device_stream__(), "arrow_device_array_stream"
        )

    sound = check_consumer(consumer(), read=Consumer.read, recommended=True)
    assert {"consumer.stream_released", "consumer.device"} <= sound.held
    wait_for_no_release(monkeypatch)
    report = _conformance.consumer_report(consumer(CONSUMERS[rule]), read=Consumer.read)
    assert rule in report.findings, report


def only(method, name, *faults):
    """A consumer that takes but one kind of capsules."""
    full = Consumer(*faults)
    take = full.array if "array" in method else full.stream
    capsules = {"__arrow_c_array__", "__arrow_c_device_array__"}

    def consume(obj):
        given = getattr(obj, method)()
        return take(*given, name) if method in capsules else take(given, name)

    return consume


KINDS = {
    "__arrow_c_array__": "arrow_array",
    "__arrow_c_device_array__": "arrow_device_array",
    "__arrow_c_stream__": "arrow_array_stream",
    "__arrow_c_device_stream__": "arrow_device_array_stream",
}


@pytest.mark.parametrize("rule", ["consumer.released", "consumer.name"])
@pytest.mark.parametrize("method", KINDS)
def test_wrong_capsule_of_every_protocol(method, rule):
    sound = check_consumer(only(method, KINDS[method]), read=Consumer.read, recommended=True)
    assert rule in sound.held
    faulty = only(method, KINDS[method], CONSUMERS[rule])
    for read in (None, Consumer.read):
        assert set(_conformance.consumer_report(faulty, read=read).findings) == {rule}


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("fault", ["offset", "bitmap", "null_count"])
@pytest.mark.parametrize("when", ["copies", "reads later"])
def test_values_that_are_wrong_from_the_start(method, fault, when):
    """The rule that is broken is not about lifetime, even if the array is released at once."""
    consume = only(method, KINDS[method], fault, when)
    report = _conformance.consumer_report(consume, read=Consumer.read)
    assert set(report.findings) == {"consumer.values"}
    assert "consumer.lifetime" in report.held


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("faults", [["early"], ["early", "keeps the bitmap"]])
def test_values_that_are_read_too_late(method, faults):
    consume = only(method, KINDS[method], *faults)
    report = _conformance.consumer_report(consume, read=Consumer.read)
    assert set(report.findings) == {"consumer.lifetime"}
    assert "consumer.values" in report.held


def test_tensor_that_is_read_too_late():
    full = Consumer("early")
    report = _conformance.consumer_report(full.tensor, read=Consumer.read)
    assert "consumer.lifetime" in report.findings and "consumer.values" in report.held


def test_inside_an_event_loop():
    """The object under test gets its own event loop."""

    async def check():
        check_consumer(read_pushed, read=lambda values: values)
        check_producer(OURS["pushed by a coroutine"])

    asyncio.run(check())


def test_ignored_and_recommended():
    def make():
        return OnDevice(spoil_device=set_device(device_id=5, device_type=99))

    with pytest.raises(ConformanceError, match=r"broken: device.type: .*\n?.*device_type is 99"):
        check_producer(make)
    check_producer(make, ignore=["device.type"])

    def recommended():
        return OnDevice(spoil_device=set_device(device_id=5))

    check_producer(recommended)
    with pytest.raises(ConformanceError, match=r"not followed: device\.id"):
        check_producer(recommended, recommended=True)
    with pytest.raises(ValueError, match="no such rules: nothing"):
        check_producer(recommended, ignore=["nothing"])
    for ignore in ("device.id", [5]):
        with pytest.raises(TypeError, match="ignore must be a collection of ids"):
            check_producer(recommended, ignore=ignore)


async def refuses(handler):
    raise ValueError("not mine")


class RefusesAll:
    def __arrow_c_array__(self, requested_schema=None):
        raise ValueError("never")


class RefusesWithoutText:
    class Error(Exception):
        def __str__(self):
            raise ValueError

    def __arrow_c_array__(self, requested_schema=None):
        raise self.Error


class RefusesItsSchema(RefusesAll):
    def __arrow_c_schema__(self):
        raise ValueError("never")

    __arrow_c_device_array__ = __arrow_c_stream__ = RefusesAll.__arrow_c_array__


@pytest.mark.parametrize(
    ("obj", "how"),
    [
        (object(), r"builtins\.object offers neither"),
        (np.arange, r"numpy\.arange offers neither .* it raised TypeError"),
        (int, r"builtins\.int offers neither .* it raised TypeError"),
        (id, r"builtins\.id offers neither .* it returned, and left the capsule alone"),
        (refuses, r"it raised ValueError\('not mine'\)"),
        (RefusesAll(), r"refuses all that it offers: __arrow_c_array__ \(ValueError: never\)"),
        (RefusesWithoutText(), r"it offers: __arrow_c_array__ \(Error, which has no text\)"),
        (
            RefusesItsSchema(),
            r"offers: __arrow_c_schema__ \(ValueError: never\); __arrow_c_array__ \(ValueError: n",
        ),
        (broken.RefusesAlways(), r"refuses all that it offers: __dlpack__ \(\w+: "),
        (broken.RefusesAlways(error=BufferError), r"offers: __dlpack__ \(BufferError: "),
    ],
)
def test_object_without_protocols(obj, how):
    """Above all functions that were not called."""
    with pytest.raises(TypeError, match=how):
        check_producer(lambda: obj)


def test_schema_only():
    for make in (lambda: ad.schema("int8"), pa.int64, lambda: pa.schema({"a": pa.utf8()})):
        report = check_producer(make)
        assert {"schema.format", "capsule.consumed"} <= report.held


@pytest.mark.parametrize("consume", [len, lambda obj: None])
@pytest.mark.parametrize("read", [None, lambda taken: []])
def test_consumer_that_accepts_nothing(consume, read):
    with pytest.raises(TypeError, match=r"takes neither .* async streams"):
        check_consumer(consume, read=read)


def test_consumer_of_tensors_only():
    def consume(obj):
        return np.from_dlpack(obj) if hasattr(obj, "__dlpack__") else None

    report = check_consumer(consume, read=lambda taken: taken.tolist())
    assert "consumer.deleter" in report.held and "consumer.release" not in report.held


class NoDevice(Tensor):
    def __dlpack_device__(self):
        raise AttributeError("nobody asks")

    __dlpack_device__ = property(__dlpack_device__)


def test_tensor_without_a_device():
    report = _conformance.producer_report(NoDevice)
    assert list(report.findings) == ["dlpack.device"]
    assert "nobody asks" in report.findings["dlpack.device"].what
    assert "dlpack.stream" in report.held and "dlpack.dl_device" not in report.held


@pytest.mark.parametrize("kind", [Tensor, broken.RefusesAlways])
def test_device_is_not_a_pair(kind):
    with pytest.raises(ConformanceError, match=r"broken: dlpack\.device.* 5 is no pair of ints"):
        check_producer(lambda: kind(device=5))


class HandedOverOnce:
    """A stream that can be exported once. Its schema is unavailable afterwards."""

    def __init__(self):
        self.stream = ad.array_stream([np.arange(3)])

    def __arrow_c_schema__(self):
        if self.stream is None:
            raise OSError("Stream already closed")
        return self.stream.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema=None):
        stream, self.stream = self.stream, None
        return stream.__arrow_c_stream__(requested_schema)


def test_schema_of_single_use_stream():
    report = check_producer(HandedOverOnce)
    assert "capsule.schema" in report.held


# --- the page -------------------------------------------------------------------------

PAGE = compiler.ROOT / "docs" / "conformance.md"


def in_markdown(rule):
    """The cells of a rule; a name such as __dlpack__ would be bold type."""
    level = "" if rule.level == "must" else " (recommended)"
    return re.sub(r"__\w+__", r"`\g<0>`", f"{rule.text}{level} | {rule.source}")


def test_the_page_has_every_rule():
    listed = dict(
        re.findall(
            r"^\| `([a-z_]+\.[a-z_.]+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M
        )
    )
    assert listed == {rule.id: in_markdown(rule) for rule in RULES.values()}
