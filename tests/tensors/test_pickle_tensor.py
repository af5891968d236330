"""Pickles and copies of Tensor."""

import copy
import pickle

import numpy as np
import pytest
from loops import looped

import arrowdev as ad

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

FORTRAN = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
LAYOUTS = {
    "row-major": (np.arange(24).reshape(2, 3, 4), (12, 4, 1)),
    "column-major": (FORTRAN, (1, 2, 6)),
    "transposed": (np.arange(6).reshape(2, 3).T, (1, 3)),
    "reversed": (np.arange(24)[::-2], (1,)),
    "part": (np.arange(24).reshape(4, 6)[1:, 1:3], (2, 1)),
    "permuted": (FORTRAN.transpose(1, 0, 2), (8, 4, 1)),
    "broadcast": (np.broadcast_to(np.arange(3), (4, 3)), (3, 1)),
    "0-d": (np.array(5.0), ()),
    "empty": (np.zeros((3, 0, 2)), (2, 2, 1)),
    "one": (np.ones((1, 1)), (1, 1)),
}
DTYPES = ["bool", "uint8", "int64", "float16", "complex64", "bfloat16"]
DTYPES += ["float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float4_e2m1fn", "float32x4"]
DTYPES += ["dlpack(code=77, bits=3, lanes=1)"]


def out_of_band(obj):
    buffers = []
    return pickle.dumps(obj, 5, buffer_callback=buffers.append), buffers


@looped("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_strides_are_those_of_an_order(name, protocol):
    array, strides = LAYOUTS[name]
    again = pickle.loads(pickle.dumps(ad.tensor(array), protocol))
    assert type(again) is ad.Tensor
    assert (np.asarray(again) == array).all() and again.shape == array.shape
    assert again.strides == strides and again.dtype == str(array.dtype)


@pytest.mark.parametrize("name", ["row-major", "column-major", "transposed", "0-d"])
def test_contiguous_memory_out_of_band_is_not_copied(name):
    tensor = ad.tensor(LAYOUTS[name][0])
    data, buffers = out_of_band(tensor)
    again = pickle.loads(data, buffers=buffers)
    assert again.data_ptr == tensor.data_ptr and again.strides == tensor.strides
    assert len(data) < 300


@pytest.mark.parametrize("dtype", DTYPES)
@looped("shape", [(3, 5), (), (0,), (7,)])
def test_every_dtype(dtype, shape):
    memory = np.arange(1, 600, dtype="u2").view("u1")
    tensor = ad.Tensor.from_pointer(memory.ctypes.data, shape, dtype, "cpu", owner=memory)
    for again in (pickle.loads(pickle.dumps(tensor)), pickle.loads(pickle.dumps(tensor, 2))):
        assert (again.dtype, again.shape, again.nbytes) == (dtype, shape, tensor.nbytes)
        _, (block,) = out_of_band(again)
        assert bytes(block) == memory[: tensor.nbytes].tobytes()


def test_part_has_its_own_elements_only():
    assert len(pickle.dumps(ad.tensor(np.zeros(10**6)[5:10]))) < 300


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("writeable", [True, False])
def test_readonly_flag_is_kept(protocol, writeable):
    values = np.arange(5)
    values.flags.writeable = writeable
    again = pickle.loads(pickle.dumps(ad.tensor(values), protocol))
    assert again.readonly is not writeable
    assert np.asarray(again).flags.writeable is writeable


def test_tensors_of_columns_stay_readonly_by_convention():
    again = pickle.loads(pickle.dumps(ad.tensor(ad.array(b"abc"), readonly=None)))
    assert again.readonly


def test_copies():
    values = np.arange(6).reshape(2, 3)
    tensor = ad.tensor(values)
    assert copy.copy(tensor) is tensor
    deep = copy.deepcopy(tensor)
    values[:] = 7
    assert np.asarray(deep).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not deep.readonly


def changed(**parts):
    names = ("dtype", "shape", "order", "flags", "memory", "device")
    function, (version, *found) = ad.tensor(np.arange(6).reshape(2, 3)).__reduce_ex__(5)
    found = dict(zip(names, found, strict=False), memory=bytes(48)) | parts
    return function(version, *found.values())


@pytest.mark.parametrize(
    "parts",
    [
        {"memory": bytes(47)},
        {"memory": bytes(49)},
        {"memory": None},
        {"memory": 3},
        {"shape": (2, 4)},
        {"shape": (-2, -3)},
        {"shape": (2**40, 2**40)},
        {"shape": (1,) * 65},
        {"shape": [2, 3]},
        {"shape": ("2", 3)},
        {"dtype": "int32"},
        {"dtype": "int64x2"},
        {"dtype": "int64x65537"},
        {"dtype": "dlpack(code=0, bits=0, lanes=1)"},
        {"dtype": ""},
        {"order": 3},
        {"order": "X"},
        {"device": "here"},
    ],
    ids=str,
)
def test_changed_parts_are_refused(parts):
    assert changed().shape == (2, 3)
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        changed(**parts)


def test_buffers_have_one_dimension():
    function, (version, *parts) = ad.array(b"abc").buffers[1].__reduce_ex__(5)
    parts[1], parts[-2] = (1, 3), b"abc"
    with pytest.raises(ValueError, match="dimensions"):
        function(version, *parts)
