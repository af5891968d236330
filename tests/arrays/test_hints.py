"""Does what an error's hint says, and finds that it works.

Where an error has no hint, docs/errors.md says what to do.
"""

import asyncio
import re
import sys
from pathlib import Path

import fakegpu
import isolation
import pytest
from arrow_ctypes import SchemaNode, Stream, numbers
from dlpack_ctypes import Producer
from interface_dicts import Showing
from peer import Peer

import arrowdev as ad
from arrowdev import aio

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
duckdb = Peer("duckdb")
jax = Peer("jax")
pd = Peer("pandas", "3.0")  # the first with an Arrow interface on Series
pl = Peer("polars")
torch = Peer("torch")

NOWHERE = 0x7FFF00001000
TESTS = Path(__file__).parent.parent
DOCS = TESTS.parent / "docs" / "errors.md"


def error_of(expected, provoke):
    with pytest.raises(expected) as info:
        provoke()
    return info.value


def refused(reason, provoke):
    error = error_of(ad.ExchangeError, provoke)
    assert error.reason == reason
    assert error.hint is None or str(error).endswith(f"; {error.hint}")
    return error


def hint_of(reason, provoke):
    return refused(reason, provoke).hint


# --- ExchangeError: a test for each reason, which begins with test_<reason> ---------------


def test_byteorder():
    x = np.arange(3, dtype=">i4")
    hint = hint_of("byteorder", lambda: ad.array(x, copy=False))
    assert '.astype(x.dtype.newbyteorder("="))' in hint
    native = x.astype(x.dtype.newbyteorder("="))
    assert ad.array(native, copy=False).to_pylist() == [0, 1, 2]


def two_chunks():
    return Stream(SchemaNode("l"), [numbers(), numbers()])


def test_chunks():
    hint = hint_of("chunks", lambda: ad.array(two_chunks(), copy=False))
    assert hint == "leave copy=False out, or read them one by one with arrowdev.array_stream()"
    assert len(ad.array(two_chunks())) == 6
    assert [len(chunk) for chunk in ad.array_stream(two_chunks())] == [3, 3]


def test_conjugate():
    x = torch.tensor([1 + 2j]).conj()
    assert hint_of("conjugate", lambda: ad.tensor(x)) == "pass x.resolve_conj()"
    assert ad.tensor(x.resolve_conj()).into(np.ndarray).tolist() == [1 - 2j]


def test_negative():
    x = torch.tensor([1 + 2j]).conj().imag
    assert hint_of("negative", lambda: ad.tensor(x)) == "pass x.resolve_neg()"
    assert ad.array(x.resolve_neg()).to_pylist() == [-2]


def test_requires_grad():
    x = torch.ones(2, requires_grad=True)
    assert hint_of("requires_grad", lambda: ad.array(x)) == "pass x.detach()"
    assert ad.array(x.detach()).to_pylist() == [1, 1]


def test_consumed():
    producer = ad.array(b"abc")
    pair = producer.__arrow_c_device_array__()
    ad.array(pair)
    assert "ask the producer again" in hint_of("consumed", lambda: ad.array(pair))
    assert len(ad.array(producer.__arrow_c_device_array__())) == 3


def test_copy():
    x = pa.array([1, None])
    hint = hint_of("copy", lambda: ad.tensor(x, nulls="fill", fill_value=0, copy=False))
    assert hint == "allow a copy (copy=None)"
    found = ad.tensor(x, nulls="fill", fill_value=0, copy=None)
    assert found.into(np.ndarray).tolist() == [1, 0]


@pytest.mark.parametrize("order", ["C", "F"])
def test_copy_of_a_matrix(order):
    """Columns of one matrix are in order F; those of a table are in memory of their own."""
    matrix = np.arange(6.0).reshape(2, 3, order="F")
    batch = ad.record_batch(matrix, names=list("abc"))
    if order == "F":
        memory = np.empty(32)
        columns = [memory[start : start + 2] for start in (0, 7, 20)]  # at no common pitch
        for i, column in enumerate(columns):
            column[:] = matrix[:, i]
        batch = pa.table(columns, names=list("abc"))
    error = refused("copy", lambda: ad.tensor(batch, order=order, copy=False))
    why = (
        'they are stored in order "F", not order="C"' if order == "C" else "differ|not stored|gap"
    )
    assert re.search(f"needs a copy, which was ruled out: .*({why})", str(error))
    assert error.hint == (
        "allow a copy (copy=None), or take the columns one by one with "
        "arrowdev.array(x).field(...)"
    )
    assert ad.tensor(batch, order=order, copy=None).into(np.ndarray).tolist() == matrix.tolist()
    columns = [ad.array(batch).field(i).to_pylist() for i in range(3)]
    assert columns == matrix.T.tolist()


def test_device(device):
    x = ad.array(np.arange(3)).to("ext_dev:0")
    error = refused("device", x.to_pylist)
    assert "needs host memory, found memory of ext_dev:0; bring" in str(error)
    for provoke in (x.to_pylist, lambda: memoryview(ad.tensor(x)), lambda: np.asarray(x)):
        hint = hint_of("device", provoke)
        assert hint == 'bring the data to the host with .to("cpu")'
    assert x.to("cpu").to_pylist() == [0, 1, 2]

    y = ad.array(np.arange(3))
    hint = hint_of("device", lambda: ad.record_batch({"x": x, "y": y}))
    assert hint == "bring them to one device first, with .to(device)"
    assert ad.record_batch({"x": x, "y": y.to(x.device)}).device == x.device


