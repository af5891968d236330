"""The buffer protocol: import and export."""

import array
import ctypes
import gc
import mmap
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loops import looped

import arrowdev as ad

CODES = ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D"]

# PyBUF_* constants of CPython's object.h.
SIMPLE, WRITABLE, FORMAT, ND = 0, 0x1, 0x4, 0x8
STRIDES = 0x10 | ND
C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS = 0x20 | STRIDES, 0x40 | STRIDES, 0x80 | STRIDES
INDIRECT = 0x100 | STRIDES
FULL_RO = INDIRECT | FORMAT


class PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


python_api = ctypes.PyDLL(None)  # the argtypes of pythonapi are shared
get_buffer = python_api.PyObject_GetBuffer
get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(PyBuffer), ctypes.c_int]
release_buffer = python_api.PyBuffer_Release
release_buffer.argtypes = [ctypes.POINTER(PyBuffer)]
release_buffer.restype = None


def filled(obj, flags):
    """The buffer that a consumer gets with these flags, as a dict."""
    view = PyBuffer()
    get_buffer(obj, view, flags)
    try:
        return {
            "buf": view.buf,
            "len": view.len,
            "itemsize": view.itemsize,
            "readonly": bool(view.readonly),
            "ndim": view.ndim,
            "format": view.format,
            "shape": tuple(view.shape[: view.ndim]) if view.shape else None,
            "strides": tuple(view.strides[: view.ndim]) if view.strides else None,
        }
    finally:
        release_buffer(view)


class OnlyBuffer(np.ndarray):
    """An ndarray whose other protocols raise errors."""

    @property
    def __array_interface__(self):
        raise AttributeError

    def __dlpack__(self, **kwargs):
        raise BufferError


def only_buffer(source):
    return source.view(OnlyBuffer)


# --- import ------------------------------------------------------------------


def test_bytes():
    source = b"hello"
    tensor = ad.tensor(source)
    assert tensor.shape == (5,)
    assert tensor.dtype == "uint8"
    assert tensor.readonly
    assert tensor.device_type == ad.DeviceType.CPU
    assert bytes(tensor) == source
    assert ad.array(source).to_pylist() == list(source)


def test_bytearray_is_writable_and_locked():
    source = bytearray(b"hello")
    tensor = ad.tensor(source)
    assert not tensor.readonly
    memoryview(tensor)[0] = ord("j")
    assert source == b"jello"
    with pytest.raises(BufferError):
        source.append(0)
    del tensor
    source.append(0)


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_array_array(code):
    source = array.array(code, [1, 2, 3])
    tensor = ad.tensor(source)
    assert tensor.itemsize == source.itemsize
    assert memoryview(tensor).tolist() == [1, 2, 3]


def test_memoryview():
    source = memoryview(bytearray(range(24))).cast("B", (2, 3, 4))
    tensor = ad.tensor(source)
    assert tensor.shape == (2, 3, 4)
    assert memoryview(tensor).tolist() == source.tolist()
    assert ad.tensor(source[1:]).data_ptr == tensor.data_ptr + 12
    every_other = memoryview(bytes(range(9)))[::-2]
    assert ad.tensor(every_other).strides == (-2,)
    assert memoryview(ad.tensor(every_other)).tolist() == [8, 6, 4, 2, 0]


def test_ctypes():
    source = (ctypes.c_int32 * 3 * 2)((1, 2, 3), (4, 5, 6))
    tensor = ad.tensor(source)
    assert tensor.shape == (2, 3)
    assert tensor.dtype == "int32"
    assert tensor.data_ptr == ctypes.addressof(source)
    assert memoryview(tensor).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_mmap():
    with mmap.mmap(-1, 4096) as source:
        source[:5] = b"hello"
        tensor = ad.tensor(source)
        assert tensor.shape == (4096,)
        assert bytes(tensor)[:5] == b"hello"
        with pytest.raises(BufferError):
            source.close()
        del tensor
        gc.collect()


