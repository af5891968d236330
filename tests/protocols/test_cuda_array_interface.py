"""`__cuda_array_interface__` without a GPU: pointers are never dereferenced."""

import re
import sys
import weakref

import interface_dicts as dicts
import numpy as np
import pytest
from dlpack_checks import Foreign

import arrowdev as ad

NAME = "__cuda_array_interface__"
LISTS = ad.array(np.zeros((1, 3), "i4")).schema
ADDRESS = 0x7F0000001000
GOOD = {"shape": (4,), "typestr": "<i4", "data": (ADDRESS, False), "version": 3}


def showing(changes=None, **attributes):
    return dicts.Showing(NAME, dicts.changed(GOOD, changes or {}), **attributes)


def on_device(kind, ordinal):
    return {"__dlpack_device__": lambda: (kind, ordinal)}


# --- import ------------------------------------------------------------------


def test_reads_every_field():
    tensor = ad.tensor(showing({"shape": (2, 3), "strides": (24, 8), "data": (ADDRESS, True)}))
    assert tensor.shape == (2, 3)
    assert tensor.strides == (6, 2)
    assert tensor.dtype == "int32"
    assert tensor.data_ptr == ADDRESS
    assert tensor.readonly
    assert tensor.device_type == ad.DeviceType.CUDA


@dicts.wrong_fields
def test_invalid_field(changes, error, text):
    dicts.check_wrong_field(showing(changes), NAME, error, text)


@dicts.wrong_on_devices
def test_types_that_need_conversion(typestr, reason, text):
    dicts.check_elements(showing({"typestr": typestr}), reason, text)


@dicts.NOT_DICTS
def test_not_a_dict(value):
    dicts.check_not_a_dict(NAME, value)


def test_attribute_error_means_not_supported():
    class Absent:
        @property
        def __cuda_array_interface__(self):
            raise AttributeError("this one is on the host")

    with pytest.raises(TypeError):
        ad.tensor(Absent())


def test_import_reads_no_device_memory():
    array = ad.array(showing({"shape": (1 << 20,)}))
    assert len(array) == 1 << 20
    assert array.buffers[1].data_ptr == ADDRESS
    assert ad.tensor(array).data_ptr == ADDRESS


def test_copy_needs_a_runtime():
    assert ad.tensor(showing(), copy=False).data_ptr == ADDRESS
    with pytest.raises(ad.ExchangeError, match="cuda") as info:
        ad.tensor(showing(), copy=True)
    assert info.value.reason == "runtime"


# --- which device ------------------------------------------------------------


def test_unknown_device():
    tensor = ad.tensor(showing(), stream=-1)
    assert tensor.device_id == -1
    for thing in (tensor, ad.array(tensor)):
        with pytest.raises(ad.ExchangeError, match="id of the device") as info:
            thing.__arrow_c_device_array__()
        assert info.value.reason == "device" and 'device="cuda:0"' in info.value.hint
    named = ad.array(showing(), device="cuda:0", stream=-1)
    assert named.device_id == 0 and named.__arrow_c_device_array__()


def test_device_without_memory():
    empty = ad.array(showing({"shape": (0,), "data": (0, False)}))
    assert empty.device_id == 0 and empty.__arrow_c_device_array__()


@pytest.mark.parametrize(
    ("kind", "ordinal"),
    [
        (ad.DeviceType.CUDA, 3),
        (ad.DeviceType.CUDA_HOST, 0),
        (ad.DeviceType.CUDA_MANAGED, 0),
        (ad.DeviceType.ROCM, 1),
        (ad.DeviceType.ROCM_HOST, 0),
    ],
)
def test_device_from_dlpack(kind, ordinal):
    tensor = ad.tensor(showing(**on_device(kind, ordinal)))
    assert (tensor.device_type, tensor.device_id) == (kind, ordinal)


def test_host_device_is_a_contradiction():
    with pytest.raises(ad.ExchangeError) as info:
        ad.tensor(showing(**on_device(1, 0)))
    assert "__dlpack_device__() says cpu" in dicts.all_texts(info.value)


@pytest.mark.parametrize(
    "pair", [None, 2, (2,), (2, 0, 0), [2, 0], ("cuda", 0), (2, -5), (2, None)]
)
def test_device_is_not_a_pair(pair):
    with pytest.raises(ad.ExchangeError) as info:
        ad.tensor(showing(__dlpack_device__=lambda: pair))
    assert "__dlpack_device__()" in dicts.all_texts(info.value)


