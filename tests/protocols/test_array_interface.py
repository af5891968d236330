"""`__array_interface__`: import and export. Every field is read or refused."""

import ctypes
import gc
import sys
import weakref

import interface_dicts as dicts
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arrowdev as ad

NAME = "__array_interface__"
MEMORY = (ctypes.c_int32 * 16)(*range(16))
ADDRESS = ctypes.addressof(MEMORY)
GOOD = {"shape": (4,), "typestr": "<i4", "data": (ADDRESS, False), "version": 3}


def showing(changes=None, **attributes):
    return dicts.Showing(NAME, dicts.changed(GOOD, changes or {}), **attributes)


# --- import ------------------------------------------------------------------


def test_reads_every_field():
    tensor = ad.tensor(showing())
    assert tensor.shape == (4,)
    assert tensor.strides == (1,)
    assert tensor.dtype == "int32"
    assert tensor.data_ptr == ADDRESS
    assert tensor.device_type == ad.DeviceType.CPU
    assert not tensor.readonly
    assert np.asarray(tensor).tolist() == [0, 1, 2, 3]


def test_as_array():
    array = ad.array(showing())
    assert array.to_pylist() == [0, 1, 2, 3]
    assert array.buffers[1].data_ptr == ADDRESS


@pytest.mark.parametrize(
    ("flag", "readonly"), [(False, False), (True, True), (0, False), (1, True)]
)
def test_readonly_flag(flag, readonly):
    tensor = ad.tensor(showing({"data": (ADDRESS, flag)}))
    assert tensor.readonly is readonly
    assert tensor.__array_interface__["data"] == (ADDRESS, readonly)


@pytest.mark.parametrize(
    "changes",
    [
        {"strides": None},
        {"strides": (4,)},
        {"descr": None},
        {"descr": [("", "<i4")]},
        {"descr": [("", "|i4")]},
        {"mask": None},
        {"offset": 0},
        {"offset": None},
        {"shape": (dicts.HasIndex(4),)},
        {"data": (dicts.HasIndex(ADDRESS), False)},
        {"typestr": "i4"},
        {"typestr": "=i4"},
        {"something": "else"},
    ],
    ids=str,
)
def test_all_typestr_spellings(changes):
    assert np.asarray(ad.tensor(showing(changes))).tolist() == [0, 1, 2, 3]


def test_strides_are_bytes():
    tensor = ad.tensor(showing({"shape": (2, 3), "strides": (24, 8)}))
    assert tensor.strides == (6, 2)
    assert np.asarray(tensor).tolist() == [[0, 2, 4], [6, 8, 10]]


def test_negative_and_zero_strides():
    backwards = showing({"data": (ADDRESS + 12, False), "strides": (-4,)})
    assert np.asarray(ad.tensor(backwards)).tolist() == [3, 2, 1, 0]
    assert np.asarray(ad.tensor(showing({"strides": (0,)}))).tolist() == [0] * 4


def test_stride_must_be_a_multiple_of_the_itemsize():
    with pytest.raises(ad.ExchangeError, match="stride of 6 bytes in dimension 0") as info:
        ad.tensor(showing({"strides": (6,)}))
    assert info.value.reason == "strides"
    # The stride of a dimension with at most one element is not checked.
    assert ad.tensor(showing({"shape": (1,), "strides": (6,)})).shape == (1,)
    assert ad.tensor(showing({"shape": (0, 4), "strides": (6, 3)})).shape == (0, 4)


def test_zero_dimensions():
    tensor = ad.tensor(showing({"shape": ()}))
    assert tensor.shape == () and tensor.ndim == 0
    assert np.asarray(tensor)[()] == 0


@pytest.mark.parametrize("address", [0, ADDRESS], ids=["NULL", "memory"])
def test_no_elements(address):
    tensor = ad.tensor(showing({"shape": (3, 0), "data": (address, False)}))
    assert tensor.shape == (3, 0)
    # NumPy before 2.3 refuses a null pointer.
    shown, readonly = tensor.__array_interface__["data"]
    assert shown != 0 and not readonly
    assert np.asarray(tensor).shape == (3, 0)


@dicts.wrong_fields
def test_invalid_field(changes, error, text):
    dicts.check_wrong_field(showing(changes), NAME, error, text)


