"""ad.Tensor: from_pointer(), members, and the options of tensor()."""

import weakref

import pytest
from lifetimes import is_gone
from loops import looped
from peer import Peer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
ml_dtypes = Peer("ml_dtypes")
torch = Peer("torch")

NOWHERE = 0x7FFF00001000

NUMBERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMBERS += ["float16", "float32", "float64"]
OTHERS = {"bool": 8, "complex64": 64, "complex128": 128, "bfloat16": 16, "opaque": 64}
FLOAT8 = ["e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"]
OTHERS |= {f"float8_{kind}": 8 for kind in FLOAT8}


def over(array, dtype=None, **options):
    """A Tensor over a NumPy array through its pointer."""
    return ad.Tensor.from_pointer(
        array.ctypes.data,
        array.shape,
        dtype or array.dtype.name,
        "cpu",
        strides=[step // array.itemsize for step in array.strides],
        owner=array,
        **options,
    )


# --- from_pointer ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool", "complex64", "complex128"])
def test_from_pointer(dtype):
    data = np.arange(12).reshape(3, 4).astype(dtype)
    tensor = over(data)
    assert tensor.dtype == dtype
    assert tensor.data_ptr == data.ctypes.data
    assert np.asarray(tensor).tolist() == data.tolist()
    assert np.from_dlpack(tensor).ctypes.data == data.ctypes.data


@pytest.mark.parametrize(("dtype", "bits"), OTHERS.items())
def test_every_dtype(dtype, bits):
    tensor = ad.Tensor.from_pointer(NOWHERE, (4, 2), dtype, "cuda:0")
    assert (tensor.dtype, tensor.itemsize, tensor.nbytes) == (dtype, bits // 8, bits)


@pytest.mark.parametrize(("dtype", "bits"), [("float4_e2m1fn", 4), ("float6_e3m2fn", 6)])
def test_subbyte_dtypes(dtype, bits):
    tensor = ad.Tensor.from_pointer(NOWHERE, (3, 8), dtype, "cuda:0")
    assert (tensor.dtype, tensor.itemsize, tensor.nbytes) == (dtype, 1, 3 * bits)


def test_members():
    tensor = ad.Tensor.from_pointer(NOWHERE, [4, 3], "float32", "cuda:2")
    assert tensor.shape == (4, 3)
    assert tensor.strides == (3, 1)
    assert (tensor.ndim, len(tensor)) == (2, 4)
    assert (tensor.itemsize, tensor.nbytes) == (4, 48)
    assert tensor.readonly is False
    assert (tensor.data_ptr, tensor.byte_offset) == (NOWHERE, 0)
    assert tensor.device == ad.device("cuda:2")
    assert tensor.device_type is ad.DeviceType.CUDA
    assert tensor.device_id == 2
    assert tensor.sync_event is None
    assert tensor.is_ready() is True and tensor.synchronize() is None
    assert tensor.wait(1) is None
    assert tensor.to("cuda:2") is tensor
    assert repr(tensor) == "<arrowdev.Tensor float32 (4, 3) on cuda:2>"


def test_repr():
    assert repr(ad.tensor(np.float32(1)[None][0:0])) == "<arrowdev.Tensor float32 (0,) on cpu: []>"
    tensor = ad.Tensor.from_pointer(NOWHERE, (), "int8", (99, 5), readonly=True, stream=4)
    assert repr(tensor) == "<arrowdev.Tensor int8 () on device(99):5, read-only, after stream>"


def test_no_dimensions():
    tensor = over(np.array(7.0))
    assert (tensor.shape, tensor.strides, tensor.ndim, tensor.nbytes) == ((), (), 0, 8)
    assert np.asarray(tensor) == 7.0
    with pytest.raises(TypeError, match="0-d"):
        len(tensor)
    array = ad.array(tensor)
    assert len(array) == 1
    assert ad.tensor(array).shape == ()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 1 << 40)])
