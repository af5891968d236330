"""validate(level="full"): every rule detects its fault and names the position; valid data pass;
pyarrow is the oracle."""

import ctypes
import random

import numpy as np
import pytest
from arrow_ctypes import ArrayNode, Host, OnDevice, SchemaNode, Tree, keep
from arrow_samples import ROWS, SAMPLES
from loops import looped

import arrowdev as ad
from arrowdev.testing import software_device

pa = pytest.importorskip("pyarrow")


def dense_union(ids, offsets):
    children = [pa.array([1, 2, 3]), pa.array(["a", "b"])]
    ids, offsets = pa.array(ids, pa.int8()), pa.array(offsets, pa.int32())
    return pa.UnionArray.from_dense(ids, offsets, children, ["n", "w"], [5, 9])


# The sample's offsets decrease on purpose: imports must keep them unchanged.
SOUND = SAMPLES | {
    "dense_union": dense_union([5, 9, 9, 5, 5] + [9] * 16, [0, 0, 1, 1, 2] + [1] * 16)
}


def of(type, buffers, length, **kwargs):
    """An Array from one NumPy array per buffer."""
    return ad.Array.from_buffers(type, length, buffers, **kwargs)


def ints(width, *values):
    return np.array(values, f"i{width}")


@pytest.fixture(params=["host", "device"])
def place(request):
    """Where an array is checked: in its own memory, or read from a device."""
    if request.param == "host":
        yield lambda array: array
        return
    with software_device():
        yield lambda array: array.to("ext_dev:0")


def rebuilt(array):
    """The same buffers on the device: a copy of the array would have others."""

    def each(function, parts):
        return [part if part is None else function(part) for part in parts]

    return ad.Array.from_buffers(
        array.schema,
        len(array),
        each(lambda buffer: ad.tensor(buffer).to("ext_dev:0"), array.buffers),
        null_count=-1 if array.null_count is None else array.null_count,
        offset=array.offset,
        children=each(rebuilt, array.children),
        dictionary=each(rebuilt, [array.dictionary])[0],
    )


@pytest.fixture
def place_as_it_is(place, request):
    """The same for arrays that a copy would refuse or change."""
    return rebuilt if request.node.callspec.params["place"] == "device" else place


# --- valid arrays ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SOUND)
def test_valid_samples(name, place):
    array = place(ad.array(SOUND[name]))
    assert array.validate("full") == ()
    for first in range(0, ROWS + 1, 3):
        assert array[first:].validate("full") == ()
        assert array[first : first + 2].validate("full") == ()


