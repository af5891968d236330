"""Values of a host array as Python objects, for interactive use.

No exchange uses this module, so the code is simple and complete rather than
fast. It is imported on first use.
"""

from __future__ import annotations

import datetime
import itertools
import operator
import struct
import sys
from decimal import Decimal

from arrowdev import _core
from arrowdev._errors import exchange_error, require_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from arrowdev._core import Array, Buffer, InvalidArrowError, Tensor

    # The values of `array`, one per row: decoder(array, parameters of the format, valid)
    _Decoder = Callable[[Array, str, list[bool]], list[Any]]
    # Where the values of a row begin and end; None for a row that is not valid.
    _Range = tuple[int, int] | None

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DATE = _EPOCH.date()
_PER_SECOND = {"s": 1, "m": 10**3, "u": 10**6, "n": 10**9}
_FIXED = {
    "c": "b",
    "C": "B",
    "s": "h",
    "S": "H",
    "i": "i",
    "I": "I",
    "l": "q",
    "L": "Q",
    "e": "e",
    "f": "f",
    "g": "d",
}
# The end of a hint: in nested data another array has the attribute that helps.
_WHERE = ", or that of the .children or the .dictionary which holds the values"
_CODE_OF_DTYPE = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


# The most values that are made of no bytes, such as the rows of a null array.
_MAX_UNSTORED = 10**8


def to_pylist(array: Array, what: str = "to_pylist()") -> list[Any]:
    """Return all rows of `array` as a list; nulls are None. `what` names the caller."""
    require_host(array, what)
    _refuse_too_many(array, len(array))
    return _values(array, [True] * len(array))


def _refuse_too_many(array: Array, n: int) -> None:
    """Raise ExchangeError if `n` rows are more values than memory can hold."""
    n_unstored = _count_unstored(array, n)
    if n_unstored > _MAX_UNSTORED:
        raise exchange_error(
            f"{n} rows of {array.schema} are {n_unstored} values without stored bytes, of which "
            f"at most {_MAX_UNSTORED} are made",
            reason="size",
            hint="take fewer rows, with .slice(), or read .schema and len()",
        )


def _count_unstored(array: Array, n: int) -> int:
    """Return how many values without bytes of their own `n` rows have.

    Those of lists are counted when the offsets are read.
    """
    kind = array.schema.format
    filled = [buffer for buffer in array.buffers if buffer is not None and buffer.nbytes]
    n_unstored = 0 if filled else n
    if kind.startswith("+w:"):
        _, shape, _ = _core._extension(array.schema)
        extents = [*itertools.takewhile(bool, shape or ())]
        if len(extents) < len(shape or ()):  # lists of lists, of which the inmost are empty
            n_unstored += n * sum(itertools.accumulate(extents, operator.mul))
        return n_unstored + _count_unstored(array.children[0], n * int(kind[3:]))
    if kind == "+s":
        for child in array.children:
            n_unstored += _count_unstored(child, n)
    return n_unstored


def _values(array: Array, wanted: list[bool]) -> list[Any]:
    """Return the rows of `array`; None for nulls and rows that are not `wanted`.

    The others may hold any bytes: they lie behind a null, or nothing refers to them.
    """
    validity = array.validity
    valid = wanted
    if validity is not None:
        valid = [a and b for a, b in zip(wanted, _bits(validity), strict=True)]
    dictionary = array.dictionary
    if dictionary is not None:
        return _words(array, dictionary, valid)
    values = _decode(array, valid)
    return [value if ok else None for value, ok in zip(values, valid, strict=True)]


def _words(array: Array, dictionary: Array, valid: list[bool]) -> list[Any]:
    """Return the words of the indices in `array`. Words that no index uses are not decoded."""
    indices = _fixed(array, _FIXED[array.schema.format])
    used = [False] * len(dictionary)
    for row, (index, ok) in enumerate(zip(indices, valid, strict=True)):
        if ok and not 0 <= index < len(used):
            raise _malformed(array, row, f"index {index} into a dictionary of {len(used)} values")
        if ok:
            used[index] = True
    values = _values(dictionary, used)
    return [values[index] if ok else None for index, ok in zip(indices, valid, strict=True)]


_AT_ONCE = 1024  # rows that an iteration reads


def iterate(array: Array) -> Iterator[Any]:
    """Return an iterator over the rows."""
    require_host(array, "an iteration over an Array")
    return _iterate(array)