def test_no_elements(shape):
    tensor = ad.Tensor.from_pointer(0, shape, "int32", "cuda:0")
    assert (tensor.nbytes, tensor.shape, tensor.data_ptr) == (0, shape, 0)


def test_strides():
    data = np.arange(24, dtype="i2").reshape(4, 6)
    for view in (data[::2, 1::2], data.T, data[::-1], np.broadcast_to(data[0], (3, 6))):
        tensor = over(view)
        assert tensor.strides == tuple(step // 2 for step in view.strides)
        assert np.asarray(tensor).tolist() == view.tolist()
        assert np.from_dlpack(tensor).ctypes.data == view.ctypes.data


def test_strides_without_elements():
    """They are handed on as they came, by the protocols that tell them."""
    data = np.zeros((6, 6, 6), "i2")
    for view in (data[:0], data.T[:, :0], data[::2, :, :0:-1][:, 3:3], np.zeros((0, 3))):
        buffer = memoryview(view)  # NumPy tells other ones here
        for tensor, strides in (
            (ad.tensor(view), view.strides),
            (ad.from_dlpack(view), np.from_dlpack(view).strides),  # older ones tell none
            (ad.tensor(buffer), buffer.strides),
        ):
            wanted = tuple(step // view.itemsize for step in strides)
            assert tensor.strides == wanted and tensor.data_ptr == 0
            assert np.asarray(tensor).strides == memoryview(tensor).strides == strides
            assert ad.from_dlpack(tensor).strides == wanted
            # An array interface says "contiguous", which it is in every order.
            assert tensor.__array_interface__["strides"] is None
            part = tensor[..., None]
            assert part.shape == (*view.shape, 1) and part.strides[:-1] == wanted
            for copy in (None, True):
                assert ad.tensor(ad.array(tensor, copy=copy)).shape == view.shape
            assert ad.tensor(tensor, copy=True).shape == view.shape


def test_byte_offset_of_pointers_and_handles():
    data = np.arange(8, dtype="i4")
    tensor = ad.Tensor.from_pointer(
        data.ctypes.data, (3,), "int32", "cpu", byte_offset=np.int64(8), owner=data
    )
    assert (tensor.data_ptr, tensor.byte_offset) == (data.ctypes.data + 8, 0)
    assert np.asarray(tensor).tolist() == [2, 3, 4]
    handle = ad.Tensor.from_pointer(0x77, (3,), "int32", "vulkan:0", byte_offset=8)
    assert (handle.data_ptr, handle.byte_offset) == (0x77, 8)
    assert ad.array(handle).offset == 2
    assert ad.array(handle).buffers[1].data_ptr == 0x77


class Owner:
    pass


@pytest.mark.parametrize(
    "keep",
    [
        lambda tensor: tensor,
        lambda tensor: ad.array(tensor),
        lambda tensor: ad.array(tensor)[1:].buffers[1],
        lambda tensor: memoryview(tensor),
        lambda tensor: np.from_dlpack(tensor),
        lambda tensor: tensor.__dlpack__(max_version=(1, 0)),
        lambda tensor: tensor.__dlpack__(),
        lambda tensor: tensor.__arrow_c_device_array__(),
        lambda tensor: ad.tensor(tensor, readonly=True),
    ],
)
def test_owner_lives_as_long_as_any_use(keep):
    data = np.arange(4)
    owner = Owner()
    alive = weakref.ref(owner)
    tensor = ad.Tensor.from_pointer(data.ctypes.data, (4,), "int64", "cpu", owner=owner)
    del owner
    kept = keep(tensor)
    del tensor
    assert alive() is not None
    del kept
    assert is_gone(alive)


@pytest.mark.parametrize("stream", [0, -2])
def test_owner_is_dropped_on_error(stream):
    owner = Owner()
    alive = weakref.ref(owner)
    with pytest.raises(ValueError, match="stream"):
        ad.Tensor.from_pointer(64, (4,), "int8", "cuda:0", owner=owner, stream=stream)
    del owner
    assert is_gone(alive)


good = {"ptr": NOWHERE, "shape": (4,), "dtype": "int32", "device": "cuda:0"}


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"ptr": 0}, ad.ExchangeError, "no data"),
        ({"ptr": "64"}, TypeError, "int"),
        ({"ptr": 1 << 64}, ValueError, "ptr must be from 0"),
        ({"ptr": -1}, ValueError, "ptr must be from 0"),
        ({"ptr": 1.5}, TypeError, "ptr must be an int, not float"),
        ({"shape": (2, 1.5)}, TypeError, r"shape\[1\] must be an int, not float"),
        ({"shape": (1 << 64,)}, ValueError, r"shape\[0\] is 18446744073709551616, which"),
        ({"strides": ("1",)}, TypeError, r"strides\[0\] must be an int, not str"),
        ({"shape": 4}, TypeError, "shape must be a sequence of ints, not int"),
        ({"shape": (4.0,)}, TypeError, "float"),
        ({"shape": (-4,)}, ad.ExchangeError, "-4"),
        ({"shape": (1 << 62,)}, ad.ExchangeError, "overflow"),
        ({"shape": (1,) * 65}, ValueError, "65 dimensions, at most 64"),
        ({"strides": (1, 1)}, ValueError, "strides has 2 entries, but shape has 1"),
        ({"strides": 1}, TypeError, "strides must be a sequence"),
        ({"strides": (1 << 62,)}, ad.ExchangeError, "stride"),
        ({"strides": (-(1 << 60),)}, ad.ExchangeError, "stride|address"),
        ({"dtype": "i4"}, ValueError, "unknown dtype 'i4'"),
        ({"dtype": "int32\0"}, ValueError, "NUL"),
        ({"dtype": np.int32}, TypeError, "name such as"),
        ({"device": "gpu"}, ValueError, "unknown device"),
        ({"device": None}, TypeError, "device"),
        ({"byte_offset": -1}, ValueError, "byte_offset"),
        ({"byte_offset": 1.0}, TypeError, "float"),
        ({"byte_offset": (1 << 64) - 8}, ad.ExchangeError, "overflow|address"),
        ({"stream": 0}, ValueError, "ambiguous"),
        ({"stream": "s"}, TypeError, "stream must be"),
        ({"device": "rocm:0", "stream": 1}, ValueError, "no meaning on ROCm"),
        ({"unknown": 1}, TypeError, "unknown"),
    ],
)
def test_invalid_arguments(changes, error, text):
    with pytest.raises(error, match=text):
        ad.Tensor.from_pointer(**{**good, **changes})


