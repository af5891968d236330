"""record_batch(): columns that become a batch, and imported batches."""

import pytest
from peer import Peer
from places import NOWHERE, pointer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = Peer("pandas", "3.0")  # the first with an Arrow interface on Series
pl = Peer("polars")


def test_record_batch():
    a, b = np.arange(3), np.arange(3) / 2
    for batch in (
        ad.record_batch({"a": a, "b": b}),
        ad.record_batch([a, b], names=["a", "b"]),
        ad.record_batch((a, b), names=("a", "b")),
        ad.record_batch(ad.record_batch({"a": a, "b": b})),
    ):
        assert str(batch.schema) == "struct<a: int64, b: float64>"
        assert [pointer(child) for child in batch.children] == [a.ctypes.data, b.ctypes.data]
        assert pa.record_batch(batch).to_pydict() == {"a": [0, 1, 2], "b": [0, 0.5, 1]}


@pytest.mark.parametrize(
    "source",
    [
        lambda: pa.record_batch({"a": [1, 2]}),
        lambda: pa.table({"a": [1, 2]}),
        lambda: pa.array([{"a": 1}, {"a": 2}]),
        lambda: pl.DataFrame({"a": [1, 2]}),
        lambda: pd.DataFrame({"a": [1, 2]}),
        lambda: ad.as_host(pa.record_batch({"a": [1, 2]})),
        lambda: pa.record_batch({"a": [1, 2]}).__arrow_c_device_array__(),
    ],
)
def test_record_batch_of_a_batch(source):
    assert ad.record_batch(source())["a"].to_pylist() == [1, 2]


def test_record_batch_of_several_chunks():
    table = pa.table({"a": pa.chunked_array([[1, 2], [3]])})
    assert ad.record_batch(table)["a"].to_pylist() == [1, 2, 3]


def test_record_batch_of_slices():
    batch = ad.record_batch({"a": ad.array(np.arange(10))[3:5], "b": ad.array(np.arange(5))[:2]})
    assert batch.to_pylist() == [{"a": 3, "b": 0}, {"a": 4, "b": 1}]
    assert pa.array(batch[1:]).to_pylist() == [{"a": 4, "b": 1}]
    again = ad.record_batch({"x": batch["a"], "y": batch["b"]})
    assert again[1] == {"x": 4, "y": 1}


def test_record_batch_without_columns():
    assert len(ad.record_batch({})) == 0 and ad.record_batch([], names=[]).children == ()


@pytest.mark.parametrize(
    ("args", "options", "error", "text"),
    [
        (({"a": np.arange(3), "b": np.arange(2)},), {}, ValueError, '"b" has length 2.*"a" has 3'),
        (({1: np.arange(3)},), {}, TypeError, "names of columns must be str, not int"),
        (({"a\0": np.arange(3)},), {}, ValueError, "NUL"),
        (({"a": 5},), {}, TypeError, '^column "a": int speaks none'),
        (([np.arange(3)],), {}, TypeError, "needs names="),
        (([np.arange(3)],), {"names": []}, ValueError, "1 columns, but names= has 0"),
        (([np.arange(3)],), {"names": [b"a"]}, TypeError, "str, not bytes"),
        (([np.arange(3)],), {"names": 5}, TypeError, "names must be a sequence"),
        ((np.arange(3),), {}, TypeError, "is a column, not a batch"),
        ((5,), {}, TypeError, "int speaks none"),
        ((pa.array([{"a": 1}, None]),), {}, ad.ExchangeError, "no nulls at the top level"),
    ],
)
def test_record_batch_refuses(args, options, error, text):
    with pytest.raises(error, match=text):
        ad.record_batch(*args, **options)


def test_names_go_with_sequences():
    for columns, names in (({"a": np.arange(2)}, ["b"]), ([np.arange(2)], "a")):
        with pytest.raises(TypeError, match="names= is a sequence of str"):
            ad.record_batch(columns, names=names)


def test_record_batch_of_several_devices():
    def column(device, **options):
        return ad.Tensor.from_pointer(NOWHERE, (3,), "int8", device, **options)

    batch = ad.record_batch({"a": column("cuda:1", stream=5), "b": column("cuda:1")})
    assert (
        repr(batch)
        == "<arrowdev.Array struct<a: int8, b: int8>, length 3, on cuda:1, after stream>"
    )
    with pytest.raises(ad.ExchangeError, match='"b" is on cpu, but "a" is on cuda:1') as info:
        ad.record_batch({"a": column("cuda:1"), "b": np.arange(3)})
    assert info.value.reason == "device"
    with pytest.raises(ad.ExchangeError, match="one event for several parts") as info:
        ad.record_batch({"a": column("cuda:1", stream=5), "b": column("cuda:1", stream=6)})
    assert info.value.reason == "event"


