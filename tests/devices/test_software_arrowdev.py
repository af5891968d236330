"""The software device: arrowdev's promises on it."""

import gc
import os
import struct
import sys
import time
import warnings
from functools import partial

import pytest
from arrow_ctypes import ArrayNode, OnDevice, SchemaNode, Tree
from lifetimes import settled

import arrowdev as ad
from arrowdev import testing
from arrowdev.testing import SoftwareDevice, software_device

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the software device needs Linux"
)


class TestArrowdev:
    def test_import_keeps_the_event(self, device):
        queue = device.queue()
        with queue.held():
            array = ad.array(device.array([1, 2, 3], queue=queue))
            assert array.device == ad.device("ext_dev:0")
            assert array.sync_event is not None
            assert not array.is_ready()
            # export again
            other = ad.array(array)
            assert other.sync_event == array.sync_event
            assert array[1:].sync_event == array.sync_event
        array.synchronize()
        assert array.is_ready()

    def test_named_queue_waits_on_import(self, device):
        producer, consumer = device.queue(), device.queue()
        target = device.empty(24)
        with producer.held():
            array = ad.array(device.array([1, 2, 3], queue=producer), stream=consumer)
            consumer.copy(target, array.buffers[1].data_ptr, 24)
            assert not consumer.is_idle()
            assert device.peek(target) == b"\xcd" * 24
        assert ad.tensor(consumer.read(target)).nbytes == 24
        assert consumer.read(target)[:8] == (1).to_bytes(8, "little")

    def test_wait(self, device):
        producer, consumer = device.queue(), device.queue()
        with producer.held():
            array = ad.array(device.array([1, 2], queue=producer))
            array.wait(consumer)
            event = consumer.record()
            assert not event.is_ready()
        event.synchronize()
        assert array.is_ready()

    def test_queue_of_another_device_is_refused(self, device):
        array = ad.array(device.array([1, 2], queue=device.queue(0)))
        with pytest.raises(ad.ExchangeError, match="ext_dev:1"):
            array.to("cpu", stream=device.queue(1))

    def test_to_host_and_back(self, device):
        for values in ([1, None, 3], ["a", None, "bcd"], [True, False, None] * 11):
            queue = device.queue()
            producer = device.array(values, queue=queue)
            queue.delay = 0.01
            array = ad.array(producer)
            assert array.to("cpu").to_pylist() == values
            moved = array.to("ext_dev:1")
            assert moved.device == ad.device("ext_dev:1")
            assert device.kind_of(moved.buffers[1].data_ptr) == "device"
            assert device.to_host(moved, queue=device.queue(1)).to_pylist() == values

    def test_memory_is_not_reused_while_a_queue_reads(self, device):
        """The producer's release comes after the consumer's work."""
        producer, consumer = device.queue(), device.queue()
        array = ad.array(device.array([1, 2, 3], queue=producer), stream=consumer)
        target, address = device.empty(24), array.buffers[1].data_ptr
        consumer.hold()
        consumer.copy(target, address, 24)
        del array
        producer.synchronize()
        assert device.kind_of(address) == "device"
        consumer.release()
        assert consumer.read(target)[16:] == (3).to_bytes(8, "little")
        consumer.synchronize()
        # Deferred releases return their memory with one of the next calls.
        deadline = time.monotonic() + 20
        while device.kind_of(address) is not None and time.monotonic() < deadline:
            ad.array(device.array([1])).synchronize()
        assert device.kind_of(address) is None

    def test_own_memory_is_not_reused_while_a_queue_reads(self, device):
        """Where the producer's queue is arrowdev's, that queue waits, and the host does not."""
        before = settled(device)
        moved = ad.array(device.array([1, 2, 3])).to("ext_dev:1")
        consumer, target = device.queue(1), device.empty(24, 1)
        moved.wait(consumer)
        address = moved.buffers[1].data_ptr
        with consumer.held():
            consumer.copy(target, address, 24)
            del moved
        assert consumer.read(target)[8:16] == (2).to_bytes(8, "little")
        assert settled(device).allocations == before.allocations + 1  # target

    def test_columns_of_several_queues(self, device):
        first, second, consumer = (device.queue() for _ in range(3))
        first.hold()
        second.hold()
        columns = {
            "a": ad.array(device.array([1, 2], queue=first)),
            "b": ad.array(device.array(["x", None], queue=second)),
        }
        batch = ad.record_batch(columns)
        batch.wait(consumer)
        event = consumer.record()
        first.release()
        assert not batch.is_ready() and not event.is_ready()
        second.release()
        event.synchronize()
        assert batch.is_ready()
        read = device.to_host(batch, queue=consumer).to_pylist()
        assert read == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]

    def test_current_queue_of_the_thread(self, device):
        producer, consumer = device.queue(0), device.queue(1)
        with producer.held(), ad.use_stream(consumer):
            array = ad.array(device.array([1, 2], queue=producer))
            assert consumer.is_idle()
            moved = array.to("ext_dev:1")
            assert not consumer.is_idle() and not moved.is_ready()
        assert device.to_host(moved, queue=consumer).to_pylist() == [1, 2]

    def test_dlpack_makes_the_consumers_queue_wait(self, device):
        before = settled(device)
        producer, consumer = device.queue(), device.queue()
        with producer.held():
            tensor = ad.tensor(ad.array(device.array([1.5, 2.5], queue=producer)))
            capsule = tensor.__dlpack__(stream=consumer, max_version=(1, 0))
            event = consumer.record()
            assert not event.is_ready()
        event.synchronize()
        del capsule, tensor
        assert settled(device).allocations == before.allocations

    def test_bits_are_unpacked_by_a_kernel(self, device):
        values = [True, False, True, True] * 5
        queue = device.queue()
        with queue.held():
            tensor = ad.tensor(ad.array(device.array(values, queue=queue)))
            assert tensor.device == ad.device("ext_dev:0")
        assert ad.array(tensor.to("cpu")).to_pylist() == [int(value) for value in values]
        array = ad.array(device.array([1, None, None]))
        assert array.count_nulls() == 2

    @pytest.mark.parametrize("device_id", [0, 7])
    def test_foreign_ext_dev_passes_untouched(self, device, device_id):
        """Neither the pointer nor the event of a foreign device of this type is arrowdev's."""
        place, event = (testing.EXT_DEV, device_id), 4096 + 64
        tree = Tree(SchemaNode("l"), ArrayNode(3, [None, 4096]), device=place, event=event)
        array = ad.array(OnDevice(tree))
        assert str(array.device) == f"ext_dev:{device_id}"
        assert array.buffers[1].data_ptr == 4096
        other = ad.array(array[1:])
        assert other.sync_event == event
        for ask in (array.is_ready, array.synchronize, partial(array.to, "cpu")):
            with pytest.raises(ad.ExchangeError):
                ask()
        with pytest.raises(ad.ExchangeError):
            array.wait(device.queue())
        del array, other, ask
        gc.collect()
        assert tree.released == (1, 1)

    def test_foreign_ext_dev_without_event(self, device):
        tree = Tree(SchemaNode("l"), ArrayNode(3, [None, 4096]), device=(testing.EXT_DEV, 0))
        array = ad.array(OnDevice(tree))
        assert array.is_ready()
        with pytest.raises((ad.ExchangeError, ad.DeviceError)):
            array.to("cpu")

    def test_calls_are_logged(self, device):
        ad.array(device.array([1, 2])).to("cpu")
        assert "copy" in device.calls

    def test_nothing_leaks(self, device):
        def run():
            array = ad.array(device.array([1, None, 3], queue=queue), stream=other)
            array.wait(other)
            assert array[1:].to("cpu").to_pylist() == [None, 3]
            array.to("ext_dev:1").count_nulls()

        queue, other = device.queue(), device.queue()
        for _ in range(3):
            run()
        before = settled(device)
        for _ in range(20):
            run()
        after = settled(device)
        assert after[:5] == before[:5]
        assert after.arrowdev_queues == before.arrowdev_queues


