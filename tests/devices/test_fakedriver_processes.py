"""The stand-in drivers in two processes, which share memory and events."""

import struct

import pytest
from driver_process import BYTES, OUT, In, Process

MIB = 1 << 20
NBYTES = 10_000  # no whole pages
INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_CONTEXT = 1, 2, 101, 201
INVALID_HANDLE, NOT_READY, ILLEGAL_ADDRESS, LAUNCH_FAILED, TIMEOUT = 400, 600, 700, 719, 909
NOT_SUPPORTED = 801
INVALID_CONFIGURATION, INVALID_DEVICE_POINTER = 9, 17

# What HIP answers where CUDA answers with the code on the left.
NO_HANDLE = {"cuda": INVALID_VALUE, "hip": INVALID_DEVICE_POINTER}
GONE = {"cuda": INVALID_HANDLE, "hip": INVALID_DEVICE_POINTER}
NO_EVENT_HANDLE = {"cuda": INVALID_VALUE, "hip": INVALID_CONFIGURATION}
EVENT_GONE = {"cuda": INVALID_HANDLE, "hip": INVALID_VALUE}
BY_FILE = 1
SHARED = 2 | 4  # without timing, interprocess
VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "hip": "HIP_VISIBLE_DEVICES"}


@pytest.fixture(scope="module", params=["cuda", "hip"])
def processes(request):
    with Process(request.param) as a, Process(request.param) as b:
        a.face = b.face = request.param
        yield a, b


@pytest.fixture
def pair(processes):
    """Two processes. The test ends without violations, and leaves nothing behind."""
    yield processes
    for process in processes:
        assert process.end_of_test() == ([], {})


@pytest.fixture
def a(pair):
    return pair[0]


@pytest.fixture
def b(pair):
    return pair[1]


def new_memory(process, value=7, nbytes=NBYTES):
    pointer = process.ask("Malloc", OUT, nbytes)
    process.ask("MemsetAsync", pointer, value, nbytes, 0)
    process.ask("StreamSynchronize", 0)
    return pointer


def new_stream(process):
    return process.ask("StreamCreateWithFlags", OUT, 1)


def violation_of(process):
    """The only violation."""
    violations, _ = process.end_of_test()
    (violation,) = violations
    return violation


# --- memory by its handle -----------------------------------------------------------


def test_both_processes_see_what_is_written(a, b):
    pointer = new_memory(a)
    handle = a.ask("IpcGetMemHandle", BYTES, pointer)
    opened = b.ask("IpcOpenMemHandle", OUT, handle, 1)
    assert b.copy(opened, NBYTES, 0) == bytes([7]) * NBYTES
    b.ask("MemsetAsync", opened + NBYTES - 1, 9, 1, 0)
    b.ask("StreamSynchronize", 0)
    assert a.copy(pointer + NBYTES - 2, 2, 0) == bytes([7, 9])
    assert b.ask("MemGetAddressRange", OUT, OUT, opened + 5) == [opened, NBYTES]
    b.ask("IpcCloseMemHandle", opened)
    assert a.copy(pointer, 1, 0) == bytes([7])  # its memory is not the reader's to free
    a.ask("Free", pointer)


def test_handle_of_an_address_inside_an_allocation(a):
    """CUDA: that of the allocation. HIP documents handles of base pointers only."""
    pointer = new_memory(a)
    if a.face == "hip":
        assert a.code("IpcGetMemHandle", BYTES, pointer + 8) == INVALID_DEVICE_POINTER
    else:
        handle = a.ask("IpcGetMemHandle", BYTES, pointer)
        assert a.ask("IpcGetMemHandle", BYTES, pointer + 8) == handle
    a.ask("Free", pointer)


def test_opens_of_a_handle_are_counted(a, b):
    pointer = new_memory(a)
    handle = a.ask("IpcGetMemHandle", BYTES, pointer)
    opened = b.ask("IpcOpenMemHandle", OUT, handle, 1)
    assert b.ask("IpcOpenMemHandle", OUT, handle, 1) == opened
    assert b.code("Free", opened) == INVALID_VALUE
    assert b.code("IpcCloseMemHandle", opened + 8) == INVALID_VALUE
    b.ask("IpcCloseMemHandle", opened)
    assert b.copy(opened, 1, 0) == bytes([7])
    b.ask("IpcCloseMemHandle", opened)
    assert b.code("IpcCloseMemHandle", opened) == INVALID_VALUE
    a.ask("Free", pointer)


def test_handles_that_are_not_opened(a, b):
    pointer = new_memory(a)
    handle = a.ask("IpcGetMemHandle", BYTES, pointer)
    assert a.code("IpcOpenMemHandle", OUT, handle, 1) == INVALID_CONTEXT  # its own
    assert b.code("IpcOpenMemHandle", OUT, handle, 2) == INVALID_VALUE
    assert b.code("IpcOpenMemHandle", OUT, bytes(64), 1) == INVALID_VALUE
    for start in range(4, 64, 4):  # the process, its descriptors, ...
        wrong = handle[:start] + bytes([0xEE] * 4) + handle[start + 4 :]
        assert b.code("IpcOpenMemHandle", OUT, wrong, 1) in (INVALID_VALUE, GONE[b.face])
    a.ask("Free", pointer)
    assert b.code("IpcOpenMemHandle", OUT, handle, 1) == GONE[b.face]


def test_opened_memory_has_no_handle(a, b):
    pointer = new_memory(a)
    opened = b.ask("IpcOpenMemHandle", OUT, a.ask("IpcGetMemHandle", BYTES, pointer), 1)
    assert b.code("IpcGetMemHandle", BYTES, opened) == NO_HANDLE[b.face]
    b.ask("IpcCloseMemHandle", opened)
    a.ask("Free", pointer)