def test_dtype_of_text():
    x = pa.array(["a", "bc"])
    hint = hint_of("dtype", lambda: ad.tensor(x))
    assert "take the offsets or views, and the bytes, with arrowdev.array(x).buffers" in hint
    _, offsets, values = ad.array(x).buffers
    assert bytes(values)[:3] == b"abc"
    assert np.asarray(offsets).view("int32")[:3].tolist() == [0, 1, 3]


def test_dtype_of_times():
    x = pa.array([1, 2], pa.timestamp("s"))
    hint = hint_of("dtype", lambda: ad.tensor(x))
    assert hint == 'arrowdev.array(x).view("int64") gives what is stored'
    assert ad.array(x).view("int64").to_pylist() == [1, 2]


def test_dtype_of_columns():
    batch = pa.table({"a": [1], "b": [2.0]})
    assert "take one column with arrowdev.array(x).field(...)" in hint_of(
        "dtype", lambda: ad.tensor(batch)
    )
    assert ad.tensor(ad.array(batch).field("b")).dtype == "float64"


def test_dtype_of_lists():
    x = pa.array([[1], [2, 3]])
    hint = hint_of("dtype", lambda: ad.tensor(x))
    assert hint == (
        "take the values with arrowdev.array(x).children[0] and the offsets with "
        "arrowdev.array(x).buffers[1], whose elements are bytes"
    )
    assert ad.array(x).children[0].to_pylist() == [1, 2, 3]
    assert np.asarray(ad.array(x).buffers[1]).view("int32")[:3].tolist() == [0, 1, 3]


def test_dtype_of_a_dictionary():
    x = pa.array(["b", "a", "b"]).dictionary_encode()
    hint = hint_of("dtype", lambda: ad.tensor(x))
    assert "take arrowdev.array(x).dictionary for the values" in hint
    assert 'arrowdev.array(x).view("int32") for the indices, or decode it' in hint
    assert ad.array(x).dictionary.to_pylist() == ["b", "a"]
    assert ad.array(x).view("int32").to_pylist() == [0, 1, 0]
    assert ad.array(x.dictionary_decode()).to_pylist() == ["b", "a", "b"]


def test_dtype_of_a_union():
    ids = pa.array([0, 1], pa.int8())
    x = pa.UnionArray.from_sparse(ids, [pa.array([1, 2]), pa.array(["a", "b"])])
    hint = hint_of("dtype", lambda: ad.tensor(x))
    assert "one member with arrowdev.array(x).children, and the type ids with" in hint
    assert ad.array(x).children[0].to_pylist() == [1, 2]
    assert bytes(ad.array(x).buffers[0])[:2] == bytes([0, 1])


def test_dtype_of_run_ends():
    x = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, 2]))
    hint = hint_of("dtype", lambda: ad.tensor(x))
    assert hint == "take the run ends and the values apart with arrowdev.array(x).children"
    assert [child.to_pylist() for child in ad.array(x).children] == [[2, 3], [1, 2]]


def test_dtype_of_fields():
    x = np.ones(2, [("name", "i4"), ("other", "f8")])
    assert 'pass one field, x["name"].copy()' in hint_of("dtype", lambda: ad.array(x))
    assert ad.array(x["name"].copy()).to_pylist() == [1, 1]


@pytest.mark.parametrize("values", [["a", "bc"], [None, 1]])
@pytest.mark.parametrize("make", [np.array, np.ma.array])
def test_dtype_of_numpy(make, values):
    x = make(values)
    hint = hint_of("dtype", lambda: ad.array(x))
    assert hint == "pyarrow.array(x) makes a column of them"
    assert ad.array(pa.array(x)).to_pylist() == values


def test_dtype_without_a_name_in_numpy():
    data = np.full(2, 0x3F80, "u2")
    x = ad.Tensor.from_pointer(data.ctypes.data, (2,), "bfloat16", "cpu", owner=data)
    hint = hint_of("dtype", lambda: x.into(np.ndarray))
    assert hint.endswith('arrowdev.array(x).view("uint16")')
    assert ad.array(x).view("uint16").into(np.ndarray).tolist() == data.tolist()


def test_dtype_of_a_view():
    x = ad.array(np.arange(3))
    hint = hint_of("dtype", lambda: x.view("int8"))
    assert hint == "view() needs two fixed-width types of the same width"
    assert x.view("uint64").to_pylist() == [0, 1, 2]
    hint = hint_of("dtype", lambda: ad.array(x, "duration[s]"))
    assert "leave the type out and use arrowdev.array(x).view(type)" in hint
    assert str(ad.array(x).view("duration[s]").schema) == "duration[s]"


def test_event():
    data = np.arange(3)

    def tensor(stream):
        where = data.ctypes.data
        return ad.Tensor.from_pointer(
            where, (3,), "int64", "cuda_host:0", stream=stream, owner=data
        )

    hint = hint_of("event", lambda: tensor(5).synchronize())
    assert "import with stream=-1" in hint
    tensor(-1).synchronize()
    assert ad.array(tensor(-1)).to_pylist() == [0, 1, 2]


def test_malformed():
    data = np.arange(4, dtype="<i4")
    fields = {"typestr": "<i4", "data": (data.ctypes.data, False), "version": 3}

    def shown(shape):
        return Showing("__array_interface__", {**fields, "shape": shape}, keep=data)

    error = refused("malformed", lambda: ad.array(shown([4])))
    assert "shape is of type list, expected a tuple" in str(error)
    assert ad.array(shown((4,))).to_pylist() == [0, 1, 2, 3]


def test_ndim_of_a_date():
    x = np.array("2020-01-01", "M8[s]")
    assert "pass .reshape(1)" in hint_of("ndim", lambda: ad.array(x))
    assert len(ad.array(x.reshape(1))) == 1


