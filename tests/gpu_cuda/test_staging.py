"""Copies from and to pageable memory: through pinned memory where the driver would wait."""

import gc
import threading
import time

import numpy as np
import pytest
from gpu import Gate, Memory, Stream, ask, cu

import arrowdev as ad

MIB = 1 << 20
KEPT_BY_STREAM = 3  # prefetch=2: the batch that is returned, and two ahead


def batches(n, size=MIB):
    return [ad.array(np.full(size, i, "uint8")) for i in range(n)]


def is_filled(array, value):
    return (np.asarray(array.to("cpu")) == value).all()


def trace(calls):
    """The copies, and the calls that block."""
    return [
        (call.name, call.stream)
        for call in calls
        if "Memcpy" in call.name or "Synchronize" in call.name
    ]


@pytest.mark.parametrize("make", [ad.tensor, ad.array])
def test_upload_on_a_busy_stream_does_not_block(standin, make):
    stream = Stream()
    source = np.full(5 * MIB, 7, "uint8")
    with standin.held(stream.handle):
        n_waits = standin.count().host_waits
        there = make(source).to("cuda:0", stream=stream)
        assert standin.count().host_waits == n_waits
        source[:] = 8  # borrowed memory may change
    assert is_filled(there, 7)


def test_upload_on_an_idle_stream_behind_the_legacy_one_does_not_block(standin):
    """Streams of CuPy wait for the legacy stream. cuStreamQuery does not tell."""
    stream = Stream(flags=0)
    source = np.full(5 * MIB, 7, "uint8")
    with standin.held(1):
        n_waits = standin.count().host_waits
        there = ad.tensor(source).to("cuda:0", stream=stream)
        assert standin.count().host_waits == n_waits
        source[:] = 8
    assert is_filled(there, 7)


def test_upload_of_rows_on_a_busy_stream_does_not_block(standin):
    stream = Stream()
    source = np.arange(3 * MIB, dtype="uint8").reshape(1024, -1)
    with standin.held(stream.handle):
        n_waits = standin.count().host_waits
        there = ad.tensor(source[:, : 2 * 1024]).to("cuda:0", stream=stream)
        assert standin.count().host_waits == n_waits
    assert np.array_equal(np.asarray(there.to("cpu")), source[:, : 2 * 1024])


def test_prefetched_uploads_overlap_with_work_on_the_stream(standin):
    """The consumer has enqueued work: the copies of three batches are enqueued behind it."""
    stream = Stream()
    source = batches(5)
    copies = ad.array_stream(source).to("cuda:0", prefetch=2, stream=stream)
    with standin.held(stream.handle):
        with standin.logged() as calls:
            first = next(copies)
        assert trace(calls) == [("cuMemcpyAsync", stream.handle)] * KEPT_BY_STREAM
    assert is_filled(first, 0)
    assert [is_filled(batch, 1 + i) for i, batch in enumerate(copies)] == [True] * 4


def test_prefetched_uploads_are_done_during_the_consumers_work(standin):
    """The consumer's stream is held: the next batches arrive on a stream of arrowdev's."""
    work = Stream()
    copies = ad.array_stream(batches(4)).to("cuda:0", prefetch=2)
    with standin.held(work.handle):
        with standin.logged() as calls:
            first = next(copies)
            first.wait(work)
        assert [name for name, _ in trace(calls)] == ["cuMemcpyAsync"] * KEPT_BY_STREAM
        assert work.handle not in {stream for _, stream in trace(calls)}
        second, third = next(copies), next(copies)
        assert is_filled(second, 1) and is_filled(third, 2)
    assert is_filled(first, 0)


def test_pinned_memory_of_uploads_is_used_again(standin):
    stream = Stream()

    def upload():
        with standin.held(stream.handle):
            there = ad.tensor(np.ones(7 * MIB, "uint8")).to("cuda:0", stream=stream)
        there.synchronize()
        del there
        gc.collect()
        ad.device("cuda:0").synchronize()

    upload()
    with standin.logged() as calls:
        for _ in range(3):
            upload()
    assert "cuMemHostAlloc" not in {call.name for call in calls}


def test_pinned_memory_of_uploads_is_bounded(standin):
    """Beyond 256 MiB the bytes are set aside in pageable memory, and the driver waits."""
    stream = Stream()
    source = np.ones(60 * MIB, "uint8")
    n_pinned = standin.count().pinned
    with standin.held(stream.handle):
        n_waits = standin.count().host_waits
        there = [ad.tensor(source).to("cuda:0", stream=stream) for _ in range(4)]
        assert standin.count().host_waits == n_waits
        assert standin.count().pinned - n_pinned <= 4
        standin.set_patience(50)
        with pytest.raises(ad.DeviceError):
            ad.tensor(source).to("cuda:0", stream=stream)
        assert standin.count().host_waits > n_waits
        assert standin.violations() != []
        standin.set_patience(20_000)
    assert is_filled(there[-1], 1)


def test_without_pinned_memory_an_upload_waits(standin):
    stream = Stream()
    source = np.full(2 * MIB + 200_000, 5, "uint8")
    ad.device("cuda:0").synchronize()
    standin.fail_at(1, 2, "cuMemHostAlloc", stay=True)
    standin.set_delay(1000)
    with ad.use_stream(stream):
        there = [ad.tensor(source).to("cuda:0") for _ in range(2)]
    standin.fail_at(0, 0)
    assert all(is_filled(tensor, 5) for tensor in there)


