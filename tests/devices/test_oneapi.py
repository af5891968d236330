"""oneAPI with dpctl and dpnp as real peers, on the CPU.

A gate (peer_oneapi.py) blocks a queue until the test opens it, so "pending" does
not depend on speed. On this device, work on a queue without a wait overtakes a
closed gate: a missing wait is detected.
"""

import ctypes
import gc
import sys
import threading
import time
import weakref

import numpy as np
import peer_oneapi as peer
import pytest
from peer import Peer
from peer_oneapi import Gate, dpctl, dpnp, dpt, usm

import arrowdev as ad
from arrowdev.testing import check_backend
from arrowdev.testing._rules import BACKEND_RULES

pa = Peer("pyarrow")
N = 1000
QUEUES = pytest.mark.parametrize("in_order", [False, True], ids=["out of order", "in order"])


@pytest.fixture(params=[False, True], ids=["out of order", "in order"])
def queue(request):
    queue = peer.queue(in_order=request.param)
    peer.kernel(queue, "gate")
    yield queue
    queue.wait()


def numbers(queue, dtype="i8"):
    array = dpnp.arange(N, dtype=dtype, sycl_queue=queue)
    queue.wait()
    return array


def as_dpnp(obj):
    """A dpnp array over the same memory, with the queue of `obj`.
    dpnp.from_dlpack() passes no stream, so its producer has to wait."""
    memory = usm.MemoryUSMDevice(obj)
    return dpt.usm_ndarray(obj.shape, dtype=obj.dtype, buffer=memory)


class Later:
    """An asynchronous copy to the host on `queue`, after the work that it waits for."""

    def __init__(self, array, queue):
        data = peer.memory_of(array)
        self.values = np.full(array.shape, -1, array.dtype)
        self.event = queue.memcpy_async(self.values, data, self.values.nbytes)

    @property
    def is_done(self):
        peer.lend_a_hand()
        return peer.is_done(self.event)

    def wait(self):
        self.event.wait()
        return self.values


# --- devices -----------------------------------------------------------------


def test_ordinal_matches_dpnp(queue):
    array = numbers(queue)
    for imported in (ad.array(array), ad.tensor(array)):
        assert (imported.device_type, imported.device_id) == tuple(array.__dlpack_device__())
        assert imported.__dlpack_device__() == array.__dlpack_device__()


def test_check_backend(queue):
    keep = ad.tensor(numbers(queue))  # the context comes with it
    report = check_backend(
        keep.device.type, stream=lambda device: peer.queue(in_order=True), hold=Gate
    )
    assert report.untried.pop("backend.stream") == "needs a second device"
    assert report.untried.keys() == {"backend.share"}
    assert report.held == set(BACKEND_RULES) - {"backend.stream", "backend.share"}


# --- the chain -----------------------------------------------------------------


def chain(source):
    """The chain dpnp, array, Arrow capsules, array, tensor, dpnp."""
    first = ad.array(source)
    second = ad.array(first.__arrow_c_device_array__())
    tensor = ad.tensor(second, readonly=False)
    return [first, second, tensor], as_dpnp(tensor)


def test_chain_keeps_event_without_host_wait(queue):
    source = numbers(queue)
    chain(source)
    with Gate(queue) as gate:
        peer.add_later(source, 5)
        ours, result = chain(source)
        assert [x.is_ready() for x in ours] == [False] * 3
        assert all(x.sync_event for x in ours)
        assert result.usm_data._pointer == peer.memory_of(source)._pointer
        assert result.sycl_queue != queue  # a queue that waits for the event
        later = Later(result, result.sycl_queue)
        assert not later.is_done
        assert gate.is_closed
        gate.open()
        assert (later.wait() == np.arange(N) + 5).all()
        assert [x.is_ready() for x in ours] == [True] * 3


def test_chain_without_wait_reads_old_values(queue):
    """The negative control of the test above."""
    source = numbers(queue)
    with Gate(queue) as gate:
        peer.add_later(source, 5)
        tensor = ad.tensor(ad.array(source, stream=-1))
        assert tensor.is_ready()
        assert tensor.sync_event is None
        result = as_dpnp(tensor)
        values = Later(result, result.sycl_queue).wait()
        assert gate.is_closed
        assert (values == np.arange(N)).all()