class TestFailures:
    def test_one_call(self, device):
        array = ad.array(device.array([1, 2]))
        device.fail_at(1, "copy")
        with pytest.raises(
            ad.DeviceError, match=r"copy on ext_dev:0 failed: SOFTWARE_ERROR_INJECTED"
        ) as caught:
            array.to("cpu")
        assert caught.value.code > 0
        assert "fail_at" in str(caught.value)
        assert array.to("cpu").to_pylist() == [1, 2]

    @pytest.mark.parametrize("waits", [False, True])
    def test_source_of_copy_outlives_event_failure(self, waits):
        """The copy runs on the other device: an idle source device proves nothing."""
        with testing.software_device(timeout=1 if waits else 60) as device:
            queue, other = device.queue(), device.queue(1)
            array = ad.array(device.array([1, 2], queue=queue))
            queue.synchronize()
            other.hold()
            copied = array.to("ext_dev:1", stream=other)
            n_memories = device.live()[0]
            device.fail_at(0 if waits else 2, "event_query")
            del array
            gc.collect()
            if waits:
                with pytest.raises(ad.DeviceError, match="TIMEOUT"):
                    ad.device("ext_dev:0").synchronize()
            time.sleep(0.1)
            device.fail_at(0)
            assert device.live()[0] == n_memories
            other.release()
            device.synchronize(timeout=20)
            assert device.peek(copied.buffers[1].data_ptr, 16) == struct.pack("=2q", 1, 2)

    def test_memory_outlives_a_failed_count_of_its_nulls(self, device):
        queue, other = device.queue(), device.queue()
        array = ad.array(device.array([1, None, 3], queue=queue))
        queue.synchronize()
        other.hold()
        n_memories = device.live()[0]
        device.fail_at(1, "event_wait")
        with pytest.raises(ad.DeviceError, match="INJECTED"):
            array.count_nulls(other)
        del array
        gc.collect()
        time.sleep(0.05)
        assert device.live()[0] == n_memories
        other.release()
        device.synchronize()  # reports memory that was freed in use

    def test_all_later_calls_fail(self, device):
        array = ad.array(device.array([1, 2]))
        device.fail_at(1, "copy", stay=True)
        for _ in range(2):
            with pytest.raises(ad.DeviceError):
                array.to("cpu")
        device.fail_at(0)
        assert array.to("cpu").to_pylist() == [1, 2]

    @pytest.mark.parametrize(
        "scenario",
        [
            lambda device, array, queue: array.to("cpu").to_pylist(),
            lambda device, array, queue: array.to("ext_dev:1").to("cpu").to_pylist(),
            lambda device, array, queue: array.wait(queue),
            lambda device, array, queue: array.is_ready(),
            lambda device, array, queue: array.synchronize(),
            lambda device, array, queue: array.count_nulls(),
            lambda device, array, queue: ad.array(array, stream=queue),
            lambda device, array, queue: [array.wait(queue), device.to_host(array).to_pylist()],
            lambda device, array, queue: ad.tensor(array, nulls="ignore").to("cpu"),
        ],
        ids=[
            "cpu",
            "peer",
            "wait",
            "is_ready",
            "synchronize",
            "nulls",
            "import",
            "export",
            "tensor",
        ],
    )
    def test_every_call_fails_once(self, device, scenario):
        """A failing call raises an error or is recovered from; nothing leaks or hangs."""
        queue, other = device.queue(), device.queue()
        n_failures = 0

        def run():
            array = ad.array(device.array([1, None, 3] * 10, queue=queue))
            return scenario(device, array, other)

        expected = run()
        before = settled(device)
        for n in range(1, 200):
            n_calls = device.n_calls
            device.fail_at(n)
            try:
                result = run()
            except (ad.DeviceError, MemoryError) as error:
                n_failures += "INJECTED" in str(error)
            else:
                if isinstance(expected, list):
                    assert result == expected
                del result
            n_calls = device.n_calls - n_calls
            device.fail_at(0)
            assert settled(device)[:5] == before[:5], n
            if 0 < n_calls < n:
                break
        else:
            raise AssertionError("the scenario never ends")
        assert n_failures > 0


