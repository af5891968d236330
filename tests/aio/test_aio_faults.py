"""Faults in async streams, through Python: protocol violations, failures, lost peers."""

import asyncio
import errno
import gc
import threading
from functools import partial

import pytest
from aio_samples import LIMIT, run

import arrowdev as ad
from arrowdev import aio
from arrowdev.testing import (
    ScriptedAsyncHandler,
    ScriptedAsyncProducer,
    step,
)


def values(arrays):
    return [value for array in arrays for value in array.to_pylist()]


async def read(producer, batches, **options):
    """Reads to the end, which may be an error."""
    async for batch in aio.connect(producer, **options):
        batches.append(batch)


def fail_to_read(producer, **options):
    """Returns the values that were read and the error at the end."""
    batches = []
    with pytest.raises((ad.ExchangeError, ad.InvalidArrowError)) as caught:
        run(read(producer, batches, **options))
    producer.wait()
    error = caught.value.with_traceback(None)  # the traceback would keep the stream
    error.__context__ = None
    return values(batches), error


def scripted(*steps, **options):
    options = {"type": "int64", "obey": False, "timeout": LIMIT, **options}
    return ScriptedAsyncProducer(steps, **options)


# --- producers that violate the protocol ---------------------------------------------------------

BROKEN = {
    "task before the schema": (
        [step.batch([1]), step.release()],
        [],
        "on_next_task was called before on_schema, which must be the first call",
    ),
    "end before the schema": (
        [step.end(), step.release()],
        [],
        "on_next_task was called before on_schema",
    ),
    "release before the schema": ([step.release()], [], "release was called"),
    "schema twice": (
        [step.schema(), step.schema(), step.release()],
        [],
        "on_schema was called twice, but a stream has one schema",
    ),
    "producer not populated": (
        [step.schema(populate=False), step.release()],
        [],
        "on_schema was called with a NULL producer",
    ),
    "more tasks than requested": (
        [step.schema(), *[step.batch([i]) for i in range(3)], step.release()],
        [0, 1],
        "on_next_task was called for batch 3, but only 2 were requested",
    ),
    "release without an end": (
        [step.schema(), step.batch([1]), step.release()],
        [1],
        "release was called",
    ),
    "task after an error": (
        [step.schema(), step.error(5, "broken"), step.batch([1]), step.release()],
        [],
        "error 5 (Input/output error): broken",
    ),
    "empty task": (
        [step.schema(), step.batch([1], empty=True), step.end(), step.release()],
        [],
        "extract_data of batch 1 of the async stream returned 0 without an array",
    ),
    "extraction that fails without a word": (
        [step.schema(), step.batch([1], code=5), step.end(), step.release()],
        [],
        "extract_data of batch 1 of the async stream failed with error 5",
    ),
    "extraction that fails": (
        [
            step.schema(),
            step.batch([1]),
            step.batch([2], code=5),
            step.error(7, "could not decode"),
            step.release(),
        ],
        [1],
        "could not decode",
    ),
    "batch of another device": (
        [
            step.schema(),
            step.batch([1]),
            step.batch([2], device_type=2),
            step.end(),
            step.release(),
        ],
        [1],
        "device type 2, which the producer's type 1 cannot access",
    ),
    "batch of another type": (
        [step.schema("utf8"), step.batch([1]), step.end(), step.release()],
        [],
        "batch 1 of the async stream: ",
    ),
}
# These violations are detected after all valid batches have been read.
AFTER_THE_END = {
    "error after the end": [step.schema(), step.end(), step.error(5, "late"), step.release()],
    "task after the end": [step.schema(), step.end(), step.batch([1]), step.release()],
    "end twice": [step.schema(), step.end(), step.end(), step.release()],
}


@pytest.mark.parametrize("name", BROKEN)
def test_producer_violates_protocol(name):
    steps, read_before, text = BROKEN[name]
    producer = scripted(*steps, on_thread=False)  # all steps run before the first read
    found, error = fail_to_read(producer, queue_size=2)
    assert found == read_before
    assert text in str(error)
    gc.collect()
    assert producer.is_all_released


@pytest.mark.parametrize("name", AFTER_THE_END)
def test_producer_continues_after_end(name):
    producer = scripted(*AFTER_THE_END[name], on_thread=False)

    async def main():
        with pytest.raises(ad.ExchangeError, match="after the end of the stream"):
            await read(producer, [])

    run(main())
    assert producer.is_all_released


