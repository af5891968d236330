"""OpenCL with pyopencl as a real peer, on PoCL.

A gate (peer_opencl.py) is a user event: work that waits for it runs only after
the test opens it. So "pending" does not depend on speed, and a missing wait reads
old data. Destroyed queues are not tested: OpenCL leaves the behaviour
undefined.
"""

import contextlib
import ctypes
import gc
import importlib.metadata
import subprocess
import sys
import threading
import time
from ctypes.util import find_library
from pathlib import Path

import arrow_ctypes as ac
import concat_checks
import dlpack_ctypes as dl
import failing_opencl
import null_checks
import numpy as np
import peer_opencl as peer
import pytest
import type_checks
from isolation import run
from peer import Peer
from peer_opencl import Gate, cl

import arrowdev as ad

pa = Peer("pyarrow")
N = 1000
NUMBERS = np.arange(N, dtype="i8")
INT64 = (dl.INT, 64, 1)
OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


@pytest.fixture(scope="module")
def context():
    return cl.Context(peer.DEVICES)


@pytest.fixture(params=[0, OUT_OF_ORDER], ids=["in order", "out of order"])
def queue(request, context):
    queue = cl.CommandQueue(context, peer.DEVICES[0], request.param)
    yield queue
    queue.finish()


@pytest.fixture
def other(queue):
    """A second queue of the same kind."""
    other = cl.CommandQueue(queue.context, peer.DEVICES[0], queue.properties)
    yield other
    other.finish()


def tensor_of(memory, shape=(N,), dtype="int64", index=0, **options):
    pointer = memory.int_ptr if hasattr(memory, "int_ptr") else memory.svm_ptr
    return ad.Tensor.from_pointer(pointer, shape, dtype, peer.name(index), owner=memory, **options)


def copy(tensor, stream=None):
    """A copy on the same device."""
    return ad.tensor(tensor, copy=True, stream=stream)


