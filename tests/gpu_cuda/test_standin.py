"""The stand-in driver itself, through cuda-bindings alone."""

import os
import signal
import subprocess
import sys
import threading

import gpu
import numpy as np
import pytest
from gpu import (
    MODES,
    NEW,
    OLD,
    RELAXED,
    Capture,
    Gate,
    Held,
    Memory,
    Pinned,
    Reader,
    Stream,
    ask,
    code_of,
    cu,
)

GLOBAL, THREAD_LOCAL = MODES


@pytest.mark.usefixtures("two_devices")
def test_two_devices():
    assert ask(cu.cuDeviceGetCount) >= 2
    assert ask(cu.cuDeviceGetName, 64, 1) != ask(cu.cuDeviceGetName, 64, 0)


def test_copies_and_fills():
    memory = Memory(NEW)
    out = np.zeros_like(NEW)
    ask(cu.cuMemcpyDtoH, out.ctypes.data, memory.pointer, out.nbytes)
    assert out.tolist() == NEW.tolist()
    ask(cu.cuMemsetD8, memory.pointer, 1, 8)
    ask(cu.cuMemcpyDtoH, out.ctypes.data, memory.pointer, out.nbytes)
    assert out[0] == 0x0101010101010101 and out[1] == NEW[1]


def test_copy_2d():
    source, target = Memory(NEW), Memory(OLD)
    copy = cu.CUDA_MEMCPY2D()
    copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.dstDevice = source.pointer, target.pointer
    copy.srcPitch, copy.dstPitch = 64, 8
    copy.WidthInBytes, copy.Height = 8, 8
    ask(cu.cuMemcpy2D, copy)
    assert Reader().read(target.pointer).result()[:9] == [*NEW[::8].tolist(), 0]


def test_host_cannot_read_device_memory(standin):
    memory = Memory(NEW)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        import ctypes

        ctypes.string_at(memory.pointer, 8)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV
    assert standin.peek(memory.pointer, NEW.nbytes) == NEW.tobytes()


def test_forked_child_is_refused(standin):
    child = os.fork()
    if child == 0:
        os._exit(code_of(cu.cuMemAlloc, 8))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_missing_wait_reads_old_data():
    with Held() as held:
        assert Reader().read(held.memory.pointer).result() == OLD.tolist()
    assert Reader().read(held.memory.pointer).result() == NEW.tolist()


@pytest.mark.usefixtures("two_devices")
def test_wait_across_streams_and_devices():
    event = ask(cu.cuEventCreate, 2)
    other = ask(cu.cuDevicePrimaryCtxRetain, 1)
    with Held() as held:
        ask(cu.cuEventRecord, event, held.stream.handle)
        ask(cu.cuCtxPushCurrent, other)
        reader = Reader()
        ask(cu.cuStreamWaitEvent, reader.stream.handle, event, 0)
        ask(cu.cuCtxPopCurrent)
        reader.read(held.memory.pointer)
        assert not reader.stream.is_done() and code_of(cu.cuEventQuery, event) == 600
    assert reader.result() == NEW.tolist()
    ask(cu.cuEventDestroy, event)


@pytest.mark.parametrize(("flags", "waits"), [(0, True), (1, False)])
def test_legacy_stream_waits_for_blocking_streams(flags, waits):
    with Held(flags=flags) as held:
        event = ask(cu.cuEventCreate, 2)
        ask(cu.cuEventRecord, event, 1)
        assert code_of(cu.cuEventQuery, event) == (600 if waits else 0)
        blocking = Stream(0)
        probe = ask(cu.cuEventCreate, 2)
        ask(cu.cuEventRecord, probe, blocking.handle)
        assert code_of(cu.cuEventQuery, probe) == (600 if waits else 0)
    ask(cu.cuStreamSynchronize, held.stream.handle)
    for each in (event, probe):
        ask(cu.cuEventDestroy, each)


def test_per_thread_stream_differs_between_threads():
    done = []
    gate = Gate(2)

    def other():
        ask(cu.cuCtxSetCurrent, ask(cu.cuDevicePrimaryCtxRetain, 0))
        done.append(code_of(cu.cuStreamQuery, 2))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(20)
    assert done == [0] and code_of(cu.cuStreamQuery, 2) == 600
    gate.open()
    ask(cu.cuStreamSynchronize, 2)