def test_memory_without_a_handle(a):
    host = a.ask("HostMalloc", OUT, NBYTES, 0)
    managed = a.ask("MallocManaged", OUT, NBYTES, 1)
    ordered = a.ask("MallocAsync", OUT, NBYTES, 0)
    pool = new_pool(a, BY_FILE)
    pooled = a.ask("MallocFromPoolAsync", OUT, NBYTES, pool, 0)
    for pointer in (host, managed, ordered, pooled, 4096):
        is_named = a.face == "hip" and pointer in (ordered, pooled)  # HIP: memory of pools, too
        code = 0 if is_named else NO_HANDLE[a.face]
        assert a.code("IpcGetMemHandle", BYTES, pointer) == code
        assert a.code("MemPoolExportPointer", BYTES, pointer) == INVALID_VALUE
    assert a.code("IpcGetMemHandle", BYTES, 0) == INVALID_VALUE
    a.ask("HostFree", host)
    a.ask("Free", managed)
    a.ask("FreeAsync", ordered, 0)
    a.ask("FreeAsync", pooled, 0)
    a.ask("MemPoolDestroy", pool)
    a.ask("StreamSynchronize", 0)


def test_use_of_memory_that_its_process_has_freed_is_detected(a, b):
    pointer = new_memory(a)
    opened = b.ask("IpcOpenMemHandle", OUT, a.ask("IpcGetMemHandle", BYTES, pointer), 1)
    stream = new_stream(b)
    b.control("hold", stream)
    b.ask("MemsetAsync", opened, 1, NBYTES, stream)
    a.ask("Free", pointer)
    b.control("release", stream)
    assert b.code("StreamSynchronize", stream) == ILLEGAL_ADDRESS
    assert "which the process that shares it has freed" in violation_of(b)
    b.ask("IpcCloseMemHandle", opened)
    assert "which the process that shares it has freed before" in violation_of(b)
    b.ask("StreamDestroy", stream)


def test_two_contexts_of_a_device_are_detected(a, b):
    if b.face == "hip":
        return  # it has one context of each device
    first, second = new_memory(a), new_memory(a)
    handles = [a.ask("IpcGetMemHandle", BYTES, pointer) for pointer in (first, second)]
    opened = b.ask("IpcOpenMemHandle", OUT, handles[0], 1)
    context = b.ask("CtxCreate_v2", OUT, 0, 0)
    b.ask("IpcOpenMemHandle", OUT, handles[1], 1)
    b.ask("CtxDestroy_v2", context)
    assert "two contexts of device 0 opened memory" in violation_of(b)
    b.ask("IpcCloseMemHandle", opened)
    a.ask("Free", first)
    a.ask("Free", second)


def test_close_during_work_is_detected(a, b):
    """CUDA: as a free would be. HIP waits for the work."""
    pointer = new_memory(a)
    opened = b.ask("IpcOpenMemHandle", OUT, a.ask("IpcGetMemHandle", BYTES, pointer), 1)
    stream = new_stream(b)
    if b.face == "cuda":
        b.control("hold", stream)
        b.ask("MemsetAsync", opened, 1, NBYTES, stream)
        b.ask("IpcCloseMemHandle", opened)
        b.control("release", stream)
        b.ask("StreamSynchronize", stream)
        assert "cuIpcCloseMemHandle of memory" in violation_of(b)
    else:
        b.control("set_delay", 20_000)
        b.ask("MemsetAsync", opened, 1, NBYTES, stream)
        b.ask("IpcCloseMemHandle", opened)
        assert a.copy(pointer, 1, 0) == bytes([1])
    b.ask("StreamDestroy", stream)
    a.ask("Free", pointer)


def test_memory_outlives_a_process_that_is_killed(pair):
    _, b = pair
    with Process(b.face) as a:
        pointer = new_memory(a)
        opened = b.ask("IpcOpenMemHandle", OUT, a.ask("IpcGetMemHandle", BYTES, pointer), 1)
        handle = a.ask("IpcGetMemHandle", BYTES, pointer)
        a.kill()
        assert b.copy(opened, NBYTES, 0) == bytes([7]) * NBYTES
        b.ask("IpcCloseMemHandle", opened)
        assert b.code("IpcOpenMemHandle", OUT, handle, 1) == GONE[b.face]


# --- pools ----------------------------------------------------------------------------


def new_pool(process, handles, device=0):
    properties = struct.pack("4i2Q64x", 1, handles, 1, device, 0, 0)
    return process.ask("MemPoolCreate", OUT, In(properties[:88]))


def export_pool(process, pool):
    return process.ask("MemPoolExportToShareableHandle", OUT, pool, BY_FILE, 0)


@pytest.fixture
def pools(a, b):
    """A pool of one process, and what the other one imported."""
    pool = new_pool(a, BY_FILE)
    number = export_pool(a, pool)
    file = b.open_file(a.pid, number)
    a.close_file(number)
    imported = b.ask("MemPoolImportFromShareableHandle", OUT, file, BY_FILE, 0)
    yield pool, imported
    a.ask("MemPoolDestroy", pool)
    b.ask("MemPoolDestroy", imported)


def new_pooled(process, pool, value=7):
    pointer = process.ask("MallocFromPoolAsync", OUT, NBYTES, pool, 0)
    process.ask("MemsetAsync", pointer, value, NBYTES, 0)
    process.ask("StreamSynchronize", 0)
    return pointer


