"""arrowdev neither breaks foreign graph captures nor lets its own work join them."""

import gc
import threading
import time

import numpy as np
import pytest
from gpu import (
    MODES,
    NEW,
    OLD,
    RELAXED,
    Capture,
    Gate,
    Memory,
    Mode,
    Pinned,
    Reader,
    Shown,
    Stream,
    Watched,
    ask,
    begin_capture,
    code_of,
    copied_by_another_thread,
    cu,
    wait_for_frees,
)

import arrowdev as ad


@pytest.fixture(autouse=True)
def nothing_freed():
    Watched.freed = 0


def mode_of_thread():
    """Reads the mode by setting it, and restores it."""
    before = ask(cu.cuThreadExchangeStreamCaptureMode, MODES[0])
    ask(cu.cuThreadExchangeStreamCaptureMode, before)
    return before


def test_drain_thread_breaks_no_capture():
    reader = Reader()
    with Gate(reader.stream.handle):
        tensor = ad.tensor(Watched(NEW))
        tensor.__dlpack__(stream=reader.stream.handle)
        del tensor
        with Capture():
            time.sleep(0.1)
            assert Watched.freed == 0
    wait_for_frees(1)


@pytest.mark.parametrize("mode", MODES)
def test_unrelated_work_breaks_no_capture(mode):
    there = ad.tensor(NEW).to("cuda:0")
    bits = np.full(80_000, 255, "u1")
    nulls = ad.Array.from_buffers("int8", 80_000, [bits[:10_000], bits]).to("cuda:0")
    with Capture(mode):
        assert np.asarray(there.to("cpu")).tolist() == NEW.tolist()
        sent = ad.tensor(OLD).to("cuda:0")
        sent.synchronize()
        assert sent.is_ready()
        empty = ad.device("cuda:0").empty(64)
        assert nulls.slice(1).count_nulls() == 0
        del there, sent, empty
        gc.collect()
        assert mode_of_thread() == MODES[0]


@pytest.mark.parametrize("mode", [*MODES, RELAXED])
def test_wait_for_the_device_is_refused_in_a_capture(mode):
    """No driver allows it, and the graph is lost: its user asked for it."""
    capture = Capture(mode)
    begin_capture(capture.stream.handle, mode)
    with pytest.raises(ad.ExchangeError) as caught:
        ad.device("cuda:0").synchronize()
    assert caught.value.reason == "capture"
    assert code_of(cu.cuStreamEndCapture, capture.stream.handle) == 901


# --- releases in the background wait for no context ---------------------------------------


@pytest.mark.usefixtures("no_handle_reuse")
@pytest.mark.parametrize("mode", [*MODES, RELAXED])
def test_release_inside_a_capture_breaks_it_not(mode):
    """Nothing asks for the stream any more, which may be destroyed after the capture."""
    tensor = ad.tensor(Watched(NEW))
    with Capture(mode) as capture:
        tensor.__dlpack__(stream=capture.stream.handle)
        del tensor
        gc.collect()
        assert Watched.freed == 1
    capture.stream.destroy()
    time.sleep(0.05)


@pytest.mark.parametrize("mode", [*MODES, RELAXED])
def test_release_in_a_later_capture_waits_for_the_work_between(mode):
    """The stream was captured at the hand-out, and ran eagerly since."""
    reader = Reader()
    tensor = ad.tensor(Watched(NEW))
    begin_capture(reader.stream.handle, mode)
    tensor.__dlpack__(stream=reader.stream.handle)
    ask(cu.cuGraphDestroy, ask(cu.cuStreamEndCapture, reader.stream.handle))
    with Gate(reader.stream.handle):
        tensor.__dlpack__(stream=reader.stream.handle)
        reader.read(tensor.data_ptr)
        begin_capture(reader.stream.handle, mode)
        del tensor
        gc.collect()
        time.sleep(0.05)
        ask(cu.cuGraphDestroy, ask(cu.cuStreamEndCapture, reader.stream.handle))
        assert Watched.freed == 0
    wait_for_frees(1)
    assert reader.result() == NEW.tolist()


