"""The type table of docs/types.md, row by row and in both directions, with a real peer at each end
if there is one. Round trips are compared bit for bit."""

import contextlib
import json

import pytest
import type_checks
from dlpack_ctypes import Producer
from peer import Peer
from type_checks import refused

import arrowdev as ad
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
jax = Peer("jax")
ml_dtypes = Peer("ml_dtypes")
nanoarrow = Peer("nanoarrow")
pl = Peer("polars")
torch = Peer("torch")

EXTENSION = b"ARROW:extension:name"
NUMBERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMBERS += ["float16", "float32", "float64"]
FLOAT8 = ["e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"]
# torch's types, with the width of an element
TORCH_ONLY = {
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}


def random_bytes(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, n, dtype="u1")


def numbers(dtype, shape):
    """Arbitrary bits, including NaNs of every kind."""
    dtype = np.dtype(dtype)
    return random_bytes(int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)


def bits(array):
    """The bits, since NaN does not equal itself."""
    return np.ascontiguousarray(array).view("u1").tolist()


def is_at(tensor, array):
    return tensor.data_ptr == array.ctypes.data


@contextlib.contextmanager
def known_to_pyarrow(array):
    """Registers types, so that pyarrow keeps arrowdev.dlpack (docs/libraries/pyarrow.md)."""

    class DLPackType(pa.ExtensionType):
        def __init__(self, storage, metadata):
            self.metadata = metadata
            super().__init__(storage, "arrowdev.dlpack")

        def __arrow_ext_serialize__(self):
            return self.metadata

        @classmethod
        def __arrow_ext_deserialize__(cls, storage, metadata):
            return cls(storage, metadata)

    leaf = array.schema
    while leaf.metadata[EXTENSION] != b"arrowdev.dlpack":
        leaf = leaf.children[0]
    storage = pa.list_(pa.float32(), 2) if leaf.children else pa.uint8()
    pa.register_extension_type(DLPackType(storage, leaf.metadata[b"ARROW:extension:metadata"]))
    try:
        yield
    finally:
        pa.unregister_extension_type("arrowdev.dlpack")


# --- numbers -----------------------------------------------------------------------------

# Columns of each library over a NumPy array, and tensors of each over a column.
COLUMNS = {
    "numpy": lambda x: x,
    "pyarrow": lambda x: pa.array(x),
    "pyarrow chunked": lambda x: pa.chunked_array([pa.array(x)]),
    "polars": lambda x: pl.Series(x),
    "nanoarrow": lambda x: nanoarrow.Array(pa.array(x)),
    "arrowdev": lambda x: ad.array(x),
}
TENSORS = {
    "numpy": lambda x: ad.tensor(x).into(np.ndarray),
    "torch": lambda x: torch.from_dlpack(ad.tensor(x)).numpy(),
    "jax": lambda x: np.asarray(jax.numpy.from_dlpack(ad.tensor(x, copy=True))),
    "buffer": lambda x: np.asarray(memoryview(ad.tensor(x))),
}


@pytest.fixture(autouse=True)
def jax_with_64_bits():
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            import jax

            before = jax.config.jax_enable_x64
            stack.callback(jax.config.update, "jax_enable_x64", before)
            jax.config.update("jax_enable_x64", True)
        yield


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("column", COLUMNS)
def test_numbers_become_tensors(dtype, column):
    if column == "polars" and dtype == "float16":
        pytest.importorskip("polars", "1.36")  # the first with a 16-bit float
    data = numbers(dtype, 9)
    source = COLUMNS[column](data)
    for name, read in TENSORS.items():
        assert bits(read(source)) == bits(data), name


@pytest.mark.parametrize("dtype", NUMBERS)
def test_tensors_become_numbers(dtype):
    data = numbers(dtype, 9)
    sources = {
        "numpy": data,
        "torch": torch.from_numpy(data),
        "jax": jax.numpy.asarray(data),
        "tensor": ad.tensor(data),
    }
    for name, source in sources.items():
        array = ad.array(source)
        assert array.schema.metadata is None and array.null_count == 0
        assert bits(pa.array(array).to_numpy()) == bits(data), name
    assert ad.array(data[:0]).to_pylist() == []


