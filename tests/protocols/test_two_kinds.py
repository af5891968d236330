"""Objects that are a column by one protocol and a tensor by another: which one is used, and that
no other data than those that are meant come in."""

import warnings

import pytest
from peer import Peer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pl = Peer("polars")
pd = Peer("pandas", "3.0")  # the first with an Arrow interface on Series
torch = Peer("torch")
xr = Peer("xarray", "2026.9")  # exports Arrow
datafusion = Peer("datafusion")


class Both:
    """Is `column` by Arrow and `tensor` by the array interface."""

    def __init__(self, column, tensor):
        self.column = pa.array(column) if isinstance(column, list) else column
        self.tensor = np.asarray(tensor)

    def __arrow_c_array__(self, requested_schema=None):
        return self.column.__arrow_c_array__(requested_schema)

    @property
    def __array_interface__(self):
        return self.tensor.__array_interface__


def rows(values, type, size):
    return pa.FixedSizeListArray.from_arrays(pa.array(values, type), size)


def address(tensor):
    return ad.tensor(tensor).data_ptr


@pytest.mark.parametrize("cls", [ad.Tensor, np.ndarray, memoryview, "torch"])
def test_a_class_of_tensors_takes_the_tensor(cls):
    cls = torch.Tensor if cls == "torch" else cls
    both = Both([1, 2, 3], np.array([[4, 5, 6]]))
    for found in (ad.convert(both, cls), ad.convert(both, cls, nulls="ignore")):
        assert type(found) is cls
        assert ad.tensor(found).shape == (1, 3) and address(found) == both.tensor.ctypes.data


@pytest.mark.parametrize("cls", [ad.Array, pa.Array, "pandas", "polars"])
def test_a_class_of_columns_takes_the_column(cls):
    cls = {"pandas": pd, "polars": pl}[cls].Series if isinstance(cls, str) else cls
    both = Both([1, 2, 3], [4, 5, 6])  # what both say of the memory agrees
    assert ad.array(ad.convert(both, cls)).to_pylist() == [1, 2, 3]


def test_what_agrees():
    for both in (
        Both([1, 2], [1, 2]),
        Both([True, False], [True, False]),
        Both([1, None], [1, 2]),
        Both(pa.array([], "f8"), np.array([], "f8")),
        Both(rows(range(6), "int8", 3), np.zeros((2, 3), "i1")),
        Both(pa.array([[1, 2], [3, 4]], pa.list_(pa.int16())), np.zeros((2, 2), "i2")),
        Both(pa.array(["a", "b"]), [1, 2]),
        Both(pa.array([1, 2], "timestamp[s]"), np.array([1, 2], "M8[s]")),
        Both(pa.record_batch({"a": [1.0], "b": [2.0]}), [[1.0, 2.0]]),
    ):
        assert ad.array(both).equals(ad.array(both.column))


@pytest.mark.parametrize(
    ("column", "tensor", "by_arrow", "by_other"),
    [
        ([1, 2], np.array([[1], [2]]), "int64 of shape (2,)", "int64 of shape (2, 1)"),
        ([1, 2], np.array([1, 2, 3]), "int64 of shape (2,)", "int64 of shape (3,)"),
        ([1, 2], np.array([1, 2], "u8"), "int64 of shape (2,)", "uint64 of shape (2,)"),
        ([1.5], np.array(1.5), "float64 of shape (1,)", "float64 of shape ()"),
        (rows(range(8), "u1", 4), np.zeros((1, 2, 3), "u1"), "shape (2, 4)", "shape (1, 2, 3)"),
        (pa.array(["a"]), np.zeros((1, 1)), "data of shape (1,)", "float64 of shape (1, 1)"),
        (pa.record_batch({"a": [1]}), np.zeros(1, "i8"), "shape (1, 1)", "shape (1,)"),
        (
            pa.array([[1, 2], [3, 4]]),
            np.zeros((2, 2, 2), "i8"),
            "int64 of shape (?, ?)",
            "int64 of shape (2, 2, 2)",
        ),
    ],
)
def test_a_column_that_contradicts_the_tensor_is_refused(column, tensor, by_arrow, by_other):
    both = Both(column, tensor)
    for ask in (
        ad.array,
        lambda x: ad.convert(x, pa.Array),
        lambda x: ad.record_batch({"a": x}),
        lambda x: next(iter(ad.array_stream([x]))),
        ad.array_stream,
        lambda x: ad.concat([x]),
    ):
        with pytest.raises(ad.ExchangeError) as info:
            ask(both)
        error = info.value if info.value.reason == "shape" else info.value.__cause__
        assert error.reason == "shape" and error.hint == "arrowdev.tensor(x) takes the latter"
        assert f"{by_arrow} by __arrow_c_array__, and " in str(error)
        assert f"{by_other} by __array_interface__" in str(error)
    assert ad.tensor(both).shape == both.tensor.shape
    assert address(both) == both.tensor.ctypes.data


