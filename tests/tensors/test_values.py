"""tolist(), item(), size and equals() of a Tensor."""

import gc
import itertools
import re
import threading

import pytest
from dlpack_ctypes import SUBBYTE_PADDED, Producer
from interrupts import interrupt
from loops import looped

import arrowdev as ad
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?", "c8", "c16"]
SHORT_FLOATS = {  # bits of the exponent and of the fraction, bias, rule
    "float16": (5, 10, 15, "ieee"),
    "bfloat16": (8, 7, 127, "ieee"),
    "float8_e3m4": (3, 4, 3, "ieee"),
    "float8_e4m3": (4, 3, 7, "ieee"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e4m3b11fnuz": (4, 3, 11, "fnuz"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
}
INT4, UINT4 = (f"dlpack(code={code}, bits=4, lanes=1)" for code in (0, 1))
NO_VALUE = [INT4, "float4_e2m1fn", "float6_e2m3fn", "float32x2", "opaque"]


def over(memory, dtype, shape, strides=None):
    return ad.Tensor.from_pointer(
        memory.ctypes.data, shape, dtype, "cpu", strides=strides, owner=memory
    )


def layouts():
    """Views of every kind, empty ones and those of 0 dimensions too."""
    x = np.arange(120).reshape(2, 3, 4, 5)
    yield from (x, x.T, x[::-1, :, ::2], x[..., 0], x[:, 1:2], x[0, 0, 0, 0:1], x[1, 2, 3, 4, ...])
    yield from (x[:0], x[:, :0], x[..., :0], np.broadcast_to(x[0, 0, 0], (3, 5)))


# --- tolist() and item() ------------------------------------------------------


@looped("dtype", NUMBERS)
def test_tolist_is_that_of_numpy(dtype):
    for x in layouts():
        x = (x * 3 - 100).astype(dtype) if x.flags.c_contiguous else x.astype(dtype)[..., :]
        found, expected = ad.tensor(x).tolist(), x.tolist()
        assert found == expected and repr(found) == repr(expected)
    assert ad.tensor(np.zeros(70_000, dtype)).tolist() == [0] * 70_000


def test_tolist_of_every_layout():
    for x in layouts():
        assert ad.tensor(x).tolist() == x.tolist()
        assert ad.tensor(x).size == x.size


def test_tolist_of_unaligned_elements():
    memory = np.arange(33, dtype="u1")
    for dtype in ("i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"):
        x = memory[1:].view(dtype)
        y = over(memory[1:], x.dtype.name, x.shape)
        assert repr(y.tolist()) == repr(x.tolist())


def number(bits, n_exponent, n_fraction, bias, rule):
    """The number that the definition of the type gives."""
    sign, rest = divmod(bits, 1 << (n_exponent + n_fraction))
    exponent, fraction = divmod(rest, 1 << n_fraction)
    if rule == "fnuz" and sign and not rest:
        return np.nan
    if rule == "fn" and rest == (1 << (n_exponent + n_fraction)) - 1:
        return np.nan
    if rule == "ieee" and exponent == (1 << n_exponent) - 1:
        return np.nan if fraction else (-1) ** sign * np.inf
    whole = 1 if exponent else 0
    value = (whole + fraction / (1 << n_fraction)) * 2.0 ** (max(exponent, 1) - bias)
    return -value if sign else value


@looped("dtype", SHORT_FLOATS)
def test_every_short_float(dtype):
    rules = SHORT_FLOATS[dtype]
    n_bits = 1 + rules[0] + rules[1]
    memory = np.arange(1 << n_bits, dtype=f"u{n_bits // 8}")
    tensor = over(memory, dtype, memory.shape)
    expected = [number(i, *rules) for i in range(1 << n_bits)]
    assert repr(tensor.tolist()) == repr([float(x) for x in expected])
    assert repr(ad.array(tensor).to_pylist()) == repr(tensor.tolist())


def test_float8_of_an_exponent_alone():
    memory = np.arange(256, dtype="u1")
    found = over(memory, "float8_e8m0fnu", (256,)).tolist()
    assert found[:255] == [2.0 ** (i - 127) for i in range(255)] and np.isnan(found[255])


def test_float8_is_that_of_torch():
    torch = pytest.importorskip("torch")
    memory = torch.arange(256).to(torch.uint8)
    for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"):
        x = memory.view(getattr(torch, f"float8_{name}"))
        assert repr(ad.tensor(x).tolist()) == repr(x.to(torch.float64).tolist())


@pytest.mark.parametrize("dtype", NO_VALUE)
def test_elements_without_a_python_value(dtype):
    tensor = over(np.zeros(8, "u1"), dtype, (1,))
    for read in (tensor.tolist, tensor.item):
        with pytest.raises(
            NotImplementedError, match=re.escape(f"no Python value for {dtype}; use arrow")
        ):
            read()


@looped("dtype", NUMBERS)
def test_item(dtype):
    for shape in ((), (1,), (1, 1, 1)):
        x = np.full(shape, 1, dtype)
        found = ad.tensor(x).item()
        assert found == x.item() and type(found) is type(x.item())
    assert ad.tensor(np.arange(6).reshape(2, 3))[1, ::-2][0].item() == 5


@pytest.mark.parametrize("shape", [(0,), (2,), (2, 3), (1, 0)])
def test_item_of_another_number_of_elements(shape):
    tensor = ad.tensor(np.zeros(shape))
    with pytest.raises(ValueError) as info:
        tensor.item()
    assert f"has {tensor.size}, of shape {shape}; index it, or use tolist()" in str(info.value)


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20)])
def test_elements_that_share_their_bytes_are_limited(shape):
    """A hundred million of them are made, and no more than memory holds."""
    memory = np.array([7])
    broadcast = over(memory, "int64", shape, (0,) * len(shape))
    with pytest.raises(ad.ExchangeError) as info:
        broadcast.tolist()
    assert info.value.reason == "size" and "has 1099511627775 values without" in str(info.value)
    assert broadcast[..., :3][:2].tolist() == np.broadcast_to(memory, shape)[..., :3][:2].tolist()
    with pytest.raises(ad.ExchangeError, match="without stored bytes"):
        over(memory, "int64", (1 << 40, 0)).tolist()


