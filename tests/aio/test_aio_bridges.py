"""Pull streams to async streams and back: connect(ArrayStream), to_stream(), threads."""

import asyncio
import errno
import gc
import os
import signal
import threading
import time

import async_peer
import numpy as np
import pytest
from aio_samples import LIMIT, numbers, run
from interrupts import interrupt

import arrowdev as ad
from arrowdev import aio


def ints(n):
    return (np.array([i]) for i in range(n))


def until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class TestPullToAsync:
    @pytest.mark.parametrize("queue_size", [1, 5, 1024])
    @pytest.mark.parametrize("n", [0, 1, 1000])
    def test_connect(self, n, queue_size):
        async def main():
            source = ad.array_stream(ints(n), schema="int64")
            stream = aio.connect(source, queue_size=queue_size)
            assert await stream.get_schema() == ad.schema("int64")
            return numbers([batch async for batch in stream])

        assert run(main()) == list(range(n))

    def test_foreign_stream(self):
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"x": pyarrow.chunked_array([[1, 2], [3]])})

        async def main():
            stream = aio.connect(ad.array_stream(table))
            return [batch.to_pylist() async for batch in stream]

        assert run(main()) == [[{"x": 1}, {"x": 2}], [{"x": 3}]]

    def test_handed_over(self):
        source = ad.array_stream(ints(3))
        stream = aio.connect(source)
        for read in (lambda: next(source), lambda: aio.connect(source)):
            with pytest.raises(ad.ExchangeError, match="handed over"):
                read()
        stream.cancel()

    def test_closed_stream_leaves_the_handler_alone(self):
        source = ad.array_stream(ints(3))
        source.close()
        stream, handler = aio.consumer()
        with pytest.raises(ad.ExchangeError, match="is closed"):
            source.__arrowdev_async_device_stream__(handler)
        ad.array_stream(ints(3)).__arrowdev_async_device_stream__(handler)

        async def main():
            return numbers([batch async for batch in stream])

        assert run(main()) == [0, 1, 2]

    @pytest.mark.parametrize("wrong", [None, 5])
    def test_no_handler(self, wrong):
        source = ad.array_stream(ints(3))
        with pytest.raises(ad.ExchangeError, match="expected a capsule named"):
            source.__arrowdev_async_device_stream__(wrong)
        assert numbers(source) == [0, 1, 2]

    def test_error_in_the_middle(self):
        def source():
            yield from ints(3)
            raise OSError(errno.ENOSPC, "disk full")

        async def main():
            stream = aio.connect(ad.array_stream(source()))
            batches = []
            with pytest.raises(ad.ExchangeError, match="disk full") as caught:
                async for batch in stream:
                    batches.append(batch)
            assert (numbers(batches), caught.value.code) == ([0, 1, 2], errno.ENOSPC)

        run(main())

    @pytest.mark.parametrize("way", ["cancel", "aclose", "drop"])
    def test_source_ends_with_consumer(self, way):
        ended = threading.Event()

        def source():
            try:
                yield from ints(10**9)
            finally:
                ended.set()

        async def main():
            stream = aio.connect(ad.array_stream(source()))
            assert numbers([await anext(stream)]) == [0]
            if way == "cancel":
                stream.cancel()
                _ = [batch async for batch in stream]
            elif way == "aclose":
                await stream.aclose()

        run(main())
        gc.collect()
        # Without a GIL, what another thread lets go ends when the thread that made it runs Python.
        until(ended.is_set)

    def test_silent_consumer_takes_one_extra_batch(self):
        taken = []

        def source():
            for array in ints(10**9):
                taken.append(array)
                yield array

        consumer = async_peer.Consumer(request=3, is_greedy=False)
        ad.array_stream(source()).__arrowdev_async_device_stream__(consumer.capsule)
        until(lambda: consumer.n_received() == 3)
        time.sleep(0.02)
        assert len(taken) <= 5
        consumer.cancel()
        assert consumer.join() == (3, 1, 0, "")

    def test_many_streams_concurrently(self):
        async def read(i):
            stream = aio.connect(ad.array_stream(np.array([i]) for _ in range(50)))
            return [number async for batch in stream for number in batch.to_pylist()] == [i] * 50

        async def main():
            assert all(await asyncio.gather(*(read(i) for i in range(20))))

        run(main())


