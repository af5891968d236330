"""ad.schema() and ad.Schema."""

import random
import re
from types import MappingProxyType

import pytest
from arrow_ctypes import SchemaNode, WithSchema, metadata
from arrow_samples import SAMPLES
from loops import looped

import arrowdev as ad

pa = pytest.importorskip("pyarrow")

INT = pa.int32()

# A type for every format string of the C data interface that pyarrow supports.
FORMATS = {
    "n": pa.null(),
    "b": pa.bool_(),
    "c": pa.int8(),
    "C": pa.uint8(),
    "s": pa.int16(),
    "S": pa.uint16(),
    "i": pa.int32(),
    "I": pa.uint32(),
    "l": pa.int64(),
    "L": pa.uint64(),
    "e": pa.float16(),
    "f": pa.float32(),
    "g": pa.float64(),
    "z": pa.binary(),
    "Z": pa.large_binary(),
    "vz": pa.binary_view(),
    "u": pa.string(),
    "U": pa.large_string(),
    "vu": pa.string_view(),
    "d:19,10": pa.decimal128(19, 10),
    "d:19,-10": pa.decimal128(19, -10),
    "d:5,2,32": pa.decimal32(5, 2),
    "d:15,2,64": pa.decimal64(15, 2),
    "d:70,2,256": pa.decimal256(70, 2),
    "w:0": pa.binary(0),
    "w:42": pa.binary(42),
    "tdD": pa.date32(),
    "tdm": pa.date64(),
    "tts": pa.time32("s"),
    "ttm": pa.time32("ms"),
    "ttu": pa.time64("us"),
    "ttn": pa.time64("ns"),
    "tss:": pa.timestamp("s"),
    "tsm:": pa.timestamp("ms"),
    "tsu:": pa.timestamp("us"),
    "tsn:": pa.timestamp("ns"),
    "tsn:Europe/Berlin": pa.timestamp("ns", "Europe/Berlin"),
    "tDs": pa.duration("s"),
    "tDm": pa.duration("ms"),
    "tDu": pa.duration("us"),
    "tDn": pa.duration("ns"),
    "tin": pa.month_day_nano_interval(),
    "+l": pa.list_(INT),
    "+L": pa.large_list(pa.field("x", INT, nullable=False)),
    "+vl": pa.list_view(INT),
    "+vL": pa.large_list_view(INT),
    "+w:3": pa.list_(INT, 3),
    "+s": pa.struct([pa.field("a", INT), pa.field("b", pa.string(), nullable=False)]),
    "+m": pa.map_(pa.string(), INT),
    "+ud:4,5": pa.dense_union([pa.field("a", INT), pa.field("b", pa.string())], [4, 5]),
    "+us:0,1": pa.sparse_union([pa.field("a", INT), pa.field("b", pa.string())]),
    "+r": pa.run_end_encoded(pa.int16(), pa.string()),
}

NESTED = {
    "keys sorted": pa.map_(pa.string(), pa.list_(INT), keys_sorted=True),
    "map not null": pa.map_(pa.string(), pa.field("value", INT, nullable=False)),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "ordered": pa.dictionary(pa.uint16(), pa.list_(pa.float64()), ordered=True),
    "deep": pa.list_(pa.struct([("a", pa.list_(pa.map_(INT, pa.list_(INT, 2))))])),
    "dictionary in struct": pa.struct([("d", pa.dictionary(INT, pa.large_string()))]),
    "bool8": pa.bool8(),
    "json": pa.json_(),
    "uuid": pa.uuid(),
    "tensor": pa.fixed_shape_tensor(pa.float32(), [2, 3]),
    "permuted": pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0]),
    "no fields": pa.struct([]),
}

# Intentionally more detailed than pyarrow.
OUR_STR = {
    NESTED["json"]: "extension<arrow.json: string>",
    NESTED["uuid"]: "extension<arrow.uuid: fixed_size_binary[16]>",
    NESTED["map not null"]: "map<string, int32 not null>",
}

