"""Invalid Arrow structs and metadata: the documented error, and no ownership taken.

An imported struct is released exactly once; a refused one remains the producer's.
"""

import ctypes
import gc

import arrow_ctypes as ac
import pytest
from hostile import everywhere, freeze_kept_structs, give, releases  # noqa: F401
from loops import looped

import arrowdev as ad

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


# --- malformed structs ----------------------------------------------------------


def set_fields(part, step, path=None, **fields):
    """Changes a batch of three int64 columns: `step` is the index of the column, None the root."""

    def change(tree):
        node = getattr(tree, part)
        node = node if step is None else node.children[step]
        for name, value in fields.items():
            setattr(node.struct, name, value)

    change.path = path or ("" if step is None else f"children[{step}]")
    change.part = part
    return change


def null_child(part, index):
    """A NULL in the list of children."""

    def change(tree):
        node = getattr(tree, part)
        (ctypes.c_void_p * 3).from_address(node.struct.children)[index] = None

    change.path = f"children[{index}]"
    change.part = part
    return change


def no_buffer(step, index):
    def change(tree):
        node = tree.array.children[step]
        (ctypes.c_void_p * 2).from_address(node.struct.buffers)[index] = None

    change.path = f"children[{step}]"
    change.part = "array"
    return change


MALFORMED = {
    "length negative": (set_fields("array", None, length=-1), "length is -1"),
    "length least": (set_fields("array", 1, length=INT64_MIN), "length is -9223372036854775808"),
    "length overflows bytes": (set_fields("array", 1, length=INT64_MAX // 8), "overflow"),
    "length most": (set_fields("array", 2, length=INT64_MAX), "overflow"),
    "offset negative": (set_fields("array", 1, offset=-5), "offset is -5"),
    "offset most": (set_fields("array", 1, offset=INT64_MAX), "overflow"),
    "sum overflows": (set_fields("array", 1, offset=2**62, length=2**62), "overflow"),
    "root sum overflows": (set_fields("array", None, offset=INT64_MAX, length=1), "overflow"),
    "null_count -2": (set_fields("array", 1, null_count=-2), "null_count is -2"),
    "null_count large": (set_fields("array", 1, null_count=4), "null_count is 4"),
    "nulls without bitmap": (set_fields("array", 1, null_count=2), "validity"),
    "n_buffers 0": (set_fields("array", 1, n_buffers=0), 'n_buffers is 0, but format "l" has 2'),
    "n_buffers 3": (set_fields("array", 1, n_buffers=3), "n_buffers is 3"),
    "n_buffers negative": (set_fields("array", 1, n_buffers=-1), "n_buffers is -1"),
    "n_buffers most": (set_fields("array", 1, n_buffers=INT64_MAX), "n_buffers is"),
    "root n_buffers": (set_fields("array", None, n_buffers=0), 'format "\\+s" has 1'),
    "buffers NULL": (set_fields("array", 1, buffers=None), "buffers is NULL"),
    "data NULL": (no_buffer(1, 1), r"buffers\[1\] \(data\) is NULL"),
    "children NULL": (set_fields("array", None, children=None), "children is NULL"),
    "schema children NULL": (set_fields("schema", None, children=None), "NULL"),
    "child NULL": (null_child("array", 1), "the array is NULL"),
    "schema child NULL": (null_child("schema", 2), "NULL"),
    "fewer children": (set_fields("array", None, n_children=2), "n_children is 2"),
    "more children": (set_fields("array", None, n_children=4), "n_children is 4"),
    "negative children": (set_fields("array", None, n_children=-1), "n_children is -1"),
    "schema fewer children": (set_fields("schema", None, n_children=2), "n_children is 3"),
    "schema negative children": (set_fields("schema", None, n_children=-1), "-1 children"),
    "schema many children": (set_fields("schema", None, n_children=2**31), "2147483648 children"),
    "leaf with children": (set_fields("array", 0, n_children=1), "n_children is 1"),
    "schema leaf with children": (set_fields("schema", 0, n_children=1), "1 child instead"),
    "child released": (set_fields("array", 2, release=None), "released"),
    "schema child released": (set_fields("schema", 2, release=None), "released"),
    "child short": (set_fields("array", 1, length=2), "need 3"),
    "parent offset": (set_fields("array", None, "children[0]", offset=1), "need 4"),
    "format NULL": (set_fields("schema", 1, format=None), "format"),
    "format unknown": (set_fields("schema", 1, format=ac.text("?")), "format"),
    "root not a struct": (set_fields("schema", None, format=ac.text("l")), "children"),
    "root a list": (set_fields("schema", None, format=ac.text("+l")), "children"),
    "child a string": (set_fields("schema", 1, format=ac.text("u")), "n_buffers is 2"),
    "child a list": (set_fields("schema", 1, format=ac.text("+l")), "children"),
}


@everywhere
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_struct(case, way):
    change, text = MALFORMED[case]
    tree = ac.batch(3)
    change(tree)
    obj = give(tree, way)
    before = tree.schema.raw(), tree.array.raw(), bytes(tree.device)
    with pytest.raises(ad.InvalidArrowError, match=text) as error:
        ad.array(obj)
    if change.part == "array":
        assert error.value.path == change.path
    assert (tree.schema.raw(), tree.array.raw(), bytes(tree.device)) == before
    assert releases(tree) == {0}
    assert tree.held() == (True, True)


@looped("device_type", [None, ac.CPU, ac.CUDA])
@pytest.mark.parametrize(
    "case", [name for name, (change, _) in MALFORMED.items() if change.part == "array"]
)
def test_malformed_chunk_is_released_once(case, device_type):
    change, text = MALFORMED[case]
    tree = ac.batch(3, device=(device_type or ac.CPU, 0))
    change(tree)
    stream = ac.Stream(tree.schema, [tree], device_type=device_type)
    with pytest.raises((ad.InvalidArrowError, ad.ExchangeError), match=text):
        ad.array(stream)
    assert stream.released == 1
    assert tree.released == (1, 1)


UNSOUND_TREES = {
    "dictionary only in the schema": (
        lambda: (ac.SchemaNode("i", dictionary=ac.SchemaNode("u")), ac.numbers().array),
        "dictionary is NULL",
        "",
    ),
    "dictionary only in the array": (
        lambda: (
            ac.SchemaNode("l"),
            ac.ArrayNode(3, [None, ac.int64s(0, 0, 0)], dictionary=ac.numbers().array),
        ),
        "the schema has none",
        "",
    ),
    "dictionary bad": (
        lambda: (
            ac.SchemaNode("l", dictionary=ac.SchemaNode("l")),
            ac.ArrayNode(1, [None, ac.int64s(0)], dictionary=ac.ArrayNode(-3, [None, None])),
        ),
        "length is -3",
        "dictionary",
    ),
    "dictionary of floats": (
        lambda: (
            ac.SchemaNode("g", dictionary=ac.SchemaNode("l")),
            ac.ArrayNode(1, [None, ac.int64s(0)], dictionary=ac.numbers().array),
        ),
        "integer",
        "",
    ),
    "list without a child": (
        lambda: (ac.SchemaNode("+l"), ac.ArrayNode(1, [None, ac.int32s(0, 0)])),
        "0 children instead of 1",
        "",
    ),
    "fixed list overflow": (
        lambda: (
            ac.SchemaNode(f"+w:{2**31 - 1}", children=[ac.SchemaNode("l")]),
            ac.ArrayNode(2**61, [None], children=[ac.numbers().array]),
        ),
        "overflow",
        "",
    ),
    "fixed list of few": (
        lambda: (
            ac.SchemaNode("+w:4", children=[ac.SchemaNode("l")]),
            ac.ArrayNode(1, [None], children=[ac.numbers(3).array]),
        ),
        "need 4",
        "children[0]",
    ),
    "map of no struct": (
        lambda: (
            ac.SchemaNode("+m", children=[ac.SchemaNode("l")]),
            ac.ArrayNode(1, [None, ac.int32s(0, 0)], children=[ac.numbers().array]),
        ),
        "struct of two",
        "children[0]",
    ),
    "run ends are floats": (
        lambda: (
            ac.SchemaNode("+r", children=[ac.SchemaNode("g"), ac.SchemaNode("l")]),
            ac.ArrayNode(3, [], children=[ac.numbers().array, ac.numbers().array]),
        ),
        "run ends",
        "children[0]",
    ),
    "more run ends than values": (
        lambda: (
            ac.SchemaNode("+r", children=[ac.SchemaNode("l"), ac.SchemaNode("l")]),
            ac.ArrayNode(3, [], children=[ac.numbers(3).array, ac.numbers(2).array]),
        ),
        "3 run ends for 2 values",
        "children[0]",
    ),
    "union with a bitmap": (
        lambda: (
            ac.SchemaNode("+us:0", children=[ac.SchemaNode("l")]),
            ac.ArrayNode(1, [None, ac.int32s(0)], children=[ac.numbers().array]),
        ),
        "n_buffers is 2",
        "",
    ),
    "union with fewer children": (
        lambda: (
            ac.SchemaNode("+us:0,1", children=[ac.SchemaNode("l")]),
            ac.ArrayNode(1, [ac.int32s(0)], children=[ac.numbers().array]),
        ),
        "1 child instead of 2",
        "",
    ),
    "views of buffers without end": (
        lambda: (ac.SchemaNode("vu"), ac.ArrayNode(1, [None, ac.int64s(0, 0)], n_buffers=2**60)),
        "n_buffers is 1152921504606846976",
        "",
    ),
    "views without sizes": (
        lambda: (
            ac.SchemaNode("vz"),
            ac.ArrayNode(1, [None, ac.int64s(0, 0), ac.int64s(0), None]),
        ),
        "sizes",
        "",
    ),
    "strings without offsets": (
        lambda: (ac.SchemaNode("u"), ac.ArrayNode(1, [None, None, None])),
        r"buffers\[1\] \(offsets\) is NULL",
        "",
    ),
}


@everywhere
@pytest.mark.parametrize("case", UNSOUND_TREES)
def test_unsound_tree(case, way):
    make, text, path = UNSOUND_TREES[case]
    tree = ac.Tree(*make())
    with pytest.raises(ad.InvalidArrowError, match=text) as error:
        ad.array(give(tree, way))
    assert error.value.path == path
    assert releases(tree) == {0}


BAD_FORMATS = [
    None, "", " ", "?", "ll", "w", "w:", "w:-1", "w:1x", "w:99999999999999999999", "+", "+x",
    "+w:",    "+w:-1", "+w:x", "+us", "+us:1,1", "+us:300", "+us:a", "+us:,", "+u", "+ud", "d:",
    "d:5", "d:5,2,7", "d:-1,2", "d:0,0", "d:99,2,32", "t", "td", "tdX", "tt", "tts:", "ts",
    "tsx:", "tD", "tDx", "ti", "tiX", "v", "vx", "+v", "+vx", "\N{SNOWMAN}", "l\n", "+s ",
    b"\xff", "x" * 100_000,
]  # fmt: skip


@looped("format", BAD_FORMATS)
def test_bad_format(format):
    node = ac.SchemaNode(format)
    with pytest.raises(ad.InvalidArrowError) as error:
        ad.schema(ac.WithSchema(node))
    assert error.value.path == ""
    assert len(str(error.value)) < 1200
    assert node.struct.release and node.released == 0


@pytest.mark.parametrize(
    "name", [None, b"", b"\xff\xfe", "x" * 100_000, "\N{SNOWMAN}" * 300, b"%s%n"]
)
@pytest.mark.parametrize("format", ["l", "tsu:\N{SNOWMAN}" * 50, b"tsu:\xff", "tsn:%s%n"])
def test_unusual_text_is_preserved(name, format):
    node = ac.SchemaNode("+s", children=[ac.SchemaNode(format, name=name)])
    schema = ad.schema(ac.WithSchema(node))
    child = schema.children[0]
    repr(schema), str(schema), hash(child), repr(child), child.name, child.format
    assert schema == schema.children[0] or schema == schema
    out = ac.inside(child.__arrow_c_schema__(), "arrow_schema")
    assert out.name == node.children[0].struct.name
    array = ac.ArrayNode(3, [None], children=[ac.numbers().array])
    batch = ad.array(ac.Host(ac.Tree(ac.SchemaNode("+s", children=[node.children[0]]), array)))
    with pytest.raises(KeyError):
        batch["\N{SNOWMAN}" * 400]
    with pytest.raises(KeyError):
        batch["x" + "\N{SNOWMAN}" * 400]
    repr(batch)


def test_field_name_with_nul_is_another_name():
    column = ac.numbers()
    column.schema.struct.name = ac.text("a")
    tree = ac.Tree(
        ac.SchemaNode("+s", children=[column.schema]),
        ac.ArrayNode(3, [None], children=[column.array]),
    )
    batch = ad.array(ac.Host(tree))
    assert len(batch["a"]) == 3
    with pytest.raises(KeyError):
        batch["a\0b"]


@pytest.mark.parametrize("nest", ["children", "dictionary", "lists"])
@pytest.mark.parametrize("depth", [63, 64, 65, 10_000])
def test_depth(nest, depth):
    schema, array = ac.SchemaNode("l"), ac.numbers(1).array
    for _ in range(depth - 1):
        if nest == "dictionary":
            schema = ac.SchemaNode("l", dictionary=schema)
            array = ac.ArrayNode(1, [None, ac.int64s(0)], dictionary=array)
        elif nest == "lists":
            schema = ac.SchemaNode("+l", children=[schema])
            array = ac.ArrayNode(1, [None, ac.int32s(0, 1)], children=[array])
        else:
            schema = ac.SchemaNode("+s", children=[schema])
            array = ac.ArrayNode(1, [None], children=[array])
    tree = ac.Tree(schema, array)
    if depth <= 64:
        imported = ad.array(ac.Host(tree))
        repr(imported), imported.nbytes, ad.array(imported, copy=True)
        imported.__arrow_c_device_array__()
        del imported
        assert tree.released == (1, 1)
        return
    with pytest.raises(ad.InvalidArrowError, match="nested deeper than 64 levels") as error:
        ad.array(ac.Host(tree))
    step = "dictionary" if nest == "dictionary" else "children[0]"
    assert error.value.path.endswith(f".{step}")
    assert len(error.value.path) < 300
    assert tree.released == (0, 0)


def test_child_that_is_its_own_parent():
    node = ac.SchemaNode("+s", children=[ac.SchemaNode("l"), ac.SchemaNode("l")])
    children = (ctypes.c_void_p * 2).from_address(node.struct.children)
    children[0] = children[1] = node.address
    with pytest.raises(ad.InvalidArrowError, match="nested deeper"):
        ad.schema(ac.WithSchema(node))


# --- metadata ---------------------------------------------------------------------

LYING_METADATA = [
    (-1,), (INT64_MIN >> 32,), (65537,), (2**31 - 1,), (1, -1), (1, 2**31 - 1),
    (1, (64 << 20) + 1),
    (1, 4, 0, -1), (1, 4, 0, 2**31 - 1), (2, 0, 0, 1 << 24, 0),
]  # fmt: skip


@pytest.mark.parametrize("numbers", LYING_METADATA)
def test_invalid_metadata(numbers):
    node = ac.SchemaNode("l", metadata=ac.raw_metadata(*numbers))
    other = ac.SchemaNode("l", metadata=ac.raw_metadata(*numbers))
    schema, second = ad.schema(ac.WithSchema(node)), ad.schema(ac.WithSchema(other))
    array = ad.array(ac.Host(ac.Tree(ac.SchemaNode("l"), ac.numbers().array)))
    asked = {
        "metadata": lambda a, b: a.metadata,
        "str": lambda a, b: str(a),
        "repr": lambda a, b: repr(a),
        "==": lambda a, b: a == b,
        "equals": lambda a, b: a.equals(b, check_metadata=True),
        "hash": lambda a, b: hash(a),
        "export": lambda a, b: a.__arrow_c_schema__(),
        "type": lambda a, b: ad.tensor(ad.array(array, a)),
        "batch": lambda a, b: ad.record_batch([ad.array(array, a)], names=["a"]),
    }
    refused = set()
    for name, ask in asked.items():
        try:
            ask(schema, second)
        except ad.InvalidArrowError as error:
            assert "metadata" in str(error)  # noqa: PT017
            refused.add(name)
    sound_after_all = numbers == (2, 0, 0, 1 << 24, 0)
    assert refused >= (set() if sound_after_all else {"metadata", "=="})
    assert "hash" not in refused and "export" not in refused
    del schema, second
    gc.collect()
    assert (node.released, other.released) == (1, 1)


EXTENSIONS = {
    b"arrow.fixed_shape_tensor": [
        b"", b"{", b"[]", b"null", b"{}", b'{"shape":[]}', b'{"shape":[4]', b'{"shape":[4]}x',
        b'{"shape":[-4]}', b'{"shape":[0]}', b'{"shape":[2,2,1e3]}', b'{"shape":"4"}',
        b'{"shape":[4.0]}', b'{"shape":[9223372036854775807,2]}',
        b'{"shape":[92233720368547758070]}', b'{"shape":[4],"permutation":[1]}',
        b'{"shape":[2,2],"permutation":[0,0]}', b'{"shape":[2,2],"permutation":[-1,0]}',
        b'{"shape":[2,2],"permutation":[0]}', b'{"shape":[2,2],"permutation":[0,1,2]}',
        b'{"shape":[' + b"1," * 100 + b"4]}", b'{"x":' + b"[" * 100_000, b'{"x":"\\u12',
        b'{"x":"' + b"a" * 100_000, b'{"shape":[4],"shape":[2,2]}', b"\xff\xfe\x00", b"{" * 10_000,
        b'{"shape":[4],"dim_names":[1]}', b'{"shape":[4],"dim_names":["a","b"]}',
        b'{"shape":[65536,65536,65536,65536,4]}', b"[" * 1_000_000, b'{"shape":[2,2]}',
    ],
    b"arrowdev.dlpack": [
        b"", b"{}", b'{"code":4}', b'{"code":4,"bits":16,"lanes":0}',
        b'{"code":999,"bits":16,"lanes":1}', b'{"code":-1,"bits":16,"lanes":1}',
        b'{"code":4,"bits":0,"lanes":1}', b'{"code":4,"bits":16,"lanes":65536}',
        b'{"code":5,"bits":128,"lanes":1}', b'{"code":4,"bits":255,"lanes":65535}',
    ],
    b"arrow.bool8": [b"", b"x"],
    b"": [b""],
    b"x" * 10_000: [b"y" * 10_000],
}  # fmt: skip

STORAGES = {
    "fixed list": lambda blob: ac.Tree(
        ac.SchemaNode("+w:4", metadata=blob, children=[ac.SchemaNode("g")]),
        ac.ArrayNode(2, [None], children=[ac.numbers(8).array]),
    ),
    "int64": lambda blob: ac.Tree(ac.SchemaNode("l", metadata=blob), ac.numbers(8).array),
    "bytes": lambda blob: ac.Tree(ac.SchemaNode("w:2", metadata=blob), ac.numbers(8).array),
    "int8": lambda blob: ac.Tree(ac.SchemaNode("c", metadata=blob), ac.numbers(8).array),
    "string": lambda blob: ac.Tree(
        ac.SchemaNode("u", metadata=blob), ac.ArrayNode(2, [None, ac.int32s(0, 0, 0), None])
    ),
}


@looped("storage", STORAGES)
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in EXTENSIONS.items() for value in values]
)
def test_invalid_extension(storage, name, value):
    blob = ac.metadata((b"ARROW:extension:name", name), (b"ARROW:extension:metadata", value))
    tree = STORAGES[storage](blob)
    array = ad.array(ac.Host(tree))
    repr(array), str(array.schema), array.__arrow_c_device_array__()
    for ask in (ad.tensor, memoryview, lambda x: x.__dlpack__(), lambda x: x.__array_interface__):
        try:
            result = ask(array)
        except (ad.ExchangeError, ad.InvalidArrowError, AttributeError):
            continue
        # Every result lies within the 64 bytes that exist.
        assert getattr(result, "nbytes", 0) <= 64
        del result
    del array
    gc.collect()
    assert tree.released == (1, 1)


