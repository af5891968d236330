"""Checks the rules for schemas and arrays, and for their capsules."""

from __future__ import annotations

import ctypes
import gc
import sys
from functools import partial

import arrowdev
from arrowdev._errors import described
from arrowdev.testing import _host_read, _memory
from arrowdev.testing._abi import (
    CALLBACKS,
    CAPSULES,
    ArrowArray,
    ArrowSchema,
    address_of,
    call,
    get_name,
    inside,
    move,
    new_capsule,
    take,
)
from arrowdev.testing._check_order import check_order
from arrowdev.testing._leaks import Trace, happens, is_kept_forever, settle
from arrowdev.testing._memory import Untold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from typing_extensions import CapsuleType

    from arrowdev.testing._report import Report

# --- formats ------------------------------------------------------------------------------------

# (buffers, children, indices of the buffers that must not be NULL if there are rows)
_LAYOUTS: dict[str, tuple[int, int | None, tuple[int, ...]]] = {
    "n": (0, 0, ()), "u": (3, 0, (1,)), "z": (3, 0, (1,)), "U": (3, 0, (1,)), "Z": (3, 0, (1,)),
    "vu": (3, 0, (1,)), "vz": (3, 0, (1,)), "+l": (2, 1, (1,)), "+L": (2, 1, (1,)),
    "+vl": (3, 1, (1, 2)), "+vL": (3, 1, (1, 2)), "+s": (1, None, ()), "+m": (2, 1, (1,)),
    "+r": (0, 2, ()),
}  # fmt: skip
_LAYOUTS |= {"+w": (1, 1, ()), "+us": (1, None, (0,)), "+ud": (2, None, (0, 1))}
_FIXED = (2, 0, (1,))
_INTEGERS = frozenset("cCsSiIlL")


def layout(format: str) -> tuple[int, int | None, tuple[int, ...]]:
    return _LAYOUTS.get(format.partition(":")[0], _FIXED)


def is_format(format: str | None) -> bool:
    """Whether the format of a leaf or nested type is known."""
    if format is None:
        return False
    if format.startswith("+"):
        head, _, rest = format.partition(":")
        if head == "+w":
            return rest.isdigit()
        if head in ("+us", "+ud"):
            return all(part.isdigit() and int(part) < 128 for part in rest.split(",") if rest)
        return head in _LAYOUTS and not rest
    try:
        arrowdev.schema(format)
    except (ValueError, arrowdev.InvalidArrowError):
        return False
    return True


# --- structs, without reading a buffer ----------------------------------------------------------


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def check_schema(report: Report, node: ArrowSchema, path: str = "") -> bool:
    """Check a tree; return False if it cannot be traversed."""
    at = _at(path)
    if not _hold_readable(report, "schema.format", lambda: _host_read.text_at(node.format), at):
        return False
    format = _host_read.text_at(node.format)
    sound = report.hold("schema.format", is_format(format), f"format is {format!r}{at}")
    sound &= _hold_readable(report, "schema.name", lambda: _check_name(report, node, at), at)
    sound &= _hold_readable(report, "schema.metadata", lambda: _host_read.metadata(node), at)
    unknown = node.flags & ~sum(_host_read.FLAGS)
    report.hold("schema.flags", unknown == 0, f"flags are {node.flags:#x}{at}")
    if not _hold_readable(report, "schema.children", lambda: list(_host_read.below(node)), at):
        return False
    expected = layout(format or "")[1]
    sound &= report.hold(
        "schema.children",
        expected is None or node.n_children == expected,
        f'format "{format}" has {expected} children, not {node.n_children}{at}',
    )
    for step, child in _host_read.below(node):
        rule = "schema.dictionary" if step == "dictionary" else "schema.children"
        below = f"{path}.{step}" if path else step
        if report.hold(rule, child is not None and child.release, f"{below} is NULL or released"):
            sound &= check_schema(report, child, below)
        else:
            sound = False
    if node.dictionary:
        what = f"the format of the indices is {format!r}{at}"
        report.hold("schema.dictionary", format in _INTEGERS, what)
    return sound