def test_a_tensor_is_no_other_column_where_its_protocol_refuses():
    class Copying:
        """Exports its tensor by a copy alone."""

        column = pa.array([1, 2])
        tensor = np.array([[1, 2]])

        def __arrow_c_array__(self, requested_schema=None):
            return self.column.__arrow_c_array__(requested_schema)

        def __dlpack__(self, copy=None, **kwargs):
            if copy is False:
                raise BufferError("this takes a copy")
            return self.tensor.copy().__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    both = Copying()
    assert ad.tensor(both).shape == (1, 2)
    with pytest.raises(ad.ExchangeError, match=r"two meanings: .* \(2,\) .* \(1, 2\)") as info:
        ad.tensor(both, copy=False)
    assert info.value.reason == "shape" and info.value.hint == "leave copy=False out"
    assert str(info.value.__cause__) == "this takes a copy"


def test_refusals_of_the_tensor_do_not_hinder_the_column():
    class Failing(Both):
        @property
        def __array_interface__(self):
            raise self.tensor

    both = Failing([1, 2], [3])
    both.tensor = ValueError("not now")
    assert ad.array(both).to_pylist() == [1, 2]
    assert ad.array(ad.tensor(both)).to_pylist() == [1, 2]
    both.tensor = MemoryError()
    for ask in (ad.array, ad.tensor):
        with pytest.raises(MemoryError):
            ask(both)


# --- nulls of which the tensor knows nothing ---------------------------------------


class Streamed(Both):
    """Is `column` by a stream alone."""

    n_streams = 0

    @property
    def __arrow_c_array__(self):
        raise AttributeError

    def __arrow_c_stream__(self, requested_schema=None):
        self.n_streams += 1
        return pa.chunked_array([self.column, self.column[:0]]).__arrow_c_stream__()


class OnDevice:
    """The same memory by both, on the software device."""

    def __init__(self, column):
        self.column = column
        self.tensor = ad.tensor(column, nulls="ignore")

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        return self.column.__arrow_c_device_array__(requested_schema)

    def __dlpack__(self, **kwargs):
        return self.tensor.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def check_refusal(both, by_arrow, by_other="__array_interface__"):
    for ask in (ad.tensor, lambda x: ad.convert(x, ad.Tensor)):
        with pytest.raises(ad.ExchangeError) as info:
            ask(both)
        assert info.value.reason == "nulls" and 'nulls="' in info.value.hint
        name = type(both).__name__
        assert f"{name} is a tensor by {by_other}, but by {by_arrow} " in str(info.value)


NULLS = {
    "numbers": ([1, None, 3], [1, 2, 3]),
    "a slice": (pa.array([None, 1, None, 3, None])[1:4], [1, 2, 3]),
    "rows": (rows([1, None, 3, 4], "i8", 2), [[1, 2], [3, 4]]),
    "a batch": (pa.record_batch({"a": [1, 2], "b": [3, None]}), [[1, 3], [2, 4]]),
    "no values": (pa.nulls(2), [1, 2]),
    "text": (["a", None], [1, 2]),
    "another type": (pa.array([1, None], "f4"), [1, 2]),
    "another shape": ([1, None], [[1], [2]]),
}