@pytest.mark.parametrize("is_ordered", [False, True])
def test_memory_of_a_pool(a, b, pools, is_ordered):
    pool, imported = pools
    pointer = new_pooled(a, pool)
    data = a.ask("MemPoolExportPointer", BYTES, pointer)
    here = b.ask("MemPoolImportPointer", OUT, imported, In(data))
    assert b.copy(here, NBYTES, 0) == bytes([7]) * NBYTES
    b.ask("MemsetAsync", here, 9, NBYTES, 0)
    if is_ordered:
        b.ask("FreeAsync", here, 0)
        b.ask("StreamSynchronize", 0)
    else:
        b.ask("StreamSynchronize", 0)
        b.ask("Free", here)
    assert a.copy(pointer, NBYTES, 0) == bytes([9]) * NBYTES
    a.ask("FreeAsync", pointer, 0)
    a.ask("StreamSynchronize", 0)


def test_handle_of_memory_of_a_pool(a, b, pools):
    """Only HIP has one. Both names are good at once."""
    pool, imported = pools
    pointer = new_pooled(a, pool)
    if a.face == "hip":
        handle = a.ask("IpcGetMemHandle", BYTES, pointer)
        data = a.ask("MemPoolExportPointer", BYTES, pointer)
        opened = b.ask("IpcOpenMemHandle", OUT, handle, 1)
        here = b.ask("MemPoolImportPointer", OUT, imported, In(data))
        b.ask("MemsetAsync", opened, 3, NBYTES, 0)
        assert b.copy(here, NBYTES, 0) == bytes([3]) * NBYTES
        b.ask("IpcCloseMemHandle", opened)
        b.ask("Free", here)
    else:
        assert a.code("IpcGetMemHandle", BYTES, pointer) == INVALID_VALUE
    a.ask("Free", pointer)


def test_pools_that_are_not_exported(a, b):
    pool = new_pool(a, 0)
    default = a.ask("DeviceGetDefaultMemPool", OUT, 0)
    for each in (pool, default):
        assert a.code("MemPoolExportToShareableHandle", OUT, each, BY_FILE, 0) == INVALID_VALUE
    pointer = new_pooled(a, pool)
    assert a.code("MemPoolExportPointer", BYTES, pointer) == INVALID_VALUE
    a.ask("Free", pointer)
    a.ask("MemPoolDestroy", pool)
    pool = new_pool(a, BY_FILE)
    assert a.code("MemPoolExportToShareableHandle", OUT, pool, 2, 0) == INVALID_VALUE
    assert a.code("MemPoolExportToShareableHandle", OUT, pool, BY_FILE, 1) == INVALID_VALUE
    a.ask("MemPoolDestroy", pool)
    assert a.code("MemPoolExportToShareableHandle", OUT, pool, BY_FILE, 0) == INVALID_VALUE


def test_files_that_are_no_pools(b):
    for content in (b"", bytes(64), bytes(8192)):
        file = b.new_file(content)
        name = "MemPoolImportFromShareableHandle"
        assert b.code(name, OUT, file, BY_FILE, 0) == INVALID_VALUE
    assert b.code(name, OUT, 12345, BY_FILE, 0) == INVALID_VALUE


def test_import_of_a_pool_with_other_arguments(a, b):
    pool = new_pool(a, BY_FILE)
    number = export_pool(a, pool)
    file = b.open_file(a.pid, number)
    assert b.code("MemPoolImportFromShareableHandle", OUT, file, 2, 0) == INVALID_VALUE
    assert b.code("MemPoolImportFromShareableHandle", OUT, file, BY_FILE, 1) == INVALID_VALUE
    a.close_file(number)
    a.ask("MemPoolDestroy", pool)


def test_an_imported_pool_makes_no_memory(b, pools):
    _, imported = pools
    assert b.code("MallocFromPoolAsync", OUT, 8, imported, 0) == INVALID_VALUE
    assert b.code("MemPoolExportToShareableHandle", OUT, imported, BY_FILE, 0) == INVALID_VALUE
    if b.face == "cuda":
        assert b.code("DeviceSetMemPool", 0, imported) == INVALID_VALUE


def test_pointers_that_are_not_imported(a, b, pools):
    pool, imported = pools
    other = new_pool(a, BY_FILE)
    pointer, foreign = new_pooled(a, pool), new_pooled(a, other)
    assert a.code("MemPoolExportPointer", BYTES, pointer + 8) == INVALID_VALUE
    assert a.code("MemPoolExportPointer", BYTES, foreign) == INVALID_VALUE  # not shared yet
    a.close_file(export_pool(a, other))
    own = b.ask("DeviceGetDefaultMemPool", OUT, 0)
    data = a.ask("MemPoolExportPointer", BYTES, pointer)
    of_other = a.ask("MemPoolExportPointer", BYTES, foreign)
    for pool_here, what in ((own, data), (imported, of_other), (imported, bytes(64))):
        assert b.code("MemPoolImportPointer", OUT, pool_here, In(what)) == INVALID_VALUE
    a.ask("Free", pointer)
    a.ask("Free", foreign)
    assert b.code("MemPoolImportPointer", OUT, imported, In(data)) == INVALID_VALUE
    a.ask("MemPoolDestroy", other)


def test_use_before_the_stream_has_allocated_is_detected(a, b, pools):
    pool, imported = pools
    stream = new_stream(a)
    a.control("hold", stream)
    pointer = a.ask("MallocFromPoolAsync", OUT, NBYTES, pool, stream)
    data = a.ask("MemPoolExportPointer", BYTES, pointer)
    here = b.ask("MemPoolImportPointer", OUT, imported, In(data))
    b.copy(here, 8, 0)
    assert "before its stream-ordered allocation was reached" in violation_of(b)
    a.control("release", stream)
    a.ask("StreamSynchronize", stream)
    b.copy(here, 8, 0)
    b.ask("Free", here)
    a.ask("Free", pointer)
    a.ask("StreamDestroy", stream)


