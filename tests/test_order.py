"""The tables of docs/internals/synchronization.md, a test per cell, on the software device.

Every test of a wait has a twin in which the wait is left out: there the consumer's queue does its
work at once and finds what lay in the memory before. Nothing is left to chance: the producer's
queue is held, so the data are pending until `finish()`.

Cells of CUDA and ROCm (numbers for streams, the CUDA Array Interface, pinned and managed memory in
the host protocols) are tested on the stand-in drivers and, where there is one, on a GPU:
tests/gpu_cuda and tests/gpu_hip; those of oneAPI in tests/test_oneapi.py.
"""

import contextlib
import ctypes
import sys
import threading
import time
import types
import weakref
from ctypes import POINTER

import dlpack_ctypes as dl
import pytest
from arrow_ctypes import inside
from dlpack_ctypes import Managed, Producer, Received
from test_dlpack_exchange import Foreign

import arrowdev as ad
from arrowdev import testing

EXT_DEV = testing.EXT_DEV
OLD, NEW = b"\x11" * 12, b"\x77" * 12
SHORT = 0.05


class World:
    """Memory of 3 floats with old data; new data are pending on the queue `producer`."""

    def __init__(self, device):
        self.device = device
        self.producer = device.queue()
        self.consumer = device.queue()
        self.memory = device.from_host(OLD)
        self.producer.hold()
        self.producer.write(self.memory, NEW)
        self.event = self.producer.record()
        self._held = True
        self._timer = None
        self._found = []  # work on them may be pending

    def finish(self):
        """Let the producer's work be done."""
        if self._held:
            self._held = False
            self.producer.release()

    def finish_later(self):
        """... while the host waits for it."""
        self._timer = threading.Timer(4 * SHORT, self.finish)
        self._timer.start()

    def close(self):
        if self._timer is not None:
            self._timer.join()
        self.finish()

    # What the producer's library offers.

    def tensor_arguments(self):
        return {"device": (EXT_DEV, 0), "data": self.memory.address}

    def carrying(self, cls=Producer, **kwargs):
        return cls((0.0, 0.0, 0.0), **self.tensor_arguments(), **kwargs)

    def pending(self):
        """A tensor of ours, with the event of the producer's queue."""
        return ad.Tensor.from_pointer(
            self.memory.address,
            (3,),
            "float32",
            (EXT_DEV, 0),
            owner=self.memory,
            stream=self.producer,
        )

    # What the consumer finds.

    def use(self, queue, address=None):
        """Let a queue work with the data: it copies them."""
        found = self.device.empty(len(NEW))
        self._found.append(found)
        queue.copy(found, self.memory.address if address is None else address, len(NEW))
        return found

    def waits(self, queue, address=None):
        """The queue does not begin before the producer is done, and so finds the new data."""
        found = self.use(queue, address)
        with pytest.raises(ad.DeviceError):
            queue.synchronize(timeout=SHORT)
        self.finish()
        return queue.read(found) == NEW

    def finds_old(self, queue):
        """The queue waits for nothing, and so finds the old data."""
        found = self.use(queue)
        queue.synchronize(timeout=10)
        return self.device.peek(found) == OLD


@pytest.fixture
def device():
    with testing.software_device(devices=2, timeout=20) as device:
        yield device


@pytest.fixture
def world(device):
    world = World(device)
    yield world
    world.close()


def test_the_twin_is_honest(world):
    """Without any of arrowdev's doing, the consumer's queue finds the old data."""
    assert world.finds_old(world.consumer)


# --- import: Arrow device array ---------------------------------------------------------


def arrow_array(world):
    return world.device.array([1.0, 2.0, 3.0], "float32", queue=world.producer)


def exported_event(array):
    pair = array.__arrow_c_device_array__()
    return inside(pair[1], "arrow_device_array").sync_event


VALUES = bytes(memoryview((ctypes.c_float * 3)(1, 2, 3)))


