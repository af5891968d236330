"""Memory goes back only when those who were given it are done with it."""

import time
import weakref

import pytest
from gpu import NEW, OLD, Gate, Memory, Pinned, Reader, Stream, ask, cu

import arrowdev as ad


class Watched(Memory):
    """Says when it is freed."""

    freed = 0

    def free(self):
        if self.pointer != 0:
            Watched.freed += 1
        super().free()


@pytest.fixture(autouse=True)
def nothing_freed():
    Watched.freed = 0


def wait_for_frees(n):
    """Parked memory is drained by a thread of arrowdev's own."""
    limit = time.monotonic() + 20
    while Watched.freed < n:
        assert time.monotonic() < limit, "the memory was never given back"
        time.sleep(0.001)


def handed_out(memory, reader, stream=None):
    """The memory is read on the reader's held stream; everything else is gone."""
    tensor = ad.tensor(memory)
    tensor.__dlpack__(stream=reader.stream.handle if stream is None else stream)
    reader.read(tensor.data_ptr)


def test_release_follows_the_producers_stream():
    """It waits for the consumer's; the host does not, so the owner goes at once."""
    producer, reader = Stream(), Reader()
    with Gate(reader.stream.handle):
        handed_out(Watched(NEW, producer.handle), reader)
        assert Watched.freed == 1 and not producer.is_done()
    assert reader.result() == NEW.tolist()
    producer.synchronize()


def test_without_the_note_memory_is_freed_in_use(standin):
    """The twin: the consumer says that it needs no order, and so nobody waits."""
    producer, reader = Stream(), Reader()
    with Gate(reader.stream.handle):
        handed_out(Watched(NEW, producer.handle), reader, stream=-1)
        assert Watched.freed == 1
        producer.synchronize()
    reader.stream.synchronize()
    (violation,) = standin.violations()
    assert "cuMemFreeAsync" in violation and "cuMemcpyAsync" in violation


def test_release_is_parked_where_the_producers_stream_is_not_known():
    reader = Reader()
    with Gate(reader.stream.handle):
        handed_out(Watched(NEW), reader)
        time.sleep(0.05)
        assert Watched.freed == 0
    assert reader.result() == NEW.tolist()
    wait_for_frees(1)


def test_parked_memory_is_drained_by_synchronize():
    reader = Reader()
    with Gate(reader.stream.handle):
        handed_out(Watched(NEW), reader)
    ad.device("cuda:0").synchronize()
    wait_for_frees(1)


def test_stream_that_was_destroyed_meanwhile():
    """No event can be recorded on it any more; its work may still be pending."""
    reader = Reader()
    with Gate(reader.stream.handle):
        memory = Watched(NEW)
        tensor = ad.tensor(memory)
        tensor.__dlpack__(stream=reader.stream.handle)
        reader.read(memory.pointer)
        reader.stream.destroy()
        del tensor, memory
        time.sleep(0.05)
        assert Watched.freed == 0
    wait_for_frees(1)
    assert reader.target.array.tolist() == NEW.tolist()


def test_copy_of_our_own_is_waited_for():
    producer = Stream()
    memory = Watched(NEW, producer.handle)
    copy = ad.array(memory).to("cuda:1")
    del memory
    assert copy.to("cpu").to_pylist() == NEW.tolist()
    producer.synchronize()
    assert Watched.freed == 1


def test_use_stream_is_noted():
    producer, reader = Stream(), Reader()
    with Gate(reader.stream.handle):
        with ad.use_stream(reader.stream, "cuda:0"):
            tensor = ad.tensor(Watched(NEW, producer.handle))
            capsule = ad.Tensor.__dlpack__(tensor, stream=reader.stream.handle)
        reader.read(tensor.data_ptr)
        del tensor, capsule
        assert Watched.freed == 1
    assert reader.result() == NEW.tolist()
    producer.synchronize()


def test_numba_array_lives_as_long_as_what_was_made_of_it():
    """Its frees are queued: the driver may know the memory long after that."""
    numba = pytest.importorskip("numba.cuda")
    array = numba.to_device(NEW)
    pointer = array.device_ctypes_pointer.value
    alive = weakref.ref(array)
    tensor = ad.tensor(array)
    children = [tensor.to("cuda:0"), ad.array(tensor)[3:]]
    del array, tensor
    numba.current_context().deallocations.clear()
    attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert alive() is not None and ask(cu.cuPointerGetAttribute, attribute, pointer) == 0
    children.clear()
    ad.device("cuda:0").synchronize()
    limit = time.monotonic() + 20
    while alive() is not None:
        assert time.monotonic() < limit
        time.sleep(0.001)


# --- graphs -------------------------------------------------------------------

MODE = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


def test_captured_event_cannot_be_waited_for_outside():
    """It stands for work that is done when the graph is launched, not before."""
    memory, stream = Memory(OLD), Stream()
    memory.stream = stream.handle
    ask(cu.cuStreamBeginCapture, stream.handle, MODE)
    tensor = ad.tensor(memory)
    with pytest.raises(ad.ExchangeError) as caught:
        tensor.is_ready()
    assert caught.value.reason == "capture"
    graph = ask(cu.cuStreamEndCapture, stream.handle)  # it was not broken
    with pytest.raises(ad.ExchangeError) as caught:
        tensor.to("cpu").to_pylist()
    assert caught.value.reason == "capture"
    ask(cu.cuGraphDestroy, graph)


def test_capture_with_its_own_stream():
    """The copy becomes part of the graph and is done when it is launched."""
    source, stream = Memory(OLD), Stream()
    target, pinned = Pinned(OLD - 1), Pinned(NEW)
    source.stream = stream.handle
    ask(cu.cuStreamBeginCapture, stream.handle, MODE)
    ask(cu.cuMemcpyAsync, source.pointer, int(pinned.pointer), NEW.nbytes, stream.handle)
    tensor = ad.tensor(source, stream=stream)
    ask(cu.cuMemcpyAsync, int(target.pointer), tensor.data_ptr, NEW.nbytes, stream.handle)
    graph = ask(cu.cuStreamEndCapture, stream.handle)
    executable = ask(cu.cuGraphInstantiate, graph, 0)
    assert target.array.tolist() == (OLD - 1).tolist()
    ask(cu.cuGraphLaunch, executable, stream.handle)
    stream.synchronize()
    assert target.array.tolist() == NEW.tolist()
    ask(cu.cuGraphExecDestroy, executable)
    ask(cu.cuGraphDestroy, graph)