def test_small_upload_takes_no_pinned_memory(standin):
    """The driver reads 64 KiB at once."""
    stream = Stream()
    with standin.held(stream.handle), standin.logged() as calls:
        there = ad.tensor(np.full(1 << 16, 3, "uint8")).to("cuda:0", stream=stream)
    assert not {call.name for call in calls} & {"cuMemHostAlloc", "cuPointerGetAttributes"}
    assert is_filled(there, 3)


# --- downloads ahead of their consumer ---------------------------------------------------


def on_device(n, size=MIB, device="cuda:0"):
    made = [batch.to(device) for batch in batches(n, size)]
    ad.device(device).synchronize()
    return made


def names(calls):
    return [call.name for call in calls]


def test_prefetched_downloads_overlap_with_work_on_the_stream(standin):
    """The copies of three batches are enqueued behind it. Only the first one is waited for."""
    stream, taken = Stream(), []
    copies = ad.array_stream(on_device(5)).to("cpu", prefetch=2, stream=stream)
    taking = threading.Thread(target=lambda: taken.append(next(copies)))
    limit = time.monotonic() + 20
    with standin.logged(), standin.held(stream.handle):
        taking.start()
        while names(standin.log()).count("cuMemcpyAsync") < KEPT_BY_STREAM:
            assert time.monotonic() < limit, "a copy blocks"
            time.sleep(0.001)
        assert taken == []
    taking.join(20)
    taken += list(copies)
    assert [is_filled(batch, i) for i, batch in enumerate(taken)] == [True] * 5


def test_prefetched_downloads_are_done_during_the_consumers_work(standin):
    """The next batch is there when it is taken. The copy that is enqueued then blocks nobody."""
    copies = ad.array_stream(on_device(5)).to("cpu", prefetch=2)
    first = next(copies)
    ad.device("cuda:0").synchronize()  # the consumer's work takes as long
    n_waits = standin.count().host_waits
    with standin.logged() as calls:
        second = next(copies)
    assert standin.count().host_waits == n_waits
    assert [name for name, _ in trace(calls)] == ["cuMemcpyAsync"]
    assert is_filled(first, 0) and is_filled(second, 1)


def test_prefetched_downloads_of_every_buffer_are_correct():
    pa = pytest.importorskip("pyarrow")
    table = ad.record_batch(
        pa.record_batch(
            {
                "text": ["a", None, "long" * 50, ""],
                "bits": [True, None, False, True],
                "empty": pa.nulls(4, pa.int16()),
                "lists": [[1, 2], None, [], [3]],
            }
        )
    )
    source = [table, table.slice(1, 2), table.slice(0, 0), table.slice(3)]
    there = [batch.to("cuda:0") for batch in source]
    found = list(ad.array_stream(there).to("cpu", prefetch=2))
    for batch, copy in zip(source, found, strict=True):
        copy.validate(level="full")
        assert copy.to_pylist() == batch.to_pylist()


def test_pinned_memory_of_downloads_is_used_again(standin):
    """The results are in memory of their own: three blocks serve any number of batches."""
    source = on_device(9, 6 * MIB)
    with standin.logged() as calls:
        kept = list(ad.array_stream(source).to("cpu", prefetch=2))
    assert names(calls).count("cuMemHostAlloc") <= KEPT_BY_STREAM
    assert [is_filled(batch, i) for i, batch in enumerate(kept)] == [True] * 9


@pytest.mark.usefixtures("two_devices")
def test_downloads_outlive_their_device():
    """The reset of a device frees its pinned memory."""
    kept = list(ad.array_stream(on_device(3, device="cuda:1")).to("cpu", prefetch=1))
    ask(cu.cuDevicePrimaryCtxReset, 1)
    ask(cu.cuDevicePrimaryCtxRetain, 1)
    assert [is_filled(batch, i) for i, batch in enumerate(kept)] == [True] * 3


def test_dropped_download_keeps_its_block_until_it_is_done(standin):
    """Of the two blocks of a stream that is dropped, one is written later and not used again."""
    stream, size = Stream(), 23 * MIB
    ready = on_device(3, size)
    late = Memory(np.full(size, 9, "uint8"), stream.handle)
    with Gate(stream.handle):
        copies = ad.array_stream([ready[0], ad.array(late)]).to("cpu", prefetch=1)
        assert is_filled(next(copies), 0)
        del copies
        gc.collect()
        with standin.logged() as calls:
            found = list(ad.array_stream(ready[1:]).to("cpu", prefetch=1))
        assert names(calls).count("cuMemHostAlloc") == 1
    assert [is_filled(batch, 1 + i) for i, batch in enumerate(found)] == [True] * 2


def test_without_pinned_memory_a_download_waits(standin):
    source = on_device(3, 3 * MIB + 300_000)
    standin.fail_at(1, 2, "cuMemHostAlloc", stay=True)
    found = list(ad.array_stream(source).to("cpu", prefetch=1))
    standin.fail_at(0, 0)
    assert [is_filled(batch, i) for i, batch in enumerate(found)] == [True] * 3
