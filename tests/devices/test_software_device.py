"""The software device: its own promises. test_software_arrowdev.py tests arrowdev on it.

tests/c/test_software.c tests the engine with several threads.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from arrow_ctypes import ArrayNode, OnDevice, SchemaNode, Tree
from lifetimes import settled
from waiting import Call, wait_until

import arrowdev as ad
from arrowdev import testing
from arrowdev.testing import SoftwareDevice, _races, software_device

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the software device needs Linux"
)

# Pattern of 8 bytes of fresh memory.
UNWRITTEN = -0x3232323232323233


def run_isolated(code):
    """A script in its own process, which has a time limit."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(ad.__file__).parent.parent,
    )


# --- the device itself -------------------------------------------------------------------------


def died_of_a_fault(done):
    """The process died by a signal, or a sanitizer caught the fault first."""
    return done.returncode == -signal.SIGSEGV or "AddressSanitizer: SEGV" in done.stderr


class TestMemory:
    def test_host_cannot_read_it(self):
        done = run_isolated("""
            import ctypes
            from arrowdev.testing import software_device
            with software_device() as device:
                memory = device.from_host(b"data")
                assert device.peek(memory) == b"data"
                pinned = device.empty(8, kind="pinned")
                ctypes.memset(pinned.address, 1, 8)
                print("still here", flush=True)
                ctypes.string_at(memory.address, 4)
                print("never here")
        """)
        assert died_of_a_fault(done)
        assert done.stdout == "still here\n"

    def test_host_cannot_read_an_array_of_it(self):
        done = run_isolated("""
            import ctypes, arrowdev as ad
            from arrowdev.testing import software_device
            with software_device() as device:
                array = ad.array(device.array([1, 2, 3]))
                array.synchronize()
                print(array.buffers[1].nbytes, flush=True)
                ctypes.string_at(array.buffers[1].data_ptr, 8)
        """)
        assert died_of_a_fault(done)
        assert done.stdout == "24\n"

    def test_fresh_memory_has_a_pattern(self, device):
        assert device.peek(device.empty(16)) == b"\xcd" * 16

    def test_kinds(self, device):
        for kind in ("device", "pinned", "managed"):
            memory = device.empty(10, 1, kind=kind)
            assert device.kind_of(memory.address + 9) == kind
            assert device.kind_of(memory.address + 10) is None
            assert memory.device == (testing.EXT_DEV, 1)
        with pytest.raises(ValueError, match="must be one of device, pinned, managed, not 'host'"):
            device.empty(10, kind="host")

    def test_freed_memory_is_unknown(self, device):
        memory = device.empty(10)
        address = memory.address
        memory.free()
        memory.free()
        assert device.kind_of(address) is None
        with pytest.raises(ValueError, match="not live memory"):
            device.peek(address, 1)
        with pytest.raises(ad.DeviceError, match="INVALID_POINTER"):
            device.queue().fill(address, 0, 1)

    def test_memory_that_was_not_freed_can_be_freed(self, device):
        queue, memory = device.queue(), device.empty(10)
        before, address = device.live(), memory.address
        queue.close()
        with pytest.raises(ad.DeviceError, match="INVALID_QUEUE"):
            memory.free(queue)
        assert memory.address == address
        with pytest.raises(AttributeError):
            memory.free(5)
        assert memory.address == address
        memory.free()
        assert device.live().allocations == before.allocations - 1

    def test_use_after_free_is_found_when_work_runs(self, device):
        queue, memory = device.queue(), device.empty(10)
        with queue.held():
            queue.fill(memory, 1)
            memory.free()
        with pytest.raises(ad.DeviceError, match="SOFTWARE_ERROR_ILLEGAL_ADDRESS") as caught:
            queue.synchronize()
        assert "did not wait" in str(caught.value)
        device.reset()
        queue.synchronize()

    @pytest.mark.parametrize("kind", ["device", "managed"])
    def test_memory_is_freed_while_work_on_it_runs(self, device, kind):
        """The work that runs ends first. What comes later finds no memory."""
        queue = device.queue()
        for milliseconds in range(5):
            memory = device.empty(1 << 24, kind=kind)
            queue.fill(memory, 1)
            time.sleep(milliseconds / 1000)
            memory.free()
            assert device.kind_of(memory.address) is None
        with contextlib.suppress(ad.DeviceError):  # one had not begun
            queue.synchronize()
        device.reset()

    @pytest.mark.parametrize("races", [False, True])
    def test_memory_is_freed_although_a_queue_that_used_it_is_closed(self, races):
        with software_device(races=races) as device:
            busy, closed, memory = device.queue(), device.queue(), device.empty(10)
            address = memory.address
            before = device.live()
            closed.fill(memory, 1)
            closed.synchronize()
            with busy.held():
                busy.fill(memory, 1)
                closed.close()
                del memory
                assert device.kind_of(address) is None
                assert device.live().allocations == before.allocations  # the busy queue uses it
            device.synchronize()  # and no work failed
            after = device.live()
            assert after.allocations == before.allocations - 1
            assert after.queues == before.queues - 1

    def test_memory_limit(self, device):
        settled(device)
        device.set_memory_limit(1 << 30)
        others = (1 << 30) - device.memory_left()
        device.set_memory_limit(1000 + others)
        memory = device.empty(600)
        assert device.memory_left() == 400
        with pytest.raises(MemoryError, match="SOFTWARE_ERROR_OUT_OF_MEMORY"):
            device.empty(401)
        device.empty(401, 1)
        memory.free()
        device.empty(1000)

    @pytest.mark.parametrize("races", [False, True])
    def test_memory_stays_until_the_work_of_a_closed_queue_is_done(self, races):
        with software_device(races=races) as device:
            queue, other = device.queue(), device.queue()
            memory, target = device.empty(4), device.empty(4)
            queue.delay = 0.05
            queue.fill(memory, 7)
            queue.copy(target, memory)
            event = queue.record()
            queue.close()
            address = memory.address
            del memory
            assert device.kind_of(address) is None
            event.synchronize()
            assert other.read(target) == b"\7" * 4

    @pytest.mark.parametrize("races", [False, True])
    def test_array_stays_until_the_work_of_a_closed_queue_is_done(self, races):
        with software_device(races=races) as device:
            queue = device.queue()
            queue.delay = 0.05
            array = ad.array(device.array([1, 2, 3], queue=queue))
            queue.close()
            del array

    def test_bytes_are_read_while_the_queue_is_closed(self, device):
        """The work that writes them is waited for."""
        queue, event = device.queue(), device.event()
        memory, column = device.empty(1 << 16), ad.array(device.array([1, 2]))
        device.synchronize()
        event.arm()
        queue.wait(event)
        queue.fill(memory, 1)
        reading = Call(lambda: queue.read(memory))
        host = Call(lambda: device.to_host(column, queue=queue))
        wait_until(lambda: device.live().pending == 4)  # a wait, a fill and two copies
        queue.close()
        time.sleep(0.1)
        assert reading.is_running() and host.is_running()
        event.fire()
        for call in (reading, host):
            with contextlib.suppress(ad.DeviceError):  # the queue is gone
                call.result()


