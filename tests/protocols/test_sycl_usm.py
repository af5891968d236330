"""`__sycl_usm_array_interface__` without SYCL: pointers are never followed."""

import gc
import sys
import weakref

import interface_dicts as dicts
import pytest

import arrowdev as ad

NAME = "__sycl_usm_array_interface__"
ADDRESS = 0xFF0000001000
ONEAPI = ad.DeviceType.ONEAPI


class SyclContext:
    """Imitates dpctl's class, which is recognized by its library and name."""

    __module__ = "dpctl._sycl_context"


CONTEXT = SyclContext()
GOOD = {
    "shape": (4,),
    "typestr": "|i4",
    "data": (ADDRESS, False),
    "version": 1,
    "syclobj": CONTEXT,
}


def showing(changes=None, **attributes):
    return dicts.Showing(NAME, dicts.changed(GOOD, changes or {}), **attributes)


# --- import ------------------------------------------------------------------


def test_reads_every_field():
    tensor = ad.tensor(
        showing({"shape": (2, 3), "strides": (6, 2), "offset": 5, "data": (ADDRESS, True)})
    )
    assert tensor.shape == (2, 3)
    assert tensor.strides == (6, 2)  # elements
    assert tensor.dtype == "int32"
    assert tensor.data_ptr == ADDRESS + 5 * 4
    assert tensor.readonly
    assert (tensor.device_type, tensor.device_id) == (ONEAPI, -1)


@dicts.wrong_fields
def test_wrong_field(changes, error, text):
    dicts.check_wrong_field(showing(changes), NAME, error, text)


@dicts.wrong_on_devices
def test_elements_that_must_be_read(typestr, reason, text):
    dicts.check_elements(showing({"typestr": typestr}), reason, text)


@dicts.NOT_DICTS
def test_not_a_dict(value):
    dicts.check_not_a_dict(NAME, value)


@pytest.mark.parametrize("version", [0, 2, 3])
def test_other_versions(version):
    with pytest.raises(ad.ExchangeError, match=f"version is {version}, expected 1"):
        ad.tensor(showing({"version": version}))


@pytest.mark.parametrize("offset", [-1, "0", 1.0, dicts.HUGE, 1 << 62, (1 << 63) - 1])
def test_wrong_offset(offset):
    with pytest.raises(ad.ExchangeError, match="offset is"):
        ad.tensor(showing({"offset": offset}))


@pytest.mark.parametrize("syclobj", [..., None])
def test_queue_is_required(syclobj):
    with pytest.raises(ad.ExchangeError, match="syclobj is missing"):
        ad.tensor(showing({"syclobj": syclobj}))


def test_device_of_dlpack():
    tensor = ad.tensor(showing(__dlpack_device__=lambda: (14, 2)))
    assert (tensor.device_type, tensor.device_id) == (ONEAPI, 2)
    with pytest.raises(ad.ExchangeError) as info:
        ad.tensor(showing(__dlpack_device__=lambda: (2, 0)))
    assert "__dlpack_device__() says cuda:0" in dicts.all_texts(info.value)


def test_copy_needs_a_runtime():
    with pytest.raises(ad.ExchangeError):
        ad.tensor(showing(), copy=True)


def test_stream_of_the_caller_is_refused():
    """No object here can make a queue wait: test_oneapi.py has one that can."""
    with pytest.raises(TypeError, match="not SyclContext"):
        ad.tensor(showing(), stream=SyclContext())
    with pytest.raises(TypeError, match="queue object"):
        ad.tensor(showing(), stream=0x5000)  # the number cannot be verified to be a queue
    tensor = ad.tensor(showing(), stream=-1)
    assert tensor.is_ready()


# --- export ------------------------------------------------------------------


@pytest.mark.parametrize(
    "syclobj",
    [
        "nonsense",
        "",
        "gpu:",
        "gpu:x",
        5,
        True,
        b"gpu",
        pytest.param(object(), id="object"),
        SyclContext,
        [],
        "level_zero;gpu",
    ],
    ids=repr,
)
def test_object_without_memory_is_refused(syclobj):
    with pytest.raises(ad.ExchangeError, match=r"syclobj is .* expected a dpctl") as info:
        ad.tensor(showing({"syclobj": syclobj}))
    assert info.value.reason == "malformed"


@pytest.mark.parametrize("syclobj", [CONTEXT, "level_zero"], ids=["context", "filter"])
def test_pending_work_is_unknown_without_a_queue(syclobj):
    tensor = ad.tensor(showing({"syclobj": syclobj}))
    for ask in (tensor.is_ready, tensor.synchronize, tensor.__arrow_c_device_array__):
        with pytest.raises(ad.ExchangeError, match="without a queue") as info:
            ask()
        assert "stream=-1" in info.value.hint
        assert "runtime" not in str(info.value)


class Subclass(SyclContext):
    __module__ = "somebody"


@pytest.mark.parametrize(
    "syclobj",
    [CONTEXT, Subclass(), "gpu:0", "0", "opencl:cpu:0"],
    ids=["context", "subclass", "filter", "number", "three"],
)
def test_round_trip(syclobj):
    source = showing({"shape": (2, 3), "strides": (1, 2), "offset": 1, "syclobj": syclobj})
    shown = ad.tensor(source).__sycl_usm_array_interface__
    assert shown == {
        "shape": (2, 3),
        "typestr": "|i4",
        "data": (ADDRESS + 4, False),
        "strides": (1, 2),
        "offset": 0,
        "version": 1,
        "syclobj": syclobj,
    }
    assert shown["syclobj"] is syclobj


def test_array_exports_the_interface():
    array = ad.array(showing()).slice(1)
    shown = array.__sycl_usm_array_interface__
    assert shown["shape"] == (3,)
    assert shown["strides"] is None
    assert shown["data"][0] == ADDRESS + 4
    assert shown["syclobj"] is CONTEXT


def test_memory_without_a_queue_has_none():
    tensor = ad.Tensor.from_pointer(ADDRESS, (4,), "float32", "oneapi:0")
    with pytest.raises(AttributeError, match="without a SYCL queue"):
        tensor.__sycl_usm_array_interface__


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_other_memory_has_none(device):
    tensor = ad.Tensor.from_pointer(ADDRESS, (4,), "float32", device)
    assert not hasattr(tensor, NAME)
    with pytest.raises(AttributeError, match="is not oneAPI's"):
        tensor.__sycl_usm_array_interface__


# --- lifetime ----------------------------------------------------------------


def test_keeps_producer_and_queue_alive():
    queue = SyclContext()
    source = showing({"syclobj": queue})
    objects = [weakref.ref(source), weakref.ref(queue)]
    tensor = ad.tensor(source)
    del source.__sycl_usm_array_interface__
    del source, queue
    assert [alive() is not None for alive in objects] == [True, True]
    assert tensor.__sycl_usm_array_interface__["syclobj"] is objects[1]()
    del tensor
    assert [alive() for alive in objects] == [None, None]


@pytest.mark.parametrize(
    "changes", [{"syclobj": None}, {"data": (0, False)}, {"shape": 3}, {"version": 5}], ids=str
)
def test_a_refusal_keeps_nothing(changes):
    gc.collect()  # garbage of other tests
    source = showing(changes)
    before = sys.getrefcount(source)
    queues = sys.getrefcount(CONTEXT)
    with pytest.raises(ad.ExchangeError):
        ad.tensor(source)
    assert sys.getrefcount(source) == before
    assert sys.getrefcount(CONTEXT) == queues