@pytest.mark.parametrize("n", range(4))
def test_four_arguments_are_required(n):
    with pytest.raises(TypeError, match=f"argument {n + 1}"):
        ad.Tensor.from_pointer(*list(good.values())[:n])


# --- pending work -----------------------------------------------------------------


def test_pending_stream():
    tensor = ad.Tensor.from_pointer(**good, stream=7)
    assert tensor.sync_event is None  # a stream without an event
    assert tensor.wait(7) is None  # the stream itself orders the work
    for use in (tensor.is_ready, tensor.synchronize, lambda: tensor.wait(8)):
        with pytest.raises(ad.ExchangeError) as info:
            use()
        assert (info.value.reason, info.value.device) == ("event", ad.device("cuda:0"))
    with pytest.raises(ValueError, match="legacy"):
        tensor.wait(0)
    with pytest.raises(TypeError, match="not None"):
        tensor.wait(None)
    assert ad.Tensor.from_pointer(**good, stream=-1).is_ready()


def test_stream_objects():
    class Stream:
        def __init__(self, handle):
            self.handle = handle

        def __cuda_stream__(self):
            return 0, self.handle

    assert ad.Tensor.from_pointer(**good, stream=Stream(7)).wait(7) is None
    assert ad.Tensor.from_pointer(**good, stream=Stream(0)).wait(1) is None


