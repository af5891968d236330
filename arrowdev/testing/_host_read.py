"""Reads the structs of the Arrow C interfaces, and memory that may be none of the host's.

Pointers of others are never dereferenced: the kernel copies from them, and says where it cannot.
"""

from __future__ import annotations

import ctypes
import os
import struct
from ctypes import c_int, c_size_t, c_ssize_t, c_void_p

from arrowdev import DeviceType
from arrowdev.testing._abi import ArrowArray, ArrowSchema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

DEVICE_TYPES = {type.value: type.name for type in DeviceType}

# DLPack names them, Arrow does not.
NOT_IN_ARROW = frozenset({DeviceType.MAIA, DeviceType.TRAINIUM})

# Device types whose `sync_event` should always be NULL.
WITHOUT_EVENTS = NOT_IN_ARROW | {
    *(DeviceType.CPU, DeviceType.VPI, DeviceType.WEBGPU, DeviceType.HEXAGON)
}

FLAGS = {1: "DICTIONARY_ORDERED", 2: "NULLABLE", 4: "MAP_KEYS_SORTED"}

# Larger counts are considered invalid.
MAX_CHILDREN = 1 << 20
MAX_BUFFERS = 1 << 20
MAX_PAIRS = 1 << 16
MAX_METADATA = 1 << 26
MAX_TEXT = 1 << 20


class Malformed(ValueError):
    """A struct that cannot be read."""


# --- memory -------------------------------------------------------------------------------------


def _libc() -> ctypes.CDLL:
    """Return the C library itself: sanitizers put their own write() before it."""
    try:
        return ctypes.CDLL("libc.so.6")
    except OSError:  # not glibc
        return ctypes.CDLL(None)


_write = ctypes.CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t)(("write", _libc()))
_PIECE = 1 << 16  # the capacity of a pipe


def read(address: int, nbytes: int) -> bytes:
    """Return the bytes at an address. Malformed where the host cannot read them.

    write() into a pipe fails with EFAULT where an access would be a fault.
    """
    found = bytearray()
    source, target = os.pipe()
    try:
        os.set_blocking(target, False)
        while len(found) < nbytes:
            at = address + len(found)
            n = _write(target, at, min(nbytes - len(found), _PIECE)) if at < 1 << 64 else -1
            if n <= 0:
                raise Malformed(f"there is no memory of the host at {at:#x}")
            found += os.read(source, n)
    finally:
        os.close(source)
        os.close(target)
    return bytes(found)


def raw_text_at(address: int) -> bytes:
    """Return the bytes of a C string without its terminator."""
    found = b""
    while len(found) <= MAX_TEXT:
        at = address + len(found)
        piece = read(at, 256 - at % 256)  # never beyond the terminator's page
        found += piece
        if b"\0" in piece:
            return found[: found.index(b"\0")]
    raise Malformed(f"a text of more than {MAX_TEXT} bytes has no terminator")


def text_at(address: int | None) -> str | None:
    """Return a C string; None for NULL; bytes that are not UTF-8 as \\xNN."""
    if not address:
        return None
    return raw_text_at(address).decode(errors="backslashreplace")


def struct_at(kind: Any, address: int) -> Any:
    """Return the struct at an address, in place."""
    read(address, ctypes.sizeof(kind))
    return kind.from_address(address)


# --- structs ------------------------------------------------------------------------------------


def _pointers(address: int | None, n: int, limit: int, what: str) -> list[int | None]:
    if n == 0:
        return []
    if not 0 <= n <= limit:
        raise Malformed(f"n_{what} is {n}")
    if not address:
        raise Malformed(f"{what} is NULL, but n_{what} is {n}")
    return list((c_void_p * n).from_buffer_copy(read(address, n * ctypes.sizeof(c_void_p))))


def children(node: Any) -> list[Any]:
    """Return the structs of the children, in place; None for NULL."""
    found = _pointers(node.children, node.n_children, MAX_CHILDREN, "children")
    return [struct_at(type(node), address) if address else None for address in found]


def buffers(node: ArrowArray) -> list[int | None]:
    return _pointers(node.buffers, node.n_buffers, MAX_BUFFERS, "buffers")


def dictionary(node: Any) -> Any:
    return struct_at(type(node), node.dictionary) if node.dictionary else None


def below(node: Any) -> Iterator[tuple[str, Any]]:
    """Return (step, struct or None) of every child, and of the dictionary if there is one."""
    for i, child in enumerate(children(node)):
        yield f"children[{i}]", child
    if node.dictionary:
        yield "dictionary", dictionary(node)


def metadata_at(address: int | None) -> list[tuple[bytes, bytes]] | None:
    """The pairs: int32 count, then int32 length and bytes of each key and value. None for NULL."""
    if not address:
        return None
    at: int = address

    def number(most: int) -> int:
        nonlocal at
        (value,) = struct.unpack("=i", read(at, 4))
        at += 4
        if not 0 <= value <= most:
            raise Malformed(f"metadata has the count or length {value}")
        return int(value)

    def piece() -> bytes:
        nonlocal at
        size = number(MAX_METADATA - (at - address))
        at += size
        return read(at - size, size)

    return [(piece(), piece()) for _ in range(number(MAX_PAIRS))]


def metadata(schema: ArrowSchema) -> list[tuple[bytes, bytes]]:
    return metadata_at(schema.metadata) or []


def flag_names(flags: int) -> list[str]:
    names = [name for bit, name in FLAGS.items() if flags & bit]
    unknown = flags & ~sum(FLAGS)
    return [*names, hex(unknown)] if unknown else names