def test_new_thread_has_no_context():
    codes = []
    thread = threading.Thread(target=lambda: codes.append(code_of(cu.cuMemAlloc, 8)))
    thread.start()
    thread.join(20)
    assert codes == [201]


@pytest.mark.usefixtures("no_handle_reuse")
def test_stale_handles_are_refused(standin):
    stream = Stream()
    handle = stream.handle
    stream.destroy()
    event = ask(cu.cuEventCreate, 2)
    assert code_of(cu.cuEventRecord, event, handle) == 400
    assert standin.violations() == [f"cuEventRecord used stream {handle:#x}, which is destroyed"]
    ask(cu.cuEventDestroy, event)
    assert code_of(cu.cuEventQuery, event) == 400
    number = int(event)
    assert standin.violations() == [f"cuEventQuery used event {number:#x}, which is destroyed"]


USES = {
    "cuEventQuery": lambda event, stream: code_of(cu.cuEventQuery, event),
    "cuEventSynchronize": lambda event, stream: code_of(cu.cuEventSynchronize, event),
    "cuEventRecord": lambda event, stream: code_of(cu.cuEventRecord, event, stream),
    "cuStreamWaitEvent": lambda event, stream: code_of(cu.cuStreamWaitEvent, stream, event, 0),
    "cuEventDestroy_v2": lambda event, stream: code_of(cu.cuEventDestroy, event),
}


@pytest.mark.usefixtures("no_handle_reuse")
@pytest.mark.parametrize("name", USES)
def test_call_with_a_destroyed_event_is_reported(standin, name):
    stream, event = Stream(), ask(cu.cuEventCreate, 2)
    number = int(event)
    ask(cu.cuEventDestroy, event)
    assert USES[name](number, stream.handle) == 400
    assert standin.violations() == [f"{name} used event {number:#x}, which is destroyed"]


def test_handles_are_given_out_again(standin):
    """At once, although the work of the destroyed stream is pending (rmm #649)."""
    standin.set_handle_reuse(1)
    stream, event = Stream(), ask(cu.cuEventCreate, 2)
    old, number = stream.handle, int(event)
    gate = Gate(old)
    ask(cu.cuEventRecord, event, old)
    stream.destroy()
    ask(cu.cuEventDestroy, event)
    new, again = Stream(), ask(cu.cuEventCreate, 2)
    assert new.handle == old and int(again) == number
    assert new.is_done() and code_of(cu.cuEventQuery, number) == 0
    gate.open()
    ask(cu.cuEventDestroy, again)
    assert standin.violations() == []


@pytest.mark.usefixtures("two_devices")
def test_event_and_stream_must_share_a_context():
    event = ask(cu.cuEventCreate, 2)
    ask(cu.cuCtxPushCurrent, ask(cu.cuDevicePrimaryCtxRetain, 1))
    stream = Stream()
    ask(cu.cuCtxPopCurrent)
    assert code_of(cu.cuEventRecord, event, stream.handle) == 400
    ask(cu.cuEventDestroy, event)


def test_stream_ordered_memory():
    stream = Stream()
    pointer = ask(cu.cuMemAllocAsync, 512, stream.handle)
    ask(cu.cuMemsetD8Async, pointer, 7, 512, stream.handle)
    ask(cu.cuMemFreeAsync, pointer, stream.handle)
    assert code_of(cu.cuMemsetD8Async, pointer, 7, 512, stream.handle) == 1
    stream.synchronize()


def test_free_of_used_memory_is_detected(standin):
    with Held() as held:
        memory = Memory(OLD, is_ordered=False)
        ask(cu.cuMemcpyAsync, memory.pointer, held.memory.pointer, 8, held.stream.handle)
        memory.free()
    (violation,) = standin.violations()
    assert "cuMemFree_v2" in violation and "cuMemcpyAsync" in violation


def test_ordered_free_during_read_of_other_stream_is_detected(standin):
    stream, reader = Stream(), Reader()
    pointer = ask(cu.cuMemAllocAsync, OLD.nbytes, stream.handle)
    stream.synchronize()
    with Gate(reader.stream.handle):
        reader.read(int(pointer))
        ask(cu.cuMemFreeAsync, pointer, stream.handle)
        stream.synchronize()
    reader.result()
    assert "cuMemFreeAsync" in standin.violations()[0]


