"""Memory is released only after all its consumers are done with it."""

import sys
import threading
import time
import weakref

import arrow_ctypes as ac
import dlpack_ctypes as dl
import numpy as np
import pytest
from dlpack_checks import Foreign
from dlpack_ctypes import Managed, OnlyDLPack, only_legacy
from gpu import (
    MODES,
    NEW,
    OLD,
    RELAXED,
    DriverError,
    Gate,
    Memory,
    Pinned,
    Reader,
    Stream,
    Watched,
    ask,
    begin_capture,
    cu,
    order,
    wait_for_frees,
)
from waiting import wait_until

import arrowdev as ad


@pytest.fixture(autouse=True)
def nothing_freed():
    Watched.freed = 0


def handed_out(memory, reader, stream=None):
    """The reader's held stream reads the memory; all other references are deleted."""
    tensor = ad.tensor(memory)
    tensor.__dlpack__(stream=reader.stream.handle if stream is None else stream)
    reader.read(tensor.data_ptr)


def test_release_follows_the_producers_stream():
    """The stream waits for the consumer; the host does not, so the owner is released at once."""
    producer, reader = Stream(), Reader()
    with Gate(reader.stream.handle):
        handed_out(Watched(NEW, producer.handle), reader)
        assert Watched.freed == 1 and not producer.is_done()
    assert reader.result() == NEW.tolist()
    producer.synchronize()


def test_memory_is_freed_in_use_without_the_record(standin):
    """The negative control: the consumer requests no order, and no stream waits."""
    producer, reader = Stream(), Reader()
    with Gate(reader.stream.handle):
        handed_out(Watched(NEW, producer.handle), reader, stream=-1)
        assert Watched.freed == 1
        producer.synchronize()
    reader.stream.synchronize()
    (violation,) = standin.violations()
    assert "cuMemFreeAsync" in violation and "cuMemcpyAsync" in violation


def test_release_is_deferred_without_a_producers_stream():
    reader = Reader()
    with Gate(reader.stream.handle):
        handed_out(Watched(NEW), reader)
        time.sleep(0.05)
        assert Watched.freed == 0
    assert reader.result() == NEW.tolist()
    wait_for_frees(1)


# --- the stream that a library works on ---------------------------------------


def foreign(stream, memory=None):
    """A class with an exchange API, whose library works on `stream`; None: the default one."""
    memory = memory or Memory(NEW, is_ordered=False)
    made = Foreign(
        device=(dl.CUDA, 0), data=memory.pointer, shape=NEW.shape, dtype=(0, 64, 1), stream=stream
    )
    made.memory = memory
    return made


def test_hand_overs_on_the_librarys_own_stream_block_nobody(standin):
    """Its user answers for what runs there: no use is recorded and no release is deferred, but for
    the first one on a new stream with an earlier one's handle."""
    stream, n = Stream(), 10_000
    ad.tensor(foreign(stream.handle)()).__dlpack__(stream=stream.handle)  # the number is known
    library = foreign(stream.handle)
    with Gate(stream.handle):
        before = standin.count().host_waits
        with standin.logged() as calls:
            for _ in range(n):
                ad.tensor(library()).__dlpack__(stream=stream.handle)
        assert library.managed.deleted == n
        assert standin.count().host_waits == before
        assert "cuEventQuery" not in {call.name for call in calls}


@pytest.mark.parametrize("number", [1, 2])
def test_default_stream_of_the_library(standin, number):
    library, stream = foreign(None if number == 1 else number), Stream(flags=0)
    with Gate(stream.handle if number == 1 else 2):
        ad.tensor(library()).__dlpack__(stream=number)
        assert library.managed.deleted == 1


def test_uses_elsewhere_are_waited_for_although_the_library_has_a_stream():
    """The library's own stream is not the one in whose order it uses the memory again."""
    own, reader = Stream(), Reader()
    library = foreign(own.handle)
    with Gate(reader.stream.handle):
        tensor = ad.tensor(library())
        tensor.__dlpack__(stream=own.handle)
        tensor.__dlpack__(stream=reader.stream.handle)
        reader.read(tensor.data_ptr)
        del tensor
        assert library.managed.deleted == 0
    assert reader.result() == NEW.tolist()
    ad.device("cuda:0").synchronize()
    assert library.managed.deleted == 1


def test_per_thread_stream_of_another_thread_is_not_the_librarys(context):
    """Its number is the same."""
    library, busy = foreign(2), Stream(flags=0)
    kept = [ad.tensor(library())]

    def use():
        ask(cu.cuCtxSetCurrent, context)
        kept[0].__dlpack__(stream=2)

    with Gate(busy.handle):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        kept.clear()
        time.sleep(0.05)
        assert library.managed.deleted == 0
    ad.device("cuda:0").synchronize()
    assert library.managed.deleted == 1


