"""DLPack import through __dlpack__. Export is in test_dlpack_export.py."""

import gc
import sys
import threading
import weakref

import dlpack_ctypes as dl
import pytest
from dlpack_checks import fails, received
from dlpack_ctypes import Managed, OnlyDLPack, Producer, Received
from isolation import run

import arrowdev as ad

np = pytest.importorskip("numpy")

HANDLE = 0x1000


# --- import from other libraries ----------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "bool"],
)
def test_from_numpy(dtype):
    x = np.arange(12).reshape(3, 4).astype(dtype)
    t = ad.tensor(OnlyDLPack(x))
    assert t.dtype == x.dtype.name
    assert t.shape == (3, 4)
    assert t.strides == (4, 1)
    assert t.data_ptr == x.ctypes.data
    assert not t.readonly
    assert (np.from_dlpack(t) == x).all()


def test_from_numpy_with_strides():
    x = np.arange(24, dtype="f4").reshape(4, 6)[::-2, ::3]
    t = ad.tensor(OnlyDLPack(x))
    assert t.shape == (2, 2)
    assert t.strides == (-12, 3)
    assert (np.from_dlpack(t) == x).all()


def test_owner_is_released():
    x = np.arange(3)
    gone = weakref.ref(x)
    t = ad.tensor(OnlyDLPack(x))
    del x
    gc.collect()
    assert gone() is not None
    del t
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "dtype", ["int64", "uint8", "bool", "float32", "bfloat16", "float8_e4m3fn", "complex64"]
)
def test_from_torch(dtype):
    torch = pytest.importorskip("torch")
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    for source in (x, OnlyDLPack(x)):
        t = ad.tensor(source)
        assert t.dtype == dtype
        assert t.shape == (2, 3)
        assert t.data_ptr == x.data_ptr()
        back = torch.from_dlpack(t)
        assert back.data_ptr() == x.data_ptr()
        assert back.dtype == x.dtype


def test_from_jax():
    pytest.importorskip("jax")
    import jax.numpy as jnp

    x = jnp.arange(6.0).reshape(2, 3)
    t = ad.tensor(x)
    assert t.dtype == "float32"
    assert t.shape == (2, 3)
    assert (np.from_dlpack(t) == np.asarray(x)).all()
    assert (jnp.from_dlpack(t) == x).all()


def test_from_tvm_ffi():
    tvm_ffi = pytest.importorskip("tvm_ffi")
    x = np.arange(6, dtype="i4").reshape(2, 3)
    t = ad.tensor(tvm_ffi.from_dlpack(x))
    assert t.data_ptr == x.ctypes.data
    assert (np.from_dlpack(t) == x).all()
    assert tvm_ffi.from_dlpack(t).shape == (2, 3)


# --- import: capsules and structs ---------------------------------------------


@pytest.mark.parametrize("versioned", [True, False])
def test_both_capsules(versioned):
    p = Producer(versioned=versioned)
    t = ad.tensor(p)
    assert dl.capsule_name(p.capsule).startswith("used_")
    assert t.shape == (3,)
    assert t.strides == (1,)
    assert t.dtype == "float32"
    assert t.data_ptr == p.managed.data
    assert (t.device_type, t.device_id) == (1, -1)
    assert p.deleted == 0
    del t
    assert p.deleted == 1


@pytest.mark.parametrize("versioned", [True, False])
def test_null_deleter(versioned):
    p = Producer(versioned=versioned, deleter=False)
    t = ad.tensor(p)
    assert t.shape == (3,)
    del t


def test_deleter_on_another_thread():
    p = Producer()
    box = [ad.tensor(p)]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert p.deleted == 1


def test_minor_version_and_unknown_flags():
    t = ad.tensor(Producer(version=(1, 99), flags=1 << 40))
    assert t.shape == (3,)


def test_null_strides_are_row_major():
    t = ad.tensor(Producer((1.0,) * 6, shape=(2, 3), strides=None))
    assert t.strides == (3, 1)


def test_zero_dimensions():
    for strides in (None, ()):
        t = ad.tensor(Producer((5.0,), shape=(), strides=strides))
        assert t.shape == ()
        assert np.from_dlpack(t)[()] == 5.0