class TestQueues:
    def test_steps_of_two_threads_are_two_operations(self, device):
        queue, memory = device.queue(), device.empty(1 << 20)
        queue.hold()
        for _ in range(50):
            queue.fill(memory, 1)
            calls = [Call(queue.step) for _ in range(2)]
            assert sorted(call.result() for call in calls) in ([False, True], [True, True])
            while queue.step():
                pass
            queue.fill(memory, 2)
            time.sleep(0.001)
            assert device.peek(memory, 1) == b"\1"
            assert queue.step()

    def test_held_queue_does_one_operation(self, device):
        queue, memory = device.queue(), device.empty(1)
        with queue.held():
            for value in (1, 2):
                queue.fill(memory, value)
            for value in (1, 2):
                assert queue.step()
                assert device.peek(memory) == bytes([value])
            assert not queue.step()
        with pytest.raises(ad.DeviceError):  # its gate is open
            queue.step()
        with pytest.raises(ad.DeviceError):
            queue.release()

    def test_held_queue_runs_no_work(self, device):
        queue, memory = device.queue(), device.from_host(bytes(4))
        with queue.held():
            queue.fill(memory, 7)
            event = queue.record()
            assert not queue.is_idle() and not event.is_ready()
            assert device.peek(memory) == bytes(4)
            with pytest.raises(ad.DeviceError, match="SOFTWARE_ERROR_TIMEOUT"):
                queue.synchronize(timeout=0.01)
        event.synchronize()
        assert queue.is_idle()
        assert device.peek(memory) == b"\7" * 4

    def test_delay(self, device):
        queue, memory = device.queue(), device.empty(4)
        queue.delay = 0.05
        assert queue.delay == 0.05
        begin = time.monotonic()
        queue.fill(memory, 7)
        queue.fill(memory, 8)
        assert queue.read(memory) == b"\10" * 4
        assert time.monotonic() - begin > 0.15

    def test_order_between_queues(self, device):
        first, second, third = device.queue(0), device.queue(1), device.queue(0)
        one, two = device.empty(4, 0), device.empty(4, 1)
        with first.held():
            first.write(one, b"abcd")
            event = first.record()
            second.wait(event)
            event.close()
            second.copy(two, one)
            third.wait(second)
            third.fill(one, 0)
            assert device.peek(two) == b"\xcd" * 4
        assert third.read(one) == bytes(4)
        assert second.read(two) == b"abcd"

    def test_without_wait_old_data_are_read(self, device):
        first, second = device.queue(), device.queue()
        one, two = device.empty(4), device.empty(4)
        with first.held():
            first.write(one, b"abcd")
            second.copy(two, one)
            assert second.read(two) == b"\xcd" * 4

    def test_explicit_events(self, device):
        event, queue, memory = device.event(), device.queue(), device.empty(4)
        assert event.is_ready()
        event.arm()
        queue.wait(event)
        queue.fill(memory, 1)
        assert not event.is_ready() and not queue.is_idle()
        event.fire()
        assert queue.read(memory) == b"\1" * 4

    def test_stale_handles(self, device):
        queue, event = device.queue(), device.event()
        stale = queue.handle
        queue.close()
        queue.close()
        with pytest.raises(ad.DeviceError, match="SOFTWARE_ERROR_INVALID_QUEUE"):
            event.record(queue)
        queue.handle = stale
        with pytest.raises(ad.DeviceError, match="SOFTWARE_ERROR_INVALID_QUEUE"):
            queue.synchronize()
        queue.handle = 0
        event.close()
        with pytest.raises(ad.DeviceError, match="SOFTWARE_ERROR_INVALID_EVENT"):
            event.is_ready()
        with pytest.raises(ad.DeviceError, match="SOFTWARE_ERROR_INVALID_DEVICE"):
            device.queue(99)

    def test_waiting_lets_other_threads_run(self, device):
        queue, memory = device.queue(), device.empty(4)
        queue.hold()
        queue.fill(memory, 1)
        thread = threading.Timer(0.05, queue.release)
        thread.start()
        queue.synchronize(timeout=20)
        thread.join(20)


