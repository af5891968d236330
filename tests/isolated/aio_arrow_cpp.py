"""Arrow C++ as the other end of arrowdev.aio. Argument: the scenario."""

import asyncio
import ctypes
import sys
import threading
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_long, c_void_p

import async_peer
import common
import pyarrow

import arrowdev as ad
from arrowdev import aio
from arrowdev.testing import ScriptedAsyncHandler, ScriptedAsyncProducer

arrow = ctypes.CDLL(sys.argv[1])
scenario = sys.argv[2]
LIMIT = 100
MANY = 10**9


class Script(Structure):
    _fields_ = [("n_batches", c_long), ("fail_at", c_long), ("delay_ms", c_int), ("later", c_int)]


for name, (result, arguments) in {
    "producer_start": (c_void_p, [c_void_p, POINTER(Script)]),
    "producer_join": (c_int, [c_void_p, c_char_p, c_int]),
    "consumer_new": (c_void_p, [c_void_p, c_int]),
    "consumer_read": (c_long, [c_void_p, c_long, c_int, c_char_p, c_int]),
    "consumer_drop": (None, [c_void_p]),
}.items():
    function = getattr(arrow, f"arrow_{name}")
    function.restype, function.argtypes = result, arguments


class Producer:
    def __init__(self, n, fail_at=-1, delay_ms=0, later=0):
        self.script = Script(n, fail_at, delay_ms, later)

    def __arrowdev_async_device_stream__(self, handler):
        self.pointer = arrow.arrow_producer_start(async_peer.take(handler), byref(self.script))

    def join(self):
        text = ctypes.create_string_buffer(500)
        code = arrow.arrow_producer_join(self.pointer, text, 500)
        assert code != -2, "it goes on"
        return code, text.value.decode()


class Consumer:
    def __init__(self, queue_size):
        # The time of its release, and so of its last use, is unknown, so it stays permanently.
        self.handler = ctypes.pythonapi.PyMem_RawMalloc
        self.handler.restype, self.handler.argtypes = c_void_p, [ctypes.c_size_t]
        memory = self.handler(256)
        self.pointer = arrow.arrow_consumer_new(memory, queue_size)
        self.capsule = async_peer.new_capsule(memory)

    def read(self, n=-1, delay_ms=0):
        text = ctypes.create_string_buffer(500)
        count = arrow.arrow_consumer_read(self.pointer, n, delay_ms, text, 500)
        return count, text.value.decode()

    async def read_on_a_thread(self, *arguments):
        return await asyncio.to_thread(self.read, *arguments)

    def drop(self):
        arrow.arrow_consumer_drop(self.pointer)


def first_values(batches):
    return [batch.field("x").to_pylist()[0] for batch in batches]


def schema():
    return pyarrow.schema({"x": pyarrow.int64()})


def batch(i):
    return pyarrow.record_batch({"x": pyarrow.array([i, -1], pyarrow.int64())})


async def batches(n, pause=0.0):
    for i in range(n):
        await asyncio.sleep(pause)
        yield batch(i)


# --- Arrow C++ produces ---------------------------------------------------------------


async def import_counts():
    for queue_size in (1, 5, 64, 1024):
        for n in (0, 1, 1000):
            for later in (0, 1):
                producer = Producer(n, later=later)
                stream = aio.connect(producer, queue_size=queue_size)
                assert first_values([b async for b in stream]) == list(range(n))
                assert str(stream.schema) == "struct<x: int64>", stream.schema
                assert producer.join() == (0, "")


async def error_of(stream, read):
    try:
        async for b in stream:
            read.append(b)
    except ad.ExchangeError as error:
        return error
    raise AssertionError("it ended well")


async def import_error():
    for at in range(6):
        for later in (0, 1):
            producer = Producer(MANY, fail_at=at, later=later)
            read = []
            error = await error_of(aio.connect(producer), read)
            assert "the disk of Arrow C++ is gone" in str(error)
            assert error.code == 22
            assert first_values(read) == list(range(at))
            producer.join()


async def import_slow():
    producer = Producer(60, delay_ms=2)
    assert first_values([b async for b in aio.connect(producer)]) == list(range(60))
    producer.join()
    producer = Producer(60)
    read = []
    async for b in aio.connect(producer):
        await asyncio.sleep(0.002)
        read.append(b)
    assert first_values(read) == list(range(60))
    producer.join()