def test_failing_device_is_unknown():
    def refuse():
        raise RuntimeError("no idea")

    assert ad.tensor(showing(__dlpack_device__=refuse)).device_id == -1


def test_final_error_of_the_device():
    def fail():
        raise MemoryError

    with pytest.raises(MemoryError):
        ad.tensor(showing(__dlpack_device__=fail))


# --- streams -----------------------------------------------------------------


def stream_of(obj):
    return ad.tensor(obj).__cuda_array_interface__["stream"]


@pytest.mark.parametrize("stream", [1, 2, 0x55550000])
def test_stream_is_imported_and_exported(stream):
    assert stream_of(showing({"stream": stream})) == stream
    assert ad.array(showing({"stream": stream})).__cuda_array_interface__["stream"] == stream


def test_no_stream_means_the_legacy_default_stream():
    """By version 3 the data are ready, but numba, cuDF and pylibcudf do not mean it."""
    assert stream_of(showing()) == 1
    assert stream_of(showing({"stream": None})) == 1
    assert ad.tensor(showing(), stream=-1).__cuda_array_interface__["stream"] is None
    assert stream_of(showing({"shape": (0,), "data": (0, False)})) is None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_mean_the_legacy_default_stream(version):
    assert stream_of(showing({"version": version})) == 1
    assert stream_of(showing({"version": version, "stream": 7})) == 7


class RefusedByDlpack:
    """Like a tensor of torch on a device that is not the current one."""

    __cuda_array_interface__ = dicts.changed(GOOD, {"version": 2})

    def __dlpack_device__(self):
        return (2, 1)

    def __dlpack__(self, **_):
        raise BufferError("not the current device")


def test_older_version_after_a_refused_dlpack():
    """`__dlpack__` would have ordered the streams; the legacy stream would be a guess."""
    with pytest.raises(ad.ExchangeError, match="does not state the stream") as info:
        ad.tensor(RefusedByDlpack())
    assert info.value.reason == "stream"
    assert "stream=-1" in info.value.hint
    assert ad.tensor(RefusedByDlpack(), stream=-1).__cuda_array_interface__["stream"] is None


@pytest.mark.parametrize(("current", "expected"), [(None, 1), (77, 77)])
@pytest.mark.parametrize("is_subclass", [False, True])
def test_older_version_with_an_exchange_table(current, expected, is_subclass):
    """The interface of a complex tensor, or of a Parameter, is read in the library's stream."""
    foreign = Foreign(dtype=(5, 64, 1), device=(2, 1), data=ADDRESS, stream=current)
    cls = foreign.type
    cls.__cuda_array_interface__ = RefusedByDlpack.__cuda_array_interface__
    cls.__dlpack_device__ = RefusedByDlpack.__dlpack_device__
    cls.__dlpack__ = RefusedByDlpack.__dlpack__
    if is_subclass:
        cls = type("Parameter", (cls,), {})
    assert stream_of(cls()) == expected
    assert foreign.asked == [(2, 1)]
    assert foreign.n_calls == (0 if is_subclass else 1)


@pytest.mark.parametrize("stream", [0, -1, -2, dicts.HUGE, "1", 1.0, True, object()])
def test_invalid_stream(stream):
    with pytest.raises(ad.ExchangeError, match="stream is"):
        ad.tensor(showing({"stream": stream}))


def test_stream_of_the_caller():
    source = showing({"stream": 7})
    assert stream_of(source) == 7
    tensor = ad.tensor(source, stream=7)
    assert tensor.__cuda_array_interface__["stream"] == 7
    with pytest.raises(ad.ExchangeError, match="no runtime") as info:
        ad.tensor(source, stream=9)  # stream 9 would have to wait for stream 7
    assert info.value.reason == "event"
    assert ad.tensor(source, stream=-1).__cuda_array_interface__["stream"] is None
    with pytest.raises(ad.ExchangeError, match="no runtime"):
        ad.tensor(showing(), stream=9)
    with pytest.raises(ValueError):
        ad.tensor(source, stream=0)


# --- export ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cuda", "cuda_host", "cuda_managed"])
def test_export_tensor(kind):
    tensor = ad.Tensor.from_pointer(ADDRESS, (2, 3), "float32", f"{kind}:0")
    assert tensor.__cuda_array_interface__ == {
        "shape": (2, 3),
        "typestr": "<f4" if sys.byteorder == "little" else ">f4",
        "data": (ADDRESS, False),
        "strides": None,
        "version": 3,
        "stream": None,
    }