def intel_library():
    """A second platform: that of the wheel that dpctl installs."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("intel-opencl-rt") or ():
            if file.name == "libintelocl.so":
                return Path(file.locate()).resolve()
    pytest.skip("could not import 'intel_opencl_rt': there is no second platform")


def zeros(context):
    return peer.buffer(context, np.zeros(N, "i8"))


def pending(queue):
    """A tensor whose data are written after a gate on `queue`."""
    memory = zeros(queue.context)
    gate = Gate(queue)
    peer.write_later(queue, memory, NUMBERS)
    return gate, tensor_of(memory, stream=queue)


def array_on_device(memory, event=None, offset=0, length=N):
    """An Arrow device array, built by hand, over a cl_mem and with a cl_event."""
    tree = ac.Tree(
        ac.SchemaNode("l"),
        ac.ArrayNode(length, [None, memory.int_ptr], offset=offset),
        device=(dl.OPENCL, peer.ids()[0]),
    )
    if event is not None:
        tree.event = ac.address(ac.keep(ctypes.c_void_p(event.int_ptr)))
    ac.keep((memory, event))
    return tree


class TestDevices:
    def test_every_device_is_listed(self):
        for index, device in enumerate(peer.DEVICES):
            assert ad.device(peer.name(index)) in ad.devices()
            assert ad.device(peer.name(index)).name == device.name

    def test_ordinal_out_of_range(self):
        with pytest.raises(ad.ExchangeError, match=r"opencl:99 is not there") as caught:
            ad.tensor(NUMBERS).to("opencl:99")
        assert caught.value.reason == "device"
        assert caught.value.device == ad.device("opencl:99")

    def test_empty(self, context):
        memory = ad.device(peer.name()).empty(80)
        seen = cl.MemoryObject.from_int_ptr(memory.data_ptr)
        assert seen.size == 80

    def test_allocation_larger_than_memory(self):
        with pytest.raises(MemoryError):
            ad.device(peer.name()).empty(1 << 50)

    def test_synchronize_waits_for_known_queues(self, context):
        queue = cl.CommandQueue(context, peer.DEVICES[0])
        tensor = tensor_of(zeros(context), stream=queue)
        peer.write_later(queue, cl.MemoryObject.from_int_ptr(tensor.data_ptr), NUMBERS)
        ad.device(peer.name()).synchronize()
        assert peer.read(tensor.data_ptr, "i8", N).tolist() == NUMBERS.tolist()


class TestWhatAPointerIs:
    """A number is dereferenced only where that cannot fault."""

    @pytest.mark.parametrize("pointer", [0x10, 0x1000, 0x1001, 2**47 - 8, 2**63])
    def test_invalid_address(self, pointer):
        tensor = ad.Tensor.from_pointer(pointer, (4,), "int64", peer.name())
        with pytest.raises(ad.ExchangeError, match="does not know it"):
            tensor.to("cpu")

    def test_host_memory(self):
        tensor = ad.Tensor.from_pointer(
            NUMBERS.ctypes.data, (4,), "int64", peer.name(), owner=NUMBERS
        )
        with pytest.raises(ad.ExchangeError, match="does not know it"):
            tensor.to("cpu")

    def test_handle_of_another_object(self, context):
        """A queue's handle starts like that of a cl_mem."""
        queue = cl.CommandQueue(context, peer.DEVICES[0])
        with pytest.raises((ad.DeviceError, ad.ExchangeError), match=r"MEM_OBJECT|no memory"):
            ad.Tensor.from_pointer(queue.int_ptr, (4,), "int64", peer.name())

    def test_image(self, context):
        form = cl.ImageFormat(cl.channel_order.R, cl.channel_type.FLOAT)
        image = cl.create_image(context, cl.mem_flags.READ_ONLY, form, shape=(4, 4))
        with pytest.raises(ad.ExchangeError, match="of an image") as caught:
            tensor_of(image, (4, 4), "float32")
        assert "clEnqueueCopyImageToBuffer" in caught.value.hint

    def test_another_device(self):
        context = cl.Context(peer.DEVICES[:1])
        with pytest.raises(ad.ExchangeError, match=f"is on {peer.name(0)}, not on {peer.name(1)}"):
            tensor_of(zeros(context), index=1)

    @pytest.mark.parametrize("stream", [0x10, 2**47 - 8, "memory", "host"])
    def test_stream_that_is_not_a_queue(self, context, stream):
        memory = zeros(context)
        if stream == "memory":
            stream = memory.int_ptr
        elif stream == "host":
            stream = NUMBERS.ctypes.data
        with pytest.raises(ad.DeviceError, match=r"CL_INVALID_COMMAND_QUEUE \(-36\)") as caught:
            tensor_of(memory, stream=stream)
        assert caught.value.code == -36

    def test_event_that_is_not_an_event(self, context):
        tree = array_on_device(zeros(context))
        tree.event = ac.address(ac.int64s(0x1230))
        array = ad.array(ac.OnDevice(tree))
        for call in (array.is_ready, array.synchronize, lambda: array.to("cpu")):
            with pytest.raises(ad.DeviceError, match=r"CL_INVALID_EVENT \(-58\)"):
                call()


