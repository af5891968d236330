"""Checks the rules for the three protocols that are a dict of shape, typestr and data."""

from __future__ import annotations

import ctypes
import gc
import re
from math import prod
from operator import index

from arrowdev.testing import _dlpack, _host_read
from arrowdev.testing._check_arrays import dirty_the_heap
from arrowdev.testing._check_tensors import export, is_buffer_readonly
from arrowdev.testing._report import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HOST = "__array_interface__"
CUDA = "__cuda_array_interface__"
SYCL = "__sycl_usm_array_interface__"
VERSIONS = {HOST: (3,), CUDA: (0, 1, 2, 3), SYCL: (1,)}

# "t" counts bits, "U" characters of 4 bytes; "O" needs no number; times have a unit.
_TYPESTR = re.compile(r"[<>|]([tbiufcmMOSUV])(\d*)(\[\w+\])?")
_MASKS = ("b", "t")

# The number of bytes must fit intp.
MAX_SIZE = (1 << 63) - 1

# The contents of longer arrays are not compared.
MAX_BYTES = 1 << 24
N_PARTS = 64  # bytes that are read of longer data


def is_shown(obj: object, name: str) -> bool:
    """Whether the object shows the protocol. Some states may raise any exception instead."""
    try:
        getattr(obj, name)
    except Exception:
        return False
    return True


# --- fields -------------------------------------------------------------------------------------


def _integers(value: Any) -> tuple[int, ...] | None:
    """Return a tuple of ints; None for anything else."""
    if not isinstance(value, tuple) or any(isinstance(item, bool) for item in value):
        return None
    try:
        return tuple(index(item) for item in value)
    except TypeError:
        return None


def _kind(typestr: Any) -> tuple[str, int] | None:
    """Return the kind, and the number of bits of an element."""
    match = _TYPESTR.fullmatch(typestr) if isinstance(typestr, str) else None
    if match is None or (match[3] and match[1] not in "mM"):
        return None
    if match[1] == "O":
        return "O", 8 * ctypes.sizeof(ctypes.c_void_p)
    unit = {"t": 1, "U": 32}.get(match[1], 8)
    return (match[1], unit * int(match[2])) if match[2] else None


def _descr_bits(descr: Any) -> int | None:
    """Return the total bits of a list of fields; None if it is invalid."""
    if not isinstance(descr, list):
        return None
    total = 0
    for field in descr:
        if not isinstance(field, tuple) or len(field) not in (2, 3):
            return None
        kind = _kind(field[1])
        bits = _descr_bits(field[1]) if kind is None else kind[1]
        shape = _integers(field[2]) if len(field) == 3 else ()
        if bits is None or shape is None:
            return None
        total += bits * prod(shape)
    return total


def _is_same_type(one: str, other: str) -> bool:
    """Whether two valid typestrs are equal; the byte order of single bytes is ignored."""
    kind = _kind(one)
    has_order = kind is not None and kind[0] not in "SV" and kind[1] > 8
    return one[1:] == other[1:] and (one[0] == other[0] or not has_order)


def _check_descr(report: Report, found: dict[str, Any], bits: int) -> None:
    """Check descr. `bits` comes from typestr. A single unnamed field is the element itself."""
    descr, typestr = found["descr"], found["typestr"]
    is_right = _descr_bits(descr) == bits
    if is_right and len(descr) == 1 and descr[0][0] == "" and isinstance(descr[0][1], str):
        is_right = len(descr[0]) == 3 or _is_same_type(descr[0][1], typestr)
    what = f"descr is {descr!r}, typestr {typestr!r}"
    report.hold("interface.descr", is_right, what)