@dicts.NOT_DICTS
def test_not_a_dict(value):
    dicts.check_not_a_dict(NAME, value)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_version(version):
    with pytest.raises(ad.ExchangeError, match=f"version is {version}, expected 3"):
        ad.tensor(showing({"version": version}))


def test_offset_beside_a_pointer():
    with pytest.raises(ad.ExchangeError, match="offset is 4, expected 0"):
        ad.tensor(showing({"offset": 4}))


def test_reasons():
    for changes, reason in [
        ({"shape": [4]}, "malformed"),
        ({"typestr": "<M8[D]"}, "dtype"),
        ({"mask": object()}, "nulls"),
    ]:
        raised = dicts.refusal(ad.tensor, showing(changes))
        assert raised.reason == reason
        assert reason == "malformed" or raised.hint


class RaisesOnAccess:
    def __init__(self, error):
        self.error = error

    @property
    def __array_interface__(self):
        raise self.error


def test_attribute_error_means_not_supported():
    with pytest.raises(TypeError):
        ad.tensor(RaisesOnAccess(AttributeError("not now")))


def test_other_errors_are_refusals():
    raised = dicts.refusal(ad.tensor, RaisesOnAccess(RuntimeError("broken")))
    assert isinstance(raised, ad.ExchangeError)
    assert isinstance(raised.__cause__, RuntimeError)
    assert NAME in str(raised)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_final_errors(error):
    with pytest.raises(error):
        ad.tensor(RaisesOnAccess(error()))


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, np.frombuffer])
def test_data_may_be_a_buffer(make):
    """The field data holds the memory itself, as Pillow's does."""
    memory = make(np.arange(6, dtype="<i4").tobytes())
    source = showing({"data": memory, "shape": (2, 3)})
    tensor = ad.tensor(source)
    values = np.from_dlpack(tensor)
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.shares_memory(values, np.frombuffer(memory, "u1"))
    assert tensor.readonly == memoryview(memory).readonly
    del source, memory
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_buffer_of_data_lives_with_the_tensor():
    memory = bytearray(16)
    tensor = ad.tensor(showing({"data": memory}))
    with pytest.raises(BufferError):
        memory.append(0)
    del tensor
    memory.append(0)


def test_offset_into_a_buffer_of_data():
    memory = np.arange(6, dtype="<i4").tobytes()
    assert np.from_dlpack(ad.tensor(showing({"data": memory, "offset": 8}))).tolist() == [
        *(2, 3, 4, 5)
    ]
    backwards = {"data": memory, "offset": 20, "strides": (-4,)}
    assert np.from_dlpack(ad.tensor(showing(backwards))).tolist() == [5, 4, 3, 2]
    for wrong in (
        {"offset": 9},
        {"offset": 25},
        {"offset": 2**62},
        {"offset": 0, "strides": (8,)},
        {"offset": 8, "strides": (-4,)},
    ):
        with pytest.raises(ad.ExchangeError, match=r"of data, which has 24|offset is") as info:
            ad.tensor(showing({"data": memory, **wrong}))
        assert info.value.reason == "malformed"
    with pytest.raises(ad.ExchangeError, match="contiguous"):
        ad.tensor(showing({"data": memoryview(memory)[::2]}))


def test_refusal_falls_back_to_buffer_protocol():
    class Both(bytearray):
        @property
        def __array_interface__(self):
            raise RuntimeError("broken")

    assert bytes(ad.tensor(Both(b"abc"))) == b"abc"


def test_numpy_types_without_equivalent():
    for array in [
        np.zeros(3, "M8[D]"),
        np.zeros(3, "m8[h]"),
        np.zeros(3, "i4,f4"),
        np.zeros(3, "S3"),
        np.zeros(3, object),
        np.zeros(3, "g"),
    ]:
        raised = dicts.refusal(ad.tensor, dicts.OnlyInterface(array))
        assert isinstance(raised, ad.ExchangeError), array.dtype
    with pytest.raises(ad.ExchangeError, match=r'\.view\("int64"\)'):
        ad.tensor(np.zeros(3, "M8[ns]"))


def test_numpy_scalar_keeps_its_memory():
    # Only the dict ("__ref") holds the array that owns the memory.
    tensors = [ad.tensor(dicts.OnlyInterface(np.float64(i))) for i in range(50)]
    scalar = ad.tensor(np.float64(2.5))
    gc.collect()
    junk = [np.empty(()) for _ in range(100)]
    assert [float(np.asarray(tensor)) for tensor in tensors] == list(range(50))
    assert float(np.asarray(scalar)) == 2.5
    del junk