@pytest.mark.parametrize("queue_size", [1, 5, 100])
def test_consumer_follows_protocol(queue_size):
    producer = ScriptedAsyncProducer.of([[i] for i in range(50)], timeout=LIMIT)
    batches = []
    run(read(producer, batches, queue_size=queue_size))
    producer.wait()
    assert values(batches) == list(range(50))
    del batches
    producer.check()


@pytest.mark.parametrize("n_read", [0, 1, 10])
def test_leaving_consumer_follows_protocol(n_read):
    producer = ScriptedAsyncProducer.of([[i] for i in range(10**4)], timeout=LIMIT)

    async def main():
        async with aio.connect(producer) as stream:
            for _ in range(n_read):
                await anext(stream)

    run(main())
    producer.wait()
    gc.collect()
    assert producer.is_cancelled
    producer.check()


def test_producer_frees_its_struct_early():
    """The producer frees its struct early, as Arrow C++ does. The consumer does not access it."""
    steps = [step.schema(), step.wait_for_request(2), step.batch([0]), step.batch([1])]
    producer = scripted(*steps, step.free_producer(), step.end(), step.release())

    async def main():
        stream = aio.connect(producer, queue_size=2)
        await stream.get_schema()
        await asyncio.to_thread(producer.wait)
        return values([batch async for batch in stream])

    assert run(main()) == [0, 1]
    gc.collect()
    producer.check()


def test_error_instead_of_a_schema():
    producer = scripted(step.error(errno.EACCES, "not yours", {"who": "root"}), step.release())
    found, error = fail_to_read(producer)
    assert found == []
    assert (error.code, error.metadata) == (errno.EACCES, {b"who": b"root"})
    producer.check()


def test_error_without_message():
    producer = scripted(step.schema(), step.error(errno.EACCES), step.release())
    _, error = fail_to_read(producer)
    assert "Permission denied" in str(error) and error.metadata is None


@pytest.mark.parametrize("way", ["cancel", "aclose", "drop", "task"])
def test_cancel_reaches_idle_producer(way):
    producer = scripted(step.schema(), step.wait_for_cancel(), step.end(), step.release())

    async def main():
        stream = aio.connect(producer, cancel_at_once=True)
        await stream.get_schema()
        if way == "cancel":
            stream.cancel()
            assert [batch async for batch in stream] == []
        elif way == "aclose":
            await stream.aclose()
        elif way == "task":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(stream), 0.01)

    run(main())
    gc.collect()
    producer.wait()
    producer.check()


def test_cancel_waits_until_producer_is_known_alive():
    """Until the next batch arrives, the producer may already be freed, as with Arrow C++."""
    go = threading.Event()
    steps = [step.schema(), lambda _: go.wait(LIMIT), step.batch([1]), step.wait_for_cancel()]
    producer = scripted(*steps, step.end(), step.release())

    async def main():
        stream = aio.connect(producer)
        await stream.get_schema()
        stream.cancel()
        assert not producer.is_cancelled
        go.set()
        assert values([batch async for batch in stream]) == [1]

    run(main())
    producer.wait()
    producer.check()


def test_error_after_cancel_ends_stream():
    error = step.error(errno.EINVAL, "Consumer requested cancellation")
    producer = scripted(step.schema(), step.wait_for_cancel(), error, step.release())

    async def main():
        stream = aio.connect(producer, cancel_at_once=True)
        await stream.get_schema()
        stream.cancel()
        assert [batch async for batch in stream] == []

    run(main())
    producer.wait()


def test_long_error_is_not_truncated():
    producer = scripted(step.schema(), step.error(5, "x" * 5000), step.release())
    _, error = fail_to_read(producer)
    assert "x" * 5000 in str(error)


# --- consumers that violate the protocol, or leave -----------------------------------------------


def produce(handler, source, **options):
    run(aio.produce(handler.capsule, source, **options))