class TestBlock:
    def test_devices_exist_inside_the_block(self):
        def shown():
            return [str(device) for device in ad.devices() if device.type == testing.EXT_DEV]

        assert shown() == []
        with software_device(3):
            assert shown() == ["ext_dev:0", "ext_dev:1", "ext_dev:2"]
            with pytest.raises(RuntimeError, match="there is a software device already"):
                software_device().__enter__()
        assert shown() == []

    def test_work_is_done_at_the_end_of_the_block(self):
        with software_device() as device:
            queue, memory = device.queue(), device.empty(4)
            queue.hold()
            queue.hold()
            queue.delay = 3600
            event = queue.record()
            event.arm()
            queue.wait(event)
            queue.fill(memory, 1)
        with software_device() as device:
            assert device.peek(memory) == b"\1" * 4

    @pytest.mark.parametrize("is_closed", [False, True])
    def test_failed_work_raises_at_the_end(self, is_closed):
        with pytest.raises(ad.DeviceError, match="ILLEGAL_ADDRESS"):
            with software_device() as device:
                queue, memory = device.queue(), device.empty(4)
                with queue.held():
                    queue.fill(memory, 1)
                    memory.free()
                if is_closed:
                    queue.close()
        with software_device() as device:
            device.synchronize()

    def test_error_of_the_block_takes_precedence(self):
        with pytest.raises(ZeroDivisionError):
            with software_device() as device:
                queue, memory = device.queue(), device.empty(4)
                with queue.held():
                    queue.fill(memory, 1)
                    memory.free()
                1 / 0

    def test_arrays_outlive_it(self):
        with software_device() as device:
            before = settled(device)
            array = ad.array(device.array([1, 2, 3]))
        assert array.to("cpu").to_pylist() == [1, 2, 3]
        del array
        with software_device() as device:
            assert settled(device).allocations == before.allocations

    def test_array_is_released_after_a_read_that_took_too_long(self):
        with software_device(timeout=0.1) as device:
            before = settled(device)
            queue = device.queue()
            with queue.held():
                with pytest.raises(ad.DeviceError, match="TIMEOUT"):
                    device.to_host(device.array(["a", None, "bc"]), queue=queue)
                assert device.live().allocations > before.allocations
            wait_until(lambda: settled(device)[1:3] == before[1:3])

    def test_block_leaves_no_state(self):
        with software_device() as device:
            before = settled(device)
            device.to_host(device.array([1, None]))
            device.queue()
            device.event()
        with software_device() as device:
            assert settled(device)[:5] == before[:5]


