"""`requested_schema`, as producer and as consumer: types are relabelled, values never change.

Source: Arrow PyCapsule interface, "Protocol typehints" and "Export Protocol".
"""

import pytest
from loops import looped
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
@looped(("own", "wanted"), ALIKE)
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
def test_incompatible_column_is_refused(method):
    batch = ad.record_batch({"a": np.arange(3), "b": np.arange(3)})
    columns = pa.schema([("a", pa.int64()), ("b", pa.string())])
    with pytest.raises(ad.ExchangeError, match='format "u" for the field b') as info:
        getattr(batch, method)(columns.__arrow_c_schema__())
    assert info.value.reason == "requested_schema"


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


class Once(Producer):
    """A stream whose data can be exported once."""

    def __arrow_c_stream__(self, requested_schema=None):
        self.calls.append(requested_schema)
        return self.take(self.data, requested_schema)


STRUCT = [{"a": 1, "x": "u"}, {"a": None, "x": None}, None]
OWN = pa.struct([("a", pa.int64()), ("x", pa.string())])
RENAMED = pa.struct([("b", pa.int64()), ("y", pa.string())])
WIDER = pa.struct([("b", pa.float64()), ("y", pa.large_string())])
OTHERS = {
    "swapped": pa.struct([("x", pa.int64()), ("a", pa.string())]),
    "moved": pa.struct([("x", pa.string()), ("a", pa.int64())]),
    "selected": pa.struct([("a", pa.int64())]),
    "one more": pa.struct([("a", pa.int64()), ("x", pa.string()), ("c", pa.int64())]),
    "moved and new": pa.struct([("x", pa.string()), ("c", pa.int64())]),
}
NESTED = {
    "struct": (lambda rows: rows, lambda dtype: dtype),
    "list": (lambda rows: [rows, None, []], pa.list_),
    "fixed list": (lambda rows: [rows, None], lambda dtype: pa.list_(dtype, 3)),
    "struct in struct": (
        lambda rows: [{"s": row} for row in rows],
        lambda dtype: pa.struct([("s", dtype)]),
    ),
    "map": (
        lambda rows: [[(1, row)] for row in rows],
        lambda dtype: pa.map_(pa.int8(), dtype),
    ),
}


def renamed(value):
    """The same value with the field names of `RENAMED`."""
    if isinstance(value, dict):
        return {{"a": "b", "x": "y"}.get(key, key): renamed(of) for key, of in value.items()}
    return [renamed(of) for of in value] if isinstance(value, (list, tuple)) else value


