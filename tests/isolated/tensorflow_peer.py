"""Tensors of TensorFlow: values, addresses, and elements that are no plain bytes. Its import takes
seconds, and where a check of its own fails, it ends the process."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf

import ml_dtypes
import numpy as np

import arrowdev as ad


def refusal(ask, x):
    try:
        ask(x)
    except ad.ExchangeError as error:
        return error
    raise AssertionError(f"{x.dtype} was not refused")


def check_numbers():
    for name in (
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128", "bool", "bfloat16"),
    ):
        dtype = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
        values = np.arange(6).reshape(2, 3).astype(dtype)
        x = tf.constant(values)
        tensor = ad.tensor(x, copy=False)
        assert tensor.dtype == name and tensor.shape == (2, 3), (name, tensor)
        width = tensor.itemsize
        stored = ad.Tensor.from_pointer(tensor.data_ptr, (6 * width,), "uint8", "cpu", owner=x)
        assert bytes(memoryview(stored)) == values.tobytes(), name
        again = tf.experimental.dlpack.to_dlpack(x)
        assert ad.tensor(Capsule(again)).data_ptr == tensor.data_ptr, name
        if name != "bfloat16":
            assert np.from_dlpack(tensor).tolist() == values.tolist(), name
        assert ad.array(x).buffers  # a column of rows


class Capsule:
    """Hands a capsule on; TensorFlow gives the address by no other way."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def check_refusals():
    for x in (
        tf.constant(["a", "b"]),
        tf.constant("a"),
        tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[]),
        tf.raw_ops.EmptyTensorList(element_shape=[1], max_num_elements=1, element_dtype=tf.int8),
    ):
        for ask in (ad.array, ad.tensor, ad.from_dlpack, lambda x: ad.convert(x, np.ndarray)):
            error = refusal(ask, x)
            assert error.reason == "dtype" and "no plain bytes" in str(error), error
            assert "pyarrow.array(x.numpy())" in error.hint
        assert "__dlpack__" not in ad.protocols(x, probe=True)
    variable = tf.Variable([1.0, 2.0])
    assert ad.protocols(variable) == () and ad.array(variable.value()).to_pylist() == [1, 2]
    nested = ad.convert(np.arange(6).reshape(2, 3).T, tf.Tensor)
    assert nested.numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    back = tf.experimental.dlpack.from_dlpack(ad.tensor(np.arange(3)).__dlpack__())
    assert back.numpy().tolist() == [0, 1, 2]


def check_convert():
    for dtype in ("int8", "int64", "uint16", "float16", "float32", "float64", "bool", "complex64"):
        data = np.arange(4).astype(dtype)
        x = ad.convert(data, tf.Tensor)
        assert x.dtype.name == dtype and x.numpy().tolist() == data.tolist(), dtype
        data.flags.writeable = False
        assert ad.convert(data, tf.Tensor).numpy().tolist() == data.tolist()
        assert refusal(lambda data: ad.convert(data, tf.Tensor, copy=False), data).reason
    data = np.zeros(100)[4:36:2]
    assert refusal(lambda data: ad.convert(data, tf.Tensor, copy=False), data)
    whole = np.frombuffer(np.zeros(64 * 9, "u1"), "i8")
    start = -whole.ctypes.data % 64 // 8
    aligned = whole[start : start + 8]
    aligned[:] = range(8)
    x = ad.convert(aligned, tf.Tensor, copy=False)
    assert ad.tensor(x).data_ptr == aligned.ctypes.data and x.numpy().tolist() == [*range(8)]
    x = ad.convert(aligned[1:], tf.Tensor, copy=False)  # not at 64 bytes
    assert ad.tensor(x).data_ptr == aligned.ctypes.data + 8 and x.numpy().tolist() == [
        *range(1, 8)
    ]


def check_lifetime():
    tensor = ad.tensor(tf.constant(np.arange(1000)))
    column = ad.array(tf.constant(np.arange(1000)))
    assert np.from_dlpack(tensor).sum() == 499500 and column.to_pylist() == [*range(1000)]


check_numbers()
check_refusals()
check_convert()
check_lifetime()
print("end of the script")
