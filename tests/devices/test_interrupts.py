"""A signal ends only the host's wait: pending work continues, and its memory is kept until
it is done."""

import contextlib
import ctypes
import errno
import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from interrupts import Interrupted, interrupt, signals
from peer import Peer

import arrowdev as ad

np = Peer("numpy")
HERE, THERE = "ext_dev:0", "ext_dev:1"


@contextlib.contextmanager
def pending(device, queue=None, values=(1, None, 3)):
    """An array whose values are written after the block."""
    queue = queue or device.queue()
    with queue.held():
        yield ad.array(device.array(list(values), queue=queue))


def settled_counts(device):
    gc.collect()
    for place in (HERE, THERE):
        ad.device(place).synchronize()
    device.synchronize()
    return device.live()[:5]


def settles_to(device, before):
    """Polls, because the thread that was left in the wait takes time to return."""
    end = time.monotonic() + 20
    while settled_counts(device) != before:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


WAITS = {
    "synchronize": lambda array: array.synchronize(),
    "array to host": lambda array: array.to("cpu"),
    "tensor to host": lambda array: ad.tensor(array, nulls="ignore").to("cpu"),
    "import to host": lambda array: ad.array(array, device="cpu"),
    "dlpack": lambda array: ad.tensor(array, nulls="ignore").__dlpack__(
        dl_device=(1, 0), copy=True, max_version=(1, 0)
    ),
    "nulls": lambda array: array.count_nulls(),
    "device": lambda array: ad.device(HERE).synchronize(),
    # The GIL was released by an outer call.
    "stream to host": lambda array: next(ad.array_stream([array]).to("cpu", prefetch=0)),
    "prefetched": lambda array: next(ad.array_stream([array, array]).to("cpu", prefetch=1)),
    "read_all": lambda array: ad.array_stream([array]).to("cpu").rechunk(2).read_all(),
}


@pytest.mark.parametrize("name", WAITS)
def test_wait_ends(device, name):
    queue = device.queue()
    before = settled_counts(device)
    with pending(device, queue) as array:
        interrupt(partial(WAITS[name], array))
        assert not array.is_ready()
        assert device.kind_of(array.buffers[1].data_ptr) == "device"
    assert array.to("cpu").to_pylist() == [1, None, 3]
    WAITS[name](array)
    del array
    assert settles_to(device, before)


def test_memory_outlives_the_wait(device):
    """The copy to the host is in progress. It continues, and both memories are kept for it."""
    queue = device.queue()
    before = settled_counts(device)
    with pending(device, queue) as array:
        address = array.buffers[1].data_ptr
        interrupt(partial(array.to, "cpu"))
        del array
        gc.collect()
        assert device.kind_of(address) == "device"
    assert settles_to(device, before)  # and no copy failed


def test_interrupted_wait_keeps_deferred_releases(device):
    """Device.synchronize() of the device that uses the memory waits for the release."""
    producer, consumer = device.queue(), device.queue(1)
    array = ad.array(device.array([1, 2, 3], queue=producer))
    address = array.buffers[1].data_ptr
    with consumer.held():
        copied = array.to(THERE, stream=consumer)
        del array
        gc.collect()
        interrupt(lambda: ad.device(HERE).synchronize())
        assert device.kind_of(address) == "device"
    ad.device(HERE).synchronize()
    producer.synchronize()
    assert device.kind_of(address) is None
    assert copied.to("cpu").to_pylist() == [1, 2, 3]


def test_wait_continues_if_handler_raises_nothing(device):
    queue = device.queue()
    n_signals = []

    def handler():
        n_signals.append(1)
        if len(n_signals) == 3:
            queue.release()

    queue.hold()
    array = ad.array(device.array([1, 2, 3], queue=queue))
    with signals(handler):
        array.synchronize()
    assert len(n_signals) >= 3
    assert array.is_ready()


def test_other_threads_are_not_interrupted(device):
    """Python runs signal handlers only in the main thread."""
    ended = threading.Event()
    with pending(device) as array:
        thread = threading.Thread(target=lambda: (array.synchronize(), ended.set()))
        thread.start()
        interrupt(partial(ended.wait, 20))
        assert not ended.is_set()
    assert ended.wait(20)
    thread.join(20)


def test_wait_in_destructor_continues(device):
    """A destructor cannot raise, so the wait continues."""
    queue = device.queue()
    queue.delay = 0.2  # for each of several operations
    array = ad.array(device.array([1, 2, 3], queue=queue))

    class Waits:
        def __del__(self):
            array.synchronize()
            seen.append(array.is_ready())

    seen, n_signals = [], []
    with signals(lambda: n_signals.append(1)), pytest.raises(ZeroDivisionError):
        waits = [Waits()]
        try:
            1 / 0
        finally:
            waits.clear()
    assert seen == [True]


def test_handler_waits(device):
    inner = ad.array(device.array([4]))
    found = []

    def handler():
        if not found:
            found.append(inner.to("cpu").to_pylist())
            raise Interrupted

    with pending(device) as array, signals(handler), pytest.raises(Interrupted):
        array.synchronize()
    assert found == [[4]]


