"""Order of work: arrowdev between a held producer and a consumer."""

import threading

import arrow_ctypes as ac
import gpu
import numpy as np
import pytest
from dlpack_checks import Foreign
from gpu import NEW, OLD, Gate, Held, Memory, Reader, Shown, Stream, ask, cu
from peer import Peer

import arrowdev as ad

pa = Peer("pyarrow")
pytest.importorskip("cuda.core.utils")  # which older versions lack
core = pytest.importorskip("cuda.core")


def read(array, reader):
    """The consumer's side of DLPack on its own stream, without a wait."""
    tensor = ad.tensor(array)
    capsule = tensor.__dlpack__(stream=reader.stream.handle)
    reader.read(tensor.data_ptr)
    return capsule


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("is_pending", [True, False])
@pytest.mark.parametrize(
    "use",
    [
        lambda tensor, stream: tensor.wait(stream),
        lambda tensor, stream: ad.tensor(tensor, stream=stream),
        lambda tensor, stream: ad.array(tensor, stream=stream, copy=True),
        lambda tensor, stream: tensor.__dlpack__(stream=stream.handle),
    ],
)
def test_stream_of_another_device(use, is_pending):
    """It could wait, but an event of this device cannot be recorded on it."""
    home = ask(cu.cuDevicePrimaryCtxRetain, 1)
    ask(cu.cuCtxPushCurrent, home)
    stream = Stream()
    ask(cu.cuCtxPopCurrent)
    with Held(stated=is_pending) as held:
        tensor = ad.tensor(held.memory, stream=None if is_pending else -1)
        with pytest.raises(ad.ExchangeError, match="cuda:1") as caught:
            use(tensor, stream)
        assert caught.value.reason == "stream"
    del stream, tensor, caught
    ask(cu.cuDevicePrimaryCtxRelease, 1)


# --- import of the CUDA Array Interface --------------------------------------


@pytest.mark.parametrize("make", [ad.array, ad.tensor])
def test_stream_of_the_interface_is_waited_for(make):
    reader = Reader()
    with Held() as held:
        kept = read(make(held.memory), reader)
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()
    del kept


@pytest.mark.parametrize("how", ["drop the stream", "stream=-1", "export with -1"])
def test_without_one_wait_old_data_are_read(how):
    """The negative control: each variant leaves out one wait that the other tests need."""
    reader = Reader()
    with Held() as held:
        if how == "drop the stream":
            kept = read(ad.array(Shown(held.memory, stream=None)), reader)
        elif how == "stream=-1":
            kept = read(ad.array(held.memory, stream=-1), reader)
        else:
            tensor = ad.tensor(held.memory)
            kept = tensor, tensor.__dlpack__(stream=-1)
            reader.read(tensor.data_ptr)
        assert reader.result() == OLD.tolist()
    del kept


def test_old_versions_mean_the_legacy_stream():
    """Version 2 has no stream entry; a blocking stream is waited for."""
    reader = Reader()
    with Held(stated=False, version=2, flags=0) as held:
        kept = read(ad.array(held.memory), reader)
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()
    del kept


class TorchLike:
    """A tensor of torch on a device that is not current: `__dlpack__` refuses it, and version 2
    of the interface states no stream."""

    def __init__(self, held):
        self.held = held
        self.__cuda_array_interface__ = held.memory.__cuda_array_interface__

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_):
        raise BufferError("Can't export tensors on a different CUDA device index.")


def test_interface_without_a_stream_after_a_refused_dlpack():
    """A library's side streams do not block the legacy stream."""
    with Held(stated=False, version=2) as held:
        with pytest.raises(ad.ExchangeError, match="does not state the stream") as caught:
            ad.tensor(TorchLike(held))
        assert caught.value.reason == "stream"
    assert "stream=-1" in caught.value.hint  # follow it
    assert ad.array(TorchLike(held), stream=-1).to("cpu").to_pylist() == NEW.tolist()