@pytest.mark.parametrize("data", ["own", None])
def test_no_elements(data):
    t = ad.tensor(Producer((), shape=(0, 2), data=data))
    assert t.shape == (0, 2)
    assert t.nbytes == 0
    assert np.from_dlpack(t).shape == (0, 2)


def test_byte_offset_moves_pointers():
    p = Producer(shape=(2,), byte_offset=4)
    t = ad.tensor(p)
    assert t.data_ptr == p.managed.data + 4
    assert received(t).byte_offset == 0
    assert np.from_dlpack(t).tolist() == [2.0, 3.0]


@pytest.mark.parametrize("device", [dl.OPENCL, dl.VULKAN, dl.METAL])
def test_byte_offset_stays_beside_handles(device):
    t = ad.tensor(Producer(device=(device, 0), data=HANDLE, byte_offset=8))
    assert t.data_ptr == HANDLE
    assert t.byte_offset == 8
    r = received(t)
    assert (r.data, r.byte_offset, r.device) == (HANDLE, 8, (device, 0))
    r.delete()


def test_lanes_are_kept():
    t = ad.tensor(Producer((1.0,) * 8, shape=(2,), dtype=(dl.FLOAT, 32, 4)))
    assert t.dtype == "float32x4"
    assert received(t).dtype == (dl.FLOAT, 32, 4)


def test_unknown_type_is_preserved():
    t = ad.tensor(Producer(dtype=(77, 32, 1)))
    assert received(t).dtype == (77, 32, 1)


MALFORMED = {
    "negative ndim": {"ndim": -1},
    "no shape": {"has_shape": False},
    "negative extent": {"shape": (-3,), "strides": None},
    "size overflows": {"shape": (1 << 40, 1 << 40), "strides": None},
    "no data": {"data": None},
    "no bits": {"dtype": (dl.FLOAT, 0, 1)},
    "no lanes": {"dtype": (dl.FLOAT, 32, 0)},
    "byte offset overflows": {"byte_offset": (1 << 64) - 1},
    "strides overflow": {"shape": (3,), "strides": (1 << 62,)},
}


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_struct(case, versioned):
    p = Producer(versioned=versioned, **MALFORMED[case])
    with fails("malformed"):
        ad.tensor(p)
    assert p.deleted == 1


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"ndim": 65}, "ndim"),
        ({"dtype": (dl.BOOL, 1, 1)}, "dtype"),
        ({"version": (2, 0)}, "version"),
        ({"version": (0, 8)}, "version"),
    ],
)
def test_unsupported_struct(kwargs, reason):
    p = Producer(**kwargs)
    with fails(reason):
        ad.tensor(p)
    assert p.deleted == 1


def test_other_major_version_is_not_read():
    p = Producer(version=(9, 0), ndim=-1, data=None)
    with fails("version"):
        ad.tensor(p)
    assert p.deleted == 1


@pytest.mark.parametrize("name", ["other", "used_dltensor", "used_dltensor_versioned"])
def test_wrong_capsule(name):
    p = Producer(name=name)
    with fails("consumed" if name.startswith("used") else "protocol") as info:
        ad.tensor(p)
    assert name in str(info.value)
    assert "Producer" in str(info.value)
    assert p.deleted == 0


def test_no_capsule():
    p = Producer()
    for result in (3, "capsule", p.managed):
        p.result = result
        with fails("protocol"):
            ad.tensor(p)


def test_capsule_is_consumed_once():
    p = Producer()
    p.result = p.managed.capsule()
    t = ad.tensor(p)
    with fails("consumed"):
        ad.tensor(p)
    del t
    assert p.deleted == 1


@pytest.mark.parametrize("advertised", [None, (1,), "x", (1, 2, 3), ("cpu", 0), (1 << 40, 0)])
def test_wrong_dlpack_device(advertised):
    p = Producer()
    p.advertised = advertised
    with fails("protocol"):
        ad.tensor(p)
    assert p.calls == []