class TestImports:
    def test_buffer(self, queue):
        memory = peer.buffer(queue.context, NUMBERS)
        tensor = tensor_of(memory, (N - 10,), byte_offset=80, stream=queue)
        assert tensor.data_ptr == memory.int_ptr
        assert tensor.byte_offset == 80
        assert np.asarray(tensor.to("cpu")).tolist() == NUMBERS[10:].tolist()

    def test_pyopencl_array(self, queue):
        from pyopencl.array import to_device

        array = to_device(queue, NUMBERS)[5:20]
        tensor = ad.Tensor.from_pointer(
            array.base_data.int_ptr,
            array.shape,
            array.dtype.name,
            peer.name(),
            byte_offset=array.offset,
            owner=array,
            stream=array.queue,
        )
        assert np.asarray(tensor.to("cpu")).tolist() == list(range(5, 20))

    @pytest.mark.parametrize("versioned", [False, True])
    def test_dlpack(self, queue, versioned):
        memory = peer.buffer(queue.context, NUMBERS)
        producer = dl.Producer(
            shape=(10,),
            dtype=INT64,
            device=(dl.OPENCL, peer.ids()[0]),
            data=memory.int_ptr,
            byte_offset=8,
            versioned=versioned,
        )
        tensor = ad.tensor(producer, stream=queue)
        assert producer.calls[-1].get("stream") is queue
        assert (tensor.data_ptr, tensor.byte_offset) == (memory.int_ptr, 8)
        assert not tensor.sync_event or peer.event_of(tensor).command_queue == queue
        assert np.asarray(tensor.to("cpu")).tolist() == list(range(1, 11))
        del tensor
        gc.collect()
        peer.wait_until(lambda: producer.deleted == 1)

    def test_arrow(self, queue):
        """A foreign pending event, and a slice that keeps the handle."""
        memory = zeros(queue.context)
        with Gate(queue) as gate:
            peer.write_later(queue, memory, NUMBERS)
            event = cl.enqueue_marker(queue)  # not flushed: arrowdev flushes it
            array = ad.array(ac.OnDevice(array_on_device(memory, event)))
            part = array.slice(3, 4)
            assert part.sync_event == array.sync_event
            assert not part.is_ready()
            assert ad.tensor(part).data_ptr == memory.int_ptr
            assert ad.tensor(part).byte_offset == 24
            gate.open()
        peer.wait_until(part.is_ready)
        assert part.to("cpu").to_pylist() == [3, 4, 5, 6]

    def test_released_when_done(self, context):
        tree = array_on_device(zeros(context))
        array = ad.array(ac.OnDevice(tree))
        array.to("cpu")
        del array
        gc.collect()
        peer.wait_until(lambda: tree.array.released == 1)


class TestOrder:
    def test_exchange_waits_nowhere(self, queue, other):
        """Import, export, copy and inspect while the gate is closed."""
        gate, tensor = pending(queue)
        with gate:
            assert not tensor.is_ready()
            array = ad.array(tensor)
            again = ad.array(array.__arrow_c_device_array__())
            part = again[10:]
            copied = copy(tensor, other)
            elsewhere = tensor.to(
                peer.name(1), stream=cl.CommandQueue(queue.context, peer.DEVICES[1])
            )
            tensor.wait(other)
            assert not any(x.is_ready() for x in (array, again, part, copied, elsewhere))
            assert "event" in repr(part)
            gate.open()
        for thing, expected in (
            (again, NUMBERS),
            (part, NUMBERS[10:]),
            (copied, NUMBERS),
            (elsewhere, NUMBERS),
        ):
            assert np.asarray(thing.to("cpu")).tolist() == expected.tolist()
            thing.synchronize()
            assert thing.is_ready()

    def test_wait(self, queue, other):
        """Work that is put on the queue after wait() sees the data."""
        gate, tensor = pending(queue)
        target = zeros(queue.context)
        with gate:
            tensor.wait(other)
            done = cl.enqueue_copy(other, target, cl.MemoryObject.from_int_ptr(tensor.data_ptr))
            other.flush()
            assert not peer.is_complete(done)
            gate.open()
        done.wait()
        assert peer.read(target, "i8", N).tolist() == NUMBERS.tolist()

    def test_without_wait_old_data_are_read(self, queue, other):
        """The same without wait() reads the old data."""
        gate, tensor = pending(queue)
        target = zeros(queue.context)
        with gate:
            cl.enqueue_copy(other, target, cl.MemoryObject.from_int_ptr(tensor.data_ptr)).wait()
            assert not gate.is_open
            assert not peer.read(target, "i8", N).any()

    def test_no_sync_reads_old_data(self, queue, other):
        """stream=-1 on import: the caller states that there is nothing to wait for."""
        gate, tensor = pending(queue)
        with gate:
            careless = tensor_of(cl.MemoryObject.from_int_ptr(tensor.data_ptr), stream=-1)
            assert careless.sync_event is None
            assert not np.asarray(careless.to("cpu", stream=other)).any()
            gate.open()
        assert np.asarray(tensor.to("cpu", stream=other)).tolist() == NUMBERS.tolist()

    def test_dlpack_out(self, queue, other):
        """The consumer's queue waits; with -1 it does not."""
        gate, tensor = pending(queue)
        with gate:
            first = cl.enqueue_marker(other)
            tensor.__dlpack__(stream=-1)
            other.flush()
            peer.wait_until(lambda: peer.is_complete(first))
            tensor.__dlpack__(stream=other, max_version=(1, 0))
            second = cl.enqueue_marker(other)
            other.flush()
            assert not peer.is_complete(second)
            gate.open()
        second.wait()

    def test_queue_of_another_context(self, queue):
        """It waits for an event that represents ours."""
        gate, tensor = pending(queue)
        stranger = cl.CommandQueue(cl.Context(peer.DEVICES[:1]), peer.DEVICES[0])
        with gate:
            tensor.wait(stranger)
            marker = cl.enqueue_marker(stranger)
            stranger.flush()
            assert not peer.is_complete(marker)
            gate.open()
        marker.wait()
        assert tensor.is_ready()

    def test_queue_of_another_device_is_refused(self, context):
        queue = cl.CommandQueue(context, peer.DEVICES[1])
        with pytest.raises(ad.ExchangeError, match=f"runs on {peer.name(1)}") as caught:
            tensor_of(zeros(context), stream=queue)
        assert caught.value.reason == "stream"

    def test_use_stream(self, queue):
        tensor = tensor_of(peer.buffer(queue.context, NUMBERS))
        with ad.use_stream(queue, peer.name()), Gate(queue) as gate:
            copied = copy(tensor)
            assert not copied.is_ready()
            gate.open()
        assert np.asarray(copied.to("cpu")).tolist() == NUMBERS.tolist()

    def test_columns_with_events_of_two_queues(self, queue, other):
        first, x = pending(queue)
        second, y = pending(other)
        with first, second:
            batch = ad.record_batch({"x": x, "y": y})
            first.open()
            x.synchronize()
            assert not batch.is_ready()
            second.open()
        batch.synchronize()
        assert batch.to("cpu").field("y").to_pylist() == NUMBERS.tolist()

    def test_sync_event_is_a_cl_event(self, queue):
        gate, tensor = pending(queue)
        with gate:
            event = peer.event_of(tensor)
            assert event.command_queue == queue
            assert event.context == queue.context
            assert not peer.is_complete(event)
            gate.open()
        event.wait()
        assert tensor.is_ready()


