"""Bools of one byte (arrow.bool8) for libraries that show numbers of them: bits."""

import logging

import pytest
from peer import Peer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = Peer("pandas", "3.0")
pl = Peer("polars")
arro3 = Peer("arro3.core")
nanoarrow = Peer("nanoarrow")
duckdb = Peer("duckdb")

X = np.array([True, False, True, True])


def bools(*values):
    return pa.ExtensionArray.from_storage(pa.bool8(), pa.array(values, pa.int8()))


BYTES = bools(1, 0, None, 1)
NESTED = {
    "struct": pa.StructArray.from_arrays(
        [BYTES, pa.array([1, 2, 3, 4])], ["b", "n"], mask=pa.array([False, True, False, False])
    ),
    "list": pa.ListArray.from_arrays(pa.array([0, 1, 1, None, 4], pa.int32()), BYTES),
    "large_list": pa.LargeListArray.from_arrays(pa.array([0, 1, 1, None, 4]), BYTES),
    "fixed": pa.FixedSizeListArray.from_arrays(BYTES, 2),
    "map": pa.MapArray.from_arrays([0, 1, 4], pa.array(list("abcd")), BYTES),
    "deep": pa.ListArray.from_arrays(
        [0, 2, 4], pa.StructArray.from_arrays([pa.FixedSizeListArray.from_arrays(BYTES, 1)], ["b"])
    ),
}
nested = pytest.mark.parametrize("name", NESTED)


# --- each library that does not know them ------------------------------------------


def test_polars_computes_with_them():
    series = ad.convert(X, pl.Series)
    assert series.dtype == pl.Boolean and series.to_list() == X.tolist()
    assert series.sum() == 3 and series.filter(series).len() == 3
    frame = ad.record_batch({"b": X, "n": np.arange(4)}).into(pl.DataFrame)
    assert frame.filter(pl.col("b"))["n"].to_list() == [0, 2, 3]
    assert ad.convert(BYTES, pl.Series).to_list() == [True, False, None, True]
    assert ad.convert(X[:0], pl.Series).dtype == pl.Boolean


def test_pandas_computes_with_them():
    frame = ad.record_batch({"x": X[:2], "y": np.arange(2)}).into(pd.DataFrame)
    assert frame["x"].dtype == bool and frame[frame["x"]]["y"].tolist() == [0]
    twins = ad.record_batch([X[:2], X[:2]], names=["a", "a"]).into(pd.DataFrame)
    assert list(twins.columns) == ["a", "a"] and twins.values.tolist() == [[True] * 2, [False] * 2]
    masked = ad.array(X[:2], validity=np.array([False, True])).into(pd.Series)
    assert masked.tolist() == [None, False] and masked[1] is False


def test_arro3_has_bits():
    for source, values in ((X, X.tolist()), (BYTES, [True, False, None, True])):
        found = ad.convert(source, arro3.Array)
        assert pa.array(found).type == pa.bool_() and pa.array(found).to_pylist() == values
    batch = ad.record_batch({"b": X}).into(arro3.RecordBatch)
    assert pa.record_batch(batch).schema == pa.schema({"b": pa.bool_()})


@nested
def test_nested_bools(name):
    for part in (NESTED[name], NESTED[name][1:]):
        found = pa.array(ad.convert(part, arro3.Array))
        assert found.to_pylist() == part.to_pylist()
        assert "bool8" not in str(found.type) and "bool" in str(found.type)
        batch = ad.record_batch({"x": part, "n": np.arange(len(part))})
        assert "ext" not in str(batch.into(pl.DataFrame).dtypes)
        table = pa.table(ad.convert(batch, arro3.RecordBatch))
        assert table["x"].to_pylist() == part.to_pylist()
        values = ad.convert(part, pd.Series).tolist()
        assert "int8" not in repr(values) and "True" in repr(values)


def test_nested_bools_into_pandas():
    matrix = ad.array(np.array([[True, False], [False, True]])).into(pd.Series)
    assert [row.tolist() for row in matrix] == [[True, False], [False, True]]
    items = pa.ListArray.from_arrays(pa.array([0, 1, 4], pa.int32()), BYTES)
    assert [row.tolist() for row in ad.convert(items, pd.Series)] == [[True], [False, None, True]]
    with pytest.raises(ad.ExchangeError, match="no equivalent of bool here") as info:
        ad.array(np.array(True)).into(pd.Series)  # of no dimension
    assert info.value.reason == "dtype"


# --- what else belongs to the data stays ---------------------------------------------


def test_only_the_bools_are_copied():
    numbers, words = np.arange(4), pa.array(["a", None, "b", "c"])
    batch = ad.record_batch({"b": X, "n": numbers, "w": words})
    frame = batch.into(pl.DataFrame)
    assert frame["n"].to_numpy().ctypes.data == numbers.ctypes.data
    field = pa.field("b", pa.bool8(), nullable=False, metadata={"unit": "x"})
    schema = pa.schema([field], metadata={"k": "v"})
    source = pa.record_batch([bools(1, 0, 1)], schema=schema)
    found = pa.record_batch(ad.convert(source, arro3.RecordBatch))
    assert found.schema.metadata == {b"k": b"v"}
    assert found.schema.field("b").metadata == {b"unit": b"x"}
    assert found.schema.field("b").type == pa.bool_() and not found.schema.field("b").nullable


def test_a_slice_packs_its_own_rows(caplog):
    batch = ad.record_batch({"b": np.ones(1 << 16, bool), "n": np.arange(1 << 16)})
    with caplog.at_level(logging.DEBUG, "arrowdev"):
        assert batch[:16].into(pl.DataFrame)["b"].to_list() == [True] * 16
    [line] = caplog.messages
    assert line.startswith("copy: 2 bytes, cpu -> cpu, because flags of a byte become bits")


def test_bits_are_a_copy():
    for source, cls in ((X, arro3.Array), (NESTED["list"], arro3.Array)):
        with pytest.raises(ad.ExchangeError, match="bits are a copy") as info:
            ad.convert(source, cls, copy=False)
        assert info.value.reason == "copy"
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(X, pl.Series, copy=False)
    assert info.value.reason == "copy"


# --- libraries that know them share the bytes -----------------------------------------


def test_libraries_that_know_them():
    column = ad.convert(X, pa.Array, copy=False)
    assert column.type == pa.bool8() and column.to_pylist() == X.tolist()
    assert column.storage.buffers()[1].address == X.ctypes.data
    assert ad.convert(X, nanoarrow.Array, copy=False).to_pylist() == X.tolist()
    assert np.shares_memory(ad.convert(X, pd.Series).to_numpy(), X)
    batch = ad.record_batch({"b": X})  # noqa: F841, named in the query
    assert (
        duckdb.sql("select b, typeof(b) from batch where b").fetchall() == [(True, "BOOLEAN")] * 3
    )
    assert duckdb.sql("select sum(b) from batch").fetchall() == [(3,)]