# A tensor's names, which pyarrow takes, too.
FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}

TYPES = [*FORMATS.values(), *NESTED.values()]
every_type = pytest.mark.parametrize("type", TYPES, ids=[*FORMATS, *NESTED])


@looped(("format", "type"), FORMATS.items())
def test_format(format, type):
    schema = ad.schema(type)
    assert schema.format == format
    if type.num_fields == 0:
        assert ad.schema(format) == schema
        assert pa.DataType._import_from_c_capsule(ad.schema(format).__arrow_c_schema__()) == type


@every_type
def test_round_trip(type):
    schema = ad.schema(type)
    assert pa.DataType._import_from_c_capsule(schema.__arrow_c_schema__()) == type
    assert ad.schema(schema) is not None and ad.schema(schema) == schema
    assert schema.equals(type)
    nullable = type == pa.null()  # pyarrow has no non-nullable null type
    field = pa.field("ü", type, nullable=nullable, metadata={"k": "v"})
    found = ad.schema(field)
    assert (found.name, found.nullable) == ("ü", nullable)
    assert found.metadata[b"k"] == b"v"
    assert pa.field(found).equals(field, check_metadata=True)
    assert found.equals(ad.schema(pa.field("other", type, nullable=nullable)))


@looped("type", TYPES)
def test_str_equals_that_of_pyarrow_but_for_floats(type):
    theirs = OUR_STR.get(type, str(type))
    expected = re.sub(r"\b(halffloat|float|double)\b", lambda name: FLOATS[name[0]], theirs)
    assert str(ad.schema(type)) == expected
    assert repr(ad.schema(type)) == f"<arrowdev.Schema {expected}>"
    if type != pa.null():
        field = ad.schema(pa.field("x", type, nullable=False))
        assert str(field) == expected
        assert repr(field) == f"<arrowdev.Schema {expected} not null name='x'>"


@pytest.mark.parametrize(
    ("format", "name"), [("tiM", "month_interval"), ("tiD", "day_time_interval")]
)
def test_types_missing_in_pyarrow(format, name):
    assert ad.schema(format).format == format
    assert str(ad.schema(format)) == name
    assert ad.schema(name) == ad.schema(format)


def test_str_is_truncated():
    wide = pa.struct([(f"f{i}", pa.int8()) for i in range(50)])
    assert str(ad.schema(wide)).endswith("f19: int8, ...>")
    deep = pa.int8()
    for _ in range(30):
        deep = pa.list_(deep)
    assert "..." in str(ad.schema(deep))


# --- names ----------------------------------------------------------------------

NAMES = {
    "int": None,
    "na": "n",
    "null": "n",
    "bool": "b",
    "boolean": "b",
    "half": "e",
    "half_float": "e",
    "halffloat": "e",
    "float16": "e",
    "float": "f",
    "float32": "f",
    "double": "g",
    "float64": "g",
    "utf8": "u",
    "str": "u",
    "string": "u",
    "large_utf8": "U",
    "large_string": "U",
    "utf8_view": "vu",
    "string_view": "vu",
    "bytes": "z",
    "binary": "z",
    "large_binary": "Z",
    "binary_view": "vz",
    "date32": "tdD",
    "date32[day]": "tdD",
    "date64": "tdm",
    "date64[ms]": "tdm",
    "time32[s]": "tts",
    "time32[ms]": "ttm",
    "time64[us]": "ttu",
    "time64[ns]": "ttn",
    "timestamp[s]": "tss:",
    "timestamp[us, UTC]": "tsu:UTC",
    "timestamp[us,UTC]": "tsu:UTC",
    "timestamp[us, tz=Europe/Berlin]": "tsu:Europe/Berlin",
    "duration[ns]": "tDn",
    "decimal(10, 2)": "d:10,2",
    "decimal128(10,2)": "d:10,2",
    "decimal128(10)": "d:10,0",
    "decimal32(5, 2)": "d:5,2,32",
    "decimal64(5, 2)": "d:5,2,64",
    "decimal256(50, -2)": "d:50,-2,256",
    "fixed_size_binary[16]": "w:16",
    "binary[16]": "w:16",
    "month_day_nano_interval": "tin",
    "interval_months": "tiM",
}
del NAMES["int"]
NAMES |= {f"{kind}{bits}": None for kind in ("int", "uint") for bits in (8, 16, 32, 64)}