class TestEndOfTheBlock:
    """The block ends, whatever is raised meanwhile and whatever other threads do."""

    @pytest.fixture(autouse=True)
    def another_block_can_begin(self):
        yield
        was_left = SoftwareDevice._current is not None
        SoftwareDevice._current = None  # so that one failure is all
        assert not was_left

    @pytest.mark.parametrize("races", [False, True])
    def test_interruption_at_each_call(self, races, monkeypatch):
        for n in itertools.count(1):
            device = software_device(1, timeout=20, races=races).__enter__()
            n_queues = device.live().queues
            queues, memory = [device.queue() for _ in range(3)], device.empty(4)
            event = device.event()
            queues[0].hold()
            event.arm()
            queues[1].wait(event)
            for queue in queues:
                queue.fill(memory, 1)
            is_interrupted = interrupted_at_call(
                n, partial(device.__exit__, KeyError, KeyError(), None)
            )
            assert SoftwareDevice._current is None, n
            assert [queue.handle for queue in queues] == [0, 0, 0], n
            with software_device(1, races=False) as after:
                after.synchronize()
                assert after.peek(memory) == b"\1" * 4, n
                assert after.live().queues == n_queues, n
                asked = []
                with monkeypatch.context() as patch:
                    patch.setattr(_races._trace, "user_frame", asked.append)
                    after.queue().fill(memory, 1)
                assert not asked, n
            if not is_interrupted:
                break
        assert n > 20

    def test_warning_that_is_raised(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="may have been missed"):
                with software_device(races=True) as device:
                    memory, queue = device.empty(5000), device.queue()
                    for i in range(4097):
                        queue.fill(memory.address + i, 1, 1)

    def test_holds_that_another_thread_has_ended(self):
        with software_device() as device:
            queue, memory = device.queue(), device.empty(4)
            queue.hold()
            testing._engine.call("queue_release", queue.handle)
            queue.fill(memory, 1)
        assert queue.handle == 0

    def test_holds_that_are_not_counted_yet(self):
        with software_device(timeout=1) as device:
            queue, memory = device.queue(), device.empty(4)
            testing._engine.call("queue_hold", queue.handle)
            queue.fill(memory, 1)
        with software_device() as device:
            assert device.peek(memory) == b"\1" * 4

    def test_queue_that_another_thread_has_closed(self):
        with software_device() as device:
            queue = device.queue()
            testing._engine.call("queue_destroy", queue.handle)

    def test_events_of_another_thread(self):
        """They are made while the end looks for the armed ones."""
        is_over = threading.Event()

        def make_events(device):
            while not is_over.is_set():
                kept = [device.event() for _ in range(100)]
                kept[0].arm()
                with contextlib.suppress(ad.DeviceError):  # the end has fired it
                    kept[0].fire()

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(20):
                with software_device() as device:
                    kept = [device.event() for _ in range(300)]
                    thread = threading.Thread(target=make_events, args=[device])
                    is_over.clear()
                    thread.start()
                is_over.set()
                thread.join()
                del kept
        finally:
            is_over.set()
            sys.setswitchinterval(interval)

    def test_reset_ends_what_holds_a_queue(self):
        with software_device() as device:
            queue, memory = device.queue(), device.empty(4)
            with queue.held():
                queue.fill(memory, 1)
                device.reset()
                queue.synchronize()
            with pytest.raises(ad.DeviceError, match="INVALID_VALUE"):
                with queue.held():
                    queue.release()