def _check_name(report: Report, node: ArrowSchema, at: str) -> None:
    raw = _host_read.raw_text_at(node.name) if node.name else b""
    is_text = raw.decode(errors="replace").encode() == raw
    report.hold("schema.name", is_text, f"name is {raw!r}{at}")


def _hold_readable(report: Report, rule: str, read: Callable[[], Any], at: str) -> bool:
    try:
        read()
    except _host_read.Malformed as error:
        return report.hold(rule, False, f"{error}{at}")
    return report.hold(rule, True, "")


def check_array(report: Report, schema: ArrowSchema, node: ArrowArray, path: str = "") -> bool:
    """Check a tree with a valid schema; return False if it cannot be traversed."""
    at = _at(path)
    format = _host_read.text_at(schema.format) or ""
    sound = report.hold("array.length", node.length >= 0, f"length is {node.length}{at}")
    sound &= report.hold("array.offset", node.offset >= 0, f"offset is {node.offset}{at}")
    report.hold(
        "array.null_count",
        -1 <= node.null_count <= max(node.length, 0),
        f"null_count is {node.null_count}, length {node.length}{at}",
    )
    nullable = schema.flags & 2 or format == "n"
    report.hold(
        "array.nullable", nullable or node.null_count <= 0, f"null_count is {node.null_count}{at}"
    )
    sound &= _check_buffers(report, format, node, at)
    if not _hold_readable(report, "array.children", lambda: list(_host_read.below(node)), at):
        return False
    sound &= report.hold(
        "array.children",
        node.n_children == schema.n_children,
        f"{node.n_children} children, but the schema has {schema.n_children}{at}",
    )
    report.hold(
        "array.dictionary",
        bool(node.dictionary) == bool(schema.dictionary),
        f"dictionary is {'there' if node.dictionary else 'NULL'}, against the schema{at}",
    )
    if bool(node.dictionary) != bool(schema.dictionary):
        sound = False
    return sound and _check_below(report, schema, node, format, path)


def _check_buffers(report: Report, format: str, node: ArrowArray, at: str) -> bool:
    n, _, needed = layout(format)
    is_view = format in ("vu", "vz")
    sound = report.hold(
        "array.n_buffers",
        node.n_buffers >= n if is_view else node.n_buffers == n,
        f'format "{format}" has {n} buffers, not {node.n_buffers}{at}',
    )
    if not sound or not _hold_readable(
        report, "array.buffers", lambda: _host_read.buffers(node), at
    ):
        return False
    found = _host_read.buffers(node)
    has_rows = node.length > 0 and format != "w:0"
    missing = [i for i in needed if has_rows and not found[i]]
    has_bitmap = n > 0 and 0 not in needed
    if has_bitmap and has_rows and node.null_count != 0 and not found[0]:
        missing.append(0)
    sound = report.hold(
        "array.buffers", not missing, f"buffers {missing} are NULL, length {node.length}{at}"
    )
    crooked = [hex(address) for address in found if address and address % 8]
    report.hold("array.alignment", not crooked, f"buffers at {', '.join(crooked)}{at}")
    return sound


def _check_below(
    report: Report, schema: ArrowSchema, node: ArrowArray, format: str, path: str
) -> bool:
    sound = True
    needed = 0
    if format == "+s" or format.startswith("+us"):
        needed = node.offset + node.length
    elif format.startswith("+w:"):
        needed = (node.offset + node.length) * int(format[3:])
    pairs = zip(_host_read.below(schema), _host_read.below(node), strict=True)
    for (step, child_schema), (_, child) in pairs:
        below = f"{path}.{step}" if path else step
        rule = "array.dictionary" if step == "dictionary" else "array.children"
        is_live = child is not None and child.release
        if not report.hold(rule, is_live, f"{below} is NULL or released"):
            return False
        if step != "dictionary":
            is_long = child.length >= needed
            sound &= report.hold(
                "array.child_length", is_long, f"{below} has {child.length} rows, not {needed}"
            )
        sound &= check_array(report, child_schema, child, below)
    return sound


def check_memory(report: Report, schema: ArrowSchema, array: Any) -> bool:
    """Check the memory of a sound tree; return False if it cannot be used."""
    device, node = (1, -1), array
    if hasattr(array, "device_type"):
        device, node = (array.device_type, array.device_id), array.array
    try:
        _memory.check_buffers(device, schema, node)
    except _memory.Untold as error:
        report.untry("device.memory", str(error))
        return True
    except _host_read.Malformed as error:
        return report.hold("device.memory", False, str(error))
    return report.hold("device.memory", True, "")


