"""Ends the process during an async stream. Argument: the state. Peers are C threads, which run
until the process ends."""

import asyncio
import atexit
import ctypes
import os
import sys
import threading
import time

import async_peer

consumers, readers, endings = [], [], []


def tell():
    """Runs after arrowdev's own exit function, because it was registered earlier."""
    for consumer in consumers:
        _, n_ends, code, text = consumer.join()
        print(f"the consumer was told: {n_ends} {code} {text}")
    for reader in readers:
        reader.join(LIMIT)
    for ending in endings:
        print(f"the reader was told: {ending}")


atexit.register(tell)

import common  # noqa: E402

import arrowdev as ad  # noqa: E402
from arrowdev import aio  # noqa: E402

library, what, way = sys.argv[1:]
async_peer.library(library)
LIMIT = 60


def wait_for(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def array():
    return ad.array(common.Owner())


def for_ever():
    while True:
        yield array()


async def for_ever_async():
    while True:
        yield array()
        await asyncio.sleep(0)


def on_a_loop(main):
    """A daemon thread with an event loop, which Python abandons at exit."""
    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()


if what == "pushed":  # a C thread pushes, and no task reads
    producer = async_peer.Producer(-1)
    stream = aio.connect(producer)
    wait_for(lambda: producer.n_sent >= 5)
elif what == "read":  # a C thread pushes, and a daemon thread reads
    producer = async_peer.Producer(-1)
    seen = []

    async def read():
        async for batch in aio.connect(producer):
            seen.append(batch)

    on_a_loop(read)
    wait_for(lambda: len(seen) > 100)
elif what == "waiting":  # a daemon thread waits without end
    stream, handler = aio.consumer()

    async def read():
        async for _ in stream:
            pass

    on_a_loop(read)
    time.sleep(0.05)
elif what == "bridge":  # arrowdev's thread pushes from a generator to a consumer in C
    consumer = async_peer.Consumer()
    ad.array_stream(for_ever()).__arrowdev_async_device_stream__(consumer.capsule)
    consumers.append(consumer)
    wait_for(lambda: consumer.n_received() > 100)
elif what == "bridge without credit":
    consumer = async_peer.Consumer(request=1, is_greedy=False)
    ad.array_stream(for_ever()).__arrowdev_async_device_stream__(consumer.capsule)
    consumers.append(consumer)
    wait_for(lambda: consumer.n_received() == 1)
elif what == "produce":  # a daemon thread pushes to a consumer in C
    consumer = async_peer.Consumer()
    on_a_loop(lambda: aio.produce(consumer.capsule, for_ever_async()))
    wait_for(lambda: consumer.n_received() > 100)
elif what == "pulled":  # a C thread waits in an exported to_stream()
    producer = async_peer.Producer(-1, delay_us=-1)
    capsule = aio.connect(producer).to_stream().__arrow_c_device_stream__()
    struct = common.moved(capsule, "arrow_device_array_stream")
    async_peer.library().peer_read(ctypes.addressof(struct))
    time.sleep(0.05)
elif what == "endless":  # a daemon thread holds the GIL between two calls of Python
    stream, n_read = ad.array_stream(for_ever()).map(lambda batch: batch), []

    def read():
        try:
            n_read.extend(1 for _ in stream)
        except ad.ExchangeError as error:
            endings.append(error)

    readers.append(threading.Thread(target=read, daemon=True))
    readers[0].start()
    wait_for(lambda: len(n_read) > 100)
elif what == "run":  # during asyncio.run()
    producer = async_peer.Producer(-1)
    stream, handler = aio.consumer()

    async def main():
        both = aio.connect(producer)
        task = asyncio.create_task(aio.produce(handler, for_ever_async()))
        for _ in range(10):
            await anext(both)
            await anext(stream)
        common.end()
        if way == "os._exit":
            os._exit(0)
        if way == "sys.exit":
            sys.exit(0)
        assert task

    asyncio.run(main())
    sys.exit(0)

common.end()
if way == "os._exit":
    os._exit(0)
if way == "sys.exit":
    sys.exit(0)