def as_lists(value):
    """Pairs of a map are tuples in pyarrow."""
    if isinstance(value, dict):
        return {key: as_lists(of) for key, of in value.items()}
    return [as_lists(of) for of in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("where", NESTED)
def test_names_are_put_on_by_position(where, copy):
    """A producer that is asked for other names makes nulls of fields that it does not have."""
    make, nest = NESTED[where]
    data = pa.array(make(STRUCT), nest(OWN))
    found = ad.array(data, nest(RENAMED), copy=copy)
    assert found.schema == ad.schema(nest(RENAMED))
    assert as_lists(found.to_pylist()) == renamed(as_lists(data.to_pylist()))


@pytest.mark.parametrize("where", NESTED)
def test_conversion_of_renamed_fields(where):
    """The producer converts the types under its own names."""
    make, nest = NESTED[where]
    data = pa.array(make(STRUCT), nest(OWN))
    for source in (data, pa.chunked_array([data, data])):
        found = ad.array(source, nest(WIDER))
        assert found.schema == ad.schema(nest(WIDER))
        assert as_lists(found.to_pylist()) == renamed(as_lists(source.to_pylist()))


@looped("copy", [None, False])
@pytest.mark.parametrize("where", NESTED)
@looped("other", OTHERS)
def test_fields_that_differ_in_more_than_names(where, other, copy):
    make, nest = NESTED[where]
    data = pa.array(make(STRUCT), nest(OWN))
    for source in (data, pa.chunked_array([data])):
        with pytest.raises(ad.ExchangeError) as info:
            ad.array(source, nest(OTHERS[other]), copy=copy)
        assert info.value.reason == "dtype" and info.value.hint
        with pytest.raises(ad.ExchangeError):
            list(ad.array_stream(source, schema=nest(OTHERS[other])))


@pytest.mark.parametrize("where", NESTED)
@pytest.mark.parametrize("wanted", [RENAMED, WIDER], ids=["renamed", "converted"])
def test_names_of_a_stream(where, wanted):
    make, nest = NESTED[where]
    data = pa.array(make(STRUCT), nest(OWN))
    for source in (data, pa.chunked_array([data, data]), [data, data]):
        stream = ad.array_stream(source, schema=nest(wanted))
        assert stream.schema == ad.schema(nest(wanted))
        for batch in stream:
            assert as_lists(batch.to_pylist()) == renamed(as_lists(data.to_pylist()))


def test_names_of_batches():
    table = pa.table({"a": [1, None], "x": ["u", None]})
    wanted = pa.schema([("b", pa.int64()), ("y", pa.string())])
    for source in (table, table.to_batches()[0], table.to_reader(), pl.DataFrame(table)):
        layout = wanted if not isinstance(source, pl.DataFrame) else None
        if layout is None:
            layout = pa.schema([("b", pa.int64()), ("y", pa.string_view())])
        assert ad.array(source, layout).to_pylist() == renamed(table.to_pylist())
    with ad.array_stream(ad.array_stream(table), schema=wanted) as stream:
        assert next(stream).to_pylist() == renamed(table.to_pylist())


def test_names_of_unions():
    ids = pa.array([0, 1], pa.int8())
    union = pa.UnionArray.from_sparse(ids, [pa.array([1, 2]), pa.array([3, 4])], ["a", "x"])
    other = pa.sparse_union([pa.field("b", pa.int64()), pa.field("y", pa.int64())])
    assert ad.array(union, other).to_pylist() == [1, 4]
    swapped = pa.sparse_union([pa.field("x", pa.int64()), pa.field("a", pa.int64())])
    with pytest.raises(ad.ExchangeError, match="another position"):
        ad.array(union, swapped)


@pytest.mark.parametrize("names", [["x", "a"], ["x", "b"]], ids=["swapped", "one is new"])
def test_field_at_another_position(names):
    wanted = pa.struct([(name, pa.int64()) for name in names])
    with pytest.raises(ad.ExchangeError, match=r"not struct<x: int64, .*another position") as info:
        ad.array(pa.array([{"a": 1, "x": 2}]), wanted)
    assert "in another order" not in str(info.value)
    found = ad.array(pa.array([{"a": 1, "x": 2}]))  # follow the hint
    batch = ad.record_batch({names[0]: found.field("x"), names[1]: found.field("a")})
    assert batch.to_pylist() == [dict(zip(names, [2, 1], strict=True))]


def test_stream_that_can_be_read_once():
    """The second request fails; the first answer is still there for the message."""

    def once(data, requested_schema):
        if once.is_over:
            raise RuntimeError("read already")
        once.is_over = True
        return data.__arrow_c_stream__()

    once.is_over = False
    chunks = pa.chunked_array([pa.array(STRUCT, OWN)])
    with pytest.raises(ad.ExchangeError, match="int64") as info:
        ad.array(Once(chunks, once), WIDER)
    assert info.value.reason == "dtype"
    once.is_over = False
    source = Once(chunks, once)
    assert ad.array(source, RENAMED).to_pylist() == renamed(STRUCT)
    assert source.calls == [None]


@pytest.mark.parametrize("wanted", [RENAMED, WIDER], ids=["renamed", "converted"])
def test_invalid_answers_for_a_type_with_fields(wanted):
    """The schema is looked at before the import, which still says what is wrong."""
    used_up = pa.array(STRUCT, OWN)
    used = used_up.__arrow_c_array__()
    stream = pa.chunked_array([pa.array(STRUCT, OWN)]).__arrow_c_stream__()
    ad.array(used)
    list(ad.array_stream(stream))
    for bad, reason in (
        (used, "consumed"),
        ((used[1], used[0]), "protocol"),
        ((1, 2), "protocol"),
        (None, "protocol"),
    ):
        with pytest.raises(ad.ExchangeError) as info:
            ad.array(Array(used_up, lambda export, answer=bad, **_: answer), wanted)
        assert info.value.reason == reason
    for read in (ad.array, lambda source, dtype: ad.array_stream(source, schema=dtype)):
        for bad, reason in ((stream, "consumed"), (used[1], "protocol"), (7, "protocol")):
            with pytest.raises(ad.ExchangeError) as info:
                read(Once(bad, lambda data, _: data), wanted)
            assert info.value.reason == reason


NOT_NULL = {
    "list": (pa.list_, [[1, None]]),
    "large list": (pa.large_list, [[1, None]]),
    "fixed list": (lambda field: pa.list_(field, 2), [[1, None]]),
    "struct": (lambda field: pa.struct([field]), [{"item": 1}, {"item": None}]),
    "list of lists": (lambda field: pa.list_(pa.list_(field)), [[[None]]]),
}


@pytest.mark.parametrize("wanted", ["int32", "int64"])
@pytest.mark.parametrize("where", NOT_NULL)
def test_nulls_where_the_answer_has_none(where, wanted):
    """pyarrow names the type "not null" and leaves the null in it."""
    nest, rows = NOT_NULL[where]
    dtype = nest(pa.field("item", getattr(pa, wanted)(), nullable=False))
    data = pa.array(rows, nest(pa.field("item", pa.int64())))
    for source in (data, pa.chunked_array([data])):
        # It refuses itself to convert a struct with such a field.
        with pytest.raises(ad.ExchangeError, match=r"not nullable|not struct<") as info:
            ad.array(source, dtype)
        assert info.value.reason == ("nulls" if "nullable" in str(info.value) else "dtype")
        with pytest.raises(ad.ExchangeError):
            list(ad.array_stream(source, schema=dtype))


def test_unknown_null_counts_are_counted():
    dtype = pa.list_(pa.field("item", pa.int64(), nullable=False))
    values = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x03"), pa.py_buffer(bytes(16))], null_count=-1
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), values)
    assert ad.array(lists, dtype).to_pylist() == [[0, 0]]
    values = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(bytes(16))], null_count=-1
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), values)
    with pytest.raises(ad.ExchangeError, match="not nullable"):
        ad.array(lists, dtype)


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