class TestCopies:
    @pytest.mark.parametrize("count", [1, 7, N])
    def test_there_and_back(self, count):
        there = ad.tensor(NUMBERS[:count]).to(peer.name())
        there.synchronize()  # the queue of peer.read() waits for no other work
        assert peer.read(there.data_ptr, "i8", count).tolist() == NUMBERS[:count].tolist()
        assert np.asarray(there.to("cpu")).tolist() == NUMBERS[:count].tolist()

    def test_empty_tensor_has_no_context(self, queue):
        full = ad.array(NUMBERS).to(peer.name(), stream=queue)
        none = ad.array(NUMBERS[:0]).to(peer.name(), stream=queue)
        assert ad.concat([none, full]).to("cpu").to_pylist() == NUMBERS.tolist()
        view = ad.array(pa.array(["x" * 20], pa.string_view()))[:0]
        assert view.to(peer.name(), stream=queue).to("cpu").to_pylist() == []

    def test_reused_memory(self):
        buffer, made = np.empty(1 << 18), []
        for i in range(4):
            buffer[:] = i
            made.append(ad.tensor(buffer).to(peer.name()))
        assert [set(np.asarray(t.to("cpu"))) for t in made] == [{0}, {1}, {2}, {3}]

    def test_on_the_callers_queue(self, queue):
        with Gate(queue) as gate:
            source = NUMBERS.copy()
            there = ad.tensor(source).to(peer.name(), stream=queue)
            assert not there.is_ready()
            source[:] = -1
            gate.open()
        assert peer.read(there.data_ptr, "i8", N, queue).tolist() == NUMBERS.tolist()
        assert cl.MemoryObject.from_int_ptr(there.data_ptr).context == queue.context

    # Rows that lie within a pitch, and rows that lie across the end of one.
    @pytest.mark.parametrize("start", [0, 3, 17])
    @pytest.mark.parametrize("kind", ["buffer", "svm"])
    def test_rows(self, queue, start, kind):
        """Pitched copies, on the device and to the host."""
        memory = peer.buffer(queue.context, NUMBERS)
        if kind == "svm":
            memory = cl.SVMAllocation(queue.context, 8 * N, 0, cl.svm_mem_flags.READ_WRITE)
            cl.enqueue_copy(queue, memory, NUMBERS)
        expected = np.lib.stride_tricks.as_strided(NUMBERS[start:], (49, 6), (160, 8))
        tensor = tensor_of(memory, (49, 6), strides=(20, 1), byte_offset=8 * start, stream=queue)
        assert np.asarray(tensor.to("cpu")).tolist() == expected.tolist()
        compact = copy(tensor, queue)
        assert compact.data_ptr != tensor.data_ptr
        assert np.asarray(compact.to("cpu")).tolist() == expected.tolist()

    def test_rows_from_the_host(self):
        rows = NUMBERS.reshape(50, 20)[:, 4:15]
        there = ad.tensor(rows).to(peer.name())
        assert peer.read(there.data_ptr, "i8", 550).tolist() == rows.ravel().tolist()

    def test_between_devices(self):
        there = ad.tensor(NUMBERS).to(peer.name(0)).to(peer.name(1))
        assert there.device == ad.device(peer.name(1))
        assert np.asarray(there.to("cpu")).tolist() == NUMBERS.tolist()

    def test_between_contexts(self, queue):
        """The two contexts share no queue: the copy goes via the host."""
        tensor = tensor_of(peer.buffer(queue.context, NUMBERS), stream=queue)
        there = tensor.to(peer.name(1))
        assert np.asarray(there.to("cpu")).tolist() == NUMBERS.tolist()

    def test_between_platforms(self, tmp_path):
        folder = intel_library().parent
        (tmp_path / "intel.icd").write_text(f"{folder}/libintelocl.so")
        (tmp_path / "pocl.icd").write_text("libpocl.so.2")
        environment = {
            "OCL_ICD_VENDORS": str(tmp_path),
            "LD_LIBRARY_PATH": str(folder),
            "ARROWDEV_OPENCL_LIBRARY": find_library("OpenCL"),
        }
        run("opencl_faults", "platforms", environment=environment)

    def test_a_batch(self):
        batch = ad.record_batch({"x": pa.array([1, None, 3]), "y": pa.array(["a", "bc", None])})
        assert batch.to(peer.name()).to("cpu").to_pylist() == batch.to_pylist()

    def test_out(self, queue):
        """pyopencl writes to arrowdev's memory."""
        there = ad.tensor(np.zeros(N, "i8")).to(peer.name(), stream=queue)
        there.synchronize()
        memory = cl.MemoryObject.from_int_ptr(there.data_ptr)
        peer.write_later(queue, memory, NUMBERS).wait()
        assert np.asarray(there.to("cpu")).tolist() == NUMBERS.tolist()