def test_stream_objects_that_break_their_protocol():
    cases = [
        ("__cuda_stream__", lambda self: 5, TypeError, r"must give \(version, handle\), not 5"),
        ("__cuda_stream__", lambda self: [0, 1], TypeError, r"handle\), not \[0, 1\]"),
        ("__cuda_stream__", lambda self: (0, 1, 2), TypeError, r"not \(0, 1, 2\)"),
        ("__cuda_stream__", lambda self: (0, -1), ValueError, r"from 0 to 2\*\*64 - 1, not -1"),
        ("__cuda_stream__", lambda self: (0, 2**64), ValueError, r"2\*\*64 - 1, not 18446"),
        ("__cuda_stream__", lambda self: (0, "1"), TypeError, "must be an int, not str"),
        ("cuda_stream", 1.5, TypeError, "must be an int, not float"),
        ("sycl_queue", property(lambda self: object()), TypeError, "anew at each look-up"),
        ("sycl_queue", np.arange(3), TypeError, r"must be a dpctl.SyclQueue, not numpy.ndarray"),
        ("__arrowdev_queue__", (12,), TypeError, r"must give \(device type, handle\)"),
    ]
    for name, value, error, text in cases:
        stream = type("Stream", (), {name: value})()
        for use in (ad.tensor, ad.array):
            with pytest.raises(error, match=text):
                use(np.arange(3), stream=stream)


# --- read-only ---------------------------------------------------------------------


def test_readonly():
    data = np.arange(4)
    flagged = over(data, readonly=True)
    assert flagged.readonly
    assert not np.asarray(flagged).flags.writeable
    assert not ad.tensor(flagged, readonly=False).readonly
    assert ad.tensor(flagged, readonly=None).readonly
    assert ad.tensor(data, readonly=True).readonly
    assert not ad.tensor(data).readonly
    assert ad.tensor(bytes(4)).readonly
    data.flags.writeable = False
    assert ad.tensor(data).readonly


def test_readonly_with_legacy_consumers():
    """A legacy consumer cannot see the flag; only Arrow's convention permits the export."""
    flagged, arrow = over(np.arange(4), readonly=True), ad.tensor(ad.array(np.arange(4)))
    assert flagged.readonly and arrow.readonly
    assert arrow.__dlpack__() is not None
    with pytest.raises(ad.ExchangeError, match="read-only") as info:
        flagged.__dlpack__()
    assert info.value.reason == "readonly"
    assert ad.tensor(flagged, readonly=False).__dlpack__() is not None


@pytest.mark.parametrize("readonly", [0, 1, "yes"])
def test_readonly_is_a_bool(readonly):
    with pytest.raises(TypeError, match="readonly must be True, False or None"):
        ad.tensor(np.arange(3), readonly=readonly)


# --- order -------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("source", ["C", "F", "neither"])
@pytest.mark.parametrize("copy", [None, False, True])
def test_order(order, source, copy):
    data = np.asarray(np.arange(12).reshape(3, 4), order=source if source in "CF" else "C")
    data = data[:, ::2] if source == "neither" else data
    if copy is False and order != source:
        with pytest.raises(ad.ExchangeError, match=f'order="{order}" needs a copy') as info:
            ad.tensor(data, order=order, copy=copy)
        assert info.value.reason == "copy"
        return
    tensor = ad.tensor(data, order=order, copy=copy)
    found = np.asarray(tensor)
    assert found.tolist() == data.tolist()
    assert found.flags.c_contiguous if order == "C" else found.flags.f_contiguous
    assert (tensor.data_ptr == data.ctypes.data) is (order == source and not copy)


def test_what_only_its_producer_copies_has_both_orders():
    data = np.array([[(0, 1.0), (0, 2.0)], [(0, 3.0), (0, 4.0)]], "i4,f8")["f1"]
    assert data.strides[1] % data.itemsize  # DLPack has no such strides
    for order in "CF":
        found = np.asarray(ad.tensor(data, order=order, copy=True))
        assert found.tolist() == data.tolist()
        assert found.flags.c_contiguous if order == "C" else found.flags.f_contiguous