def test_shape_is_copied():
    """torch's managed tensors are live views of the tensor, so the shape may change."""
    p = Producer()
    t = ad.tensor(p)
    p.managed.shape[0] = 1 << 30
    p.managed.struct.tensor.data = 8
    assert t.shape == (3,)
    assert t.data_ptr == p.managed.data


# --- import: how the producer is called ---------------------------------------


@pytest.mark.parametrize(
    ("device", "stream", "passed"),
    [
        ((dl.CPU, 0), None, {}),
        ((dl.CUDA_HOST, 0), None, {}),
        ((dl.CUDA, 0), None, {"stream": 1}),
        ((dl.CUDA, 0), 1, {"stream": 1}),
        ((dl.CUDA, 0), 2, {"stream": 2}),
        ((dl.CUDA, 1), 77, {"stream": 77}),
        ((dl.CUDA, 0), -1, {"stream": 1}),
        ((dl.CUDA_MANAGED, 0), None, {"stream": 1}),
        ((dl.ROCM, 0), None, {"stream": 0}),
        ((dl.ROCM, 0), 77, {"stream": 77}),
        ((dl.OPENCL, 0), None, {}),
        ((dl.EXT_DEV, 0), None, {}),
        ((dl.UNKNOWN, 5), None, {}),
        ((dl.ONEAPI, 0), -1, {}),
    ],
)
def test_keywords(device, stream, passed):
    p = Producer(device=device, data=HANDLE)
    t = ad.tensor(p, stream=stream)
    assert p.calls == [{"max_version": (1, 3), **passed}]
    assert (int(t.device_type), t.device_id) == (device[0], -1 if device[0] == 1 else device[1])


@pytest.mark.parametrize(
    ("module", "name"), [("torch", "Tensor"), ("torch.nn", "Tensor"), ("cupy", "ndarray")]
)
def test_who_takes_no_synchronization(module, name):
    """jax casts -1 to a stream of the driver: only who is known to take -1 gets it."""
    known = type(name, (Producer,), {"__module__": module})
    derived = type("Derived", (known,), {})
    for cls in (known, derived):
        p = cls(device=(dl.CUDA, 0), data=HANDLE)
        t = ad.tensor(p, stream=-1)
        assert p.calls == [{"max_version": (1, 3), "stream": -1}] and t.is_ready()
    for other in ("jaxlib", "torchish", "cupyx"):
        p = type(name, (Producer,), {"__module__": other})(device=(dl.CUDA, 0), data=HANDLE)
        t = ad.tensor(p, stream=-1)
        assert p.calls == [{"max_version": (1, 3), "stream": 1}] and t.is_ready()


@pytest.mark.parametrize(
    ("device", "stream", "error"),
    [
        (dl.CUDA, 0, ValueError),
        (dl.CUDA, -2, ValueError),
        (dl.CUDA, "x", TypeError),
        (dl.ROCM, 1, ValueError),
        (dl.ROCM, 2, ValueError),
    ],
)
def test_invalid_stream_is_final(device, stream, error):
    p = Producer(device=(device, 0), data=HANDLE)
    with pytest.raises(error):
        ad.tensor(p, stream=stream)
    assert p.calls == []


def test_stream_object():
    class Stream:
        def __cuda_stream__(self):
            return (0, 77)

    p = Producer(device=(dl.CUDA, 0), data=HANDLE)
    ad.tensor(p, stream=Stream())
    assert p.calls[0]["stream"] == 77


def test_pending_stream_is_kept():
    p = Producer(device=(dl.CUDA, 0), data=HANDLE)
    t = ad.tensor(p, stream=77)
    for stream in (77, -1):
        received(t, stream=stream).delete()
    for stream in (None, 1, 2, 78):
        with fails("event") as info:
            t.__dlpack__(stream=stream)
        assert info.value.device.type == dl.CUDA
    t = ad.tensor(Producer(device=(dl.CUDA, 0), data=HANDLE))
    for stream in (None, 1, -1):
        received(t, stream=stream).delete()
    with fails("event"):
        t.__dlpack__(stream=2)


def test_no_synchronization_leaves_nothing_to_wait_for():
    t = ad.tensor(Producer(device=(dl.CUDA, 0), data=HANDLE), stream=-1)
    for stream in (None, 1, 2, 77, -1):
        received(t, stream=stream).delete()
    for stream, error in ((0, ValueError), (-2, ValueError), ("x", TypeError)):
        with pytest.raises(error):
            t.__dlpack__(stream=stream)


