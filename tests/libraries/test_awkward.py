"""Nested columns of awkward: offsets, values and validity bits are shared, in both directions."""

import pytest

import arrowdev as ad

ak = pytest.importorskip("awkward")
np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")


def places(x):
    """The addresses of the buffers of an awkward array."""
    return {buffer.ctypes.data for buffer in ak.to_buffers(x)[2].values()}


def shared(x):
    """An awkward array, as a column."""
    return ad.array(ak.to_arrow(x, extensionarray=False))


def refusal(x):
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(x, ak.Array)
    return info.value


COLUMNS = [
    pa.array([[1, 2], [], [3]]),
    pa.array([[1, 2], None, [3]], pa.large_list(pa.int64())),
    pa.array([[[1.5], []], [], [[2.5, None]]]),
    pa.array(["a", None, "b"]),
    pa.array([{"x": 1, "y": [1.5]}, {"x": 2, "y": []}]),
    pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
    pa.array([1, None, 3]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_columns(column):
    x = ad.convert(column, ak.Array)
    assert x.to_list() == column.to_pylist()
    assert places(x) == {buffer.address for buffer in column.buffers() if buffer is not None}
    assert shared(x).to_pylist() == column.to_pylist()


def test_a_slice_keeps_its_offsets():
    column = COLUMNS[0].slice(1)
    x = ad.convert(column, ak.Array)
    assert x.to_list() == [[], [3]]
    assert places(x) & {column.values.buffers()[1].address}


@pytest.mark.parametrize("values", [[[1, 2], [], [3]], ["a", "bc"], [{"x": [1.5]}, {"x": []}]])
def test_arrays(values):
    x = ak.Array(values)
    column = shared(x)
    assert column.to_pylist() == values
    found = {b.data_ptr for part in parts(column) for b in part.buffers if b is not None}
    assert places(x) <= found


def parts(column):
    return [column, *(part for child in column.children for part in parts(child))]


def test_blocks():
    data = np.arange(6).reshape(2, 3)
    for x in (ad.convert(data, ak.Array), ad.convert(ad.array(data), ak.Array)):
        assert x.to_list() == data.tolist() and places(x) == {data.ctypes.data}
    assert ad.convert(np.array([True, False]), ak.Array).to_list() == [True, False]


def test_what_awkward_would_lose_is_refused():
    for column in (
        pa.array([0], pa.timestamp("s", tz="UTC")),
        pa.array([[0]], pa.list_(pa.time32("s"))),
    ):
        assert refusal(column).reason == "dtype"
    times = pa.array([86_400], pa.timestamp("s"))
    assert ad.convert(times, ak.Array).to_list() == [np.datetime64(86_400, "s")]
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(COLUMNS[0], ak.Array, copy=False)
    assert info.value.reason == "copy"


def test_the_hint_names_the_way():
    with pytest.raises(TypeError, match=r"awkward\.to_arrow"):
        ad.array(ak.Array([[1], []]))
