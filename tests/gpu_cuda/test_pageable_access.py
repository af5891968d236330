"""Memory that the driver does not know, on devices that access all memory (HMM, ATS)."""

import numpy as np
import pytest
from gpu import NEW, AtAddress, Memory, Reader, Stream, ask, cu

import arrowdev as ad

SIZE = NEW.nbytes


@pytest.fixture
def access(standin):
    standin.set_pageable_access(1)


def on_device(array, dtype="int64"):
    """Host memory that its producer declares to be on the device."""
    return ad.Tensor.from_pointer(array.ctypes.data, array.shape, dtype, "cuda:0", owner=array)


@pytest.mark.usefixtures("access")
def test_interface_of_host_memory_is_managed_memory():
    tensor = ad.tensor(AtAddress(NEW.ctypes.data))
    assert tensor.device == ad.device("cuda_managed:0")
    assert np.asarray(tensor).tolist() == NEW.tolist()
    assert Reader().read(tensor.data_ptr).result() == NEW.tolist()


@pytest.mark.usefixtures("access")
def test_host_memory_that_is_declared_as_device_memory_is_copied():
    there = on_device(NEW)
    assert np.asarray(there.to("cpu")).tolist() == NEW.tolist()
    assert np.asarray(ad.tensor(there, copy=True).to("cpu")).tolist() == NEW.tolist()


@pytest.mark.usefixtures("access", "two_devices")
def test_host_memory_that_is_declared_as_device_memory_is_copied_to_another_device():
    assert np.asarray(on_device(NEW).to("cuda:1").to("cpu")).tolist() == NEW.tolist()


@pytest.mark.usefixtures("access")
def test_kernel_reads_host_memory(standin):
    bits = np.random.default_rng(3).integers(0, 256, 64, "uint8")
    array = ad.Array.from_buffers("bool", 512, [None, on_device(bits, "uint8")])
    with standin.logged() as calls:
        tensor = ad.tensor(array)
    assert "cuLaunchKernel" in {call.name for call in calls}
    wanted = np.unpackbits(bits, bitorder="little").astype(bool)
    assert np.asarray(tensor.to("cpu")).tolist() == wanted.tolist()


@pytest.mark.usefixtures("access")
def test_freed_device_memory_is_refused():
    """The host cannot read its address."""
    memory = Memory(NEW, Stream().handle)
    pointer = memory.pointer
    memory.free()
    ask(cu.cuCtxSynchronize)
    with pytest.raises(ad.ExchangeError, match="no CUDA or ROCm device has memory") as caught:
        ad.tensor(AtAddress(pointer))
    assert caught.value.reason == "device"


@pytest.mark.usefixtures("standin")
def test_without_access_host_memory_is_refused():
    with pytest.raises(ad.ExchangeError, match="no CUDA or ROCm device has memory"):
        ad.tensor(AtAddress(NEW.ctypes.data))
    with pytest.raises(ad.ExchangeError, match="does not know it"):
        on_device(NEW).to("cpu")


def test_managed_memory_without_a_device_gets_one(standin):
    """Managed memory of a pool may have no context and the ordinal -2."""
    standin.set_managed_without_device(1)
    pointer = int(ask(cu.cuMemAllocManaged, SIZE, 1))
    ask(cu.cuMemcpyHtoD, pointer, NEW.ctypes.data, SIZE)
    tensor = ad.tensor(AtAddress(pointer))
    assert tensor.device == ad.device("cuda_managed:0")
    copy = tensor.to("cuda:0")
    assert np.asarray(copy.to("cpu")).tolist() == NEW.tolist()
    assert np.asarray(tensor.to("cpu")).tolist() == NEW.tolist()
    del tensor
    ask(cu.cuCtxSynchronize)
    ask(cu.cuMemFree, pointer)
