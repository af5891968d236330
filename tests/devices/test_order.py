"""The import table of docs/internals/synchronization.md, a test per cell, on the software device.

Every test of a wait has a negative control without the wait: there the consumer's queue does its
work at once and finds the old content of the memory. No result depends on timing: the producer's
queue is held, so the data are pending until `finish()`.

Cells of CUDA and ROCm (numbers for streams, the CUDA Array Interface, pinned and managed memory in
the host protocols) are tested on the stand-in drivers and, if there is one, on a GPU:
tests/gpu_cuda and tests/gpu_hip; those of oneAPI in tests/devices/test_oneapi.py.
"""

import contextlib
import ctypes
import weakref

import pytest
from dlpack_checks import Foreign
from dlpack_ctypes import Producer
from order_world import EXT_DEV, NEW, SHORT, exported_event

import arrowdev as ad


def test_consumer_without_wait_finds_old_data(world):
    """Without arrowdev, the consumer's queue finds the old data."""
    assert world.finds_old(world.consumer)


# --- import: Arrow device array ---------------------------------------------------------


def arrow_array(world):
    return world.device.array([1.0, 2.0, 3.0], "float32", queue=world.producer)


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


def test_matrix_with_use_stream(world):
    owner = world.pending()
    matrix = ad.Tensor.from_pointer(
        world.memory.address, (1, 3), "float32", (EXT_DEV, 0), owner=owner
    )
    with ad.use_stream(world.consumer):
        ad.record_batch(matrix, names=["a", "b", "c"])
    assert world.waits(world.consumer)


def test_own_objects_with_a_stream(world):
    tensor = world.pending()
    assert world.finds_old(world.consumer)
    ad.tensor(tensor, stream=world.consumer)
    assert world.waits(world.consumer)


@pytest.mark.parametrize(
    "own",
    [ad.tensor, ad.array, lambda x: ad.array(x).buffers[1]],
    ids=["Tensor", "Array", "Buffer"],
)
def test_memory_of_own_object_has_its_event(world, own):
    owner = own(world.pending())
    address, where = world.memory.address, (EXT_DEV, 0)
    again = ad.Tensor.from_pointer(address, (3,), "float32", where, owner=owner)
    assert again.sync_event == owner.sync_event is not None
    told = ad.Tensor.from_pointer(address, (3,), "float32", where, owner=owner, stream=-1)
    assert told.sync_event is None
    del owner
    again.wait(world.consumer)
    assert world.waits(world.consumer)


# --- import: intermediate copies --------------------------------------------------------


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


# The source of the copy, and the function that copies.
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
def test_stream_waits_for_intermediate_copy(device, source, make):
    """The copy may run on another queue, which is held here. Its memory is not freed while the
    named stream reads it."""
    maker, consumer, found = device.queue(), device.queue(), device.empty(128)
    source = source()
    maker.hold()
    with ad.use_stream(maker):
        made = make(source, stream=consumer)
    consumer.copy(found, address_of(made), 128)
    del made
    with contextlib.suppress(ad.DeviceError):
        consumer.synchronize(timeout=SHORT)  # all work before the copy
    maker.release()
    assert set(consumer.read(found)) <= {1, 255}
    device.synchronize()


# --- import: stream=-1 ------------------------------------------------------------------


@pytest.mark.parametrize(("source", "make"), MADE.values(), ids=MADE)
def test_no_sync_does_not_apply_to_intermediate_copies(device, source, make):
    source, maker = source(), device.queue()
    with maker.held(), ad.use_stream(maker):
        made = make(source, stream=-1)
        assert made.sync_event is not None and not made.is_ready()
    made.synchronize()


def test_no_sync_does_not_apply_to_our_copy(world):
    with ad.use_stream(world.producer):
        made = ad.tensor(world.carrying(), stream=-1, copy=True)
    assert made.data_ptr != world.memory.address
    assert not made.is_ready()


def test_no_sync_with_device(device):
    assert ad.array(column("uint8", 8, 8), stream=-1, device="cpu").to_pylist() == [255] * 8
    assert ad.array(column("uint8", 8, 8), stream=-1, device="ext_dev:1").device.id == 1


def test_no_sync_drops_the_producers_event(world):
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
    """Later work is not waited for, and the stream may be destroyed by then."""
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
    """Its stream= waits for the producer, as DLPack requires."""

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


# --- invalid streams --------------------------------------------------------------------


def test_stream_of_another_kind_is_refused(world):
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
def test_queue_of_another_device_is_refused(world, use, is_pending):
    """It is refused even if nothing is pending, and it is not recorded."""
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


def test_zero_is_not_a_queue(world):
    for call in (
        lambda: ad.array(arrow_array(world), stream=0),
        lambda: world.pending().__dlpack__(stream=0),
    ):
        with pytest.raises(ValueError, match="no queue"):
            call()


@pytest.mark.parametrize("call", ["import", "export", "exchange"])
def test_destroyed_queue_is_refused(world, call):
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
