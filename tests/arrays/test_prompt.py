"""What a prompt and a notebook show: values in repr(), HTML, completions, the shape of a batch."""

import html.parser
import random
import re
import sys
import time
import tracemalloc

import pytest
from arrow_samples import SAMPLES
from loops import looped
from test_pylist import MALFORMED, i4

import arrowdev as ad
from arrowdev import _repr
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

LONGEST = 4_000  # characters of any repr


def values(obj):
    """The part of a repr behind the colon."""
    text = repr(obj)
    assert text.endswith(">") and len(text) <= LONGEST
    return text.partition(" on cpu: ")[2][:-1]


class Table(html.parser.HTMLParser):
    """The caption, the texts of the cells by row, and the sides to which a row's are aligned."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.sides, self.caption, self.open, self.tags = [], [], None, [], set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert {name for name, _ in attributes} <= {"style"}
        self.open.append(tag)
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
            self.sides.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.sides[-1] += re.findall(r"text-align:(\w+)", dict(attributes)["style"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] == "div":
            self.caption = data
        else:
            self.rows[-1][-1] += data


# --- repr ---------------------------------------------------------------------


def test_first_and_last_values():
    for n in range(11):
        assert values(ad.array(np.arange(n))) == str(list(range(n)))
    assert values(ad.array(np.arange(11))) == "[0, 1, 2, 3, 4, ..., 6, 7, 8, 9, 10]"
    assert values(ad.array(np.arange(2**40, 2**40 + 100))) == (
        "[1099511627776, 1099511627777, ..., 1099511627874, 1099511627875]"
    )


@pytest.mark.parametrize(
    ("type", "rows", "expected"),
    [
        ("bool", [True, None, False], "[True, None, False]"),
        ("float16", [0.1, 65504], "[0.1, 65500.0]"),
        ("float32", [0.1, 1e10, float("nan"), float("inf")], "[0.1, 10000000000.0, nan, inf]"),
        ("float64", [0.1, -0.0], "[0.1, -0.0]"),
        ("string", ["a'b\n", ""], "[\"a'b\\n\", '']"),
        ("binary", [b"\x00a"], "[b'\\x00a']"),
        ("date32", [0], "[1970-01-01]"),
        ("timestamp[s]", [10**9, None], "[2001-09-09 01:46:40, None]"),
        ("timestamp[ns]", [1], "[1 ns]"),  # which datetime cannot hold
        ("timestamp[s]", [2**60], "[1152921504606846976 s]"),
        ("duration[ms]", [-1500], "[-1500 ms]"),
        ("time64[us]", [1], "[00:00:00.000001]"),
        ("null", [None] * 2, "[None, None]"),
    ],
)
def test_values_by_type(monkeypatch, type, rows, expected):
    monkeypatch.delitem(sys.modules, "pandas", raising=False)  # it has types for nanoseconds
    of_arrow = {
        "bool": pa.bool_(),
        "timestamp[s]": pa.timestamp("s"),
        "timestamp[ns]": pa.timestamp("ns"),
    }
    of_arrow |= {"duration[ms]": pa.duration("ms"), "time64[us]": pa.time64("us")}
    column = pa.array(rows, of_arrow.get(type) or getattr(pa, type)())
    assert values(ad.array(column)) == expected


def test_nested_values():
    rows = [{"a": [1, None], "b": {"c": "x"}}, None]
    assert values(ad.array(pa.array(rows))) == "[{'a': [1, None], 'b': {'c': 'x'}}, None]"
    pairs = pa.array([[("k", 1), ("l", None)]], pa.map_(pa.string(), pa.int8()))
    assert values(ad.array(pairs)) == "[[('k', 1), ('l', None)]]"
    assert values(ad.array(pa.array([list(range(9))]))) == "[[0, 1, 2, ..., 6, 7, 8]]"


@looped("name", SAMPLES)
def test_every_type_and_slice(name):
    array = ad.array(SAMPLES[name])
    shown = _repr._edges(0, len(array), _repr.EDGE)
    assert _repr.UNREADABLE not in values(array)
    for part in (array[3:7], array[:0], array[:1], array[20:]):
        text = values(part)
        expected = part.to_pylist()
        assert text.count("None") >= sum(row is None for row in expected)
        assert expected or name.startswith("struct") or text == "[]"
    assert len(shown) == 11


def test_columns_of_a_batch():
    batch = ad.record_batch({"a": np.arange(20), "b\n": pa.array(["x", None] * 10)})
    assert repr(batch) == (
        "<arrowdev.Array struct<a: int64, b\\n: string>, length 20, on cpu:\n"
        "  'a': [0, 1, 2, 3, 4, ..., 15, 16, 17, 18, 19]\n"
        "  'b\\n': ['x', None, 'x', None, 'x', ..., None, 'x', None, 'x', None]>"
    )
    assert repr(batch[18:]).endswith("'a': [18, 19]\n  'b\\n': ['x', None]>")
    with_null = ad.array(pa.array([{"a": 1}, None]))
    assert values(with_null) == "[{'a': 1}, None]"
    wide = ad.record_batch({f"c{i}": i4(i) for i in range(50)})
    assert len(repr(wide).splitlines()) == 1 + 20 + 1 and "... and 30 more>" in repr(wide)


def test_tensors():
    assert values(ad.tensor(np.arange(3))) == "[0, 1, 2]"
    assert values(ad.tensor(np.float32(0.1)[None])) == "[0.1]"
    assert values(ad.tensor(np.array(7.5))) == "7.5"
    assert values(ad.tensor(np.zeros((0, 3)))) == ""
    x = np.arange(6).reshape(2, 3)
    for array in (x, x.T, x[::-1, ::2], x[:, None]):
        lines = repr(ad.tensor(array)).partition(":\n")[2][:-1].split()
        assert " ".join(lines).replace(" ", "") == str(array.tolist()).replace(" ", "")
    assert repr(ad.tensor(x)) == (
        "<arrowdev.Tensor int64 (2, 3) on cpu:\n  [[0, 1, 2],\n   [3, 4, 5]]>"
    )
    large = repr(ad.tensor(np.zeros((100, 100, 100))))
    assert len(large) < LONGEST and "..." in large
    assert values(ad.tensor(np.array([1 + 2j]))) == "[(1+2j)]"
    assert values(ad.tensor(np.array([True, False]))) == "[True, False]"


def test_elements_without_a_value_are_left_out():
    memory = np.zeros(8, "u1")
    for dtype in ("opaque", "float4_e2m1fn", "float32x2"):
        tensor = ad.Tensor.from_pointer(memory.ctypes.data, (1,), dtype, "cpu", owner=memory)
        assert repr(tensor) == f"<arrowdev.Tensor {dtype} (1,) on cpu>"
    opaque = ad.Tensor.from_pointer(memory.ctypes.data, (1,), "opaque", "cpu", owner=memory)
    assert values(ad.array(opaque)) == "[?]"


def test_device_memory_is_not_shown():
    with software_device() as device:
        array = ad.array(device.array([1, 2, 3]))
        array.synchronize()
        n_calls = device.n_calls
        assert repr(array) == "<arrowdev.Array int64, length 3, on ext_dev:0>"
        assert "[" not in repr(array) and "[" not in repr(ad.tensor(array))
        batch = ad.record_batch({"a": array})
        assert "\n" not in repr(batch)
        assert device.n_calls == n_calls


def test_pinned_memory_is_shown_once_it_is_known_to_be_ready():
    """And a repr asks no runtime whether it is. Managed memory would move."""
    memory = i4(1, 2)

    def tensor(device, **options):
        return ad.Tensor.from_pointer(memory.ctypes.data, (2,), "int32", device, **options)

    assert repr(tensor("cuda_host:0")).endswith("on cuda_host:0: [1, 2]>")
    assert repr(tensor("cuda_host:0", stream=5)).endswith("on cuda_host:0, after stream>")
    assert repr(tensor("cuda_managed:0")).endswith("on cuda_managed:0>")


# --- rows that nobody validated -----------------------------------------------


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_rows_are_question_marks(name):
    make, row = MALFORMED[name]
    array = make()
    text = values(array)
    if name == "no UTF-8":
        assert text == "['a', '\N{REPLACEMENT CHARACTER}']"
    elif "run" not in name and "time" not in name:
        assert "?" in text
    assert repr(array[row : row + 1])
    batch = ad.record_batch([array, array], names=["x", "y"])
    assert repr(batch) and batch._repr_html_() and batch[:1]._repr_html_()


def test_random_numbers_in_every_offset():
    """Nothing is read outside of the buffers, and nothing is raised."""
    random.seed(7)
    types = [
        ("utf8", 2, "i4"),
        ("large_binary", 2, "i8"),
        (pa.list_(pa.int8()), 1, "i4"),
        (pa.large_list(pa.string()), 1, "i8"),
        (pa.map_(pa.int8(), pa.int8()), 1, "i4"),
    ]
    entries = ad.array(pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))).children[0]
    children = {1: ad.array(pa.array(["x"])), 0: ad.array(np.arange(2, dtype="i1"))}
    for type, n_buffers, offset in types:
        for _ in range(100):
            numbers = [random.choice([-(2**31), -1, 0, 1, 2, 3, 2**31 - 1]) for _ in range(5)]
            numbers[-1] = 1  # the size of the data
            buffers = [None, np.array(numbers, offset), b"abc"][: n_buffers + 1]
            below = [] if n_buffers == 2 else [children["string" in str(type)]]
            below = [entries] if "map" in str(type) else below
            array = ad.Array.from_buffers(type, 4, buffers, children=below)
            for part in (array, array[1:], array[2:3]):
                assert values(part)
                assert ad.record_batch([part], names=["x"])._repr_html_()


def quick(make):
    array = make()
    start = time.thread_time()  # that of others does not count
    text, table = repr(array), array._repr_html_()
    assert time.thread_time() - start < 1 and len(text) <= LONGEST
    assert table is None or len(table) < 40 * LONGEST
    return text


def test_billions_of_rows_are_quick():
    n = 4 * 10**9
    assert "length 4000000000" in quick(lambda: ad.Array.from_buffers("null", n, []))
    runs = pa.run_end_encoded(pa.int64(), pa.string())
    ends = np.arange(1, 10**6 + 1) * (n // 10**6)
    words = ad.array(pa.array(["w"] * 10**6))
    text = quick(lambda: ad.Array.from_buffers(runs, n, [], children=[ends, words]))
    assert "['w', 'w', 'w', 'w', 'w', ..., 'w'" in text
    empty = pa.struct([])
    assert "{}" in quick(lambda: ad.Array.from_buffers(empty, n, [None]))


def test_large_values_are_cut():
    text = "\U0001f600" * 10**6
    assert quick(lambda: ad.array(pa.array([text]))).count("\U0001f600") == 32
    quick(lambda: ad.array(pa.array([text.encode()], pa.binary())))
    quick(lambda: ad.array(pa.array([text], pa.string_view())))
    quick(lambda: ad.array(pa.array([b"x" * 10**7], pa.binary(10**7))))
    quick(lambda: ad.array(pa.array([list(range(10**5))])))
    quick(lambda: ad.array(pa.array([list(range(10**5))], pa.list_(pa.int64(), 10**5))))
    quick(lambda: ad.array(pa.array([{f"name{i}": i for i in range(2000)}])))
    quick(lambda: ad.record_batch({"n" * 10**6: i4(1)}))
    words = ad.array(pa.array([str(i) for i in range(10**6)]))
    index = ad.schema(pa.dictionary(pa.int32(), pa.string()))
    assert "'999999'" in quick(
        lambda: ad.Array.from_buffers(index, 1, [None, i4(10**6 - 1)], dictionary=words)
    )


def test_deep_nesting_is_cut():
    type = pa.int64()
    array = ad.array(np.arange(2))
    for _ in range(30):
        type = pa.list_(type)
        array = ad.Array.from_buffers(type, 2, [None, i4(0, 1, 2)], children=[array])
    assert quick(lambda: array).endswith(", on cpu: [[[[[[...]]]]], [[[[[...]]]]]]>")


@looped(
    "zone", ["Europe", "/etc/passwd", "../x", "x" * 300, ".", "zone.tab", "+99:99", "+x", "-1"]
)
def test_time_zone_that_is_none(zone):
    array = ad.Array.from_buffers(f"tsu:{zone}", 1, [None, np.array([7], "i8")])
    assert values(array) == "[7 us]"
    with pytest.raises(ValueError, match=r"the time zone '.*' is not known here"):
        array.to_pylist()


def test_wide_nesting_is_cut():
    """Each of the levels is short, and their product is not."""
    row, rows = "x" * 40, []
    for _ in range(5):
        row, rows = {f"f{i}": row for i in range(6)}, [rows] * 7
    for values in ([[row]] * 12, [rows] * 12):
        column = ad.array(pa.array(values))
        assert len(repr(column)) < 2 * LONGEST
        table = ad.record_batch({f"c{i}": column for i in range(20)})._repr_html_()
        assert len(table) < 100 * LONGEST
    zero = np.zeros(1)
    empty = ad.Tensor.from_pointer(zero.ctypes.data, (9,) * 8 + (0,), "int8", "cpu", owner=zero)
    assert len(repr(empty)) < LONGEST


def test_decimal_of_a_huge_scale():
    type = ad.schema("d:9,-2147483647")
    array = ad.Array.from_buffers(type, 1, [None, np.array([7, 0], "i8")])
    assert values(array) == "[7E+2147483647]"


# --- batches ------------------------------------------------------------------


def test_shape_of_a_batch():
    batch = ad.record_batch({"a": i4(1, 2, 3), "é": i4(4, 5, 6)})
    assert (batch.shape, batch.num_rows, batch.num_columns) == ((3, 2), 3, 2)
    assert batch.column_names == batch._ipython_key_completions_() == ["a", "é"]
    assert batch[1:].shape == (2, 2)
    assert {"shape", "num_rows", "column_names", "to_pylist"} <= set(dir(batch))
    with software_device() as device:
        assert batch.to("ext_dev:0").shape == (3, 2)
        assert device.n_calls > 0


def test_columns_have_no_shape():
    column = ad.array(i4(1, 2))
    for name in ("shape", "num_rows", "num_columns", "column_names"):
        assert not hasattr(column, name) and name not in dir(column)
        with pytest.raises(AttributeError, match=f"has {name}, and this Array is of type int32"):
            getattr(column, name)
    assert column._ipython_key_completions_() == [] and column._repr_html_() is None
    assert "to_pylist" in dir(column) and "__arrow_c_array__" in dir(column)


def test_html_of_a_batch():
    batch = ad.record_batch({"<b>": i4(*range(12)), "s": pa.array(["<i>&"] * 11 + [None])})
    table = Table(batch._repr_html_())
    assert table.caption == "arrowdev.Array, 12 rows x 2 columns, on cpu"
    assert table.rows[:2] == [["<b>", "s"], ["int32", "string"]]
    assert [row[0] for row in table.rows[2:]] == [*"01234", "...", *"789", "10", "11"]
    assert table.rows[2][1] == "'<i>&'" and table.rows[-1][1] == "None"
    assert table.tags == {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert table.sides == [["right", "left"]] * 13
    null = Table(ad.array(pa.array([{"a": 1}, None]))._repr_html_())
    assert null.rows[2:] == [["1"], ["None"]]
    wide = Table(ad.record_batch({f"c{i}": i4(i) for i in range(50)})._repr_html_())
    assert len(wide.rows[0]) == 21 and wide.rows[2][-1] == "..."
    assert Table(ad.array(pa.array([{}, {}]))._repr_html_()).rows[2:] == []


def test_numbers_in_html():
    types = ["float64", "float32", "float16"]
    rows = [1 / 3, -1234.5678912, 2.0, 0.1 + 0.2, 1e-9 / 3, 1e20 / 3, 0.0, float("nan"), None]
    columns = {type: pa.array(rows, pa.float64()).cast(type, safe=False) for type in types}
    table = Table(ad.record_batch(columns)._repr_html_())
    assert [row[0] for row in table.rows[2:]] == [
        *("0.333333", "-1234.567891", "2.0", "0.3", "3.333333e-10"),
        *("3.333333e+19", "0.0", "nan", "None"),
    ]
    assert [row[1] for row in table.rows[2:5]] == ["0.333333", "-1234.5679", "2.0"]
    assert [row[2] for row in table.rows[2:5]] == ["0.3333", "-1235.0", "2.0"]
    one = Table(ad.record_batch({"x": i4(1)})._repr_html_())
    assert one.caption == "arrowdev.Array, 1 row x 1 column, on cpu"


def test_sides_and_types_in_html():
    categories = pa.array(["a"]).dictionary_encode()
    columns = {"c": categories, "l": pa.array([[1]]), "d": pa.array([1], pa.decimal128(9, 2))}
    table = Table(ad.record_batch(columns)._repr_html_())
    types = ["dictionary<string>", "list<item: int64>", "decimal128(9, 2)"]
    assert table.rows[1:] == [types, ["'a'", "[1]", "1.00"]]
    assert table.sides == [["left", "left", "right"]] * 3


def test_html_of_a_batch_on_a_device():
    with software_device() as device:
        batch = ad.record_batch({"a": device.array([1, 2])})
        table = Table(batch._repr_html_())
        assert "on ext_dev:0; the host cannot read the values" in table.caption
        assert table.rows == [["a"], ["int64"]]


def test_html_of_schemas_and_streams():
    batch = ad.record_batch({"<a>": i4(1), "b": pa.array([[1]])})
    rows = [["name", "type", ""], ["<a>", "int32", ""], ["b", "list<item: int64>", ""]]
    assert Table(batch.schema._repr_html_()).rows == rows
    stream = ad.array_stream([batch])
    table = Table(stream._repr_html_())
    assert (table.caption, table.rows) == ("arrowdev.ArrayStream, on cpu", rows)
    stream.close()
    assert Table(stream._repr_html_()).rows == rows
    field = ad.schema(pa.schema([pa.field("x", pa.int8(), nullable=False)]).field(0))
    assert Table(field._repr_html_()).rows[1:] == [["x", "int8", "not null"]]
    wide = ad.schema(pa.struct([(f"c{i}", pa.int8()) for i in range(1000)]))
    assert Table(wide._repr_html_()).rows[-1][0] == "... and 900 more"


def test_types_in_a_repr_are_cut():
    long = ad.schema(pa.struct([("n" * 10**6, pa.int8())]))
    assert len(str(long)) > 10**6 and len(repr(long)) < 300
    array = ad.Array.from_buffers(long, 0, [None], children=[np.array([], "i1")])
    assert len(repr(array)) < 400 and len(repr(ad.array_stream([array]))) < 400


# --- iteration ----------------------------------------------------------------


def test_iteration_over_rows():
    for n in (0, 1, 1023, 1024, 1025, 3000):
        array = ad.array(np.arange(n))
        assert list(array) == list(range(n))
        assert list(array[n // 2 :]) == list(range(n // 2, n))
    rows = iter(ad.array(pa.array(["a", None])))
    assert [next(rows), next(rows)] == ["a", None]
    with pytest.raises(StopIteration):
        next(rows)
    with software_device() as device:
        array = ad.array(device.array([1]))
        with pytest.raises(ad.ExchangeError, match="an iteration over an Array needs host memory"):
            iter(array)


def test_every_public_object_has_a_repr():
    tensor = ad.tensor(i4(1))
    objects = [
        ad.as_host(tensor),
        ad.as_device(tensor),
        ad.array(tensor).buffers[1],
        ad.device("cpu"),
    ]
    with software_device() as device:
        objects.append(ad.use_stream(device.queue()))
        shown = [repr(obj) for obj in objects]
    assert shown == [
        "arrowdev.as_host(<arrowdev.Array int32, length 1, on cpu: [1]>)",
        "arrowdev.as_device(<arrowdev.Array int32, length 1, on cpu: [1]>)",
        "<arrowdev.Buffer 4 bytes on cpu>",
        'arrowdev.device("cpu")',
        "<arrowdev.use_stream() of ext_dev:0>",
    ]


def test_memory_that_is_not_there_is_not_read():
    """The pointers and lengths of a struct are only what its producer says."""
    for address, length in [(64, 3), (2**47 - 64, 8), (i4(1, 2).ctypes.data, 2**40)]:
        tensor = ad.Tensor.from_pointer(address, (length,), "int64", "cpu")
        for obj in (tensor, ad.array(tensor), ad.array(tensor)[1:2]):
            assert repr(obj).endswith("on cpu>")
        batch = ad.record_batch({"a": tensor, "b": tensor})
        assert repr(batch).endswith("on cpu>")
        table = Table(batch._repr_html_())
        assert len(table.rows) == 2 and "the host cannot read" in table.caption
    lists = ad.Array.from_buffers(
        pa.list_(pa.int64()), 1, [None, i4(0, 1)], children=[ad.array(tensor)]
    )
    assert repr(lists).endswith("on cpu>")


# --- limits that do not depend on the data --------------------------------------


def peak_of(function, *arguments):
    """The bytes that Python's allocators have handed out at once during the call."""
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def columns(arrays):
    return ad.record_batch(arrays, names=list(map(str, range(len(arrays)))))


