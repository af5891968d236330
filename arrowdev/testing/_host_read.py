"""Reads the structs of the Arrow C interfaces, but no buffers."""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_void_p

from arrowdev import DeviceType
from arrowdev.testing._abi import ArrowArray, ArrowSchema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

DEVICE_TYPES = {type.value: type.name for type in DeviceType}

# Device types whose `sync_event` should always be NULL.
WITHOUT_EVENTS = frozenset({DeviceType.CPU, DeviceType.VPI, DeviceType.WEBGPU, DeviceType.HEXAGON})

FLAGS = {1: "DICTIONARY_ORDERED", 2: "NULLABLE", 4: "MAP_KEYS_SORTED"}

# Larger counts are considered invalid.
MAX_CHILDREN = 1 << 20
MAX_BUFFERS = 1 << 20
MAX_METADATA = 1 << 26


class Malformed(ValueError):
    """A struct that cannot be read."""


def text_at(address: int | None) -> str | None:
    """Return a C string; None for NULL; bytes that are not UTF-8 as \\xNN."""
    if not address:
        return None
    return ctypes.string_at(address).decode(errors="backslashreplace")


def _pointers(address: int | None, n: int, limit: int, what: str) -> list[int | None]:
    if n == 0:
        return []
    if not 0 <= n <= limit:
        raise Malformed(f"n_{what} is {n}")
    if not address:
        raise Malformed(f"{what} is NULL, but n_{what} is {n}")
    return list((c_void_p * n).from_address(address))


def children(node: Any) -> list[Any]:
    """Return the structs of the children, in place; None for NULL."""
    found = _pointers(node.children, node.n_children, MAX_CHILDREN, "children")
    return [type(node).from_address(address) if address else None for address in found]


def buffers(node: ArrowArray) -> list[int | None]:
    return _pointers(node.buffers, node.n_buffers, MAX_BUFFERS, "buffers")


def dictionary(node: Any) -> Any:
    return type(node).from_address(node.dictionary) if node.dictionary else None


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

    def number() -> int:
        nonlocal at
        (value,) = struct.unpack("=i", ctypes.string_at(at, 4))
        at += 4
        if not 0 <= value <= MAX_METADATA:
            raise Malformed(f"metadata has the count or length {value}")
        return int(value)

    def piece() -> bytes:
        nonlocal at
        size = number()
        at += size
        return ctypes.string_at(at - size, size)

    return [(piece(), piece()) for _ in range(number())]


def metadata(schema: ArrowSchema) -> list[tuple[bytes, bytes]]:
    return metadata_at(schema.metadata) or []


def flag_names(flags: int) -> list[str]:
    names = [name for bit, name in FLAGS.items() if flags & bit]
    unknown = flags & ~sum(FLAGS)
    return [*names, hex(unknown)] if unknown else names
