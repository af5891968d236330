"""Where the memory of an exchange is: whether it can be read, and its bytes.

The host's memory and that of the software device can tell. Other devices cannot, which is no fault
of the producer: Untold.
"""

from __future__ import annotations

import struct

from arrowdev import DeviceType
from arrowdev.testing import _engine, _host_read
from arrowdev.testing._host_read import DEVICE_TYPES, Malformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from arrowdev.testing._abi import ArrowArray, ArrowSchema

_ON_HOST = {DeviceType.CPU.value, DeviceType.CUDA_HOST.value, DeviceType.ROCM_HOST.value}
_PAGE = 4096
_MAX_PAGES = 256  # that are tried of one buffer


class Untold(Exception):
    """Nothing on this machine tells what the memory of a device is."""


def name_of(device: tuple[int, int]) -> str:
    return f"{DEVICE_TYPES.get(device[0], device[0])}:{device[1]}"


def is_told(device: tuple[int, int]) -> bool:
    """Whether something on this machine may tell what memory of the device is."""
    return device[0] in _ON_HOST or device[0] == _engine.EXT_DEV


def check_range(device: tuple[int, int], address: int, nbytes: int) -> None:
    """Raise Malformed unless these bytes are live memory of the device; nothing is kept of them.

    Of long memory some pages are tried, the first and the last among them.
    """
    found = _engine.find(address)
    if device[0] in _ON_HOST:
        if found is not None and _engine.KINDS[found[3]] == "device":
            where = name_of((_engine.EXT_DEV, found[2]))
            raise Malformed(f"the memory at {address:#x} is that of {where}, not the host's")
        last = address + max(nbytes, 1) - 1
        step = max(_PAGE, (nbytes // _MAX_PAGES) & -_PAGE)
        for at in (*range(address, last, step), last):
            _host_read.read(at, 1)
        return
    if device[0] != _engine.EXT_DEV or found is None:
        raise Untold(f"nothing tells here what memory of {name_of(device)} is")
    base, size, owner, _ = found
    if owner != device[1]:
        raise Malformed(
            f"the memory at {address:#x} is on {name_of((device[0], owner))}, "
            f"not on {name_of(device)}"
        )
    if address + nbytes > base + size:
        raise Malformed(
            f"{nbytes} bytes are needed at {address:#x}, of which {base + size - address} are left"
        )


def bytes_at(device: tuple[int, int], address: int, nbytes: int) -> bytes:
    """Return the present bytes; the work that is pending on them is not waited for."""
    check_range(device, address, nbytes)
    if device[0] in _ON_HOST:
        return _host_read.read(address, nbytes)
    return _engine.peek(address, nbytes)


# --- how many bytes a type needs ----------------------------------------------------------------

_BITS = {
    "b": 1, "c": 8, "C": 8, "s": 16, "S": 16, "e": 16, "i": 32, "I": 32, "f": 32, "l": 64, "L": 64,
    "g": 64, "tdD": 32, "tdm": 64, "tts": 32, "ttm": 32, "ttu": 64, "ttn": 64, "tiM": 32,
    "tiD": 64, "tin": 128,
}  # fmt: skip
_OFFSETS = {"u": 4, "z": 4, "U": 8, "Z": 8, "+l": 4, "+m": 4, "+L": 8}
_LIST_VIEWS = {"+vl": 4, "+vL": 8}
_NO_BITMAP = ("n", "+us", "+ud", "+r")


def _bits(format: str) -> int:
    """Return the bits of an element of fixed width; 0 for a type without a width that is known."""
    head, _, rest = format.partition(":")
    try:
        if head == "w":
            return 8 * int(rest)
        if head == "d":
            parts = rest.split(",")
            return int(parts[2]) if len(parts) > 2 else 128
    except ValueError:
        return 0
    return 64 if head[:2] in ("ts", "tD") else _BITS.get(head, 0)


def _sizes(format: str, node: ArrowArray, found: list[Any]) -> Iterator[tuple[int, int]]:
    """Return (index, bytes) of each buffer whose size follows from the struct alone."""
    head = format.partition(":")[0]
    n = node.offset + node.length
    if head not in _NO_BITMAP and node.null_count != 0:
        yield 0, (n + 7) // 8
    if head in _OFFSETS:
        yield 1, (n + 1) * _OFFSETS[head]
    elif head in _LIST_VIEWS:
        yield 1, n * _LIST_VIEWS[head]
        yield 2, n * _LIST_VIEWS[head]
    elif head in ("+us", "+ud"):
        yield 0, n
        yield 1, 4 * n
    elif head in ("vu", "vz"):
        yield 1, 16 * n
        yield len(found) - 1, 8 * (len(found) - 3)
    else:
        yield 1, (n * _bits(format) + 7) // 8


def _variable(format: str, node: ArrowArray, found: list[Any]) -> Iterator[tuple[int, int]]:
    """Return the same of buffers whose size is in another one, on the host."""
    n = node.offset + node.length
    if format in ("u", "z", "U", "Z") and found[1]:
        width = _OFFSETS[format]
        (size,) = struct.unpack("=i" if width == 4 else "=q", _last(found[1], n, width))
        yield 2, max(size, 0)
    elif format in ("vu", "vz") and len(found) > 3 and found[-1]:
        sizes = _host_read.read(found[-1], 8 * (len(found) - 3))
        for i, (size,) in enumerate(struct.iter_unpack("=q", sizes), 2):
            yield i, max(size, 0)


def _last(offsets: int, n: int, width: int) -> bytes:
    return _host_read.read(offsets + n * width, width)


def extents(
    device: tuple[int, int], schema: ArrowSchema, node: ArrowArray, path: str = ""
) -> Iterator[tuple[str, int, int]]:
    """Return (name, address, bytes) of each buffer of a sound tree, as far as its rows need it.

    Sizes that are in a buffer are known on the host only, and only once the others are checked.
    """
    format = _host_read.text_at(schema.format) or ""
    found = _host_read.buffers(node)
    for sizes in (_sizes, _variable) if device[0] in _ON_HOST else (_sizes,):
        for i, nbytes in sizes(format, node, found) if node.length > 0 else ():
            address = found[i] if i < len(found) else None
            if nbytes > 0 and address:
                yield f"buffer {i}{f' of {path}' if path else ''}", address, nbytes
    pairs = zip(_host_read.below(schema), _host_read.below(node), strict=True)
    for (step, child_schema), (_, child) in pairs:
        yield from extents(device, child_schema, child, f"{path}.{step}" if path else step)


def check_buffers(device: tuple[int, int], schema: ArrowSchema, node: ArrowArray) -> None:
    """Raise Malformed unless each buffer of a sound tree is memory of the device, long enough."""
    for where, address, nbytes in extents(device, schema, node):
        try:
            check_range(device, address, nbytes)
        except Malformed as error:
            raise Malformed(f"{where}: {error}") from None