@pytest.mark.parametrize("code", CODES)
def test_every_type_of_numpy(code):
    source = np.arange(6).astype(code)
    for given_source in (source, only_buffer(source)):
        tensor = ad.tensor(given_source)
        assert tensor.dtype == source.dtype.name
        assert tensor.data_ptr == source.ctypes.data
        assert tensor.strides == (1,)
        back = np.asarray(memoryview(tensor))
        assert back.dtype == source.dtype
        assert np.array_equal(back, source)


def test_long_has_the_size_of_the_platform():
    assert ad.tensor(only_buffer(np.zeros(2, "l"))).itemsize == ctypes.sizeof(ctypes.c_long)


def test_readonly_flag():
    source = np.arange(3)
    assert not ad.tensor(source).readonly
    source.flags.writeable = False
    assert ad.tensor(source).readonly


def test_dimensions():
    assert ad.tensor(only_buffer(np.float32(3).reshape(()))).shape == ()
    assert ad.tensor(only_buffer(np.zeros((2, 0, 3)))).shape == (2, 0, 3)
    deep = np.zeros((1,) * 64, "i1")
    assert ad.tensor(only_buffer(deep)).ndim == 64
    broadcast = np.broadcast_to(np.int16(7), (3, 4))
    assert ad.tensor(broadcast).strides == (0, 0)


def test_stride_must_be_a_multiple_of_the_itemsize():
    source = np.zeros(4, dtype=[("a", "i1"), ("b", "<i4")])["b"]
    assert source.strides == (5,)
    with pytest.raises(ad.ExchangeError, match="multiple of the itemsize"):
        ad.tensor(source)
    assert ad.tensor(source[:1]).shape == (1,)
    assert ad.tensor(source[:0]).shape == (0,)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]", "i4,f4", "S3", "U3", "O", "g", "V4"])
def test_type_without_equivalent(dtype):
    for source in (np.zeros(3, dtype), only_buffer(np.zeros(3, dtype))):
        with pytest.raises(ad.ExchangeError):
            ad.tensor(source)


@pytest.mark.parametrize("code", CODES)
def test_dtype_is_numpys_own(code):
    """NumPy has two types of 64 bits: `int64` is the one whose array has that name in its repr."""
    wanted = np.dtype(np.dtype(code).name)
    for shape in ((3,), (1, 3), ()):
        x = np.zeros(shape, code)
        tensor = ad.tensor(x)
        arrays = [np.asarray(tensor), np.array(memoryview(tensor)), tensor.into(np.ndarray)]
        if shape == (3,):
            column = ad.array(x)
            arrays += [np.asarray(column), np.asarray(column[1:]), column.into(np.ndarray)]
            arrays.append(ad.convert(column, np.ndarray))
        assert [found.dtype.char for found in arrays] == [wanted.char] * len(arrays)
        assert np.dtype(tensor.__array_interface__["typestr"]).char == wanted.char
    assert memoryview(tensor).format == memoryview(np.zeros((), wanted)).format


def test_format_error_names_the_format():
    with pytest.raises(ad.ExchangeError) as info:
        ad.tensor(memoryview(b"abc").cast("c"))
    assert 'type "c"' in str(info.value)
    with pytest.raises(ad.ExchangeError) as info:
        ad.tensor((ctypes.c_int32.__ctype_be__ * 3)(), copy=False)
    assert "byte order" in str(info.value) and info.value.reason == "byteorder"


def test_foreign_byte_order_is_swapped():
    source = (ctypes.c_int32.__ctype_be__ * 3)(1, -2, 1 << 30)
    for tensor in (ad.tensor(source), ad.tensor(source, copy=True)):
        assert memoryview(tensor).tolist() == [1, -2, 1 << 30]
        assert not tensor.readonly


def test_suboffsets_are_refused():
    testbuffer = pytest.importorskip("_testbuffer")
    source = testbuffer.ndarray(list(range(6)), shape=[2, 3], format="B", flags=testbuffer.ND_PIL)
    with pytest.raises(ad.ExchangeError):
        ad.tensor(source)


def test_released_memoryview():
    source = memoryview(b"abc")
    source.release()
    with pytest.raises(ad.ExchangeError) as info:
        ad.tensor(source)
    assert isinstance(info.value.__cause__, ValueError)


def test_object_without_a_buffer():
    with pytest.raises(TypeError):
        ad.tensor(object())


