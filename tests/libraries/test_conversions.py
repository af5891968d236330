"""convert() and .into() to classes of libraries whose results are checked."""

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")


@pytest.mark.slow
def test_tensorflow():
    tf = pytest.importorskip("tensorflow")
    for source in (
        np.arange(6.0).reshape(2, 3),
        np.array([True, False]),
        np.arange(3, dtype="u2"),
    ):
        made = ad.convert(source, tf.Tensor, copy=False)
        assert isinstance(made, tf.Tensor) and made.numpy().tolist() == source.tolist()
        assert ad.tensor(made).data_ptr == source.ctypes.data
    strided = np.arange(12.0).reshape(3, 4)[:, ::2]
    assert ad.convert(strided, tf.Tensor).numpy().tolist() == strided.tolist()
    for source, copy, reason in (
        (strided, False, "strides"),
        (pa.array([1, None]), None, "nulls"),
        (pa.array(["a"]), None, "dtype"),
        (b"abc", False, "readonly"),
    ):
        with pytest.raises(ad.ExchangeError) as info:
            ad.convert(source, tf.Tensor, copy=copy)
        assert info.value.reason == reason
    found = list(ad.array_stream([np.arange(2), np.arange(3)]).into(tf.Tensor))
    assert [x.numpy().tolist() for x in found] == [[0, 1], [0, 1, 2]]


def test_datafusion():
    datafusion = pytest.importorskip("datafusion")
    batches = [ad.record_batch({"a": np.arange(2), "b": pa.array(["x", None])})] * 2
    frame = ad.array_stream(batches).into(datafusion.DataFrame)
    assert frame.to_pydict() == {"a": [0, 1] * 2, "b": ["x", None] * 2}
    assert batches[0].into(datafusion.DataFrame).count() == 2
    assert ad.convert(pa.table(batches[0]), datafusion.DataFrame).count() == 2
    with pytest.raises(ad.ExchangeError) as info:
        batches[0].into(datafusion.DataFrame, copy=False)
    assert info.value.reason == "copy"


def test_mlx():
    mx = pytest.importorskip("mlx.core")
    made = ad.convert(np.arange(6, dtype="f4").reshape(2, 3), mx.array)
    assert isinstance(made, mx.array) and made.tolist() == [[0, 1, 2], [3, 4, 5]]
    for source, copy, reason in ((np.arange(3.0), None, "dtype"), (np.arange(3), False, "copy")):
        with pytest.raises(ad.ExchangeError) as info:
            ad.convert(source, mx.array, copy=copy)
        assert info.value.reason == reason
