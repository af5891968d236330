"""Values of a host array as Python objects, for interactive use.

No exchange uses this module, so the code is simple and complete rather than
fast. It is imported on first use.
"""

import datetime
import struct
from decimal import Decimal

from arrowdev import _core
from arrowdev._errors import require_host

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


def to_pylist(array, what="to_pylist()"):
    """Return all rows of `array` as a list; nulls are None. `what` names the caller."""
    require_host(array, what)
    if array.schema.dictionary is not None:
        values = to_pylist(array.dictionary)
        indices = _with_nulls(array, _fixed(array, _FIXED[array.schema.format]))
        for row, index in enumerate(indices):
            if index is not None and not 0 <= index < len(values):
                raise _malformed(
                    array, row, f"index {index} into a dictionary of {len(values)} values"
                )
        return [None if index is None else values[index] for index in indices]
    return _with_nulls(array, _decode(array))


def scalar(array, index):
    """Return row `index` (already checked) as a Python object."""
    return to_pylist(array.slice(index, 1), "a value of an Array")[0]


def _malformed(array, row, problem):
    """Return an InvalidArrowError. An import checks the structure of arrays, not each row."""
    stored = f" ({array.offset + row} in its buffers)" if array.offset else ""
    error = _core.InvalidArrowError(f"row {row}{stored}: {problem}")
    error.path = ""
    return error


def _with_nulls(array, values):
    """Return `values`, with None where the validity bitmap has a 0."""
    validity = array.validity
    if validity is None:
        return values
    return [value if valid else None for value, valid in zip(values, _bits(validity), strict=True)]


def _decode(array):
    """Decode all values. Those of null rows are arbitrary."""
    kind = array.schema.format
    if kind in _FIXED:
        return _numbers(array, _FIXED[kind])
    if kind == "n":
        return [None] * len(array)
    if kind == "b":
        return _bits(array)
    for prefix, decoder in _DECODERS:
        if kind.startswith(prefix):
            return decoder(array, kind[len(prefix) :])
    raise NotImplementedError(f"no Python value for the Arrow format {kind!r}")


def _view(array, index):
    """Return the bytes of buffer `index`; empty if it is NULL."""
    buffer = array.buffers[index]
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _fixed(array, code, buffer=1, extra=0):
    """Return the numbers of one struct code, `extra` more than rows."""
    size = struct.calcsize("=" + code)
    n = len(array) + extra
    data = _view(array, buffer)[array.offset * size : (array.offset + n) * size]
    return list(struct.unpack(f"={n}{code}", data)) if len(data) else [0] * n


def _bits(array):
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    return [bool(data[i >> 3] >> (i & 7) & 1) for i in rows]


def _numbers(array, code):
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


def _ranges(array, starts, stops, size):
    """Return (start, stop) of every row, within `size` values; None for a null row."""
    result = []
    for row, (start, stop, ok) in enumerate(zip(starts, stops, _validity_of(array), strict=True)):
        if ok and not 0 <= start <= stop <= size:
            raise _malformed(
                array, row, f"its values run from {start} to {stop}, expected from 0 to {size}"
            )
        result.append((start, stop) if ok else None)
    return result


def _ranges_of_offsets(array, code, size):
    offsets = _fixed(array, code, extra=1)
    return _ranges(array, offsets[:-1], offsets[1:], size)


def _decoded(array, rows, decode):
    """Return `decode` of the bytes of every row; None for rows without bytes."""
    result = []
    for row, data in enumerate(rows):
        try:
            result.append(None if data is None else decode(data))
        except UnicodeDecodeError as error:
            raise _malformed(array, row, str(error)) from None
    return result


def _validity_of(array):
    validity = array.validity
    return [True] * len(array) if validity is None else _bits(validity)


def _text(data):
    return data.decode()


def _variable(code, decode):
    def decoder(array, _):
        data = _view(array, 2)
        pairs = _ranges_of_offsets(array, code, len(data))
        return _decoded(array, [pair and bytes(data[slice(*pair)]) for pair in pairs], decode)

    return decoder