# --- sequences that change during the call ----------------------------------------------------


class Clearing:
    """A column whose export empties the list that contains it."""

    __slots__ = ("others",)

    def __init__(self, others):
        self.others = others

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        self.others.clear()
        gc.collect()
        raise ValueError("the next one, please")

    def __arrow_c_array__(self, requested_schema=None):
        self.others.clear()
        gc.collect()
        return ac.numbers(8).host_pair()


@pytest.mark.parametrize("place", ["columns", "names", "buffers", "children", "mapping"])
def test_list_emptied_during_read(place):
    items = []
    items.extend(Clearing(items) for _ in range(4))
    schema = ac.WithSchema(ac.batch(4).schema)
    if place == "columns":
        batch = ad.record_batch(items, names=["a", "b", "c", "d"])
    elif place == "names":
        names = ["".join(["name", str(n)]) for n in range(4)]
        batch = ad.record_batch([Clearing(names) for _ in range(4)], names=names)
        assert [child.name for child in batch.schema.children] == [f"name{n}" for n in range(4)]
    elif place == "buffers":
        ad.Array.from_buffers("large_utf8", 0, items[1:4] and items[:3])
        items = []
        items.extend(Clearing(items) for _ in range(3))
        batch = ad.Array.from_buffers("large_utf8", 1, items)
        return
    elif place == "children":
        batch = ad.Array.from_buffers(schema, 8, [None], children=items)
    else:
        mapping = {}
        mapping.update({str(n): Clearing(mapping) for n in range(4)})
        batch = ad.record_batch(mapping)
    assert len(batch.children) == 4 and len(batch) == 8


