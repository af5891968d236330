"""Libraries of tensors: values, addresses and what is refused, in both directions."""

import gc
import weakref

import isolation
import pytest
from shared_memory import address

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

VALUES = [1, 2, 3, -5]
WIDE = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]


def numbers(dtype="int64"):
    return np.array(VALUES).astype(dtype)


def refusal(ask):
    with pytest.raises(ad.ExchangeError) as info:
        ask()
    return info.value


# --- ONNX Runtime -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*WIDE, *FLOATS, "float16"])
def test_onnxruntime(dtype):
    ort = pytest.importorskip("onnxruntime")
    x = ort.OrtValue.ortvalue_from_numpy(numbers(dtype))
    tensor, column = ad.tensor(x, copy=False), ad.array(x, copy=False)
    assert tensor.dtype == dtype and tensor.data_ptr == x.data_ptr()
    assert column.to_pylist() == numbers(dtype).tolist()
    assert column.buffers[1].data_ptr == x.data_ptr()
    for back in (ort.OrtValue.from_dlpack(tensor), ad.convert(column, ort.OrtValue, copy=False)):
        assert back.data_ptr() == tensor.data_ptr and back.numpy().tolist() == column.to_pylist()


@pytest.mark.parametrize("take", [ad.array, ad.tensor, ad.from_dlpack])
def test_onnxruntime_value_is_kept(take):
    """Its own tensor does not keep the NumPy array: docs/upstream/onnxruntime_lifetime.md."""
    ort = pytest.importorskip("onnxruntime")
    value = ort.OrtValue.ortvalue_from_numpy(np.arange(3))
    gone = weakref.ref(value)
    taken = take(value)
    del value
    others = [np.full(3, 7) for _ in range(10)]
    assert np.asarray(taken).tolist() == [0, 1, 2] and gone() is not None
    del taken, others
    gc.collect()
    assert gone() is None


def test_onnxruntime_reads_a_matrix_and_bools():
    ort = pytest.importorskip("onnxruntime")
    data = np.arange(6, dtype="f4").reshape(2, 3)
    value = ort.OrtValue.from_dlpack(ad.tensor(data))
    assert value.shape() == [2, 3] and value.data_ptr() == data.ctypes.data
    bools = ort.OrtValue.ortvalue_from_numpy(np.array([True, False]))
    assert ad.tensor(bools).dtype == "bool" and ad.array(bools).to_pylist() == [True, False]


# --- MLX ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*WIDE, "float32", "float16", "bfloat16"])
def test_mlx(dtype):
    mx = pytest.importorskip("mlx.core")
    x = mx.array(VALUES if dtype[0] != "u" else [1, 2, 3, 5]).astype(getattr(mx, dtype))
    mx.eval(x)
    tensor, column = ad.tensor(x, copy=False), ad.array(x, copy=False)
    assert tensor.dtype == dtype and column.to_pylist() == x.tolist()
    if dtype != "bfloat16":  # NumPy reads it as bytes
        assert tensor.data_ptr == address(memoryview(x)) == column.buffers[1].data_ptr
    for back in (mx.from_dlpack(tensor), ad.convert(tensor, mx.array), tensor.into(mx.array)):
        assert back.dtype == x.dtype and back.tolist() == x.tolist()


def test_mlx_takes_a_copy_of_the_same_type():
    mx = pytest.importorskip("mlx.core")
    assert refusal(lambda: ad.convert(numbers(), mx.array, copy=False)).reason == "copy"
    error = refusal(lambda: ad.convert(numbers("float64"), mx.array))
    assert error.reason == "dtype" and "makes float32 of float64" in str(error)
    assert ad.convert(numbers()[::-1], mx.array).tolist() == VALUES[::-1]
    assert ad.convert(numbers()[::2], mx.array).tolist() == VALUES[::2]


def test_mlx_computes_what_is_asked_for():
    mx = pytest.importorskip("mlx.core")
    lazy = mx.array([1, 2]) + 1
    assert ad.array(lazy).to_pylist() == [2, 3]
    transposed = ad.tensor(mx.array([[0, 1, 2], [3, 4, 5]]).T)
    assert np.from_dlpack(transposed).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert ad.array(mx.array([True, False])).to_pylist() == [True, False]
    assert ad.array(mx.array([1j])).to_pylist() == [1j]


# --- Warp ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wp():
    warp = pytest.importorskip("warp")
    warp.config.quiet = True
    warp.init()
    return warp