@pytest.mark.parametrize("name", NULLS)
def test_nulls_that_a_tensor_would_drop_are_refused(name):
    both = Both(*NULLS[name])
    check_refusal(both, "__arrow_c_array__")
    for cls in (np.ndarray, memoryview):
        with pytest.raises(ad.ExchangeError, match="is a tensor by"):
            ad.convert(both, cls)
    assert ad.tensor(both, nulls="ignore").data_ptr == both.tensor.ctypes.data


def test_nulls_outside_of_the_rows_do_not_count():
    full = pa.array([None, 1, 2, None])
    for column, tensor in (
        (full[1:3], [1, 2]),
        (rows([None, 0, 1, 2, None, 3], "i8", 2)[1:2], [[1, 2]]),
        (pa.record_batch({"a": full, "b": full})[1:3], [[1, 1], [2, 2]]),
    ):
        both = Both(column, tensor)
        assert address(both) == both.tensor.ctypes.data


def test_nulls_are_filled_where_both_mean_the_same():
    both = Both([1, None, 3], [1, 2, 3])
    assert np.from_dlpack(ad.tensor(both, nulls="fill", fill_value=9)).tolist() == [1, 9, 3]
    assert ad.convert(both, np.ndarray, nulls="fill", fill_value=9).tolist() == [1, 9, 3]
    other = Both([1, None], [[1], [2]])
    with pytest.raises(ad.ExchangeError, match="1 null among 2") as info:
        ad.tensor(other, nulls="fill", fill_value=9)
    assert info.value.reason == "nulls"
    plain = Both([1, 2], [1, 2])
    assert ad.tensor(plain, nulls="fill", fill_value=9).data_ptr == plain.tensor.ctypes.data


def test_a_stream_is_asked_for_nulls_once():
    both = Streamed(pa.array([1, None]), [1, 2])
    with pytest.raises(ad.ExchangeError, match="by __arrow_c_stream__ the array has 1 null"):
        ad.tensor(both)
    assert both.n_streams == 1
    plain = Streamed(pa.array([1, 2]), [1, 2])
    assert address(plain) == plain.tensor.ctypes.data and plain.n_streams == 1
    assert ad.tensor(plain, nulls="ignore").shape == (2,) and plain.n_streams == 1


def test_arrow_that_refuses_has_no_nulls_and_one_that_is_malformed_is_refused():
    class Failing(Both):
        def __arrow_c_array__(self, requested_schema=None):
            if isinstance(self.column, Exception):
                raise self.column
            return self.column

    both = Failing(ValueError("several blocks"), [1, 2])
    assert address(both) == both.tensor.ctypes.data
    both.column = MemoryError()
    with pytest.raises(MemoryError):
        ad.tensor(both)
    both.column = (1, 2)
    with pytest.raises(ad.ExchangeError, match="capsule"):
        ad.tensor(both)


def test_nulls_on_a_device(device):
    masked = ad.array(device.array([1, None, 3, 4]))
    for column in (masked, masked[1:3]):
        check_refusal(OnDevice(column), "__arrow_c_device_array__", "__dlpack__")
        tensor = ad.tensor(OnDevice(column), nulls="ignore")
        assert tensor.device == column.device and len(tensor) == len(column)
        filled = ad.tensor(OnDevice(column), nulls="fill", fill_value=9)
        expected = [9 if x is None else x for x in column.to("cpu").to_pylist()]
        assert np.from_dlpack(filled.to("cpu")).tolist() == expected
    assert ad.tensor(OnDevice(masked[2:])).shape == (2,)


