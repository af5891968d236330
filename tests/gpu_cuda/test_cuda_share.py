"""share() and attach() of device memory: two processes with a driver each."""

import contextlib
import gc
import os
import threading
from pathlib import Path

import fakegpu
import pytest
from gpu import (
    MODES,
    NEW,
    OLD,
    AtAddress,
    Capture,
    Gate,
    Held,
    Memory,
    Pinned,
    Stream,
    ask,
    cu,
)
from gpu_sharing import described, fail_each, leaks, next_line, opened, settled
from sharing import connections, descriptors, process, run, wait_until
from test_host_functions import drop

import arrowdev as ad

HERE = Path(__file__).resolve().parent
START = f"""
sys.path[:0] = {[str(HERE), str(HERE.parent / "helpers")]!r}
from conftest import DRIVER
from gpu import *
import fakegpu
ask(cu.cuInit, 0)
ask(cu.cuCtxSetCurrent, ask(cu.cuDevicePrimaryCtxRetain, 0))
def end():
    assert DRIVER is None or DRIVER.violations() == []
"""
ATTACH = START + "x = ad.attach(sys.argv[1])\n"
READ = START + (
    "for text in sys.argv[1:]:\n"
    "    x = ad.attach(text)\n"
    "    print(x.device, x.to('cpu').to_pylist())\n"
    "del x; end()"
)

FILE = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
PINNED = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
ON_DEVICE = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
N_BYTES = NEW.nbytes


# --- memory --------------------------------------------------------------------------------------


def write(pointer, array):
    source = Pinned(array)
    ask(cu.cuMemcpyHtoDAsync, int(pointer), int(source.pointer), array.nbytes, 1)
    ask(cu.cuStreamSynchronize, 1)


@contextlib.contextmanager
def arrowdev_pool(files=True):
    yield ad.array(NEW).to("cuda:0")


@contextlib.contextmanager
def users_pool(files=True):
    wanted = cu.CUmemPoolProps()
    wanted.allocType, wanted.location.type = PINNED, ON_DEVICE
    if files:
        wanted.handleTypes = FILE
    pool = ask(cu.cuMemPoolCreate, wanted)
    pointer = ask(cu.cuMemAllocFromPoolAsync, N_BYTES, pool, 1)
    write(pointer, NEW)
    yield ad.array(AtAddress(pointer))
    ask(cu.cuMemFreeAsync, pointer, 1)
    ask(cu.cuStreamSynchronize, 1)
    ask(cu.cuMemPoolDestroy, pool)


@contextlib.contextmanager
def mapped(files=True, n=1):
    """Virtual memory: n allocations side by side."""
    wanted = cu.CUmemAllocationProp()
    wanted.type, wanted.location.type = PINNED, ON_DEVICE
    if files:
        wanted.requestedHandleTypes = FILE
    flag = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    size = int(ask(cu.cuMemGetAllocationGranularity, wanted, flag))
    access = cu.CUmemAccessDesc()
    access.location.type = ON_DEVICE
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    start = int(ask(cu.cuMemAddressReserve, n * size, 0, 0, 0))
    for i in range(n):
        handle = ask(cu.cuMemCreate, size, wanted, 0)
        ask(cu.cuMemMap, start + i * size, size, 0, handle, 0)
        ask(cu.cuMemRelease, handle)
    ask(cu.cuMemSetAccess, start, n * size, [access], 1)
    write(start, NEW)
    mapped.size = size
    yield ad.array(AtAddress(start))
    ask(cu.cuStreamSynchronize, 1)
    for i in range(n):
        ask(cu.cuMemUnmap, start + i * size, size)
    ask(cu.cuMemAddressFree, start, n * size)


@contextlib.contextmanager
def allocated():
    yield ad.array(Memory(NEW, is_ordered=False))


KINDS = {
    arrowdev_pool: "pool descriptor",
    users_pool: "pool descriptor",
    mapped: "VMM descriptor",
    allocated: "legacy IPC",
}
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@each_kind
def test_values(kind):
    """Of a whole allocation, and of a part of it."""
    with kind() as value:
        part = value[40:50]
        whole, some = ad.share(value), ad.share(part)
        assert whole.how == some.how == (KINDS[kind],)
        for _ in range(2):
            lines = run(READ, whole, some).decode().splitlines()
            assert lines == [f"cuda:0 {NEW.tolist()}", f"cuda:0 {NEW[40:50].tolist()}"]
        del value, part, whole, some
        gc.collect()