def test_arrow_keeps_the_event(world):
    array = ad.array(arrow_array(world))
    assert array.sync_event is not None and not array.is_ready()
    world.finish()
    array.synchronize()
    assert array.is_ready() and exported_event(array) is None


@pytest.mark.parametrize("waits", [True, False])
def test_arrow_with_a_stream(world, waits):
    array = ad.array(arrow_array(world), stream=world.consumer if waits else None)
    assert array.sync_event is not None
    found = world.use(world.consumer, array.buffers[1].data_ptr)
    if waits:
        with pytest.raises(ad.DeviceError):
            world.consumer.synchronize(timeout=SHORT)
        world.finish()
        assert world.consumer.read(found) == VALUES
    else:
        world.consumer.synchronize(timeout=10)
        assert world.device.peek(found) != VALUES


def test_arrow_with_use_stream(world):
    with ad.use_stream(world.consumer):
        array = ad.array(arrow_array(world))
    found = world.use(world.consumer, array.buffers[1].data_ptr)
    with pytest.raises(ad.DeviceError):
        world.consumer.synchronize(timeout=SHORT)
    world.finish()
    assert world.consumer.read(found) == VALUES


def test_our_own_objects_with_a_stream(world):
    tensor = world.pending()
    assert world.finds_old(world.consumer)
    ad.tensor(tensor, stream=world.consumer)
    assert world.waits(world.consumer)


# --- import: what is made on the way ----------------------------------------------------


def column(type_name, n_bytes, length):
    """A column of ones on the device, ready."""
    values = ad.tensor(bytearray(b"\xff" * n_bytes))
    array = ad.Array.from_buffers(type_name, length, [None, values]).to("ext_dev:0")
    array.synchronize()
    return array


def matrix(strides=(16, 1)):
    """A tensor on the device, ready."""
    rows = column("uint8", 256, 256)
    return ad.Tensor.from_pointer(
        ad.tensor(rows).data_ptr, (16, 16), "uint8", (EXT_DEV, 0), strides=strides, owner=rows
    )


# Where the copy comes from, and how it is made.
MADE = {
    "tensor of an array, copied": (
        lambda: column("uint8", 256, 256),
        lambda source, **how: ad.tensor(source, copy=True, **how),
    ),
    "tensor of bits": (lambda: column("bool", 32, 256), ad.tensor),
    "tensor in another order": (
        matrix,
        lambda source, **how: ad.tensor(source, order="F", **how),
    ),
    "tensor, copied": (matrix, lambda source, **how: ad.tensor(source, copy=True, **how)),
    "array, copied": (
        lambda: column("uint8", 256, 256),
        lambda source, **how: ad.array(source, copy=True, **how),
    ),
    "array of a tensor, copied": (
        matrix,
        lambda source, **how: ad.array(source, copy=True, **how),
    ),
    "array of strides": (lambda: matrix(strides=(1, 16)), ad.array),
}


def address_of(thing):
    return thing.data_ptr if isinstance(thing, ad.Tensor) else ad.tensor(thing).data_ptr


@pytest.mark.parametrize(("source", "make"), MADE.values(), ids=MADE)
def test_the_stream_waits_for_what_was_made_on_the_way(device, source, make):
    """The copy may be made on another queue, which is held here; and it is not given back while
    the stream that was named reads it."""
    maker, consumer, found = device.queue(), device.queue(), device.empty(128)
    source = source()
    maker.hold()
    with ad.use_stream(maker):
        made = make(source, stream=consumer)
    consumer.copy(found, address_of(made), 128)
    del made
    with contextlib.suppress(ad.DeviceError):
        consumer.synchronize(timeout=SHORT)  # all that it does before the copy is made
    maker.release()
    assert set(consumer.read(found)) <= {1, 255}
    device.synchronize()


# --- import: stream=-1 ------------------------------------------------------------------


@pytest.mark.parametrize(("source", "make"), MADE.values(), ids=MADE)
def test_off_is_not_said_of_our_own_copies(device, source, make):
    source, maker = source(), device.queue()
    with maker.held(), ad.use_stream(maker):
        made = make(source, stream=-1)
        assert made.sync_event is not None and not made.is_ready()
    made.synchronize()


