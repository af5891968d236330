"""to_pylist() of arrays with valid structure and malformed rows: no value is invented."""

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")


def i4(*values):
    return np.array(values, "i4")


def built(type, length, buffers, *children, **options):
    return ad.Array.from_buffers(type, length, buffers, children=children, **options)


TWO = np.arange(2, dtype="i1")
PAIR = pa.map_(pa.int8(), pa.int8())
ENTRIES = ad.array(pa.array([[(1, 2)]], PAIR)).children[0]
FIELD = [pa.field("a", pa.int8())]
RUNS = pa.run_end_encoded(pa.int32(), pa.int8())
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
    with pytest.raises(ad.InvalidArrowError, match=f"^row {row}: ") as info:
        array.to_pylist()
    assert info.value.path == ""
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
            with pytest.raises(ad.InvalidArrowError, match=r"^row \d.*from 1 to 400, expected"):
                rows()
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


def test_no_rows_of_unsorted_runs():
    for runs in [built(RUNS, 0, [], i4(5, 3), TWO), built(RUNS, 5, [], i4(1, 3), TWO)[5:]]:
        assert runs.to_pylist() == []