def test_callers_stream_is_not_the_librarys():
    """`stream=` of an import by __dlpack__ is where the caller works. The producer frees the
    memory in the order of a stream of its own, as CuPy's pool does."""
    reader = Reader()
    managed = Managed(device=(dl.CUDA, 0), data=Memory(NEW).pointer, shape=NEW.shape)

    class Producer:
        def __dlpack_device__(self):
            return (dl.CUDA, 0)

        def __dlpack__(self, **_):
            return managed.capsule()

    with Gate(reader.stream.handle):
        tensor = ad.tensor(Producer(), stream=reader.stream.handle)
        del tensor
        assert managed.deleted == 0
    ad.device("cuda:0").synchronize()
    assert managed.deleted == 1


def test_synchronize_drains_deferred_releases():
    reader = Reader()
    with Gate(reader.stream.handle):
        handed_out(Watched(NEW), reader)
    ad.device("cuda:0").synchronize()
    assert Watched.freed == 1


def test_exported_stream_is_recorded():
    """The consumer makes it wait for its own stream, as version 3 of the interface requires."""
    producer, reader = Stream(), Reader()
    memory = Watched(NEW, producer.handle)
    with Gate(producer.handle):
        tensor = ad.tensor(memory)
        shown = tensor.__cuda_array_interface__["stream"]
        assert shown not in (None, producer.handle)
    with Gate(reader.stream.handle):
        order(reader.stream.handle, shown)
        reader.read(memory.pointer)
        order(shown, reader.stream.handle)
        del tensor, memory
        assert not producer.is_done()  # so its frees run after the reader
    assert reader.result() == NEW.tolist()
    producer.synchronize()
    assert Watched.freed == 1


AGAIN = {
    "DLPack": OnlyDLPack,
    "DLPack without a version": only_legacy,
    "Arrow": lambda tensor: ad.array(tensor).__arrow_c_device_array__(),
    "Arrow, a part": lambda tensor: ad.array(tensor)[1:].__arrow_c_device_array__(),
}


@pytest.mark.parametrize("how", AGAIN)
def test_use_of_an_import_of_arrowdevs_own_is_recorded_by_the_first_array(standin, how):
    """A stream may go with the last array that was handed out on it."""
    producer, reader, other = Stream(), Reader(), Stream()
    with Gate(reader.stream.handle):
        first = ad.tensor(Watched(NEW, producer.handle))
        again = ad.array(AGAIN[how](first))
        pointer = first.data_ptr
        first.__dlpack__(stream=other.handle)
        again.__dlpack__(stream=reader.stream.handle)
        reader.read(pointer)
        del first, again
        assert Watched.freed == 1  # in the order of the producer's stream
        other.destroy()
    assert reader.result() == NEW.tolist()
    producer.synchronize()
    assert standin.violations() == []


