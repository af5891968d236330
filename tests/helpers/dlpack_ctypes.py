"""DLPack structs in ctypes, and hand-made producers and consumers.

Any field can be invalid, so that every documented error can be provoked.
"""

import ctypes
import math
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_void_p,
    py_object,
)

from arrowdev.testing._dlpack import DELETER, DLTensor, extents
from arrowdev.testing._dlpack import IS_COPIED as IS_COPIED
from arrowdev.testing._dlpack import READ_ONLY as READ_ONLY
from arrowdev.testing._dlpack import SUBBYTE_PADDED as SUBBYTE_PADDED
from arrowdev.testing._dlpack import DLDataType as DType
from arrowdev.testing._dlpack import DLDevice as Device
from arrowdev.testing._dlpack import DLManagedTensor as Legacy
from arrowdev.testing._dlpack import DLManagedTensorVersioned as Versioned
from arrowdev.testing._dlpack import DLPackVersion as Version

CPU, CUDA, CUDA_HOST, OPENCL, VULKAN, METAL, ROCM, ROCM_HOST = 1, 2, 3, 4, 7, 8, 10, 11
EXT_DEV, CUDA_MANAGED, ONEAPI, UNKNOWN = 12, 13, 14, 99
INT, UINT, FLOAT, OPAQUE, BFLOAT, COMPLEX, BOOL = range(7)
FLOAT32 = (FLOAT, 32, 1)


SET_ERROR = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
ALLOCATOR = PYFUNCTYPE(c_int, POINTER(DLTensor), POINTER(POINTER(Versioned)), c_void_p, SET_ERROR)
# Functions with py_object arguments: ctypes raises the exception that a call sets.
FROM_PY = PYFUNCTYPE(c_int, py_object, POINTER(POINTER(Versioned)))
TO_PY = PYFUNCTYPE(c_int, POINTER(Versioned), POINTER(py_object))
TENSOR_FROM_PY = PYFUNCTYPE(c_int, py_object, POINTER(DLTensor))
CURRENT_STREAM = PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))


class ExchangeAPI(Structure):
    _fields_ = [
        ("version", Version),
        ("prev_api", c_void_p),
        ("allocator", ALLOCATOR),
        ("from_py", FROM_PY),
        ("to_py", TO_PY),
        ("tensor_from_py", TENSOR_FROM_PY),
        ("current_stream", CURRENT_STREAM),
    ]


api = ctypes.pythonapi
api.PyCapsule_New.restype = py_object
api.PyCapsule_New.argtypes = [c_void_p, c_char_p, c_void_p]
api.PyCapsule_GetPointer.restype = c_void_p
api.PyCapsule_GetPointer.argtypes = [py_object, c_char_p]
api.PyCapsule_GetName.restype = c_char_p
api.PyCapsule_GetName.argtypes = [py_object]
api.PyCapsule_SetName.argtypes = [py_object, c_char_p]

# These objects live until the process ends: capsules hold names and structs by pointer.
_forever = []


def capsule_new(pointer, name):
    name = c_char_p(name.encode())
    _forever.append(name)
    return api.PyCapsule_New(pointer, name, None)


def capsule_name(capsule):
    return api.PyCapsule_GetName(capsule).decode()


def int64s(values):
    return None if values is None else (c_int64 * max(len(values), 1))(*values)


def compact_strides(shape):
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


class Managed:
    """A managed tensor over its own memory that counts its deletions."""

    def __init__(
        self,
        values=(1.0, 2.0, 3.0),
        *,
        shape=None,
        strides="compact",
        dtype=FLOAT32,
        device=(CPU, 0),
        data="own",
        ndim=None,
        has_shape=True,
        byte_offset=0,
        flags=0,
        versioned=True,
        version=(1, 3),
        deleter=True,
    ):
        self.memory = (ctypes.c_float * max(len(values), 1))(*values)
        shape = (len(values),) if shape is None else shape
        self.shape = int64s(shape) if has_shape else None
        self.strides = int64s(compact_strides(shape) if strides == "compact" else strides)
        self.deleted = 0
        self.deleter = DELETER(self._delete)
        self.is_versioned = versioned
        self.struct = Versioned() if versioned else Legacy()
        if versioned:
            self.struct.version = Version(*version)
            self.struct.flags = flags
        self.struct.deleter = ctypes.cast(self.deleter, c_void_p) if deleter else None
        tensor = self.struct.tensor
        tensor.data = ctypes.addressof(self.memory) if data == "own" else data
        tensor.device = Device(*device)
        tensor.ndim = len(shape) if ndim is None else ndim
        tensor.dtype = DType(*dtype)
        tensor.byte_offset = byte_offset
        for field in ("shape", "strides"):
            if getattr(self, field) is not None:
                setattr(tensor, field, ctypes.addressof(getattr(self, field)))
        _forever.append(self)

    def _delete(self, pointer):
        assert pointer == ctypes.addressof(self.struct)
        self.deleted += 1

    @property
    def data(self):
        return ctypes.addressof(self.memory)

    def capsule(self, name=None):
        default = "dltensor_versioned" if self.is_versioned else "dltensor"
        return capsule_new(ctypes.addressof(self.struct), name or default)