def test_one_dimension_has_both_orders():
    data = np.arange(3)
    for order in "CF":
        assert ad.tensor(data, order=order, copy=False).data_ptr == data.ctypes.data


@pytest.mark.parametrize("order", ["A", "K", "", "c", 1])
def test_invalid_order(order):
    with pytest.raises(ValueError, match="order must be"):
        ad.tensor(np.arange(3), order=order)


def test_order_on_a_device_needs_a_runtime():
    tensor = ad.Tensor.from_pointer(NOWHERE, (4, 3), "int8", "cuda:0")
    assert ad.tensor(tensor, order="C").data_ptr == NOWHERE
    with pytest.raises(ad.ExchangeError, match="cuda"):
        ad.tensor(tensor, order="F")


# --- copy --------------------------------------------------------------------------

SOURCES = {
    "numpy": lambda data: data,
    "tensor": ad.tensor,
    "array": ad.array,
    "pyarrow": pa.array,
    "buffer": lambda data: memoryview(data),
    "copied tensor": lambda data: ad.tensor(data, copy=True),
    "copied array": lambda data: ad.array(data, copy=True),
}


def pointer(source):
    if isinstance(source, ad.Array):
        return source.buffers[1].data_ptr
    if isinstance(source, pa.Array):
        return source.buffers()[1].address
    return source.data_ptr if isinstance(source, ad.Tensor) else np.asarray(source).ctypes.data


@pytest.mark.parametrize("source", SOURCES)
@looped("copy", [None, False, True])
@pytest.mark.parametrize("make", [ad.tensor, ad.array])
def test_copy(source, copy, make):
    data = np.arange(6, dtype="f4")
    given = SOURCES[source](data)
    found = make(given, copy=copy)
    assert np.asarray(found).tolist() == data.tolist()
    assert (pointer(found) == pointer(given)) is (copy is not True)
    if copy and make is ad.tensor:
        assert not found.readonly


def test_copy_of_a_slice_has_only_the_slice():
    array = ad.array(np.arange(100))[10:20]
    copied = ad.array(array, copy=True)
    assert copied.to_pylist() == list(range(10, 20))
    assert copied.buffers[1].nbytes < 100 * 8


def test_copy_of_strides():
    data = np.arange(10)[::2]
    assert ad.tensor(data, copy=False).strides == (2,)
    with pytest.raises(ad.ExchangeError) as info:
        ad.array(data, copy=False)
    assert info.value.reason in ("copy", "strides")
    assert ad.array(data).to_pylist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("copy", [0, 1, "no", object()])
def test_copy_is_a_bool(copy):
    for make in (ad.tensor, ad.array, ad.from_dlpack):
        with pytest.raises(TypeError, match="copy must be True, False or None"):
            make(np.arange(3), copy=copy)


# --- nulls -------------------------------------------------------------------------

FILLS = [(type, 7, 7) for type in NUMBERS if not type.startswith("float")]
FILLS += [("float16", 0.5, 0.5), ("float32", 7, 7), ("float64", -0.0, 0)]
FILLS += [
    ("uint8", np.uint8(7), 7),
    ("uint64", (1 << 64) - 1, (1 << 64) - 1),
    ("int8", -128, -128),
]
FILLS += [("float64", float("inf"), float("inf")), ("float32", float("-inf"), float("-inf"))]


def column(type="int64"):
    type = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}.get(
        type
    ) or pa.type_for_alias(type)
    values = [1, None, 3, None]
    if type == pa.float16():
        values = [None if value is None else np.float16(value) for value in values]
    return pa.array(values, type)


@pytest.mark.parametrize(("type", "value", "expected"), FILLS)
def test_fill(type, value, expected):
    source = column(type)
    tensor = ad.tensor(source, nulls="fill", fill_value=value)
    assert tensor.dtype == type
    assert np.asarray(tensor).tolist() == [1, expected, 3, expected]
    assert source.to_pylist() == [1, None, 3, None]  # unchanged
    part = ad.tensor(source.slice(1, 2), nulls="fill", fill_value=value)
    assert np.asarray(part).tolist() == [expected, 3]