@pytest.mark.parametrize(
    ("make", "kind", "is_managed"),
    [
        (lambda: int(ask(cu.cuMemAlloc, 64)), 2, 0),
        (lambda: int(ask(cu.cuMemHostAlloc, 64, 0)), 1, 0),
        (lambda: int(ask(cu.cuMemAllocManaged, 64, 1)), 2, 1),
    ],
    ids=["device", "pinned", "managed"],
)
def test_pointer_attributes(make, kind, is_managed):
    attribute = cu.CUpointer_attribute
    wanted = [
        attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED,
        attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ]
    pointer = make()
    values = ask(cu.cuPointerGetAttributes, len(wanted), wanted, pointer + 8)
    assert [int(value) for value in values] == [kind, is_managed, 0]
    free = cu.cuMemFreeHost if kind == 1 else cu.cuMemFree
    ask(free, pointer)
    assert code_of(cu.cuPointerGetAttribute, wanted[0], pointer) == 1


def test_handles_for_other_processes():
    """tests/devices/test_fakedriver_processes.py has the two processes."""
    memory, event = Memory(NEW, is_ordered=False), ask(cu.cuEventCreate, 2 | 4)
    handle, name = ask(cu.cuIpcGetMemHandle, memory.pointer), ask(cu.cuIpcGetEventHandle, event)
    assert code_of(cu.cuIpcOpenMemHandle, handle, 1) == 201  # this process made it
    assert code_of(cu.cuIpcOpenEventHandle, name) == 201
    assert code_of(cu.cuIpcCloseMemHandle, memory.pointer) == 1
    assert code_of(cu.cuIpcGetMemHandle, Memory(NEW).pointer) == 1  # stream-ordered
    ask(cu.cuEventDestroy, event)


@pytest.mark.usefixtures("standin")
def test_cuda_core_shares_with_another_process():
    pytest.importorskip("cuda.core")
    program = gpu.FOLDER / "core_processes.py"
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0 and done.stdout == "end\n", done.stderr


def test_range_of_reserved_addresses():
    """The range is there before any memory is."""
    size, attribute = 4 << 20, cu.CUpointer_attribute
    base = ask(cu.cuMemAddressReserve, size, 0, 0, 0)
    wanted = [
        attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        attribute.CU_POINTER_ATTRIBUTE_MAPPED,
    ]
    values = ask(cu.cuPointerGetAttributes, len(wanted), wanted, int(base) + 100)
    assert [int(value) for value in values] == [int(base), size, 0]
    ask(cu.cuMemAddressFree, base, size)


def test_capture_and_replay():
    stream, side, memory, source = Stream(), Stream(), Memory(OLD), Pinned(NEW)
    ask(cu.cuStreamBeginCapture, stream.handle, THREAD_LOCAL)
    ask(cu.cuMemcpyAsync, memory.pointer, int(source.pointer), NEW.nbytes, stream.handle)
    fork, join = ask(cu.cuEventCreate, 2), ask(cu.cuEventCreate, 2)
    ask(cu.cuEventRecord, fork, stream.handle)
    ask(cu.cuStreamWaitEvent, side.handle, fork, 0)
    ask(cu.cuMemsetD8Async, memory.pointer, 0, 8, side.handle)
    ask(cu.cuEventRecord, join, side.handle)
    ask(cu.cuStreamWaitEvent, stream.handle, join, 0)
    graph = ask(cu.cuStreamEndCapture, stream.handle)
    assert Reader().read(memory.pointer).result() == OLD.tolist()
    executable = ask(cu.cuGraphInstantiate, graph, 0)
    ask(cu.cuGraphLaunch, executable, stream.handle)
    stream.synchronize()
    assert Reader().read(memory.pointer).result() == [0, *NEW[1:].tolist()]
    ask(cu.cuGraphExecDestroy, executable)
    ask(cu.cuGraphDestroy, graph)


def unjoined(stream, side):
    fork = ask(cu.cuEventCreate, 2)
    ask(cu.cuEventRecord, fork, stream)
    ask(cu.cuStreamWaitEvent, side, fork, 0)
    code = code_of(cu.cuStreamEndCapture, stream)
    ask(cu.cuEventDestroy, fork)
    return code


def outside_event(stream, side):
    event = ask(cu.cuEventCreate, 2)
    ask(cu.cuEventRecord, event, side)
    return code_of(cu.cuStreamWaitEvent, stream, event, 0)