def test_from_buffers_numbers():
    data = bytes(64)
    for length, options in [
        (-1, {}), (INT64_MIN, {}), (INT64_MAX, {}), (2**60, {}), (9, {}), (8, {"offset": 1}),
        (1, {"offset": -1}), (1, {"offset": INT64_MAX}), (INT64_MAX, {"offset": INT64_MAX}),
        (1, {"null_count": -2}), (1, {"null_count": 2}), (1, {"null_count": 1}),
    ]:  # fmt: skip
        with pytest.raises((ValueError, ad.InvalidArrowError)):
            ad.Array.from_buffers("int64", length, [None, data], **options)
    for length in (2**63, -(2**64), 10**30):
        with pytest.raises(OverflowError):
            ad.Array.from_buffers("int64", length, [None, data])


@pytest.mark.parametrize("sizes", [b"x", b"xxxxxxx"])
def test_from_buffers_sizes_of_views_too_small(sizes):
    buffers = [None, bytes(16), b"abc", sizes]
    with pytest.raises(ValueError, match="buffer 3 has"):
        ad.Array.from_buffers("string_view", 1, buffers)


def test_empty_views_without_sizes():
    buffers = [None, ac.int64s(0, 0), ac.int64s(1), ac.int64s(1), None]
    for copy in (None, True):
        tree = ac.Tree(ac.SchemaNode("vu"), ac.ArrayNode(0, buffers))
        array = ad.array(ac.Host(tree), copy=copy)
        assert len(array) == 0 and array.nbytes == 0
        del array
        assert tree.released == (1, 1)


def test_total_size_overflow():
    columns = [ac.numbers() for _ in range(40)]
    for column in columns:
        column.array.struct.length = 2**56 - 1
    tree = ac.Tree(
        ac.SchemaNode("+s", children=[column.schema for column in columns]),
        ac.ArrayNode(0, [None], children=[column.array for column in columns]),
        device=(ac.CUDA, 0),
    )
    array = ad.array(ac.OnDevice(tree))
    with pytest.raises(ad.InvalidArrowError, match="overflow"):
        array.nbytes


def test_arguments_that_raise():
    class Flag(int):
        def __bool__(self):
            raise KeyError

    interface = {"shape": (1,), "typestr": "<i8", "version": 3, "data": (8, Flag(1))}
    producer = type("P", (), {"__array_interface__": interface})()
    with pytest.raises(ad.ExchangeError, match="read-only flag"):
        ad.array(producer)
