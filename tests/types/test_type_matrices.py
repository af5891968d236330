"""Batches of one type as matrices, and matrices as batches: order, pitch, nulls, devices."""

import pytest
from isolation import run
from loops import looped
from peer import Peer
from type_checks import refused

import arrowdev as ad
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = Peer("pandas", "3.0")  # the first with an Arrow interface
pl = Peer("polars")
torch = Peer("torch")

NUMBERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMBERS += ["float16", "float32", "float64"]
SHAPES = [(4, 3), (1, 5), (5, 1), (0, 3), (1, 1), (100, 2), (3, 70)]


def matrix(shape, dtype="float64", order="F"):
    data = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    return np.asarray(data, order=order)


def names(n):
    return [f"c{i}" for i in range(n)]


def scattered(data):
    """A batch of columns at arbitrary addresses."""
    rows = len(data)
    block = np.zeros(rows * len(data.T) ** 2 + len(data.T) + 1, data.dtype)
    starts = [rows * i * i + i for i in range(len(data.T))]
    columns = [block[start : start + rows] for start in starts]
    for column, values in zip(columns, data.T, strict=True):
        column[:] = values
    return ad.record_batch(columns, names=names(len(columns)))


def as_list(tensor):
    return np.asarray(ad.tensor(tensor)).tolist()


# --- from matrix to batch ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
def test_columns_of_a_matrix(dtype):
    data = matrix((4, 3), dtype)
    batch = ad.record_batch(data, names=["a", "b", "c"], copy=False)
    assert batch["b"].buffers[1].data_ptr == data[:, 1].ctypes.data
    theirs = pa.record_batch(batch)
    assert theirs.schema.names == ["a", "b", "c"] and theirs.num_rows == 4
    for i, column in enumerate(theirs.columns):
        assert column.to_numpy().dtype == data.dtype
        assert column.to_numpy().tolist() == data[:, i].tolist()
    assert pl.DataFrame(batch).to_numpy().tolist() == data.tolist() or dtype == "float16"


def test_rows_are_copied_once():
    data = matrix((4, 3), order="C")
    error = refused(ad.record_batch, data, names=names(3), copy=False)
    assert error.reason == "copy" and '"F"' in error.hint
    batch = ad.record_batch(data, names=names(3))
    assert as_list(batch) == data.tolist()
    first, second = (batch.children[i].buffers[1].data_ptr for i in range(2))
    assert second - first == 4 * 8  # all columns in one block
    turned = ad.record_batch(np.asfortranarray(data), names=names(3), copy=True)
    assert as_list(turned) == data.tolist()


