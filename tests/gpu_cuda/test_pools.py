"""The pool of device memory: what was freed is used again."""

import gc
import os

import numpy as np
import pytest
from cuda.bindings import driver as cu
from gpu import ask

import arrowdev as ad

MIB = 1 << 20
THRESHOLD = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
RESERVED = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT


def upload_and_synchronize(device):
    """Uploads 8 MiB, frees them and waits for the device."""
    copy = ad.tensor(np.ones(8 * MIB, "uint8")).to(device)
    copy.synchronize()
    del copy
    gc.collect()
    ad.device(device).synchronize()


def pool_of(memory):
    attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
    return ask(cu.cuPointerGetAttribute, attribute, memory.data_ptr)


def test_freed_memory_stays_mapped_after_a_synchronization(standin):
    upload_and_synchronize("cuda:0")
    n_maps = standin.count().maps
    for _ in range(3):
        upload_and_synchronize("cuda:0")
    assert standin.count().maps == n_maps


@pytest.mark.usefixtures("two_devices")
def test_each_device_has_a_pool(standin):
    upload_and_synchronize("cuda:1")
    n_maps = standin.count().maps
    upload_and_synchronize("cuda:1")
    assert standin.count().maps == n_maps


def test_allocations_wait_for_no_free_on_another_stream():
    """Consumers may keep the stream for frees busy, and uploads do not wait for them."""
    pool = pool_of(ad.tensor(np.ones(8)).to("cuda:0"))
    waits = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
    assert int(ask(cu.cuMemPoolGetAttribute, pool, waits)) == 0


def test_pool_with_the_default_threshold_maps_memory_again(standin):
    """What arrowdev's own pool avoids."""
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    pool = ask(cu.cuMemPoolCreate, properties)
    assert int(ask(cu.cuMemPoolGetAttribute, pool, THRESHOLD)) == 0
    n_maps = standin.count().maps
    for _ in range(3):
        ask(cu.cuMemFreeAsync, ask(cu.cuMemAllocFromPoolAsync, 8 * MIB, pool, 1), 1)
        ask(cu.cuStreamSynchronize, 1)
    ask(cu.cuMemPoolDestroy, pool)
    assert standin.count().maps == n_maps + 3


def test_default_pool_is_left_alone():
    """Its threshold is a setting of the whole process."""
    pool = ask(cu.cuDeviceGetDefaultMemPool, 0)
    before = ask(cu.cuMemPoolGetAttribute, pool, THRESHOLD)
    ask(cu.cuMemPoolSetAttribute, pool, THRESHOLD, cu.cuuint64_t(12345))
    upload_and_synchronize("cuda:0")
    assert int(ask(cu.cuMemPoolGetAttribute, pool, THRESHOLD)) == 12345
    ask(cu.cuMemPoolSetAttribute, pool, THRESHOLD, before)


def test_synchronize_gives_unused_memory_back():
    """Beyond 256 MiB, and what a synchronization by others leaves is limited, too."""
    device = ad.device("cuda:0")
    small, large = device.empty(4096), device.empty(384 * MIB)
    pool = pool_of(small)
    assert int(ask(cu.cuMemPoolGetAttribute, pool, THRESHOLD)) == 1024 * MIB
    assert int(ask(cu.cuMemPoolGetAttribute, pool, RESERVED)) > 384 * MIB
    del large
    gc.collect()
    device.synchronize()
    assert int(ask(cu.cuMemPoolGetAttribute, pool, RESERVED)) <= 256 * MIB


def test_failed_allocation_gives_unused_memory_back(standin):
    device = ad.device("cuda:0")
    small = device.empty(4096)
    pool = pool_of(small)
    device.empty(8 * MIB)
    gc.collect()
    ask(cu.cuCtxSynchronize)
    kept = int(ask(cu.cuMemPoolGetAttribute, pool, RESERVED))
    standin.fail_at(1, 2, "cuMemAllocFromPoolAsync")
    with standin.logged() as calls:
        other = device.empty(4096)
    names = [call.name for call in calls]
    assert names.count("cuMemAllocFromPoolAsync") == 2 and "cuMemPoolTrimTo" in names
    assert int(ask(cu.cuMemPoolGetAttribute, pool, RESERVED)) < kept
    assert pool_of(other) == pool


def test_failure_is_reported_when_nothing_can_be_given_back(standin):
    ad.device("cuda:0").empty(4096)
    standin.fail_at(1, 2, "cuMemAllocFromPoolAsync", stay=True)
    with pytest.raises(MemoryError, match="cuda:0"):
        ad.device("cuda:0").empty(4096)
    standin.fail_at(0, 0)


@pytest.mark.usefixtures("standin", "two_devices")
def test_pool_of_a_reset_device_is_made_anew():
    """The reset destroys it, and the driver refuses its handle."""
    context = ask(cu.cuCtxGetCurrent)
    device = ad.device("cuda:1")
    device.empty(4096)
    gc.collect()
    device.synchronize()
    ask(cu.cuDevicePrimaryCtxReset, 1)
    ask(cu.cuDevicePrimaryCtxRetain, 1)
    there = ad.tensor(np.arange(8)).to("cuda:1")
    assert int(ask(cu.cuMemPoolGetAttribute, pool_of(there), THRESHOLD)) == 1024 * MIB
    assert np.asarray(there.to("cpu")).tolist() == list(range(8))
    ask(cu.cuCtxSetCurrent, context)


def test_pool_that_lives_is_kept_after_a_wrong_argument(standin):
    """The driver answers as for a pool that is gone. A second pool would keep memory, too."""
    device = ad.device("cuda:0")
    pool = pool_of(device.empty(4096))
    standin.fail_at(1, 1, "cuMemAllocFromPoolAsync")  # INVALID_VALUE
    with standin.logged() as calls, pytest.raises(ad.DeviceError, match="INVALID_VALUE"):
        device.empty(4096)
    names = [call.name for call in calls]
    assert "cuMemPoolCreate" not in names
    assert names.count("cuMemAllocFromPoolAsync") == 1
    assert pool_of(device.empty(4096)) == pool


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("has_descriptors", [True, False])
def test_pool_can_be_shared_where_the_device_allows_it(standin, has_descriptors):
    """By a file descriptor; where that is refused, the pool is made without."""
    context = ask(cu.cuCtxGetCurrent)
    ask(cu.cuDevicePrimaryCtxReset, 1)  # so that the next allocation makes a pool
    ask(cu.cuDevicePrimaryCtxRetain, 1)
    if not has_descriptors:
        standin.fail_at(1, 801, "cuMemPoolCreate")  # NOT_SUPPORTED
    pool = pool_of(ad.device("cuda:1").empty(4096))
    ask(cu.cuCtxSetCurrent, context)
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    code, descriptor = cu.cuMemPoolExportToShareableHandle(pool, kind, 0)
    assert (code == 0) == has_descriptors
    if has_descriptors:
        os.close(int(descriptor))
