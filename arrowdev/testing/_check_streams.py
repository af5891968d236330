"""Checks the rules for pull streams."""

from __future__ import annotations

import ctypes

import arrowdev
from arrowdev.testing._abi import ArrowArray, ArrowDeviceArray, ArrowSchema, call, inside, take
from arrowdev.testing._check_arrays import (
    NAMES,
    as_capsule,
    check_arguments,
    check_array,
    check_capsule_life,
    check_contents,
    check_device,
    check_memory,
    check_schema,
    dirty_the_heap,
    exported,
    release_watched,
    snapshot,
)
from arrowdev.testing._check_order import check_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from arrowdev.testing._report import Report

# The maximum number of arrays that are read.
MAX_ARRAYS = 64


def _open(report: Report, method: str, make: Callable[[], object]) -> Any:
    """Return the stream's struct, moved out of its capsule."""
    capsules = exported(report, method, make())
    if capsules is None:
        return None
    struct = inside(capsules[0], NAMES[method][0])
    members = ("get_schema", "get_next", "get_last_error", "release")
    missing = [member for member in members if not getattr(struct, member)]
    if not report.hold("stream.callbacks", not missing, f"NULL: {', '.join(missing)}"):
        return None
    return take(capsules[0], NAMES[method][0])


def _empty(stream: Any) -> Any:
    return ArrowDeviceArray() if hasattr(stream, "device_type") else ArrowArray()


def _get_schema(report: Report, stream: Any) -> ArrowSchema | None:
    schema = ArrowSchema()
    code = call(stream, "get_schema", ctypes.addressof(schema))
    if not report.hold("stream.schema", code == 0 and schema.release, f"get_schema gave {code}"):
        return None
    return schema


def _get_next(report: Report, stream: Any, i: int) -> Any:
    """Return the next array; None at the end, and after a finding."""
    is_device = hasattr(stream, "device_type")
    array = _empty(stream)
    code = call(stream, "get_next", ctypes.addressof(array))
    if not report.hold("stream.next", code == 0, f"get_next gave {code} for array {i}"):
        return None
    if not getattr(array, "array", array).release:
        return None
    if is_device:
        check_device(report, array)
        report.hold(
            "stream.device_type",
            array.device_type == stream.device_type,
            f"array {i} has {array.device_type}, the stream {stream.device_type}",
        )
    return array


def _matches(report: Report, schema: ArrowSchema, array: Any, i: int) -> bool:
    """The findings about one array's structs, under the stream's own rule as well."""
    before = set(report.findings)
    node = getattr(array, "array", array)
    sound = check_array(report, schema, node, f"array {i}") and check_memory(report, schema, array)
    broken = sorted(set(report.findings) - before)
    report.hold("stream.same_schema", sound or not broken, f"array {i}: {', '.join(broken)}")
    return sound


def check_reading(report: Report, method: str, make: Callable[[], object]) -> None:
    """Read the stream, release it, and check the arrays again."""
    stream = _open(report, method, make)
    if stream is None:
        return
    schema = _get_schema(report, stream)
    arrays: list[arrowdev.Array] = []
    first = None
    if schema is not None and check_schema(report, schema):
        _read_all(report, stream, schema, arrays)
        first = arrowdev.schema(_Shown(schema))
    before = [snapshot(array) for array in arrays]
    call(stream, "release")
    report.hold("release.marked", not stream.release, "the stream's release is not NULL")
    dirty_the_heap()
    same = before == [snapshot(array) for array in arrays]
    report.hold("stream.lifetime", same, "other data after the release of the stream")
    later = [array.schema for array in arrays if array.schema != first]
    report.hold("stream.schema", not later, f"first {first}, then {later}")