def test_interface_is_read_in_the_librarys_stream():
    """A subclass of a class with an exchange table, as torch.nn.Parameter is."""
    reader = Reader()
    with Held(stated=False, version=2) as held:
        table = Foreign(stream=held.stream.handle)
        cls = type("Parameter", (TorchLike, table.type), {})
        kept = read(ad.array(cls(held)), reader)
        assert table.asked == [(2, 0)]
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()
    del kept


def test_import_with_a_stream_makes_it_wait():
    reader = Reader()
    with Held() as held:
        tensor = ad.tensor(held.memory, stream=reader.stream)
        reader.read(tensor.data_ptr)
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()


class PassesOn:
    """Like jax: whatever is not None is a handle for the driver."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None, **arguments):
        event = ask(cu.cuEventCreate, 2)
        ask(cu.cuEventRecord, event, 1)
        if stream is not None:
            ask(cu.cuStreamWaitEvent, stream, event, 0)
        ask(cu.cuEventDestroy, event)
        return self.tensor.__dlpack__(stream=-1, **arguments)


def test_no_synchronization_reaches_no_driver():
    """The producer gets a stream that exists instead of -1, and nothing waits."""
    with Held() as held:
        source = PassesOn(ad.tensor(held.memory))
        assert ad.tensor(source, stream=-1).is_ready()


@pytest.mark.usefixtures("no_handle_reuse")
def test_data_stay_ready_after_producers_stream_is_destroyed(standin):
    """The event is recorded at import, not when it is first used. The release orders the
    producer's stream, which a producer has to keep."""
    reader = Reader()
    held = Held()
    array = ad.array(held.memory)
    stream, held.stream, held.memory.free_on = held.stream, Stream(), 1
    stream.destroy()
    kept = read(array, reader)
    held.gate.open()
    assert reader.result() == NEW.tolist()
    assert standin.violations() == []
    del kept, array
    assert all("used stream" in line for line in standin.violations())


# --- Arrow device arrays -------------------------------------------------------


def device_struct(array):
    schema, capsule = array.__arrow_c_device_array__()
    return ac.inside(capsule, "arrow_device_array"), (schema, capsule)


def test_arrow_export_carries_the_event():
    reader = Reader()
    with Held() as held:
        array = ad.array(held.memory)
        struct, kept = device_struct(array)
        assert struct.device_type == ad.DeviceType.CUDA and struct.device_id == 0
        event = gpu.ctypes.c_void_p.from_address(struct.sync_event).value
        ask(cu.cuStreamWaitEvent, reader.stream.handle, event, 0)
        reader.read(held.memory.pointer)
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()
    del kept


def test_event_survives_import_slice_and_export():
    reader = Reader()
    with Held() as held:
        again = ad.array(ad.array(held.memory).__arrow_c_device_array__())[:64]
        assert again.sync_event is not None and not again.is_ready()
        kept = read(again, reader)
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()
    assert again.is_ready()
    del kept


def test_complete_event_is_exported_as_null():
    with Held() as held:
        array = ad.array(held.memory)
    assert array.is_ready()
    struct, _kept = device_struct(array)
    assert struct.sync_event is None


def test_sync_event_that_points_to_no_event(standin):
    nothing = gpu.ctypes.c_void_p(None)
    tree = ac.numbers(device=(ad.DeviceType.CUDA, 0), event=gpu.ctypes.addressof(nothing))
    array = ad.array(ac.OnDevice(tree))
    for use in (array.is_ready, array.synchronize, lambda: array.__dlpack__(stream=1)):
        with pytest.raises(ad.ExchangeError, match="an event handle that is NULL") as info:
            use()
        assert info.value.reason == "event"


class HostStream:
    """The capsule of an ArrayStream as a host stream, taken now."""

    def __init__(self, *batches):
        self.capsule = ad.array_stream(batches).__arrow_c_stream__()

    def __arrow_c_stream__(self, requested_schema=None):
        return self.capsule


