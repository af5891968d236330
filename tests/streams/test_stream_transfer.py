"""ArrayStream.to(): when, where and how it copies."""

import gc
import weakref

import arrow_ctypes as ac
import numpy as np
import pyarrow as pa
import pytest
from lifetimes import settled
from stream_samples import (
    HERE,
    TABLE,
    TYPES,
    counted,
    foreign,
    numbers,
    numbers_there,
    on_device,
    values,
)
from waiting import LIMIT, Call, wait_until

import arrowdev as ad

# --- when copies run -----------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 1, 3, 100])
def test_batches_are_prefetched(device, prefetch):
    taken = []
    stream = ad.array_stream(counted(taken, numbers(6)), schema="int64", device_type=1)
    stream = stream.to(HERE, prefetch=prefetch)
    assert stream.device_type == ad.DeviceType.EXT_DEV
    assert taken == []  # no batch before the first request
    for i in range(6):
        array = next(stream)
        assert len(taken) == min(6, i + 1 + prefetch)
        assert array.device == ad.device(HERE)
        assert array.to("cpu").to_pylist() == [2 * i, 2 * i + 1]
    assert list(stream) == []


def test_copies_start_before_they_are_requested(device):
    """Device to device; the number of pending copies is limited."""
    taken, queue = [], device.queue()
    source = counted(taken, on_device(device, [queue] * 8))
    stream = ad.array_stream(source, schema="int64", device_type=ad.DeviceType.EXT_DEV)
    stream = stream.to("ext_dev:1", prefetch=2)
    with queue.held():
        first = next(stream)  # the host does not wait
        assert not first.is_ready() and len(taken) == 3
        assert device.live().pending >= 3
        second = Call(lambda: next(stream))  # a fourth copy: it waits for the first one
        assert len(taken) == 3 and second.is_running()
    assert second.result().to("cpu").to_pylist() == [1, 2]
    assert len(taken) == 4
    assert first.to("cpu").to_pylist() == [0, 1]
    assert values(stream) == [[i, i + 1] for i in range(2, 8)]


def test_host_waits_for_the_returned_batch_only(device):
    """Device to host."""
    taken, queues = [], [device.queue() for _ in range(5)]
    for queue in queues:
        queue.hold()
    source = counted(taken, on_device(device, queues))
    stream = ad.array_stream(source, schema="int64", device_type=ad.DeviceType.EXT_DEV)
    stream = stream.to("cpu", prefetch=2)
    call = Call(lambda: next(stream))
    wait_until(lambda: len(taken) == 3)  # all copies start before the first one ends
    assert call.is_running()
    for i, queue in enumerate(queues):
        queue.release()
        array = call.result()  # while the later copies are held
        assert array.sync_event is None and array.to_pylist() == [i, i + 1]
        assert len(taken) == min(5, i + 3)
        call = Call(lambda: next(stream, None))
    assert call.result() is None


