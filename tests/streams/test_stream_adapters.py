"""ArrayStream.to(), .rechunk(), .map() and ad.concat_streams(): streams that wrap streams."""

import errno
import gc
import threading
import weakref

import arrow_ctypes as ac
import numpy as np
import pyarrow as pa
import pytest
from lifetimes import is_gone
from peer import Peer
from stream_samples import (
    HERE,
    TABLE,
    TYPES,
    OneMethod,
    counted,
    failing,
    foreign,
    numbers,
    numbers_there,
    on_device,
    values,
)
from waiting import LIMIT, Call

import arrowdev as ad

duckdb = pytest.importorskip("duckdb")
pl = Peer("polars")


def host_trees(count):
    return [ac.numbers(3) for _ in range(count)]


# Behaviour of every adapter with its source stream.
ADAPTERS = {
    "to": lambda stream: stream.to("cpu"),
    "rechunk": lambda stream: stream.rechunk(2),
    "map": lambda stream: stream.map(lambda array: array),
    "concat": lambda stream: ad.concat_streams([stream]),
}
EACH = pytest.mark.parametrize("adapt", ADAPTERS.values(), ids=ADAPTERS)


# --- every adapter ------ ------------------------------------------------------------------------


@EACH
def test_adapter_takes_ownership_of_the_stream(adapt):
    stream = ad.array_stream(numbers(3))
    adapted = adapt(stream)
    assert adapted is not stream and isinstance(adapted, ad.ArrayStream)
    assert repr(stream).endswith(", handed over>")
    for again in (lambda: next(stream), lambda: adapt(stream), stream.read_all):
        with pytest.raises(ad.ExchangeError) as info:
            again()
        causes = (info.value, info.value.__cause__)
        assert "consumed" in [getattr(cause, "reason", None) for cause in causes]
    assert adapted.schema == stream.schema == ad.schema("int64")
    assert adapted.device_type == ad.DeviceType.CPU
    assert values(adapted) == [[0, 1], [2, 3], [4, 5]]
    assert list(adapted) == []


@EACH
def test_adapter_continues_after_read_batches(adapt):
    stream = ad.array_stream(numbers(3))
    next(stream)
    assert values(adapt(stream)) == [[2, 3], [4, 5]]


@EACH
def test_empty_stream(adapt):
    stream = ad.array_stream(iter([]), schema="utf8")
    if adapt is ADAPTERS["map"]:
        with pytest.raises(ValueError, match="schema="):
            adapt(stream)
    else:
        assert list(adapt(stream)) == []


@EACH
@pytest.mark.parametrize("device_type", [None, ac.CPU], ids=["host", "device"])
def test_producer_is_released_once(adapt, device_type):
    source = foreign(*host_trees(4), device_type=device_type)
    adapted = adapt(ad.array_stream(source))
    arrays = list(adapted)
    assert source.released == 1  # at the end of the stream, not later
    del adapted
    gc.collect()
    assert source.released == 1 and source.schema.released == 0  # the arrays hold it
    assert sum(len(array) for array in arrays) == 12
    del arrays
    gc.collect()
    assert source.schema.released == 1


@EACH
def test_early_close_releases_at_once(adapt):
    source = foreign(*host_trees(4))
    with adapt(ad.array_stream(source)) as adapted:
        array = next(adapted)
        assert source.released == 0
    assert source.released == 1
    assert repr(adapted).endswith(", closed>")
    assert len(array) in (2, 3)


@EACH
@pytest.mark.parametrize("device", [False, True])
def test_unused_capsule_releases(adapt, device):
    source = foreign(*host_trees(4))
    peer = OneMethod(adapt(ad.array_stream(source)), device=device)
    assert source.released == 0
    del peer
    gc.collect()
    assert source.released == 1


@EACH
@pytest.mark.parametrize("device", [False, True])
def test_both_capsules(adapt, device):
    peer = OneMethod(adapt(ad.array_stream(numbers(3))), device=device)
    assert values(ad.array_stream(peer)) == [[0, 1], [2, 3], [4, 5]]


class Breaking(ac.Stream):
    """A stream that fails after its last array."""

    def _get_next(self, pointer, out):
        self.next_code = 0 if self.rest else errno.ENOSPC
        return super()._get_next(pointer, out)


@EACH
@pytest.mark.parametrize("message", ["the disk is full", "x" * 3000])
def test_foreign_failure_passes_through(adapt, message):
    source = Breaking(ac.SchemaNode("l"), host_trees(4), message=message)
    adapted = adapt(ad.array_stream(source))
    found = 0
    with pytest.raises(ad.ExchangeError) as info:
        for array in adapted:
            found += len(array)
    assert found == 12
    assert info.value.code == errno.ENOSPC and info.value.reason == "stream"
    text = f"{info.value}{info.value.__cause__ or ''}"  # errors of its source are unwrapped
    assert text.endswith(message) and "get_next" in text
    adapted.close()
    assert source.released == 1


