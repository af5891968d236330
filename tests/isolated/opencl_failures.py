"""A whole exchange in which the n-th call of OpenCL fails, repeated without a failure.

Arguments: the library of failing_opencl.py, and "first" or "again". "first" covers the calls
that start the runtime or do something for the first time. Each runs in a separate process,
forked before the first call of OpenCL. "again" covers every call of an exchange whose setup is
done.
"""

import faulthandler
import gc
import os
import sys
import time
import traceback
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from failing_opencl import FailingOpenCL

import arrowdev as ad

library = FailingOpenCL(sys.argv[1])
N = 1000
EXPECTED = np.arange(N, dtype="i8")


class Peer:
    def __init__(self):
        import pyopencl as cl  # it has its own libOpenCL

        devices = cl.get_platforms()[0].get_devices()
        self.cl = cl
        self.context = cl.Context(devices)
        self.queues = [cl.CommandQueue(self.context, devices[0]) for _ in range(3)]


def exchange(peer):
    """Uses the backend in each way and checks the results."""
    cl, queues = peer.cl, peer.queues
    memory = cl.Buffer(
        peer.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=EXPECTED
    )
    shared = cl.SVMAllocation(peer.context, 8 * N, 0, cl.svm_mem_flags.READ_WRITE)
    cl.enqueue_copy(queues[0], shared, EXPECTED)
    whole = {"shape": (N,), "dtype": "int64", "device": "opencl:0", "stream": queues[0]}
    for pointer, owner in ((memory.int_ptr, memory), (shared.svm_ptr, shared)):
        tensor = ad.Tensor.from_pointer(pointer, owner=owner, **whole)
        there = ad.tensor(ad.array(ad.array(tensor).__arrow_c_device_array__()))
        there.wait(queues[1])
        copied = ad.tensor(there, copy=True, stream=queues[2])
        assert (np.asarray(copied.to("cpu")) == EXPECTED).all()
    rows = ad.tensor(EXPECTED.reshape(100, 10)[:, 2:7])
    assert (np.asarray(rows.to("opencl:1").to("opencl:0").to("cpu")) == np.asarray(rows)).all()
    bits = ad.array(pa.array([True, False, None, True] * 100)).to("opencl:0")
    assert bits.count_nulls() == 100
    bytes_ = ad.tensor(ad.array(pa.array([True, False] * 100)).to("opencl:0"))
    assert (np.asarray(bytes_.to("cpu")) == [True, False] * 100).all()
    tensor.synchronize()
    assert tensor.is_ready()
    ad.device("opencl:0").synchronize()
    assert ad.device("opencl:1").name


# Where arrowdev cannot record the end of the last use of memory, it cannot prove that
# the use has ended. Then the memory, or the resource of an event, is kept permanently.
RECORDING = {"clEnqueueBarrierWithWaitList", "clFlush"}
kept = {"event": 0, "memory": 0, "kernel": 0}


def wait_for_releases(failed=None, held=None):
    """Waits until arrowdev holds only what it keeps permanently, which is at most one object
    for each recording that failed, and only `held` of other kinds. Returns these.

    A queue of arrowdev's own for work after pending data is made when data are first pending in
    its context. The registry holds a second reference to it."""
    gc.collect()
    for device in ad.devices():
        if device.type == ad.DeviceType.OPENCL:
            device.synchronize()  # runs the deferred releases
    limit = 1 if failed in RECORDING else 0
    end = time.monotonic() + 20
    while True:  # OpenCL calls back at any time
        alive = library.alive
        more = {kind: alive[kind] - n for kind, n in kept.items()}
        others = {kind: n for kind, n in alive.items() if kind not in kept}
        n_new = others["queue"] - held["queue"] if held else 0
        if (
            sum(n for n in more.values() if n > 0) <= limit
            and others == {**(held or others), "queue": others["queue"]}
            and n_new in range(0, 2 * others["context"] + 1, 2)
        ):
            break
        assert time.monotonic() < end, (failed, more, others, held)
        time.sleep(0.01)
    kept.update({kind: alive[kind] for kind in kept})
    return others


def exchange_failing(peer, n):
    """True if there was an n-th call."""
    raised = None
    library.arm(n)
    try:
        exchange(peer)
    except (ad.DeviceError, ad.ExchangeError, MemoryError) as error:
        raised = str(error)
    failed = library.failed
    library.arm(0)
    assert raised is None or failed, raised
    assert raised != "", failed
    return failed


def fail_first(n):
    peer = Peer()
    failed = exchange_failing(peer, n)  # the number of event queries varies a little
    gc.collect()
    if ad.device("opencl:0") in ad.devices():
        exchange(peer)
    else:  # the runtime did not start: the reason is cached
        with pytest.raises((ad.DeviceError, ad.ExchangeError), match=failed):
            ad.device("opencl:0").synchronize()
    wait_for_releases(failed)


def fail_again():
    peer = Peer()
    exchange(peer)
    held = wait_for_releases()
    n = 1
    while failed := exchange_failing(peer, n):
        wait_for_releases(failed, held)
        n += 1
    assert n > 100, n
    exchange(peer)


def forked(function, *arguments):
    """The result of the call, made in a child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        code = 1
        try:
            os.write(write, (function(*arguments) or "").encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with open(read, encoding="ascii") as file:
        result = file.read()
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"{function.__name__}{arguments}: wait status {status}"
    return result


def names_of_all_calls():
    exchange(Peer())
    wait_for_releases()
    return " ".join(library.names)


if sys.argv[2] == "again":
    fail_again()
else:
    seen = Counter()
    for number, name in enumerate(forked(names_of_all_calls).split(), 1):
        seen[name] += 1
        if seen[name] <= 2:
            forked(fail_first, number)
print("end of the script")
