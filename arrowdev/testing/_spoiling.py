"""Arrays and tensors of int64 that notice what a consumer does to them.

They count their releases and overwrite their memory at the release, so that a later read of it is
noticed.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int64, c_void_p

from arrowdev.testing import _device
from arrowdev.testing._abi import (
    ArrowArray,
    ArrowDeviceArray,
    ArrowSchema,
    new_capsule,
)
from arrowdev.testing._dlpack import (
    DLDataType,
    DLDevice,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLPackVersion,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import CapsuleType

NULLABLE = 2

# The targets of structs and capsules. They are kept: the last pointer's end is unknown.
_kept: list[Any] = []

# Callbacks in C: Python code cannot run while an exception is set, when consumers may release
# structs.
_CALLBACKS = _device.callbacks()


class _Record(ctypes.Structure):
    """The private_data of a struct: see csrc/test_device/callbacks.c."""

    _fields_ = [("released", c_int64), ("data", c_void_p), ("nbytes", c_int64)]


def _capsule(struct: Any, name: str, giver: str) -> CapsuleType:
    text = name.encode()
    _kept.append((struct, text))
    return new_capsule(ctypes.addressof(struct), text, _CALLBACKS[f"{giver}.destroy"])


def _pointers(addresses: list[int | None]) -> int:
    array = (c_void_p * max(len(addresses), 1))(*addresses)
    _kept.append(array)
    return ctypes.addressof(array)


class CountedStruct:
    """A struct whose release callback counts. Its children are released with it."""

    def __init__(self, struct: Any, giver: str, children: tuple[CountedStruct, ...] = ()) -> None:
        self.struct = struct
        self.giver = giver
        self.children = children
        self.is_given = False
        self.record = _Record()
        struct.private_data = ctypes.addressof(self.record)
        struct.release = _CALLBACKS[f"{giver}.release"]
        if hasattr(struct, "n_children"):
            struct.n_children = len(children)
            struct.children = _pointers([ctypes.addressof(child.struct) for child in children])
        _kept.append(self)

    @property
    def released(self) -> int:
        return int(self.record.released)

    def give(self, name: str, struct: Any = None) -> CapsuleType:
        """A capsule over the struct, or over one that it stands in."""
        self.is_given = True
        return _capsule(self.struct if struct is None else struct, name, self.giver)


def schema_of(
    format: str, name: str, *children: CountedStruct, flags: int | None = None
) -> CountedStruct:
    text = (format.encode(), name.encode())
    _kept.append(text)
    if flags is None:
        flags = NULLABLE if format != "+s" else 0
    struct = ArrowSchema(flags=flags)
    struct.format = ctypes.cast(c_char_p(text[0]), c_void_p)
    struct.name = ctypes.cast(c_char_p(text[1]), c_void_p)
    return CountedStruct(struct, "schema", children)


class Column:
    """An array of int64, `values` with None for null, at offset 1.

    `spoils`: whether the release overwrites the numbers and the bitmap.
    """

    def __init__(
        self, values: list[int | None], format: str = "l", *, spoils: bool = True
    ) -> None:
        n = len(values) + 1
        self.data = (c_int64 * (n + 1))(111, *(value or 0 for value in values))
        self.bits = (ctypes.c_uint8 * 8).from_buffer(self.data, 8 * n)
        for i, value in enumerate(values, 1):
            self.bits[i // 8] |= (value is not None) << i % 8
        has_nulls = None in values
        struct = ArrowArray(length=len(values), offset=1, n_buffers=2)
        struct.null_count = -1 if has_nulls else 0
        bitmap = ctypes.addressof(self.bits) if has_nulls else None
        struct.buffers = _pointers([bitmap, ctypes.addressof(self.data)])
        self.array = CountedStruct(struct, "array")
        self.array.record.data = ctypes.addressof(self.data) if spoils else None
        self.array.record.nbytes = ctypes.sizeof(self.data)
        self.schema = schema_of(format, "a")
        _kept.append(self)


class Batch(Column):
    """A record batch whose only column "a" is a Column."""

    def __init__(
        self, values: list[int | None], format: str = "l", *, spoils: bool = True
    ) -> None:
        super().__init__(values, format, spoils=spoils)
        struct = ArrowArray(length=len(values), n_buffers=1, buffers=_pointers([None]))
        self.array = CountedStruct(struct, "array", (self.array,))
        self.schema = schema_of("+s", "", self.schema)


class HostArray:
    """Shows ``__arrow_c_array__`` alone; `name` is that of the capsule."""

    def __init__(self, column: Column, name: str = "arrow_array") -> None:
        self.column, self.name = column, name

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return self.column.schema.give("arrow_schema"), self.column.array.give(self.name)


class DeviceArray:
    """Shows ``__arrow_c_device_array__`` alone; `name` is that of the capsule."""

    def __init__(
        self,
        column: Column,
        name: str = "arrow_device_array",
        *,
        device: tuple[int, int] = (1, -1),
        reserved: int = 0,
    ) -> None:
        self.column, self.name = column, name
        self.struct = ArrowDeviceArray(device_type=device[0], device_id=device[1])
        self.struct.reserved[:] = [reserved] * 3

    def __arrow_c_device_array__(
        self, requested_schema: object = None, **kwargs: object
    ) -> tuple[Any, Any]:
        if any(value is not None for value in kwargs.values()):
            raise NotImplementedError(f"unknown keyword arguments: {sorted(kwargs)}")
        self.struct.array = self.column.array.struct
        array = self.column.array.give(self.name, self.struct)
        return self.column.schema.give("arrow_schema"), array


class Tensor:
    """Shows DLPack alone; `knows_versions`: whether max_version is a keyword of it."""

    def __init__(
        self,
        values: list[int],
        knows_versions: bool = True,
        major: int = 1,
        *,
        spoils: bool = True,
    ) -> None:
        self.data = (c_int64 * len(values))(*values)
        self.shape, self.strides = (c_int64 * 1)(len(values)), (c_int64 * 1)(1)
        self.knows_versions, self.major = knows_versions, major
        where = ctypes.addressof(self.data) if spoils else None
        self.record = _Record(0, where, ctypes.sizeof(self.data))
        self.capsules: list[str] = []
        _kept.append(self)

    @property
    def deleted(self) -> int:
        return int(self.record.released)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, *, stream: object = None, **kwargs: Any) -> CapsuleType:
        if kwargs and not self.knows_versions:
            raise TypeError(f"__dlpack__() got an unexpected keyword argument {min(kwargs)!r}")
        if stream is not None:
            raise BufferError("the CPU has no streams")
        is_versioned = (kwargs.get("max_version") or (0,))[0] >= 1
        struct = DLManagedTensorVersioned() if is_versioned else DLManagedTensor()
        if is_versioned:
            struct.version = DLPackVersion(self.major, 0)
        tensor = struct.tensor
        tensor.data = ctypes.addressof(self.data)
        tensor.device, tensor.dtype, tensor.ndim = DLDevice(1, 0), DLDataType(0, 64, 1), 1
        tensor.shape = ctypes.addressof(self.shape)
        tensor.strides = ctypes.addressof(self.strides)
        giver = "versioned" if is_versioned else "legacy"
        struct.manager_ctx = ctypes.addressof(self.record)
        struct.deleter = _CALLBACKS[f"{giver}.release"]
        self.capsules.append("dltensor_versioned" if is_versioned else "dltensor")
        self.capsule = _capsule(struct, self.capsules[-1], giver)
        return self.capsule