def test_off_is_not_said_of_our_copy_of_what_came(world):
    with ad.use_stream(world.producer):
        made = ad.tensor(world.carrying(), stream=-1, copy=True)
    assert made.data_ptr != world.memory.address
    assert not made.is_ready()


def test_off_and_a_device(device):
    assert ad.array(column("uint8", 8, 8), stream=-1, device="cpu").to_pylist() == [255] * 8
    assert ad.array(column("uint8", 8, 8), stream=-1, device="ext_dev:1").device.id == 1


def test_off_drops_what_came(world):
    array = ad.array(arrow_array(world), stream=-1)
    assert array.sync_event is None and array.is_ready()
    for thing in (
        ad.tensor(world.carrying(Foreign, stream=world.producer.handle)(), stream=-1),
        ad.tensor(world.carrying(), stream=-1),
        ad.tensor(world.pending(), stream=-1),
    ):
        assert thing.sync_event is None
    assert world.finds_old(world.consumer)


# --- import: the DLPack exchange API ----------------------------------------------------


def test_exchange_records_on_the_current_stream(world):
    foreign = world.carrying(Foreign, stream=world.producer.handle)
    tensor = ad.tensor(foreign())
    assert foreign.asked == [(EXT_DEV, 0)]
    assert not tensor.is_ready()
    assert world.finds_old(world.consumer)
    tensor.wait(world.consumer)
    assert world.waits(world.consumer)


def test_exchange_records_eagerly(world):
    """Work that comes later is not waited for, and the stream may be gone by then."""
    tensor = ad.tensor(world.carrying(Foreign, stream=world.producer.handle)())
    later = world.device.event()
    later.arm()
    world.producer.wait(later)
    tensor.wait(world.consumer)
    assert world.waits(world.consumer)
    later.fire()


@pytest.mark.parametrize("waits", [True, False])
def test_exchange_with_a_stream(world, waits):
    foreign = world.carrying(Foreign, stream=world.producer.handle)
    ad.tensor(foreign(), stream=world.consumer if waits else None)
    assert (world.waits if waits else world.finds_old)(world.consumer)


# --- import: __dlpack__, with queues ----------------------------------------------------


class Orderly(Producer):
    """Its stream= waits for the producer, as DLPack has it."""

    world = None

    def __dlpack__(self, **kwargs):
        if kwargs.get("stream") is not None:
            kwargs["stream"].wait(self.world.producer)
        return super().__dlpack__(**kwargs)


class WithQueue(Producer):
    sycl_queue = None


def orderly(world):
    producer = world.carrying(Orderly)
    producer.world = world
    return producer


def test_dlpack_passes_the_queue(world):
    producer = orderly(world)
    tensor = ad.tensor(producer, stream=world.consumer)
    assert [call["stream"] for call in producer.calls] == [world.consumer]
    assert not tensor.is_ready()  # pending on the consumer's queue, which waits
    other = world.device.queue()
    tensor.wait(other)
    assert world.waits(other)
    assert world.consumer.read(world.use(world.consumer)) == NEW


def test_dlpack_passes_the_current_queue(world):
    producer = orderly(world)
    with ad.use_stream(world.consumer):
        ad.tensor(producer)
    assert [call["stream"] for call in producer.calls] == [world.consumer]
    assert world.waits(world.consumer)


def test_dlpack_of_a_producer_that_does_not_wait(world):
    ad.tensor(world.carrying(), stream=world.consumer)
    assert world.finds_old(world.consumer)


def test_dlpack_with_a_queue_of_its_own(world):
    producer = world.carrying(WithQueue)
    producer.sycl_queue = world.producer
    tensor = ad.tensor(producer)
    assert producer.calls == [{"max_version": (1, 3)}]
    assert not tensor.is_ready()
    assert world.finds_old(world.consumer)
    tensor.wait(world.consumer)
    assert world.waits(world.consumer)


