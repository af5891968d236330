"""Instances of classes that the tables of _libraries.py do not have.

Other code makes them: a function that was registered, the class itself, or what the class and
its library offer by the conventions of the field. What comes back is checked.
"""

from __future__ import annotations

import functools
import re
import sys

from arrowdev._convert import PASSED_ON, Target, unknown_class
from arrowdev._core import (
    Array,
    ArrayStream,
    Buffer,
    DeviceType,
    ExchangeError,
    InvalidArrowError,
    Schema,
    Tensor,
    _extension,
    _log,
    _warn_if_readonly,
    array,
    from_dlpack,
    protocols,
    schema,
    tensor,
)
from arrowdev._errors import exchange_error
from arrowdev._given import (
    cannot_promise,
    take_array,
    take_stream,
    take_stream_with_bits,
    take_with_bits,
    take_without_negative_strides,
)
from arrowdev._libraries import require_dtype
from arrowdev._targets import class_name, library_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from arrowdev._given import Kind, Make

    _Given = Array | Tensor | Buffer | ArrayStream


class _Way:
    """A function that makes an instance.

    `run(obj, copy, stream)` returns what the function was given, and what it returned. `is_told`
    is whether the function was given `copy` as well.
    """

    __slots__ = ("is_told", "name", "run")

    def __init__(
        self,
        name: str,
        run: Callable[[Any, bool | None, object], tuple[_Given, Any]],
        is_told: bool = False,
    ) -> None:
        self.name = name
        self.run = run
        self.is_told = is_told


class _OtherClass(Exception):
    """A function returned an instance of another class."""


def _calling(name: str, function: Callable[[Any], Any], take: Make) -> _Way:
    def run(obj: Any, copy: bool | None, stream: object) -> tuple[_Given, Any]:
        given = take(obj, copy, stream)
        return given, function(given)

    return _Way(name, run)


def _target(
    cls: type,
    kind: Kind,
    ways: list[_Way],
    *,
    is_convention: bool = False,
    is_tried: bool = False,
) -> Target:
    """The target that goes `ways` in their order."""

    def make(obj: Any, copy: bool | None, stream: object) -> Any:
        failures: list[tuple[str, Exception]] = []
        for way in ways:
            try:
                given, result = way.run(obj, copy, stream)
                _check(way, cls, given, result, copy)
            except PASSED_ON:
                raise
            except Exception as error:
                failures.append((way.name, error))
            else:
                _log(f"convert: {class_name(cls)} by {way.name}")
                return result
            if isinstance(obj, ArrayStream):  # it is consumed
                break
        raise _refusal(cls, obj, failures, is_convention)

    whole = make if kind == "stream" else None
    return Target(kind, make, whole, is_open=True, is_tried=is_tried)


def _short(error: Exception) -> str:
    if isinstance(error, _OtherClass):
        return str(error)
    return f"raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _refusal(
    cls: type, obj: Any, failures: list[tuple[str, Exception]], is_convention: bool
) -> Exception:
    """The error for a class of which no way made an instance."""
    first = failures[0][1]
    if len(failures) == 1 and isinstance(first, (ExchangeError, InvalidArrowError)):
        return first
    texts = ", ".join(f"{name} {_short(error)}" for name, error in failures)
    if is_convention and all(isinstance(error, _OtherClass) for _, error in failures):
        return unknown_class(cls, f" ({texts})")
    hint = "pass what it takes, or register another function with arrowdev.register_target()"
    if obj.device_type != DeviceType.CPU:
        hint = 'bring the data to the host with .to("cpu")'
    error = exchange_error(
        f"no {class_name(cls)} was made: {texts}",
        reason=getattr(first, "reason", None) or "target",
        hint=hint,
        device=getattr(obj, "device", None),
    )
    error.__cause__ = first
    return error


# --- the ways, in the order of preference --------------------------------------


def _take_tensor(obj: Any, copy: bool | None, stream: object) -> Tensor:
    return tensor(obj, copy=copy, stream=stream)


_TAKES: dict[Kind, Make] = {
    "array": take_array,
    "tensor": _take_tensor,
    "stream": take_stream,
}


