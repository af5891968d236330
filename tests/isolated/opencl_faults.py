"""Cases that need a fresh process. Argument: the name of one of the functions below."""

import gc
import os
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import arrowdev as ad


def missing_library():
    """ARROWDEV_OPENCL_LIBRARY names no file: OpenCL data only pass through."""
    tensor = ad.Tensor.from_pointer(0x1230, (4,), "int64", "opencl:0", stream=0x4560)
    assert tensor.data_ptr == 0x1230
    with pytest.raises(ad.ExchangeError, match=r"ARROWDEV_OPENCL_LIBRARY.*/nonexistent") as caught:
        tensor.to("cpu")
    assert caught.value.reason == "runtime"
    assert all(device.type != 4 for device in ad.devices())


def no_platform():
    """The loader is present, but no driver."""
    with pytest.raises(ad.ExchangeError, match="found no OpenCL platform") as caught:
        ad.device("opencl:0").synchronize()
    assert caught.value.reason == "runtime"
    assert ".icd" in caught.value.hint


def no_kernels():
    """The compiler fails; everything else works."""
    bits = ad.array(np.arange(8)).to("opencl:0")
    assert np.asarray(bits.to("cpu")).sum() == 28
    import pyarrow as pa

    bools = ad.array(pa.array([True, False])).to("opencl:0")
    with pytest.raises(ad.ExchangeError, match="CL_BUILD_PROGRAM_FAILURE") as caught:
        ad.tensor(bools)
    assert caught.value.reason == "kernel"
    print(caught.value)
    assert "no such header" in caught.value.hint
    # does what the hint says
    assert ad.tensor(bools.to("cpu")).into(np.ndarray).tolist() == [True, False]


def failed_event():
    """Failed work is an error for every waiter, and never data."""
    import peer_opencl as peer

    cl = peer.cl
    context = cl.Context(peer.DEVICES)
    queue, consumer = (cl.CommandQueue(context, peer.DEVICES[0]) for _ in range(2))
    memory = peer.buffer(context, np.arange(4))
    gate = cl.UserEvent(context)
    # PoCL needs a reference to work that waits for a failing event.
    held = cl.enqueue_barrier(queue, wait_for=[gate])
    tensor = ad.Tensor.from_pointer(
        memory.int_ptr, (4,), "int64", peer.name(), owner=memory, stream=queue
    )
    gate.set_status(-5)
    # OpenCL does not define the code: work that waited for the failed event gets its own.
    pattern = r"the work that the event stands for .*failed: CL_\w+ \(-\d+\)"
    for call in (
        tensor.is_ready,
        tensor.synchronize,
        lambda: tensor.wait(consumer),
        lambda: tensor.to("cpu"),
        lambda: tensor.to("cpu", stream=consumer),
        lambda: tensor.to(peer.name(1)),
        lambda: ad.tensor(tensor, copy=True, stream=consumer),
    ):
        with pytest.raises(ad.DeviceError, match=pattern) as caught:
            call()
        assert caught.value.code < 0
    del held
    fine = ad.Tensor.from_pointer(memory.int_ptr, (4,), "int64", peer.name(), owner=memory)
    assert np.asarray(fine.to("cpu")).tolist() == [0, 1, 2, 3]


def fork():
    """A child cannot use the runtime that its parent started."""
    tensor = ad.tensor(np.arange(4)).to("opencl:0")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.raises(ad.ExchangeError, match="before this process was forked"):
                tensor.to("cpu")
            del tensor
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert np.asarray(tensor.to("cpu")).tolist() == [0, 1, 2, 3]


def never():
    """An event that never completes: nothing is released, and the process can end."""
    import peer_opencl as peer

    cl = peer.cl
    context = cl.Context(peer.DEVICES)
    queue, consumer = (cl.CommandQueue(context, peer.DEVICES[0]) for _ in range(2))
    memory = peer.buffer(context, np.arange(4))
    owner = set()
    is_alive = weakref.ref(owner)
    gate = cl.UserEvent(context)
    cl.enqueue_barrier(queue, wait_for=[gate])
    tensor = ad.Tensor.from_pointer(
        memory.int_ptr, (4,), "int64", peer.name(), owner=owner, stream=queue
    )
    tensor.wait(consumer)
    del tensor, owner
    gc.collect()
    time.sleep(0.2)
    assert is_alive() is not None


def platforms():
    """Memory is copied from one driver to another via the host."""
    import peer_opencl as peer

    cl = peer.cl
    device = peer.OTHERS[0].get_devices()[0]
    name = next(str(d) for d in ad.devices() if d.type == 4 and d.name == device.name)
    context = cl.Context(peer.DEVICES)
    queue = cl.CommandQueue(context, peer.DEVICES[0])
    other = cl.Context([device])  # kept, because Intel's queues do not keep their context
    stranger = cl.CommandQueue(other)
    memory = peer.buffer(context, np.zeros(4, "i8"))
    with peer.Gate(queue) as gate:
        peer.write_later(queue, memory, np.arange(4))
        tensor = ad.Tensor.from_pointer(
            memory.int_ptr, (4,), "int64", peer.name(), owner=memory, stream=queue
        )
        with pytest.raises(ad.ExchangeError, match="the queue runs on"):
            tensor.wait(stranger)
        threading.Timer(0.2, gate.open).start()
        there = tensor.to(name, stream=stranger)  # waits for the data
    assert str(there.device) == name
    assert np.asarray(there.to("cpu")).tolist() == [0, 1, 2, 3]
    shared = cl.SVMAllocation(other, 32, 0, cl.svm_mem_flags.READ_WRITE)
    cl.enqueue_copy(stranger, shared, np.arange(4))
    tensor = ad.Tensor.from_pointer(shared.svm_ptr, (4,), "int64", name, stream=stranger)
    assert np.asarray(tensor.to(peer.name()).to("cpu")).tolist() == [0, 1, 2, 3]


globals()[sys.argv[1]]()
print("end of the script")