@pytest.mark.parametrize("offset", [0, 1, 7, 8, 9])
def test_offset_is_added_to_the_pointer(offset):
    data = np.arange(10, dtype="i4")
    column = pa.array(data)[offset:]
    tensor = ad.tensor(column, copy=False)
    assert tensor.data_ptr == column.buffers()[1].address + offset * 4
    assert np.asarray(tensor).tolist() == data[offset:].tolist()


# --- bools -------------------------------------------------------------------------------

FLAGS = [True, False, False, True, True, True, False, True, False, True]


def test_bool8_is_a_bool_of_one_byte():
    data = np.array(FLAGS)
    column = ad.array(data, copy=False)
    theirs = pa.array(column)
    assert theirs.type == pa.bool8() and theirs.to_pylist() == FLAGS
    for source in (column, theirs):
        tensor = ad.tensor(source, copy=False)
        assert tensor.dtype == "bool" and np.asarray(tensor).tolist() == FLAGS
        assert is_at(tensor, data)
        assert torch.from_dlpack(tensor).dtype == torch.bool


@pytest.mark.parametrize("offset", range(9))
def test_bits_are_copied_to_bools(offset):
    column = pa.array(FLAGS * 3)[offset:]
    assert np.asarray(ad.tensor(column)).tolist() == (FLAGS * 3)[offset:]
    assert refused(ad.tensor, column, copy=False).reason == "copy"
    assert not hasattr(ad.array(column), "__dlpack__")
    assert ad.tensor(column).into(torch.Tensor).tolist() == (FLAGS * 3)[offset:]


def test_bools_are_copied_to_bits_on_request():
    data = np.array(FLAGS)
    assert pa.array(ad.array(data, "bool")).equals(pa.array(FLAGS))
    assert ad.array(data, pa.bool_()).schema.format == "b"
    assert refused(ad.array, data, "bool", copy=False).reason == "dtype"
    polars = pl.Series("x", FLAGS)
    assert np.asarray(ad.tensor(polars)).tolist() == FLAGS


# --- N-d -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "float16", "uint64"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (1, 1, 5), (0, 3), (3, 0), (2, 3, 1, 2, 2)])
def test_rows_are_fixed_shape_tensors(dtype, shape):
    data = numbers(dtype, shape)
    column = pa.array(ad.array(data, copy=False))
    assert isinstance(column.type, pa.FixedShapeTensorType)
    assert list(column.type.shape) == list(shape[1:]) and len(column) == shape[0]
    if data.size:
        assert bits(column.to_numpy_ndarray()) == bits(data)
    back = ad.tensor(column, copy=False)
    assert back.shape == shape and bits(np.asarray(back)) == bits(data)
    assert is_at(back, data) or data.size == 0


@pytest.mark.parametrize("axes", [(0, 2, 1), (0, 1, 2)])
@pytest.mark.parametrize("names", [None, ["a", "b"]])
def test_permutation_and_names(axes, names):
    storage = pa.array([list(range(6)), list(range(6, 12))], pa.list_(pa.int32(), 6))
    type = pa.fixed_shape_tensor(
        pa.int32(), [2, 3], permutation=[axis - 1 for axis in axes[1:]], dim_names=names
    )
    column = pa.ExtensionArray.from_storage(type, storage)
    tensor = ad.tensor(column, copy=False)
    assert tensor.shape == column.to_numpy_ndarray().shape
    assert np.asarray(tensor).tolist() == column.to_numpy_ndarray().tolist()
    assert pa.array(ad.array(column)).type == type  # the names round-trip, too
    assert ad.array(column).to_pylist() == np.asarray(tensor).tolist()
    assert ad.array(column)[1] == np.asarray(tensor)[1].tolist()
    back = pa.array(ad.array(tensor, copy=False))
    assert back.to_numpy_ndarray().tolist() == column.to_numpy_ndarray().tolist()