@looped(("name", "format"), NAMES.items())
def test_names(name, format):
    schema = ad.schema(name)
    assert schema.format == (format or ad.schema(pa.type_for_alias(name)).format)
    assert (schema.name, schema.nullable, schema.metadata) == ("", True, None)
    assert (schema.children, schema.dictionary) == ((), None)


@looped("type", TYPES)
def test_str_of_every_type_but_extensions_is_a_name(type):
    """That of pyarrow, too, which has other names of floats."""
    if not isinstance(type, pa.BaseExtensionType):
        assert ad.schema(str(ad.schema(type))).equals(type)
        if type != NESTED["map not null"]:  # which it prints as "map<string, int32 ('value')>"
            assert ad.schema(str(type)).equals(type)


def random_type(draw, depth=0):
    """A random type and whether its name says all of it."""
    flat = list(FORMATS.values())
    flat = [type for type in flat if type.num_fields == 0]
    nested = draw.randrange(9) if depth < 4 else 9

    def field(name, can_be_null=True):
        inner = random_type(draw, depth + 1)
        is_nullable = inner == pa.null() or not can_be_null or draw.random() < 0.5
        return pa.field(name, inner, nullable=is_nullable)

    n_fields = draw.randrange(4) if nested in (0, 6) else 0
    names = draw.choices(["a", "b c", "ü", "sum(x)", "x[0]", "not null", "1", ""], k=n_fields)
    fields = [field(name) for name in names]
    match nested:
        case 0:
            return pa.struct(fields)
        case 1:
            return pa.map_(
                random_type(draw, depth + 1), random_type(draw, depth + 1), draw.random() < 0.5
            )
        case 2:
            make = draw.choice([pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
            return make(field("item"))
        case 3:
            return pa.list_(field("x"), draw.randrange(4))
        case 4:
            index = draw.choice([pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
            return pa.dictionary(index, random_type(draw, depth + 1), draw.random() < 0.5)
        case 5:
            return pa.run_end_encoded(draw.choice([pa.int16(), pa.int64()]), draw.choice(flat))
        case 6:
            make = draw.choice([pa.sparse_union, pa.dense_union])
            return make(fields, draw.sample(range(128), len(fields)))
        case _:
            return draw.choice(flat)


def test_str_of_random_types_is_a_name():
    draw = random.Random(11)
    n_cut = 0
    for _ in range(400):
        schema = ad.schema(random_type(draw))
        if "..." in str(schema):  # deeper than str() shows
            n_cut += 1
            with pytest.raises(ValueError, match=r"not known|expected"):
                ad.schema(str(schema))
        else:
            assert ad.schema(str(schema)).equals(schema), str(schema)
    assert n_cut < 200


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("list<int32>", "list<item: int32>"),
        ("fixed_size_list< int8 >[3]", "fixed_size_list<item: int8>[3]"),
        ("struct<a:int32,b : string not null>", "struct<a: int32, b: string not null>"),
        ("dense_union<a: int8, b: utf8>", "dense_union<a: int8=0, b: string=1>"),
        (
            "dictionary<values=utf8,indices=int8>",
            "dictionary<values=string, indices=int8, ordered=0>",
        ),
        ("run_end_encoded<int32, utf8>", "run_end_encoded<run_ends: int32, values: string>"),
        ("map<key: utf8, value: list<int8>>", "map<string, list<item: int8>>"),
        ("struct<t: timestamp[us, +01:00]>", "struct<t: timestamp[us, tz=+01:00]>"),
    ],
)
def test_short_names_of_nested_types(short, long):
    assert str(ad.schema(short)) == long and ad.schema(short) == ad.schema(long)


def test_nested_names_are_nullable_unless_they_say_so():
    for name in ("int32", "list<int32>", "struct<a: int32>"):
        assert ad.schema(name).nullable and not ad.schema(f"{name} not null").nullable
    item = ad.schema("list<int32 not null>").children[0]
    assert (item.name, item.nullable) == ("item", False)
    entries = ad.schema("map<utf8, int8>").children[0]
    assert (entries.name, entries.nullable) == ("entries", False)
    assert [(x.name, x.nullable) for x in entries.children] == [("key", False), ("value", True)]


def test_names_are_types_of_data():
    rows = [[1, 2], None, []]
    assert ad.array(pa.array(rows), "list<int64>").to_pylist() == rows
    stream = ad.array_stream([pa.record_batch({"a": [1]})], schema={"a": "int64"})
    assert stream.read_all().to_pydict() == {"a": [1]}


# --- mappings and lists of fields -------------------------------------------------------


def test_fields_make_the_schema_of_a_batch():
    expected = ad.schema(pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))]))
    types = {"a": "int64", "b": "list<utf8>"}
    for fields in (
        types,
        MappingProxyType(types),
        list(types.items()),
        tuple(types.items()),
        [pa.field("a", pa.int64()), ad.schema(pa.field("b", pa.list_(pa.string())))],
        [("a", pa.int64()), pa.field("b", pa.list_(pa.string()))],
        pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
    ):
        assert ad.schema(fields) == expected
    batch = ad.record_batch({"a": pa.array([1]), "b": pa.array([["x"]])})
    assert batch.schema == expected == ad.schema(batch)


