"""Pickles and copies of Array, Buffer and Schema."""

import base64
import copy
import multiprocessing
import pickle
import random
import time

import numpy as np
import pytest
from arrow_samples import MISREADS_SPARSE_UNIONS, skip_what_pyarrow_misreads
from concat_checks import ALL, CUTS
from loops import looped
from pickle_mutations import changed, has_large_memo, use

import arrowdev as ad

pa = pytest.importorskip("pyarrow")

CUTS = [*CUTS, (0, 7), (1, 1), (9, 3), (0, 0)]
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def out_of_band(obj):
    """The pickle without the memory, and the memory."""
    buffers = []
    return pickle.dumps(obj, 5, buffer_callback=buffers.append), buffers


def through_buffers(obj):
    data, buffers = out_of_band(obj)
    return pickle.loads(data, buffers=buffers)


WAYS = {f"protocol {p}": lambda x, p=p: pickle.loads(pickle.dumps(x, p)) for p in PROTOCOLS} | {
    "out of band": through_buffers,
    "deepcopy": copy.deepcopy,
}


def addresses(array):
    """Of all buffers of the tree."""
    below = [*array.children, *([array.dictionary] if array.dictionary else [])]
    return [b and b.data_ptr for b in array.buffers] + [x for b in below for x in addresses(b)]


def same(found, sample):
    assert pa.array(found).to_pylist() == sample.to_pylist()
    assert found.schema == ad.array(sample).schema


@pytest.mark.parametrize("name", ALL)
def test_rows_of_every_type(name):
    skip_what_pyarrow_misreads(name)
    for first, n in CUTS:
        array = ad.array(ALL[name])[first : first + n]
        for way, again in WAYS.items():
            try:
                same(again(array), ALL[name].slice(first, n))
            except AssertionError as error:
                raise AssertionError(f"rows {first}:{first + n}, {way}") from error


# --- what is in a pickle -------------------------------------------------------------------------


BIG = 100_000
LARGE = {
    "int64": pa.array(range(BIG)),
    "bool": pa.array([True, False, None] * BIG),
    "string": pa.array(["word"] * BIG),
    "large_string": pa.array(["word"] * BIG, pa.large_string()),
    "string_view": pa.array(["more than twelve bytes"] * BIG, pa.string_view()),
    "list": pa.array([[1, 2, 3]] * BIG),
    "fixed_size_list": pa.array([[1, 2, 3]] * BIG, pa.list_(pa.int32(), 3)),
    "struct": pa.array([{"a": 1, "b": "x"}] * BIG),
    "map": pa.array([[("k", 1)]] * BIG, pa.map_(pa.string(), pa.int64())),
    "sparse_union": pa.UnionArray.from_sparse(
        pa.array([0] * BIG, pa.int8()), [pa.array(range(BIG)), pa.nulls(BIG)]
    ),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, BIG + 1)), pa.array(range(BIG))
    ),
    "decimal": pa.array([1] * BIG, pa.decimal128(9)),
}


@pytest.mark.parametrize("name", LARGE)
def test_slice_has_its_own_rows_only(name):
    array = ad.array(LARGE[name])
    for rows in (slice(0, 5), slice(1003, 1008), slice(BIG - 5, BIG)):
        data = pickle.dumps(array[rows])
        assert len(data) < 2000
        assert pa.array(pickle.loads(data)).to_pylist() == LARGE[name][rows].to_pylist()


def test_slice_has_the_variadic_buffers_that_it_uses():
    words = ad.concat([pa.array([c * 1000] * 9, pa.string_view()) for c in "ab"])
    assert len(words.buffers) > 4
    part = pickle.loads(pickle.dumps(words[3:5]))
    assert [b.nbytes for b in part.buffers[2:-1]] == [2000, 0]
    assert part.to_pylist() == ["a" * 1000] * 2
    assert len(pickle.dumps(words[2:2])) < 500