def test_the_attribute_shape_counts_where_there_is_array():
    class Table:
        column = pa.array([1, 2])
        shape = (2,)

        def __arrow_c_array__(self, requested_schema=None):
            return self.column.__arrow_c_array__(requested_schema)

    class Array(Table):
        def __array__(self, dtype=None, copy=None):
            raise AssertionError("is not called")

    for shape in [(2,), None, "text", [5], (2.0,), ("x",), (-1,), (2**70,), (0,) * 70]:
        Array.shape = shape
        assert ad.array(Array()).to_pylist() == [1, 2]
    for shape in [(), (3,), (1, 2), (2, 1)]:
        Array.shape = Table.shape = shape
        with pytest.raises(ad.ExchangeError, match="two meanings") as info:
            ad.array(Array())
        assert info.value.hint.startswith("pass numpy.asarray(x)")
        assert str(shape) in str(info.value)
        assert ad.array(Table()).to_pylist() == [1, 2]  # nobody knows whose shape it is


def test_columns_are_taken_by_arrow():
    """Their classes are known: nothing is compared, and Arrow's refusal of nulls says more."""
    for source in (pa.array([1, None]), pl.Series([1, None]), pd.Series([1, None], dtype="Int64")):
        with pytest.raises(ad.ExchangeError, match="1 null among 2") as info:
            ad.tensor(source)
        assert info.value.reason == "nulls"
    assert ad.tensor(pa.Tensor.from_numpy(np.zeros((2, 3)))).shape == (2, 3)
    assert ad.tensor(pa.array([1, 2])).shape == (2,)


# --- xarray ----------------------------------------------------------------------


def test_xarray_is_refused_as_a_column_and_as_a_tensor():
    x = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("y", "x"), coords={"x": [1, 2, 3]})
    for source in (x, x[0], x[0, 0], x.drop_vars("x")):
        for ask in (ad.array, ad.tensor, lambda x: ad.convert(x, np.ndarray)):
            with pytest.raises(
                ad.ExchangeError, match=r"by __arrow_c_stream__, and the shape \("
            ) as info:
                ask(source)
            assert info.value.reason == "shape" and "x.data" in info.value.hint
            assert str(source.shape) in str(info.value)
    assert ad.tensor(x.data).data_ptr == x.data.ctypes.data  # does what the hint says
    table = ad.record_batch(x)  # xarray's own table, with the coordinates
    assert [child.name for child in table.schema.children] == ["x", "values"]
    assert table["x"].to_pylist() == [1, 2, 3, 1, 2, 3]
    assert ad.array(x.data).schema.format == "+w:3"


# --- polars Object, DataFusion -----------------------------------------------------


@pytest.mark.parametrize("values", [[], [object(), None]])
def test_polars_object_is_refused(values):
    series = pl.Series("o", values, dtype=pl.Object)
    for source in (
        series,
        series.to_frame(),
        pl.DataFrame({"a": range(len(values)), "o": series}),
    ):
        for ask in (
            ad.array,
            ad.tensor,
            ad.array_stream,
            ad.record_batch,
            lambda x: ad.convert(x, pa.Array),
            lambda x: ad.record_batch({"c": x}),
            lambda x: list(ad.array_stream([x])),
        ):
            with pytest.raises(ad.ExchangeError) as info:
                ask(source)
            error = info.value if info.value.reason == "dtype" else info.value.__cause__
            assert "polars Object" in str(error) and "cast" in error.hint
    eight = pa.array([b"12345678"], pa.binary(8))
    assert ad.array(eight).to_pylist() == [b"12345678"]
    assert ad.array(pl.Series(eight)).to_pylist() == [b"12345678"]


def test_attribute_error_of_datafusion_is_the_cause():
    """DataFusion 55 calls a method that its own class does not have."""
    batch = next(iter(datafusion.SessionContext().sql("select 1 as a").execute_stream()))
    try:
        batch.__arrow_c_array__()
    except AttributeError:
        with pytest.raises(ad.ExchangeError, match=r"__arrow_c_array__ refused \(Attr") as info:
            ad.array(batch)
        assert type(info.value.__cause__) is AttributeError
    else:
        assert ad.array(batch)["a"].to_pylist() == [1]


# --- pandas ---------------------------------------------------------------------------