def test_struct_overrides_advertised_device():
    # torch advertises CUDA_HOST for pinned memory, but its capsule says CPU.
    t = ad.tensor(Producer(device=(dl.CPU, 0), advertised=(dl.CUDA_HOST, 0)))
    assert t.device_type == dl.CPU
    assert np.from_dlpack(t).tolist() == [1, 2, 3]
    # __dlpack__ was called without a stream, so work may be pending on the default stream.
    t = ad.tensor(Producer(device=(dl.CUDA, 0), data=HANDLE, advertised=(dl.CPU, 0)))
    received(t, stream=1).delete()
    with fails("event"):
        t.__dlpack__(stream=2)


def test_queue_without_a_runtime():
    run("queue_without_runtime", environment={"ARROWDEV_ONEAPI_LIBRARY": "/nowhere/lib.so"})


def test_retry_with_fewer_keywords():
    p = Producer(knows=("stream",), versioned=False)
    assert ad.tensor(p).shape == (3,)
    assert p.calls == [{"max_version": (1, 3)}, {}]
    p = Producer(knows=(), versioned=False)
    assert ad.tensor(p, copy=False).shape == (3,)
    assert p.calls == [{"max_version": (1, 3), "copy": False}, {}]
    p = Producer(knows=("stream",), versioned=False, device=(dl.CUDA, 0), data=HANDLE)
    ad.tensor(p)
    assert p.calls == [{"max_version": (1, 3), "stream": 1}, {"stream": 1}]


def test_second_type_error_is_shown():
    p = Producer(knows=(), device=(dl.CUDA, 0), data=HANDLE)
    with fails("refused") as info:
        ad.tensor(p)
    second = info.value.__cause__
    assert str(second) == "unknown: stream"
    assert str(second.__cause__) == "unknown: max_version, stream"
    assert len(p.calls) == 2


class WrongType(TypeError):
    """Like pyarrow.ArrowTypeError: the data, not the keywords."""


@pytest.mark.parametrize(
    "error",
    [BufferError, RuntimeError, ValueError, AssertionError, NotImplementedError, WrongType],
)
def test_producer_refuses(error):
    p = Producer(error=error("no"))
    with fails("refused") as info:
        ad.tensor(p)
    assert type(info.value.__cause__) is error
    assert len(p.calls) == 1


def test_refusal_falls_back_to_next_protocol():
    class Both(Producer):
        memory = np.arange(3)
        __array_interface__ = memory.__array_interface__

    assert ad.tensor(Both(error=BufferError("no"))).dtype == "int64"


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_final_errors_of_a_producer(error):
    class Both(Producer):
        memory = np.arange(3)
        __array_interface__ = memory.__array_interface__

    with pytest.raises(error):
        ad.tensor(Both(error=error()))


def test_incomplete_protocol():
    class Half:
        def __dlpack__(self, **kwargs):
            return Managed().capsule()

    with pytest.raises(ad.ExchangeError, match=r"__dlpack__ refused .*'__dlpack_device__'"):
        ad.tensor(Half())


@pytest.mark.parametrize("again", [dl.OnlyDLPack, dl.only_legacy])
def test_own_tensor_is_taken_apart(again):
    """The import shares the owner of the export."""
    memory = np.array([[0.0, 1, 2], [3, 4, 5]])
    n_before = sys.getrefcount(memory)
    tensor = ad.tensor(again(ad.tensor(memory[1:])))
    assert tensor.data_ptr == memory[1:].ctypes.data and tensor.shape == (1, 3)
    assert tensor.readonly == (again is dl.only_legacy)
    assert sys.getrefcount(memory) == n_before + 1
    del tensor
    assert sys.getrefcount(memory) == n_before


# --- import: flags and copies --------------------------------------------------


