"""ad.Array: members, columns, values."""

import datetime
import sys
import weakref

import pytest
from arrow_ctypes import children_of, inside
from arrow_samples import ROWS, SAMPLES, skip_what_pyarrow_misreads
from lifetimes import is_gone
from loops import looped

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

# An unmapped address: an access ends the process.
NOWHERE = 0x7FFF00001000


def nowhere(shape=(4,), dtype="int64", device="cuda:1", **options):
    return ad.Tensor.from_pointer(NOWHERE, shape, dtype, device, **options)


def on_device(type="int64", length=4, validity=False, **options):
    bitmap = nowhere((1,), "uint8") if validity else None
    return ad.Array.from_buffers(type, length, [bitmap, nowhere()], **options)


def address(array, buffer=1):
    return array.buffers[buffer].data_ptr


every_type = pytest.mark.parametrize("name", SAMPLES)


@pytest.fixture
def nulls():
    return ad.array(pa.array([1, None, 3, None, 5], pa.int64()))


# --- members ------------------------------------------------------------------


def test_members():
    data = np.arange(10, dtype="<i4")
    array = ad.array(data)
    assert len(array) == 10 and array
    assert array.offset == 0
    assert array.null_count == array.count_nulls() == 0
    assert array.nbytes == 40
    assert array.schema == ad.schema("int32")
    assert array.device == ad.device("cpu")
    assert array.device_type is ad.DeviceType.CPU
    assert array.device_id == -1
    assert array.sync_event is None
    assert array.is_ready() is True
    assert array.synchronize() is None
    assert array.wait(7) is None
    assert array.children == ()
    assert array.dictionary is None
    assert array.validity is None
    validity, values = array.buffers
    assert validity is None
    assert isinstance(values, ad.Buffer)
    assert (values.data_ptr, values.nbytes) == (data.ctypes.data, 40)
    assert bytes(values) == data.tobytes()


def test_an_empty_array_is_false():
    array = ad.array(np.empty(0))
    assert not array and len(array) == 0 and array.nbytes == 0
    assert array.to_pylist() == list(array) == []


@looped("name", SAMPLES)
def test_counts(name):
    source = SAMPLES[name].slice(3, 11)
    array = ad.array(source)
    assert len(array) == len(source) == 11
    assert array.null_count == array.count_nulls() == source.null_count
    assert array.offset == source.offset


@looped("name", SAMPLES)
def test_buffers_share_producer_memory(name):
    source = SAMPLES[name]
    found = [
        buffer and buffer.data_ptr
        for node in nested_arrays(ad.array(source))
        for buffer in node.buffers
        if not (is_view(node) and buffer is node.buffers[-1])  # buffers created for the exchange
    ]
    expected = [buffer and buffer.address for buffer in source.buffers()]
    if source.type.num_fields and pa.types.is_union(source.type):
        expected = [item for i, item in enumerate(expected) if i != 0]  # no validity bitmap
    assert set(filter(None, found)) >= set(filter(None, expected)) - {0}


def is_view(array):
    return array.schema.format in ("vu", "vz")


def nested_arrays(array):
    yield array
    for child in (*array.children, *filter(None, [array.dictionary])):
        yield from nested_arrays(child)


@pytest.mark.parametrize(
    ("values", "type", "nbytes"),
    [
        ([1, 2, 3], pa.int16(), 6),
        ([1, None, 3], pa.int16(), 7),
        ([True] * 9, pa.bool_(), 2),
        (["ab", "c", None], pa.string(), 1 + 16 + 3),
        (["ab", "c"], pa.large_string(), 24 + 3),
        ([[1], [2, 3]], pa.list_(pa.int8()), 12 + 3),
        ([{"a": 1}, {"a": 2}], pa.struct([("a", pa.int64())]), 16),
        ([None, None], pa.null(), 0),
    ],
)
def test_nbytes(values, type, nbytes):
    assert ad.array(pa.array(values, type)).nbytes == nbytes


def test_nbytes_of_a_slice_count_from_row_0():
    array = ad.array(np.arange(10, dtype="i4"))
    assert array[4:6].nbytes == 6 * 4