async def count_up(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield ad.array(memoryview(bytes([i])))


def lists(n):
    return ad.array_stream([memoryview(bytes([i])) for i in range(n)])


SOURCES = {"async": count_up, "pull": lists}


@pytest.mark.parametrize("kind", SOURCES)
def test_producer_follows_protocol(kind):
    handler = ScriptedAsyncHandler(timeout=LIMIT)
    produce(handler, SOURCES[kind](20), metadata={"rows": "20"})
    handler.wait_for_release()
    assert values(handler.batches) == list(range(20))
    assert handler.metadata == {b"rows": b"20"}
    handler.batches.clear()
    handler.check()


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("where", ["on_schema", "on_task"])
def test_consumer_refuses(where, kind):
    handler = ScriptedAsyncHandler(
        **{where: [step.request(5), step.refuse(errno.EPERM)]}, timeout=LIMIT
    )
    with pytest.raises(ad.ExchangeError, match="refused the call with error 1") as caught:
        produce(handler, SOURCES[kind](5))
    assert caught.value.code == errno.EPERM
    handler.check()


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("n", [0, -1])
def test_consumer_requests_invalid_number(n, kind):
    handler = ScriptedAsyncHandler([step.request(n)], timeout=LIMIT)
    with pytest.raises(ad.ExchangeError, match=f"request was called with n = {n}, which must"):
        produce(handler, SOURCES[kind](5))
    code, text, _ = handler.error
    assert code == errno.EINVAL and f"n = {n}" in text


@pytest.mark.parametrize("kind", SOURCES)
def test_consumer_cancels_in_on_schema(kind):
    handler = ScriptedAsyncHandler([step.cancel(), step.request(5)], timeout=LIMIT)
    produce(handler, SOURCES[kind](5))
    assert (handler.n_tasks, handler.is_ended, handler.error) == (0, True, None)
    handler.check()


@pytest.mark.parametrize("kind", SOURCES)
def test_consumer_calls_after_cancel(kind):
    steps = [step.cancel(), step.cancel(), step.request(5), step.extract()]
    handler = ScriptedAsyncHandler(on_task=steps, timeout=LIMIT)
    produce(handler, SOURCES[kind](5))
    assert (handler.n_tasks, handler.is_ended, handler.error) == (1, True, None)


@pytest.mark.parametrize("kind", SOURCES)
def test_consumer_requests_no_data(kind):
    handler = ScriptedAsyncHandler(on_task=[step.request(1), step.discard()], timeout=LIMIT)
    produce(handler, SOURCES[kind](20))
    assert handler.n_tasks == 20
    handler.check()


def test_consumer_receives_full_error():
    async def source():
        yield memoryview(b"x")
        error = ad.ExchangeError("no more tables")
        error.code, error.metadata = errno.ENODATA, {b"at": b"7"}
        raise error

    handler = ScriptedAsyncHandler(timeout=LIMIT)
    with pytest.raises(ad.ExchangeError, match="no more tables"):
        produce(handler, source())
    assert handler.error == (
        errno.ENODATA,
        "arrowdev.ExchangeError: no more tables",
        {b"at": b"7"},
    ) or handler.error == (errno.ENODATA, "ExchangeError: no more tables", {b"at": b"7"})
    handler.check()


def test_consumer_dies_while_the_producer_runs():
    async def main():
        stream, handler = aio.consumer()
        task = asyncio.create_task(aio.produce(handler, count_up(200)))
        await anext(stream)
        del stream
        await task

    run(main())


def test_both_ends_in_separate_threads():
    """Two event loops. Each wakes the other."""
    stream, handler = aio.consumer(3)
    failures = []

    def produce_on_thread():
        try:
            run(aio.produce(handler, count_up(100)))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=produce_on_thread)
    thread.start()

    async def main():
        return values([batch async for batch in stream])

    assert run(main()) == list(range(100))
    thread.join(LIMIT)
    assert not failures


# --- devices -------------------------------------------------------------------------------------


def test_batch_on_another_device_than_the_first(software):
    source = [ad.array(memoryview(b"x")).view("int8"), software.array([1], "int8")]
    handler = ScriptedAsyncHandler(timeout=LIMIT)
    with pytest.raises(ad.ExchangeError, match="device type 12 in an async stream of") as caught:
        produce(handler, source)
    assert caught.value.reason == "device"
    assert handler.error[0] == errno.EINVAL
    assert values(handler.batches) == [ord("x")]