def _check_data(report: Report, name: str, found: dict[str, Any], n: int) -> None:
    """Check the data of `n` elements."""
    data = found.get("data")
    if name == HOST and not isinstance(data, tuple):
        if data is not None:  # NumPy's may be a buffer, or the object itself is one
            report.attempt("interface.data", memoryview, data)
        return
    address, flag = data if isinstance(data, tuple) and len(data) == 2 else (None, None)
    numbers = _integers((address,))
    is_flag = isinstance(flag, int) and flag in (0, 1)
    is_right = numbers is not None and numbers[0] >= 0 and is_flag
    if not report.hold("interface.data", is_right, f"data is {data!r} ({name})"):
        return
    assert numbers is not None
    address = numbers[0]
    what = f"the address is {address:#x}, the shape {found['shape']}"
    report.hold("interface.data", address or n == 0, what)
    if n == 0 and name == CUDA:
        report.hold("cuda.zero_size", address == 0, what)


def _check_strides(report: Report, found: dict[str, Any]) -> None:
    value = found.get("strides")
    strides = None if value is None else _integers(value)
    n_dimensions = len(found["shape"])
    is_right = value is None or (strides is not None and len(strides) == n_dimensions)
    report.hold("interface.strides", is_right, f"strides are {value!r}, shape {found['shape']}")


def _check_mask(report: Report, name: str, found: dict[str, Any]) -> None:
    mask = found.get("mask")
    if mask is None:
        return
    if not report.hold("interface.mask", is_shown(mask, name), f"the mask has no {name}"):
        return
    own = getattr(mask, name)
    if isinstance(own, dict) and own.get("mask") is not None:
        report.hold("interface.mask", False, "the mask has a mask")
        return
    if not check_dict(report, name, own):
        report.hold("interface.mask", False, "the mask's own interface breaks rules")
        return
    kind = _kind(own["typestr"])
    is_flags = kind is not None and kind[0] in _MASKS
    report.hold("interface.mask", is_flags, f"the mask's typestr is {own['typestr']!r}")
    pairs = zip(reversed(own["shape"]), reversed(found["shape"]), strict=False)
    fits = len(own["shape"]) <= len(found["shape"]) and all(a in (1, b) for a, b in pairs)
    what = f"a mask of shape {own['shape']} for {found['shape']}"
    report.hold("interface.mask", fits, what)


def _check_offset(report: Report, name: str, found: dict[str, Any]) -> None:
    offset = found.get("offset")
    if offset is None:
        return
    is_right = _integers((offset,)) is not None
    if name == HOST:
        is_right = is_right and (offset == 0 or not isinstance(found.get("data"), tuple))
    report.hold("interface.offset", is_right, f"offset is {offset!r}, data {found.get('data')!r}")