class Handed:
    """Hands out a capsule of managed memory that was made before."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (ad.DeviceType.CUDA_MANAGED, 0)


def managed_by_dlpack(array):
    capsule = ad.tensor(array).__dlpack__(max_version=(1, 0))
    pointer = dl.api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
    dl.Versioned.from_address(pointer).tensor.device = dl.Device(ad.DeviceType.CUDA_MANAGED, 0)
    return ad.tensor(Handed(capsule))


def managed_by_arrow(array):
    pair = ad.array(array).__arrow_c_device_array__()
    struct = ac.inside(pair[1], "arrow_device_array")
    struct.device_type, struct.device_id = ad.DeviceType.CUDA_MANAGED, 0
    return ad.array(pair)


@pytest.mark.parametrize("how", [managed_by_dlpack, managed_by_arrow])
def test_use_of_host_memory_that_a_consumer_declared_to_be_on_a_device_is_recorded(how):
    """The owner that arrowdev exported is one of host memory and records nothing."""
    pinned = Pinned(NEW)
    memory = pinned.array
    n_before = sys.getrefcount(memory)
    reader = Reader()
    again = how(memory)
    with Gate(reader.stream.handle):
        again.__dlpack__(stream=reader.stream.handle, max_version=(1, 0))
        reader.read(int(pinned.pointer))
        del again
        assert sys.getrefcount(memory) == n_before + 1
    assert reader.result() == NEW.tolist()
    wait_until(lambda: sys.getrefcount(memory) == n_before)


def test_release_waits_for_destroyed_stream(standin):
    """No event can be recorded on it any more, but its work may still be pending.

    Who passes a number keeps its stream: a real driver may crash here.
    """
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
    time.sleep(0.05)
    assert Watched.freed == 0  # in the background no context is waited for
    ad.device("cuda:0").synchronize()
    assert Watched.freed == 1
    assert reader.target.array.tolist() == NEW.tolist()
    assert all("which is destroyed" in line for line in standin.violations())


@pytest.mark.parametrize("when", ["before the release", "after the release", "with its event"])
def test_use_in_a_destroyed_context_is_over(standin, when):
    """No work of it is pending, so Device.synchronize() has nothing to wait for."""
    user = ask(cu.cuCtxCreate, None, 0, 0)
    stream = Stream()
    ask(cu.cuCtxPopCurrent)
    tensor = ad.tensor(Watched(NEW, is_ordered=False))
    tensor.__dlpack__(stream=stream.handle)
    if when == "before the release":
        ask(cu.cuCtxDestroy, user)
        del tensor
    else:
        gate = Gate(stream.handle) if when == "with its event" else None
        if gate is None:
            ask(cu.cuStreamDestroy, stream.handle)
        del tensor
        if gate is not None:
            gate.open()
        ask(cu.cuCtxDestroy, user)
    stream.handle = None
    ad.device("cuda:0").synchronize()
    wait_for_frees(1)
    assert all("which is destroyed" in line for line in standin.violations())


@pytest.mark.parametrize("is_kept", [False, True])
def test_handle_of_a_destroyed_stream_is_given_out_again(standin, is_kept):
    """A new stream has the number. An event on it says nothing about the work of the old one."""
    standin.set_handle_reuse(1)
    reader = Reader()
    old = reader.stream.handle
    with Gate(old):
        memory = Watched(NEW)
        tensor = ad.tensor(memory)
        tensor.__dlpack__(stream=old)
        reader.read(memory.pointer)
        reader.stream.destroy()
        other = Stream()
        assert other.handle == old
        if is_kept:  # the new stream uses the memory, too
            tensor.__dlpack__(stream=other.handle)
        with standin.logged() as calls:
            del tensor, memory
        time.sleep(0.05)
        assert Watched.freed == 0
        assert [call for call in calls if call.name == "cuEventRecord"] == []
    ad.device("cuda:0").synchronize()
    assert Watched.freed == 1
    assert reader.target.array.tolist() == NEW.tolist()


def waits_for(reader, tensor, n_freed):
    """The reader's held stream, which has the tensor, reads it before it is given back."""
    with Gate(reader.stream.handle):
        tensor.__dlpack__(stream=reader.stream.handle)
        reader.read(tensor.data_ptr)
        del tensor
        time.sleep(0.05)
        assert n_freed() == 0
    ad.device("cuda:0").synchronize()
    assert n_freed() == 1
    assert reader.result() == NEW.tolist()


@pytest.mark.parametrize("how", ["exchange API", "interface"])
def test_new_stream_with_the_producers_number_is_recorded(standin, how):
    """The producer's own stream needs no record, but it is gone."""
    standin.set_handle_reuse(1)
    old = Stream()
    if how == "interface":
        tensors = [ad.tensor(Watched(NEW, old.handle, is_ordered=False))]
    else:
        library = foreign(old.handle)
        tensors = [ad.tensor(library())]
    number = old.handle
    old.destroy()
    reader = Reader()
    assert reader.stream.handle == number
    waits_for(
        reader,
        tensors.pop(),
        lambda: Watched.freed if how == "interface" else library.managed.deleted,
    )


def test_release_is_not_ordered_on_a_new_stream_with_the_producers_number(standin):
    """The producer does not free the memory in its order."""
    standin.set_handle_reuse(1)
    old, reader = Stream(), Reader()
    tensors = [ad.tensor(Watched(NEW, old.handle, is_ordered=False))]
    number = old.handle
    old.destroy()
    assert Stream().handle == number
    waits_for(reader, tensors.pop(), lambda: Watched.freed)


def test_own_memory_is_not_freed_in_the_order_of_a_new_stream(standin):
    """The stream of the allocation was a bare number, which a new stream has now."""
    standin.set_handle_reuse(1)
    reader = Reader()
    old = reader.stream.handle
    with Gate(old):
        tensor = ad.tensor(NEW).to("cuda:0", stream=old)
        reader.read(tensor.data_ptr)
        reader.stream.destroy()
        other = Stream()
        assert other.handle == old
        n_there = standin.count().device
        del tensor
        other.synchronize()
        assert standin.count().device == n_there
    ad.device("cuda:0").synchronize()
    ask(cu.cuCtxSynchronize)
    assert standin.count().device == n_there - 1
    assert reader.target.array.tolist() == NEW.tolist()


