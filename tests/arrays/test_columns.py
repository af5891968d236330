"""The columns of a batch: columns, select(), batch[[...]] and to_pydict()."""

import gc
import weakref

import pytest
from arrow_samples import SAMPLES

import arrowdev as ad
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")


def sample():
    """Columns of several types, nested ones among them, with a slice that is not the first."""
    columns = {
        "a": pa.array(range(6)),
        "b": pa.array(["x", None, "yy", "", None, "z"]),
        "c": pa.array([[1], None, [], [2, 3], [4], None]),
        "d": pa.array([{"p": i, "q": None} for i in range(6)]),
    }
    return pa.RecordBatch.from_pydict(columns)


def addresses(array):
    buffers = [None if buffer is None else buffer.data_ptr for buffer in array.buffers]
    return buffers + [addresses(child) for child in array.children]


@pytest.mark.parametrize("rows", [slice(None), slice(2, 5), slice(0, 0), slice(6, 6)])
@pytest.mark.parametrize(
    "names", [["a"], ["d", "b"], ["c", "a", "d", "b"], ["b", "b"], [], [0, -1, "b"]]
)
def test_select_is_that_of_pyarrow(names, rows):
    theirs = sample()[rows]
    ours = ad.array(sample())[rows]
    found = ours.select(names)
    expected = theirs.select([name % 4 if isinstance(name, int) else name for name in names])
    assert found.column_names == expected.schema.names and len(found) == theirs.num_rows
    assert pa.record_batch(found).equals(expected) and found.validate("full") == ()
    if all(isinstance(name, str) for name in names):
        assert ours[names].equals(found) and ours.select(iter(names)).equals(found)
    for name, child in zip(names, found.children, strict=True):
        index = ours.column_names.index(name) if isinstance(name, str) else name
        assert addresses(child) == addresses(ours.children[index])


def test_masks_name_no_columns():
    batch = ad.array(sample())
    for take in (lambda: batch.select([True, False, True]), lambda: batch.field(False)):
        with pytest.raises(TypeError, match=r"by its name or index, not by (True|False)"):
            take()


def test_columns_are_the_fields():
    batch = ad.array(sample())[1:4]
    assert isinstance(batch.columns, tuple) and len(batch.columns) == batch.num_columns == 4
    for i, (name, column) in enumerate(zip(batch.column_names, batch.columns, strict=True)):
        assert column.equals(batch[name]) and column.equals(batch.field(i)) and len(column) == 3
        assert addresses(column) == addresses(batch[name]) and column.schema.name == name
    assert ad.array(pa.array([{}, {}])).columns == ()


def test_to_pydict_is_that_of_pyarrow():
    for rows in (slice(None), slice(1, 4), slice(0, 0)):
        assert ad.array(sample())[rows].to_pydict() == sample()[rows].to_pydict()
    for name in SAMPLES:
        batch = ad.record_batch({"x": SAMPLES[name]})
        assert batch.to_pydict() == {"x": batch["x"].to_pylist()}
    assert ad.array(pa.array([{}, {}])).to_pydict() == {}


def test_missing_columns_are_refused_with_those_that_are_there():
    batch = ad.array(sample())
    for take in (batch.field, batch.__getitem__, lambda name: batch.select(["a", name])):
        with pytest.raises(KeyError) as info:
            take("price")
        message = info.value.args[0]
        assert message == 'no column is named "price"; found "a", "b", "c", "d"'
    with pytest.raises(KeyError, match='no column is named "price"'):
        batch[["a", "price"]]
    wide = ad.record_batch({f"column {i}": b"" for i in range(1000)})
    with pytest.raises(KeyError) as info:
        wide["price"]
    assert info.value.args[0].endswith(", ...") and len(info.value.args[0]) < 300
    for index in (4, -5):
        with pytest.raises(IndexError, match="of an array with 4 children"):
            batch.select([index])


def test_repeated_names_are_taken_by_their_index():
    batch = ad.record_batch([np.arange(2), np.arange(2.0)], names=["a", "a"])
    assert [str(column.schema) for column in batch.columns] == ["int64", "float64"]
    assert str(batch.select([1]).schema) == "struct<a: float64>"
    with pytest.raises(ValueError, match='both named "a"; take it by its index'):
        batch[["a"]]
    with pytest.raises(ValueError, match="2 columns are named 'a', and a dict keeps one"):
        batch.to_pydict()


