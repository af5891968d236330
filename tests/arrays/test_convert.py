"""convert() and .into(): objects of other libraries over the same memory."""

import builtins
import decimal
import warnings
import weakref

import pytest
from dlpack_ctypes import Producer
from lifetimes import is_gone
from loops import looped
from peer import Peer
from places import pointer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
arro3 = Peer("arro3.core")
jax = Peer("jax")
nanoarrow = Peer("nanoarrow")
pd = Peer("pandas", "3.0")  # the first version with an Arrow interface on Series
pl = Peer("polars")
torch = Peer("torch")
tvm_ffi = Peer("tvm_ffi")


# Class: address of the first value, or None where the library decides whether to copy.
COLUMNS = {
    "builtins.memoryview": lambda x: np.asarray(x).ctypes.data,
    "np.ndarray": lambda x: x.ctypes.data,
    "torch.Tensor": lambda x: x.data_ptr(),
    "jax.Array": lambda x: x.unsafe_buffer_pointer(),
    "tvm_ffi.Tensor": lambda x: np.from_dlpack(x).ctypes.data,
    "pa.Array": lambda x: x.buffers()[1].address + x.offset * 4,
    "pa.FloatArray": lambda x: x.buffers()[1].address + x.offset * 4,
    "pa.ChunkedArray": lambda x: x.chunk(0).buffers()[1].address,
    "nanoarrow.Array": lambda x: np.asarray(x.buffers[1]).ctypes.data,
    "arro3.Array": lambda x: ad.array(x).buffers[1].data_ptr,
    "pl.Series": None,
    "pd.Series": lambda x: x.to_numpy().ctypes.data,
    "ad.Tensor": pointer,
    "ad.Array": pointer,
}

BATCHES = {
    "pa.RecordBatch": lambda x: x.column(0).buffers()[1].address,
    "pa.Table": lambda x: x.column(0).chunk(0).buffers()[1].address,
    "arro3.RecordBatch": lambda x: ad.record_batch(x).children[0].buffers[1].data_ptr,
    "pl.DataFrame": None,
    "pd.DataFrame": None,
}


def values(found):
    if isinstance(found, (ad.Tensor, memoryview)):
        return np.asarray(found).tolist()
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(found, name):
            return getattr(found, name)()
    return np.from_dlpack(found).tolist()


def aligned(n=4):
    """jax copies memory that is not aligned to 64 bytes."""
    raw = np.zeros(n + 16, "f4")
    start = -raw.ctypes.data % 64 // 4
    data = raw[start : start + n]
    data[:] = np.arange(n) / 2
    return data


def the_class(name):
    library, _, cls = name.partition(".")
    return getattr(globals().get(library, builtins), cls)


@pytest.mark.parametrize("name", COLUMNS)
@looped("copy", [None, False, True])
@pytest.mark.parametrize("source", [ad.array, ad.tensor, pa.array, np.asarray])
def test_convert_a_column(name, copy, source):
    cls, where = the_class(name), COLUMNS[name]
    data = aligned()
    given = source(data)
    ways = [lambda: ad.convert(given, cls, copy=copy)]
    if source in (ad.array, ad.tensor):
        ways.append(lambda: given.into(cls, copy=copy))
    for way in ways:
        if where is None and copy is False:
            with pytest.raises(
                ad.ExchangeError, match="decides by itself whether to copy"
            ) as info:
                way()
            assert info.value.reason == "copy" and info.value.hint
            continue
        found = way()
        assert isinstance(found, cls)
        assert values(found) == [0, 0.5, 1, 1.5]
        if where is not None:
            assert (where(found) == data.ctypes.data) is (copy is not True)


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("copy", [None, False, True])
def test_convert_a_batch(name, copy):
    cls, where = the_class(name), BATCHES[name]
    data = aligned()
    batch = ad.record_batch({"a": data})
    if where is None and copy is False:
        with pytest.raises(ad.ExchangeError) as info:
            batch.into(cls, copy=copy)
        assert info.value.reason == "copy"
        return
    found = batch.into(cls, copy=copy)
    assert isinstance(found, cls)
    assert pa.table(found if hasattr(found, "__arrow_c_stream__") else batch).to_pydict() == {
        "a": [0, 0.5, 1, 1.5]
    }
    if where is not None:
        assert (where(found) == data.ctypes.data) is (copy is not True)