@pytest.mark.parametrize(
    ("type", "value", "error"),
    [
        ("int8", 128, OverflowError),
        ("int8", -129, OverflowError),
        ("uint8", 256, OverflowError),
        ("uint8", -1, OverflowError),
        ("int64", 1 << 63, OverflowError),
        ("uint64", 1 << 64, OverflowError),
        ("int64", 1.5, TypeError),
        ("uint64", 1.5, TypeError),
        ("int64", "1", TypeError),
        ("float32", "1", TypeError),
        ("float16", 1e6, OverflowError),
        ("float32", 1e300, OverflowError),
    ],
)
def test_fill_value_that_does_not_fit(type, value, error):
    text = f"does not fit into {type}" if error is OverflowError else f"for {type} must be a"
    with pytest.raises(error, match=text):
        ad.tensor(column(type), nulls="fill", fill_value=value)


def test_fill_value_of_bools():
    """A word is no bool: "False" fills nothing with True."""
    source = pa.array([True, None])
    for value in (True, np.True_, 1, np.int8(1)):
        assert np.asarray(ad.tensor(source, nulls="fill", fill_value=value)).all()
    for value in (False, np.False_, 0, 0.0):
        filled = ad.tensor(source, nulls="fill", fill_value=value)
        assert np.asarray(filled).tolist() == [True, False]
    for value in ("False", "", b"\0", [], [True], object()):
        with pytest.raises(TypeError, match="fill_value for bool must be True or False, not"):
            ad.tensor(source, nulls="fill", fill_value=value)
    for value in (2, -1, float("nan")):
        with pytest.raises(OverflowError, match="does not fit into bool"):
            ad.tensor(source, nulls="fill", fill_value=value)
    with pytest.raises(ValueError, match="ambiguous"):
        ad.tensor(source, nulls="fill", fill_value=np.array([True, False]))


def with_null(dtype):
    column = torch.ones(2, dtype=getattr(torch, dtype))
    return ad.array(column, validity=np.array([True, False]))


@pytest.mark.parametrize("value", [-2.5, 0.1, 1e-40, 3.3895e38, -0.0, float("inf"), 257, 258.9])
def test_fill_value_is_rounded_as_torch_does(value):
    for dtype in ("bfloat16", "complex64", "complex128"):
        expected = torch.tensor([1, value], dtype=getattr(torch, dtype))
        filled = ad.tensor(with_null(dtype), nulls="fill", fill_value=value)
        assert filled.into(torch.Tensor).view(torch.uint8).equal(expected.view(torch.uint8))
    filled = ad.tensor(with_null("bfloat16"), nulls="fill", fill_value=float("nan"))
    assert filled.into(torch.Tensor).isnan().tolist() == [False, True]


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("bfloat16", 3.4e38, OverflowError),
        ("complex64", 1e39j, OverflowError),
        ("complex64", "1", TypeError),
        ("float8_e5m2", 1, ValueError),
    ],
)
def test_fill_value_of_other_types_that_does_not_fit(dtype, value, error):
    with pytest.raises(error, match=dtype):
        ad.tensor(with_null(dtype), nulls="fill", fill_value=value)


def test_fill_bits():
    source = pa.array([True, None, False])
    for value, expected in ((True, True), (False, False), (1, True)):
        tensor = ad.tensor(source, nulls="fill", fill_value=value)
        assert np.asarray(tensor).tolist() == [True, expected, False]


def test_ignore():
    source = column()
    tensor = ad.tensor(source, nulls="ignore")
    assert tensor.data_ptr == source.buffers()[1].address
    assert np.asarray(tensor)[[0, 2]].tolist() == [1, 3]