def test_columns_pending_on_one_stream():
    def column(stream):
        return ad.Tensor.from_pointer(NOWHERE, (2,), "int8", "cuda:0", stream=stream)

    assert len(ad.record_batch({"a": column(7), "b": column(7)})) == 2
    with pytest.raises(ad.ExchangeError, match="one event for several parts"):
        ad.record_batch({"a": column(7), "b": column(8)})


@pytest.mark.parametrize("stop", [3, 5])
def test_sliced_batch_is_imported_by_peers(stop):
    batch = ad.record_batch({"a": np.arange(5), "b": pa.array(["u", None, "w", "x", None])})
    part = batch[1:stop]
    expected = pa.record_batch(batch).slice(1, stop - 1).to_pylist()
    assert pa.record_batch(part).to_pylist() == expected
    assert pl.DataFrame(part).to_dicts() == expected
    assert part.to_pylist() == pa.array(part).to_pylist() == expected


def test_null_columns_of_polars():
    assert ad.array(pl.Series([None, None])).to_pylist() == [None, None]
    batch = ad.record_batch(pl.DataFrame({"a": [1, 2], "b": [None, None]}))
    assert batch[1:].to_pylist() == pa.record_batch(batch[1:]).to_pylist()
    assert batch[1:].to_pylist() == [{"a": 2, "b": None}]


def test_nesting_of_batches_is_limited():
    batch = np.arange(2)
    with pytest.raises(ad.InvalidArrowError, match="nested deeper than 64"):
        for _ in range(100):
            batch = ad.record_batch({"a": batch})


def test_names_in_a_batch():
    batch = ad.record_batch({"price": np.arange(3.0), "qty": np.arange(3)})
    assert "price" in batch and "qty" in batch[1:]
    assert "cost" not in batch and "" not in batch and "pri" not in batch
    for row in (1, None, {"price": 0.0, "qty": 0}, b"price"):
        with pytest.raises(TypeError, match="looks for the name of a field, a str"):
            assert row in batch
    twice = ad.record_batch([np.arange(3), np.arange(3)], names=["a", "a"])
    assert "a" in twice  # which one is asked for by index


def test_names_in_a_batch_on_a_device():
    column = ad.Tensor.from_pointer(NOWHERE, (3,), "int8", "cuda:1")
    batch = ad.record_batch({"price": column})
    assert "price" in batch and "qty" not in batch
    with pytest.raises(ad.ExchangeError, match="host"):
        assert 1 in batch["price"]


def test_values_in_a_column():
    column = ad.array(pa.array(["a", None, "b"]))
    assert "b" in column and None in column
    assert "b" not in column[:2] and "price" not in column and 1 not in column
    assert 2.0 in ad.array(np.arange(3)) and None not in ad.array(np.arange(3))


# --- columns with names of their own ----------------------------------------------


def test_names_of_series():
    a, b = range(3), ["x", None, "z"]
    for series in (
        [pd.Series(a, name="a"), pd.Series(b, name="b", dtype="string[pyarrow]")],
        [pl.Series("a", a), pl.Series("b", b)],
        [pl.Series("a", a), pd.Series(b, name="b", dtype="string[pyarrow]")],
    ):
        for columns in (series, tuple(series)):
            batch = ad.record_batch(columns)
            assert batch.to_pydict() == {"a": list(a), "b": b}
        assert ad.record_batch(series, names=["c", "d"]).column_names == ["c", "d"]


def test_names_of_fields():
    batch = ad.record_batch({"a": np.arange(3), "b": np.arange(3.0)})
    assert ad.record_batch([batch["b"], batch["a"]]).column_names == ["b", "a"]
    assert ad.record_batch([batch["a"], pl.Series("c", [1, 2, 3])]).column_names == ["a", "c"]
    assert ad.record_batch([batch["a"], batch["a"]]).column_names == ["a", "a"]  # as with names=


def test_a_subclass_of_series_is_one():
    class GeoSeries(pd.Series):
        pass

    assert ad.record_batch([GeoSeries([1, 2], name="a")]).to_pydict() == {"a": [1, 2]}


def test_columns_without_names():
    named = pd.Series([1], name="a")
    unnamed = [
        pd.Series([1]),
        pd.Series([1], name=5),
        pl.Series([1]),
        np.arange(1),
        ad.array(b"a"),
    ]
    for column in unnamed:
        with pytest.raises(TypeError) as info:
            ad.record_batch([named, column])
        assert "a sequence of columns needs names=, one per column; column 1 of type " in str(
            info.value
        )
        assert str(info.value).endswith(" has no name of its own")
        assert len(ad.record_batch([named, column], names=["a", "b"])) == 1
    with pytest.raises(TypeError, match=r"needs names=, one per column$"):
        ad.record_batch([])


def test_a_name_that_cannot_be_read():
    class Series:
        name = property(lambda self: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        ad.record_batch([Series()])