class TestSVM:
    """SVM addresses, which OpenCL distinguishes from handles. Named by what clSVMAlloc gave."""

    @pytest.fixture
    def shared(self, queue):
        shared = cl.SVMAllocation(queue.context, 8 * N, 0, cl.svm_mem_flags.READ_WRITE)
        cl.enqueue_copy(queue, shared, NUMBERS)
        return shared

    def test_in(self, queue, shared):
        tensor = tensor_of(shared, (N - 2,), byte_offset=16, stream=queue)
        assert (tensor.data_ptr, tensor.byte_offset) == (shared.svm_ptr, 16)
        assert np.asarray(tensor.to("cpu")).tolist() == NUMBERS[2:].tolist()
        assert np.asarray(tensor.to(peer.name(1)).to("cpu")).tolist() == NUMBERS[2:].tolist()

    def test_order(self, queue, shared, other):
        with Gate(queue) as gate:
            tensor = tensor_of(shared, stream=queue)
            copied = copy(tensor, other)
            assert not copied.is_ready()
            gate.open()
        assert np.asarray(copied.to("cpu")).tolist() == NUMBERS.tolist()

    def test_kernel(self, queue):
        bits = np.packbits(np.tile([1, 0, 0, 1, 1], 32), bitorder="little")
        shared = cl.SVMAllocation(queue.context, bits.nbytes, 0, cl.svm_mem_flags.READ_WRITE)
        cl.enqueue_copy(queue, shared, bits)
        array = ad.Array.from_buffers(
            "bool", 157, [None, tensor_of(shared, bits.shape, "uint8", stream=queue)], offset=3
        )
        assert ad.tensor(array).to("cpu").shape == (157,)
        assert np.asarray(ad.tensor(array).to("cpu")).tolist() == (
            np.tile([1, 0, 0, 1, 1], 32)[3:].astype(bool).tolist()
        )

    def test_of_an_unknown_context(self):
        context = cl.Context(peer.DEVICES[:1])
        shared = cl.SVMAllocation(context, 8 * N, 0, cl.svm_mem_flags.READ_WRITE)
        with pytest.raises(ad.ExchangeError, match="does not know it"):
            tensor_of(shared).to("cpu")
        queue = cl.CommandQueue(context)
        cl.enqueue_copy(queue, shared, NUMBERS)
        tensor = tensor_of(shared, stream=queue)
        assert np.asarray(tensor.to("cpu")).tolist() == NUMBERS.tolist()


