"""ROCm memory of hip-python through arrowdev, with held streams."""

import gc
import weakref

import arrow_ctypes as ac
import numpy as np
import pytest
from hip import hip

import arrowdev as ad

OLD = np.zeros(64, "int64")
NEW = np.arange(64, dtype="int64") * 5 + 2
ROCM = (10, 0)


def ask(function, *arguments):
    code, *results = function(*arguments)
    assert code == hip.hipError_t.hipSuccess, (function, code)
    return results[0] if results else None


class Memory:
    """Device memory on the current device."""

    def __init__(self, array, stream=None):
        self.nbytes, self.stream = array.nbytes, stream
        self.pointer = ask(hip.hipMalloc, array.nbytes)
        self.address = int(self.pointer)
        ask(hip.hipMemcpy, self.pointer, array, array.nbytes, hip.hipMemcpyKind.hipMemcpyDefault)

    def __del__(self):
        hip.hipFree(self.pointer)


class Stream:
    def __init__(self, flags=hip.hipStreamNonBlocking):
        self.object = ask(hip.hipStreamCreateWithFlags, flags)
        self.handle = int(self.object)

    def synchronize(self):
        ask(hip.hipStreamSynchronize, self.object)

    def is_done(self):
        return hip.hipStreamQuery(self.object)[0] == 0

    def __del__(self):
        hip.hipStreamDestroy(self.object)


def to_array(pointer):
    out = np.zeros(64, "int64")
    ask(hip.hipMemcpy, out, pointer, out.nbytes, hip.hipMemcpyKind.hipMemcpyDefault)
    return out.tolist()


@pytest.fixture
def held(standin):
    """Memory with OLD content, and a stream that writes NEW when released."""
    memory, stream = Memory(OLD), Stream()
    source = ask(hip.hipHostMalloc, NEW.nbytes, 0)
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    ask(hip.hipMemcpy, source, NEW, NEW.nbytes, kind)
    with standin.held(stream.handle):
        ask(hip.hipMemcpyAsync, memory.pointer, source, NEW.nbytes, kind, stream.object)
        yield memory, stream
    stream.synchronize()
    ask(hip.hipHostFree, source)


def tensor_of(memory, stream=None):
    return ad.Tensor.from_pointer(
        memory.address, (64,), "int64", "rocm:0", owner=memory, stream=stream
    )


def test_devices():
    assert {ad.device("rocm:0"), ad.device("rocm:1")} <= set(ad.devices())


def test_standin_alone():
    memory = Memory(NEW)
    assert to_array(memory.pointer) == NEW.tolist()
    attributes = ask(hip.hipPointerGetAttributes, memory.address)
    assert attributes.device == 0


def test_two_devices():
    ask(hip.hipSetDevice, 1)
    memory = Memory(NEW)
    ask(hip.hipSetDevice, 0)
    tensor = ad.Tensor.from_pointer(memory.address, (64,), "int64", "rocm:1", owner=memory)
    assert tensor.to("cpu").to("rocm:0").device == ad.device("rocm:0")
    assert np.asarray(tensor.to("rocm:0").to("cpu")).tolist() == NEW.tolist()


def test_copy_waits_for_the_stream(standin, held):
    memory, stream = held
    array = ad.array(tensor_of(memory, stream.handle))
    copy = array.to("rocm:0")
    assert not array.is_ready() and not copy.is_ready()
    standin.release(stream.handle)
    assert copy.to("cpu").to_pylist() == NEW.tolist()
    standin.hold(stream.handle)


def test_without_the_stream_old_data_are_read(held):
    memory, _ = held
    assert ad.array(tensor_of(memory)).to("cpu").to_pylist() == OLD.tolist()


def test_arrow_device_array_carries_the_event(held):
    memory, stream = held
    array = ad.array(tensor_of(memory, stream.handle))
    schema, capsule = array.__arrow_c_device_array__()
    struct = ac.inside(capsule, "arrow_device_array")
    assert (struct.device_type, struct.device_id) == ROCM and struct.sync_event
    again = ad.array((schema, capsule))
    assert not again.is_ready()


def test_dlpack_makes_the_consumers_stream_wait(standin, held):
    memory, stream = held
    consumer, target = Stream(), ask(hip.hipHostMalloc, NEW.nbytes, 0)
    tensor = tensor_of(memory, stream.handle)
    assert tensor.__dlpack_device__() == ROCM
    capsule = tensor.__dlpack__(stream=consumer.handle)
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    ask(hip.hipMemcpyAsync, target, tensor.data_ptr, NEW.nbytes, kind, consumer.object)
    assert not consumer.is_done()
    standin.release(stream.handle)
    consumer.synchronize()
    assert to_array(target) == NEW.tolist()
    standin.hold(stream.handle)
    del capsule, tensor  # before the consumer's stream
    ask(hip.hipHostFree, target)