def interrupted_at_call(n, function):
    """Whether KeyboardInterrupt, raised where CPython would run the handler of a signal, ended
    the function: where the n-th function of arrowdev.testing begins, or a call of C has returned.
    """
    folder, n_calls = os.path.dirname(testing.__file__), 0

    def profile(frame, event, _):
        nonlocal n_calls
        is_first = frame.f_code is SoftwareDevice.__exit__.__code__ and event == "call"
        if event in ("call", "c_return") and not is_first:
            n_calls += frame.f_code.co_filename.startswith(folder)
            if n_calls == n:
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return n_calls >= n


class TestProcesses:
    def test_exit_with_pending_work(self):
        done = run_isolated("""
            import arrowdev as ad
            from arrowdev.testing import software_device
            device = software_device().__enter__()
            held, late, waiting = (device.queue() for _ in range(3))
            held.hold()
            late.delay = 3600
            arrays = [ad.array(device.array([1, 2], queue=queue)) for queue in (held, late)]
            event = held.record()
            waiting.wait(event)
            memory = device.empty(10)
            for queue in (held, late, waiting):
                queue.fill(memory, 1)
            print("end")
        """)
        assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_forked_child_is_refused(self):
        done = run_isolated("""
            import os, signal, warnings
            import arrowdev as ad
            from arrowdev.testing import software_device
            warnings.simplefilter("ignore")
            with software_device() as device:
                queue = device.queue()
                queue.hold()
                memory = device.empty(4)
                queue.fill(memory, 1)
                array = ad.array(device.array([1, 2], queue=queue))
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                    allocate, fill = lambda: device.empty(4), lambda: queue.fill(memory, 1)
                    calls = queue.synchronize, queue.record, allocate, fill, device.__enter__
                    for refused in calls:
                        try:
                            refused()
                        except (ad.DeviceError, RuntimeError):
                            continue
                        os._exit(1)
                    for refused in (array.synchronize, lambda: array.to("cpu")):
                        try:
                            refused()
                        except ad.ExchangeError as error:
                            assert "forked" in str(error)
                            continue
                        os._exit(2)
                    del array, memory, queue
                    os._exit(0)
                _, status = os.waitpid(child, 0)
                assert status == 0, status
                queue.release()
                assert device.to_host(array).to_pylist() == [1, 2]
                del array
            print("end")
        """)
        assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")

    def test_without_it_ext_dev_has_no_runtime(self):
        done = run_isolated("""
            import arrowdev as ad
            assert not [device for device in ad.devices() if device.type == 12]
            tensor = ad.Tensor.from_pointer(4096, (3,), "int32", ("ext_dev:0"))
            assert tensor.__dlpack_device__() == (12, 0)
            try:
                tensor.to("cpu")
            except ad.ExchangeError as error:
                assert "no runtime for it" in str(error), error
            else:
                raise AssertionError
        """)
        assert done.returncode == 0, done.stderr


# --- its producer and its consumer -------------------------------------------------------------


