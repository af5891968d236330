"""Devices in Python: devices(), Device.empty, transfers, waiting, use_stream.

The tests use the software device, which supports all of them and is always available.
"""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest
from lifetimes import settled

import arrowdev as ad
from arrowdev import testing

np = pytest.importorskip("numpy")

VALUES = [1, 2, 3, 250]


@pytest.fixture
def queue(software):
    return software.queue()


def host_bytes(obj):
    return bytes(memoryview(ad.tensor(obj).to("cpu")))


# --- available devices ------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_host_available_in_forked_child(tmp_path):
    script = """
import os, arrowdev as ad
ad.devices(), ad.device("cpu").synchronize()
child = os.fork()
if child == 0:
    try:
        ad.device("cpu").synchronize()
        os._exit(0 if ad.device("cpu") in ad.devices() else 1)
    finally:
        os._exit(2)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 0


def test_host_is_always_available():
    assert ad.devices()[0] == ad.device("cpu")
    assert ad.device("cpu").name == "cpu"


def test_devices_come_with_their_runtime():
    assert ad.device("ext_dev:0") not in ad.devices()
    with testing.software_device(devices=3):
        found = [device for device in ad.devices() if device.type == ad.DeviceType.EXT_DEV]
        assert [str(device) for device in found] == ["ext_dev:0", "ext_dev:1", "ext_dev:2"]
        assert all(device.name and device.name != str(device) for device in found)
    assert ad.device("ext_dev:0") not in ad.devices()


def test_device_without_runtime_keeps_its_name():
    assert ad.device("hexagon:3").name == "hexagon:3"


@pytest.mark.parametrize("action", [lambda d: d.empty(8), lambda d: d.synchronize()])
def test_device_without_runtime_refuses_operations(action):
    with pytest.raises(ad.ExchangeError, match="hexagon") as info:
        action(ad.device("hexagon:0"))
    assert info.value.hint


def test_missing_device(software):
    with pytest.raises((ad.DeviceError, ad.ExchangeError), match="7"):
        ad.device("ext_dev:7").empty(8)
    with pytest.raises((ad.DeviceError, ad.ExchangeError), match="7"):
        ad.array(VALUES_ARRAY).to("ext_dev:7")


VALUES_ARRAY = np.array(VALUES, "uint8")


# --- memory ------------------------------------------------------------------------------------


def test_empty_on_the_host():
    buffer = ad.device("cpu").empty(100)
    assert (buffer.nbytes, buffer.device, buffer.readonly) == (100, ad.device("cpu"), False)
    assert buffer.data_ptr % 64 == 0
    memoryview(buffer)[:] = bytes(range(100))
    assert bytes(buffer) == bytes(range(100))
    assert ad.device("cpu").empty(0).nbytes == 0


def test_empty_on_a_device(software, queue):
    device = ad.device("ext_dev:1")
    before = settled(software)
    buffer = device.empty(1 << 20)
    assert (buffer.nbytes, buffer.device) == (1 << 20, device)
    assert software.kind_of(buffer.data_ptr) == "device"
    assert software.live().bytes >= before.bytes + (1 << 20)
    del buffer
    device.synchronize()
    assert software.live().bytes == before.bytes


def test_empty_on_a_stream(software, queue):
    """The memory is handed to another queue, which waits for the allocation."""
    buffer = ad.device("ext_dev:0").empty(4, stream=queue)
    queue.fill(buffer.data_ptr, 7, 4)
    queue.synchronize(10)
    assert host_bytes(buffer) == bytes([7] * 4)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((-1,), ValueError),
        (("8",), TypeError),
        ((1 << 70,), OverflowError),
        ((8, 3), TypeError),
        ((), TypeError),
    ],
)
def test_bad_sizes(software, arguments, error):
    for device in ("cpu", "ext_dev:0"):
        with pytest.raises(error):
            ad.device(device).empty(*arguments)


def test_no_memory_left(software):
    software.set_memory_limit(1 << 16)
    with pytest.raises(MemoryError):
        ad.device("ext_dev:0").empty(1 << 20)
    with pytest.raises(MemoryError):
        ad.array(np.zeros(1 << 20, "uint8")).to("ext_dev:0")
    with pytest.raises(MemoryError):
        ad.device("cpu").empty(1 << 60)


# --- transfers ---------------------------------------------------------------------------------


def test_round_trip(software):
    there = ad.array(VALUES_ARRAY).to("ext_dev:0")
    assert there.device == ad.device("ext_dev:0")
    assert there.to("ext_dev:0") is there
    back = there.to("cpu")
    assert back.to_pylist() == VALUES and back.sync_event is None
    assert (
        ad.array(VALUES_ARRAY, device="ext_dev:1").to("ext_dev:0").to("cpu").to_pylist() == VALUES
    )


def test_to_keeps_tensor_shape(software):
    matrix = np.arange(12, dtype="int32").reshape(3, 4)
    for source in (matrix, matrix.T, matrix[:, 1:3], matrix[::-1]):
        moved = ad.tensor(source).to("ext_dev:0")
        assert (moved.shape, moved.dtype) == (source.shape, "int32")
        assert moved.to("cpu").into(np.ndarray).tolist() == source.tolist()


def test_to_keeps_buffer_type(software):
    buffer = ad.array(VALUES_ARRAY).buffers[1].to("ext_dev:0")
    assert type(buffer) is ad.Buffer and bytes(buffer.to("cpu")) == bytes(VALUES)


def test_copy_false_refuses_transfer(software):
    with pytest.raises(ad.ExchangeError) as info:
        ad.array(VALUES_ARRAY, device="ext_dev:0", copy=False)
    assert info.value.reason == "copy"
    with pytest.raises(ad.ExchangeError) as info:
        ad.from_dlpack(ad.tensor(VALUES_ARRAY).to("ext_dev:0"), device="cpu", copy=False)
    assert info.value.reason == "copy"


def test_copy_true_on_the_device(software):
    there = ad.array(VALUES_ARRAY).to("ext_dev:0")
    copied = ad.array(there, copy=True)
    assert copied.device == there.device
    assert copied.buffers[1].data_ptr != there.buffers[1].data_ptr
    assert copied.to("cpu").to_pylist() == VALUES


def test_from_dlpack_transfers(software):
    there = ad.from_dlpack(VALUES_ARRAY, device="ext_dev:0")
    assert there.device == ad.device("ext_dev:0")
    assert ad.from_dlpack(there, device="cpu").into(np.ndarray).tolist() == VALUES


def test_transfer_waits_for_data(software, queue):
    with queue.held():
        there = ad.array(software.array(VALUES, "uint8", queue=queue))
        moved = there.to("ext_dev:1")
        assert not there.is_ready() and not moved.is_ready()
    assert moved.to("cpu").to_pylist() == VALUES


# --- events ------------------------------------------------------------------------------------


def test_readiness(software, queue):
    with queue.held():
        array = ad.array(software.array(VALUES, "uint8", queue=queue))
        assert array.sync_event is not None
        assert not array.is_ready() and not array[1:].is_ready()
    array.synchronize()
    assert array.is_ready() and array[1:].is_ready()
    assert ad.array(VALUES_ARRAY).is_ready()


def test_synchronize_releases_gil(software, queue):
    """The GIL is released: otherwise no thread could open the gate."""
    queue.hold()
    array = ad.array(software.array(VALUES, "uint8", queue=queue))
    timer = threading.Timer(0.05, queue.release)
    timer.start()
    array.synchronize()
    timer.join()
    assert array.is_ready()


def test_wait_orders_a_queue(software, queue):
    consumer = software.queue()
    target = software.empty(4)
    with queue.held():
        array = ad.array(software.array(VALUES, "uint8", queue=queue))
        array.wait(consumer)
        consumer.copy(target, array.buffers[1].data_ptr, 4)
        assert not consumer.is_idle()
    consumer.synchronize(10)
    assert software.peek(target) == bytes(VALUES)


def test_missing_wait_is_detected(software, queue):
    consumer = software.queue()
    target = software.empty(4)
    with queue.held():
        array = ad.array(software.array(VALUES, "uint8", queue=queue))
        consumer.copy(target, array.buffers[1].data_ptr, 4)
        consumer.synchronize(10)
    assert software.peek(target) != bytes(VALUES)


@pytest.mark.parametrize(
    ("stream", "error"),
    [(None, TypeError), ("queue", TypeError), (-1, ValueError), (1.5, TypeError)],
)
def test_bad_streams(software, stream, error):
    array = ad.array(software.array(VALUES, "uint8"))
    with pytest.raises(error):
        array.wait(stream)


def test_destroyed_queue(software):
    array = ad.array(software.array(VALUES, "uint8"))
    queue = software.queue()
    handle = queue.handle
    queue.close()
    with queue_held_elsewhere(software) as pending:
        with pytest.raises((ad.DeviceError, ad.ExchangeError)):
            pending.wait(handle)
    with pytest.raises((ad.DeviceError, ad.ExchangeError)):
        array.to("ext_dev:1", stream=handle)


class queue_held_elsewhere:
    """An array whose data are pending."""

    def __init__(self, software):
        self.queue = software.queue()
        self.software = software

    def __enter__(self):
        self.queue.hold()
        return ad.array(self.software.array(VALUES, "uint8", queue=self.queue))

    def __exit__(self, *error):
        self.queue.release()


# --- batches -----------------------------------------------------------------------------------


def test_columns_with_different_events_are_joined(software):
    queues = [software.queue(), software.queue()]
    for queue in queues:
        queue.hold()
    columns = [software.array(VALUES, "uint8", queue=queue) for queue in queues]
    batch = ad.record_batch(columns, names=["a", "b"])
    assert not batch.is_ready()
    queues[0].release()
    queues[0].synchronize(10)
    assert not batch.is_ready()
    queues[1].release()
    batch.synchronize()
    assert batch.to("cpu").to_pylist() == [{"a": v, "b": v} for v in VALUES]


def test_columns_of_different_devices_are_refused(software):
    columns = [ad.array(VALUES_ARRAY, device=f"ext_dev:{i}") for i in (0, 1)]
    with pytest.raises(ad.ExchangeError, match="ext_dev:1") as info:
        ad.record_batch(columns, names=["a", "b"])
    assert info.value.reason == "device"


# --- use_stream --------------------------------------------------------------------------------


def test_use_stream_is_the_default(software, queue):
    device = ad.device("ext_dev:0")
    with queue.held():
        with ad.use_stream(queue) as scope:
            assert scope.device == device
            moved = ad.array(VALUES_ARRAY).to(device)
        other = ad.array(VALUES_ARRAY).to(device)
        assert not moved.is_ready()
        other.synchronize()
        assert not moved.is_ready()
    moved.synchronize()


def test_use_stream_nests_and_is_thread_local(software, queue):
    seen = []

    def elsewhere():
        moved = ad.array(VALUES_ARRAY).to("ext_dev:0")
        moved.synchronize()
        seen.append(moved.is_ready())

    inner = software.queue()
    with queue.held(), ad.use_stream(queue):
        with ad.use_stream(inner.handle, "ext_dev:0"):
            moved = ad.array(VALUES_ARRAY).to("ext_dev:0")
            moved.synchronize()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(30)
        assert not ad.array(VALUES_ARRAY).to("ext_dev:0").is_ready()
    assert seen == [True]


def test_queue_that_its_object_has_dropped(software):
    there = ad.array(VALUES_ARRAY).to("ext_dev:0")
    closed = type("Closed", (), {"__arrowdev_queue__": (ad.DeviceType.EXT_DEV, 0)})()
    for use in (lambda: there.wait(closed), lambda: ad.tensor(there, stream=closed)):
        with pytest.raises(ValueError, match="Closed has no queue any more"):
            use()


def test_use_stream_refuses(software, queue):
    with pytest.raises(ValueError, match="device="):
        ad.use_stream(queue.handle)
    with pytest.raises(TypeError):
        ad.use_stream(None)
    with pytest.raises(ValueError):
        ad.use_stream(-1, "ext_dev:0")
    with pytest.raises(TypeError):
        ad.use_stream("a stream")
    with pytest.raises(ad.ExchangeError):
        ad.use_stream(queue, "ext_dev:1")
    with pytest.raises((ad.DeviceError, ad.ExchangeError)):
        ad.use_stream(12345, "ext_dev:0")
    with pytest.raises(ad.ExchangeError, match="the cpu runtime cannot tell where") as info:
        ad.use_stream(5, "cpu")
    assert (info.value.reason, info.value.device) == ("runtime", ad.device("cpu"))
    with pytest.raises(TypeError):
        type(ad.use_stream(queue))()


def test_use_stream_exits_on_its_own_thread(software, queue):
    scope = ad.use_stream(queue)
    with pytest.raises(RuntimeError, match="not been entered"):
        scope.__exit__(None, None, None)
    errors = []

    def leave():
        try:
            scope.__exit__(None, None, None)
        except RuntimeError as error:
            errors.append(error)

    with scope:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join(30)
    assert "another thread" in str(errors[0])


def current_queue(candidates):
    """Finds which of these queues delays work that names no stream."""
    found = []
    for name, candidate in candidates.items():
        candidate.synchronize()
        with candidate.held():
            ad.array(VALUES_ARRAY).to("ext_dev:0")
            if not candidate.is_idle():
                found.append(name)
    return found


def test_use_stream_is_local_to_asyncio_task(software):
    queues = {"a": software.queue(), "b": software.queue()}
    seen = {}

    async def child(name):
        seen[name] = current_queue(queues)

    async def task(name, seconds):
        with ad.use_stream(queues[name]):
            await asyncio.sleep(seconds)
            seen[name] = current_queue(queues)
            await asyncio.gather(child(f"child of {name}"))
            await asyncio.sleep(0.02)
            seen[f"{name} at the end"] = current_queue(queues)
        seen[f"{name} after"] = current_queue(queues)

    async def main():
        await asyncio.gather(task("a", 0.01), task("b", 0.02))
        seen["main"] = current_queue(queues)

    asyncio.run(main())
    assert seen == {
        **{name: ["a"] for name in ("a", "child of a", "a at the end")},
        **{name: ["b"] for name in ("b", "child of b", "b at the end")},
        **{name: [] for name in ("a after", "b after", "main")},
    }


def test_task_that_outlives_the_block_keeps_its_stream(software):
    """It began inside, and the block of its maker ends without it."""
    queues = {"a": software.queue()}
    left, seen = asyncio.Event(), []

    async def task():
        await left.wait()
        seen.append(current_queue(queues))

    async def main():
        with ad.use_stream(queues["a"]):
            made = asyncio.create_task(task())
            await asyncio.sleep(0)
        seen.append(current_queue(queues))
        left.set()
        await made

    asyncio.run(main())
    assert seen == [[], ["a"]]


def test_use_stream_exits_innermost_first(software):
    queues = {"a": software.queue(), "b": software.queue()}
    outer, inner = ad.use_stream(queues["a"]), ad.use_stream(queues["b"])
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="reverse order"):
        outer.__exit__(None, None, None)
    assert current_queue(queues) == ["b"]
    inner.__exit__(None, None, None)
    assert current_queue(queues) == []
    with pytest.raises(RuntimeError, match="not been entered"):
        inner.__exit__(None, None, None)


def test_use_stream_of_two_devices_ends_in_any_order(software):
    queues = {"here": software.queue(0)}
    here, there = ad.use_stream(queues["here"]), ad.use_stream(software.queue(1))
    with here:
        there.__enter__()
    assert current_queue(queues) == []
    there.__exit__(None, None, None)


def test_use_stream_keeps_the_queue_object(software):
    scope = ad.use_stream(software.queue())
    gc.collect()
    with scope:
        assert ad.array(VALUES_ARRAY).to("ext_dev:0").to("cpu").to_pylist() == VALUES


def test_host_protocols_refuse_device_memory(software):
    there = ad.array(VALUES_ARRAY).to("ext_dev:0")
    assert "buffer protocol" in ad.protocols(ad.array(VALUES_ARRAY))
    for obj in (there, ad.tensor(there), there.buffers[1]):
        assert "buffer protocol" not in ad.protocols(obj)


def test_empty_keeps_the_current_queue_object(software):
    """The memory is freed on the queue, which must still exist then."""

    class Queue:
        def __init__(self):
            self.queue = software.queue()

        @property
        def __arrowdev_queue__(self):
            return self.queue.__arrowdev_queue__

    queue = Queue()
    gone = weakref.ref(queue)
    with ad.use_stream(queue):
        memory = ad.device("ext_dev:0").empty(64)
    del queue
    gc.collect()
    assert gone() is not None
    del memory
    gc.collect()
    assert gone() is None


# --- refusals and their messages ----------------------------------------------------------------


@pytest.mark.parametrize("stream", [2**63, 2**64, -5, -(2**70)])
def test_invalid_stream_numbers(software, stream):
    column = ad.array(software.array([1, 2, 3]))
    for use in (
        column.wait,
        lambda stream: ad.array(column, stream=stream),
        lambda stream: ad.use_stream(stream, "ext_dev:0"),
        lambda stream: ad.tensor(column).__dlpack__(stream=stream),
    ):
        with pytest.raises(ValueError, match="stream must be"):
            use(stream)


def test_numpy_integers_are_streams(software, queue):
    column = ad.array(software.array([1, 2, 3]))
    with queue.held():
        column.wait(np.int64(queue.handle))
        with ad.use_stream(np.uint64(queue.handle), "ext_dev:0"):
            assert not ad.array(VALUES_ARRAY).to("ext_dev:0").is_ready()
    assert ad.array(software.array([1]), stream=np.int64(-1)).is_ready()
    with pytest.raises(ValueError, match="device="):
        ad.use_stream(np.int64(queue.handle))
    for stream in (True, np.True_, np.array([queue.handle])):
        with pytest.raises(TypeError, match="stream must be"):
            column.wait(stream)


def test_handle_out_of_range_error_names_argument(software):
    class Holder:
        __arrowdev_queue__ = (12, 2**64)

    with pytest.raises(ValueError, match="handle of a stream"):
        ad.use_stream(Holder())


def test_only_queues_of_pyopencl_are_queues():
    context = type("Context", (), {"__module__": "pyopencl._cl", "int_ptr": 4096})()
    with pytest.raises(TypeError, match="not Context"):
        ad.use_stream(context, "opencl:0")


def test_size_and_offset_errors_name_argument():
    for offset in (-8, 2**64):
        with pytest.raises(ValueError, match="byte_offset"):
            ad.Tensor.from_pointer(16, (1,), "int8", "cpu", byte_offset=offset)
    with pytest.raises(TypeError, match="nbytes"):
        ad.device("cpu").empty(True)


def test_missing_device_error_says_so(software):
    column = ad.array(software.array([1]))
    for use in (
        lambda: column.to("ext_dev:99"),
        ad.device("ext_dev:99").synchronize,
        lambda: ad.device("ext_dev:99").empty(8),
    ):
        with pytest.raises(ad.ExchangeError, match="ext_dev:99 is not there: soft") as info:
            use()
        assert "devices()" in info.value.hint
    for use in (
        lambda: ad.array(VALUES_ARRAY).to((1, 5)),
        ad.device((1, 5)).synchronize,
        lambda: ad.device((1, 5)).empty(8),
    ):
        with pytest.raises(ad.ExchangeError, match="there is one cpu, whose id is -1 or 0"):
            use()
    assert ad.array(VALUES_ARRAY).to((1, -1)).to((1, 0)).to_pylist() == VALUES


def test_host_read_error_names_call_and_remedy(software):
    column = ad.array(software.array([1, 2, 3]))
    for what, use in {
        "to_pylist()": column.to_pylist,
        "a value of an Array": lambda: column[0],
        "an iteration over an Array": lambda: np.asarray(column),
    }.items():
        with pytest.raises(ad.ExchangeError) as info:
            use()
        assert str(info.value).startswith(f"{what} needs host memory")
        assert '.to("cpu")' in info.value.hint
    with pytest.raises(ad.ExchangeError, match="an iteration over an Array"):
        list(column)