def test_fields_within_fields():
    found = ad.schema({"a": {"x": "int8 not null", "y": [("z", "utf8")]}, "b": "int8 not null"})
    assert (
        str(found) == "struct<a: struct<x: int8 not null, y: struct<z: string>>, b: int8 not null>"
    )
    assert not found.nullable and found.children[0].nullable
    assert ad.schema({}) == ad.schema([]) == ad.schema(pa.schema([]))
    again = ad.schema([("a", "int8"), ("a", "utf8")])
    assert str(again) == "struct<a: int8, a: string>"


def test_fields_keep_metadata_and_names():
    field = pa.field("a", pa.int8(), nullable=False, metadata={"k": "v"})
    found = ad.schema([field, ("b", field)])
    assert [x.name for x in found.children] == ["a", "b"]
    assert {x.metadata[b"k"] for x in found.children} == {b"v"}
    assert not any(x.nullable for x in found.children)


@pytest.mark.parametrize(
    "fields",
    [["int32"], [("a",)], [pa.int8()], {1: "int8"}, [("a", "int8", True)], [(None, "int8")]],
)
def test_fields_without_names(fields):
    with pytest.raises(TypeError, match=r"a field is a pair \(name, type\), or an object"):
        ad.schema(fields)


def test_fields_of_no_type():
    with pytest.raises(ValueError, match='field "a": type name "foo" is not known'):
        ad.schema({"a": "foo"})
    with pytest.raises(TypeError, match='field "a": a type is a str'):
        ad.schema({"a": int})
    with pytest.raises(ValueError, match="NUL"):
        ad.schema({"a\0": "int8"})
    endless = []
    endless.append(("a", endless))
    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        ad.schema(endless)
    deep = "int8"
    for _ in range(70):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        ad.schema(deep)


# --- parameters -------------------------------------------------------------------------