@pytest.mark.parametrize("shape", [*SHAPES, (3, 0), (0, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_shape(shape, order):
    data = matrix(shape, order=order)
    batch = ad.record_batch(data, names=names(shape[1]))
    assert len(batch) == shape[0] and len(batch.children) == shape[1]
    assert pa.record_batch(batch).num_rows == shape[0]
    batch.validate()
    if shape[1] == 0:
        error = refused(ad.tensor, batch)
        assert error.reason == "dtype" and "without columns" in str(error)
        return
    for wanted in (None, "C", "F"):
        tensor = ad.tensor(batch, order=wanted)
        assert tensor.shape == shape and as_list(tensor) == data.tolist()


def test_matrices_of_peers():
    data = torch.arange(6).reshape(2, 3)
    batch = ad.record_batch(data, names=names(3))
    assert as_list(batch) == data.tolist()
    turned = ad.record_batch(data.T, names=names(2), copy=False)
    assert ad.tensor(turned, copy=False).data_ptr == data.data_ptr()
    small = ad.record_batch(data.bfloat16(), names=names(3))
    assert str(small["c0"].schema) == "extension<arrowdev.dlpack[bfloat16]>"
    assert ad.tensor(small).into(torch.Tensor).equal(data.bfloat16())
    for source in (
        memoryview(matrix((2, 3))),
        ad.tensor(matrix((2, 3))),
        ad.array(matrix((2, 3))),
    ):
        assert as_list(ad.record_batch(source, names=names(3))) == matrix((2, 3)).tolist()
    backwards = matrix((4, 3))[::-1, ::2]
    assert as_list(ad.record_batch(backwards, names=names(2))) == backwards.tolist()
    swapped = matrix((4, 3)).astype(">f4")
    assert as_list(ad.record_batch(swapped, names=names(3))) == swapped.tolist()


@pytest.mark.parametrize(
    ("columns", "given", "error", "text"),
    [
        (lambda: matrix((4, 3)), ["a", "b"], ValueError, "3 columns, but names= has 2"),
        (lambda: matrix((4, 3)), None, TypeError, "a matrix with names="),
        (lambda: matrix((4,)), ["a"], ValueError, "1 dimensions has no columns"),
        (lambda: np.zeros((2, 2, 2)), ["a", "b"], ValueError, "3 dimensions has no columns"),
        (lambda: matrix((4, 3)), "abc", TypeError, "sequence of str"),
        (lambda: matrix((4, 3)), [1, 2, 3], TypeError, "must be str"),
        (lambda: np.array([["a", "b"]]), ["a", "b"], ad.ExchangeError, "text"),
        (lambda: np.ma.masked_all((2, 2)), ["a", "b"], ad.ExchangeError, "nulls"),
    ],
)
def test_invalid_matrices(columns, given, error, text):
    with pytest.raises(error, match=text):
        ad.record_batch(columns(), names=given)


def test_strides_without_rows_are_ignored():
    far = ad.Tensor.from_pointer(64, (0, 3), "int64", "cpu", strides=(1, 2**62))
    assert len(ad.record_batch(far, names=["a", "b", "c"])) == 0


def test_elements_that_share_bytes():
    memory = np.zeros(8, "u1")
    packed = ad.Tensor.from_pointer(
        memory.ctypes.data, (2, 8), "float4_e2m1fn", "cpu", owner=memory
    )
    error = refused(ad.record_batch, packed, names=names(8))
    assert error.reason == "dtype" and "uint8" in error.hint


@pytest.mark.parametrize("copy", [None, True, False])
def test_copy_of_columns(copy):
    x, y = np.arange(3), np.arange(3.0)
    for batch in (
        ad.record_batch({"x": x, "y": y}, copy=copy),
        ad.record_batch([x, y], names=["x", "y"], copy=copy),
        ad.record_batch(ad.record_batch({"x": x, "y": y}), copy=copy),
    ):
        assert (batch["x"].buffers[1].data_ptr == x.ctypes.data) is (copy is not True)
        assert batch["y"].to_pylist() == y.tolist()
    assert refused(ad.record_batch, {"x": x[::2]}, copy=False).reason == "strides"
    with pytest.raises(TypeError, match="copy must be"):
        ad.record_batch({"x": x}, copy=1)


# --- from batch to matrix -----------------------------------------------------------------


@looped("dtype", NUMBERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_of_a_matrix_is_that_matrix(dtype, shape):
    data = matrix(shape, dtype)
    batch = pa.record_batch(ad.record_batch(list(data.T), names=names(shape[1])))
    tensor = ad.tensor(batch, copy=False)
    assert tensor.shape == shape and as_list(tensor) == data.tolist()
    assert tensor.readonly
    if data.size:
        assert tensor.data_ptr == batch.column(0).buffers()[1].address
    assert as_list(ad.tensor(batch, order="F", copy=False)) == data.tolist()
    assert as_list(tensor) == batch.to_tensor(row_major=False).to_numpy().tolist()


@looped("order", [None, "C", "F"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["int8", "float16", "int32", "float64", "complex128"])
def test_columns_at_arbitrary_addresses(order, shape, dtype):
    data = matrix(shape, dtype)
    batch = scattered(data)
    tensor = ad.tensor(batch, order=order, copy=True)
    assert tensor.shape == shape and as_list(tensor) == data.tolist()
    found = np.asarray(tensor)
    assert found.flags.c_contiguous if order == "C" else found.flags.f_contiguous
    assert not tensor.readonly
    assert as_list(ad.tensor(batch, order=order)) == data.tolist()
    if len(batch.children) > 2 and shape[0] > 1:
        assert refused(ad.tensor, batch, order=order, copy=False).reason == "copy"


def parts(data):
    """Parts of a matrix, most of which leave gaps between their columns."""
    return (
        *(data, data[2:7], data[:, 1:3], data[3:4]),
        *(data[:, 2:3], data[:, ::2], data[1:9, ::3], data[:0]),
    )


def test_batch_of_a_part_is_that_part():
    """The owner of the columns is that of the matrix, and spans the gaps between them."""
    data = matrix((10, 4))
    for part in parts(data):
        for source in (part, torch.from_numpy(part), ad.tensor(part)):
            batch = ad.record_batch(source, names=names(part.shape[1]), copy=False)
            for found, wanted in ((batch, part), (batch[1:], part[1:]), (batch[:-1], part[:-1])):
                tensor = ad.tensor(found, order="F", copy=False)
                assert as_list(tensor) == wanted.tolist() and hasattr(found, "__dlpack__")
                assert not wanted.size or tensor.data_ptr == wanted.ctypes.data


def test_columns_without_gaps():
    """Columns of several owners that lie next to each other, and slices of their batch."""
    data = matrix((10, 4))
    for source in (data, torch.from_numpy(data)):
        batch = ad.record_batch([source[:, i] for i in range(4)], names=names(4))
        theirs = pa.record_batch(batch)
        for found, wanted in ((batch, data), (theirs, data), (batch[2:7], data[2:7])):
            tensor = ad.tensor(found, copy=False)
            assert tensor.data_ptr == wanted.ctypes.data and as_list(tensor) == wanted.tolist()
        # What is behind the rows of pyarrow's slice is no longer known to be the columns'.
        assert refused(ad.tensor, theirs[2:7], copy=False).reason == "copy"
        assert as_list(ad.tensor(theirs[2:7])) == data[2:7].tolist()


def test_frame_of_one_block():
    frame = pd.DataFrame(matrix((10, 4)), columns=names(4))
    assert as_list(ad.tensor(frame, copy=False)) == frame.values.tolist()


def test_columns_with_gaps():
    """Their distances may be regular: what is between them is not known to be theirs."""
    data = matrix((10, 4))
    for part in (data[2:7], data[:, ::2], data[1:9, ::3]):
        batch = ad.record_batch(list(part.T), names=names(part.shape[1]))
        error = refused(ad.tensor, batch, copy=False)
        assert error.reason == "copy" and "gaps" in str(error)
        assert not hasattr(batch, "__dlpack__")
        assert as_list(ad.tensor(batch)) == part.tolist()


@pytest.mark.parametrize("rows", [1, 4, 7, 100])
def test_one_copy_of_all_columns(rows):
    """Columns that arrowdev copied into one block are a matrix, with padding between them."""
    data = matrix((rows, 3))
    batch = ad.record_batch(scattered(data), copy=True)
    first, second = (batch.children[i].buffers[1].data_ptr for i in range(2))
    assert second - first == -(-rows * 8 // 64) * 64
    assert as_list(ad.tensor(batch, copy=False)) == data.tolist()


def test_regular_distances_between_allocations():
    """The pages between the columns are unmapped, which a read of the whole span shows."""
    run("columns_apart")


def test_columns_without_a_common_pitch():
    data = matrix((10, 4))
    for columns in (
        [data[:, 1], data[:, 0]],  # backwards
        [data[:, 0], data[:, 1], data[:, 3]],  # different pitches
        [data[:, 0], data[:, 0]],  # one column twice
        [data[:4, 0], data[1:5, 0]],  # overlapping
    ):
        batch = ad.record_batch(columns, names=names(len(columns)))
        error = refused(ad.tensor, batch, copy=False)
        assert error.reason == "copy" and ".field" in error.hint
        assert as_list(ad.tensor(batch)) == np.column_stack(columns).tolist()
        assert as_list(ad.tensor(batch, order="C")) == np.column_stack(columns).tolist()
        assert not hasattr(batch, "__dlpack__")


def test_order_c_of_a_pitch_is_a_copy():
    data = matrix((4, 3))
    batch = ad.record_batch(data, names=names(3))
    error = refused(ad.tensor, batch, order="C", copy=False)
    assert error.reason == "copy" and 'order="C"' in str(error)
    tensor = ad.tensor(batch, order="C")
    assert tensor.strides == (3, 1) and as_list(tensor) == data.tolist()
    one = ad.record_batch(data[:, :1], names=names(1))
    assert ad.tensor(one, order="C", copy=False).data_ptr == data.ctypes.data


def test_protocols_of_a_matrix():
    data = matrix((4, 3))
    batch = ad.record_batch(data, names=names(3))
    assert np.shares_memory(np.asarray(ad.tensor(batch)), data)
    assert np.from_dlpack(batch).tolist() == data.tolist()
    assert batch.into(torch.Tensor).tolist() == data.tolist()
    assert batch.into(memoryview).shape == (4, 3)
    assert np.shares_memory(batch.into(np.ndarray), data)


def test_protocols_of_a_matrix_that_would_drop_the_names():
    """numpy.asarray() and cudf.DataFrame() take these from any object."""
    batch = ad.record_batch(matrix((4, 3)), names=names(3))
    error = refused(memoryview, batch)
    assert error.reason == "dtype" and "names of a batch" in str(error)
    assert "arrowdev.tensor(batch)" in error.hint
    for name in ("array", "cuda_array", "sycl_usm_array"):
        with pytest.raises(AttributeError, match=r"names of a batch.*arrowdev\.tensor\(batch\)"):
            getattr(batch, f"__{name}_interface__")
    assert hasattr(batch["c0"], "__array_interface__") and memoryview(batch["c0"])
    assert "buffer protocol" not in ad.protocols(batch, probe=True)


def test_frames():
    data = matrix((4, 3))
    assert as_list(ad.tensor(pl.DataFrame(data))) == data.tolist()
    assert as_list(ad.tensor(pd.DataFrame(data, columns=names(3)), order="C")) == data.tolist()
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    assert ad.convert(table, np.ndarray).tolist() == [[1, 3], [2, 4]]
    assert ad.convert(table, torch.Tensor).tolist() == [[1, 3], [2, 4]]


# --- types --------------------------------------------------------------------------------


def test_bits_and_bools():
    flags = {"a": [True, False, True], "b": [False, False, True]}
    rows = [list(row) for row in zip(*flags.values(), strict=True)]
    bits = pa.RecordBatch.from_pydict(flags)
    bytes_ = ad.record_batch({name: np.array(column) for name, column in flags.items()})
    mixed = ad.record_batch({"a": pa.array(flags["a"]), "b": np.array(flags["b"])})
    for batch in (bits, bytes_, mixed):
        for order in "CF":
            tensor = ad.tensor(batch, order=order)
            assert tensor.dtype == "bool" and as_list(tensor) == rows
            assert ad.tensor(ad.array(batch)[:0], order=order).shape == (0, 2)
    assert "bits" in str(refused(ad.tensor, bits, copy=False))


def test_complex_columns():
    data = matrix((4, 3), "complex64")
    data.imag[:] = matrix((4, 3))
    batch = ad.record_batch(data, names=names(3), copy=False)
    tensor = ad.tensor(batch, copy=False)
    assert tensor.dtype == "complex64" and as_list(tensor) == data.tolist()
    assert as_list(ad.tensor(batch, order="C")) == data.tolist()


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"a": [1], "b": [1.0]}, 'column "a" is of type int64 and column "b" of type float64'),
        ({"a": [1], "b": ["x"]}, 'column "b": an array of type string'),
        ({"a": pa.array([1], pa.timestamp("s"))}, 'column "a": an array of type timestamp'),
        ({"a": [[1, 2]], "b": [[1, 2]]}, 'column "a" has rows of 1 dimensions'),
        ({"a": [{"x": 1}]}, 'column "a": an array of type struct'),
        ({"a": pa.array(["x"]).dictionary_encode()}, 'column "a": .*dictionary'),
    ],
)
def test_columns_without_a_matrix(columns, text):
    error = refused(ad.tensor, pa.RecordBatch.from_pydict(columns))
    assert error.reason == "dtype"
    with pytest.raises(ad.ExchangeError, match=text):
        raise error
    # every hint leads to a column
    assert len(ad.record_batch(pa.RecordBatch.from_pydict(columns))["a"]) == 1


def test_structs_within_lists_are_refused():
    column = pa.array([[{"x": 1}]], pa.list_(pa.struct([("x", pa.int64())]), 1))
    error = refused(ad.tensor, column)
    assert error.reason == "dtype" and ".children" in error.hint
    assert ad.array(column).children[0]["x"].to_pylist() == [1]


def test_structs_of_an_extension_are_refused():
    storage = pa.array([{"x": 1.0, "y": 2.0}])
    field = pa.field("p", storage.type, metadata={"ARROW:extension:name": "geoarrow.point"})
    batch = pa.RecordBatch.from_arrays([storage], schema=pa.schema([field]))
    points = ad.record_batch(batch)["p"]
    assert refused(ad.tensor, points).reason == "dtype"


# --- nulls --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [None, "C", "F"])
def test_nulls_of_columns(order):
    batch = pa.RecordBatch.from_pydict({"a": [1, None, 3], "b": [4, 5, None], "c": [7, 8, 9]})
    error = refused(ad.tensor, batch, order=order)
    assert error.reason == "nulls" and str(error).startswith('column "a": ')
    options = {"nulls": "fill", "fill_value": -1, "order": order}
    filled = ad.tensor(batch, **options)
    assert as_list(filled) == [[1, 4, 7], [-1, 5, 8], [3, -1, 9]]
    part = ad.tensor(batch[1:], **options)
    assert as_list(part) == [[-1, 5, 8], [3, -1, 9]]
    assert refused(ad.tensor, batch, copy=False, **options).reason == "copy"
    ignored = ad.tensor(batch, nulls="ignore", order=order)
    assert as_list(ignored)[0] == [1, 4, 7]


@pytest.mark.parametrize("order", [None, "C", "F"])
def test_nulls_of_rows(order):
    """Nulls of the struct itself, independent of its fields."""
    fields = [pa.array([1, 2, None]), pa.array([4, 5, 6])]
    column = pa.StructArray.from_arrays(fields, ["a", "b"], mask=pa.array([False, True, False]))
    assert refused(ad.tensor, column, order=order).reason == "nulls"
    filled = ad.tensor(column, nulls="fill", fill_value=-1, order=order)
    assert as_list(filled) == [[1, 4], [-1, -1], [-1, 6]]
    part = ad.tensor(column[1:], nulls="fill", fill_value=-1, order=order)
    assert as_list(part) == [[-1, -1], [-1, 6]]


def test_bitmap_without_nulls():
    column = pa.array([{"a": 1, "b": 2}, None])[:1]
    assert as_list(ad.tensor(column)) == [[1, 2]]


# --- devices ------------------------------------------------------------------------------


@pytest.fixture
def device():
    with software_device(timeout=20):
        yield ad.device("ext_dev:0")


@pytest.mark.parametrize("order", [None, "C", "F"])
@pytest.mark.parametrize("shape", [(4, 3), (1, 5), (5, 1), (0, 3), (1000, 3)])
def test_on_a_device(device, order, shape):
    data = matrix(shape)
    lying = ad.record_batch(data, names=names(shape[1])).to(device)
    apart = ad.record_batch(
        [ad.array(column).to(device) for column in data.T], names=names(shape[1])
    )
    for batch in (lying, apart):
        for copy in (None, True):
            tensor = ad.tensor(batch, order=order, copy=copy)
            assert tensor.device == device and tensor.shape == shape
            assert as_list(tensor.to("cpu")) == data.tolist()
            if order == "C" and data.size:
                assert tensor.strides == (shape[1], 1) or 1 in shape


def test_columns_of_a_matrix_on_a_device(device):
    data = matrix((4, 3), order="C")
    tensor = ad.tensor(data).to(device)
    batch = ad.record_batch(tensor, names=names(3))
    assert batch.device == device
    assert as_list(batch.to("cpu")) == data.tolist()
    lying = ad.tensor(data, order="F").to(device)
    batch = ad.record_batch(lying, names=names(3), copy=False)
    assert ad.tensor(batch, copy=False).data_ptr == lying.data_ptr


def test_lists_on_a_device(device):
    data = np.arange(12).reshape(4, 3)
    for make in (pa.list_, pa.large_list):
        column = ad.array(pa.array(data.tolist(), make(pa.int64()))).to(device)
        tensor = ad.tensor(column[1:], copy=False)
        assert tensor.device == device
        assert as_list(tensor.to("cpu")) == data[1:].tolist()
        assert not hasattr(column, "__dlpack__")  # the host would have to read the offsets
        unequal = ad.array(pa.array([[1], [2, 3]], make(pa.int64()))).to(device)
        assert "list 1 has 2" in str(refused(ad.tensor, unequal))
        for row, values in enumerate([[None, [1, 2], [3, 4]], [[1, 2], None, [3, 4]]]):
            column = ad.array(pa.array([[0, 0], *values], make(pa.int64())))[1:].to(device)
            error = refused(ad.tensor, column, nulls="fill", fill_value=0)
            assert error.reason == "nulls" and f"list {row} is null" in str(error)


@pytest.mark.parametrize("order", [None, "C", "F"])
def test_nulls_on_a_device(device, order):
    fields = [pa.array([1, 2, None]), pa.array([4, 5, 6])]
    column = pa.StructArray.from_arrays(fields, ["a", "b"], mask=pa.array([False, True, False]))
    for source, expected in (
        (column, [[1, 4], [-1, -1], [-1, 6]]),
        (column[1:], [[-1, -1], [-1, 6]]),
        (pa.RecordBatch.from_arrays(fields, ["a", "b"]), [[1, 4], [2, 5], [-1, 6]]),
        (pa.table({"a": [True, None], "b": [False, True]}), [[True, False], [True, True]]),
    ):
        moved = ad.array(source).to(device)
        assert refused(ad.tensor, moved, order=order).reason == "nulls"
        value = expected[-1][0] if expected[-1][0] is True else -1
        tensor = ad.tensor(moved, nulls="fill", fill_value=value, order=order)
        assert tensor.device == device and as_list(tensor.to("cpu")) == expected
