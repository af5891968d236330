"""The device libraries that ``python -m arrowdev matrix`` tries, one class each.

As in libraries.py, with one more method: ``places()`` names the devices on which the library
can have arrays here. Each device gets an instance. Values are read by the library's own copy to
the host, and only the library waits for them.
"""

import ctypes
import functools
import glob
import importlib
import os
import shutil
import sys
import tempfile

import arrowdev
from arrowdev._cli.libraries import Peer


class NoDevice(Exception):
    """The library is installed, but has no device here."""


class DevicePeer(Peer):
    device = None  # such as "oneapi:0"
    types: tuple[str, ...] | None = None  # device types that it supports; None: any

    @classmethod
    def on(cls, device, template):
        """Return the peer on one of places(), with the modules that `template` has loaded."""
        peer = cls()
        peer.__dict__.update(vars(template))
        peer.device = device
        peer.index = int(device.partition(":")[2])
        return peer

    @classmethod
    def may_be_on(cls, wanted):
        """Whether the library supports a device or device type in `wanted` (None: all)."""
        types = {name.partition(":")[0] for name in wanted or ()} - {"cpu"}
        return wanted is None or (types if cls.types is None else types & {*cls.types}) != set()

    def places(self):
        """Return the names of the library's devices; raise NoDevice if there is none."""
        raise NotImplementedError


def numpy_values(payload):
    import numpy

    return numpy.array(payload.values, payload.dtype)


# --- arrowdev's own, on every device ---------------------------------------------


class OwnDeviceArray(DevicePeer):
    name = "ad.Array"
    heading = "ad./Array"
    aliases = ("arrowdev",)

    def places(self):
        return [str(d) for d in arrowdev.devices() if d.type != arrowdev.DeviceType.CPU]

    def make(self, payload):
        return arrowdev.array(payload.aligned()).to(self.device)

    def through(self, payload):
        return "arrowdev.array(x)", arrowdev.array

    def pointer(self, obj):
        return arrowdev.tensor(obj).data_ptr

    def values(self, obj):
        return obj.to("cpu").to_pylist()


class OwnDeviceTensor(OwnDeviceArray):
    name = "ad.Tensor"
    heading = "ad./Tensor"

    def make(self, payload):
        return arrowdev.tensor(payload.aligned()).to(self.device)

    def through(self, payload):
        return "arrowdev.tensor(x)", arrowdev.tensor

    def values(self, obj):
        return memoryview(obj.to("cpu")).tolist()


# --- oneAPI ------------------------------------------------------------------------


def sycl_devices():
    """Return dpctl.get_devices(), with the CPU runtime that pip installs beside dpctl.

    SYCL finds drivers by files with their paths. The files in Intel's wheel name a folder of the
    build machine, so the driver's path has to be set. SYCL searches only once.
    """
    dpctl = importlib.import_module("dpctl")
    driver = os.path.join(sys.prefix, "lib", "libintelocl.so")
    told = {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"} & os.environ.keys()
    if told or not os.path.exists(driver):
        return dpctl.get_devices()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "intel.icd"), "w") as file:
            file.write(f"{driver}\n")
        for icd in glob.glob("/etc/OpenCL/vendors/*.icd"):
            shutil.copy(icd, folder)
        os.environ["OCL_ICD_VENDORS"] = folder
        try:
            return dpctl.get_devices()
        finally:
            del os.environ["OCL_ICD_VENDORS"]


class Dpnp(DevicePeer):
    name = module = pip = "dpnp"
    types = ("oneapi",)

    def load(self):
        self.sycl = sycl_devices()  # before dpnp searches for devices
        super().load()

    def places(self):
        found = [d for d in self.sycl if d.has_aspect_usm_device_allocations]
        if not found:
            what = (
                f"none of SYCL's {len(self.sycl)} devices has USM"
                if self.sycl
                else "SYCL has none"
            )
            raise NoDevice(f"{what}; pip install intel-opencl-rt brings one on x86-64 CPUs")
        return [f"oneapi:{device.get_device_id()}" for device in found]

    def make(self, payload):
        return self.lib.asarray(numpy_values(payload), device=self.sycl[self.index])

    def target(self):
        return self.lib.ndarray

    def direct(self, payload):
        return {"dpnp.from_dlpack(x)": self.lib.from_dlpack, "dpnp.asarray(x)": self.lib.asarray}

    def pointer(self, obj):
        return obj.get_array().usm_data._pointer + obj.get_array()._element_offset * obj.itemsize

    def values(self, obj):
        return self.lib.asnumpy(obj).tolist()