def test_read_only():
    t = ad.tensor(Producer(flags=dl.READ_ONLY))
    assert t.readonly
    assert received(t).flags == dl.READ_ONLY
    assert not np.from_dlpack(t).flags.writeable
    with fails("readonly") as info:
        t.__dlpack__()
    assert "readonly=False" in info.value.hint
    # A copy is writable.
    r = Received(t.__dlpack__(copy=True))
    assert r.data != t.data_ptr
    r.delete()


def test_padded_subbyte():
    t = ad.tensor(Producer(shape=(4,), dtype=(17, 4, 1), flags=dl.SUBBYTE_PADDED))
    assert received(t).flags == dl.SUBBYTE_PADDED
    with fails("dtype"):
        t.__dlpack__()
    with fails("dtype") as info:
        ad.array(t)
    assert "one byte per element" in str(info.value) and "pack it" in info.value.hint


def test_strided_packed_subbyte():
    t = ad.tensor(Producer(shape=(4, 2), strides=(4, 1), dtype=(17, 4, 1)))
    with fails("strides"):
        ad.array(t)
    with fails("dtype"):
        ad.tensor(t, copy=True)


@pytest.mark.parametrize(("dtype", "nbytes"), [((0, 12, 2), 12), ((2, 32, 1), 16)])
def test_padded_says_nothing_about_elements_of_a_byte(dtype, nbytes):
    t = ad.tensor(Producer(shape=(4,), dtype=dtype, flags=dl.SUBBYTE_PADDED))
    assert t.nbytes == nbytes
    assert received(t).flags == 0
    t.__dlpack__()  # so the consumer need not know the flag


def test_is_copied_describes_one_exchange():
    t = ad.tensor(Producer(flags=dl.IS_COPIED))
    assert received(t).flags == 0


@pytest.mark.parametrize("order", [None, "C", "F"])
@pytest.mark.parametrize("memory", [{}, {"device": (dl.METAL, 0), "data": HANDLE}])
def test_copy_true(memory, order):
    p = Producer(flags=dl.IS_COPIED, **memory)
    t = ad.tensor(p, copy=True, order=order)
    assert p.calls == [{"max_version": (1, 3), "copy": True}]
    assert t.data_ptr == memory.get("data", p.managed.data)


@pytest.mark.parametrize("kwargs", [{}, {"versioned": False}, {"knows": (), "versioned": False}])
def test_copy_true_is_ignored_by_the_producer(kwargs):
    p = Producer((1.0, 2.0, 3.0, 4.0), shape=(2, 2), strides=(1, 2), **kwargs)
    t = ad.tensor(p, copy=True)
    assert t.data_ptr != p.managed.data
    assert p.deleted == 1
    assert np.from_dlpack(t).tolist() == [[1, 3], [2, 4]]
    assert not t.readonly


def test_copy_true_on_a_device():
    p = Producer(device=(dl.CUDA, 0), data=HANDLE)
    with fails("refused") as info:
        ad.tensor(p, copy=True)
    assert info.value.__cause__.reason == "runtime"
    assert p.deleted == 1


def test_copy_false():
    p = Producer()
    t = ad.tensor(p, copy=False)
    assert p.calls == [{"max_version": (1, 3), "copy": False}]
    assert t.data_ptr == p.managed.data
    p = Producer(flags=dl.IS_COPIED)
    with fails("refused") as info:
        ad.tensor(p, copy=False)
    assert info.value.__cause__.reason == "copy"
    assert p.deleted == 1


def test_copies_of_numpy_and_torch():
    torch = pytest.importorskip("torch")
    for x, pointer in (
        (np.arange(3), lambda x: x.ctypes.data),
        (torch.arange(3), lambda x: x.data_ptr()),
    ):
        assert ad.tensor(OnlyDLPack(x), copy=True).data_ptr != pointer(x)
        assert ad.tensor(OnlyDLPack(x), copy=False).data_ptr == pointer(x)


@pytest.mark.parametrize("name", ["ndarray", "matrix"])
def test_elements_of_no_bytes_are_refused(name):
    """NumPy divides by their size, which ends the process."""
    data = np.asfortranarray(np.zeros((3, 4), "V0")).view(getattr(np, name))
    for take in (ad.tensor, ad.array, ad.from_dlpack):
        with pytest.raises(ad.ExchangeError, match="0 bytes"):
            take(data)
