"""Checks the elements: of all exports of one object, and of data in a requested type."""

from __future__ import annotations

import math
import reprlib
from itertools import combinations
from typing import NamedTuple

import arrowdev
from arrowdev.testing import _host_read
from arrowdev.testing._abi import inside
from arrowdev.testing._check_arrays import NAMES, array_of, called, capsules_of, exported
from arrowdev.testing._check_tensors import Exchanged, exchange_table
from arrowdev.testing._spoiling import schema_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from typing_extensions import CapsuleType

    from arrowdev.testing._report import Report

EXCHANGE = "__dlpack_c_exchange_api__"
TENSORS = ("__dlpack__", EXCHANGE, "__array_interface__", "__cuda_array_interface__",
           "__sycl_usm_array_interface__")  # fmt: skip

# Exports that break one of these are not read, nor are those with any other finding of a "must"
# about Arrow's structs, or about a dict.
_UNUSABLE = {
    "dlpack.name", "dlpack.version", "dlpack.shape", "dlpack.data", "dlpack.dtype",
    "dlpack.lifetime", "dlpack.exchange",
}  # fmt: skip
_OF_ARROW = {"capsule", "schema", "array", "release", "stream"}
_OF_DICTS = {"interface", "cuda", "sycl"}

MAX_BYTES = 1 << 20  # of the data that are compared
MAX_ROWS = 1 << 12


def _is_readable(report: Report, protocol: str) -> bool:
    broken = {finding.rule.id for finding in report.broken}
    if "exports.usable" in broken:
        return False
    if protocol in ("__dlpack__", EXCHANGE):
        return not broken & _UNUSABLE
    families = _OF_DICTS if protocol in TENSORS else _OF_ARROW
    if families is _OF_ARROW and broken & {"device.memory", "device.order"}:
        return False
    return not families & {id.partition(".")[0] for id in broken}


class _Only:
    """Shows one protocol of an object."""

    def __init__(self, obj: object, protocol: str) -> None:
        self._obj = obj
        self._names = (protocol, "__dlpack_device__" if protocol == "__dlpack__" else protocol)

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            return getattr(self._obj, name)
        raise AttributeError(name)


def _on_host(array: arrowdev.Array) -> arrowdev.Array:
    return array if array.device_type == arrowdev.DeviceType.CPU else array.to("cpu")


def _n_bytes(array: arrowdev.Array) -> int:
    own = sum(buffer.nbytes or 0 for buffer in array.buffers if buffer is not None)
    return own + sum(map(_n_bytes, array.children))


# Types that a tensor has, too. Of others the values are compared alone.
_NUMBERS = {
    "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32",
    "I": "uint32", "l": "int64", "L": "uint64", "e": "float16", "f": "float32", "g": "float64",
}  # fmt: skip
_LISTS = ("+l", "+L", "+vl", "+vL", "+w")
_EXTENSION = b"ARROW:extension:name"
_STORED_AS_SHOWN = (None, b"arrow.fixed_shape_tensor")


class _Elements(NamedTuple):
    """What a protocol exports; None for what is unknown."""

    type: str | None
    shape: tuple[int, ...] | None
    values: Any