@EACH
def test_exception_is_raised_after_its_batches(adapt):
    adapted = adapt(ad.array_stream(failing(ValueError("broken"), after=3)))
    found = []
    with pytest.raises(ad.ExchangeError, match=r"broken|raised") as info:
        found.extend(array.to_pylist() for array in adapted)
    assert found == [[0, 1], [2, 3], [4, 5]]
    cause = info.value
    while cause.__cause__ is not None:
        cause = cause.__cause__
    assert isinstance(cause, ValueError) and str(cause) == "broken"
    assert info.value.code == errno.EINVAL
    with pytest.raises(ad.ExchangeError):  # the stream does not continue
        next(adapted)


@EACH
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("no"), SystemExit(3)])
def test_exceptions_that_are_not_wrapped(adapt, error):
    with pytest.raises(type(error)):
        list(adapt(ad.array_stream(failing(error))))


@EACH
def test_exported_exception_keeps_its_text(adapt):
    error = OSError(errno.ENOSPC, "broken")
    source = (pa.record_batch({"a": x}) for x in failing(error, after=3))
    reader = pa.RecordBatchReader.from_stream(adapt(ad.array_stream(source)))
    for _ in range(3):
        reader.read_next_batch()
    with pytest.raises(OSError, match="broken"):
        reader.read_next_batch()


@EACH
def test_cycle_is_collected(adapt):
    class Source:
        def __iter__(self):
            return self

        def __next__(self):
            return np.arange(2)

    source = Source()
    source.stream = adapt(ad.array_stream(source))
    reference = weakref.ref(source)
    del source
    assert is_gone(reference)


