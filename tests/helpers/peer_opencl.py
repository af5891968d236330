"""pyopencl on PoCL, an OpenCL of the CPU, and gates that block work.

Other libraries may load another OpenCL into the process. For this reason the
devices are found by name, and arrowdev's ordinals may differ.
"""

import ctypes
import functools
import time

import numpy as np
import pocl_environment  # noqa: F401
import pytest

cl = pytest.importorskip("pyopencl")

import arrowdev as ad  # noqa: E402

LIMIT_S = 20.0
COMPLETE = cl.command_execution_status.COMPLETE
READ_WRITE = cl.mem_flags.READ_WRITE


def platforms():
    try:
        return cl.get_platforms()
    except cl.LogicError:  # there is no platform
        return []


FOUND = [p for p in platforms() if p.name == "Portable Computing Language"]
if not FOUND:
    pytest.skip("could not import 'pocl': OpenCL has no such platform", allow_module_level=True)
DEVICES = FOUND[0].get_devices()
OTHERS = [p for p in platforms() if p != FOUND[0]]


@functools.cache
def ids():
    """arrowdev's ordinals of DEVICES."""
    found = [d.id for d in ad.devices() if d.type == 4 and d.name == DEVICES[0].name]
    assert len(found) == len(DEVICES)
    return found


def name(index=0):
    return f"opencl:{ids()[index]}"


def wait_until(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it did not happen within the limit"
        time.sleep(0.001)


class Gate:
    """Blocks all work that is submitted to `queue` after it until it is opened."""

    def __init__(self, queue):
        self.event = cl.UserEvent(queue.context)
        self.is_open = False
        cl.enqueue_barrier(queue, wait_for=[self.event])

    def open(self, status=COMPLETE):
        if not self.is_open:
            self.is_open = True
            self.event.set_status(status)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.open()


def buffer(context, values):
    return cl.Buffer(context, READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=values)


def write_later(queue, target, values):
    """Enqueues a write from a buffer: with host memory, pyopencl waits when the event dies."""
    return cl.enqueue_copy(queue, target, buffer(queue.context, values))


def read(memory, dtype, count, queue=None, offset=0):
    """The content of a buffer (or its handle), read by a queue that waits for no other work."""
    if isinstance(memory, int):
        memory = cl.MemoryObject.from_int_ptr(memory)
    out = np.zeros(count, dtype)
    queue = queue or cl.CommandQueue(memory.context, memory.context.devices[0])
    cl.enqueue_copy(queue, out, memory, src_offset=offset)
    return out


def event_of(thing):
    """The cl_event that sync_event of an array or tensor points to."""
    handle = ctypes.c_void_p.from_address(thing.sync_event).value
    return cl.Event.from_int_ptr(handle)


def is_complete(event):
    return event.command_execution_status == COMPLETE