def _read_all(
    report: Report, stream: Any, schema: ArrowSchema, arrays: list[arrowdev.Array]
) -> None:
    while len(arrays) < MAX_ARRAYS:
        array = _get_next(report, stream, len(arrays))
        if array is None and "stream.next" in report.held:
            _check_after_end(report, stream)
        if array is None or not _matches(report, schema, array, len(arrays)):
            return
        own = _get_schema(report, stream)
        if own is None:
            return
        found = report.attempt("array.contents", _imported, own, array)
        if found is None or not check_contents(report, found):
            return
        arrays.append(found)


def _check_after_end(report: Report, stream: Any) -> None:
    """Call get_next after the end: an error is valid, too."""
    array = _empty(stream)
    node = getattr(array, "array", array)
    code = call(stream, "get_next", ctypes.addressof(array))
    is_array = code == 0 and bool(node.release)
    if is_array:
        call(node, "release")
    report.hold("stream.end", not is_array, "an array follows the end")


def _imported(schema: ArrowSchema, array: Any) -> arrowdev.Array:
    return arrowdev.array((as_capsule(schema), as_capsule(array)))


class _Shown:
    """Exports an own schema, once."""

    def __init__(self, schema: ArrowSchema) -> None:
        self.schema = schema

    def __arrow_c_schema__(self) -> Any:
        return as_capsule(self.schema)


def check_releases(report: Report, method: str, make: Callable[[], object]) -> None:
    """Release the schema and the arrays of a sound stream after it."""
    stream = _open(report, method, make)
    if stream is None:
        return
    structs = [_get_schema(report, stream)]
    while structs[-1] is not None and len(structs) <= MAX_ARRAYS:
        structs.append(_get_next(report, stream, len(structs) - 1))
    call(stream, "release")
    for struct in structs:
        if struct is not None:
            release_watched(report, struct)


class _First:
    """The schema and the first array of a new stream, which are released with this."""

    def __init__(self, report: Report, method: str, make: Callable[[], object]) -> None:
        self.stream = _open(report, method, make)
        self.schema = None if self.stream is None else _get_schema(report, self.stream)
        self.array = None if self.schema is None else _get_next(report, self.stream, 0)

    def __del__(self) -> None:
        for struct in (self.array, self.schema, self.stream):
            node = getattr(struct, "array", struct)
            if node is not None and node.release:
                call(node, "release")


def check_event(report: Report, method: str, make: Callable[[], object]) -> None:
    """Check that the event of the first array covers the work that writes it."""

    def give() -> tuple[ArrowSchema, Any, Any] | None:
        first = _First(report, method, make)
        if first.schema is None or first.array is None:
            return None
        return first.schema, first.array, first

    given = give()
    if given is not None and hasattr(given[1], "device_type"):
        check_order(report, given[1], give)


def check_failing(report: Report, method: str, make: Callable[[], object]) -> None:
    """Check a stream that fails: its code, its message, its release."""
    stream = _open(report, method, make)
    if stream is None:
        return
    array = _empty(stream)
    node = getattr(array, "array", array)
    code = 0
    for _ in range(MAX_ARRAYS):
        code = call(stream, "get_next", ctypes.addressof(array))
        if code != 0 or not node.release:
            break
        call(node, "release")
    if report.hold("stream.error", code != 0, "it was to fail, and did not"):
        message = call(stream, "get_last_error")
        text = ctypes.string_at(message) if message else b""
        is_text = text.decode(errors="replace").encode() == text
        report.hold("stream.error", is_text, f"the message is {text!r}")
        report.hold("stream.error", not node.release, "there is an array besides the error")
    call(stream, "release")
    report.hold("stream.after_error", not stream.release, "release is not NULL after it")


def check_stream(report: Report, method: str, make: Callable[[], object]) -> None:
    """Check one of the two methods that give a stream. `make` returns a new object each time."""
    check_reading(report, method, make)
    if {"capsule.result", "capsule.live", "stream.callbacks"} & set(report.findings):
        return
    if not report.broken:
        check_event(report, method, make)
        check_releases(report, method, make)
    check_capsule_life(report, method, make)
    if not {"schema.format", "schema.children", "stream.schema"} & set(report.findings):
        check_arguments(report, method, make)