def test_ordered_free_in_the_process_that_shares_is_detected(a, b, pools):
    pool, imported = pools
    pointer = new_pooled(a, pool)
    data = a.ask("MemPoolExportPointer", BYTES, pointer)
    here = b.ask("MemPoolImportPointer", OUT, imported, In(data))
    stream = new_stream(a)
    a.control("hold", stream)
    a.ask("FreeAsync", pointer, stream)
    assert b.copy(here, 1, 0) == bytes([7])  # not freed yet
    a.control("release", stream)
    a.ask("StreamSynchronize", stream)
    b.ask("MemsetAsync", here, 1, 8, 0)
    assert b.code("StreamSynchronize", 0) == ILLEGAL_ADDRESS
    assert "has freed" in violation_of(b)
    b.ask("Free", here)
    assert "has freed before" in violation_of(b)
    a.ask("StreamDestroy", stream)


# --- events ------------------------------------------------------------------------------


@pytest.fixture
def shared(pair):
    """An event of one process, and the same one in the other process."""
    a, b = pair
    event = a.ask("EventCreateWithFlags", OUT, SHARED)
    opened = b.ask("IpcOpenEventHandle", OUT, a.ask("IpcGetEventHandle", BYTES, event))
    yield event, opened
    b.ask("EventDestroy", opened)
    a.ask("EventDestroy", event)


def test_stream_waits_for_work_of_another_process(a, b, shared):
    event, opened = shared
    pointer = new_memory(a, 1)
    memory = b.ask("IpcOpenMemHandle", OUT, a.ask("IpcGetMemHandle", BYTES, pointer), 1)
    theirs, ours, free = new_stream(a), new_stream(b), new_stream(b)
    a.control("hold", theirs)
    a.ask("MemsetAsync", pointer, 2, NBYTES, theirs)
    a.ask("EventRecord", event, theirs)
    b.ask("StreamWaitEvent", ours, opened, 0)
    b.ask("MemsetAsync", memory, 3, 1, ours)
    assert b.code("EventQuery", opened) == NOT_READY
    assert b.code("StreamQuery", ours) == NOT_READY
    assert b.copy(memory, 2, free) == bytes([1, 1])  # without a wait: old values
    a.control("release", theirs)
    b.ask("EventSynchronize", opened)
    assert b.code("EventQuery", opened) == 0
    assert b.copy(memory, 2, ours) == bytes([3, 2])
    b.ask("IpcCloseMemHandle", memory)
    a.ask("Free", pointer)
    a.ask("StreamDestroy", theirs)
    b.ask("StreamDestroy", ours)
    b.ask("StreamDestroy", free)


def test_record_in_the_process_that_opened_the_event(a, b, shared):
    event, opened = shared
    theirs, ours = new_stream(b), new_stream(a)
    b.control("hold", theirs)
    b.ask("EventRecord", opened, theirs)
    a.ask("StreamWaitEvent", ours, event, 0)
    assert a.code("EventQuery", event) == b.code("EventQuery", opened) == NOT_READY
    assert a.code("StreamQuery", ours) == NOT_READY
    b.control("release", theirs)
    a.ask("EventSynchronize", event)
    a.ask("StreamSynchronize", ours)
    a.ask("StreamDestroy", ours)
    b.ask("StreamDestroy", theirs)


def test_the_last_record_counts(a, b, shared):
    event, opened = shared
    first, second, ours = new_stream(a), new_stream(a), new_stream(b)
    assert b.code("EventQuery", opened) == 0  # no record
    a.control("hold", first)
    a.ask("EventRecord", event, first)
    b.ask("StreamWaitEvent", ours, opened, 0)
    a.ask("EventRecord", event, second)
    b.ask("EventSynchronize", opened)
    assert b.code("StreamQuery", ours) == NOT_READY  # it waits for the first
    a.control("release", first)
    b.ask("StreamSynchronize", ours)
    b.ask("StreamDestroy", ours)
    a.ask("StreamDestroy", first)
    a.ask("StreamDestroy", second)


def test_record_before_the_event_is_shared(a, b):
    event, stream = a.ask("EventCreateWithFlags", OUT, SHARED), new_stream(a)
    a.control("hold", stream)
    a.ask("EventRecord", event, stream)
    opened = b.ask("IpcOpenEventHandle", OUT, a.ask("IpcGetEventHandle", BYTES, event))
    assert b.code("EventQuery", opened) == NOT_READY
    a.control("release", stream)
    b.ask("EventSynchronize", opened)
    b.ask("EventDestroy", opened)
    a.ask("EventDestroy", event)
    a.ask("StreamDestroy", stream)


def test_host_wait_for_another_process_ends(a, b, shared):
    event, opened = shared
    stream = new_stream(a)
    a.control("hold", stream)
    a.ask("EventRecord", event, stream)
    b.control("set_patience", 10)
    assert b.code("EventSynchronize", opened) == TIMEOUT
    assert "waited too long for event" in violation_of(b)
    b.control("set_patience", 20_000)
    a.control("release", stream)
    a.ask("StreamDestroy", stream)


@pytest.mark.parametrize("flags", [4, 5])
def test_a_shared_event_has_no_times(a, flags):
    assert a.code("EventCreateWithFlags", OUT, flags) == INVALID_VALUE


@pytest.mark.parametrize("flags", [0, 2])
def test_an_event_that_is_not_shared_has_no_handle(a, flags):
    event = a.ask("EventCreateWithFlags", OUT, flags)
    assert a.code("IpcGetEventHandle", BYTES, event) == NO_EVENT_HANDLE[a.face]
    a.ask("EventDestroy", event)