class Slow(ac.Stream):
    """Blocks in get_next and takes the GIL there: this needs a caller without the GIL."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.started, self.go_on = threading.Event(), threading.Event()

    def _get_next(self, pointer, out):
        self.started.set()
        assert self.go_on.wait(LIMIT)
        return super()._get_next(pointer, out)


@EACH
def test_gil_is_free_while_a_foreign_stream_is_read(adapt):
    source = Slow(ac.SchemaNode("l"), host_trees(2))
    call = Call(lambda: sum(len(array) for array in adapt(ad.array_stream(source))))
    assert source.started.wait(LIMIT)
    gc.collect()  # traverses the stream while another thread reads it
    source.go_on.set()
    assert call.result() == 6


@EACH
def test_concurrent_readers_are_refused(adapt):
    source = Slow(ac.SchemaNode("l"), host_trees(3))
    source.go_on.set()
    adapted = adapt(ad.array_stream(source))
    source.go_on.clear()
    source.started.clear()
    call = Call(lambda: len(adapted.read_all()))
    assert source.started.wait(LIMIT)
    for again in (lambda: next(adapted), lambda: adapted.to("cpu"), lambda: adapted.rechunk(1)):
        with pytest.raises(RuntimeError, match="one reader at a time"):
            again()
    source.go_on.set()
    assert call.result() == 9


@EACH
def test_recursive_read_is_refused(adapt):
    holder = []

    def source():
        yield from numbers(2)
        next(holder[0])

    holder.append(adapt(ad.array_stream(source())))
    with pytest.raises(ad.ExchangeError, match="being read already"):
        list(holder[0])
    holder.clear()


@EACH
def test_pulled_by_threads_of_duckdb(adapt):
    batches = (pa.record_batch({"a": range(i, i + 100)}) for i in range(50))
    con = duckdb.connect(config={"threads": 4})
    stream = adapt(ad.array_stream(batches))  # noqa: F841, found by its name
    assert con.sql("select count(*), sum(a) from stream").fetchall() == [(5000, 370_000)]


PEERS = {
    "pyarrow": lambda: TABLE,
    "polars": lambda: pl.concat(
        [pl.from_arrow(TABLE[:4]), pl.from_arrow(TABLE[4:])], rechunk=False
    ),
    "duckdb": lambda: duckdb.from_arrow(TABLE),
}


@EACH
@pytest.mark.parametrize("make", PEERS.values(), ids=PEERS)
def test_streams_of_peers(adapt, make):
    def rows(stream):
        return [row for batch in stream for row in batch.to_pylist()]

    assert rows(adapt(ad.array_stream(make()))) == TABLE.to_pylist()
    again = pa.RecordBatchReader.from_stream(adapt(ad.array_stream(make())))
    assert again.read_all().to_pylist() == TABLE.to_pylist()
    assert pl.DataFrame(adapt(ad.array_stream(make()))).to_dicts() == TABLE.to_pylist()


def test_adapters_combined(device):
    stream = ad.concat_streams([numbers(5, 3), pa.chunked_array([[15, 16], [17]])])
    stream = stream.rechunk(4).to(HERE, prefetch=2).rechunk(2).to("cpu", prefetch=3).rechunk(5)
    stream = stream.map(lambda array: np.asarray(array) * 2)
    assert stream.read_all().to_pylist() == list(range(0, 36, 2))


# --- rechunk() ---------- ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "rows", "expected"),
    [
        ([4, 4], 4, [4, 4]),
        ([10], 4, [4, 4, 2]),
        ([1] * 5, 4, [4, 1]),
        ([3, 0, 6, 0, 3], 4, [4, 4, 4]),
        ([3, 3], 2**62, [6]),
        ([0, 0], 3, [0]),
    ],
)
def test_rows(given, rows, expected):
    whole = np.arange(sum(given))
    parts = np.split(whole, np.cumsum(given)[:-1])
    found = list(ad.array_stream(parts).rechunk(rows))
    assert [len(array) for array in found] == expected
    assert [x for array in found for x in array.to_pylist()] == whole.tolist()


def test_slices_share_memory():
    x = np.arange(10)
    for array in ad.array_stream([x]).rechunk(4):
        assert np.shares_memory(np.asarray(array), x)
    pieces = [x[:4], np.arange(2), np.arange(2), x[4:6]]
    found = list(ad.array_stream(pieces).rechunk(4))
    assert [np.shares_memory(np.asarray(array), x) for array in found] == [True, False, True]


@pytest.mark.parametrize("rows", [1, 3, 4, 100])
@pytest.mark.parametrize("name", TYPES)
def test_chunks_are_concatenated(name, rows):
    array = TYPES[name]
    parts = [array[:2], array[2:5], array[5:6], array[6:]]
    found = [pa.array(part) for part in ad.array_stream(parts).rechunk(rows)]
    for part in found:
        part.validate(full=True)
    assert [x for part in found for x in part.to_pylist()] == array.to_pylist()
    assert {len(part) for part in found[:-1]} <= {rows}


def test_record_batches_are_cut():
    reader = pa.RecordBatchReader.from_stream(ad.array_stream(TABLE).rechunk(2))
    batches = list(reader)
    assert [batch.num_rows for batch in batches] == [2, 2, 2, 2, 1]
    assert pa.Table.from_batches(batches).equals(TABLE.combine_chunks())


def test_batches_on_a_device(device):
    """Batches are cut on the device; an error says that they cannot be concatenated."""
    stream = ad.array_stream(numbers_there(2)).rechunk(1)
    assert [array.to("cpu").to_pylist() for array in stream] == [[0], [1], [2], [3]]
    queue = device.queue()
    with queue.held():
        stream = ad.array_stream(on_device(device, [queue])).rechunk(1)
        assert next(stream).sync_event is not None
        stream.close()


def test_device_memory_is_concatenated_on_the_device(device):
    batches = (device.array([3 * i, 3 * i + 1, 3 * i + 2]) for i in range(3))
    stream = ad.array_stream(batches).rechunk(4)
    found = list(stream)
    assert {str(batch.device) for batch in found} == {"ext_dev:0"}
    assert [batch.to("cpu").to_pylist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def test_device_memory_without_a_runtime_cannot_be_concatenated():
    trees = [ac.numbers(device=(ac.CUDA, 0)) for _ in range(2)]
    stream = ad.array_stream(foreign(*trees, device_type=ac.CUDA)).rechunk(4)
    with pytest.raises(ad.ExchangeError) as info:
        next(stream)
    assert info.value.reason == "device" and "array_stream" in info.value.hint


def test_rechunk_reads_only_the_needed_batches():
    taken = []
    stream = ad.array_stream(counted(taken, numbers(5, 3)), schema="int64", device_type=1).rechunk(
        4
    )
    next(stream)
    assert len(taken) == 2


@pytest.mark.parametrize("rows", [0, -1, 2**80])
def test_rows_out_of_range(rows):
    stream = ad.array_stream(numbers(1))
    with pytest.raises(ValueError, match="rows"):
        stream.rechunk(rows)
    for wrong in ("1", 1.0, None, True):
        with pytest.raises(TypeError, match="rows must be an int"):
            stream.rechunk(wrong)

    class Interrupted:
        def __index__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream.rechunk(Interrupted())
    assert len(list(stream)) == 1


# --- map() -------------- ------------------------------------------------------------------------


def test_map_accepts_results_that_array_accepts():
    stream = ad.array_stream(numbers(3)).map(lambda array: np.asarray(array) * 0.5)
    assert stream.schema == ad.schema("float64")
    assert values(stream) == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]
    stream = ad.array_stream(numbers(1)).map(lambda array: pa.array(["x"] * len(array)))
    assert values(stream) == [["x", "x"]]


def test_map_calls_function_on_request():
    calls = []
    stream = ad.array_stream(numbers(3)).map(lambda array: calls.append(array) or array)
    assert len(calls) == 1  # for the schema
    next(stream)
    assert len(calls) == 1
    next(stream)
    assert [type(array) for array in calls] == [ad.Array, ad.Array]


def test_schema_of_map():
    stream = ad.array_stream(numbers(2)).map(
        lambda array: array, schema=pa.field("x", pa.int64(), nullable=False)
    )
    assert not stream.schema.nullable and not next(stream).schema.nullable
    empty = ad.array_stream([], schema="utf8").map(len, schema="int64")
    assert empty.schema == ad.schema("int64") and list(empty) == []


def test_device_of_map(device):
    stream = ad.array_stream(numbers(2)).map(lambda array: array.to(HERE))
    assert stream.device_type == ad.DeviceType.EXT_DEV
    assert values(stream) == [[0, 1], [2, 3]]
    there = ad.array_stream([], schema="int64", device_type=ad.DeviceType.EXT_DEV)
    assert there.map(len, schema="int64").device_type == ad.DeviceType.EXT_DEV


def test_map_function_raises():
    def function(array):
        if array.to_pylist()[0] > 1:
            raise KeyError("broken")
        return array

    stream = ad.array_stream(numbers(3)).map(function)
    next(stream)
    with pytest.raises(ad.ExchangeError, match="KeyError: 'broken'") as info:
        next(stream)
    assert isinstance(info.value.__cause__, KeyError) and info.value.reason == "stream"
    with pytest.raises(ZeroDivisionError):  # for the schema: raised at once and unwrapped
        ad.array_stream(numbers(3)).map(lambda array: 1 // 0)


@pytest.mark.parametrize("schema", [None, "int64"])
def test_stop_iteration_of_map_function_is_an_error(schema):
    results = iter([np.arange(2)])
    stream = ad.array_stream(numbers(3)).map(lambda array: next(results), schema=schema)
    assert next(stream).to_pylist() == [0, 1]
    with pytest.raises(ad.ExchangeError, match="map function raised StopIteration") as info:
        next(stream)
    error = info.value.__cause__
    assert isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration)
    with pytest.raises(ad.ExchangeError):  # the stream does not continue
        next(stream)
    with pytest.raises(RuntimeError, match="map function raised StopIteration"):
        ad.array_stream(numbers(3)).map(lambda array: next(results))  # for the schema


def test_map_result_of_another_type():
    results = iter([np.arange(2), np.arange(2.0)])
    stream = ad.array_stream(numbers(3)).map(lambda array: next(results))
    next(stream)
    with pytest.raises(ad.ExchangeError) as info:
        next(stream)
    assert info.value.reason == "schema" and info.value.code == errno.EINVAL
    assert str(info.value).startswith("result 1 of the function of map() (of type num")
    assert "it is float64, but the stream is int64" in str(info.value)
    with pytest.raises(TypeError, match=r"result 0 of the function of map\(\) \(of type int\)"):
        ad.array_stream(numbers(3)).map(len)
    with pytest.raises(TypeError, match=r"function of map\(\) returned None for batch 0; it must"):
        ad.array_stream(numbers(3)).map(lambda array: None)
    results = iter([np.arange(2), None])
    later = ad.array_stream(numbers(3)).map(lambda array: next(results))
    next(later)
    with pytest.raises(ad.ExchangeError, match=r"function of map\(\) returned None for batch 1"):
        next(later)


def test_arguments_of_map():
    stream = ad.array_stream(numbers(1))
    with pytest.raises(TypeError, match="callable"):
        stream.map(5)
    with pytest.raises(ValueError):
        stream.map(len, schema="no such type")
    assert len(list(stream)) == 1


def test_map_holds_no_batch():
    arrays = [np.arange(3), np.arange(2)]
    reference = weakref.ref(arrays[0])
    source = (arrays.pop() for _ in range(2))
    stream = ad.array_stream(source).map(lambda array: array)
    next(stream)
    next(stream)
    assert is_gone(reference)


# --- concat_streams() --- ------------------------------------------------------------------------


def test_concat_streams_keeps_the_order():
    stream = ad.concat_streams(
        [
            numbers(2),
            pa.chunked_array([[7], [8]]),
            np.array([9]),
            ad.array_stream([np.array([10])]),
            ad.array_stream(iter([np.array([11])])).__arrow_c_stream__(),
        ]
    )
    assert stream.schema == ad.schema("int64")
    assert values(stream) == [[0, 1], [2, 3], [7], [8], [9], [10], [11]]


def test_streams_are_imported_one_by_one():
    opened = []

    def streams():
        for i in range(3):
            opened.append(i)
            yield numbers(2)

    stream = ad.concat_streams(streams())
    assert opened == [0]
    next(stream), next(stream)
    assert opened == [0]
    next(stream)
    assert opened == [0, 1]
    stream.close()
    assert opened == [0, 1]


def test_each_stream_is_released_when_it_ends():
    sources = [foreign(*host_trees(1)) for _ in range(3)]
    stream = ad.concat_streams(sources)
    next(stream), next(stream)
    assert [source.released for source in sources] == [1, 0, 0]
    stream.close()
    assert [source.released for source in sources] == [1, 1, 0]


def test_different_schemas():
    stream = ad.concat_streams([numbers(1), [np.arange(2.0)]])
    next(stream)
    for _ in range(2):
        with pytest.raises(ad.ExchangeError, match=r"stream 1 is float64.* is int64") as info:
            next(stream)
        assert info.value.reason == "schema"


def test_different_extensions():
    storage = pa.array([1, 0], pa.int8())
    stream = ad.concat_streams([storage, pa.ExtensionArray.from_storage(pa.bool8(), storage)])
    next(stream)
    with pytest.raises(ad.ExchangeError, match="stream 1") as info:
        next(stream)
    assert info.value.reason == "schema"


def test_metadata_of_the_first_stream_are_kept():
    tables = [pa.table({"a": [i]}).replace_schema_metadata({"n": str(i)}) for i in range(2)]
    stream = ad.concat_streams(tables)
    assert {pa.schema(array.schema).metadata[b"n"] for array in stream} == {b"0"}


def test_different_devices():
    there = foreign(ac.numbers(device=(ac.CUDA, 0)), device_type=ac.CUDA)
    stream = ad.concat_streams([numbers(1), there])
    next(stream)
    with pytest.raises(ad.ExchangeError, match=r"stream 1 is on cuda.* on cpu") as info:
        next(stream)
    assert info.value.reason == "device" and ".to(" in info.value.hint
    assert there.released == 1


def test_requested_schema():
    with pytest.raises(ad.ExchangeError, match=r"stream 0 is int64.* is string") as info:
        ad.concat_streams([numbers(1)], schema="utf8")
    assert info.value.reason == "schema"
    with pytest.raises(ValueError, match="schema="):
        ad.concat_streams([])
    empty = ad.concat_streams([], schema="utf8")
    assert empty.schema == ad.schema("utf8") and list(empty) == []
    assert values(ad.concat_streams([numbers(1)], schema="int64")) == [[0, 1]]


def test_invalid_streams():
    with pytest.raises(TypeError, match="not iterable"):
        ad.concat_streams(5)
    with pytest.raises(TypeError, match=r"stream 0 \(of type int\)"):
        ad.concat_streams([5])
    stream = ad.concat_streams([numbers(1), None])
    next(stream)
    with pytest.raises(ad.ExchangeError, match=r"stream 1 \(of type NoneType\)"):
        next(stream)
    used = ad.array_stream(numbers(1))
    used.close()
    with pytest.raises(ad.ExchangeError, match="stream 0"):
        ad.concat_streams([used])


def test_iterable_of_streams_raises():
    def streams():
        yield numbers(2)
        raise ValueError("no more of them")

    stream = ad.concat_streams(streams())
    next(stream), next(stream)
    with pytest.raises(ad.ExchangeError, match="ValueError: no more of them") as info:
        next(stream)
    assert isinstance(info.value.__cause__, ValueError) and info.value.code == errno.EINVAL
    with pytest.raises(ZeroDivisionError):  # the first one: raised at once and unwrapped
        ad.concat_streams(1 // 0 for _ in range(1))


def test_generators_are_closed_early():
    closed = []

    def source(i):
        try:
            yield from numbers(3)
        finally:
            closed.append(i)

    def streams():
        try:
            yield source(0)
            yield source(1)
        finally:
            closed.append("streams")

    stream = ad.concat_streams(streams())
    next(stream)
    stream.close()
    assert sorted(closed, key=str) == [0, "streams"]
