"""DLPack through __dlpack__: export."""

import ctypes
import gc
import sys
import threading
import weakref

import dlpack_ctypes as dl
import pytest
from dlpack_checks import fails, received
from dlpack_ctypes import OnlyDLPack, Producer, Received

import arrowdev as ad

np = pytest.importorskip("numpy")

HANDLE = 0x1000


# --- export --------------------------------------------------------------------


def make(values=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), shape=(2, 3), **kwargs):
    return ad.tensor(np.array(values, dtype="f4").reshape(shape), **kwargs)


@pytest.mark.parametrize(
    ("max_version", "versioned"),
    [
        (None, False),
        ((0, 8), False),
        ((0, 99), False),
        ((1, 0), True),
        ((1, 3), True),
        ((2, 0), True),
        ((10**30, 0), True),
    ],
)
def test_max_version(max_version, versioned):
    r = Received(make().__dlpack__(max_version=max_version))
    assert r.is_versioned == versioned
    if versioned:
        assert r.version == (1, 3)
    r.delete()


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"max_version": 1}, TypeError),
        ({"max_version": [1, 0]}, TypeError),
        ({"max_version": (1.0, 0)}, TypeError),
        ({"max_version": ("1", 0)}, TypeError),
        ({"max_version": (1,)}, ValueError),
        ({"max_version": (1, 0, 0)}, ValueError),
        ({"max_version": (-1, 0)}, ValueError),
        ({"max_version": (1, -1)}, ValueError),
        ({"dl_device": 1}, TypeError),
        ({"dl_device": (1,)}, ValueError),
        ({"dl_device": ("cpu", 0)}, TypeError),
        ({"copy": 1}, TypeError),
        ({"other": None}, TypeError),
    ],
)
def test_wrong_arguments(kwargs, error):
    with pytest.raises(error):
        make().__dlpack__(**kwargs)


def test_no_positional_arguments():
    with pytest.raises(TypeError):
        make().__dlpack__(None)
    with pytest.raises(TypeError):
        make().__dlpack_device__(None)


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_fields(max_version):
    x = np.arange(6, dtype="f4").reshape(2, 3)
    t = ad.tensor(x)
    r = Received(t.__dlpack__(max_version=max_version))
    assert r.data == x.ctypes.data
    assert r.device == (1, 0)
    assert r.dtype == dl.FLOAT32
    assert r.shape == (2, 3)
    assert r.strides == (3, 1)
    assert r.byte_offset == 0
    assert r.flags in (None, 0)
    assert r.struct.deleter
    r.delete()


def test_zero_dimensions_out():
    r = received(ad.tensor(np.array(3.0)))
    assert r.ndim == 0
    assert not r.struct.tensor.shape
    assert not r.struct.tensor.strides
    r.delete()


def test_no_elements_out():
    r = received(ad.tensor(np.zeros((0, 3))))
    assert r.data is None
    assert r.shape == (0, 3)
    assert r.strides == (0, 0)  # as they came
    r.delete()


def test_export_keeps_the_memory():
    x = np.arange(3.0)
    gone = weakref.ref(x)
    t = ad.tensor(OnlyDLPack(x))
    capsules = [t.__dlpack__(), t.__dlpack__(max_version=(1, 3))]
    r = received(t)
    del t, x
    gc.collect()
    assert gone() is not None
    del capsules
    gc.collect()
    assert gone() is not None
    r.delete()
    gc.collect()
    assert gone() is None


def test_deleter_with_an_exception_set_and_on_a_thread():
    p = Producer()
    r = received(ad.tensor(p))
    assert p.deleted == 0
    thread = threading.Thread(target=r.delete)
    thread.start()
    thread.join()
    assert p.deleted == 1


@pytest.mark.parametrize("stream", [0, 1, 2, -2, 77, "x", object()])
def test_no_streams_on_the_host(stream):
    with fails("stream"):
        make().__dlpack__(stream=stream)


def test_stream_none_or_no_sync_on_the_host():
    for stream in (None, -1):
        received(make(), stream=stream).delete()


def test_dl_device():
    t = make()
    for device in (None, (1, 0), t.__dlpack_device__()):
        r = received(t, dl_device=device)
        assert r.data == t.data_ptr
        r.delete()
    with fails("device"):
        t.__dlpack__(dl_device=(1, 1))
    for device in ((2, 0), (1 << 40, 0), (-1, -1)):
        with fails("copy"):
            t.__dlpack__(dl_device=device, copy=False)
        with fails("runtime"):
            t.__dlpack__(dl_device=device)
    t = ad.tensor(Producer(device=(dl.CUDA, 1), data=HANDLE), stream=-1)
    assert t.__dlpack_device__() == (dl.CUDA, 1)
    received(t, dl_device=(2, 1)).delete()
    for device in ((2, 0), (1, 0)):
        with fails("copy"):
            t.__dlpack__(dl_device=device, copy=False)
        with fails("runtime"):
            t.__dlpack__(dl_device=device)


