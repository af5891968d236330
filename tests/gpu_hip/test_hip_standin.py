"""What a driver refuses during a capture, on the HIP face: one test for each rule.

The rules are CUDA's, see tests/gpu_cuda/test_standin.py. AMD's runtime was seen to break a
capture by a wait for the device, in every mode (ROCm/rocm-systems #4508).
"""

import gc
import threading
import time

import numpy as np
import pytest
from hip import hip
from test_hip_exchange import Stream, ask

import arrowdev as ad

UNSUPPORTED, INVALIDATED, CAPTURED_EVENT = 900, 901, 907
Mode = hip.hipStreamCaptureMode
GLOBAL, THREAD_LOCAL, RELAXED = (
    Mode.hipStreamCaptureModeGlobal,
    Mode.hipStreamCaptureModeThreadLocal,
    Mode.hipStreamCaptureModeRelaxed,
)


def on_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(20)
    return results[0]


def here(function):
    return function()


class Capture:
    """A stream in capture, which has to be broken at the end of the block, or sound."""

    def __init__(self, mode, is_broken):
        self.stream, self.mode, self.is_broken = Stream(), mode, is_broken

    def __enter__(self):
        ask(hip.hipStreamBeginCapture, self.stream.object, self.mode)
        return self

    def __exit__(self, *_):
        code, _ = hip.hipStreamEndCapture(self.stream.object)
        assert int(code) == (INVALIDATED if self.is_broken else 0)


UNSAFE = {
    "hipStreamCreate": (lambda: hip.hipStreamCreateWithFlags(1), hip.hipStreamDestroy),
    "hipMalloc": (lambda: hip.hipMalloc(64), hip.hipFree),
    "hipHostMalloc": (lambda: hip.hipHostMalloc(64, 0), hip.hipHostFree),
}


@pytest.mark.parametrize("where", [here, on_thread])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_call_breaks_a_capture(name, mode, where):
    call, undo = UNSAFE[name]
    is_forbidden = mode == GLOBAL or (mode == THREAD_LOCAL and where is here)
    with Capture(mode, is_forbidden):
        code, result = where(call)
    assert int(code) == (UNSUPPORTED if is_forbidden else 0)
    if int(code) == 0:
        ask(undo, result)


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("name", ["hipEventQuery", "hipEventSynchronize"])
def test_question_about_a_captured_event_breaks_the_capture(name, mode):
    event = ask(hip.hipEventCreateWithFlags, 2)
    with Capture(mode, is_broken=True) as capture:
        ask(hip.hipEventRecord, event, capture.stream.object)
        assert int(getattr(hip, name)(event)[0]) == CAPTURED_EVENT
    ask(hip.hipEventDestroy, event)


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("name", ["hipStreamQuery", "hipStreamSynchronize"])
def test_question_about_a_captured_stream_breaks_the_capture(name, mode):
    with Capture(mode, is_broken=True) as capture:
        assert int(getattr(hip, name)(capture.stream.object)[0]) == UNSUPPORTED


@pytest.mark.parametrize("where", [here, on_thread])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_wait_for_the_device_breaks_its_captures(mode, where):
    with Capture(mode, is_broken=True):
        assert int(where(hip.hipDeviceSynchronize)[0]) == UNSUPPORTED


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_release_in_the_background_breaks_no_capture(mode):
    """arrowdev waits for no device, and does not ask about captured data."""
    tensor = ad.tensor(np.arange(64)).to("rocm:0")
    tensor.synchronize()
    with Capture(mode, is_broken=False) as capture:
        tensor.__dlpack__(stream=capture.stream.handle)
        sent = ad.tensor(np.arange(64)).to("rocm:0")
        assert np.asarray(sent.to("cpu"))[63] == 63
        del tensor, sent
        gc.collect()
        time.sleep(0.05)