def check_device(report: Report, struct: Any) -> None:
    """Check the members of a device array other than its array."""
    type_ = struct.device_type
    is_defined = type_ in _host_read.DEVICE_TYPES and type_ not in _host_read.NOT_IN_ARROW
    report.hold("device.type", is_defined, f"device_type is {type_}")
    if type_ == 1:
        report.hold("device.id", struct.device_id == -1, f"device_id is {struct.device_id}")
    if type_ in _host_read.WITHOUT_EVENTS:
        event = struct.sync_event
        report.hold("device.event", not event, f"sync_event is {event or 0:#x}, type {type_}")
    reserved = list(struct.reserved)
    report.hold("device.reserved", not any(reserved), f"reserved is {reserved}")


# --- capsules -----------------------------------------------------------------------------------

# Own callbacks. Structs point to them until they are released.
_kept: list[Any] = []


class Watched:
    """Replaces the release callback of a struct, calls it and checks its effects."""

    def __init__(self, struct: Any) -> None:
        self.calls = 0
        self.marked = True
        self.node = getattr(struct, "array", struct)
        self.original = self.node.release
        self.callback = CALLBACKS["release"](self._called)
        self.node.release = address_of(self.callback)
        self.address = ctypes.addressof(self.node)
        self.trace = Trace(self.node)
        _kept.append(self)

    def is_alive(self) -> bool:
        """Whether the struct is neither released nor freed.

        A producer may identify its own structs and free them without reading `release`.
        """
        return self.calls == 0 and not self.trace.is_changed()

    def _called(self, pointer: int) -> None:
        self.calls += 1
        node = type(self.node).from_address(pointer)
        node.release = self.original
        CALLBACKS["release"](self.original)(pointer)
        self.marked &= not node.release


def watched_below(node: Any, path: str = "") -> dict[str, Watched]:
    """Watch every child and dictionary of a sound tree, in place; return them by path."""
    found = {}
    for step, child in _host_read.below(node):
        below = f"{path}.{step}" if path else step
        found[below] = Watched(child)
        found |= watched_below(child, below)
    return found


def release_watched(report: Report, struct: Any) -> None:
    """Release a sound struct that is at its end, and check the release of what is below it."""
    node = getattr(struct, "array", struct)
    watched = watched_below(node)
    call(node, "release")
    hold_released(report, watched, type(struct).__name__)


def hold_released(report: Report, watched: dict[str, Watched], whose: str) -> None:
    """Check the releases below a struct that was released."""
    if watched:
        wrong = {path: one.calls for path, one in watched.items() if one.calls != 1}
        report.hold("release.below", not wrong, f"times that each was released ({whose}): {wrong}")
        marked = all(one.marked for one in watched.values())
        report.hold("release.marked", marked, "release of a child is not NULL after a call")


def _dirty_small_arrays() -> None:
    """Fill what NumPy keeps of freed arrays: at most seven of each size below 1 KiB.

    Most sizes are multiples of 8. Of the others one is filled, the last that was freed.
    """
    numpy: Any = sys.modules.get("numpy")
    empty = getattr(numpy, "empty", None)  # it may be half imported
    if empty is None:
        return
    for size in range(1, 1024):
        for array in [empty(size, "uint8") for _ in range(1 if size % 8 else 7)]:
            array.fill(0xA5)


def dirty_the_heap() -> None:
    """Fill free memory with nonzero bytes.

    It reveals members that a producer does not set, and data that it has let go.
    """
    _dirty_small_arrays()
    libc = ctypes.CDLL(None)
    malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("malloc", libc))
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(("free", libc))
    blocks = [(malloc(size), size) for size in range(64, 192, 8) for _ in range(8)]
    for address, size in blocks:
        ctypes.memset(address, 0xA5, size)
    for address, _ in blocks:
        free(address)


