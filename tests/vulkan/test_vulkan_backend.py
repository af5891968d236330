"""The example backend of docs/examples/vulkan_backend on lavapipe, a Vulkan on the CPU."""

import contextlib
import gc
import glob
import os
import sys
import threading
import time
from pathlib import Path

import extension
import numpy as np
import pytest

import arrowdev as ad

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "vulkan_backend"
DRIVERS = glob.glob("/usr/share/vulkan/icd.d/lvp_icd.*.json")
# The loader reads it at the first call. Other drivers may look for a display.
if DRIVERS:
    os.environ.setdefault("VK_ICD_FILENAMES", DRIVERS[0])
    os.environ.setdefault("VK_DRIVER_FILES", DRIVERS[0])
pytest.importorskip("vulkan._vulkan")  # the package; it raises OSError without the loader

sys.path.insert(0, str(EXAMPLE))
import producer  # noqa: E402

sys.path.remove(str(EXAMPLE))


@pytest.fixture(scope="module")
def backend():
    source = EXAMPLE / "vulkan_backend.c"
    flags = [*extension.FLAGS, "-Wno-unused-parameter"]
    module = extension.load(
        extension.build(source, flags=flags, more=["-Wl,--no-as-needed", "-lvulkan"])
    )
    ad.register_backend(module.backend())
    return module


@pytest.fixture(scope="module")
def device(backend):
    made = producer.Device()
    handles = map(producer.integer, (made.physical, made.handle, made.queue))
    made.number = backend.add_device(*handles, made.family)
    return made


@pytest.fixture
def column(backend, device):
    """1,000 integers that are not written yet."""
    backend.lock(device.number)
    try:
        made = producer.Column(device, range(1000), device.number)
    finally:
        backend.unlock(device.number)
    yield made
    made.open_gate()
    ad.device(f"vulkan:{device.number}").synchronize()


@contextlib.contextmanager
def opened_after(column, seconds):
    timer = threading.Timer(seconds, column.open_gate)
    timer.start()
    yield
    timer.join()


def test_device_is_listed(device):
    (found,) = [each for each in ad.devices() if each.type == ad.DeviceType.VULKAN]
    assert found.id == device.number and "llvmpipe" in found.name


def test_values_are_those_after_the_wait(column):
    array = ad.array(column)
    assert not array.is_ready()
    with opened_after(column, 0.1):
        values = np.asarray(array.to("cpu"))
    assert values.tolist() == list(range(1000))
    assert array.is_ready()


def test_without_the_wait_the_values_are_others(device, column):
    """The gate is a gate: who reads the buffer now sees what was there before."""
    plain = ad.Tensor.from_pointer(
        producer.integer(column.buffer), (1000,), "int32", f"vulkan:{device.number}", owner=column
    )
    # lavapipe has one queue, where the copy comes behind the writes. The host reads at once.
    memory = producer.vk.vkMapMemory(device.handle, column.memory, 0, 4000, 0)
    before = np.frombuffer(memory, np.int32, 1000).copy()
    producer.vk.vkUnmapMemory(device.handle, column.memory)
    assert before.tolist() != list(range(1000))
    column.open_gate()
    assert plain.to("cpu").tolist() == list(range(1000))


def test_a_stream_waits_and_the_host_does_not(backend, device, column):
    stream = backend.new_stream(device.number)
    start = time.monotonic()
    array = ad.array(column, stream=stream)
    copied = ad.array(array, copy=True)
    assert not array.is_ready() and not copied.is_ready()
    with opened_after(column, 0.1):
        assert np.asarray(copied.to("cpu")).tolist() == list(range(1000))
    assert time.monotonic() - start >= 0.1


@pytest.mark.parametrize("dtype", ["int8", "float64"])
@pytest.mark.parametrize("n", [0, 1, 1000])
def test_numpy_there_and_back(device, dtype, n):
    x = np.arange(n).astype(dtype)
    there = ad.tensor(x, device=f"vulkan:{device.number}")
    assert there.device.id == device.number
    assert np.from_dlpack(there.to("cpu")).tolist() == x.tolist()
    part = there[1:]
    assert np.from_dlpack(part.to("cpu")).tolist() == x[1:].tolist()


def test_arrays_with_nulls_and_children_there_and_back(device):
    pa = pytest.importorskip("pyarrow")
    batch = pa.record_batch({"a": pa.array([1, None, 3]), "b": pa.array([["x"], None, []])})
    there = ad.array(batch).to(f"vulkan:{device.number}")
    assert pa.record_batch(there.to("cpu")).equals(batch)


def test_event_goes_out_again(device, column):
    """A slice has the event of the producer, as the producer has made it."""
    import arrow_ctypes as ac

    part = ad.array(column)[10:20]
    struct = ac.inside(part.__arrow_c_device_array__()[1], "arrow_device_array")
    assert struct.device_type == ad.DeviceType.VULKAN and struct.device_id == device.number
    assert struct.sync_event == column.kept[0].sync_event


def test_kernels_are_refused(device):
    pa = pytest.importorskip("pyarrow")
    there = ad.array(pa.array([1, None, 3])).to(f"vulkan:{device.number}")
    with pytest.raises(ad.ExchangeError) as caught:
        ad.tensor(there, nulls="fill", fill_value=0)
    assert caught.value.reason == "kernel"


def test_no_stream_of_vulkan(device):
    x = ad.tensor(np.arange(3), device=f"vulkan:{device.number}")
    with pytest.raises(ad.ExchangeError, match="not a stream of Vulkan"):
        x.wait(12345)


def test_many_threads(device):
    where = f"vulkan:{device.number}"
    failures = []

    def work(seed):
        try:
            for i in range(10):
                x = np.arange(seed, seed + 100 + i)
                there = ad.tensor(x, device=where)
                again = ad.tensor(there, copy=True)
                assert np.from_dlpack(again.to("cpu")).tolist() == x.tolist()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not failures


def test_events_of_streams_that_are_gone(backend, device):
    """An own event is destroyed while another stream waits for it."""
    where = f"vulkan:{device.number}"
    for _ in range(5):
        there = ad.tensor(np.arange(1000), device=where)
        copies = [ad.tensor(there, copy=True, stream=backend.new_stream(device.number))]
        copies.append(ad.tensor(copies[0], copy=True, stream=backend.new_stream(device.number)))
        del there
        last = copies.pop()
        copies.clear()
        assert np.from_dlpack(last.to("cpu")).tolist() == list(range(1000))
