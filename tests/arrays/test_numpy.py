"""What NumPy, and all who call numpy.asarray(), make of an Array."""

import datetime

import pytest
from arrow_samples import ROWS, SAMPLES
from peer import Peer
from places import NOWHERE

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = Peer("pandas", "3.0")
torch = Peer("torch")


@pytest.fixture
def nulls():
    return ad.array(pa.array([1, None, 3, None, 5], pa.int64()))


@pytest.fixture
def batch():
    """Columns of one type which lie one after the other: a matrix, without its names."""
    columns = np.asfortranarray(np.arange(4.0).reshape(2, 2))
    return ad.record_batch(columns, names=["price", "qty"])


# --- values that have a dtype ---------------------------------------------------


def test_array_is_zero_copy_and_read_only():
    data = np.arange(6)
    for found in (np.asarray(ad.array(data)), ad.array(data).__array__(copy=False)):
        assert found.ctypes.data == data.ctypes.data
        assert not found.flags.writeable
    part = np.asarray(ad.array(data)[2:5])
    assert part.ctypes.data == data[2:].ctypes.data and part.tolist() == [2, 3, 4]


def test_array_arguments():
    data = np.arange(6)
    array = ad.array(data)
    copied = np.array(array, copy=True)
    assert copied.ctypes.data != data.ctypes.data and copied.flags.writeable
    assert np.asarray(array, dtype="f4").dtype == "f4"
    assert np.asarray(array, dtype="i8").ctypes.data == data.ctypes.data
    with pytest.raises(ValueError, match="without a copy"):
        array.__array__("f4", copy=False)
    with pytest.raises(TypeError):
        array.__array__("f4", True, 1)


def test_array_of_bits():
    array = ad.array(pa.array([True, False, True]))[1:]
    assert np.asarray(array).tolist() == [False, True]
    with pytest.raises(ad.ExchangeError):
        np.array(array, copy=False)


# --- values that have none: Python's --------------------------------------------


def test_nulls_are_none(nulls):
    assert hasattr(nulls, "__array__")
    found = np.asarray(nulls)
    assert found.dtype == object and found.tolist() == [1, None, 3, None, 5]
    assert np.asarray(nulls[:1]).dtype == np.int64


@pytest.mark.parametrize("name", SAMPLES)
def test_every_column_has_its_values(name):
    array = ad.array(SAMPLES[name])
    if array.schema.format == "+s":
        with pytest.raises(ad.ExchangeError, match="no place for the names"):
            np.asarray(array)
        return
    found = np.asarray(array)
    assert len(found) == ROWS
    if found.dtype == object:
        assert found.shape == (ROWS,) and found.tolist() == array.to_pylist()
        with pytest.raises(ad.ExchangeError, match="Python objects") as info:
            np.array(array, copy=False)
        assert info.value.reason == "copy"


def test_strings_keep_their_zeros():
    """NumPy's own strings have none at the end."""
    for values in (["a\0", "b"], [b"a\0", b"b"], [[1], [2, 3]], [[1], [2]]):
        assert np.asarray(ad.array(pa.array(values))).tolist() == values


def test_numbers_of_a_union_stay_numbers():
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
    )
    assert np.asarray(ad.array(union)).tolist() == [1, "b"]


def test_nulls_of_another_dtype(nulls):
    assert str(np.asarray(nulls, dtype="f4").tolist()) == "[1.0, nan, 3.0, nan, 5.0]"
    assert np.array(nulls, dtype=object).tolist() == nulls.to_pylist()
    days = ad.array(pa.array([datetime.date(2020, 1, 1), None]))
    assert str(np.asarray(days, dtype="M8[D]").tolist()[1]) == "None"
    for dtype in ("bool", "i8", "U5"):
        with pytest.raises(ad.ExchangeError, match="no value for them") as info:
            np.asarray(nulls, dtype=dtype)
        assert info.value.reason == "nulls" and "fill_value" in info.value.hint
    assert np.asarray(ad.array(pa.array(["a"])), dtype="U5").tolist() == ["a"]


def test_device_memory_has_no_array():
    array = ad.array(ad.Tensor.from_pointer(NOWHERE, (4,), "int64", "cuda:1"))
    with pytest.raises(AttributeError, match=r"no __array__: its memory is on cuda:1"):
        array.__array__
    for read in (np.asarray, np.array, lambda array: np.asarray(array, dtype=object)):
        with pytest.raises(ad.ExchangeError, match="host") as info:
            read(array)
        assert info.value.reason == "device" and "to(" in info.value.hint


# --- batches ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        np.asarray,
        lambda batch: np.array(batch, dtype=object),
        lambda batch: np.array([batch, batch]),
        lambda batch: np.add(batch, 1),
        lambda batch: pd.DataFrame(batch),
        lambda batch: pd.DataFrame(batch[:0]),
        lambda batch: pd.Series(batch),
        lambda batch: pd.DataFrame({"a": batch}),
    ],
    ids=["asarray", "object", "list", "ufunc", "DataFrame", "empty", "Series", "column"],
)
def test_names_of_a_batch_are_not_dropped(batch, read):
    with pytest.raises(ad.ExchangeError, match="no place for the names") as info:
        read(batch)
    assert info.value.reason == "dtype"
    assert "arrowdev.convert(x, pandas.DataFrame)" in info.value.hint
    assert "arrowdev.tensor(x)" in info.value.hint


def test_ways_of_a_batch(batch):
    assert ad.convert(batch, pd.DataFrame)["qty"].tolist() == [1.0, 3.0]
    assert np.asarray(ad.tensor(batch)).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert batch.into(np.ndarray).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert np.asarray(batch["qty"]).tolist() == [1.0, 3.0]
    assert torch.from_dlpack(batch).tolist() == [[0.0, 1.0], [2.0, 3.0]]


# --- libraries that ask NumPy ----------------------------------------------------


def test_series_of_a_column():
    for values in (["a", None, "b"], [1.5, 2.5], [True, False], [b"a\0", None]):
        found = pd.Series(ad.array(pa.array(values))).tolist()
        assert [None if value is None or value != value else value for value in found] == values
    times = [datetime.datetime(2020, 1, 1), None]
    series = pd.Series(ad.array(pa.array(times, pa.timestamp("us"))))
    assert series.dtype == "datetime64[us]" and series.isna().tolist() == [False, True]


def test_large_integers_beside_nulls_stay_as_they_are():
    """pandas makes float64 of a list of them."""
    column = ad.array(pa.array([2**53 + 1, None]))
    assert pd.Series(column).tolist() == [2**53 + 1, None]
    assert pd.DataFrame({"a": column})["a"].tolist() == [2**53 + 1, None]
