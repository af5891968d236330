"""Types without an equivalent tensor type: the error has a hint, and the code in the hint
returns the stored values. Also .view(), wrong extension metadata, and dictionaries."""

import decimal
import json
import re
import sys
import weakref

import pytest
from arrow_samples import SAMPLES
from lifetimes import is_gone
from peer import Peer
from type_checks import refused

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
torch = Peer("torch")

NAME, METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"


def values(array):
    """The array as a tensor, including the bytes of nulls."""
    return np.asarray(ad.tensor(array, nulls="ignore"))


# --- hints that are followed --------------------------------------------------------------


def follow_view(array, hint):
    """.view("int64") returns the stored bytes."""
    type = re.search(r'\.view\("([^"]+)"\)', hint)[1]
    view = array.view(type)
    assert view.buffers[1].data_ptr == array.buffers[1].data_ptr
    width = array.buffers[1].nbytes // (array.offset + len(array))
    stored = np.frombuffer(array.buffers[1], "u1")[array.offset * width :]
    assert values(view).tobytes() == stored[: len(array) * width].tobytes()


def follow_dictionary(array, hint):
    type = re.search(r'\.view\("([^"]+)"\)', hint)[1]
    indices = np.asarray(ad.tensor(array.view(type), nulls="fill", fill_value=-1)).tolist()
    words = array.dictionary.to_pylist()
    assert [None if i < 0 else words[i] for i in indices] == array.to_pylist()


def follow_buffers(array, hint):
    """The first buffer has offsets or views."""
    width = {"u": 4, "z": 4, "U": 8, "Z": 8, "vu": 16, "vz": 16}[array.schema.format]
    first = np.asarray(ad.tensor(array.buffers[1]))
    assert first.size >= width * (array.offset + len(array))
    if width < 16:
        offsets = first.view(f"i{width}")[array.offset :][: len(array) + 1]
        lengths = [0 if value is None else len(value) for value in array.to_pylist()]
        if array.schema.format in "zZ":
            assert np.diff(offsets).tolist() == lengths


def follow_children(array, hint):
    assert len(array.children) >= 1
    assert all(len(child.to_pylist()) == len(child) for child in array.children)
    if "[0]" in hint:
        assert array.buffers[1].nbytes > 0


def follow_nothing(array, hint):
    assert "no values" in hint


TIMES = [name for name in SAMPLES if name.split()[0] in ("timestamp", "duration")]
TIMES += ["time32[s]", "time32[ms]", "time64[us]", "time64[ns]", "date32", "date64", "interval"]
DECIMALS = [name for name in SAMPLES if name.startswith("decimal")]
TEXTS = ["string", "large_string", "binary", "large_binary", "string_view", "binary_view"]
NESTED = ["list_view", "large_list_view", "map", "sparse_union", "dense_union"]

HINTS = (
    dict.fromkeys(TIMES + DECIMALS, (".view(", follow_view))
    | dict.fromkeys(TEXTS, (".buffers", follow_buffers))
    | dict.fromkeys([*NESTED, "run_end_encoded"], (".children", follow_children))
    | {"dictionary": (".dictionary", follow_dictionary), "null": ("no values", follow_nothing)}
)


@pytest.mark.parametrize("part", [slice(None), slice(3, 11)], ids=["whole", "sliced"])
@pytest.mark.parametrize("name", HINTS)
def test_refused_with_a_valid_hint(name, part):
    word, follow = HINTS[name]
    array = ad.array(SAMPLES[name][part])
    for options in ({}, {"nulls": "ignore"}, {"copy": True}):
        error = refused(ad.tensor, array, **options)
        assert error.reason in ("dtype", "nulls")
    error = refused(ad.tensor, array, nulls="ignore")
    assert error.reason == "dtype" and word in error.hint
    assert str(array.schema).startswith(error.dtype) and str(array.schema)[:100] in str(error)
    follow(array, error.hint)
    for attribute in ("__dlpack__", "__array_interface__", "__cuda_array_interface__"):
        assert not hasattr(array, attribute)


