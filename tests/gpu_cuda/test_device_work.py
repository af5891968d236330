"""Copies and kernels on the device."""

import numpy as np
import pytest
from gpu import NEW, OLD, Gate, Held, Memory, Reader, Stream, ask, cu

import arrowdev as ad

BITS = np.random.default_rng(7).integers(0, 256, 64, "uint8")


def expected_bits(offset, length):
    return np.unpackbits(BITS, bitorder="little")[offset : offset + length].astype(bool).tolist()


@pytest.mark.parametrize(("offset", "length"), [(0, 512), (3, 500), (8, 1), (509, 3)])
def test_bits_are_unpacked_by_a_kernel(offset, length):
    array = ad.Array.from_buffers("bool", length, [None, ad.tensor(Memory(BITS))], offset=offset)
    tensor = ad.tensor(array)
    assert tensor.device == ad.device("cuda:0") and tensor.dtype == "bool"
    assert np.asarray(tensor.to("cpu")).tolist() == expected_bits(offset, length)


def test_the_kernel_is_launched_on_the_device(standin):
    array = ad.Array.from_buffers("bool", 512, [None, ad.tensor(Memory(BITS))])
    with standin.logged() as calls:
        ad.tensor(array)
    launched = [call for call in calls if call.name == "cuLaunchKernel"]
    assert len(launched) == 1 and launched[0].stream > 2


def test_kernel_waits_for_the_data():
    with Held() as held:
        array = ad.Array.from_buffers("bool", 4096, [None, ad.tensor(held.memory)])
        tensor = ad.tensor(array)
        assert not tensor.is_ready()
    wanted = np.unpackbits(NEW.view("uint8"), bitorder="little").astype(bool)
    assert np.asarray(tensor.to("cpu")).tolist() == wanted.tolist()


def test_nulls_are_counted_on_the_device():
    validity, values = ad.tensor(Memory(BITS)), ad.tensor(Memory(NEW))
    array = ad.Array.from_buffers("int64", 61, [validity, values], offset=3)
    assert array.null_count is None
    assert array.count_nulls() == expected_bits(3, 61).count(False)


@pytest.mark.usefixtures("two_devices")
def test_strided_tensor_is_copied():
    memory = Memory(NEW.reshape(8, 8))
    shown = ad.Tensor.from_pointer(
        memory.pointer, (8, 3), "int64", "cuda:0", strides=(8, 1), owner=memory
    )
    copy = shown.to("cuda:1")
    assert copy.device == ad.device("cuda:1")
    assert np.asarray(copy.to("cpu")).tolist() == NEW.reshape(8, 8)[:, :3].tolist()


def test_narrow_rows_are_copied_by_one_kernel(standin):
    """Rows below 64 bytes, more than 1,024; fewer are not worth building the kernels."""

    def count(n, width):
        host = np.arange(n * width, dtype="int32").reshape(n, width)
        memory = Memory(host)
        turned = ad.Tensor.from_pointer(
            memory.pointer, (width, n), "int32", "cuda:0", strides=(1, width), owner=memory
        )
        with standin.logged() as calls:
            copy = ad.tensor(turned, copy=True, order="C")
        assert np.array_equal(np.asarray(copy.to("cpu")), host.T)
        blocks = sum(call.name.startswith("cuMemcpy2D") for call in calls)
        return blocks, sum(call.name == "cuLaunchKernel" for call in calls)

    assert count(5000, 8) == (0, 1)
    assert count(128, 8) == (8, 0)


def test_wide_rows_are_copied_by_the_driver(standin):
    host = np.arange(5000 * 32, dtype="int32").reshape(5000, 32)
    memory = Memory(host)
    shown = ad.Tensor.from_pointer(
        memory.pointer, (5000, 16), "int32", "cuda:0", strides=(32, 1), owner=memory
    )
    with standin.logged() as calls:
        copy = ad.tensor(shown, copy=True)
    assert np.array_equal(np.asarray(copy.to("cpu")), host[:, :16])
    assert not any(call.name == "cuLaunchKernel" for call in calls)


def test_upload_and_download():
    array = ad.array(NEW)
    there = array.to("cuda:0")
    assert there.device == ad.device("cuda:0")
    assert there.to("cpu").to_pylist() == NEW.tolist()
    assert Reader().read(ad.tensor(there).data_ptr).result() != OLD.tolist()


@pytest.mark.parametrize("stages", [True, False])
@pytest.mark.parametrize("delay", [0, 2000])
def test_host_memory_lives_as_long_as_a_copy_of_it(standin, stages, delay):
    """The driver may access pageable memory after the call returns."""
    standin.set_staging(stages)
    standin.set_delay(delay)
    source = NEW.copy()
    there = ad.array(source).to("cuda:0")
    source[:] = -1
    again = ad.array(NEW.copy()).to("cuda:0")
    np.full_like(NEW, -1)  # reuses the freed memory
    assert there.to("cpu").to_pylist() == again.to("cpu").to_pylist() == NEW.tolist()


@pytest.mark.usefixtures("two_devices")
def test_copy_on_the_callers_stream_is_in_its_order():
    stream = Stream()
    with Gate(stream.handle):
        copy = ad.array(Memory(NEW)).to("cuda:1", stream=None)
        there = ad.tensor(Memory(NEW)).to("cuda:0", stream=stream)
        assert copy.to("cpu").to_pylist() == NEW.tolist()
        event = ask(cu.cuEventCreate, 2)
        ask(cu.cuEventRecord, event, stream.handle)
        assert cu.cuEventQuery(event)[0] == 600
    assert np.asarray(there.to("cpu")).tolist() == NEW.tolist()
    ask(cu.cuEventDestroy, event)


