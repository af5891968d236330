"""The libraries that ``python -m arrowdev matrix`` tries, one class each.

To add a library, add one class: it creates an array, reads the address and the
values of one, and names the class that arrowdev converts to and the library's
own constructors that a user would try without arrowdev. The order of ARRAYS, and
of PEERS in frames.py, is the order of the rows and columns.

The library's own functions read the address where it has any, so that
"zero-copy" does not rely on arrowdev.
"""

import array
import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util
import os

import arrowdev

ALIGNMENT = 64  # recommended by Arrow, required by jax for zero-copy

# Name of a number type in the matrix: (letter of the struct module, ctypes class).
CTYPES = {
    "int8": ("b", ctypes.c_int8),
    "int16": ("h", ctypes.c_int16),
    "int32": ("i", ctypes.c_int32),
    "int64": ("q", ctypes.c_int64),
    "uint8": ("B", ctypes.c_uint8),
    "uint16": ("H", ctypes.c_uint16),
    "uint32": ("I", ctypes.c_uint32),
    "uint64": ("Q", ctypes.c_uint64),
    "float32": ("f", ctypes.c_float),
    "float64": ("d", ctypes.c_double),
}


class Payload:
    """The values that every producer holds, and raw memory with them.

    is_timed: whether the calls that hand it over are timed as well.
    """

    def __init__(self, dtype="int64", length=1000, is_timed=True):
        self.dtype = dtype
        self.length = length
        self.is_timed = is_timed
        self.letter, self.ctype = CTYPES[dtype]
        self.itemsize = ctypes.sizeof(self.ctype)
        self.values = self._values()
        self.raw = array.array(self.letter, self.values).tobytes()

    def _values(self):
        """Return 0, 1, 2, ... and a last value that does not fit a narrower type."""
        bits = 8 * self.itemsize
        if self.dtype.startswith("float"):
            return [*(n / 2 for n in range(self.length - 1)), -(2.0 ** (bits // 2))]
        values = [n % 100 for n in range(self.length)]
        values[-1] = 2**bits - 1 if self.dtype.startswith("uint") else -(2 ** (bits - 1))
        return values

    def aligned(self):
        """Return the values in ctypes memory that is aligned to ALIGNMENT."""
        memory = bytearray(len(self.raw) + ALIGNMENT)
        start = -buffer_address(memory) % ALIGNMENT
        memory[start : start + len(self.raw)] = self.raw
        return (self.ctype * self.length).from_buffer(memory, start)

    def first_aligned(self, make, address):
        """Call `make` several times and return the best-aligned result."""
        tries = []  # kept alive, so that no two have the same memory
        for _ in range(64):
            tries.append(make())
            if address(tries[-1]) % ALIGNMENT == 0:
                break
        return tries[-1]


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


# Not ctypes.pythonapi: its functions, and so their argtypes, are shared.
_python = ctypes.PyDLL(None)
_get_buffer = _python.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = _python.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None


def buffer_address(obj):
    """Return the address of the memory that `obj` exports by the buffer protocol."""
    view = _PyBuffer()
    _get_buffer(obj, ctypes.byref(view), 0)  # raises what `obj` raises
    address = view.buf
    _release_buffer(ctypes.byref(view))
    return address


def arrow_address(obj):
    """Return the address of the values that `obj` exports by Arrow."""
    return buffer_address(arrowdev.array(obj, copy=False))


class Peer:
    """One library: a row as producer, a column as consumer.

    This base class is also the peer of any object with the buffer protocol.
    """

    name: str  # of the row and the column, and for --only
    heading: str | None = None  # of the column if not the name; "/" starts a new line
    aliases: tuple[str, ...] = ()  # further names for --only
    module: str | None = None  # to import; None: always available
    pip: str | None = None  # name of the distribution
    consumes = True  # False: it always copies
    by_default = True  # False: only if --only names it

    def is_installed(self):
        # The top-level name: looking up a submodule would import its parents.
        return not self.module or importlib.util.find_spec(self.module.split(".")[0]) is not None

    def load(self):
        """Import the library; errors of the import are raised."""
        if self.module:
            self.lib = importlib.import_module(self.module)

    def version(self):
        if not self.module:
            return None
        try:
            return importlib.metadata.version(self.pip)
        except importlib.metadata.PackageNotFoundError:  # a build in place, or conda
            return getattr(self.lib, "__version__", "unknown")

    def make(self, payload):
        """Return an array of the library with the values of `payload`."""
        raise NotImplementedError

    def target(self):
        """Return the class for arrowdev.convert()."""
        raise NotImplementedError

    def through(self, payload):
        """Return the way from any object through arrowdev to this library: (how, function)."""
        cls = self.target()
        # jax.Array calls itself "jaxlib._jax.Array".
        name = ".".join(filter(None, (self.module, cls.__name__.rpartition(".")[2])))
        return f"arrowdev.convert(x, {name})", lambda x: arrowdev.convert(x, cls)

    def shown(self, payload):
        """Return the way from an array to an object with a protocol: (how, function).

        None: the array itself has a protocol.
        """
        return None

    def direct(self, payload):
        """Return the library's own ways to import another library's object, the usual one first.

        The keys are the names in the output, the values are functions.
        """
        return {}

    def pointer(self, obj):
        return buffer_address(obj)

    def values(self, obj):
        view = memoryview(obj)
        # Its tolist() does not accept "<q", which ctypes and jax use for "q".
        return memoryview(view.tobytes()).cast(view.format.lstrip("@=<")).tolist()


# --- always available ----------------------------------------------------------


class OwnArray(Peer):
    name = "ad.Array"
    heading = "ad./Array"
    aliases = ("arrowdev",)

    def make(self, payload):
        return arrowdev.array(payload.aligned())

    def through(self, payload):
        return "arrowdev.array(x)", arrowdev.array

    def values(self, obj):
        return obj.to_pylist()


class OwnTensor(Peer):
    name = "ad.Tensor"
    heading = "ad./Tensor"
    aliases = ("arrowdev",)

    def make(self, payload):
        return arrowdev.tensor(payload.aligned())

    def through(self, payload):
        return "arrowdev.tensor(x)", arrowdev.tensor


class Memoryview(Peer):
    name = "memoryview"
    heading = "memory/view"

    def make(self, payload):
        return memoryview(payload.aligned()).cast("B").cast(payload.letter)

    def target(self):
        return memoryview

    def direct(self, payload):
        return {"memoryview(x)": memoryview}


class Bytes(Peer):
    """Read-only memory."""

    name = "bytes"
    consumes = False

    def make(self, payload):
        data = payload.first_aligned(lambda: bytes(bytearray(payload.raw)), buffer_address)
        return memoryview(data).cast(payload.letter)


class Ctypes(Peer):
    name = "ctypes"

    def make(self, payload):
        return payload.aligned()

    def through(self, payload):
        from_buffer = self._type(payload).from_buffer
        return "from_buffer(arrowdev.tensor(x))", lambda x: from_buffer(arrowdev.tensor(x))

    def direct(self, payload):
        return {"ctypes from_buffer(x)": self._type(payload).from_buffer}

    @staticmethod
    def _type(payload):
        return payload.ctype * payload.length


class ArrayArray(Peer):
    name = "array.array"
    aliases = ("array",)
    consumes = False

    def make(self, payload):
        return payload.first_aligned(
            lambda: array.array(payload.letter, payload.values), buffer_address
        )


# --- optional --------------------------------------------------------------------


class NumPy(Peer):
    name = module = pip = "numpy"

    def make(self, payload):
        return aligned_numpy(self.lib, payload)

    def target(self):
        return self.lib.ndarray

    def direct(self, payload):
        return {
            "numpy.from_dlpack(x)": self.lib.from_dlpack,
            "numpy.asarray(x)": self.lib.asarray,
        }

    def pointer(self, obj):
        return obj.__array_interface__["data"][0]

    def values(self, obj):
        return obj.tolist()


def aligned_numpy(numpy, payload):
    memory = numpy.empty(len(payload.raw) + ALIGNMENT, "uint8")
    start = -memory.ctypes.data % ALIGNMENT
    result = memory[start : start + len(payload.raw)].view(payload.dtype)
    result[:] = payload.values
    return result


class PyArrow(Peer):
    name = module = pip = "pyarrow"
    heading = "py-/arrow"

    def make(self, payload):
        return self.lib.array(payload.values, getattr(self.lib, payload.dtype)())

    def target(self):
        return self.lib.Array

    def direct(self, payload):
        return {"pyarrow.array(x)": self.lib.array}

    def pointer(self, obj):
        return obj.buffers()[1].address + obj.offset * (obj.type.bit_width // 8)

    def values(self, obj):
        return obj.to_pylist()


class NanoArrow(Peer):
    name = module = pip = "nanoarrow"
    heading = "nano-/arrow"

    def make(self, payload):
        return self.lib.Array(payload.aligned(), getattr(self.lib, payload.dtype)())

    def target(self):
        return self.lib.Array

    def direct(self, payload):
        return {"nanoarrow.Array(x)": self.lib.Array}

    def pointer(self, obj):
        view = self.lib.c_array(obj)
        return view.buffers[1] + view.offset * obj.buffer(1).itemsize

    def values(self, obj):
        return obj.to_pylist()


class Torch(Peer):
    name = module = pip = "torch"
    aliases = ("pytorch",)

    def make(self, payload):
        return self.lib.tensor(payload.values, dtype=self._dtype(payload))

    def target(self):
        return self.lib.Tensor

    def direct(self, payload):
        dtype = self._dtype(payload)
        return {
            "torch.from_dlpack(x)": self.lib.from_dlpack,
            "torch.frombuffer(x)": functools.partial(self.lib.frombuffer, dtype=dtype),
            "torch.as_tensor(x)": self.lib.as_tensor,
        }

    def _dtype(self, payload):
        return getattr(self.lib, payload.dtype)

    def pointer(self, obj):
        return obj.data_ptr()

    def values(self, obj):
        return obj.tolist()


class Jax(Peer):
    name = module = pip = "jax"

    def load(self):
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        super().load()
        # Otherwise jax narrows every 64-bit number and cannot be zero-copy.
        # The arrays must be on the host, like those of the other libraries.
        self.lib.config.update("jax_enable_x64", True)
        self.lib.config.update("jax_default_device", self.lib.devices("cpu")[0])

    def make(self, payload):
        return self.lib.numpy.array(payload.values, payload.dtype).block_until_ready()

    def target(self):
        return self.lib.Array

    def direct(self, payload):
        return {
            "jax.numpy.from_dlpack(x)": self.lib.numpy.from_dlpack,
            "jax.numpy.asarray(x)": self.lib.numpy.asarray,
        }

    def pointer(self, obj):
        return obj.unsafe_buffer_pointer()

    def values(self, obj):
        return obj.tolist()


class Polars(Peer):
    name = module = pip = "polars"

    def make(self, payload):
        name = payload.dtype.capitalize().replace("Uint", "UInt")
        return self.lib.Series(payload.values, dtype=getattr(self.lib, name))

    def target(self):
        return self.lib.Series

    def direct(self, payload):
        return {"polars.Series(x)": self.lib.Series}

    def pointer(self, obj):
        return arrow_address(obj)

    def values(self, obj):
        return obj.to_list()


class Pandas(Peer):
    name = module = pip = "pandas"

    def make(self, payload):
        import numpy  # pandas needs it anyway

        return self.lib.Series(aligned_numpy(numpy, payload), copy=False)

    def target(self):
        return self.lib.Series

    def direct(self, payload):
        routes = {"pandas.Series(x)": functools.partial(self.lib.Series, copy=False)}
        if hasattr(self.lib.Series, "from_arrow"):  # pandas 3
            routes = {"pandas.Series.from_arrow(x)": self.lib.Series.from_arrow, **routes}
        return routes

    def pointer(self, obj):
        values = obj.array
        if hasattr(values, "__arrow_array__"):  # backed by pyarrow
            [chunk] = values.__arrow_array__().chunks
            return PyArrow.pointer(self, chunk)
        return values.to_numpy(copy=False).__array_interface__["data"][0]

    def values(self, obj):
        return obj.tolist()


class Arro3(Peer):
    name = "arro3"
    module = "arro3.core"
    pip = "arro3-core"

    def make(self, payload):
        dtype = getattr(self.lib.DataType, payload.dtype)()
        return payload.first_aligned(lambda: self.lib.Array(payload.values, dtype), self.pointer)

    def target(self):
        return self.lib.Array

    def direct(self, payload):
        return {
            "arro3.core.Array.from_arrow(x)": self.lib.Array.from_arrow,
            "arro3.core.Array.from_buffer(x)": self.lib.Array.from_buffer,
            "arro3.core.Array.from_numpy(x)": self.lib.Array.from_numpy,
        }

    def pointer(self, obj):
        return arrow_address(obj)  # its buffer() supports only int64

    def values(self, obj):
        return obj.to_pylist()


class TvmFfi(Peer):
    name = "tvm-ffi"
    heading = "tvm-/ffi"
    aliases = ("tvm", "tvm_ffi")
    module = "tvm_ffi"
    pip = "apache-tvm-ffi"

    def make(self, payload):
        # It has no function that creates a tensor.
        return self.lib.from_dlpack(arrowdev.tensor(payload.aligned()))

    def target(self):
        return self.lib.Tensor

    def direct(self, payload):
        return {"tvm_ffi.from_dlpack(x)": self.lib.from_dlpack}

    def pointer(self, obj):
        return obj.data_ptr()

    def values(self, obj):
        # It cannot return numbers: they are read at the address that it gives.
        _, ctype = CTYPES[str(obj.dtype)]
        return list((ctype * obj.shape[0]).from_address(obj.data_ptr()))


class XArray(Peer):
    """Of its own protocols, Arrow shows a table with the coordinates: arrowdev takes its data."""

    name = module = pip = "xarray"

    def make(self, payload):
        import numpy  # xarray needs it anyway

        return self.lib.DataArray(aligned_numpy(numpy, payload))

    def shown(self, payload):
        return "x.data", lambda x: x.data

    def through(self, payload):
        import numpy

        make = self.lib.DataArray
        how = "xarray.DataArray(arrowdev.convert(x, numpy.ndarray))"
        return how, lambda x: make(arrowdev.convert(x, numpy.ndarray))

    def direct(self, payload):
        return {"xarray.DataArray(x)": self.lib.DataArray}

    def pointer(self, obj):
        return obj.values.__array_interface__["data"][0]

    def values(self, obj):
        return obj.values.tolist()


class TensorFlow(Peer):
    """Its import takes seconds, and where a check of its own fails, it ends the process."""

    name = module = pip = "tensorflow"
    heading = "tensor-/flow"
    aliases = ("tf", "tensorflow-cpu")
    by_default = False

    def load(self):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        super().load()

    def version(self):
        return self.lib.__version__  # of several distributions

    def make(self, payload):
        with self.lib.device("CPU"):
            return self.lib.constant(payload.values, payload.dtype)

    def target(self):
        return self.lib.Tensor

    def direct(self, payload):
        take = self.lib.experimental.dlpack.from_dlpack
        return {
            "tf.experimental.dlpack.from_dlpack(x.__dlpack__())": lambda x: take(x.__dlpack__()),
            "tf.convert_to_tensor(x)": self.lib.convert_to_tensor,
        }

    def values(self, obj):
        return obj.numpy().tolist()


class OnnxRuntime(Peer):
    name = module = pip = "onnxruntime"
    heading = "onnx/runtime"
    aliases = ("ort",)

    def make(self, payload):
        import numpy  # onnxruntime needs it anyway

        return self.lib.OrtValue.ortvalue_from_numpy(aligned_numpy(numpy, payload))

    def target(self):
        return self.lib.OrtValue

    def direct(self, payload):
        return {"onnxruntime.OrtValue.from_dlpack(x)": self.lib.OrtValue.from_dlpack}

    def pointer(self, obj):
        return obj.data_ptr()

    def values(self, obj):
        return obj.numpy().tolist()


class Mlx(Peer):
    """It copies whatever it takes."""

    name = "mlx"
    module = "mlx.core"
    pip = "mlx[cpu]"

    def version(self):
        return importlib.metadata.version("mlx")

    def make(self, payload):
        dtype = getattr(self.lib, payload.dtype)
        with self.lib.stream(self.lib.cpu):
            return payload.first_aligned(
                lambda: self.lib.array(payload.values, dtype), buffer_address
            )

    def target(self):
        return self.lib.array

    def direct(self, payload):
        def take(x):
            if isinstance(x, ctypes.Array):
                raise TypeError("mlx 0.32 ends the process at a buffer without strides")
            return self.lib.array(x)

        return {"mlx.core.array(x)": take}

    def values(self, obj):
        return obj.tolist()


class ArrayApiStrict(Peer):
    name = "array-api-strict"
    heading = "array-/api"
    aliases = ("array_api_strict",)
    module = "array_api_strict"
    pip = "array-api-strict"

    def make(self, payload):
        import numpy  # array-api-strict needs it anyway

        return self.lib.asarray(aligned_numpy(numpy, payload), copy=False)

    def target(self):
        return type(self.lib.zeros(1))

    def direct(self, payload):
        return {"array_api_strict.from_dlpack(x)": self.lib.from_dlpack}

    def pointer(self, obj):
        import numpy

        return numpy.from_dlpack(obj).__array_interface__["data"][0]

    def values(self, obj):
        import numpy

        return numpy.from_dlpack(obj).tolist()


class Warp(Peer):
    """Its import takes seconds."""

    name = module = "warp"
    pip = "warp-lang"
    by_default = False

    def load(self):
        super().load()
        self.lib.config.quiet = True
        self.lib.init()

    def make(self, payload):
        import numpy  # warp needs it anyway

        dtype = getattr(self.lib, payload.dtype)
        return self.lib.array(aligned_numpy(numpy, payload), dtype=dtype, device="cpu", copy=False)

    def target(self):
        return self.lib.array

    def direct(self, payload):
        return {"warp.from_dlpack(x)": self.lib.from_dlpack}

    def pointer(self, obj):
        return obj.ptr

    def values(self, obj):
        return obj.numpy().tolist()


class Paddle(Peer):
    """Its import takes many seconds."""

    name = module = "paddle"
    pip = "paddlepaddle"
    by_default = False

    def make(self, payload):
        return self.lib.to_tensor(payload.values, payload.dtype, place=self.lib.CPUPlace())

    def target(self):
        return self.lib.Tensor

    def direct(self, payload):
        return {"paddle.from_dlpack(x)": self.lib.from_dlpack}

    def pointer(self, obj):
        return obj.data_ptr()

    def values(self, obj):
        return obj.numpy().tolist()


class OpenVino(Peer):
    """It has no protocol: arrowdev takes the NumPy array over its memory, and gives one."""

    name = module = pip = "openvino"
    heading = "open-/vino"
    by_default = False

    def make(self, payload):
        import numpy  # openvino needs it anyway

        return self.lib.Tensor(aligned_numpy(numpy, payload), shared_memory=True)

    def shown(self, payload):
        return "x.data", lambda x: x.data

    def target(self):
        return self.lib.Tensor

    def direct(self, payload):
        make = functools.partial(self.lib.Tensor, shared_memory=True)
        return {"openvino.Tensor(x, shared_memory=True)": make}

    def pointer(self, obj):
        return obj.data.__array_interface__["data"][0]

    def values(self, obj):
        return obj.data.tolist()


class Zarr(Peer):
    """What it stores is read by indexing, and is compressed."""

    name = module = pip = "zarr"
    by_default = False

    def make(self, payload):
        import numpy  # zarr needs it anyway

        return self.lib.array(numpy.array(payload.values, payload.dtype))

    def shown(self, payload):
        return "x[...]", lambda x: x[...]

    def through(self, payload):
        import numpy

        make = self.lib.array
        how = "zarr.array(arrowdev.convert(x, numpy.ndarray))"
        return how, lambda x: make(arrowdev.convert(x, numpy.ndarray))

    def direct(self, payload):
        return {"zarr.array(x)": self.lib.array}

    def pointer(self, obj):
        return None  # it has no memory of its own

    def values(self, obj):
        return obj[...].tolist()


ARRAYS = (
    OwnArray,
    OwnTensor,
    Memoryview,
    Bytes,
    Ctypes,
    ArrayArray,
    NumPy,
    PyArrow,
    NanoArrow,
    Torch,
    Jax,
    Polars,
    Pandas,
    Arro3,
    TvmFfi,
    XArray,
    OnnxRuntime,
    Mlx,
    ArrayApiStrict,
    Warp,
    Paddle,
    OpenVino,
    Zarr,
    TensorFlow,
)
