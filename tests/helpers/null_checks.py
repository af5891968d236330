"""Checks of nulls that hold on every device; test_nulls.py, test_opencl.py and
test_oneapi.py share them. `device` is a name such as "cpu"; NumPy is the oracle."""

import ctypes

import numpy as np
import pytest

import arrowdev as ad

N = 200
OFFSETS = range(64)


def random(seed, n=N):
    return np.random.default_rng(seed)


def flags(seed, n=N):
    return random(seed).integers(0, 2, n).astype(bool)


def bits(values, device, offset=0):
    """A bool Array with one bit per row that starts at bit `offset`."""
    padded = np.concatenate([~values[:1].repeat(offset), values])
    return ad.array(padded, "bool").to(device)[offset:]


def nullable(values, valid, device, offset=0):
    """`values` with a bitmap at a bit offset, as a slice on the device."""
    around = np.zeros(offset, values.dtype), np.ones(offset, bool)
    whole = ad.array(np.concatenate([around[0], values]))
    marked = ad.array(whole, validity=np.concatenate([around[1], valid]))
    return marked.to(device)[offset:]


def expected(values, valid):
    return [value if good else None for value, good in zip(values.tolist(), valid, strict=True)]


def rows(array):
    return array.to("cpu").to_pylist()


def check_masks(device):
    """Checks validity= in every form."""
    data = np.arange(N)
    valid = flags(1)
    on_device = ad.array(data).to(device)
    masks = {
        "bool tensor": ad.tensor(valid).to(device),
        "uint8 tensor": ad.tensor(valid.astype("u1") * 7).to(device),
        "bool8 array": ad.array(valid).to(device),
        "uint8 array": ad.array(valid.astype("u1")).to(device),
        "bool8 slice": ad.array(np.concatenate([[True] * 3, valid])).to(device)[3:],
    }
    for form, mask in masks.items():
        found = ad.array(on_device, validity=mask)
        assert str(found.device) == device
        assert rows(found) == expected(data, valid), form
        assert found.count_nulls() == N - valid.sum()
        assert found.buffers[1].data_ptr == on_device.buffers[1].data_ptr


def check_packed_masks(device):
    data = np.arange(N)
    valid = flags(2)
    on_device = ad.array(data).to(device)
    for offset in OFFSETS:
        found = ad.array(on_device, validity=bits(valid, device, offset))
        assert rows(found) == expected(data, valid), offset
    shifted = ad.array(np.concatenate([np.zeros(13, "i8"), data])).to(device)[13:]
    for offset in (0, 5, 13):
        found = ad.array(shifted, validity=bits(valid, device, offset))
        assert rows(found) == expected(data, valid), offset
        assert found.offset == 13


def check_combined(device):
    """Checks that existing nulls are kept, at every bit offset."""
    data, old, new = np.arange(N), flags(3), flags(4)
    for offset in OFFSETS:
        array = nullable(data, old, device, offset)
        for mask in (ad.tensor(new).to(device), bits(new, device, 5)):
            found = ad.array(array, validity=mask)
            assert rows(found) == expected(data, old & new), offset
            assert rows(array) == expected(data, old), "the original changed"


def check_valid_masks(device):
    array = ad.array(ad.array(np.arange(N)).to(device), validity=bits(np.ones(N, bool), device, 3))
    assert array.count_nulls() == 0
    assert np.array_equal(np.asarray(ad.tensor(array).to("cpu")), np.arange(N))


VALUES = {
    "i1": 5,
    "u2": 40000,
    "i4": -7,
    "f4": 0.5,
    "i8": 2**60 + 1,
    "f8": np.nan,
    "c8": 0.5 - 2j,
    "c16": 2**60 + 1j,
    "?": True,
}


def check_fill(device):
    for dtype, value in VALUES.items():
        data = random(5).integers(0, 100, N).astype(dtype)
        for offset in OFFSETS if dtype in ("i1", "f8") else (0, 3, 63):
            valid = flags(offset)
            array = nullable(data, valid, device, offset)
            with pytest.raises(ad.ExchangeError) as info:
                ad.tensor(array)
            assert info.value.reason == "nulls"
            filled = ad.tensor(array, nulls="fill", fill_value=value)
            assert str(filled.device) == device
            correct = np.where(valid, data, np.array(value, dtype))
            found = np.asarray(filled.to("cpu"))
            assert found.dtype == data.dtype
            assert np.array_equal(found, correct, equal_nan=dtype == "f8"), (dtype, offset)
            ignored = np.asarray(ad.tensor(array, nulls="ignore").to("cpu"))
            assert np.array_equal(ignored[valid], data[valid], equal_nan=True)
            with pytest.raises(ad.ExchangeError, match="copy"):
                ad.tensor(array, nulls="fill", fill_value=value, copy=False)


