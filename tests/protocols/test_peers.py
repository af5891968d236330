"""Numbers between arrowdev and every installed library, in both directions, zero-copy."""

import importlib.util
import subprocess
import sys

import isolation
import pytest
from loops import looped
from peer import Peer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
arro3 = Peer("arro3.core")
jax = Peer("jax")
nanoarrow = Peer("nanoarrow")
nanoarrow_device = Peer("nanoarrow.device")
pd = Peer("pandas", "3.0")  # the first with an Arrow interface on Series
pl = Peer("polars")
torch = Peer("torch")
tvm_ffi = Peer("tvm_ffi")

DTYPES = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
DTYPES += ["float16", "float32", "float64"]
every_dtype = looped("dtype", DTYPES)


@pytest.fixture(scope="module", autouse=True)
def jax_with_64_bits():
    try:
        import jax
    except ImportError:
        yield
        return
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def aligned(dtype):
    """Six numbers at a multiple of 64 bytes, since jax copies unaligned data."""
    nbytes = 6 * np.dtype(dtype).itemsize
    raw = np.zeros(nbytes + 64, "u1")
    start = -raw.ctypes.data % 64
    data = raw[start : start + nbytes].view(dtype)
    top = np.iinfo(dtype) if data.dtype.kind in "iu" else np.finfo(dtype)
    data[:] = [top.min, top.max, 0, 1, 2, 3]
    return data


class Only:
    """Exposes one protocol of an object and nothing else."""

    def __init__(self, inner, *names):
        self.inner = inner
        self.names = names

    def __getattr__(self, name):
        if name in self.__dict__["names"]:
            return getattr(self.inner, name)
        raise AttributeError(name)


def only_dlpack(thing):
    return Only(thing, "__dlpack__", "__dlpack_device__")


# --- export: a library reads what arrowdev exports ------------------------------------

# name: (reader, address of the first value, values); a reader takes any producer.
DLPACK_CONSUMERS = {
    "numpy": (lambda x: np.from_dlpack(x), lambda x: x.ctypes.data, lambda x: x.tolist()),
    "torch": (lambda x: torch.from_dlpack(x), lambda x: x.data_ptr(), lambda x: x.tolist()),
    "jax": (
        lambda x: jax.numpy.from_dlpack(x),
        lambda x: x.unsafe_buffer_pointer(),
        lambda x: np.asarray(x).tolist(),
    ),
    "tvm_ffi": (
        lambda x: tvm_ffi.from_dlpack(x),
        lambda x: np.from_dlpack(x).ctypes.data,
        lambda x: np.from_dlpack(x).tolist(),
    ),
    "arrowdev": (
        ad.from_dlpack,
        lambda x: x.data_ptr,
        lambda x: np.asarray(x).tolist(),
    ),
}


@every_dtype
@pytest.mark.parametrize("name", DLPACK_CONSUMERS)
@pytest.mark.parametrize("make", [ad.tensor, ad.array])
def test_dlpack_out(dtype, name, make):
    data = aligned(dtype)
    read, address, values = DLPACK_CONSUMERS[name]
    found = read(make(data))
    assert dtype in str(found.dtype)
    assert values(found) == data.tolist()
    assert address(found) == data.ctypes.data


ARROW_CONSUMERS = {
    "pyarrow": (pa.array, lambda x: x.buffers()[1].address, lambda x: x.to_pylist()),
    "nanoarrow": (
        lambda x: nanoarrow.Array(x),
        lambda x: np.asarray(x.buffers[1]).ctypes.data,
        lambda x: x.to_pylist(),
    ),
    "arro3": (
        lambda x: arro3.Array.from_arrow(x),
        lambda x: ad.array(x).buffers[1].data_ptr,
        lambda x: x.to_pylist() if hasattr(x, "to_pylist") else [i.as_py() for i in x],
    ),
    "polars": (lambda x: pl.Series(x), None, lambda x: x.to_list()),
    "pandas": (lambda x: pd.Series.from_arrow(x), None, lambda x: x.tolist()),
    "arrowdev": (ad.array, lambda x: x.buffers[1].data_ptr, lambda x: x.to_pylist()),
}


def device_array(thing):
    return ad.array(nanoarrow_device.c_device_array(thing))


# Readers that use the device protocol where there is no other.
DEVICE_CONSUMERS = {
    "pyarrow": ARROW_CONSUMERS["pyarrow"],
    "nanoarrow": (device_array, lambda x: x.buffers[1].data_ptr, lambda x: x.to_pylist()),
    "arrowdev": ARROW_CONSUMERS["arrowdev"],
}

ARROW_OUT = [
    pytest.param(show, *row, id=f"{show.__name__}-{name}")
    for show, consumers in (
        (ad.array, ARROW_CONSUMERS),
        (ad.tensor, DEVICE_CONSUMERS),
        (ad.as_host, ARROW_CONSUMERS),
        (ad.as_device, DEVICE_CONSUMERS),
    )
    for name, row in consumers.items()
]


@every_dtype
@pytest.mark.parametrize(("show", "read", "address", "values"), ARROW_OUT)
def test_arrow_out(dtype, show, read, address, values):
    data = aligned(dtype)
    found = read(show(data))
    assert values(found) == data.tolist()
    assert address is None or address(found) == data.ctypes.data


# --- import: arrowdev reads what a library exports ---------------------------------------

# name: from a NumPy array to (its object, address of the first value)


def _numpy(data):
    return data, data.ctypes.data


def _torch(data):
    return torch.from_numpy(data), data.ctypes.data


