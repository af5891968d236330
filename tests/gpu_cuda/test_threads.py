"""Threads, per-thread default streams, forks, new processes."""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from gpu import (
    NEW,
    OLD,
    Gate,
    Held,
    Memory,
    Pinned,
    Stream,
    Watched,
    ask,
    copied_by_another_thread,
    cu,
    wait_for_frees,
)

import arrowdev as ad

TESTS = Path(__file__).resolve().parent.parent


def on_thread(function):
    """The function's result on a new thread, which has no current context."""
    results = []

    def run():
        try:
            results.append(function())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert results, "the thread did not end"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def test_thread_without_a_context():
    with Held() as held:
        array = on_thread(lambda: ad.array(held.memory))
        assert not on_thread(array.is_ready)
    assert on_thread(lambda: array.to("cpu").to_pylist()) == NEW.tolist()


def test_per_thread_stream_of_the_producer():
    """Stream 2 differs between threads: the event is recorded on this thread's."""
    memory, source = Memory(OLD, stream=2), Pinned(NEW)
    with Gate(2):
        ask(cu.cuMemcpyAsync, memory.pointer, int(source.pointer), NEW.nbytes, 2)
        array = ad.array(memory)
        assert not on_thread(array.is_ready)
    assert on_thread(lambda: array.to("cpu").to_pylist()) == NEW.tolist()
    assert array.is_ready()


def test_per_thread_stream_of_the_consumer():
    with Held() as held:
        capsule = ad.tensor(held.memory).__dlpack__(stream=2)
        assert cu.cuStreamQuery(2)[0] == 600
    ask(cu.cuStreamSynchronize, 2)
    del capsule


def test_per_thread_stream_is_never_exported():
    memory = Memory(OLD, stream=2)
    with Gate(2):
        assert ad.tensor(memory).__cuda_array_interface__["stream"] not in (0, 2)
    ask(cu.cuStreamSynchronize, 2)


def test_memory_used_on_another_threads_stream():
    """Recorded as stream 2 there; released here, where 2 is another stream."""
    target, tensors = Pinned(OLD), [ad.tensor(Watched(NEW))]
    Watched.freed = 0
    with copied_by_another_thread(tensors, target):
        tensors.clear()
        gc.collect()
        time.sleep(0.05)
        assert Watched.freed == 0
    wait_for_frees(1)
    assert target.array.tolist() == NEW.tolist()


def test_default_stream_of_another_context():
    """Recorded as stream 1 of the current context; released on a thread without a context."""
    user = ask(cu.cuCtxCreate, None, 0, 0)
    try:
        blocking, target = Stream(flags=0), Pinned(OLD)
        tensors = [ad.tensor(Watched(NEW, is_ordered=False))]
        Watched.freed = 0
        with Gate(blocking.handle):  # blocks stream 1 of its context
            tensors[0].wait(1)
            ask(cu.cuMemcpyDtoHAsync, int(target.pointer), tensors[0].data_ptr, NEW.nbytes, 1)
            on_thread(tensors.clear)
            time.sleep(0.05)
            assert Watched.freed == 0
        wait_for_frees(1)
        assert target.array.tolist() == NEW.tolist()
        blocking.destroy()
    finally:
        ask(cu.cuCtxPopCurrent)
        ask(cu.cuCtxDestroy, user)


def test_concurrent_threads():
    memories = [Memory(NEW + i, stream=1) for i in range(8)]
    context = ask(cu.cuCtxGetCurrent)
    n_devices = ask(cu.cuDeviceGetCount)
    errors = []

    def work(i):
        try:
            ask(cu.cuCtxSetCurrent, context)
            for _ in range(20):
                array = ad.array(memories[i])
                ad.tensor(array).__dlpack__(stream=1)
                there = array.to(f"cuda:{i % n_devices}")
                assert there.to("cpu").to_pylist() == (NEW + i).tolist()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[i]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []


def test_forked_child_is_refused():
    memory = Memory(NEW)
    tensor = ad.tensor(memory)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            tensor.to("cpu")
        except ad.ExchangeError:
            code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tensor.to("cpu").device == ad.device("cpu")


ALONE = """
import gpu
from gpu import cu, ask
import arrowdev as ad
ask(cu.cuInit, 0)
assert ask(cu.cuDevicePrimaryCtxGetState, 0)[1] == ask(cu.cuDevicePrimaryCtxGetState, 1)[1] == 0
assert ad.device("cuda:1") in ad.devices()
assert ask(cu.cuDevicePrimaryCtxGetState, 0)[1] == ask(cu.cuDevicePrimaryCtxGetState, 1)[1] == 0
ask(cu.cuCtxSetCurrent, ask(cu.cuDevicePrimaryCtxRetain, 0))
memory = gpu.Memory(gpu.NEW, stream=1)
array = ad.array(memory)
ad.tensor(array).__dlpack__(stream=1)
assert array.to("cpu").to_pylist() == gpu.NEW.tolist()
array.to("cuda:0").synchronize()
assert ask(cu.cuDevicePrimaryCtxGetState, 1)[1] == 0, "a context on a device that nobody touched"
own = gpu.Stream()
kept = array.to("cuda:0"), ad.tensor(array).__dlpack__(stream=own.handle)
print("end")
"""


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("held", [False, True])
def test_no_context_on_unused_device_and_silent_exit(standin, held):
    """A new process that ends with live objects or with pending work."""
    head = (
        f"import sys; sys.path[:0] = [{str(TESTS / 'helpers')!r}, {str(TESTS / 'gpu_cuda')!r}]\n"
    )
    head += "import fakegpu\nfakegpu.load('cuda')\n"
    tail = "gate = gpu.Gate(1); pending = ad.array(memory)\n" if held else ""
    done = subprocess.run(
        [sys.executable, "-c", head + ALONE + tail],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "end", "")