def pinned_array(memory, stream):
    """Work on the pinned memory is pending on the stream."""
    return ad.array(
        ad.Tensor.from_pointer(
            int(memory.pointer), (4,), "int64", "cuda_host", owner=memory, stream=stream
        )
    )


def test_host_stream_of_pinned_memory_waits_for_the_event():
    """A host array has no event, so get_next of __arrow_c_stream__ waits."""
    memory, stream, batches = gpu.Pinned(np.arange(4)), Stream(), []
    with Gate(stream.handle):
        array = pinned_array(memory, stream)
        exported = HostStream(array)
        reader = threading.Thread(target=lambda: batches.extend(pa.chunked_array(exported).chunks))
        reader.start()
        reader.join(0.2)
        assert reader.is_alive() and not array.is_ready()
    reader.join(20)
    assert [batch.to_pylist() for batch in batches] == [[0, 1, 2, 3]]


def test_host_stream_whose_event_fails(standin):
    memory, stream = gpu.Pinned(np.arange(4)), Stream()
    with Gate(stream.handle):
        exported = HostStream(pinned_array(memory, stream))
        standin.fail_at(1, 719, "cuEventQuery", stay=True)
        with pytest.raises(OSError, match=r"event of a batch .* cannot be waited for"):
            pa.chunked_array(exported)
        standin.fail_at(0, 0)


@pytest.mark.usefixtures("two_devices")
def test_parts_that_wait_for_two_devices():
    """Pinned memory is the same memory for both, but one event stands for one device."""
    memory, here = gpu.Pinned(np.arange(4)), Stream()
    ask(cu.cuCtxPushCurrent, ask(cu.cuDevicePrimaryCtxRetain, 1))
    there = Stream()
    ask(cu.cuCtxPopCurrent)
    with Gate(here.handle), Gate(there.handle):
        columns = {name: pinned_array(memory, s) for name, s in (("a", here), ("b", there))}
        with pytest.raises(ad.ExchangeError, match="ready on cuda:0 and on cuda:1") as info:
            ad.record_batch(columns)
        assert info.value.reason == "device" and "synchronize()" in info.value.hint
    for column in columns.values():
        column.synchronize()
    assert ad.record_batch(columns).num_rows == 4


# --- no host wait -----------------------------------------------------------------


def test_chain_does_not_wait_on_the_host(standin):
    """numba-cuda, arrowdev, cuda-core: streams wait, the host does not."""
    numba = pytest.importorskip("numba.cuda")
    import fakegpu

    view_of = core.utils.StridedMemoryView
    device = core.Device(0)
    device.set_current()
    consumer = device.create_stream()
    stream = numba.stream()
    array = numba.to_device(OLD, stream=stream)
    stream.synchronize()
    source, target = gpu.Pinned(NEW), gpu.Pinned(OLD - 1)
    gate = Gate(int(stream.handle))
    pointer = array.device_ctypes_pointer.value
    stated = array.__cuda_array_interface__["stream"]
    ask(cu.cuMemcpyAsync, pointer, source.pointer, NEW.nbytes, stated)
    before = standin.count().host_waits
    with standin.logged() as calls:
        exchanged = ad.array(array)
        tensor = ad.tensor(exchanged[8:])
        view = view_of.from_any_interface(tensor, stream_ptr=int(consumer.handle))
    assert fakegpu.waits(calls) in ([], ["cuEventQuery"])
    assert standin.count().host_waits == before
    assert not exchanged.is_ready()
    assert view.ptr == pointer + 64
    ask(cu.cuMemcpyAsync, target.pointer, view.ptr, 448, int(consumer.handle))
    assert cu.cuStreamQuery(int(consumer.handle))[0] != 0
    gate.open()
    consumer.sync()
    assert target.array[:56].tolist() == NEW[8:].tolist()
    del view, tensor, exchanged  # before the stream of cuda-core