def refused_event(process, handle):
    """The code. HIP leaves the event that it has created."""
    code, event = process.result("IpcOpenEventHandle", OUT, handle)
    if process.face == "hip":
        process.ask("EventDestroy", event)
    else:
        assert event == 0
    return code


def test_handles_of_events_that_are_not_opened(a, b):
    event = a.ask("EventCreateWithFlags", OUT, SHARED)
    handle = a.ask("IpcGetEventHandle", BYTES, event)
    assert refused_event(a, handle) == INVALID_CONTEXT  # its own
    assert refused_event(b, bytes(64)) == INVALID_VALUE
    pointer = new_memory(a)
    memory = a.ask("IpcGetMemHandle", BYTES, pointer)
    assert refused_event(b, memory) == INVALID_VALUE
    assert b.code("IpcOpenMemHandle", OUT, handle, 1) == INVALID_VALUE
    for start in (4, 8, 16, 24):
        wrong = handle[:start] + bytes([0xEE] * 4) + handle[start + 4 :]
        assert refused_event(b, wrong) == EVENT_GONE[b.face]
    a.ask("Free", pointer)
    a.ask("EventDestroy", event)
    assert refused_event(b, handle) == EVENT_GONE[b.face]
    assert a.code("IpcGetEventHandle", BYTES, event) == INVALID_HANDLE
    a.control("violations")


def test_an_opened_event_has_no_handle(b, shared):
    assert b.code("IpcGetEventHandle", BYTES, shared[1]) == NO_EVENT_HANDLE[b.face]


@pytest.mark.parametrize("name", ["Record", "Query", "Synchronize", "Wait"])
def test_use_of_an_event_that_its_process_has_destroyed_is_detected(a, b, name):
    event = a.ask("EventCreateWithFlags", OUT, SHARED)
    opened = b.ask("IpcOpenEventHandle", OUT, a.ask("IpcGetEventHandle", BYTES, event))
    a.ask("EventDestroy", event)
    uses = {
        "Record": ("EventRecord", opened, 0),
        "Query": ("EventQuery", opened),
        "Synchronize": ("EventSynchronize", opened),
        "Wait": ("StreamWaitEvent", 0, opened, 0),
    }
    assert b.code(*uses[name]) == INVALID_HANDLE
    assert "which the process that shares it has destroyed" in violation_of(b)
    b.ask("EventDestroy", opened)


def test_pending_wait_outlives_the_event(a, b):
    event = a.ask("EventCreateWithFlags", OUT, SHARED)
    opened = b.ask("IpcOpenEventHandle", OUT, a.ask("IpcGetEventHandle", BYTES, event))
    theirs, ours = new_stream(a), new_stream(b)
    a.control("hold", theirs)
    a.ask("EventRecord", event, theirs)
    b.ask("StreamWaitEvent", ours, opened, 0)
    a.ask("EventDestroy", event)
    b.ask("EventDestroy", opened)
    assert b.code("StreamQuery", ours) == NOT_READY
    a.control("release", theirs)
    b.ask("StreamSynchronize", ours)
    b.ask("StreamDestroy", ours)
    a.ask("StreamDestroy", theirs)


def test_record_in_a_capture_is_detected(a, shared):
    stream = new_stream(a)
    begin = "StreamBeginCapture" + ("_v2" if a.face == "cuda" else "")
    a.ask(begin, stream, 2)
    a.ask("EventRecord", shared[0], stream)
    graph = a.ask("StreamEndCapture", stream, OUT)
    a.ask("GraphDestroy", graph)
    assert "which other processes know, is recorded into a capture" in violation_of(a)
    a.ask("EventRecord", shared[0], stream)
    a.ask("StreamDestroy", stream)


def test_too_many_pending_records(a, shared):
    stream = new_stream(a)
    a.control("hold", stream)
    codes = [a.code("EventRecord", shared[0], stream) for _ in range(66)]
    assert codes[:63] == [0] * 63 and codes[-1] == OUT_OF_MEMORY
    a.control("release", stream)
    a.ask("StreamSynchronize", stream)
    a.ask("StreamDestroy", stream)


def test_pending_records_of_a_process_that_was_killed_are_lost(pair):
    a, _ = pair
    event, stream = a.ask("EventCreateWithFlags", OUT, SHARED), new_stream(a)
    with Process(a.face) as b:
        opened = b.ask("IpcOpenEventHandle", OUT, a.ask("IpcGetEventHandle", BYTES, event))
        held = new_stream(b)
        b.control("hold", held)
        b.ask("EventRecord", opened, held)
        b.kill()
    assert a.code("EventQuery", event) == LAUNCH_FAILED
    for _ in range(200):  # round the ring
        a.ask("EventRecord", event, stream)
        a.ask("EventSynchronize", event)
    a.ask("EventDestroy", event)
    a.ask("StreamDestroy", stream)


def test_failed_work_of_another_process(a, b, shared):
    """The error of the context in which the event is recorded."""
    event, opened = shared
    pointer = a.ask("Malloc", OUT, NBYTES)
    stream = new_stream(a)
    a.control("hold", stream)
    a.ask("MemsetAsync", pointer, 1, NBYTES, stream)
    a.ask("EventRecord", event, stream)
    a.control("break_context", LAUNCH_FAILED)
    a.control("release", stream)
    assert b.code("EventSynchronize", opened) == LAUNCH_FAILED
    a.control("break_context", 0)
    a.ask("StreamSynchronize", stream)
    a.ask("Free", pointer)
    a.ask("StreamDestroy", stream)