def _views(decode):
    def decoder(array, _):
        data = _view(array, 1)[16 * array.offset :]
        rows = enumerate(_validity_of(array))
        views = [_one_view(array, row, data) if ok else None for row, ok in rows]
        return _decoded(array, views, decode)

    return decoder


def _one_view(array, row, data):
    """Return the bytes of a 16-byte view: up to 12 are inline, others at (buffer, offset)."""
    length, _, index, start = struct.unpack_from("=iiii", data, 16 * row)
    if length < 0:
        raise _malformed(array, row, f"its size is {length}, expected at least 0")
    if length <= 12:
        return bytes(data[16 * row + 4 : 16 * row + 4 + length])
    n = len(array.buffers) - 3  # behind validity and views, before the sizes
    if not 0 <= index < n:
        raise _malformed(array, row, f"its buffer is {index}, but there are {n} of them")
    buffer = _view(array, 2 + index)
    if not 0 <= start <= len(buffer) - length:
        problem = f"its {length} bytes from {start} on are not within the {len(buffer)}"
        raise _malformed(array, row, f"{problem} of buffer {index}")
    return bytes(buffer[start : start + length])


def _fixed_binary(array, width):
    dtype, _, _ = _core._extension(array.schema)
    if dtype is not None:
        raise NotImplementedError(f"no Python value for {dtype}; use .buffers{_WHERE}")
    size = int(width)
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    return [bytes(data[i * size : (i + 1) * size]) for i in rows]


def _decimal(array, parameters):
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


def _date32(array, _):
    return [
        _if_valid(ok, lambda n: _EPOCH_DATE + datetime.timedelta(days=n), n)
        for n, ok in _rows(array, "i")
    ]


def _date64(array, _):
    return [
        _if_valid(ok, lambda n: _EPOCH_DATE + datetime.timedelta(milliseconds=n), n)
        for n, ok in _rows(array, "q")
    ]


def _rows(array, code):
    return zip(_fixed(array, code), _validity_of(array), strict=True)


def _if_valid(valid, function, value):
    return function(value) if valid else None


def _delta(number, unit):
    """Return a timedelta. It has no nanoseconds: such values raise, and are not truncated."""
    microseconds, rest = divmod(number * 10**6, _PER_SECOND[unit])
    if rest:
        raise ValueError(
            f"{number} ns is no whole number of microseconds; use .view('int64'){_WHERE}"
        )
    return datetime.timedelta(microseconds=microseconds)


def _time(array, unit):
    code = "i" if unit in "sm" else "q"
    result = []
    end = 86400 * _PER_SECOND[unit]
    for row, (number, ok) in enumerate(_rows(array, code)):
        if ok and not 0 <= number < end:
            raise _malformed(array, row, f"the time is {number}, expected 0 to {end - 1}")
        result.append((_EPOCH + _delta(number, unit)).time() if ok else None)
    return result


def _duration(array, unit):
    return [_if_valid(ok, lambda n: _delta(n, unit), n) for n, ok in _rows(array, "q")]


def _zone(name):
    if name[:1] in "+-":
        hours, minutes = name[1:].split(":")
        delta = datetime.timedelta(hours=int(hours), minutes=int(minutes))
        return datetime.timezone(-delta if name[0] == "-" else delta)
    import zoneinfo

    return zoneinfo.ZoneInfo(name)


def _timestamp(array, parameters):
    unit, _, name = parameters.partition(":")
    zone = _zone(name) if name else None

    def convert(number):
        value = _EPOCH + _delta(number, unit)
        if zone is None:
            return value
        return value.replace(tzinfo=datetime.timezone.utc).astimezone(zone)

    return [_if_valid(ok, convert, n) for n, ok in _rows(array, "q")]


def _interval_days(array, _):
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    return [struct.unpack_from("=ii", data, 8 * i) for i in rows]