@each_kind
def test_nothing_is_copied(kind):
    with kind() as value:
        shared = ad.share(value)
        code = ATTACH + (
            "print('attached'); sys.stdout.flush(); sys.stdin.readline()\n"
            "print(x.to('cpu').to_pylist())"
        )
        with process(code, shared) as child:
            assert child.line == "attached"
            write(value.buffers[1].data_ptr, OLD)
            child.stdin.write(b"\n")
            child.stdin.flush()
            assert child.stdout.readline().decode() == f"{OLD.tolist()}\n"
        del value, shared
        gc.collect()


@each_kind
def test_several_opens_in_a_process(kind):
    """Drivers count some; of others the first close ends them all (NVIDIA 5570902)."""
    code = ATTACH + (
        "y = ad.attach(sys.argv[2])\n"
        "first = x.buffers[1].data_ptr, y.buffers[1].data_ptr\n"
        "del x; ad.device('cuda:0').synchronize()\n"
        f"assert y.to('cpu').to_pylist() == {NEW.tolist()}\n"
        "z = ad.attach(sys.argv[1])\n"
        "del y; ad.device('cuda:0').synchronize()\n"
        f"assert z.to('cpu').to_pylist() == {NEW.tolist()}\n"
        "del z; ad.device('cuda:0').synchronize(); end()"
    )
    with kind() as value:
        one, other = ad.share(value), ad.share(value)
        run(code, one, other)
        del value, one, other
        gc.collect()


MAKE = {
    "pool": "x = ad.array(NEW).to('cuda:0')\n",
    "legacy": "x = ad.array(Memory(NEW, is_ordered=False))\n",
    "VMM": "context = mapped(); x = context.__enter__()\n",
}
VMM_OF_CHILD = "from test_cuda_share import mapped\n"
SHARE = "shared = ad.share(x)\nprint(shared)"


def test_memory_of_a_pool_is_imported_once_at_a_time(standin):
    with process(START + MAKE["pool"] + SHARE) as child:
        with standin.logged() as calls:
            views = [ad.attach(child.line) for _ in range(3)]
            assert len({view.buffers[1].data_ptr for view in views}) == 1
            del views
            settled(standin)
        names = [call.name for call in calls]
        assert names.count("cuMemPoolImportPointer") == names.count("cuMemFree_v2") == 1
        assert names.count("cuMemPoolImportFromShareableHandle") == 1
        assert names.count("cuMemPoolDestroy") == 1


