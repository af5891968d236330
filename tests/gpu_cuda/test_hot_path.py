"""The driver calls of an exchange: as few as possible, and never under a lock.

The suite for HIP has no such file: both drivers share the code that is tested here.
"""

import gc
import threading
import time

import dlpack_ctypes as dl
import numpy as np
import pytest
from dlpack_checks import Foreign
from gpu import NEW, Held, Memory, Stream, ask, cu

import arrowdev as ad

N_THREADS = 8
LIMIT_S = 20
N_WITHOUT_GUESS = 64


def names(calls):
    return [call.name for call in calls]


@pytest.fixture(autouse=True)
def nothing_is_deferred(context):
    """The release thread calls the driver for what earlier tests left behind."""
    gc.collect()
    for device in ad.devices():
        if device.type == ad.DeviceType.CUDA:
            device.synchronize()


def exchange(memory, consumer):
    """Import and export: an event is recorded, carried by Arrow, and waited for."""
    pair = ad.array(memory).__arrow_c_device_array__()
    return ad.tensor(pair).__dlpack__(stream=consumer.handle)


@pytest.fixture
def memory():
    stream = Stream()
    memory = Memory(NEW, stream.handle, is_ordered=False)
    memory.owner = stream
    return memory


def test_events_come_from_the_pool(standin, memory):
    consumer = Stream()
    exchange(memory, consumer)
    with standin.logged() as calls:
        for _ in range(100):
            exchange(memory, consumer)
    assert names(calls).count("cuEventRecord") >= 100
    assert not [name for name in names(calls) if "Create" in name or "Destroy" in name]


def test_calls_of_each_step(standin, memory):
    """The record, the wait and the queries that only the driver can answer: the device of memory
    that is imported without one, the device of a stream without an event on it, and which stream
    a bare number names."""
    consumer = Stream()
    exchange(memory, consumer)
    with standin.logged() as calls:
        tensor = ad.tensor(memory)
    assert names(calls) == [
        "cuPointerGetAttributes",
        "cuStreamGetId",
        "cuEventRecord",
        "cuStreamIsCapturing",
    ]
    with standin.logged() as calls:
        pair = ad.array(tensor).__arrow_c_device_array__()
    assert names(calls) == []
    with standin.logged() as calls:
        capsule = tensor.__dlpack__(stream=consumer.handle)
    assert names(calls) == [
        "cuStreamGetCtx",
        "cuStreamIsCapturing",
        "cuStreamWaitEvent",
        "cuStreamGetId",
    ]
    with standin.logged() as calls:
        capsule = tensor.__dlpack__(stream=consumer.handle)
    assert names(calls) == ["cuStreamGetCtx", "cuStreamIsCapturing", "cuStreamWaitEvent"]
    with standin.logged() as calls:
        same = tensor.__dlpack__(stream=memory.stream)  # another may have the handle
    assert names(calls) == ["cuStreamIsCapturing", "cuStreamWaitEvent", "cuStreamGetId"]
    del pair, capsule, same


def test_copy_reads_sizes_in_its_own_session(standin):
    """The memory's location and the stream's capture status are queried once per copy.

    The buffers are too large for a pinned block, which is queried, too.
    """
    data = np.full(200_000, ord("a"), np.uint8)
    buffers = [None, np.array([0, 1, 4, data.size], np.int32), data]
    column = ad.Array.from_buffers("string", 3, buffers)
    there = ad.record_batch(dict.fromkeys("xyz", column)).to("cuda:0")
    there.to("cpu")
    with standin.logged() as calls:
        there.to("cpu")
    assert names(calls).count("cuPointerGetAttributes") == 1
    assert names(calls).count("cuStreamIsCapturing") == 1


class Exchanged:
    """DLPack by methods: the device is given, and the working stream is the caller's."""

    def __init__(self, memory):
        self.tensor = ad.tensor(memory)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self.tensor.__dlpack__(**arguments)


class Managing:
    """__dlpack__ that makes no call of its own."""

    def __init__(self, memory):
        self.memory = memory

    def __dlpack_device__(self):
        return (dl.CUDA, 0)

    def __dlpack__(self, **_):
        return managed(self.memory).capsule()


def managed(memory):
    return dl.Managed(device=(dl.CUDA, 0), data=memory.pointer, shape=NEW.shape)


def library(memory, stream):
    return Foreign(device=(dl.CUDA, 0), data=memory.pointer, shape=NEW.shape, stream=stream)


def shown_on(memory, stream):
    memory.stream = stream
    return memory