def test_sync_event_is_a_sycl_event(queue):
    """`sync_event` is a sycl::event *, and so is a DPCTLSyclEventRef."""
    library = ctypes.CDLL(peer.library_path())
    status = library.DPCTLEvent_GetCommandExecutionStatus
    status.argtypes, status.restype = [ctypes.c_void_p], ctypes.c_int
    source = numbers(queue)
    with Gate(queue) as gate:
        tensor = ad.tensor(source)
        address = tensor.sync_event
        assert status(address) in (1, 2)
        gate.open()
        tensor.synchronize()
        assert status(address) == 3


# --- other queues wait ---------------------------------------------------------


@pytest.mark.parametrize("how", ["import", "wait", "dlpack", "use_stream"])
@QUEUES
def test_named_queue_waits(queue, in_order, how):
    source, consumer = numbers(queue), peer.queue(in_order=in_order)
    with Gate(queue) as gate:
        peer.add_later(source, 5)
        if how == "import":
            ad.array(source, stream=consumer)
        elif how == "wait":
            ad.array(source).wait(consumer)
        elif how == "dlpack":
            capsule = ad.tensor(source).__dlpack__(stream=consumer, max_version=(1, 0))
            assert "dltensor_versioned" in repr(capsule)
        else:
            with ad.use_stream(consumer, peer.NAME):
                ad.tensor(source)
        later = Later(source, consumer)
        assert not later.is_done
        assert gate.is_closed
        gate.open()
        assert (later.wait() == np.arange(N) + 5).all()


def test_queue_of_another_context_waits(queue):
    source = numbers(queue)
    other = peer.queue(context=peer.other_context())
    with Gate(queue) as gate:
        ad.tensor(source).wait(other)
        later = other.submit_barrier()
        assert not peer.is_done(later)
        gate.open()
        later.wait()


def test_object_with_a_queue_is_a_stream(queue):
    source, holder = numbers(queue), numbers(peer.queue())
    with Gate(queue) as gate:
        peer.add_later(source, 5)
        ad.tensor(source, stream=holder)
        later = Later(source, holder.sycl_queue)
        assert not later.is_done
        gate.open()
        assert (later.wait() == np.arange(N) + 5).all()


def test_host_memory_may_change_when_the_call_returns(queue):
    values, made = np.arange(N), []
    with Gate(queue) as gate:
        busy = ad.tensor(values).to(peer.NAME, stream=queue)
        assert not busy.is_ready()
        values[:] = -1
        gate.open()
    assert np.asarray(busy.to("cpu")).tolist() == list(range(N))
    buffer = np.empty(1 << 18)
    for i in range(4):
        buffer[:] = i
        made.append(ad.tensor(buffer).to(peer.NAME))
    assert [set(np.asarray(t.to("cpu"))) for t in made] == [{0}, {1}, {2}, {3}]


# --- the host waits where no queue can -------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        lambda t: np.asarray(t.to("cpu")),
        lambda t: np.asarray(ad.array(t).to("cpu")),
        lambda t: dpnp.asnumpy(dpnp.from_dlpack(t)),
        lambda t: t.synchronize() or peer.read(as_dpnp(t)),
        lambda t: ad.device(peer.NAME).synchronize() or np.asarray(t.to("cpu")),
    ],
    ids=["to", "array.to", "from_dlpack", "synchronize", "device.synchronize"],
)
def test_the_host_waits(queue, read):
    source = numbers(queue)
    expected = np.arange(N) + 5
    with Gate(queue) as gate:
        peer.add_later(source, 5)
        tensor = ad.tensor(source)
        opener = threading.Timer(0.1, gate.open)
        opener.start()
        assert gate.is_closed
        values = read(tensor)
        opener.join(peer.LIMIT_S)
        assert (values == expected).all()