def other_capture(stream, side):
    event = ask(cu.cuEventCreate, 2)
    ask(cu.cuStreamBeginCapture, side, THREAD_LOCAL)
    ask(cu.cuEventRecord, event, side)
    code = code_of(cu.cuStreamWaitEvent, stream, event, 0)
    cu.cuStreamEndCapture(side)
    return code


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda *_: code_of(cu.cuMemsetD8Async, Memory.of_test.pointer, 0, 8, 1), 906),
        (unjoined, 904),
        (outside_event, 905),
        (other_capture, 902),
    ],
    ids=["legacy", "unjoined", "outside", "merge"],
)
def test_calls_that_capture_forbids(act, code):
    stream, side = Stream(0), Stream()
    Memory.of_test = Memory(OLD)
    ask(cu.cuStreamBeginCapture, stream.handle, THREAD_LOCAL)
    assert act(stream.handle, side.handle) == code
    cu.cuStreamEndCapture(stream.handle)
    stream.synchronize()
    del Memory.of_test


def test_injected_failure(standin):
    standin.fail_at(2, 719, "cuEventCreate")
    ask(cu.cuEventDestroy, ask(cu.cuEventCreate, 0))
    assert code_of(cu.cuEventCreate, 0) == 719
    ask(cu.cuEventDestroy, ask(cu.cuEventCreate, 0))


def test_broken_context(standin):
    standin.break_context(700)
    assert code_of(cu.cuMemAlloc, 8) == 700
    standin.break_context(0)
    ask(cu.cuMemFree, ask(cu.cuMemAlloc, 8))


def test_log(standin):
    stream = Stream()
    with standin.logged() as calls:
        ask(cu.cuStreamQuery, stream.handle)
    (call,) = calls
    assert call.name == "cuStreamQuery" and call.stream == stream.handle
    assert call.thread == threading.get_native_id()


def test_stub_is_reported(standin):
    assert code_of(cu.cuProfilerStart) == 801
    assert standin.stub_hits() == ["cuProfilerStart"]


def test_version_selects_the_abi(standin):
    """Old versions return the old function, whose parameters differ."""
    newer, status = gpu.look_up(standin, "cuCtxGetDevice", 13000)
    older, _ = gpu.look_up(standin, "cuCtxGetDevice", 12000)
    assert newer != older and status == 0
    assert gpu.look_up(standin, "cuCtxGetDevice", 1000) == (None, 2)
    twin, _ = gpu.look_up(standin, "cuStreamQuery", 13000, flags=2)
    plain, _ = gpu.look_up(standin, "cuStreamQuery", 13000)
    assert twin != plain
    assert gpu.look_up(standin, "", 13000) == (None, 1)


# --- helpers of the tests -----------------------------------------------------------


def test_gate_opens_by_itself():
    stream = Stream()
    Gate(stream.handle, seconds=0.05)
    assert not stream.is_done()
    stream.synchronize()
    assert Gate.end_all() == []


def test_gate_that_nobody_opened_is_reported(monkeypatch):
    monkeypatch.setattr(Gate, "LIMIT_S", 0.05)
    stream = Stream()
    gate = Gate(stream.handle)
    stream.synchronize()
    gate.timer.join(20)
    assert Gate.end_all() == [gate]
    gate.open()  # has no effect
    assert Gate.end_all() == []


KERNELS = f"""
import sys
sys.path[:0] = [{str(gpu.FOLDER)!r}, {str(gpu.FOLDER.parent / "helpers")!r}]
import conftest, gpu
gpu.ask(gpu.cu.cuInit, 0)
gpu.ask(gpu.cu.cuCtxSetCurrent, gpu.ask(gpu.cu.cuDevicePrimaryCtxRetain, 0))
uses = gpu.kernel_uses()
for use in [*uses, *uses]:
    with conftest.DRIVER.logged() as calls:
        use()
    print([call.name for call in calls].count("cuModuleLoadData"))
"""