def test_copy_out():
    t = ad.tensor(np.arange(6).reshape(2, 3).T)
    for max_version in (None, (1, 3)):
        r = Received(t.__dlpack__(copy=True, max_version=max_version))
        assert r.data != t.data_ptr
        assert r.shape == (3, 2)
        assert r.strides == (2, 1)
        assert list((ctypes.c_int64 * 6).from_address(r.data)) == [0, 3, 1, 4, 2, 5]
        assert r.flags in (None, dl.IS_COPIED)
        r.delete()
    for copy in (None, False):
        r = received(t, copy=copy)
        assert r.data == t.data_ptr
        assert r.flags == 0
        r.delete()
    t = ad.tensor(Producer(device=(dl.CUDA, 0), data=HANDLE), stream=-1)
    with fails("runtime"):
        t.__dlpack__(copy=True)


def test_pinned_and_managed_have_id_0():
    for device in (dl.CUDA_HOST, dl.ROCM_HOST, dl.CUDA_MANAGED):
        t = ad.tensor(Producer(device=(device, 0), data=HANDLE))
        assert t.__dlpack_device__() == (device, 0)


def test_unknown_device_id():
    t = ad.tensor(Producer(device=(dl.CUDA, -1), data=HANDLE), stream=-1)
    with fails("device"):
        t.__dlpack_device__()
    with fails("device"):
        t.__dlpack__()


def test_device_id_too_large():
    t = ad.Tensor.from_pointer(HANDLE, (1,), "int8", (dl.CUDA, 1 << 40))
    with fails("device"):
        t.__dlpack_device__()


def test_buffer_is_bytes():
    a = ad.array(np.arange(3, dtype="i2"))
    r = received(a.buffers[1])
    assert r.dtype == (dl.UINT, 8, 1)
    assert r.shape == (6,)
    r.delete()


# --- export of arrays ------------------------------------------------------------


def test_array_as_tensor():
    x = np.arange(5, dtype="i4")
    a = ad.array(x)[1:4]
    assert a.__dlpack_device__() == (1, 0)
    r = received(a)
    assert r.data == x.ctypes.data + 4
    assert r.shape == (3,)
    r.delete()
    assert np.from_dlpack(a).tolist() == [1, 2, 3]
    # A legacy consumer is accepted.
    Received(a.__dlpack__()).delete()


def test_array_without_tensor():
    pa = pytest.importorskip("pyarrow")
    for x in (pa.array([1, None, 3]), pa.array(["a"])):
        a = ad.array(x)
        assert not hasattr(a, "__dlpack__")
        assert not hasattr(a, "__dlpack_device__")
        with pytest.raises(AttributeError):
            a.__dlpack__


def test_immutable_by_convention():
    pa = pytest.importorskip("pyarrow")
    t = ad.tensor(pa.array([1, 2, 3]))
    assert t.readonly
    assert received(t).flags == dl.READ_ONLY
    Received(t.__dlpack__()).delete()


# --- consumers -------------------------------------------------------------------


def test_to_numpy():
    t = make()
    x = np.from_dlpack(t)
    assert x.ctypes.data == t.data_ptr
    assert np.from_dlpack(t, copy=True).ctypes.data != t.data_ptr
    assert np.from_dlpack(t, device="cpu", copy=False).ctypes.data == t.data_ptr


def test_to_torch():
    torch = pytest.importorskip("torch")
    t = make()
    x = torch.from_dlpack(t)
    assert x.data_ptr() == t.data_ptr
    assert x.shape == (2, 3)
    assert torch.utils.dlpack.from_dlpack(t.__dlpack__()).data_ptr() == t.data_ptr


def test_from_dlpack_function():
    x = np.arange(3)
    assert ad.from_dlpack(x).data_ptr == x.ctypes.data
    assert ad.from_dlpack(x, copy=True).data_ptr != x.ctypes.data
    with pytest.raises(TypeError):
        ad.from_dlpack([1, 2])


@pytest.mark.parametrize("attribute", ["__dlpack__", "__dlpack_device__"])
def test_method_uses_tensor_found_by_lookup(attribute):
    """The offsets of lists are read once. Later changes to them have no effect."""
    pa = pytest.importorskip("pyarrow")
    offsets = np.array([0, 2, 4], "int32")
    values = np.arange(6, dtype="int32")
    array = ad.Array.from_buffers(pa.list_(pa.int32()), 2, [None, offsets], children=[values])
    assert hasattr(array, attribute)
    offsets[1] = 1
    assert np.from_dlpack(array).tolist() == [[0, 1], [2, 3]]


def test_reference_counts_are_stable():
    t = make()
    p = Producer()
    everything = [t, p, ad.ExchangeError, type(t)]

    def work():
        received(t).delete()
        t.__dlpack__()
        t.__dlpack_device__()
        ad.tensor(OnlyDLPack(t))
        ad.tensor(p)
        with pytest.raises(ad.ExchangeError):
            t.__dlpack__(stream=1)
        with pytest.raises(ad.ExchangeError):
            ad.tensor(Producer(ndim=-1))

    for _ in range(3):
        work()
    gc.collect()
    before = [sys.getrefcount(x) for x in everything]
    for _ in range(50):
        work()
    gc.collect()
    after = [sys.getrefcount(x) for x in everything]
    assert after == before