def test_garbage_collector_finds_complete_lists():
    """And finds all of them afterwards, whether it was on or not."""
    x = ad.tensor(np.arange(60.0).reshape(3, 4, 5))
    for enabled in (True, False):
        gc.enable() if enabled else gc.disable()
        try:
            found = x.tolist()
        finally:
            gc.enable()
        assert all(map(gc.is_tracked, (found, *found, *itertools.chain(*found))))


def test_a_signal_ends_tolist():
    x = over(np.zeros(1), "float64", (99_000_000,), (0,))
    interrupt(lambda: [x.tolist() for _ in iter(int, 1)])


def test_values_on_a_device():
    with software_device() as device:
        tensor = ad.tensor(device.array(np.array([[1, 2], [3, 4]])))
        for name, read in (("tolist", tensor.tolist), ("item", tensor[1, 0].item)):
            with pytest.raises(ad.ExchangeError) as info:
                read()
            error = info.value
            assert error.reason == "device" and str(error.device) == "ext_dev:0"
            assert f"{name}() needs host memory, found memory of ext_dev:0;" in str(error)
            assert error.hint == 'bring the data to the host with .to("cpu")'
        assert tensor.size == 4
        assert tensor.to("cpu").tolist() == [[1, 2], [3, 4]]
        assert tensor[1, 0].to("cpu").item() == 3


# --- equals() -----------------------------------------------------------------


def equal(a, b):
    """a.equals(b), which is the same in both directions."""
    result = ad.tensor(a).equals(b)
    assert type(result) is bool and ad.tensor(b).equals(a) is result
    return result


