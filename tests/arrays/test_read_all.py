"""ArrayStream.read_all(), and array() of sources with several chunks."""

import arrow_ctypes as ac
import numpy as np
import pyarrow as pa
import pytest
from loops import looped
from stream_samples import foreign

import arrowdev as ad

TYPES = {
    "int": pa.array([1, None, 3, 4, 5, 6, 7, 8, 9, 10]),
    "no nulls": pa.array(range(10), pa.int16()),
    "bool": pa.array([True, None, False, True, True, False, None, True, False, True]),
    "null": pa.nulls(10),
    "string": pa.array(["a", None, "", "long", "b", "c", "d", None, "e", "f"]),
    "large": pa.array([b"a", None, b"", b"long"] * 3, pa.large_binary()),
    "view": pa.array(["a", None, "more than twelve bytes", "x" * 40] * 3, pa.string_view()),
    "fixed binary": pa.array([b"abc", None, b"def"] * 4, pa.binary(3)),
    "decimal": pa.array([1, None, 3] * 4, pa.decimal128(20, 2)),
    "list": pa.array([[1, 2], None, [], [3], [4, None]] * 2),
    "large list": pa.array([["a"], None, ["b", "c"]] * 4, pa.large_list(pa.string())),
    "list view": pa.array([[1, 2], None, [], [3], [4]] * 2, pa.list_view(pa.int64())),
    "fixed list": pa.array([[1, 2], None, [3, 4]] * 4, pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}] * 4),
    "map": pa.array([[("a", 1)], None, []] * 4, pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array(["a", "b", None, "a", "c"] * 2).dictionary_encode(),
    "sparse": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1] * 3, pa.int8()),
        [pa.array(range(12)), pa.array(list("abcdefghijkl"))],
    ),
    "dense": pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1] * 2, pa.int8()),
        pa.array([0, 0, 1, 1, 2, 2, 3, 3], pa.int32()),
        [pa.array(range(4)), pa.array(list("abcd"))],
    ),
    "run ends": pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 5, 6, 10], pa.int16()), pa.array(["a", None, "b", "c"])
    ),
}


@pytest.mark.parametrize("name", TYPES)
@looped("cuts", [(0, 1, 2, 7), (0, 3, 3), (0,), (0, 4, 5, 6)])
def test_chunks_are_concatenated(name, cuts):
    whole = TYPES[name]
    parts = [whole[a:b] for a, b in zip(cuts, [*cuts[1:], len(whole)], strict=True)]
    chunked = pa.chunked_array(parts)
    joined = pa.array(ad.array(chunked))
    joined.validate(full=True)
    assert joined.to_pylist() == whole.to_pylist()
    assert joined.null_count == whole.null_count
    assert joined.type == whole.type
    assert pa.array(ad.array_stream(parts).read_all()).to_pylist() == whole.to_pylist()


def test_different_dictionaries():
    parts = [
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.uint8()), ["a", "b"]),
        pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.uint8()), ["c", "a"]),
        pa.DictionaryArray.from_arrays(pa.array([0], pa.uint8()), ["a", "b"]),
    ]
    joined = pa.array(ad.array_stream(parts).read_all())
    joined.validate(full=True)
    assert joined.to_pylist() == ["a", "b", None, "a", "c", "a"]


def test_same_dictionary_is_shared():
    parts = [pa.DictionaryArray.from_arrays(pa.array([i], pa.int8()), ["a", "b"]) for i in (0, 1)]
    joined = pa.array(ad.array_stream(parts).read_all())
    assert joined.dictionary.to_pylist() == ["a", "b"] and joined.to_pylist() == ["a", "b"]


def test_index_overflow():
    values = [str(i) for i in range(100)]
    parts = [
        pa.DictionaryArray.from_arrays(pa.array([99], pa.int8()), [f"{i}{v}" for v in values])
        for i in range(2)
    ]
    with pytest.raises(ad.ExchangeError) as info:
        ad.array_stream(parts).read_all()
    assert info.value.reason == "size" and info.value.hint


def test_run_end_overflow():
    part = pa.RunEndEncodedArray.from_arrays(pa.array([30_000], pa.int16()), pa.array([1]))
    with pytest.raises(ad.ExchangeError) as info:
        ad.array_stream([part, part]).read_all()
    assert info.value.reason == "size"


def test_malformed_offsets():
    offsets = np.array([0, 5, 2], np.int32)
    bad = ad.Array.from_buffers("utf8", 2, [None, offsets, b"abcde"])
    with pytest.raises(ad.InvalidArrowError, match=r"offset 2 comes after 5|from 0 to 2|5"):
        ad.array_stream([bad, bad]).read_all()


def test_single_chunk_is_not_copied():
    column = pa.array([1, 2, 3])
    array = ad.array(pa.chunked_array([[], column, []], pa.int64()))
    assert ad.tensor(array).data_ptr == column.buffers()[1].address


def test_several_chunks_with_copy_false():
    with pytest.raises(ad.ExchangeError) as info:
        ad.array(pa.chunked_array([[1], [2]]), copy=False)
    assert info.value.reason == "chunks" and "array_stream" in info.value.hint


def test_several_chunks_on_a_device():
    source = foreign(ac.numbers(), ac.numbers(), device_type=ac.CUDA)
    with pytest.raises(ad.ExchangeError, match="cannot concatenate") as info:
        ad.array(source)
    assert info.value.reason == "device" and "array_stream" in info.value.hint
    assert source.released == 1


def test_read_all_of_remaining_batches():
    stream = ad.array_stream(np.full(2, i) for i in range(3))
    next(stream)
    assert stream.read_all().to_pylist() == [1, 1, 2, 2]
    assert list(stream) == []
