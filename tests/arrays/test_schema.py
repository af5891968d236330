"""ad.schema() and ad.Schema."""

import re

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
def test_str_of_flat_type_is_a_name(type):
    nested = (pa.StructType, pa.DictionaryType, pa.BaseExtensionType)
    if type.num_fields == 0 and not isinstance(type, nested):
        assert ad.schema(str(type)) == ad.schema(type)


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
        ("list<int32>", "nested.*__arrow_c_schema__"),
        ("struct", "nested"),
        ("struct<a: int32>", "nested"),
        ("dictionary<values=string>", "nested"),
        ("+s", "children.*pyarrow type"),
        ("+l", "children"),
        ("int32\0", "NUL"),
    ],
)
def test_unknown_names(name, text):
    with pytest.raises(ValueError, match=text):
        ad.schema(name)


@pytest.mark.parametrize("value", [None, 5, b"int32", int, pa, ["int32"]])
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
