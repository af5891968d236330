"""to_pylist() of arrays with valid structure and malformed rows: no value is invented."""

import datetime
import decimal
import gc
import signal
import sys
import threading

import pytest
from arrow_samples import ROWS, SAMPLES, skip_what_pyarrow_misreads
from peer import Peer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = Peer("pandas")


def i4(*values):
    return np.array(values, "i4")


def built(type, length, buffers, *children, **options):
    return ad.Array.from_buffers(type, length, buffers, children=children, **options)


TWO = np.arange(2, dtype="i1")
PAIR = pa.map_(pa.int8(), pa.int8())
ENTRIES = ad.array(pa.array([[(1, 2)]], PAIR)).children[0]
FIELD = [pa.field("a", pa.int8())]
RUNS = pa.run_end_encoded(pa.int32(), pa.int8())
LONG_NULLS = built("null", 2**41, [])
STRUCT_OF_NULLS = pa.struct([("a", pa.null())])
LONG = np.array([40], "i8")  # the size of a string view's data buffer

MALFORMED = {
    "offset below 0": (lambda: built("utf8", 2, [None, i4(-1, 1, 2), b"abc"]), 0),
    "offsets go back": (lambda: built("utf8", 2, [None, i4(0, 2, 1), b"abc"]), 0),
    "binary": (lambda: built("binary", 3, [None, i4(0, 1, 0, 2), b"abc"]), 1),
    "no UTF-8": (lambda: built("utf8", 2, [None, i4(0, 1, 2), b"a\xff"]), 1),
    "view: size": (lambda: built("utf8_view", 1, [None, i4(-1, 0, 0, 0), LONG[:0]]), 0),
    "view: buffer": (lambda: built("utf8_view", 1, [None, i4(13, 0, 0, 0), LONG]), 0),
    "view: buffer below 0": (lambda: built("utf8_view", 1, [None, i4(13, 0, -1, 0), LONG]), 0),
    "view: start": (
        lambda: built("utf8_view", 1, [None, i4(13, 0, 0, 28), b"x" * 40, LONG]),
        0,
    ),
    "time below 0": (lambda: built("time32[s]", 1, [None, i4(-1)]), 0),
    "time of tomorrow": (lambda: built("time32[s]", 2, [None, i4(86399, 86400)]), 1),
    "list": (lambda: built(pa.list_(pa.int8()), 2, [None, i4(0, 1, 9)], TWO), 1),
    "list view": (lambda: built(pa.list_view(pa.int8()), 2, [None, i4(0, 1), i4(1, 9)], TWO), 1),
    "map": (lambda: built(PAIR, 2, [None, i4(0, 1, 9)], ENTRIES), 1),
    "type id": (lambda: built(pa.sparse_union(FIELD, [3]), 2, [np.array([3, 5], "i1")], TWO), 1),
    "dense union": (
        lambda: built(pa.dense_union(FIELD, [0]), 2, [TWO * 0, i4(0, 7)], TWO),
        1,
    ),
    "empty run": (lambda: built(RUNS, 3, [], i4(0, 3), TWO), 0),
    "runs too short": (lambda: built(RUNS, 5, [], i4(1, 3), TWO), 3),
    "dictionary": (
        lambda: built(pa.dictionary(pa.int32(), pa.int8()), 2, [None, i4(0, 4)], dictionary=TWO),
        1,
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_rows(name):
    make, row = MALFORMED[name]
    array = make()
    path = "children[0]" if name == "empty run" else ""
    with pytest.raises(ad.InvalidArrowError, match=rf"^(children\[0\]: )?row {row}: ") as info:
        array.to_pylist()
    assert info.value.path == path and str(info.value).startswith(path)
    with pytest.raises(ad.InvalidArrowError):
        array.validate("full")


def test_rows_of_a_slice():
    array = built("utf8", 4, [None, i4(0, 1, 2, 0, 3), b"abc"])
    assert array[:1].to_pylist() == ["a"]  # rows outside of the slice are not read
    with pytest.raises(ad.InvalidArrowError, match=r"^row 1 \(2 in its buffers\): "):
        array[1:].to_pylist()
    runs = built(RUNS, 5, [], i4(2, 5), TWO)
    for start in range(6):
        for stop in range(start, 6):
            assert runs[start:stop].to_pylist() == [0, 0, 1, 1, 1][start:stop]
    assert runs[3] == 1


def test_null_rows_may_have_any_content():
    valid = b"\x02"
    for type, buffers, rows in [
        ("time32[s]", [i4(-1, 1)], [None, ad.array(pa.array([1], pa.time32("s")))[0]]),
        ("utf8_view", [i4(-1, 0, 0, 0, 1, 97, 0, 0), LONG[:0]], [None, "a"]),
        ("utf8", [i4(9, 0, 1), b"a"], [None, "a"]),
    ]:
        array = built(type, 2, [valid, *buffers])
        assert array.to_pylist() == [array[0], array[1]] == rows
    below_0 = built("utf8", 2, [b"\x00", i4(0, -3, 5), b"abcde"])
    assert below_0.to_pylist() == [below_0[0], below_0[1]] == [None, None]


@pytest.mark.parametrize(("type", "offset"), [("utf8", "i4"), ("large_binary", "i8")])
def test_data_of_a_slice_end_with_the_array(type, offset):
    array = built(type, 3, [None, np.array([0, 1, 400, 5], offset), b"abcdefghij"])
    lists = built(pa.list_(pa.type_for_alias(type)), 3, [None, i4(0, 1, 2, 3)], array)
    columns = built(pa.struct([("a", pa.type_for_alias(type))]), 3, [None], array)
    for outer in [array, lists, columns]:
        assert outer[:1].to_pylist() == [outer[0]]
        for rows in [lambda outer=outer: outer[1], outer[1:2].to_pylist, outer[:2].to_pylist]:
            with pytest.raises(ad.InvalidArrowError, match=r"row \d.*from 1 to 400, exp") as info:
                rows()
            assert info.value.path == ("" if outer is array else "children[0]")
    bad = array[1:2]
    assert bad.buffers[2].nbytes == 5 and array[:1].buffers[2].nbytes == 1
    for check in [
        lambda: bad.validate("full"),
        lambda: ad.array(bad, copy=True),
        lambda: ad.array(array[:2], copy=True),
        lambda: ad.concat([bad, bad]),
    ]:
        with pytest.raises(ad.InvalidArrowError, match="400"):
            check()


def test_rows_of_runs_in_any_order():
    """A list view refers to rows behind and before those of the list before."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 7, 8], pa.int16()), list("abcd"))
    starts = [6, 2, 0, 5, 1, 7, 0, 3]
    views = pa.ListViewArray.from_arrays(
        pa.array(starts, pa.int32()), pa.array([1] * len(starts), pa.int32()), runs
    )
    rows = "aabccccd"
    assert ad.array(views).to_pylist() == [[rows[start]] for start in starts]


def test_no_rows_of_unsorted_runs():
    for runs in [built(RUNS, 0, [], i4(5, 3), TWO), built(RUNS, 5, [], i4(1, 3), TWO)[5:]]:
        assert runs.to_pylist() == []


# --- rows as pyarrow has them -----------------------------------------------------------


def within_others(column):
    """The column, and what has its rows below: lists, structs, and a dictionary."""
    offsets = np.array([0, 3, 3, 10, ROWS], "i4")
    yield column
    yield pa.ListArray.from_arrays(offsets, column)
    yield pa.LargeListArray.from_arrays(offsets.astype("i8"), column)
    yield pa.ListViewArray.from_arrays(offsets[:-1][::-1], np.diff(offsets)[::-1], column)
    yield pa.FixedSizeListArray.from_arrays(column, 7)
    yield pa.StructArray.from_arrays([column, column], ["a", "b"])
    if not pa.types.is_dictionary(column.type):
        yield pa.DictionaryArray.from_arrays(pa.array([20, None, 0, 7, 7], pa.uint8()), column)


@pytest.mark.parametrize("name", SAMPLES)
def test_rows_of_every_type_and_slice(name):
    skip_what_pyarrow_misreads(name)
    is_flat = isinstance(SAMPLES[name], pa.FixedShapeTensorArray)  # to pyarrow
    for column in within_others(SAMPLES[name]):
        array, rows = ad.array(column), column.to_pylist()
        assert is_flat or array.to_pylist() == rows
        rows = array.to_pylist()
        assert [array[i] for i in range(len(array))] == rows == list(array)
        for start in range(len(array)):
            for stop in (start, start + 1, len(array)):
                assert array[start:stop].to_pylist() == rows[start:stop]


def test_numbers_at_their_limits():
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
        info = np.iinfo(dtype)
        numbers = np.array([info.min, info.max, 0, 1], dtype)
        assert ad.array(numbers).to_pylist() == numbers.tolist()
    halves = np.arange(65536, dtype="u2").view("f2")
    found = np.array(ad.array(halves).to_pylist())
    assert np.array_equal(found, halves.astype("f8"), equal_nan=True)
    assert np.signbit(found[np.signbit(halves) & ~np.isnan(halves)]).all()


def test_decimals_of_every_width_are_exact():
    for type, text in [
        (pa.decimal128(38, 4), "9" * 34 + ".9999"),
        (pa.decimal256(76, 2), "-" + "9" * 74 + ".99"),
        (pa.decimal128(19, 0), str(2**63)),
        (pa.decimal128(19, 0), str(-(2**63) - 1)),
        (pa.decimal128(5, -3), "12E+3"),
        (pa.decimal128(5, 5), "0.00000"),
    ]:
        column = pa.array([decimal.Decimal(text)], type)
        [found] = ad.array(column).to_pylist()
        assert found.as_tuple() == column[0].as_py().as_tuple()


def test_words_of_a_dictionary_are_made_once():
    column = pa.array(["some word", "other"] * 3).dictionary_encode()
    rows = ad.array(column).to_pylist()
    assert rows[0] is rows[2] is rows[4] and rows == column.to_pylist()


# --- the interpreter --------------------------------------------------------------------


def is_complete(value):
    """True if the collector tracks each list, tuple of lists and dict of lists in `value`."""
    if isinstance(value, dict):
        return all(is_complete(part) for part in value.values())
    if isinstance(value, list):
        return gc.is_tracked(value) and all(is_complete(part) for part in value)
    return not isinstance(value, tuple) or all(is_complete(part) for part in value)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_tracks_the_result(is_on):
    rows = [{"a": [[1], []], "b": [("k", [i])]} for i in range(3000)]
    inner = pa.list_(pa.int64())
    column = pa.array(rows, pa.struct([("a", pa.list_(inner)), ("b", pa.map_(pa.utf8(), inner))]))
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        found = ad.array(column).to_pylist()
    finally:
        (gc.enable if was_on else gc.disable)()
    assert found == rows and is_complete(found)
    found.append(found)  # a cycle, which only the collector frees
    is_seen = gc.is_tracked(found[0])
    del found, rows
    assert is_seen and gc.collect() > 3000


def test_no_thread_finds_a_list_with_empty_places():
    column = pa.array([[i, None] for i in range(200_000)])
    array, done = ad.array(column), threading.Event()
    seen = []

    def look():
        while not done.is_set():
            seen.append(sum(None in x for x in gc.get_objects() if type(x) is list and len(x) < 9))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        assert len(array.to_pylist()) == 200_000
    finally:
        done.set()
        thread.join()


def test_a_signal_ends_it():
    """500 lists of the same 65536 values: the timer counts the time of this process."""
    n = 500
    column = pa.ListViewArray.from_arrays(
        np.zeros(n, "i4"), np.full(n, 65536, "i4"), np.zeros(65536, "i1")
    )
    array = ad.array(column)

    events = []

    def stop(*_):
        raise InterruptedError

    def profile(_, event, function):
        if event.startswith("c_") and function.__name__ == "to_pylist":
            events.append(event)

    before = signal.signal(signal.SIGVTALRM, stop)
    sys.setprofile(profile)
    try:
        with pytest.raises(InterruptedError):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.002)
            array.to_pylist()
    finally:
        sys.setprofile(None)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert events in ([], ["c_call", "c_exception"])  # [] if the timer was first


# --- values that are not in the array ---------------------------------------------------

BAD_TEXT = built("utf8", 4, [None, i4(0, 1, 2, 3, 4), b"a\xffb\xff"])
BAD_TIME = built("time32[s]", 4, [None, i4(0, -1, 1, -1)])
BAD_INNER = [
    BAD_TEXT,
    BAD_TIME,
    built(pa.list_(pa.utf8()), 4, [None, i4(0, 1, 2, 3, 4)], BAD_TEXT),
]
BAD = [
    *BAD_INNER,
    built(pa.sparse_union(FIELD, [0]), 4, [np.array([0, 9, 0, 9], "i1")], np.zeros(4, "i1")),
    built(RUNS, 4, [], i4(1, 2, 3, 4), np.arange(4, dtype="i1")),
    built(pa.run_end_encoded(pa.int32(), pa.utf8()), 4, [], i4(1, 2, 3, 4), BAD_TEXT),
    built(pa.struct([("a", pa.utf8())]), 4, [None], BAD_TEXT),
    built(pa.dictionary(pa.int32(), pa.utf8()), 4, [None, i4(0, 1, 2, 7)], dictionary=BAD_TEXT),
    built(pa.dictionary(pa.int32(), pa.utf8()), 4, [None, i4(0, 3, 2, 3)], dictionary=BAD_TEXT),
    built(pa.timestamp("s"), 4, [None, np.array([0, 1 << 62, 1, 1 << 62], "i8")]),
    built(pa.date32(), 4, [None, i4(0, 1 << 30, 1, 1 << 30)]),
]
EVERY_OTHER = b"\x05"


@pytest.mark.parametrize("child", BAD, ids=lambda child: str(child.schema.format))
def test_values_behind_nulls_are_not_decoded(child):
    """Rows 1 and 3 of each child cannot be decoded, or may be anything."""
    type = pa.field(child.schema).type
    rows = [child[0], child[2]]
    struct = built(pa.struct([("a", type)]), 4, [EVERY_OTHER], child)
    assert struct.to_pylist() == [{"a": rows[0]}, None, {"a": rows[1]}, None]
    ones = built(pa.list_(type, 1), 4, [EVERY_OTHER], child)
    assert ones.to_pylist() == [[rows[0]], None, [rows[1]], None]
    nested = built(
        pa.struct([("b", pa.list_(type, 1)), ("c", pa.struct([("a", type)]))]),
        4,
        [b"\x04"],
        ones,
        struct,
    )
    assert nested.to_pylist() == [None, None, {"b": [rows[1]], "c": {"a": rows[1]}}, None]
    for outer in (struct, ones, nested):
        assert [outer[i] for i in range(4)] == outer.to_pylist()
        assert outer[2:].to_pylist() == outer.to_pylist()[2:]


def test_values_that_nothing_refers_to_are_not_decoded():
    words = pa.dictionary(pa.int32(), pa.utf8())
    used = built(words, 3, [b"\x05", i4(2, 9, 0)], dictionary=BAD_TEXT)
    assert used.to_pylist() == [used[0], used[1], used[2]] == ["b", None, "a"]
    runs = built(pa.run_end_encoded(pa.int32(), pa.utf8()), 7, [], i4(1, 3, 5, 7), BAD_TEXT)
    assert runs[3:5].to_pylist() == ["b", "b"] and runs[0] == "a"
    with pytest.raises(ad.InvalidArrowError, match=r"^children\[1\]: row 1: "):
        runs[2:5].to_pylist()
    behind = built(RUNS, 5, [], i4(2, 5, 1), np.arange(3, dtype="i1"))
    assert behind.to_pylist() == [0, 0, 1, 1, 1]  # a run past the last row
    entry = pa.struct([pa.field("key", pa.utf8(), nullable=False), ("value", pa.time32("s"))])
    entries = built(entry, 4, [None], BAD_TEXT, BAD_TIME)
    maps = built(pa.map_(pa.utf8(), pa.time32("s")), 4, [EVERY_OTHER, i4(0, 1, 2, 3, 4)], entries)
    assert maps.to_pylist() == [[("a", BAD_TIME[0])], None, [("b", BAD_TIME[2])], None]
    assert maps[2] == [("b", BAD_TIME[2])]


# --- one of two fields of the same name -------------------------------------------------


def test_no_field_is_dropped():
    two = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["x", "x"])
    array = ad.array(two)
    for rows in (
        array.to_pylist,
        lambda: array[0],
        ad.array(pa.ListArray.from_arrays([0, 2], two)).to_pylist,
    ):
        with pytest.raises(ValueError, match=r"2 children are named 'x'.*\.field\(i\)\.to_pylist"):
            rows()
    assert [array.field(i).to_pylist() for i in range(2)] == [[1, 2], [3, 4]]


# --- times ------------------------------------------------------------------------------


def stamps(type, *numbers):
    return ad.array(np.array(numbers, "i8")).view(type)


def test_nanoseconds_are_pandas_values_where_pandas_is_imported(monkeypatch):
    for type in ("timestamp[ns]", "timestamp[ns, UTC]", "timestamp[ns, +05:30]", "duration[ns]"):
        array = stamps(type, 1, 1000, -(10**18) - 1)
        kind = pd.Timedelta if type.startswith("duration") else pd.Timestamp
        found = array.to_pylist()
        assert found == pa.array(array).to_pylist() == list(array)
        assert [value.value for value in found if isinstance(value, kind)] == [1, -(10**18) - 1]
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "pandas")
            assert array[1] == found[1]
            with pytest.raises(ValueError, match=r"use \.view\('int64'\).*pandas, once imported"):
                array[0]
        smallest = stamps(type, -(2**63))  # which pandas reads as NaT
        with pytest.raises(ValueError, match=r"use \.view\('int64'\)"):
            smallest[0]
        assert smallest.view("int64")[0] == -(2**63)
    with pytest.raises(ValueError, match=r"use \.view\('int64'\)"):  # pandas has no time of day
        stamps("time64[ns]", 1)[0]


def test_utc_needs_no_tzdata(monkeypatch):
    import zoneinfo

    def missing(name):
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", missing)
    noon = datetime.datetime(1970, 1, 1, 12, tzinfo=datetime.timezone.utc)
    for zone in ("UTC", "Etc/UTC"):
        assert stamps(f"timestamp[s, {zone}]", 43200).to_pylist() == [noon]
    berlin = stamps("timestamp[s, Europe/Berlin]", 43200)
    with pytest.raises(ValueError, match=r"'Europe/Berlin' is not known here; install tzdata, or"):
        berlin.to_pylist()
    assert berlin.view("int64")[0] == 43200
    assert berlin[:0].to_pylist() == []


def test_times_that_datetime_cannot_hold():
    for array, view in [
        (stamps("timestamp[s]", 0, 1 << 40), "int64"),
        (stamps("duration[s]", 0, 1 << 62), "int64"),
        (ad.array(i4(0, 1 << 30)).view("date32"), "int32"),
        (stamps("date64", 0, 1 << 62), "int64"),
    ]:
        with pytest.raises(OverflowError, match=rf"^row 1: \d+ is past .*\.view\('{view}'\)"):
            array.to_pylist()
        assert array.view(view)[1] in (1 << 40, 1 << 62, 1 << 30)


# Values without bytes: (array, number of values). Each would fill the memory.
ENDLESS = {
    "extents": (lambda: ad.array(np.empty((3, 2**40, 0))), 3 + 3 * 2**40),
    "rows": (lambda: ad.array(np.empty((2**40, 0))), 2**40),
    "nulls": (lambda: built("null", 2**50, []), 2**50),
    "nulls of structs": (lambda: built(STRUCT_OF_NULLS, 2**40, [None], LONG_NULLS), 2**41),
    "nulls of fixed lists": (
        lambda: built(pa.list_(pa.null(), 2**20), 2**20, [None], LONG_NULLS), 2**20 + 2**40
    ),
    "nulls of a list": (
        lambda: built(pa.list_(pa.null()), 1, [None, i4(0, 2**31 - 1)], LONG_NULLS), 2**31 - 1
    ),
    "nulls of list views": (
        lambda: built(pa.list_view(pa.null()), 2, [None, i4(0, 0), i4(10**8, 10**8)], LONG_NULLS),
        2 * 10**8,
    ),
    "runs": (
        lambda: built(pa.run_end_encoded(pa.int64(), pa.int8()), 2**40, [],
                      ad.array(np.array([2**40])), ad.array(TWO[:1])),
        2**40,
    ),
}  # fmt: skip


def test_values_without_bytes_of_many_lists_add_up():
    inner = built(pa.list_(pa.null()), 2, [None, i4(0, 6 * 10**7, 12 * 10**7)], LONG_NULLS)
    outer = built(pa.list_(pa.list_(pa.null())), 2, [None, i4(0, 1, 2)], inner)
    with pytest.raises(ad.ExchangeError, match=r"60000000 values .* after 60000000 others, of"):
        outer.to_pylist()


@pytest.mark.parametrize("name", ENDLESS)
def test_values_without_bytes_do_not_fill_the_memory(name):
    make, n_values = ENDLESS[name]
    array = make()
    with pytest.raises(ad.ExchangeError, match=f"{n_values} values without stored") as caught:
        array.to_pylist()
    assert caught.value.reason == "size" and ".slice()" in caught.value.hint


def test_values_without_bytes():
    """Up to a limit they are made, as is a slice of more of them."""
    assert ad.array(np.empty((2, 3, 0))).to_pylist() == [[[], [], []], [[], [], []]]
    assert ad.array(np.empty((2, 0, 2**40))).to_pylist() == [[], []]
    assert ENDLESS["nulls"][0]().slice(2**49, 3).to_pylist() == [None] * 3
    assert ENDLESS["rows"][0]().slice(2**39, 2).to_pylist() == [[], []]
    with pytest.raises(ad.ExchangeError, match="values without stored bytes"):
        ENDLESS["extents"][0]()[0]
