"""arrowdev.testing's scripted ends of streams with peers, with arrowdev and on a device."""

import asyncio
import errno
import threading

import nanoarrow as na
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scripted_samples import LIMIT, TABLE, rows

import arrowdev as ad
from arrowdev import aio, testing
from arrowdev.testing import (
    ScriptedAsyncHandler,
    ScriptedAsyncProducer,
    ScriptedReader,
    ScriptedStream,
    step,
)

# --- peers ---------------------------------------------------------------------------------------


def read_pyarrow(stream):
    return pa.RecordBatchReader.from_stream(stream).read_all().to_pylist()


def read_nanoarrow(stream):
    return [row for batch in na.ArrayStream(stream) for row in batch.to_pylist()]


def read_polars(stream):
    return pl.DataFrame(stream).to_dicts()


def read_duckdb(stream):
    duckdb = pytest.importorskip("duckdb")
    names = ["a", "s"]
    found = duckdb.connect().sql("select a, s from stream").fetchall()
    return [dict(zip(names, row, strict=True)) for row in found]


def read_arrowdev(stream):
    return rows(ad.array_stream(stream))


READERS = {
    "pyarrow": read_pyarrow,
    "nanoarrow": read_nanoarrow,
    "polars": read_polars,
    "duckdb": read_duckdb,
    "arrowdev": read_arrowdev,
}
GONE = "the disk is gone"


@pytest.mark.parametrize("name", READERS)
def test_peer_reads_a_script(name):
    stream = ScriptedStream([TABLE, TABLE], device=name == "arrowdev")
    assert READERS[name](stream) == [{"a": 1, "s": "x"}, {"a": 2, "s": None}] * 2
    stream.check()
    assert "get_last_error" not in stream.names


@pytest.mark.parametrize("name", READERS)
def test_peer_reports_an_error(name):
    """Covers peers that release their structs while the exception propagates."""
    stream = ScriptedStream([TABLE, step.error(errno.EIO, GONE)], device=name == "arrowdev")
    with pytest.raises(Exception, match=GONE):  # each peer has its own exception type
        READERS[name](stream)
    stream.check()


@pytest.mark.parametrize("name", READERS)
def test_peer_reports_a_schema_error(name):
    stream = ScriptedStream([TABLE], schema_error=step.error(errno.EIO, GONE), device=False)
    with pytest.raises(Exception, match=GONE):
        READERS[name](stream)
    stream.check()


def test_peer_drops_a_stream_early():
    stream = ScriptedStream([TABLE, TABLE])
    reader = pa.RecordBatchReader.from_stream(stream)
    assert reader.read_next_batch().num_rows == 2
    del reader
    assert stream.names.count("get_next") == 1
    stream.check()
    stream = ScriptedStream([TABLE, TABLE])
    with ad.array_stream(stream) as reader:
        next(reader)
    del reader
    stream.check()


def producers():
    table = pa.table(pa.record_batch(ad.record_batch(testing._producers.host_array(TABLE))))
    duckdb = pytest.importorskip("duckdb")
    return {
        "pyarrow.Table": table,
        "pyarrow.RecordBatchReader": table.to_reader(),
        "nanoarrow": na.ArrayStream(table),
        "polars": pl.from_arrow(table),
        "duckdb": duckdb.connect().from_arrow(table),
        "arrowdev": ad.array_stream(table),
        "arrowdev of a generator": ad.array_stream(batch for batch in table.to_batches()),
    }


PRODUCERS = [
    "pyarrow.Table",
    "pyarrow.RecordBatchReader",
    "nanoarrow",
    "polars",
    "duckdb",
    "arrowdev",
    "arrowdev of a generator",
]


@pytest.mark.parametrize("host", [False, True], ids=["device", "host"])
@pytest.mark.parametrize("name", PRODUCERS)
def test_script_reads_a_peer(name, host):
    steps = [
        step.get_schema(),
        step.get_schema(),
        step.get_next(),
        step.on_thread(step.get_next()),
    ]
    reader = ScriptedReader([*steps, step.get_next(2), step.release()], host=host)
    reader.read(producers()[name])
    assert rows(reader.batches) == [{"a": 1, "s": "x"}, {"a": 2, "s": None}]
    assert reader.is_at_end and reader.errors == []
    reader.check()