def test_objects_and_own_streams_need_no_number(standin):
    """What keeps a stream alive keeps its handle, too."""
    stream, tensor = Stream(), ad.tensor(Memory(NEW))
    with standin.logged() as calls:
        tensor.wait(stream)
        tensor.to("cpu")
    assert "cuStreamGetId" not in {call.name for call in calls}
    with standin.logged() as calls:
        for _ in range(3):
            tensor.__dlpack__(stream=stream.handle)
    assert [call.name for call in calls].count("cuStreamGetId") == 0  # recorded with its object
    other = Stream()
    with standin.logged() as calls:
        for _ in range(3):
            tensor.__dlpack__(stream=other.handle)
    assert [call.name for call in calls].count("cuStreamGetId") == 1


@pytest.mark.usefixtures("two_devices")
def test_release_waits_for_our_own_copy():
    producer = Stream()
    memory = Watched(NEW, producer.handle)
    copy = ad.array(memory).to("cuda:1")
    del memory
    assert copy.to("cpu").to_pylist() == NEW.tolist()
    producer.synchronize()
    assert Watched.freed == 1


def test_use_stream_is_recorded():
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


def test_numba_array_lives_as_long_as_its_imports():
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
    """It represents work that runs when the graph is launched, not before."""
    memory, stream = Memory(OLD), Stream()
    memory.stream = stream.handle
    begin_capture(stream.handle, MODE)
    tensor = ad.tensor(memory)
    with pytest.raises(ad.ExchangeError) as caught:
        tensor.is_ready()
    assert caught.value.reason == "capture"
    graph = ask(cu.cuStreamEndCapture, stream.handle)  # the capture was not broken
    with pytest.raises(ad.ExchangeError) as caught:
        tensor.to("cpu").to_pylist()
    assert caught.value.reason == "capture"
    ask(cu.cuGraphDestroy, graph)


def producer_without_a_stream(tensor, captured):
    """Like torch: the passed stream waits for the current one."""

    class Producer:
        def __dlpack_device__(self):
            return tensor.__dlpack_device__()

        def __dlpack__(self, stream=None, **keywords):
            order(stream, captured)
            return tensor.__dlpack__(stream=-1, **keywords)

    return Producer()


def goes_there_and_back(numbers):
    back = ad.tensor(numbers).to("cuda:0").to("cpu")
    return np.asarray(back).tolist() == numbers.tolist()


@pytest.mark.parametrize("how", ["to the host", "copy", "shown", "joined"])
def test_own_streams_join_no_capture(how):
    """They could never leave it, and the capture could not end."""
    stream, other = Stream(), Stream()
    memory, others = Memory(OLD), Memory(NEW)
    memory.stream, others.stream = stream.handle, other.handle
    begin_capture(stream.handle, MODE)
    tensor = ad.tensor(memory)
    with pytest.raises((ad.ExchangeError, AttributeError)) as caught:
        if how == "to the host":
            tensor.to("cpu")
        elif how == "copy":
            ad.tensor(tensor, copy=True)
        elif how == "shown":
            tensor.__cuda_array_interface__
        else:
            order(other.handle, stream.handle)
            arrays = {"a": ad.array(memory), "b": ad.array(others)}
            try:
                ad.record_batch(arrays)
            finally:
                order(stream.handle, other.handle)
    assert "captur" in str(caught.value).lower()
    graph = ask(cu.cuStreamEndCapture, stream.handle)  # the capture was not broken
    ask(cu.cuGraphDestroy, graph)
    assert goes_there_and_back(NEW)


def test_producer_captures_our_stream():
    """That capture is lost (docs/devices.md); the error names it, and later copies work."""
    stream, memory = Stream(), Memory(OLD)
    tensor = ad.tensor(memory)
    begin_capture(stream.handle, MODE)
    with pytest.raises(ad.ExchangeError) as caught:
        ad.tensor(producer_without_a_stream(tensor, stream.handle))
    assert "captured into a graph" in str(caught.value)
    with pytest.raises(DriverError):
        ask(cu.cuStreamEndCapture, stream.handle)
    assert goes_there_and_back(NEW)