# --- DLPack ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "f4", "f8", "c8"])
def test_dlpack_both_ways(queue, dtype):
    source = dpnp.ones((3, 4), dtype=dtype, sycl_queue=queue)
    tensor = ad.from_dlpack(source)
    assert tensor.shape == (3, 4)
    assert tensor.data_ptr == peer.memory_of(source)._pointer
    back = dpnp.from_dlpack(tensor)
    assert back.dtype == source.dtype
    assert (dpnp.asnumpy(back) == 1).all()


def reversed_columns(array):
    return dpnp.reshape(array[:12], (3, 4))[::-1, ::-2]


@pytest.mark.parametrize("view", [lambda x: x[::-2], lambda x: x[7:2:-1], reversed_columns])
def test_negative_strides_into_dpnp(queue, view):
    source = view(numbers(queue))
    result = ad.convert(source, dpnp.ndarray)
    assert memory_address(result) == memory_address(source)
    assert result.strides == source.strides
    assert (dpnp.asnumpy(result) == dpnp.asnumpy(source)).all()


def memory_address(array):
    return array.get_array()._pointer


WITHOUT_ELEMENTS = {
    "of dpnp": lambda source: source[0:0],
    "a slice": lambda source: ad.array(source)[5:5],
    "a copy": lambda source: ad.tensor(source[0:0], copy=True),
    "two dimensions": lambda source: ad.tensor(dpnp.reshape(source[0:0], (3, 0))),
    "of the host": lambda source: ad.tensor(np.zeros((0, 2))).to(peer.NAME),
}


@pytest.mark.parametrize("kind", WITHOUT_ELEMENTS)
def test_no_elements_into_dpnp(queue, kind):
    array = WITHOUT_ELEMENTS[kind](numbers(queue))
    result = ad.convert(array, dpnp.ndarray)
    assert result.shape == getattr(array, "shape", (0,))
    assert result.sycl_device == queue.sycl_device


