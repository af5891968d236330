"""`requested_schema`, as producer and as consumer: types are relabelled, values never change.

Source: Arrow PyCapsule interface, "Protocol typehints" and "Export Protocol".
"""

import pytest
from peer import Peer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
nanoarrow = Peer("nanoarrow")
pl = Peer("polars")

ARRAYS = ("__arrow_c_array__", "__arrow_c_device_array__")
STREAMS = ("__arrow_c_stream__", "__arrow_c_device_stream__")


def answer(source, wanted, method="__arrow_c_array__"):
    """The export for a consumer that requests the schema of `wanted`."""
    capsule = None if wanted is None else wanted.__arrow_c_schema__()
    got = getattr(source, method)(capsule)
    if method in ARRAYS:
        return ad.array(got)
    (array,) = ad.array_stream(got)
    return array


def address(array):
    return array.buffers[1].data_ptr


class Producer:
    """A library's own class, whose behaviour `take` defines."""

    def __init__(self, data, take):
        self.data, self.take, self.calls = data, take, []


class Array(Producer):
    def __arrow_c_array__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.take(self.data.__arrow_c_array__, *args, **kwargs)


class DeviceArray(Producer):
    def __arrow_c_device_array__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.take(ad.array(self.data).__arrow_c_device_array__, *args, **kwargs)


class Stream(Producer):
    def __arrow_c_stream__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.take(pa.chunked_array([self.data]).__arrow_c_stream__, *args, **kwargs)


# --- as producer --------------------------------------------------------------------------

ALIKE = [
    ("int64", "timestamp[us]"),
    ("int64", "timestamp[ns, UTC]"),
    ("int64", "duration[s]"),
    ("int64", "date64"),
    ("int64", "time64[ns]"),
    ("timestamp[ms]", "int64"),
    ("duration[us]", "int64"),
    ("int32", "date32"),
    ("int32", "time32[s]"),
    ("date32", "int32"),
    ("timestamp[s, UTC]", "timestamp[s, Europe/Berlin]"),
]


@pytest.mark.parametrize("method", ARRAYS + STREAMS)
@pytest.mark.parametrize(("own", "wanted"), ALIKE)
def test_types_with_equal_storage(method, own, wanted):
    array = ad.array(np.arange(3, dtype="i4" if "32" in own else "i8")).view(own)
    got = answer(array, ad.schema(wanted), method)
    assert got.schema == ad.schema(wanted) and address(got) == address(array)
    assert array.schema == ad.schema(own)


@pytest.mark.parametrize("method", ARRAYS + STREAMS)
@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ("int64", "int32"),
        ("int64", "uint64"),
        ("int64", "float64"),
        ("timestamp[us]", "timestamp[ms]"),  # different numbers
        ("timestamp[us]", "timestamp[us, UTC]"),  # an instant only with a time zone
        ("timestamp[us, UTC]", "timestamp[us]"),
        ("duration[s]", "duration[ms]"),
        ("date64", "date32"),
    ],
)
def test_impossible_request_exports_own_type(method, own, wanted):
    array = ad.array(np.arange(3)).view(own)
    got = answer(array, ad.schema(wanted), method)
    assert got.schema == array.schema and address(got) == address(array)


def test_other_layout_exports_own_type():
    words = ad.array(pa.array(["a", None, "ccc"]))
    assert answer(words, pa.large_string()).schema == ad.schema("string")
    assert answer(words, pa.string_view()).schema == ad.schema("string")
    assert answer(words, pa.dictionary(pa.int8(), pa.string())).schema == ad.schema("string")
    assert pa.array(words).cast(pa.large_string()).to_pylist() == ["a", None, "ccc"]
    assert pa.array(ad.array(np.arange(3)), pa.timestamp("us")).type == pa.timestamp("us")


@pytest.mark.parametrize("method", ARRAYS + STREAMS)
@pytest.mark.parametrize("wanted", [pa.string(), pa.list_(pa.int64()), pa.struct([]), pa.bool_()])
def test_incompatible_type_is_refused(method, wanted):
    array = ad.array(np.arange(3))
    with pytest.raises(ad.ExchangeError, match="no representation") as info:
        getattr(array, method)(wanted.__arrow_c_schema__())
    assert info.value.reason == "requested_schema" and info.value.hint


