"""Array.equals(): type, length, nulls and values."""

import random
import threading

import pytest
from arrow_samples import ROWS, SAMPLES
from interrupts import interrupt, signals
from loops import looped

import arrowdev as ad
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

NAN = float("nan")


def i4(*values):
    return np.array(values, "i4")


def equal(a, b):
    """a.equals(b), which is the same in both directions."""
    result = ad.array(a).equals(b)
    assert type(result) is bool and ad.array(b).equals(a) is result
    return result


@looped("name", SAMPLES)
def test_every_type(name):
    sample = SAMPLES[name]
    array = ad.array(sample)
    assert equal(array, sample) and equal(array, array)
    assert equal(array, ad.array(sample, copy=True))
    for start in range(0, ROWS, 3):
        for stop in range(start, ROWS + 1, 5):
            part = array[start:stop]
            assert equal(part, sample[start:stop])
            assert equal(part, part.compact())
            if 0 < stop - start < ROWS:  # the length alone makes a difference
                assert not equal(part, array)


@looped("name", [name for name in SAMPLES if name != "null"])
def test_one_other_value_is_found(name):
    """Rows of a sample are shuffled; pyarrow says which results are equal."""
    random.seed(3)
    sample = SAMPLES[name]
    if name == "run_end_encoded":
        rows = [1.5] * 3 + [None] * 2 + [2.5] * 5
        taken = [pa.array(rows)]
        for row in range(len(rows)):
            taken.append(pa.array([*rows[:row], 9.5, *rows[row + 1 :]]))
        taken = [pa.compute.run_end_encode(x) for x in taken]
    else:
        taken = [pa.concat_arrays([sample[i : i + 1] for i in order]) for order in orders(6)]
    arrays = [ad.array(x) for x in taken]
    found = set()
    for x, a in zip(taken, arrays, strict=True):
        for y, b in zip(taken, arrays, strict=True):
            expected = x.equals(y)
            found.add(expected)
            assert equal(a, b) == expected, (x, y)
    assert found == {True, False}


def orders(n):
    """Orders of some rows, which differ in one place or in all."""
    first = list(range(n))
    yield first
    yield list(first)
    for row in range(n):
        yield [*first[:row], 10 + row, *first[row + 1 :]]
    yield first[::-1]


def test_random_nested_arrays():
    """Against the comparison of the Python objects; slices put the rows at any bit."""
    random.seed(11)
    type = pa.list_(pa.struct([("a", pa.list_(pa.string())), ("b", pa.bool_())]))
    words = [None, "", "a", "ab"]

    def row():
        return random.choice(
            [
                None,
                [],
                [None],
                [
                    {"a": [random.choice(words)], "b": random.choice([None, True, False])}
                    for _ in range(random.randrange(3))
                ],
            ]
        )

    rows = [row() for _ in range(300)]
    array = ad.array(pa.array(rows, type))
    for _ in range(300):
        n, i, j = random.randrange(1, 4), random.randrange(290), random.randrange(290)
        assert equal(array[i : i + n], array[j : j + n]) == (rows[i : i + n] == rows[j : j + n])


def test_long_bitmaps_at_every_bit():
    random.seed(2)
    values = [random.choice([None, True, False]) for _ in range(400)]
    array = ad.array(pa.array(values))
    other = list(values)
    for at in range(0, 400, 7):
        other[at] = {None: True, True: False, False: None}[values[at]]
        changed = ad.array(pa.array([None] * (at % 5) + other))[at % 5 :]
        assert not equal(array, changed)
        assert equal(array[:at], changed[:at]) and equal(array[at + 1 :], changed[at + 1 :])
        other[at] = values[at]


# --- rules --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_is_not_equal_and_minus_zero_is(dtype):
    values = (NAN, 0.0, -0.0, np.inf, -np.inf)
    nan, zero, below_zero, inf, minus_inf = (np.array([1, x, 2] * 700, dtype) for x in values)
    assert not equal(nan, nan) and not pa.array(nan).equals(pa.array(nan))
    assert equal(zero, below_zero) and pa.array(zero).equals(pa.array(below_zero))
    assert equal(inf, inf) and not equal(inf, minus_inf) and not equal(zero, inf)
    valid = ad.array(nan, validity=~np.isnan(nan))
    assert equal(valid, valid)  # the NaN is behind a null
    assert not equal(pa.array([[NAN]]), pa.array([[NAN]]))


