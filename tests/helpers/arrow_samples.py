"""One pyarrow array of every type, with 21 rows and with nulls where the type has them."""

import datetime
from decimal import Decimal

import pytest

pa = pytest.importorskip("pyarrow")

ROWS = 21

# pyarrow 24, the newest for CPython 3.13t, shows the nulls of a sparse union's first rows in each
# slice of it.
MISREADS_SPARSE_UNIONS = int(pa.__version__.partition(".")[0]) <= 24


def skip_what_pyarrow_misreads(name):
    if name == "sparse_union" and MISREADS_SPARSE_UNIONS:
        pytest.skip(f"pyarrow {pa.__version__} misplaces the nulls in slices of sparse unions")


def with_nulls(value):
    """`value(i)` for each row, and None in every fifth row, from the third on."""
    return [None if i % 5 == 2 else value(i) for i in range(ROWS)]


def column(type, value):
    return pa.array(with_nulls(value), type)


def text(i):
    return "é" * i  # 0, 2, 4 ... bytes: inline views, and views into a buffer


def binary(i):
    return bytes(range(i))


def _moment(i):
    return datetime.datetime(1969, 12, 31, 23, 59, 50) + datetime.timedelta(seconds=i)


def _dictionary():
    return column(pa.string(), lambda i: f"v{i % 3}").dictionary_encode()


def _union(make):
    ids = pa.array([5 if i % 3 else 9 for i in range(ROWS)], pa.int8())
    numbers, words = column(pa.int16(), int), column(pa.string(), text)
    if make is pa.UnionArray.from_sparse:
        return make(ids, [numbers, words], ["n", "w"], [5, 9])
    positions = pa.array(reversed(range(ROWS)), pa.int32())
    return make(ids, positions, [numbers, words], ["n", "w"], [5, 9])


def _run_ends():
    ends = pa.array([3, 4, 11, ROWS], pa.int16())
    return pa.RunEndEncodedArray.from_arrays(ends, pa.array([1.5, None, 2.5, 3.5]))


def _bool8():
    storage = pa.array(with_nulls(lambda i: i % 3), pa.int8())
    return pa.ExtensionArray.from_storage(pa.bool8(), storage)


def _tensor():
    storage = pa.array([[i, i + 1] for i in range(ROWS)], pa.list_(pa.int32(), 2))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2]), storage)


_UNITS = ("s", "ms", "us", "ns")


def _small_list(i):
    return [j if j % 4 else None for j in range(i % 4)]


def _numbers():
    for type in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
        yield str(type), column(type, lambda i: i - 10)
    for type in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        yield str(type), column(type, lambda i, top=2**type.bit_width: top - 1 - i)
    for type in (pa.float16(), pa.float32(), pa.float64()):
        yield str(type), column(type, lambda i: i / 4 - 2)


def _times():
    for unit in _UNITS:
        yield f"timestamp {unit}", column(pa.timestamp(unit), _moment)
        yield (
            f"duration {unit}",
            column(pa.duration(unit), lambda i: datetime.timedelta(seconds=i - 10)),
        )
    yield "timestamp tz", column(pa.timestamp("us", "Europe/Berlin"), _moment)
    yield "timestamp offset", column(pa.timestamp("us", "+05:30"), _moment)
    for unit in _UNITS:
        type = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        yield str(type), column(type, lambda i: datetime.time(i, 2 * i, i))
    yield "date32", column(pa.date32(), lambda i: datetime.date(1969, 12, 20 - i // 2))
    yield "date64", column(pa.date64(), lambda i: datetime.date(1970, 1, 1 + i))
    yield (
        "interval",
        column(pa.month_day_nano_interval(), lambda i: pa.MonthDayNano([i, -i, i * 1000])),
    )


def _decimals():
    for make, digits in (
        (pa.decimal32, 9),
        (pa.decimal64, 18),
        (pa.decimal128, 38),
        (pa.decimal256, 76),
    ):
        yield (
            make.__name__,
            column(make(digits, 3), lambda i, d=digits: Decimal((i % 2, (7,) * (1 + i % d), -3))),
        )
    yield "decimal128 scale -2", column(pa.decimal128(9, -2), lambda i: Decimal(i - 10) * 100)


def _lists():
    yield "list", column(pa.list_(pa.int32()), _small_list)
    yield "large_list", column(pa.large_list(pa.string()), lambda i: [text(i)] * (i % 3))
    yield "list_view", column(pa.list_view(pa.int32()), _small_list)
    yield "large_list_view", column(pa.large_list_view(pa.int32()), _small_list)
    yield "fixed_size_list", column(pa.list_(pa.int16(), 3), lambda i: [i, None, -i])
    yield "list of list", column(pa.list_(pa.list_(pa.bool_())), lambda i: [[True] * (i % 3)] * 2)
    yield (
        "map",
        column(
            pa.map_(pa.string(), pa.int32()), lambda i: [(str(j), j or None) for j in range(i % 4)]
        ),
    )


def _nested():
    fields = [("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.bool_()))]
    yield (
        "struct",
        column(
            pa.struct(fields),
            lambda i: {"a": i or None, "b": text(i % 4), "c": [True, None, False][: i % 4]},
        ),
    )
    yield "struct without fields", column(pa.struct([]), lambda i: {})
    yield "dictionary", _dictionary()
    yield "sparse_union", _union(pa.UnionArray.from_sparse)
    yield "dense_union", _union(pa.UnionArray.from_dense)
    yield "run_end_encoded", _run_ends()


def _others():
    yield "null", pa.nulls(ROWS)
    yield "bool", column(pa.bool_(), lambda i: i % 3 == 0)
    for type in (pa.string(), pa.large_string(), pa.string_view()):
        yield str(type), column(type, text)
    for type in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield str(type), column(type, binary)
    yield "fixed_size_binary", column(pa.binary(3), lambda i: bytes([i, 0, 255 - i]))
    yield "bool8", _bool8()
    yield "fixed_shape_tensor", _tensor()


SAMPLES = dict(
    pair for part in (_numbers, _times, _decimals, _lists, _nested, _others) for pair in part()
)