def _iterate(array: Array) -> Iterator[Any]:
    for start in range(0, len(array), _AT_ONCE):
        yield from to_pylist(array[start : start + _AT_ONCE])


def iterate_tensor(tensor: Tensor) -> Iterator[Tensor]:
    """Return an iterator over the first dimension of a Tensor: views."""
    return map(tensor.__getitem__, range(len(tensor)))


def scalar(array: Array, index: int) -> Any:
    """Return row `index` (already checked) as a Python object."""
    return to_pylist(array.slice(index, 1), "a value of an Array")[0]


def element(value: Array | Tensor | Buffer) -> Any:
    """Return the element of a 0-d Tensor, for int(), float() and bool()."""
    if not isinstance(value, _core.Tensor) or value.ndim:
        kind = (
            f"{value.ndim}-d Tensor" if isinstance(value, _core.Tensor) else type(value).__name__
        )
        raise TypeError(
            f"only a 0-d Tensor is a number, found {kind}; "
            "arrowdev.array(x)[i] is the value of a row"
        )
    return to_pylist(_core.array(value[None]), "the number of a Tensor")[0]


def _malformed(array: Array, row: int, problem: str) -> InvalidArrowError:
    """Return an InvalidArrowError. An import checks the structure of arrays, not each row."""
    stored = f" ({array.offset + row} in its buffers)" if array.offset else ""
    error = _core.InvalidArrowError(f"row {row}{stored}: {problem}")
    error.path = ""
    return error


def _decode(array: Array, valid: list[bool]) -> list[Any]:
    """Return one value per row, arbitrary where a row is not `valid`."""
    kind = array.schema.format
    if kind in _FIXED:
        return _numbers(array, _FIXED[kind])
    if kind == "n":
        return [None] * len(array)
    if kind == "b":
        return _bits(array)
    for prefix, decoder in _DECODERS:
        if kind.startswith(prefix):
            return decoder(array, kind[len(prefix) :], valid)
    raise NotImplementedError(f"no Python value for the Arrow format {kind!r}")


def _view(array: Array, index: int) -> memoryview:
    """Return the bytes of buffer `index`; empty if it is NULL."""
    buffer = array.buffers[index]
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _fixed(array: Array, code: str, buffer: int = 1, extra: int = 0) -> list[Any]:
    """Return the numbers of one struct code, `extra` more than rows."""
    size = struct.calcsize("=" + code)
    n = len(array) + extra
    data = _view(array, buffer)[array.offset * size : (array.offset + n) * size]
    return list(struct.unpack(f"={n}{code}", data)) if len(data) else [0] * n


def _bits(array: Array) -> list[bool]:
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    return [bool(data[i >> 3] >> (i & 7) & 1) for i in rows]


def _numbers(array: Array, code: str) -> list[Any]:
    """Return the numbers stored as `code`, as values of the extension type."""
    dtype, _, _ = _core._extension(array.schema)
    if dtype is None:
        return _fixed(array, code)
    if dtype == "bfloat16":
        return [
            struct.unpack("<f", struct.pack("<I", value << 16))[0] for value in _fixed(array, "H")
        ]
    if dtype not in _CODE_OF_DTYPE:
        raise NotImplementedError(f"no Python value for {dtype}; use .view(){_WHERE}")
    return _fixed(array, _CODE_OF_DTYPE[dtype])


# --- binary ------------------------------------------------------------------


def _ranges(
    array: Array, starts: Iterable[int], stops: Iterable[int], size: int, valid: list[bool]
) -> list[_Range]:
    """Return (start, stop) of every row, within `size` values; None if not valid."""
    result: list[_Range] = []
    for row, (start, stop, ok) in enumerate(zip(starts, stops, valid, strict=True)):
        if ok and not 0 <= start <= stop <= size:
            raise _malformed(
                array, row, f"its values run from {start} to {stop}, expected from 0 to {size}"
            )
        result.append((start, stop) if ok else None)
    return result


def _ranges_of_offsets(array: Array, code: str, size: int, valid: list[bool]) -> list[_Range]:
    offsets = _fixed(array, code, extra=1)
    return _ranges(array, offsets[:-1], offsets[1:], size, valid)


def _decoded(
    array: Array, rows: list[memoryview | None], decode: Callable[[memoryview], Any]
) -> list[Any]:
    """Return `decode` of the bytes of every row; None for rows without bytes."""
    result = []
    for row, data in enumerate(rows):
        try:
            result.append(None if data is None else decode(data))
        except UnicodeDecodeError as error:
            raise _malformed(array, row, str(error)) from None
    return result