def test_other_shape_or_permutation_is_refused():
    """The order of elements would change silently."""
    data = np.arange(12.0).reshape(2, 2, 3)
    turned = np.arange(12.0).reshape(2, 3, 2).transpose(0, 2, 1)  # the same shape
    column, other = ad.array(data), ad.array(turned)
    for source, type in (
        (turned, column.schema),
        (data, other.schema),
        (data, pa.fixed_shape_tensor(pa.float64(), [3, 2])),
        (data, pa.fixed_shape_tensor(pa.float64(), [6])),
        (ad.record_batch({"x": other}), ad.record_batch({"x": column}).schema),
    ):
        error = refused(ad.array, source, type)
        assert error.reason == "dtype" and "other indices" in str(error)
        assert ('order="C"' in error.hint) == (source is turned)  # only if following it helps
    stream = ad.array_stream([data, turned], schema=column.schema)
    assert refused(stream.read_all).reason == "dtype"
    batch = ad.record_batch({"x": other}).schema
    with pytest.raises(ad.InvalidArrowError, match="other indices"):
        ad.Array.from_buffers(batch, 2, [None], children=[column])
    # the code of the hint
    joined = ad.concat([column, ad.array(ad.tensor(turned, order="C"), column.schema)])
    assert np.asarray(ad.tensor(joined)).tolist() == np.concatenate([data, turned]).tolist()


def test_labels_of_tensors():
    """Names, no extension, and axes of one element leave every element in place."""
    data = np.arange(12.0).reshape(2, 2, 3)
    named = pa.fixed_shape_tensor(pa.float64(), [2, 3], dim_names=["a", "b"])
    assert pa.array(ad.array(data, named)).type == named
    plain = ad.array(data, pa.list_(pa.float64(), 6))
    assert plain.schema.metadata is None
    assert ad.array(plain, pa.fixed_shape_tensor(pa.float64(), [3, 2])).to_pylist() == (
        data.reshape(2, 3, 2).tolist()
    )
    column = np.arange(6.0).reshape(2, 3, 1)
    turned = pa.fixed_shape_tensor(pa.float64(), [1, 3], permutation=[1, 0])
    assert np.asarray(ad.tensor(ad.array(column, turned))).tolist() == column.tolist()


def test_other_element_type_is_refused():
    """The same bits as numbers of another type."""
    source = over(np.zeros(4, "u2"), "bfloat16", (4,))
    brain = ad.array(source)
    half = brain.schema.metadata | {b"ARROW:extension:metadata": b'{"code":2,"bits":16,"lanes":1}'}
    error = refused(ad.array, brain, pa.field("x", pa.uint16(), metadata=half))
    assert error.reason == "dtype"
    assert error.hint == "leave the type out, or convert in the producing library"
    field = pa.field("x", pa.uint16(), metadata=brain.schema.metadata | {b"k": b"v"})
    assert ad.tensor(ad.array(brain, field)).dtype == "bfloat16"
    assert ad.tensor(ad.array(brain, "uint16")).dtype == "uint16"


def test_rows_of_bools_through_pyarrow():
    data = np.resize(FLAGS, (3, 2, 5))
    for source in (data, torch.from_numpy(data), data.transpose(0, 2, 1)):
        expected = np.asarray(source)
        column = pa.array(ad.array(source, copy=False))
        assert column.type.value_type == pa.bool8()
        back = ad.tensor(column, copy=False)
        assert back.dtype == "bool" and np.asarray(back).tolist() == expected.tolist()
        assert is_at(back, data) and ad.array(column).to_pylist() == expected.tolist()
    bits_ = pa.array(data.reshape(3, 10).tolist(), pa.list_(pa.bool_(), 10))
    type = pa.fixed_shape_tensor(pa.bool_(), [2, 5])
    for source in (bits_, pa.ExtensionArray.from_storage(type, bits_)):
        shape = (3, 2, 5) if source is not bits_ else (3, 10)
        assert np.asarray(ad.tensor(source)).tolist() == data.reshape(shape).tolist()
        assert refused(ad.tensor, source, copy=False).reason == "copy"


def test_channels_last():
    data = torch.arange(48).reshape(2, 2, 3, 4).to(memory_format=torch.channels_last)
    column = pa.array(ad.array(data, copy=False))
    back = ad.convert(column, torch.Tensor)
    assert back.stride() == data.stride() and back.data_ptr() == data.data_ptr()