@pytest.mark.parametrize("name", COLUMNS)
def test_converted_object_keeps_memory(name):
    cls = the_class(name)

    class Owned(np.ndarray):
        pass

    owner = aligned().view(Owned)
    alive = weakref.ref(owner)
    found = ad.convert(owner, cls)
    del owner
    assert values(found) == [0, 0.5, 1, 1.5]
    del found
    assert is_gone(alive)


@pytest.mark.parametrize(
    "name", ["pa.Array", "pa.ChunkedArray", "nanoarrow.Array", "pl.Series", "pd.Series"]
)
def test_convert_with_nulls(name):
    cls = the_class(name)
    found = ad.array(pa.array([1, None, 3])).into(cls)
    assert [value if value == value else None for value in values(ad.array(found))] == [1, None, 3]


@pytest.mark.parametrize(
    "name", ["np.ndarray", "torch.Tensor", "jax.Array", "tvm_ffi.Tensor", "builtins.memoryview"]
)
def test_convert_refuses_nulls(name):
    cls = the_class(name)
    with pytest.raises(ad.ExchangeError, match="nulls") as info:
        ad.array(pa.array([1, None, 3])).into(cls)
    assert info.value.reason == "nulls"


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (int, "how to make an instance of builtins.int"),
        (ad.Buffer, "how to make an instance of arrowdev.Buffer"),
        (np.ma.MaskedArray, "numpy.ndarray, not of numpy.ma.MaskedArray"),
        (pa.Int8Array, "FloatArray, not of pyarrow.lib.Int8Array"),
        (5, "must be a class such as torch.Tensor, not an instance of int; pass its class"),
        ("torch.Tensor", "not str; import the class"),
        (np, "not module; import the class"),
    ],
)
def test_convert_to_unsupported_class(cls, text):
    with pytest.raises(TypeError, match=text):
        ad.array(aligned()).into(cls)
    with pytest.raises(TypeError, match=text):
        ad.convert(aligned(), cls)


def test_convert_copies_once():
    producer = Producer()
    copied = ad.convert(producer, np.ndarray, copy=True)
    assert copied.ctypes.data != producer.managed.data
    assert producer.deleted == 1


def test_negative_strides_into_torch():
    data = np.arange(3.0)[::-1]
    assert ad.convert(data, torch.Tensor).tolist() == [2.0, 1.0, 0.0]
    with pytest.raises(ad.ExchangeError, match="negative stride"):
        ad.convert(data, torch.Tensor, copy=False)
    # torch.from_dlpack(), which makes what a subclass is converted to, would end the process.
    with pytest.raises(TypeError, match=r"make an instance of torch\.Tensor, not of"):
        ad.convert(data, type("Mine", (torch.Tensor,), {}))


def test_hidden_copy_by_jax_is_refused():
    shifted = np.arange(1001, dtype="float32")[1:]
    if shifted.ctypes.data % 64 == 0:
        shifted = shifted[1:]
    assert ad.convert(shifted, jax.Array).tolist() == shifted.tolist()
    with pytest.raises(ad.ExchangeError, match="jax copied"):
        ad.convert(shifted, jax.Array, copy=False)


def read_only():
    data = np.arange(3.0)
    data.flags.writeable = False
    return data


FLAGGED = {
    "bytes": lambda: b"abc",
    "ndarray": read_only,
    "array": lambda: ad.array(read_only()),
    "tensor": lambda: ad.tensor(np.zeros(3), readonly=True),
    "column": lambda: ad.record_batch({"a": read_only()})["a"],
}


@pytest.mark.parametrize("name", ["torch.Tensor", "tvm_ffi.Tensor"])
@pytest.mark.parametrize("source", FLAGGED)
def test_memory_that_was_flagged_as_readonly(name, source):
    """These classes ignore DLPack's flag, so that a write would change the memory."""
    cls = the_class(name)
    with pytest.warns(UserWarning, match="flagged the memory as read-only") as warned:
        ad.convert(FLAGGED[source](), cls)
    assert len(warned) == 1 and warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ad.convert(FLAGGED[source](), cls, copy=True)
        ad.tensor(FLAGGED[source](), readonly=False).into(cls)
        ad.convert(FLAGGED[source](), np.ndarray)  # read-only itself
        with pytest.raises(UserWarning, match="read-only"):
            ad.convert(FLAGGED[source](), cls)