def check_dict(report: Report, name: str, found: Any) -> bool:
    """Check all fields; return False if shape or typestr is unusable."""
    if not report.hold("interface.dict", isinstance(found, dict), f"{name} is {found!r}"):
        return False
    version = found.get("version")
    is_known = (_integers((version,)) or (None,))[0] in VERSIONS[name]
    report.hold("interface.version", is_known, f"version is {version!r} ({name})")
    shape = _integers(found.get("shape"))
    is_shape = shape is not None and all(n >= 0 for n in shape)
    report.hold("interface.shape", is_shape, f"shape is {found.get('shape')!r}")
    kind = _kind(found.get("typestr"))
    report.hold("interface.typestr", kind, f"typestr is {found.get('typestr')!r}")
    if not is_shape or kind is None:
        return False
    assert shape is not None
    n_bytes = -(-prod(shape) * kind[1] // 8)
    what = f"the shape is {shape}, typestr {found['typestr']!r}: {n_bytes} bytes"
    if not report.hold("interface.shape", n_bytes <= MAX_SIZE, what):
        return False
    if found.get("descr") is not None:
        _check_descr(report, found, kind[1])
    _check_data(report, name, found, prod(shape))
    _check_strides(report, found)
    _check_offset(report, name, found)
    if name != SYCL:
        _check_mask(report, name, found)
    if name == CUDA:
        stream = found.get("stream")
        is_stream = stream is None or (_integers((stream,)) or (0,))[0] > 0
        report.hold("cuda.stream", is_stream, f"stream is {stream!r}")
    if name == SYCL:
        report.hold("sycl.syclobj", found.get("syclobj") is not None, "syclobj is missing")
    return True


# --- what stays ---------------------------------------------------------------------------------


_LASTING = ("version", "shape", "typestr", "descr", "data", "strides", "offset")


def _said(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the entries that must not change: all but the stream; of a mask, its own entries."""
    said = {key: found[key] for key in _LASTING if key in found}
    if not isinstance(said.get("data"), tuple):
        said.pop("data", None)  # a buffer, which may be another object over the same memory
    mask = getattr(found.get("mask"), name, None)
    return said | {"mask": {key: mask.get(key) for key in _LASTING}} if mask else said


def _is_same(before: object, after: object) -> bool:
    """Whether two values are equal; values that cannot be compared, such as arrays, are not."""
    try:
        return bool(before == after)
    except Exception:
        return False


def _span(found: dict[str, Any]) -> tuple[int, int] | None:
    """Return the address of the first byte on the host, and the bytes up to the last element."""
    data, kind = found.get("data"), _kind(found["typestr"])
    if not isinstance(data, tuple) or kind is None or 0 in found["shape"] or kind[0] == "t":
        return None
    size = kind[1] // 8
    strides = found.get("strides")
    if strides is None:
        first, last = 0, (prod(found["shape"]) - 1) * size
    else:
        steps = [(n - 1) * step for n, step in zip(found["shape"], strides, strict=True)]
        first = sum(step for step in steps if step < 0)
        last = sum(step for step in steps if step > 0)
    return data[0] + first, last - first + size


def _contents(found: dict[str, Any]) -> bytes | None:
    """Return the bytes of the elements. Of data that are too long, read some and return None."""
    span = _span(found)
    if span is None:
        return None
    if span[1] <= MAX_BYTES:
        return _host_read.read(*span)
    for part in range(N_PARTS):
        _host_read.read(span[0] + (span[1] - 1) * part // (N_PARTS - 1), 1)
    return None


def _check_again(report: Report, name: str, obj: object) -> None:
    """Read the attribute, drop it, and read it again."""
    found = getattr(obj, name)
    before = _said(name, found)
    try:
        contents = _contents(found) if name == HOST else None
    except _host_read.Malformed as error:
        report.hold("interface.data", False, str(error))
        return
    del found
    gc.collect()
    dirty_the_heap()
    if contents is not None:
        after = report.attempt("interface.lifetime", _contents, before)
        report.hold("interface.lifetime", after == contents, "other data when the dict was gone")
    elif name == HOST and _span(before) is not None:
        report.untry("interface.lifetime", f"the data have more than {MAX_BYTES} bytes")
    after = getattr(obj, name)
    if report.hold("interface.again", isinstance(after, dict), f"then {after!r}"):
        said = _said(name, after)
        changed = [key for key, value in before.items() if not _is_same(value, said.get(key))]
        report.hold("interface.again", not changed, f"{', '.join(changed)}: another value")


def _is_readonly(obj: Any) -> bool:
    """Whether the memory is read-only according to another protocol."""
    try:
        struct = _dlpack.inside(export(obj, max_version=(1, 3)))
        return bool(getattr(struct, "flags", 0) & _dlpack.READ_ONLY)
    except Exception:
        return is_buffer_readonly(obj)


def check_interface(report: Report, name: str, make: Callable[[], object]) -> None:
    """Check one of the three attributes. Malformed values are not used further."""
    obj = make()
    found = getattr(obj, name)
    own = report.part()  # without the findings about the object's other dicts
    if check_dict(own, name, found) and not own.findings:
        if isinstance(found.get("data"), tuple) and _is_readonly(obj):
            flag = found["data"][1]
            own.hold("interface.read_only", flag, f"the flag is {flag!r}, the memory read-only")
        del found
        _check_again(own, name, obj)
    report.add(own)