class TestProducerAndConsumer:
    @pytest.mark.parametrize(
        ("values", "type"),
        [
            ([1, None, 3], None),
            ([1, 2, 3], "int8"),
            ([1, None, 3], "uint32"),
            ([1.5, None, 3], None),
            ([1.5, 2.5], "float32"),
            ([True, None, False] * 5, None),
            (["a", None, "", "bcd"], None),
            ([], None),
            ([None, None], None),
        ],
    )
    def test_lists(self, device, values, type):
        read = device.to_host(device.array(values, type))
        assert read.to_pylist() == values
        if type is not None:
            assert read.schema == ad.schema(type)

    def test_invalid_lists(self, device):
        with pytest.raises(TypeError, match="a list of int, str is no column"):
            device.array([1, "a"])
        with pytest.raises(TypeError, match="cannot be made a column of type utf8"):
            device.array([1, 2], "utf8")

    def test_nested_and_dictionary(self, device):
        pa = pytest.importorskip("pyarrow")
        array = pa.array(
            [{"a": [1, 2], "b": "x"}, None, {"a": None, "b": "y"}],
            pa.struct([("a", pa.list_(pa.int16())), ("b", pa.dictionary(pa.int8(), pa.utf8()))]),
        )
        read = device.to_host(device.array(array))
        assert pa.array(read) == array
        assert pa.array(device.to_host(device.array(array.slice(1, 2)))) == array.slice(1, 2)
        views = pa.array(["short", "long enough to be outside", None], pa.string_view())
        assert pa.array(device.to_host(device.array(views))) == views

    def test_missing_wait_reads_old_data(self, device):
        producer = device.array([1, 2, 3], queue=device.queue())
        with producer.queue.held():
            read = device.to_host(producer, wait=False)
        assert read.to_pylist() == [UNWRITTEN] * 3
        assert device.to_host(producer).to_pylist() == [1, 2, 3]

    def test_without_event_the_data_are_ready(self, device):
        producer = device.array([1, 2], queue=device.queue(), with_event=False)
        assert device.to_host(producer, wait=False).to_pylist() == [1, 2]

    def test_producer_is_on_the_device_of_its_queue(self, device):
        producer = device.array([1, 2], queue=device.queue(1))
        assert ad.array(producer).device == ad.device("ext_dev:1")
        assert device.to_host(producer, queue=device.queue(1)).to_pylist() == [1, 2]

    def test_each_export_is_a_new_array(self, device):
        producer = device.array([1, 2])
        first, second = ad.array(producer), ad.array(producer)
        assert first.buffers[1].data_ptr != second.buffers[1].data_ptr
        assert first.sync_event != second.sync_event
        with pytest.raises(NotImplementedError, match="colour"):
            producer.__arrow_c_device_array__(colour="red")

    def test_early_release_by_consumer_is_detected(self, device):
        """Its kernel still reads when the producer's queue frees the memory."""
        producer, queue, target = device.queue(), device.queue(), device.empty(24)
        array = ad.array(device.array([1, 2, 3], queue=producer))
        with queue.held():
            queue.copy(target, array.buffers[1].data_ptr, 24)
            del array
            producer.synchronize()
        with pytest.raises(ad.DeviceError, match="ILLEGAL_ADDRESS"):
            queue.synchronize()
        device.reset()

    def test_consumer_checks_its_input(self, device):
        memory, event = device.empty(64), device.event()

        def read(device_id=0, data=memory.address, sync_event=event.address, reserved=0):
            place = (testing.EXT_DEV, device_id)
            array = ArrayNode(1, [None, data])
            tree = Tree(SchemaNode("l"), array, device=place, event=sync_event)
            tree.device.reserved[0] = reserved
            return device.to_host(OnDevice(tree))

        assert len(read()) == 1
        with pytest.raises(ad.InvalidArrowError, match="is on ext_dev:0, and device_id says 1"):
            read(device_id=1)
        with pytest.raises(
            ad.InvalidArrowError, match=r"device \(12, 5\), which is not a software"
        ):
            read(device_id=5)
        with pytest.raises(
            ad.InvalidArrowError, match=r"sync_event .* is not the address of a live"
        ):
            read(sync_event=event.address + 1)
        with pytest.raises(ad.InvalidArrowError, match="not live memory of the software device"):
            read(data=4096)
        with pytest.raises(ad.InvalidArrowError, match=r"reserved\[0\] is 1, expected 0"):
            read(reserved=1)

    def test_consumer_checks_its_capsule(self, device):
        schema, array = device.array([1]).__arrow_c_device_array__()

        def read(capsule):
            return device.to_host(
                SimpleNamespace(__arrow_c_device_array__=lambda: (schema, capsule))
            )

        assert read(array).to_pylist() == [1]
        with pytest.raises(ad.InvalidArrowError, match="the array is released"):
            read(array)
        for wrong, found in ((schema, "PyCapsule"), (None, "NoneType")):
            with pytest.raises(ad.InvalidArrowError, match=f"gave a {found}, expected a capsule"):
                read(wrong)