def test_flagged_memory_into_subclass_of_torch():
    """A subclass is made by torch.from_dlpack(), or not at all."""
    with pytest.warns(UserWarning, match="read-only") as warned, pytest.raises(TypeError):
        ad.convert(b"abc", type("Mine", (torch.Tensor,), {}))
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.parametrize("name", ["torch.Tensor", "tvm_ffi.Tensor", "jax.Array"])
def test_no_warning_for_what_is_immutable_by_convention(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data in (aligned(), pa.array(aligned()), pa.table({"a": aligned()})["a"]):
            ad.convert(data, the_class(name))


def test_memory_that_was_flagged_as_readonly_into_jax():
    """jax takes capsules that cannot carry the flag, so arrowdev copies."""
    data = np.arange(3, dtype="f4")
    data.flags.writeable = False
    assert ad.convert(data, jax.Array).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(data, jax.Array, copy=False)
    assert info.value.reason == "readonly"


def test_pandas_without_from_arrow(monkeypatch):
    """As before version 3."""
    monkeypatch.delattr(pd.Series, "from_arrow")
    with pytest.raises(ad.ExchangeError, match=r"has no Series.from_arrow\(\)") as info:
        ad.convert(pa.array(["a"]), pd.Series)
    assert info.value.reason == "version" and info.value.hint == "install pandas 3 or later"


def test_array_of_another_dtype():
    array = ad.array(np.arange(3))
    assert array.__array__("f4").dtype == np.float32
    with pytest.raises(ValueError, match="int64 cannot become float32 without a copy"):
        array.__array__(np.dtype("f4"), copy=False)


def test_strided_memory_into_jax():
    data = np.arange(10, dtype="f4")
    for part in (data[::2], data[::-1], data.reshape(2, 5)[:, 1:3]):
        assert ad.convert(part, jax.Array).tolist() == part.tolist()
        with pytest.raises(ad.ExchangeError, match="strided"):
            ad.convert(part, jax.Array, copy=False)


def test_64_bits_into_jax():
    """jax itself would make 32 bits of them unless they are enabled."""
    for data in (np.array([2**40 + 1]), np.array([1e300]), np.array([1e300j])):
        for copy in (None, False, True):
            with pytest.raises(ad.ExchangeError, match="jax makes") as info:
                ad.convert(data, jax.Array, copy=copy)
            assert info.value.reason == "dtype" and "jax_enable_x64" in info.value.hint
    jax.config.update("jax_enable_x64", True)
    try:
        for dtype in ("i8", "u8", "f8", "c16"):
            data = np.array([2**40 + 1]).astype(dtype)
            assert ad.convert(data, jax.Array).tolist() == data.tolist()
            assert ad.convert(data, jax.Array).dtype == data.dtype
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("name", ["torch.Tensor", "jax.Array", "tvm_ffi.Tensor", "np.ndarray"])
@looped("dtype", ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "f2", "f4"])
def test_dtypes_stay(name, dtype):
    found = ad.convert(np.ones(64, dtype), the_class(name))
    assert str(found.dtype).rpartition(".")[2] == np.dtype(dtype).name


def test_integers_with_nulls_into_pandas():
    """pandas makes float64 of them, which holds integers up to 2**53."""
    for values in (
        [2**53 + 1, None],
        [-(2**60), None],
        [[2**60 + 1, None]],
        [{"a": 2**60 + 1}, {"a": None}],
    ):
        column = ad.record_batch({"x": pa.array(values)})
        with pytest.raises(ad.ExchangeError, match="float64") as info:
            column.into(pd.DataFrame)
        assert info.value.reason == "dtype" and "types_mapper=pandas.ArrowDtype" in info.value.hint
    big = ad.array(pa.array([2**60 + 1, None]))
    with pytest.raises(ad.ExchangeError, match="float64"):
        big.into(pd.Series)
    assert big.into(pa.Array).to_pandas(types_mapper=pd.ArrowDtype).tolist()[0] == 2**60 + 1
    assert ad.array(pa.array([2**53, None])).into(pd.Series)[0] == 2**53
    assert ad.array(pa.nulls(2, pa.int64())).into(pd.Series).isna().all()


