"""Helpers of the CUDA tests, for the stand-in driver and for a GPU."""

import contextlib
import ctypes
import functools
import gc
import os
import threading
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
from cuda.bindings import driver as cu

import arrowdev as ad

IS_REAL = os.environ.get("ARROWDEV_GPU", "0") not in ("", "0")

# Old and new content of memory that a held producer writes.
OLD = np.zeros(64, "int64")
NEW = np.arange(64, dtype="int64") * 3 + 1


class DriverError(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = int(code)


def code_of(function, *arguments):
    """Calls a function of the driver and returns its error code."""
    return int(function(*arguments)[0])


def ask(function, *arguments):
    """Calls a function of the driver and returns its results without the error code."""
    code, *results = function(*arguments)
    if code != 0:
        raise DriverError(code)
    return results[0] if len(results) == 1 else tuple(results) or None


class Pinned:
    """Pinned host memory as a NumPy array."""

    def __init__(self, array):
        self.pointer = ask(cu.cuMemHostAlloc, array.nbytes, 0)
        memory = (ctypes.c_char * array.nbytes).from_address(int(self.pointer))
        self.array = np.frombuffer(memory, array.dtype).reshape(array.shape)
        self.array[...] = array

    def __del__(self):
        if cu is not None:  # the process does not end
            cu.cuMemFreeHost(self.pointer)


def fill(pointer, array):
    """Copies an array to the device on a stream of its own: the legacy stream may wait for a gate,
    since pending data that were read by the CUDA Array Interface are ordered before it."""
    stream = Stream()
    ask(cu.cuMemcpyHtoDAsync, pointer, array.ctypes.data, array.nbytes, stream.handle)
    stream.synchronize()
    stream.destroy()


class Memory:
    """Device memory with the CUDA Array Interface.

    Its stream (or the legacy stream) is the one in whose order it is freed, as
    version 3 of the interface allows a producer to do.
    """

    def __init__(self, array, stream=None, version=3, *, is_ordered=True):
        self.shape, self.typestr, self.nbytes = array.shape, array.dtype.str, array.nbytes
        self.stream, self.version, self.is_ordered = stream, version, is_ordered
        self.context = ask(cu.cuCtxGetCurrent)
        self.free_on = stream or 1
        if is_ordered:
            self.pointer = int(ask(cu.cuMemAllocAsync, array.nbytes, self.free_on))
            ask(cu.cuStreamSynchronize, self.free_on)
        else:
            self.pointer = int(ask(cu.cuMemAlloc, array.nbytes))
        fill(self.pointer, array)

    @property
    def __cuda_array_interface__(self):
        interface = {
            "shape": self.shape,
            "typestr": self.typestr,
            "data": (self.pointer, False),
            "version": self.version,
        }
        return interface | ({"stream": self.stream} if self.stream is not None else {})

    def free(self):
        """Frees the memory once, on any thread and with any context."""
        pointer, self.pointer = self.pointer, 0
        if pointer != 0:
            ask(cu.cuCtxPushCurrent, self.context)
            if self.is_ordered:
                ask(cu.cuMemFreeAsync, pointer, self.free_on)
            else:
                ask(cu.cuMemFree, pointer)
            ask(cu.cuCtxPopCurrent)

    def __del__(self):
        if cu is not None:
            self.free()


class Shown:
    """The CUDA Array Interface of memory with some fields changed."""

    def __init__(self, memory, **changes):
        self.memory, self.changes = memory, changes

    @property
    def __cuda_array_interface__(self):
        return self.memory.__cuda_array_interface__ | self.changes


class AtAddress:
    """The CUDA Array Interface of memory that somebody else frees."""

    def __init__(self, pointer, stream=None):
        self.__cuda_array_interface__ = {
            "shape": NEW.shape,
            "typestr": NEW.dtype.str,
            "data": (int(pointer), False),
            "version": 3,
            "stream": stream,
        }


class Watched(Memory):
    """Records that it is freed."""

    freed = 0

    def free(self):
        if self.pointer != 0:
            Watched.freed += 1
        super().free()


def wait_for_frees(n):
    """Waits for n frees: a thread of arrowdev drains deferred releases."""
    limit = time.monotonic() + 20
    while Watched.freed < n:
        assert time.monotonic() < limit, "the memory was never given back"
        time.sleep(0.001)


class Stream:
    """A stream of the driver with `__cuda_stream__`."""

    def __init__(self, flags=1):
        self.handle = int(ask(cu.cuStreamCreate, flags))

    def __cuda_stream__(self):
        return (0, self.handle)

    def synchronize(self):
        ask(cu.cuStreamSynchronize, self.handle)

    def is_done(self):
        return cu.cuStreamQuery(self.handle)[0] == 0

    def destroy(self):
        ask(cu.cuStreamDestroy, self.handle)
        self.handle = None

    # A stream outlives the arrays that were handed out on it, and a test's variables
    # end in any order.
    unused: ClassVar[list] = []

    def __del__(self):
        if self.handle is not None:
            self.unused.append(self.handle)

    @classmethod
    def destroy_unused(cls):
        """On a GPU, a question about a destroyed stream is undefined behaviour, and arrowdev's
        thread may still have one to ask."""
        while cls.unused and not IS_REAL:
            cu.cuStreamDestroy(cls.unused.pop())


Mode = cu.CUstreamCaptureMode
# The first mode, the driver's default, restricts every thread of the process.
MODES = [Mode.CU_STREAM_CAPTURE_MODE_GLOBAL, Mode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL]
RELAXED = Mode.CU_STREAM_CAPTURE_MODE_RELAXED


def begin_capture(stream, mode):
    """Collects before what other tests left: to free pinned memory would break the capture."""
    gc.collect()
    ask(cu.cuStreamBeginCapture, stream, mode)


class Capture:
    """A stream in capture; the end of the block fails if the capture was broken."""

    def __init__(self, mode=MODES[0], flags=1):
        self.stream = Stream(flags)
        self.mode = mode

    def __enter__(self):
        begin_capture(self.stream.handle, self.mode)
        return self

    def __exit__(self, *_):
        ask(cu.cuGraphDestroy, ask(cu.cuStreamEndCapture, self.stream.handle))


# Flags that streams may still be reading.
flags = []


class Gate:
    """Holds a stream until it is opened, with functions that every driver has.

    It opens by itself after `seconds`. Without that argument a test that gets there fails.
    """

    LIMIT_S = 30
    closed: ClassVar[list] = []
    expired: ClassVar[list] = []

    def __init__(self, stream, seconds=None):
        self.flag = Pinned(np.zeros(1, "uint32"))
        flags.append(self.flag)
        self.is_limited = seconds is not None
        self.timer = threading.Timer(seconds or self.LIMIT_S, self.expire)
        self.timer.daemon = True
        ask(cu.cuStreamWaitValue32, stream, int(self.flag.pointer), 1, 0)
        self.closed.append(self)
        self.timer.start()

    def open(self):
        """Does nothing to an open gate, whose flag may have ended with its context."""
        try:
            self.closed.remove(self)
        except ValueError:
            return
        self.timer.cancel()
        self.flag.array[0] = 1

    def expire(self):
        if not self.is_limited:
            self.expired.append(self)
        self.open()

    @classmethod
    def end_all(cls):
        """Opens what is closed. The gates that opened by themselves since the last call."""
        for gate in cls.closed[:]:
            gate.open()
        expired = cls.expired[:]
        cls.expired.clear()
        return expired

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open()


class Held:
    """Memory with OLD content; NEW is written once the gate is opened."""

    def __init__(self, stated=True, version=3, flags=1, **options):
        self.stream = Stream(flags)
        self.memory = Memory(OLD, self.stream.handle if stated else None, version, **options)
        self.memory.owner = self.stream
        self.source = Pinned(NEW)
        self.gate = Gate(self.stream.handle)
        ask(
            cu.cuMemcpyAsync,
            self.memory.pointer,
            int(self.source.pointer),
            NEW.nbytes,
            self.stream.handle,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.gate.open()
        self.stream.synchronize()


class Reader:
    """A consumer that copies device memory to the host on its own stream."""

    def __init__(self, stream=None):
        self.stream = stream or Stream()
        self.target = Pinned(OLD - 1)

    def read(self, pointer):
        ask(
            cu.cuMemcpyAsync,
            int(self.target.pointer),
            pointer,
            self.target.array.nbytes,
            self.stream.handle,
        )
        return self

    def result(self):
        self.stream.synchronize()
        return self.target.array.tolist()


def look_up(standin, name, version, flags=0):
    """Calls cuGetProcAddress_v2 directly and returns address and status."""
    out, status = ctypes.c_void_p(), ctypes.c_int()
    standin.library.cuGetProcAddress_v2(
        name.encode(),
        ctypes.byref(out),
        version,
        ctypes.c_uint64(flags),
        ctypes.byref(status),
    )
    return out.value, status.value


# --- what a GPU is busy with ---------------------------------------------------------

# One thread, until so many nanoseconds have gone by; one thread that writes where no memory is.
PTX = b"""
.version 4.0
.target sm_50
.address_size 64
.visible .entry hold(.param .u64 duration)
{
    .reg .u64 %start, %now, %limit;
    .reg .pred %early;
    ld.param.u64 %limit, [duration];
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %early, %now, %limit;
    @%early bra again;
    ret;
}
.visible .entry fault(.param .u64 address)
{
    .reg .u64 %address;
    ld.param.u64 %address, [address];
    st.global.u64 [%address], %address;
    ret;
}
"""
FOLDER = Path(__file__).resolve().parent
HOLD_NS = 200_000_000
NO_BINARY = 209


@functools.cache
def kernels():
    """The module of the kernels above; None where the driver refuses it, as the stand-in does."""
    code, module = cu.cuModuleLoadData(PTX)
    if code not in (0, NO_BINARY):
        raise DriverError(code)
    return module if code == 0 else None


def launch(name, stream, number):
    """Launches one of them in the primary context of device 0."""
    kernel = ask(cu.cuModuleGetFunction, kernels(), name.encode())
    arguments = ((int(number),), (ctypes.c_uint64,))
    ask(cu.cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0)


class Hold:
    """Keeps a stream busy: a kernel of 200 ms on a GPU, a gate on the stand-in."""

    def __init__(self, stream):
        self.gate = None
        if not IS_REAL:
            self.gate = Gate(stream)
        elif kernels() is not None:
            launch("hold", stream, HOLD_NS)
        else:
            self.gate = Gate(stream, HOLD_NS / 1e9)

    def end(self):
        if self.gate is not None:
            self.gate.open()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def copy_later(stream, pointer, values):
    """Keeps the stream busy, and then copies the values to device memory."""
    source = Pinned(values)
    flags.append(source)  # lives until the end of the test
    hold = Hold(stream)
    ask(cu.cuMemcpyHtoDAsync, pointer, int(source.pointer), values.nbytes, stream)
    return hold


def order(stream, after):
    """Makes a stream wait for the work that is now on another one."""
    event = ask(cu.cuEventCreate, 2)
    ask(cu.cuEventRecord, event, after)
    ask(cu.cuStreamWaitEvent, stream, event, 0)
    ask(cu.cuEventDestroy, event)


@contextlib.contextmanager
def copied_by_another_thread(tensors, target):
    """Another thread copies tensors[0] on its per-thread stream, which is held.

    The thread lives until the end of the block. The value is the gate.
    """
    context, gates = ask(cu.cuCtxGetCurrent), []
    ready, leave = threading.Event(), threading.Event()

    def use():
        ask(cu.cuCtxSetCurrent, context)
        gates.append(Gate(2))
        tensors[0].__dlpack__(stream=2)
        ask(cu.cuMemcpyAsync, int(target.pointer), tensors[0].data_ptr, NEW.nbytes, 2)
        ready.set()
        leave.wait(30)

    thread = threading.Thread(target=use)
    thread.start()
    try:
        assert ready.wait(30)
        yield gates[0]
    finally:
        gates[0].open()
        leave.set()
        thread.join(30)


def kernel_uses():
    """Calls that use each of arrowdev's kernels."""
    import pyarrow as pa

    def column(values, type):
        return ad.array(pa.array(values, type)).to("cuda:0")

    n = 4096
    bits = column([i % 3 == 0 for i in range(n)], pa.bool_())
    numbers = column([None, *range(n - 1)], pa.int64())
    ones = ad.tensor(np.ones(1 << 22, "u1")).to("cuda:0")
    masked = ad.Array.from_buffers("int8", ones.shape[0], [ones, ones])
    matrix = ad.tensor(np.ones((n, 4), "u1")).to("cuda:0")
    words = column(["more than twelve bytes"] * 100, pa.string())
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 100], pa.int32()), pa.array([1, 2]))
    runs = ad.array(runs).to("cuda:0")
    return [
        lambda: ad.tensor(bits),
        lambda: bits[3:].compact(),
        lambda: ad.tensor(numbers, nulls="fill", fill_value=0),
        lambda: ad.array(ones, validity=ones),
        lambda: ad.tensor(matrix, order="F", copy=True),
        masked.count_nulls,
        lambda: ad.concat([words, words]),
        lambda: runs[3:].compact(),
    ]


def load_kernels():
    """Loads all kernels: each is loaded on its first use, and a driver may wait for that."""
    ask(cu.cuInit, 0)
    ask(cu.cuCtxSetCurrent, ask(cu.cuDevicePrimaryCtxRetain, 0))
    for use in kernel_uses():
        use()
    if IS_REAL and kernels() is not None:
        launch("hold", 1, 0)
    ad.device("cuda:0").synchronize()