@pytest.mark.usefixtures("standin")
def test_a_kernel_is_loaded_when_it_is_first_used():
    """The driver compiles what it loads. The uses, which the setup for a GPU makes, are of all."""
    pytest.importorskip("pyarrow")
    done = subprocess.run(
        [sys.executable, "-c", KERNELS], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = [int(n) for n in done.stdout.split()]
    assert loaded[:8] == [1, 1, 1, 1, 1, 2, 2, 1] and sum(loaded) == 10


# --- what NVIDIA's guide forbids: its sentences stand beside the code that refuses -----

UNSUPPORTED, INVALIDATED, CAPTURED_EVENT = 900, 901, 907

# The stand-in takes modules with a kernel of arrowdev's only.
PTX = b"""
.version 4.0
.target sm_50
.address_size 64
.visible .entry ad_gather()
{
    ret;
}
""".lstrip()


def on_thread(function):
    """The result of the function on another thread, where the same context is current."""
    context = ask(cu.cuCtxGetCurrent)
    results = []

    def run():
        ask(cu.cuCtxSetCurrent, context)
        results.append(function())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    return results[0]


def here(function):
    return function()


class Broken(Capture):
    """A capture that has to be invalid at its end."""

    def __exit__(self, *_):
        assert code_of(cu.cuStreamEndCapture, self.stream.handle) == INVALIDATED


def load_module():
    return cu.cuModuleLoadData(PTX)


def create_pool():
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return cu.cuMemPoolCreate(properties)


# What is done, and what is undone with its result.
UNSAFE = {
    "cuStreamCreate": (lambda: cu.cuStreamCreate(1), cu.cuStreamDestroy),
    "cuModuleLoadData": (load_module, cu.cuModuleUnload),
    "cuMemAlloc": (lambda: cu.cuMemAlloc(64), cu.cuMemFree),
    "cuMemAllocManaged": (lambda: cu.cuMemAllocManaged(64, 1), cu.cuMemFree),
    "cuMemHostAlloc": (lambda: cu.cuMemHostAlloc(64, 0), cu.cuMemFreeHost),
    "cuMemPoolCreate": (create_pool, cu.cuMemPoolDestroy),
}


def codes_of_unsafe_calls(where):
    """The code of each call; what a call has made is dropped again."""
    made = {name: where(call) for name, (call, _) in UNSAFE.items()}
    for name, (code, result) in made.items():
        if code == 0:
            ask(UNSAFE[name][1], result)
    return {name: int(code) for name, (code, _) in made.items()}


@pytest.mark.parametrize("where", [here, on_thread])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name[23:])
@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_call_breaks_a_capture(name, mode, where):
    """In the thread's own capture, and in a global capture of any thread."""
    call, undo = UNSAFE[name]
    is_forbidden = where is here or mode == GLOBAL
    with (Broken if is_forbidden else Capture)(mode):
        code, result = where(call)
    assert int(code) == (UNSUPPORTED if is_forbidden else 0)
    if code == 0:
        ask(undo, result)


@pytest.mark.parametrize("where", [here, on_thread])
def test_unsafe_calls_are_allowed_in_a_relaxed_capture(where):
    with Capture(RELAXED):
        assert codes_of_unsafe_calls(where) == dict.fromkeys(UNSAFE, 0)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name[23:])
def test_unsafe_calls_are_allowed_to_a_relaxed_thread(mode):
    with Capture(mode):
        before = ask(cu.cuThreadExchangeStreamCaptureMode, RELAXED)
        assert codes_of_unsafe_calls(here) == dict.fromkeys(UNSAFE, 0)
        ask(cu.cuThreadExchangeStreamCaptureMode, before)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name[23:])
@pytest.mark.parametrize("name", ["cuModuleUnload", "cuMemFree"])
def test_unsafe_end_breaks_a_capture(name, mode):
    call, undo = UNSAFE[{"cuModuleUnload": "cuModuleLoadData", "cuMemFree": "cuMemAlloc"}[name]]
    made = ask(call)
    with Broken(mode):
        assert code_of(undo, made) == UNSUPPORTED
    ask(undo, made)


# --- what is captured is not executed ---------------------------------------------------

ALL_MODES = [*MODES, RELAXED]


def captured_event(stream):
    event = ask(cu.cuEventCreate, 0)
    ask(cu.cuEventRecord, event, stream.handle)
    return event


@pytest.mark.parametrize("where", [here, on_thread])
@pytest.mark.parametrize("mode", ALL_MODES, ids=lambda mode: mode.name[23:])
@pytest.mark.parametrize("name", ["cuEventQuery", "cuEventSynchronize", "cuEventElapsedTime"])
def test_question_about_a_captured_event_breaks_the_capture(name, mode, where):
    with Broken(mode) as capture:
        event = captured_event(capture.stream)
        events = (event, event) if name == "cuEventElapsedTime" else (event,)
        assert int(where(lambda: getattr(cu, name)(*events))[0]) == CAPTURED_EVENT
    assert code_of(cu.cuEventQuery, event) == CAPTURED_EVENT
    ask(cu.cuEventDestroy, event)


