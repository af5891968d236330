"""Uploads of pageable memory: they are set aside in pinned memory where the driver would wait."""

import gc

import numpy as np
import pytest
from gpu import Stream

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