class WithoutQueue:
    """A producer that hands `stream` on and has no attribute `sycl_queue`."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, stream=None, max_version=None):
        self.stream = stream
        return self.array.__dlpack__(stream=stream, max_version=max_version)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_producer_without_a_queue_gets_one(queue):
    source = numbers(queue)
    producer = WithoutQueue(source)
    with Gate(queue) as gate:
        peer.add_later(source, 5)
        tensor = ad.tensor(producer)
        assert isinstance(producer.stream, dpctl.SyclQueue) and producer.stream != queue
        assert not tensor.is_ready() and gate.is_closed
        gate.open()
        assert tensor.to("cpu").into(np.ndarray).tolist() == list(range(5, N + 5))


def test_producer_without_a_queue_is_refused_without_dpctl(queue, monkeypatch):
    monkeypatch.setitem(sys.modules, "dpctl", None)
    with pytest.raises(ad.ExchangeError, match="pass stream=queue, or synchronize") as caught:
        ad.tensor(WithoutQueue(numbers(queue)))
    assert caught.value.reason in ("stream", "refused")


# --- __sycl_usm_array_interface__ ------------------------------------------------------


class Shown:
    """Exposes only this interface of an object, with some fields changed."""

    def __init__(self, obj, **changes):
        self.obj = obj
        self.__sycl_usm_array_interface__ = {**obj.__sycl_usm_array_interface__, **changes}


def test_usm_interface_both_ways(queue):
    source = numbers(queue)
    shown = Shown(source)
    with Gate(queue) as gate:
        peer.add_later(source, 5)
        tensor = ad.tensor(shown)
        assert not tensor.is_ready()
        out = tensor.__sycl_usm_array_interface__
        assert out["syclobj"] is shown.__sycl_usm_array_interface__["syclobj"]
        assert out["data"] == shown.__sycl_usm_array_interface__["data"]
        later = Later(as_dpnp(tensor), out["syclobj"])
        assert not later.is_done
        gate.open()
        assert (later.wait() == np.arange(N) + 5).all()


def test_usm_interface_queries_the_device(queue):
    source = Shown(numbers(queue))
    assert ad.tensor(source).device_id == peer.ID
    part = peer.DEVICE.create_sub_devices(partition=1)[0]
    assert ad.tensor(Shown(numbers(dpctl.SyclQueue(part)))).device_id == peer.ID


def test_strided_view(queue):
    source = dpnp.reshape(numbers(queue), (10, 100))[2:8:2, ::-3]
    tensor = ad.tensor(Shown(source))
    assert (
        tensor.strides == source.strides_in_elements
        if hasattr(source, "strides_in_elements")
        else True
    )
    assert (np.asarray(tensor.to("cpu")) == dpnp.asnumpy(source)).all()


def test_memory_of_another_context_gets_a_queue(queue):
    other = peer.queue(context=peer.other_context())
    source = numbers(other)
    peer.add_later(source, 5)
    tensor = ad.tensor(Shown(source))
    assert tensor.device_id == peer.ID
    copied = ad.array(tensor.__arrow_c_device_array__())
    assert (np.asarray(copied.to("cpu")) == np.arange(N) + 5).all()
    # Without a queue, arrowdev creates one in that context.
    made = ad.tensor(copied).__sycl_usm_array_interface__["syclobj"]
    assert made.sycl_context == other.sycl_context != queue.sycl_context


def test_created_queue_is_in_order_and_holds_no_reference(queue):
    tensor = ad.tensor(ad.array(ad.array(numbers(queue)).__arrow_c_device_array__()))
    made = tensor.__sycl_usm_array_interface__["syclobj"]
    assert type(made) is dpctl.SyclQueue
    assert made.is_in_order
    assert made.sycl_context == queue.sycl_context


def test_no_queue_is_created_without_dpctl(queue, monkeypatch):
    tensor = ad.tensor(ad.array(ad.array(numbers(queue)).__arrow_c_device_array__()))
    assert hasattr(tensor, "__sycl_usm_array_interface__")
    monkeypatch.delitem(sys.modules, "dpctl")
    with pytest.raises(AttributeError, match="without a SYCL queue, and dpctl"):
        tensor.__sycl_usm_array_interface__


@pytest.mark.parametrize("syclobj", ["filter", "context"])
def test_filter_or_context_gives_no_event(queue, syclobj):
    source = numbers(queue)
    other = {"filter": peer.DEVICE.filter_string, "context": queue.sycl_context}[syclobj]
    tensor = ad.tensor(Shown(source, syclobj=other))
    assert tensor.device_id == peer.ID
    assert tensor.__sycl_usm_array_interface__["syclobj"] is other
    for ask in (tensor.is_ready, tensor.synchronize, tensor.__arrow_c_device_array__):
        with pytest.raises(ad.ExchangeError) as info:
            ask()
        assert info.value.reason == "event"
    assert ad.tensor(Shown(source, syclobj=other), stream=-1).is_ready()


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_kinds_of_memory(queue, kind):
    make = {
        "device": usm.MemoryUSMDevice,
        "shared": usm.MemoryUSMShared,
        "host": usm.MemoryUSMHost,
    }[kind]
    memory = make(64, queue=queue)
    memory.copy_from_host(np.arange(64, dtype="u1"))
    tensor = ad.tensor(memory)
    assert (tensor.shape, tensor.dtype) == ((64,), "uint8")
    assert (tensor.device_type, tensor.device_id) == (ad.DeviceType.ONEAPI, peer.ID)
    assert bytes(tensor.to("cpu")) == bytes(range(64))


def test_freed_memory_is_refused(queue):
    memory = usm.MemoryUSMDevice(1 << 20, queue=queue)
    shown = Shown(memory)
    del memory, shown.obj
    with pytest.raises(ad.ExchangeError, match="has no memory at the address"):
        ad.tensor(shown)


def test_memory_of_the_host(queue):
    memory = usm.MemoryUSMDevice(64, queue=queue)
    host = np.zeros(64, "u1")
    with pytest.raises(ad.ExchangeError, match="has no memory at the address"):
        ad.tensor(Shown(memory, data=(host.ctypes.data, False)))


def test_queue_and_memory_of_different_contexts(queue):
    other = peer.queue(context=peer.other_context())
    with pytest.raises(ad.ExchangeError, match="has no memory at the address"):
        ad.tensor(Shown(numbers(queue), syclobj=other))


# --- invalid streams ---------------------------------------------------------------------


def test_number_is_not_a_queue(queue):
    source = numbers(queue)
    for number in (0, 2, 1 << 40):
        with pytest.raises(TypeError, match="must be a queue object"):
            ad.tensor(source).wait(number)


def test_queue_of_another_device_is_refused(queue):
    others = [d for d in peer.DEVICES if d != peer.DEVICE]
    if not others:
        pytest.skip("could not import 'pocl': there is one SYCL device only")
    source = numbers(queue)
    with pytest.raises(ad.ExchangeError, match="runs on oneapi:1, the data are on oneapi:0"):
        ad.Tensor.from_pointer(
            peer.memory_of(source)._pointer,
            (N,),
            "int64",
            peer.NAME,
            stream=dpctl.SyclQueue(others[0]),
        )


# --- copies ---------------------------------------------------------------------------------


def test_to_the_device_and_back():
    host = np.random.default_rng(0).integers(0, 1 << 40, (50, 7))
    there = ad.tensor(host).to(peer.NAME)
    assert (there.device_type, there.device_id) == (ad.DeviceType.ONEAPI, peer.ID)
    assert (np.asarray(there.to("cpu")) == host).all()
    assert (dpnp.asnumpy(dpnp.from_dlpack(there)) == host).all()


def test_copy_on_the_device(queue):
    source = numbers(queue)
    with Gate(queue) as gate:
        peer.add_later(source, 5)
        copied = ad.tensor(ad.tensor(source), copy=True)
        assert copied.data_ptr != peer.memory_of(source)._pointer
        assert not copied.is_ready()
        assert gate.is_closed
        gate.open()
        assert (np.asarray(copied.to("cpu")) == np.arange(N) + 5).all()


@QUEUES
def test_copy_on_the_callers_queue(queue, in_order):
    source, mine = numbers(queue), peer.queue(in_order=in_order)
    with Gate(queue) as gate:
        peer.add_later(source, 5)
        copied = ad.tensor(ad.tensor(source), copy=True, stream=mine)
        later = Later(as_dpnp(copied), mine)
        assert not later.is_done
        assert gate.is_closed
        gate.open()
        assert (later.wait() == np.arange(N) + 5).all()


@pytest.mark.parametrize("stream", ["none", "its own", "another"])
@pytest.mark.parametrize("read", [ad.array, ad.tensor])
def test_copy_true_waits_for_pending_work(read, stream):
    """dpnp's own copy, which __dlpack__(copy=True) would return, does not."""
    mine = peer.queue()
    peer.kernel(mine, "gate")
    source = numbers(mine)
    stream = {"none": None, "its own": mine, "another": peer.queue()}[stream]
    with Gate(mine, barrier=False) as gate:
        peer.add_later(source, 5, after=[gate.event])
        copied = read(source, copy=True, stream=stream)
        peer.lend_a_hand()
        assert gate.is_closed
        gate.open()
        assert (np.asarray(copied.to("cpu")) == np.arange(N) + 5).all()


