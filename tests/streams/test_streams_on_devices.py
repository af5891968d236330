"""Streams of batches on devices: each batch keeps its event, through every transport.

The queue that writes the batches is held until the test releases it. A batch that
arrives earlier was transported without a wait of the host or of the
producer. With the software device and with dpnp's arrays.
"""

import asyncio
import gc
import threading

import pytest

import arrowdev as ad
from arrowdev import aio
from arrowdev.testing import (
    ScriptedAsyncHandler,
    ScriptedAsyncProducer,
    ScriptedReader,
    ScriptedStream,
    step,
)

LIMIT = 60  # seconds; upper limit of any wait of these tests
COUNT = 4


# --- transports of batches -----------------------------------------------------------------------


def generator(batches):
    return list(ad.array_stream(batch for batch in batches))


def capsule(batches):
    inner = ad.array_stream(batch for batch in batches)
    return list(ad.array_stream(inner.__arrow_c_device_stream__()))


def foreign_thread(batches):
    """A generator, pulled through its struct by a thread without the GIL, and imported again."""
    reader = ScriptedReader([step.on_thread(step.get_schema(), step.read_to_end())], timeout=LIMIT)
    found = reader.read(ad.array_stream(batch for batch in batches)).batches
    reader.run(step.release())
    reader.check()
    assert reader.errors == []
    return list(ad.array_stream(found))


def foreign_producer(batches):
    return list(ad.array_stream(ScriptedStream(batches)))


def mapped(batches):
    return list(ad.array_stream(batches).map(lambda batch: batch[:]))


async def read(stream):
    async with stream:
        return [batch async for batch in stream]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT))


def pushed(batches):
    """The bridge from a pull stream, which pushes from its own thread."""

    async def main():
        return await read(aio.connect(ad.array_stream(batch for batch in batches)))

    return run(main())


def produced(batches):
    async def source():
        for batch in batches:
            yield batch

    async def main():
        stream, handler = aio.consumer()
        _, found = await asyncio.gather(aio.produce(handler, source()), read(stream))
        return found

    return run(main())


def foreign_async_producer(batches):
    producer = ScriptedAsyncProducer.of(batches, timeout=LIMIT)

    async def main():
        return await read(aio.connect(producer, queue_size=2))

    return run(main())


def foreign_async_consumer(batches):
    handler = ScriptedAsyncHandler(timeout=LIMIT)
    run(aio.produce(handler.capsule, list(batches)))
    handler.wait_for_release()
    handler.check()
    return handler.batches


def pushed_and_pulled(batches):
    """Pull, push, and pull again."""
    return list(aio.connect(ad.array_stream(batch for batch in batches)).to_stream())


ROADS = pytest.mark.parametrize(
    "road",
    [
        generator,
        capsule,
        foreign_thread,
        foreign_producer,
        mapped,
        pushed,
        produced,
        foreign_async_producer,
        foreign_async_consumer,
        pushed_and_pulled,
    ],
)


def check_pending(found):
    """Each batch has its own event, and none of them has fired."""
    assert len(found) == COUNT
    assert not any(batch.is_ready() for batch in found)
    events = [batch.sync_event for batch in found]
    assert None not in events and len(set(events)) == COUNT


# --- the software device -------------------------------------------------------------------------


def allocations(device):
    """The number of live allocations after deferred releases."""
    for _ in range(3):  # a scripted end is garbage only after its batches are released
        gc.collect()
        ad.device("ext_dev:0").synchronize()  # drains deferred releases
    device.synchronize(timeout=LIMIT)
    return device.live().allocations


@ROADS
def test_software_device(device, road):
    before = allocations(device)
    theirs, ours = device.queue(), device.queue()
    memory = device.empty(8 * COUNT)
    with theirs.held():
        found = road([device.array([10 + i], queue=theirs) for i in range(COUNT)])
        check_pending(found)
        assert {batch.device_type for batch in found} == {ad.DeviceType.EXT_DEV}
        for i, batch in enumerate(found):
            batch.wait(ours)
            ours.copy(memory.address + 8 * i, batch.buffers[1].data_ptr, 8)
        assert not ours.is_idle()  # it waits on the device
        del batch, found  # the memory stays until it is done
        gc.collect()
    assert memoryview(ours.read(memory)).cast("q").tolist() == [10, 11, 12, 13]
    del memory
    assert allocations(device) == before