def without_waits(found):
    """An event that is not done at once is asked about again."""
    relax = "cuThreadExchangeStreamCaptureMode"
    waiting = {"cuEventQuery", "cuEventSynchronize"}
    while found[-1:] == [relax] and found.count(relax) > 1:
        begin = len(found) - 2 - found[-2::-1].index(relax)
        if not waiting.issuperset(found[begin + 1 : -1]):
            break
        del found[begin:]
    return [
        name
        for i, name in enumerate(found)
        if name != "cuEventQuery" or i == 0 or found[i - 1] != name
    ]


def warm_calls(standin, step, n=8):
    """The calls of one step that was done before, as its last n runs made them."""
    for _ in range(N_WITHOUT_GUESS):  # an earlier test may have shown a stream of another context
        step()
    gc.collect()
    ad.device("cuda:0").synchronize()
    runs = []
    for _ in range(n + 4):
        with standin.logged() as calls:
            made = step()
        runs.append(without_waits(names(calls)))
        del made
        ad.device("cuda:0").synchronize()  # no stream is busy with a free
    return runs[4:]


IMPORTS = {
    "exchange API, side stream": (
        lambda memory, stream: library(memory, stream.handle)(),
        ["EventRecord", "StreamIsCapturing"],
    ),
    "exchange API, legacy stream": (
        lambda memory, stream: library(memory, None)(),
        ["StreamIsCapturing", "EventRecord"],
    ),
    "exchange API, per-thread stream": (
        lambda memory, stream: library(memory, 2)(),
        ["EventRecord", "CtxGetCurrent", "StreamIsCapturing"],
    ),
    "CUDA Array Interface, handle": (
        lambda memory, stream: shown_on(memory, stream.handle),
        ["PointerGetAttributes", "StreamGetId", "EventRecord", "StreamIsCapturing"],
    ),
    "CUDA Array Interface, legacy stream": (
        lambda memory, stream: shown_on(memory, 1),
        ["PointerGetAttributes", "StreamIsCapturing", "EventRecord"],
    ),
    "CUDA Array Interface, no stream": (
        lambda memory, stream: shown_on(memory, None),
        ["PointerGetAttributes", "StreamIsCapturing", "EventRecord"],
    ),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_calls_of_a_warm_import(standin, memory, name):
    make, expected = IMPORTS[name]
    source = make(memory, memory.owner)
    assert warm_calls(standin, lambda: ad.tensor(source)) == [["cu" + e for e in expected]] * 8


def test_calls_of_a_warm_import_by_dlpack(standin, memory):
    """Every second import knows an idle import stream. The other one asks about both."""
    runs = warm_calls(standin, lambda: ad.tensor(Managing(memory)))
    usual = ["cuEventRecord", "cuStreamIsCapturing"]
    relax = "cuThreadExchangeStreamCaptureMode"
    asking = ["cuCtxGetCurrent", relax, "cuEventQuery", relax, *usual]
    assert sorted(runs, key=len) == [usual] * 4 + [asking] * 4


def test_calls_of_an_export_to_the_legacy_stream(standin, memory):
    tensor = ad.tensor(memory)
    runs = warm_calls(standin, lambda: tensor.__dlpack__(stream=1))
    assert runs == [["cuCtxGetCurrent", "cuStreamIsCapturing", "cuStreamWaitEvent"]] * 8


COPIES = {
    "to the host": (lambda there: there.to("cpu"), 8),
    "to the device": (lambda there: ad.tensor(np.zeros(1024)).to("cuda:0"), 9),
    "on the device": (lambda there: ad.tensor(there, copy=True), 8),
}


@pytest.mark.parametrize("name", COPIES)
def test_calls_of_a_small_copy(standin, name):
    """What is current is asked once, and the capture mode is changed once. On a busy machine an
    upload may find its stream busy with the one before."""
    step, n = COPIES[name]
    there = ad.tensor(np.zeros(1024)).to("cuda:0")
    there.synchronize()
    runs = warm_calls(standin, lambda: step(there), 40)
    assert min(map(len, runs)) == n
    for run in runs:
        assert run.count("cuCtxGetCurrent") == 1


def test_calls_of_a_copy_of_many_columns(standin):
    """One copy for each, and a handful of others."""
    batch = ad.record_batch({str(i): np.zeros(100) for i in range(100)}).to("cuda:0")
    batch.synchronize()
    runs = warm_calls(standin, lambda: batch.to("cpu"))
    asking = ("cuEventQuery", "cuThreadExchangeStreamCaptureMode")
    others = [[name for name in run if name not in asking] for run in runs]
    assert others[0].count("cuMemcpyAsync") == 100
    assert min(map(len, others)) <= 110


def test_record_determines_the_device_of_a_stream(standin, memory):
    """If the device is given, the event's context is guessed: the record succeeds or fails as a
    whole, since the driver refuses a stream of another context."""
    source = Exchanged(memory)
    with ad.use_stream(Stream()):
        ad.tensor(source)
        with standin.logged() as calls:
            tensor = ad.tensor(source)
    del tensor
    assert "cuCtxGetCurrent" not in names(calls)
    assert "cuCtxPushCurrent_v2" not in names(calls)


def test_context_is_guessed_again_after_streams_of_others(standin, memory):
    """The context of a stream may be a green one; after that most are the primary one again."""
    ask(cu.cuCtxCreate, None, 0, 0)
    other = Stream()
    ask(cu.cuCtxPopCurrent)
    source = Exchanged(memory)

    def n_asked():
        with standin.logged() as calls:
            ad.tensor(source)
        return names(calls).count("cuStreamGetCtx")

    with ad.use_stream(Stream()):
        least = min(n_asked() for _ in range(70))
        assert n_asked() == least
    with ad.use_stream(other):
        ad.tensor(source)
    with ad.use_stream(Stream()):
        counts = [n_asked() for _ in range(70)]
    assert counts[0] == least + 1 and counts[-1] == least


def test_host_memory_makes_no_call(standin):
    array = np.arange(10)
    with standin.logged() as calls:
        tensor = ad.tensor(array)
        pair = ad.array(array).__arrow_c_device_array__()
        back = np.from_dlpack(ad.tensor(pair))
        copy = ad.tensor(array, copy=True).to("cpu")
        copy.synchronize()
        del tensor, pair, back, copy
    assert names(calls) == []


def in_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def wait_for_queries(standin):
    end = time.monotonic() + LIMIT_S
    while names(standin.log()).count("cuEventQuery") < 10:
        assert time.monotonic() < end, "nobody waits for the device"
        time.sleep(0.001)


def test_other_threads_run_while_one_waits_in_the_driver(standin):
    """A thread that waits for the device holds no lock that another thread needs."""
    consumer = Stream()
    with Held() as held:
        tensor = ad.tensor(held.memory)
        with standin.logged():
            waiting = in_thread(tensor.synchronize)
            wait_for_queries(standin)
        assert waiting.is_alive()

        def work():
            for _ in range(50):
                exchange(held.memory, consumer)  # the same memory
                tensor.__dlpack__(stream=consumer.handle)  # the same event
                ad.array(tensor).__arrow_c_device_array__()
                tensor.is_ready()

        other = in_thread(work)
        other.join(LIMIT_S)
        assert not other.is_alive() and waiting.is_alive()
    waiting.join(LIMIT_S)
    assert not waiting.is_alive()


def test_threads_share_few_events(standin, memory):
    """Each thread reuses the event that it returned, so that events do not pile up."""
    consumers = [Stream() for _ in range(N_THREADS)]
    start = threading.Barrier(N_THREADS)
    errors = []

    def work(consumer):
        try:
            start.wait(LIMIT_S)
            for _ in range(200):
                exchange(memory, consumer)
        except BaseException as error:
            errors.append(error)

    with standin.logged() as calls:
        threads = [in_thread(lambda c=c: work(c)) for c in consumers]
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
    assert errors == []
    assert names(calls).count("cuEventRecord") >= 200 * N_THREADS
    assert names(calls).count("cuEventCreate") <= 4 * N_THREADS


@pytest.mark.parametrize("is_main", [True, False], ids=["main thread", "other thread"])
def test_wait_of_the_host_takes_no_processor(standin, is_main):
    """The driver's wait for an event spins unless the event was made for waits (BLOCKING_SYNC),
    and such events cost more elsewhere. So the host asks, with pauses of up to 0.5 ms."""
    n_spins = standin.count().host_spins
    with Held() as held:
        tensor = ad.tensor(held.memory)
        opened = []

        def observe():
            with standin.logged():
                wait_for_queries(standin)
            time.sleep(0.1)  # the pauses have grown
            begin = time.monotonic()
            with standin.logged() as calls:
                time.sleep(0.1)
            opened.append((names(calls).count("cuEventQuery"), time.monotonic() - begin))
            held.gate.open()

        def wait():
            tensor.synchronize()

        first, second = (wait, observe) if is_main else (observe, wait)
        other = in_thread(second)
        first()
        other.join(LIMIT_S)
        assert not other.is_alive()
    (n_queries, seconds), *_ = opened
    assert 0 < n_queries <= seconds / 0.0004
    assert standin.count().host_spins == n_spins