@pytest.mark.parametrize("method", ARRAYS + STREAMS)
def test_names_nullability_and_metadata(method):
    array = ad.array(np.arange(3))
    field = pa.field("q", pa.int64(), nullable=False, metadata={"k": "v"})
    got = answer(array, field, method)
    assert got.schema.name == "q" and not got.schema.nullable
    assert got.schema.metadata == {b"k": b"v"}
    assert answer(array, None, method).schema == array.schema  # the request is not stored


def test_non_nullable_only_without_nulls():
    field = pa.field("q", pa.int64(), nullable=False)
    assert answer(ad.array(pa.array([1, None])), field).schema.nullable
    assert not answer(ad.array(pa.array([1, 2, None]))[:2].compact(), field).schema.nullable
    child = pa.list_(pa.field("item", pa.int64(), nullable=False), 2)
    with_null = ad.array(pa.array([[1, None]], pa.list_(pa.int64(), 2)))
    assert answer(with_null, child).schema.children[0].nullable
    without = ad.array(pa.array([[1, 2]], pa.list_(pa.int64(), 2)))
    assert not answer(without, child).schema.children[0].nullable


def test_extensions():
    """From storage to an extension and back, on request."""
    bools = ad.array(np.array([True, False]))
    assert answer(bools, pa.int8()).schema.metadata is None
    assert pa.array(answer(ad.array(np.array([1, 0], "i1")), bools.schema)).type == pa.bool8()
    assert answer(bools, pa.bool_()).schema == bools.schema  # bits would be a copy
    rows = ad.array(np.arange(12.0).reshape(2, 3, 2))
    other = pa.fixed_shape_tensor(pa.float64(), [2, 3])
    assert answer(rows, other).schema == rows.schema  # the element order would change


@pytest.mark.parametrize("method", ARRAYS + STREAMS)
def test_fields_of_a_batch(method):
    batch = ad.record_batch({"a": np.arange(3), "b": np.arange(3)})
    wanted = pa.schema([("x", pa.int64()), ("y", pa.timestamp("s"))])
    got = answer(batch, wanted, method)
    assert [child.name for child in got.schema.children] == ["x", "y"]
    assert str(got.schema.children[1]) == "timestamp[s]"
    # Names are never swapped.
    for names in (["b", "a"], ["b", "c"], ["c", "a"]):
        wanted = pa.schema([(name, pa.int64()) for name in names])
        assert answer(batch, wanted, method).schema == batch.schema


def test_dictionaries_and_lists():
    column = ad.array(pa.array([1, 2, 1]).dictionary_encode())
    wanted = pa.dictionary(pa.int32(), pa.timestamp("us"))
    assert str(answer(column, wanted).schema).startswith("dictionary<values=timestamp[us]")
    other = pa.dictionary(pa.int64(), pa.int64())
    assert answer(column, other).schema == column.schema
    lists = ad.array(pa.array([[1], [2]]))
    got = answer(lists, pa.list_(pa.field("element", pa.duration("s"))))
    assert got.schema.children[0].name == "element"
    assert got.children[0].schema.format == "tDs"


def test_tensor_answers_like_its_array():
    tensor = ad.tensor(np.arange(3))
    got = ad.array(tensor.__arrow_c_device_array__(pa.timestamp("us").__arrow_c_schema__()))
    assert got.schema == ad.schema("timestamp[us]") and address(got) == tensor.data_ptr
    with pytest.raises(ad.ExchangeError, match="no representation"):
        tensor.__arrow_c_device_array__(pa.string().__arrow_c_schema__())


def test_capsule_is_not_consumed():
    array = ad.array(np.arange(3))
    capsule = pa.timestamp("us").__arrow_c_schema__()
    for _ in range(3):
        got = ad.array(array.__arrow_c_array__(requested_schema=capsule))
        assert got.schema == ad.schema("timestamp[us]")
    del got
    assert ad.schema(capsule) == ad.schema("timestamp[us]")


# --- as consumer -----------------------------------------------------------------------------