BIG = 2**60 + 1


@pytest.mark.parametrize(
    ("type", "low", "none", "big"),
    [
        (pa.int64(), 1, None, BIG),
        (pa.list_(pa.int64()), [1], [None], [BIG]),
        (pa.large_list(pa.int64()), [1], [None], [BIG]),
        (pa.list_(pa.int64(), 2), [1, 2], [None, 2], [BIG, 2]),
        (pa.list_(pa.list_(pa.int64())), [[1]], [[None]], [[BIG]]),
        (pa.list_(pa.struct({"a": pa.int64()})), [{"a": 1}], [{"a": None}], [{"a": BIG}]),
        (pa.struct({"a": pa.list_(pa.int64())}), {"a": [1]}, {"a": [None]}, {"a": [BIG]}),
    ],
    ids=str,
)
def test_slices_of_integers_into_pandas(type, low, none, big):
    """Integers and nulls outside of the slice round nothing."""
    rows = pa.array([none, big, low, none], type)
    batch = ad.record_batch({"x": rows})
    for first, last in ((1, 2), (1, 3), (2, 3), (2, 4), (3, 4)):
        frame = batch[first:last].into(pd.DataFrame)
        has_big = str(BIG) in str(rows[first:last].to_pylist())
        assert len(frame) == last - first and has_big == (str(BIG) in repr(frame["x"].tolist()))
    if not pa.types.is_struct(type):
        assert str(BIG) in repr(ad.array(rows[1:2]).into(pd.Series).tolist())
    for first, last in ((0, 2), (0, 4), (1, 4)):
        with pytest.raises(ad.ExchangeError, match="float64"):
            batch[first:last].into(pd.DataFrame)


def test_slices_of_maps_into_pandas():
    """Of maps pandas makes float64 of all values, also of those outside of the slice."""
    maps = pa.array([[("a", None)], [("a", BIG)]], pa.map_(pa.string(), pa.int64()))
    for x in (maps[1:], pa.ListArray.from_arrays(pa.array([1, 2], pa.int32()), maps)):
        with pytest.raises(ad.ExchangeError, match="float64"):
            ad.record_batch({"x": x}).into(pd.DataFrame)


def test_numbers_of_other_types_into_pandas():
    """Of a type that pyarrow does not know pandas shows what is stored."""
    halves = torch.ones(2, dtype=torch.bfloat16)
    for column in (halves, torch.ones(2, 2, dtype=torch.bfloat16), np.ones(2, "c8")):
        with pytest.raises(
            ad.ExchangeError, match=r"no equivalent of (bfloat16|complex64)"
        ) as info:
            ad.record_batch({"x": column}).into(pd.DataFrame)
        assert info.value.reason == "dtype"
    masked = ad.array(halves, validity=np.array([True, False]))
    with pytest.raises(ad.ExchangeError, match="no equivalent of bfloat16"):
        masked.into(pd.Series)
    assert ad.record_batch({"x": halves.float()}).into(pd.DataFrame)["x"].tolist() == [1.0, 1.0]
    assert ad.record_batch({"x": np.float64(3)}).into(pd.DataFrame)["x"].tolist() == [3.0]


@pytest.mark.parametrize(
    "column",
    [
        pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([1])),
        pa.array([[1]], pa.list_view(pa.int64())),
        pa.array([[1]], pa.large_list_view(pa.int64())),
        pa.array([b""], pa.binary(0)),
        pa.array([[]], pa.list_(pa.int64(), 0)),
        pa.array([decimal.Decimal("1.50")], pa.decimal256(60, 2)),
        pa.array([[decimal.Decimal("1.50")]], pa.list_(pa.decimal256(60, 2))),
        pa.array([decimal.Decimal("1E+3")], pa.decimal128(5, -3)),
        ad.Array.from_buffers(ad.schema("tiM"), 1, [None, bytes(4)]),
        ad.Array.from_buffers(ad.schema("tiD"), 1, [None, bytes(8)]),
    ],
    ids=lambda column: str(ad.array(column).schema),
)
def test_types_at_which_polars_panics(column):
    """A panic of Rust is no Exception. The hint works."""
    batch = ad.record_batch({"x": column})
    for x, cls in ((column, pl.Series), (batch, pl.DataFrame)):
        with pytest.raises(ad.ExchangeError, match="polars has no equivalent") as info:
            ad.convert(x, cls)
        hint = f"polars.{cls.__name__}(arrowdev.array(x).to_pylist())"
        assert info.value.reason == "dtype" and hint in info.value.hint
    rows = [list(row) if isinstance(row, tuple) else row for row in column.to_pylist()]
    assert pl.Series(ad.array(column).to_pylist()).to_list() == rows
    assert pl.DataFrame(batch.to_pylist())["x"].to_list() == rows