def test_copy():
    source = showing()
    for copy in (None, False):
        assert ad.tensor(source, copy=copy).data_ptr == ADDRESS
    copied = ad.tensor(source, copy=True)
    assert copied.data_ptr != ADDRESS
    assert np.asarray(copied).tolist() == [0, 1, 2, 3]


# --- lifetime ----------------------------------------------------------------


def test_keeps_the_producer_alive():
    source = showing()
    before = sys.getrefcount(source)
    alive = weakref.ref(source)
    tensor = ad.tensor(source)
    assert sys.getrefcount(source) == before + 1
    del source
    gc.collect()
    assert alive() is not None
    del tensor
    assert alive() is None


def test_refusal_keeps_nothing_alive():
    for changes in [{}, {"shape": [4]}, {"data": (0, False)}, {"mask": 1}, {"version": 9}]:
        source = showing(changes)
        counts = [sys.getrefcount(value) for value in source.__dict__.values()]
        before = sys.getrefcount(source)
        try:
            ad.tensor(source)
        except ad.ExchangeError:
            pass
        assert sys.getrefcount(source) == before
        assert [sys.getrefcount(value) for value in source.__dict__.values()] == counts


def test_dict_changes_during_read():
    class Evil:
        def __index__(self):
            source.__dict__[NAME].clear()
            return 4

    source = dicts.Showing(NAME, dicts.changed(GOOD, {"shape": (Evil(), Evil())}))
    assert isinstance(dicts.refusal(ad.tensor, source), ad.ExchangeError)


# --- export ------------------------------------------------------------------


def test_export_tensor():
    tensor = ad.tensor(showing({"shape": (2, 3)}))
    assert tensor.__array_interface__ == {
        "shape": (2, 3),
        "typestr": "<i4" if sys.byteorder == "little" else ">i4",
        "data": (ADDRESS, False),
        "strides": None,
        "version": 3,
    }


def test_export_strides_in_bytes():
    tensor = ad.tensor(showing({"shape": (2, 3), "strides": (8, 16)}))
    assert tensor.__array_interface__["strides"] == (8, 16)


def test_export_array_read_only():
    array = ad.array(np.arange(5, dtype="f8"))
    shown = array.__array_interface__
    assert shown["shape"] == (5,)
    assert shown["data"][1] is True
    assert np.array_equal(np.asarray(dicts.OnlyInterface(array)), np.arange(5.0))


def test_export_array_slice():
    source = np.arange(10)
    array = ad.array(source).slice(3, 4)
    assert array.__array_interface__["data"][0] == source[3:].ctypes.data
    assert np.asarray(dicts.OnlyInterface(array)).tolist() == [3, 4, 5, 6]


def test_array_with_nulls_has_no_interface():
    array = ad.array(np.ma.masked_array([1, 2, 3], [False, True, False]))
    assert not hasattr(array, NAME)
    with pytest.raises(AttributeError, match="null"):
        array.__array_interface__


def test_device_memory_has_no_interface():
    tensor = ad.Tensor.from_pointer(0x1000, (4,), "float32", "cuda:0")
    with pytest.raises(AttributeError, match=rf"{NAME} is not available.*cuda:0"):
        tensor.__array_interface__
    assert not hasattr(tensor, NAME)


def test_type_without_typestr_has_no_interface():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    torch = pytest.importorskip("torch")
    assert ml_dtypes is not None
    tensor = ad.tensor(torch.zeros(3, dtype=torch.bfloat16))
    with pytest.raises(AttributeError, match="bfloat16"):
        tensor.__array_interface__


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"])
def test_hint_for_dtypes_of_other_libraries(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(4).astype(getattr(ml_dtypes, name))
    for convert in (ad.array, ad.tensor):
        with pytest.raises(ad.ExchangeError, match=r"not NumPy's own|of that size") as info:
            convert(x)
        code = info.value.hint.removesuffix(" gives their bits")
        assert np.asarray(convert(eval(code))).tobytes() == x.tobytes()


TYPES = ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D"]


@pytest.mark.parametrize("code", TYPES)
def test_every_type_round_trip(code):
    source = np.arange(6).astype(code)
    tensor = ad.tensor(dicts.OnlyInterface(source))
    assert tensor.dtype == source.dtype.name
    back = np.asarray(dicts.OnlyInterface(tensor))
    assert back.dtype == source.dtype
    assert np.array_equal(back, source)
    assert back.ctypes.data == source.ctypes.data


@st.composite
def views(draw):
    """Any view made by slicing and transposing."""
    shape = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4))
    dtype = draw(st.sampled_from(TYPES))
    array = np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
    index = tuple(
        slice(draw(st.integers(0, 2)), None, draw(st.sampled_from([1, 2, 3])))
        if draw(st.booleans())
        else slice(None, None, draw(st.sampled_from([1, -1, -2])))
        for _ in shape
    )
    view = array[(*index, ...)]
    return view.transpose(draw(st.permutations(range(view.ndim))))