PARAMETERS = {
    "unit": {
        "timestamp[us]": "us",
        "timestamp[s, UTC]": "s",
        "time32[ms]": "ms",
        "duration[ns]": "ns",
    },
    "timezone": {"timestamp[us]": None, "timestamp[s, Europe/Berlin]": "Europe/Berlin"},
    "precision": {"decimal32(5, 2)": 5, "decimal256(50, -2)": 50},
    "scale": {"decimal128(5, 2)": 2, "decimal256(50, -2)": -2},
    "list_size": {"fixed_size_list<int8>[3]": 3},
    "byte_width": {"int32": 4, "fixed_size_binary[5]": 5, "decimal128(3, 1)": 16, "date64": 8},
    "fields": {
        "struct<a: int8, b: utf8>": ["int8", "string"],
        "dense_union<a: int8>": ["int8"],
        "struct<>": [],
    },
    "value_type": {
        "list<int8>": "int8",
        "large_list_view<x: utf8>": "string",
        "fixed_size_list<int8>[3]": "int8",
        "map<utf8, int16>": "int16",
        "dictionary<values=utf8, indices=int8>": "string",
        "run_end_encoded<int32, date32>": "date32[day]",
    },
    "key_type": {"map<utf8, int16>": "string"},
    "index_type": {"dictionary<values=utf8, indices=uint16>": "uint16"},
}
OTHERS = {
    "unit": ["date64", "date32", "month_interval", "int64"],
    "byte_width": ["bool", "utf8", "list<int8>", "null", "struct<>"],
    "fields": ["list<int8>", "map<utf8, int8>", "int8"],
    "value_type": ["int8", "struct<a: list<int8>>", "dense_union<a: int8>"],
    "*": ["int32", "list<duration[s]>", "struct<a: int8>", "utf8"],
}
for kinds in OTHERS.values():
    kinds.append("dictionary<values=timestamp[s], indices=int8>")
OTHERS["value_type"].pop()
OTHERS["index_type"] = OTHERS["*"][:-1]


@looped("name", PARAMETERS)
def test_parameters(name):
    for type, expected in PARAMETERS[name].items():
        found = getattr(ad.schema(type), name)
        if isinstance(found, tuple):
            assert found == ad.schema(type).children and [str(x) for x in found] == expected
        else:
            assert (str(found) if isinstance(found, ad.Schema) else found) == expected
    for type in OTHERS.get(name, OTHERS["*"]):
        schema = ad.schema(type)
        assert not hasattr(schema, name)
        with pytest.raises(AttributeError, match=rf"have an? {name}|have fields") as info:
            getattr(schema, name)
        assert f"and this type is {schema}" in str(info.value)


def test_index_type_is_nullable_and_has_no_dictionary():
    index = ad.schema("dictionary<values=utf8, indices=int8>").index_type
    assert index == ad.schema("int8") and index.dictionary is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("int", "ambiguous.*int32"),
        ("uint", "number of bits"),
        ("int65", "not known"),
        ("", "not known"),
        ("Int32", "not known"),
        ("timestamp", "not known"),
        ("timestamp[xs]", "not known"),
        ("timestamp[us", "not known"),
        ("time32[us]", "not known"),
        ("time64[ms]", "not known"),
        ("decimal128(39, 0)", "not known"),
        ("decimal128(x, 0)", "not known"),
        ("fixed_size_binary[-1]", "not known"),
        ("w:-1", "not known"),
        ("struct", 'nested type "struct" lacks the types'),
        ("list", 'nested type "list" lacks the types .*__arrow_c_schema__'),
        ("list<foo>", 'type name "foo" is not known'),
        ("foo<int32>", 'type name "foo<int32>" is not known'),
        ("list<int32", 'expected ">" at the end of the type name "list<int32"'),
        ("list<int32>>", 'expected the end before ">"'),
        ("struct<int32>", 'expected "name: type" before "int32>"'),
        ("struct<a: int32, b>", 'expected "name: type" before "b>"'),
        ("map<string>", 'expected "," and a type before ">"'),
        ("fixed_size_list<int8>", r'expected the size, as in "\[2\]"'),
        ("fixed_size_list<int8>[-1]", "a list size of 0 or more"),
        ("dense_union<a: int8=300>", "numbers from 0 to 127"),
        ("run_end_encoded<run_ends: int8, values: int8>", "instead of an int16"),
        ("dictionary<values=string, indices=float32>", "instead of an integer"),
        ("dictionary<values=string>", 'expected ", indices="'),
        ("list<" * 65 + "int8" + ">" * 65, "nested deeper than 64 levels"),
        ("extension<arrow.bool8>", "extension type cannot be given by name.*pyarrow type"),
        ("+s", "children.*pyarrow type"),
        ("+l", "children"),
        ("int32\0", "NUL"),
    ],
)
def test_unknown_names(name, text):
    with pytest.raises(ValueError, match=text):
        ad.schema(name)