def test_ndim():
    shape = (1,) * 65
    hint = hint_of("ndim", lambda: ad.tensor(Producer(shape=shape)))
    assert hint == "reshape it in the producing library"
    assert ad.tensor(Producer(shape=shape[1:])).ndim == 64


def test_nulls():
    x = pa.array([1, None])
    for provoke in (lambda: ad.tensor(x), lambda: ad.convert(x, np.ndarray)):
        hint = hint_of("nulls", provoke)
        assert hint == (
            'pass nulls="fill", fill_value=..., or nulls="ignore", as in '
            'arrowdev.tensor(x, nulls="fill", fill_value=...)'
        )
    assert ad.tensor(x, nulls="fill", fill_value=7).into(np.ndarray).tolist() == [1, 7]
    assert ad.tensor(x, nulls="ignore").into(np.ndarray)[0] == 1
    assert ad.convert(x, np.ndarray, nulls="fill", fill_value=7).tolist() == [1, 7]
    assert ad.convert(x, np.ndarray, nulls="ignore")[0] == 1


def test_nulls_of_a_struct():
    x = ad.array(pa.array([{"a": 1}, None]))
    assert "take .children[i] and .validity separately" in hint_of("nulls", lambda: x["a"])
    assert ad.array(x.children[0], validity=x.validity).to_pylist() == [1, None]
    assert "use arrowdev.array()" in hint_of("nulls", lambda: ad.record_batch(x))
    assert ad.array(x).to_pylist() == [{"a": 1}, None]


def test_nulls_of_a_list():
    x = pa.array([[1], None])
    hint = hint_of("nulls", lambda: ad.tensor(x))
    assert (
        "take .children[0], .validity and the offsets, .buffers[1], of arrowdev.array(x)" in hint
    )
    assert ad.array(x).children[0].to_pylist() == [1]
    assert ad.array(x).validity.to_pylist() == [True, False]
    assert ad.tensor(x.drop_null()).shape == (1, 1)


def test_nulls_of_a_masked_matrix():
    x = np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    hint = hint_of("nulls", lambda: ad.array(x))
    assert hint == "fill it with .filled(value), or mask whole rows"
    assert ad.array(x.filled(0)).to_pylist() == [[1, 0], [3, 4]]
    assert ad.array(np.ma.mask_rows(x)).to_pylist() == [None, [3, 4]]


def test_nulls_of_a_mask():
    mask = pa.array([True, None])
    assert "fill them first" in hint_of("nulls", lambda: ad.array(b"ab", validity=mask))
    assert ad.array(b"ab", validity=mask.fill_null(False)).to_pylist() == [97, None]


class Returning:
    def __init__(self, result):
        self.result = result

    def __arrow_c_array__(self, requested_schema=None):
        return self.result


def test_protocol():
    source = pa.array([1])
    error = refused("protocol", lambda: ad.array(Returning(5)))
    assert "found int, expected a tuple of two capsules" in str(error)
    assert ad.array(Returning(source.__arrow_c_array__())).to_pylist() == [1]


def test_readonly():
    x = ad.Tensor.from_pointer(NOWHERE, (4,), "int8", "cuda:0", readonly=True)
    hint = hint_of("readonly", x.__dlpack__)
    assert "max_version=(1, 0)" in hint and "ad.tensor(x, readonly=False)" in hint
    assert ad.tensor(ReturningTensor(x.__dlpack__(max_version=(1, 0)))).readonly
    assert ad.tensor(x, readonly=False).__dlpack__() is not None


class ReturningTensor:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **kwargs):
        return self.capsule


def test_refused():
    """Each protocol is named with the exception; a C++ stack is no part of it."""
    x = torch.eye(2).to_sparse()
    error = refused("refused", lambda: ad.tensor(x))
    assert "\n" not in str(error) and len(str(error)) < 400
    assert "__dlpack__ refused (BufferError: " in str(error)
    assert isinstance(error.__cause__, RuntimeError)
    assert ad.tensor(x.to_dense()).into(np.ndarray).tolist() == [[1, 0], [0, 1]]


def test_refused_by_a_class():
    """torch takes no pinned memory as such."""
    data = np.arange(3)
    x = ad.Tensor.from_pointer(data.ctypes.data, (3,), "int64", "cuda_host:0", owner=data)
    hint = hint_of("refused", lambda: x.into(torch.Tensor))
    assert hint == 'bring the data to the host with .to("cpu")'
    assert x.to("cpu").into(torch.Tensor).tolist() == [0, 1, 2]


def test_requested_schema():
    x = ad.array(b"abc")
    wanted = pa.string().__arrow_c_schema__()
    hint = hint_of("requested_schema", lambda: x.__arrow_c_array__(wanted))
    assert hint == "leave requested_schema out and convert afterwards"
    assert pa.array(x).cast("int64").to_pylist() == [97, 98, 99]


@pytest.mark.slow
def test_runtime():
    """The stand-in driver is named in the environment variable that the hint names."""
    environment = {"ARROWDEV_CUDA_LIBRARY": "/nowhere/libcuda.so.1"}
    isolation.run("follow_runtime_hint", "refused", environment=environment)
    environment["ARROWDEV_CUDA_LIBRARY"] = str(fakegpu.build("cuda"))
    isolation.run("follow_runtime_hint", "served", environment=environment)


def test_schema():
    hint = hint_of("schema", lambda: ad.array_stream(two_chunks(), schema="utf8"))
    assert hint == "leave schema out, or convert the stream with .map(function)"
    as_text = ad.array_stream(two_chunks()).map(lambda x: pa.array(x).cast("string"))
    assert ad.array_stream(as_text, schema="utf8").read_all().to_pylist() == list("012012")
    assert str(ad.array_stream(two_chunks()).schema) == "int64"