# --- import: host protocols -------------------------------------------------------------


def test_host_protocols_have_no_order(device):
    queue = device.queue()
    for thing in (ad.tensor(b"abc"), ad.tensor(b"abc", stream=queue), ad.array(b"abc", stream=7)):
        assert thing.is_ready() and thing.sync_event is None


# --- streams that are of no use ---------------------------------------------------------


def test_streams_of_another_kind(world):
    class CudaStream:
        cuda_stream = 77

    for call in (
        lambda: ad.array(arrow_array(world), stream=CudaStream()),
        lambda: world.pending().__dlpack__(stream=CudaStream()),
        lambda: world.pending().wait(CudaStream()),
    ):
        with pytest.raises(ad.ExchangeError, match="stream of cuda") as info:
            call()
        assert info.value.reason == "stream" and info.value.hint


USES = {
    "wait": lambda tensor, queue: tensor.wait(queue),
    "wait on its number": lambda tensor, queue: tensor.wait(queue.handle),
    "tensor": lambda tensor, queue: ad.tensor(tensor, stream=queue),
    "array": lambda tensor, queue: ad.array(tensor, stream=queue),
    "tensor, copied": lambda tensor, queue: ad.tensor(tensor, stream=queue, copy=True),
    "into": lambda tensor, queue: ad.convert(tensor, ad.Tensor, stream=queue),
    "__dlpack__": lambda tensor, queue: tensor.__dlpack__(stream=queue),
}


@pytest.mark.parametrize("is_pending", [True, False])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_queue_of_another_device(world, use, is_pending):
    """It is refused whether or not there is anything to wait for, and nothing is noted of it."""
    owner = Producer((0.0,))
    gone = weakref.ref(owner)
    how = {"stream": world.producer} if is_pending else {}
    tensor = ad.Tensor.from_pointer(
        world.memory.address, (3,), "float32", (EXT_DEV, 0), owner=owner, **how
    )
    queue = world.device.queue(1)
    with pytest.raises(ad.ExchangeError, match=r"ext_dev:1.*ext_dev:0") as info:
        use(tensor, queue)
    assert info.value.reason == "stream"
    del owner, info
    with queue.held():
        world.use(queue)
        del tensor
        assert gone() is None


def test_zero_is_no_queue(world):
    for call in (
        lambda: ad.array(arrow_array(world), stream=0),
        lambda: world.pending().__dlpack__(stream=0),
    ):
        with pytest.raises(ValueError, match="no queue"):
            call()


@pytest.mark.parametrize("call", ["import", "export", "exchange"])
def test_a_queue_that_was_destroyed(world, call):
    tensor = world.pending()
    queue = world.device.queue()
    handle = queue.handle
    queue.close()
    calls = {
        "import": lambda: ad.array(arrow_array(world), stream=handle),
        "export": lambda: tensor.__dlpack__(stream=handle),
        "exchange": lambda: ad.tensor(world.carrying(Foreign, stream=handle)()),
    }
    with pytest.raises((ad.DeviceError, ad.ExchangeError)) as info:
        calls[call]()
    assert str(info.value)


# --- export: Arrow ----------------------------------------------------------------------


@pytest.mark.parametrize("waits", [True, False])
def test_arrow_export_carries_the_event(world, waits):
    array = ad.array(world.pending())
    if waits:
        world.finish_later()
    found = world.device.to_host(array, queue=world.consumer, wait=waits)
    assert (bytes(memoryview(found)) == NEW) is waits


def test_arrow_export_has_no_event_when_it_was_proven(world):
    array = ad.array(world.pending())
    assert exported_event(array) is not None
    world.finish()
    world.producer.synchronize()
    assert exported_event(array) is not None  # complete, but nobody has asked
    assert array.is_ready()
    assert exported_event(array) is None
    assert bytes(memoryview(world.device.to_host(array, wait=False))) == NEW


# --- export: __dlpack__ -----------------------------------------------------------------