@pytest.mark.parametrize("name", ["arrowdev", "arrowdev of a generator"])
def test_ours_survives_a_second_release(name):
    steps = [step.get_next(), step.release(), step.release(anyway=True)]
    reader = ScriptedReader(steps).read(producers()[name])
    assert reader.names[-2:] == ["release", "release"]
    reader.check()


def test_own_error_keeps_its_type():
    def source():
        yield np.arange(2)
        raise OSError(errno.ENOSPC, "no space left")

    reader = ScriptedReader([step.read_to_end(), step.get_next()]).read(ad.array_stream(source()))
    (code, text), again = reader.errors
    assert code == errno.ENOSPC and "no space left" in text and again[0] != 0
    reader.check()


def test_foreign_error_passes_through_ours():
    stream = ScriptedStream([step.error(errno.EAGAIN, GONE), [1]], type="int64")
    reader = ScriptedReader([step.get_next(2)]).read(ad.array_stream(stream))
    assert reader.errors == [(errno.EAGAIN, GONE)]
    assert rows(reader.batches) == [1]  # the producer decides how to continue
    reader.check()


# --- devices -------------------------------------------------------------------------------------


def test_device_batches_keep_their_events(device):
    queue = device.queue()
    with queue.held():
        stream = ScriptedStream([device.array([i], queue=queue) for i in range(3)])
        assert not hasattr(stream, "__arrow_c_stream__")  # the host cannot read it
        reader = ScriptedReader().read(ad.array_stream(stream))
        assert not any(batch.is_ready() for batch in reader.batches)
        assert len({batch.sync_event for batch in reader.batches}) == 3
    assert [batch.to("cpu").to_pylist() for batch in reader.batches] == [[0], [1], [2]]
    reader.check()
    del reader
    stream.check()


def test_device_batches_through_an_async_stream(device):
    queue = device.queue()
    with queue.held():
        producer = ScriptedAsyncProducer.of([device.array([i], queue=queue) for i in range(3)])
        handler = ScriptedAsyncHandler(timeout=LIMIT).connect(producer)
        handler.wait_for_release()
        assert handler.device_type == testing.EXT_DEV
        assert not any(batch.is_ready() for batch in handler.batches)
    assert [batch.to("cpu").to_pylist() for batch in handler.batches] == [[0], [1], [2]]
    handler.check()
    del handler
    producer.check()


# --- arrowdev.aio as the consumer ----------------------------------------------------------------


async def read(stream):
    """All batches of a stream, and how it ends."""
    found = []
    try:
        async for batch in stream:
            found += batch.to_pylist()
    except (ad.ExchangeError, ad.InvalidArrowError) as error:
        return found, error
    return found, None


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT))


def consume(producer, queue_size=5):
    async def main():
        stream = aio.connect(producer, queue_size=queue_size)
        async with stream:
            return await read(stream)

    found = run(main())
    producer.wait()
    return found


# A producer without its own thread cannot wait for requests: it has those that are queued.
ON_CALLER = [(n, size, False) for n in (0, 1, 2) for size in (2, 5, 64)]
ON_THREAD = [(n, size, True) for n in (0, 1, 5, 100) for size in (1, 2, 5, 64)]


@pytest.mark.parametrize(("n", "queue_size", "on_thread"), [*ON_CALLER, *ON_THREAD])
def test_aio_reads_a_script(n, queue_size, on_thread):
    batches = [ad.array(np.full(2, i)) for i in range(n)]
    producer = ScriptedAsyncProducer.of(
        batches, type="int64", on_thread=on_thread, timeout=LIMIT, metadata={"n": str(n)}
    )
    assert consume(producer, queue_size) == ([i for i in range(n) for _ in range(2)], None)
    assert n <= producer.n_requested <= n + queue_size
    producer.check()
    assert producer.is_all_released