def _interval_nanos(array, _):
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    return [struct.unpack_from("=iiq", data, 16 * i) for i in rows]


# --- nested ------------------------------------------------------------------


def _child(array, start, stop):
    return to_pylist(array.children[0].slice(start, stop - start))


def _list(code):
    def decoder(array, _):
        pairs = _ranges_of_offsets(array, code, len(array.children[0]))
        return [pair and _child(array, *pair) for pair in pairs]

    return decoder


def _list_view(code):
    def decoder(array, _):
        starts = _fixed(array, code)
        sizes = _fixed(array, code, buffer=2)
        stops = [start + size for start, size in zip(starts, sizes, strict=True)]
        pairs = _ranges(array, starts, stops, len(array.children[0]))
        return [pair and _child(array, *pair) for pair in pairs]

    return decoder


def _fixed_list(array, size):
    n = int(size)
    rows = range(array.offset, array.offset + len(array))
    values = [_child(array, i * n, (i + 1) * n) for i in rows]
    dtype, shape, strides = _core._extension(array.schema)
    if dtype is None:
        return values if shape is None else [_nested(row, shape, strides, 0) for row in values]
    if dtype not in ("complex64", "complex128"):  # several lanes
        raise NotImplementedError(f"no Python value for {dtype}; use .children[0]{_WHERE}")
    return [complex(*pair) for pair in values]


def _nested(row, shape, strides, start):
    """Return a row as nested lists, one level per dimension; strides count values."""
    if not shape:
        return row[start]
    return [_nested(row, shape[1:], strides[1:], start + i * strides[0]) for i in range(shape[0])]


def _struct(array, _):
    names = [child.name for child in array.schema.children]
    columns = [to_pylist(child.slice(array.offset, len(array))) for child in array.children]
    if not columns:
        return [{} for _ in range(len(array))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _map(array, _):
    """Return pairs, not dicts: keys and field names may repeat."""
    entries = array.children[0]
    pairs = zip(
        *(to_pylist(child.slice(entries.offset, len(entries))) for child in entries.children),
        strict=True,
    )
    pairs = list(pairs)
    ranges = _ranges_of_offsets(array, "i", len(pairs))
    return [pair and pairs[slice(*pair)] for pair in ranges]


def _union(is_dense):
    def decoder(array, suffix):
        child_of = {int(text): i for i, text in enumerate(suffix.split(",")) if text}
        ids = _fixed(array, "b", buffer=0)
        rows = range(array.offset, array.offset + len(array))
        positions = _fixed(array, "i", buffer=1) if is_dense else rows
        result = []
        for row, (i, position) in enumerate(zip(ids, positions, strict=True)):
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
            result.append(scalar(child, position))
        return result

    return decoder


def _run_end(array, _):
    if not len(array):
        return []
    ends = to_pylist(array.children[0])
    values = to_pylist(array.children[1])
    first, last = array.offset, array.offset + len(array)
    result = []
    begin = 0
    for run, end in enumerate(ends):
        if end is None or end <= begin:
            raise _malformed(array.children[0], run, f"the run ends at {end}, after {begin}")
        result += [values[run]] * (min(end, last) - max(begin, first))
        begin = end
    if begin < last:
        row = max(begin, first) - first
        raise _malformed(array, row, f"the last run ends before it, at {begin}")
    return result


# A longer prefix precedes the prefixes that it begins with.
_DECODERS = [
    ("u", _variable("i", _text)),
    ("z", _variable("i", bytes)),
    ("U", _variable("q", _text)),
    ("Z", _variable("q", bytes)),
    ("vu", _views(_text)),
    ("vz", _views(bytes)),
    ("w:", _fixed_binary),
    ("d:", _decimal),
    ("tdD", _date32),
    ("tdm", _date64),
    ("tt", _time),
    ("ts", _timestamp),
    ("tD", _duration),
    ("tiM", lambda array, _: _fixed(array, "i")),
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