def test_null_count_of_slices(nulls):
    assert nulls.null_count == 2
    assert [nulls[i:].null_count for i in range(6)] == [2, 2, 1, 1, 0, 0]
    assert nulls.validity.to_pylist() == [True, False, True, False, True]
    assert nulls[1:3].validity.to_pylist() == [False, True]


def test_null_count_not_read_from_device():
    array = on_device(validity=True)
    assert array.null_count is None
    assert array[1:3].null_count is None
    with pytest.raises(ad.ExchangeError, match="cuda") as info:
        array.count_nulls()
    assert info.value.reason == "runtime"
    assert on_device(validity=True, null_count=3).null_count == 3
    assert on_device().null_count == 0


def test_validity_shares_the_bitmap(nulls):
    validity = nulls[1:].validity
    assert validity.schema.format == "b"
    assert address(validity) == address(nulls, 0)
    assert validity.offset == 1


def test_immutable(nulls):
    for name in ("schema", "offset", "null_count", "buffers", "validity", "device"):
        with pytest.raises(AttributeError):
            setattr(nulls, name, None)
        with pytest.raises(AttributeError):
            delattr(nulls, name)
    with pytest.raises(AttributeError):
        nulls.anything = 1
    with pytest.raises(TypeError):
        nulls[0] = 1
    for cls in (ad.Array, ad.Tensor, ad.Buffer, ad.Schema, ad.Device):
        with pytest.raises(TypeError, match="immutable"):
            cls.anything = 1


@pytest.mark.parametrize("cls", [ad.Array, ad.Tensor, ad.Buffer, ad.Schema, ad.Device])
def test_no_subclassing_or_instantiation(cls):
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (cls,), {})
    with pytest.raises(TypeError, match="cannot create"):
        cls()


def test_equality_is_identity(nulls):
    other = ad.array(nulls, copy=True)
    assert nulls == nulls and (nulls != nulls) is False
    assert nulls != other
    assert len({nulls, nulls, other}) == 2
    assert ad.array(nulls) is nulls


def test_weakref():
    data = np.arange(4)
    array = ad.array(data)
    reference = weakref.ref(array)
    part = array[1:]
    del array
    assert is_gone(reference)
    assert part.to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    "keep",
    [
        lambda array: array[1:],
        lambda array: array.buffers[1],
        lambda array: array.view("uint64"),
        lambda array: ad.tensor(array),
        lambda array: ad.record_batch({"x": array})["x"],
        lambda array: ad.record_batch({"x": array}).children[0],
        lambda array: ad.as_host(array),
        lambda array: array.__arrow_c_device_array__(),
        lambda array: memoryview(array),
        lambda array: pa.array(array),
        lambda array: array.into(np.ndarray),
    ],
)
def test_every_view_keeps_the_memory(keep):
    class Owned(np.ndarray):
        pass

    owner = np.arange(4).view(Owned)
    alive = weakref.ref(owner)
    part = keep(ad.array(owner))
    del owner
    assert alive() is not None
    del part
    assert is_gone(alive)


# --- repr ---------------------------------------------------------------------


def test_repr():
    assert repr(ad.array(np.arange(3))) == "<arrowdev.Array int64, length 3, on cpu: [0, 1, 2]>"
    array = ad.array(pa.array([["a"]]))
    assert repr(array) == "<arrowdev.Array list<item: string>, length 1, on cpu: [['a']]>"
    assert repr(array.buffers[1]) == "<arrowdev.Buffer 8 bytes on cpu>"


def test_repr_does_not_read_device_memory():
    array = on_device("timestamp[us, UTC]", validity=True)
    expected = "<arrowdev.Array timestamp[us, tz=UTC], length 4, on cuda:1>"
    assert repr(array) == str(array) == expected
    text = ad.Array.from_buffers("utf8", 3, [None, nowhere((4,), "int32"), nowhere((8,), "uint8")])
    assert repr(text) == "<arrowdev.Array string, length 3, on cuda:1>"
    assert text.nbytes is None
    assert repr(text.buffers) == (
        "(None, <arrowdev.Buffer 16 bytes on cuda:1>, <arrowdev.Buffer of unknown size on cuda:1>)"
    )
    assert text.buffers[2].nbytes is None
    assert text.buffers[2].data_ptr == NOWHERE