@looped("dtype", NUMBERS)
def test_equals_finds_one_other_element(dtype):
    for view in layouts():
        x = np.array(view, dtype, order="K")
        y = np.array(x, order="F")
        assert equal(x, y) and equal(x, x)
        for i in {0, x.size // 2, x.size - 1} if x.size else ():
            at = np.unravel_index(i, x.shape)
            y[at] = not y[at] if dtype == "?" else y[at] + 1
            assert not equal(x, y)
            y[at] = x[at]


def test_equals_compares_views():
    x = np.arange(120).reshape(2, 3, 4, 5)
    for view in layouts():
        assert equal(view, view.copy()) and equal(view, view.copy("F"))
    assert equal(x[:, ::-1], x[:, ::-1].copy()) and not equal(x[:, ::-1], x)
    assert not equal(x.T, x) and not equal(x, x.reshape(-1)) and not equal(x[0, 0, 0], x[0, 0, 1])
    assert not equal(x, x.astype("u8")) and not equal(x.astype("f8"), x)
    assert equal(x[:0], np.empty((0, 3, 4, 5), "i8")) and not equal(x[:0], x[..., :0])
    assert equal(np.array(1), np.array(1)) and not equal(np.array(1), np.array([1]))


@looped("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_nan_is_not_equal_and_minus_zero_is(dtype):
    """As in an Array of the same numbers."""
    zeros, nan = np.zeros(3, dtype), np.array([0, 1, np.nan], dtype)
    assert equal(zeros, -zeros) and not equal(nan, nan)
    assert ad.array(nan).equals(nan) is False is equal(nan[2:], nan[2:])
    assert equal(nan[:2], nan[:2].copy())


def test_nan_of_bfloat16_and_float8():
    """Elements of 8 bits are compared by their bits, as in an Array."""
    for bits in (0x7FC0, 0x8000, 0x3F80):
        x, zero = np.array([bits], "u2"), np.zeros(1, "u2")
        ours, other = over(x, "bfloat16", (1,)), over(zero, "bfloat16", (1,))
        assert ours.equals(other) is (bits == 0x8000)
        assert ours.equals(ours) is (bits != 0x7FC0) is ad.array(ours).equals(ours)
    nan = over(np.array([0x7F], "u1"), "float8_e4m3fn", (1,))
    assert nan.equals(nan) and ad.array(nan).equals(nan)


def test_elements_of_less_than_a_byte():
    """The bits behind the last element are ignored."""
    a, b = np.array([0x21, 0xF3], "u1"), np.array([0x21, 0x03], "u1")
    assert over(a, INT4, (3,)).equals(over(b, INT4, (3,)))
    assert not over(a, INT4, (4,)).equals(over(b, INT4, (4,)))
    assert not over(a, INT4, (3,)).equals(over(b, UINT4, (3,)))
    six = np.array([1, 2, 3], "u1")
    assert over(six, "float6_e2m3fn", (4,)).equals(over(six.copy(), "float6_e2m3fn", (4,)))
    spread = np.array([1, 2, 3], "u1")
    where = {"data": spread.ctypes.data, "shape": (3,), "dtype": (0, 4, 1)}
    padded = ad.tensor(Producer(**where, flags=SUBBYTE_PADDED))
    assert over(a, INT4, (3,)).equals(padded) and padded.equals(padded)
    assert not over(a, INT4, (3,))[::1].equals(over(six, INT4, (3,)))
    with pytest.raises(ad.ExchangeError):  # they begin within a byte
        over(a, INT4, (2, 2), (1, 2)).equals(over(b, INT4, (2, 2)))


def test_elements_of_several_lanes():
    a, b = np.arange(8, dtype="f4"), np.arange(8, dtype="f4")
    assert over(a, "float32x2", (4,)).equals(over(b, "float32x2", (4,)))
    b[7] = -1
    assert not over(a, "float32x2", (4,)).equals(over(b, "float32x2", (4,)))
    assert over(a, "float32x2", (3,)).equals(over(b, "float32x2", (3,)))
    b[:] = a[0] = np.nan
    assert not over(a, "float32x2", (1,)).equals(over(a, "float32x2", (1,)))


def test_long_tensors_differ_at_every_end():
    x = np.zeros(3 * 65536 + 5, "u1")
    for i in (0, 65535, 65536, 2 * 65536, x.size - 1):
        y = x.copy()
        assert equal(x, y)
        y[i] = 1
        assert not equal(x, y) and not equal(x.view("?"), y.view("?"))
        assert not over(x, INT4, (2 * x.size,)).equals(over(y, INT4, (2 * x.size,)))


def test_equals_takes_anything_that_tensor_takes():
    tensor = ad.tensor(np.arange(3))
    assert tensor.equals(pa.array([0, 1, 2])) and tensor.equals(ad.array(tensor))
    assert ad.tensor(b"ab").equals(bytearray(b"ab")) and tensor[1].equals(np.array(1))
    with pytest.raises(ad.ExchangeError) as info:
        tensor.equals(pa.array([0, 1, None]))
    assert info.value.reason == "nulls"
    with pytest.raises(TypeError, match="speaks none of the protocols"):
        tensor.equals(5)


def test_equals_on_a_device_after_the_event():
    x = np.arange(6.0).reshape(2, 3)
    with software_device(devices=2) as device:
        queue = device.queue()
        queue.hold()
        pending = ad.tensor(device.array(x, queue=queue))
        assert not pending.equals(x.T) and not pending.equals(x.astype("f4"))  # needs no value
        timer = threading.Timer(0.05, queue.release)
        timer.start()
        assert not pending.is_ready()
        assert pending.equals(x)  # waits for the timer
        timer.join()
        assert ad.tensor(x).equals(pending) and pending.equals(pending.to("ext_dev:1"))
        assert pending.permute().equals(x.T) and not pending.equals(x + 1)
        assert pending[:, ::2].equals(x[:, ::2]) and not pending[:1].equals(x[1:])


def test_equals_without_a_runtime():
    nowhere = ad.Tensor.from_pointer(0x7E0000, (2,), "int8", "vulkan:0")
    with pytest.raises(ad.ExchangeError) as info:
        nowhere.equals(np.array([1, 2], "i1"))
    assert info.value.reason == "runtime"
    assert not nowhere.equals(np.array([1, 2, 3], "i1"))


def test_a_signal_ends_a_long_comparison():
    x = ad.tensor(np.zeros(1 << 26, "i1"))
    interrupt(lambda: [x.equals(x) for _ in iter(int, 1)])
