"""Batches per second through arrowdev.aio, and the memory that a million of them take.

The producer is a thread in C (tests/c_helpers/async_peer.c) that makes an array for each batch.
"""

import argparse
import asyncio
import resource
import sys
import threading
import time
from pathlib import Path

import numpy as np

import arrowdev as ad
from arrowdev import aio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))
import async_peer


async def pushed(n, queue_size):
    """A thread in C pushes; `async for` reads."""
    producer = async_peer.Producer(n)
    async for _ in aio.connect(producer, queue_size=queue_size):
        pass
    producer.join()


async def pulled(n, queue_size):
    """The same, read by a blocking ArrayStream."""
    producer = async_peer.Producer(n)
    stream = aio.connect(producer, queue_size=queue_size)
    await stream.get_schema()
    for _ in stream.to_stream():
        pass
    producer.join()


async def produced(n, queue_size):
    """produce() of a generator, into a consumer in C that takes each at once."""
    array = ad.array(np.arange(3))
    consumer = async_peer.Consumer(queue_size)
    await aio.produce(consumer.capsule, (array for _ in range(n)))
    consumer.join()


async def both_ends(n, queue_size):
    """produce() and `async for` in one event loop."""
    array = ad.array(np.arange(3))
    stream, handler = aio.consumer(queue_size)

    async def read():
        async for _ in stream:
            pass

    await asyncio.gather(aio.produce(handler, (array for _ in range(n))), read())


async def woken(n, queue_size):
    """What arrowdev does without: one wake-up of the event loop for each batch."""
    array = ad.array(np.arange(3))
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue()
    room = threading.Semaphore(queue_size)

    def push():
        for _ in range(n):
            room.acquire()
            loop.call_soon_threadsafe(queue.put_nowait, array)

    thread = threading.Thread(target=push)
    thread.start()
    for _ in range(n):
        await queue.get()
        room.release()
    thread.join()


ROWS = [
    ("a wake-up for each batch", woken, 1024, 0.05),
    *[(f"pushed from C, queue {size}", pushed, size, 0.2) for size in (1, 5)],
    *[(f"pushed from C, queue {size}", pushed, size, 1.0) for size in (64, 1024)],
    ("pushed from C, to_stream(), queue 1024", pulled, 1024, 1.0),
    ("produce() into C, queue 1024", produced, 1024, 0.2),
    ("produce() and async for, queue 1024", both_ends, 1024, 0.2),
]


def rate(main, queue_size, n):
    start = time.perf_counter()
    asyncio.run(main(n, queue_size))
    return n / (time.perf_counter() - start)


def memory(n, queue_size):
    """(most batches alive, growth of the process in KiB) of n batches."""
    most = 0

    async def read():
        nonlocal most
        producer = async_peer.Producer(n)
        count = 0
        async for _ in aio.connect(producer, queue_size=queue_size):
            count += 1
            if count % 1000 == 0:
                most = max(most, async_peer.library().peer_live_arrays())
        producer.join()

    asyncio.run(read())  # the objects that are kept for reuse exist now
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.run(read())
    return most, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1_000_000)
    n = parser.parse_args().batches
    rates = {}
    for name, function, queue_size, share in ROWS:
        rates[name] = rate(function, queue_size, max(int(n * share), 1))
        ratio = rates[name] / rates["a wake-up for each batch"]
        print(f"{name:42} {rates[name]:12,.0f} batches/s {ratio:6.1f}x", flush=True)
    most, growth = memory(n, 1024)
    print(f"{n:,} batches, queue 1024: at most {most} alive at a time, {growth} KiB more in use")


if __name__ == "__main__":
    main()