@given(views())
def test_export_matches_numpy(view):
    tensor = ad.tensor(dicts.OnlyInterface(view))
    assert tensor.shape == view.shape
    assert np.array_equal(np.asarray(dicts.OnlyInterface(tensor)), view)
    shown = tensor.__array_interface__
    if view.size:
        assert shown["data"] == view.__array_interface__["data"]
        assert (shown["strides"] is None) == view.flags.c_contiguous
    copied = ad.tensor(dicts.OnlyInterface(view), copy=True)
    assert np.array_equal(np.asarray(copied), view)


# --- masks ------------------------------------------------------------------------------------


class Masked:
    def __init__(self, data, mask):
        self.__array_interface__ = data.__array_interface__ | {"mask": mask}
        self.parts = data, mask


class Bits:
    def __init__(self, valid, **changes):
        self.bits = np.packbits(valid, bitorder="little")
        shown = self.bits.__array_interface__
        self.__array_interface__ = shown | {
            "typestr": "|t1",
            "shape": (len(valid),),
            "descr": None,
            **changes,
        }


@pytest.mark.parametrize("make", [np.asarray, Bits, lambda valid: np.repeat(valid, 2)[::2]])
@pytest.mark.parametrize("dtype", ["i8", ">i4", "M8[s]"])
def test_masks(make, dtype):
    valid = np.arange(100) % 3 != 1
    data = np.arange(100).astype(dtype)
    array = ad.array(Masked(data, make(valid)))
    expected = ad.array(data).to_pylist()
    assert array.to_pylist() == [
        x if good else None for x, good in zip(expected, valid, strict=True)
    ]
    assert array.null_count == 33


@pytest.mark.parametrize("n", [0, 1, 8, 100])
def test_bit_column_is_bool_column(n):
    data = np.arange(n) % 3 == 1
    source = Bits(data)
    array = ad.array(source, copy=False)
    assert array.schema == ad.schema("bool") and array.to_pylist() == data.tolist()
    assert n == 0 or array.buffers[1].data_ptr == source.bits.ctypes.data
    assert n == 0 or ad.array(source, copy=True).buffers[1].data_ptr != source.bits.ctypes.data
    assert np.asarray(ad.tensor(source)).tolist() == data.tolist()
    masked = ad.array(np.arange(n), validity=source)
    assert masked.to_pylist() == [i if good else None for i, good in enumerate(data)]
    assert ad.array(Masked(source, Bits(~data))).to_pylist() == [
        None if good else False for good in data.tolist()
    ]
    alive = weakref.ref(source.bits)
    del source
    assert alive() is not None
    del array, masked
    assert alive() is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shape": (4, 5)}, "bits lie in 2 dimensions"),
        ({"strides": (1,)}, "no strides"),
        ({"descr": [("", "|b1")]}, "descr"),
        ({"data": (0, True)}, "no data"),
        ({"mask": np.ones(19, bool)}, "mask has 19 elements, expected one for each of 20"),
    ],
)
def test_bits_refused(changes, text):
    with pytest.raises(ad.ExchangeError, match=text):
        ad.array(Bits(np.ones(20, bool), **changes))


def test_mask_of_another_length():
    with pytest.raises(
        ad.ExchangeError, match="mask has 99 elements, expected one for each of 100"
    ):
        ad.array(Masked(np.arange(100), np.ones(99, bool)))
    with pytest.raises(ad.ExchangeError, match="validity bit per row"):
        ad.array(Masked(np.ones((2, 2)), np.ones((2, 2), bool)))