def test_repr_of_pending_work():
    assert repr(ad.array(nowhere(stream=9))).endswith("on cuda:1, after stream>")


# --- slices and subscripts -----------------------------------------------------


@every_type
@looped("part", [(0, ROWS), (3, 11), (7, 14), (9, 0), (20, 1)])
def test_values(name, part):
    skip_what_pyarrow_misreads(name)
    source = SAMPLES[name]
    expected = source.slice(*part)
    assert ad.array(expected).to_pylist() == expected.to_pylist()
    ours = ad.array(source).slice(*part)
    assert ours.to_pylist() == expected.to_pylist()
    assert pa.array(ours).equals(expected)


@every_type
def test_slices_of_slices_and_single_rows(name):
    source = SAMPLES[name]
    expected = source.to_pylist()
    array = ad.array(source.slice(1))[2:][:15][1:-1]
    assert array.to_pylist() == expected[4:17]
    assert [array[i] for i in range(len(array))] == expected[4:17]
    assert [array[-1], array[-len(array)]] == [expected[16], expected[4]]
    assert list(array) == expected[4:17]


slices = [slice(None), slice(2, 5), slice(-3, None), slice(5, 2), slice(50, 99), slice(None, -4)]


@pytest.mark.parametrize("key", slices, ids=str)
def test_slice_like_a_list(key):
    rows = list(range(10))
    data = np.arange(10)
    part = ad.array(data)[key]
    assert part.to_pylist() == rows[key]
    assert address(part) == data.ctypes.data  # offset of row 0
    assert part.offset == min(key.indices(10)[0], 10)


@pytest.mark.parametrize("step", [2, -1, -3])
def test_slices_have_no_step(step):
    with pytest.raises(ValueError, match=f"step of 1 only, not {step}"):
        ad.array(np.arange(5))[::step]
    with pytest.raises(ValueError, match="zero"):
        ad.array(np.arange(5))[::0]


@pytest.mark.parametrize("index", [5, -6, 1 << 70, -(1 << 70), 1 << 40])
def test_index_past_the_end(index):
    with pytest.raises(IndexError) as info:
        ad.array(np.arange(5))[index]
    if abs(index) < 1 << 60:
        assert str(index) in str(info.value)


@pytest.mark.parametrize("index", [np.int64(-1), np.uint8(4), True + 3])
def test_index_objects(index):
    assert ad.array(np.arange(5))[index] == 4


@pytest.mark.parametrize("key", [1.0, None, ..., (0, 1), [0], b"a"], ids=repr)
def test_invalid_subscripts(key):
    with pytest.raises(TypeError, match="indexed by int, slice, field name or list of names"):
        ad.array(np.arange(5))[key]


def test_slice_method():
    array = ad.array(np.arange(10))
    assert array.slice(4).to_pylist() == [4, 5, 6, 7, 8, 9]
    assert array.slice(offset=4, length=2).to_pylist() == [4, 5]
    assert array.slice(4, None).to_pylist() == [4, 5, 6, 7, 8, 9]
    assert array.slice(10).to_pylist() == array.slice(3, 0).to_pylist() == []
    assert array.slice(2, 6).slice(3, 3).to_pylist() == [5, 6, 7]


@pytest.mark.parametrize("args", [(11,), (-1,), (0, 11), (8, 3), (0, -1), (3, (1 << 63) - 1)])
def test_slice_method_past_the_end(args):
    with pytest.raises(IndexError, match="10 rows"):
        ad.array(np.arange(10)).slice(*args)
    with pytest.raises(IndexError, match="3 rows"):
        ad.array(np.arange(10))[2:5].slice(*args)


@pytest.mark.parametrize("args", [(), ("1",), (1.0,), (1, "2"), (None,), (1, 2, 3)])
def test_slice_method_arguments(args):
    with pytest.raises(TypeError):
        ad.array(np.arange(10)).slice(*args)


# --- columns ------------------------------------------------------------------