def test_schema_of_a_later_batch():
    """The reason, both types and the hint come through adapters and readers of other libraries."""
    source = [np.arange(2), np.arange(2.0)]
    for read in (list, lambda stream: list(stream.rechunk(10)), lambda x: x.read_all()):
        error = refused("schema", lambda read=read: read(ad.array_stream(source)))
        assert "it is float64, but the stream is int64" in str(error)
        assert "convert them before, or name it with schema=" in error.hint
    batches = [pa.record_batch({"a": x}) for x in source]
    reader = pa.RecordBatchReader.from_stream(ad.array_stream(batches))
    with pytest.raises(pa.ArrowInvalid, match=f"struct<a: float64>.*{re.escape(error.hint)}"):
        reader.read_all()
    same = [x.astype("float64") for x in source]
    assert ad.array_stream(same).read_all().to_pylist() == [0, 1, 0, 1]


def test_schema_of_arrays():
    x, y = np.arange(2), np.arange(2.0)
    hint = hint_of("schema", lambda: ad.concat([x, y]))
    assert hint == "bring all to one type first, in the producing library"
    assert ad.concat([x.astype(y.dtype), y]).to_pylist() == [0, 1, 0, 1]


def run_ends():
    return pa.RunEndEncodedArray.from_arrays(pa.array([30_000], pa.int16()), pa.array([1]))


def test_size():
    hint = hint_of("size", lambda: ad.array_stream([run_ends(), run_ends()]).read_all())
    assert "one by one with arrowdev.array_stream(), or ask the producer for a wider" in hint
    assert [len(x) for x in ad.array_stream([run_ends(), run_ends()])] == [30_000, 30_000]
    wide = pa.RunEndEncodedArray.from_arrays(pa.array([30_000], pa.int32()), pa.array([1]))
    assert len(ad.array_stream([wide, wide]).read_all()) == 60_000


def test_stream(device):
    x = ad.array(np.arange(3)).to("ext_dev:0")
    other, right = device.queue(1), device.queue(0)
    refused("stream", lambda: ad.array(x, stream=other))
    for stream in (right, None):
        assert ad.array(x, stream=stream).to("cpu").to_pylist() == [0, 1, 2]


def test_share():
    """The hint is followed: the Shared is kept."""
    hint = hint_of("share", lambda: ad.attach(str(ad.share(b"abc"))))
    assert hint == "keep the Shared until the others have attached"
    shared = ad.share(b"abc")
    assert bytes(ad.attach(str(shared))) == b"abc"


def test_strides():
    x = np.zeros((2, 4))[:, ::2]
    hint = hint_of("strides", lambda: ad.array(x, copy=False))
    assert hint == "allow a copy (copy=None), or make it contiguous in the producing library"
    assert ad.array(x, copy=None).to_pylist() == [[0, 0], [0, 0]]
    assert ad.array(np.ascontiguousarray(x), copy=False).to_pylist() == [[0, 0], [0, 0]]


def test_version():
    hint = hint_of("version", lambda: ad.tensor(Producer(version=(2, 0))))
    assert hint == "use a version of the producing library that speaks DLPack 1"
    assert ad.tensor(Producer(version=(1, 0))).ndim == 1


# Reasons that need another runtime than the software device.
ELSEWHERE = {
    "capture": "gpu_cuda/test_capture.py::test_hint_names_a_stream_that_can_wait",
    "kernel": "isolated/opencl_faults.py::no_kernels",
    "metadata": "aio/test_aio_bridges.py::test_unread_metadata_is_refused",
    "shape": "protocols/test_two_kinds.py::test_xarray_is_refused_as_a_column_and_as_a_tensor",
}


@pytest.mark.skipif(not DOCS.exists(), reason="not a checkout")
def test_every_reason_has_a_test():
    text = DOCS.read_text(encoding="utf-8").partition("## Reasons")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert documented
    for reason in documented - set(ELSEWHERE):
        assert any(f"{name}_".startswith(f"test_{reason}_") for name in globals()), reason
    for reason, place in ELSEWHERE.items():
        file, _, name = place.partition("::")
        text = (TESTS / file).read_text(encoding="utf-8")
        test = text.partition(f"def {name}(")[2].partition("\n\n\n")[0]
        assert f'reason == "{reason}"' in test and "# does what the hint says" in test


# --- .into(cls) and convert() --------------------------------------------------------------

COLUMN_CLASSES = {
    "numpy.ndarray": lambda: np.ndarray,
    "memoryview": lambda: memoryview,
    "polars.Series": lambda: pl.Series,
    "pandas.Series": lambda: pd.Series,
    "pyarrow.Array": lambda: pa.Array,
    "pyarrow.ChunkedArray": lambda: pa.ChunkedArray,
    "jax.Array": lambda: jax.Array,
}
TABLE_CLASSES = {
    "pyarrow.Table": lambda: pa.Table,
    "pyarrow.RecordBatch": lambda: pa.RecordBatch,
    "polars.DataFrame": lambda: pl.DataFrame,
    "pandas.DataFrame": lambda: pd.DataFrame,
}


def follow_to_cpu(obj, cls):
    error = refused("device", lambda: obj.into(cls))
    assert error.device == obj.device and str(obj.device) in str(error)
    assert error.hint == 'bring the data to the host with .to("cpu")'
    return obj.to("cpu").into(cls)


@pytest.mark.parametrize("name", COLUMN_CLASSES)
def test_into_a_class_of_the_host(name, device):
    column = ad.array(np.arange(3, dtype="int32")).to("ext_dev:0")
    for obj in (column, ad.tensor(column)):
        found = follow_to_cpu(obj, COLUMN_CLASSES[name]())
        assert np.asarray(found).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", TABLE_CLASSES)