@pytest.mark.parametrize("dtype", [*WIDE, *FLOATS, "float16"])
def test_warp(wp, dtype):
    x = wp.array(numbers(dtype), dtype=getattr(wp, dtype), device="cpu")
    tensor, column = ad.tensor(x, copy=False), ad.array(x, copy=False)
    assert tensor.dtype == dtype and tensor.data_ptr == x.ptr == column.buffers[1].data_ptr
    assert column.to_pylist() == x.numpy().tolist()
    by_wp = [wp.from_dlpack(tensor), wp.array(tensor, copy=False, device="cpu")]
    for back in (*by_wp, ad.convert(tensor, wp.array, copy=False)):
        assert back.ptr == tensor.data_ptr and back.numpy().tolist() == column.to_pylist()


def test_warp_vectors_are_dimensions(wp):
    x = wp.array([[1, 2, 3], [4, 5, 6]], dtype=wp.vec3, device="cpu")
    tensor = ad.tensor(x, copy=False)
    assert tensor.shape == (2, 3) and tensor.data_ptr == x.ptr
    assert wp.from_dlpack(tensor, dtype=wp.vec3).numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    strided = wp.array(np.arange(6), dtype=wp.int64, device="cpu")[::2]
    assert np.from_dlpack(ad.tensor(strided, copy=False)).tolist() == [0, 2, 4]


def test_warp_structs_are_refused(wp):
    @wp.struct
    class Particle:
        mass: float

    x = wp.zeros(2, dtype=Particle, device="cpu")
    assert refusal(lambda: ad.tensor(x)).reason == "dtype"


# --- array API ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*WIDE, *FLOATS])
def test_array_api_strict(dtype):
    xp = pytest.importorskip("array_api_strict")
    data = numbers(dtype)
    x = xp.asarray(data, copy=False)
    tensor, column = ad.tensor(x, copy=False), ad.array(x, copy=False)
    assert tensor.data_ptr == data.ctypes.data == column.buffers[1].data_ptr
    assert tensor.dtype == dtype and column.to_pylist() == data.tolist()
    for back in (xp.from_dlpack(tensor), ad.convert(column, type(x), copy=False)):
        assert address(back) == data.ctypes.data and str(back.dtype).endswith(dtype)


def test_ndonnx_says_that_it_hands_out_nothing():
    ndx = pytest.importorskip("ndonnx")
    x = ndx.asarray(numbers())
    error = refusal(lambda: ad.tensor(x))
    assert error.reason == "refused" and "ONNX" in str(error)
    values = x.unwrap_numpy()
    assert ad.tensor(values).data_ptr == values.ctypes.data


# --- in processes of their own, since the import takes seconds ----------------------


@pytest.mark.slow
def test_paddle():
    pytest.importorskip("paddle")
    isolation.run("paddle_peer")


# --- by a buffer or NumPy -----------------------------------------------------------


def test_numba():
    numba = pytest.importorskip("numba")

    @numba.njit
    def total(x):
        result = 0
        for value in x:
            result += value
        return result

    tensor = ad.tensor(numbers())
    for x in (tensor, memoryview(tensor), np.asarray(tensor), np.asarray(ad.array(numbers()))):
        assert total(x) == sum(VALUES)


def test_openvino():
    ov = pytest.importorskip("openvino")
    data = numbers()
    x = ov.Tensor(data, shared_memory=True)
    assert ad.tensor(x.data, copy=False).data_ptr == data.ctypes.data
    back = ad.convert(data, ov.Tensor, copy=False)
    assert back.data.ctypes.data == data.ctypes.data and back.data.tolist() == VALUES
    column = pa.array(VALUES)  # read-only
    assert ad.convert(column, ov.Tensor).data.tolist() == VALUES
    assert refusal(lambda: ad.convert(column, ov.Tensor, copy=False)).reason == "readonly"
    with pytest.raises(TypeError, match="none of the protocols"):
        ad.tensor(x)


def test_tinygrad():
    tinygrad = pytest.importorskip("tinygrad")
    x = tinygrad.Tensor([1, 2, 3], device="CPU")
    view = x.data()
    assert ad.array(view).to_pylist() == [1, 2, 3]
    assert ad.tensor(view, copy=False).data_ptr == address(view)
    with pytest.raises(TypeError, match=r"x\.numpy\(\) has the values"):
        ad.tensor(x)
    source = ad.tensor(numbers())
    dtype = tinygrad.dtypes.int64
    back = tinygrad.Tensor.from_blob(source.data_ptr, source.shape, dtype=dtype, device="CPU")
    assert back.tolist() == VALUES