def _text(data: memoryview) -> str:
    return str(data, "utf-8")


def variable_bytes(array: Array, code: str, valid: list[bool]) -> list[memoryview | None]:
    """Return the bytes of each string as a memoryview; None if not valid."""
    data = _view(array, 2)
    pairs = _ranges_of_offsets(array, code, len(data), valid)
    return [pair and data[slice(*pair)] for pair in pairs]


def _variable(code: str, decode: Callable[[memoryview], Any]) -> _Decoder:
    return lambda array, _, valid: _decoded(array, variable_bytes(array, code, valid), decode)


def view_bytes(array: Array, valid: list[bool]) -> list[memoryview | None]:
    """Return the same for the types string_view and binary_view."""
    data = _view(array, 1)[16 * array.offset :]
    return [_one_view(array, row, data) if ok else None for row, ok in enumerate(valid)]


def _views(decode: Callable[[memoryview], Any]) -> _Decoder:
    return lambda array, _, valid: _decoded(array, view_bytes(array, valid), decode)


def _one_view(array: Array, row: int, data: memoryview) -> memoryview:
    """Return the bytes of a 16-byte view: up to 12 are inline, others at (buffer, offset)."""
    length, _, index, start = struct.unpack_from("=iiii", data, 16 * row)
    if length < 0:
        raise _malformed(array, row, f"its size is {length}, expected at least 0")
    if length <= 12:
        return data[16 * row + 4 : 16 * row + 4 + length]
    n = len(array.buffers) - 3  # behind validity and views, before the sizes
    if not 0 <= index < n:
        raise _malformed(array, row, f"its buffer is {index}, but there are {n} of them")
    buffer = _view(array, 2 + index)
    if not 0 <= start <= len(buffer) - length:
        problem = f"its {length} bytes from {start} on are not within the {len(buffer)}"
        raise _malformed(array, row, f"{problem} of buffer {index}")
    return buffer[start : start + length]


def _fixed_binary(array: Array, width: str, _valid: list[bool]) -> list[bytes]:
    dtype, _, _ = _core._extension(array.schema)
    if dtype is not None:
        raise NotImplementedError(f"no Python value for {dtype}; use .buffers{_WHERE}")
    size = int(width)
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    return [bytes(data[i * size : (i + 1) * size]) for i in rows]


def _decimal(array: Array, parameters: str, _valid: list[bool]) -> list[Decimal]:
    _, scale, *width = (int(text) for text in parameters.split(","))
    size = (width[0] if width else 128) // 8
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    numbers = (
        int.from_bytes(data[i * size : (i + 1) * size], "little", signed=True) for i in rows
    )
    # A plain Decimal(n).scaleb() would round to the context's precision.
    return [
        Decimal((int(n < 0), tuple(int(digit) for digit in str(abs(n))), -scale)) for n in numbers
    ]


# --- time --------------------------------------------------------------------


def _each(
    array: Array, code: str, valid: list[bool], convert: Callable[[int, int], Any]
) -> list[Any]:
    """Return convert(number, row) of the valid numbers stored as `code`."""
    result = []
    for row, (number, ok) in enumerate(zip(_fixed(array, code), valid, strict=True)):
        try:
            result.append(convert(number, row) if ok else None)
        except OverflowError:
            raise OverflowError(
                f"row {row}: {number} is past what Python's datetime holds; use "
                f".view('int{8 * struct.calcsize(code)}'){_WHERE}"
            ) from None
    return result


def _date(code: str, unit: str) -> _Decoder:
    def decoder(array: Array, _: str, valid: list[bool]) -> list[Any]:
        def convert(number: int, _: int) -> datetime.date:
            return _EPOCH_DATE + datetime.timedelta(**{unit: number})

        return _each(array, code, valid, convert)

    return decoder


def _delta(number: int, unit: str) -> datetime.timedelta | None:
    """Return a timedelta, or None if that would lose nanoseconds."""
    microseconds, rest = divmod(number * 10**6, _PER_SECOND[unit])
    return None if rest else datetime.timedelta(microseconds=microseconds)