@pytest.fixture
def batch():
    return ad.record_batch(
        {"a": np.arange(6), "b": np.arange(6) / 2, "ü": pa.array(list("uvwxyz"))}
    )


def test_fields(batch):
    assert batch["a"].to_pylist() == batch.field("a").to_pylist() == [0, 1, 2, 3, 4, 5]
    assert batch.field(0).schema.name == "a" and batch["a"].schema.name == "a"
    assert batch.field(-1).to_pylist() == batch["ü"].to_pylist() == list("uvwxyz")
    assert batch[2:4].field(1).to_pylist() == [1.0, 1.5]
    assert batch[2:4].children[1].to_pylist() == [0, 0.5, 1, 1.5, 2, 2.5]
    assert address(batch[3:]["b"]) == address(batch["b"])
    assert batch[1:][3] == {"a": 4, "b": 2.0, "ü": "y"}


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        ("z", KeyError, '"z"'),
        ("a\0", KeyError, "a"),
        ("\ud800", UnicodeEncodeError, "surrogates"),
        (3, IndexError, "child 3 of an array with 3"),
        (-4, IndexError, "3 children"),
        (1 << 70, OverflowError, "int"),
        (1.0, TypeError, "float"),
        (None, TypeError, "NoneType"),
    ],
)
def test_no_such_field(batch, key, error, text):
    with pytest.raises(error, match=text):
        batch.field(key)
    if isinstance(key, str):
        with pytest.raises(error, match=text):
            batch[key]


def test_field_of_a_column(nulls):
    with pytest.raises(TypeError, match="only a struct has fields"):
        nulls["a"]
    with pytest.raises(TypeError, match="only a struct has fields"):
        nulls.field(0)
    with pytest.raises(TypeError, match="children\\[i\\]"):
        ad.array(pa.array([[1]]))["item"]


def test_two_fields_of_one_name():
    batch = ad.record_batch([np.arange(2), np.arange(3, 5)], names=["a", "a"])
    assert batch.field(1).to_pylist() == [3, 4]
    with pytest.raises(ValueError, match="a"):
        batch["a"]


def test_field_of_a_struct_with_nulls():
    struct = ad.array(pa.array([{"a": 1}, None]))
    with pytest.raises(ad.ExchangeError, match="nulls") as info:
        struct["a"]
    assert info.value.reason == "nulls"
    assert struct.children[0].to_pylist()[0] == 1
    assert struct[:1]["a"].to_pylist() == [1]


def test_children_match_producer():
    array = ad.array(pa.array([[1], [2, 3], [4]]))[1:2]
    assert array.to_pylist() == [[2, 3]]
    (child,) = array.children
    assert child.to_pylist() == [1, 2, 3, 4]
    assert child.schema.name == "item"


def test_dictionary():
    array = ad.array(pa.array(["x", "y", "x"]).dictionary_encode())
    assert array.dictionary.to_pylist() == ["x", "y"]
    assert array.schema.format == "i" and array.schema.dictionary.format == "u"
    assert array[1:].dictionary.to_pylist() == ["x", "y"]


# --- view ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "view"),
    [
        (pa.timestamp("us", "UTC"), "int64"),
        (pa.int64(), "timestamp[ns]"),
        (pa.float64(), "uint64"),
        (pa.date32(), "int32"),
        (pa.time64("ns"), "l"),
        (pa.float16(), "int16"),
        (pa.duration("s"), pa.int64()),
        (pa.decimal128(10, 2), "fixed_size_binary[16]"),
        (pa.bool8(), "int8"),
    ],
)
def test_view(type, view):
    width = type.bit_width // 8
    source = pa.Array.from_buffers(
        type.storage_type if isinstance(type, pa.BaseExtensionType) else type,
        4,
        [pa.py_buffer(b"\x0d"), pa.py_buffer(bytes(range(4 * width)))],
    )
    if isinstance(type, pa.BaseExtensionType):
        source = pa.ExtensionArray.from_storage(type, source)
    array = ad.array(source)[1:]
    found = array.view(view)
    assert found.schema.format == ad.schema(view).format
    assert found.schema.metadata is None
    assert address(found) == address(array)
    assert (len(found), found.offset, found.null_count) == (3, 1, 1)
    assert bytes(found.buffers[1]) == bytes(range(4 * width))
    assert pa.array(found.view(type)).equals(source.slice(1))