def check_fill_of_bits_and_rows(device):
    values, valid = flags(6), flags(7)
    array = ad.array(ad.array(values, "bool"), validity=valid).to(device)[11:]
    found = np.asarray(ad.tensor(array, nulls="fill", fill_value=True).to("cpu"))
    assert np.array_equal(found, np.where(valid, values, True)[11:])
    matrix = np.arange(N * 3, dtype="i4").reshape(N, 3)
    array = ad.array(matrix, validity=valid).to(device)[9:]
    found = np.asarray(ad.tensor(array, nulls="fill", fill_value=-1).to("cpu"))
    assert np.array_equal(found, np.where(valid[:, None], matrix, -1)[9:])


def check_compact_bits(device):
    data, valid, values = np.arange(N), flags(8), flags(9)
    for offset in OFFSETS:
        found = nullable(data, valid, device, offset).compact()
        assert rows(found) == expected(data, valid), offset
        assert (found.offset, found.null_count) == (0, N - valid.sum())
        assert found.compact() is found
        found = bits(values, device, offset).compact()
        assert rows(found) == values.tolist(), offset
        assert (found.offset, found.null_count) == (0, 0)
        assert found.compact() is found
    without = nullable(data, np.ones(N, bool), device, 5).compact()
    assert without.buffers[0] is None and without.null_count == 0


def is_padded(array):
    """Whether the bitmap of a host array is aligned and zero after the last row."""
    address = array.buffers[0].data_ptr
    n = len(array)
    whole = ctypes.string_at(address, (n + 511) // 512 * 64)
    behind = np.unpackbits(np.frombuffer(whole, "u1"), bitorder="little")[n:]
    return address % 64 == 0 and not behind.any()


def check_bad_masks(device):
    data = ad.array(np.arange(N)).to(device)
    with pytest.raises(ValueError, match=f"one element per row: {N}, not {N - 1}"):
        ad.array(data, validity=ad.tensor(np.ones(N - 1, bool)).to(device))
    with pytest.raises(ValueError, match="one element per row") as info:
        ad.array(data, validity=ad.tensor(np.full(N // 8, 255, "u1")).to(device))
    assert "from_buffers" in str(info.value)
    with pytest.raises(TypeError, match="bool or uint8, not int64"):
        ad.array(data, validity=ad.tensor(np.ones(N, "i8")).to(device))
    with pytest.raises(ValueError, match="one dimension, not 2"):
        ad.array(data, validity=ad.tensor(np.ones((N, 1), bool)).to(device))
    mask = ad.array(ad.array(flags(1), "bool"), validity=flags(2)).to(device)
    with pytest.raises(ad.ExchangeError, match="mask itself has") as info:
        ad.array(data, validity=mask)
    assert info.value.reason == "nulls"


def check_masks_elsewhere(device):
    """Checks data and a mask of which one is on a device and one on the host."""
    valid = flags(1)
    data = ad.array(np.arange(N))
    with pytest.raises(ad.ExchangeError, match="mask is on cpu") as info:
        ad.array(data.to(device), validity=valid)
    assert (info.value.reason, "device=" in info.value.hint) == ("device", True)
    with pytest.raises(ad.ExchangeError, match="data are on cpu"):
        ad.array(data, validity=ad.tensor(valid).to(device))
    for mask in (valid, ad.tensor(valid).to(device)):
        moved = ad.array(data, device=device, validity=mask)
        assert str(moved.device) == device and rows(moved) == expected(np.arange(N), valid)


HOST = [
    check_masks,
    check_packed_masks,
    check_combined,
    check_valid_masks,
    check_fill,
    check_fill_of_bits_and_rows,
    check_compact_bits,
    check_bad_masks,
]
DEVICE = [*HOST, check_masks_elsewhere]


def strided_views(whole):
    yield "every other column", whole[:, ::2]
    yield "backwards", whole[::-1, ::-3]
    yield "transposed", whole.swapaxes(0, 1)
    yield "one of each row", whole[:, 5:6]
    if whole.ndim == 3:
        yield "inner", whole[..., 1]
        yield "all ways", whole[1::2, 3::5, ::-2]


def check_gather(device):
    """Checks that a kernel copies strided tensors with many short rows on the device."""
    for dtype in ("i1", "u2", "f4", "i8", "c16"):
        for shape in ((400, 31), (90, 31, 7)):
            whole = random(1).integers(0, 100, shape).astype(dtype)
            there = ad.tensor(whole).to(device)
            for name, view in strided_views(whole):
                offset = view.__array_interface__["data"][0] - whole.ctypes.data
                shown = ad.Tensor.from_pointer(
                    there.data_ptr,
                    view.shape,
                    there.dtype,
                    device,
                    strides=[stride // whole.itemsize for stride in view.strides],
                    byte_offset=there.byte_offset + offset,
                    owner=there,
                )
                for order in "CF":
                    found = ad.tensor(shown, copy=True, order=order)
                    assert str(found.device) == device
                    host = np.asarray(found.to("cpu"))
                    assert np.array_equal(host, view), (name, dtype, order)
                    assert host.flags[f"{order}_CONTIGUOUS"]


DEVICE.append(check_gather)