def test_batch_of_columns_on_several_streams():
    """Their events are joined; the batch is ready when both columns are."""
    with Held() as first, Held() as second:
        batch = ad.record_batch({"a": first.memory, "b": second.memory})
        assert not batch.is_ready()
        first.gate.open()
        first.stream.synchronize()
        assert not batch.is_ready()
    here = batch.to("cpu")
    assert [column.to_pylist() for column in here.children] == [NEW.tolist()] * 2


def test_allocation_is_ordered_on_its_stream():
    stream = Stream()
    buffer = ad.device("cuda:0").empty(1 << 16, stream=stream)
    assert buffer.device == ad.device("cuda:0") and buffer.nbytes == 1 << 16
    tensor = ad.tensor(buffer)
    ask(cu.cuMemsetD8Async, tensor.data_ptr, 3, 1 << 16, stream.handle)
    stream.synchronize()
    assert set(bytes(tensor.to("cpu"))) == {3}
    del tensor, buffer


def test_devices_have_names():
    names = [device.name for device in ad.devices() if device.type == ad.DeviceType.CUDA]
    assert names == [
        ask(cu.cuDeviceGetName, 256, i).split(b"\0")[0].decode() for i in range(len(names))
    ]


def launches(calls):
    return sum(call.name == "cuLaunchKernel" for call in calls)


@pytest.mark.parametrize(("length", "n_launches"), [(100_000, 1), (2_200_003, 2)])
def test_many_partial_counts_are_added_on_the_device(standin, length, n_launches):
    """Of 512 bits per work item, 4,096 counts are read by the host at most."""
    bitmap = np.random.default_rng(1).integers(0, 256, length // 8 + 2, "uint8")
    bits = ad.tensor(Memory(bitmap))
    array = ad.Array.from_buffers("bool", length, [bits, bits], offset=3)
    wanted = length - np.unpackbits(bitmap, bitorder="little")[3 : 3 + length].sum()
    with standin.logged() as calls:
        assert array.count_nulls() == wanted
    assert launches(calls) == n_launches


@pytest.mark.parametrize("row", [0, 1, 20_003, 49_998])
def test_first_of_many_bad_offsets_is_found_on_the_device(row):
    """Of 8 rows per work item; the smallest result is found on the device, too."""
    offsets = np.arange(50_001, dtype="int32")
    text = ad.tensor(Memory(np.zeros(50_000, "uint8")))
    good = ad.Array.from_buffers("utf8", 50_000, [None, ad.tensor(Memory(offsets)), text])
    assert len(ad.concat([good, good])) == 100_000
    offsets[row + 1] -= 2
    offsets[49_999] -= 2
    bad = ad.Array.from_buffers("utf8", 50_000, [None, ad.tensor(Memory(offsets)), text])
    with pytest.raises(ad.InvalidArrowError, match=f"decrease at row {row}$"):
        ad.concat([bad, bad])


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "float64"])
def test_kernels_agree_with_the_host_on_slices(dtype):
    """Lengths around each step of 16 bytes, values and validity at any alignment."""
    chance = np.random.default_rng(3)
    values = chance.integers(0, 100, 200).astype(dtype)
    valid = chance.integers(0, 256, 40, "uint8")
    there = [ad.tensor(Memory(valid)), ad.tensor(Memory(values))]
    here = [ad.tensor(valid), ad.tensor(values)]
    for length in [*range(1, 36), 63, 64, 65, 129]:
        at = {"offset": length * 7 % 37}
        name = str(values.dtype)
        far, near = (
            ad.Array.from_buffers(name, length, buffers, **at) for buffers in (there, here)
        )
        assert ad.concat([far, far]).to("cpu").to_pylist() == near.to_pylist() * 2
        filled = [ad.tensor(array, nulls="fill", fill_value=5) for array in (far, near)]
        assert np.array_equal(*[np.asarray(tensor.to("cpu")) for tensor in filled])


def test_small_columns_go_to_the_host_without_a_wait_for_each(standin):
    """A copy to pageable memory blocks, so 100 columns would take 100 turns."""
    data = np.arange(100 * 1000).reshape(100, 1000)
    columns = {str(i): ad.array(np.ma.masked_equal(column, 7)) for i, column in enumerate(data)}
    batch = ad.record_batch(columns).to("cuda:0")
    wanted = [column.to_pylist() for column in columns.values()]
    before = standin.count()
    with standin.logged() as calls:
        here = batch.to("cpu")
    assert [column.to_pylist() for column in here.children] == wanted
    assert sum(call.name == "cuMemcpyAsync" for call in calls) >= 100
    assert standin.count().host_waits - before.host_waits <= 2
    assert not standin.count().leaks(before).keys() - {"pinned"}


@pytest.mark.parametrize("n_columns", [3, 4])
def test_few_or_large_columns_go_to_pageable_memory(standin, n_columns):
    n = 1000 if n_columns < 4 else 10_000
    columns = {str(i): np.arange(n) + i for i in range(n_columns)}
    batch = ad.record_batch(columns).to("cuda:0")
    with standin.logged() as calls:
        here = batch.to("cpu")
    assert [column.to_pylist()[-1] for column in here.children] == [
        n - 1 + i for i in range(n_columns)
    ]
    assert not any(call.name == "cuMemHostAlloc" for call in calls)
    assert sum(call.name == "cuMemcpyAsync" for call in calls) == n_columns
