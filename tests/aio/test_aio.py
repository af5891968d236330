"""arrowdev.aio under asyncio: consumer(), connect(), AsyncArrayStream."""

import asyncio
import contextlib
import errno
import gc
import os
import sys
import threading
import weakref

import async_peer
import numpy as np
import pytest
from aio_samples import LIMIT, blob, count_up, numbers, run, until

import arrowdev as ad
from arrowdev import aio


class TestConnect:
    @pytest.mark.parametrize("queue_size", [1, 5, 64, 1024])
    @pytest.mark.parametrize("n", [0, 1, 1000])
    def test_all_batches_in_order(self, n, queue_size):
        producer = async_peer.Producer(n)

        async def main():
            stream = aio.connect(producer, queue_size=queue_size)
            return numbers([batch async for batch in stream]), stream.schema, stream.device_type

        assert run(main()) == (list(range(n)), ad.schema("int64"), ad.DeviceType.CPU)
        assert producer.join() == (n, 0)
        assert async_peer.count_live_arrays() == 0

    def test_slow_producer(self):
        producer = async_peer.Producer(50, delay_us=500)

        async def main():
            return numbers([batch async for batch in aio.connect(producer)])

        assert run(main()) == list(range(50))
        producer.join()

    @pytest.mark.parametrize("queue_size", [1, 7, 40, 200])
    def test_back_pressure(self, queue_size):
        producer = async_peer.Producer(-1)

        async def main():
            stream = aio.connect(producer, queue_size=queue_size)
            for n_read in range(30):
                least = n_read + queue_size // 2
                await until(lambda least=least: producer.n_sent >= least)
                assert producer.n_sent <= n_read + queue_size + 1
                await anext(stream)
            await stream.aclose()

        run(main())
        producer.join()

    def test_object_without_the_method(self):
        with pytest.raises(TypeError, match=r"list has no __arrowdev_async.*array_stream"):
            aio.connect([1])

    def test_for_without_async(self):
        stream = aio.connect(async_peer.Producer(1))
        with pytest.raises(TypeError, match=r"read with `async for`; .* x.to_stream\(\)"):
            iter(stream)

    def test_method_that_is_a_coroutine(self):
        class Wrong:
            async def __arrowdev_async_device_stream__(self, handler):
                raise AssertionError("never run")

        with pytest.raises(TypeError, match="returned a coroutine; it must"):
            aio.connect(Wrong())

    def test_method_that_raises(self):
        class Broken:
            def __arrowdev_async_device_stream__(self, handler):
                raise LookupError("no such table")

        with pytest.raises(LookupError, match="no such table"):
            aio.connect(Broken())

    def test_handler_not_taken(self):
        class Idle:
            def __arrowdev_async_device_stream__(self, handler):
                pass

        async def main():
            stream = aio.connect(Idle())
            with pytest.raises(ad.ExchangeError, match="release was called") as caught:
                await anext(stream)
            assert caught.value.reason == "stream"

        run(main())

    @pytest.mark.parametrize("queue_size", [0, -1, 2**20 + 1, 2**64])
    def test_queue_size_out_of_range(self, queue_size):
        expected = "which 64 bits cannot hold" if queue_size == 2**64 else "expected 1 to 1048576;"
        with pytest.raises(ValueError, match=f"queue_size is {queue_size}, {expected}"):
            aio.consumer(queue_size)

    def test_queue_size_of_another_type(self):
        with pytest.raises(TypeError):
            aio.consumer("5")


class TestSchema:
    def test_not_known_yet(self):
        stream, _handler = aio.consumer()
        for name in ("schema", "device_type", "metadata"):
            with pytest.raises(AttributeError, match=f"{name} is not known yet.*get_schema"):
                getattr(stream, name)
        assert repr(stream) == "<arrowdev.AsyncArrayStream, open>"
        assert stream._repr_html_() is None  # so that a notebook shows the repr

    def test_get_schema_waits_and_property_stays(self):
        async def main():
            stream, handler = aio.consumer()
            waiting = asyncio.create_task(stream.get_schema())
            await asyncio.sleep(0)
            metadata = blob(rows="12", source="here")
            async_peer.library().peer_produce(async_peer.take(handler), 0, -1, 0, metadata)
            assert await waiting == ad.schema("int64")
            await stream.aclose()
            return stream

        stream = run(main())
        assert stream.schema == ad.schema("int64")
        assert stream.device_type is ad.DeviceType.CPU
        assert stream.metadata == {b"rows": b"12", b"source": b"here"}
        assert repr(stream) == "<arrowdev.AsyncArrayStream, closed>"
        caption = "<div>arrowdev.AsyncArrayStream, closed</div>"
        assert caption in stream._repr_html_() and ">int64</td>" in stream._repr_html_()

    def test_never_arrives(self):
        async def main():
            stream, handler = aio.consumer()
            del handler
            with pytest.raises(ad.ExchangeError, match="release was called"):
                await stream.get_schema()
            with pytest.raises(ad.ExchangeError, match="release was called"):
                _ = stream.schema

        run(main())

    def test_stream_ends_without_schema(self):
        async def main():
            stream, handler = aio.consumer()
            stream.cancel()
            del handler
            with pytest.raises(ad.ExchangeError, match="ended before its schema arrived"):
                await stream.get_schema()

        run(main())


