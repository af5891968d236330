"""Every kind of memory that the driver and the allocators of libraries give out."""

import contextlib
import subprocess
import sys

import gpu
import libraries
import numpy as np
import pytest
from gpu import NEW, OLD, AtAddress, Hold, Reader, Stream, ask, cu

import arrowdev as ad

N_BYTES = NEW.nbytes


def on_device_0(structure, kind):
    structure.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    structure.location.id = 0
    kinds = cu.CUmemAllocationType
    if kind == "allocation":
        structure.type = kinds.CU_MEM_ALLOCATION_TYPE_PINNED
    elif kind == "pool":
        structure.allocType = kinds.CU_MEM_ALLOCATION_TYPE_PINNED
    return structure


@contextlib.contextmanager
def device():
    pointer = ask(cu.cuMemAlloc, N_BYTES)
    yield pointer
    ask(cu.cuMemFree, pointer)


@contextlib.contextmanager
def default_pool():
    pointer = ask(cu.cuMemAllocAsync, N_BYTES, 1)
    ask(cu.cuStreamSynchronize, 1)
    yield pointer
    ask(cu.cuMemFreeAsync, pointer, 1)


@contextlib.contextmanager
def own_pool():
    pool = ask(cu.cuMemPoolCreate, on_device_0(cu.CUmemPoolProps(), "pool"))
    pointer = ask(cu.cuMemAllocFromPoolAsync, N_BYTES, pool, 1)
    ask(cu.cuStreamSynchronize, 1)
    yield pointer
    ask(cu.cuMemFreeAsync, pointer, 1)
    ask(cu.cuStreamSynchronize, 1)
    ask(cu.cuMemPoolDestroy, pool)


@contextlib.contextmanager
def managed():
    pointer = ask(cu.cuMemAllocManaged, N_BYTES, 1)
    yield pointer
    ask(cu.cuMemFree, pointer)


@contextlib.contextmanager
def pinned():
    pointer = ask(cu.cuMemHostAlloc, N_BYTES, 0)
    yield pointer
    ask(cu.cuMemFreeHost, pointer)


@contextlib.contextmanager
def registered():
    page = 4096
    memory = np.zeros(3 * page, "u1")
    start = (memory.ctypes.data + page - 1) // page * page
    ask(cu.cuMemHostRegister, start, page, 0)
    yield start
    ask(cu.cuMemHostUnregister, start)


@contextlib.contextmanager
def mapped():
    """Virtual memory management: what torch's expandable segments are made of."""
    wanted = on_device_0(cu.CUmemAllocationProp(), "allocation")
    flag = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    code, size = cu.cuMemGetAllocationGranularity(wanted, flag)
    if code == cu.CUresult.CUDA_ERROR_NOT_SUPPORTED:
        pytest.skip("needs a GPU that maps memory")
    size = int(size)
    access = on_device_0(cu.CUmemAccessDesc(), "access")
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    start = ask(cu.cuMemAddressReserve, size, 0, 0, 0)
    handle = ask(cu.cuMemCreate, size, wanted, 0)
    ask(cu.cuMemMap, start, size, 0, handle, 0)
    ask(cu.cuMemSetAccess, start, size, [access], 1)
    yield start
    ask(cu.cuMemUnmap, start, size)
    ask(cu.cuMemRelease, handle)
    ask(cu.cuMemAddressFree, start, size)


CUDA, HOST, MANAGED = ad.DeviceType.CUDA, ad.DeviceType.CUDA_HOST, ad.DeviceType.CUDA_MANAGED
KINDS = {
    device: CUDA,
    default_pool: CUDA,
    own_pool: CUDA,
    managed: MANAGED,
    pinned: HOST,
    registered: HOST,
    mapped: CUDA,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_memory_of_the_driver(kind):
    with kind() as pointer:
        source = gpu.Pinned(NEW)
        ask(cu.cuMemcpyHtoDAsync, pointer, int(source.pointer), N_BYTES, 1)
        ask(cu.cuStreamSynchronize, 1)
        tensor = ad.tensor(AtAddress(pointer, stream=1))
        assert tensor.device == ad.device((KINDS[kind], 0))
        assert bytes(tensor.to("cpu")) == NEW.tobytes()
        copy = ad.array(tensor, copy=True)
        assert copy.device == tensor.device and copy.to("cpu").to_pylist() == NEW.tolist()
        there = tensor.to("cuda:0")
        assert there.device == ad.device("cuda:0") and bytes(there.to("cpu")) == NEW.tobytes()
        bits = ad.Array.from_buffers("bool", 4096, [None, tensor.to("cuda:0")])
        wanted = np.unpackbits(NEW.view("u1"), bitorder="little")
        assert bytes(ad.tensor(bits).to("cpu")) == wanted.tobytes()
        del tensor, copy, there, bits
        ask(cu.cuCtxSynchronize)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_writes_to_it_are_waited_for(kind):
    writer, reader = Stream(), Reader()
    with kind() as pointer:
        shown = AtAddress(pointer, stream=1)
        shown.__cuda_array_interface__["stream"] = writer.handle
        late = gpu.copy_later(writer.handle, int(pointer), NEW)
        tensor = ad.tensor(shown)
        tensor.wait(reader.stream)
        reader.read(tensor.data_ptr)
        assert not reader.stream.is_done()
        late.end()
        assert reader.result() == NEW.tolist()
        del tensor
        ask(cu.cuCtxSynchronize)


# --- allocators of libraries ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["MemoryPool", "MemoryAsyncPool", "managed"])
def test_pools_of_cupy(kind):
    library = libraries.get("cupy")
    cuda = library.api.cuda
    pool = cuda.MemoryPool(cuda.malloc_managed) if kind == "managed" else getattr(cuda, kind)()
    stream, reader = library.stream(), Reader()
    with cuda.using_allocator(pool.malloc):
        source = library.make(NEW, stream)
        with library.on(stream):
            tensor = ad.tensor(source)
        assert tensor.device == ad.device((MANAGED if kind == "managed" else CUDA, 0))
        tensor.__dlpack__(stream=reader.stream.handle)
        with Hold(reader.stream.handle):
            reader.read(tensor.data_ptr)
            del source, tensor
            again = [library.make(OLD, stream) for _ in range(4)]
        assert reader.result() == NEW.tolist()
        del again


def test_pool_of_rmm():
    library = libraries.get("rmm")
    mr = library.api.mr
    before = mr.get_current_device_resource()
    mr.set_current_device_resource(mr.CudaAsyncMemoryResource())
    try:
        tensor = ad.tensor(library.make(NEW, None))
        assert tensor.device == ad.device("cuda:0") and bytes(tensor.to("cpu")) == NEW.tobytes()
        del tensor
        ad.device("cuda:0").synchronize()
    finally:
        mr.set_current_device_resource(before)


def test_expandable_segments_of_torch():
    """The allocator is chosen when torch is imported."""
    libraries.get("torch")
    done = subprocess.run(
        [sys.executable, str(gpu.FOLDER / "expandable_segments.py")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.split() == ["end"], done.stdout + done.stderr