@pytest.mark.parametrize("way", ["produce", "bridge", "relay", "to_stream"])
def test_events_stay_with_their_batches(software, way):
    """The host does not wait for the device: batches arrive while its queue is held."""
    queue = software.queue()
    with queue.held():
        made = [ad.array(software.array([i], queue=queue)) for i in range(3)]

        async def main(arrays):
            stream, handler = aio.consumer()
            if way == "produce":
                tasks = [asyncio.create_task(aio.produce(handler, arrays))]
            elif way == "relay":
                source = aio.connect(ad.array_stream(arrays))
                tasks = [asyncio.create_task(aio.produce(handler, source))]
            else:
                stream, tasks = aio.connect(ad.array_stream(arrays)), []
            await stream.get_schema()
            assert stream.device_type == ad.DeviceType.EXT_DEV
            if way == "to_stream":
                found = list(stream.to_stream())
            else:
                found = [batch async for batch in stream]
            await asyncio.gather(*tasks)
            return found

        found = run(main(made))
        assert not any(batch.is_ready() for batch in found)
        assert len({batch.sync_event for batch in found}) == 3
    assert [software.to_host(batch).to_pylist() for batch in found] == [[0], [1], [2]]


def test_current_stream_waits_for_each_batch(software):
    """As with array(), the caller's work on a batch is ordered after the batch."""
    theirs, ours = software.queue(), software.queue()
    memory = software.empty(3 * 8)

    async def main():
        with theirs.held(), ad.use_stream(ours):
            source = ad.array_stream(software.array([i], queue=theirs) for i in range(3))
            at = memory.address
            async for batch in aio.connect(source):
                assert not batch.is_ready()
                ours.copy(at, batch.buffers[1].data_ptr, 8)
                at += 8

    run(main())
    assert memoryview(ours.read(memory)).cast("q").tolist() == [0, 1, 2]


# --- calls during another call that runs Python code ---------------------------------------------

MEANWHILE = {
    "close": lambda stream: stream._consumer.close(),
    "look": lambda stream: stream.metadata,
}


class InCycle:
    """Runs its action when it is garbage collected."""

    def __init__(self, action):
        self.action, self.self = action, self

    def __del__(self):
        self.action()


@pytest.mark.parametrize("name", MEANWHILE)
def test_metadata_during_collection(name):
    metadata = {f"key {i}".encode(): b"value" * 10 for i in range(20)}
    seen = []
    for n in range(1, 10):  # one threshold triggers a collection while the dict is created
        stream, handler = aio.consumer()
        run(aio.produce(handler, [memoryview(b"a")], metadata=metadata))
        gc.collect()
        gc.disable()
        InCycle(partial(MEANWHILE[name], stream))
        threshold = gc.get_threshold()
        gc.set_threshold(n, 1, 1)
        gc.enable()
        try:
            seen.append((stream.metadata, stream.device_type))
        except ad.ExchangeError as error:
            assert "is closed" in str(error)  # noqa: PT017
        finally:
            gc.set_threshold(*threshold)
    assert seen
    assert all(one == (metadata, ad.DeviceType.CPU) for one in seen)


def test_put_during_put():
    """The replaced batch is freed, and no other batch is lost."""
    _stream, handler = aio.consumer()
    producer = aio._async_producer(handler)
    freed = []

    class Memory(bytearray):
        def __del__(self):
            freed.append(bytes(self))
            if self == b"a":
                with pytest.raises(RuntimeError, match="another call"):
                    producer.put(memoryview(Memory(b"c")), None)
                freed.append("refused")

    producer.put(memoryview(Memory(b"a")), None)
    producer.put(memoryview(Memory(b"b")), None)
    assert freed == [b"a", b"c", "refused"]
    producer.close()
    assert freed[3:] == [b"b"]


# --- calls of the extension's objects in a wrong order, which would be a bug of aio.py ----------


@pytest.mark.parametrize("is_closed", [False, True])
def test_end_of_wait_that_did_not_begin(is_closed):
    reader = aio.consumer()[0]._consumer
    if is_closed:
        reader.close()
    with pytest.raises(RuntimeError, match=r"call begin_wait\(\) first"):
        reader.end_wait()


def test_schema_of_a_consumer_that_was_closed():
    reader = aio.consumer()[0]._consumer
    reader.close()
    with pytest.raises(ad.ExchangeError, match="this AsyncArrayStream is closed"):
        reader.poll_schema()


def test_end_of_thread_that_was_not_started():
    _stream, handler = aio.consumer()
    producer = aio._async_producer(handler)
    with pytest.raises(RuntimeError, match=r"call pump\(\) first"):
        producer.is_over()