@pytest.mark.parametrize("type", ["int32", "utf8", "bool", pa.list_(pa.int64()), pa.null()])
def test_view_needs_the_same_width(nulls, type):
    with pytest.raises(ad.ExchangeError, match="same width") as info:
        nulls.view(type)
    assert (info.value.reason, info.value.dtype) == ("dtype", "int64")


def test_view_of_types_without_one_width(batch):
    for array in (batch, batch["ü"], ad.array(pa.array([True]))):
        with pytest.raises(ad.ExchangeError, match="cannot be viewed"):
            array.view("int64")
    with pytest.raises(ad.ExchangeError, match="dictionary"):
        batch["a"].view(pa.dictionary(pa.int64(), pa.string()))


def test_view_keeps_nulls_or_refuses(nulls):
    never_null = pa.field("x", pa.float64(), nullable=False)
    with pytest.raises(ad.ExchangeError, match="not nullable") as info:
        nulls.view(never_null)
    assert info.value.reason == "nulls"
    assert nulls[:1].view(never_null).schema.name == "x"
    with pytest.raises(ad.ExchangeError):
        on_device(validity=True).view(never_null)


def test_view_on_a_device():
    assert repr(on_device(validity=True).view("timestamp[s]")).startswith(
        "<arrowdev.Array timestamp[s], length 4, on cuda:1"
    )


@pytest.mark.parametrize(
    ("type", "error"), [("int65", ValueError), (5, TypeError), ("", ValueError)]
)
def test_view_as_invalid_type(nulls, type, error):
    with pytest.raises(error):
        nulls.view(type)


# --- to, validate ----------------------------------------------------------------


def test_to():
    array = ad.array(np.arange(3))
    for device in ("cpu", ad.device("cpu"), (1, 0), (ad.DeviceType.CPU, -1)):
        assert array.to(device) is array
    assert on_device().to("cuda:1", stream=5).device_id == 1
    for source, target in ((array, "cuda:0"), (on_device(), "cpu"), (on_device(), "cuda:0")):
        with pytest.raises(ad.ExchangeError, match=str(target)) as info:
            source.to(target)
        assert (info.value.reason, info.value.device) == ("runtime", source.device)
    with pytest.raises(ValueError, match="unknown device"):
        array.to("gpu")


@looped("name", SAMPLES)
def test_validate(name):
    assert ad.array(SAMPLES[name], copy=True).validate() == ()
    assert ad.array(SAMPLES[name], copy=True)[3:].validate(level="structure") == ()


def test_validate_on_a_device():
    assert on_device("decimal128(5, 1)", 2, validity=True).validate() == ()


@pytest.mark.parametrize(
    ("level", "error"), [("deep", ValueError), ("", ValueError), (None, TypeError), (1, TypeError)]
)
def test_validate_levels(nulls, level, error):
    with pytest.raises(error, match="level"):
        nulls.validate(level)


# --- values -------------------------------------------------------------------


@pytest.mark.parametrize(
    "type", ["timestamp[ns]", "timestamp[ns, UTC]", "duration[ns]", "time64[ns]"]
)
def test_times_out_of_python_range(type, monkeypatch):
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    array = ad.array(np.array([1000, 1001])).view(type)
    assert array[0] is not None
    with pytest.raises(ValueError, match="view\\('int64'\\)"):
        array.to_pylist()


def test_time_zones():
    array = ad.array(np.array([0])).view("timestamp[s, +05:30]")
    (value,) = array.to_pylist()
    assert value.utcoffset() == datetime.timedelta(hours=5, minutes=30)
    assert value == datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    "read",
    [
        lambda array: array.to_pylist(),
        lambda array: array[0],
        lambda array: list(array),
        lambda array: np.asarray(array),
        lambda array: ad.as_host(array),
        lambda array: memoryview(array),
    ],
)
def test_values_of_device_memory(read):
    with pytest.raises(ad.ExchangeError, match="host") as info:
        read(ad.array(nowhere()))
    error = info.value
    assert (error.reason, error.device) == ("device", ad.device("cuda:1"))
    assert "host" in error.hint