async def import_cancel():
    for i in range(40):
        producer = Producer(MANY, later=i % 2)
        stream = aio.connect(producer, queue_size=1 + i % 7)
        read = [await anext(stream) for _ in range(i % 10)]
        if i % 3 == 0:
            threading.Thread(target=stream.cancel).start()
        else:
            stream.cancel()
        read += [b async for b in stream]
        assert first_values(read) == list(range(len(read)))
        producer.join()


async def import_drop():
    for i in range(40):
        producer = Producer(MANY, later=i % 2)
        stream = aio.connect(producer, queue_size=1 + i % 7)
        for _ in range(i % 10):
            await anext(stream)
        if i % 3 == 0:
            del stream
        else:
            await stream.aclose()
        await asyncio.to_thread(producer.join)


async def import_pull():
    for n in (0, 1, 1000):
        producer = Producer(n)
        stream = aio.connect(producer)
        await stream.get_schema()
        pull = stream.to_stream()
        assert await asyncio.to_thread(lambda s: first_values(list(s)), pull) == list(range(n))
        producer.join()


async def import_scripted():
    """arrowdev.testing's consumer finds no fault."""
    for n in (0, 3):
        producer = Producer(n)
        handler = ScriptedAsyncHandler(timeout=LIMIT).connect(producer)
        handler.wait_for_release()
        assert first_values(handler.batches) == list(range(n)) and handler.is_ended
        producer.join()
        handler.batches.clear()
        handler.check()


# --- Arrow C++ consumes ---------------------------------------------------------------


async def export(source, queue_size=5, delay_ms=0):
    consumer = Consumer(queue_size)
    task = asyncio.create_task(aio.produce(consumer.capsule, source, schema()))
    try:
        return await consumer.read_on_a_thread(-1, delay_ms)
    finally:
        await asyncio.wait([task])
        if not isinstance(task.exception(), LookupError):
            task.result()
        consumer.drop()


async def export_counts():
    for queue_size in (1, 5, 64):
        for n in (0, 1, 1000):
            assert await export(batches(n), queue_size) == (n, "")
            assert await export([batch(i) for i in range(n)], queue_size) == (n, "")


async def export_bridge():
    for n in (0, 1, 1000):
        pull = ad.array_stream([batch(i) for i in range(n)], schema=schema())
        assert await export(pull) == (n, "")


async def export_slow():
    assert await export(batches(40), delay_ms=2) == (40, "")
    assert await export(batches(40, 0.002)) == (40, "")


async def export_error():
    async def broken():
        for i in range(3):
            yield batch(i)
        raise LookupError("no such table")

    n, text = await export(broken())
    assert n <= 3 and text == "LookupError: no such table", (n, text)


async def export_scripted():
    """Its producer sees that Arrow C++ requests more with each batch, even after the release."""
    for n in (0, 3):
        producer = ScriptedAsyncProducer.of([batch(i) for i in range(n)], type=schema())
        consumer = Consumer(5)
        producer.connect(consumer.capsule)
        assert await consumer.read_on_a_thread() == (n, "")
        producer.wait()
        consumer.drop()
        producer.check(ignore={"consumer.async_alive"})


async def export_cancelled_task():
    consumer = Consumer(5)
    task = asyncio.create_task(aio.produce(consumer.capsule, batches(MANY)))
    assert await consumer.read_on_a_thread(20) == (20, "")
    task.cancel()
    await asyncio.wait([task])
    _, text = await consumer.read_on_a_thread()
    assert "abandoned the stream" in text
    consumer.drop()


async def export_drop():
    """Arrow C++ stops requesting: only our side can end the stream."""
    consumer = Consumer(5)
    task = asyncio.create_task(aio.produce(consumer.capsule, batches(MANY)))
    assert (await consumer.read_on_a_thread(3))[0] == 3
    # Its thread may be waiting for the next batch, which only this loop can send.
    await asyncio.to_thread(consumer.drop)
    await asyncio.sleep(0.05)
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


asyncio.run(asyncio.wait_for(globals()[scenario](), LIMIT))
common.end()