def test_threads_open_and_close_the_same_memory(standin):
    wrong = []

    def use(text):
        for _ in range(20):
            if ad.attach(text).to("cpu").to_pylist() != NEW.tolist():
                wrong.append(text)

    with process(START + MAKE["pool"] + SHARE) as child:
        before = settled(standin)
        threads = [threading.Thread(target=use, args=(child.line,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert leaks(standin, before) == {}


@pytest.mark.parametrize("kind", MAKE)
def test_view_that_ends_in_a_host_function(standin, kind):
    """CUDA permits no call there: the memory is closed later, on another thread."""
    with process(START + VMM_OF_CHILD + MAKE[kind] + SHARE) as child:
        ad.attach(child.line)
        before, files = settled(standin), descriptors()
        kept = [ad.attach(child.line)]
        drop(kept)
        wait_until(lambda: leaks(standin, before) == {} and descriptors() <= files)


@pytest.mark.usefixtures("two_devices")
def test_devices_with_other_numbers():
    """A device is named by its UUID."""
    shared = ad.share(ad.array(NEW).to("cuda:1"))
    variable = "CUDA_VISIBLE_DEVICES"
    found = run(READ, shared, env={**os.environ, variable: "1,0"})
    assert found.decode() == f"cuda:0 {NEW.tolist()}\n"
    code = START + (
        "try: ad.attach(sys.argv[1])\n"
        "except ad.ExchangeError as error: print(error.reason, error.hint)"
    )
    reason, hint = run(code, shared, env={**os.environ, variable: "0"}).decode().split(" ", 1)
    assert reason == "device" and "CUDA_VISIBLE_DEVICES" in hint


# --- order ---------------------------------------------------------------------------------------


def test_nobody_waits_for_pending_data(standin):
    """Neither share() nor attach() waits, and work of the consumer comes after the producer's."""
    code = ATTACH.replace("x = ", "with DRIVER.logged() as calls: x = ") + (
        "stream = Stream()\n"
        "copy = ad.array(x, copy=True, stream=stream)\n"
        "print(fakegpu.waits(calls), x.is_ready(), copy.is_ready()); sys.stdout.flush()\n"
        "sys.stdin.readline()\n"
        "print(copy.to('cpu').to_pylist()); sys.stdout.flush(); end()"
    )
    with Held() as held:
        value = ad.array(ad.array(held.memory), copy=True)
        with standin.logged() as calls:
            shared = ad.share(value)
        assert set(fakegpu.waits(calls)) <= {"cuEventQuery"}
        with process(code, shared) as child:
            assert child.line == "[] False False"
            assert not value.is_ready()
            held.gate.open()
            assert next_line(child) == f"{NEW.tolist()}"
    del value, shared


def test_memory_whose_allocation_is_pending():
    """It may be used once its stream has allocated it."""
    stream = Stream()
    gate = Gate(stream.handle)
    value = ad.device("cuda:0").empty(NEW.nbytes, stream=stream)
    shared = ad.share(value)
    code = ATTACH + (
        "print(x.is_ready()); sys.stdout.flush(); sys.stdin.readline()\n"
        "print(x.to('cpu').nbytes); sys.stdout.flush(); end()"
    )
    with process(code, shared) as child:
        assert child.line == "False"
        gate.open()
        assert next_line(child) == str(NEW.nbytes)
    del value, shared


def test_stream_of_the_consumer_waits_for_the_producer():
    code = ATTACH + (
        "reader = Reader()\n"
        "x.wait(reader.stream); reader.read(x.buffers[1].data_ptr)\n"
        "print(reader.stream.is_done()); sys.stdout.flush(); sys.stdin.readline()\n"
        "print(reader.result()); sys.stdout.flush(); end()"
    )
    with Held() as held:
        value = ad.array(ad.array(held.memory), copy=True)
        shared = ad.share(value)
        with process(code, shared) as child:
            assert child.line == "False"
            held.gate.open()
            assert next_line(child) == f"{NEW.tolist()}"
    del value, shared


def test_memory_stays_until_the_work_of_the_consumer_is_done(standin):
    """The consumer drops the view first, and the producer everything else."""
    code = ATTACH + (
        "stream = Stream(); gate = Gate(stream.handle)\n"
        "copy = ad.array(x, copy=True, stream=stream)\n"
        "del x; print('dropped'); sys.stdout.flush(); sys.stdin.readline()\n"
        "gate.open(); print(copy.to('cpu').to_pylist()); sys.stdout.flush(); end()\n"
    )
    value = ad.array(NEW).to("cuda:0")
    shared = ad.share(value)
    before = settled(standin).device
    with process(code, shared) as child:
        assert child.line == "dropped"
        del value
        shared.close()
        assert settled(standin).device == before and connections(shared) == 1
        assert next_line(child) == f"{NEW.tolist()}"
        wait_until(lambda: connections(shared) == 0)
    assert settled(standin).device == before - 1


def test_producer_is_killed(standin):
    code = START + (
        "held = Held(); x = ad.array(ad.array(held.memory), copy=True)\n"
        "shared = ad.share(x); print(shared)"
    )
    before = settled(standin)
    with process(code) as child:
        found = ad.attach(child.line)
        assert not found.is_ready()
        child.kill()
        child.wait()
        with pytest.raises(ad.DeviceError) as info:
            found.to("cpu")
        del info
    del found
    wait_until(lambda: leaks(standin, before) == {})


def test_consumer_is_killed(standin):
    value = ad.array(NEW).to("cuda:0")
    before = settled(standin)
    files = descriptors()
    shared = ad.share(value)
    with process(ATTACH + "print()", shared) as child:
        assert connections(shared) == 1
        child.kill()
        wait_until(lambda shared=shared: connections(shared) == 0)
    shared.close()
    del shared
    wait_until(lambda: leaks(standin, before) == {} and descriptors() <= files + 3)
    del value
    assert settled(standin).device == before.device - 1


@pytest.mark.parametrize("mode", MODES)
def test_stream_in_capture(mode):
    """A graph that others capture is not disturbed; what it makes cannot be shared."""
    value, memory = ad.array(NEW).to("cuda:0"), Memory(NEW, is_ordered=False)
    with Capture(mode):
        shared = ad.share(value)
        assert run(READ, shared).decode() == f"cuda:0 {NEW.tolist()}\n"
    with Capture(mode) as capture:
        made = ad.array(AtAddress(memory.pointer, stream=capture.stream.handle))
        with pytest.raises(ad.ExchangeError) as info:
            ad.share(made)
        assert info.value.reason == "capture"
        del info, made
    del value, shared


# --- what is refused -----------------------------------------------------------------------------


def refused(value, words):
    gc.collect()
    before = descriptors()
    with pytest.raises(ad.ExchangeError, match=words) as info:
        ad.share(value)
    assert info.value.reason == "share" and '.to("cpu")' in info.value.hint
    assert str(value.device.id) in info.value.hint
    del info
    gc.collect()
    assert descriptors() <= before
    copy = value.to("cpu").to("cuda:0")
    assert run(READ, ad.share(copy)).decode() == f"cuda:0 {NEW.tolist()}\n"


REFUSED = (
    "try: {}\n"
    "except ad.ExchangeError as error: print(error.reason, error)\n"
    "else: print('no error')"
)


@pytest.mark.parametrize("kind", [arrowdev_pool, allocated, mapped])
def test_what_was_attached_to_is_not_passed_on(kind):
    """Its producer would not know of a third process, even where the driver exports it."""
    with kind() as value:
        said = run(ATTACH + REFUSED.format("ad.share(x)"), ad.share(value)).decode()
        assert said.startswith("share ") and "memory of another process" in said
        del value
        gc.collect()


OLDER = {  # what an older driver lacks, and who misses it
    "cuDeviceGetUuid_v2": "producer",
    "cuMemGetAddressRange_v2": "producer",
    "cuMemPoolExportToShareableHandle": "producer",
    "cuMemPoolExportPointer": "producer",
    "cuMemPoolImportFromShareableHandle": arrowdev_pool,
    "cuMemPoolImportPointer": arrowdev_pool,
    "cuMemPoolSetAccess": arrowdev_pool,
    "cuMemImportFromShareableHandle": mapped,
    "cuMemRelease": mapped,
    "cuMemAddressReserve": mapped,
    "cuMemAddressFree": mapped,
    "cuMemMap": mapped,
    "cuMemUnmap": mapped,
    "cuMemSetAccess": mapped,
    "cuIpcOpenMemHandle_v2": allocated,
    "cuIpcCloseMemHandle": allocated,
}


@pytest.mark.slow
@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize("function", OLDER)
def test_older_driver(tmp_path, function):
    library = fakegpu.build_without("cuda", function, tmp_path)
    environment = {**os.environ, "ARROWDEV_CUDA_LIBRARY": library}
    kind = OLDER[function]
    with (arrowdev_pool if kind == "producer" else kind)() as value:
        shared = ad.share(value)
        call = "ad.attach(sys.argv[1])"
        if kind == "producer":
            call = "ad.share(ad.array(np.arange(3)).to('cuda:0'))"
        said = run(REFUSED.format(call), shared, env=environment).decode()
        del value, shared
        gc.collect()
    assert said.startswith("share ")
    assert f"the CUDA library that is installed has no {function}" in said


def test_managed_memory():
    refused(ad.array(NEW).to("cuda_managed:0"), "managed memory")


def test_pinned_memory():
    refused(ad.array(NEW).to("cuda_host:0"), "pinned host memory")


def test_memory_of_the_default_pool():
    refused(ad.array(Memory(NEW)), "pool without descriptors, such as the default pool")


def test_memory_of_a_pool_without_descriptors():
    with users_pool(files=False) as value:
        refused(value, "pool without descriptors")
        del value
        gc.collect()


def test_virtual_memory_without_descriptors():
    with mapped(files=False) as value:
        refused(value, "cuMemCreate without a descriptor")
        del value
        gc.collect()


def test_buffer_in_two_allocations():
    """As of torch's expandable segments. The whole of a buffer is shared or nothing."""
    with mapped(n=2) as value:
        start = value.buffers[1].data_ptr + mapped.size - 64
        across = ad.array(AtAddress(start))
        refused_, words = across, "beyond its allocation|several allocations"
        with pytest.raises(ad.ExchangeError, match=words) as info:
            ad.share(refused_)
        assert info.value.reason == "share"
        assert ad.share(value).how == ("VMM descriptor",)
        del value, across, refused_, info
        gc.collect()


# Of an allocation: [kind, number of its descriptor, offset in it, nbytes, name].
LIES = {
    "no memory": (3, lambda row: 0),
    "more than there is": (3, lambda row: row[3] + (1 << 30)),
    "more than addresses": (3, lambda row: 2**63 - 1),
    "unknown kind": (0, lambda row: 4),
    "a file": (0, lambda row: 0),
    "name of nothing": (4, lambda row: "ab" * 64),
}


@pytest.mark.parametrize("kind", MAKE)
def test_lies_about_an_allocation(standin, kind):
    """What another process says is checked, and nothing is left open."""
    with process(START + VMM_OF_CHILD + MAKE[kind] + SHARE) as child:
        ad.attach(child.line)
        before = settled(standin)
        files = descriptors()
        for lie, (place, invent) in LIES.items():
            if kind == "VMM" and lie == "name of nothing":
                continue  # such memory has no name
            description, *sent = described(child.line)
            row = description[6][2][0]
            row[place] = invent(row)
            with pytest.raises((ad.ExchangeError, ad.DeviceError)) as info:
                opened(child.line, description, *sent)
            if isinstance(info.value, ad.ExchangeError):
                assert info.value.reason == "share", lie
            del info, sent, description
            wait_until(lambda: leaks(standin, before) == {} and descriptors() <= files)


@pytest.mark.parametrize("kind", ["pool", "VMM"])
def test_missing_descriptor(kind):
    with process(START + VMM_OF_CHILD + MAKE[kind] + SHARE) as child:
        description, *sent = described(child.line)
        description[6][2][0][1] = -1
        with pytest.raises(ad.ExchangeError, match="descriptor is missing"):
            opened(child.line, description, *sent)


@pytest.mark.parametrize("type_", [ad.DeviceType.CUDA_HOST, ad.DeviceType.CUDA_MANAGED])
def test_lies_about_the_type_of_device(type_):
    """The host would read memory of the device."""
    with process(START + MAKE["pool"] + SHARE) as child:
        description, *sent = described(child.line)
        description[6][0] = int(type_)
        with pytest.raises(ad.ExchangeError, match="never shared") as info:
            opened(child.line, description, *sent)
        assert info.value.reason == "share"


def test_descriptor_too_many():
    with process(START + MAKE["pool"] + SHARE) as child:
        description, *sent = described(child.line)
        description[6][2][0][0] = 3  # legacy IPC
        with pytest.raises(ad.ExchangeError, match="a descriptor came with it"):
            opened(child.line, description, *sent)


# --- calls that fail -----------------------------------------------------------------------------

RESTORES = {"cuCtxPopCurrent_v2": lambda: ask(cu.cuCtxPopCurrent)}


@each_kind
def test_each_call_of_share_fails(standin, kind):
    with kind() as value:

        def work(value=value):
            ad.share(value).close()

        fail_each(standin, work, RESTORES)
        del value, work
        gc.collect()


def test_each_call_of_share_with_an_event_fails(standin):
    with Held() as held:
        value = ad.array(ad.array(held.memory), copy=True)

        def work(value=value):
            ad.share(value).close()

        def settled(standin):
            gc.collect()
            return standin.count()

        fail_each(standin, work, RESTORES, settled)
        del value, work


@pytest.mark.parametrize("kind", MAKE)
def test_each_call_of_attach_fails(standin, kind):
    with process(START + VMM_OF_CHILD + MAKE[kind] + SHARE) as child:

        def work():
            ad.attach(child.line)
            gc.collect()
            ad.device("cuda:0").synchronize()

        fail_each(standin, work, RESTORES)


def test_each_call_of_attach_with_an_event_fails(standin):
    code = "held = Held(); x = ad.array(ad.array(held.memory), copy=True)\n"
    with process(START + code + SHARE) as child:

        def work():
            ad.attach(child.line)

        fail_each(standin, work, RESTORES)