def test_one_queue_per_batch(device):
    """Batches become ready one by one, in any order."""
    queues = [device.queue() for _ in range(COUNT)]
    for queue in queues:
        queue.hold()
    found = pushed([device.array([i], queue=queue) for i, queue in enumerate(queues)])
    check_pending(found)
    for i in (2, 0, 3, 1):
        queues[i].release()
        found[i].synchronize()
        assert found[i].to("cpu").to_pylist() == [i]
    assert all(batch.is_ready() for batch in found)


@ROADS
def test_batches_on_several_devices(device, road):
    queues = [device.queue(i % 2) for i in range(COUNT)]
    found = road([device.array([i], queue=queue) for i, queue in enumerate(queues)])
    assert [batch.device_id for batch in found] == [0, 1, 0, 1]
    assert [batch.to("cpu").to_pylist() for batch in found] == [[i] for i in range(COUNT)]


def test_pending_copy_is_transported(device):
    """to() in the source enqueues a copy, whose event is the batch's event."""
    theirs = device.queue()
    with theirs.held():
        source = [device.array([i], queue=theirs) for i in range(COUNT)]
        copies = (ad.array(batch).to("ext_dev:1") for batch in source)
        found = list(ad.array_stream(batch for batch in copies))
        check_pending(found)
        assert {batch.device_id for batch in found} == {1}
    assert [batch.to("cpu").to_pylist() for batch in found] == [[i] for i in range(COUNT)]


def test_memory_of_many_batches_is_released(device):
    """More batches than the consumer holds at any time: memory is released in between."""
    queue = device.queue()
    most = 0

    def source():
        for i in range(200):
            yield device.array([i], queue=queue)

    async def main():
        nonlocal most
        total = 0
        async with aio.connect(ad.array_stream(source()), queue_size=3) as stream:
            async for batch in stream:
                total += batch.to("cpu").to_pylist()[0]
                most = max(most, device.live().allocations)
        return total

    assert run(main()) == sum(range(200))
    assert most < 50


# --- oneAPI --------------------------------------------------------------------------------------


@pytest.fixture
def oneapi():
    """peer_oneapi, and a queue whose work the test can block."""
    peer = pytest.importorskip("peer_oneapi", reason="could not import 'dpctl' or its driver")
    queue = peer.queue(in_order=True)
    peer.kernel(queue, "gate")
    yield peer, queue
    queue.wait()


def later_copy(peer, array, queue):
    """The values of a dpnp array, copied to the host on a queue after its pending work."""
    values = peer.np.full(array.shape, -1, array.dtype)
    event = queue.memcpy_async(values, peer.memory_of(array), values.nbytes)
    return values, event


@ROADS
def test_dpnp_batches(oneapi, road):
    peer, queue = oneapi
    sources = [peer.dpnp.zeros(100, dtype="i8", sycl_queue=queue) for _ in range(COUNT)]
    queue.wait()
    consumer = peer.queue()
    with peer.Gate(queue) as gate:
        for i, source in enumerate(sources):
            peer.add_later(source, 10 + i)
        found = road(sources)
        check_pending(found)
        assert {batch.device_type for batch in found} == {ad.DeviceType.ONEAPI}
        for source, batch in zip(sources, found, strict=True):
            assert batch.buffers[1].data_ptr == peer.memory_of(source)._pointer  # no copy
            batch.wait(consumer)
        copies = [later_copy(peer, source, consumer) for source in sources]
        peer.lend_a_hand()
        assert not any(peer.is_done(event) for _, event in copies)
        assert gate.is_closed
        gate.open()
        for i, (values, event) in enumerate(copies):
            event.wait()
            assert (values == 10 + i).all()
    for batch in found:
        batch.synchronize()
        assert batch.is_ready()


def test_dpnp_batches_of_a_generator_that_computes(oneapi):
    """The usual case: another thread computes each batch on request."""
    peer, queue = oneapi
    threads = set()

    def source():
        for i in range(COUNT):
            threads.add(threading.get_ident())
            yield peer.dpnp.full(50, i, dtype="i8", sycl_queue=queue)

    found = pushed(source())
    assert [int(batch.to("cpu").to_pylist()[49]) for batch in found] == list(range(COUNT))
    assert len(threads) == 2  # the first batch, which has the schema, is imported here