class Producer:
    """An object with __dlpack__ that records how it was called.

    `knows`: the keywords that __dlpack__ accepts; others raise TypeError.
    `error`: what it raises. `result`: what it returns instead of a capsule.
    """

    def __init__(
        self,
        *args,
        advertised=None,
        name=None,
        knows=("stream", "max_version", "copy"),
        error=None,
        **kwargs,
    ):
        self.managed = Managed(*args, **kwargs)
        device = self.managed.struct.tensor.device
        self.advertised = (device.type, device.id) if advertised is None else advertised
        self.name = name
        self.knows = knows
        self.error = error
        self.calls = []
        self.result = None
        self.capsule = None

    @property
    def deleted(self):
        return self.managed.deleted

    def __dlpack_device__(self):
        return self.advertised

    def __dlpack__(self, **kwargs):
        self.calls.append(kwargs)
        unknown = set(kwargs) - set(self.knows)
        if unknown:
            raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
        if self.error is not None:
            raise self.error
        self.capsule = self.result or self.managed.capsule(self.name)
        return self.capsule


class OnlyDLPack:
    """Exposes only the DLPack side of an object."""

    def __init__(self, inner):
        self._inner = inner

    def __dlpack__(self, **kwargs):
        return self._inner.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self._inner.__dlpack_device__()


def only_legacy(inner):
    """The same for a producer of DLPack without versions."""

    class Legacy(OnlyDLPack):
        def __dlpack__(self, *, stream=None):
            return super().__dlpack__(stream=stream)

    return Legacy(inner)


class Received:
    """Owns the contents of a capsule; delete() runs the deleter."""

    def __init__(self, capsule):
        name = capsule_name(capsule)
        self.is_versioned = name == "dltensor_versioned"
        assert name in ("dltensor", "dltensor_versioned")
        pointer = api.PyCapsule_GetPointer(capsule, name.encode())
        used = c_char_p(f"used_{name}".encode())
        _forever.append(used)
        api.PyCapsule_SetName(capsule, used)
        self._read((Versioned if self.is_versioned else Legacy).from_address(pointer))

    @classmethod
    def of_struct(cls, struct):
        self = cls.__new__(cls)
        self.is_versioned = True
        self._read(struct)
        return self

    def _read(self, struct):
        self.struct = struct
        tensor = struct.tensor
        self.flags = struct.flags if self.is_versioned else None
        self.version = (struct.version.major, struct.version.minor) if self.is_versioned else None
        self.data = tensor.data
        self.device = (tensor.device.type, tensor.device.id)
        self.dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
        self.ndim = tensor.ndim
        self.shape = extents(tensor, "shape")
        self.strides = extents(tensor, "strides")
        self.byte_offset = tensor.byte_offset

    def delete(self):
        DELETER(self.struct.deleter)(ctypes.addressof(self.struct))


def exchange_type(table, name="Foreign", **members):
    """A class with this exchange API."""
    _forever.append(table)
    capsule = capsule_new(ctypes.addressof(table), "dlpack_exchange_api")
    return type(name, (), {"__dlpack_c_exchange_api__": capsule, **members})


def exchange_table(type_):
    """The exchange table of a class."""
    pointer = api.PyCapsule_GetPointer(
        type_.__dict__["__dlpack_c_exchange_api__"], b"dlpack_exchange_api"
    )
    return ExchangeAPI.from_address(pointer)