def test_export_strides_and_read_only():
    tensor = ad.Tensor.from_pointer(
        ADDRESS, (2, 3), "float64", "cuda:0", strides=(1, 2), readonly=True
    )
    shown = tensor.__cuda_array_interface__
    assert shown["strides"] == (8, 16)
    assert shown["data"] == (ADDRESS, True)


def test_export_null_pointer_without_elements():
    tensor = ad.Tensor.from_pointer(ADDRESS, (0, 3), "float32", "cuda:0")
    assert tensor.__cuda_array_interface__["data"] == (0, False)


def test_round_trip():
    source = showing({"shape": (2, 3), "stream": 5, "data": (ADDRESS, True)})
    shown = ad.tensor(ad.array(ad.tensor(source))).__cuda_array_interface__
    assert shown["data"] == (ADDRESS, True)
    assert shown["stream"] == 5
    assert shown["shape"] == (2, 3)
    assert shown["strides"] is None


@pytest.mark.parametrize("device", ["cpu", "rocm:0", "oneapi:0"])
def test_other_memory_has_no_interface(device):
    tensor = ad.Tensor.from_pointer(ADDRESS, (4,), "float32", device)
    assert not hasattr(tensor, NAME)
    with pytest.raises(AttributeError, match=f"{NAME} is not available: memory of"):
        tensor.__cuda_array_interface__


def test_type_without_typestr_has_no_interface():
    tensor = ad.Tensor.from_pointer(ADDRESS, (4,), "bfloat16", "cuda:0")
    with pytest.raises(AttributeError, match="elements of type bfloat16"):
        tensor.__cuda_array_interface__


# --- lifetime ----------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"stream": 7}], ids=["no stream", "stream"])
def test_keeps_the_producer_alive(changes):
    source = showing(changes)
    before = sys.getrefcount(source)
    alive = weakref.ref(source)
    tensor = ad.tensor(source)
    assert sys.getrefcount(source) > before
    array = ad.array(tensor)
    del source, tensor
    assert alive() is not None
    del array
    assert alive() is None


@pytest.mark.parametrize(
    "changes", [{"stream": 0}, {"data": (0, False)}, {"shape": 3}, {"version": 5}], ids=str
)
def test_refusal_keeps_nothing_alive(changes):
    source = showing(changes)
    before = sys.getrefcount(source)
    shown = source.__cuda_array_interface__
    shown_before = sys.getrefcount(shown)
    with pytest.raises(ad.ExchangeError):
        ad.tensor(source)
    assert sys.getrefcount(source) == before
    assert sys.getrefcount(shown) == shown_before


# --- masks -------------------------------------------------------------------

MASK_ADDRESS = 0x7F0000002000
BITS = {"shape": (4,), "typestr": "|t1", "data": (MASK_ADDRESS, True), "version": 3}


def with_mask(changes=None, **data):
    return showing({"mask": dicts.Showing(NAME, dicts.changed(BITS, changes or {})), **data})


@pytest.mark.parametrize("typestr", ["|t1", "<t1", "t1"])
def test_bit_mask_becomes_bitmap(typestr):
    array = ad.array(with_mask({"typestr": typestr}))
    assert (len(array), array.null_count) == (4, None)
    assert array.buffers[0].data_ptr == MASK_ADDRESS
    assert array.buffers[1].data_ptr == ADDRESS


def test_bit_column_is_bool_column():
    array = ad.array(dicts.Showing(NAME, BITS))
    assert array.schema == ad.schema("bool") and (len(array), array.null_count) == (4, 0)
    assert array.buffers[1].data_ptr == MASK_ADDRESS
    assert ad.array(showing(), validity=array).buffers[0].data_ptr == MASK_ADDRESS
    assert ad.array(showing(), validity=dicts.Showing(NAME, BITS)).null_count is None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_masks_of_older_versions(version):
    array = ad.array(with_mask({"version": version}, version=version))
    assert array.buffers[0].data_ptr == MASK_ADDRESS
    with pytest.raises(ad.ExchangeError, match="an event"):
        array.synchronize()  # before version 3 the legacy default stream is meant


def test_mask_is_kept():
    mask = dicts.Showing(NAME, BITS)
    alive = weakref.ref(mask)
    array = ad.array(showing({"mask": mask}))
    del mask
    assert alive() is not None
    del array
    assert alive() is None


def test_a_tensor_has_no_nulls():
    with pytest.raises(ad.ExchangeError) as info:
        ad.tensor(with_mask())
    assert info.value.reason == "nulls"
    assert ad.tensor(with_mask(), nulls="ignore").data_ptr == ADDRESS


def test_no_elements():
    array = ad.array(with_mask({"shape": (0,), "data": (0, True)}, shape=(0,), data=(0, False)))
    assert (len(array), array.null_count) == (0, 0)