class TestKernels:
    @pytest.mark.parametrize("length", [1, 8, 63, 1000, 100_003])
    @pytest.mark.parametrize("offset", [0, 5])
    def test_bits_to_bytes(self, length, offset):
        bits = np.random.default_rng(length).integers(0, 2, length + offset).astype(bool)
        there = ad.array(pa.array(bits)).to(peer.name())[offset:]
        assert np.asarray(ad.tensor(there).to("cpu")).tolist() == bits[offset:].tolist()

    @pytest.mark.parametrize("length", [1, 64, 100_003])
    def test_count_nulls(self, length):
        valid = np.random.default_rng(length).integers(0, 2, length + 3).astype(bool)
        host = pa.array([i if v else None for i, v in enumerate(valid)], "int32")
        there = ad.array(host).to(peer.name())[3:]
        assert there.count_nulls() == int((~valid[3:]).sum())

    def test_order(self, queue):
        """The kernel waits for the bits, and the host does not wait for the kernel."""
        packed = np.packbits(NUMBERS % 3 == 0, bitorder="little")
        memory = peer.buffer(queue.context, np.zeros_like(packed))
        ad.tensor(ad.array(pa.array([True])).to(peer.name()))  # builds the kernel
        with Gate(queue) as gate:
            peer.write_later(queue, memory, packed)
            data = tensor_of(memory, packed.shape, "uint8", stream=queue)
            bytes_ = ad.tensor(ad.Array.from_buffers("bool", N, [None, data]))
            assert not bytes_.is_ready()
            gate.open()
        assert np.asarray(bytes_.to("cpu")).tolist() == (NUMBERS % 3 == 0).tolist()


