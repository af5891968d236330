"""Values of a host array as Python objects, for people at a prompt.

Not on the path of any exchange, so plain and complete rather than fast.
Imported on first use.
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
    """All rows of `array` as a list; nulls are None. `what` was called for them."""
    require_host(array, what)
    if array.schema.dictionary is not None:
        values = to_pylist(array.dictionary)
        indices = _fixed(array, _FIXED[array.schema.format])
        return [None if i is None else _at(values, i) for i in _with_nulls(array, indices)]
    return _with_nulls(array, _decode(array))


def _at(values, index):
    if not 0 <= index < len(values):
        raise IndexError(f"dictionary index {index} is not among {len(values)} values")
    return values[index]


def scalar(array, index):
    """Row `index` (already checked) as a Python object."""
    return to_pylist(array.slice(index, 1), "a value of an Array")[0]


def _with_nulls(array, values):
    """`values`, with None where the validity bitmap has a 0."""
    validity = array.validity
    if validity is None:
        return values
    return [value if valid else None for value, valid in zip(values, _bits(validity), strict=True)]


def _decode(array):
    """Values without regard to nulls (those may hold anything)."""
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
    """Bytes of buffer `index`; empty where there is none."""
    buffer = array.buffers[index]
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _fixed(array, code, buffer=1, extra=0):
    """Numbers of one struct code; `extra` more than there are rows."""
    size = struct.calcsize("=" + code)
    n = len(array) + extra
    data = _view(array, buffer)[array.offset * size : (array.offset + n) * size]
    return list(struct.unpack(f"={n}{code}", data)) if len(data) else [0] * n


def _bits(array):
    data = _view(array, 1)
    rows = range(array.offset, array.offset + len(array))
    return [bool(data[i >> 3] >> (i & 7) & 1) for i in rows]


def _numbers(array, code):
    """Numbers stored as `code`, as the extension type means them."""
    dtype, _, _ = _core._extension(array.schema)
    if dtype is None:
        return _fixed(array, code)
    if dtype == "bfloat16":
        return [
            struct.unpack("<f", struct.pack("<I", value << 16))[0] for value in _fixed(array, "H")
        ]
    if dtype not in _CODE_OF_DTYPE:
        raise NotImplementedError(f"no Python value for {dtype}; .view() shows what is stored")
    return _fixed(array, _CODE_OF_DTYPE[dtype])


# --- binary ------------------------------------------------------------------


def _slices(array, offsets, decode):
    data = _view(array, 2)
    pairs = zip(offsets, offsets[1:], strict=False)
    valid = _validity_of(array)
    return [
        decode(bytes(data[start:stop])) if ok else None
        for (start, stop), ok in zip(pairs, valid, strict=True)
    ]


def _validity_of(array):
    validity = array.validity
    return [True] * len(array) if validity is None else _bits(validity)


def _text(data):
    return data.decode()


def _variable(code, decode):
    def decoder(array, _):
        return _slices(array, _fixed(array, code, extra=1), decode)

    return decoder


def _views(decode):
    def decoder(array, _):
        data = _view(array, 1)
        rows = range(array.offset, array.offset + len(array))
        valid = _validity_of(array)
        return [
            decode(_one_view(array, data[16 * i : 16 * i + 16])) if ok else None
            for i, ok in zip(rows, valid, strict=True)
        ]

    return decoder


def _one_view(array, view):
    """One 16-byte view: up to 12 bytes in line, else (buffer, offset)."""
    (length,) = struct.unpack_from("=i", view)
    if length <= 12:
        return bytes(view[4 : 4 + length])
    index, start = struct.unpack_from("=ii", view, 8)
    return bytes(_view(array, 2 + index)[start : start + length])


def _fixed_binary(array, width):
    dtype, _, _ = _core._extension(array.schema)
    if dtype is not None:
        raise NotImplementedError(f"no Python value for {dtype}; .buffers holds what is stored")
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
    """A timedelta, which has no nanoseconds: those are refused, not cut."""
    microseconds, rest = divmod(number * 10**6, _PER_SECOND[unit])
    if rest:
        raise ValueError(f"{number} ns is no whole number of microseconds; use .view('int64')")
    return datetime.timedelta(microseconds=microseconds)


def _time(array, unit):
    code = "i" if unit in "sm" else "q"
    return [
        _if_valid(ok, lambda n: (_EPOCH + _delta(n, unit)).time(), n)
        for n, ok in _rows(array, code)
    ]


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
        offsets = _fixed(array, code, extra=1)
        pairs = zip(offsets, offsets[1:], strict=False)
        valid = _validity_of(array)
        return [
            _child(array, *pair) if ok else None for pair, ok in zip(pairs, valid, strict=True)
        ]

    return decoder


def _list_view(code):
    def decoder(array, _):
        starts = _fixed(array, code)
        sizes = _fixed(array, code, buffer=2)
        valid = _validity_of(array)
        return [
            _child(array, start, start + size) if ok else None
            for start, size, ok in zip(starts, sizes, valid, strict=True)
        ]

    return decoder


def _fixed_list(array, size):
    n = int(size)
    rows = range(array.offset, array.offset + len(array))
    values = [_child(array, i * n, (i + 1) * n) for i in rows]
    dtype, shape, strides = _core._extension(array.schema)
    if dtype is None:
        return values if shape is None else [_nested(row, shape, strides, 0) for row in values]
    if dtype not in ("complex64", "complex128"):  # several lanes
        raise NotImplementedError(f"no Python value for {dtype}; .children[0] holds its numbers")
    return [complex(*pair) for pair in values]


def _nested(row, shape, strides, start):
    """A row as lists of lists, each index in its dimension; strides count values."""
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
    """Pairs, not dicts: keys may repeat, and so may the names of the fields."""
    entries = array.children[0]
    pairs = zip(
        *(to_pylist(child.slice(entries.offset, len(entries))) for child in entries.children),
        strict=True,
    )
    pairs = list(pairs)
    offsets = _fixed(array, "i", extra=1)
    return [
        pairs[start:stop] if ok else None
        for start, stop, ok in zip(offsets, offsets[1:], _validity_of(array), strict=False)
    ]


def _union(is_dense):
    def decoder(array, suffix):
        child_of = {int(text): i for i, text in enumerate(suffix.split(",")) if text}
        ids = _fixed(array, "b", buffer=0)
        rows = range(array.offset, array.offset + len(array))
        positions = _fixed(array, "i", buffer=1) if is_dense else rows
        return [
            scalar(array.children[child_of[i]], position)
            for i, position in zip(ids, positions, strict=True)
        ]

    return decoder


def _run_end(array, _):
    ends = to_pylist(array.children[0])
    values = to_pylist(array.children[1])
    result = []
    run = 0
    for row in range(array.offset, array.offset + len(array)):
        while ends[run] <= row:
            run += 1
        result.append(values[run])
    return result


# Longer prefixes stand before their own beginnings.
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