def test_byte_mask_needs_a_runtime():
    with pytest.raises(ad.ExchangeError) as info:
        ad.array(with_mask({"typestr": "|b1"}))
    assert info.value.reason == "runtime"


@pytest.mark.parametrize(
    ("changes", "data", "text"),
    [
        ({"shape": (5,)}, {}, "mask has 5 elements, expected one for each of 4"),
        ({"shape": (3,), "typestr": "|b1"}, {}, "mask has 3 elements"),
        ({"typestr": "<i4"}, {}, "elements of the mask are int32, expected bools"),
        ({"typestr": "<f8"}, {}, "float64"),
        ({"strides": (1,)}, {}, "with strides, expected one, and no strides"),
        ({"shape": (2, 2)}, {}, "bits lie in 2 dimensions"),
        ({"shape": (2, 2), "typestr": "|b1"}, {"shape": (2, 2)}, "validity bit per row"),
        ({"descr": [("", "<i4")]}, {}, "descr is of type list"),
        ({"data": (0, True)}, {}, "no data"),
        ({"mask": object()}, {}, "mask is set, in a mask"),
        ({"version": 4}, {}, "version is 4"),
        ({"stream": 0}, {}, "stream is 0"),
        ({"shape": ...}, {}, "shape is missing"),
    ],
)
def test_invalid_masks(changes, data, text):
    raised = dicts.refusal(ad.array, with_mask(changes, **data))
    assert isinstance(raised, ad.ExchangeError)
    assert re.search(text, dicts.all_texts(raised), re.S)


def test_masks_on_two_devices():
    mask = dicts.Showing(NAME, BITS, **on_device(ad.DeviceType.CUDA, 1))
    with pytest.raises(ad.ExchangeError, match="data are on cuda:0, but their mask is on cuda:1"):
        ad.array(showing({"mask": mask}, **on_device(ad.DeviceType.CUDA, 0)))


def test_failing_mask_is_final():
    class Failing:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("no mask today")

    raised = dicts.refusal(ad.array, showing({"mask": Failing()}, __array__=lambda: 1 / 0))
    assert "no mask today" in dicts.all_texts(raised)


def nullable(offset=0, length=8, null_count=-1, type="int32"):
    buffers = [
        ad.Tensor.from_pointer(address, (1024,), "uint8", "cuda:0")
        for address in (MASK_ADDRESS, ADDRESS)
    ]
    return ad.Array.from_buffers(type, length, buffers, offset=offset, null_count=null_count)


@pytest.mark.parametrize("offset", [0, 8, 64])
def test_nulls_are_exported_as_mask(offset):
    array = nullable(offset)
    shown = array.__cuda_array_interface__
    assert shown["data"] == (ADDRESS + 4 * offset, True)
    assert shown["shape"] == (8,) and shown["stream"] is None
    mask = shown["mask"].__cuda_array_interface__
    assert mask == {
        "shape": (8,),
        "typestr": "|t1",
        "data": (MASK_ADDRESS + offset // 8, True),
        "strides": None,
        "version": 3,
        "stream": None,
    }
    back = ad.array(dicts.Showing(NAME, shown))
    assert back.buffers[0].data_ptr == MASK_ADDRESS + offset // 8
    assert back.buffers[1].data_ptr == ADDRESS + 4 * offset


def test_no_mask_without_nulls():
    assert "mask" not in nullable(null_count=0).__cuda_array_interface__
    assert "mask" in nullable(null_count=3).__cuda_array_interface__


def test_bit_offset_is_not_exported():
    assert not hasattr(nullable(3), NAME)
    with pytest.raises(AttributeError, match=r"compact\(\)"):
        nullable(3).__cuda_array_interface__


def test_mask_keeps_memory():
    owner = dicts.Showing(NAME, BITS)
    alive = weakref.ref(owner)
    array = ad.array(showing({"mask": owner}))
    mask = array.__cuda_array_interface__["mask"]
    del owner, array
    assert alive() is not None
    del mask
    assert alive() is None


def test_multidimensional_rows_export_no_mask():
    bitmap = ad.Tensor.from_pointer(MASK_ADDRESS, (64,), "uint8", "cuda:0")
    values = ad.array(ad.Tensor.from_pointer(ADDRESS, (12,), "int32", "cuda:0"))
    rows = ad.Array.from_buffers(LISTS, 4, [bitmap], children=[values])
    with pytest.raises(AttributeError, match="several dimensions"):
        rows.__cuda_array_interface__
