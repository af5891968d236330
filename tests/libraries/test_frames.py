"""Libraries of frames, and engines: batches and streams, in both directions."""

import sqlite3

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

ROWS = {"a": [1, 2, -5], "s": ["x", None, "y"], "t": [0, None, 86_400_000_000]}
TYPES = pa.schema({"a": pa.int64(), "s": pa.string(), "t": pa.timestamp("us", tz="UTC")})


def table():
    return pa.table(ROWS, TYPES)


def batch():
    return ad.record_batch(table())


def expected():
    return table().to_pydict()


def rows(x):
    """The rows that pyarrow sees in what arrowdev imported."""
    found = ad.record_batch(x)
    return {name: pa.array(found[name]).to_pylist() for name in ROWS}


def stream():
    """A stream of two batches."""
    return ad.array_stream(pa.Table.from_batches([table().to_batches()[0]] * 2))


def same_memory(a, b, column="a"):
    """Whether two tables share the values of a column, by pyarrow."""
    first, second = (pa.table(x)[column].chunk(0) for x in (a, b))
    return first.buffers()[1].address == second.buffers()[1].address


# --- frames -------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["pyarrow", "polars", "pandas"])
def test_narwhals(backend):
    nw = pytest.importorskip("narwhals")
    pytest.importorskip(backend)
    frame = nw.from_arrow(batch(), backend=backend)
    assert frame["s"].to_list()[:1] == ["x"] and frame["a"].to_list() == ROWS["a"]
    assert rows(frame)["a"] == ROWS["a"] and rows(frame)["s"] == ROWS["s"]
    if backend == "pyarrow":
        assert same_memory(frame, batch()) is False  # two batches, two allocations
        ours = batch()
        assert same_memory(nw.from_arrow(ours, backend=backend), ours)
    assert ad.array(frame["a"]).to_pylist() == ROWS["a"]
    with pytest.raises(TypeError, match=r"x\.collect\(\) computes the data"):
        ad.array(frame.lazy())


def test_ibis():
    ibis = pytest.importorskip("ibis")
    pytest.importorskip("duckdb")
    x = ibis.memtable(batch())
    assert rows(x) == expected()
    assert [len(part) for part in ad.array_stream(x)] == [3]
    assert rows(x.filter(x.a < 0))["a"] == [-5]
    with pytest.raises(TypeError, match=r"x\.to_pyarrow\(\) computes the data"):
        ad.array(x.a)
    assert ad.array(x.a.to_pyarrow()).to_pylist() == ROWS["a"]


def test_datasets():
    datasets = pytest.importorskip("datasets")
    ours = batch()
    x = datasets.Dataset(pa.table(ours))
    assert rows(x.with_format("arrow")[:]) == expected()
    assert same_memory(x.with_format("arrow")[:], ours)
    picked = x.select([2, 0]).with_format("arrow")
    assert rows(picked[:])["a"] == [-5, 1]
    parts = ad.array_stream(x.with_format("arrow").iter(batch_size=2))
    assert [len(part) for part in parts] == [2, 1]
    with pytest.raises(TypeError, match="with_format"):
        ad.array(x)


# --- engines ------------------------------------------------------------------------


def test_datafusion():
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    ours = batch()
    frame = context.from_arrow(ours, "t")
    assert rows(frame) == expected() and same_memory(frame, ours)
    assert context.from_arrow(stream(), "u").count() == 6
    assert rows(context.sql("select * from t where a < 0"))["s"] == ["y"]
    assert sum(map(len, ad.array_stream(context.table("u")))) == 6
    for part in frame.execute_stream():
        with pytest.raises(ad.ExchangeError) as info:
            ad.array(part)
        assert isinstance(info.value.__cause__, AttributeError)  # DataFusion 55
        assert info.value.hint == "pass x.to_pyarrow()"
        assert rows(part.to_pyarrow()) == expected()


def test_class_of_datafusion():
    datafusion = pytest.importorskip("datafusion")
    ours, cls = batch(), datafusion.DataFrame
    assert same_memory(ad.convert(ours, cls), ours)
    assert ad.convert(stream(), cls).count() == 6
    column = np.array(ROWS["a"])
    for one in (ad.array(column), ad.tensor(column), ad.array_stream([column])):
        with pytest.raises(ad.ExchangeError) as info:
            one.into(cls)
        assert info.value.hint == 'name the column: arrowdev.record_batch({"name": x})'
    assert ad.convert(ad.record_batch({"name": column}), cls).count() == 3