def test_copy():
    source = np.arange(5)
    assert ad.tensor(source, copy=False).data_ptr == source.ctypes.data
    copied = ad.tensor(source, copy=True)
    assert copied.data_ptr != source.ctypes.data
    assert not copied.readonly
    assert memoryview(copied).tolist() == source.tolist()
    strided = np.arange(12).reshape(3, 4).T
    assert np.array_equal(ad.tensor(strided, copy=True), strided)
    assert not ad.tensor(b"abc", copy=True).readonly


# --- lifetime ----------------------------------------------------------------


class Bytes(bytearray):
    """A bytearray that can be referenced weakly."""


def test_keeps_the_exporter_alive():
    source = Bytes(b"abc")
    alive = weakref.ref(source)
    tensor = ad.tensor(source)
    column = ad.array(tensor)
    view = memoryview(column)
    del source, tensor, column
    assert alive() is not None
    assert bytes(view) == b"abc"
    del view
    assert alive() is None


def test_reference_counts_are_restored():
    source = np.arange(4)
    before = sys.getrefcount(source)
    for _ in range(10):
        tensor = ad.tensor(source)
        views = [memoryview(tensor), memoryview(ad.array(source))]
        del views, tensor
    assert sys.getrefcount(source) == before


def test_refusal_releases_the_buffer():
    source = bytearray(8)
    with pytest.raises(ad.ExchangeError):
        ad.tensor(memoryview(source).cast("c"))
    source.append(0)


def test_view_keeps_the_tensor_alive():
    tensor = ad.tensor(np.arange(6).reshape(2, 3).T)
    alive = weakref.ref(tensor)
    view = memoryview(tensor)
    assert view.obj is tensor
    del tensor
    assert view.tolist() == [[0, 3], [1, 4], [2, 5]]
    del view
    assert alive() is None


# --- export ------------------------------------------------------------------


def test_memoryview_of_a_tensor():
    view = memoryview(ad.tensor(np.arange(6, dtype="f4").reshape(2, 3)))
    assert (view.shape, view.strides, view.itemsize) == ((2, 3), (12, 4), 4)
    assert (view.format, view.readonly, view.nbytes) == ("f", False, 24)


def test_memoryview_of_an_array_is_read_only():
    source = np.arange(10)
    view = memoryview(ad.array(source).slice(2, 5))
    assert view.readonly
    assert view.shape == (5,)
    assert view.tolist() == [2, 3, 4, 5, 6]


def test_memoryview_of_a_buffer():
    column = ad.array(np.arange(3, dtype="i2"))
    assert bytes(column.buffers[1])[:6] == np.arange(3, dtype="i2").tobytes()


def test_nd_array():
    source = np.arange(24).reshape(4, 3, 2)
    assert np.array_equal(np.asarray(memoryview(ad.array(source))), source)


def test_zero_dimensions():
    view = memoryview(ad.tensor(np.array(7)))
    assert (view.ndim, view.shape, view.tolist()) == (0, (), 7)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_no_elements(shape):
    tensor = ad.tensor(np.zeros(shape))
    view = memoryview(tensor)
    assert view.shape == shape
    assert bytes(view) == b""
    assert filled(tensor, SIMPLE)["buf"]


def test_simple_request():
    tensor = ad.tensor(np.arange(6, dtype="i4").reshape(2, 3))
    plain = filled(tensor, SIMPLE)
    assert (plain["len"], plain["itemsize"], plain["ndim"]) == (24, 4, 1)
    assert (plain["format"], plain["shape"], plain["strides"]) == (None, None, None)


def test_requested_fields_are_filled():
    tensor = ad.tensor(np.arange(6, dtype="i4").reshape(2, 3))
    asked = filled(tensor, ND)
    assert (asked["ndim"], asked["shape"], asked["strides"]) == (2, (2, 3), None)
    asked = filled(tensor, STRIDES)
    assert (asked["shape"], asked["strides"], asked["format"]) == ((2, 3), (12, 4), None)
    assert filled(tensor, FULL_RO)["format"] == b"i"
    one = ad.tensor(np.arange(3, dtype="i4"))
    assert filled(one, ND)["strides"] is None
    assert filled(one, STRIDES)["strides"] == (4,)