@looped("rows", [0, 1, 2047, 2048, 2049, 5000])
@pytest.mark.parametrize("name", ["string", "list", "dictionary", "string_view", "decimal256"])
def test_valid_blocks(name, rows, place):
    whole = pa.concat_arrays([SOUND[name]] * (rows // ROWS + 2))
    assert place(ad.array(whole.slice(7, rows))).validate("full") == ()


def test_validate_function_accepts_producers():
    batch = pa.record_batch({"a": [1, None], "b": ["x", "y"]})
    assert ad.validate(batch, level="full") == ()
    assert ad.validate(np.arange(3), "full") == ()


@looped("level", ["structure", "full"])
def test_reserved_is_ignored(level):
    """pyarrow does not initialize it; `arrowdev check` tells its authors."""

    def garbage():
        tree = Tree(SchemaNode("i"), ArrayNode(0, [None, None]), device=(1, -1))
        tree.device.reserved[:] = [1, -1, 1 << 40]
        return OnDevice(tree)

    for make in (garbage, lambda: pa.array([1, None])):
        assert ad.validate(make(), level) == ad.array(make()).validate(level) == ()


# --- faults ---------------------------------------------------------------------------


def string_views(*views, data=b"a value that is in a buffer"):
    """A string_view array of (size, prefix, number, offset), or of 16 bytes."""
    rows = b"".join(
        view
        if isinstance(view, bytes)
        else int(view[0]).to_bytes(4, "little", signed=True)
        + view[1]
        + np.array(view[2:], "<i4").tobytes()
        for view in views
    )
    buffers = [None, np.frombuffer(rows, "u1"), np.frombuffer(data, "u1"), ints(8, len(data))]
    return of("utf8_view", buffers, len(views))


def inline(value, padding=b"\0" * 12):
    return len(value).to_bytes(4, "little") + (value + padding)[:12]


def text(*rows, type="utf8", validity=None, **kwargs):
    data = b"".join(rows)
    offsets = np.cumsum([0, *map(len, rows)], dtype="i8" if "large" in type else "i4")
    return of(type, [validity, offsets, np.frombuffer(data, "u1")], len(rows), **kwargs)


def lists(offsets, type=None, child=(1, 2, 3)):
    type = type or pa.list_(pa.int64())
    child = child if isinstance(child, ad.Array) else pa.array(child)
    return of(type, [None, np.array(offsets, "i4")], len(offsets) - 1, children=[child])


def list_views(offsets, sizes, validity=None, type=None):
    type = type or pa.list_view(pa.int64())
    wide = "i8" if "large" in str(type) else "i4"
    buffers = [validity, np.array(offsets, wide), np.array(sizes, wide)]
    return of(type, buffers, len(offsets), children=[pa.array([1, 2, 3])])


def dictionary(indices, values=("a", "b"), validity=None):
    type = pa.dictionary(pa.from_numpy_dtype(indices.dtype), pa.string())
    values = pa.array(list(values), pa.string())
    return of(type, [validity, indices], len(indices), dictionary=values)


def run_ends(ends, length, type="int32", offset=0):
    """Not with pyarrow, which validates run ends itself."""
    ends, values = np.array(ends, type), np.arange(len(ends))
    format = {"int16": "s", "int32": "i", "int64": "l"}[type]
    children = [SchemaNode(format, name="run_ends"), SchemaNode("l", name="values")]
    arrays = [ArrayNode(len(ends), [None, each.ctypes.data]) for each in (ends, values)]
    tree = Tree(
        SchemaNode("+r", children=children),
        ArrayNode(length, [], offset=offset, children=arrays),
    )
    keep((ends, values))
    return ad.array(Host(tree))


def entries(keys, validity=None):
    type = pa.map_(pa.string(), pa.int64())
    fields = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(range(len(keys)))],
        fields=[pa.field("key", pa.string(), False), pa.field("value", pa.int64())],
        mask=None if validity is None else pa.array(validity),
    )
    return of(type, [None, ints(4, 0, len(keys))], 1, children=[fields])


def long(value=b"a value that is in a buffer", **changes):
    view = {"size": len(value), "prefix": value[:4], "number": 0, "offset": 0} | changes
    return tuple(view.values())


def decimal(type, value):
    width = type.bit_width // 8
    data = b"".join(v.to_bytes(width, "little", signed=True) for v in (1, value))
    return of(type, [None, np.frombuffer(data, "u1")], 2)


ALL_BUT_1 = np.array([0b01], "u1")  # row 0 is valid, row 1 is not


def without_data():
    """The offsets change behind the back of from_buffers(), which would refuse them."""
    offsets = ints(4, 0, 0, 0)
    array = of("binary", [None, offsets, None], 2)
    offsets[2] = 4
    return array


