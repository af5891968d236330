"""Arrays that end inside of a host function of a stream, where CUDA permits no call."""

import ctypes
import gc
import threading

import pytest
from gpu import NEW, DriverError, Gate, Memory, Reader, Stream, Watched, ask, cu, wait_for_frees
from waiting import wait_until

import arrowdev as ad

NOT_PERMITTED = 800
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@pytest.fixture(autouse=True)
def nothing_freed():
    Watched.freed = 0


def inside(function):
    """Runs a function on the driver's thread, as the garbage collection of a host function does,
    and returns what it returns."""
    done, results, stream = threading.Event(), [], Stream()

    def run(_):
        try:
            results.append(function())
        finally:
            done.set()

    pointer = FUNCTION(run)
    ask(cu.cuLaunchHostFunc, stream.handle, ctypes.cast(pointer, ctypes.c_void_p).value, 0)
    assert done.wait(30)
    stream.synchronize()
    return results[0]


def test_host_function_may_make_no_call(standin):
    """The rule of the stand-in; a driver is free to permit calls."""

    def call():
        with pytest.raises(DriverError) as info:
            ask(cu.cuStreamCreate, 1)
        return info.value.code

    assert inside(call) == NOT_PERMITTED


def drop(kept):
    """Drops the last reference inside of a host function."""
    inside(kept.clear)
    gc.collect()


@pytest.mark.parametrize("producer", [None, 1])
@pytest.mark.parametrize("stream", [None, 1])
def test_memory_is_released_after_its_consumers(producer, stream):
    """By the thread of the deferred releases, without a call of synchronize()."""
    reader = Reader()
    memory = Watched(NEW, producer, is_ordered=producer is not None)
    kept = [ad.tensor(memory)]
    kept[0].__dlpack__(stream=stream or reader.stream.handle)
    pointer = memory.pointer
    del memory
    with Gate(reader.stream.handle):
        reader.read(pointer)
        if stream is not None:
            kept[0].__dlpack__(stream=reader.stream.handle)
        drop(kept)
        assert Watched.freed == 0 or producer is not None
    assert reader.result() == NEW.tolist()
    wait_for_frees(1)


OWN = {
    "device": lambda: ad.tensor(NEW).to("cuda:0"),
    "device, on a stream of the user": lambda: ad.tensor(NEW).to("cuda:0", stream=Stream()),
    "device, on a number": lambda: ad.tensor(NEW).to("cuda:0", stream=Stream().handle),
}


@pytest.mark.parametrize("name", OWN)
def test_own_memory_is_freed(standin, name):
    ad.device("cuda:0").synchronize()
    before = standin.count().device
    kept = [OWN[name]()]
    kept[0].synchronize()
    drop(kept)
    wait_until(lambda: standin.count().device == before)


def test_many_releases_block_nobody():
    """More than may be deferred: those that are ready wait for no event."""
    memory, reader = Memory(NEW, is_ordered=False), Reader()
    kept = [ad.tensor(memory) for _ in range(2_000)]
    for tensor in kept:
        tensor.__dlpack__(stream=reader.stream.handle)
    del tensor
    drop(kept)


@pytest.mark.parametrize("kind", ["cuda_host", "cuda_managed"])
def test_block_is_used_again(standin, kind):
    """Pinned memory, which staging buffers have, too, and managed memory."""
    device = ad.device(f"{kind}:0")
    kept = [device.empty(37 << 20)]
    pointer = kept[0].data_ptr
    device.synchronize()
    before = standin.count()
    drop(kept)
    device.synchronize()
    kept = [device.empty(37 << 20)]
    assert kept[0].data_ptr == pointer
    assert (standin.count().pinned, standin.count().managed) == (before.pinned, before.managed)


def test_refused_releases_lose_no_event(standin):
    """On the default stream, which has no number that is asked for before."""
    memory, stream, n = Memory(NEW, is_ordered=False), Stream(), 100
    made = [ad.tensor(Memory(NEW, stream.handle)) for _ in range(n)]
    del made  # their events are in the pool now
    n_events = standin.count().events
    for _ in range(n):
        kept = [ad.tensor(memory)]
        kept[0].__dlpack__(stream=1)
        drop(kept)
        ad.device("cuda:0").synchronize()
    made = [ad.tensor(Memory(NEW, stream.handle)) for _ in range(n)]
    assert len(made) == n
    assert standin.count().events - n_events < n // 2


def test_refused_queries_abandon_no_release():
    """Each synchronize() looks at the deferred releases in passing."""
    reader = Reader()
    ready = ad.tensor(NEW)
    with Gate(reader.stream.handle):
        kept = [ad.tensor(Watched(NEW))]
        kept[0].__dlpack__(stream=reader.stream.handle)
        kept.clear()
        inside(lambda: [ready.synchronize() for _ in range(1_000)])
        assert Watched.freed == 0
    wait_for_frees(1)