def test_decimals_that_polars_misreads():
    """In a frame and within nested types polars reads 128 bits of each, not in a series."""
    rows = [decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]
    for type in (pa.decimal32(5, 2), pa.decimal64(5, 2)):
        column = pa.array(rows, type)
        assert ad.convert(column, pl.Series).to_list() == rows
        nested = pa.StructArray.from_arrays([column], ["x"])
        lists = pa.ListArray.from_arrays([0, 1, 3], column)
        for x, cls in ((nested, pl.Series), (nested, pl.DataFrame), (lists, pl.Series)):
            with pytest.raises(ad.ExchangeError, match="polars has no equivalent") as info:
                ad.convert(x, cls)
            assert info.value.reason == "dtype"
        assert pl.Series(ad.array(nested).to_pylist()).to_list() == nested.to_pylist()
        wide = ad.array(column, "decimal128(5, 2)")
        assert ad.convert(ad.record_batch({"x": wide}), pl.DataFrame)["x"].to_list() == rows


def test_unions_into_polars():
    tags, children = pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]
    for union in (
        pa.UnionArray.from_sparse(tags, children),
        pa.UnionArray.from_dense(tags, pa.array([0, 1], pa.int32()), children),
    ):
        for x, cls in ((union, pl.Series), (ad.record_batch({"x": union}), pl.DataFrame)):
            with pytest.raises(ad.ExchangeError, match="polars has no equivalent") as info:
                ad.convert(x, cls)
            assert info.value.reason == "dtype" and "children" in info.value.hint
        parts = [ad.convert(part, pl.Series).to_list() for part in ad.array(union).children]
        assert parts == [[1, 2], ["x", "y"]]


def test_other_panics_of_polars_are_errors():
    """polars reads month_day_nano intervals only if it is told to by the environment."""
    column = ad.Array.from_buffers(ad.schema("tin"), 1, [None, bytes(16)])
    with pytest.raises(ad.ExchangeError, match="polars panics at") as info:
        ad.convert(ad.record_batch({"x": column}), pl.DataFrame)
    assert info.value.reason == "dtype" and "to_pylist()" in info.value.hint


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (pa.array([1], pa.timestamp("s", "+05:30")), "pl.Series"),
        (pa.array([1], pa.time64("ns")), "pd.Series"),
        (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), "pd.Series"),
        (pa.array([1], pa.decimal256(50, 0)), "pl.Series"),
    ],
)
def test_library_that_refuses_data(column, name):
    library, _, attribute = name.partition(".")
    cls = getattr(globals()[library], attribute)
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(column, cls)
    if info.value.reason != "dtype":
        assert info.value.reason == "target" and info.value.__cause__ is not None
        assert "Series cannot be made of" in str(info.value)


def test_class_with_the_exchange_api_of_another_one():
    class Other:
        __dlpack_c_exchange_api__ = torch.Tensor.__dlpack_c_exchange_api__

    class Derived(torch.Tensor):
        __dlpack_c_exchange_api__ = torch.Tensor.__dlpack_c_exchange_api__

    class Own(Other):
        __dlpack_c_exchange_api__ = torch.Tensor.__dlpack_c_exchange_api__

        @classmethod
        def __arrowdev_from__(cls, data, *, copy=None, stream=None):
            return cls()

    with pytest.raises(TypeError, match="does not know how to make"):
        ad.convert(np.arange(3), Other)
    with pytest.raises(TypeError, match=r"make an instance of torch\.Tensor"):
        ad.convert(np.arange(3), Derived)
    assert isinstance(ad.convert(np.arange(3), Own), Own)