NAMES = {
    "__arrow_c_schema__": ("arrow_schema",),
    "__arrow_c_array__": ("arrow_schema", "arrow_array"),
    "__arrow_c_device_array__": ("arrow_schema", "arrow_device_array"),
    "__arrow_c_stream__": ("arrow_array_stream",),
    "__arrow_c_device_stream__": ("arrow_device_array_stream",),
}


def capsules_of(report: Report, method: str, result: Any) -> tuple[CapsuleType, ...] | None:
    """Return the capsules that a method gave; None, with a finding, for anything else."""
    names = NAMES[method]
    capsules = result if len(names) > 1 else (result,)
    is_right = isinstance(capsules, tuple) and len(capsules) == len(names)
    is_right = is_right and all(type(c).__name__ == "PyCapsule" for c in capsules)
    if not report.hold("capsule.result", is_right, f"{method} returned {result!r}"):
        return None
    for capsule, name in zip(capsules, names, strict=True):
        found = get_name(capsule)
        if not report.hold("capsule.name", found == name.encode(), f"{found!r}, not {name!r}"):
            return None
        node = report.attempt("capsule.live", _struct_of, capsule, name)
        if node is None:
            return None
        node = getattr(node, "array", node)
        if not report.hold("capsule.live", node.release, f"the {name} of {method} is released"):
            return None
    return tuple(capsules)


def _struct_of(capsule: CapsuleType, name: str) -> Any:
    found = inside(capsule, name)
    return _host_read.struct_at(type(found), ctypes.addressof(found))


def called(report: Report, method: str, obj: object, **keywords: Any) -> Any:
    """Return what a method gives. The report knows in which part a crash is."""
    report.begin(f"{method}()")
    result = getattr(obj, method)(**keywords)
    report.begin(f"the use of what {method}() gave")
    return result


def exported(
    report: Report, method: str, obj: object, **keywords: Any
) -> tuple[CapsuleType, ...] | None:
    """Return the capsules; None if the object refuses (no finding the first time)."""
    try:
        result = called(report, method, obj, **keywords)
    except Exception as error:
        if "capsule.live" in report.held:
            report.hold("capsule.result", False, f"{method}: {described(error)}")
        return None
    return capsules_of(report, method, result)


def check_capsule_life(report: Report, method: str, make: Callable[[], object]) -> None:
    """Check the release of structs that are consumed, and of those that are not."""
    for consume in (False, True):
        obj = make()
        capsules = exported(report, method, obj)
        if capsules is None:
            return
        names = NAMES[method]
        given = [inside(c, name) for c, name in zip(capsules, names, strict=True)]
        watched = {name: Watched(struct) for name, struct in zip(names, given, strict=True)}
        device = device_of(given[-1])
        structs = [take(c, n) for c, n in zip(capsules, names, strict=True)] if consume else []
        del capsules, obj
        gc.collect()
        if consume:
            counts = {name: w.calls for name, w in watched.items()}
            report.hold("capsule.consumed", not any(counts.values()), f"released: {counts}")
            for struct in structs:
                node = getattr(struct, "array", struct)
                if node.release:
                    call(node, "release")
        else:
            try:
                for i, (name, one) in enumerate(watched.items()):
                    more = partial(_one_more, report, method, make, i)
                    is_kept = partial(is_kept_forever, one.address, one.is_alive, more)
                    _hold_unconsumed(report, name, one, is_kept, device)
            except Untold as error:
                report.untry("capsule.unconsumed", str(error))
        marked = all(w.marked for w in watched.values())
        report.hold("release.marked", marked, f"release is not NULL after a call ({method})")


def device_of(struct: Any) -> tuple[int, int]:
    """Return the device of an array; that of a stream is known by its type alone."""
    return getattr(struct, "device_type", 1), getattr(struct, "device_id", 0)


def _one_more(
    report: Report, method: str, make: Callable[[], object], i: int, known: Collection[int]
) -> tuple[int, Callable[[], bool]] | None:
    """Export a new object, and drop it; return the address of its i-th struct, and its life.

    None for a capsule that is shared: its struct is one of those that are known.
    """
    capsules = capsules_of(report, method, called(report, method, make()))
    if capsules is None:
        return None
    struct = inside(capsules[i], NAMES[method][i])
    address = ctypes.addressof(struct)
    return None if address in known else (address, Watched(struct).is_alive)


