"""Valid structs of many types with one to three fields changed: accepted or refused, no crash.

pyarrow's own structs are copied node by node, so that the changes are in our copies
and pyarrow's release functions find their own values. Pointers are changed to
NULL or to other structs of the right kind only. Counts beyond the mapped memory
are either too large to be accepted or within the slack of the lists. The
copies claim to be on a CUDA device, so that their data must not be read.
"""

import ctypes
import os

import arrow_ctypes as ac
import pytest
from hostile import nodes_of

import arrowdev as ad

pa = pytest.importorskip("pyarrow")
hypothesis = pytest.importorskip("hypothesis")
from hypothesis import strategies as st  # noqa: E402


def pyarrow_arrays():
    ints = pa.array([1, None, 3, 4, 5])
    struct = pa.array([{"a": 1, "b": "x"}, None, {"a": 3, "b": None}])
    arrays = {
        "int64": ints,
        "sliced": ints.slice(1, 3),
        "bool": pa.array([True, None, False]),
        "null": pa.nulls(4),
        "float16": pa.array([1.5, None], pa.float16()),
        "decimal": pa.array([1, None, 2], pa.decimal128(10, 2)),
        "timestamp": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
        "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
        "fixed binary": pa.array([b"abc", None], pa.binary(3)),
        "string": pa.array(["a", None, "ccc"]),
        "large string": pa.array(["a", None, "ccc"], pa.large_string()),
        "string view": pa.array(["a", None, "c" * 40], pa.string_view()),
        "list": pa.array([[1, 2], None, [3]]),
        "large list": pa.array([[1], [2, 3]], pa.large_list(pa.int8())),
        "list view": pa.array([[1], None, [2, 3]], pa.list_view(pa.int32())),
        "fixed list": pa.array([[1, 2], [3, 4], None], pa.list_(pa.float32(), 2)),
        "struct": struct,
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "dictionary": pa.array(["a", "b", "a", None]).dictionary_encode(),
        "run ends": pa.RunEndEncodedArray.from_arrays(
            pa.array([2, 5], pa.int32()), pa.array(["x", None])
        ),
        "sparse union": pa.UnionArray.from_sparse(
            pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
        ),
        "dense union": pa.UnionArray.from_dense(
            pa.array([0, 1], pa.int8()),
            pa.array([0, 0], pa.int32()),
            [pa.array([1]), pa.array(["b"])],
        ),
        "nested": pa.array([[{"x": [1, None]}], None, []]),
        "empty": pa.array([], pa.list_(pa.struct([("a", pa.string())]))),
        "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(
            __import__("numpy").arange(12.0).reshape(2, 2, 3)
        ),
    }
    columns = ["int64", "string", "dictionary", "list"]
    arrays["batch"] = pa.record_batch(
        [arrays[name].slice(0, 2) for name in columns], names=columns
    ).to_struct_array()
    return arrays


ARRAYS = pyarrow_arrays()


class Copied:
    """Structs of pyarrow, to copy from and to restore."""

    def __init__(self, array):
        self.schema, self.array = ac.ArrowSchema(), ac.ArrowArray()
        array._export_to_c(ctypes.addressof(self.array), ctypes.addressof(self.schema))
        ac.keep((self, array))


SOURCES = {name: Copied(array) for name, array in ARRAYS.items()}


def at(kind, pointer):
    return kind.from_address(pointer)


def copy_schema(source):
    node = ac.SchemaNode(
        None,
        children=[copy_schema(child) for child in ac.children_of(source)],
        dictionary=copy_schema(at(ac.ArrowSchema, source.dictionary))
        if source.dictionary
        else None,
    )
    for field in ("format", "name", "metadata", "flags"):
        setattr(node.struct, field, getattr(source, field))
    return node


def copy_array(source):
    node = ac.ArrayNode(
        source.length,
        ac.buffers_of(source),
        null_count=source.null_count,
        offset=source.offset,
        children=[copy_array(child) for child in ac.children_of(source)],
        dictionary=copy_array(at(ac.ArrowArray, source.dictionary)) if source.dictionary else None,
    )
    return node


# --- mutations ------------------------------------------------------------------

SIZES = [-(2**63), -2, -1, 0, 1, 2, 3, 7, 2**31, 2**56, 2**60, 2**62, 2**63 - 1]
FORMATS = [
    ac.text(text)
    for text in (
        "", "n", "b", "c", "l", "g", "u", "U", "z", "vu", "vz", "+l", "+L", "+vl", "+s", "+m",
        "+r", "+w:2", "+w:0", "+w:-1", f"+w:{2**31}", f"+w:{2**63 - 1}", "w:3", "w:0", "w:-1",
        f"w:{2**31 - 1}", "+us:0,1", "+ud:1,0", "+us:", "+ud:5", "d:10,2", "d:10,2,256", "tsu:UTC",
        "tsu:", "tiM", "tdD", "?", "+", "ll", "%s", b"tsu:\xff",
    )
] + [None]  # fmt: skip
TEXTS = [None, *(ac.text(text) for text in ("", "a", b"\xff\xfe", "%n", "x" * 3000))]
METADATA = [
    None,
    ac.raw_metadata(-1),
    ac.raw_metadata(2**31 - 1),
    ac.raw_metadata(1, 2**31 - 1),
    ac.raw_metadata(3, 0, 0, 5),
    ac.metadata(),
    ac.metadata((b"ARROW:extension:name", b"arrow.bool8")),
    ac.metadata((b"ARROW:extension:name", b"arrow.fixed_shape_tensor")),
    ac.metadata(
        (b"ARROW:extension:name", b"arrow.fixed_shape_tensor"),
        (b"ARROW:extension:metadata", b'{"shape":[2,9223372036854775807]}'),
    ),
    ac.metadata(
        (b"ARROW:extension:name", b"arrowdev.dlpack"),
        (b"ARROW:extension:metadata", b'{"code":4,"bits":16,"lanes":1}'),
    ),
]