@pytest.mark.slow
def test_taichi():
    """It writes to the terminal, and sets signal handlers."""
    pytest.importorskip("taichi")
    isolation.run("taichi_peer")


def test_wgpu():
    """What is read of a buffer is a memoryview. Without an adapter there is none."""
    wgpu = pytest.importorskip("wgpu")
    data = ad.tensor(numbers("int32"))
    try:
        device = wgpu.gpu.request_adapter_sync().request_device_sync()
    except Exception as error:
        pytest.skip(f"could not import 'wgpu': no adapter ({error})")
    buffer = device.create_buffer_with_data(data=data, usage=wgpu.BufferUsage.COPY_SRC)
    read = device.queue.read_buffer(buffer)
    assert ad.array(read.cast("i")).to_pylist() == VALUES


def test_tensordict():
    tensordict = pytest.importorskip("tensordict")
    torch = pytest.importorskip("torch")
    made = tensordict.TensorDict({"a": torch.tensor(VALUES), "b": torch.ones(4, 3)}, [4])
    batch = ad.record_batch(dict(made.items()))
    assert batch["a"].to_pylist() == VALUES and batch["b"].to_pylist() == [[1.0] * 3] * 4
    assert batch["a"].buffers[1].data_ptr == made["a"].data_ptr()
    columns = {name: batch[name].into(torch.Tensor) for name in ("a", "b")}
    back = tensordict.TensorDict(columns, [4])
    assert back["a"].data_ptr() == made["a"].data_ptr() and back["b"].tolist() == [[1.0] * 3] * 4


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"a": np.asarray(ad.tensor(numbers()))}, tmp_path / "a.safetensors")
    with safetensors.safe_open(tmp_path / "a.safetensors", "np") as file:
        found = file.get_tensor("a")
        assert ad.tensor(found, copy=False).data_ptr == address(found)
        assert ad.array(found).to_pylist() == VALUES


def test_sparse_matrices_are_their_three_arrays():
    sparse = pytest.importorskip("scipy.sparse")
    x = sparse.csr_array(np.array([[0, 1], [2, 0]]))
    with pytest.raises(TypeError, match=r"x\.toarray\(\) makes it dense"):
        ad.tensor(x)
    parts = [ad.tensor(part, copy=False) for part in (x.data, x.indices, x.indptr)]
    assert parts[0].data_ptr == address(x.data)
    back = sparse.csr_array(tuple(map(np.asarray, parts)), shape=(2, 2))
    assert back.toarray().tolist() == [[0, 1], [2, 0]]
    assert address(back.data) == address(x.data)


# --- datasets -----------------------------------------------------------------------


def test_h5py(tmp_path):
    h5py = pytest.importorskip("h5py")
    data = np.arange(6).reshape(2, 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=ad.tensor(data))
        assert dataset[...].tolist() == data.tolist()
        read = dataset[...]
        assert ad.tensor(read, copy=False).data_ptr == address(read)
        with pytest.raises(TypeError, match=r"h5py.*; read a dataset as a whole"):
            ad.tensor(dataset)
        with pytest.raises(TypeError, match=r"h5py.*arrowdev.array\(x\[name\]\[...\]\)"):
            ad.array(file)
        assert ad.array(file["x"][...]).to_pylist() == data.tolist()
        flat = file.create_dataset("y", data=ad.array(numbers()))
        assert refusal(lambda: next(ad.array_stream(flat))).hint.startswith("read a dataset as a")


def test_zarr():
    zarr = pytest.importorskip("zarr")
    x = zarr.array(np.asarray(ad.tensor(np.arange(6).reshape(2, 3))))
    read = x[...]
    tensor = ad.tensor(read, copy=False)
    assert tensor.data_ptr == address(read) and np.asarray(tensor).tolist() == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    for take in (ad.tensor, ad.array):
        with pytest.raises(
            TypeError, match=r"^zarr\.core\.array\.Array .*; read a dataset as a w"
        ):
            take(x)
    with pytest.raises(TypeError, match=r"zarr.*arrowdev.array\(x\[name\]\[...\]\)"):
        ad.array(zarr.group())
    assert [row.to_pylist() for row in ad.array_stream(x)] == [[0, 1, 2], [3, 4, 5]]


def test_xarray():
    xr = pytest.importorskip("xarray")
    data = numbers()
    x = xr.DataArray(ad.tensor(data))
    assert address(x) == address(data) and x.values.tolist() == VALUES
    assert ad.tensor(x.data, copy=False).data_ptr == address(data)
