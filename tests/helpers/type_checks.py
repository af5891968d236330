"""Checks of the type table on any device; test_types.py, test_opencl.py,
test_oneapi.py and gpu_cuda share them. `device` is a name such as "cpu"; bytes are compared."""

import ctypes

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

# Element types with a number of bits: those of NumPy, and others.
TENSORS = {
    **{f"{kind}{bits}": bits for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "float16": 16,
    "float32": 32,
    "float64": 64,
    "bool": 8,
    "complex64": 64,
    "complex128": 128,
    "bfloat16": 16,
    "float8_e4m3fn": 8,
    "float8_e8m0fnu": 8,
    "opaque": 64,
    "float4_e2m1fn": 4,
    "float6_e3m2fn": 6,
}
SHAPES = [(8,), (3, 8), (2, 3, 4), ()]


def refused(convert, *args, **kwargs):
    """The ExchangeError that the conversion raises."""
    with pytest.raises(ad.ExchangeError) as info:
        convert(*args, **kwargs)
    return info.value


def over(memory, dtype, shape):
    return ad.Tensor.from_pointer(memory.ctypes.data, shape, dtype, "cpu", owner=memory)


def content(tensor):
    """The bytes of a compact tensor, or of an array's tensor."""
    tensor = ad.tensor(tensor.to("cpu"), order="C", copy=True)
    return ctypes.string_at(tensor.data_ptr + tensor.byte_offset, tensor.nbytes)


def check_tensors(device):
    """Checks copies to Arrow and back (zero-copy) and to the host and back."""
    for dtype, width in TENSORS.items():
        for shape in SHAPES:
            n = int(np.prod(shape))
            if width % 8 and (len(shape) < 2):  # a row would not be whole bytes
                continue
            memory = np.arange(n * width // 8, dtype="u1") % 2 + (0 if dtype == "bool" else 60)
            there = over(memory, dtype, shape).to(device)
            array = ad.array(there, copy=False)
            back = ad.tensor(array, copy=False)
            assert str(array.device) == str(back.device) == device
            assert (back.dtype, back.shape) == (dtype, shape)
            assert (back.data_ptr, back.byte_offset) == (there.data_ptr, there.byte_offset)
            assert array.to("cpu").schema == ad.array(over(memory, dtype, shape)).schema
            for found in (back, array, array.to("cpu").to(device)):
                assert content(found) == memory.tobytes(), (dtype, shape)


def check_permuted(device):
    for dtype, size in (("int16", 2), ("complex64", 8), ("float8_e4m3fn", 1)):
        memory = np.arange(24 * size, dtype="u1")
        there = ad.tensor(memory).to(device)
        turned = ad.Tensor.from_pointer(
            there.data_ptr,
            (2, 3, 4),
            dtype,
            device,
            strides=(12, 1, 3),
            byte_offset=there.byte_offset,
            owner=there,
        )
        array = ad.array(turned, copy=False)
        back = ad.tensor(array, copy=False)
        assert (back.shape, back.strides) == ((2, 3, 4), (12, 1, 3))
        expected = memory.reshape(2, 4, 3, size).transpose(0, 2, 1, 3).tobytes()
        assert content(back) == content(array[:]) == expected


COLUMNS = {
    "bits": pa.array([True, False, None, True, True])[3:],
    "bits of lists": pa.array([[True, False], [False, True]], pa.list_(pa.bool_(), 2))[1:],
    "nested lists": pa.array([[[1, 2]], [[3, 4]]], pa.list_(pa.list_(pa.int16(), 2), 1))[1:],
    "lists of one length": pa.array([[1, 2], [3, 4], [5, 6]])[1:],
    "binaries": pa.array([b"abc", b"def"], pa.binary(3))[1:],
    "columns": pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["a", "b"]),
}


def check_columns(device):
    for name, column in COLUMNS.items():
        found = ad.tensor(ad.array(column).to(device))
        assert str(found.device) == device
        assert content(found) == np.asarray(ad.tensor(column)).tobytes(), name


REFUSED = {
    "timestamp": pa.array([5, 7], pa.timestamp("us")),
    "decimal": pa.array([5, 7], pa.decimal128(5, 2)),
    "dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "text": pa.array(["a", "bc"]),
    "lists of several lengths": pa.array([[1], [2, 3]]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "types": pa.StructArray.from_arrays([pa.array([1]), pa.array([1.5])], ["a", "b"]),
}


def check_refusals(device):
    """Checks that refusals match the host's and that their hints work on the device."""
    for name, column in REFUSED.items():
        array = ad.array(column).to(device)
        with pytest.raises(ad.ExchangeError) as info:
            ad.tensor(array)
        with pytest.raises(ad.ExchangeError) as on_host:
            ad.tensor(column)
        assert (info.value.reason, info.value.hint) == ("dtype", on_host.value.hint), name
    times = ad.array(REFUSED["timestamp"]).to(device)
    assert np.asarray(ad.tensor(times.view("int64")).to("cpu")).tolist() == [5, 7]
    words = ad.array(REFUSED["dictionary"]).to(device)
    assert np.asarray(ad.tensor(words.view("int32")).to("cpu")).tolist() == [0, 1]
    assert words.dictionary.to("cpu").to_pylist() == ["a", "b"]
    lists = ad.array(REFUSED["lists of several lengths"]).to(device)
    assert lists.children[0].to("cpu").to_pylist() == [1, 2, 3]


ALL = [check_tensors, check_permuted, check_columns, check_refusals]