class TestArgumentsOfTheSoftwareDevice:
    @pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), None, "x", True, 1e30])
    def test_invalid_timeout(self, timeout):
        with pytest.raises((TypeError, ValueError), match="timeout must be"):
            software_device(timeout=timeout)
        with software_device() as device:  # the process works as before
            assert device.from_host(b"ab").nbytes == 2

    @pytest.mark.parametrize("devices", [0, -1, 65, 1000, True, 1.5, "x"])
    def test_invalid_number_of_devices(self, devices):
        with pytest.raises((TypeError, ValueError), match="devices must be"):
            software_device(devices)

    def test_failed_start_is_undone(self, monkeypatch):
        def fail(self):
            raise KeyError("no")

        with monkeypatch.context() as patch:
            patch.setattr(SoftwareDevice, "reset", fail)
            with pytest.raises(KeyError):
                software_device().__enter__()
        with software_device() as device:
            assert device.n_devices == 2

    @pytest.mark.parametrize(
        "number", [-2, 99, 2**31 - 1, 2**32, 2**32 + 1, -(2**31), 2**63, 2**64]
    )
    def test_device_numbers_are_not_truncated(self, device, number):
        calls = [
            device.queue,
            device.event,
            device.synchronize,
            device.memory_left,
            lambda number: device.empty(4, number),
            lambda number: device.set_memory_limit(4, number),
        ]
        for call in calls:
            with pytest.raises((ad.DeviceError, OverflowError)):
                call(number)

    def test_sizes_and_values(self, device):
        queue, memory = device.queue(), device.empty(8)
        refused = [
            lambda: queue.read(memory, -1),
            lambda: device.peek(memory, -1),
            lambda: queue.fill(memory, 1, -1),
            lambda: queue.copy(memory, memory, -1),
            lambda: device.empty(-1),
            lambda: device.set_memory_limit(-1),
            lambda: queue.fill(memory, 256),
            lambda: queue.fill(memory, -1),
            lambda: device.fail_at(-1),
            lambda: setattr(queue, "delay", -1),
            lambda: queue.synchronize(float("nan")),
        ]
        for call in refused:
            with pytest.raises(ValueError, match="must be"):
                call()
        with pytest.raises(TypeError, match="nbytes must be an int"):
            device.empty(1.5)

    def test_empty_memory(self, device):
        queue = device.queue()
        for memory in (device.empty(0), device.from_host(b"")):
            assert memory.nbytes == 0
            assert device.peek(memory) == queue.read(memory) == b""
            queue.fill(memory, 1)
            queue.copy(memory, memory)
            queue.synchronize()

    def test_fault_in_unknown_call_is_refused(self, device):
        with pytest.raises(ValueError, match=r"no call 'nonsense'.*event_record"):
            device.fail_at(1, "nonsense")

    def test_fault_in_every_logged_call_is_accepted(self, device):
        queue = device.queue()
        column = ad.array(device.array([1, None, 3], queue=queue))
        column.to("ext_dev:1").to("cpu")
        column.count_nulls()
        del column
        assert len(set(device.calls)) > 5
        for name in set(device.calls):
            device.fail_at(0, name)

    @pytest.mark.parametrize(
        "rubbish", [5, None, "x", object()], ids=["int", "None", "str", "object"]
    )
    def test_only_device_arrays_are_read_back(self, device, rubbish):
        with pytest.raises(TypeError, match="__arrow_c_device_array__, not"):
            device.to_host(rubbish)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_keeps_its_own_error(tmp_path):
    seen = tmp_path / "seen"
    child = 0
    try:
        with software_device(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork with threads
            child = os.fork()
            if child == 0:
                raise KeyError("the child's own")
            os.waitpid(child, 0)
    except BaseException as error:
        if child != 0:
            raise
        try:
            software_device().__enter__()
        except BaseException as after:
            seen.write_text(f"{error!r} {error.__context__!r} {type(after).__name__} {after}")
        finally:
            os._exit(0)
    said = seen.read_text()
    assert said.startswith('KeyError("the child\'s own") None DeviceError')
    assert "FORKED" in said