@pytest.mark.parametrize("value", [None, 5, b"int32", int, pa, {"int32"}])
def test_value_that_is_not_a_type(value):
    with pytest.raises(TypeError, match="__arrow_c_schema__"):
        ad.schema(value)


def test_schema_of_objects_with_a_schema():
    table = pa.table({"a": [1]})
    for source in (
        pa.struct([("a", pa.int64())]),
        table.schema,
        ad.array(table),
        ad.as_host(table),
        ad.as_device(table),
    ):
        assert str(ad.schema(source)) == "struct<a: int64>"
    tensor = ad.tensor(pa.array([1]))
    assert str(ad.schema(tensor)) == "int64"
    assert ad.schema(table.schema.__arrow_c_schema__()).format == "+s"


def test_capsule_is_consumed_once():
    capsule = pa.int8().__arrow_c_schema__()
    ad.schema(capsule)
    with pytest.raises(ad.ExchangeError) as info:
        ad.schema(capsule)
    assert info.value.reason == "consumed"


# --- members --------------------------------------------------------------------


def test_children():
    schema = ad.schema(FORMATS["+s"])
    a, b = schema.children
    assert (a.name, a.format, a.nullable) == ("a", "i", True)
    assert (b.name, b.format, b.nullable) == ("b", "u", False)
    del schema
    assert a.name == "a"


def test_dictionary():
    schema = ad.schema(NESTED["ordered"])
    assert schema.format == "S" and schema.dictionary_ordered
    assert str(schema.dictionary) == "list<item: float64>"
    assert not ad.schema(NESTED["dictionary"]).dictionary_ordered
    assert ad.schema(NESTED["keys sorted"]).map_keys_sorted
    assert not ad.schema(FORMATS["+m"]).map_keys_sorted


def test_metadata():
    schema = pa.schema(
        [pa.field("a", INT, metadata={b"\xff\0": b"\0"})], metadata={"x": "", "": "y"}
    )
    found = ad.schema(schema)
    assert found.metadata == {b"x": b"", b"": b"y"}
    assert found.children[0].metadata == {b"\xff\0": b"\0"}
    assert ad.schema(INT).metadata is None
    found.metadata.clear()  # metadata is a copy
    assert found.metadata == {b"x": b"", b"": b"y"}
    assert pa.schema(found).equals(schema, check_metadata=True)


def test_duplicate_metadata_key():
    node = SchemaNode("i", metadata=metadata((b"k", b"1"), (b"k", b"2")))
    assert ad.schema(WithSchema(node)).metadata == {b"k": b"2"}


# --- equality -------------------------------------------------------------------


def test_equality_is_strict():
    def make(name="x", type=INT, **options):
        return ad.schema(pa.field(name, type, **options))

    base = make()
    assert base == make() and hash(base) == hash(make()) and (base != make()) is False
    others = [
        make(name="y"),
        make(type=pa.int64()),
        make(nullable=False),
        make(metadata={"k": "v"}),
        make(type=pa.list_(INT)),
        make(type=pa.dictionary(INT, pa.string())),
    ]
    for other in others:
        assert base != other
    assert base != INT and base != "int32"
    with pytest.raises(TypeError):
        base < base  # noqa: B015
    assert base.equals(others[0]) and base.equals("int32") and base.equals(INT)
    assert base.equals(others[3]) and not base.equals(others[3], check_metadata=True)
    assert base.equals(make(), check_metadata=True)
    for other in others[1:3] + others[4:]:
        assert not base.equals(other)


