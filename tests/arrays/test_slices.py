"""Pickles and copies of a slice have its own rows and nothing else of the memory."""

import copy
import pickle

import numpy as np
import pytest
from arrow_samples import skip_what_pyarrow_misreads
from concat_checks import ALL
from loops import looped

import arrowdev as ad
from arrowdev.testing import software_device

pa = pytest.importorskip("pyarrow")

ROWS = slice(5, 18)
AFTER = 3


def between(name, n_before, take):
    """The rows ROWS of a sample after `n_before` others and before AFTER others, as an array of
    pyarrow. `take`: from which end of the sample the others are."""
    sample = ad.array(ALL[name])
    end = len(sample)
    parts = {
        "first": (sample[:n_before], sample[:AFTER]),
        "last": (sample[end - n_before :], sample[end - AFTER :]),
    }
    before, after = parts[take]
    return pa.array(ad.concat([before, sample[ROWS], after]))


def own_bytes(buffer):
    try:
        return buffer and bytes(memoryview(buffer.to("cpu")))
    except ad.ExchangeError:
        return "a size that is in device memory"


def memory(array):
    """All that an array holds: numbers of rows, and the bytes of the buffers."""
    below = [*array.children, *([array.dictionary] if array.dictionary else [])]
    return [len(array), array.offset, [*map(own_bytes, array.buffers)], *map(memory, below)]


def on_device(array):
    return array.to("ext_dev:0")


def device_memory(array):
    """The same of an array on a device; where sizes are, a copy shows what the buffers hold."""
    return [memory(array), memory(array.to("cpu"))]


def pickled(protocol):
    return lambda x: memory(pickle.loads(pickle.dumps(x, protocol)))


# The result of each of them may depend on the rows only.
WAYS = {
    "pickle": pickled(5),
    "pickle, protocol 2": pickled(2),
    "deepcopy": lambda x: memory(copy.deepcopy(x)),
    "copy=True": lambda x: memory(ad.array(x, copy=True)),
    "to a device": lambda x: device_memory(on_device(x)),
}


def slices(array, first, n):
    """The rows as a slice that pyarrow exports, and as one made here."""
    yield ad.array(array.slice(first, n))
    yield ad.array(array)[first : first + n]
    # What is left when the slice has been exported once.
    yield ad.array(pa.array(ad.array(array)[first : first + n]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALL)
def test_what_is_copied_depends_on_the_rows_only(name, way):
    skip_what_pyarrow_misreads(name)
    n = ROWS.stop - ROWS.start
    with software_device():
        for n_before in range(10):
            a, b = (
                slices(between(name, n_before, take), n_before, n) for take in ("first", "last")
            )
            for x, y in zip(a, b, strict=True):
                assert x.equals(y)
                assert WAYS[way](x) == WAYS[way](y), n_before


DEVICE_WAYS = {
    "to the host": lambda x: memory(x.to("cpu")),
    "deepcopy": lambda x: device_memory(copy.deepcopy(x)),
    "to another device": lambda x: device_memory(x.to("ext_dev:1")),
}


@pytest.mark.parametrize("way", DEVICE_WAYS)
@pytest.mark.parametrize("name", ALL)
def test_what_is_copied_from_a_device_depends_on_the_rows_only(name, way):
    skip_what_pyarrow_misreads(name)
    n = ROWS.stop - ROWS.start
    with software_device():
        for n_before in range(10):
            a, b = (
                on_device(ad.array(between(name, n_before, take)))[n_before : n_before + n]
                for take in ("first", "last")
            )
            assert DEVICE_WAYS[way](a) == DEVICE_WAYS[way](b), n_before


# --- secrets ------------------------------------------------------------------------------------

SECRET = "a secret of more than twelve bytes"
PUBLIC = ["public, and of more than twelve bytes", None, "short"]


def words(n, type):
    return pa.array([SECRET] * n + PUBLIC + [SECRET] * 2, type)


def lists(n, make):
    rows = [[SECRET]] * n + [PUBLIC, None, []] + [[SECRET]] * 2
    return pa.array(rows, make(pa.string()))


def dense_union(n):
    ids = pa.array([i % 2 for i in range(n + 5)], pa.int8())
    offsets = pa.array([i // 2 for i in range(n + 5)], pa.int32())
    all_words = words(n, pa.string())
    members = [all_words.take(pa.array(range(k, n + 5, 2), pa.int64())) for k in (0, 1)]
    return pa.UnionArray.from_dense(ids, offsets, members)


SECRETS = {
    "string": lambda n: words(n, pa.string()),
    "large_string": lambda n: words(n, pa.large_string()),
    "string_view": lambda n: words(n, pa.string_view()),
    "list": lambda n: lists(n, pa.list_),
    "large_list": lambda n: lists(n, pa.large_list),
    "list_view": lambda n: lists(n, pa.list_view),
    "large_list_view": lambda n: lists(n, pa.large_list_view),
    "fixed_size_list": lambda n: pa.FixedSizeListArray.from_arrays(
        pa.array([x for x in words(n, pa.string()).to_pylist() for _ in range(2)]), 2
    ),
    "struct": lambda n: pa.array([{"a": x} for x in words(n, pa.string()).to_pylist()]),
    "map": lambda n: pa.array(
        [[("key", x)] for x in words(n, pa.string()).to_pylist()],
        pa.map_(pa.string(), pa.string()),
    ),
    "dense_union": dense_union,
    "sparse_union": lambda n: pa.UnionArray.from_sparse(
        pa.array([0] * (n + 5), pa.int8()), [words(n, pa.string()), pa.nulls(n + 5)]
    ),
    "run_end_encoded": lambda n: pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, n + 6), pa.int32()), words(n, pa.string())
    ),
}