def by_function(cls: type, function: Callable[[Any], Any], takes: Kind) -> Target:
    """The target of a class that was registered, or a base of it."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None)
    way = _calling(f"{module}.{name}" if module else name, function, _TAKES[takes])
    return _target(cls, takes, [way])


def by_known_function(
    cls: type,
    library: Any,
    name: str,
    function: Callable[[Any, Any], Any],
    kind: Kind,
    take: Make,
) -> Target:
    """The target of a class in the table of functions of _libraries.py."""
    way = _calling(name, functools.partial(function, library), take)
    return _target(cls, kind, [way], is_tried=True)


def by_itself(cls: Any) -> Target:
    """The target of a class with __arrowdev_from__()."""

    def run(obj: Any, copy: bool | None, stream: object) -> tuple[_Given, Any]:
        return obj, cls.__arrowdev_from__(obj, copy=copy, stream=stream)

    return _target(cls, "array", [_Way(f"{class_name(cls)}.__arrowdev_from__", run, True)])


def by_convention(cls: Any) -> Target:
    """The target of a class that offers a convention, or whose library does; or TypeError.

    Where instances are Arrow streams and no arrays, as tables are, from_arrow() takes a stream.
    """
    arrow_kind: Kind = "array"
    path = class_name(cls)
    if _look_up(cls, "__arrow_c_stream__", path) and not _look_up(cls, "__arrow_c_array__", path):
        arrow_kind = "stream"
    arrow = take_stream_with_bits if arrow_kind == "stream" else take_with_bits
    name = library_name(cls)
    library = None if name in ("arrowdev", "builtins") else sys.modules.get(name)
    ways: dict[str, tuple[Kind, _Way]] = {}
    owner: Any
    for owner, name in (
        (cls, "from_arrow"),
        (cls, "from_dlpack"),
        (_namespace(cls), "from_dlpack"),
        (library, "from_dlpack"),
        (library, "from_arrow"),
    ):
        path = class_name(cls) if owner is cls else getattr(owner, "__name__", "")
        path += f".{name}"
        function = _look_up(owner, name, path)
        if callable(function):
            kind: Kind = arrow_kind if name == "from_arrow" else "tensor"
            take = arrow if name == "from_arrow" else take_without_negative_strides
            ways.setdefault(path, (kind, _calling(path, function, take)))
    if not ways:
        raise unknown_class(cls)
    kinds = [kind for kind, _ in ways.values()]
    found = [way for _, way in ways.values()]
    return _target(cls, kinds[0], found, is_convention=True, is_tried=True)


def _look_up(owner: Any, name: str, path: str) -> Any:
    """Return an attribute or None. A module may import what it is asked for, and fail."""
    try:
        return getattr(owner, name, None)
    except Exception as error:
        raise _failed_look_up(path, error) from error


def _failed_look_up(path: str, error: Exception) -> ExchangeError:
    return exchange_error(
        f"the look-up of {path} {_short(error)}",
        reason="target",
        hint="repair the installation of the library",
    )


def _namespace(cls: Any) -> Any:
    """What the class method __array_namespace__() returns; None where it is no class method."""
    try:
        return cls.__array_namespace__()
    except (AttributeError, TypeError):
        return None
    except Exception as error:
        path = f"{class_name(cls)}.__array_namespace__"
        raise _failed_look_up(path, error) from error


# --- checks ----------------------------------------------------------------------


def _check(way: _Way, cls: type, given: _Given, result: Any, copy: bool | None) -> None:
    """Raise if `result` is not what was asked for, or says other things than `given`."""
    if not isinstance(result, cls):
        raise _OtherClass(f"returned an instance of {class_name(type(result))}")
    is_shared: bool | None = None
    if isinstance(given, ArrayStream):
        _require_type(way, given.schema, _type_of(result))
    else:
        back = _read_back(result, given)
        values = _comparable(given, back)
        if isinstance(values, Array):
            is_shared = _check_column(way, values, back, result)
        else:
            is_shared = _check_tensor(way, values, back, result)
            is_flagged = isinstance(back, Tensor) and (back.readonly or not is_shared)
            if not is_flagged and not way.is_told:
                _warn_if_readonly(values, result)
    if copy is False and is_shared is False:
        raise exchange_error(
            f"{way.name} copied the data, which was ruled out",
            reason="copy",
            hint="leave copy=False out",
        )
    if copy is False and is_shared is None and not way.is_told:
        raise cannot_promise(way.name)
    if copy and is_shared and way.is_told:
        raise exchange_error(
            f"{way.name} shares the memory, and copy=True asks for a copy",
            reason="copy",
            hint="leave copy=True out, or pass a copy: arrowdev.array(x, copy=True)",
        )


def _comparable(given: Array | Tensor | Buffer, back: Array | Tensor | None) -> Array | Tensor:
    """Return `given` as what `back` is, if a tensor has a place for it."""
    if isinstance(given, Buffer) or (isinstance(given, Array) and isinstance(back, Tensor)):
        return _as_tensor(given) or array(given)
    return given


def _as_tensor(value: Any) -> Tensor | None:
    try:
        return tensor(value)
    except ExchangeError:
        return None


def _read_back(result: Any, given: _Given) -> Array | Tensor | None:
    """Read what the library made, if it offers a protocol for that other than a stream.

    A stream may be one that can be read only once.
    """
    offered = {name for name in protocols(result) if not name.endswith("_stream__")}
    arrow = offered & {"__arrow_c_device_array__", "__arrow_c_array__"}
    try:
        if "__dlpack__" in offered and (isinstance(given, Tensor) or not arrow):
            return from_dlpack(result)
        if offered:
            return array(result) if arrow else tensor(result)
    except (MemoryError, Warning):
        raise
    except Exception:
        _log(f"convert: an instance of {class_name(type(result))} could not be read back")
    return None


def _require_shape(way: _Way, expected: object, found: object) -> None:
    if found != expected:
        raise exchange_error(
            f"{way.name} makes the shape {found} of {expected}",
            reason="shape",
            hint="give the data that shape first, in the library that has them",
        )


# --- of tensors


def _dtype_name(result: Any) -> str | None:
    """The name of the element type that an object says it has, if it is a common one."""
    dtype = getattr(result, "dtype", None)
    for name in (getattr(dtype, "name", None), getattr(dtype, "__name__", None), str(dtype)):
        short = str(name).rpartition(".")[2]
        if re.fullmatch(r"bool|u?int\d+|b?float\d+(_\w+)?|complex\d+", short):
            return short
    return None


def _check_tensor(way: _Way, given: Tensor, back: Any, result: Any) -> bool | None:
    """Whether the result is in the memory of `given`; None if that is unknown."""
    if isinstance(back, Array):
        _require_null_count(way, 0, back.null_count)
        require_dtype(way.name, given.dtype, _element_type(back.schema))
        back = _as_tensor(back)
    if not isinstance(back, Tensor):
        require_dtype(way.name, given.dtype, _dtype_name(result) or given.dtype)
        return None
    require_dtype(way.name, given.dtype, back.dtype)
    _require_shape(way, given.shape, back.shape)
    starts = [(one.data_ptr, one.byte_offset) for one in (given, back)]
    if given.nbytes and starts[0] == starts[1]:
        _require_strides(way, given, back)
    return not given.nbytes or starts[0] == starts[1]


def _require_strides(way: _Way, given: Tensor, found: Tensor) -> None:
    """Raise if the same memory is read in another order."""
    before, after = (
        [stride for extent, stride in zip(one.shape, one.strides, strict=True) if extent > 1]
        for one in (given, found)
    )
    if before != after:
        raise exchange_error(
            f"{way.name} makes the strides {found.strides} of {given.strides}",
            reason="strides",
            hint="give the data that order first, in the library that has them",
        )


# --- of columns


def _element_type(type: Schema) -> str:
    """The name of the elements' type, as a tensor has it."""
    if type.format.startswith("+w:"):
        return _element_type(type.children[0])
    return _extension(type)[0] or str(type)