class TestMetadata:
    def test_batches_have_metadata(self):
        producer = async_peer.Producer(3, metadata=blob(key="value"))

        async def main():
            pairs = [pair async for pair in aio.connect(producer).with_metadata()]
            assert numbers(batch for batch, _ in pairs) == [0, 1, 2]
            assert [metadata for _, metadata in pairs] == [{b"key": b"value"}] * 3

        run(main())
        producer.join()

    def test_no_metadata(self):
        producer = async_peer.Producer(1)

        async def main():
            assert [m async for _, m in aio.connect(producer).with_metadata()] == [None]

        run(main())
        producer.join()

    def test_produce_sets_metadata(self):
        async def source():
            yield np.array([0]), {"a": b"1", b"b": "2"}
            yield np.array([1])
            yield np.array([2]), None
            yield np.array([3]), {}

        async def main():
            stream, handler = aio.consumer()
            task = asyncio.create_task(aio.produce(handler, source(), metadata={"rows": "4"}))
            found = [metadata async for _, metadata in stream.with_metadata()]
            assert found == [{b"a": b"1", b"b": b"2"}, None, None, {}]
            assert stream.metadata == {b"rows": b"4"}
            await task

        run(main())

    @pytest.mark.parametrize("wrong", [{"a": 1}, [("a", "b")], 5, {1: "a"}])
    def test_wrong_metadata_type(self, wrong):
        async def main():
            stream, handler = aio.consumer()
            with pytest.raises(TypeError, match="metadata must be"):
                await aio.produce(handler, [np.array([0])], metadata=wrong)
            with pytest.raises(ad.ExchangeError, match="TypeError"):
                await anext(stream)

        run(main())

    def test_survives_a_relay(self):
        producer = async_peer.Producer(100, metadata=blob(key="value"))

        async def main():
            stream, handler = aio.consumer()
            task = asyncio.create_task(aio.produce(handler, aio.connect(producer)))
            pairs = [pair async for pair in stream.with_metadata()]
            assert numbers(batch for batch, _ in pairs) == list(range(100))
            assert [metadata for _, metadata in pairs] == [{b"key": b"value"}] * 100
            assert stream.metadata == {b"key": b"value"}
            await task

        run(main())
        producer.join()


