"""The structs of DLPack 1.3, in ctypes.

A pointer is an address (int or None), so that a struct can also be invalid.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    Structure,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)

from arrowdev.testing._abi import get_name, get_pointer, mark_used
from arrowdev.testing._host_read import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import CapsuleType

READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4
TYPE_CODES = (
    "int", "uint", "float", "opaque", "bfloat", "complex", "bool", "float8_e3m4", "float8_e4m3",
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
)  # fmt: skip


class DLPackVersion(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class DLDevice(Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", c_uint64),
    ]


class DLManagedTensor(Structure):
    _fields_ = [("tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p)]


class DLManagedTensorVersioned(Structure):
    _fields_ = [
        ("version", DLPackVersion),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", DLTensor),
    ]


class DLPackExchangeAPI(Structure):
    _fields_ = [
        ("version", DLPackVersion),
        ("prev_api", c_void_p),
        ("managed_tensor_allocator", c_void_p),
        ("managed_tensor_from_py_object_no_sync", c_void_p),
        ("managed_tensor_to_py_object_no_sync", c_void_p),
        ("dltensor_from_py_object_no_sync", c_void_p),
        ("current_work_stream", c_void_p),
    ]


DELETER = CFUNCTYPE(None, c_void_p)

CAPSULES: dict[str, type[Structure]] = {
    "dltensor": DLManagedTensor,
    "dltensor_versioned": DLManagedTensorVersioned,
    "dlpack_exchange_api": DLPackExchangeAPI,
}


def inside(capsule: CapsuleType) -> Any:
    """Return the struct in a capsule, in place; ValueError for a capsule of another name."""
    name = (get_name(capsule) or b"").decode(errors="replace")
    if name not in CAPSULES:
        raise ValueError(f"a capsule named {name!r}; expected one of {', '.join(CAPSULES)}")
    return CAPSULES[name].from_address(get_pointer(capsule, name.encode()))


def take(capsule: CapsuleType) -> Any:
    """Consume a capsule: rename it, and return the struct, which the caller deletes."""
    struct = inside(capsule)
    mark_used(capsule)
    return struct


def delete(struct: Any) -> None:
    """Call the deleter, which may be NULL."""
    if struct.deleter:
        DELETER(struct.deleter)(ctypes.addressof(struct))


def extents(tensor: DLTensor, field: str) -> tuple[int, ...] | None:
    """`shape` or `strides` as a tuple; None for NULL."""
    address = getattr(tensor, field)
    if not address:
        return None
    return tuple((c_int64 * tensor.ndim).from_buffer_copy(read(address, 8 * tensor.ndim)))


def dtype_name(dtype: DLDataType) -> str:
    kind = TYPE_CODES[dtype.code] if dtype.code < len(TYPE_CODES) else f"code {dtype.code} of "
    bits = "" if kind == "bool" or "_" in kind else str(dtype.bits)
    return f"{kind}{bits}" + (f" x {dtype.lanes}" if dtype.lanes != 1 else "")
