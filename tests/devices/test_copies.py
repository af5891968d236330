"""Copies between the host and a device, and between devices. The software device has memory
that the host cannot access and queues that run asynchronously."""

import contextlib
import gc
import random
import threading
import weakref
from functools import partial

import arrow_ctypes as ac
import numpy as np
import pytest
from arrow_samples import SAMPLES
from failing_calls import copy_everything, fail_every_call, same
from interface_dicts import OnlyInterface
from lifetimes import settled
from loops import looped

import arrowdev as ad
from arrowdev.testing import EXT_DEV

pa = pytest.importorskip("pyarrow")

HERE, THERE = "ext_dev:0", "ext_dev:1"


# --- trees --------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", SAMPLES.values(), ids=SAMPLES.keys())
def test_every_type_round_trip(device, array):
    there = ad.array(array).to(HERE)
    assert str(there.device) == HERE
    assert same(there.to("cpu"), array)


@pytest.mark.parametrize("array", SAMPLES.values(), ids=SAMPLES.keys())
@looped("route", ["host", "device", "both"])
def test_every_slice_round_trip(device, array, route):
    for offset, length in [(0, 21), (0, 5), (1, 20), (3, 9), (8, 8), (9, 12), (13, 0), (20, 1)]:
        expected = array.slice(offset, length)
        found = ad.array(expected if route == "host" else array).to(HERE)
        if route != "host":
            found = found.slice(offset, length)
        if route == "both":
            found = found.slice(length // 3).to(THERE)
            expected = expected.slice(length // 3)
        assert same(found.to("cpu"), expected), (offset, length)


@pytest.mark.parametrize("seed", range(8))
def test_random_slices_of_trees_within_trees(device, seed):
    rng = random.Random(seed)
    for _ in range(20):
        chosen = rng.sample(sorted(SAMPLES), 3)
        array = pa.StructArray.from_arrays(
            [SAMPLES[name] for name in chosen],
            names=chosen,
            mask=pa.array([rng.random() < 0.3 for _ in range(21)]) if rng.random() < 0.5 else None,
        )
        found = ad.array(array)
        for step in (HERE, THERE, "cpu"):
            offset = rng.randrange(len(array) + 1)
            array = array.slice(offset, rng.randrange(len(array) - offset + 1))
            found = found.slice(offset, len(array)).to(step)
        assert same(found, array), chosen


def test_only_selected_rows_are_copied(device):
    strings = ad.array(pa.array([f"{i:>1000}" for i in range(1000)]))
    lists = ad.array(pa.array([[i] * 125 for i in range(1000)], pa.list_(pa.int64())))
    numbers = ad.array(np.zeros(125_000))
    for array in (strings, lists, numbers):
        rows = array.slice(len(array) // 2, len(array) // 100)
        there = rows.to(HERE)
        left = device.memory_left(0)
        copy = there.slice(3, len(rows) // 2).to(HERE)
        assert left - device.memory_left(0) < 6000
        assert pa.array(copy.to("cpu")).equals(pa.array(rows).slice(3, len(rows) // 2))


# --- tensors ------------------------------------------------------------------------------------


def on_device(device, array, index):
    """A device tensor for array[index], and the same as a NumPy array."""
    memory = device.from_host(np.ascontiguousarray(array))
    view = array[(*index, ...)]
    offset = view.__array_interface__["data"][0] - array.__array_interface__["data"][0]
    strides = tuple(stride // view.itemsize for stride in view.strides)
    return view, ad.Tensor.from_pointer(
        memory.address + offset,
        view.shape,
        view.dtype.name,
        HERE,
        strides=strides,
        owner=memory,
    )


def cut(*parts):
    return tuple(slice(*part) if isinstance(part, tuple) else part for part in parts)


ALL, BACK = (None,), (None, None, -1)
INDICES = [
    cut(),
    cut(ALL, 3),
    cut((1, 5)),
    cut((1, 5), (2, 4)),
    cut((None, None, 2)),
    cut(ALL, ALL, (None, None, 2)),
    cut(BACK),
    cut(BACK, BACK, BACK),
    cut(ALL, BACK, (1, 3)),
    cut(2, 3, 4),
    cut((0, 0)),
    cut((None, None, 3), (None, None, 2), (None, None, 2)),
    cut(ALL, None, 1),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "float32", "complex128"])
@looped("axes", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_strided_tensors(device, index, dtype, axes):
    array = np.arange(8 * 9 * 10).astype(dtype).reshape(8, 9, 10)
    expected, tensor = on_device(device, array, index)
    if axes != (0, 1, 2) and expected.ndim == 3:
        expected = expected.transpose(axes)
        tensor = ad.Tensor.from_pointer(
            tensor.data_ptr,
            expected.shape,
            dtype,
            HERE,
            strides=tuple(tensor.strides[axis] for axis in axes),
            owner=tensor,
        )
    for target in (HERE, THERE, "cpu"):
        copy = ad.tensor(tensor, copy=True) if target == HERE else tensor.to(target)
        assert str(copy.device) == target
        assert np.array_equal(np.asarray(copy.to("cpu")), expected)
    there = ad.tensor(expected).to(HERE)
    assert np.array_equal(np.asarray(there.to("cpu")), expected)


def test_broadcast_tensors(device):
    memory = device.from_host(np.arange(7, dtype=np.int32))
    for shape, strides in [((5, 7), (0, 1)), ((7, 600), (1, 0)), ((300, 7, 2), (0, 1, 0))]:
        tensor = ad.Tensor.from_pointer(
            memory.address, shape, "int32", HERE, strides=strides, owner=memory
        )
        expected = np.broadcast_to(
            np.lib.stride_tricks.as_strided(
                np.arange(7, dtype=np.int32), shape, [4 * stride for stride in strides]
            ),
            shape,
        )
        assert np.array_equal(np.asarray(tensor.to(THERE).to("cpu")), expected)
        assert np.array_equal(np.asarray(tensor.to("cpu")), expected)


def test_contiguous_copy_is_one_call(device):
    tensor = ad.tensor(np.arange(1000)).to(HERE)
    device.synchronize()
    before = device.n_calls
    tensor.to(THERE)
    calls = list(device.calls)[before - device.n_calls :]
    assert calls.count("copy") == 1


def test_sparse_tensor_is_refused(device):
    """Nine elements that span gigabytes, with no two adjacent."""
    memory = device.empty(8)
    tensor = ad.Tensor.from_pointer(
        memory.address, (300, 300, 300), "int8", HERE, strides=(1 << 24, 1 << 36, -1), owner=memory
    )
    with pytest.raises(ad.ExchangeError, match="scatter") as info:
        tensor.to("cpu")
    assert info.value.reason == "strides"


# --- memory addressed by handles ----------------------------------------------------------------


@pytest.fixture(scope="module")
def opencl():
    import peer_opencl  # skips without OpenCL

    return peer_opencl


@pytest.mark.parametrize("array", SAMPLES.values(), ids=SAMPLES.keys())
def test_every_type_in_handles(opencl, array):
    there = ad.array(array).to(opencl.name())
    for offset, length in [(0, 21), (3, 9), (9, 12), (13, 0)]:
        rows = there.slice(offset, length)
        assert same(rows.to("cpu"), array.slice(offset, length))
        assert same(rows.to(opencl.name()).to("cpu"), array.slice(offset, length))


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_strided_handles(opencl, index):
    """In a context that arrowdev did not create. Offsets are never added to a handle."""
    cl = opencl.cl
    context = cl.Context([opencl.DEVICES[0]])
    array = np.arange(8 * 9 * 10, dtype=np.float32).reshape(8, 9, 10)
    expected = array[(*index, ...)]
    offset = expected.__array_interface__["data"][0] - array.__array_interface__["data"][0]
    shift = 64
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, array.nbytes + shift)
    with cl.CommandQueue(context) as queue:
        cl.enqueue_copy(queue, memory, array, dst_offset=shift, is_blocking=True)
    tensor = ad.Tensor.from_pointer(
        memory.int_ptr,
        expected.shape,
        "float32",
        opencl.name(),
        strides=tuple(stride // 4 for stride in expected.strides),
        byte_offset=shift + offset,
        owner=memory,
    )
    copy = ad.tensor(tensor, copy=True)
    assert np.array_equal(np.asarray(tensor.to("cpu")), expected)
    assert np.array_equal(np.asarray(copy.to("cpu")), expected)


def test_copy_between_runtimes_via_host(device, opencl):
    array = SAMPLES["struct"]
    found = ad.array(array).to(HERE).slice(3, 11).to(opencl.name()).slice(2, 7).to(THERE)
    assert same(found.to("cpu"), array.slice(5, 7))
    numbers = np.arange(60).reshape(6, 10)
    tensor = ad.tensor(numbers[:, ::2]).to(HERE).to(opencl.name()).to(THERE)
    assert np.array_equal(np.asarray(tensor.to("cpu")), numbers[:, ::2])


# --- order and lifetime -------------------------------------------------------------------------


def test_own_memory_is_released_after_the_work_on_a_view_of_it(device):
    """Memory of arrowdev's is not freed in the order of the stream that the view names."""
    for _ in range(20):
        memory = ad.tensor(np.arange(24.0).reshape(4, 6)).to(HERE)
        queue = device.queue()
        queue.hold()
        view = ad.Tensor.from_pointer(
            memory.data_ptr, (4, 6), "float64", HERE, owner=memory, stream=queue
        )
        copy = ad.tensor(view[:, ::2], copy=True)
        queue.release()
        del memory, view, copy
    device.synchronize()  # raises if work has touched memory that was freed


def test_copy_waits_for_data(device):
    queue = device.queue()
    queue.hold()
    source = ad.array(device.array([1, 2, 3], queue=queue))
    copy = source.to(THERE)
    assert not copy.is_ready()
    found = []
    thread = threading.Thread(target=lambda: found.append(copy.to("cpu")))
    thread.start()
    thread.join(0.2)
    assert found == []
    queue.release()
    thread.join(20)
    assert pa.array(found[0]).to_pylist() == [1, 2, 3]


def test_the_host_waits_for_its_copy(device):
    queue = device.queue()
    queue.delay = 0.05
    source = ad.array(device.array([1, 2, 3], queue=queue))
    assert pa.array(source.to("cpu")).to_pylist() == [1, 2, 3]


def test_host_memory_kept_until_read(device):
    queue = device.queue()
    source = OnlyInterface(np.arange(1 << 16))
    watch = weakref.ref(source)
    with queue.held():
        there = ad.tensor(source).to(HERE, stream=queue)
        assert not there.is_ready()
        del source
        gc.collect()
        if watch() is None:  # the runtime had copied the bytes already
            np.full(1 << 16, -1)
    assert np.array_equal(np.asarray(there.to("cpu")), np.arange(1 << 16))
    for _ in range(200):
        if watch() is None:
            break
        threading.Event().wait(0.05)
    assert watch() is None


FROM_THE_HOST = {
    "tensor": lambda x, queue: ad.tensor(x).to(HERE, stream=queue),
    "strided": lambda x, queue: ad.tensor(x.reshape(-1, 4)[:, ::2]).to(HERE, stream=queue),
    "array": lambda x, queue: ad.array(x).to(HERE, stream=queue),
    "import": lambda x, queue: ad.array(x, device=HERE, stream=queue),
    "validity": lambda x, queue: ad.array(x, validity=x % 3 > 0).to(HERE, stream=queue),
    "batch": lambda x, queue: ad.record_batch({"a": x, "b": x}).to(HERE, stream=queue),
}


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("way", FROM_THE_HOST.values(), ids=FROM_THE_HOST.keys())
def test_host_memory_may_change_after_the_call(device, way, is_busy):
    queue = device.queue()
    values = np.arange(1 << 14)
    expected = way(values.copy(), queue).to("cpu")
    with queue.held() if is_busy else contextlib.nullcontext():
        there = way(values, queue)
        if is_busy:  # otherwise the copy is done now or soon
            assert not there.is_ready()
        values[:] = -1
    found = there.to("cpu")
    if isinstance(found, ad.Tensor):
        found, expected = (np.asarray(x).tolist() for x in (found, expected))
    else:
        found, expected = (x.to_pylist() for x in (found, expected))
    assert found == expected


def test_failed_copy_reads_nothing_later(device):
    queue = device.queue()
    batch = ad.record_batch({name: np.arange(1000) for name in "abc"})
    queue.delay = 0.05
    device.fail_at(2, "copy")
    with pytest.raises(ad.DeviceError):
        batch.to(HERE, stream=queue)
    assert device.live().pending <= 1  # the allocation is freed


def test_staging_many_buffers_does_not_wait(device):
    """More buffers than the deferred-release list holds before it waits."""
    queue = device.queue()
    value = np.array([1])
    batch = ad.record_batch({str(i): value for i in range(1100)})
    with queue.held():
        there = batch.to(HERE, stream=queue)
        assert not there.is_ready()
        value[:] = 2
    assert there.to("cpu")["1099"].to_pylist() == [1]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_iterable_may_reuse_its_memory(device, prefetch, is_mapped):
    value = np.array([0])

    def batches():
        for i in range(5):
            value[:] = i
            yield ad.record_batch({"x": value})

    stream = ad.array_stream(batches())
    if is_mapped:
        stream = stream.map(lambda batch: batch)
    found = [batch.to("cpu")["x"].to_pylist() for batch in stream.to(HERE, prefetch=prefetch)]
    assert found == [[0], [1], [2], [3], [4]]


def test_device_memory_kept_until_read(device):
    queue = device.queue(1)
    source = ad.tensor(np.arange(1000)).to(HERE)
    source.synchronize()
    with queue.held():
        copy = source.to(THERE, stream=queue)
        del source
        gc.collect()
        ad.tensor(np.full(1000, -1)).to(HERE)
    assert np.array_equal(np.asarray(copy.to("cpu")), np.arange(1000))


def test_no_allocation_is_leaked(device):
    gc.collect()
    device.synchronize()
    before = settled(device)
    for array in SAMPLES.values():
        ad.array(array).to(HERE).slice(3, 5).to(THERE).to("cpu")
    gc.collect()
    device.synchronize()
    assert device.live().allocations == before.allocations


# --- bits and nulls -----------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 20, 1000, 40_000])
def test_bits_become_bytes_on_the_device(device, length):
    values = np.random.default_rng(length).random(length) < 0.5
    bits = ad.array(pa.array(values)).to(HERE)
    tensor = ad.tensor(bits.slice(length // 3))
    assert str(tensor.device) == HERE or length == 0
    assert np.array_equal(np.asarray(tensor.to("cpu")), values[length // 3 :])
    with pytest.raises(ad.ExchangeError, match="copy"):
        ad.tensor(bits, copy=False)


@pytest.mark.parametrize("length", [1, 20, 1000, 40_000, 400_000])
def test_nulls_are_counted_on_the_device(device, length):
    mask = np.random.default_rng(length).random(length) < 0.3
    array = pa.array(np.arange(length), mask=mask)
    there = ad.array(array).to(HERE)
    for offset in (0, length // 3, length // 2):
        rows = there.slice(offset, (length - offset + 1) // 2)
        assert rows.count_nulls() == array.slice(offset, len(rows)).null_count


def test_unknown_nulls_of_a_device_are_counted(device):
    array = pa.array([1, None, 3, 4, 5] * 10)
    there = ad.array(array).to(HERE)
    assert there.slice(2, 4).null_count is None
    assert np.asarray(ad.tensor(there.slice(2, 4)).to("cpu")).tolist() == [3, 4, 5, 1]
    with pytest.raises(ad.ExchangeError, match="2 nulls") as info:
        ad.tensor(there.slice(1, 6))
    assert info.value.reason == "nulls"


# --- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("name", ["list", "struct", "string_view", "bool"])
def test_failure_at_every_call(device, name, stay):
    tensor = np.arange(60).reshape(6, 10)[:, ::2]
    copy_everything(SAMPLES[name], tensor, HERE, THERE)
    gc.collect()
    device.synchronize()
    before = settled(device).allocations
    n_failed = fail_every_call(
        partial(device.fail_at, stay=stay),
        lambda: device.n_calls,
        lambda: copy_everything(SAMPLES[name], tensor, HERE, THERE),
    )
    assert n_failed > 10
    gc.collect()
    # Abandoned releases are tried once more.
    for place in (HERE, THERE):
        ad.device(place).synchronize()
    device.synchronize()
    assert device.live().allocations == before
    copy_everything(SAMPLES[name], tensor, HERE, THERE)


def test_out_of_memory(device):
    array = ad.array(np.zeros(1 << 16))
    device.set_memory_limit(1 << 12)
    with pytest.raises(MemoryError):
        array.to(HERE)
    device.set_memory_limit(0)
    assert pa.array(array.to(HERE).to("cpu")).equals(pa.array(array))


def test_memory_of_another_device(device):
    tensor = ad.Tensor.from_pointer(1 << 20, (4,), "int8", HERE)
    with pytest.raises(ad.ExchangeError, match="does not know it"):
        tensor.to("cpu")


def test_zero_rows_allow_any_address(device):
    """For example an address past the end of the memory, where a zero-row slice may start."""
    trees = [
        ac.Tree(ac.SchemaNode("l"), ac.ArrayNode(0, [None, 1 << 20])),
        ac.Tree(ac.SchemaNode("u"), ac.ArrayNode(0, [None, None, 1 << 20])),
        ac.Tree(
            ac.SchemaNode("+l", children=[ac.SchemaNode("l")]),
            ac.ArrayNode(0, [None, 1 << 20], children=[ac.ArrayNode(0, [None, 1 << 20])]),
        ),
    ]
    for tree in trees:
        tree.device_type, tree.device_id = EXT_DEV, 0
        empty = ad.array(tree.device_pair())
        for found in (empty, empty.to(THERE), ad.array(empty, copy=True), ad.concat([empty] * 2)):
            assert found.to("cpu").to_pylist() == []


def test_wrong_device(device):
    for source in (np.arange(3), np.arange(0)):
        with pytest.raises((ad.DeviceError, ad.ExchangeError)):
            ad.tensor(source).to("ext_dev:7")


def test_offsets_outside_of_the_data_are_refused(device):
    """The copy reads the first and the last offset of the rows."""
    few = ad.Array.from_buffers("int8", 3, [None, np.zeros(3, "i1")])
    for type, buffers, children, text in (
        ("string", [[0, 5, 3], np.zeros(8, "u1")], [], "from 5 to 3, expected at least 0"),
        (pa.list_(pa.int8()), [[0, 2, 10]], [few], r"children\[0\]: .* 8 values from 2 .* has 3"),
    ):
        offsets, *data = buffers
        memory = [None, np.array(offsets, "i4"), *data]
        array = ad.Array.from_buffers(type, 2, memory, children=children)
        with pytest.raises(ad.InvalidArrowError, match=text):
            array[1:].to(HERE)


def test_field_of_a_struct_that_may_have_nulls(device):
    """Nobody has counted the nulls on the device."""
    bits = np.array([7], "u1")
    struct = ad.Array.from_buffers(pa.struct({"a": "int64"}), 3, [bits], children=[np.arange(3)])
    with pytest.raises(ad.ExchangeError, match="may have nulls of its own") as info:
        struct.to(HERE)["a"]
    assert (info.value.reason, info.value.device) == ("nulls", ad.device(HERE))


def test_slice_of_views_has_the_data_that_it_refers_to():
    words = ad.array(pa.array([letter * 1000 for letter in "abcde"] + ["short"], pa.string_view()))
    for first, n, nbytes in ((1, 2, 2000), (5, 1, 0), (4, 2, 1000), (3, 0, 0)):
        copied = ad.array(words[first : first + n], copy=True)
        assert sum(b.nbytes for b in copied.buffers[2:-1]) == nbytes
        assert copied.to_pylist() == words.to_pylist()[first : first + n]
        copied.validate("full")
    assert ad.array(words, copy=True).buffers[2].nbytes == 5000