FAULTS = {
    "negative offset": (
        lambda: of("utf8", [None, ints(4, -1, 0), None], 1),
        "", "row 0: its offset is -1, expected at least 0",
    ),
    "offsets decrease": (
        lambda: of("binary", [None, ints(4, 0, 3, 2, 4), np.zeros(4, "u1")], 3),
        "", "row 1: its offsets run from 3 to 2, expected no decrease",
    ),
    "offsets past the last": (
        lambda: of("large_binary", [None, ints(8, 0, 9, 4), np.zeros(9, "u1")], 2),
        "", "row 0: its offsets run from 0 to 9, past the end at 4",
    ),
    "strings without data": (
        without_data,
        "", "row 1: buffers[2] (data) is NULL, but its offsets end at 4",
    ),
    "not UTF-8": (
        lambda: text(b"good", b"ab\xff"),
        "", "row 1: no character of UTF-8 begins at its byte 2, which is 0xff",
    ),
    "not UTF-8 in large_utf8": (
        lambda: text(b"", "é".encode(), b"\xed\xa0\x80", type="large_utf8"),
        "", "row 2: no character of UTF-8 begins at its byte 0, which is 0xed",
    ),
    "a character over two rows": (
        lambda: text(b"\xc3", b"\xa9"),
        "", "row 0: no character of UTF-8 begins at its byte 0, which is 0xc3",
    ),
    "list past its child": (
        lambda: lists([0, 2, 4]),
        "", "row 1: its offsets run from 2 to 4, past the end at 3",
    ),
    "list offsets decrease": (
        lambda: lists([0, 2, 1, 3]),
        "", "row 1: its offsets run from 2 to 1, expected no decrease",
    ),
    "list view past its child": (
        lambda: list_views([0, 2], [3, 2]),
        "", "row 1: its 2 values from 2 on are not within the 3 of the child",
    ),
    "null list view past its child": (
        lambda: list_views([0, 3], [3, 1], validity=ALL_BUT_1),
        "", "row 1: its 1 values from 3 on are not within the 3 of the child",
    ),
    "large list view of a negative size": (
        lambda: list_views([0, 0], [3, -1], type=pa.large_list_view(pa.int64())),
        "", "row 1: its -1 values from 0 on are not within the 3 of the child",
    ),
    "list view that overflows": (
        lambda: list_views([0, 1], [3, 2**63 - 1], type=pa.large_list_view(pa.int64())),
        "", f"row 1: its {2**63 - 1} values from 1 on are not within the 3 of the child",
    ),
    "index too large": (
        lambda: dictionary(np.array([0, 1, 2], "i1")),
        "", "row 2: index 2 into a dictionary of 2 values",
    ),
    "index negative": (
        lambda: dictionary(np.array([0, -1], "i8")),
        "", "row 1: index -1 into a dictionary of 2 values",
    ),
    "index negative, many values": (
        lambda: dictionary(np.array([0, -1], "i1"), map(str, range(300))),
        "", "row 1: index -1 into a dictionary of 300 values",
    ),
    "index unsigned": (
        lambda: dictionary(np.array([0, 2**64 - 1], "u8")),
        "", f"row 1: index {2**64 - 1} into a dictionary of 2 values",
    ),
    "index into nothing": (
        lambda: dictionary(np.array([0], "u2"), ()),
        "", "row 0: index 0 into a dictionary of 0 values",
    ),
    "type id unknown": (
        lambda: of(
            dense_union([5], [0]).type, [np.array([5, 7], "i1"), ints(4, 0, 0)], 2,
            children=[pa.array([1]), pa.array(["a"])],
        ),
        "", "row 1: its type id is 7, expected one of 5,9",
    ),
    "type id negative": (
        lambda: of(
            pa.sparse_union([pa.field("a", pa.int64())]), [np.array([0, -1], "i1")], 2,
            children=[pa.array([1, 2])],
        ),
        "", "row 1: its type id is -1, expected one of 0",
    ),
    "union offset too large": (
        lambda: ad.array(dense_union([5, 9, 9], [0, 0, 2])),
        "", "row 2: its offset is 2, but the child of type id 9 has 2 values",
    ),
    "union offset negative": (
        lambda: ad.array(dense_union([5, 9], [0, -1])),
        "", "row 1: its offset is -1, but the child of type id 9 has 2 values",
    ),
    "union offsets decrease": (
        lambda: ad.array(dense_union([5, 9, 5], [1, 0, 0])),
        "", "row 2: its offset is 0, less than the one before of type id 5, 1",
    ),
    "first run end": (
        lambda: run_ends([0, 4], 4),
        "children[0]", "row 0: the run ends at 0, expected more than 0",
    ),
    "run ends do not increase": (
        lambda: run_ends([2, 3, 3, 4], 4, "int16"),
        "children[0]", "row 2: the run ends at 3, expected more than 3",
    ),
    "run ends too short": (
        lambda: run_ends([2, 5], 4, "int64", offset=2),
        "children[0]", "row 1: the last run ends at 5, but the rows of the parent at 6",
    ),
    "size of a view": (
        lambda: string_views(inline(b"x"), (-1, b"abcd", 0, 0)),
        "", "row 1: its size is -1, expected at least 0",
    ),
    "padding of a view": (
        lambda: string_views(inline(b"x", b"\0" * 10 + b"y")),
        "", "row 0: the bytes behind its inline value of 1 bytes are not all 0",
    ),
    "inline value not UTF-8": (
        lambda: string_views(inline(b"x"), inline(b"abc\x80")),
        "", "row 1: no character of UTF-8 begins at its byte 3, which is 0x80",
    ),
    "buffer of a view": (
        lambda: string_views(long(), long(number=1)),
        "", "row 1: its buffer number is 1, but there are 1 variadic buffers",
    ),
    "buffer of a view negative": (
        lambda: string_views(long(number=-1)),
        "", "row 0: its buffer number is -1, but there are 1 variadic buffers",
    ),
    "view past its buffer": (
        lambda: string_views(long(), long(offset=1)),
        "", "row 1: its 27 bytes from 1 on are not within the 27 of variadic buffer 0",
    ),
    "view before its buffer": (
        lambda: string_views(long(offset=-1)),
        "", "row 0: its 27 bytes from -1 on are not within the 27 of variadic buffer 0",
    ),
    "prefix of a view": (
        lambda: string_views(long(prefix=b"a ba")),
        "", "row 0: its prefix is 61206261, but its value begins with 61207661",
    ),
    "value of a view not UTF-8": (
        lambda: string_views(long(b"01234567890123\xe2\x82"), data=b"01234567890123\xe2\x82"),
        "", "row 0: no character of UTF-8 begins at its byte 14, which is 0xe2",
    ),
    "null_count": (
        lambda: of("int8", [ALL_BUT_1, ints(1, 1, 2)], 2, null_count=2),
        "", "null_count is 2, but the validity bitmap has 1 null",
    ),
    "null_count of a child": (
        lambda: of(
            pa.struct({"a": pa.int8()}), [None], 2,
            children=[of("int8", [ALL_BUT_1, ints(1, 1, 2)], 2, null_count=0)],
        ),
        "children[0]", "null_count is 0, but the validity bitmap has 1 null",
    ),
    "null key": (
        lambda: entries(["a", None, "b"]),
        "children[0].children[0]", "row 1: it is null, but keys of maps never are",
    ),
    "null entry": (
        lambda: entries(["a", "b"], validity=[False, True]),
        "children[0]", "row 1: it is null, but entries of maps never are",
    ),
    "decimal32": (
        lambda: decimal(pa.decimal32(5, 2), 100000),
        "", "row 1: 100000 (without its scale) has more than 5 digits",
    ),
    "decimal64": (
        lambda: decimal(pa.decimal64(18, 2), -(10**18)),
        "", f"row 1: -{10**18} (without its scale) has more than 18 digits",
    ),
    "decimal128": (
        lambda: decimal(pa.decimal128(38, 0), -(2**127)),
        "", f"row 1: -{2**127} (without its scale) has more than 38 digits",
    ),
    "decimal256": (
        lambda: decimal(pa.decimal256(76, 0), 10**76),
        "", f"row 1: {10**76} (without its scale) has more than 76 digits",
    ),
    "date64": (
        lambda: of("date64", [None, ints(8, 86400000, 86400001)], 2),
        "", "row 1: the date is 86400001 ms, expected a multiple of 86400000",
    ),
    "time32": (
        lambda: of("time32[s]", [None, ints(4, 86399, 86400)], 2),
        "", "row 1: the time is 86400, expected 0 to 86399, the end of the day",
    ),
    "time64": (
        lambda: of("time64[ns]", [None, ints(8, 0, -1)], 2),
        "", f"row 1: the time is -1, expected 0 to {86400 * 10**9 - 1}, the end of the day",
    ),
    "in a dictionary": (
        lambda: of(
            pa.dictionary(pa.int8(), pa.string()), [None, ints(1, 0)], 1,
            dictionary=text(b"\xc0\x80"),
        ),
        "dictionary", "row 0: no character of UTF-8 begins at its byte 0, which is 0xc0",
    ),
    "deep": (
        lambda: of(
            pa.struct({"a": pa.list_(pa.string())}), [None], 1,
            children=[lists([0, 1], pa.list_(pa.string()), text(b"\xff"))],
        ),
        "children[0].children[0]", "row 0: no character of UTF-8 begins at its byte 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name, place_as_it_is):
    make, path, message = FAULTS[name]
    array = place_as_it_is(make())
    array.validate()
    with pytest.raises(ad.InvalidArrowError) as info:
        array.validate("full")
    assert info.value.path == path
    assert message in str(info.value)


@looped("row", [0, 1, 2046, 2047, 2048, 4095, 4096, 4999])
@pytest.mark.parametrize("type", ["int8", "int16", "int32", "int64", "uint16", "uint64"])
def test_fault_in_each_row_of_a_block(type, row, place_as_it_is):
    indices = np.zeros(5000, type)
    indices[row] = 100
    with pytest.raises(ad.InvalidArrowError, match=f"row {row}: index 100 into"):
        place_as_it_is(dictionary(indices)).validate("full")
    ends = np.arange(1, 5001)
    if type in ("int16", "int32", "int64"):
        ends[row] -= 2
        fault = 0 if row == 0 else row
        with pytest.raises(ad.InvalidArrowError, match=f"row {fault}: the run ends at"):
            place_as_it_is(run_ends(ends, 5000, type)).validate("full")


@pytest.mark.parametrize("row", [0, 1, 2046, 2047, 2048, 4998])
@pytest.mark.parametrize("width", [4, 8])
def test_decrease_in_each_row(width, row):
    offsets = np.arange(1, 5002, dtype=f"i{width}")
    offsets[row + 1] = offsets[row] - 1
    type = "binary" if width == 4 else "large_binary"
    array = of(type, [None, offsets, np.zeros(5001, "u1")], 5000)
    with pytest.raises(ad.InvalidArrowError, match=f"row {row}: its offsets run from"):
        array.validate("full")


# --- null rows ------------------------------------------------------------------------


def test_values_of_null_rows_are_arbitrary(place):
    garbage = (
        dictionary(np.array([0, 100], "i1"), validity=ALL_BUT_1),
        text(b"good", b"\xff", validity=ALL_BUT_1),
        of("time32[s]", [ALL_BUT_1, ints(4, 0, -1)], 2),
        of("date64", [ALL_BUT_1, ints(8, 0, 1)], 2),
        of(pa.decimal256(3, 0), [ALL_BUT_1, np.repeat(np.array([0, 0x55], "u1"), 32)], 2),
    )
    for array in garbage:
        assert place(array).validate("full") == ()


def test_rows_outside_a_slice_are_not_checked():
    array = dictionary(np.array([7, 0, 1, 7], "i4"))
    assert array[1:3].validate("full") == ()
    with pytest.raises(ad.InvalidArrowError, match="row 2: index 7"):
        array[1:].validate("full")


def test_null_count_of_a_slice():
    array = of("int8", [np.array([0b0101], "u1"), np.arange(4, dtype="i1")], 4, null_count=2)
    assert array[1:].validate("full") == ()
    array = of("int8", [np.array([0b0101], "u1"), np.arange(4, dtype="i1")], 4, null_count=0)
    with pytest.raises(ad.InvalidArrowError, match=r"has 1 null$"):
        array[2:].validate("full")


# --- large values on a device ---------------------------------------------------------


@pytest.mark.parametrize("at", [0, 2**20 - 1, 2**20, 2**21 + 5])
def test_long_rows_are_read_in_pieces(at, place):
    sound = "äöü€".encode() * 400_000  # 9 bytes: pieces end within characters
    rows = [b"first", sound, b"last"]
    assert place(text(*rows)).validate("full") == ()
    broken = bytearray(sound)
    broken[at] = 0xFF
    fault = len(bytes(broken[:at]).decode(errors="ignore").encode())
    with pytest.raises(ad.InvalidArrowError, match=f"row 1: .* at its byte {fault},"):
        place(text(b"first", bytes(broken), b"last")).validate("full")


def test_random_views_are_read_in_pieces(place):
    words = [f"a longer value, number {i}" for i in range(50_000)]
    random.Random(1).shuffle(words)
    views = pa.array(words, pa.string_view())
    assert place(ad.array(views)).validate("full") == ()


# --- waiting --------------------------------------------------------------------------


def test_waits_for_the_event():
    with software_device(timeout=20) as device:
        queue = device.queue()
        queue.hold()
        source = text(b"good", "é".encode())
        with ad.use_stream(queue):
            array = source.to("ext_dev:0")
        assert not array.is_ready()
        queue.release()
        assert array.validate("full") == ()
        assert array.is_ready()


def test_memory_without_a_runtime():
    schema, node = SchemaNode("u"), ArrayNode(1, [None, 64, 128])
    array = ad.array(OnDevice(Tree(schema, node, device=(8, 0))))  # Metal
    assert array.validate() == ()
    with pytest.raises(ad.ExchangeError, match="metal"):
        array.validate("full")


# --- notes ----------------------------------------------------------------------------


def test_notes_without_offsets():
    empty = ad.array(Host(Tree(SchemaNode("u"), ArrayNode(0, [None, None, None]))))
    for level in ("structure", "full"):
        (note,) = empty.validate(level)
        assert "offsets buffer is NULL" in note
    child = SchemaNode("+l", children=[SchemaNode("l", name="item")])
    schema = SchemaNode("+s", children=[SchemaNode("i", name="a"), child])
    lists = ArrayNode(0, [None, None], children=[ArrayNode(0, [None, None])])
    struct = ArrayNode(0, [None], children=[ArrayNode(0, [None, None]), lists])
    (note,) = ad.array(Host(Tree(schema, struct))).validate()
    assert note.startswith("children[1]: the offsets buffer is NULL")


def test_notes_nulls_that_the_schema_excludes():
    field = pa.field("a", pa.int64(), nullable=False)
    batch = pa.record_batch([pa.array([1, None])], schema=pa.schema([field]))
    (note,) = ad.array(batch).validate()
    assert note.startswith("children[0]: there are nulls, but the schema says")


# --- hostile data ---------------------------------------------------------------------


def string_nodes(array):
    """The pyarrow arrays in this one (itself included) whose data size an offset determines."""
    type = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from string_nodes(array.storage)
    elif pa.types.is_dictionary(type):
        yield from string_nodes(array.dictionary)
    elif pa.types.is_struct(type) or pa.types.is_union(type):
        for i in range(type.num_fields):
            yield from string_nodes(array.field(i))
    elif hasattr(array, "values") and isinstance(array.values, pa.Array):
        yield from string_nodes(array.values)
    elif type in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        yield array


def claims_more_than_it_has(array):
    """Whether offsets exceed the data; the C data interface has no sizes and cannot tell."""
    for node in string_nodes(array):
        _, offsets, data = node.buffers()
        if offsets is None:
            continue
        wide = "large" in str(node.type)
        ends = np.frombuffer(offsets, "i8" if wide else "i4")
        if ends[node.offset + len(node)] > (0 if data is None else data.size):
            return True
    return False


def buffers_of(array):
    yield from (buffer for buffer in array.buffers() if buffer is not None and buffer.size)
    if pa.types.is_dictionary(array.type):
        yield from buffers_of(array.dictionary)


def verdict(check):
    try:
        check()
    except (pa.ArrowInvalid, pa.ArrowIndexError, ad.InvalidArrowError) as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize("name", SOUND)
def test_flipped_bytes(name):
    """No crash, and the same result as pyarrow."""
    chance = random.Random(name)
    array = pa.concat_arrays([SOUND[name]] * 2)  # its own memory
    targets = list(buffers_of(array))
    wrapped = ad.array(array)
    differ = set()
    for _ in range(300 if targets else 0):
        target = chance.choice(targets)
        at = target.address + chance.randrange(target.size)
        before = ctypes.string_at(at, 1)
        ctypes.memset(at, before[0] ^ (1 << chance.randrange(8)), 1)
        if not claims_more_than_it_has(array):
            ours = verdict(lambda: wrapped.validate("full"))
            theirs = verdict(lambda: array.validate(full=True))
            if (ours is None) != (theirs is None):
                differ.add((ours, theirs))
        ctypes.memmove(at, before, 1)
    assert verdict(lambda: wrapped.validate("full")) is None
    assert differ == set()