def test_into_a_table_of_the_host(name, device):
    batch = ad.record_batch({"a": ad.array(np.arange(3)).to("ext_dev:0")})
    found = follow_to_cpu(batch, TABLE_CLASSES[name]())
    assert ad.record_batch(found)["a"].to_pylist() == [0, 1, 2]


def test_text_into_a_class_of_the_host(device):
    column = ad.array(pa.array(["a", "b"])).to("ext_dev:0")
    for cls in (pl.Series, pd.Series):
        assert list(follow_to_cpu(column, cls)) == ["a", "b"]


@pytest.mark.parametrize("name", TABLE_CLASSES)
def test_column_into_a_table(name):
    x, cls = pa.array([1, 2]), TABLE_CLASSES[name]()
    hint = hint_of("dtype", lambda: ad.convert(x, cls))
    assert hint == 'name the column: arrowdev.record_batch({"name": x})'
    found = ad.record_batch({"name": x}).into(cls)
    assert isinstance(found, cls) and ad.record_batch(found)["name"].to_pylist() == [1, 2]


def test_batch_into_a_series():
    x = ad.record_batch({"a": np.arange(2), "b": np.arange(2)})
    hint = hint_of("dtype", lambda: x.into(pd.Series))
    assert "arrowdev.array(x).field(...)" in hint
    assert "arrowdev.array(x).into(pandas.DataFrame)" in hint
    assert x.field("b").into(pd.Series).tolist() == [0, 1]
    assert x.into(pd.DataFrame).shape == (2, 2)
    matrix = ad.tensor(x)
    assert hint_of("dtype", lambda: matrix.into(pd.Series)).startswith(
        "pass numpy.asarray(x).ravel()"
    )
    assert len(ad.convert(np.asarray(matrix).ravel(), pd.Series)) == 4


def test_struct_into_a_series():
    x = ad.array(pa.array([{"a": 1}]))
    with pytest.raises(ad.ExchangeError, match="one column, not the fields of struct<a: int64>"):
        x.into(pd.Series)
    assert x.field("a").into(pd.Series).tolist() == [1]


@pytest.mark.parametrize("type_name", ["fixed_size_binary", "fixed_size_list"])
def test_rows_of_one_length_into_a_series(type_name):
    """pandas makes objects of them, as of lists of any length."""
    columns = {
        "fixed_size_binary": pa.array([b"abc"], pa.binary(3)),
        "fixed_size_list": pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
    }
    x = ad.array(columns[type_name])
    assert hint_of("copy", lambda: x.into(pd.Series, copy=False)) == "leave copy=False out"
    [found] = x.into(pd.Series)
    assert list(found) == list(columns[type_name][0].as_py())


@pytest.mark.parametrize("name", ["Series", "DataFrame"])
def test_integers_that_pandas_would_round(name):
    column = ad.array(pa.array([2**60 + 1, None]))
    x = column if name == "Series" else ad.record_batch({"a": column})
    hint = hint_of("dtype", lambda: x.into(getattr(pd, name)))
    source = re.fullmatch(
        r"pass them on by \.into\(pyarrow\.(\w+)\)\.to_pandas\(types_mapper=pandas\.ArrowDtype\)",
        hint,
    )[1]
    found = x.into(getattr(pa, source)).to_pandas(types_mapper=pd.ArrowDtype)
    assert type(found) is getattr(pd, name)
    assert (found if name == "Series" else found["a"]).tolist()[0] == 2**60 + 1


# --- TypeError and ValueError ----------------------------------------------------------------


def type_error(provoke, *words):
    error = error_of(TypeError, provoke)
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize("values", [[1, 2], [1, None], ["a", None], [[1], [2]], ()])
@pytest.mark.parametrize("library", ["numpy", "pyarrow"])
def test_python_values(values, library, monkeypatch):
    """The hint names the library that is imported, if that makes an array which is taken."""
    other = {"numpy": "pyarrow", "pyarrow": "numpy"}[library]
    monkeypatch.delitem(sys.modules, other)
    for take in (ad.array, ad.tensor):
        error = str(error_of(TypeError, lambda take=take: take(values)))
        if values in ([1, 2], ()):
            assert "; values need a type: " in error
            assert f"{library}.a" in error and f"{other}.a" not in error
        else:
            assert "; pyarrow.array(x) makes a column of them" in error
    monkeypatch.undo()
    assert ad.array(pa.array(values)).to_pylist() == list(values)
    if values == [1, 2]:
        assert ad.array(np.asarray(values, "int64")).to_pylist() == values


def test_dict_of_columns():
    x = {"a": np.arange(2)}
    for take in (ad.array, ad.tensor):
        type_error(lambda take=take: take(x), "; arrowdev.record_batch(x) makes a batch", "tried")
    assert ad.record_batch(x)["a"].to_pylist() == [0, 1]


def test_list_of_values_or_arrays():
    type_error(lambda: ad.array([1, 2]), "; values need a type: numpy.asarray(x, type) or pyarrow")
    assert ad.array(np.asarray([1, 2], "int8")).to_pylist() == [1, 2]
    assert ad.array(pa.array([1, 2], "int8")).to_pylist() == [1, 2]
    x = [np.arange(2), np.arange(2)]
    type_error(lambda: ad.array(x), "; arrowdev.concat(x) joins arrays")
    assert ad.concat(x).to_pylist() == [0, 1, 0, 1]