@pytest.mark.parametrize("keys", ["a", None, 5, [None], [1.5], [b"a"]])
def test_keys_that_are_no_columns(keys):
    with pytest.raises(TypeError):
        ad.array(sample()).select(keys)


def test_lists_that_are_no_names():
    """They would be rows, which only a copy has."""
    batch = ad.array(sample())
    for key in ([0, 1], [True] * 6, ["a", 1], ("a", "b"), np.array([0])):
        with pytest.raises(TypeError, match="by int, slice, field name or list of names, not"):
            batch[key]


def test_arrays_that_are_no_struct():
    column = ad.array(np.arange(3))
    for refused in (lambda: column[["a"]], lambda: column.select([]), column.to_pydict):
        with pytest.raises(TypeError, match="only a struct has fields, and this array is of"):
            refused()
    assert not hasattr(column, "columns")
    assert {"columns", "select", "to_pydict"}.isdisjoint(dir(column))
    assert {"columns", "select", "to_pydict"} <= set(dir(ad.array(sample())))


def test_nulls_of_the_struct():
    """select() keeps them, and a column alone would lose them."""
    array = ad.array(pa.array([{"a": 1, "b": 2}, None, {"a": 3, "b": None}]))
    assert array[["b"]].to_pylist() == [{"b": 2}, None, {"b": None}]
    assert array[1:].select(["b", "a"]).to_pylist() == [None, {"b": None, "a": 3}]
    assert (array[["a"]].null_count, array[1:][["a"]].null_count) == (1, 1)
    for refused in (lambda: array.columns, array.to_pydict):
        with pytest.raises(ad.ExchangeError) as info:
            refused()
        assert info.value.reason == "nulls"
    assert len(array[2:].columns) == 2  # whose rows are known to be valid


def test_metadata_and_flags_are_kept():
    schema = sample().schema.with_metadata({"k": "v"})
    batch = ad.array(sample().replace_schema_metadata({"k": "v"}))
    assert batch[["a"]].schema.metadata == {b"k": b"v"} == schema.metadata
    assert batch[["a"]].schema.nullable is batch.schema.nullable
    field = pa.field("s", pa.struct([pa.field("x", pa.int8(), nullable=False)]), nullable=False)
    inner = ad.record_batch(
        pa.RecordBatch.from_arrays([pa.array([{"x": 1}])], schema=pa.schema([field]))
    )["s"]
    assert inner[["x"]].schema == inner.schema


def test_struct_of_an_extension_type_becomes_a_plain_one():
    """A part of it is no value of the type."""
    metadata = {
        "ARROW:extension:name": "geoarrow.point",
        "ARROW:extension:metadata": "{}",
        "k": "v",
    }
    point = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    schema = pa.schema([pa.field("p", point, metadata=metadata)])
    batch = pa.RecordBatch.from_arrays([pa.array([{"x": 1.0, "y": 2.0}], point)], schema=schema)
    points = ad.array(batch)["p"]
    assert str(points.schema).startswith("extension<geoarrow.point: ")
    assert points[["y"]].schema.metadata == {b"k": b"v"}
    assert str(points[["y"]].schema) == "struct<y: float64>"


def test_event_and_device_are_kept():
    with software_device() as device:
        queue = device.queue()
        with queue.held():
            batch = ad.array(device.array(sample(), queue=queue))
            found = batch[["d", "a"]]
            assert not found.is_ready() and found.sync_event == batch.sync_event
            assert all(column.sync_event == batch.sync_event for column in found.columns)
            assert found.device == batch.device
        assert found.to("cpu").to_pydict() == sample().select(["d", "a"]).to_pydict()
        with pytest.raises(ad.ExchangeError, match="needs host memory"):
            found.to_pydict()


def test_memory_lives_as_long_as_a_selection():
    class Owner(np.ndarray):
        pass

    memory = np.arange(3).view(Owner)
    alive = weakref.ref(memory)
    part = ad.record_batch({"a": memory, "b": memory})[["b"]]
    del memory
    gc.collect()
    assert alive() is not None and part.to_pydict() == {"b": [0, 1, 2]}
    del part
    gc.collect()
    assert alive() is None