def give(tensor, **kwargs):
    return Received(tensor.__dlpack__(max_version=(1, 3), **kwargs))


@pytest.mark.parametrize("kind", ["object", "handle"])
def test_dlpack_export_with_a_stream(world, kind):
    stream = world.consumer if kind == "object" else world.consumer.handle
    give(world.pending(), stream=stream).delete()
    assert world.waits(world.consumer)


def test_dlpack_export_with_off(world):
    give(world.pending(), stream=-1).delete()
    assert world.finds_old(world.consumer)


def test_dlpack_export_without_a_stream_makes_the_host_wait(world):
    tensor = world.pending()
    world.finish_later()
    start = time.monotonic()
    give(tensor).delete()
    assert time.monotonic() - start > SHORT
    assert world.device.peek(world.memory) == NEW
    assert tensor.is_ready()


def test_dlpack_export_waits_on_the_same_queue(world):
    """By its handle alone: it may be another queue, made at the same address."""
    tensor = world.pending()
    before = list(world.device.calls)
    give(tensor, stream=world.producer).delete()
    assert [call for call in world.device.calls[len(before) :] if "wait" in call]


# --- export: DLPack's exchange API ------------------------------------------------------


@pytest.fixture
def table():
    return dl.exchange_table(ad.Tensor)


def take(table, tensor):
    out = POINTER(dl.Versioned)()
    assert table.from_py(tensor, ctypes.byref(out)) == 0
    return Received.of_struct(out[0])


def take_view(table, tensor):
    assert table.tensor_from_py(tensor, ctypes.byref(dl.DLTensor())) == 0


def test_exchange_says_the_current_stream(world, table):
    def current(device_id):
        out = ctypes.c_void_p(1)
        assert table.current_stream(EXT_DEV, device_id, ctypes.byref(out)) == 0
        return out.value

    assert current(0) is None
    with ad.use_stream(world.consumer):
        assert (current(0), current(1)) == (world.consumer.handle, None)
    assert current(0) is None


@pytest.mark.parametrize("way", [lambda *a: take(*a).delete(), take_view])
def test_exchange_export_on_the_current_stream(world, table, way):
    tensor = world.pending()
    assert world.finds_old(world.consumer)
    with ad.use_stream(world.consumer):
        way(table, tensor)
    assert world.waits(world.consumer)


@pytest.mark.parametrize("way", [lambda *a: take(*a).delete(), take_view])
def test_exchange_export_without_a_stream_makes_the_host_wait(world, table, way):
    tensor = world.pending()
    world.finish_later()
    way(table, tensor)
    assert world.device.peek(world.memory) == NEW


def adopt(table, managed):
    out = ctypes.py_object()
    pointer = ctypes.cast(ctypes.addressof(managed.struct), POINTER(dl.Versioned))
    assert table.to_py(pointer, ctypes.byref(out)) == 0
    value = out.value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(value))
    return value


@pytest.mark.parametrize("waits", [True, False])
def test_exchange_takes_what_is_pending_on_the_current_stream(world, table, waits):
    with ad.use_stream(world.producer):
        tensor = adopt(table, world.carrying(Managed))
    assert not tensor.is_ready()
    if waits:
        tensor.wait(world.consumer)
    assert (world.waits if waits else world.finds_old)(world.consumer)


def allocate(table, device):
    prototype = Managed((0.0,), shape=(3,), device=device, data=None).struct.tensor
    out, errors = POINTER(dl.Versioned)(), []
    report = dl.SET_ERROR(lambda _context, kind, message: errors.append((kind, message)))
    result = table.allocator(ctypes.byref(prototype), ctypes.byref(out), None, report)
    return result, out, errors


