"""arrowdev.aio on every event loop: asyncio, uvloop, trio, and anyio over asyncio and trio."""

import asyncio
import errno
import functools
import threading

import async_peer
import numpy as np
import pytest
from aio_samples import LIMIT, numbers

import arrowdev as ad
from arrowdev import aio

anyio = pytest.importorskip("anyio")


async def limited(main):
    with anyio.fail_after(LIMIT):
        return await main()


def run_uvloop(main):
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def run_trio(main):
    return pytest.importorskip("trio").run(main)


def run_anyio(backend, main):
    pytest.importorskip(backend)
    return anyio.run(main, backend=backend)


LOOPS = {
    "asyncio": lambda main: asyncio.run(main()),
    "uvloop": run_uvloop,
    "trio": run_trio,
    "anyio-asyncio": functools.partial(run_anyio, "asyncio"),
    "anyio-trio": functools.partial(run_anyio, "trio"),
}


@pytest.fixture(params=LOOPS)
def run(request):
    return lambda main: LOOPS[request.param](functools.partial(limited, main))


async def until(condition):
    while not condition():
        await anyio.sleep(0.005)


async def count_up(n, pause=0.0):
    for i in range(n):
        await anyio.sleep(pause)
        yield np.array([i])


@pytest.mark.parametrize("queue_size", [1, 5, 200])
def test_consumer(run, queue_size):
    producer = async_peer.Producer(300)

    async def main():
        stream = aio.connect(producer, queue_size=queue_size)
        assert await stream.get_schema() == ad.schema("int64")
        assert numbers([batch async for batch in stream]) == list(range(300))

    run(main)
    assert producer.join() == (300, 0)


@pytest.mark.parametrize("kind", ["async", "sync", "pull"])
@pytest.mark.parametrize("queue_size", [1, 5, 200])
def test_both_ends(run, queue_size, kind):
    arrays = [np.array([i]) for i in range(100)]
    source = {"async": count_up(100), "sync": arrays, "pull": ad.array_stream(arrays)}[kind]

    async def main():
        stream, handler = aio.consumer(queue_size)
        async with anyio.create_task_group() as group:
            group.start_soon(aio.produce, handler, source)
            async with stream:
                assert numbers([batch async for batch in stream]) == list(range(100))

    run(main)


def test_source_error(run):
    async def source():
        yield np.array([0])
        await anyio.sleep(0)
        raise LookupError("no more tables")

    async def main():
        consumer = async_peer.Consumer()
        with pytest.raises(LookupError, match="no more tables"):
            await aio.produce(consumer.capsule, source())
        assert consumer.join() == (1, 0, errno.EINVAL, "LookupError: no more tables")

    run(main)


def test_consumer_cancels_while_the_source_waits(run):
    async def main():
        consumer = async_peer.Consumer()
        ended = []
        async with anyio.create_task_group() as group:

            async def slow():
                yield np.array([0])
                await anyio.sleep(LIMIT * 10)

            async def produce_slowly():
                await aio.produce(consumer.capsule, slow())
                await anyio.sleep(0)  # this task itself was not cancelled
                ended.append(True)

            group.start_soon(produce_slowly)
            await until(lambda: consumer.n_received() == 1)
            threading.Thread(target=consumer.cancel).start()
        assert ended == [True]
        assert consumer.join() == (1, 1, 0, "")

    run(main)


def test_producing_task_cancelled(run):
    async def main():
        consumer = async_peer.Consumer()
        async with anyio.create_task_group() as group:
            group.start_soon(aio.produce, consumer.capsule, count_up(10, LIMIT * 10))
            await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert consumer.join()[:3] == (0, 0, errno.ECANCELED)

    run(main)


def test_producing_task_without_credit_cancelled(run):
    async def main():
        consumer = async_peer.Consumer(request=1, is_greedy=False)
        async with anyio.create_task_group() as group:
            group.start_soon(aio.produce, consumer.capsule, count_up(10))
            await until(lambda: consumer.n_received() == 1)
            await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert consumer.join()[:3] == (1, 0, errno.ECANCELED)

    run(main)


@pytest.mark.parametrize("way", ["timeout", "group"])
def test_reading_task_cancelled(run, way):
    producer = async_peer.Producer(-1, delay_us=-1)

    async def main():
        stream = aio.connect(producer)
        await stream.get_schema()
        if way == "timeout":
            with anyio.move_on_after(0.01) as scope:
                await anext(stream)
            assert scope.cancelled_caught
        else:
            async with anyio.create_task_group() as group:
                group.start_soon(anext, stream, None)
                await anyio.sleep(0.01)
                group.cancel_scope.cancel()
        with pytest.raises(ad.ExchangeError, match="is closed"):
            await anext(stream)

    run(main)
    assert producer.join()[1] == 1


def test_cancel_from_a_thread_wakes_the_reader(run):
    async def main():
        stream, handler = aio.consumer()
        async with anyio.create_task_group() as group:
            group.start_soon(aio.produce, handler, count_up(3, 0.01))
            await stream.get_schema()
            threading.Thread(target=stream.cancel).start()
            assert len([batch async for batch in stream]) <= 3

    run(main)


def test_aclose_wakes_the_reader(run):
    async def main():
        stream, _handler = aio.consumer()

        async def read():
            with pytest.raises(ad.ExchangeError, match="is closed"):
                await anext(stream)

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.sleep(0.01)
            await stream.aclose()

    run(main)


def test_loop_runs_during_produce(run):
    """A source that never suspends lets other tasks run."""
    turns = []

    async def main():
        array = ad.array(np.array([1]))
        consumer = async_peer.Consumer(request=10**9, is_greedy=False)

        async def source():
            while len(turns) < 20:
                yield array

        async with anyio.create_task_group() as group:
            group.start_soon(aio.produce, consumer.capsule, source())
            for _ in range(20):
                turns.append(1)
                await anyio.sleep(0)
        consumer.join()

    run(main)


def test_no_event_loop():
    stream, _handler = aio.consumer()
    step = stream.__anext__()
    with pytest.raises(RuntimeError, match="no running event loop"):
        step.send(None)