def obeys(export, requested_schema=None):
    return export(requested_schema)


def knows_nothing(export):
    return export()


def knows_other_things(export, stream=None):
    return export()


def refuses(error):
    def take(export, requested_schema=None):
        if requested_schema is not None:
            raise error
        return export()

    return take


DEAF = {
    "no argument": knows_nothing,
    "another argument": knows_other_things,
    "TypeError": refuses(TypeError("no")),
    "NotImplementedError": refuses(NotImplementedError("no")),
    "ValueError": refuses(ValueError("no")),
    "ExchangeError": refuses(ad.ExchangeError("no")),
}
every_producer = pytest.mark.parametrize("cls", [Array, DeviceArray, Stream])


@every_producer
def test_type_is_requested(cls):
    producer = cls(pa.array([1, 2, 3]), obeys)
    array = ad.array(producer, "timestamp[us]")
    assert array.schema == ad.schema("timestamp[us]") and array.null_count == 0
    ((args, kwargs),) = producer.calls
    assert args == () and list(kwargs) == ["requested_schema"]


@every_producer
def test_no_request_without_a_type(cls):
    for options in ({}, {"copy": False}, {"copy": True}):
        producer = cls(pa.array([1, 2, 3]), obeys)
        ad.array(producer, **options)
        assert producer.calls == [((), {})]
    producer = cls(pa.array([1, 2, 3]), obeys)
    ad.array(producer, "int64", copy=False)  # a conversion would be a copy
    assert producer.calls == [((), {})]


@every_producer
@pytest.mark.parametrize("take", DEAF.values(), ids=DEAF)
def test_retry_without_keyword_arguments(cls, take):
    producer = cls(pa.array([1, 2, 3]), take)
    assert ad.array(producer, "int64").to_pylist() == [1, 2, 3]
    assert len(producer.calls) == 2 and producer.calls[1] == ((), {})
    with pytest.raises(ad.ExchangeError) as info:
        ad.array(cls(pa.array([1, 2, 3]), take), "string")
    assert info.value.reason == "dtype" and "int64, not string" in str(info.value)


@every_producer
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, SystemExit])
def test_no_retry_after_other_errors(cls, error):
    producer = cls(pa.array([1]), refuses(error()))
    with pytest.raises(error):
        ad.array(producer, "int64")
    assert len(producer.calls) == 1


@every_producer
def test_answer_of_another_type(cls):
    """A producer may export its best match, which may not suffice."""
    producer = cls(pa.array([1, 2, 3]), lambda export, requested_schema=None: export())
    assert ad.array(producer, pa.field("x", pa.int64())).schema.name == "x"
    with pytest.raises(ad.ExchangeError) as info:
        ad.array(cls(pa.array([1]), lambda export, requested_schema=None: export()), "int32")
    assert info.value.reason == "dtype"


def test_peers_convert():
    assert ad.array(pa.array([1, 2]), "int32").to_pylist() == [1, 2]
    assert ad.array(pa.array(["a"]), "large_utf8").schema == ad.schema("large_utf8")
    assert ad.array(pa.chunked_array([[1], [2]]), "float64").to_pylist() == [1.0, 2.0]
    assert ad.array(nanoarrow.Array([1, 2], nanoarrow.int64()), "int64").to_pylist() == [1, 2]
    assert ad.array(pl.Series(["a", None]), "utf8_view").to_pylist() == ["a", None]


# --- keyword arguments -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["__arrow_c_device_array__", "__arrow_c_device_stream__"])
def test_unknown_keyword_arguments(method):
    export = getattr(ad.array(np.arange(3)), method)
    assert export(requested_schema=None, later=None, latest=None)
    with pytest.raises(NotImplementedError, match="later"):
        export(later=1)
    with pytest.raises(NotImplementedError, match="later"):
        export(pa.int64().__arrow_c_schema__(), later=False)


@pytest.mark.parametrize("method", ["__arrow_c_array__", "__arrow_c_stream__"])
def test_host_methods_refuse_keyword_arguments(method):
    export = getattr(ad.array(np.arange(3)), method)
    with pytest.raises(TypeError):
        export(later=None)
