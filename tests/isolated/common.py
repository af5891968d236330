"""Shared functions of these scripts. Each runs in a separate process, see test_isolated.py."""

import ctypes
import threading

import arrow_ctypes as ac

import arrowdev as ad
from arrowdev.testing import software_device


class Owner:
    """Memory owned by Python, with a destructor that reports."""

    def __init__(self, name="owner"):
        self.name = name
        self.memory = ac.int64s(1, 2, 3, 4)

    @property
    def __array_interface__(self):
        data = (ac.address(self.memory), False)
        return {"shape": (4,), "typestr": "<i8", "version": 3, "data": data}


class ReportingOwner(Owner):
    """Not in __main__: its class, that module and what the module holds would be a cycle."""

    def __del__(self):
        print(f"{self.name} was released", flush=True)


def everything():
    """One object of each kind that can be alive."""
    array = ad.array(Owner())
    tree = ac.batch(3)
    batch = ad.array(ac.Host(tree))
    tensor = ad.tensor(Owner())
    return {
        "array": array,
        "batch": batch,
        "tensor": tensor,
        "slices": [array[1:], *batch.children, batch.field(0), batch[:1]],
        "schema": batch.schema,
        "pairs": [array.__arrow_c_device_array__(), batch.__arrow_c_array__()],
        "streams": [batch.__arrow_c_stream__(), array.__arrow_c_device_stream__()],
        "tensors": [tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))],
        "views": [memoryview(tensor), memoryview(array)],
        "columns": ad.record_batch({"x": array, "y": Owner()}),
        "buffers": array.buffers,
        "device": array.device,
    }


def moved(capsule, name):
    """Moves the struct of a capsule into memory that outlives Python."""
    source = ac.inside(capsule, name)
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    struct = type(source).from_address(libc.malloc(ctypes.c_size_t(ctypes.sizeof(source))))
    ctypes.memmove(ac.address(struct), ac.address(source), ctypes.sizeof(source))
    base = source.array if isinstance(source, ac.ArrowDeviceArray) else source
    base.release = None
    return struct


def read_pending():
    """The read of a stream gives the GIL up, and the wait in it must not do so again.

    PyGILState_Check() is true for any thread once there was another interpreter.
    """
    with software_device() as device:
        source = device.array([1, 2, 3], queue=device.queue())
        source.queue.hold()
        stream = ad.array_stream(ad.array(source)).to("cpu")
        timer = threading.Timer(0.2, source.queue.release)
        timer.start()
        assert next(stream).to_pylist() == [1, 2, 3]
        timer.join()


def end():
    print("end of the script", flush=True)