def _nanoseconds(name: str | None, number: int) -> Any:
    """Return pandas' `name` of `number` ns where the program uses pandas, which has such types.

    No type of the standard library has nanoseconds. Nothing is rounded.
    """
    pandas: Any = sys.modules.get("pandas")
    found = getattr(pandas, name)(number, unit="ns") if pandas and name else None
    if found is None or found is pandas.NaT:  # the smallest int64
        types = "; pandas, once imported, has types for it" if name and not pandas else ""
        raise ValueError(
            f"{number} ns is no whole number of microseconds; use .view('int64'){_WHERE}{types}"
        )
    return found


def _time(array: Array, unit: str, valid: list[bool]) -> list[Any]:
    end = 86400 * _PER_SECOND[unit]

    def convert(number: int, row: int) -> Any:
        if not 0 <= number < end:
            raise _malformed(array, row, f"the time is {number}, expected 0 to {end - 1}")
        delta = _delta(number, unit)
        return _nanoseconds(None, number) if delta is None else (_EPOCH + delta).time()

    return _each(array, "i" if unit in "sm" else "q", valid, convert)


def _duration(array: Array, unit: str, valid: list[bool]) -> list[Any]:
    def convert(number: int, _: int) -> Any:
        delta = _delta(number, unit)
        return _nanoseconds("Timedelta", number) if delta is None else delta

    return _each(array, "q", valid, convert)


def _zone(name: str) -> datetime.tzinfo:
    if name in ("UTC", "Etc/UTC"):  # without the files of tzdata
        return datetime.timezone.utc
    import zoneinfo

    try:
        if name[0] in "+-":
            hours, minutes = name[1:].split(":")
            delta = datetime.timedelta(hours=int(hours), minutes=int(minutes))
            return datetime.timezone(-delta if name[0] == "-" else delta)
        return zoneinfo.ZoneInfo(name)
    # A name may be that of a folder, or none of a file, or no offset.
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ValueError(
            f"the time zone {name!r} is not known here; install tzdata, or use "
            f".view('int64'){_WHERE}"
        ) from error


def _timestamp(array: Array, parameters: str, valid: list[bool]) -> list[Any]:
    unit, _, name = parameters.partition(":")
    zone = _zone(name) if name and any(valid) else None

    def convert(number: int, _: int) -> Any:
        delta = _delta(number, unit)
        value = _nanoseconds("Timestamp", number) if delta is None else _EPOCH + delta
        if zone is None:
            return value
        return value.replace(tzinfo=datetime.timezone.utc).astimezone(zone)

    return _each(array, "q", valid, convert)


def _interval_days(array: Array, *_: object) -> list[Any]:
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    return [struct.unpack_from("=ii", data, 8 * i) for i in rows]


def _interval_nanos(array: Array, *_: object) -> list[Any]:
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    return [struct.unpack_from("=iiq", data, 16 * i) for i in rows]


# --- nested ------------------------------------------------------------------


def _child(array: Array, start: int, stop: int) -> list[Any]:
    return _values(array.children[0].slice(start, stop - start), [True] * (stop - start))


def _lists(array: Array, pairs: list[_Range]) -> list[Any]:
    """Return the lists from start to stop of each pair; None for None."""
    _refuse_too_many(array.children[0], sum(pair[1] - pair[0] for pair in pairs if pair))
    return [pair and _child(array, *pair) for pair in pairs]


def _list(code: str) -> _Decoder:
    def decoder(array: Array, _: str, valid: list[bool]) -> list[Any]:
        return _lists(array, _ranges_of_offsets(array, code, len(array.children[0]), valid))

    return decoder


def _list_view(code: str) -> _Decoder:
    def decoder(array: Array, _: str, valid: list[bool]) -> list[Any]:
        starts = _fixed(array, code)
        sizes = _fixed(array, code, buffer=2)
        stops = [start + size for start, size in zip(starts, sizes, strict=True)]
        return _lists(array, _ranges(array, starts, stops, len(array.children[0]), valid))

    return decoder


def _fixed_list(array: Array, size: str, valid: list[bool]) -> list[Any]:
    n = int(size)
    starts = [n * (array.offset + row) for row in range(len(array))]
    values = [_child(array, i, i + n) if ok else None for i, ok in zip(starts, valid, strict=True)]
    dtype, shape, strides = _core._extension(array.schema)
    if dtype is None:
        return (
            values
            if shape is None
            else [None if row is None else _nested(row, shape, strides or (), 0) for row in values]
        )
    if dtype not in ("complex64", "complex128"):  # several lanes
        raise NotImplementedError(f"no Python value for {dtype}; use .children[0]{_WHERE}")
    return [pair and complex(*pair) for pair in values]


