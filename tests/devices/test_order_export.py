"""The export table of docs/internals/synchronization.md and the lifetime of memory, as in
test_order.py."""

import ctypes
import sys
import time
import types
from ctypes import POINTER

import dlpack_ctypes as dl
import pytest
from dlpack_checks import Foreign
from dlpack_ctypes import Managed, Producer, Received
from order_world import EXT_DEV, NEW, SHORT, exported_event

import arrowdev as ad

# --- export: Arrow ----------------------------------------------------------------------


@pytest.mark.parametrize("waits", [True, False])
def test_arrow_export_carries_the_event(world, waits):
    array = ad.array(world.pending())
    if waits:
        world.finish_later()
    found = world.device.to_host(array, queue=world.consumer, wait=waits)
    assert (bytes(memoryview(found)) == NEW) is waits


def test_arrow_export_has_no_event_once_known_complete(world):
    array = ad.array(world.pending())
    assert exported_event(array) is not None
    world.finish()
    world.producer.synchronize()
    assert exported_event(array) is not None  # complete, but not queried yet
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


def test_dlpack_export_without_sync(world):
    give(world.pending(), stream=-1).delete()
    assert world.finds_old(world.consumer)


def test_dlpack_export_without_a_stream_makes_the_host_wait(world):
    tensor = world.pending()
    start = time.monotonic()
    world.finish_later()
    give(tensor).delete()
    assert time.monotonic() - start > SHORT
    assert world.device.peek(world.memory) == NEW
    assert tensor.is_ready()


def test_dlpack_export_waits_on_the_same_queue(world):
    """By its handle alone: another queue may have the same address."""
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


def test_exchange_returns_the_current_stream(world, table):
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
def test_exchange_imports_pending_data_of_current_stream(world, table, waits):
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
    device.synchronize()  # raises if the memory was freed before it was written
    assert device.kind_of(tensor.data) is None


def test_exchange_without_current_queue_refuses_data(world, table):
    """The order of the pending work is unknown there; the data are released at once."""
    managed, out = world.carrying(Managed), ctypes.py_object()
    pointer = ctypes.cast(ctypes.addressof(managed.struct), POINTER(dl.Versioned))
    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
        ctypes.cast(table.to_py, ctypes.c_void_p).value
    )
    with pytest.raises(ad.ExchangeError, match=r"arrowdev\.use_stream") as info:
        call(ctypes.cast(pointer, ctypes.c_void_p), ctypes.addressof(out))
    assert info.value.reason == "stream" and managed.deleted == 1


def test_exchange_without_current_queue_does_not_allocate(device, table):
    result, out, errors = allocate(table, (EXT_DEV, 0))
    assert result == -1 and not out
    ((kind, message),) = errors
    assert kind == b"BufferError" and b"no current queue" in message


def test_exchange_allocation_fails(device, table):
    result, out, errors = allocate(table, (EXT_DEV, 99))
    assert result == -1 and not out and len(errors) == 1


# --- export: into() ---------------------------------------------------------------------


def into_foreign(world, queue, into=lambda tensor, cls: tensor.into(cls)):
    """tensor.into() a class that works on `queue`; the result is deleted at once."""
    foreign = Foreign(stream=queue.handle if queue else None)
    made, taken = foreign(), []

    def to_py(managed, out):
        taken.append(Received.of_struct(managed[0]))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        ctypes.cast(out, POINTER(ctypes.c_void_p))[0] = id(made)
        return 0

    foreign.table.to_py = dl.TO_PY(to_py)
    assert into(world.pending(), foreign.type) is made
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
    """The library works on its own queue, and the caller on another one."""
    into_foreign(
        world, world.device.queue(), lambda obj, cls: into(obj, cls, world.consumer)
    ).delete()
    assert world.waits(world.consumer)


@pytest.mark.parametrize("into", INTO.values(), ids=INTO)
def test_into_of_from_dlpack_makes_the_named_stream_wait(world, into, monkeypatch):
    """As with CuPy, whose from_dlpack() has no stream parameter."""
    library = types.ModuleType("cupy")

    class ndarray:
        __module__ = "cupy"

    def from_dlpack(source):
        result = ndarray()
        result.source, result.dtype = source, source.dtype
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
    """-1 applies to the data; the copy runs on an internal stream."""
    queue = world.consumer
    if stream != "consumer":  # else this test lets the work finish
        queue = stream
        world.finish_later()
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


# --- release: the memory stays while a consumer uses it ---------------------------------


def released(managed, within):
    """Whether the producer's deleter is called within so many seconds."""
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


def test_memory_is_released_at_once_without_streams(world):
    managed = world.carrying(Managed)
    tensor = plain(world, managed)
    world.consumer.hold()
    world.use(world.consumer)
    del tensor
    assert managed.deleted == 1
    world.consumer.release()
