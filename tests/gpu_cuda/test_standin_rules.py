"""What NVIDIA's guide forbids, a driver refuses: one test for each rule, without arrowdev.

The guide's sentences stand in tests/fakedriver, beside the code that refuses.
"""

import threading

import numpy as np
import pytest
from gpu import MODES, RELAXED, Capture, Gate, Stream, ask, code_of, cu

UNSUPPORTED, INVALIDATED, CAPTURED_EVENT = 900, 901, 907
GLOBAL, THREAD_LOCAL = MODES

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