@pytest.mark.parametrize("name", SECRETS)
def test_rows_outside_of_the_slice_are_not_in_it(name):
    with software_device():
        for n in range(10):
            for rows in slices(SECRETS[name](n), n, len(PUBLIC)):
                there = on_device(rows)
                for found in (
                    pickle.dumps(rows),
                    repr(memory(copy.deepcopy(rows))).encode(),
                    repr(device_memory(there)).encode(),
                    repr(device_memory(copy.deepcopy(there))).encode(),
                    repr(memory(there.to("cpu"))).encode(),
                ):
                    assert b"public" in found
                    assert b"secret" not in found


def test_values_of_views_without_those_between_them():
    data = np.frombuffer((PUBLIC[0] + SECRET + PUBLIC[0]).encode(), "u1")
    n, end = len(PUBLIC[0]), len(PUBLIC[0] + SECRET)
    prefix = int.from_bytes(b"publ", "little")
    views = np.array([[n, prefix, 0, 0], [n, prefix, 0, end]], "i4")
    rows = ad.Array.from_buffers("vu", 2, [None, views, data, np.array([len(data)])])
    found = pickle.dumps(rows)
    assert b"secret" not in found
    assert pickle.loads(found).to_pylist() == rows.to_pylist() == [PUBLIC[0]] * 2


def test_a_slice_behind_large_rows_is_small():
    rows = ad.array(pa.array(["x" * 1_000_000] * 7 + ["public", None]))[7:]
    assert len(pickle.dumps(rows)) < 1000
    assert sum(b.nbytes for b in copy.deepcopy(rows).buffers if b is not None) < 100


# --- a copy of what validates validates --------------------------------------------------------


def unsound_before(rows):
    """Strings whose offsets decrease before `rows`."""
    offsets = np.array([33, 8, 39, 46, 46], "i4")
    valid = np.array([0b1111], "u1")
    return ad.Array.from_buffers("u", 4, [valid, offsets, np.full(46, 65, "u1")])[rows:]


@looped("first", [1, 2, 3])
def test_a_fault_before_the_slice_is_not_copied(first):
    rows = unsound_before(first)
    rows.validate("full")
    for copied in (copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))):
        copied.validate("full")
        assert copied.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("name", [n for n in ALL if n != "dense_union"])
def test_a_copy_of_what_validates_validates(name):
    """The offsets of the sample "dense_union" decrease, which full validation refuses."""
    skip_what_pyarrow_misreads(name)
    with software_device():
        for n_before in range(10):
            for rows in slices(between(name, n_before, "first"), n_before, 13):
                rows.validate("full")
                for copied in (
                    copy.deepcopy(rows),
                    on_device(rows),
                    pickle.loads(pickle.dumps(rows)),
                ):
                    copied.validate("full")


def test_batches_whose_columns_are_longer():
    """A struct may end before its columns do; pyarrow would keep their rows in a batch."""
    columns = [pa.array([1, 2, None]), pa.array(["a", "b", "c"])]
    for mask in (None, pa.array([False, False, True])):
        struct = pa.StructArray.from_arrays(columns, ["x", "y"], mask=mask)[:2]
        for source in (ad.array(struct), ad.record_batch(struct), ad.array(struct)[:1]):
            for batch in (pa.record_batch(source), pa.table(source), pa.array(source)):
                batch.validate(full=True)
                assert batch.to_pylist() == struct[: len(source)].to_pylist()