def test_use_in_a_capture_does_not_capture_our_stream():
    """Our memory is dropped while a captured stream uses it."""
    stream, target = Stream(), Pinned(OLD)
    tensor = ad.tensor(NEW).to("cuda:0")
    tensor.synchronize()
    begin_capture(stream.handle, MODE)
    tensor.__dlpack__(stream=stream.handle)
    ask(cu.cuMemcpyAsync, int(target.pointer), tensor.data_ptr, NEW.nbytes, stream.handle)
    del tensor
    graph = ask(cu.cuStreamEndCapture, stream.handle)
    ask(cu.cuGraphDestroy, graph)
    assert goes_there_and_back(NEW)


def test_capture_with_its_own_stream():
    """The copy becomes part of the graph and is done when it is launched."""
    source, stream = Memory(OLD), Stream()
    target, pinned = Pinned(OLD - 1), Pinned(NEW)
    source.stream = stream.handle
    begin_capture(stream.handle, MODE)
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


class Asking(Memory):
    """Notes the capture mode and the context of the thread that gives it back."""

    def __init__(self, array, found):
        super().__init__(array)
        self.found = found

    def free(self):
        if self.pointer != 0:
            mode = ask(cu.cuThreadExchangeStreamCaptureMode, RELAXED)
            ask(cu.cuThreadExchangeStreamCaptureMode, mode)
            self.found.append((mode, int(ask(cu.cuCtxGetCurrent)), threading.get_ident()))
        super().free()


@pytest.mark.parametrize("is_full", [False, True])
def test_release_during_a_copy_runs_in_the_mode_and_context_of_the_caller(standin, is_full):
    """A copy changes both for its calls; an allocation releases what is ready, and without memory
    what is pending."""
    found, reader = [], Reader()
    other = int(ask(cu.cuCtxCreate, None, 0, 0))
    try:
        for _ in range(10):
            gate = Gate(reader.stream.handle, 0.05 if is_full else None)
            ad.tensor(Asking(NEW, found)).__dlpack__(stream=reader.stream.handle)
            if is_full:
                standin.fail_at(1, 2, "cuMemAllocFromPoolAsync", stay=True)
                with pytest.raises(MemoryError):
                    ad.tensor(NEW).to("cuda:0")
                standin.fail_at(0, 0)
            else:
                gate.open()
                reader.stream.synchronize()
                ad.tensor(NEW).to("cuda:0")
        mine = [seen[:2] for seen in found if seen[2] == threading.get_ident()]
        assert mine
        assert set(mine) == {(MODES[0], other)}
    finally:
        ask(cu.cuCtxPopCurrent)


def test_releases_behind_a_stream_are_asked_for_once(standin):
    """The later events of a stream are pending, too. Queries hold a lock of the driver that the
    user's launches need."""
    reader = Reader()
    gate = Gate(reader.stream.handle)
    for _ in range(100):
        ad.tensor(Memory(NEW)).__dlpack__(stream=reader.stream.handle)
    n_queries = set()
    for _ in range(50):
        with standin.logged() as calls:
            ad.device("cuda:0").empty(64)  # asks for the oldest ones in passing
        mine = [call.name for call in calls if call.thread == threading.get_native_id()]
        n_queries.add(mine.count("cuEventQuery"))
    gate.open()
    assert n_queries <= {0, 1}


def test_releases_of_two_contexts_are_asked_for_in_one_section(standin):
    """The first entry waits for a capture and names no context; the others are of two."""
    ask(cu.cuCtxCreate, None, 0, 0)
    readers = [Reader() for _ in range(3)]
    other = ask(cu.cuCtxPopCurrent)
    readers += [Reader() for _ in range(3)]
    captured = Stream()
    tensor = ad.tensor(Watched(NEW))
    memories = [Watched(NEW) for _ in readers]
    tensor.__dlpack__(stream=captured.handle)
    begin_capture(captured.handle, RELAXED)
    del tensor
    gates = [Gate(reader.stream.handle) for reader in readers]
    for reader in readers:
        handed_out(memories.pop(), reader)
    found = set()
    for _ in range(50):
        with standin.logged() as calls:
            ad.device("cuda:0").empty(64)  # asks for the oldest ones in passing
        mine = [call.name for call in calls if call.thread == threading.get_native_id()]
        found.add((mine.count("cuEventQuery"), mine.count("cuThreadExchangeStreamCaptureMode")))
    assert Watched.freed == 0
    for gate in gates:
        gate.open()
    ask(cu.cuGraphDestroy, ask(cu.cuStreamEndCapture, captured.handle))
    wait_for_frees(1 + len(readers))
    ask(cu.cuCtxDestroy, other)
    n_queries, n_exchanges = max(found)
    assert n_queries == len(readers)
    assert n_exchanges < 2 * n_queries