class TestErrors:
    @pytest.mark.parametrize("at", [0, 1, 7, 100])
    def test_producer_error(self, at):
        producer = async_peer.Producer(-1, fail_at=at, metadata=blob(retry="no"))

        async def main():
            stream = aio.connect(producer)
            batches = []
            with pytest.raises(ad.ExchangeError, match=r"error 5 \(.*\): the disk is gone") as e:
                async for batch in stream:
                    batches.append(batch)
            assert numbers(batches) == list(range(at))
            assert e.value.reason == "stream"
            assert e.value.code == errno.EIO
            assert e.value.metadata == {b"retry": b"no"}
            with pytest.raises(ad.ExchangeError, match="the disk is gone"):
                await anext(stream)

        run(main())
        producer.join()

    @pytest.mark.parametrize(
        ("error", "code", "text"),
        [
            (ValueError("broken"), errno.EINVAL, "ValueError: broken"),
            (OSError(errno.ENOSPC, "full"), errno.ENOSPC, r"OSError: \[Errno 28\] full"),
            (MemoryError(), errno.ENOMEM, "MemoryError"),
            (LookupError("x" * 2000), errno.EINVAL, "x" * 2000),
        ],
        ids=["value", "os", "memory", "long"],
    )
    @pytest.mark.parametrize("kind", ["async", "sync", "pull"])
    def test_python_source_error(self, error, code, text, kind):
        async def pushed():
            yield np.array([0])
            yield np.array([1])
            raise error

        def pulled():
            yield np.array([0])
            yield np.array([1])
            raise error

        def source():
            if kind == "pull":
                return ad.array_stream(pulled())
            return pushed() if kind == "async" else pulled()

        async def main():
            stream, handler = aio.consumer()
            task = asyncio.create_task(aio.produce(handler, source()))
            batches = []
            with pytest.raises(ad.ExchangeError, match=text) as caught:
                async for batch in stream:
                    batches.append(batch)
            assert caught.value.code == code
            assert numbers(batches) == [0, 1]
            with pytest.raises(BaseException) as raised:
                await task
            assert error in (raised.value, raised.value.__cause__)

        run(main())

    @pytest.mark.parametrize("kind", ["async", "sync", "pull"])
    def test_own_error_of_a_source_keeps_its_class_and_fields(self, kind):
        broken = ad.DeviceError("cuMemAlloc failed")
        broken.code, broken.device, broken.hint = 700, ad.device("cuda:1"), "start again"
        malformed = ad.InvalidArrowError("children[0]: length is -1")
        malformed.path = "children[0]"

        def elements(last):
            yield np.array([0])
            if isinstance(last, Exception):
                raise last
            yield last

        async def pushed(last):
            for element in elements(last):
                yield element

        def source(last):
            if kind == "pull":
                return ad.array_stream(elements(last))
            return pushed(last) if kind == "async" else elements(last)

        async def failure_of(last):
            stream, handler = aio.consumer()
            task = asyncio.create_task(aio.produce(handler, source(last)))
            assert numbers([await anext(stream)]) == [0]
            for _ in range(2):
                with pytest.raises((ad.ExchangeError, ValueError, RuntimeError)) as caught:
                    await anext(stream)
                error = caught.value
                assert "the producer of the async stream reports error" in str(error)
                assert error.hint is None or str(error).count(error.hint) == 1
                assert error.__cause__ is None
            with pytest.raises(type(error)):
                await task
            return error

        error = run(failure_of(np.array([1.5])))
        assert type(error) is ad.ExchangeError and error.reason == "schema"
        assert "it is float64, but the stream is int64" in str(error)
        assert error.code == errno.EINVAL and "convert them before" in error.hint
        error = run(failure_of(broken))
        assert type(error) is ad.DeviceError and error.code == 700
        assert error.device == broken.device and error.hint == "start again"
        error = run(failure_of(malformed))
        assert type(error) is ad.InvalidArrowError and error.path == "children[0]"

    def test_iterator_raises_stop_async_iteration(self):
        def step():
            if not left:
                raise StopAsyncIteration
            return np.array([left.pop()])

        left = [1, 0]

        async def main():
            stream, handler = aio.consumer()
            task = asyncio.create_task(aio.produce(handler, iter(step, None)))
            batches = []
            with pytest.raises(ad.ExchangeError, match="iterator raised StopAsyncIteration"):
                async for batch in stream:
                    batches.append(batch)
            assert numbers(batches) == [0, 1]
            with pytest.raises(RuntimeError, match="iterator raised StopAsyncIteration"):
                await task

        run(main())

    def test_relay_forwards_error(self):
        producer = async_peer.Producer(-1, fail_at=4, metadata=blob(retry="no"))

        async def main():
            stream, handler = aio.consumer()
            task = asyncio.create_task(aio.produce(handler, aio.connect(producer)))
            with pytest.raises(ad.ExchangeError, match="the disk is gone") as caught:
                _ = [batch async for batch in stream]
            assert (caught.value.code, caught.value.metadata) == (errno.EIO, {b"retry": b"no"})
            with pytest.raises(ad.ExchangeError, match="the disk is gone"):
                await task

        run(main())
        producer.join()

    def test_schema_that_changes(self):
        async def main():
            stream, handler = aio.consumer()
            source = [np.array([0]), np.array([1.5])]
            task = asyncio.create_task(aio.produce(handler, source))
            assert numbers([await anext(stream)]) == [0]
            with pytest.raises(ad.ExchangeError, match="element 1 of the iterable") as caught:
                await anext(stream)
            assert caught.value.code == errno.EINVAL
            with pytest.raises(ad.ExchangeError, match="element 1 of the iterable") as raised:
                await task
            assert raised.value.reason == "schema"

        run(main())