@pytest.mark.parametrize(
    ("work", "step", "blocks"),
    [
        (lambda t, queue: ad.tensor(t, copy=True, stream=queue), 1, False),
        (lambda t, queue: ad.tensor(t, copy=True, stream=queue), 3, False),
        (lambda t, queue: t.to("cpu", stream=queue), 1, True),
    ],
    ids=["copy", "kernel", "to the host"],
)
@pytest.mark.parametrize("is_its_own", [True, False], ids=["its own queue", "another queue"])
def test_our_commands_run_after_host_tasks(work, step, blocks, is_its_own):
    """Work after a host task is not in the driver's queue yet, and neither is
    a barrier that waits for it."""
    mine = peer.queue()
    peer.kernel(mine, "gate")
    source = numbers(mine)
    view = source[::step]
    with Gate(mine, barrier=False, seconds=60.0) as gate:  # the limit allows for a busy machine
        task = peer.host_task(mine, after=[gate.event])
        peer.add_later(source, 5, after=[task])
        tensor = ad.tensor(view)
        opener = threading.Timer(0.1, gate.open)
        if blocks:
            opener.start()
        result = work(tensor, mine if is_its_own else peer.queue())
        peer.lend_a_hand()
        opener.cancel()
        gate.open()
        assert (np.asarray(result.to("cpu")) == np.arange(N)[::step] + 5).all()