@pytest.mark.parametrize("sizes", [[2], [3, 2], [2, 1, 3]])
def test_lists_of_fixed_size_are_dimensions(sizes):
    type = pa.int16()
    for size in reversed(sizes):
        type = pa.list_(type, size)
    data = numbers("int16", (4, *sizes))
    column = pa.array(data.tolist(), type)[1:]
    tensor = ad.tensor(column, copy=False)
    assert tensor.shape == (3, *sizes)
    assert np.asarray(tensor).tolist() == data[1:].tolist()
    assert ad.tensor(pl.Series(column).cast(pl.Array(pl.Int16, tuple(sizes)))).shape == (3, *sizes)


# --- zero dimensions -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "int8", "bool", "complex64"])
def test_no_dimension(dtype):
    for data in (np.ones((), dtype), torch.ones((), dtype=getattr(torch, dtype))):
        array = ad.array(data)
        assert len(array) == 1
        assert json.loads(array.schema.metadata[b"ARROW:extension:metadata"])["shape"] == []
        batch = pa.record_batch(ad.record_batch({"x": array}))
        back = ad.tensor(ad.record_batch(batch)["x"], copy=False)
        assert (back.shape, back.dtype) == ((), dtype)
        assert np.asarray(back) == np.ones((), dtype)
    # Any other number of rows gives a column.
    assert ad.tensor(ad.array(np.ones((), dtype))[:0]).shape == (0,)


# --- arrowdev.dlpack ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (3, 1, 2)])
def test_complex(dtype, shape):
    data = numbers(dtype, shape)
    half = {"complex64": "f", "complex128": "g"}[dtype]
    for source in (data, torch.from_numpy(data), jax.numpy.asarray(data)):
        array = ad.array(source)
        leaf = array.children[0] if len(shape) > 1 else array
        assert leaf.schema.metadata[EXTENSION] == b"arrowdev.dlpack"
        assert leaf.schema.format == "+w:2" and leaf.children[0].schema.format == half
        batch = pa.record_batch(ad.record_batch({"x": array}))
        if len(shape) == 1:
            back = ad.tensor(ad.record_batch(batch)["x"], copy=False)
            assert back.dtype == dtype and bits(np.asarray(back)) == bits(data)
    assert bits(ad.convert(ad.array(data), torch.Tensor).numpy()) == bits(data)


@pytest.mark.parametrize("dtype", TORCH_ONLY)
@pytest.mark.parametrize("shape", [(8,), (2, 4), (2, 2, 2)])
def test_torch_types_through_pyarrow(dtype, shape):
    raw = random_bytes(8 * TORCH_ONLY[dtype])
    data = torch.from_numpy(raw).view(getattr(torch, dtype)).reshape(shape)
    array = ad.array(data, copy=False)
    batch = pa.record_batch(ad.record_batch({"x": array}))
    if len(shape) == 1:  # pyarrow keeps the field's metadata
        back = ad.convert(ad.record_batch(batch)["x"], torch.Tensor)
        assert back.dtype == data.dtype and back.data_ptr() == data.data_ptr()
    back = ad.convert(array, torch.Tensor)
    assert back.shape == shape and back.dtype == data.dtype
    assert back.view(torch.uint8).flatten().tolist() == raw.tolist()


def test_both_extensions_through_pyarrow():
    """A fixed_shape_tensor whose elements carry arrowdev.dlpack."""
    data = torch.from_numpy(random_bytes(24)).view(torch.float8_e4m3fn).reshape(2, 3, 4)
    for source in (data, data.permute(0, 2, 1)):
        array = ad.array(source, copy=False)
        assert array.schema.metadata[EXTENSION] == b"arrow.fixed_shape_tensor"
        assert array.schema.children[0].metadata[EXTENSION] == b"arrowdev.dlpack"
        with known_to_pyarrow(array):
            back = ad.convert(pa.array(array), torch.Tensor)
        assert back.dtype == data.dtype and back.data_ptr() == data.data_ptr()
        assert back.stride() == source.stride()