@pytest.mark.parametrize("use", ["stream", "host", "query"])
def test_wait_for_a_process_that_is_killed_ends(pair, use):
    _, b = pair
    with Process(b.face) as a:
        event, theirs, ours = (
            a.ask("EventCreateWithFlags", OUT, SHARED),
            new_stream(a),
            new_stream(b),
        )
        opened = b.ask("IpcOpenEventHandle", OUT, a.ask("IpcGetEventHandle", BYTES, event))
        a.control("hold", theirs)
        a.ask("EventRecord", event, theirs)
        if use == "stream":
            b.ask("StreamWaitEvent", ours, opened, 0)
            b.send("code", "StreamSynchronize", ours)
        elif use == "host":
            b.send("code", "EventSynchronize", opened)
        a.kill()
        if use == "query":
            b.send("code", "EventQuery", opened)
        assert b.receive() == LAUNCH_FAILED
    b.control("break_context", 0)
    b.ask("EventDestroy", opened)
    b.ask("StreamDestroy", ours)


# --- virtual memory ----------------------------------------------------------------------

SIZE = 2 * MIB


def properties(handles=BY_FILE, device=0, kind=1, location=1):
    return In(struct.pack("4iQ8x", kind, handles, location, device, 0))


ACCESS = In(struct.pack("3i", 1, 0, 3))


def map_handle(process, handle, size=SIZE):
    base = process.ask("MemAddressReserve", OUT, size, 0, 0, 0)
    process.ask("MemMap", base, size, 0, handle, 0)
    process.ask("MemSetAccess", base, size, ACCESS, 1)
    return base


def unmap(process, base, size=SIZE):
    process.ask("MemUnmap", base, size)
    process.ask("MemAddressFree", base, size)


def new_mapped(process, value=7):
    handle = process.ask("MemCreate", OUT, SIZE, properties(), 0)
    base = map_handle(process, handle)
    process.ask("MemRelease", handle)
    process.ask("MemsetAsync", base, value, SIZE, 0)
    process.ask("StreamSynchronize", 0)
    return base


def share_mapped(a, b, base):
    """The handle in the other process."""
    handle = a.ask("MemRetainAllocationHandle", OUT, base + 100)
    number = a.ask("MemExportToShareableHandle", OUT, handle, BY_FILE, 0)
    a.ask("MemRelease", handle)
    file = b.open_file(a.pid, number)
    a.close_file(number)
    return b.ask("MemImportFromShareableHandle", OUT, file, BY_FILE)


def test_mapped_memory_of_another_process(a, b):
    base = new_mapped(a)
    handle = share_mapped(a, b, base)
    here = map_handle(b, handle)
    b.ask("MemRelease", handle)
    assert b.copy(here, SIZE, 0) == bytes([7]) * SIZE
    b.ask("MemsetAsync", here + SIZE - 1, 9, 1, 0)
    b.ask("StreamSynchronize", 0)
    assert a.copy(base + SIZE - 2, 2, 0) == bytes([7, 9])
    unmap(a, base)
    assert b.copy(here, 1, 0) == bytes([7])  # the memory lives until the last one unmaps it
    unmap(b, here)


def test_mapped_memory_outlives_a_process_that_is_killed(pair):
    _, b = pair
    with Process(b.face) as a:
        handle = share_mapped(a, b, new_mapped(a))
        a.kill()
    here = map_handle(b, handle)
    b.ask("MemRelease", handle)
    assert b.copy(here, 8, 0) == bytes([7]) * 8
    unmap(b, here)


def test_several_handles_in_one_range(a):
    """As the expandable segments of torch."""
    handles = [a.ask("MemCreate", OUT, SIZE, properties(), 0) for _ in range(2)]
    base = a.ask("MemAddressReserve", OUT, 3 * SIZE, SIZE, 0, 0)
    for i, handle in enumerate(handles):
        a.ask("MemMap", base + i * SIZE, SIZE, 0, handle, 0)
    a.ask("MemSetAccess", base, 2 * SIZE, ACCESS, 1)
    a.ask("MemsetAsync", base, 5, 2 * SIZE, 0)
    assert a.copy(base + SIZE - 1, 2, 0) == bytes([5, 5])
    assert a.code("MemsetAsync", base, 5, 2 * SIZE + 1, 0) == INVALID_VALUE
    assert a.ask("MemGetAddressRange", OUT, OUT, base + SIZE + 1) == [base + SIZE, SIZE]
    for i, handle in enumerate(handles):
        assert a.ask("MemRetainAllocationHandle", OUT, base + i * SIZE) == handle
        a.ask("MemRelease", handle)
        a.ask("MemRelease", handle)
    if a.face == "cuda":
        assert a.attribute(11, base + SIZE) == base  # the range of addresses
        assert a.attribute(12, base + SIZE) == 3 * SIZE
        assert a.attribute(19, base + SIZE) == base + SIZE  # the mapping
        assert a.attribute(18, base + SIZE) == SIZE
        assert a.attribute(14, base) == BY_FILE
        assert a.attribute(10, base) == 0
    a.ask("MemUnmap", base, 2 * SIZE)
    assert a.code("MemsetAsync", base, 5, 8, 0) == INVALID_VALUE
    a.ask("MemAddressFree", base, 3 * SIZE)


def test_memory_by_file_only_if_it_was_asked_for(a):
    handle = a.ask("MemCreate", OUT, SIZE, properties(handles=0), 0)
    export = "MemExportToShareableHandle"
    assert a.code(export, OUT, handle, BY_FILE, 0) == INVALID_VALUE
    a.ask("MemRelease", handle)
    handle = a.ask("MemCreate", OUT, SIZE, properties(), 0)
    assert a.code(export, OUT, handle, 2, 0) == INVALID_VALUE
    assert a.code(export, OUT, handle, BY_FILE, 1) == INVALID_VALUE
    out = a.ask("MemGetAllocationPropertiesFromHandle", BYTES, handle)
    assert struct.unpack("4i", out[:16]) == (1, BY_FILE, 1, 0)
    a.ask("MemRelease", handle)
    assert a.code("MemRelease", handle) == INVALID_VALUE
    assert a.code("MemGetAllocationPropertiesFromHandle", BYTES, handle) == INVALID_VALUE
    assert a.code(export, OUT, handle, BY_FILE, 0) == INVALID_VALUE