# --- from_buffers ------------------------------------------------------------------


def parts_of(array):
    return {
        "buffers": array.buffers,
        "null_count": -1 if array.null_count is None else array.null_count,
        "offset": array.offset,
        "children": array.children,
        "dictionary": array.dictionary,
    }


@every_type
def test_from_buffers_of_every_type(name):
    skip_what_pyarrow_misreads(name)
    array = ad.array(SAMPLES[name].slice(3, 11))
    parts = parts_of(array)
    again = ad.Array.from_buffers(array, len(array), parts.pop("buffers"), **parts)
    assert again.to_pylist() == SAMPLES[name].slice(3, 11).to_pylist()
    for mine, theirs in zip(nested_arrays(again), nested_arrays(array), strict=True):
        for a, b in zip(mine.buffers, theirs.buffers, strict=True):
            assert (a and a.data_ptr) == (b and b.data_ptr)


def test_from_buffers_takes_any_buffer():
    offsets = np.array([0, 1, 3], "i4")
    array = ad.Array.from_buffers("utf8", 2, (None, offsets, b"abc"))
    assert array.to_pylist() == ["a", "bc"]
    assert address(array) == offsets.ctypes.data
    values = pa.array([5, 6, 7], pa.int32())
    array = ad.Array.from_buffers(pa.list_(pa.int32()), 2, [None, offsets], children=[values])
    assert array.to_pylist() == [[5], [6, 7]]
    assert array.null_count == 0
    array = ad.Array.from_buffers("int8", 3, [b"\x05", bytearray(b"abc")])
    assert array.to_pylist() == [97, None, 99]
    assert array.null_count == 1


def test_null_count_without_bitmap_is_0_for_readers():
    """nanoarrow and polars need a bitmap where the null count is -1, in children as well."""
    column = ad.Array.from_buffers("int64", 2, [None, np.arange(2)])
    batch = ad.record_batch({"a": column})
    assert pa.array(batch).field(0).null_count == 0
    struct = inside(batch.__arrow_c_array__()[1], "arrow_array")
    assert [child.null_count for child in children_of(struct)] == [0]


def test_from_buffers_keeps_all_buffers():
    class Owned(np.ndarray):
        pass

    owners = [np.zeros(64, "u1").view(Owned) for _ in range(4)]
    alive = [weakref.ref(owner) for owner in owners]
    child = ad.Array.from_buffers("int8", 4, owners[2:])
    array = ad.Array.from_buffers(pa.list_(pa.int8()), 4, owners[:2], children=[child])
    del owners, child
    assert all(reference() is not None for reference in alive)
    inner = array.children[0]
    del array
    assert [reference() is None for reference in alive][2:] == [False, False]
    del inner
    assert all(is_gone(reference) for reference in alive)


i4 = np.zeros(10, "i4")
to_5 = np.array([0, 5, 5], "i4")
five = np.array([5])