class UsmArray(Dpnp):
    """The former dpctl.tensor, on which dpnp is built."""

    name = "usm_ndarray"
    heading = "usm_/ndarray"
    aliases = ("dpctl",)
    module = "dpnp.tensor"

    def make(self, payload):
        return self.lib.asarray(numpy_values(payload), device=self.sycl[self.index])

    def through(self, payload):
        from_dlpack = self.lib.from_dlpack
        how = "dpnp.tensor.from_dlpack(arrowdev.tensor(x))"
        return how, lambda x: from_dlpack(arrowdev.tensor(x))

    def direct(self, payload):
        return {
            "dpnp.tensor.from_dlpack(x)": self.lib.from_dlpack,
            "dpnp.tensor.asarray(x)": self.lib.asarray,
        }

    def pointer(self, obj):
        return obj.usm_data._pointer + obj._element_offset * obj.itemsize

    def values(self, obj):
        return self.lib.asnumpy(obj).tolist()


# --- OpenCL ------------------------------------------------------------------------


class PyOpenCL(DevicePeer):
    """cl.Buffer has no protocol: it is exchanged by its handle."""

    name = "cl.Buffer"
    types = ("opencl",)
    heading = "cl./Buffer"
    aliases = ("pyopencl",)
    module = pip = "pyopencl"

    def ours(self):
        """pyopencl's devices by arrowdev's names. The order and set of devices may differ."""
        named = {}
        try:
            left = [d for p in self.lib.get_platforms() for d in p.get_devices()]
        except self.lib.Error as error:
            raise NoDevice(f"OpenCL has no platform: {error}") from error
        for device in arrowdev.devices():
            same = [d for d in left if d.name == device.name]
            if device.type == arrowdev.DeviceType.OPENCL and same:
                named[str(device)] = same[0]
                left.remove(same[0])
        return named

    def places(self):
        if not self.ours():
            raise NoDevice("pyopencl sees no device that arrowdev sees by OpenCL")
        return list(self.ours())

    def queue(self, context=None):
        context = context or self.lib.Context([self.ours()[self.device]])
        return self.lib.CommandQueue(context, context.devices[0])

    def make(self, payload):
        self.size = payload.length
        self.dtype = payload.dtype
        self.own_queue = self.queue()
        flags = self.lib.mem_flags
        return self.lib.Buffer(
            self.own_queue.context,
            flags.READ_WRITE | flags.COPY_HOST_PTR,
            hostbuf=numpy_values(payload),
        )

    def shown(self, payload):
        def show(x):
            return arrowdev.Tensor.from_pointer(
                x.int_ptr, (payload.length,), payload.dtype, self.device, owner=x, stream=queue
            )

        queue = self.own_queue
        return "arrowdev.Tensor.from_pointer(x.int_ptr, ..., stream=queue)", show

    def through(self, payload):
        from_int_ptr = self.lib.MemoryObject.from_int_ptr
        queue = self.own_queue

        def take(x):
            tensor = arrowdev.tensor(x, stream=queue)
            memory = from_int_ptr(tensor.data_ptr)
            return TakenBuffer(memory, tensor)

        return "MemoryObject.from_int_ptr(arrowdev.tensor(x, stream=queue).data_ptr)", take

    def pointer(self, obj):
        return obj.int_ptr

    def values(self, obj):
        import numpy

        memory = getattr(obj, "memory", obj)
        out = numpy.empty(self.size, self.dtype)
        self.own_queue.finish()  # the queue that was made to wait; another queue would not wait
        self.lib.enqueue_copy(self.queue(memory.context), out, memory).wait()
        return out.tolist()


class TakenBuffer:
    """A memory object, and the tensor it belongs to, which keeps the data alive."""

    def __init__(self, memory, tensor):
        self.memory = memory
        self.int_ptr = memory.int_ptr
        self.tensor = tensor


# --- CUDA and ROCm -----------------------------------------------------------------