def test_memory_is_bounded(device):
    """The device has room for exactly the batches that may exist."""
    prefetch, nbytes = 3, 1 << 16
    others = settled(device).bytes
    room = (prefetch + 2) * nbytes  # the loop still holds one
    device.set_memory_limit(others + room)
    stream = ad.array_stream(np.full(nbytes // 8, i) for i in range(200))
    most = 0
    for i, array in enumerate(stream.to(HERE, prefetch=prefetch)):
        most = max(most, device.live().bytes - others)
        assert int(np.asarray(array.to("cpu"))[-1]) == i
    assert prefetch * nbytes <= most <= room


def test_host_memory_is_bounded(device):
    """Device to host: the source's memory is released after the copy."""
    prefetch = 2
    live = []

    def source():
        for i in range(100):
            array = np.full(1000, i)
            live.append(weakref.ref(array))
            yield array

    stream = ad.array_stream(source()).to(HERE, prefetch=0).to("cpu", prefetch=prefetch)
    for i, array in enumerate(stream):
        assert array.to_pylist()[-1] == i
    device.synchronize()
    assert sum(reference() is not None for reference in live) <= 2


@pytest.mark.parametrize("target", ["cpu", "ext_dev:1"])
def test_close_during_copies(device, target):
    before = settled(device).allocations
    queue = device.queue()
    with queue.held():
        stream = ad.array_stream(on_device(device, [queue] * 9)).to(target, prefetch=4)
        call = Call(lambda: next(stream))
        wait_until(lambda: device.live().pending >= 5)
        if target == "cpu":
            assert call.is_running()
            stream.close()  # after the reader's call ends
        else:
            call.result()
            stream.close()
            del call
            gc.collect()
    if target == "cpu":
        assert call.result().to_pylist() == [0, 1]
    assert repr(stream).endswith("closed>")
    gc.collect()
    device.synchronize(timeout=LIMIT)
    ad.device(HERE).synchronize()
    ad.device("ext_dev:1").synchronize()
    wait_until(lambda: device.live().allocations == before)


def test_stream_dropped_during_copies_to_host(device):
    """The copies after the batch that was returned are never read."""
    before = settled(device).allocations
    queues = [device.queue(), device.queue()]
    queues[1].hold()
    source = on_device(device, [queues[0], *[queues[1]] * 4])
    stream = ad.array_stream(source).to("cpu", prefetch=4)
    assert next(stream).to_pylist() == [0, 1]
    del stream
    gc.collect()
    queues[1].release()
    device.synchronize(timeout=LIMIT)
    ad.device(HERE).synchronize()
    wait_until(lambda: device.live().allocations == before)


# --- where and how -------------------------------------------------------------------------------


def test_each_batch_has_an_event(device):
    queue = device.queue()
    with queue.held():
        stream = ad.array_stream(on_device(device, [queue] * 3)).to("ext_dev:1", prefetch=2)
        first = next(stream)
        assert first.sync_event is not None and not first.is_ready()
    arrays = [first, *stream]
    assert [array.to("cpu").to_pylist() for array in arrays] == [[0, 1], [1, 2], [2, 3]]


def test_current_stream_waits_but_does_not_copy(device):
    """Copies overlap with what is on the caller's current stream."""
    ours = device.queue(1)
    memory = device.empty(16, 1)
    stream = ad.array_stream(numbers(3)).to("ext_dev:1", prefetch=2)
    with ad.use_stream(ours), ours.held():
        array = next(stream)
        wait_until(array.is_ready)
        ours.copy(memory, array.buffers[1].data_ptr, 16)
        assert not ours.is_idle()
    assert memoryview(ours.read(memory)).cast("q").tolist() == [0, 1]


def test_current_stream_waits_for_each_copy(device):
    ours, theirs = device.queue(1), device.queue(0)
    memory = device.empty(16, 1)
    with ad.use_stream(ours), theirs.held():
        array = next(ad.array_stream(on_device(device, [theirs])).to("ext_dev:1"))
        ours.copy(memory, array.buffers[1].data_ptr, 16)
        after = ours.record()
        with pytest.raises(ad.DeviceError, match="TIMEOUT"):
            after.synchronize(0.3)
    after.synchronize(LIMIT)
    assert array.is_ready()
    assert memoryview(ours.read(memory)).cast("q").tolist() == [0, 1]


def test_device_given_as_string_uses_no_current_stream(device):
    ours = device.queue()
    source = [ad.array(pa.array(["a", None, "bcd"])).to(HERE) for _ in range(2)]
    with ad.use_stream(ours), ours.held():
        stream = ad.array_stream(source).to("cpu")
        assert Call(lambda: next(stream).to_pylist()).result() == ["a", None, "bcd"]


def test_copies_run_on_the_named_stream(device):
    queue = device.queue()
    stream = ad.array_stream(numbers(3)).to(HERE, stream=queue)
    with queue.held():
        array = next(stream)
        assert not array.is_ready() and not queue.is_idle()
    assert array.to("cpu").to_pylist() == [0, 1]
    back = ad.array_stream(array.to(HERE) for array in numbers_there(3)).to("cpu", stream=queue)
    assert values(back) == [[0, 1], [2, 3], [4, 5]]


def test_stream_is_kept(device):
    stream = ad.array_stream(numbers(3)).to(HERE, stream=device.queue())
    gc.collect()
    assert values(stream) == [[0, 1], [2, 3], [4, 5]]


def test_batches_on_the_device_are_not_copied(device):
    queue = device.queue()
    with queue.held():
        arrays = [ad.array(x) for x in on_device(device, [queue] * 3)]
        found = list(ad.array_stream(arrays).to(HERE, prefetch=1))
        assert [x.sync_event for x in found] == [x.sync_event for x in arrays]
        assert [x.buffers[1].data_ptr for x in found] == [x.buffers[1].data_ptr for x in arrays]
        assert not found[0].is_ready()
    x = np.arange(3)
    (array,) = ad.array_stream([x]).to("cpu")
    assert np.shares_memory(np.asarray(array), x)


def test_batches_of_several_devices(device):
    arrays = [ad.array(np.arange(3) + i).to(f"ext_dev:{i % 2}") for i in range(4)]
    found = list(ad.array_stream(arrays).to("ext_dev:1", prefetch=2))
    assert {x.device_id for x in found} == {1}
    assert found[1].buffers[1].data_ptr == arrays[1].buffers[1].data_ptr
    assert [x.to("cpu").to_pylist()[0] for x in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("target", ["cpu", "cuda:0"])
def test_pinned_memory_is_not_copied(target):
    """It belongs to both host and device, and needs no runtime."""
    pinned = (ad.DeviceType.CUDA_HOST, 0)
    tree = ac.numbers(device=pinned)
    stream = ad.array_stream(foreign(tree, device_type=pinned[0])).to(target)
    (array,) = stream
    assert array.device == ad.device(target)
    assert array.buffers[1].data_ptr == ac.buffers_of(tree.array.struct)[1]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("name", TYPES)
def test_round_trip(device, name, prefetch):
    array = TYPES[name]
    parts = [array, array[2:5], array[:0], array[3:]]
    stream = ad.array_stream(parts).to(HERE, prefetch=prefetch).to("cpu", prefetch=prefetch)
    found = [pa.array(part) for part in stream]
    assert [part.to_pylist() for part in found] == [part.to_pylist() for part in parts]
    for part in found:
        part.validate(full=True)
        assert part.type == array.type


def test_record_batch_round_trip(device):
    stream = ad.array_stream(TABLE).to(HERE, prefetch=2).to("cpu", prefetch=1)
    reader = pa.RecordBatchReader.from_stream(stream)
    assert reader.read_all().equals(TABLE)


def test_failing_copy_is_raised_after_its_batches(device):
    stream = ad.array_stream(numbers(6)).to(HERE, prefetch=1)
    next(stream)  # two copies are pending
    device.fail_at(1, "allocate", stay=True)
    assert next(stream).device == ad.device(HERE)
    for _ in range(2):
        with pytest.raises((ad.DeviceError, MemoryError)):
            next(stream)
    device.fail_at(0)
    with pytest.raises((ad.DeviceError, MemoryError)):  # a batch is missing, so the error persists
        next(stream)


def test_own_failure_differs_from_stream_failure(device):
    """The stream has failed by then, but after the batches that cannot be concatenated."""

    def source(arrays):
        yield from arrays
        raise ValueError("later")

    stream = ad.array_stream(source([device.array([1, 2]), device.array([3])])).rechunk(5)
    device.fail_at(1, "allocate", stay=True)
    with pytest.raises((ad.DeviceError, MemoryError)) as info:
        next(stream)
    assert info.value.__cause__ is None
    device.fail_at(0)


def test_no_runtime_and_no_such_device(device):
    with pytest.raises(ad.ExchangeError, match="vpi"):
        next(ad.array_stream(numbers(1)).to("vpi:0"))
    with pytest.raises((ad.ExchangeError, ad.DeviceError, ValueError)):
        next(ad.array_stream(numbers(1)).to("ext_dev:63"))


@pytest.mark.parametrize("prefetch", [-1, 1025, 2**40, 2**80, -(2**80)])
def test_prefetch_out_of_range(prefetch):
    stream = ad.array_stream(numbers(1))
    with pytest.raises(ValueError, match="prefetch"):
        stream.to("cpu", prefetch=prefetch)
    assert len(list(stream)) == 1  # unchanged


def test_arguments_of_to():
    stream = ad.array_stream(numbers(1))
    for wrong in ("1", 1.0, None, True):
        with pytest.raises(TypeError, match="prefetch must be an int"):
            stream.to("cpu", prefetch=wrong)
    with pytest.raises((TypeError, ValueError)):
        stream.to("nowhere")
    with pytest.raises(TypeError):
        stream.to()
    with pytest.raises(TypeError):
        stream.to("cpu", 1)
    with pytest.raises(TypeError):
        stream.to("cpu", stream=object())
    assert len(list(stream.to("cpu", prefetch=np.int64(0)))) == 1