def test_handle_of_a_stream_that_became_captured_is_given_out_again(standin):
    """The release waits for the end of the capture. An event on the new stream says nothing."""
    standin.set_handle_reuse(1)
    reader = Reader()
    old = reader.stream.handle
    with Gate(old):
        tensor = ad.tensor(Watched(NEW))
        tensor.__dlpack__(stream=old)
        reader.read(tensor.data_ptr)
        begin_capture(old, RELAXED)
        del tensor
        gc.collect()
        time.sleep(0.1)  # arrowdev's thread looks each 10 ms by now
        graph = ask(cu.cuStreamEndCapture, old)
        reader.stream.destroy()
        assert Stream().handle == old
        time.sleep(0.05)
        assert Watched.freed == 0
    ask(cu.cuGraphDestroy, graph)
    ad.device("cuda:0").synchronize()
    assert Watched.freed == 1
    assert reader.target.array.tolist() == NEW.tolist()
    assert all("which is destroyed" in line for line in standin.violations())


def test_release_of_a_stream_that_became_captured_waits_for_its_earlier_work():
    reader = Reader()
    memory = Watched(NEW)
    with Gate(reader.stream.handle):
        tensor = ad.tensor(memory)
        tensor.__dlpack__(stream=reader.stream.handle)
        reader.read(memory.pointer)
        begin_capture(reader.stream.handle, RELAXED)
        del tensor, memory
        time.sleep(0.05)
        ask(cu.cuGraphDestroy, ask(cu.cuStreamEndCapture, reader.stream.handle))
        time.sleep(0.05)
        assert Watched.freed == 0
    wait_for_frees(1)
    assert reader.result() == NEW.tolist()


@pytest.mark.parametrize("mode", [*MODES, RELAXED])
def test_release_after_many_streams_breaks_no_capture(mode):
    tensor = ad.tensor(Watched(NEW))
    streams = [Stream() for _ in range(40)]
    for stream in streams:
        tensor.__dlpack__(stream=stream.handle)
    with Gate(streams[39].handle):
        ask(cu.cuMemsetD8Async, tensor.data_ptr, 1, 8, streams[39].handle)
        with Capture(mode):
            del tensor
            gc.collect()
            time.sleep(0.05)
            assert Watched.freed == 0
    wait_for_frees(1)


