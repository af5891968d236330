"""The pool of device memory: what was freed is used again."""

import gc

import numpy as np
import pytest
from cuda.bindings import driver as cu
from gpu import ask

import arrowdev as ad

MIB = 1 << 20
THRESHOLD = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD


def upload_and_synchronize(device):
    """Uploads 8 MiB, frees them and waits for the device."""
    copy = ad.tensor(np.ones(8 * MIB, "uint8")).to(device)
    copy.synchronize()
    del copy
    gc.collect()
    ad.device(device).synchronize()


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
    there = ad.tensor(np.ones(8)).to("cuda:0")
    attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
    pool = ask(cu.cuPointerGetAttribute, attribute, there.data_ptr)
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