def _check_column(way: _Way, given: Array, back: Any, result: Any) -> bool | None:
    """The same for columns."""
    if isinstance(back, Array):
        _require_type(way, given.schema, back.schema)
        _require_shape(way, (len(given),), (len(back),))
        _require_nulls(way, given, back)
        return is_within(back, _regions(given))
    _require_type(way, given.schema, _type_of(result))
    expected = _element_type(given.schema)
    if isinstance(back, Tensor):  # it has no place for what is in the column
        _require_shape(way, (len(given),), tuple(back.shape)[:1])
        _require_null_count(way, _null_rows(given), 0)
        require_dtype(way.name, expected, back.dtype)
    elif len(given.schema.format) == 1:
        require_dtype(way.name, expected, _dtype_name(result) or expected)
    return None


def _require_nulls(way: _Way, given: Array, found: Array) -> None:
    """Raise if there are other nulls in the rows, or in the fields and lists of the rows."""
    counts = _null_rows(given), _null_rows(found)
    _require_null_count(way, *counts)
    if counts != (0, 0):
        return  # which of the values below are rows is not known
    for before, after in zip(_parts(given), _parts(found), strict=False):
        _require_nulls(way, before, after)


def _parts(value: Array) -> list[Array]:
    """The values of the fields or lists in the rows of `value`, none of which is null.

    Empty where it is not known which values these are.
    """
    begin, end = value.offset, value.offset + len(value)
    if value.schema.format.startswith("+w:"):
        size = int(value.schema.format[3:])
        begin, end = begin * size, end * size
    elif value.schema.format != "+s":
        if value.schema.format not in ("+l", "+L", "+m") or value.device_type != DeviceType.CPU:
            return []
        offsets = value.buffers[1]
        if offsets is not None and len(value):
            ends = memoryview(offsets).cast("B").cast("q" if value.schema.format == "+L" else "i")
            begin, end = ends[begin], ends[end]
    return [child[begin:end] for child in value.children]