def test_complex_rows_through_pyarrow():
    data = numbers("complex64", (3, 2))
    array = ad.array(data)
    with known_to_pyarrow(array):
        back = ad.tensor(pa.array(array), copy=False)
    assert back.dtype == "complex64" and is_at(back, data) and back.shape == (3, 2)


@pytest.mark.parametrize("dtype", ["bfloat16", *(f"float8_{kind}" for kind in FLOAT8)])
def test_jax_types(dtype):
    raw = random_bytes(16)
    data = raw.view(getattr(ml_dtypes, dtype))
    source = jax.numpy.asarray(data)
    array = ad.array(over(raw, dtype))
    with contextlib.suppress(ad.ExchangeError):  # if jaxlib's DLPack supports the type
        array = ad.array(source)
    assert str(array.schema) == f"extension<arrowdev.dlpack[{dtype}]>"
    back = ad.tensor(array, copy=False)
    assert back.dtype == dtype
    width = {2: "uint16", 1: "uint8"}[data.dtype.itemsize]
    assert bits(np.asarray(array.view(width))) == raw.tolist()


def test_rows_keep_the_meaning_of_the_tensor():
    """With any storage: a foreign producer may use another type of the same width."""
    data = np.array([1.5, -2, 0.25], "f2")
    for dtype, code, rows in (
        ("float16", 2, [1.5, -2, 0.25]),
        ("uint16", 1, data.view("u2").tolist()),
        ("bfloat16", 4, (data.view("u2").astype("u4") << 16).view("f4").tolist()),
    ):
        text = f'{{"code": {code}, "bits": 16, "lanes": 1}}'
        metadata = {EXTENSION: b"arrowdev.dlpack", b"ARROW:extension:metadata": text}
        for storage in (pa.int16(), pa.uint16(), pa.float16()):
            field = pa.field("x", storage, metadata=metadata)
            array = ad.Array.from_buffers(field, 3, [None, data])
            assert ad.tensor(array).dtype == dtype and array.to_pylist() == rows
            assert array[1] == rows[1] and array[1:].to_pylist() == rows[1:]


def over(memory, dtype, shape=None, **options):
    """A Tensor of any type over a NumPy array."""
    if shape is None:
        shape = (memory.nbytes // ad.Tensor.from_pointer(64, (8,), dtype, "cpu").itemsize,)
    return ad.Tensor.from_pointer(memory.ctypes.data, shape, dtype, "cpu", owner=memory, **options)


PACKED = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}


