"""Pending work of one producer or consumer delays no ready data of another."""

import gc
import threading

import numpy as np
import pytest
from gpu import NEW, Gate, Held, Memory, Reader, Stream, ask, cu

import arrowdev as ad


class Producer:
    """Like CuPy: the stream that it is given waits for its own, and the tensor says no more."""

    def __init__(self, tensor, own):
        self.tensor, self.own, self.streams = tensor, own, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None, **arguments):
        event = ask(cu.cuEventCreate, 2)
        ask(cu.cuEventRecord, event, self.own)
        ask(cu.cuStreamWaitEvent, stream, event, 0)
        ask(cu.cuEventDestroy, event)
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=-1, **arguments)


class WithoutOrder(Producer):
    """It ignores the stream."""

    def __dlpack__(self, stream=None, **arguments):
        return self.tensor.__dlpack__(stream=-1, **arguments)


def import_by_dlpack(held):
    return ad.tensor(Producer(ad.tensor(held.memory, stream=-1), held.stream.handle))


def import_often(held):
    return [import_by_dlpack(held) for _ in range(3)]  # more than there are import streams


def copy_on_the_device(held):
    return ad.tensor(ad.tensor(held.memory), copy=True)


def copy_to_the_host(held):
    thread = threading.Thread(target=ad.tensor(held.memory).to, args=("cpu",))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    return thread


def join_columns(held):
    other = Memory(NEW, held.stream.handle, is_ordered=False)
    return ad.record_batch({"a": ad.array(held.memory), "b": ad.array(other)})


def concatenate(held):
    return ad.concat([ad.array(NEW).to("cuda:0"), ad.array(held.memory)])


def release_in_use(held):
    """The held stream still reads what is given back, memory of arrowdev's own."""
    for made in (ad.tensor(NEW).to("cuda:0"), ad.tensor(Memory(NEW), copy=True)):
        made.synchronize()
        made.__dlpack__(stream=held.stream.handle)
    return None


PENDING = [
    import_by_dlpack,
    import_often,
    copy_on_the_device,
    copy_to_the_host,
    join_columns,
    concatenate,
    release_in_use,
]


def read(ready):
    return ready.to("cpu")


def upload(ready):
    return ad.tensor(NEW).to("cuda:0")


def copy(ready):
    return ad.tensor(ready, copy=True)


def take_in(ready):
    return ad.tensor(Producer(ready, Stream().handle))


def count(ready):
    array = ad.Array.from_buffers("int64", 8192, [np.full(1024, 7, np.uint8), np.zeros(8192)])
    assert array.to("cuda:0").count_nulls() == 1024 * 5
    return ready


# Where both import streams have pending work, an import by __dlpack__ waits for one of them.
CASES = [
    (begin, use)
    for begin in PENDING
    for use in (read, upload, copy, take_in, count)
    if (begin, use) != (import_often, take_in)
]


@pytest.mark.parametrize(("begin", "use"), CASES)
def test_ready_data_wait_for_nobody(standin, begin, use):
    """Without streams of their own the use would return after the gate is open: never."""
    standin.set_patience(10_000)
    ready = ad.tensor(NEW).to("cuda:0")
    count(ready)  # loads the kernels
    with Held() as held:
        begun = begin(held)
        used = use(ready)
        used.synchronize()
        assert used.to("cpu").into(np.ndarray).tolist() == NEW.tolist()
        assert not held.stream.is_done()
    if isinstance(begun, threading.Thread):
        begun.join()


def test_reads_and_uploads_have_a_stream_each(standin):
    """So that a GPU copies in both directions. Other work has no queue of its own: it shares the
    stream for reads, for which the host waits in most cases."""
    ready = ad.tensor(NEW).to("cuda:0")
    streams = []
    for use in (read, upload, copy):
        ready.synchronize()
        with standin.logged() as calls:
            use(ready)
        streams.append({call.stream for call in calls if call.name.startswith("cuMemcpy")})
    reads, uploads, copies = streams
    assert len(reads) == len(uploads) == 1
    assert reads.isdisjoint(uploads) and copies == reads


def test_import_streams_are_taken_in_turn_and_made_when_needed(standin):
    """A stream with pending work takes no other import; where all have, there is no new one."""
    with Held() as held:
        source = Producer(ad.tensor(held.memory, stream=-1), held.stream.handle)
        first = ad.tensor(source)
        with Held() as other:
            source.tensor, source.own = ad.tensor(other.memory, stream=-1), other.stream.handle
            more = [ad.tensor(source) for _ in range(7)]
        assert len(set(source.streams)) == 2
        with standin.logged() as calls:
            more.append(ad.tensor(source))
        assert "cuStreamCreate" not in {call.name for call in calls}
    del first, more