def test_bfloat16():
    def column(*bits):
        memory = np.array(bits, "u2")
        return ad.array(
            ad.Tensor.from_pointer(
                memory.ctypes.data, (len(bits),), "bfloat16", "cpu", owner=memory
            )
        )

    one, nan, inf = 0x3F80, 0x7FC0, 0x7F80
    assert not equal(column(one, nan), column(one, nan))
    assert equal(column(one, 0x0000), column(one, 0x8000))
    assert equal(column(inf), column(inf)) and not equal(column(inf), column(one))
    assert not equal(column(one), ad.array(np.array([one], "u2")))  # the type


def test_bytes_behind_nulls_are_ignored():
    def built(*values):
        return ad.Array.from_buffers("int32", 3, [b"\x05", i4(*values)])

    assert equal(built(1, 2, 3), built(1, 9, 3)) and not equal(built(1, 2, 3), built(1, 2, 4))
    lists = [
        ad.Array.from_buffers(
            pa.list_(pa.int32()), 2, [b"\x02", i4(*offsets)], children=[i4(7, 8)]
        )
        for offsets in [(0, 0, 1), (0, 1, 2)]
    ]
    assert not equal(*lists)  # [7] and [8]
    lists[1] = ad.Array.from_buffers(
        pa.list_(pa.int32()), 2, [b"\x02", i4(0, 1, 2)], children=[i4(6, 7)]
    )
    assert equal(*lists)
    structs = [
        ad.Array.from_buffers(pa.struct([("a", pa.int32())]), 2, [b"\x01"], children=[i4(1, x)])
        for x in (2, 3)
    ]
    assert equal(*structs)


def test_a_bitmap_of_ones_is_no_difference():
    plain, masked = i4(1, 2), ad.Array.from_buffers("int32", 2, [b"\xff", i4(1, 2)])
    assert equal(plain, masked)
    assert not equal(plain, ad.Array.from_buffers("int32", 2, [b"\x01", i4(1, 2)]))


def test_dictionaries_are_compared_by_value():
    def encoded(indices, words, type=None):
        return pa.DictionaryArray.from_arrays(pa.array(indices, type or pa.int8()), words)

    a = encoded([0, 1, None, 0], ["x", "y"])
    assert equal(a, encoded([1, 0, None, 1], ["y", "x"]))
    assert equal(a, encoded([0, 1, None, 3], ["x", "y", "z", "x"]))
    assert not equal(a, encoded([0, 1, None, 1], ["x", "y"]))
    assert not equal(a, encoded([0, 1, 0, 0], ["x", "y"]))
    # A null of the index and a null word are the same null.
    assert equal(encoded([0, None], ["x"]), encoded([0, 1], ["x", None]))
    assert equal(encoded([0, 1], ["x", None]), encoded([1, 0], [None, "x"]))
    # The largest indices of unsigned types.
    words = [str(i) for i in range(256)]
    assert equal(encoded([255, 3], words, pa.uint8()), encoded([0, 252], words[::-1], pa.uint8()))
    # Another type of index is another type.
    assert not equal(a, encoded([0, 1, None, 0], ["x", "y"], pa.int16()))
    assert not equal(encoded([0], pa.array([NAN])), encoded([0], pa.array([NAN])))


def test_run_ends_are_compared_by_value():
    def encoded(ends, values):
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), values)

    a = encoded([2, 5], ["x", None])
    assert equal(a, encoded([1, 2, 4, 5], ["x", "x", None, None]))
    assert not equal(a, encoded([1, 5], ["x", None]))
    for start in range(6):
        for stop in range(start, 6):
            other = encoded([1, 2, 4, 5], ["x", "x", None, None])
            assert equal(a[start:stop], other[start:stop])