# --- DLPack ------------------------------------------------------------------------


@pytest.fixture
def device():
    device = core.Device(0)
    device.set_current()
    return device


def test_dlpack_in_from_cuda_core(device):
    stream = device.create_stream()
    buffer = device.memory_resource.allocate(NEW.nbytes, stream=stream)
    source = gpu.Pinned(NEW)
    reader = Reader()
    with Gate(int(stream.handle)):
        ask(cu.cuMemcpyAsync, int(buffer.handle), source.pointer, NEW.nbytes, int(stream.handle))
        tensor = ad.tensor(buffer, stream=stream)
        assert tensor.device == ad.device("cuda:0") and tensor.nbytes == NEW.nbytes
        tensor.wait(reader.stream)
        reader.read(tensor.data_ptr)
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()
    del tensor
    buffer.close(stream)
    stream.sync()


@pytest.mark.parametrize("is_view", [True, False])
@pytest.mark.parametrize("is_subclass", [True, False])
def test_cuda_core_without_a_stream(device, is_view, is_subclass):
    """Its table says NULL for every stream, and its `__dlpack__` makes none wait."""
    cls = core.utils.StridedMemoryView if is_view else core.Buffer
    if is_subclass:
        cls = type("Mine", (cls,), {})
    consumer, reader = Stream(), Reader()
    with Held() as held:
        if is_view:
            source = cls.from_any_interface(ad.tensor(held.memory), stream_ptr=consumer.handle)
        else:
            consumer = held.stream
            source = cls.from_handle(held.memory.pointer, NEW.nbytes, owner=held.memory)
        with pytest.raises(ad.ExchangeError, match="does not say on which stream") as caught:
            ad.tensor(source)
        assert caught.value.reason == "stream" and "stream=" in caught.value.hint  # follow it
        tensor = ad.tensor(source, stream=consumer)
        assert not tensor.is_ready()
        tensor.wait(reader.stream)
        reader.read(tensor.data_ptr)
    assert reader.result() == NEW.tolist()
    assert ad.tensor(source, stream=-1).is_ready()
    del source, tensor, caught


def test_cuda_core_views_what_is_ready(device, standin):
    """It has no current stream that could wait: the host waits, or the caller's stream."""
    view_of = core.utils.StridedMemoryView
    reader = Reader()
    with Held() as held:
        tensor = ad.tensor(held.memory)
        before = standin.count().host_waits
        view = tensor.into(view_of, stream=reader.stream)
        assert standin.count().host_waits == before
        reader.read(view.ptr)
        opener = threading.Timer(0.2, held.gate.open)
        opener.start()
        other = tensor.into(view_of)
        assert tensor.is_ready()
        opener.join()
    assert reader.result() == NEW.tolist()
    del view, other, tensor


def test_dlpack_out_to_cuda_core(device):
    stream = device.create_stream()
    reader = Reader()
    with Held() as held:
        tensor = ad.tensor(held.memory)
        view = core.utils.StridedMemoryView.from_dlpack(tensor, stream_ptr=int(stream.handle))
        event = stream.record()
        assert not event.is_done
        ask(cu.cuStreamWaitEvent, reader.stream.handle, int(event.handle), 0)
        assert view.ptr == held.memory.pointer
        reader.read(view.ptr)
    assert reader.result() == NEW.tolist()
    del view, tensor  # before the stream of cuda-core


@pytest.mark.parametrize("stream", [None, 1])
def test_dlpack_to_the_legacy_stream(stream):
    with Held() as held:
        tensor = ad.tensor(held.memory)
        capsule = tensor.__dlpack__(stream=stream)
        event = ask(cu.cuEventCreate, 2)
        ask(cu.cuEventRecord, event, 1)
        assert cu.cuEventQuery(event)[0] == 600
    ask(cu.cuEventSynchronize, event)
    ask(cu.cuEventDestroy, event)
    del capsule


