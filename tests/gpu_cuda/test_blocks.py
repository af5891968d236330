"""Pinned and managed memory: dropping it blocks nobody, and it is kept for the next use."""

import gc

import numpy as np
import pytest
from cuda.bindings import driver as cu
from gpu import NEW, Stream, ask

import arrowdev as ad

MIB = 1 << 20
KINDS = pytest.mark.parametrize("kind", ["pinned", "managed"])
ALLOCATE = {"pinned": "cuMemHostAlloc", "managed": "cuMemAllocManaged"}
DEVICE_TYPES = {"pinned": "cuda_host", "managed": "cuda_managed"}


def new(nbytes, kind="pinned", index=0):
    return ad.device(f"{DEVICE_TYPES[kind]}:{index}").empty(nbytes)


def names(calls):
    return [call.name for call in calls]


def drop_all():
    """Returns all blocks and frees none of the kept ones."""
    gc.collect()
    ad.device("cuda:0").synchronize()


@KINDS
def test_drop_does_not_wait_for_the_stream(standin, kind):
    stream = Stream()
    with ad.use_stream(stream):
        memory = new(4096, kind)
    with standin.held(stream.handle):
        ask(cu.cuMemsetD8Async, int(memory.data_ptr), 1, 4096, stream.handle)
        n_waits = standin.count().host_waits
        with standin.logged() as calls:
            del memory
            gc.collect()
        assert standin.count().host_waits == n_waits
    assert not [name for name in names(calls) if "Synchronize" in name or "MemFree" in name]
    assert standin.violations() == []
    drop_all()


@KINDS
def test_block_is_used_again_once_its_work_is_done(standin, kind):
    stream = Stream()
    with ad.use_stream(stream):
        memory = new(5 * MIB, kind)
    address = memory.data_ptr
    with standin.held(stream.handle):
        ask(cu.cuMemsetD8Async, int(address), 1, 5 * MIB, stream.handle)
        del memory
        gc.collect()
        other = new(5 * MIB, kind)
        assert other.data_ptr != address
    drop_all()
    with standin.logged() as calls:
        assert new(5 * MIB, kind).data_ptr == address
    assert ALLOCATE[kind] not in names(calls)


def test_block_serves_similar_sizes(standin):
    address = new(9 * MIB).data_ptr
    drop_all()
    assert new(9 * MIB - 5000).data_ptr == address
    drop_all()
    assert new(4 * MIB).data_ptr != address


def test_blocks_of_two_kinds_differ(standin):
    address = new(11 * MIB, "managed").data_ptr
    drop_all()
    assert new(11 * MIB).data_ptr != address


@pytest.mark.parametrize("act", ["allocate", "synchronize"])
def test_what_is_kept_is_bounded(standin, act):
    """What is above 256 MiB is freed by a call that waits anyway."""
    many = [new(100 * MIB) for _ in range(4)]
    n_before = standin.count().bytes
    del many
    gc.collect()
    if act == "allocate":
        with standin.logged() as calls:
            new(1 * MIB)
        assert "cuMemHostAlloc" not in names(calls) or "cuMemFreeHost" in names(calls)
    ad.device("cuda:0").synchronize()
    assert standin.count().bytes <= n_before - 2 * 100 * MIB


def test_kept_blocks_are_freed_where_memory_runs_out(standin):
    del_me = new(13 * MIB)
    del del_me
    drop_all()
    standin.fail_at(1, 2, "cuMemHostAlloc")
    with standin.logged() as calls:
        new(17 * MIB)
    assert names(calls).count("cuMemHostAlloc") == 2
    assert "cuMemFreeHost" in names(calls)


@pytest.mark.usefixtures("two_devices")
@KINDS
def test_block_of_a_reset_device_is_not_used(standin, kind):
    """The reset frees the memory, and another library may get the address."""
    context = ask(cu.cuCtxGetCurrent)
    assert new(19 * MIB, kind, 1).data_ptr != 0
    gc.collect()
    ad.device("cuda:1").synchronize()
    ask(cu.cuDevicePrimaryCtxReset, 1)
    ask(cu.cuDevicePrimaryCtxRetain, 1)
    with standin.logged() as calls:
        memory = new(19 * MIB, kind, 1)
        del memory
        gc.collect()
    ask(cu.cuCtxSetCurrent, context)
    assert ALLOCATE[kind] in names(calls)
    assert not [name for name in names(calls) if name.startswith("cuMemFree")]


def test_copies_in_kept_blocks_are_correct():
    for _ in range(3):
        pinned = ad.tensor(NEW).to("cuda_host:0")
        assert np.asarray(pinned).tolist() == NEW.tolist()
        there = pinned.to("cuda:0")
        del pinned
        assert np.asarray(there.to("cpu")).tolist() == NEW.tolist()


@KINDS
@pytest.mark.parametrize("how", ["stream", "use_stream"])
def test_memory_on_a_stream_is_of_the_kind_that_was_named(kind, how):
    """Device memory in its place could not be read by the host."""
    stream = Stream()
    device = ad.device(f"{DEVICE_TYPES[kind]}:0")
    if how == "stream":
        memory = device.empty(64, stream=stream)
    else:
        with ad.use_stream(stream):
            memory = device.empty(64)
    memory_type = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    is_managed = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    is_host = int(ask(cu.cuPointerGetAttribute, memory_type, memory.data_ptr)) == 1
    assert is_host == (kind == "pinned")
    assert bool(ask(cu.cuPointerGetAttribute, is_managed, memory.data_ptr)) == (kind == "managed")
    memoryview(memory)[0]