def test_failed_producers_leave_no_work_on_the_next_import(standin):
    """It may have queued work before it failed."""
    standin.set_patience(10_000)

    class Failing(Producer):
        def __dlpack__(self, stream=None, **arguments):
            super().__dlpack__(stream, **arguments)
            raise RuntimeError

    ready = ad.tensor(NEW).to("cuda:0")
    ready.synchronize()
    with Held() as held:
        with pytest.raises(ad.ExchangeError, match="RuntimeError"):
            ad.tensor(Failing(ready, held.stream.handle))
        ad.tensor(Producer(ready, Stream().handle)).synchronize()
        assert not held.stream.is_done()


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("producer", [Producer, WithoutOrder])
def test_import_streams_of_a_reset_device_are_replaced(standin, producer):
    """The producer's call may fail, or the event of the import."""
    context = ask(cu.cuCtxGetCurrent)
    for is_reset in (False, True):
        if is_reset:
            ask(cu.cuDevicePrimaryCtxReset, 1)
        ask(cu.cuCtxSetCurrent, ask(cu.cuDevicePrimaryCtxRetain, 1))
        stream = Stream()
        with Gate(stream.handle):  # the imports of the first producer take both
            imports = [
                ad.tensor(producer(ad.tensor(Memory(NEW), stream=-1), stream.handle))
                for _ in range(8)
            ]
        for made in imports:
            made.synchronize()
            assert made.to("cpu").into(np.ndarray).tolist() == NEW.tolist()
        del imports, made
        stream.synchronize()  # nothing else waits for the one of WithoutOrder
    ask(cu.cuCtxSetCurrent, context)


def test_memory_in_use_is_freed_after_its_consumers(standin):
    """The stream for frees waits for the consumer; other reads and writes do not."""
    reader = Reader()
    for make in (lambda: ad.tensor(NEW).to("cuda:0"), lambda: ad.tensor(Memory(NEW), copy=True)):
        made = again = None
        gc.collect()
        ad.device("cuda:0").synchronize()  # what was there before is freed now
        made = make()
        with Gate(reader.stream.handle):
            made.__dlpack__(stream=reader.stream.handle)
            again = ad.tensor(made, copy=True)  # arrowdev uses it, too
            reader.read(made.data_ptr)
            del made
            again.synchronize()
        assert reader.result() == NEW.tolist()
        assert again.to("cpu").into(np.ndarray).tolist() == NEW.tolist()


# --- how many there are ------------------------------------------------------------------


def use_everything(ready):
    """Imports, exports, copies both ways and deferred releases, of ready and of pending data."""
    with Held() as held:
        begin = (import_by_dlpack, import_often, copy_on_the_device, join_columns, concatenate)
        made = [function(held) for function in begin]
        made += [use(ready) for use in (read, upload, copy, take_in, count)]
        pending = ad.tensor(held.memory)
        for _ in range(6):
            assert pending.__cuda_array_interface__["stream"] not in (None, 1, 2)
            ad.array(pending).__arrow_c_device_array__()
            pending.__dlpack__(stream=Stream().handle)
        given_back = ad.tensor(NEW).to("cuda:0")
        given_back.__dlpack__(stream=held.stream.handle)
        del given_back
    made.append(pending.to("cpu"))


@pytest.mark.parametrize("n_threads", [1, 8])
def test_a_context_has_few_streams_of_arrowdevs(standin, monkeypatch, n_threads):
    """A driver has 8 hardware queues by default for all streams of a process (CUDA)."""
    of_others, errors, make = set(), [], Stream.__init__

    def make_and_note(self, flags=1):
        make(self, flags)
        of_others.add(self.handle)

    def work():
        try:
            ask(cu.cuCtxSetCurrent, context)
            for _ in range(3):
                use_everything(ready)
        except BaseException as error:
            errors.append(error)

    monkeypatch.setattr(Stream, "__init__", make_and_note)
    context, ready = ask(cu.cuCtxGetCurrent), ad.tensor(NEW).to("cuda:0")
    ready.synchronize()
    with standin.logged() as calls:
        threads = [threading.Thread(target=work) for _ in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        ad.device("cuda:0").synchronize()
    assert errors == []
    own = {call.stream for call in calls if call.stream > 2} - of_others
    assert len(own) == 4