@pytest.mark.parametrize("flags", [0, 1], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("mode", [*MODES, RELAXED])
def test_release_for_another_threads_stream_breaks_no_capture(mode, flags):
    """The legacy stream waits for it; while it must not be used the release waits."""
    target, tensors = Pinned(OLD), [ad.tensor(Watched(NEW))]
    with copied_by_another_thread(tensors, target) as gate:
        with Capture(mode, flags):
            tensors.clear()
            gc.collect()
            time.sleep(0.05)
            assert Watched.freed == 0
        gate.open()
        wait_for_frees(1)
    assert target.array.tolist() == NEW.tolist()


@pytest.mark.parametrize("mode", [*MODES, RELAXED])
def test_release_to_a_captured_producer_waits_for_the_event(mode):
    """The producer's stream cannot wait for work from outside of its capture."""
    producer, reader = Stream(), Reader()
    tensor = ad.tensor(Watched(NEW, producer.handle))
    with Gate(reader.stream.handle):
        tensor.__dlpack__(stream=reader.stream.handle)
        reader.read(tensor.data_ptr)
        begin_capture(producer.handle, mode)
        del tensor
        gc.collect()
        assert Watched.freed == 0
        ask(cu.cuGraphDestroy, ask(cu.cuStreamEndCapture, producer.handle))
    wait_for_frees(1)
    assert reader.result() == NEW.tolist()


@pytest.mark.parametrize("is_joined", [True, False])
def test_release_in_the_producers_capture_is_ordered_by_the_graph(is_joined):
    producer, side = Stream(), Stream()
    fork, join = ask(cu.cuEventCreate, 2), ask(cu.cuEventCreate, 2)
    tensor = ad.tensor(Watched(NEW, producer.handle))
    tensor.synchronize()
    other = Reader()
    if not is_joined:
        tensor.__dlpack__(stream=other.stream.handle)
    begin_capture(producer.handle, MODES[1])
    ask(cu.cuEventRecord, fork, producer.handle)
    ask(cu.cuStreamWaitEvent, side.handle, fork, 0)
    tensor.__dlpack__(stream=side.handle)
    ask(cu.cuMemsetD8Async, tensor.data_ptr, 1, 8, side.handle)
    del tensor
    gc.collect()
    assert Watched.freed == (1 if is_joined else 0)
    ask(cu.cuEventRecord, join, side.handle)
    ask(cu.cuStreamWaitEvent, producer.handle, join, 0)
    ask(cu.cuGraphDestroy, ask(cu.cuStreamEndCapture, producer.handle))
    wait_for_frees(1)
    for event in (fork, join):
        ask(cu.cuEventDestroy, event)


@pytest.mark.parametrize("mode", MODES)
def test_first_use_of_a_context_breaks_no_capture(mode):
    """Streams are created, the kernels are loaded and the memory pool is set up."""
    ask(cu.cuCtxCreate, None, 0, 0)
    try:
        bits = Memory(np.full(10_000, 255, "u1"), is_ordered=False)
        bytes_ = Memory(np.full(80_000, 255, "u1"), is_ordered=False)
        with Capture(mode):
            array = ad.Array.from_buffers("int8", 80_000, [ad.tensor(bits), ad.tensor(bytes_)])
            assert array.slice(1).count_nulls() == 0
        del array
    finally:
        ask(cu.cuCtxSynchronize)
        del bits, bytes_
        ask(cu.cuCtxPopCurrent)


def test_capture_mode_of_the_thread_is_restored_after_errors(standin):
    tensor = ad.tensor(NEW).to("cuda:0")
    tensor.synchronize()
    for call in ("cuMemcpyAsync", "cuEventRecord", "cuEventQuery", "cuMemAllocFromPoolAsync"):
        standin.fail_at(1, 719, call, stay=True)
        with pytest.raises(ad.DeviceError):
            ad.tensor(NEW).to("cuda:0").synchronize()
        standin.fail_at(0, 0)
        assert mode_of_thread() == MODES[0]


@pytest.mark.parametrize("stream", [None, 1])
def test_legacy_stream_does_not_join_a_capture(stream):
    memory = Memory(NEW)
    with Capture() as capture:
        memory.stream = capture.stream.handle
        tensor = ad.tensor(memory)
        with pytest.raises(ad.ExchangeError, match="captured into a graph") as caught:
            tensor.__dlpack__(stream=stream)
        assert caught.value.reason == "capture"


def test_legacy_stream_is_not_used_while_a_blocking_stream_is_captured():
    producer = Stream()
    memory = Memory(NEW, producer.handle)
    memory.owner = producer
    with Gate(producer.handle):
        tensor = ad.tensor(memory)
        with Capture(flags=0):
            with pytest.raises(ad.ExchangeError, match="CAPTURE_IMPLICIT") as caught:
                tensor.__dlpack__(stream=1)
            assert caught.value.reason == "capture"
            assert "legacy default stream" in caught.value.hint
            with pytest.raises(ad.ExchangeError, match="CAPTURE_IMPLICIT"):
                ad.tensor(Shown(memory, stream=1))


@pytest.mark.parametrize("mode", MODES)
def test_empty_does_not_join_a_graph(mode):
    with Capture(mode) as capture:
        with pytest.raises(ad.ExchangeError, match=r"Device\.empty\(\) allocates") as caught:
            ad.device("cuda:0").empty(64, stream=capture.stream)
        assert caught.value.reason == "capture"


def test_hint_names_a_stream_that_can_wait():
    memory = Memory(NEW)
    with Capture() as capture:
        memory.stream = capture.stream.handle
        tensor = ad.tensor(memory)
        with pytest.raises(ad.ExchangeError) as caught:
            tensor.synchronize()
        assert caught.value.reason == "capture"
        assert "a stream of the same capture" in caught.value.hint
        tensor.wait(capture.stream.handle)  # does what the hint says


QUESTIONS = {
    "interface": lambda tensor: tensor.__cuda_array_interface__,
    "is_ready": ad.Tensor.is_ready,
    "synchronize": ad.Tensor.synchronize,
    "to": lambda tensor: tensor.to("cpu"),
    "equals": lambda tensor: ad.array(tensor).equals(tensor),
}


@pytest.mark.parametrize("mode", [*MODES, RELAXED])
@pytest.mark.parametrize("name", QUESTIONS)
def test_question_about_captured_data_breaks_no_capture(standin, name, mode):
    """The driver is not asked: that would invalidate the graph."""
    memory = Memory(NEW)
    with Capture(mode) as capture:
        memory.stream = capture.stream.handle
        tensor = ad.tensor(memory)
        with standin.logged() as calls:
            with pytest.raises((ad.ExchangeError, AttributeError), match="being captured"):
                QUESTIONS[name](tensor)
            assert not hasattr(tensor, "__cuda_array_interface__")
        assert not [call for call in calls if "Query" in call.name or "Sync" in call.name]


@pytest.mark.usefixtures("no_handle_reuse")
@pytest.mark.parametrize("in_capture", [False, True])
def test_stream_of_an_import_is_not_asked_again(standin, in_capture):
    """Whether it was captured is known from the import; it may be destroyed since."""
    memory = Memory(NEW)
    capture = Capture()
    memory.stream = capture.stream.handle
    if in_capture:
        with capture:
            tensor = ad.tensor(memory)
    else:
        tensor = ad.tensor(memory)
    memory.stream = None
    capture.stream.destroy()
    if in_capture:
        with pytest.raises(ad.ExchangeError, match="captured into a graph") as caught:
            tensor.to("cpu")
        assert caught.value.reason == "capture"
    else:
        assert np.asarray(tensor.to("cpu")).tolist() == NEW.tolist()
    assert standin.violations() == []
    del tensor
    standin.violations()  # the release orders the producer's stream


def test_data_from_before_a_capture_can_be_copied():
    memory = Memory(NEW)
    with Capture() as capture:
        pass
    memory.stream = capture.stream.handle
    tensor = ad.tensor(memory)
    begin_capture(capture.stream.handle, Mode.CU_STREAM_CAPTURE_MODE_RELAXED)
    assert np.asarray(tensor.to("cpu")).tolist() == NEW.tolist()
    ask(cu.cuGraphDestroy, ask(cu.cuStreamEndCapture, capture.stream.handle))


USES = {
    "wait": lambda tensor, stream: tensor.wait(stream),
    "__dlpack__": lambda tensor, stream: tensor.__dlpack__(stream=stream.handle),
    "import": lambda tensor, stream: ad.tensor(tensor, stream=stream),
}


@pytest.mark.parametrize("mode", [*MODES, RELAXED])
@pytest.mark.parametrize("name", USES)
def test_ready_data_can_be_used_in_a_capture(name, mode):
    """The captured stream need not wait; a wait for the event would break the graph."""
    producer = Stream()
    memory = Memory(NEW, producer.handle)
    tensor = ad.tensor(memory)
    producer.synchronize()
    with Capture(mode) as capture:
        USES[name](tensor, capture.stream)
    del tensor


@pytest.mark.parametrize("mode", [*MODES, RELAXED])
@pytest.mark.parametrize("name", USES)
def test_pending_data_are_refused_in_a_capture(name, mode):
    """The graph cannot wait for what runs outside of it, and it stays valid."""
    producer = Stream()
    memory = Memory(NEW, producer.handle)
    with Gate(producer.handle):
        tensor = ad.tensor(memory)
        with Capture(mode) as capture:
            with pytest.raises(ad.ExchangeError, match="before the capture") as caught:
                USES[name](tensor, capture.stream)
            assert caught.value.reason == "capture"
    producer.synchronize()
    del tensor


def test_rows_are_not_validated_in_a_capture():
    memory = Memory(NEW)
    with Capture() as capture:
        memory.stream = capture.stream.handle
        array = ad.array(memory)
        assert array.validate() == ()
        with pytest.raises(ad.ExchangeError, match="captured into a graph") as caught:
            array.validate("full")
        assert caught.value.reason == "capture"


def test_rows_are_validated_on_the_device():
    indices = np.array([0, 1, 2], "i4")
    array = ad.Array.from_buffers("date64", 3, [None, indices.astype("i8")]).to("cuda:0")
    with pytest.raises(ad.InvalidArrowError, match="row 1: the date is 1 ms"):
        array.validate("full")


def test_copy_to_the_host_releases_the_gil():
    """The producer needs the GIL, and the call itself copies pageable memory."""
    producer = Stream()
    memory = Memory(NEW, producer.handle)
    memory.owner = producer
    gate = Gate(producer.handle)
    opened = threading.Timer(0.1, gate.open)
    opened.start()
    assert np.asarray(ad.tensor(memory).to("cpu")).tolist() == NEW.tolist()
    opened.join()