def test_exchange_allocates_on_the_device(device, table):
    queue = device.queue()
    with ad.use_stream(queue):
        result, out, errors = allocate(table, (EXT_DEV, 0))
    assert (result, errors) == (0, [])
    tensor = Received.of_struct(out[0])
    assert (tensor.device, tensor.shape) == ((EXT_DEV, 0), (3,))
    assert device.kind_of(tensor.data) == "device"
    with queue.held():
        queue.write(tensor.data, NEW)
        tensor.delete()
    device.synchronize()  # would raise if the memory had gone before it was written
    assert device.kind_of(tensor.data) is None


def test_exchange_refuses_data_where_there_is_no_current_queue(world, table):
    """What is pending on them, nobody knows; and they go back at once."""
    managed, out = world.carrying(Managed), ctypes.py_object()
    pointer = ctypes.cast(ctypes.addressof(managed.struct), POINTER(dl.Versioned))
    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
        ctypes.cast(table.to_py, ctypes.c_void_p).value
    )
    with pytest.raises(ad.ExchangeError, match=r"arrowdev\.use_stream") as info:
        call(ctypes.cast(pointer, ctypes.c_void_p), ctypes.addressof(out))
    assert info.value.reason == "stream" and managed.deleted == 1


def test_exchange_allocates_nothing_where_there_is_no_current_queue(device, table):
    result, out, errors = allocate(table, (EXT_DEV, 0))
    assert result == -1 and not out
    ((kind, message),) = errors
    assert kind == b"BufferError" and b"no current queue" in message


def test_exchange_cannot_allocate(device, table):
    result, out, errors = allocate(table, (EXT_DEV, 99))
    assert result == -1 and not out and len(errors) == 1


# --- export: into() ---------------------------------------------------------------------


def into_foreign(world, queue, into=lambda tensor, cls: tensor.into(cls)):
    """tensor.into() a class that works on `queue`; what it got is deleted at once."""
    foreign = Foreign(stream=queue.handle if queue else None)
    taken = []

    def to_py(managed, out):
        taken.append(Received.of_struct(managed[0]))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(taken))
        ctypes.cast(out, POINTER(ctypes.c_void_p))[0] = id(taken)
        return 0

    foreign.table.to_py = dl.TO_PY(to_py)
    assert into(world.pending(), foreign.type) is taken
    return taken[0]


def test_into_makes_the_library_wait(world):
    into_foreign(world, world.consumer).delete()
    assert world.waits(world.consumer)


INTO = {
    "into": lambda obj, cls, stream: obj.into(cls, stream=stream),
    "convert": lambda obj, cls, stream: ad.convert(obj, cls, stream=stream),
}


@pytest.mark.parametrize("into", INTO.values(), ids=INTO)
def test_into_makes_the_named_stream_wait(world, into):
    """The library works on a queue of its own, and the caller on another one."""
    into_foreign(
        world, world.device.queue(), lambda obj, cls: into(obj, cls, world.consumer)
    ).delete()
    assert world.waits(world.consumer)


@pytest.mark.parametrize("into", INTO.values(), ids=INTO)
def test_into_by_a_function_makes_the_named_stream_wait(world, into, monkeypatch):
    """As with CuPy, whose from_dlpack() knows no stream."""
    library = types.ModuleType("cupy")

    class ndarray:
        __module__ = "cupy"

    def from_dlpack(source):
        result = ndarray()
        result.source = source
        return result

    library.ndarray, library.from_dlpack = ndarray, from_dlpack
    monkeypatch.setitem(sys.modules, "cupy", library)
    result = into(world.pending(), ndarray, world.consumer)
    assert result.source.data_ptr == world.memory.address
    assert world.waits(world.consumer)


def test_into_of_a_library_without_a_stream_makes_the_host_wait(world):
    world.finish_later()
    into_foreign(world, None).delete()
    assert world.device.peek(world.memory) == NEW


# --- copies -----------------------------------------------------------------------------


def test_dl_device_of_the_host_is_valid_on_return(world):
    tensor = world.pending()
    world.finish_later()
    received = give(tensor, dl_device=(1, 0))
    assert (received.device, received.flags) == ((1, 0), dl.IS_COPIED)
    assert ctypes.string_at(received.data, 12) == NEW
    received.delete()