def _null_rows(value: Array) -> int | None:
    """The number of null rows, also of encoded ones; None if it is unknown."""
    if value.dictionary is not None and value.dictionary.null_count != 0:
        return None
    if value.schema.format != "+r" or value.children[1].null_count == 0:
        return value.null_count
    if value.device_type != DeviceType.CPU:
        return None
    ends, values = (child.to_pylist() for child in value.children)
    first, last = value.offset, value.offset + len(value)
    rows = [min(max(end, first), last) for end in (0, *ends)]
    runs = zip(rows, rows[1:], values, strict=False)
    return int(sum(end - begin for begin, end, x in runs if x is None))


def _require_null_count(way: _Way, given: int | None, found: int | None) -> None:
    """Raise if nulls were made or lost."""
    if given is not None and found is not None and given != found:
        raise exchange_error(
            f"{way.name} makes {found} nulls of {given}",
            reason="nulls",
            hint='fill them before: arrowdev.tensor(x, nulls="fill", fill_value=...)',
        )


def _regions(value: Array) -> list[tuple[int, int]]:
    """The memory of all values, as (begin, end)."""
    regions = [
        (buffer.data_ptr, buffer.data_ptr + (buffer.nbytes or 0))
        for buffer in value.buffers
        if buffer is not None
    ]
    parts = value.children if value.dictionary is None else (value.dictionary,)
    for part in parts:
        regions += _regions(part)
    return regions


def is_within(value: Array, regions: list[tuple[int, int]]) -> bool:
    """Whether all buffers of an array lie in these regions."""
    return all(
        begin == end or any(first <= begin and end <= last for first, last in regions)
        for begin, end in _regions(value)
    )


def _type_of(result: Any) -> Schema | None:
    """The type that an object says it has, read without reading the object."""
    owner: Any
    for owner in (result, getattr(result, "schema", None)):
        if hasattr(owner, "__arrow_c_schema__"):
            try:
                return schema(owner)
            except Exception:
                _log(f"convert: the schema of {class_name(type(result))} could not be read")
    return None


_SAME_VALUES = {"U": "u", "vu": "u", "Z": "z", "vz": "z", "+L": "+l", "+vl": "+l", "+vL": "+l"}


def _values_of(type: Schema) -> Schema:
    """The type of the values, whether they are encoded or not."""
    while type.dictionary is not None or type.format == "+r":
        type = type.children[1] if type.dictionary is None else type.dictionary
    return type


def _extension_of(type: Schema) -> object:
    """What an extension type says beyond its storage; None of a plain type."""
    known = _extension(type)
    if any(known):
        dtype, *rows = known
        is_stored = len(type.format) == 1 and dtype == str(schema(type.format))
        return None if is_stored else (dtype, *rows)
    metadata = type.metadata or {}
    name = metadata.get(b"ARROW:extension:name")
    return name and (name, metadata.get(b"ARROW:extension:metadata", b""))


def _is_alike(given: Schema, found: Schema) -> bool:
    """Whether the values are of one type. They may be laid out and encoded in other ways."""
    given, found = _values_of(given), _values_of(found)
    before, after = (_SAME_VALUES.get(type.format, type.format) for type in (given, found))
    return (
        before == after
        and len(given.children) == len(found.children)
        and _extension_of(given) == _extension_of(found)
        and all(map(_is_alike, given.children, found.children))
        and (
            not before.startswith(("+s", "+u"))
            or [child.name for child in given.children] == [child.name for child in found.children]
        )
    )


def _require_type(way: _Way, given: Schema, found: Schema | None) -> None:
    if found is not None and not _is_alike(given, found):
        require_dtype(way.name, f"{given} ({given.format})", f"{found} ({found.format})")
