"""concat(): the rows of several arrays, on the host and on devices; pyarrow is the oracle."""

import ctypes
import decimal
import gc
import threading

import arrow_ctypes as ac
import concat_checks
import numpy as np
import pyarrow as pa
import pytest
from arrow_samples import skip_what_pyarrow_misreads
from concat_checks import ALL, pieces
from lifetimes import settled
from loops import looped
from peer import Peer

import arrowdev as ad

pd = Peer("pandas", "3.0")
pl = Peer("polars")

LISTS = ad.array(pa.array([[1]])).schema


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
@pytest.mark.parametrize("name", concat_checks.ALL)
def test_every_type(software, name, device):
    skip_what_pyarrow_misreads(name)
    concat_checks.check_on_device(name, device)


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
@looped("offset", range(64))
def test_bits_at_every_offset(software, device, offset):
    rng = np.random.default_rng(offset)
    values = [rng.integers(0, 2, 200).astype(bool) for _ in range(3)]
    valid = [rng.integers(0, 2, 200).astype(bool) for _ in range(3)]
    cuts = [slice(offset, 200 - k) for k in (0, 7, 31)]
    arrays = [
        ad.array(ad.array(v, "bool"), validity=good).to(device)[cut]
        for v, good, cut in zip(values, valid, cuts, strict=True)
    ]
    rows = [
        bool(x) if y else None
        for v, good, cut in zip(values, valid, cuts, strict=True)
        for x, y in zip(v[cut], good[cut], strict=True)
    ]
    assert ad.concat(arrays).to("cpu").to_pylist() == rows


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_only_some_arrays_have_nulls(software, device):
    arrays = [
        ad.array(pa.array(rows)).to(device) for rows in ([1, 2, 3], [4, None], [5] * 70, [None, 6])
    ]
    joined = ad.concat(arrays)
    assert joined.null_count == 2
    assert joined.to("cpu").to_pylist() == [1, 2, 3, 4, None, *[5] * 70, None, 6]
    assert ad.concat(arrays[::2]).buffers[0] is None


def test_missing_bitmap_is_not_read(software):
    """The device checks all the memory that a kernel may read: reading 500 bytes would fail."""
    late = ad.array(np.arange(4000)).to("ext_dev:0")[3998:]
    joined = ad.concat([late, ad.array(pa.array([None, 2])).to("ext_dev:0")])
    assert joined.to("cpu").to_pylist() == [3998, 3999, None, 2]


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_dictionaries(software, device):
    words = [pa.array(rows).dictionary_encode() for rows in (["a", "b", None], ["c"], ["b", "a"])]
    joined = ad.concat([ad.array(array).to(device) for array in words]).to("cpu")
    assert pa.array(joined).to_pylist() == ["a", "b", None, "c", "b", "a"]
    whole = ad.array(words[0]).to(device)
    same = ad.concat([whole[1:], whole])
    assert len(same.dictionary) == 2
    assert pa.array(same.to("cpu")).to_pylist() == ["b", None, "a", "b", None]


def test_shared_dictionaries_are_waited_for(software):
    """Without rows no work is queued, but the result still has an event."""
    words = ad.array(pa.array(["a", "b"]).dictionary_encode())
    queue = software.queue()
    with queue.held():
        there = ad.array(words.to("ext_dev:0"), device="ext_dev:0", copy=True, stream=queue)
        joined = ad.concat([there[:0], there[1:1]], stream=software.queue())
        assert not joined.is_ready()
    assert joined.dictionary.to("cpu").to_pylist() == ["a", "b"]


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_dictionaries_of_nulls(software, device):
    """Dictionaries of nulls have no buffers."""
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.nulls(2))
    arrays = [ad.array(words, copy=True).to(device) for _ in range(2)]
    assert ad.concat(arrays).to("cpu").to_pylist() == [None] * 4
    joined = ad.array_stream(arrays).read_all().to("cpu")
    assert joined.to_pylist() == [None] * 4 and not joined.validate(level="full")