def test_every_sample_is_a_tensor_or_an_error():
    """No type is missing, and none becomes another one."""
    tensors = {
        name for name, column in SAMPLES.items() if is_tensor(ad.array(column), nulls="ignore")
    }
    assert tensors.isdisjoint(HINTS)
    lists = {"list", "large_list", "list of list"}  # of different lengths here
    structs = {"struct", "struct without fields"}  # of different types, and without fields
    assert set(SAMPLES) == tensors | set(HINTS) | lists | structs
    assert {"bool", "bool8", "fixed_shape_tensor", "fixed_size_list", "int64"} <= tensors


def is_tensor(array, **options):
    try:
        ad.tensor(array, **options)
    except ad.ExchangeError:
        return False
    return True


def test_decimals_keep_their_digits():
    column = ad.array(pa.array([decimal.Decimal("1.25"), decimal.Decimal("-3.50")]))
    low = values(column.view("fixed_size_binary[16]")).view("<i8")[:, 0]
    assert low.tolist() == [125, -350]


WAY = re.compile(r'arrowdev\.\w+\([^()]*\)(?:\.\w+(?:\[\d\])?(?:\("[^"]*"\))?)*')


def follow(hint, x):
    """The result of each expression in the hint."""
    names = {"arrowdev": ad, "x": x, "batch": x}
    column = re.match(r"take x = ([^;]*); ", hint)
    if column:
        names["x"] = eval(column[1], names)
        hint = hint[column.end() :]
    return [eval(way.replace("...", "0"), names) for way in WAY.findall(hint)]


def unknown(storage, buffers, *children):
    """One row of an unknown extension type."""
    field = pa.field("x", storage, metadata={NAME: b"some.thing"})
    return ad.Array.from_buffers(field, 1, [None, *buffers], children=children)


TWO_TIMES = pa.array([[1, 2]], pa.list_(pa.timestamp("s"), 2))
WORDS = pa.array(["a", "b", "a"]).dictionary_encode()

# Refused types, and the expected result of each expression in the hint.
INNER = {
    "times": (TWO_TIMES, [[1, 2]]),
    "times of NumPy": (np.array([["1970-01-01", "1970-01-02"]], "M8[s]"), [[0, 86400]]),
    "decimals": (pa.array([[decimal.Decimal("1.5")]]), [[(15).to_bytes(16, "little")]]),
    "texts": (pa.array([[["ab"], ["c"]]]), [b"abc"]),
    "dictionaries": (pa.ListArray.from_arrays([0, 3], WORDS), [["a", "b"], [0, 1, 0]]),
    "structs": (pa.array([[{"a": 1}, {"a": 2}]]), [[1, 2]]),
    "maps": (
        pa.array([[[("a", 1)]]], pa.list_(pa.map_("utf8", "i4"))),
        [[{"key": "a", "value": 1}], np.array([0, 1], "i4").tobytes()],
    ),
    "a list of an unknown type": (unknown(pa.list_(pa.int64(), 2), [], np.arange(2)), [[0, 1]]),
    "bits of an unknown type": (unknown(pa.bool_(), [np.array([5], "u1")]), [b"\x05"]),
    "a column": (pa.record_batch({"t": TWO_TIMES, "u": TWO_TIMES}), [[1, 2]]),
}


def shown(found):
    """The last column or buffer of the result."""
    last = found[-1] if isinstance(found, tuple) else found
    return last.to_pylist() if isinstance(last, ad.Array) else bytes(last)


@pytest.mark.parametrize("name", INNER)
def test_hint_for_nested_types(name):
    x, expected = INNER[name]
    error = refused(ad.tensor, x)
    assert error.reason == "dtype"
    assert [shown(found) for found in follow(error.hint, x)] == expected


MASKED = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], [[1, 1], [0, 0]])


@pytest.mark.parametrize(
    ("x", "take"),
    [
        (pa.array([None, 4]), ad.tensor),
        (pa.array([None, 4]), lambda x: ad.convert(x, np.ndarray)),
        (MASKED, lambda x: ad.record_batch(x, names=["a", "b"])),
    ],
    ids=["tensor", "convert", "record_batch"],
)
def test_hint_for_nulls(x, take):
    error = refused(take, x)
    assert error.reason == "nulls"
    (filled,) = follow(error.hint, x)
    assert set(np.asarray(filled).ravel()) >= {0, 4}
    assert len(take(filled)) == 2