def test_raise():
    for nulls in ({}, {"nulls": "raise"}):
        with pytest.raises(ad.ExchangeError, match="2 nulls among 4") as info:
            ad.tensor(column(), **nulls)
        assert (info.value.reason, info.value.dtype) == ("nulls", "int64")
    assert np.asarray(ad.tensor(column().slice(2, 1))).tolist() == [3]


def test_fill_without_nulls_is_zero_copy():
    data = np.arange(3)
    assert ad.tensor(data, nulls="fill", fill_value=7, copy=False).data_ptr == data.ctypes.data
    masked = ad.array(data, validity=np.ones(3, bool))
    assert ad.tensor(masked, nulls="fill", fill_value=7).data_ptr == data.ctypes.data
    with pytest.raises(ad.ExchangeError, match="filling nulls needs a copy") as info:
        ad.tensor(column(), nulls="fill", fill_value=7, copy=False)
    assert info.value.reason == "copy"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nulls": "drop"}, "nulls must be"),
        ({"nulls": None}, "nulls must be"),
        ({"nulls": "fill"}, "go together"),
        ({"fill_value": 1}, "go together"),
        ({"nulls": "ignore", "fill_value": 1}, "go together"),
    ],
)
def test_null_arguments(options, text):
    with pytest.raises(ValueError, match=text):
        ad.tensor(column(), **options)


# --- from Arrow --------------------------------------------------------------------


def test_from_arrow_with_offset():
    source = pa.array(range(10), pa.int16())
    tensor = ad.tensor(source.slice(3, 4))
    assert tensor.data_ptr == source.buffers()[1].address + 6
    assert np.asarray(tensor).tolist() == [3, 4, 5, 6]


def test_fixed_size_lists_are_dimensions():
    source = pa.array([[[1, 2], [3, 4], [5, 6]]] * 2, pa.list_(pa.list_(pa.int8(), 2), 3))
    tensor = ad.tensor(source)
    assert (tensor.shape, tensor.dtype) == ((2, 3, 2), "int8")
    assert np.asarray(tensor).tolist() == source.to_pylist()


@pytest.mark.parametrize("order", ["C", "F"])
def test_matrices_round_trip(order):
    data = np.asarray(np.arange(24.0).reshape(2, 3, 4), order=order)
    if order == "F":
        data = np.moveaxis(np.ascontiguousarray(np.moveaxis(data, 0, 2)), 2, 0)[:1]
    array = ad.array(data)
    again = ad.tensor(array)
    assert again.shape == data.shape
    assert np.asarray(again).tolist() == data.tolist()
    inner = pa.array(array)
    assert isinstance(inner, pa.FixedShapeTensorArray)
    assert np.asarray(ad.tensor(inner)).tolist() == data.tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64"])
def test_types_missing_in_arrow_round_trip_bit_for_bit(dtype):
    data = np.arange(6).astype(getattr(ml_dtypes, dtype, dtype))
    tensor = over(data, dtype)
    array = ad.array(tensor)
    assert f"arrowdev.dlpack[{dtype}]" in str(array.schema)
    batch = ad.record_batch({"x": tensor})
    # A plain pyarrow array drops the metadata of an unknown type.
    for carrier in (array, batch["x"], ad.array(pa.record_batch(batch))["x"]):
        again = ad.tensor(carrier)
        assert (again.dtype, again.shape) == (dtype, (6,))
        assert again.data_ptr == data.ctypes.data


def test_numpy_never_wraps_the_tensor_as_object():
    """Without __array__, np.asarray would wrap an object that it cannot read."""
    bfloat16 = over(np.zeros(3, ml_dtypes.bfloat16), "bfloat16")
    for tensor in (bfloat16, ad.Tensor.from_pointer(**good)):
        with pytest.raises(ad.ExchangeError):
            np.asarray(tensor)


def test_from_pointer_of_a_shape_that_shrinks():
    class Shrinking:
        def __index__(self):
            shape.clear()
            return 1

    shape = [Shrinking() for _ in range(4)]
    assert ad.Tensor.from_pointer(64, shape, "int8", "cpu").shape == (1, 1, 1, 1)
