"""Copies by arrowdev and by the runtime alone, for devices.py.

Both sides allocate, copy, wait and free: a copy into memory that was never
touched takes longer than one into memory that was. Each runtime is measured
in a process of its own.
"""

import sys
from pathlib import Path

import numpy as np
from paths import Case, Goal, HotPath

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

SIZES = {"64 KiB": 1 << 16, "1 MiB": 1 << 20, "16 MiB": 1 << 24}
PIP_NAMES = {"opencl": "pyopencl", "oneapi": "dpctl"}


def numbers(nbytes):
    return np.arange(nbytes // 8)


def peer(name):
    """tests/helpers/peer_NAME.py, which skips the test where there is no device."""
    try:
        return __import__(f"peer_{name}")
    except BaseException as error:
        if type(error).__name__ != "Skipped":
            raise
        raise ImportError(str(error), name=PIP_NAMES[name]) from None


class Host:
    """NumPy's copies."""

    ways = ("host -> host",)

    def __init__(self, nbytes):
        import arrowdev as ad

        source = numbers(nbytes)
        self.ours = {"host -> host": lambda: ad.tensor(source, copy=True)}
        self.theirs = {"host -> host": source.copy}


class Device:
    """`here` and `there` hold the numbers. A subclass makes the bare copies."""

    ways = ("host -> device", "device -> host", "device -> device")

    def __init__(self, nbytes):
        import arrowdev as ad

        self.nbytes, self.here = nbytes, numbers(nbytes)
        self.device = self.start()
        tensor = ad.tensor(self.here)
        there = tensor.to(self.device)
        there.synchronize()

        def waited(tensor):
            tensor.synchronize()
            return tensor

        self.ours = {
            "host -> device": lambda: waited(tensor.to(self.device)),
            "device -> host": lambda: there.to("cpu"),
            "device -> device": lambda: waited(ad.tensor(there, copy=True)),
        }
        bare = (self.to_device, self.to_host, self.on_device)
        self.theirs = dict(zip(self.ways, bare, strict=True))


class OpenCL(Device):
    """pyopencl on PoCL."""

    def start(self):
        opencl = peer("opencl")
        self.cl = opencl.cl
        self.context = self.cl.Context([opencl.DEVICES[0]])
        self.queue = self.cl.CommandQueue(self.context)
        self.there = self.to_device()
        return opencl.name()

    def new(self):
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, self.nbytes)

    def copied(self, target, source):
        self.cl.enqueue_copy(self.queue, target, source).wait()
        return target

    def to_device(self):
        return self.copied(self.new(), self.here)

    def to_host(self):
        return self.copied(np.empty_like(self.here), self.there)

    def on_device(self):
        return self.copied(self.new(), self.there)


class OneAPI(Device):
    """dpctl on a CPU or GPU of SYCL's."""

    def start(self):
        oneapi = peer("oneapi")
        self.usm = oneapi.usm
        self.queue = oneapi.dpctl.SyclQueue(oneapi.DEVICE, property="in_order")
        self.there = self.to_device()
        return oneapi.NAME

    def new(self):
        return self.usm.MemoryUSMDevice(self.nbytes, queue=self.queue)

    def copied(self, target, source):
        self.queue.memcpy(target, source, self.nbytes)
        self.queue.wait()

    def to_device(self):
        target = self.new()
        self.copied(target, self.here.view("u1"))
        return target

    def to_host(self):
        target = np.empty_like(self.here)
        self.copied(target.view("u1"), self.there)
        return target

    def on_device(self):
        target = self.new()
        self.copied(target, self.there)
        return target


class Cuda(Device):
    """The stand-in driver."""

    class Memory:
        def __init__(self, standin, nbytes):
            self.call, self.word, self.on = standin.call, standin.c_size_t, standin.PRODUCER
            self.pointer = standin.made(
                self.word, "cuMemAllocAsync", self.word(nbytes), self.word(self.on)
            )

        def __del__(self):
            self.call("cuMemFreeAsync", self.word(self.pointer), self.word(self.on))

    def start(self):
        import standin

        self.standin = standin
        self.there = self.to_device()
        return "cuda:0"

    def new(self):
        return self.Memory(self.standin, self.nbytes)

    def copied(self, direction, target, source):
        words = (target, source, self.nbytes, self.standin.PRODUCER)
        self.standin.call(f"cuMemcpy{direction}Async_v2", *map(self.standin.c_size_t, words))
        self.standin.call("cuStreamSynchronize", self.standin.c_size_t(self.standin.PRODUCER))

    def to_device(self):
        target = self.new()
        self.copied("HtoD", target.pointer, self.here.ctypes.data)
        return target

    def to_host(self):
        target = np.empty_like(self.here)
        self.copied("DtoH", target.ctypes.data, self.there.pointer)
        return target

    def on_device(self):
        target = self.new()
        self.copied("DtoD", target.pointer, self.there.pointer)
        return target


RUNTIMES = {"host": Host, "cuda": Cuda, "opencl": OpenCL, "oneapi": OneAPI}


def paths(name):
    runtime = RUNTIMES[name]
    for label, nbytes in SIZES.items():
        for way in runtime.ways:
            yield HotPath(
                f"copy of {label}, {way}, {name}",
                "copies",
                Case("arrowdev", "ours()", f"ours = copies.ours[{way!r}]"),
                (Case(runtime.__doc__.strip("."), "bare()", f"bare = copies.theirs[{way!r}]"),),
                f"from copies import {runtime.__name__}; copies = {runtime.__name__}({nbytes})",
                Goal(factor=0.9) if nbytes >= 1 << 20 else None,
            )