LONG = "a string of more than twelve bytes "
WORDS = {
    "string": (pa.string(), ["a", "b", "", None, LONG + "1"], ["c", LONG + "2", "b", None]),
    "large binary": (pa.large_binary(), [b"a", b"bc"], [b"bc", b"b", b"c"]),
    "views": (pa.string_view(), [LONG + "1", "a", None, "b"], ["b", LONG + "2", LONG + "1", None]),
    "fixed": (pa.binary(3), [b"abc", b"xyz"], [b"xyz", b"abe"]),
    "int8": (pa.int8(), [1, None, 2], [2, 3, 1]),
    "int64": (pa.int64(), [2**40, 1], [1, 2**41]),
    "float": (pa.float64(), [0.5, float("inf")], [float("inf"), 1.5]),
    "bool": (pa.bool_(), [True], [False, True]),
    "decimal": (pa.decimal128(5, 2), [decimal.Decimal("1.25")], [decimal.Decimal("2.25")]),
    "timestamp": (pa.timestamp("ns"), [1, 2], [2, 3]),
}


def encoded(rows, dictionary, dtype):
    indices = pa.array([dictionary.index(row) for row in rows], pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array(dictionary, dtype))


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
@pytest.mark.parametrize("name", WORDS)
def test_dictionaries_are_unified_by_value(software, name, device):
    dtype, *dictionaries = WORDS[name]
    chunks = [encoded(words[::-1], words, dtype) for words in dictionaries]
    chunks += [encoded(words[:1], words[:2], dtype).slice(0, 1) for words in dictionaries]
    joined = ad.concat([ad.array(chunk).to(device) for chunk in chunks]).to("cpu")
    assert not joined.validate(level="full")
    expected = [row for chunk in chunks for row in chunk.to_pylist()]
    assert pa.array(joined).to_pylist() == expected
    words = pa.array(joined.dictionary).to_pylist()
    assert len(words) == len(set(words)) and set(words) == set(
        pa.array(expected, dtype).to_pylist()
    )
    read = ad.array_stream([ad.array(chunk).to(device) for chunk in chunks]).read_all()
    assert read.to("cpu").dictionary.to_pylist() == joined.dictionary.to_pylist()


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_words_in_another_order_fit(software, device):
    words = [str(i) for i in range(100)]
    chunks = [encoded(words, order, pa.string()) for order in (words, words[::-1])]
    joined = ad.concat([ad.array(chunk).to(device) for chunk in chunks]).to("cpu")
    assert joined.dictionary.to_pylist() == words
    assert pa.array(joined).to_pylist() == words * 2
    # 200 words, of which the rows use 110
    more = [encoded(words, words, pa.string()), encoded(["x5"], ["x5", *words[1:]], pa.string())]
    assert len(ad.concat(more).dictionary) == 101


def test_every_second_word_is_new():
    rows = [[str(2 * i) + LONG for i in range(1000)], [str(i) + LONG for i in range(2000)]]
    for dtype in (pa.string(), pa.string_view()):
        chunks = [
            pa.DictionaryArray.from_arrays(pa.array(range(len(row)), "i4"), pa.array(row, dtype))
            for row in rows
        ]
        joined = ad.concat(chunks)
        assert len(joined.dictionary) == 2000 and not joined.validate(level="full")
        assert joined.to_pylist() == rows[0] + rows[1]
        assert len(joined.dictionary.buffers) <= 10  # parts of a dictionary share its data


@pytest.mark.parametrize("n", [31, 32, 33, 64, 65])
def test_words_are_numbered_in_blocks(n):
    """32 at a time: a word may be new and occur again in one block; order holds across blocks."""
    words = [f"{i:03}" for i in range(n)]
    again = [words[-1], "new", "new", *words]
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array(range(len(row)), "i4"), pa.array(row))
        for row in (words, again)
    ]
    joined = ad.concat(chunks)
    assert joined.dictionary.to_pylist() == [*words, "new"]
    assert joined.to_pylist() == words + again
    swapped = [*words[:-2], words[-1], words[-2]]
    indices = pa.array(range(n), "i4")
    ordered = [
        pa.DictionaryArray.from_arrays(indices, pa.array(row), ordered=True)
        for row in (words, swapped)
    ]
    with pytest.raises(ad.ExchangeError, match="ordered"):
        ad.concat(ordered)