class _AtAddress:
    """An array interface whose data are a buffer, with the address of the buffer."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._buffer = arrowdev.tensor(memoryview(found["data"]).cast("B"))
        where = self._buffer.data_ptr + (found.get("offset") or 0)
        self.__array_interface__ = found | {"data": (where, True), "offset": None}


def _shown(obj: object, protocol: str) -> Any:
    if protocol == EXCHANGE:
        return Exchanged(obj)
    found = getattr(obj, protocol) if protocol == "__array_interface__" else None
    if isinstance(found, dict) and isinstance(found.get("data"), (bytes, bytearray, memoryview)):
        return _AtAddress(found)
    return _Only(obj, protocol)


def _elements(obj: object, protocol: str) -> _Elements | None:
    """Return None for what cannot be imported here."""
    type = shape = None
    try:
        shown = _shown(obj, protocol)
        if protocol in TENSORS:
            tensor = arrowdev.tensor(shown)
            type = tensor.dtype if tensor.dtype in _NUMBERS.values() else None
            shape = tensor.shape
        array = arrowdev.array(shown)
        is_short = _n_bytes(array) <= MAX_BYTES
        values = _on_host(array).to_pylist() if is_short else None
        if protocol not in TENSORS:
            type = _number_type(array.schema)
            shape = None if type is None or values is None else _shape_of(values)
        return _Elements(type, shape, values)
    except Exception:  # other rules are about refusals; values may have no equivalent in Python
        return None if shape is None else _Elements(type, shape, None)


def _number_type(schema: arrowdev.Schema) -> str | None:
    """Return the type of the numbers in an array of numbers, or of lists of them."""
    while schema.format.partition(":")[0] in _LISTS:
        if (schema.metadata or {}).get(_EXTENSION) not in _STORED_AS_SHOWN:
            return None
        schema = schema.children[0]
    is_plain = _EXTENSION not in (schema.metadata or {}) and schema.dictionary is None
    return _NUMBERS.get(schema.format) if is_plain else None


def _shape_of(values: Any) -> tuple[int, ...] | None:
    """Return the shape of nested lists; None if they have none, because of nulls or lengths.

    Lists without elements do not tell the dimensions below them.
    """
    if not isinstance(values, list):
        return ()
    if not values:
        return None
    shapes = {_shape_of(value) for value in values}
    if len(shapes) > 1 or None in shapes:
        is_flat = all(not isinstance(value, list) for value in values)
        return (len(values),) if is_flat else None
    return (len(values), *(shapes.pop() or ()))


def _is_same(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Whether values are equal; NaN is equal to NaN, and the order of a dict counts."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_is_same(a, b, tolerance) for a, b in pairs)
    if isinstance(one, dict) and isinstance(other, dict):
        return _is_same(list(one.items()), list(other.items()), tolerance)
    if isinstance(one, float) and isinstance(other, float):
        is_nan = one != one and other != other
        return is_nan or math.isclose(one, other, rel_tol=tolerance, abs_tol=0.0)
    return bool(one == other) or bool(one != one and other != other)


def check_agreement(report: Report, spoken: Iterable[str], make: Callable[[], object]) -> None:
    """Compare what the protocols of an object export."""
    protocols = [name for name in spoken if name in NAMES or name in TENSORS]
    protocols = [name for name in protocols if name != "__arrow_c_schema__"]
    if "__dlpack__" in protocols and exchange_table(type(make())) is not None:
        protocols.append(EXCHANGE)
    found = []
    for protocol in protocols:
        elements = _elements(make(), protocol) if _is_readable(report, protocol) else None
        if elements is not None:
            found.append((protocol, elements))
    for (one, first), (other, second) in combinations(found, 2):
        _compare(report, one, first, other, second)


def _compare(report: Report, one: str, first: _Elements, other: str, second: _Elements) -> None:
    if first.type is not None and second.type is not None:
        what = f"{one} has the type {first.type}, {other} {second.type}"
        report.hold("exports.same", first.type == second.type, what)
    if first.shape is not None and second.shape is not None:
        what = f"{one} has the shape {first.shape}, {other} {second.shape}"
        report.hold("exports.same", first.shape == second.shape, what)
    if first.values is not None and second.values is not None:
        what = f"{one} has {reprlib.repr(first.values)}, {other} {reprlib.repr(second.values)}"
        pair = [first.values, second.values]
        if one in TENSORS or other in TENSORS:
            pair = [_as_matrix(values) for values in pair]
        report.hold("exports.same", _is_same(*pair), what)


def _as_matrix(values: Any) -> Any:
    """Return rows of a batch, and binary ones, as those of the matrix that a tensor shows."""
    if not isinstance(values, list):
        return values
    rows = [list(row.values()) if isinstance(row, dict) else row for row in values]
    return [list(row) if isinstance(row, bytes) else row for row in rows]


# --- requested types ----------------------------------------------------------------------------

# Smaller types, so that data under a wrong label are not read beyond their end.
_SMALLER = {
    "l": "i", "i": "s", "s": "c", "L": "I", "I": "S", "S": "C", "g": "f", "U": "u", "Z": "z",
}  # fmt: skip
_TOLERANCE = 1e-6  # of float32


def _smaller(own: arrowdev.Schema) -> CapsuleType | None:
    """Return a schema with a smaller type of the same values; None if the data have none.

    In a batch the first column that has one gets it. Columns are not nested.
    """
    root = own.__arrow_c_schema__()
    node = inside(root, "arrow_schema")
    parts = _host_read.children(node) or [node]
    formats = [_host_read.text_at(part.format) or "" for part in parts]
    at = next((i for i, format in enumerate(formats) if format in _SMALLER), None)
    is_flat = not any(part.n_children or part.dictionary for part in parts)
    if at is None or not is_flat or (parts[0] is not node and own.format != "+s"):
        return None
    formats[at] = _SMALLER[formats[at]]
    made = [
        schema_of(format, _host_read.text_at(part.name) or "", flags=part.flags)
        for format, part in zip(formats, parts, strict=True)
    ]
    if parts[0] is not node:
        made = [schema_of("+s", own.name or "", *made, flags=node.flags)]
    return made[0].give("arrow_schema")


def _rows(capsules: tuple[CapsuleType, ...]) -> tuple[arrowdev.Schema, list[Any]]:
    """Return the schema, and the first values."""
    if len(capsules) == 2:
        array = array_of(capsules)
        return array.schema, _on_host(array)[:MAX_ROWS].to_pylist()
    with arrowdev.array_stream(capsules[0]) as stream:
        values: list[Any] = []
        for array in stream:
            values += _on_host(array)[: MAX_ROWS - len(values)].to_pylist()
            if len(values) >= MAX_ROWS:
                break
        return stream.schema, values


def check_cast(report: Report, method: str, make: Callable[[], Any]) -> None:
    """Ask for a smaller type: the values must be the same if the data get it."""
    if not _is_readable(report, method) or method not in NAMES:
        return
    capsules = exported(report, method, make())
    if capsules is None or "array.contents" in report.untried:
        return
    try:
        own, expected = _rows(capsules)
        request = _smaller(own)
        if request is None:
            return
        given = called(report, method, make(), requested_schema=request)
    except Exception:  # it may refuse
        return
    capsules = capsules_of(report, method, given)
    found = None if capsules is None else report.attempt("capsule.cast", _rows, capsules)
    if found is None or found[0].equals(own):
        return
    what = f"{own} has {reprlib.repr(expected)}, {found[0]} {reprlib.repr(found[1])}"
    report.hold("capsule.cast", _is_same(expected, found[1], _TOLERANCE), what)