def _nested(row: list[Any], shape: Sequence[int], strides: Sequence[int], start: int) -> Any:
    """Return a row as nested lists, one level per dimension; strides count values."""
    if not shape:
        return row[start]
    return [_nested(row, shape[1:], strides[1:], start + i * strides[0]) for i in range(shape[0])]


def _struct(array: Array, _: str, valid: list[bool]) -> list[Any]:
    names = [child.name for child in array.schema.children]
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{names.count(name)} children are named {name!r}, and a dict keeps one of them; "
            "take each by its index: .field(i).to_pylist()"
        )
    columns = [_values(child.slice(array.offset, len(array)), valid) for child in array.children]
    if not columns:
        return [{} for _ in range(len(array))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _map(array: Array, _: str, valid: list[bool]) -> list[Any]:
    """Return pairs, not dicts: keys and field names may repeat."""
    entries = array.children[0]

    def decode(start: int, stop: int) -> list[Any]:
        columns = [child.slice(entries.offset + start, stop - start) for child in entries.children]
        return list(zip(*(to_pylist(column) for column in columns), strict=True))

    ranges = _ranges_of_offsets(array, "i", len(entries), valid)
    _refuse_too_many(entries, sum(pair[1] - pair[0] for pair in ranges if pair))
    return [pair and decode(*pair) for pair in ranges]


def _union(is_dense: bool) -> _Decoder:
    def decoder(array: Array, suffix: str, valid: list[bool]) -> list[Any]:
        child_of = {int(text): i for i, text in enumerate(suffix.split(",")) if text}
        ids = _fixed(array, "b", buffer=0)
        rows = range(array.offset, array.offset + len(array))
        positions = _fixed(array, "i", buffer=1) if is_dense else rows

        def decode(row: int) -> Any:
            i, position = ids[row], positions[row]
            if i not in child_of:
                raise _malformed(array, row, f"its type id is {i}, expected one of {suffix}")
            child = array.children[child_of[i]]
            if not 0 <= position < len(child):
                raise _malformed(
                    array,
                    row,
                    f"its offset is {position}, but the child of type id {i} has {len(child)} "
                    "values",
                )
            return scalar(child, position)

        return [decode(row) if ok else None for row, ok in enumerate(valid)]

    return decoder


def _run_end(array: Array, _: str, valid: list[bool]) -> list[Any]:
    """Decode the runs that the rows are in, and the ends up to the last row's."""
    if not any(valid):
        return valid
    first, last = array.offset, array.offset + len(array)
    ends = to_pylist(array.children[0])
    values = array.children[1]
    used = [False] * len(values)
    runs: list[int] = []  # of every row
    begin = 0
    for run, end in enumerate(ends):
        if begin >= last:
            break
        if end is None or end <= begin:
            raise _malformed(array.children[0], run, f"the run ends at {end}, after {begin}")
        start, stop = max(begin, first) - first, min(end, last) - first
        used[run] = any(valid[start:stop]) if start < stop else False
        runs += [run] * (stop - start)
        begin = end
    if begin < last:
        row = max(begin, first) - first
        raise _malformed(array, row, f"the last run ends before it, at {begin}")
    decoded = _values(values, used)
    return [decoded[run] for run in runs]


# A longer prefix precedes the prefixes that it begins with.
_DECODERS: list[tuple[str, _Decoder]] = [
    ("u", _variable("i", _text)),
    ("z", _variable("i", bytes)),
    ("U", _variable("q", _text)),
    ("Z", _variable("q", bytes)),
    ("vu", _views(_text)),
    ("vz", _views(bytes)),
    ("w:", _fixed_binary),
    ("d:", _decimal),
    ("tdD", _date("i", "days")),
    ("tdm", _date("q", "milliseconds")),
    ("tt", _time),
    ("ts", _timestamp),
    ("tD", _duration),
    ("tiM", lambda array, *_: _fixed(array, "i")),
    ("tiD", _interval_days),
    ("tin", _interval_nanos),
    ("+l", _list("i")),
    ("+L", _list("q")),
    ("+vl", _list_view("i")),
    ("+vL", _list_view("q")),
    ("+w:", _fixed_list),
    ("+s", _struct),
    ("+m", _map),
    ("+ud:", _union(True)),
    ("+us:", _union(False)),
    ("+r", _run_end),
]