def test_nested_words_are_concatenated():
    words = [encoded([[1], [2]], [[1], [2]], pa.list_(pa.int64())) for _ in range(2)]
    words[1] = encoded([[2], [3]], [[2], [3]], pa.list_(pa.int64()))
    joined = ad.concat(words)
    assert joined.to_pylist() == [[1], [2], [2], [3]] and len(joined.dictionary) == 4


@pytest.mark.parametrize(
    "words",
    [
        pa.array([[1], [2], None, [4], [5]]),
        pa.array([{"a": i} for i in range(5)]),
        pa.array([[9], [1], [2], [3], [4], [5]])[1:],
        pa.array([None, "a" * 20, "b", "c", "d"], pa.string_view()),
    ],
    ids=["list", "struct", "slice", "view"],
)
def test_dictionary_in_the_same_memory_is_shared(words):
    """Each part has structs of its own; 30 such dictionaries would not fit int8 indices."""
    part = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 4], pa.int8()), words)
    for joined in (ad.concat([part] * 30), ad.array_stream([part] * 30).read_all()):
        assert joined.dictionary.to_pylist() == words.to_pylist()
        assert joined.to_pylist() == part.to_pylist() * 30


def test_ordered_dictionaries():
    """Their order has a meaning: it stays, or the arrays are refused."""

    def ordered(rows, dictionary):
        return ad.array(
            pa.DictionaryArray.from_arrays(
                pa.array([dictionary.index(row) for row in rows], "i1"), dictionary, ordered=True
            )
        )

    low = ordered(["low", "high"], ["low", "high"])
    joined = ad.concat([low, ordered(["top", "low"], ["low", "high", "top"])])
    assert joined.dictionary.to_pylist() == ["low", "high", "top"]
    assert joined.to_pylist() == ["low", "high", "top", "low"]
    for words in (["high", "low"], ["low", "middle", "high"]):
        with pytest.raises(ad.ExchangeError, match="ordered") as info:
            ad.concat([low, ordered(["low"], words)])
        assert info.value.reason == "dtype" and "array_stream" in info.value.hint


def test_unified_dictionaries_in_peers():
    chunks = pa.chunked_array(
        [pa.array(rows).dictionary_encode() for rows in (["a", "b", None], ["b", "c", "a"])]
    )
    rows = chunks.to_pylist()
    for source in (chunks, pl.Series(rows, dtype=pl.Categorical), pl.Series(["a"] * 3)):
        joined = ad.array(source)
        assert joined.to_pylist() == (rows if len(source) == 6 else ["a"] * 3)
    frame = ad.record_batch({"x": ad.array(chunks)}).into(pd.DataFrame)
    assert frame["x"].cat.categories.tolist() == ["a", "b", "c"]
    assert frame["x"].tolist()[3:] == ["b", "c", "a"]
    lists = pa.chunked_array(
        [
            pa.ListArray.from_arrays([0, 2], pa.array(row).dictionary_encode())
            for row in ("ab", "ba")
        ]
    )
    assert ad.array(lists).to_pylist() == [["a", "b"], ["b", "a"]]
    assert len(ad.array(lists).children[0].dictionary) == 2


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_index_overflow(software, device):
    indices = pa.array([0, 99], pa.int8())
    arrays = [
        pa.DictionaryArray.from_arrays(indices, pa.array([f"{k}{i}" for i in range(100)]))
        for k in "ab"
    ]
    with pytest.raises(ad.ExchangeError, match="dictionaries") as info:
        ad.concat([ad.array(array).to(device) for array in arrays])
    assert info.value.reason == "size"


def test_every_source_of_array(software):
    joined = ad.concat([np.arange(3), pa.array([3, None]), ad.tensor(np.arange(2))])
    assert joined.to_pylist() == [0, 1, 2, 3, None, 0, 1]
    assert ad.concat(iter([np.arange(2), np.arange(1)])).to_pylist() == [0, 1, 0]
    matrix = ad.concat([np.zeros((2, 3)), np.ones((1, 3))])
    assert ad.tensor(matrix).shape == (3, 3)