def test_rows_of_a_matrix(queue):
    matrix = dpnp.reshape(numbers(queue), (20, 50))
    for view in (matrix[3:17, 5:9], matrix[::2], matrix.T, matrix[:, ::3]):
        values = dpnp.asnumpy(view)
        assert (np.asarray(ad.tensor(view).to("cpu")) == values).all()
        copied = ad.tensor(view, copy=True)
        assert (np.asarray(copied.to("cpu")) == values).all()


def test_array_with_nulls_and_strings():
    values = ["a", None, "ccc", "", None, "ffffff"] * 20
    there = ad.array(pa.array(values)).to(peer.NAME)
    assert there.device_type == ad.DeviceType.ONEAPI
    assert there.slice(3, 50).to("cpu").to_pylist() == values[3:53]


# --- kernels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 3, 64])
def test_nulls_are_counted_on_the_device(offset):
    n = 1 << 20  # smaller arrays are read and counted on the host
    is_null = np.arange(n) % 3 == 0
    host = ad.array(pa.array(np.arange(n), mask=is_null)).slice(offset)
    there = host.to(peer.NAME)
    fresh = ad.Array.from_buffers("l", len(there), there.buffers, offset=there.offset)
    assert fresh.null_count is None
    assert fresh.count_nulls() == is_null[offset:].sum()


def test_our_commands_run_after_queued_work():
    """On an out-of-order queue, only our own barrier orders the work."""
    mine = peer.queue()
    peer.kernel(mine, "gate")
    source = numbers(mine)
    pointer = peer.memory_of(source)._pointer
    with Gate(mine, barrier=False) as gate:
        peer.add_later(source, 5, after=[gate.event])
        tensor = ad.Tensor.from_pointer(pointer, (N,), "int64", peer.NAME)
        copied = ad.tensor(tensor, copy=True, stream=mine)
        peer.lend_a_hand()
        assert gate.is_closed
        gate.open()
        assert (np.asarray(copied.to("cpu")) == np.arange(N) + 5).all()


def test_our_commands_keep_order_on_callers_queue(queue):
    """A kernel, and the copy of its result."""
    n = 1 << 22
    is_null = np.arange(n) % 3 == 0
    there = ad.array(pa.array(np.zeros(n, "i1"), mask=is_null)).to(peer.NAME)
    for _ in range(20):
        fresh = ad.Array.from_buffers("c", n, there.buffers)
        assert fresh.count_nulls(queue) == is_null.sum()


def test_several_threads(queue):
    source = numbers(queue)
    expected = np.arange(N)
    wrong = []

    def work():
        mine = peer.queue()
        for _ in range(50):
            tensor = ad.tensor(source, stream=mine)
            copied = ad.tensor(tensor, copy=True)
            if not (np.asarray(copied.to("cpu")) == expected).all():
                wrong.append(copied)
            del tensor.__sycl_usm_array_interface__["syclobj"]

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(peer.LIMIT_S)
        assert not thread.is_alive()
    assert not wrong


@pytest.mark.parametrize("offset", [0, 5])
def test_bits_become_bytes_on_the_device(offset):
    bits = np.random.default_rng(1).integers(0, 2, 3000).astype(bool)
    there = ad.array(pa.array(bits)).slice(offset).to(peer.NAME)
    tensor = ad.tensor(there)
    assert tensor.device_type == ad.DeviceType.ONEAPI
    assert (np.asarray(tensor.to("cpu")) == bits[offset:]).all()
    assert (dpnp.asnumpy(dpnp.from_dlpack(tensor)) == bits[offset:]).all()


# --- lifetime -----------------------------------------------------------------------------------


class Watched:
    """A producer whose release is observable, and whose interface does not wait (as
    dpnp's does not)."""

    def __init__(self, array):
        self.array = array

    @property
    def __sycl_usm_array_interface__(self):
        return {
            "data": (peer.memory_of(self.array)._pointer, False),
            "shape": self.array.shape,
            "strides": None,
            "typestr": "|i8",
            "version": 1,
            "syclobj": self.array.sycl_queue,
        }