def test_daft():
    daft = pytest.importorskip("daft")
    for made, n in ((batch(), 1), (stream(), 2), (table(), 1)):
        assert daft.from_arrow(made).to_pydict()["a"] == ROWS["a"] * n
    assert ad.convert(stream(), daft.DataFrame).to_pydict()["a"] == ROWS["a"] * 2
    frame = daft.from_arrow(batch())
    assert rows(frame) == expected()
    column = daft.Series.from_arrow(pa.array(ad.array(np.array(ROWS["a"]))))
    assert ad.array(column).to_pylist() == ROWS["a"]


def test_daft_shares_a_column():
    daft = pytest.importorskip("daft")
    data = np.arange(3)
    column = daft.Series.from_arrow(ad.convert(data, pa.Array))
    assert ad.array(column).buffers[1].data_ptr == data.ctypes.data


def test_duckdb():
    duckdb = pytest.importorskip("duckdb")
    ours = batch()
    assert duckdb.sql("select sum(a) from ours").fetchall() == [(-2,)]
    assert rows(duckdb.from_arrow(ours))["a"] == ROWS["a"]
    parts = ad.array_stream(duckdb.sql("select range as a from range(5000)"))
    assert sum(map(len, parts)) == 5000


def test_sedonadb():
    sedonadb = pytest.importorskip("sedonadb")
    connection = sedonadb.connect()
    for made, n in ((batch(), 1), (stream(), 2)):
        frame = connection.create_data_frame(made).to_memtable()
        assert rows(frame)["a"] == ROWS["a"] * n
    point = ad.record_batch(connection.sql("select ST_Point(1, 2) as g"))
    assert point.schema.children[0].metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"


def test_chdb():
    chdb = pytest.importorskip("chdb")
    ours = batch()  # noqa: F841, the query names it
    assert str(chdb.query("select sum(a) from Python(ours)", "CSV")).strip() == "-2"
    found = chdb.query("select number as a from numbers(3)", "ArrowTable")
    assert ad.record_batch(found)["a"].to_pylist() == [0, 1, 2]


# --- databases ----------------------------------------------------------------------


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t(a integer, s text)")
        connection.executemany(
            "insert into t values(?, ?)", [*zip(ROWS["a"], ROWS["s"], strict=True)]
        )
    connection.close()
    return path


def test_connectorx(database):
    connectorx = pytest.importorskip("connectorx")
    for form in ("arrow", "arrow_stream", "polars"):
        found = ad.record_batch(
            connectorx.read_sql(f"sqlite://{database}", "select * from t", return_type=form)
        )
        assert found["a"].to_pylist() == ROWS["a"] and found["s"].to_pylist() == ROWS["s"]


def test_adbc_reads():
    dbapi = pytest.importorskip("adbc_driver_sqlite.dbapi")
    with dbapi.connect() as connection, connection.cursor() as cursor:
        cursor.execute("select 1 as a, 'x' as s union all select 2, null")
        handle = cursor.fetch_arrow()
        assert ad.record_batch(handle).to_pylist() == [{"a": 1, "s": "x"}, {"a": 2, "s": None}]
        with pytest.raises(ad.ExchangeError) as info:
            ad.record_batch(handle)
        assert info.value.reason == "consumed"
        cursor.execute("select 1 as a")
        [part] = ad.array_stream(cursor.fetch_record_batch())
        assert part["a"].to_pylist() == [1]


def test_adbc_writes():
    dbapi = pytest.importorskip("adbc_driver_sqlite.dbapi")
    pairs = ad.record_batch({"a": np.array([1, 2]), "b": np.array([0.5, 1.0])})
    with dbapi.connect() as connection, connection.cursor() as cursor:
        assert cursor.adbc_ingest("t", pairs, mode="create") == 2
        assert cursor.adbc_ingest("t", ad.array_stream([pairs, pairs]), mode="append") == 4
        cursor.execute("select ?", parameters=ad.record_batch({"p": np.array([7, 8])}))
        assert cursor.fetchall() == [(7,), (8,)]
        cursor.executemany("insert into t values (?, ?)", pairs)
        cursor.execute("select sum(a), sum(b) from t")
        assert cursor.fetchall() == [(12, 6.0)]
