"""The libraries of a GPU behind one interface, for tests of every pair of them.

An array holds 512 bytes. Streams are of this module's making where the library takes such, and
do not synchronize with the legacy stream. `on` makes a stream the current one of the library.
"""

import contextlib
import functools
import gc
import importlib

import gpu
import numpy as np
import pytest
from dlpack_ctypes import CUDA, INT, Managed, Versioned, api, capsule_name
from gpu import Reader, Stream, ask, cu

N = 64


class Library:
    """What a library does unless its class says otherwise."""

    module = None  # imported when the tests of the library run
    has_streams = True
    can_produce = can_take = True

    def __init__(self):
        self.current = None
        self.api = importlib.import_module(self.module) if self.module else None

    def has_gpu(self):
        return True

    def stream(self):
        return Stream()

    def handle(self, stream):
        return stream.handle

    @contextlib.contextmanager
    def on(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def make(self, values, stream):
        """An array of the library, complete."""
        raise NotImplementedError

    def pointer(self, array):
        raise NotImplementedError

    def take(self, source, stream):
        """Takes what arrowdev shows over without a copy, for use on the stream."""
        raise NotImplementedError

    def give_back(self, array, stream):
        """What a consumer owes before it drops what it took, while its stream still reads."""

    def values(self, array, stream):
        """The bytes on the host, by the library itself where it can."""
        reader = Reader(stream)
        reader.read(self.pointer(array)).result()
        return reader.target.array.view("u1").copy()

    def class_of_arrays(self):
        """The class for arrowdev's convert(), or None."""
        return None


# --- look-alikes, which run on the stand-in, too --------------------------------------


class Interface(Library):
    """CUDA Array Interface with the stream, in and out: the protocol of CuPy's arrays."""

    def make(self, values, stream):
        memory = gpu.Memory(values, self.handle(stream))
        memory.owner = stream
        return memory

    def pointer(self, array):
        return array.pointer

    def take(self, source, stream):
        return TakenInterface(source, self.handle(stream))

    def give_back(self, array, stream):
        if array.shown is not None:
            gpu.order(array.shown, self.handle(stream))


class TakenInterface:
    """The consumer's stream waits for the interface's, as its documentation demands."""

    def __init__(self, source, stream):
        self.source = source
        interface = source.__cuda_array_interface__
        self.pointer, self.shown = interface["data"][0], interface.get("stream")
        if self.shown is not None:
            gpu.order(stream, self.shown)


class Dlpack(Library):
    """DLPack by methods, with a current stream: the protocol of torch's tensors."""

    def make(self, values, stream):
        return DlpackArray(self, values, stream)

    def pointer(self, array):
        return array.pointer

    def take(self, source, stream):
        return TakenCapsule(source.__dlpack__(stream=self.handle(stream), max_version=(1, 0)))


class DlpackArray:
    def __init__(self, library, values, stream):
        self.library = library
        self.memory = gpu.Memory(values, library.handle(stream))
        self.memory.owner = stream
        self.pointer = self.memory.pointer

    def __dlpack_device__(self):
        return (CUDA, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        current = self.library.current
        if stream != -1 and current is not None and stream != current.handle:
            gpu.order(stream or 1, current.handle)
        return Exported(self.memory).capsule()


class Exported(Managed):
    def __init__(self, memory):
        self.owner = memory
        super().__init__((), shape=(N,), dtype=(INT, 64, 1), device=(CUDA, 0), data=memory.pointer)

    def _delete(self, pointer):
        super()._delete(pointer)
        self.owner = None


class TakenCapsule:
    """A capsule that is not renamed deletes its tensor when it ends."""

    def __init__(self, capsule):
        assert capsule_name(capsule) == "dltensor_versioned"
        self.capsule = capsule
        address = api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
        tensor = Versioned.from_address(address).tensor
        self.pointer = tensor.data + tensor.byte_offset


class Numba(Library):
    module = "numba.cuda"

    def stream(self):
        """Numba frees ten arrays at a time: those of other tests not while a test holds work."""
        self.api.current_context().memory_manager.deallocations.clear()
        return super().stream()

    def outside(self, stream):
        return self.api.external_stream(self.handle(stream))

    def make(self, values, stream):
        array = self.api.to_device(values, stream=self.outside(stream))
        array.owner = stream
        stream.synchronize()
        return array

    def pointer(self, array):
        return array.device_ctypes_pointer.value

    def take(self, source, stream):
        """Without `sync`, the array's stream is the one of the interface."""
        array = self.api.as_cuda_array(source, sync=False)
        if array.stream != 0:
            gpu.order(self.handle(stream), int(array.stream.handle))
        return array

    def give_back(self, array, stream):
        if array.stream != 0:
            gpu.order(int(array.stream.handle), self.handle(stream))

    def values(self, array, stream):
        return array.copy_to_host(stream=self.outside(stream)).view("u1")


class CudaCore(Library):
    module = "cuda.core.utils"  # which older versions lack
    can_produce = False  # a Buffer has no current stream

    def take(self, source, stream):
        from cuda.core import Device

        Device(0).set_current()
        return self.api.StridedMemoryView.from_any_interface(
            source, stream_ptr=self.handle(stream)
        )

    def pointer(self, array):
        return array.ptr


# --- what needs a GPU -----------------------------------------------------------------


class Torch(Library):
    module = "torch"

    def __init__(self, device="cuda:0"):
        super().__init__()
        self.device = device

    def has_gpu(self):
        return self.api.cuda.is_available()

    def stream(self):
        return self.api.cuda.Stream(self.device)

    def handle(self, stream):
        return stream.cuda_stream or 1

    def on(self, stream):
        return self.api.cuda.stream(stream)

    def make(self, values, stream):
        with self.on(stream):
            array = self.api.from_numpy(values.copy()).to(self.device)
            self.finish(stream)
        return array

    def finish(self, stream):
        stream.synchronize()

    def pointer(self, array):
        return array.data_ptr()

    def take(self, source, stream):
        with self.on(stream):
            return self.api.from_dlpack(source)

    def values(self, array, stream):
        with self.on(stream):
            return array.cpu().numpy().view("u1")

    def class_of_arrays(self):
        return self.api.Tensor


class CuPy(Library):
    module = "cupy"

    def stream(self):
        return self.api.cuda.Stream(non_blocking=True)

    def handle(self, stream):
        return stream.ptr or 1

    def on(self, stream):
        return stream

    def make(self, values, stream):
        with stream:
            array = self.api.asarray(values)
            stream.synchronize()
        return array

    def pointer(self, array):
        return array.data.ptr

    def take(self, source, stream):
        with stream:
            return self.api.from_dlpack(source)

    def values(self, array, stream):
        return self.api.asnumpy(array, stream=stream).view("u1")

    def class_of_arrays(self):
        return self.api.ndarray


class Jax(Library):
    module = "jax"
    has_streams = False

    def __init__(self, platform="cuda"):
        super().__init__()
        self.api.config.update("jax_enable_x64", True)
        try:
            self.device = self.api.devices(platform)[0]
        except RuntimeError:
            self.device = None

    def has_gpu(self):
        return self.device is not None

    def make(self, values, stream):
        return self.api.device_put(values, self.device).block_until_ready()

    def pointer(self, array):
        return array.unsafe_buffer_pointer()

    def take(self, source, stream):
        return importlib.import_module("jax.dlpack").from_dlpack(source)

    def values(self, array, stream):
        return np.asarray(array).view("u1")

    def class_of_arrays(self):
        return self.api.Array


class Rmm(Library):
    """A DeviceBuffer shows the CUDA Array Interface, without a stream."""

    module = "rmm"
    can_take = False

    def make(self, values, stream):
        array = self.api.DeviceBuffer.to_device(values.tobytes())
        ask(cu.cuCtxSynchronize)
        return array

    def pointer(self, array):
        return array.ptr


class Cudf(Library):
    module = "cudf"
    has_streams = False

    def make(self, values, stream):
        return self.api.Series(values)

    def pointer(self, array):
        return array.__cuda_array_interface__["data"][0]

    def take(self, source, stream):
        import arrowdev as ad

        return ad.convert(source, self.api.Series, copy=False)

    def values(self, array, stream):
        return array.to_numpy().view("u1")

    def class_of_arrays(self):
        return self.api.Series


ANYWHERE = {"interface": Interface, "dlpack": Dlpack, "numba": Numba, "cuda-core": CudaCore}
ON_A_GPU = {"torch": Torch, "cupy": CuPy, "jax": Jax, "rmm": Rmm, "cudf": Cudf}
ALL = ANYWHERE | ON_A_GPU


@functools.cache
def has_gpu(name):
    """Asked once: jax takes a second. The library's objects stay out of later collections."""
    found = ALL[name]().has_gpu()
    gc.collect()
    gc.freeze()
    return found


def get(name):
    """The library, or a skip."""
    if name in ON_A_GPU and not gpu.IS_REAL:
        pytest.skip(f"needs a GPU, and {name}")
    if ALL[name].module is not None:
        pytest.importorskip(ALL[name].module)
    if not has_gpu(name):
        pytest.skip(f"needs a GPU build of {name}")
    return ALL[name]()


def pairs(producers=None, consumers=None):
    """Names of libraries, each with each. Off a GPU, one pair with each that needs it."""
    one = [name for name in producers or ALL if ALL[name].can_produce]
    two = [name for name in consumers or ALL if ALL[name].can_take]
    product = [(a, b) for a in one for b in two]
    if gpu.IS_REAL:
        return product
    return [
        (a, b) for a, b in product if (a in ANYWHERE and b in ANYWHERE) or "interface" in (a, b)
    ]


def identity(pair):
    return "-".join(pair)