@pytest.mark.parametrize(
    ("x", "where"),
    [
        (pa.array([[1]], pa.list_(pa.timestamp("ns"))), lambda array: array.children[0]),
        (pa.array([1], pa.timestamp("ns")).dictionary_encode(), lambda array: array.dictionary),
    ],
    ids=["children", "dictionary"],
)
def test_hint_for_nested_nanoseconds(x, where, monkeypatch):
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    array = ad.array(x)
    with pytest.raises(ValueError, match=r"1 ns .*\.view\('int64'\).* \.children .* \.dictionary"):
        array.to_pylist()
    assert where(array).view("int64").to_pylist() == [1]


def test_hint_for_several_types():
    first = ad.array(np.ones(1))
    field = pa.field("", pa.float64(), nullable=False)
    alike = ad.Array.from_buffers(field, 1, [None, np.ones(1)])
    assert refused(ad.concat, [first, alike]).hint.endswith("arrowdev.array(x, type)")
    assert ad.concat([first, ad.array(alike, first.schema)]).to_pylist() == [1.0, 1.0]

    longs = ad.array(np.ones(1, "i8"))
    assert refused(ad.concat, [first, longs]).hint.endswith("in the producing library")
    assert ad.concat([longs, pa.array(first).cast("int64")]).to_pylist() == [1, 1]

    ints = ad.array(np.ones(1, "i4"))
    assert refused(ad.concat, [first, ints]).hint.endswith("in the producing library")
    assert refused(ad.array, ints, first.schema) and refused(ints.view, first.schema)


# --- .view() -------------------------------------------------------------------------------

SAME_WIDTH = [
    ("int64", "timestamp[us]"),
    ("int64", "duration[ns]"),
    ("int64", "date64"),
    ("int64", "float64"),
    ("int64", "uint64"),
    ("timestamp[us, UTC]", "int64"),
    ("int32", "date32"),
    ("int32", "time32[ms]"),
    ("float32", "int32"),
    ("int16", "float16"),
    ("int8", "uint8"),
    ("uint64", "fixed_size_binary[8]"),
]