class CuPy(DevicePeer):
    name = module = "cupy"
    types = ("cuda", "rocm")
    pip = "cupy-cuda13x"
    aliases = ("cupy",)

    def places(self):
        kind = "rocm" if self.lib.cuda.runtime.is_hip else "cuda"
        return [f"{kind}:{i}" for i in range(self.lib.cuda.runtime.getDeviceCount())]

    def make(self, payload):
        with self.lib.cuda.Device(self.index):
            return self.lib.asarray(numpy_values(payload))

    def target(self):
        return self.lib.ndarray

    def direct(self, payload):
        return {"cupy.from_dlpack(x)": self.lib.from_dlpack, "cupy.asarray(x)": self.lib.asarray}

    def pointer(self, obj):
        return obj.data.ptr

    def values(self, obj):
        with obj.device:
            return obj.get().tolist()


class NumbaCuda(DevicePeer):
    name = "numba-cuda"
    types = ("cuda",)
    heading = "numba-/cuda"
    aliases = ("numba",)
    module = "numba.cuda"
    pip = "numba-cuda"

    def places(self):
        if not self.lib.is_available():
            raise NoDevice("numba.cuda.is_available() is False")
        return [f"cuda:{i}" for i in range(len(self.lib.gpus))]

    def make(self, payload):
        with self.lib.gpus[self.index]:
            return self.lib.to_device(numpy_values(payload))

    def through(self, payload):
        take = self._take
        return "numba.cuda.as_cuda_array(arrowdev.tensor(x))", lambda x: take(arrowdev.tensor(x))

    def direct(self, payload):
        return {"numba.cuda.as_cuda_array(x)": self._take}

    def _take(self, x):
        with self.lib.gpus[self.index]:
            return self.lib.as_cuda_array(x)

    def pointer(self, obj):
        return obj.device_ctypes_pointer.value

    def values(self, obj):
        with self.lib.gpus[self.index]:
            return obj.copy_to_host().tolist()


class CudaCore(DevicePeer):
    """StridedMemoryView, a view of other objects."""

    name = "cuda-core"
    types = ("cuda",)
    heading = "cuda-/core"
    aliases = ("cuda",)
    module = "cuda.core"
    pip = "cuda-core"

    def places(self):
        found = self.lib.Device.get_all_devices()
        if not found:
            raise NoDevice("cuda.core.Device.get_all_devices() is empty")
        return [f"cuda:{device.device_id}" for device in found]

    def make(self, payload):
        import numpy

        self.size, self.dtype = payload.length, numpy.dtype(payload.dtype)
        device = self.lib.Device(self.index)
        device.set_current()
        self.stream = device.create_stream()
        self.pinned = self.lib.LegacyPinnedMemoryResource()
        host = self.pinned.allocate(len(payload.raw), stream=self.stream)
        ctypes.memmove(int(host.handle), payload.raw, len(payload.raw))
        memory = device.allocate(len(payload.raw), stream=self.stream)
        memory.copy_from(host, stream=self.stream)
        self.stream.sync()
        view = self.lib.utils.StridedMemoryView.from_buffer
        return view(memory, (payload.length,), dtype=self.dtype)

    def shown(self, payload):
        stream = self.stream  # a view does not say on which stream its data are ready
        return "arrowdev.tensor(x, stream=stream)", lambda x: arrowdev.tensor(x, stream=stream)

    def through(self, payload):
        take = self._take
        how = "StridedMemoryView.from_any_interface(arrowdev.tensor(x), stream)"
        return how, lambda x: take(arrowdev.tensor(x))

    def direct(self, payload):
        return {"StridedMemoryView.from_any_interface(x, stream)": self._take}

    def _take(self, x):
        self.lib.Device(self.index).set_current()
        view = self.lib.utils.StridedMemoryView.from_any_interface
        return view(x, stream_ptr=int(self.stream.handle))

    def pointer(self, obj):
        return obj.ptr

    def values(self, obj):
        self.lib.Device(self.index).set_current()
        nbytes = self.size * self.dtype.itemsize
        source = self.lib.Buffer.from_handle(obj.ptr, nbytes, owner=obj)
        host = self.pinned.allocate(nbytes, stream=self.stream)
        source.copy_to(host, stream=self.stream)
        self.stream.sync()
        import numpy

        return numpy.frombuffer(ctypes.string_at(int(host.handle), nbytes), self.dtype).tolist()