def _hold_unconsumed(
    report: Report,
    name: str,
    watched: Watched,
    is_kept: Callable[[], bool],
    device: tuple[int, int],
) -> None:
    if name == "arrow_schema" and not watched.calls:
        # The producer may share the capsule, or free its own schemas without reading the struct.
        is_leaked = watched.is_alive() and is_kept()
        report.hold("capsule.unconsumed", not is_leaked, f"the {name} is leaked")
        return
    happens(lambda: watched.calls > 0, device)
    n = watched.calls
    report.hold("capsule.unconsumed", n == 1, f"the {name} is released {n} times")


# --- data ---------------------------------------------------------------------------------------


def snapshot(array: arrowdev.Array) -> Any:
    """Return the present bytes of all buffers; None if nothing tells what the memory is.

    Memory that is gone, which would crash the process or spoil the device, is a text.
    """
    device = (int(array.device_type), array.device_id)
    if not _memory.is_told(device):
        return None
    try:
        array.synchronize()
        own = [None if buffer is None else _present(device, buffer) for buffer in array.buffers]
        below = [snapshot(child) for child in array.children]
    except (_memory.Untold, arrowdev.ExchangeError):  # its event may be foreign, too
        return None
    return None if None in below else (own, below)


def _present(device: tuple[int, int], buffer: arrowdev.Buffer) -> bytes | str:
    try:
        return _memory.bytes_at(device, buffer.data_ptr, buffer.nbytes or 0)
    except _host_read.Malformed as error:
        return str(error)


def _lost(shown: Any) -> str | None:
    """Return why some memory, of which there was a snapshot before, could not be read."""
    if shown is None:
        return "its memory is no longer live memory of the device"
    own, below = shown
    texts = (one if isinstance(one, str) else None for one in own)
    return next(filter(None, (*texts, *map(_lost, below))), None)


def array_of(capsules: tuple[CapsuleType, ...]) -> arrowdev.Array:
    schema, array = capsules
    return arrowdev.array((schema, array))


def hold_same(report: Report, rule: str, array: arrowdev.Array, before: Any, what: str) -> None:
    """Compare the data with an earlier snapshot, where there could be one."""
    if before is None:
        where = _memory.name_of((array.device_type, array.device_id))
        report.untry(rule, f"nothing tells here whether memory of {where} was freed")
        return
    after = snapshot(array)
    gone = _lost(after)
    report.hold(rule, after == before, f"{what}: {gone}" if gone else what)


def _has_runtime(array: arrowdev.Array) -> bool:
    """Whether there is a device of the array's family; CUDA_HOST belongs to that of CUDA."""

    def family(type: int) -> str:
        return _host_read.DEVICE_TYPES.get(type, "").partition("_")[0]

    return family(array.device_type) in {family(device.type) for device in arrowdev.devices()}


def check_contents(report: Report, array: arrowdev.Array) -> bool:
    """Validate every row. Data that no runtime of this machine reads are no fault."""
    try:
        array.validate("full")
    except arrowdev.ExchangeError as error:
        needs_runtime = error.reason in ("runtime", "event") and not _has_runtime(array)
        if not needs_runtime:
            return report.hold("array.contents", False, f"ExchangeError: {error}")
        report.untry("array.contents", str(error))
        return True
    except Exception as error:
        return report.hold("array.contents", False, described(error))
    return report.hold("array.contents", True, "")


def imported(report: Report, capsules: tuple[CapsuleType, ...]) -> arrowdev.Array | None:
    """Return an Array whose contents are valid; None, with a finding, for anything else."""
    array = report.attempt("array.contents", array_of, capsules)
    if array is None or not check_contents(report, array):
        return None
    return array  # type: ignore[no-any-return]


def as_capsule(struct: Any) -> CapsuleType:
    """Return a capsule over an own struct, to be consumed at once."""
    name = next(name for name, kind in CAPSULES.items() if kind is type(struct))
    text = name.encode()
    _kept.append((struct, text))
    return new_capsule(ctypes.addressof(struct), text, None)