def test_slices_that_libraries_misread():
    """Each row comes out, though the library itself reads others from a slice."""
    rows = [[1, 2], None, [3, 4], [5, 6]]
    views = pa.array(rows, pa.list_view(pa.int64()))
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 4], pa.int32()), views)
    for column, cls, read in [
        (views, pd.Series, lambda series: [None if x is None else x.tolist() for x in series]),
        (
            nested,
            pd.Series,
            lambda series: [[y if y is None else y.tolist() for y in x] for x in series],
        ),
        (pa.array(rows, pa.list_(pa.int64(), 2)), pl.Series, pl.Series.to_list),
    ]:
        for piece in (column, column[1:], column[1:][:1]):
            assert read(ad.convert(piece, cls)) == piece.to_pylist(), (cls, column.type)


def test_slices_of_sparse_unions_into_arro3():
    children = [pa.array([1, 2, None]), pa.array(["x", "y", "z"])]
    union = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), children)
    for piece in (union, union[1:], pa.StructArray.from_arrays([union], ["u"])[1:]):
        assert pa.array(ad.convert(piece, arro3.Array)).to_pylist() == piece.to_pylist()
    assert ad.convert(union, arro3.Array, copy=False)
    with pytest.raises(ad.ExchangeError, match="misreads slices") as info:
        ad.convert(union[1:], arro3.Array, copy=False)
    assert info.value.reason == "copy"


def test_views_of_strings_into_nanoarrow():
    for column in (
        pa.array(["a"], pa.string_view()),
        pa.array([[b"a"]], pa.list_(pa.binary_view())),
    ):
        with pytest.raises(ad.ExchangeError, match="cannot read") as info:
            ad.convert(column, nanoarrow.Array)
        assert info.value.reason == "dtype"


@pytest.mark.parametrize(
    "name", ["pa.RecordBatch", "pa.Table", "pd.DataFrame", "pl.DataFrame", "arro3.RecordBatch"]
)
def test_null_rows_into_a_batch(name):
    cls = the_class(name)
    rows = pa.array([{"a": 1}, None])
    with pytest.raises(ad.ExchangeError, match="no place for null rows") as info:
        ad.convert(rows, cls)
    assert info.value.reason == "nulls"
    assert isinstance(ad.convert(rows[:1], cls), cls)


def test_permuted_tensors_into_pandas():
    """pandas would show the elements in the order in which they are stored."""
    x = np.arange(8).reshape(2, 2, 2).transpose(0, 2, 1)
    with pytest.raises(ad.ExchangeError, match="another order") as info:
        ad.array(x).into(pd.Series)
    assert 'arrowdev.array(arrowdev.tensor(x, order="C"))' in info.value.hint
    rows = ad.array(ad.tensor(x, order="C")).into(pd.Series)
    assert [row.tolist() for row in rows] == x.reshape(2, 4).tolist()


def test_fields_of_one_name_into_pandas():
    """A dict keeps one of them; columns of one name stay."""
    twins = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    for column in (twins, pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), twins)):
        with pytest.raises(ad.ExchangeError, match="one field of a name") as info:
            ad.record_batch({"x": column}).into(pd.DataFrame)
        assert "types_mapper=pandas.ArrowDtype" in info.value.hint
        kept = pa.table({"x": column}).to_pandas(types_mapper=pd.ArrowDtype)
        assert pa.array(kept["x"]).equals(column)
    assert ad.array(twins).into(pd.DataFrame).values.tolist() == [[1, 2]]


def test_integers_of_dictionaries_in_lists_into_pandas():
    words = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array([2**60 + 1]))
    with pytest.raises(ad.ExchangeError, match="float64"):
        ad.array(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), words)).into(pd.Series)
    assert ad.array(words).into(pd.Series)[0] == 2**60 + 1  # a categorical


def test_types_without_numpy_dtype():
    halves = ad.tensor(torch.zeros(2, dtype=torch.bfloat16))
    with pytest.raises(ad.ExchangeError, match="no equivalent of bfloat16"):
        halves.into(np.ndarray)