def test_numbers_of_pandas_are_shared():
    for dtype in (
        "i1",
        "u1",
        "i2",
        "u2",
        "i4",
        "u4",
        "i8",
        "u8",
        "f2",
        "f4",
        "f8",
        "?",
        "c8",
        "c16",
    ):
        values = np.array([0, 1, 2, 1], dtype)
        series = pd.Series(values, copy=False)
        memory = series.to_numpy()
        for source in (series, series[1:3], series[::2], series[::-1]):
            tensor = ad.tensor(source, copy=False)
            assert tensor.data_ptr == source.to_numpy().ctypes.data
            assert tensor.readonly
            found = ad.convert(source, np.ndarray)
            assert found.dtype == values.dtype and found.tolist() == source.tolist()
            assert np.shares_memory(found, memory) and not found.flags.writeable
        copied = ad.tensor(series, copy=True)
        assert copied.data_ptr != memory.ctypes.data and not copied.readonly


def test_missing_values_of_pandas_stay_nulls():
    nan = float("nan")
    negative = np.array([nan]).view("u8") | np.uint64(1 << 63)
    for values in (
        np.array([1, nan], "f2"),
        np.array([1, nan], "f4"),
        np.array([nan, np.inf], "f8"),
        negative.view("f8"),
        np.array([0x7FF0000000000001], "u8").view("f8"),
    ):
        series = pd.Series(values)
        for ask in (
            ad.tensor,
            lambda x: ad.convert(x, np.ndarray),
            lambda x: ad.convert(x, memoryview),
        ):
            with pytest.raises(ad.ExchangeError, match="1 null among"):
                ask(series)
        filled = ad.tensor(series, nulls="fill", fill_value=7)
        expected = [7 if np.isnan(x) else x for x in values.tolist()]
        assert np.from_dlpack(filled).tolist() == expected
        with pytest.raises(ad.ExchangeError, match="1 null among"):
            ad.tensor(series.repeat(2)[::2])
    for dtype in ("f2", "f4", "f8"):
        limits = np.finfo(dtype)
        values = [np.inf, -np.inf, -0.0, limits.max, limits.min, limits.smallest_subnormal]
        series = pd.Series(np.array(values, dtype))
        assert np.from_dlpack(ad.tensor(series, copy=False)).tolist() == series.tolist()


def test_other_columns_of_pandas_come_by_arrow():
    series = {
        "masked": pd.Series([1, 2], dtype="Int64"),
        "arrow": pd.Series([1, 2], dtype="int64[pyarrow]"),
        "objects": pd.Series([1, 2], dtype=object),
    }
    for source in series.values():
        assert np.from_dlpack(ad.tensor(source)).tolist() == [1, 2]
    for source in (
        pd.Series([1, None], dtype="Int64"),
        pd.Series(["a"]),
        pd.Series(["a"], dtype="category"),
        pd.to_datetime(pd.Series(["2020-01-01"])),
        pd.to_datetime(pd.Series(["2020-01-01"])).dt.tz_localize("UTC"),
        pd.Series([1j, complex("nan")]),
    ):
        with pytest.raises(ad.ExchangeError):
            ad.tensor(source)
    swapped = pd.Series(np.array([1, 2], ">i4"))
    assert np.from_dlpack(ad.tensor(swapped)).tolist() == [1, 2]
    with pytest.raises(ad.ExchangeError):
        ad.tensor(swapped, copy=False)
    assert ad.array(pd.Series([1.0, float("nan")])).to_pylist() == [1, None]  # a column, as before


def test_shared_numbers_of_pandas_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ad.convert(pd.Series([1.0, 2.0]), torch.Tensor).tolist() == [1, 2]
        assert ad.convert(pd.Series([1.0, 2.0])[::-1], torch.Tensor).tolist() == [2, 1]


def test_a_subclass_of_series_may_fail():
    class Failing(pd.Series):
        def to_numpy(self, *args, **kwargs):
            raise self.attrs["error"]

    series = Failing([1.0, 2.0])
    series.attrs["error"] = ValueError("not now")
    assert np.from_dlpack(ad.tensor(series)).tolist() == [1, 2]
    series.attrs["error"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        ad.tensor(series)
