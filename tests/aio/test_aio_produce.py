"""arrowdev.aio.produce() under asyncio."""

import asyncio
import errno
import gc
import threading
import time

import async_peer
import numpy as np
import pytest
from aio_samples import LIMIT, count_up, numbers, run, until

import arrowdev as ad
from arrowdev import aio


class TestProduce:
    @pytest.mark.parametrize("n", [0, 1, 1000])
    @pytest.mark.parametrize("kind", ["async generator", "generator", "list", "stream", "capsule"])
    def test_into_a_foreign_handler(self, kind, n):
        arrays = [np.array([i]) for i in range(n)]
        consumer = async_peer.Consumer(request=5)
        source = {
            "async generator": lambda: count_up(n),
            "generator": lambda: iter(arrays),
            "list": lambda: arrays,
            "stream": lambda: ad.array_stream(arrays, schema="int64"),
            "capsule": lambda: ad.array_stream(arrays, schema="int64").__arrow_c_device_stream__(),
        }[kind]()
        run(aio.produce(consumer.capsule, source, schema="int64"))
        assert consumer.join() == (n, 1, 0, "")
        assert consumer.sum() == sum(range(n))

    def test_array(self):
        consumer = async_peer.Consumer()
        run(aio.produce(consumer.capsule, np.array([7])))
        assert consumer.join() == (1, 1, 0, "") and consumer.sum() == 7

    def test_table_of_chunks(self):
        pyarrow = pytest.importorskip("pyarrow")
        chunks = pyarrow.chunked_array([[1], [2], [3]])
        consumer = async_peer.Consumer()
        run(aio.produce(consumer.capsule, chunks))
        assert consumer.join()[0] == 3 and consumer.sum() == 6

    def test_given_schema(self):
        async def main():
            stream, handler = aio.consumer()
            source = [np.array([True, False])]  # bools of one byte each
            task = asyncio.create_task(aio.produce(handler, source, schema="bool"))
            assert await stream.get_schema() == ad.schema("bool")
            assert [batch.to_pylist() async for batch in stream] == [[True, False]]
            await task

        run(main())

    @pytest.mark.parametrize("source", [[], iter(()), count_up(0)], ids=["list", "iter", "async"])
    def test_empty_source_needs_schema(self, source):
        consumer = async_peer.Consumer()
        with pytest.raises(ValueError, match="name it with schema="):
            run(aio.produce(consumer.capsule, source))
        assert consumer.join()[2:] == (
            errno.EINVAL,
            "ValueError: the source has no batches to take the schema from; name it with schema=",
        )

    def test_invalid_source(self):
        consumer = async_peer.Consumer()
        with pytest.raises(TypeError, match="is no stream"):
            run(aio.produce(consumer.capsule, 5))
        assert consumer.join()[2] == errno.EINVAL

    def test_handler_taken_twice(self):
        async def main():
            stream, handler = aio.consumer()
            task = asyncio.create_task(aio.produce(handler, count_up(3)))
            assert numbers([await anext(stream)]) == [0]
            with pytest.raises(ad.ExchangeError, match="a handler is for one stream") as caught:
                await aio.produce(handler, count_up(3))
            assert caught.value.reason == "consumed"
            with pytest.raises(ad.ExchangeError, match="a handler is for one stream"):
                ad.array_stream(np.array([1])).__arrowdev_async_device_stream__(handler)
            assert numbers([batch async for batch in stream]) == [1, 2]
            await task

        run(main())

    @pytest.mark.parametrize("wrong", [None, 5, "capsule"])
    def test_no_handler(self, wrong):
        if wrong == "capsule":
            wrong = ad.schema("int64").__arrow_c_schema__()
        with pytest.raises(ad.ExchangeError, match="arrowdev_async_device_stream_handler"):
            run(aio.produce(wrong, [np.array([1])]))

    def test_handler_is_dropped(self):
        consumer = async_peer.Consumer()
        stream, handler = aio.consumer()
        del stream, handler  # closes the consumer and releases the handler
        gc.collect()
        del consumer

    @pytest.mark.parametrize("kind", ["async", "sync", "pull"])
    @pytest.mark.parametrize("at", [0, 1, 10])
    def test_consumer_cancels(self, kind, at):
        arrays = (np.array([i]) for i in range(10**9))
        consumer = async_peer.Consumer(cancel_at=at)
        source = {
            "async": lambda: count_up(10**9),
            "sync": lambda: arrays,
            "pull": lambda: ad.array_stream(arrays),
        }[kind]()
        run(aio.produce(consumer.capsule, source))
        assert consumer.join() == (at + 1, 1, 0, "")

    def test_consumer_cancels_while_the_source_waits(self):
        is_closed = []

        async def source():
            yield np.array([0])
            try:
                await asyncio.sleep(LIMIT)
            finally:
                is_closed.append(True)

        async def main():
            consumer = async_peer.Consumer()
            task = asyncio.create_task(aio.produce(consumer.capsule, source()))
            await until(lambda: consumer.n_received() == 1)
            threading.Thread(target=consumer.cancel).start()
            await task
            assert consumer.join() == (1, 1, 0, "")
            assert is_closed == [True]
            await asyncio.sleep(0)  # and this task was not cancelled

        run(main())

    def test_cancelled_task_after_cancel_of_the_consumer_is_no_error(self):
        async def source():
            yield np.array([0])
            await asyncio.sleep(LIMIT)

        async def main():
            consumer = async_peer.Consumer()
            task = asyncio.create_task(aio.produce(consumer.capsule, source()))
            await until(lambda: consumer.n_received() == 1)
            consumer.cancel()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert consumer.join() == (1, 1, 0, "")  # no on_error

        run(main())

    def test_consumer_cancels_in_a_task_that_was_cancelled_before(self):
        async def source():
            yield np.array([0])
            await asyncio.sleep(LIMIT)

        async def produce(consumer):
            asyncio.current_task().cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
            await aio.produce(consumer.capsule, source())
            await asyncio.sleep(0)
            return "went on"

        async def main():
            consumer = async_peer.Consumer()
            task = asyncio.create_task(produce(consumer))
            await until(lambda: consumer.n_received() == 1)
            threading.Thread(target=consumer.cancel).start()
            assert await task == "went on"
            assert consumer.join() == (1, 1, 0, "")

        run(main())

    def test_credit_is_respected(self):
        async def main():
            consumer = async_peer.Consumer(request=3, is_greedy=False)
            task = asyncio.create_task(aio.produce(consumer.capsule, count_up(10)))
            for n, more in ((3, 2), (5, 5)):
                await until(lambda n=n: consumer.n_received() == n)
                await asyncio.sleep(0.01)
                assert consumer.n_received() == n
                consumer.request(more)
            await task
            assert consumer.join() == (10, 1, 0, "")

        run(main())

    def test_loop_runs_during_produce(self):
        """A fast source and a consumer with unlimited credit let other tasks run."""
        consumer = async_peer.Consumer(request=10**9, is_greedy=False)
        turns = []

        async def main():
            array = ad.array(np.array([1]))
            deadline = time.monotonic() + LIMIT

            def source():
                while len(turns) < 20 and time.monotonic() < deadline:
                    yield array

            task = asyncio.create_task(aio.produce(consumer.capsule, source()))
            while not task.done():
                turns.append(1)
                await asyncio.sleep(0)
            await task

        run(main())
        assert len(turns) >= 20
        consumer.join()

    def test_blocking_pull_source_does_not_block_the_loop(self):
        go = threading.Event()

        def slow():
            yield np.array([0])
            assert go.wait(LIMIT)
            yield np.array([1])

        async def main():
            stream, handler = aio.consumer()
            task = asyncio.create_task(aio.produce(handler, ad.array_stream(slow())))
            assert numbers([await anext(stream)]) == [0]
            go.set()  # the loop runs while the source blocks
            assert numbers([batch async for batch in stream]) == [1]
            await task

        run(main())