def near(count):
    """Wrong counts: slightly wrong, within the slack, or impossible."""
    return [-(2**63), -1, 0, count - 1, count + 1, count + ac.SLACK - 1, 2**31, 2**62, 2**63 - 1]


@st.composite
def mutations(draw, node, others):
    """A change: a node, one of its fields, and the new value."""
    struct = node.struct
    is_schema = isinstance(node, ac.SchemaNode)
    fields = ["n_children", "children", "child", "dictionary", "release"]
    fields += ["format", "name", "metadata", "flags"] if is_schema else [
        "length", "null_count", "offset", "n_buffers", "buffers", "buffer"
    ]  # fmt: skip
    field = draw(st.sampled_from(fields))
    if field == "n_children":
        value = draw(st.sampled_from(near(struct.n_children)))
    elif field == "n_buffers":
        value = draw(st.sampled_from(near(struct.n_buffers)))
    elif field in ("length", "null_count", "offset"):
        value = draw(st.sampled_from([*SIZES, getattr(struct, field) + 1]))
    elif field == "flags":
        value = draw(st.integers(-(2**63), 2**63 - 1))
    elif field == "format":
        value = draw(st.sampled_from(FORMATS))
    elif field == "name":
        value = draw(st.sampled_from(TEXTS))
    elif field == "metadata":
        value = draw(st.sampled_from(METADATA))
    elif field in ("child", "dictionary"):
        # Only deeper nodes: a tree with a cycle would grow without end.
        below = [other.address for other in nodes_of(node)][1:]
        value = draw(st.sampled_from([None, *below, *(leaf.address for leaf in others)]))
    else:
        value = None
    if field in ("child", "buffer"):
        name = "children" if field == "child" else "buffers"
        index = draw(st.integers(0, ac.SLACK - 1))
        if getattr(struct, name):
            (ctypes.c_void_p * ac.SLACK).from_address(getattr(struct, name))[index] = value
    else:
        setattr(struct, field, value)
    return field, value


def leaves():
    column = ac.numbers(1)
    return column.schema, column.array


def look_at_everything(array, depth=3):
    """Reads everything that an array tells without reading its memory."""
    repr(array), len(array), array.offset, array.null_count, array.device, array.dictionary
    repr(array.schema), hash(array.schema), str(array.schema), array.schema == array.schema
    for ask in (
        lambda: array.nbytes,
        lambda: array.buffers,
        lambda: array.validity,
        lambda: array.schema.metadata,
        lambda: array.validate(),
        lambda: array[1:],
        lambda: array[:1].__arrow_c_device_array__(),
        lambda: array.field(0),
        lambda: array.view("int64"),
        lambda: ad.tensor(array),
        lambda: ad.tensor(array, nulls="ignore"),
        lambda: array.__dlpack__(stream=-1),
        lambda: array.__arrow_c_device_stream__(),
        lambda: ad.record_batch([array], names=["a"]).__arrow_c_device_array__(),
    ):
        try:
            ask()
        except (ad.ExchangeError, ad.InvalidArrowError, AttributeError, IndexError, TypeError):
            pass
        except MemoryError:  # e.g. offsets of 2**60 rows that the host would have to read
            pass
    if depth:
        for child in array.children:
            look_at_everything(child, depth - 1)


EXAMPLES = int(os.environ.get("ARROWDEV_EXAMPLES", "60"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("way", [ac.OnDevice, ac.Host])
@hypothesis.settings(
    max_examples=EXAMPLES,
    derandomize=bool(os.environ.get("CI") or os.environ.get("ARROWDEV_NO_SKIPS")),
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(data=st.data())
def test_mutated(name, way, data):
    source = SOURCES[name]
    tree = ac.Tree(copy_schema(source.schema), copy_array(source.array))
    tree.device_type, tree.device_id = (ac.CUDA, 0) if way is ac.OnDevice else (ac.CPU, -1)
    other_schema, other_array = leaves()
    for _ in range(data.draw(st.integers(0, 3))):
        part, other = data.draw(
            st.sampled_from([(tree.schema, other_schema), (tree.array, other_array)])
        )
        node = data.draw(st.sampled_from(list(nodes_of(part))))
        hypothesis.note(data.draw(mutations(node, [other])))
    producer = way(tree)
    tree.device_pair()
    roots = tree.schema.raw(), tree.array.raw(), bytes(tree.device)
    try:
        array = ad.array(producer)
    except ad.InvalidArrowError as error:
        assert isinstance(error.path, str) and str(error)  # noqa: PT017
        array = None
    except ad.ExchangeError as error:
        assert error.reason == "consumed"  # noqa: PT017
        array = None
    if array is None:
        assert (tree.schema.raw(), tree.array.raw(), bytes(tree.device)) == roots
        assert tree.released == (0, 0)
        return
    if way is ac.OnDevice:
        look_at_everything(array)
    pair = array.__arrow_c_device_array__()
    again = ad.array(pair)
    repr(again)
    del array, pair
    assert tree.released == (0, 0)
    del again
    assert tree.released == (1, 1)
    for node in [*nodes_of(tree.schema), *nodes_of(tree.array)]:
        assert node.released <= 1


@pytest.mark.parametrize("name", SOURCES)
def test_unchanged(name):
    source = SOURCES[name]
    tree = ac.Tree(copy_schema(source.schema), copy_array(source.array))
    array = ad.array(ac.Host(tree))
    out = pa.array(array)
    assert out.equals(ARRAYS[name]) or name == "tensors"
    out.validate(full=True)
    del array, out
    assert tree.released == (1, 1)
