"""The stand-in driver itself, through cuda-bindings alone."""

import os
import signal
import subprocess
import sys
import threading

import gpu
import numpy as np
import pytest
from gpu import NEW, OLD, Gate, Held, Memory, Pinned, Reader, Stream, ask, code_of, cu

CAPTURE_THREAD = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


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


def test_capture_and_replay():
    stream, side, memory, source = Stream(), Stream(), Memory(OLD), Pinned(NEW)
    ask(cu.cuStreamBeginCapture, stream.handle, CAPTURE_THREAD)
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
    ask(cu.cuStreamBeginCapture, side, CAPTURE_THREAD)
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
    ask(cu.cuStreamBeginCapture, stream.handle, CAPTURE_THREAD)
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
