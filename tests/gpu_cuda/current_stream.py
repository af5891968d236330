"""Look-alikes of CuPy and jax: what they do with streams when arrays are exchanged by DLPack.

Each class does what the named place of the library does, as far as the order of the work is
concerned, so that it runs on any driver and without the library.
"""

import ctypes
import itertools
import types

import gpu
from dlpack_ctypes import CUDA, INT, Legacy, Managed, Versioned, api, capsule_name
from gpu import NEW, ask, cu

USED = {"dltensor": b"used_dltensor", "dltensor_versioned": b"used_dltensor_versioned"}


class Shared(Managed):
    """A managed tensor that keeps its array until it is deleted."""

    n_deleted = 0

    def __init__(self, array):
        self.array = array
        super().__init__(
            (), shape=NEW.shape, dtype=(INT, 64, 1), device=(CUDA, 0), data=array.pointer
        )

    def _delete(self, pointer):
        super()._delete(pointer)
        Shared.n_deleted += 1
        self.array = None


class Array:
    """Memory that the library frees in the order of the stream on which it allocated it."""

    def __init__(self, memory):
        self.memory, self.pointer = memory, memory.pointer

    def __dlpack_device__(self):
        return (CUDA, 0)


class Taken:
    """An array over a capsule's memory, whose tensor it deletes at its end."""

    def __init__(self, capsule):
        name = capsule_name(capsule)
        kind = Legacy if name == "dltensor" else Versioned
        self.address = api.PyCapsule_GetPointer(capsule, name.encode())
        api.PyCapsule_SetName(capsule, USED[name])
        self.struct = kind.from_address(self.address)
        self.pointer = self.struct.tensor.data + self.struct.tensor.byte_offset

    def __del__(self):
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.struct.deleter)(self.address)


# --- CuPy -------------------------------------------------------------------------------


class BaseStream:
    """cupy/cuda/stream.pyx: `with` makes it the current one of the thread and the device."""

    current = ()

    def __init__(self, ptr):
        self.ptr = ptr

    def __cuda_stream__(self):
        return (0, self.ptr)

    def __enter__(self):
        BaseStream.current += (self,)
        return self

    def __exit__(self, *_):
        BaseStream.current = BaseStream.current[:-1]


class Stream(BaseStream):
    """A stream of CuPy's own, which ends with its object."""

    destroyed = 0

    def __init__(self):
        super().__init__(int(ask(cu.cuStreamCreate, 1)))

    def __del__(self):
        Stream.destroyed += 1
        ask(cu.cuStreamDestroy, self.ptr)


class ExternalStream(BaseStream):
    """A stream that somebody else destroys."""


class PerDevice:
    """cupy.cuda.get_current_stream, which takes the device in CuPy 11 and later."""

    def __init__(self):
        self.default = BaseStream(0)

    def __call__(self, device_id=-1):
        return BaseStream.current[-1] if BaseStream.current else self.default


class ndarray(Array):
    """cupy/_core/core.pyx, `__dlpack__`: the stream that is passed waits for the current one."""

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        current = get_current_stream().ptr or 1
        if stream not in (-1, current):
            gpu.order(stream or 1, current)
        return Shared(self).capsule()


def from_dlpack(source):
    """cupy/_core/dlpack.pyx: the current stream is named by its number."""
    stream = get_current_stream().ptr or 1
    return Taken(source.__dlpack__(stream=stream, max_version=(1, 0), copy=None))


get_current_stream = PerDevice()
for found in (BaseStream, Stream, ExternalStream):
    found.__module__ = "cupy.cuda.stream"
ndarray.__module__ = "cupy"


def cupy():
    """The module, for sys.modules."""
    cuda = types.SimpleNamespace(get_current_stream=get_current_stream)
    return types.SimpleNamespace(cuda=cuda, ndarray=ndarray)


# --- jax --------------------------------------------------------------------------------


class Jax:
    """A device of jax: it computes on a stream that it does not tell.

    Who exchanges with it is ordered by streams "for external ready events", of which XLA has
    four in turn (GetStreamForExternalReadyEvents in xla/pjrt/local_device_state.cc).
    """

    def __init__(self):
        self.compute = gpu.Stream()
        self.external = itertools.cycle([gpu.Stream() for _ in range(4)])

    def array(self, memory):
        return JaxArray(self, memory)

    def from_dlpack(self, source):
        """jax/_src/dlpack.py: work on the array waits for the stream that was named."""
        stream = next(self.external).handle
        taken = Taken(source.__dlpack__(stream=stream))
        gpu.order(self.compute.handle, stream)
        return taken


class JaxArray(Array):
    """jax/_src/array.py, `__dlpack__`: the stream that is passed waits until the array is ready.

    XLA casts the number to a handle, whatever it is.
    """

    def __init__(self, device, memory):
        super().__init__(memory)
        self.device = device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        gpu.order(stream, self.device.compute.handle)
        return Shared(self).capsule()