@pytest.mark.parametrize("x", [5, 5.0, "five"])
def test_single_value(x):
    type_error(lambda: ad.array(x), "; pyarrow.array([x]) makes an array")
    assert ad.array(pa.array([x])).to_pylist() == [x]


def test_generator():
    def x():
        yield from (np.arange(2), np.arange(3))

    type_error(lambda: ad.array(x()), "; arrowdev.array_stream(x) reads an iterator of arrays")
    assert [len(chunk) for chunk in ad.array_stream(x())] == [2, 3]


def test_lazy_frame():
    x = pl.LazyFrame({"a": [1, 2]})
    for take in (ad.array, ad.tensor, ad.record_batch, ad.array_stream):
        type_error(lambda take=take: take(x), "; x.collect() computes the data")
        assert take(x.collect()) is not None


def test_index_of_pandas():
    x = pd.Index([1, 2])
    type_error(lambda: ad.array(x), "; x.to_series() has the values")
    assert ad.array(x.to_series()).to_pylist() == [1, 2]


def test_parquet_file(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    x = parquet.ParquetFile(tmp_path / "a.parquet")
    for take in (ad.array, ad.array_stream):
        type_error(
            lambda take=take: take(x), "; x.read() reads it", "x.iter_batches()) its batches"
        )
    assert ad.array(x.read())["a"].to_pylist() == [1]
    assert ad.array_stream(x.iter_batches()).read_all()["a"].to_pylist() == [1]


def test_dataset():
    dataset = pytest.importorskip("pyarrow.dataset")
    x = dataset.dataset(pa.table({"a": [1]}))
    type_error(lambda: ad.array(x), "; x.to_table() reads it")
    assert ad.array(x.to_table())["a"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("methods", "hint"),
    [
        (["collect", "to_pyarrow"], "x.to_pyarrow() computes the data"),  # a column of ibis
        (["with_format", "map"], 'x.with_format("arrow")[:] reads it as a table'),
        (["to_pyarrow_table"], "x.to_pyarrow_table() reads it"),  # delta-rs
        (["to_arrow", "to_pandas"], "x.to_arrow() reads it"),  # LanceDB
        (["to_numpy", "numpy"], "x.to_numpy() has the values"),
        (["numpy"], "x.numpy() has the values"),
    ],
)
def test_methods_of_foreign_classes(methods, hint):
    x = type("Table", (), dict.fromkeys(methods, lambda self: None))()
    type_error(lambda: ad.array(x), f"; {hint} (tried")


def test_class_is_named_with_its_module():
    for x, name in ((5, "int"), (pl.LazyFrame(), "polars.lazyframe.frame.LazyFrame")):
        error = error_of(TypeError, lambda x=x: ad.array(x))
        assert str(error).startswith(f"{name} speaks none of the protocols")
    nameless = type("Nameless", (), {"__module__": None})
    assert str(error_of(TypeError, lambda: ad.array(nameless()))).startswith(
        "Nameless speaks none"
    )


@pytest.mark.parametrize("method", ["nchunks", "read_direct"])  # zarr, h5py
def test_dataset_of_a_file(method):
    class Dataset:
        def __getitem__(self, key):
            return np.ones((2, 3))[key]

    setattr(Dataset, method, None)
    x = Dataset()
    for take in (ad.array, ad.tensor):
        type_error(
            lambda take=take: take(x),
            "; read a dataset as a whole, as in arrowdev.array(x[...]) (",
        )
    assert len(ad.array(x[...])) == 2
    assert [len(row) for row in ad.array_stream(x)] == [3, 3]


def test_group_of_datasets():
    x = type(
        "Group", (), {"require_group": None, "__getitem__": lambda self, name: np.arange(2)}
    )()
    type_error(lambda: ad.array(x), "; it is a group, read one of its arrays: arrowdev.array(x[n")
    assert ad.array(x["a"][...]).to_pylist() == [0, 1]


def test_connection_of_duckdb():
    x = duckdb.connect()
    for take in (ad.array, ad.array_stream):
        type_error(lambda take=take: take(x), "; x.sql(query) gives data")
    assert ad.array(x.sql("select 1 as a"))["a"].to_pylist() == [1]


def test_type_of_polars_alone():
    x = pl.Series([1], dtype=pl.Int128)
    error = error_of(ad.InvalidArrowError, lambda: ad.array(x))
    assert error.hint.endswith("x.cast(polars.Decimal(38, 0))")
    assert ad.array(x.cast(pl.Decimal(38, 0))).to_pylist() == [1]
    frame = pl.DataFrame({"a": x})
    assert error_of(ad.InvalidArrowError, lambda: ad.array(frame)).hint == error.hint


@pytest.mark.parametrize("x", [range(2), {0, 1}, frozenset({0, 1})])
def test_values_without_order_or_memory(x):
    type_error(lambda: ad.array(x), "; numpy.asarray(list(x)) makes an array of the values")
    assert ad.array(np.asarray(list(x))).to_pylist() == [0, 1]


def test_none_and_classes():
    type_error(lambda: ad.array(None), "; a function without `return` gives None")
    for x in (dict, object, np.ndarray, pa.Table, pl.DataFrame, pd.Series, torch.Tensor, ad.Array):
        for take in (ad.array, ad.tensor, ad.record_batch):
            type_error(lambda x=x, take=take: take(x), "; it is a class, not an instance of it")
        type_error(lambda x=x: ad.array_stream(x), "; it is a class, not an instance of it")
    type_error(
        lambda: ad.array(pl.DataFrame), "the class polars.dataframe.frame.DataFrame speaks none"
    )
    assert ad.array(np.arange(2)).to_pylist() == [0, 1]


def test_class_whose_metaclass_speaks():
    class Meta(type):
        def __arrow_c_array__(cls, requested_schema=None):
            return pa.array([1]).__arrow_c_array__()

    class Speaking(metaclass=Meta):
        pass

    assert ad.array(Speaking).to_pylist() == [1]


def test_path_of_a_file(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    x = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": [1]}), x)
    for take in (ad.array, ad.array_stream):
        type_error(lambda take=take: take(x), "path of a file", "pyarrow.parquet.read_table(x)")
        assert take(parquet.read_table(x)) is not None


def test_unknown_keyword():
    x = np.arange(2)
    type_error(
        lambda: ad.array(x, dtype="int64"), "argument 'dtype'; there are ", "device", "copy"
    )
    type_error(lambda: ad.array(x, dtype="int64"), "; the first 2 arguments have no keyword")
    assert ad.array(x, "int64").to_pylist() == [0, 1]


def test_positional_arguments():
    x = np.arange(2)
    type_error(lambda: ad.concat(x, x), "concat() takes at most 1 positional argument (2 given)")


def test_number_in_place_of_a_device():
    type_error(
        lambda: ad.array(np.arange(2)).to(0), 'a device is a str such as "cuda:0"', "not int"
    )


@pytest.mark.parametrize("key", [[0, 2], np.array([0, 2]), np.array([True, False, True]), 1.0])
def test_rows_by_a_list_or_mask(key):
    x = ad.array(np.arange(3))
    type_error(
        lambda: x[key], f"not {type(key).__name__ if type(key) in (list, float) else 'numpy'}"
    )
    type_error(lambda: x[key], "; masks and lists make a copy", "as pyarrow.array(x).take(rows)")
    assert pa.array(x).take([0, 2]).to_pylist() == [0, 2]


def test_target_that_is_no_class():
    x = ad.array(np.arange(2))
    for obj in (x, ad.tensor(x)):
        for target in ("torch.Tensor", np, np.asarray, None):
            type_error(lambda obj=obj, target=target: obj.into(target), "; import the class")
        data = torch.ones(1)
        type_error(lambda obj=obj, data=data: obj.into(data), "instance of ", "as type(x)")
        assert isinstance(obj.into(type(data)), torch.Tensor)


@pytest.mark.parametrize("cls", [list, tuple, dict, str, int])
def test_into_a_builtin_class(cls):
    x = ad.array(np.arange(2))
    type_error(lambda: x.into(cls), "numpy.asarray(x).tolist()", ".to_pylist()")
    assert np.asarray(x).tolist() == x.to_pylist() == [0, 1]


def test_field_of_a_column():
    for x, hint in (
        (ad.array(np.arange(2)), "it is a column itself"),
        (ad.array(pa.array([[1]])), "take .children[i]"),
    ):
        for provoke in (lambda x=x: x.field("a"), lambda x=x: x.field(0), lambda x=x: x["a"]):
            type_error(provoke, f"only a struct has fields, and this array is of type {x.schema}")
            type_error(provoke, hint)
    assert ad.array(pa.array([[1]])).children[0].to_pylist() == [1]


def test_counts_are_in_singular_or_plural():
    for n in (1, 2):
        x = pa.array([1, *[None] * n])
        s = "s" if n > 1 else ""
        assert f"has {n} null{s} among {n + 1} values," in str(
            refused("nulls", lambda x=x: ad.tensor(x))
        )
        names = [f"c{i}" for i in range(n)]
        batch = ad.record_batch([np.arange(2)] * n, names=names)
        few = ad.Array.from_buffers("int8", n, [None, b"x" * n])
        assert f"Buffer {n} byte{s} on" in repr(few.buffers[1])
        error = error_of(
            ValueError, lambda n=n: ad.Array.from_buffers("int8", 9, [None, b"x" * n])
        )
        assert f"has {n} byte{s}, but" in str(error)
        one = ad.tensor(np.zeros(n, "int8"))
        error = error_of(IndexError, lambda one=one: one[9])
        assert str(error).endswith(f"which has {n} element{s}")
        children = "child" if n == 1 else "children"
        assert f"an array with {n} {children}" in str(
            error_of(IndexError, lambda batch=batch: batch.field(9))
        )


def test_handler_of_an_async_stream():
    async def use_twice():
        stream, handler = aio.consumer()
        await asyncio.gather(
            aio.produce(handler, [np.arange(2)]), anext(stream), return_exceptions=True
        )
        with pytest.raises(ad.ExchangeError, match="is for one stream") as caught:
            await aio.produce(handler, [np.arange(2)])
        assert caught.value.reason == "consumed"
        assert caught.value.hint.endswith("make a new one with arrowdev.aio.consumer()")
        another, handler = aio.consumer()
        _, batch = await asyncio.gather(
            aio.produce(handler, [np.arange(2)]), anext(another), return_exceptions=True
        )
        return len(batch)

    assert asyncio.run(use_twice()) == 2


def test_type_without_data():
    for x in (pa.int8(), pa.field("a", pa.int8()), ad.schema("int8")):
        type_error(lambda x=x: ad.array(x), "; it has no data, arrowdev.schema(x) takes its type")
        assert ad.schema(x).format == "c"


def test_argument_is_named():
    type_error(lambda: ad.array(np.arange(2), validity=[True, False]), "validity: list speaks ")
    type_error(lambda: ad.concat(5), "concat() takes a sequence of arrays")


def test_protocols_are_named_last():
    for x in ({}, [], 5, pl.LazyFrame(), object()):
        assert re.search(
            r"\(tried: .*, a pair of capsules\)$",
            str(error_of(TypeError, lambda x=x: ad.array(x))),
        )


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ([1], TypeError),
        (np.array(["a"]), ad.ExchangeError),
        (Returning(5), ad.ExchangeError),
    ],
)
def test_column_and_array_are_named(bad, expected):
    error = error_of(expected, lambda: ad.record_batch({"a": b"1", "b": bad}))
    assert str(error).startswith('column "b": ')
    error = error_of(expected, lambda: ad.concat([b"1", bad]))
    assert str(error).startswith("array 1: ")