class TestRelease:
    def test_with_work_pending(self, queue, other):
        """Nothing is released before the consumer's queue is done."""
        memory = peer.buffer(queue.context, NUMBERS)
        alone = memory.reference_count
        gone = []
        tree = array_on_device(memory)
        tree.array.on_release = lambda: gone.append(True)
        array = ad.array(ac.OnDevice(tree))
        with Gate(other) as gate:
            array.wait(other)
            copied = ad.array(array, copy=True, stream=other)
            del array
            gc.collect()
            assert not gone
            gate.open()
        peer.wait_until(lambda: gone)
        assert copied.to("cpu").to_pylist() == NUMBERS.tolist()
        assert memory.reference_count == alone

    def test_own_memory_with_work_pending(self, queue):
        """OpenCL keeps the memory that its work needs; the bits are correct."""
        target = zeros(queue.context)
        with Gate(queue) as gate:
            tensor = ad.tensor(NUMBERS.copy()).to(peer.name(), stream=queue)
            memory = cl.MemoryObject.from_int_ptr(tensor.data_ptr)
            copied = cl.enqueue_copy(queue, target, memory)
            del tensor, memory
            gc.collect()
            gate.open()
        copied.wait()  # a read on an out-of-order queue would not wait
        assert peer.read(target, "i8", N).tolist() == NUMBERS.tolist()

    def test_queue_outlives_the_users_reference(self, context):
        """The tensor's event and its queue outlive the user's reference to the queue."""
        queue = cl.CommandQueue(context, peer.DEVICES[0])
        gate, tensor = pending(queue)
        with gate:
            del queue
            gc.collect()
            assert not tensor.is_ready()
            gate.open()
        assert np.asarray(tensor.to("cpu")).tolist() == NUMBERS.tolist()

    def test_many_queues_use_memory(self, context):
        """OpenCL cannot wait for a device: every queue is recorded, including the last one."""
        memory = peer.buffer(context, NUMBERS)
        gone = []
        tree = array_on_device(memory)
        tree.array.on_release = lambda: gone.append(True)
        array = ad.array(ac.OnDevice(tree))
        queues = [cl.CommandQueue(context, peer.DEVICES[0]) for _ in range(80)]
        for queue in queues:
            array.wait(queue)
        with Gate(queues[0]) as first, Gate(queues[-1]) as last:
            del array
            gc.collect()
            time.sleep(0.1)
            assert not gone
            last.open()
            time.sleep(0.1)
            assert not gone
            first.open()
        peer.wait_until(lambda: gone)

    def test_device_synchronize_waits_for_our_queue(self, queue, context):
        """Also after many other queues were recorded."""
        gate, tensor = pending(queue)
        with gate:
            copied = ad.tensor(tensor, copy=True)
            for _ in range(80):
                copied.wait(cl.CommandQueue(context, peer.DEVICES[0]))
            assert not copied.is_ready()
            opener = threading.Timer(0.3, gate.open)
            opener.start()
            ad.device(peer.name()).synchronize()
            assert copied.is_ready()
            opener.join()


class TestFaults:
    ENVIRONMENT = {"POCL_DEVICES": "pthread pthread"}

    def test_no_library(self):
        environment = {**self.ENVIRONMENT, "ARROWDEV_OPENCL_LIBRARY": "/nonexistent"}
        run("opencl_faults", "missing_library", environment=environment)

    def test_no_platform(self, tmp_path):
        environment = {**self.ENVIRONMENT, "OCL_ICD_VENDORS": str(tmp_path)}
        run("opencl_faults", "no_platform", environment=environment)

    @pytest.mark.parametrize("fault", ["failed_event", "fork", "never"])
    def test_fault(self, fault):
        run("opencl_faults", fault, environment=self.ENVIRONMENT)

    def test_no_compiler(self):
        environment = {
            **self.ENVIRONMENT,
            "ARROWDEV_OPENCL_LIBRARY": str(failing_opencl.build()),
            "FAILING_OPENCL_BUILD": "1",
        }
        run("opencl_faults", "no_kernels", environment=environment)

    @pytest.mark.slow
    @pytest.mark.timeout(400)  # dozens of processes in sequence
    @pytest.mark.parametrize("which", ["first", "again"])
    def test_every_failing_call(self, which):
        library = str(failing_opencl.build())
        environment = {**self.ENVIRONMENT, "ARROWDEV_OPENCL_LIBRARY": library}
        run("opencl_failures", library, which, environment=environment)


def test_import_calls_no_opencl():
    code = "import arrowdev, sys; sys.exit('libOpenCL' in open('/proc/self/maps').read())"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("check", null_checks.DEVICE)
def test_nulls(check):
    check(peer.name())


@pytest.mark.parametrize("name", concat_checks.ALL)
def test_concat(name):
    concat_checks.check_on_device(name, peer.name())


@pytest.mark.parametrize("check", type_checks.ALL)
def test_types(check):
    check(peer.name())