@pytest.mark.parametrize("stream", [1, 2])
def test_cuda_stream_numbers_are_refused(stream):
    with pytest.raises((ad.ExchangeError, ValueError)):
        tensor_of(Memory(NEW)).__dlpack__(stream=stream)


def test_hip_python_device_array():
    """Its CUDA Array Interface has typestr 'B' and counts bytes, which is invalid."""
    memory = Memory(NEW)
    with pytest.raises((ad.ExchangeError, TypeError, ValueError)) as caught:
        ad.tensor(memory.pointer)
    assert '"B"' in str(caught.value)


def test_pinned_memory():
    pointer = ask(hip.hipHostMalloc, NEW.nbytes, 0)
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    ask(hip.hipMemcpy, pointer, NEW, NEW.nbytes, kind)
    tensor = ad.Tensor.from_pointer(int(pointer), (64,), "int64", (11, 0))
    assert tensor.device_type == ad.DeviceType.ROCM_HOST
    assert np.asarray(tensor).tolist() == NEW.tolist()
    del tensor
    ask(hip.hipHostFree, pointer)


def test_pinned_memory_is_copied_and_concatenated_in_place():
    source = ad.array(NEW).to("rocm_host:0")
    copied = ad.array(source, copy=True)
    joined = ad.concat([source, copied])
    (piece,) = ad.array_stream([source, copied]).rechunk(128)
    assert copied.device == joined.device == piece.device == ad.device("rocm_host:0")
    assert copied.to_pylist() == NEW.tolist()
    assert joined.to_pylist() == piece.to_pylist() == NEW.tolist() * 2


def exchange(memory, stream):
    array = ad.array(tensor_of(memory, stream.handle))
    capsule = ad.tensor(array).__dlpack__(stream=stream.handle)
    assert array.to("rocm:1").to("cpu").to_pylist() == NEW.tolist()
    return capsule


def test_freed_memory_stays_mapped_after_a_synchronization(standin):
    def upload_and_synchronize():
        ad.tensor(np.ones(1 << 23, "uint8")).to("rocm:0").synchronize()
        gc.collect()
        ad.device("rocm:0").synchronize()

    upload_and_synchronize()
    n_maps = standin.count().maps
    upload_and_synchronize()
    assert standin.count().maps == n_maps


def test_dropped_pinned_memory_is_kept_for_the_next_use(standin):
    stream = Stream()
    device = ad.device("rocm_host:0")
    memory = device.empty(1 << 20, stream=stream.handle)
    address = memory.data_ptr
    with standin.held(stream.handle):
        n_waits = standin.count().host_waits
        del memory
        gc.collect()
        assert standin.count().host_waits == n_waits
    device.synchronize()
    assert device.empty(1 << 20).data_ptr == address


def test_prefetched_downloads_do_not_block(standin):
    """They are written to pinned memory, which the host reads when the batch is taken."""
    source = [ad.array(np.full(1 << 20, i, "uint8")).to("rocm:0") for i in range(4)]
    ad.device("rocm:0").synchronize()
    copies = ad.array_stream(source).to("cpu", prefetch=2)
    found = [next(copies)]
    ad.device("rocm:0").synchronize()
    n_waits = standin.count().host_waits
    found.append(next(copies))
    assert standin.count().host_waits == n_waits
    found += copies
    assert [(np.asarray(batch) == i).all() for i, batch in enumerate(found)] == [True] * 4


def test_every_call_fails_once(standin):
    memory, stream = Memory(NEW), Stream()
    for _ in range(2):
        with standin.logged() as calls:
            exchange(memory, stream)
    n_errors = 0
    for n in range(1, len(calls) + 1):
        standin.fail_at(n, 719)
        error = None
        try:
            exchange(memory, stream)
        except (ad.DeviceError, ad.ExchangeError) as raised:
            error = raised.with_traceback(None)
        standin.fail_at(0, 0)
        hip.hipSetDevice(0)
        if error is not None:
            n_errors += 1
            assert "hipErrorLaunchFailure" in str(error)
    assert n_errors > 0
    exchange(memory, stream)


def test_memory_is_freed_behind_a_consumer_that_names_no_stream(standin):
    """The NULL stream waits for the blocking streams."""
    consumer, memory = Stream(hip.hipStreamDefault), Memory(NEW)
    gone = weakref.ref(memory)
    array = ad.array(tensor_of(memory))
    kept = array.__arrow_c_device_array__()
    del array, memory
    with standin.held(consumer.handle):
        ac.release(ac.inside(kept[1], "arrow_device_array").array)
        assert gone() is not None
    ad.device("rocm:0").synchronize()
    assert gone() is None