LAYOUTS = {
    "C": np.arange(6).reshape(2, 3),
    "F": np.arange(6).reshape(2, 3).T,
    "neither": np.arange(24).reshape(4, 6)[::2, ::3],
    "one dimension, strided": np.arange(6)[::2],
    "backwards": np.arange(6)[::-1],
    "both": np.arange(6),
    "one element": np.arange(6)[::7],
    "none": np.zeros((0, 3))[:, ::2],
}


@pytest.mark.parametrize("name", LAYOUTS)
@looped(
    "flags", [SIMPLE, ND, STRIDES, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS, INDIRECT, FULL_RO]
)
def test_contiguity_matches_numpy(name, flags):
    source = LAYOUTS[name]
    tensor = ad.tensor(source)
    try:
        expected = filled(source, flags)
    except (ValueError, BufferError):
        with pytest.raises(ad.ExchangeError, match=r"contiguous") as info:
            filled(tensor, flags)
        assert info.value.reason == "strides"
        return
    got = filled(tensor, flags)
    keys = ["len", "itemsize"]
    if flags & ND == ND:
        keys += ["ndim", "shape"]
    if source.size > 1 and flags & STRIDES == STRIDES:
        keys += ["buf", "strides"]
    assert {key: got[key] for key in keys} == {key: expected[key] for key in keys}


def test_writable():
    tensor = ad.tensor(bytearray(3))
    assert not filled(tensor, WRITABLE)["readonly"]
    for readonly in (ad.tensor(b"abc"), ad.array(np.arange(3))):
        assert filled(readonly, SIMPLE)["readonly"]
        with pytest.raises(ad.ExchangeError, match="read-only") as info:
            filled(readonly, WRITABLE)
        assert info.value.reason == "readonly"


def test_device_memory():
    tensor = ad.Tensor.from_pointer(0x1000, (4,), "float32", "cuda:0")
    with pytest.raises(ad.ExchangeError, match="cuda:0") as info:
        memoryview(tensor)
    assert info.value.reason == "device"
    assert info.value.device == ad.device("cuda:0")


def test_type_without_a_code():
    torch = pytest.importorskip("torch")
    with pytest.raises(ad.ExchangeError, match="bfloat16") as info:
        memoryview(ad.tensor(torch.zeros(3, dtype=torch.bfloat16)))
    assert info.value.dtype == "bfloat16"


def test_array_with_nulls():
    with pytest.raises(BufferError, match="null"):
        memoryview(ad.array(np.ma.masked_array([1, 2, 3], [False, True, False])))


@st.composite
def views(draw):
    """Any view made by slicing and transposing."""
    shape = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4))
    dtype = draw(st.sampled_from(CODES))
    source = np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
    steps = st.sampled_from([1, 2, 3, -1, -2])
    index = tuple(slice(None, None, draw(steps)) for _ in shape)
    return source[(*index, ...)].transpose(draw(st.permutations(range(source.ndim))))


@given(views())
def test_export_matches_numpy(view):
    for given_source in (view, only_buffer(view)):
        tensor = ad.tensor(given_source)
        back = np.asarray(memoryview(tensor))
        assert back.shape == view.shape
        assert np.array_equal(back, view)
        if view.size:
            assert back.ctypes.data == view.ctypes.data


if sys.version_info >= (3, 12):  # PEP 688

    @pytest.mark.parametrize("refused", [False, True])
    def test_buffer_of_a_python_class_is_released_as_it_was_filled(refused):
        """The shape of PyBuffer_FillInfo() points into the Py_buffer itself."""

        class Exporter:
            def __buffer__(self, flags):
                memory = bytearray(8)
                return memoryview(memory).cast("c") if refused else memoryview(memory)

            def __release_buffer__(self, view):
                released.append((view.shape, view.nbytes))

        released = []
        if refused:
            with pytest.raises(ad.ExchangeError):
                ad.tensor(Exporter())
        else:
            tensor = ad.tensor(Exporter())
            assert tensor.shape == (8,) and not released
            del tensor
        gc.collect()
        assert released == [((8,), 8)]