# --- the CUDA Array Interface out ----------------------------------------------------


def test_exported_interface_has_a_stream_that_waits():
    reader = Reader()
    with Held() as held:
        interface = ad.tensor(held.memory).__cuda_array_interface__
        assert interface["stream"] > 2
        event = ask(cu.cuEventCreate, 2)
        ask(cu.cuEventRecord, event, interface["stream"])
        ask(cu.cuStreamWaitEvent, reader.stream.handle, event, 0)
        reader.read(interface["data"][0])
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()
    ask(cu.cuEventDestroy, event)


def test_numba_imports_the_interface():
    numba = pytest.importorskip("numba.cuda")
    with Held() as held:
        array = numba.as_cuda_array(ad.tensor(held.memory), sync=False)
        stream = int(array.stream.handle)
        assert array.device_ctypes_pointer.value == held.memory.pointer
        assert cu.cuStreamQuery(stream)[0] == 600
    assert array.copy_to_host().tolist() == NEW.tolist()


# --- two devices, contexts --------------------------------------------------------------


@pytest.mark.usefixtures("two_devices")
def test_device_of_the_memory_is_queried():
    ask(cu.cuCtxPushCurrent, ask(cu.cuDevicePrimaryCtxRetain, 1))
    memory = Memory(NEW)
    ask(cu.cuCtxPopCurrent)
    tensor = ad.tensor(memory)
    assert tensor.device == ad.device("cuda:1")
    assert ad.tensor(tensor.to("cuda:0")).device == ad.device("cuda:0")
    assert tensor.to("cpu").__array_interface__["shape"] == (64,)


@pytest.mark.usefixtures("two_devices")
def test_copy_between_devices_waits_for_the_event():
    with Held() as held:
        copy = ad.array(held.memory).to("cuda:1")
        assert copy.device == ad.device("cuda:1") and not copy.is_ready()
    assert copy.to("cpu").to_pylist() == NEW.tolist()


@pytest.mark.parametrize("is_ordered", [True, False])
def test_non_primary_context(is_ordered):
    """Memory, stream and event of a context that is not the primary one."""
    mine = ask(cu.cuCtxCreate, None, 0, 0)
    held = Held(is_ordered=is_ordered)
    ask(cu.cuCtxPopCurrent)
    array = ad.array(held.memory)
    assert array.device == ad.device("cuda:0") and not array.is_ready()
    held.gate.open()
    assert array.to("cpu").to_pylist() == NEW.tolist()
    ask(cu.cuCtxPushCurrent, mine)
    del array
    ask(cu.cuCtxSynchronize)
    del held
    ask(cu.cuCtxPopCurrent)


def uses(memory):
    array = ad.array(memory)
    yield array.is_ready
    yield array.__arrow_c_device_array__
    yield lambda: ad.tensor(array).__dlpack__(stream=1)
    yield lambda: ad.tensor(array).__cuda_array_interface__
    yield lambda: array.to("cpu")
    yield lambda: array.to("cuda:1")
    yield lambda: ad.device("cuda:1").empty(64)
    yield ad.device("cuda:1").synchronize
    yield array.synchronize


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("n", range(9))
@pytest.mark.parametrize("current", [0, 1, None])
def test_current_context_stays(standin, n, current):
    memory = Memory(NEW, stream=1)
    own = ask(cu.cuCtxGetCurrent)
    target = None if current is None else ask(cu.cuDevicePrimaryCtxRetain, current)
    if target is None:
        ask(cu.cuCtxPopCurrent)
    else:
        ask(cu.cuCtxSetCurrent, target)
    before = standin.context()
    kept = list(uses(memory))[n]()
    assert standin.context() == before
    del kept
    assert standin.context() == before
    ask(cu.cuCtxSetCurrent, own)