def test_sequences_of_every_kind():
    arrays = [np.arange(2), np.arange(3)]
    for sequence in (tuple(arrays), iter(arrays), dict(enumerate(arrays)).values()):
        assert ad.concat(sequence).to_pylist() == [0, 1, 0, 1, 2]
    assert ad.concat(ad.array_stream(arrays)).to_pylist() == [0, 1, 0, 1, 2]
    assert ad.concat(pa.table({"a": [1], "b": [2]}).columns).to_pylist() == [1, 2]


def test_single_array_is_returned_unchanged():
    array = ad.array(np.arange(3))
    assert ad.concat([array]) is array


@pytest.mark.parametrize(
    ("arrays", "error", "text"),
    [
        ([], ValueError, "one array at least"),
        (5, TypeError, "sequence"),
        ([np.arange(2), np.arange(2.0)], ad.ExchangeError, "array 1 is .*, but array 0 is"),
        ([np.zeros(2, bool), np.zeros(2, "i1")], ad.ExchangeError, "array 1"),
        ([np.zeros((2, 3)), np.zeros((2, 2))], ad.ExchangeError, "array 1"),
        ([object()], TypeError, "speaks none"),
        ({"a": 1}, TypeError, "not one dict"),
        ("abc", TypeError, "not one str"),
        (b"abc", TypeError, "not one bytes"),
        (np.arange(3), TypeError, r"not one numpy.ndarray; arrowdev.array\(\)"),
        (pa.chunked_array([[1], [2]]), TypeError, "not one pyarrow.*ChunkedArray"),
        (pa.table({"a": [1], "b": [2]}), TypeError, "not one pyarrow.*Table"),
    ],
)
def test_refused(arrays, error, text):
    with pytest.raises(error, match=text):
        ad.concat(arrays)


def test_two_devices(software):
    data = ad.array(np.arange(3))
    for arrays in (
        [data, data.to("ext_dev:0")],
        [data.to("ext_dev:0"), data],
        [data.to("ext_dev:0"), data.to("ext_dev:1")],
    ):
        with pytest.raises(ad.ExchangeError, match=r"array 0 is on .*, but array 1 is on") as info:
            ad.concat(arrays)
        assert info.value.reason == "device" and ".to()" in info.value.hint


def test_all_events_are_waited_for(software):
    queues = [software.queue() for _ in range(3)]
    source = ad.array(pa.array([1, None, 3])).to("ext_dev:0")
    for queue in queues:
        queue.hold()
    arrays = [ad.array(source, device="ext_dev:0", copy=True, stream=queue) for queue in queues]
    joined = ad.concat(arrays, stream=software.queue())
    del arrays
    gc.collect()
    for queue in queues:
        assert not joined.is_ready()
        queue.release()
    assert joined.to("cpu").to_pylist() == [1, None, 3] * 3


def test_chunks_on_a_device_become_one_array(software):
    chunks = [ad.array(pa.array([1, None])), ad.array(pa.array([3]))]
    stream = ad.array_stream([chunk.to("ext_dev:0") for chunk in chunks])
    joined = ad.array(stream)
    assert str(joined.device) == "ext_dev:0"
    assert joined.to("cpu").to_pylist() == [1, None, 3]
    with pytest.raises(ad.ExchangeError, match="chunks"):
        ad.array(ad.array_stream([c.to("ext_dev:0") for c in chunks]), copy=False)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("struct", ad.concat),
        ("struct of runs", ad.concat),
        ("runs of lists", lambda arrays: arrays[1].compact()),
    ],
)
@pytest.mark.parametrize("call", ["allocate", "copy", "launch", "event_record", "stream_wait"])
def test_failing_runtime_calls(software, call, name, make):
    arrays = pieces(ALL[name], "ext_dev:0")
    gc.collect()
    software.synchronize()
    before = settled(software).allocations
    failed = 0
    for n in range(1, 300):
        software.fail_at(n, call)
        try:
            make(arrays)
            break
        except (ad.DeviceError, MemoryError):
            failed += 1
        finally:
            software.fail_at(0)
    else:
        pytest.fail("it is not done when nothing fails")
    on_host = call == "launch" and name == "struct of runs"
    assert failed > 0 or on_host or call in ("event_record", "stream_wait")
    gc.collect()
    software.synchronize()
    assert software.live().allocations == before


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
@pytest.mark.parametrize(
    ("type", "children", "offsets"),
    [
        ("string", [], [0, 2, 1, 3]),
        ("large_string", [], [0, -5, 1, 3]),
        ("string", [], [5, 2, 1, 3]),
        ("+l", [np.arange(3)], [0, 3, 2, 3]),
        ("+l", [np.arange(3)], [0, 1, 2, 4]),
    ],
)
def test_invalid_offsets(software, device, type, children, offsets):
    width = "i8" if type == "large_string" else "i4"
    schema = LISTS if type == "+l" else type
    there = ad.tensor(np.array(offsets, width)).to(device)
    data = [] if children else [ad.tensor(np.zeros(8, "u1")).to(device)]
    below = [ad.array(child).to(device) for child in children]
    bad = ad.Array.from_buffers(schema, 3, [None, there, *data], children=below)
    with pytest.raises(ad.InvalidArrowError, match="offset"):
        ad.concat([bad[:2], bad])