FORKS = """
    import os
    import signal
    import arrowdev as ad
    from arrowdev.testing import software_device

    class Interrupted(Exception):
        pass

    def handler(number, frame):
        global child
        child = os.fork()  # the timer, which fires once, is the parent's alone
        if child != 0:
            assert os.waitpid(child, 0)[1] == 0
            raise Interrupted

    device = software_device().__enter__()
    queue = device.queue()
    queue.hold()
    array = ad.array(device.array([1, 2, 3], queue=queue))
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        array.synchronize()
    except BaseException as error:
        wanted = ad.ExchangeError if child == 0 else Interrupted
        os._exit(0 if isinstance(error, wanted) else 1)
    os._exit(2)
"""


def test_handler_forks():
    """The child does not wait, because no thread there would end the wait."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKS)],
        timeout=60,
        cwd=Path(ad.__file__).parent.parent,
    )
    assert done.returncode == 0


@pytest.mark.parametrize("wait", ["array.synchronize()", "array.to('cpu')", "place.synchronize()"])
def test_control_c_ends_the_program(wait):
    code = f"""
        import signal
        import arrowdev as ad
        from arrowdev.testing import software_device

        device = software_device().__enter__()
        queue = device.queue()
        queue.hold()
        array = ad.array(device.array([1, 2, 3], queue=queue))
        place = ad.device("ext_dev:0")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
        print("begin", flush=True)
        {wait}
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(ad.__file__).parent.parent,
    )
    assert process.stdout.readline() == "begin\n"
    time.sleep(0.2)  # if the signal comes before the wait, the program ends all the same
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")


def test_interrupted_stream_has_lost_a_batch(device):
    with pending(device) as array:
        stream = ad.array_stream([array, array]).to("cpu")
        interrupt(partial(next, stream))
        with pytest.raises(ad.ExchangeError, match="a signal ended an earlier wait") as info:
            next(stream)
        assert info.value.code == errno.EINTR


def test_mapped_stream(device):
    """The interrupt is not an error of the iterable that map() reads."""
    ready = ad.array(device.array([1, None, 3]))
    with pending(device) as array:
        stream = ad.array_stream([ready, array]).to("cpu", prefetch=0).map(lambda batch: batch)
        assert next(stream).to_pylist() == [1, None, 3]
        interrupt(partial(next, stream))


def test_consumer_with_errno_only(device):
    """The handler's exception is raised after the consumer's own error."""
    reader = Peer("pyarrow").RecordBatchReader

    def read(array):
        stream = ad.array_stream([ad.record_batch({"a": array})]).to("cpu")
        try:
            reader.from_stream(stream).read_next_batch()
        finally:
            for _ in range(1000):  # the interpreter checks for pending calls now and then
                pass

    with pending(device) as array:
        interrupt(partial(read, array))


def test_full_pending_call_queue(device):
    """KeyboardInterrupt is raised instead, and the exception itself at the next wait."""
    reader = Peer("pyarrow").RecordBatchReader
    queue = device.queue()
    add = partial(ctypes.pythonapi.Py_AddPendingCall, ctypes.CDLL(None).abs)  # abs(0) is 0

    def handler():
        signal.setitimer(signal.ITIMER_REAL, 0)
        # No bytecode runs in between, so no call is made. The last one is refused.
        max([None] * 400 + [object()], key=add)

    with pending(device, queue) as array:
        stream = ad.array_stream([ad.record_batch({"a": array})]).to("cpu")
        batches = reader.from_stream(stream)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with signals(handler, every=0.5), pytest.raises(KeyboardInterrupt):
                try:
                    batches.read_next_batch()
                finally:
                    for _ in range(1000):
                        pass
        finally:
            signal.signal(signal.SIGINT, before)
        with pytest.raises(ctypes.ArgumentError):
            queue.synchronize(timeout=5)


@pytest.mark.parametrize("timeout", [None, 50])
def test_waits_of_the_software_device(device, timeout):
    queue = device.queue()
    memory = device.empty(8)
    with queue.held():
        event = queue.record()
        read = partial(queue.read, memory)
        for wait in (queue.synchronize, event.synchronize, device.synchronize, read):
            interrupt(partial(wait, timeout=timeout))
        interrupt(partial(device.to_host, device.array([1]), queue=queue))
        with pytest.raises(ad.DeviceError, match="TIMEOUT"):
            queue.synchronize(timeout=0.12)


class TestOpenCL:
    @pytest.fixture
    def peer(self):
        import peer_opencl  # skips without OpenCL

        return peer_opencl

    @pytest.mark.parametrize("name", ["synchronize", "tensor to host", "device"])
    def test_wait_ends(self, peer, name):
        context = peer.cl.Context(peer.DEVICES)
        queue = peer.cl.CommandQueue(context, peer.DEVICES[0])
        memory = peer.buffer(context, np.zeros(4, "i8"))
        with peer.Gate(queue):
            peer.write_later(queue, memory, np.arange(4))
            tensor = ad.Tensor.from_pointer(
                memory.int_ptr, (4,), "int64", peer.name(), owner=memory, stream=queue
            )
            del memory
            waits = {
                "synchronize": tensor.synchronize,
                "tensor to host": lambda: tensor.to("cpu"),
                "device": ad.device(peer.name()).synchronize,
            }
            interrupt(waits[name])
            assert not tensor.is_ready()
        assert np.asarray(tensor.to("cpu")).tolist() == [0, 1, 2, 3]
