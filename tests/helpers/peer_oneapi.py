"""dpctl and dpnp on the CPU, and a gate that blocks work until it is opened.

This module lists the devices before any other SYCL user does: see sycl_environment.py.
"""

import ctypes
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import sycl_environment

LIMIT_S = 20.0  # upper limit of every wait; a closed gate opens itself long before

dpctl = pytest.importorskip("dpctl")
dpnp = pytest.importorskip("dpnp")
import dpctl.memory as usm  # noqa: E402
import dpnp.tensor as dpt  # noqa: E402
from dpctl.program import create_program_from_source  # noqa: E402


def list_devices():
    """Lists the devices. SYCL reads the variable once; other users of OpenCL must not see it."""
    with tempfile.TemporaryDirectory() as folder:
        added = sycl_environment.variables(folder)
        os.environ.update(added)
        try:
            return dpctl.get_devices()
        finally:
            for name in added:
                del os.environ[name]


DEVICES = list_devices()
WITH_USM = [device for device in DEVICES if device.has_aspect_usm_device_allocations]
if not WITH_USM:
    pytest.skip(
        "could not import 'intel_opencl_rt': SYCL has no device with USM", allow_module_level=True
    )
DEVICE = WITH_USM[0]
ID = DEVICE.get_device_id()
NAME = f"oneapi:{ID}"


def queue(*, in_order=False, context=None):
    context = context or dpctl.SyclQueue(DEVICE).sycl_context
    return dpctl.SyclQueue(context, DEVICE, property="in_order" if in_order else "default")


def other_context():
    """A separate context: SyclContext(device) returns the default one."""
    context = dpctl.SyclContext([DEVICE])
    assert context != dpctl.SyclQueue(DEVICE).sycl_context
    return context


def is_done(event):
    return event.execution_status == dpctl.event_status_type.complete


# Spins until the host writes flag[0]; ends after `limit` rounds.
SOURCE = """
__kernel void gate(__global volatile int *flag, long limit)
{
    long i = 0;
    flag[2] = 1;
    while (i < limit && atomic_add(flag, 0) == 0) {
        i++;
    }
    flag[1] = i < limit ? 1 : 2;
}
__kernel void add(__global long *data, long value)
{
    data[get_global_id(0)] += value;
}
"""
ROUNDS_PER_S = 1.7e8  # approximate; a slower machine needs longer

programs = []


def kernel(queue, name):
    """A kernel that is built once per context: a build takes longer than a gate stays closed."""
    for context, program in programs:
        if context == queue.sycl_context:
            return program.get_sycl_kernel(name)
    program = create_program_from_source(queue, SOURCE)
    programs.append((queue.sycl_context, program))
    return program.get_sycl_kernel(name)


def lend_a_hand():
    """Runs work that is ready: closed gates may occupy all threads of the device, but a thread
    that waits for the device executes work for it."""
    helper = queue()
    source, target = (usm.MemoryUSMDevice(64, queue=helper) for _ in range(2))
    for _ in range(5):
        helper.memcpy_async(target, source, 64).wait()


class Gate:
    """Blocks all work that is submitted to `queue` after it until it is opened. (On an
    out-of-order queue, only with a barrier.)"""

    def __init__(self, queue, *, seconds=10.0, barrier=True):
        self.queue = queue
        self.memory = usm.MemoryUSMShared(64, queue=queue)
        self.flags = np.frombuffer(memoryview(self.memory), dtype="i4")
        self.flags[:] = 0
        # submit() would wait for pending work.
        rounds = ctypes.c_longlong(int(seconds * ROUNDS_PER_S))
        self.event = queue.submit_async(kernel(queue, "gate"), [self.memory, rounds], [1])
        if barrier:
            queue.submit_barrier()
        # A thread that waits for this device executes its work; it must not
        # execute this kernel.
        wait_until(lambda: not is_done(self.event) and self.flags[2] == 1)

    @property
    def is_closed(self):
        return self.flags[0] == 0 and self.flags[1] == 0

    def open(self):
        assert self.flags[1] != 2, "the gate gave up: the test took too long"
        self.flags[0] = 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.flags[0] = 1
        self.event.wait()


def memory_of(array):
    """The memory of a dpnp array or usm_ndarray. as_usm_memory() would wait for the device."""
    return (array if isinstance(array, dpt.usm_ndarray) else array.get_array()).usm_data


def add_later(array, value, *, after=()):
    """Enqueues array += value, an int64 dpnp array, on its queue, without a host wait
    and without freeing memory. With `after`, only after these events."""
    queue, memory = array.sycl_queue, memory_of(array)
    arguments = [memory, ctypes.c_longlong(value)]
    queue.submit_async(kernel(queue, "add"), arguments, [array.size], None, list(after))
    if not after:
        queue.submit_barrier()


def host_task(queue, after):
    """The event of a host task. Dependent work reaches the driver only after the task ran;
    dpctl adds a host task after each of its kernels."""
    return queue._submit_keep_args_alive([], list(after))


def read(array, stream=None):
    """The values of a dpnp array, copied by a queue of its context that waits
    for no other work."""
    out = np.zeros(array.shape, array.dtype)
    (stream or queue(context=array.sycl_context)).memcpy(out, memory_of(array), out.nbytes)
    return out


def wait_until(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.001)


def library_path():
    return str(Path(dpctl.__file__).parent / "libDPCTLSyclInterface.so")