def check_children(report: Report, method: str, make: Callable[[], object]) -> None:
    """Move the first child out, release the parent, and check the child."""
    obj = make()
    whole = exported(report, method, obj)
    expected = array_of(whole) if whole is not None else None
    capsules = exported(report, method, make())
    if expected is None or capsules is None or not expected.children:
        return
    schema, array = (take(c, n) for c, n in zip(capsules, NAMES[method], strict=True))
    is_device = hasattr(array, "device_type")
    if is_device:
        try:
            settle(device_of(array))
        except Untold as error:
            report.untry("release.children", str(error))
        array.sync_event = None  # it belongs to the parent, and is gone with it
    parts: list[Any] = []
    for parent in (schema, getattr(array, "array", array)):
        child = _host_read.children(parent)[0]
        parts.append(type(child)())
        move(child, ctypes.addressof(parts[-1]))
        call(parent, "release")
    gc.collect()
    dirty_the_heap()
    if is_device:
        array.array = parts[1]
        parts[1] = array
    found = report.attempt("release.children", arrowdev.array, tuple(map(as_capsule, parts)))
    if found is not None:
        before = snapshot(expected.children[0])
        what = "other data after the release of the parent"
        hold_same(report, "release.children", found, before, what)


def check_event(report: Report, method: str, make: Callable[[], object]) -> None:
    """Check that the event of a device array covers the work that writes it."""

    def give() -> tuple[Any, Any, Any] | None:
        obj = make()
        capsules = exported(report, method, obj)
        if capsules is None:
            return None
        schema, array = (inside(c, n) for c, n in zip(capsules, NAMES[method], strict=True))
        return schema, array, (obj, capsules)

    given = give()
    if given is not None and hasattr(given[1], "device_type"):
        check_order(report, given[1], give)


def check_releases(report: Report, method: str, make: Callable[[], object]) -> None:
    """Release the schema and the array in either order, and look at the other one."""
    obj = make()
    whole = exported(report, method, obj)
    expected = array_of(whole) if whole is not None else None
    for is_schema_first in (True, False):
        capsules = exported(report, method, make())
        if expected is None or capsules is None:
            return
        structs = [take(c, n) for c, n in zip(capsules, NAMES[method], strict=True)]
        first, second = structs if is_schema_first else reversed(structs)
        release_watched(report, first)
        gc.collect()
        dirty_the_heap()
        rest = as_capsule(second)
        if is_schema_first:
            pair = (expected.schema.__arrow_c_schema__(), rest)
            found = report.attempt("release.schema", arrowdev.array, pair)
            if found is not None:
                what = "other data after the release of the schema"
                hold_same(report, "release.schema", found, snapshot(expected), what)
        else:
            shown = report.attempt("release.schema", arrowdev.schema, rest)
            if shown is not None:
                what = f"{shown} after the release of the array, before {expected.schema}"
                report.hold("release.schema", shown == expected.schema, what)


def check_lifetime(report: Report, method: str, make: Callable[[], object]) -> None:
    obj = make()
    first = exported(report, method, obj)
    if first is None:
        return
    first_array = imported(report, first)
    if first_array is None:
        return
    before = snapshot(first_array)
    del first
    gc.collect()
    dirty_the_heap()
    what = "other data after the capsule was gone"
    hold_same(report, "capsule.consumed", first_array, before, what)
    second = None
    try:
        second = capsules_of(report, method, called(report, method, obj))
        report.hold("capsule.again", True, "")
    except Exception as error:
        report.hold("capsule.again", False, described(error))
    if second is not None:
        second_array = array_of(second)
        del first_array
        gc.collect()
        dirty_the_heap()
        what = "other data after the release of the first"
        hold_same(report, "release.independent", second_array, before, what)
        first_array = second_array
    del obj, second
    gc.collect()
    dirty_the_heap()
    what = "other data after the object was gone"
    hold_same(report, "release.lifetime", first_array, before, what)


# --- arguments ----------------------------------------------------------------------------------


def _type_of(report: Report, method: str, capsules: tuple[CapsuleType, ...]) -> Any:
    if len(NAMES[method]) == 2:
        return array_of(capsules).schema
    return arrowdev.array_stream(capsules[0]).schema