def test_null_rows_of_views_may_have_any_view():
    views = np.array([[20, 0, 0, 0], [20, 0, 7, 5], [-1, 0, 0, -9]], "i4")
    valid, data, sizes = np.array([1], "u1"), np.full(20, 65, "u1"), np.array([20])
    words = ad.Array.from_buffers("vu", 3, [valid, views, data, sizes])
    for rows in (words, words[:2], words[1:], words[1:2]):
        for way in WAYS.values():
            assert way(rows).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("first", [0, 8, 800])
def test_memory_out_of_band_is_not_copied(first):
    array = ad.array(pa.array([1, None] * 1000))[first:]
    data, buffers = out_of_band(array)
    found = [np.frombuffer(b.raw(), "u1").ctypes.data for b in buffers]
    bitmap, values = addresses(array)
    assert found == [bitmap + first // 8, values + 8 * first]
    again = pickle.loads(data, buffers=buffers)
    assert addresses(again) == found and again.offset == 0
    assert len(data) < 300


@pytest.mark.parametrize("name", ["int64", "string", "string_view", "list", "dictionary", "bool"])
def test_memory_out_of_band_may_begin_at_any_byte(name):
    data, buffers = out_of_band(ad.array(ALL[name]))
    moved = [memoryview(b"x" + bytes(b))[1:] for b in buffers]
    again = pickle.loads(data, buffers=moved)
    same(again, ALL[name])
    assert again.compact().to_pylist() == ad.concat([again]).to_pylist() == again.to_pylist()


def test_memory_lives_as_long_as_what_is_made_of_it():
    data, buffers = out_of_band(ad.array(np.arange(1000)))
    again = pickle.loads(data, buffers=buffers)
    del buffers
    assert again.to_pylist() == list(range(1000))
    part = again[10:12]
    del again
    assert part.to_pylist() == [10, 11]


class TestSharedMemory:
    def test_of_columns(self):
        column = ad.array(np.arange(1000))
        batch = ad.record_batch({"a": column, "b": column, "c": column[:1000]})
        _data, buffers = out_of_band(batch)
        assert len(buffers) == 1
        again = pickle.loads(pickle.dumps(batch))
        assert len(set(addresses(again)) - {None}) == 1
        assert again.to_pylist() == batch.to_pylist()

    def test_of_dictionaries_of_several_arrays(self):
        words = pa.array([f"word {i}" for i in range(1000)])
        arrays = [
            ad.array(pa.DictionaryArray.from_arrays(pa.array([i, i + 1]), words))
            for i in range(20)
        ]
        assert len(pickle.dumps(arrays)) < 20 * 400 + 20_000
        first, *others = pickle.loads(pickle.dumps(arrays))
        assert all(addresses(a.dictionary) == addresses(first.dictionary) for a in others)
        assert others[-1].to_pylist() == ["word 19", "word 20"]

    def test_of_an_array_and_its_tensor(self):
        array = ad.array(np.arange(1000))
        assert len(out_of_band([array, ad.tensor(array), array])[1]) == 1

    def test_ends_with_the_pickle(self):
        from arrowdev import _pickle

        pickle.dumps(ad.array(np.arange(1000)))
        assert len(_pickle._memories) == 0


class TestReadOnly:
    """The producer's flag goes along; Arrow's convention alone locks no legacy consumer out."""

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("writeable", [True, False])
    def test_flag_is_kept(self, way, writeable):
        values = np.arange(5)
        values.flags.writeable = writeable
        again = WAYS[way](ad.array(values))
        kept = not writeable and way != "deepcopy"  # a copy is memory of its own
        assert again.buffers[1].readonly
        if kept:
            with pytest.raises(ad.ExchangeError, match="read-only"):
                again.__dlpack__()
        else:
            again.__dlpack__()

    def test_buffers_that_come_back_readonly_are_flagged(self):
        data, buffers = out_of_band(ad.array(np.arange(5)))
        again = pickle.loads(data, buffers=[bytes(b) for b in buffers])
        with pytest.raises(ad.ExchangeError, match="read-only"):
            again.__dlpack__()


def test_buffer():
    array = ad.array(pa.array(["a", "bcd"]))
    for way in WAYS.values():
        again = way(array.buffers[2])
        assert type(again) is ad.Buffer and bytes(again) == b"abcd"
        assert str(again.device) == "cpu"


def test_array_without_rows_has_offsets():
    array = ad.array(pa.array(["a"]))[0:0]
    again = pickle.loads(pickle.dumps(array))
    assert len(again) == 0 and again.buffers[1] is not None
    pa.array(again).validate(full=True)


# --- schemas -------------------------------------------------------------------------------------


def schema_of_everything():
    dictionary = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    fields = [
        pa.field("ä", pa.int32(), nullable=False, metadata={b"k": b"v", b"\xff\x00": b""}),
        pa.field("", pa.map_(pa.string(), pa.list_(pa.decimal128(9, 2)), keys_sorted=True)),
        pa.field("d", dictionary),
        pa.field("e", pa.fixed_shape_tensor(pa.int32(), [2, 3], dim_names=["x", "y"])),
    ]
    return pa.schema(fields, metadata={b"of": b"all"})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_schema(protocol):
    schema = ad.schema(schema_of_everything())
    again = pickle.loads(pickle.dumps(schema, protocol))
    assert again == schema and hash(again) == hash(schema)
    assert pa.schema(again).equals(schema_of_everything(), check_metadata=True)
    assert again.children[2].dictionary_ordered and again.children[1].map_keys_sorted
    assert not again.children[0].nullable


@looped("name", ALL)
def test_schema_of_every_type(name):
    schema = ad.array(ALL[name]).schema
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_copies_of_schemas_are_the_schema():
    schema = ad.schema(schema_of_everything())
    assert copy.copy(schema) is schema and copy.deepcopy(schema) is schema


# --- copies --------------------------------------------------------------------------------------


def test_shallow_copy_is_the_object():
    array = ad.array(np.arange(3))
    for x in (array, ad.tensor(array), array.buffers[1]):
        assert copy.copy(x) is x


def test_deep_copy_has_memory_of_its_own():
    values = np.arange(3)
    array = ad.array(values)
    buffer = array.buffers[1]
    both = copy.deepcopy([array, array, buffer])
    assert both[0] is both[1]
    values[:] = 7
    assert both[0].to_pylist() == [0, 1, 2]
    assert memoryview(both[2]).cast("B").cast("q").tolist() == [0, 1, 2]
    assert type(both[2]) is ad.Buffer


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_streams_say_what_to_pickle(how):
    stream = ad.array_stream(pa.table({"a": [1, 2]}))
    with pytest.raises(TypeError, match=r"read_all\(\)"):
        how(stream)
    assert pickle.loads(pickle.dumps(stream.read_all())).to_pylist() == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_async_streams_say_what_to_pickle(how):
    stream, _handler = ad.aio.consumer()
    with pytest.raises(TypeError, match="pickle each Array"):
        how(stream)


# --- pickles that were cut or changed ------------------------------------------------------------


# Written by arrowdev 0.1, format 1: protocol 5, in-band. Later versions read it.
FORMAT_1 = (
    "fCZJz0RR910000ej1XaRa&LEJWp*xKaA{*}Y-N;;3T$s-WM5%&a$$Ltlawe+0VqQPD|3`X0F+&nLjh})LjiV_hLmAT"
    "04PHNX_P|&VU$iw0x3>(lqf?1b(BK^Vw6rx0x3>(l!lZ}bd)Gd0!si(080T&0!si(0ZRf)0!si(080aOlqgPU0E`Q4"
    "Z((F#ZDnn5a(R@Kl$HSi000000004$g_Kg1XcLwQ0000000001000000001#g_Kg1PG}RB3;+NC00000000000RR91"
    "0ssI2l!cU1lxP!{0ssI200000czKkClv0#*lumS%Qj}-_j0<dUVPs!)Wo~nCa+H&lC`$p12WD(<VRSPxluH6j1BR50"
    "0Y;Qd0B94I7ytkO0000000000004kL0000$002Nh004kM005vsl!cU1lumS%Qj}-_j0<dUVPs!ob!KK|a+H&lC`$p1"
    "1$Aj|bU2ht1%;H10Yj8a185UN1!8%0Wpk8;lv0#Vbd*w*XaI~0Y;R#?Uvpz<Wo==UlaxyVC_@4(bChTVU6g1BXa|Or"
    "VM_ogXbETvPD=tQPIQzgXbfl#PD=tQPIQ!plumS%hLlp2bd)X"
)


def test_pickle_of_format_1_is_read():
    array, tensor, buffer, schema = pickle.loads(base64.b85decode(FORMAT_1))
    assert array.to_pylist() == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert tensor.shape == (2, 3) and tensor.dtype == "float32"
    assert np.asarray(tensor).tolist() == [[0, 2, 4], [1, 3, 5]]
    assert bytes(buffer) == b"bytes"
    assert schema == array.schema and schema.metadata == {b"k": b"v"}


@pytest.mark.parametrize("make", [ad.tensor, lambda data: ad.array(data).buffers[1]])
def test_parts_of_another_type(make):
    load, (version, *parts) = make(b"abc").__reduce_ex__(5)
    for i, part in ((0, 5), (1, 3), (3, "flags"), (4, 5), (5, "nowhere")):
        changed = [*parts[:i], part, *parts[i + 1 :]]
        with pytest.raises(pickle.UnpicklingError, match="arrowdev object is damaged: "):
            load(version, *changed)


def test_later_format_is_refused():
    function, (_, *rest) = ad.array(np.arange(3)).__reduce_ex__(5)
    with pytest.raises(pickle.UnpicklingError, match="later version"):
        function(2, *rest)


def loaded(array, **changes):
    """What unpickling gives where parts of the pickle are others."""
    function, (version, schema, numbers, memories, device) = array.__reduce_ex__(4)
    parts = {"schema": schema, "numbers": numbers, "device": device}
    parts["memories"] = tuple(m and m.__reduce_ex__(4)[1][0] for m in memories)
    parts |= {name: change(parts[name]) for name, change in changes.items()}
    return function(version, *(parts[k] for k in ("schema", "numbers", "memories", "device")))


STRINGS = pa.array(["ab", None, "cde"])
CHANGES = {
    "buffer cut": (STRINGS, {"memories": lambda m: (m[0], m[1][:-1], m[2])}),
    "data cut": (STRINGS, {"memories": lambda m: (*m[:2], m[2][:-1])}),
    "bitmap cut": (pa.array([1, None] * 9), {"memories": lambda m: (m[0][:-1], m[1])}),
    "buffer missing": (STRINGS, {"memories": lambda m: (m[0], None, m[2])}),
    "data missing": (STRINGS, {"memories": lambda m: (*m[:2], None)}),
    "too few buffers": (STRINGS, {"memories": lambda m: m[:-1]}),
    "too many buffers": (STRINGS, {"memories": lambda m: (*m, m[2])}),
    "too many numbers": (STRINGS, {"numbers": lambda n: (*n, *n)}),
    "length": (STRINGS, {"numbers": lambda n: (99, *n[1:])}),
    "length below 0": (STRINGS, {"numbers": lambda n: (-1, *n[1:])}),
    "length overflows": (STRINGS, {"numbers": lambda n: (2**62, *n[1:])}),
    "offset": (STRINGS, {"numbers": lambda n: (n[0], 9, *n[2:])}),
    "null count": (STRINGS, {"numbers": lambda n: (*n[:2], 99, *n[3:])}),
    "number of buffers": (STRINGS, {"numbers": lambda n: (*n[:3], 2)}),
    "no numbers": (STRINGS, {"numbers": lambda n: ()}),
    "offset in the middle": (
        STRINGS,
        {"memories": lambda m: (m[0], np.array([0, 99, 2, 5], "i4").tobytes(), m[2])},
    ),
    "list": (
        pa.array([[1], [2, 3]]),
        {"memories": lambda m: (*m[:1], np.array([0, 9, 3], "i4").tobytes(), *m[2:])},
    ),
    "index": (
        pa.array(["a"]).dictionary_encode(),
        {"memories": lambda m: (m[0], np.array([1], "i4").tobytes(), *m[2:])},
    ),
    "run ends": (
        ALL["run_end_encoded"],
        {"memories": lambda m: (m[0], np.array([3, 2, 1, 9], "i2").tobytes(), *m[2:])},
    ),
    "type id": (ALL["dense_union"], {"memories": lambda m: (b"\x01" * 21, *m[1:])}),
    "position": (
        ALL["dense_union"],
        {"memories": lambda m: (m[0], np.full(21, 50, "i4").tobytes(), *m[2:])},
    ),
    "view": (
        pa.array(["x" * 20], pa.string_view()),
        {"memories": lambda m: (m[0], np.array([20, 0, 0, 1], "i4").tobytes(), *m[2:])},
    ),
    "child length": (
        pa.array([{"a": 1}, {"a": 2}]),
        {"numbers": lambda n: (*n[:4], 1, *n[5:])},
    ),
    "other type": (STRINGS, {"schema": lambda s: (b"U", *s[1:])}),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changed_parts_are_refused(case):
    sample, changes = CHANGES[case]
    array = ad.array(sample)
    same(loaded(array), sample)
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        loaded(array, **changes)


@pytest.mark.parametrize(
    "change",
    [
        {"memories": lambda m: [*m]},
        {"memories": lambda m: (1, *m[1:])},
        {"memories": lambda m: (m[0], memoryview(bytes(m[1]) * 2)[::2], *m[2:])},
        {"numbers": lambda n: ("3", *n[1:])},
        {"schema": lambda s: "utf8"},
        {"schema": lambda s: (*s[:3], 2**64, *s[4:])},
        {"device": lambda d: "nowhere"},
        {"device": lambda d: (1, 2, 3)},
    ],
)
def test_parts_of_another_kind_are_refused(change):
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        loaded(ad.array(STRINGS), **change)


@pytest.mark.parametrize(
    "parts",
    [
        None,
        (),
        (b"i", b"", None, 2, (), None, 1),
        (b"i\0", b"", None, 2, (), None),
        (b"nonsense", b"", None, 2, (), None),
        (b"+s", b"", None, 2, (1,), None),
        (b"i", b"", None, 2, ((b"i", b"", None, 2, (), None),), None),
        (b"i", b"", ("k", 1), 2, (), None),
        (b"i", b"", ("k",), 2, (), None),
        (b"i", b"", b"k", 2, (), None),
        (b"i", b"", None, 2**64, (), None),
    ],
)
def test_parts_of_no_schema_are_refused(parts):
    function, (version, _) = ad.schema("i").__reduce_ex__(5)
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        function(version, parts)


def test_deep_schemas_are_refused():
    parts = (b"i", b"", None, 2, (), None)
    for _ in range(5000):
        parts = (b"+s", b"", None, 2, (parts,), None)
    function, (version, _) = ad.schema("i").__reduce_ex__(5)
    with pytest.raises(ValueError):
        function(version, parts)


def copied(parts):
    """Another tuple of the same parts."""
    return (*parts,)


SHARED = {
    "nodes": lambda parts: (b"+s", b"", None, 2, (parts, parts), None),
    "children": lambda parts: (b"+s", b"", None, 2, tuple(copied(parts) for _ in "ab"), None),
    "dictionaries": lambda parts: (b"+s", b"", None, 2, (parts,), parts),
}


@pytest.mark.parametrize("case", SHARED)
def test_shared_parts_do_not_make_a_huge_schema(case):
    """60 levels would have 2**60 nodes."""
    parts = (b"i", b"", None, 2, (), None)
    for _ in range(60):
        parts = SHARED[case](parts)
    function, (version, _) = ad.schema("i").__reduce_ex__(5)
    with pytest.raises(ValueError, match="no parts of a Schema"):
        function(version, parts)


def changed_numbers(numbers, rng):
    out = list(numbers)
    out[rng.randrange(len(out))] = rng.choice((-1, 0, 1, 2, 5, 22, 1000, 2**31, 2**62))
    return tuple(out)


def changed_memories(memories, rng):
    out = list(memories)
    i = rng.randrange(len(out)) if out else 0
    out[i : i + 1] = [out[i] and changed(out[i], rng)] if out else []
    return tuple(out)


def fuzz(seconds, seed):
    rng = random.Random(seed)
    arrays = [ad.array(sample)[i : i + 20] for sample in ALL.values() for i in (0, 3)]
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        array = rng.choice(arrays)
        n += 1
        try:
            if rng.random() < 0.3:
                data = changed(pickle.dumps(array), rng)
                use(array if has_large_memo(data) else pickle.loads(data))
                continue
            changes = {
                "numbers": lambda x: changed_numbers(x, rng) if rng.random() < 0.4 else x,
                "memories": lambda x: changed_memories(x, rng) if rng.random() < 0.9 else x,
            }
            use(loaded(array, **changes))
        except Exception:  # anything but a crash
            continue
    return n


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pickletools has one of its own
@pytest.mark.parametrize("seconds", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_changed_pickles_do_not_crash(seconds):
    assert fuzz(seconds, seed=time.time_ns() if seconds > 1 else 1) > 10


# --- random types --------------------------------------------------------------------------------

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import strategies as st  # noqa: E402


def leaves():
    names = set(ALL) - {"struct without fields"}
    if MISREADS_SPARSE_UNIONS:
        names.remove("sparse_union")
    return st.sampled_from(sorted(names)).map(lambda name: ALL[name])


def nested(children):
    def struct(columns):
        return pa.StructArray.from_arrays(columns, [f"c{i}" for i in range(len(columns))])

    def lists(values):
        return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)

    def fixed(values):
        return pa.FixedSizeListArray.from_arrays(values[: len(values) // 2 * 2], 2)

    def union(columns):
        ids = pa.array([i % len(columns) for i in range(len(columns[0]))], pa.int8())
        return pa.UnionArray.from_sparse(ids, columns)

    same_length = st.lists(children, min_size=1, max_size=3).map(
        lambda columns: [c.slice(0, min(map(len, columns))) for c in columns]
    )
    unions = [] if MISREADS_SPARSE_UNIONS else [same_length.map(union)]
    return st.one_of(same_length.map(struct), children.map(lists), children.map(fixed), *unions)


@hypothesis.given(
    sample=st.recursive(leaves(), nested, max_leaves=6),
    cut=st.tuples(st.integers(0, 21), st.integers(0, 21)),
    way=st.sampled_from(sorted(WAYS)),
)
def test_random_types(sample, cut, way):
    sample = sample.slice(*cut)
    array = ad.array(sample)
    expected = pa.array(array).to_pylist()
    again = WAYS[way](array)
    assert pa.array(again).to_pylist() == expected
    assert again.schema == array.schema


# --- other processes -----------------------------------------------------------------------------


def total(batch):
    return batch, sum(row["a"] for row in batch.to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_worker_processes(method):
    batch = ad.record_batch({"a": np.arange(1000), "b": pa.array(["x", None] * 500)})
    with multiprocessing.get_context(method).Pool(1) as pool:
        again, result = pool.apply(total, (batch[100:200],))
    assert result == sum(range(100, 200))
    assert again.to_pylist() == batch[100:200].to_pylist()
