"""Tables on disk: Parquet, Delta Lake, Lance and Iceberg."""

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

ROWS = {"a": [1, 2, 3], "b": [0.5, 1.0, None]}


def batch():
    return ad.record_batch(pa.record_batch(ROWS))


def stream():
    return ad.array_stream([batch(), batch()])


def rows(x):
    return pa.table(ad.record_batch(x)).to_pydict()


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table(batch()), tmp_path / "x.parquet", row_group_size=2)
    with parquet.ParquetFile(tmp_path / "x.parquet") as file:
        assert rows(file.read()) == ROWS
        parts = ad.array_stream(file.iter_batches(batch_size=2))
        assert [part["a"].to_pylist() for part in parts] == [[1, 2], [3]]


def test_delta(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "x", batch())
    deltalake.write_deltalake(tmp_path / "x", stream(), mode="append")
    x = deltalake.DeltaTable(tmp_path / "x")
    query = deltalake.QueryBuilder().register("t", x)
    assert ad.record_batch(query.execute("select count(*) as n from t"))["n"].to_pylist() == [9]
    assert rows(query.execute("select a, b from t limit 3")) == ROWS
    assert ad.record_batch(x.get_add_actions())["num_records"].to_pylist() == [6, 3]
    with pytest.raises(TypeError, match=r"x\.to_pyarrow_table\(\) reads it"):
        ad.array(x)


def test_lance(tmp_path):
    """It asks for Iterable before the protocol, and finds no schema: pass a reader."""
    lance = pytest.importorskip("lance")
    path = str(tmp_path / "x.lance")
    lance.write_dataset(pa.table(batch()), path)
    lance.write_dataset(pa.RecordBatchReader.from_stream(stream()), path, mode="append")
    x = lance.dataset(path)
    assert rows(x.to_table().slice(0, 3)) == ROWS
    assert sum(map(len, ad.array_stream(x.to_batches()))) == 9
    with pytest.raises(TypeError, match=r"x\.to_table\(\) reads it"):
        ad.array(x)


def test_lancedb(tmp_path):
    lancedb = pytest.importorskip("lancedb")
    database = lancedb.connect(tmp_path / "db")
    x = database.create_table("t", pa.table(batch()))
    x.add(pa.RecordBatchReader.from_stream(stream()))
    assert x.count_rows() == 9 and rows(x.to_arrow().slice(0, 3)) == ROWS
    with pytest.raises(TypeError, match=r"x\.to_arrow\(\) reads it"):
        ad.array(x)


def test_iceberg(tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = catalogs.InMemoryCatalog("x", warehouse=str(tmp_path))
    catalog.create_namespace("n")
    x = catalog.create_table("n.t", schema=pa.table(batch()).schema)
    x.append(pa.table(batch()))
    assert rows(x.scan().to_arrow()) == ROWS
    assert sum(map(len, ad.array_stream(x.scan().to_arrow_batch_reader()))) == 3