@pytest.mark.parametrize("raised", [KeyboardInterrupt("stop"), MemoryError("a", 5), MemoryError()])
def test_other_exceptions_keep_their_arguments(raised):
    class Raising:
        def __arrow_c_array__(self, requested_schema=None):
            raise raised

    arguments = raised.args
    assert error_of(type(raised), lambda: ad.record_batch({"a": Raising()})).args == arguments


@pytest.mark.parametrize("step", [2, -1])
def test_slice_with_a_step(step):
    x = ad.array(np.arange(5))
    error = error_of(ValueError, lambda: x[::step])
    assert f"pyarrow.array(x)[::{step}]" in str(error)
    assert f"numpy.asarray(x)[::{step}]" in str(error)
    expected = list(range(5))[::step]
    assert ad.array(pa.array(x)[::step]).to_pylist() == expected
    assert ad.array(np.asarray(x)[::step]).to_pylist() == expected
    text = ad.array(pa.array(["a", None, "c"]))
    assert ad.array(pa.array(text)[::step]).to_pylist() == ["a", None, "c"][::step]


def test_messages_have_one_set_of_names():
    """The name that was passed stands in the message."""
    for name in ("float16", "float32", "float64"):
        error = refused("dtype", lambda name=name: ad.array(np.arange(3), name))
        assert f"the data are int64, not {name};" in str(error)
        column = np.ones(2, name)
        assert str(ad.array(column).schema) == ad.tensor(column).dtype == name