@pytest.mark.parametrize(
    ("args", "options", "error", "text"),
    [
        (("int32", 11, [None, i4]), {}, ValueError, "buffer 1 has 40 bytes.*length 11 need 44"),
        (("int32", 10, [None, i4]), {"offset": 1}, ValueError, "offset 1"),
        (("int32", 9, [b"1", i4]), {}, ValueError, "buffer 0 has 1 byte,"),
        (("int32", 9, [b"", i4]), {}, ValueError, "buffer 0 has 0 bytes.* need 2"),
        (("utf8", 2, [b"", i4, b""]), {}, ValueError, "buffer 0 has 0 bytes.* need 1"),
        (("utf8", 2, [None, to_5, b""]), {}, ValueError, "buffer 2 has 0 bytes.* need 5"),
        (("utf8", 2, [None, to_5, None]), {}, ValueError, "buffer 2 has 0 bytes.* need 5"),
        (("large_utf8", 1, [None, to_5.astype("i8"), b"abcd"]), {}, ValueError, "need 5"),
        (("utf8_view", 1, [None, i4, b"", five]), {}, ValueError, "buffer 2 has 0.* need 5"),
        (("utf8_view", 1, [None, i4, None, five]), {}, ValueError, "buffer 2 has 0.* need 5"),
        (("utf8_view", 1, [None, i4, b"", b""]), {}, ad.InvalidArrowError, "sizes"),
        (("int32", 9, [i4]), {}, ad.InvalidArrowError, "n_buffers is 1"),
        (("int8", 2, []), {}, ad.InvalidArrowError, "n_buffers is 0.*has 2"),
        (("utf8", 2, []), {}, ad.InvalidArrowError, "n_buffers is 0.*has 3"),
        (
            (pa.list_(pa.int32()), 2, []),
            {"children": [i4]},
            ad.InvalidArrowError,
            "n_buffers is 0",
        ),
        (("int32", 9, [None, None]), {}, ad.InvalidArrowError, "data"),
        (("int32", 9, [None, i4]), {"null_count": 2}, ad.InvalidArrowError, "validity"),
        (("int32", -1, [None, i4]), {}, ad.InvalidArrowError, "length is -1"),
        (("int32", 1, [None, i4]), {"offset": -1}, ad.InvalidArrowError, "offset is -1"),
        (("int32", "1", [None, i4]), {}, TypeError, "integer"),
        (("int32", 1 << 80, [None, i4]), {}, OverflowError, "int"),
        (("int32", 2, [None, i4[::2]]), {}, ad.ExchangeError, "contiguous"),
        (("int32", 2, [None, [1, 2]]), {}, TypeError, "list speaks none"),
        (("int32", 2, 5), {}, TypeError, "buffers must be a sequence"),
        (("int32", 2, [None, i4]), {"children": [i4]}, ad.InvalidArrowError, "n_children is 1"),
        (("int32", 2, [None, i4]), {"children": 5}, TypeError, "children must be a sequence"),
        (("int32", 2, [None, i4]), {"dictionary": i4}, ad.InvalidArrowError, "dictionary"),
        (("+s", 2, [None]), {}, ValueError, "__arrow_c_schema__"),
        (("utf8", 1, [None, i4[:2], None]), {"children": None}, TypeError, "children"),
        (("int32", 4, [None, nowhere()]), {"children": [i4]}, ad.ExchangeError, "cuda:1"),
        (("int64", 4, [i4, nowhere()]), {}, ad.ExchangeError, "cpu and cuda:1"),
        ((), {}, TypeError, "argument 1"),
        (("int32", 2, [None, i4], 0), {}, TypeError, "positional"),
        (("int32", 2, [None, i4]), {"mask": 0}, TypeError, "mask"),
    ],
)
def test_from_buffers_refuses(args, options, error, text):
    with pytest.raises(error, match=text):
        ad.Array.from_buffers(*args, **options)


def test_from_buffers_without_bytes():
    """Empty buffers and None stand for what needs no bytes."""
    for empty in (b"", None):
        assert ad.Array.from_buffers("utf8", 2, [None, i4, empty]).to_pylist() == ["", ""]
        assert ad.Array.from_buffers("utf8", 0, [empty, empty, empty]).to_pylist() == []
        assert ad.Array.from_buffers("int32", 0, [empty, empty]).to_pylist() == []


def test_from_buffers_of_handles():
    handle = ad.Tensor.from_pointer(0x77, (8,), "int32", "opencl:0")
    array = ad.Array.from_buffers("int32", 4, [None, handle], offset=4)
    assert (array.offset, address(array)) == (4, 0x77)
    moved = ad.Tensor.from_pointer(0x77, (4,), "int32", "opencl:0", byte_offset=16)
    with pytest.raises(ad.ExchangeError, match="byte offset from its handle"):
        ad.Array.from_buffers("int32", 4, [None, moved])


def test_from_buffers_with_pending_work():
    first, second = nowhere(stream=5), nowhere(stream=6)
    array = ad.Array.from_buffers("int64", 4, [first, first])
    assert repr(array).endswith("after stream>")
    with pytest.raises(ad.ExchangeError, match="one event for several parts") as info:
        ad.Array.from_buffers("int64", 4, [first, second])
    assert info.value.reason == "event"
