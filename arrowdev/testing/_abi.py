"""The structs of the Arrow C interfaces, in ctypes.

The layout is that of the reference header: ``ArrowAsyncProducer`` has no ``release``. A pointer is
an address (int or None), so that a struct can also be invalid.
``tests/project/test_abi.py`` compares the structs with ``csrc/abi/arrow_c.h``.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import CFUNCTYPE, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_int64, c_void_p

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from typing_extensions import CapsuleType


class ArrowSchema(Structure):
    _fields_ = [
        ("format", c_void_p),
        ("name", c_void_p),
        ("metadata", c_void_p),
        ("flags", c_int64),
        ("n_children", c_int64),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowArray(Structure):
    _fields_ = [
        ("length", c_int64),
        ("null_count", c_int64),
        ("offset", c_int64),
        ("n_buffers", c_int64),
        ("n_children", c_int64),
        ("buffers", c_void_p),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowDeviceArray(Structure):
    _fields_ = [
        ("array", ArrowArray),
        ("device_id", c_int64),
        ("device_type", c_int32),
        ("sync_event", c_void_p),
        ("reserved", c_int64 * 3),
    ]


class ArrowArrayStream(Structure):
    _fields_ = [
        ("get_schema", c_void_p),
        ("get_next", c_void_p),
        ("get_last_error", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowDeviceArrayStream(Structure):
    _fields_ = [
        ("device_type", c_int32),
        ("get_schema", c_void_p),
        ("get_next", c_void_p),
        ("get_last_error", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowAsyncTask(Structure):
    _fields_ = [
        ("extract_data", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowAsyncProducer(Structure):
    _fields_ = [
        ("device_type", c_int32),
        ("request", c_void_p),
        ("cancel", c_void_p),
        ("additional_metadata", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowAsyncDeviceStreamHandler(Structure):
    _fields_ = [
        ("on_schema", c_void_p),
        ("on_next_task", c_void_p),
        ("on_error", c_void_p),
        ("release", c_void_p),
        ("producer", c_void_p),
        ("private_data", c_void_p),
    ]


STRUCTS: tuple[type[Structure], ...] = (
    ArrowSchema,
    ArrowArray,
    ArrowDeviceArray,
    ArrowArrayStream,
    ArrowDeviceArrayStream,
    ArrowAsyncTask,
    ArrowAsyncProducer,
    ArrowAsyncDeviceStreamHandler,
)

# The types of the callbacks by the name of the member, which determines the signature.
CALLBACKS: dict[str, Any] = {
    "release": CFUNCTYPE(None, c_void_p),
    "get_schema": CFUNCTYPE(c_int, c_void_p, c_void_p),
    "get_next": CFUNCTYPE(c_int, c_void_p, c_void_p),
    "get_last_error": CFUNCTYPE(c_void_p, c_void_p),
    "extract_data": CFUNCTYPE(c_int, c_void_p, c_void_p),
    "request": CFUNCTYPE(None, c_void_p, c_int64),
    "cancel": CFUNCTYPE(None, c_void_p),
    "on_schema": CFUNCTYPE(c_int, c_void_p, c_void_p),
    "on_next_task": CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p),
    "on_error": CFUNCTYPE(None, c_void_p, c_int, c_void_p, c_void_p),
}


def call(target: Structure, member: str, *arguments: Any) -> Any:
    """Call one of a struct's callbacks on the struct itself, without the GIL."""
    function = CALLBACKS[member](getattr(target, member))
    return function(ctypes.addressof(target), *arguments)


def address_of(callback: Any) -> int:
    """Return the address of a callback that was created from CALLBACKS."""
    address = ctypes.cast(callback, c_void_p).value
    assert address is not None
    return address


def move(source: Structure, target: int) -> None:
    """Move a schema, an array or a stream to the consumer's struct."""
    ctypes.memmove(target, ctypes.addressof(source), ctypes.sizeof(source))
    getattr(source, "array", source).release = None


# --- metadata -----------------------------------------------------------------------------------


def encode_metadata(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of ``ArrowSchema.metadata``."""
    items = list(pairs)
    blob = struct.pack("=i", len(items))
    for pair in items:
        for part in pair:
            blob += struct.pack("=i", len(part)) + part
    return blob


# --- capsules -----------------------------------------------------------------------------------

CAPSULES: dict[str, type[Structure]] = {
    "arrow_schema": ArrowSchema,
    "arrow_array": ArrowArray,
    "arrow_device_array": ArrowDeviceArray,
    "arrow_array_stream": ArrowArrayStream,
    "arrow_device_array_stream": ArrowDeviceArrayStream,
    # arrowdev's own: the specification has no Python protocol for it.
    "arrowdev_async_device_stream_handler": ArrowAsyncDeviceStreamHandler,
}

# Own prototypes: restype and argtypes of ctypes.pythonapi are shared by the process.
new_capsule: Callable[[int | None, bytes | None, Any], CapsuleType] = PYFUNCTYPE(
    ctypes.py_object, c_void_p, c_char_p, c_void_p
)(("PyCapsule_New", ctypes.pythonapi))

get_pointer: Callable[[CapsuleType, bytes | None], int] = PYFUNCTYPE(
    c_void_p, ctypes.py_object, c_char_p
)(("PyCapsule_GetPointer", ctypes.pythonapi))

get_name: Callable[[CapsuleType], bytes | None] = PYFUNCTYPE(c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)

# By address: a capsule keeps the address of its name, not the name.
set_name: Callable[[CapsuleType, int], int] = PYFUNCTYPE(c_int, ctypes.py_object, c_void_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)

decref: Callable[[int], None] = PYFUNCTYPE(None, c_void_p)(("Py_DecRef", ctypes.pythonapi))

_used: dict[bytes, Any] = {}


def mark_used(capsule: CapsuleType) -> None:
    """Put "used_" before the capsule's name, so that its destructor ignores the struct."""
    name = b"used_" + (get_name(capsule) or b"")
    text = _used.setdefault(name, ctypes.create_string_buffer(name))
    set_name(capsule, ctypes.addressof(text))


def inside(capsule: CapsuleType, name: str) -> Any:
    """Return the struct in a capsule of this name, in place; ValueError for any other capsule."""
    return CAPSULES[name].from_address(get_pointer(capsule, name.encode()))


def take(capsule: CapsuleType, name: str) -> Any:
    """Move the struct out of a capsule; ValueError if it was moved out before."""
    source = inside(capsule, name)
    if not getattr(source, "array", source).release:
        raise ValueError(f"the {name} capsule was consumed before; ask for a new one")
    taken = type(source)()
    move(source, ctypes.addressof(taken))
    return taken