def html_of(x):
    return x._repr_html_()


@pytest.mark.parametrize("show", [repr, html_of, dir])
def test_columns_that_are_not_shown_are_not_made(show):
    column = i4(1)
    wide = ad.record_batch([column] * 20_000, names=["x"] * 20_000)
    nested = ad.record_batch({"wide": ad.array(wide)})
    objects = [wide, nested] if show is dir else [wide, nested, wide.schema, nested.schema]
    names = 20_000 * 8 if show is dir else 0  # dir() asks for no more than one list
    for x in objects:
        assert peak_of(show, x) < 100_000 + names, x.schema.format
    assert repr(wide).endswith("... and 19980 more>")
    assert "and 19900 more" in wide.schema._repr_html_()


def test_columns_that_are_not_shown_are_not_read():
    """Nothing of their memory is mapped, and that is no hindrance."""
    lost = ad.Array.from_buffers(
        "int32", 1, [None, ad.Tensor.from_pointer(4096, (4,), "int8", "cpu")]
    )
    wide = columns([i4(7)] * 128 + [lost] * 3)
    assert "'0': [7]" in repr(wide) and ">7</td>" in wide._repr_html_()
    assert repr(columns([i4(7), lost])).endswith("on cpu>")


def test_trees_of_too_many_nodes_show_no_values():
    level = columns([i4(7)] * 120)
    wide = columns([level] * 120)
    assert repr(wide).endswith("on cpu>")
    assert "without waiting" in wide._repr_html_()
    assert "'0': [7]" in repr(level)


def test_long_names_are_cut():
    name = "n" * 1_000_000
    batch = ad.record_batch({name: i4(1)})
    assert len(repr(batch)) < 500 and len(batch._repr_html_()) < 1000
    assert len(repr(batch.schema)) < 500 and len(repr(batch.schema.children[0])) < 500
    twice = ad.array(ad.record_batch([i4(1), i4(2)], names=[name, name]))
    with pytest.raises(ValueError, match=r"2 children are named 'n{100}', and") as caught:
        twice.to_pylist()
    assert len(str(caught.value)) < 300