def test_all_memory_is_released(queue):
    array = numbers(queue)
    before = sys.getrefcount(queue)
    source = Watched(array)
    watched = weakref.ref(source)
    tensor = ad.tensor(source)
    again = ad.array(tensor.__arrow_c_device_array__())
    del source
    gc.collect()
    assert watched() is not None
    del tensor, again
    peer.wait_until(lambda: watched() is None)
    gc.collect()
    assert sys.getrefcount(queue) == before


def test_memory_is_kept_while_a_consumer_works(queue):
    """USM is freed regardless of queues: the release comes after the consumer's work."""
    consumer = peer.queue()
    source = Watched(numbers(queue))
    watched = weakref.ref(source)
    tensor = ad.tensor(source, stream=consumer)
    with Gate(consumer) as gate:
        del source, tensor
        gc.collect()
        assert watched() is not None
        gate.open()
        peer.wait_until(lambda: watched() is None)


@pytest.mark.parametrize("way", ["the queue that came", "a queue that was made"])
def test_memory_is_kept_for_work_on_exported_queue(queue, way):
    source = Watched(numbers(queue))
    watched = weakref.ref(source)
    tensor = ad.tensor(source)
    if way == "a queue that was made":
        tensor = ad.tensor(ad.array(tensor.__arrow_c_device_array__()))
    shown = tensor.__sycl_usm_array_interface__["syclobj"]
    assert (shown == queue) == (way == "the queue that came")
    with Gate(shown) as gate:
        del source, tensor
        gc.collect()
        assert watched() is not None
        gate.open()
        peer.wait_until(lambda: watched() is None)


def test_queue_lives_as_long_as_the_data():
    queue = peer.queue()
    tensor = ad.tensor(Shown(numbers(queue)))
    del queue
    gc.collect()
    tensor.synchronize()
    assert (np.asarray(tensor.to("cpu")) == np.arange(N)).all()


def test_own_memory_is_not_freed_under_pending_work(queue):
    for _ in range(50):
        copied = ad.tensor(numbers(queue), copy=True)
        del copied
    ad.device(peer.NAME).synchronize()


# --- many queues -------------------------------------------------------------------------------


class Owner:
    """Records when the memory was released."""

    def __init__(self, memory, gone):
        self.memory, self.gone = memory, gone

    def __del__(self):
        self.gone.append(True)


@pytest.mark.parametrize("n", [1, 33, 80])
def test_many_queues_use_memory(queue, n):
    """SYCL cannot wait for a device: every queue is recorded, including the last one."""
    memory, gone = dpnp.zeros(8, dtype="i8", sycl_queue=queue), []
    pointer = peer.memory_of(memory)._pointer
    tensor = ad.Tensor.from_pointer(pointer, (8,), "int64", peer.NAME, owner=Owner(memory, gone))
    queues = [peer.queue(context=queue.sycl_context) for _ in range(n)]
    for consumer in queues:
        tensor.wait(consumer)
    with Gate(queues[-1]) as gate:
        del tensor
        gc.collect()
        time.sleep(0.2)
        assert not gone
        gate.open()
    peer.wait_until(lambda: gone)


def test_device_synchronize_waits_for_our_queue(queue):
    """Also after many other queues were recorded."""
    device = ad.device(peer.NAME)
    array = ad.tensor(np.arange(8)).to(peer.NAME)  # creates our queue
    array.synchronize()
    source = dpnp.zeros(8, dtype="i8", sycl_queue=queue)
    queue.wait()
    with Gate(queue) as gate:
        pending = ad.tensor(source)
        copied = ad.tensor(pending, copy=True)  # on our queue, after the gate
        for _ in range(80):
            copied.wait(peer.queue(context=queue.sycl_context))
        assert not copied.is_ready()
        opener = threading.Timer(0.3, gate.open)
        opener.start()
        device.synchronize()
        assert copied.is_ready()
        opener.join()
