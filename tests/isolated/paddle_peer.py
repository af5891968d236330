"""Tensors of Paddle, the second library with DLPack's C exchange API on the CPU."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import paddle

import numpy as np

import arrowdev as ad


def refusal(ask):
    try:
        ask()
    except ad.ExchangeError as error:
        return error
    raise AssertionError("it was not refused")


def check_numbers():
    for dtype in (
        *("int8", "int16", "int32", "int64", "uint8"),
        *("float16", "bfloat16", "float32", "float64", "bool"),
    ):
        x = paddle.to_tensor([1, 0, 3, 5], dtype)
        assert "__dlpack_c_exchange_api__" in ad.protocols(x)
        tensor, column = ad.tensor(x, copy=False), ad.array(x, copy=False)
        assert tensor.dtype == dtype and tensor.data_ptr == x.data_ptr(), dtype
        assert column.to_pylist() == x.astype("float32").tolist(), dtype
        for back in (paddle.from_dlpack(tensor), ad.convert(tensor, paddle.Tensor)):
            assert back.data_ptr() == x.data_ptr() and back.dtype == x.dtype, dtype
    complex_numbers = ad.convert(np.array([1j, 2], "c8"), paddle.Tensor)
    assert complex_numbers.tolist() == [1j, 2]


def check_shapes():
    x = paddle.to_tensor(np.arange(6).reshape(2, 3))
    assert np.from_dlpack(ad.tensor(x.T)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert ad.array(x[:, ::2]).to_pylist() == [[0, 2], [3, 5]]
    strided = np.arange(6)[::2]
    assert ad.convert(strided, paddle.Tensor).data_ptr() == strided.ctypes.data
    assert ad.convert(np.arange(3)[::-1], paddle.Tensor).tolist() == [2, 1, 0]
    for shape in ((0, 3), ()):
        assert ad.convert(np.ones(shape), paddle.Tensor).shape == list(shape)


def check_refusals():
    x = paddle.to_tensor([1.0, 2.0])
    x.stop_gradient = False
    for ask in (ad.tensor, ad.array, lambda x: ad.convert(x, np.ndarray)):
        error = refusal(lambda ask=ask: ask(x))
        assert error.reason == "requires_grad" and error.hint == "pass x.detach()", error
    assert ad.array(x.detach()).to_pylist() == [1, 2]
    sparse = paddle.sparse.sparse_coo_tensor([[0], [0]], [1.0])
    # Complex numbers go by __dlpack__, whose device has no number: docs/upstream.
    for y in (sparse, paddle.to_tensor([1j])):
        assert refusal(lambda y=y: ad.tensor(y)).reason in ("refused", "protocol")


def check_lifetime():
    tensor = ad.tensor(paddle.arange(1000))
    back = ad.convert(np.arange(1000), paddle.Tensor)
    assert np.from_dlpack(tensor).sum() == 499500 and int(back.sum()) == 499500


check_numbers()
check_shapes()
check_refusals()
check_lifetime()
print("end of the script")
