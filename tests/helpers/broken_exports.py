"""Producers for test_check_exports.py: tensors with an exchange API, and objects of two protocols.

Those whose exports differ have no other fault.
"""

import ctypes
from ctypes import PYFUNCTYPE, c_int, c_int32, c_int64, c_void_p, py_object

from broken_ends import Host, OnDevice, Tensor, forever

from arrowdev.testing import _abi, _dlpack, _spoiling

# --- exchange API ---------------------------------------------------------------------

FROM_OBJECT = PYFUNCTYPE(c_int, py_object, c_void_p)
FUNCTIONS = {
    "managed_tensor_allocator": PYFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p),
    "managed_tensor_from_py_object_no_sync": FROM_OBJECT,
    "managed_tensor_to_py_object_no_sync": PYFUNCTYPE(c_int, c_void_p, c_void_p),
    "dltensor_from_py_object_no_sync": FROM_OBJECT,
    "current_work_stream": PYFUNCTYPE(c_int, c_int32, c_int32, c_void_p),
}


def give(out, value):
    c_void_p.from_address(out).value = value
    return 0


def managed(*values):
    """The address of a new tensor."""
    given = _spoiling.Tensor(values)
    capsule = given.__dlpack__(max_version=(1, 0))
    forever.extend((given, capsule))
    return ctypes.addressof(_dlpack.take(capsule))


def give_shape(out, *shape):
    extents = (c_int64 * len(shape))(*shape)
    forever.append(extents)
    tensor = _dlpack.DLTensor.from_address(out)
    tensor.ndim, tensor.shape = len(shape), ctypes.addressof(extents)
    return 0


def import_tensor(pointer, out):
    struct = _dlpack.DLManagedTensorVersioned.from_address(pointer)
    _dlpack.delete(struct)
    made = Tensor()
    forever.append(made)
    ctypes.pythonapi.Py_IncRef(py_object(made))
    return give(out, id(made))


def fail(*arguments):
    """Fails, and sets no exception."""
    return -1


SOUND_EXCHANGE = {
    "managed_tensor_allocator": fail,
    "managed_tensor_from_py_object_no_sync": lambda obj, out: give(out, managed(1, 2, 3)),
    "managed_tensor_to_py_object_no_sync": import_tensor,
    "dltensor_from_py_object_no_sync": lambda obj, out: give_shape(out, 3),
    "current_work_stream": lambda type, id, out: give(out, None),
}


def exchange(major=1, **changes):
    """A Tensor whose type has an exchange API, with these functions for the sound ones."""
    table = _dlpack.DLPackExchangeAPI()
    table.version = _dlpack.DLPackVersion(major, 0)
    functions = {
        name: FUNCTIONS[name](function) for name, function in (SOUND_EXCHANGE | changes).items()
    }
    for name, function in functions.items():
        setattr(table, name, ctypes.cast(function, c_void_p))
    forever.append((table, functions))
    capsule = _abi.new_capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)
    return type("WithTable", (Tensor,), {"__dlpack_c_exchange_api__": capsule})()


# --- exports that differ --------------------------------------------------------------


class Both:
    """Shows a protocol of each of two objects."""

    def __init__(self, one, other):
        self.pair = one, other

    def __getattr__(self, name):
        for part in self.pair:
            if name in PROTOCOLS and hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(name)


PROTOCOLS = {
    "__arrow_c_array__", "__arrow_c_device_array__", "__arrow_c_stream__", "__dlpack__",
    "__dlpack_device__", "__array_interface__",
}  # fmt: skip


class Other(Host):
    """Exports other values, of the same number."""

    def column(self):
        column = super().column()
        column.data[1] = 99
        return column


class OtherOnDevice(OnDevice, Other):
    pass


class Shaped(Tensor):
    """The same data in an array interface of another shape."""

    @property
    def __array_interface__(self):
        where = ctypes.addressof(self.data)
        return {"shape": (1, 3), "typestr": "<i8", "data": (where, False), "version": 3}
