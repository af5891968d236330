"""concat(): the rows of several arrays, on the host and on devices; pyarrow is the oracle."""

import ctypes
import gc

import arrow_ctypes as ac
import concat_checks
import numpy as np
import pyarrow as pa
import pytest
from arrow_samples import SAMPLES
from concat_checks import expected, pieces

import arrowdev as ad

LISTS = ad.array(pa.array([[1]])).schema


@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_on_the_host(name):
    joined = ad.concat(pieces(SAMPLES[name]))
    found = pa.array(joined)
    assert found.type == SAMPLES[name].type
    assert found.to_pylist() == expected(SAMPLES[name])
    if name != "dense_union":  # the sample's offsets go backwards
        found.validate(full=True)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_on_a_device(software, name):
    concat_checks.check_on_device(name, "ext_dev:0")


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
@pytest.mark.parametrize("offset", range(64))
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
def test_some_have_nulls(software, device):
    arrays = [
        ad.array(pa.array(rows)).to(device) for rows in ([1, 2, 3], [4, None], [5] * 70, [None, 6])
    ]
    joined = ad.concat(arrays)
    assert joined.null_count == 2
    assert joined.to("cpu").to_pylist() == [1, 2, 3, 4, None, *[5] * 70, None, 6]
    assert ad.concat(arrays[::2]).buffers[0] is None


def test_where_a_part_has_no_bitmap_nothing_is_read(software):
    """The device looks at all that a kernel may read: 500 bytes would be too many."""
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


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_dictionaries_of_nulls(software, device):
    """They have no buffers at all."""
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.nulls(2))
    arrays = [ad.array(words, copy=True).to(device) for _ in range(2)]
    assert ad.concat(arrays).to("cpu").to_pylist() == [None] * 4
    joined = ad.array_stream(arrays).read_all().to("cpu")
    assert joined.to_pylist() == [None] * 4 and not joined.validate(level="full")


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_indices_that_do_not_fit(software, device):
    indices = pa.array([0, 99], pa.int8())
    arrays = [
        pa.DictionaryArray.from_arrays(indices, pa.array([f"{k}{i}" for i in range(100)]))
        for k in "ab"
    ]
    with pytest.raises(ad.ExchangeError, match="dictionaries") as info:
        ad.concat([ad.array(array).to(device) for array in arrays])
    assert info.value.reason == "size"


def test_anything_that_array_takes(software):
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


def test_one_is_returned_itself():
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


@pytest.mark.parametrize("call", ["allocate", "copy", "launch", "event_record", "stream_wait"])
def test_calls_that_fail(software, call):
    arrays = pieces(SAMPLES["struct"], "ext_dev:0")
    gc.collect()
    software.synchronize()
    before = software.live().allocations
    failed = 0
    for n in range(1, 60):
        software.fail_at(n, call)
        try:
            ad.concat(arrays)
            break
        except (ad.DeviceError, MemoryError):
            failed += 1
        finally:
            software.fail_at(0)
    assert failed > 0 or call in ("event_record", "stream_wait")
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
def test_offsets_that_make_no_sense(software, device, type, children, offsets):
    width = "i8" if type == "large_string" else "i4"
    schema = LISTS if type == "+l" else type
    there = ad.tensor(np.array(offsets, width)).to(device)
    data = [] if children else [ad.tensor(np.zeros(8, "u1")).to(device)]
    below = [ad.array(child).to(device) for child in children]
    bad = ad.Array.from_buffers(schema, 3, [None, there, *data], children=below)
    with pytest.raises(ad.InvalidArrowError, match="offset"):
        ad.concat([bad[:2], bad])


def words(offsets, data):
    """A column of one index into a made-up dictionary of strings."""
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
def test_dictionaries_that_make_no_sense(offsets, has_data):
    """Two of them with the same offsets: their strings are compared only if there are any."""
    bad = [
        ad.array(words(offsets, ctypes.create_string_buffer(8) if has_data else None))
        for _ in range(2)
    ]
    with pytest.raises(ad.InvalidArrowError, match="offset"):
        ad.concat(bad)


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
def test_strings_without_data(software, device):
    offsets = ad.tensor(np.array([0, 2, 3], "i4")).to(device)
    bad = ad.Array.from_buffers("string", 2, [None, offsets, None])
    with pytest.raises(ad.InvalidArrowError, match=r"buffers\[2\] \(data\) is NULL"):
        ad.concat([bad, bad])


def test_types_that_are_written_alike():
    """What differs is said."""
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