class TestAsyncToPull:
    @pytest.mark.parametrize("queue_size", [1, 5, 1024])
    @pytest.mark.parametrize("n", [0, 1, 1000])
    def test_without_an_event_loop(self, n, queue_size):
        producer = async_peer.Producer(n)
        stream = aio.connect(producer, queue_size=queue_size).to_stream()
        assert (stream.schema, stream.device_type) == (ad.schema("int64"), ad.DeviceType.CPU)
        assert numbers(stream) == list(range(n))
        assert producer.join() == (n, 0)

    def test_waits_for_a_slow_producer(self):
        producer = async_peer.Producer(20, delay_us=2000)
        assert numbers(aio.connect(producer).to_stream()) == list(range(20))
        producer.join()

    @pytest.mark.parametrize("n_read", [1, 10])
    def test_continues_after_async_for(self, n_read):
        producer = async_peer.Producer(1000)

        async def main():
            stream = aio.connect(producer, queue_size=500)
            batches = [await anext(stream) for _ in range(n_read)]
            return batches, stream.to_stream()

        batches, stream = run(main())
        assert numbers([*batches, *stream]) == list(range(1000))
        producer.join()

    def test_on_another_thread(self):
        async def main():
            stream, handler = aio.consumer()
            task = asyncio.create_task(aio.produce(handler, ints(100)))
            await stream.get_schema()
            pull = stream.to_stream()
            assert (await asyncio.to_thread(pull.read_all)).to_pylist() == list(range(100))
            await task

        run(main())

    def test_exported(self):
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"x": pyarrow.chunked_array([[1, 2], [3]])})
        stream = aio.connect(ad.array_stream(table)).to_stream()
        assert pyarrow.table(stream).equals(table)

    def test_refused_on_the_loop(self):
        async def main():
            stream, _handler = aio.consumer()
            with pytest.raises(RuntimeError, match=r"await get_schema\(\) first"):
                stream.to_stream()

        run(main())

    def test_handed_over(self):
        producer = async_peer.Producer(-1)
        stream = aio.connect(producer)
        pull = stream.to_stream()
        assert repr(stream) == "<arrowdev.AsyncArrayStream, handed over>"

        async def read():
            with pytest.raises(ad.ExchangeError, match="handed over to the ArrayStream"):
                await anext(stream)
            with pytest.raises(ad.ExchangeError, match="handed over to the ArrayStream"):
                stream.to_stream()
            await stream.aclose()

        assert numbers([next(pull)]) == [0]
        run(read())
        assert numbers([next(pull)]) == [1]
        pull.close()
        assert producer.join()[1] == 1

    def test_cancel_from_another_thread_ends_stream(self):
        producer = async_peer.Producer(-1, delay_us=20_000)
        stream = aio.connect(producer)
        pull = stream.to_stream()
        timer = threading.Timer(0.05, stream.cancel)
        timer.start()
        batches = numbers(pull)
        timer.join()
        assert batches == list(range(len(batches)))
        assert producer.join()[1] == 1

    @pytest.mark.parametrize("way", ["drop", "close"])
    def test_early_end_cancels(self, way):
        producer = async_peer.Producer(-1)
        pull = aio.connect(producer).to_stream()
        next(pull)
        if way == "close":
            pull.close()
        del pull
        assert producer.join()[1] == 1
        assert async_peer.count_live_arrays() == 0

    @pytest.mark.parametrize("way", ["drop", "close"])
    def test_cancel_releases_gil(self, way):
        producer = async_peer.Producer(-1)
        pull = aio.connect(producer).to_stream()
        next(pull)
        producer.hold_cancel()
        in_time = []

        def unblock_cancel():
            until(lambda: producer.n_cancels == 1)
            in_time.append(producer.let_cancel_go())

        thread = threading.Thread(target=unblock_cancel)
        thread.start()
        if way == "close":
            pull.close()
        del pull
        thread.join()
        assert in_time == [True]
        producer.join()

    @pytest.mark.parametrize("at", [0, 3])
    def test_error(self, at):
        producer = async_peer.Producer(-1, fail_at=at)
        pull = aio.connect(producer).to_stream()
        batches = []
        with pytest.raises(ad.ExchangeError, match="the disk is gone") as caught:
            for batch in pull:
                batches.append(batch)
        assert (numbers(batches), caught.value.code) == (list(range(at)), errno.EIO)
        producer.join()

    def test_metadata_of_an_error(self):
        producer = async_peer.Producer(-1, fail_at=0, metadata=b"\1\0\0\0\1\0\0\0k\1\0\0\0v")
        pull = aio.connect(producer).to_stream()
        with pytest.raises(ad.ExchangeError, match="the disk is gone") as caught:
            next(pull)
        assert caught.value.metadata == {b"k": b"v"}
        producer.join()

    def test_ends_without_a_schema(self):
        stream, handler = aio.consumer()
        stream.cancel()
        del handler
        with pytest.raises(ad.ExchangeError, match="ended before its schema arrived"):
            stream.to_stream()

    def test_closed_during_schema_wait(self):
        waited = "closed during the wait for its schema"
        for seconds in (0.2, 2, 20):  # on a busy machine the wait may start late
            stream, _handler = aio.consumer()
            timer = threading.Timer(seconds, lambda it=stream: asyncio.run(it.aclose()))
            timer.start()
            with pytest.raises(ad.ExchangeError, match="closed") as caught:
                stream.to_stream()
            timer.join()
            if waited in str(caught.value):
                break
        assert waited in str(caught.value)
        with pytest.raises(ad.ExchangeError, match="is closed"):
            stream.to_stream()

    def test_unread_metadata_is_refused(self):
        metadata = b"\1\0\0\0\1\0\0\0k\1\0\0\0v"
        producer = async_peer.Producer(3, metadata=metadata)
        with pytest.raises(ad.ExchangeError, match="drop_metadata=True") as caught:
            next(aio.connect(producer).to_stream())
        assert caught.value.reason == "metadata"
        producer.join()
        producer = async_peer.Producer(3, metadata=metadata)
        stream = aio.connect(producer)
        with pytest.raises(TypeError, match="drop_metadata must be True or False, not int"):
            stream.to_stream(drop_metadata=1)
        # does what the hint says
        pull = stream.to_stream(drop_metadata=True)
        assert numbers(pull) == [0, 1, 2]
        producer.join()


class TestInterrupts:
    @pytest.mark.parametrize("what", ["next", "read_all", "schema"])
    def test_a_signal_ends_the_wait(self, what):
        producer = async_peer.Producer(-1, delay_us=-1)
        stream, handler = aio.consumer()
        pull = None
        if what != "schema":
            producer.__arrowdev_async_device_stream__(handler)
            pull = stream.to_stream()
        wait = {"next": lambda: next(pull), "read_all": lambda: pull.read_all()}
        interrupt(wait.get(what, stream.to_stream))
        if pull is not None:
            pull.close()
            stream.cancel()
            producer.join()

    def test_wait_continues_after_handled_signal(self):
        handled = []
        before = signal.signal(signal.SIGUSR1, lambda *_: handled.append(True))
        try:
            producer = async_peer.Producer(2, delay_us=300_000)
            pull = aio.connect(producer).to_stream()
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            try:
                assert numbers(pull) == [0, 1]
            finally:
                timer.join()  # once the handler is restored, a late signal ends the process
            assert handled == [True]
            producer.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