def _jax(data):
    made = jax.numpy.asarray(data)
    return made, made.unsafe_buffer_pointer()


def _tvm_ffi(data):
    return tvm_ffi.from_dlpack(data), data.ctypes.data


def _pyarrow(data):
    made = pa.array(data)
    return made, made.buffers()[1].address


def _nanoarrow(data):
    return nanoarrow.Array(pa.array(data)), data.ctypes.data


def _polars(data):
    made = pl.Series(data)
    return made, None


def _pandas(data):
    return pd.Series(data), None


def _arro3(data):
    return arro3.Array.from_arrow(pa.array(data)), data.ctypes.data


PRODUCERS = {
    "numpy": _numpy,
    "torch": _torch,
    "jax": _jax,
    "tvm_ffi": _tvm_ffi,
    "pyarrow": _pyarrow,
    "nanoarrow": _nanoarrow,
    "polars": _polars,
    "pandas": _pandas,
    "arro3": _arro3,
}
DLPACK_PRODUCERS = ("numpy", "torch", "jax", "tvm_ffi", "pyarrow")


@every_dtype
@pytest.mark.parametrize("name", PRODUCERS)
def test_in(dtype, name):
    data = aligned(dtype)
    source, address = PRODUCERS[name](data)
    array, tensor = ad.array(source), ad.tensor(source)
    assert array.to_pylist() == np.asarray(tensor).tolist() == data.tolist()
    assert tensor.dtype == dtype
    assert array.schema == ad.schema(dtype) or array.schema.equals(dtype)
    for place in (array.buffers[1].data_ptr, tensor.data_ptr):
        assert address is None or place == address
    assert tensor.device == array.device == ad.device("cpu")


@every_dtype
@pytest.mark.parametrize("name", DLPACK_PRODUCERS)
def test_dlpack_in(dtype, name):
    data = aligned(dtype)
    source, address = PRODUCERS[name](data)
    for way in (ad.array, ad.tensor, ad.from_dlpack):
        found = way(only_dlpack(source))
        assert np.asarray(found).tolist() == data.tolist()
        assert address == (found.buffers[1] if way is ad.array else found).data_ptr


@every_dtype
@pytest.mark.parametrize("source", PRODUCERS)
def test_chain(dtype, source):
    """From every library through arrowdev to every library that shares memory."""
    data = aligned(dtype)
    made, _ = PRODUCERS[source](data)
    array = ad.array(made)
    where = array.buffers[1].data_ptr
    for read, address, values in DLPACK_CONSUMERS.values():
        found = read(array)
        assert values(found) == data.tolist()
        if where % 64 == 0:
            assert address(found) == where
    for name in ("pyarrow", "nanoarrow", "arro3"):
        read, address, values = ARROW_CONSUMERS[name]
        found = read(array)
        assert values(found) == data.tolist() and address(found) == where


@every_dtype
def test_matrices(dtype):
    data = aligned(dtype).reshape(2, 3)
    sources = [data, torch.from_numpy(data), tvm_ffi.from_dlpack(data)]
    for source in sources:
        array = ad.array(source)
        for read, address, values in DLPACK_CONSUMERS.values():
            found = read(array)
            assert values(found) == data.tolist()
            assert address(found) == data.ctypes.data
        column = pa.array(array)
        assert column.to_numpy_ndarray().tolist() == data.tolist()
        assert column.storage.flatten().buffers()[1].address == data.ctypes.data


def test_frames():
    columns = {"a": np.arange(3), "b": np.arange(3) / 2}
    expected = {name: values.tolist() for name, values in columns.items()}
    frames = [pa.record_batch(columns), pa.table(columns), pl.DataFrame(columns)]
    frames += [pd.DataFrame(columns), arro3.RecordBatch.from_arrow(pa.record_batch(columns))]
    for frame in frames:
        batch = ad.record_batch(frame)
        assert {name: batch[name].to_pylist() for name in expected} == expected
        for back in (pa.table, pl.DataFrame, arro3.Table.from_arrow, pd.DataFrame.from_arrow):
            assert pa.table(back(batch)).select(["a", "b"]).to_pydict() == expected


@pytest.mark.parametrize("name", ["pyarrow", "nanoarrow", "arro3", "polars"])
def test_nulls_and_text(name):
    values = ["a", None, "ü" * 20]
    read, _, back = ARROW_CONSUMERS[name]
    array = ad.array(read(pa.array(values)))
    assert array.to_pylist() == values and array.null_count == 1
    assert back(read(array)) == values


def test_no_library_is_imported():
    """A class that is passed in brings its own library; arrowdev imports none."""
    code = (
        "import sys, arrowdev as ad\n"
        "array = ad.array(b'abc')\n"
        "array.into(memoryview); array.to_pylist(); repr(array); ad.as_host(array)\n"
        "libraries = {'numpy', 'pyarrow', 'torch', 'jax', 'pandas', 'polars', 'nanoarrow'}\n"
        "assert not libraries & set(sys.modules), libraries & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_tensorflow():
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("could not import 'tensorflow'")
    isolation.run("tensorflow_peer")


def test_nanoarrow_is_not_asked_for_views():
    assert nanoarrow.Array  # skips without it
    isolation.run("nanoarrow_views")


def test_class_that_only_says_it_is_of_nanoarrow(monkeypatch):
    monkeypatch.delitem(sys.modules, "nanoarrow", raising=False)

    class Array:
        schema = 5

        def __arrow_c_array__(self, requested_schema=None):
            return pa.array([1]).__arrow_c_array__()

    Array.__module__ = "nanoarrow.array"
    assert ad.array(Array()).to_pylist() == [1]