@pytest.mark.parametrize(
    ("size", "wanted", "code"),
    [
        (0, {}, INVALID_VALUE),
        (4096, {}, INVALID_VALUE),
        (SIZE, {"handles": 2}, NOT_SUPPORTED),
        (SIZE, {"kind": 2}, NOT_SUPPORTED),
        (SIZE, {"location": 2}, NOT_SUPPORTED),
        (SIZE, {"device": 9}, INVALID_DEVICE),
    ],
)
def test_memory_that_is_not_created(a, size, wanted, code):
    assert a.code("MemCreate", OUT, size, properties(**wanted), 0) == code
    assert a.ask("MemGetAllocationGranularity", OUT, properties(), 0) == SIZE
    assert a.code("MemGetAllocationGranularity", OUT, properties(), 7) == INVALID_VALUE


def test_files_that_are_no_memory(b):
    name = "MemImportFromShareableHandle"
    for content in (b"", bytes(64), bytes(3 * 4096)):
        assert b.code(name, OUT, b.new_file(content), BY_FILE) == INVALID_VALUE
    assert b.code(name, OUT, 12345, BY_FILE) == INVALID_VALUE


def test_mapping_at_wrong_places(a):
    handle = a.ask("MemCreate", OUT, SIZE, properties(), 0)
    base = a.ask("MemAddressReserve", OUT, 2 * SIZE, 0, 0, 0)
    pointer = a.ask("Malloc", OUT, SIZE)
    for where, size, offset in [
        (base, 0, 0),
        (base, 2 * SIZE, 0),  # more than the memory
        (base + 4096, SIZE, 0),
        (base + 2 * SIZE, SIZE, 0),
        (base, SIZE, 4096),
        (pointer, SIZE, 0),
    ]:
        assert a.code("MemMap", where, size, offset, handle, 0) == INVALID_VALUE
    assert a.code("MemMap", base, SIZE, 0, 12345, 0) == INVALID_VALUE
    a.ask("MemMap", base, SIZE, 0, handle, 0)
    assert a.code("MemMap", base, SIZE, 0, handle, 0) == INVALID_VALUE  # twice
    assert a.code("MemUnmap", base, 4096) == INVALID_VALUE
    assert a.code("MemUnmap", base, 2 * SIZE) == INVALID_VALUE
    assert a.code("MemAddressFree", base, 2 * SIZE) == INVALID_VALUE
    assert a.code("MemSetAccess", base, 2 * SIZE, ACCESS, 1) == INVALID_VALUE
    assert a.code("MemSetAccess", base, SIZE, In(struct.pack("3i", 1, 9, 3)), 1) == INVALID_VALUE
    assert a.code("Free", base) == INVALID_VALUE
    assert a.code("FreeAsync", base, 0) == INVALID_VALUE
    assert a.code("IpcGetMemHandle", BYTES, base) == NO_HANDLE[a.face]
    assert a.code("MemRetainAllocationHandle", OUT, base + SIZE) == INVALID_VALUE
    assert a.code("MemRetainAllocationHandle", OUT, pointer) == INVALID_VALUE
    a.ask("Free", pointer)
    a.ask("MemUnmap", base, SIZE)
    a.ask("MemAddressFree", base, 2 * SIZE)
    a.ask("MemRelease", handle)


@pytest.mark.parametrize(("nbytes", "alignment"), [(0, 0), (4096, 0), (SIZE, 3), (SIZE, 2 * SIZE)])
def test_addresses_that_are_not_reserved(a, nbytes, alignment):
    assert a.code("MemAddressReserve", OUT, nbytes, alignment, 0, 0) == INVALID_VALUE


def test_access_to_mapped_memory(a):
    """Only the devices that have it, and no more than they have."""
    base = a.ask("MemAddressReserve", OUT, SIZE, 0, 0, 0)
    handle = a.ask("MemCreate", OUT, SIZE, properties(), 0)
    a.ask("MemMap", base, SIZE, 0, handle, 0)
    a.ask("MemRelease", handle)
    assert a.code("MemsetAsync", base, 1, 8, 0) == INVALID_VALUE
    a.ask("MemSetAccess", base, SIZE, In(struct.pack("3i", 1, 0, 1)), 1)  # read
    a.copy(base, 8, 0)
    if a.face == "cuda":
        location = In(struct.pack("2i", 1, 0))
        assert a.ask("MemGetAccess", OUT, location, base) == 1
        assert a.code("MemGetAccess", OUT, location, base + SIZE) == INVALID_VALUE
    a.ask("MemsetAsync", base, 1, 8, 0)
    assert a.code("StreamSynchronize", 0) == ILLEGAL_ADDRESS
    assert "that is not there" in violation_of(a)
    a.ask("MemSetAccess", base, SIZE, ACCESS, 1)
    a.select(1)
    a.ask("MemsetAsync", base, 1, 8, 0)
    assert a.code("StreamSynchronize", 0) == ILLEGAL_ADDRESS
    assert "that is not there" in violation_of(a)
    unmap(a, base)


def test_unmapping_during_work_is_detected(a):
    base, stream = new_mapped(a), new_stream(a)
    a.control("hold", stream)
    a.ask("MemsetAsync", base, 1, SIZE, stream)
    a.ask("MemUnmap", base, SIZE)
    a.control("release", stream)
    a.code("StreamSynchronize", stream)
    violations, _ = a.end_of_test()
    assert "MemUnmap of memory" in violations[0]
    a.ask("MemAddressFree", base, SIZE)
    a.ask("StreamDestroy", stream)