# --- types with offsets or references ------------------------------------------------------------


def two_of(kind, seed):
    """Two arrays of one type, each with its own data."""
    rng = np.random.default_rng(seed)
    for first in (0, 100):
        text = pa.array(
            [None if i % 7 == 3 else "x" * (i % 40) + str(first + i) for i in range(90)]
        )
        if kind == "views":
            yield text.cast(pa.string_view())
        elif kind == "runs":
            ends = np.cumsum(rng.integers(1, 9, 90))
            yield pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), text)
        else:
            ids = rng.integers(0, 3, 200)
            offsets = [int((ids[:i] == id).sum()) for i, id in enumerate(ids)]
            children = [text, pa.array(range(first, first + 200)), text.cast(pa.string_view())]
            yield pa.UnionArray.from_dense(
                pa.array(ids, pa.int8()), pa.array(offsets, pa.int32()), children
            )


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
@pytest.mark.parametrize("kind", ["views", "runs", "union"])
def test_many_arrays(software, kind, device):
    rng = np.random.default_rng(3)
    sources = list(two_of(kind, 5))
    there = [ad.array(source).to(device) for source in sources]
    parts, rows = [], []
    for k in range(60):
        first, stop = sorted(rng.integers(0, len(sources[k % 2]) + 1, 2))
        parts.append(there[k % 2][first:stop])
        rows += sources[k % 2][first:stop].to_pylist()
    joined = ad.concat(parts)
    assert pa.array(joined.to("cpu")).to_pylist() == rows
    assert not joined.validate(level="full")
    again = ad.concat([joined[len(rows) // 2 :], joined[: len(rows) // 2]])
    assert pa.array(again.to("cpu")).to_pylist() == rows[len(rows) // 2 :] + rows[: len(rows) // 2]


@pytest.mark.parametrize("kind", ["views", "runs", "union"])
def test_host_waits_before_it_reads_values(software, kind):
    (source, _) = two_of(kind, 1)
    there = ad.array(source).to("ext_dev:0")
    for work in (
        lambda array, stream: ad.concat([array[7:], array[:9]], stream=stream),
        lambda array, stream: array[7:].compact(stream=stream),
    ):
        queue = software.queue()
        queue.hold()
        copied = ad.array(there, device="ext_dev:0", copy=True, stream=queue)
        later = threading.Timer(0.05, queue.release)
        later.start()
        made = work(copied, software.queue())
        later.join(60)
        rows = source.to_pylist()[7:]
        assert made.to("cpu").to_pylist() == (rows + source.to_pylist()[:9])[: len(made)]
        assert len(made) >= len(rows)


def test_views_share_their_data():
    copies = [ad.array(next(two_of("views", 0)), copy=True) for _ in range(2)]
    data = [copied.buffers[2].data_ptr for copied in copies]
    rows = copies[0].to_pylist() * 2
    joined = ad.concat(copies)
    assert [buffer.data_ptr for buffer in joined.buffers[2:-1]] == data
    del copies
    gc.collect()
    assert joined.to_pylist() == rows


@pytest.mark.parametrize("name", ["views", "union", "runs", "list of views"])
def test_a_device_leaves_rare_types_to_the_host(software, caplog, name):
    """All memory is given back, and the log says so."""
    source = ad.array(ALL[name] if name in ALL else next(two_of(name, 0)))
    there = source.to("ext_dev:0")
    gc.collect()
    software.synchronize()
    before = settled(software).allocations
    queues = [software.queue() for _ in range(2)]
    copies = [ad.array(there, device="ext_dev:0", copy=True, stream=queue) for queue in queues]
    with caplog.at_level("DEBUG", "arrowdev"):
        joined = ad.concat(copies)
    assert "cpu -> cpu, because the host joins rows that a device cannot" in caplog.text
    assert str(joined.device) == "ext_dev:0"
    del copies
    gc.collect()
    assert joined.to("cpu").to_pylist() == source.to_pylist() * 2
    del joined
    gc.collect()
    software.synchronize()
    assert software.live().allocations == before


def test_views_of_read_only_memory():
    data = ad.tensor(np.zeros(32, "u1"), readonly=True)
    views = ad.tensor(np.array([20, 0, 0, 0], "i4").view("u1"))
    words = ad.Array.from_buffers("string_view", 1, [None, views, data, ad.tensor(np.array([32]))])
    joined = ad.concat([words, words])
    assert joined.to_pylist() == ["\0" * 20] * 2
    with pytest.raises(ad.ExchangeError, match="read-only"):
        ad.tensor(joined.buffers[3]).__dlpack__()


def test_sizes_in_host_memory(software):
    """A producer may keep the sizes of a view's buffers on the host or on the device, and write
    them late."""
    (source, _) = two_of("views", 0)
    there = ad.array(source).to("ext_dev:0")
    size = there.to("cpu").buffers[2].nbytes
    queue = software.queue()
    queue.hold()
    copied = ad.array(there, device="ext_dev:0", copy=True, stream=queue)
    sizes = ac.int64s(0)
    addresses = [buffer.data_ptr for buffer in copied.buffers[:3]] + [ctypes.addressof(sizes)]
    node = ac.ArrayNode(90, addresses, null_count=-1)
    tree = ac.Tree(ac.SchemaNode("vu"), node, device=(12, 0), event=copied.sync_event)
    imported = ad.array(ac.OnDevice(tree))

    def write():
        sizes[0] = size
        queue.release()

    later = threading.Timer(0.05, write)
    later.start()
    joined = ad.concat([imported[5:], there])
    later.join(60)
    assert joined.to("cpu").to_pylist() == source[5:].to_pylist() + source.to_pylist()


def from_numbers(schema, n, device, buffers, children=()):
    there = [None if b is None else ad.tensor(np.ascontiguousarray(b)).to(device) for b in buffers]
    return ad.Array.from_buffers(
        schema, n, there, children=[ad.array(child).to(device) for child in children]
    )


def views(device, *rows, valid=None):
    """Rows of (size, prefix, buffer, offset) over one data buffer."""
    numbers = np.array(rows, "i4").view("u1").reshape(-1)
    buffers = [valid, numbers, np.zeros(99, "u1"), np.array([99])]
    return from_numbers("string_view", len(rows), device, buffers)


def union(device, ids, offsets):
    schema = ad.array(next(iter(two_of("union", 0)))).schema
    children = [pa.array(["a"] * 3), pa.array([1, 2]), pa.array(["x"], pa.string_view())]
    return from_numbers(
        schema, len(ids), device, [np.array(ids, "i1"), np.array(offsets, "i4")], children
    )


def runs(device, ends, n):
    schema = ad.array(next(iter(two_of("runs", 0)))).schema
    children = [np.array(ends, "i4"), pa.array(["a"] * len(ends), "string")]
    return from_numbers(schema, n, device, [], children)


def test_a_first_run_without_rows(software):
    """The copy from a device leaves it out."""
    with pytest.raises(ad.InvalidArrowError, match="run end 0 comes after 0"):
        ad.concat([runs("cpu", [0, 2, 5], 5)] * 2)
    joined = ad.concat([runs("ext_dev:0", [0, 2, 5], 5)] * 2)
    assert joined.to("cpu").to_pylist() == ["a"] * 10


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda d: views(d, (13, 0, 1, 0)), "a view into buffer 1, but there are 1"),
        (lambda d: views(d, (13, 0, 0, 0), (99, 0, -1, 0)), "a view into buffer -1, but there"),
        (lambda d: union(d, [0, 3], [0, 0]), "type id 3, which format"),
        (lambda d: union(d, [-1], [0]), "type id -1, which format"),
        # A copy of the last row has no value of the child.
        (lambda d: union(d, [0, 0, 1], [1, 2, 2]), "offset 2 into child 1 of [02] values"),
        (lambda d: union(d, [0], [-1]), "offset -1 into child 0 of 3 values"),
        (lambda d: runs(d, [2, 2, 5], 5), "run end 2 comes after 2"),
        (
            lambda d: runs(d, [2, 4], 5),
            "the last run ends (at 4, but there are 5 rows|before row 5)",
        ),
    ],
)
def test_invalid_references(software, device, make, text):
    """On the host and a device, also for a later array and within a struct."""
    with pytest.raises(ad.InvalidArrowError, match=text):
        ad.concat([make(device)] * 2)
    bad = make(device)
    with pytest.raises(ad.InvalidArrowError, match=text):
        ad.concat([bad[:0], bad, bad])
    batch = ad.record_batch({"a": bad})
    with pytest.raises(ad.InvalidArrowError, match=text):
        ad.concat([batch, batch])
    if bad.schema.format != "+r":
        with pytest.raises(ad.InvalidArrowError, match=text):
            ad.concat([bad[len(bad) - 1 :]] * 2)
    elif device != "cpu":
        with pytest.raises(ad.InvalidArrowError, match=text):
            bad[1:].compact()


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_invalid_values_under_nulls_are_ignored(software, device):
    rows = views(device, (7 << 8, 1, 9, -1), (2, 0, 0, 0), valid=np.array([2], "u1"))
    joined = ad.concat([rows, views(device, (20, 0, 0, 0)), rows])
    assert joined.to("cpu").to_pylist() == [None, "\0" * 2, "\0" * 20, None, "\0" * 2]
    assert not joined.validate(level="full")


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_run_ends_past_the_last_row(software, device):
    """The last run may continue past the last row. The largest run end does not overflow."""
    end = 2**31 - 1
    joined = ad.concat([runs(device, [1, end], 4)[2:], runs(device, [2, end], 3)]).to("cpu")
    assert joined.to_pylist() == ["a"] * 5
    assert joined.children[0].to_pylist() == [2, 4, 5]
    part = runs(device, [1, 3, end], 9)[2:6].compact().to("cpu")
    assert part.children[0].to_pylist() == [1, 4] and part.to_pylist() == ["a"] * 4


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_size_overflow(software, device):
    """16-bit run ends; 32-bit offsets into a child of nulls, which needs no memory."""
    array = ad.array(pa.RunEndEncodedArray.from_arrays(pa.array([30000], "int16"), pa.array([1])))
    with pytest.raises(ad.ExchangeError, match="run ends") as info:
        ad.concat([array.to(device)] * 2)
    assert info.value.reason == "size"
    nulls = ac.ArrayNode(2**31, [], null_count=2**31)
    ids, offsets = np.zeros(1, "i1"), np.array([5], "i4")
    memory = [ad.tensor(numbers).to(device) for numbers in (ids, offsets)]
    tree = ac.Tree(
        ac.SchemaNode("+ud:0", children=[ac.SchemaNode("n")]),
        ac.ArrayNode(1, [tensor.data_ptr for tensor in memory], children=[nulls]),
        device=(1, -1) if device == "cpu" else (12, 0),
    )
    far = ad.array(ac.OnDevice(tree))
    with pytest.raises(ad.ExchangeError, match="the values of the batches") as info:
        ad.concat([far, far])
    assert info.value.reason == "size"


def test_size_overflow_of_nulls_and_lists_of_nulls():
    most = 2**31 - 1
    nulls, more = (ad.Array.from_buffers("null", n, []) for n in (most, 2**62))
    last, one, all_of_them = (np.array(n, "i4") for n in ([most - 1], [1], [0, most]))
    views, lists = pa.list_view(pa.null()), pa.list_(pa.null())
    for array, what in (
        (more, "the rows"),
        (ad.Array.from_buffers(lists, 1, [None, all_of_them], children=[nulls]), "the data"),
        (ad.Array.from_buffers(views, 1, [None, last, one], children=[nulls]), "the values"),
    ):
        with pytest.raises(ad.ExchangeError, match=what) as info:
            ad.concat([array, array])
        assert info.value.reason == "size"


def test_dictionaries_of_empty_values():
    """They take no memory, so that nothing limits their number."""
    zero = np.zeros(1, "i8")

    def words(n):
        values = ad.Array.from_buffers("w:0", n, [None, b""])
        type = pa.dictionary(pa.int64(), pa.binary(0))
        return ad.Array.from_buffers(type, 1, [None, zero], dictionary=values)

    assert ad.concat([words(2), words(3)]).to_pylist() == [b"", b""]
    for n, more in ((2**62, 2**61 - 1), (2**61, 2**61 - 1), (2**62, 2**62 - 1), (2**56, 1)):
        with pytest.raises(ad.ExchangeError, match="the dictionaries of the batches") as info:
            ad.concat([words(n), words(more)])
        assert info.value.reason == "size"


def test_list_views_and_indices_out_of_range():
    child = ad.Array.from_buffers("null", 3, [])
    ends = [np.array([n], "i4") for n in (2, 5)]
    far = ad.Array.from_buffers(pa.list_view(pa.null()), 1, [None, *ends], children=[child])
    with pytest.raises(ad.InvalidArrowError, match="a list of 5 values from 2, but there are 3"):
        ad.concat([far, far])
    first = pa.array(["a"]).dictionary_encode().cast(pa.dictionary("int8", "string"))
    for index in (5, -1):
        index_of_b = [None, np.array([index], "i1")]
        other = ad.Array.from_buffers(first.type, 1, index_of_b, dictionary=pa.array(["b"]))
        with pytest.raises(ad.InvalidArrowError, match=f"index {index} into a dictionary of 1"):
            ad.concat([first, other])


def words(offsets, data):
    """A column of one index into a hand-made dictionary of strings."""
    values = ac.ArrayNode(len(offsets) - 1, [None, ac.int32s(*offsets), data])
    return ac.Host(
        ac.Tree(
            ac.SchemaNode("c", dictionary=ac.SchemaNode("u")),
            ac.ArrayNode(1, [None, (ctypes.c_int8 * 1)(0)], dictionary=values),
        )
    )


@pytest.mark.parametrize(
    ("offsets", "has_data"),
    [
        ([-(2**30), 4], True),
        ([0, 2**30, 4], True),
        ([4, -(2**31), 8], True),
        ([4, 0, 2], True),
        ([0, 4], False),
    ],
)
def test_invalid_dictionary_offsets(offsets, has_data):
    """Two dictionaries with the same offsets: their strings are compared only if there are any."""
    bad = [
        ad.array(words(offsets, ctypes.create_string_buffer(8) if has_data else None))
        for _ in range(2)
    ]
    with pytest.raises(ad.InvalidArrowError, match="offset"):
        ad.concat(bad)


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_strings_without_data(software, device):
    offsets = np.array([0, 2, 3] if device != "cpu" else [0, 0, 0], "i4")
    bad = ad.Array.from_buffers("string", 2, [None, ad.tensor(offsets).to(device), None])
    offsets[:] = [0, 2, 3]  # from_buffers() would refuse them
    with pytest.raises(ad.InvalidArrowError, match=r"buffers\[2\] \(data\) is NULL"):
        ad.concat([bad, bad])


def test_types_with_equal_text():
    """The message says how the types differ."""
    batch, struct = pa.record_batch({"a": [1]}), pa.array([{"a": 1}])
    with pytest.raises(ad.ExchangeError, match=r"1 is .*\(nullable\), .*0 is .*\(not nullable\)"):
        ad.concat([batch, struct])
    assert ad.concat([batch, ad.array(struct, batch.schema)]).to_pylist() == [{"a": 1}] * 2
    name = {"ARROW:extension:name": "mine"}
    fields = [
        pa.field("x", pa.int64(), metadata=name | {"ARROW:extension:metadata": text})
        for text in ("a", "b")
    ]
    with pytest.raises(ad.ExchangeError, match=r"mine.*, with other extension metadata"):
        ad.concat([ad.array(np.arange(3), field) for field in fields])