@pytest.mark.usefixtures("two_devices")
def test_no_context_is_created_on_unused_device(standin):
    """No test uses device 1: its primary context must stay inactive."""
    memory = Memory(NEW)
    _, before = ask(cu.cuDevicePrimaryCtxGetState, 1)
    ad.array(memory).to("cpu")
    assert ask(cu.cuDevicePrimaryCtxGetState, 1)[1] == before


class Asked:
    """Exposes only the __dlpack__ of a tensor, and records its arguments."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        self.kwargs = kwargs
        return self.tensor.__dlpack__(**kwargs)


@pytest.mark.parametrize("make", [ad.array, ad.tensor])
def test_copy_is_not_delegated_to_the_producer(make):
    """In torch (2.13), the stream waits only for the work before its copy."""
    stream = Stream()
    with Held() as held:
        source = Asked(ad.tensor(held.memory))
        copied = make(source, copy=True, stream=stream)
        assert source.kwargs.get("copy") is None and source.kwargs["stream"] == stream.handle
        assert ad.tensor(copied).data_ptr != held.memory.pointer
        held.gate.open()
        assert ad.array(copied.to("cpu")).to_pylist() == NEW.tolist()


# --- pinned and managed memory ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("allocate", "free", "device_type"),
    [
        (lambda: ask(cu.cuMemHostAlloc, 512, 0), cu.cuMemFreeHost, ad.DeviceType.CUDA_HOST),
        (lambda: ask(cu.cuMemAllocManaged, 512, 1), cu.cuMemFree, ad.DeviceType.CUDA_MANAGED),
    ],
    ids=["pinned", "managed"],
)
def test_pinned_and_managed_memory(allocate, free, device_type):
    pointer = int(allocate())
    gpu.ctypes.memmove(pointer, NEW.ctypes.data, 512)
    shown = gpu.Memory.__new__(gpu.Memory)
    shown.pointer, shown.shape, shown.typestr = pointer, (64,), "<i8"
    shown.stream, shown.version = None, 3
    array = ad.array(shown)
    assert array.device_type == device_type and array.device_id == 0
    assert array.to_pylist() == NEW.tolist()
    assert ad.tensor(array).__dlpack_device__() == (int(device_type), 0)
    as_cuda = array.to("cuda:0")
    assert as_cuda.device == ad.device("cuda:0")
    assert as_cuda.to("cpu").to_pylist() == NEW.tolist()
    del array, as_cuda
    ask(free, pointer)
    shown.pointer = 0


@pytest.mark.parametrize("make", [ad.array, ad.tensor])
@pytest.mark.parametrize("has_stream", [False, True])
@pytest.mark.parametrize("device", ["cuda_host:0", "cuda_managed:0"])
def test_pinned_and_managed_memory_is_copied_in_place(device, has_stream, make):
    stream = Stream() if has_stream else None
    source = make(NEW).to(device)
    copied = make(source, copy=True, stream=stream)
    assert copied.device == ad.device(device)
    assert ad.tensor(copied).data_ptr != ad.tensor(source).data_ptr
    assert ad.array(copied.to("cpu")).to_pylist() == NEW.tolist()


@pytest.mark.parametrize("device", ["cuda_host:0", "cuda_managed:0"])
def test_copy_through_the_other_protocol_stays_on_its_device(device):
    ints = ad.array(NEW).to(device)
    bools = ad.array(pa.array([True, False, True])).to(device)
    nulls = ad.array(pa.array([1, None, 3])).to(device)
    batch = ad.record_batch({"a": nulls, "b": nulls})
    cube = ad.tensor(np.arange(24).reshape(2, 3, 4)).to(device)
    matrix = ad.tensor(np.arange(6).reshape(3, 2)).to(device)
    filled = {"nulls": "fill", "fill_value": 7}
    for copied, rows in (
        (ad.tensor(ints, copy=True), NEW.tolist()),
        (ad.tensor(bools, copy=True), [True, False, True]),
        (ad.tensor(nulls, copy=True, **filled), [1, 7, 3]),
        (ad.tensor(batch, copy=True, **filled), [[1, 1], [7, 7], [3, 3]]),
        (ad.tensor(ad.array(cube), copy=True), np.arange(24).reshape(2, 3, 4).tolist()),
        (ad.array(ad.tensor(ints), copy=True), NEW.tolist()),
    ):
        assert copied.device == ad.device(device)
        assert copied.to("cpu").into(np.ndarray).tolist() == rows
    assert ad.tensor(ints, copy=True).data_ptr != ad.tensor(ints).data_ptr
    columns = ad.record_batch(matrix, names=["a", "b"], copy=True)
    assert columns.device == ad.device(device)
    assert columns.to_pylist() == [{"a": 2 * i, "b": 2 * i + 1} for i in range(3)]


def test_pinned_memory_is_copied_after_the_write():
    """The host copies, and waits first."""
    stream, source, pinned = Stream(), Memory(NEW), gpu.Pinned(OLD)
    with Gate(stream.handle) as gate:
        ask(cu.cuMemcpyAsync, int(pinned.pointer), source.pointer, NEW.nbytes, stream.handle)
        tensor = ad.Tensor.from_pointer(
            int(pinned.pointer), (64,), "int64", "cuda_host:0", owner=pinned, stream=stream
        )
        opener = threading.Timer(0.1, gate.open)
        opener.start()
        copied = ad.tensor(tensor, copy=True)
        opener.join()
    assert copied.device == ad.device("cuda_host:0")
    assert ad.array(copied).to_pylist() == NEW.tolist()


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (ad.Tensor.tolist, NEW.tolist()),
        (lambda tensor: tensor[1].item(), int(NEW[1])),
        (lambda tensor: int(tensor[1]), int(NEW[1])),
        (lambda tensor: tensor.equals(NEW), True),
    ],
    ids=["tolist", "item", "int", "equals"],
)
def test_elements_of_pinned_memory_are_read_after_the_write(read, expected):
    stream, source, pinned = Stream(), Memory(NEW), gpu.Pinned(OLD)
    with Gate(stream.handle) as gate:
        ask(cu.cuMemcpyAsync, int(pinned.pointer), source.pointer, NEW.nbytes, stream.handle)
        tensor = ad.Tensor.from_pointer(
            int(pinned.pointer), (64,), "int64", "cuda_host:0", owner=pinned, stream=stream
        )
        opener = threading.Timer(0.1, gate.open)
        opener.start()
        assert read(tensor) == expected
        opener.join()


@pytest.mark.parametrize("device", ["cuda_host:0", "cuda_managed:0"])
@pytest.mark.parametrize("nested", [False, True])
def test_pinned_and_managed_memory_is_concatenated_in_place(device, nested):
    values = [{"a": i, "b": None if i == 1 else "b" * i} for i in range(5)] if nested else NEW[:5]
    rows = list(values)
    batch = ad.array(pa.array(values)).to(device)
    joined = ad.concat([batch, batch])
    read = ad.array_stream([batch, batch]).read_all()
    for found in (joined, read):
        assert found.device == ad.device(device) and not found.validate(level="full")
        assert found.to_pylist() == rows * 2
    pieces = list(ad.array_stream([batch, batch, batch]).rechunk(4))
    assert [piece.device for piece in pieces] == [ad.device(device)] * 4
    assert [row for piece in pieces for row in piece.to_pylist()] == rows * 3


def test_host_memory_is_no_memory_of_a_device():
    """The driver does not know the address. A device with HMM or ATS accesses it all the same."""
    shown = Shown(Memory(OLD), data=(NEW.ctypes.data, False))
    attribute = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS
    if ask(cu.cuDeviceGetAttribute, attribute, 0):
        assert ad.array(shown).device == ad.device("cuda_managed:0")
        return
    with pytest.raises(ad.ExchangeError):
        ad.array(shown)