# --- descriptors -------------------------------------------------------------------------


def test_no_descriptor_is_left(a, b):
    def share(times):
        """Opens and closes one of each kind; the numbers of descriptors afterwards."""
        for _ in range(times):
            pointer, base, pool = new_memory(a), new_mapped(a), new_pool(a, BY_FILE)
            pooled, event = new_pooled(a, pool), a.ask("EventCreateWithFlags", OUT, SHARED)
            number = export_pool(a, pool)
            imported = b.ask(
                "MemPoolImportFromShareableHandle", OUT, b.open_file(a.pid, number), BY_FILE, 0
            )
            a.close_file(number)
            data = a.ask("MemPoolExportPointer", BYTES, pooled)
            here = b.ask("MemPoolImportPointer", OUT, imported, In(data))
            handle = share_mapped(a, b, base)
            mapped = map_handle(b, handle)
            b.ask("MemRelease", handle)
            opened = b.ask("IpcOpenMemHandle", OUT, a.ask("IpcGetMemHandle", BYTES, pointer), 1)
            waited = b.ask("IpcOpenEventHandle", OUT, a.ask("IpcGetEventHandle", BYTES, event))
            b.ask("EventDestroy", waited)
            b.ask("IpcCloseMemHandle", opened)
            b.ask("Free", here)
            b.ask("MemPoolDestroy", imported)
            unmap(b, mapped)
            a.ask("EventDestroy", event)
            a.ask("Free", pointer)
            a.ask("Free", pooled)
            a.ask("MemPoolDestroy", pool)
            unmap(a, base)
            assert b.end_of_test() == ([], {})  # closes what was passed
        return a.n_files(), b.n_files()

    assert share(1) == share(20)


# --- devices -----------------------------------------------------------------------------


def uuid_of(process, device):
    return process.ask("DeviceGetUuid", BYTES, device)[:16]


def test_devices_are_known_by_their_uuid(a, b):
    """A process may number them otherwise."""
    assert uuid_of(a, 0) == uuid_of(b, 0) != uuid_of(b, 1)
    assert a.code("DeviceGetUuid", BYTES, 9) == INVALID_DEVICE
    with Process(a.face, **{VISIBLE[a.face]: "1,0"}) as other:
        assert [uuid_of(other, 0), uuid_of(other, 1)] == [uuid_of(a, 1), uuid_of(a, 0)]
        a.select(1)
        pointer = new_memory(a)
        opened = other.ask("IpcOpenMemHandle", OUT, a.ask("IpcGetMemHandle", BYTES, pointer), 1)
        assert other.copy(opened, 1, 0) == bytes([7])
        if a.face == "cuda":
            assert a.attribute(9, pointer) == 1
            assert other.attribute(9, opened) == 0
        other.ask("IpcCloseMemHandle", opened)
        a.ask("Free", pointer)
        assert other.end_of_test() == ([], {})


def test_device_that_the_process_does_not_see(a):
    with Process(a.face, **{VISIBLE[a.face]: "1"}) as other:
        assert other.code("DeviceGetUuid", BYTES, 1) == INVALID_DEVICE
        pointer, base, pool = new_memory(a), new_mapped(a), new_pool(a, BY_FILE)
        handle = a.ask("IpcGetMemHandle", BYTES, pointer)
        assert other.code("IpcOpenMemHandle", OUT, handle, 1) == INVALID_DEVICE
        number = export_pool(a, pool)
        file = other.open_file(a.pid, number)
        name = "MemPoolImportFromShareableHandle"
        assert other.code(name, OUT, file, BY_FILE, 0) == INVALID_DEVICE
        a.close_file(number)
        with pytest.raises(AssertionError, match="answered 101"):
            share_mapped(a, other, base)
        a.ask("MemPoolDestroy", pool)
        unmap(a, base)
        a.ask("Free", pointer)
        assert other.end_of_test() == ([], {})


def test_attributes_of_pointers(a, b, pools):
    if a.face == "hip":
        pointer = new_memory(a)
        assert a.attribute(11, pointer + 8) == pointer
        assert a.attribute(12, pointer + 8) == NBYTES
        a.ask("Free", pointer)
        return
    pool, imported = pools
    pooled, pointer = new_pooled(a, pool), new_memory(a)
    data = a.ask("MemPoolExportPointer", BYTES, pooled)
    here = b.ask("MemPoolImportPointer", OUT, imported, In(data))
    legacy = b.ask("IpcOpenMemHandle", OUT, a.ask("IpcGetMemHandle", BYTES, pointer), 1)
    for process, where, is_legacy, handles, of_pool in [
        (a, pointer, 1, 0, 0),
        (a, pooled, 0, BY_FILE, pool),
        (b, here, 0, 0, imported),
        (b, legacy, 0, 0, 0),
    ]:
        assert process.attribute(8, where) == 0  # managed
        assert process.attribute(10, where) == is_legacy
        assert process.attribute(11, where + 8) == where
        assert process.attribute(12, where + 8) == NBYTES
        assert process.attribute(13, where) == 1  # mapped
        assert process.attribute(14, where) == handles
        assert process.attribute(17, where) == of_pool
    b.ask("Free", here)
    b.ask("IpcCloseMemHandle", legacy)
    a.ask("Free", pooled)
    a.ask("Free", pointer)


def test_attributes_of_devices(a):
    if a.face == "cuda":
        assert [a.ask("DeviceGetAttribute", OUT, n, 0) for n in (102, 103, 119, 125)] == [1] * 4