@pytest.mark.parametrize(("one", "other"), SAME_WIDTH)
def test_view_is_the_same_memory(one, other):
    memory = np.arange(24, dtype="u1")
    array = ad.Array.from_buffers(one, 24 // 8, [None, memory])[1:]
    view = array.view(other)
    assert view.schema == ad.schema(other) and len(view) == 2 and view.offset == 1
    assert view.buffers[1].data_ptr == memory.ctypes.data
    assert view.view(one).schema == array.schema


def test_view_keeps_nulls():
    array = ad.array(pa.array([1, None, 3]))
    view = array.view("timestamp[s]")
    assert view.null_count == 1 and pa.array(view).null_count == 1
    assert pa.array(view.view("int64")).equals(pa.array([1, None, 3]))
    field = pa.field("x", pa.int64(), nullable=False)
    assert refused(array.view, field).reason == "nulls"


def test_view_as_an_extension():
    data = torch.arange(4).bfloat16()
    type = ad.array(data).schema
    numbers = ad.array(data.view(torch.uint16).numpy())
    assert ad.tensor(numbers.view(type)).into(torch.Tensor).equal(data)
    bools = ad.array(np.array([1, 0], "i1")).view(ad.array(np.array([True])).schema)
    assert bools.to_pylist() == [True, False]


@pytest.mark.parametrize("other", ["int32", "string", "bool", "binary", "fixed_size_binary[9]"])
def test_view_of_another_width(other):
    error = refused(ad.array(np.arange(3)).view, other)
    assert error.reason == "dtype" and "width" in error.hint


@pytest.mark.parametrize(
    ("type", "wanted", "keeps_numbers"),
    [
        ("uint64", "duration[s]", True),
        ("float64", "binary[8]", True),
        ("uint64", "float64", False),  # .view() would give 5e-324 for 1
        ("timestamp[s]", "timestamp[ms]", False),
        ("uint64", "int32", False),
        ("uint64", "string", False),
    ],
)
def test_hint_names_view_if_it_keeps_numbers(type, wanted, keeps_numbers):
    array = ad.array(np.arange(3, dtype="u8")).view(type)
    error = refused(ad.array, array, wanted)
    assert (
        error.reason == "dtype"
        and (".view(type) for the same bytes" in error.hint) is keeps_numbers
    )
    assert "convert in the producing library" in error.hint
    if keeps_numbers:
        assert array.view(wanted).schema == ad.schema(wanted)


@pytest.mark.parametrize("name", ["string", "list", "struct", "dense_union", "bool", "null"])
def test_view_of_type_without_width(name):
    assert refused(ad.array(SAMPLES[name]).view, "int64").reason == "dtype"


# --- dictionaries -----------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["int8", "uint16", "int32", "uint64"])
def test_dictionaries(index):
    type = pa.dictionary(pa.type_for_alias(index), pa.string())
    column = pa.array(["b", "a", None, "b"]).dictionary_encode().cast(type)
    error = refused(ad.tensor, column, nulls="ignore")
    assert ".dictionary" in error.hint and f'.view("{index}")' in error.hint
    indices = ad.tensor(ad.array(column).view(index), nulls="fill", fill_value=9)
    assert np.asarray(indices).tolist() == [0, 1, 9, 0]
    numbers = pa.array([5, 7, 5]).dictionary_encode()
    assert refused(ad.tensor, numbers).reason == "dtype"
    assert np.asarray(ad.tensor(ad.array(numbers).dictionary)).tolist() == [5, 7]
    # within lists and batches, too
    lists = pa.FixedSizeListArray.from_arrays(numbers[:2], 2)
    assert refused(ad.tensor, lists).reason == "dtype"
    assert refused(ad.tensor, pa.record_batch({"a": numbers})).reason == "dtype"


# --- elements without an Arrow type ------------------------------------------------------------

ELEMENTS = {
    "text": np.array(["a", "bc"]),
    "bytes": np.array([b"a", b"bc"]),
    "objects": np.array([1, None], object),
    "long double": np.ones(2, "g"),
    "complex of them": np.ones(2, "G"),
    "days": np.array([1, 2], "M8[D]"),
    "picoseconds": np.array([1, 2], "m8[ps]"),
    "several": np.zeros(2, "i4,f8"),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_are_refused_with_a_valid_hint(name):
    x = ELEMENTS[name]
    for convert in (ad.array, ad.tensor):
        error = refused(convert, x)
        assert error.reason == "dtype"
    hint = error.hint.replace('x["name"]', '["f1"]')
    ways = re.findall(r'(?:pyarrow\.array|\.astype|\.view|\["f1"\]\.copy)\([^)]*\)', hint)
    assert ways
    for way in set(ways) - {".view()"}:  # whose argument is any type of the same width
        way = way if way.startswith("pyarrow") else f"x{way}"
        assert len(ad.array(eval(way, {"x": x, "pyarrow": pa}))) == 2


@pytest.mark.parametrize(
    ("x", "reason"),
    [(np.arange(6).reshape(2, 3).T, "strides"), (np.arange(4, dtype=">i4"), "byteorder")],
    ids=["strides", "byteorder"],
)
def test_refused_copies(x, reason):
    error = refused(ad.array, x, copy=False)
    assert error.reason == reason and error.hint
    assert ad.array(x).to_pylist() == x.tolist()
    if reason == "byteorder":
        way = re.search(r"\.astype\(.*\)", error.hint)[0].partition(" for ")[0]
        assert ad.array(eval(f"x{way}"), copy=False).to_pylist() == x.tolist()
    else:
        assert "copy=None" in error.hint


# --- lifetimes ----------------------------------------------------------------------------------


class Owner:
    pass


def block(owner, dtype="int64", shape=(4, 3)):
    memory = np.zeros(shape, dtype)
    owner.memory = memory
    return ad.Tensor.from_pointer(memory.ctypes.data, shape, dtype, "cpu", owner=owner)


def lists_over(tensor, *offsets):
    child = ad.Array.from_buffers("int64", 12, [None, tensor.into(np.ndarray).ravel()])
    return ad.Array.from_buffers(
        pa.list_(pa.int64()), 2, [None, np.array(offsets, "i4")], children=[child]
    )


FAILURES = {
    "names": lambda t: ad.record_batch(t, names=["a"]),
    "names that are none": lambda t: ad.record_batch(t, names=["a", "b", 3]),
    "rows without a copy": lambda t: ad.record_batch(t, names=["a", "b", "c"], copy=False),
    "one dimension": lambda t: ad.record_batch(ad.tensor(ad.array(t).children[0]), names=["a"]),
    "two types": lambda t: ad.tensor(ad.record_batch({"a": ad.array(t), "b": np.zeros(4)})),
    "unequal lists": lambda t: ad.tensor(lists_over(t, 0, 2, 3)),
    "offsets": lambda t: ad.tensor(lists_over(t, 0, 9, 18)),
    "order": lambda t: ad.tensor(ad.record_batch(t, names=["a", "b", "c"]), order="C", copy=False),
    "type": lambda t: ad.array(t, "int64"),
    "requested": lambda t: t.__arrow_c_device_array__(pa.string().__arrow_c_schema__()),
    "view": lambda t: ad.array(t).view("int64"),
    "validity": lambda t: ad.array(t, validity=[True]),
}


@pytest.mark.parametrize("fail", FAILURES.values(), ids=FAILURES)
def test_failure_holds_no_reference(fail):
    owner = Owner()
    alive = weakref.ref(owner)
    tensor = block(owner)
    with pytest.raises((ad.ExchangeError, ad.InvalidArrowError, ValueError, TypeError)):
        fail(tensor)
    del owner, tensor
    assert is_gone(alive)


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[us]", ">i4", "S3", "i4,f4"])
def test_refusal_holds_no_reference(dtype):
    data = np.zeros(4, dtype)
    alive = weakref.ref(data)
    refused(ad.tensor, data, copy=False)
    refused(ad.array, data, "utf8")
    del data
    assert is_gone(alive)


# --- wrong metadata ---------------------------------------------------------------------------


def tensor_type(text, size=6, format="+w:{}", child="i", name=b"arrow.fixed_shape_tensor"):
    """A column of two rows whose extension has these metadata."""
    field = pa.field(
        "x",
        pa.list_(pa.int32(), size) if format == "+w:{}" else pa.int32(),
        metadata={NAME: name, METADATA: text},
    )
    child = np.zeros(2 * size, "i4")
    if format != "+w:{}":
        return ad.Array.from_buffers(field, 2, [None, child])
    return ad.Array.from_buffers(field, 2, [None], children=[child])


GOOD = {"shape": [2, 3]}
BAD = {
    "no JSON": "shape 2 3",
    "cut off": '{"shape": [2, 3]',
    "cut off in a string": '{"shape": [2, 3], "dim_names": ["a',
    "cut off in an escape": '{"shape": [2, 3], "x": "\\',
    "text behind": '{"shape": [2, 3]} x',
    "two objects": '{"shape": [2, 3]}{}',
    "an array": "[2, 3]",
    "nothing": "",
    "null": "null",
    "no shape": "{}",
    "shape null": '{"shape": null}',
    "shape a number": '{"shape": 6}',
    "shape a text": '{"shape": "2,3"}',
    "a fraction": '{"shape": [2.5, 3]}',
    "an exponent": '{"shape": [2e0, 3]}',
    "texts": '{"shape": ["2", "3"]}',
    "negative": '{"shape": [-2, -3]}',
    "another product": '{"shape": [2, 4]}',
    "a product that wraps": json.dumps({"shape": [1 << 33, (1 << 31) + 3]}),
    "a product of 2^64 + 6": json.dumps({"shape": [2, 3, 1 << 32, 1 << 32]}),
    "an extent that wraps": json.dumps({"shape": [(1 << 64) + 2, 3]}),
    "hidden by a zero": json.dumps({"shape": [0, 1 << 62, 1 << 62]}),
    "too many": json.dumps({"shape": [1] * 65 + [6]}),
    "trailing comma": '{"shape": [2, 3,]}',
    "no permutation: short": '{"shape": [2, 3], "permutation": [0]}',
    "no permutation: twice": '{"shape": [2, 3], "permutation": [1, 1]}',
    "no permutation: beyond": '{"shape": [2, 3], "permutation": [0, 2]}',
    "no permutation: negative": '{"shape": [2, 3], "permutation": [-1, 0]}',
    "no permutation: long": '{"shape": [2, 3], "permutation": [0, 1, 2]}',
    "no permutation: texts": '{"shape": [2, 3], "permutation": ["0", "1"]}',
    "names: too few": '{"shape": [2, 3], "dim_names": ["a"]}',
    "names: numbers": '{"shape": [2, 3], "dim_names": [1, 2]}',
    "NUL": '{"shape": [2, 3]}\0',
    "deep": '{"x": ' + "[" * 10_000 + "]" * 10_000 + ', "shape": [2, 3]}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_wrong_tensor_metadata(text):
    array = tensor_type(text)
    with pytest.raises(ad.InvalidArrowError):
        ad.tensor(array)
    assert not hasattr(array, "__dlpack__")
    assert "fixed_shape_tensor" in repr(array)
    # the stored values are still readable
    assert ad.tensor(array.children[0]).shape == (12,)


@pytest.mark.parametrize("form", ["wrong storage", "not a list"])
def test_tensor_storage_of_wrong_type(form):
    text = json.dumps(GOOD)
    array = tensor_type(text, size=5) if form == "wrong storage" else tensor_type(text, format="i")
    with pytest.raises(ad.InvalidArrowError, match="fixed_shape_tensor"):
        ad.tensor(array)


def test_correct_tensor_metadata():
    for text in (
        json.dumps(GOOD),
        '  { "shape" : [ 2 , 3 ] } ',
        '{"other": {"a": [1.5e3, null, true, "\\u00e9\\n"]}, "shape": [2, 3]}',
        '{"shape": [2, 3], "permutation": [1, 0], "dim_names": ["\\u00e9", ""]}',
    ):
        array = tensor_type(text)
        assert ad.tensor(array).shape == ((2, 3, 2) if "permutation" in text else (2, 2, 3))


DLPACK = {
    "no JSON": "bfloat16",
    "nothing": "",
    "no code": '{"bits": 32, "lanes": 1}',
    "no bits": '{"code": 2, "lanes": 1}',
    "no lanes": '{"code": 2, "bits": 32}',
    "code": '{"code": 256, "bits": 32, "lanes": 1}',
    "code negative": '{"code": -1, "bits": 32, "lanes": 1}',
    "bits 0": '{"code": 2, "bits": 0, "lanes": 1}',
    "bits 256": '{"code": 2, "bits": 256, "lanes": 1}',
    "lanes 0": '{"code": 2, "bits": 32, "lanes": 0}',
    "lanes 65536": '{"code": 2, "bits": 32, "lanes": 65536}',
    "narrower": '{"code": 2, "bits": 16, "lanes": 1}',
    "wider": '{"code": 2, "bits": 32, "lanes": 2}',
    "text": '{"code": "2", "bits": 32, "lanes": 1}',
}


@pytest.mark.parametrize("text", DLPACK.values(), ids=DLPACK)
def test_wrong_dlpack_metadata(text):
    array = tensor_type(text, format="i", name=b"arrowdev.dlpack")
    with pytest.raises(ad.InvalidArrowError):
        ad.tensor(array)
    with pytest.raises(ad.InvalidArrowError):
        array.to_pylist()
    assert ad.tensor(array.view("int32")).dtype == "int32"


def test_wrong_bool8_storage():
    for text, format in (("x", "i"), ("", "i")):
        array = tensor_type(text, format=format, name=b"arrow.bool8")
        with pytest.raises(ad.InvalidArrowError):
            ad.tensor(array)


def test_wrong_metadata_of_elements():
    """The row metadata are correct, and the element metadata are wrong."""
    inner = pa.field("item", pa.int32(), metadata={NAME: b"arrowdev.dlpack", METADATA: b"{}"})
    field = pa.field(
        "x",
        pa.list_(inner, 6),
        metadata={NAME: b"arrow.fixed_shape_tensor", METADATA: json.dumps(GOOD)},
    )
    array = ad.Array.from_buffers(field, 2, [None], children=[np.zeros(12, "i4")])
    with pytest.raises(ad.InvalidArrowError, match=r"arrowdev\.dlpack"):
        ad.tensor(array)