class HipPython(DevicePeer):
    """DeviceArray, the result of hipMalloc.

    It has a CUDA Array Interface, which is valid once its type has been set. It takes other
    objects by address: if an object has both, it uses the buffer protocol and not that interface.
    An address carries no pending work, so the default stream, which hipMemcpy uses, waits.
    """

    name = "hip-python"
    types = ("rocm",)
    heading = "hip-/python"
    aliases = ("hip",)
    module = "hip"
    pip = "hip-python"

    def load(self):
        super().load()
        self.hip = self.lib.hip

    def _ask(self, function, *arguments):
        code, *result = function(*arguments)
        if code != self.hip.hipError_t.hipSuccess:
            raise RuntimeError(f"{function.__name__}: {code}")
        return result[0] if result else None

    def places(self):
        try:
            count = self._ask(self.hip.hipGetDeviceCount)
        except RuntimeError as error:
            raise NoDevice(str(error)) from error
        return [f"rocm:{i}" for i in range(count)]

    def make(self, payload):
        values = numpy_values(payload)
        self.size, self.dtype = payload.length, values.dtype
        self._ask(self.hip.hipSetDevice, self.index)
        self.memory = self._ask(self.hip.hipMalloc, values.nbytes)  # freed at process exit
        self._copy(self.memory, values, values.nbytes)
        return self._configured(self.memory)

    def through(self, payload):
        def take(x):
            self.taken = arrowdev.tensor(x, stream=0)  # an address does not keep the memory alive
            return self._configured(type(self.memory).fromObj(self.taken.data_ptr))

        return "DeviceArray.fromObj(arrowdev.tensor(x, stream=0).data_ptr)", take

    def direct(self, payload):
        return {"DeviceArray.fromObj(x)": type(self.memory).fromObj}

    def pointer(self, obj):
        return int(obj)

    def values(self, obj):
        import numpy

        out = numpy.empty(self.size, self.dtype)
        self._ask(self.hip.hipSetDevice, self.index)
        self._copy(out, obj, out.nbytes)
        return out.tolist()

    def _configured(self, array):
        return array.configure(_force=True, typestr=self.dtype.str, shape=(self.size,))

    def _copy(self, target, source, nbytes):
        default = self.hip.hipMemcpyKind.hipMemcpyDefault
        self._ask(self.hip.hipMemcpy, target, source, nbytes, default)


class TorchGpu(DevicePeer):
    name = module = pip = "torch"
    types = ("cuda", "rocm")
    aliases = ("pytorch",)

    def places(self):
        if not self.lib.cuda.is_available():
            raise NoDevice("torch.cuda.is_available() is False")
        kind = "rocm" if self.lib.version.hip else "cuda"
        return [f"{kind}:{i}" for i in range(self.lib.cuda.device_count())]

    def make(self, payload):
        dtype = getattr(self.lib, payload.dtype)
        return self.lib.tensor(payload.values, dtype=dtype, device=f"cuda:{self.index}")

    def target(self):
        return self.lib.Tensor

    def direct(self, payload):
        device = f"cuda:{self.index}"
        return {
            "torch.from_dlpack(x)": self.lib.from_dlpack,
            "torch.as_tensor(x, device)": functools.partial(self.lib.as_tensor, device=device),
        }

    def pointer(self, obj):
        return obj.data_ptr()

    def values(self, obj):
        return obj.cpu().tolist()


class JaxGpu(DevicePeer):
    name = module = pip = "jax"
    types = ("cuda", "rocm")

    def load(self):
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        super().load()
        self.lib.config.update("jax_enable_x64", True)

    def places(self):
        try:
            found = self.lib.devices("gpu")
        except RuntimeError as error:
            raise NoDevice(str(error)) from error
        kind = "rocm" if "rocm" in found[0].client.platform_version.lower() else "cuda"
        self.gpus = {f"{kind}:{d.local_hardware_id}": d for d in found}
        return list(self.gpus)

    def make(self, payload):
        values = numpy_values(payload)
        return self.lib.device_put(values, self.gpus[self.device]).block_until_ready()

    def target(self):
        return self.lib.Array

    def direct(self, payload):
        return {"jax.numpy.from_dlpack(x)": self.lib.numpy.from_dlpack}

    def pointer(self, obj):
        return obj.unsafe_buffer_pointer()

    def values(self, obj):
        return obj.tolist()


# arrowdev's own devices come first in each table, and are created last: a library may load the
# runtime of its devices.
DEVICE_PEERS = (
    OwnDeviceArray,
    OwnDeviceTensor,
    Dpnp,
    UsmArray,
    PyOpenCL,
    CuPy,
    NumbaCuda,
    CudaCore,
    HipPython,
    TorchGpu,
    JaxGpu,
)