def test_null_words_of_any_type():
    """A null index equals a word that is null, or a run whose value is."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), ["x", None])
    nulls = pa.nulls(2)
    for words, null in [(runs, 2), (nulls, 0)]:
        index = ad.schema(pa.dictionary(pa.int32(), words.type))
        by_word, by_index = (
            ad.Array.from_buffers(index, 2, [validity, i4(null, null)], dictionary=words)
            for validity in (None, b"\x00")
        )
        assert equal(by_word, by_index)
    first = ad.Array.from_buffers(index, 2, [None, i4(0, 1)], dictionary=nulls)
    assert equal(first, by_word)


def test_unions_compare_the_member_and_its_value():
    def union(ids, *children):
        return pa.UnionArray.from_sparse(pa.array(ids, pa.int8()), list(children))

    a = union([0, 1], pa.array([1, 2]), pa.array([1, 2]))
    assert equal(a, union([0, 1], pa.array([1, 99]), pa.array([99, 2])))
    assert not equal(a, union([1, 0], pa.array([1, 2]), pa.array([1, 2])))
    dense = [
        pa.UnionArray.from_dense(
            pa.array([0, 0], pa.int8()), pa.array(offsets, pa.int32()), [pa.array(values)]
        )
        for offsets, values in [([0, 1], [5, 6]), ([0, 1], [5, 6, 7]), ([0, 0], [5, 6])]
    ]
    assert equal(dense[0], dense[1]) and not equal(dense[0], dense[2])


def test_types():
    numbers = i4(1, 2)
    for other in [
        numbers.astype("u4"),
        numbers.astype("i8"),
        pa.array([1, 2], pa.time32("s")),
    ]:
        assert not equal(numbers, other)
    instants = [pa.array([1, 2], pa.timestamp("us", zone)) for zone in (None, "UTC")]
    assert not equal(*instants)
    bool8 = ad.array(SAMPLES["bool8"])
    assert not equal(bool8, bool8.view("int8"))
    names = [pa.array([{name: 1}]) for name in "ab"]
    assert not equal(*names)


@pytest.mark.parametrize(
    "make", [pa.list_, pa.large_list, pa.list_view, lambda x: pa.list_(x, 1), "map", "dictionary"]
)
def test_names_of_items_are_ignored(make):
    """As pyarrow does. `concat` and streams, which need one type, do so, too."""

    def column(name):
        field = pa.field(name, pa.int64())
        if make == "map":
            return pa.array([[(1, 2)], [(3, 4)]], pa.map_(pa.int64(), field))
        if make == "dictionary":
            words = pa.array([[1], [2]], pa.list_(field))
            return pa.DictionaryArray.from_arrays(pa.array([0, 1]), words)
        return pa.array([[1], [2]], make(field))

    a, b = column("item"), column("element")
    assert a.equals(b) and equal(a, b)
    both = ad.concat([a, b])
    assert both.to_pylist() == 2 * a.to_pylist() and both.schema == ad.schema(a.type)
    batches = [pa.record_batch({"x": x}) for x in (a, b)]
    assert pa.table(ad.array_stream(batches))["x"].to_pylist() == 2 * a.to_pylist()


def test_nullability_of_the_array_itself_is_ignored():
    numbers = ad.array(i4(1, 2))
    field = pa.field("x", pa.int32(), nullable=False, metadata={"k": "v"})
    strict = numbers.view(pa.schema([field]).field(0))
    assert strict.schema.nullable is False and strict.schema.name == "x"
    assert equal(numbers, strict)
    inner = [pa.array([[1]], pa.list_(pa.field("item", pa.int64(), n))) for n in (True, False)]
    assert not equal(*inner)


def test_anything_that_array_takes():
    assert ad.array(b"abc").equals(memoryview(b"abc"))
    assert ad.array(pa.chunked_array([[1], [2]])).equals(pa.array([1, 2]))
    assert ad.record_batch({"a": i4(1)}).equals(pa.record_batch({"a": pa.array([1], "int32")}))
    for other in ([1, 2], None, "text", 3):
        with pytest.raises(TypeError):
            ad.array(i4(1, 2)).equals(other)
    array = ad.array(i4(1))
    assert array != ad.array(i4(1)) and array == array  # `==` is identity


def test_empty():
    for sample in SAMPLES.values():
        empty = ad.array(sample)[:0]
        assert equal(empty, empty)
    assert not equal(i4(), np.array([], "f4"))


# --- malformed rows -----------------------------------------------------------


MALFORMED = {
    "offsets": lambda: ad.Array.from_buffers("utf8", 2, [None, i4(0, 900, 3), b"abc"]),
    "views": lambda: ad.Array.from_buffers(
        "utf8_view", 1, [None, i4(13, 0, 7, 0), np.array([], "i8")]
    ),
    "list": lambda: ad.Array.from_buffers(
        pa.list_(pa.int32()), 1, [None, i4(0, 9)], children=[i4(1)]
    ),
    "index": lambda: ad.Array.from_buffers(
        pa.dictionary(pa.int32(), pa.int32()), 1, [None, i4(5)], dictionary=i4(1)
    ),
    "type id": lambda: ad.Array.from_buffers(
        pa.sparse_union([pa.field("a", pa.int32())], [3]), 1, [b"\x05"], children=[i4(1)]
    ),
    "runs": lambda: ad.Array.from_buffers(
        pa.run_end_encoded(pa.int32(), pa.int32()), 5, [], children=[i4(1, 2), i4(1, 2)]
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_rows_are_found_before_they_are_read(name):
    array = MALFORMED[name]()
    for _ in range(2):
        with pytest.raises(ad.InvalidArrowError, match=r"row \d"):
            array.equals(MALFORMED[name]())


# --- signals ------------------------------------------------------------------


def twice(values, n=2):
    """A list view of n rows, each of which is all of `values`."""
    return pa.ListViewArray.from_arrays(pa.array([0] * n), pa.array([len(values)] * n), values)


def doubled(values, depth=50):
    for _ in range(depth):
        values = twice(values)
    return values


MEGABYTE = pa.array([b"a" * 2**20])

OVERLAPPING = {
    "lists": lambda: doubled(pa.array([1, 2])),
    "strings": lambda: twice(MEGABYTE, 2**20),
    "views": lambda: twice(MEGABYTE.cast("binary_view"), 2**20),
    "fixed size": lambda: twice(MEGABYTE.cast(pa.binary(2**20)), 2**20),
    "words": lambda: doubled(pa.array([1, 2, 1]).dictionary_encode()),
    "structs": lambda: doubled(pa.array([{"a": 1}])),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_a_signal_ends_the_comparison_of_overlapping_rows(name):
    array, same = ad.array(OVERLAPPING[name]()), ad.array(OVERLAPPING[name]())
    interrupt(lambda: array.equals(same))
    assert array[:0].equals(same[:0])


def test_a_handler_that_returns_does_not_end_the_comparison():
    array, same = (ad.array(doubled(pa.array([1, 2]), 23)) for _ in range(2))
    calls = []
    with signals(lambda: calls.append(1), every=0.02):
        while not calls:
            assert array.equals(same)


# --- devices ------------------------------------------------------------------


def test_on_a_device_after_the_event():
    rows = pa.array([["a", None], None, [], ["bcd"]])
    with software_device(devices=2) as device:
        queue = device.queue()
        queue.hold()
        pending = ad.array(device.array(rows, queue=queue))
        assert not pending.equals(rows[:2])  # needs no value
        timer = threading.Timer(0.05, queue.release)
        timer.start()
        assert not pending.is_ready()
        assert pending.equals(rows)  # waits for the timer
        timer.join()
        assert ad.array(rows).equals(pending) and pending.equals(pending.to("ext_dev:1"))
        other = ad.array(device.array(pa.array([["a", None], None, [], ["bce"]])))
        assert not pending.equals(other) and other[:3].equals(pending[:3])


def test_without_a_runtime():
    array = ad.Array.from_buffers(
        "int8", 2, [None, ad.Tensor.from_pointer(0x7E0000, (2,), "int8", "vulkan:0")]
    )
    with pytest.raises(ad.ExchangeError) as caught:
        array.equals(np.array([1, 2], "i1"))
    assert caught.value.reason == "runtime"
    assert not array.equals(np.array([1, 2, 3], "i1"))