def test_equality_compares_child_names():
    a, b = (ad.schema(pa.struct([(name, INT)])) for name in "ab")
    assert a != b and not a.equals(b)
    plain = ad.schema(pa.struct([pa.field("a", INT, metadata={"k": "v"})]))
    assert a != plain and a.equals(plain) and not a.equals(plain, True)


OVER_A_FIELD = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "fixed_size_list": lambda field: pa.list_(field, 2),
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
    "list of lists": lambda field: pa.list_(pa.list_(field)),
    "list of structs": lambda field: pa.list_(pa.struct([field])),
    "map of keys": lambda field: pa.map_(field.with_nullable(False), INT),
    "map of values": lambda field: pa.map_(INT, field),
    "map of structs": lambda field: pa.map_(INT, pa.struct([field])),
    "map in a struct": lambda field: pa.struct([("m", pa.map_(INT, field))]),
    "struct": lambda field: pa.struct([field]),
    "sparse_union": lambda field: pa.sparse_union([field]),
    "dense_union": lambda field: pa.dense_union([field]),
    "dictionary": lambda field: pa.dictionary(pa.int8(), pa.list_(field)),
}


@pytest.mark.parametrize("name", OVER_A_FIELD)
def test_equals_as_pyarrow(name):
    """Which names, flags and metadata below a type count, without and with check_metadata."""
    fields = [
        pa.field("a", INT),
        pa.field("b", INT),
        pa.field("a", INT, nullable=False),
        pa.field("a", INT, metadata={"k": "v"}),
        pa.field("a", pa.int64()),
    ]
    types = [OVER_A_FIELD[name](field) for field in fields]
    for a in types:
        for b in types:
            # pyarrow does not look for metadata below a dictionary.
            for check in (False, True)[: 1 if name == "dictionary" else 2]:
                expected = a.equals(b, check_metadata=check)
                assert ad.schema(a).equals(b, check_metadata=check) is expected, (a, b, check)


def test_names_of_entries_and_run_ends_do_not_count():
    def of(format, *children):
        return ad.schema(WithSchema(SchemaNode(format, children=list(children))))

    def entries(name, key, value):
        below = [SchemaNode("i", name=key, flags=0), SchemaNode("i", name=value)]
        return SchemaNode("+s", name=name, children=below, flags=0)

    for make in (
        lambda names: of("+m", entries("entries", *names)),
        lambda names: of("+m", entries(names[0], "key", names[1])),
        lambda names: of("+r", *(SchemaNode("i", name=name, flags=0) for name in names)),
    ):
        a, b = make(["a", "b"]), make(["c", "d"])
        assert a.equals(b) and not a.equals(b, check_metadata=True) and a != b


def test_order_of_metadata_pairs():
    one, other = (
        ad.schema(WithSchema(SchemaNode("i", metadata=metadata(*pairs))))
        for pairs in (((b"a", b"1"), (b"b", b"2")), ((b"b", b"2"), (b"a", b"1")))
    )
    assert one.metadata == other.metadata
    assert (one == other) is one.equals(other, check_metadata=True)


@pytest.mark.parametrize("args", [(), (5,), ("nope",), ("int32", True, 1)])
def test_equals_arguments(args):
    with pytest.raises((TypeError, ValueError)):
        ad.schema("int32").equals(*args)


@looped("name", SAMPLES)
def test_arrays_have_the_schema_of_their_type(name):
    source = SAMPLES[name]
    assert ad.array(source).schema == ad.schema(source.type)