class TestCancel:
    def test_cancel_from_the_loop(self):
        producer = async_peer.Producer(-1)

        async def main():
            stream = aio.connect(producer)
            batches = [await anext(stream) for _ in range(10)]
            for _ in range(3):
                stream.cancel()
            batches += [batch async for batch in stream]
            assert numbers(batches) == list(range(len(batches)))

        run(main())
        assert producer.join()[1] == 1

    def test_cancel_from_other_threads_during_wait(self):
        async def main():
            stream, handler = aio.consumer()
            consumer = async_peer.library().peer_produce
            task = asyncio.create_task(anext(stream, None))
            await asyncio.sleep(0.01)
            threads = [threading.Thread(target=stream.cancel) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            pointer = consumer(async_peer.take(handler), -1, -1, 0, None)
            await task
            _ = [batch async for batch in stream]
            assert async_peer.library().peer_wait_for_producer(pointer, LIMIT * 1000) == 0

        run(main())

    @pytest.mark.parametrize("n_read", [0, 1, 10])
    @pytest.mark.parametrize("way", ["aclose", "with", "drop", "break"])
    def test_early_close(self, way, n_read):
        producer = async_peer.Producer(-1)

        async def main():
            stream = aio.connect(producer)
            for _ in range(n_read):
                await anext(stream)
            if way == "aclose":
                await stream.aclose()
                await stream.aclose()
            elif way == "with":
                async with stream as same:
                    assert same is stream
            elif way == "break":
                async for _ in stream:
                    break
            if way in ("aclose", "with"):
                with pytest.raises(ad.ExchangeError, match="is closed") as caught:
                    await anext(stream)
                assert caught.value.reason == "consumed"
                stream.cancel()

        run(main())
        assert producer.join()[1] == 1
        assert async_peer.count_live_arrays() == 0

    def test_reading_task_cancelled(self):
        async def main():
            producer = async_peer.Producer(-1, delay_us=-1)
            stream = aio.connect(producer)

            async def read():
                started.set()
                async for _ in stream:
                    pass

            started = asyncio.Event()
            task = asyncio.create_task(read())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(ad.ExchangeError, match="a cancelled read closes it"):
                await anext(stream)
            return producer

        assert run(main()).join()[1] == 1

    def test_close_wakes_waiting_task(self):
        async def main():
            stream, _handler = aio.consumer()
            task = asyncio.create_task(anext(stream))
            await asyncio.sleep(0.01)
            await stream.aclose()
            with pytest.raises(ad.ExchangeError, match="is closed"):
                await task

        run(main())

    def test_producing_task_cancelled(self):
        async def main():
            stream, handler = aio.consumer(2)
            task = asyncio.create_task(aio.produce(handler, count_up(10**9)))
            assert numbers([await anext(stream)]) == [0]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(ad.ExchangeError, match="abandoned the stream") as caught:
                _ = [batch async for batch in stream]
            assert caught.value.code == errno.ECANCELED

        run(main())

    def test_producing_task_cancelled_while_source_waits(self):
        async def main():
            consumer = async_peer.Consumer()
            task = asyncio.create_task(aio.produce(consumer.capsule, count_up(9, LIMIT)))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert consumer.join()[:3] == (0, 0, errno.ECANCELED)

        run(main())

    def test_producing_task_cancelled_while_thread_runs(self):
        go = threading.Event()

        def slow():
            yield np.array([0])
            go.wait(LIMIT)
            yield np.array([1])

        async def main():
            consumer = async_peer.Consumer()
            task = asyncio.create_task(aio.produce(consumer.capsule, ad.array_stream(slow())))
            await until(lambda: consumer.n_received() == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go.set()
            assert consumer.join()[:3] == (1, 0, errno.ECANCELED)

        run(main())

    def test_timeout_of_one_read(self):
        async def main():
            producer = async_peer.Producer(-1, delay_us=-1)
            stream = aio.connect(producer)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(stream), 0.01)
            return producer

        assert run(main()).join()[1] == 1


class TestOneReader:
    def test_two_tasks(self):
        async def main():
            stream, _handler = aio.consumer()
            first = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            for read in (anext(stream), stream.get_schema()):
                with pytest.raises(RuntimeError, match="one reader at a time"):
                    await read
            first.cancel()

        run(main())

    def test_task_after_task(self):
        producer = async_peer.Producer(4)

        async def main():
            stream = aio.connect(producer)
            return numbers([await asyncio.create_task(anext(stream)) for _ in range(4)])

        assert run(main()) == [0, 1, 2, 3]
        producer.join()

    def test_loop_after_loop(self):
        producer = async_peer.Producer(6)
        stream = aio.connect(producer, queue_size=1)

        async def main():
            return numbers([await anext(stream), await anext(stream)])

        assert [run(main()) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        producer.join()


def wakers():
    """The descriptors of this process's wakers, which are eventfds."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of the folder itself
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventfd]":
                found.add(int(name))
    return found


class TestLoops:
    def test_closed_while_a_task_waits(self):
        producer = async_peer.Producer(-1, delay_us=-1)
        loop = asyncio.new_event_loop()
        stream = aio.connect(producer)
        task = loop.create_task(anext(stream))
        loop.run_until_complete(asyncio.sleep(0.01))
        task._log_destroy_pending = False
        loop.close()
        del task
        gc.collect()
        with pytest.raises(ad.ExchangeError, match="is closed"):
            run(anext(stream))
        assert producer.join()[1] == 1

    def test_closed_while_a_task_produces(self):
        consumer = async_peer.Consumer()
        loop = asyncio.new_event_loop()
        task = loop.create_task(aio.produce(consumer.capsule, count_up(9, LIMIT)))
        loop.run_until_complete(asyncio.sleep(0.01))
        task._log_destroy_pending = False
        loop.close()
        del task
        gc.collect()
        assert consumer.join()[:3] == (0, 0, errno.ECANCELED)

    def test_coroutine_never_run(self):
        consumer = async_peer.Consumer()
        coroutine = aio.produce(consumer.capsule, [np.array([1])])
        coroutine.close()
        run(aio.produce(consumer.capsule, [np.array([1])]))  # the handler is not taken yet
        assert consumer.join() == (1, 1, 0, "")

    def test_loop_stopped_for_good(self):
        """The producer's thread fills the queue and ends without the loop."""
        producer = async_peer.Producer(-1)
        loop = asyncio.new_event_loop()
        stream = aio.connect(producer, queue_size=4)
        loop.run_until_complete(anext(stream))
        loop.close()
        del stream
        producer.join()

    @pytest.mark.parametrize("end", ["closed", "collected"])
    def test_loop_watches_until_the_stream_is(self, end):
        """One watch serves all waits, and its descriptor is closed with the stream."""
        producer = async_peer.Producer(-1, delay_us=100)

        async def main():
            loop = asyncio.get_running_loop()
            watched = []

            def add_reader(descriptor, callback):
                watched.append(descriptor)
                type(loop).add_reader(loop, descriptor, callback)

            loop.add_reader = add_reader
            before = wakers()
            stream = aio.connect(producer)
            for _ in range(20):
                await anext(stream)
            assert len(watched) == 1
            ours = wakers() - before
            assert set(watched) < ours
            if end == "closed":
                await stream.aclose()
            del stream
            await until(lambda: not ours & wakers())

        run(main())
        producer.join()

    def test_no_descriptor_is_left_for_a_watch(self, monkeypatch):
        ignored = []
        monkeypatch.setattr(sys, "unraisablehook", ignored.append)

        async def main():
            stream, _handler = aio.consumer()
            monkeypatch.setattr(aio.os, "dup", fail_to_duplicate)
            with pytest.raises(OSError, match="too many"):
                await anext(stream)
            assert repr(stream) == "<arrowdev.AsyncArrayStream, closed>"

        def fail_to_duplicate(descriptor):
            raise OSError(errno.EMFILE, "too many open files")

        run(main())
        gc.collect()
        assert ignored == []

    def test_weak_reference(self):
        stream, _handler = aio.consumer()
        assert weakref.ref(stream)() is stream


class TestChunks:
    def test_one_wake_up_for_many_batches(self):
        """All queued batches are read in one turn of the loop."""
        producer = async_peer.Producer(1000)

        async def main():
            stream = aio.connect(producer, queue_size=1024)
            await until(lambda: producer.n_sent >= 900)
            turns = 0

            async def count_turns():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counter = asyncio.create_task(count_turns())
            for _ in range(900):
                await anext(stream)
            counter.cancel()
            assert turns <= 2
            await stream.aclose()

        run(main())
        producer.join()

    @pytest.mark.parametrize("queue_size", [5, 1024])
    def test_memory_bounded_by_queue(self, queue_size):
        producer = async_peer.Producer(100_000)

        async def main():
            n = most = 0
            async for _ in aio.connect(producer, queue_size=queue_size):
                n += 1
                if n % 1000 == 0:
                    most = max(most, async_peer.library().peer_live_arrays())
            assert (n, most <= 66) == (100_000, True)

        run(main())
        producer.join()