@pytest.mark.parametrize(("dtype", "width"), PACKED.items())
@pytest.mark.parametrize("shape", [(3, 8), (2, 2, 4), (1, 16)])
def test_packed_elements_are_binaries(dtype, width, shape):
    n = int(np.prod(shape))
    memory = random_bytes(n * width // 8)
    array = ad.array(over(memory, dtype, shape), copy=False)
    leaf = array.schema
    while leaf.children:
        leaf = leaf.children[0]
    assert leaf.format == f"w:{shape[-1] * width // 8}"
    back = ad.tensor(array, copy=False)
    assert (back.dtype, back.shape) == (dtype, shape) and is_at(back, memory)
    if len(shape) == 2:  # pyarrow keeps the field's metadata
        batch = pa.record_batch(ad.record_batch({"x": array}))
        back = ad.tensor(ad.record_batch(batch)["x"], copy=False)
        assert (back.dtype, back.shape) == (dtype, shape) and is_at(back, memory)
        assert b"".join(batch["x"].to_pylist()) == memory.tobytes()


@pytest.mark.parametrize("shape", [(8,), (2, 3), (4, 1)])
def test_packed_elements_need_whole_bytes(shape):
    memory = random_bytes(64)
    error = refused(ad.array, over(memory, "float4_e2m1fn", shape))
    assert error.reason == "dtype" and "uint8" in error.hint
    # the code of the hint: as bytes
    assert (
        len(ad.array(over(memory, "uint8", (int(np.prod(shape)) * 4 // 8,))))
        == np.prod(shape) // 2
    )


def test_opaque_handles():
    memory = numbers("uint64", 4)
    array = ad.array(over(memory, "opaque", (4,)), copy=False)
    assert array.schema.format == "L" and is_at(ad.tensor(array, copy=False), memory)
    assert ad.tensor(array).dtype == "opaque"
    rows = ad.array(over(memory, "opaque", (2, 2)))
    assert ad.tensor(rows, copy=False).dtype == "opaque"


@pytest.mark.parametrize(
    ("code", "bits_", "lanes", "format"),
    [
        (2, 32, 4, "w:16"),
        (0, 8, 2, "w:2"),
        (77, 16, 1, "w:2"),
        (5, 64, 3, "w:24"),
        (2, 4, 2, "w:1"),
    ],
)
def test_lanes_and_unknown_types(code, bits_, lanes, format):
    memory = random_bytes(96)
    source = Producer(dtype=(code, bits_, lanes), shape=(4,), data=memory.ctypes.data)
    array = ad.array(source, copy=False)
    assert array.schema.format == format
    metadata = json.loads(array.schema.metadata[b"ARROW:extension:metadata"])
    assert metadata == {"code": code, "bits": bits_, "lanes": lanes}
    batch = pa.record_batch(ad.record_batch({"x": array}))
    back = ad.tensor(ad.record_batch(batch)["x"], copy=False)
    assert back.dtype == ad.tensor(source).dtype and is_at(back, memory)
    assert ad.array(over(memory, back.dtype, (4,))).schema == array.schema  # by its name


# --- lists of one length --------------------------------------------------------------------


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
@pytest.mark.parametrize("dtype", ["int64", "float16", "uint8"])
@pytest.mark.parametrize("shape", [(4, 3), (1, 5), (5, 1), (4, 0), (0, 0)])
def test_lists_of_one_length_are_rows(make, dtype, shape):
    data = numbers(dtype, shape)
    type = make(pa.array(data[:0, :0].ravel()).type)
    column = pa.array(list(data) if data.size else data.tolist(), type)
    tensor = ad.tensor(column, copy=False)
    assert tensor.shape == shape and bits(np.asarray(tensor)) == bits(data)
    if data.size:
        assert tensor.data_ptr == column.values.buffers()[1].address
        part = ad.tensor(column[1:], copy=False)
        assert bits(np.asarray(part)) == bits(data[1:])
        assert bits(np.asarray(ad.array(column))) == bits(data)


def test_lists_of_lists_are_dimensions():
    data = np.arange(24).reshape(2, 3, 4)
    column = pa.array(data.tolist(), pa.list_(pa.large_list(pa.int64())))
    assert np.asarray(ad.tensor(column, copy=False)).tolist() == data.tolist()
    mixed = pa.array(data.tolist(), pa.list_(pa.list_(pa.int64(), 4), 3))
    assert np.asarray(ad.tensor(mixed, copy=False)).tolist() == data.tolist()
    within = pa.array(data.tolist(), pa.list_(pa.list_(pa.int64()), 3))
    assert np.asarray(ad.tensor(within[1:], copy=False)).tolist() == data[1:].tolist()
    flags = pa.array([[True, False], [False, False]])
    assert np.asarray(ad.tensor(flags)).tolist() == flags.to_pylist()


def test_lists_of_polars_and_duckdb():
    series = pl.Series([[1, 2], [3, 4]])
    assert np.asarray(ad.tensor(series)).tolist() == [[1, 2], [3, 4]]
    duckdb = pytest.importorskip("duckdb")
    frame = duckdb.sql("SELECT * FROM (VALUES ([1, 2]), ([3, 4])) AS t(x)")
    assert np.asarray(ad.tensor(ad.record_batch(frame.arrow())["x"])).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_lists_of_several_lengths(make):
    column = pa.array([[1, 2], [3, 4], [5]], make(pa.int64()))
    error = refused(ad.tensor, column)
    assert error.reason == "dtype"
    assert "list 0 has 2 values and list 2 has 1" in str(error)
    # the code of the hint
    assert ".children[0]" in error.hint and ".buffers[1]" in error.hint
    array = ad.array(column)
    assert np.asarray(ad.tensor(array.children[0])).tolist() == [1, 2, 3, 4, 5]
    offsets = np.frombuffer(array.buffers[1], "i4" if make is pa.list_ else "i8")
    assert offsets.tolist() == [0, 2, 4, 5]
    assert ad.tensor(column[:2], copy=False).shape == (2, 2)
    assert not hasattr(array, "__dlpack__") and hasattr(array[:2], "__dlpack__")


def test_lists_with_nulls():
    column = pa.array([[1, 2], [3, None]])
    assert refused(ad.tensor, column).reason == "nulls"
    filled = ad.tensor(column, nulls="fill", fill_value=-1)
    assert np.asarray(filled).tolist() == [[1, 2], [3, -1]]
    # null lists of the same length, and of another
    values, offsets = pa.array([1, 2, 3, 4]), pa.array([0, 2, 4], pa.int32())
    same = pa.ListArray.from_arrays(offsets, values, mask=pa.array([False, True]))
    assert refused(ad.tensor, same).reason == "nulls"
    assert np.asarray(ad.tensor(same, nulls="ignore")).tolist() == [[1, 2], [3, 4]]
    filled = ad.tensor(same, nulls="fill", fill_value=9)
    assert np.asarray(filled).tolist() == [[1, 2], [9, 9]]
    for column in (pa.array([[1, 2], None]), pa.array([None, [1, 2]])):
        for options in ({}, {"nulls": "ignore"}, {"nulls": "fill", "fill_value": 0}):
            error = refused(ad.tensor, column, **options)
            assert error.reason == "nulls" and "is null and not as long" in str(error)
    assert ad.tensor(pa.array([None, [1, 2]])[1:]).shape == (1, 2)


@pytest.mark.parametrize(
    ("offsets", "length"),
    [([0, 2, 9], 2), ([-2, 0, 2], 2), ([2, 0, -2], 2), ([0, 3, 1], 2), ([4, 6, 8], 2)],
)
def test_malformed_offsets(offsets, length):
    for code, format in (("i4", "+l"), ("i8", "+L")):
        child = ad.array(np.arange(4))
        schema = pa.list_(pa.int64()) if format == "+l" else pa.large_list(pa.int64())
        array = ad.Array.from_buffers(
            schema, length, [None, np.array(offsets, code)], children=[child]
        )
        with pytest.raises((ad.InvalidArrowError, ad.ExchangeError)):
            ad.tensor(array)
    huge = np.array([0, 1 << 62, (1 << 63) - 1], "i8")
    array = ad.Array.from_buffers(pa.large_list(pa.int64()), 2, [None, huge], children=[child])
    with pytest.raises((ad.InvalidArrowError, ad.ExchangeError)):
        ad.tensor(array)


def test_offsets_that_overflow():
    """Every difference is 2^31 modulo 2^32."""
    low = -(1 << 31)
    offsets = np.array([0, low, 0], "i4")
    array = ad.Array.from_buffers(
        pa.list_(pa.int8()), 2, [None, offsets], children=[np.zeros(4, "i1")]
    )
    with pytest.raises(ad.InvalidArrowError, match="offsets"):
        ad.tensor(array)


# --- pinned and managed memory ------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [("cuda_host:2", 3), ("cuda_managed:1", 13)])
def test_ordinal_of_pinned_and_managed_memory(name, code):
    """Arrow has the ordinal; DLPack has 0."""
    memory = np.arange(4)
    tensor = ad.Tensor.from_pointer(memory.ctypes.data, (4,), "int64", name, owner=memory)
    array = ad.array(ad.array(tensor).__arrow_c_device_array__())
    assert array.device == ad.device(name)
    assert tensor.__dlpack_device__() == array.__dlpack_device__() == (code, 0)
    assert is_at(ad.tensor(array, copy=False), memory)
    # for consumers that support CUDA only
    as_cuda = ad.array(array, device=f"cuda:{name[-1]}", copy=False)
    assert ad.tensor(as_cuda).__dlpack_device__() == (2, int(name[-1]))
    assert as_cuda.buffers[1].data_ptr == memory.ctypes.data
    elsewhere = f"cuda:{int(name[-1]) + 1}"
    assert refused(ad.array, array, device=elsewhere, copy=False).reason == "copy"


@pytest.mark.parametrize("check", type_checks.ALL)
@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_on_a_device(device, check):
    with software_device(timeout=20):
        check(device)