def check_arguments(report: Report, method: str, make: Callable[[], object]) -> None:
    obj = make()
    plain = exported(report, method, obj)
    if plain is None:
        return
    own = report.attempt("array.contents", _type_of, report, method, plain)
    if own is None:
        return
    other = make()  # a stream that can be exported only once has no schema afterwards
    if hasattr(other, "__arrow_c_schema__"):
        shown = report.attempt("capsule.schema", arrowdev.schema, other)
        if shown is not None:
            report.hold("capsule.schema", shown.equals(own), f"{shown}, but the data are {own}")
    del plain
    _check_requests(report, method, make, own)
    if "device" in method:
        _check_keywords(report, method, make)


def _check_requests(report: Report, method: str, make: Callable[[], object], own: Any) -> None:
    try:
        given = capsules_of(
            report,
            method,
            called(report, method, make(), requested_schema=own.__arrow_c_schema__()),
        )
        found = None if given is None else _type_of(report, method, given)
        same = found is not None and found.equals(own)
        report.hold("capsule.requested", same, f"asked for {own}, got {found}")
    except Exception as error:
        report.hold("capsule.requested", False, described(error))
    other = _other_fields(own)
    try:
        capsules = called(report, method, make(), requested_schema=other.__arrow_c_schema__())
    except Exception:
        report.hold("capsule.incompatible", True, "")
    else:
        del capsules
        report.hold("capsule.incompatible", False, f"asked for {other} of {own}, no error")


def _other_fields(own: Any) -> Any:
    """Return a struct type with one additional field."""
    n = len(own.children) if own.format == "+s" else 0
    column = arrowdev.Array.from_buffers("int8", 0, [None, None])
    columns = {f"no such field {i}": column for i in range(n + 1)}
    return arrowdev.record_batch(columns).schema


def _check_keywords(report: Report, method: str, make: Callable[[], object]) -> None:
    try:
        called(report, method, make(), arrowdev_unknown_keyword=None)
        report.hold("capsule.keyword_none", True, "")
    except Exception as error:
        report.hold("capsule.keyword_none", False, described(error))
    try:
        called(report, method, make(), arrowdev_unknown_keyword=1)
        report.hold("capsule.keyword", False, "it is accepted")
    except NotImplementedError:
        report.hold("capsule.keyword", True, "")
    except Exception as error:
        report.hold("capsule.keyword", False, described(error))


# --- all ----------------------------------------------------------------------------------------


def check_structs(report: Report, method: str, make: Callable[[], object]) -> bool:
    """Check the structs in their capsules; nothing is consumed."""
    obj = make()
    dirty_the_heap()
    capsules = exported(report, method, obj)
    if capsules is None:
        return False
    schema, array = (inside(c, n) for c, n in zip(capsules, NAMES[method], strict=True))
    node = array
    if hasattr(array, "device_type"):
        check_device(report, array)
        node = array.array
    if not check_schema(report, schema) or not check_array(report, schema, node):
        return False
    return check_memory(report, schema, array)


def check_export(report: Report, method: str, make: Callable[[], object]) -> None:
    """Check one of the two methods that give an array. Malformed structs are not used further."""
    sound = check_structs(report, method, make)
    if "capsule.live" not in report.held:
        return
    if "capsule.result" in report.findings or "capsule.live" in report.findings:
        return
    check_capsule_life(report, method, make)
    if not sound or "release.marked" in report.findings:
        return
    check_event(report, method, make)
    if "device.order" in report.findings:
        return  # which values are read is chance
    check_lifetime(report, method, make)
    if {"array.contents", "release.independent", "release.lifetime"} & set(report.findings):
        return
    check_releases(report, method, make)
    if "release.schema" in report.findings:
        return
    check_children(report, method, make)
    check_arguments(report, method, make)


def check_schema_method(report: Report, make: Callable[[], object]) -> None:
    obj = make()
    capsules = exported(report, "__arrow_c_schema__", obj)
    if capsules is not None:
        sound = check_schema(report, inside(capsules[0], "arrow_schema"))
        del capsules
        check_capsule_life(report, "__arrow_c_schema__", make)
        capsules = exported(report, "__arrow_c_schema__", obj)
        if sound and capsules is not None and "release.marked" not in report.findings:
            release_watched(report, take(capsules[0], "arrow_schema"))