def test_relaxed_thread_does_not_query_a_captured_event():
    with Broken(RELAXED) as capture:
        event = captured_event(capture.stream)
        before = ask(cu.cuThreadExchangeStreamCaptureMode, RELAXED)
        assert code_of(cu.cuEventQuery, event) == CAPTURED_EVENT
        ask(cu.cuThreadExchangeStreamCaptureMode, before)
    ask(cu.cuEventDestroy, event)


def test_event_recorded_again_after_a_capture_can_be_queried():
    with Capture() as capture:
        event = captured_event(capture.stream)
    ask(cu.cuEventRecord, event, capture.stream.handle)
    ask(cu.cuEventSynchronize, event)
    ask(cu.cuEventDestroy, event)


@pytest.mark.parametrize("where", [here, on_thread])
@pytest.mark.parametrize("mode", ALL_MODES, ids=lambda mode: mode.name[23:])
@pytest.mark.parametrize("name", ["cuStreamQuery", "cuStreamSynchronize"])
def test_question_about_a_captured_stream_breaks_the_capture(name, mode, where):
    with Broken(mode) as capture:
        code, *_ = where(lambda: getattr(cu, name)(capture.stream.handle))
        assert int(code) == UNSUPPORTED


@pytest.mark.parametrize("where", [here, on_thread])
@pytest.mark.parametrize("flags", [0, 1], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("mode", ALL_MODES, ids=lambda mode: mode.name[23:])
def test_wait_for_the_context_breaks_its_captures(mode, flags, where):
    with Broken(mode, flags):
        assert int(where(cu.cuCtxSynchronize)[0]) == UNSUPPORTED


def test_relaxed_thread_does_not_wait_for_the_context():
    with Broken(RELAXED):
        before = ask(cu.cuThreadExchangeStreamCaptureMode, RELAXED)
        assert code_of(cu.cuCtxSynchronize) == UNSUPPORTED
        ask(cu.cuThreadExchangeStreamCaptureMode, before)


def test_wait_for_another_context_breaks_no_relaxed_capture():
    """A handle is broader only where the captured stream belongs to it."""
    with Capture(RELAXED):
        ask(cu.cuCtxCreate, None, 0, 0)
        ask(cu.cuCtxSynchronize)
        ask(cu.cuCtxPopCurrent)


@pytest.mark.parametrize("name", ["cuStreamQuery", "cuStreamSynchronize"])
@pytest.mark.parametrize("flags", [0, 1], ids=["blocking", "non-blocking"])
def test_legacy_stream_encompasses_blocking_captures(name, flags):
    """The guide: querying or synchronizing it would do so to the captured streams."""
    with (Broken if flags == 0 else Capture)(RELAXED, flags):
        assert code_of(getattr(cu, name), 1) == (906 if flags == 0 else 0)


# --- pageable memory of the host ----------------------------------------------------------

STAGED_AT_ONCE = 64 << 10
COPIES = {
    "a large upload": (STAGED_AT_ONCE + 8, True, True),
    "a small upload": (STAGED_AT_ONCE, True, False),
    "a small download": (8, False, True),
}


@pytest.mark.parametrize("name", COPIES)
def test_copy_of_pageable_memory_waits_for_its_stream(name):
    """cuda.h, "API synchronization behavior": more than 64 KB are staged after the stream's work,
    and a copy to pageable memory returns when it is done."""
    nbytes, is_upload, waits = COPIES[name]
    stream, host = Stream(), np.zeros(nbytes, "u1")
    pointer = int(ask(cu.cuMemAlloc, nbytes))
    copy = cu.cuMemcpyHtoDAsync if is_upload else cu.cuMemcpyDtoHAsync
    ends = (pointer, host.ctypes.data) if is_upload else (host.ctypes.data, pointer)
    gate = Gate(stream.handle)
    context = ask(cu.cuCtxGetCurrent)

    def run():
        ask(cu.cuCtxSetCurrent, context)
        ask(copy, *ends, nbytes, stream.handle)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.2 if waits else 20)
    assert thread.is_alive() == waits
    gate.open()
    thread.join(20)
    assert not thread.is_alive()
    stream.synchronize()
    ask(cu.cuMemFree, pointer)