# --- arrowdev.aio as the producer ----------------------------------------------------------------


def produce(handler, source, **options):
    run(aio.produce(handler.capsule, source, **options))
    handler.wait_for_release()


async def numbers(n):
    for i in range(n):
        yield np.full(2, i)


SOURCES = {
    "list": lambda n: [np.full(2, i) for i in range(n)],
    "async generator": numbers,
    "stream": lambda n: ad.array_stream(
        (np.full(2, i) for i in range(n)), schema="int64", device_type=ad.DeviceType.CPU
    ),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("n", [0, 1, 5, 100])
def test_script_reads_aio(n, name):
    handler = ScriptedAsyncHandler(timeout=LIMIT)
    produce(handler, SOURCES[name](n), schema=None if name == "stream" else "int64")
    assert rows(handler.batches) == [i for i in range(n) for _ in range(2)]
    assert handler.is_ended and handler.error is None
    handler.check()


def test_script_reads_metadata_of_aio():
    handler = ScriptedAsyncHandler(timeout=LIMIT)
    produce(handler, [(np.arange(1), {"k": "v"}), np.arange(1)], metadata={"rows": "2"})
    assert handler.metadata == {b"rows": b"2"}
    assert handler.batch_metadata == [{b"k": b"v"}, None]
    handler.check()


def test_tasks_that_outlive_the_producer():
    handler = ScriptedAsyncHandler([step.request(9)], [], timeout=LIMIT)
    produce(handler, numbers(3))
    assert [handler.extract().to_pylist() for _ in range(3)] == [[0, 0], [1, 1], [2, 2]]
    handler.check()


def test_producer_respects_requests_of_slow_consumer():
    handler = ScriptedAsyncHandler([], [], timeout=LIMIT)
    thread = threading.Thread(
        target=produce, args=(handler, numbers(5)), kwargs={"schema": "int64"}
    )
    thread.start()
    handler.wait_for_schema()
    for i in range(5):
        assert handler.n_tasks == i
        handler.request(1)
        handler.wait_for_tasks(i + 1)
        assert handler.extract().to_pylist() == [i, i]
    thread.join(LIMIT)
    assert not thread.is_alive()
    handler.check()


# --- the bridges ---------------------------------------------------------------------------------


def test_pull_stream_is_pushed():
    """ArrayStream.__arrowdev_async_device_stream__, on its own thread."""
    source = ScriptedStream([[1], [2], [3]])
    handler = ScriptedAsyncHandler(timeout=LIMIT).connect(ad.array_stream(source))
    handler.wait_for_release()
    assert rows(handler.batches) == [1, 2, 3]
    assert threading.get_ident() not in {
        one.thread for one in source.calls if one.name == "get_next"
    }
    handler.check()
    handler.batches.clear()
    handler.schema = None
    source._wait(lambda: source.is_all_released, "the end of the thread")
    source.check()


def test_error_of_a_pull_stream_is_pushed():
    source = ScriptedStream([[1], step.error(errno.EIO, GONE)])
    handler = ScriptedAsyncHandler(timeout=LIMIT).connect(ad.array_stream(source))
    handler.wait_for_release()
    assert rows(handler.batches) == [1]
    assert handler.error[0] == errno.EIO and GONE in handler.error[1]
    handler.check()


def test_pushed_stream_is_pulled():
    producer = ScriptedAsyncProducer.of([[i] for i in range(10)], timeout=LIMIT)
    reader = ScriptedReader().read(aio.connect(producer, queue_size=2).to_stream())
    assert rows(reader.batches) == list(range(10))
    reader.check()
    del reader
    producer.wait()
    producer.check()


def test_dropped_pull_stream():
    producer = ScriptedAsyncProducer.of([[i] for i in range(100)], timeout=LIMIT)
    stream = aio.connect(producer, queue_size=2).to_stream()
    ScriptedReader([step.get_next(3), step.release()]).read(stream)
    del stream
    producer.wait()
    assert producer.is_cancelled and producer.n_sent < 100
    producer.check()