def test_dl_device_of_another_device(world):
    queue = world.device.queue(1)
    received = give(world.pending(), dl_device=(EXT_DEV, 1), stream=queue)
    assert (received.device, received.flags) == ((EXT_DEV, 1), dl.IS_COPIED)
    found = world.device.empty(12, 1)
    queue.copy(found, received.data, 12)
    with pytest.raises(ad.DeviceError):
        queue.synchronize(timeout=SHORT)
    world.finish()
    assert queue.read(found) == NEW
    received.delete()


@pytest.mark.parametrize("stream", ["consumer", None, -1])
def test_copy_is_marked_and_waited_for(world, stream):
    """-1 was said of the data; the copy is made on a stream that nobody knows."""
    world.finish_later()
    queue = world.consumer if stream == "consumer" else stream
    received = give(world.pending(), copy=True, stream=queue)
    assert received.flags == dl.IS_COPIED and received.data != world.memory.address
    if stream == "consumer":
        assert world.waits(world.consumer, received.data)
    else:
        assert world.device.peek(received.data, 12) == NEW
    received.delete()


def test_copy_false_copies_nothing(world):
    tensor = world.pending()
    for target in ((1, 0), (EXT_DEV, 1)):
        with pytest.raises(ad.ExchangeError) as info:
            tensor.__dlpack__(dl_device=target, copy=False)
        assert info.value.reason == "copy"


@pytest.mark.parametrize("offer", [Producer, Foreign])
def test_copy_on_import(world, offer):
    world.finish()
    world.producer.synchronize()
    source = world.carrying(offer)
    tensor = ad.tensor(source if offer is Producer else source(), copy=True)
    assert tensor.data_ptr != world.memory.address
    assert tensor.device == ad.device((EXT_DEV, 0))
    tensor.wait(world.consumer)
    assert world.consumer.read(world.use(world.consumer, tensor.data_ptr)) == NEW


# --- the second edge: the memory stays while a consumer uses it -------------------------


def released(managed, within):
    """Was the producer's deleter called, at the latest after so many seconds?"""
    end = time.monotonic() + within
    while managed.deleted == 0 and time.monotonic() < end:
        time.sleep(0.005)
    return managed.deleted == 1


def hand_out_import(world, managed):
    producer = world.carrying()
    producer.managed = managed
    return ad.tensor(producer, stream=world.consumer)


def hand_out_use_stream(world, managed):
    producer = world.carrying()
    producer.managed = managed
    with ad.use_stream(world.consumer):
        return ad.tensor(producer)


def plain(world, managed):
    producer = world.carrying()
    producer.managed = managed
    return ad.tensor(producer)


def hand_out_dlpack(world, managed):
    tensor = plain(world, managed)
    give(tensor, stream=world.consumer).delete()
    return tensor


def hand_out_exchange(world, managed):
    tensor = plain(world, managed)
    with ad.use_stream(world.consumer):
        take(dl.exchange_table(ad.Tensor), tensor).delete()
    return tensor


def hand_out_wait(world, managed):
    tensor = plain(world, managed)
    tensor.wait(world.consumer)
    return tensor


HAND_OUTS = [
    hand_out_import,
    hand_out_use_stream,
    hand_out_dlpack,
    hand_out_exchange,
    hand_out_wait,
]


@pytest.mark.parametrize("hand_out", HAND_OUTS)
def test_memory_stays_until_the_consumer_is_done(world, hand_out):
    managed = world.carrying(Managed)
    tensor = hand_out(world, managed)
    world.consumer.hold()
    world.use(world.consumer)
    del tensor
    assert not released(managed, SHORT)
    world.consumer.release()
    assert released(managed, 10)


def test_memory_goes_at_once_when_nobody_was_named(world):
    managed = world.carrying(Managed)
    tensor = plain(world, managed)
    world.consumer.hold()
    world.use(world.consumer)
    del tensor
    assert managed.deleted == 1
    world.consumer.release()