def test_class_in_place_of_a_device():
    x = ad.array(np.arange(3))
    for obj in (x, ad.tensor(x)):
        type_error(lambda obj=obj: obj.to(torch.Tensor), "; .into(cls) makes an instance")
        assert obj.into(torch.Tensor).tolist() == [0, 1, 2]


def test_schema_of_data():
    for x in (pa.table({"a": [1]}), pl.DataFrame({"a": [1]}), np.arange(3)):
        type_error(
            lambda x=x: ad.schema(x), "; the type of data is arrowdev.array_stream(x).schema"
        )
        assert ad.array_stream(x).schema == ad.array(x).schema


def test_schema_of_a_dtype():
    for x, name in ((torch.int64, "int64"), (np.dtype("f4"), "float32")):
        type_error(lambda x=x: ad.schema(x), "; pass the name of a dtype;")
        assert str(ad.schema(name)) == name


def test_async_stream_is_no_iterable():
    source = ad.array_stream([np.arange(2), np.arange(3)])
    x = aio.connect(source)
    for provoke in (lambda: list(x), lambda: ad.array_stream(x)):
        type_error(provoke, "is read with `async for`; for `for`, take x.to_stream()")
    type_error(lambda: ad.array(x), "; read its arrays with `async for`")
    assert [len(batch) for batch in x.to_stream()] == [2, 3]

    async def read():
        return [len(batch) async for batch in aio.connect(ad.array_stream([b"ab"]))]

    assert asyncio.run(read()) == [2]


def test_mask_of_a_type_without_nulls():
    type = pa.field("x", pa.int64(), nullable=False)
    x, mask = ad.array(np.arange(2), type), np.array([True, False])
    error = error_of(ValueError, lambda: ad.array(x, validity=mask))
    assert str(error).endswith("ask for a nullable type: arrowdev.array(x, type)")
    assert ad.array(x, "int64", validity=mask).to_pylist() == [0, None]


def test_bools_as_a_bitmap():
    mask = np.array([True, False])
    error = error_of(ValueError, lambda: ad.Array.from_buffers("int8", 2, [mask, b"ab"]))
    assert str(error).endswith("use arrowdev.array(..., validity=)")
    without = ad.Array.from_buffers("int8", 2, [None, b"ab"])
    assert ad.array(without, validity=mask).to_pylist() == [97, None]


def test_column_in_place_of_a_batch():
    x = np.arange(3)
    type_error(lambda: ad.record_batch(x), "pass a mapping of names to columns")
    assert ad.record_batch({"a": x})["a"].to_pylist() == [0, 1, 2]
    type_error(lambda: ad.record_batch([x]), "needs names=, one per column")
    assert ad.record_batch([x], names=["a"])["a"].to_pylist() == [0, 1, 2]


def test_batches_in_place_of_columns():
    x = [pa.record_batch({"a": [1]}), pa.record_batch({"a": [2]})]
    frames = pl.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}), pa.table({"a": [1]})
    for batches in (x, list(map(ad.record_batch, x)), frames):
        type_error(
            lambda batches=batches: ad.record_batch(batches),
            "no name of its own; arrowdev.array_stream(x) takes batches",
        )
        assert ad.array_stream(batches).schema.children[0].name == "a"
    assert ad.array_stream(x).read_all()["a"].to_pylist() == [1, 2]
    error = error_of(TypeError, lambda: ad.record_batch([np.arange(2)]))
    assert str(error).endswith("has no name of its own")


def test_class_that_nothing_makes():
    class Image:
        @classmethod
        def fromarray(cls, x):
            return cls()

    type_error(
        lambda: ad.convert(np.arange(2), Image),
        "function of the library that makes one (its constructor, from...())",
        "arrowdev.register_target()",
    )
    ad.register_target(Image, Image.fromarray)
    assert isinstance(ad.convert(np.arange(2), Image), Image)
