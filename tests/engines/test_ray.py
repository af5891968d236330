"""Arrays through Ray's object store: written once, and read there by every process of the machine.

Ray calls pickle with protocol 5. There is nothing to register.
"""

import os
import sys

import engine_samples
import numpy as np
import peak_memory
import pytest
from engine_samples import samples, values

import arrowdev as ad

pa = pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")

from ray.experimental import get_object_locations  # noqa: E402

pytestmark = pytest.mark.slow

# Workers need not import the modules of the tests.
for module in (sys.modules[__name__], engine_samples, peak_memory):
    ray.cloudpickle.register_pickle_by_value(module)

N = 1 << 17  # elements: what is small is not put into the store
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(
        num_cpus=2,
        object_store_memory=400 * MIB,
        include_dashboard=False,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


@ray.remote
def same(sample):
    return sample


@ray.remote
def description(sample):
    return os.getpid(), values(sample)


def test_arguments_and_results():
    for name, sample in samples().items():
        pid, found = ray.get(description.remote(sample))
        assert pid != os.getpid() and found == values(sample), name
        assert values(ray.get(same.remote(ray.put(sample)))) == values(sample), name


def mapping(address):
    """The file that is mapped at an address, as /proc names it."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, permissions, _, _, _, *name = line.split(maxsplit=5)
            first, end = (int(x, 16) for x in span.split("-"))
            if first <= address < end:
                return permissions, *name


class TestObjectStore:
    def test_is_read_without_a_copy(self):
        reference = ray.put(ad.record_batch({"a": np.arange(N), "b": np.arange(N, dtype="f4")}))
        first, second = ray.get(reference), ray.get(reference)
        for column in "ab":
            address = first[column].buffers[1].data_ptr
            assert address == second[column].buffers[1].data_ptr
            assert address % 64 == 0
            _, name = mapping(address)
            assert "plasma" in name or "/dev/shm" in name

    def test_memory_is_flagged_read_only(self):
        array, tensor = ray.get(ray.put([ad.array(np.arange(N)), ad.tensor(np.arange(N))]))
        assert memoryview(tensor).readonly and not np.asarray(array).flags.writeable
        with pytest.raises(ad.ExchangeError, match="read-only"):
            tensor.__dlpack__()

    def test_memory_lives_as_long_as_the_array(self):
        reference = ray.put(ad.array(np.arange(N)))
        part = ray.get(reference)[10:20]
        del reference
        for i in range(20):  # 20 MiB each, with room for 400
            ray.put(np.full(20 * MIB, i, "u1"))
        assert part.to_pylist() == list(range(10, 20))

    def test_of_a_slice_has_its_rows_only(self):
        reference = ray.put(ad.array(np.arange(64 * N))[:N])
        assert len(ray.get(reference)) == N
        [where] = get_object_locations([reference]).values()
        assert 8 * N <= where["object_size"] < 2 * 8 * N

    def test_is_read_by_numpy_and_pyarrow(self):
        array = ray.get(ray.put(ad.array(np.arange(N))))
        address = array.buffers[1].data_ptr
        assert ad.convert(array, pa.Array).buffers()[1].address == address
        assert np.asarray(array).ctypes.data == address


@ray.remote
def peak_of_a_reader(references):
    before = peak_memory.begin()
    array = ray.get(references[0])
    return len(array), peak_memory.growth(before)


def test_peaks_of_memory():
    size = 128 * MIB
    array = ad.array(np.zeros(size, "u1"))
    before = peak_memory.begin()
    reference = ray.put(array)
    assert peak_memory.growth(before) < 1.3 * size  # the store's, which is shared
    rows, growth = ray.get(peak_of_a_reader.remote([reference]))
    assert rows == size and growth < 0.3 * size


# --- streams of batches --------------------------------------------------------------------------


@ray.remote
def batches(n):
    for i in range(n):
        yield ad.record_batch({"i": np.full(N, i)})


def test_generator_of_a_task_is_a_stream():
    references = batches.options(num_returns="streaming").remote(3)
    stream = ad.array_stream(map(ray.get, references))
    assert [batch["i"][:1].to_pylist() for batch in stream] == [[0], [1], [2]]


def test_stream_is_refused_with_what_to_do():
    stream = ad.array_stream([np.arange(3)])
    with pytest.raises(TypeError, match=r"read_all\(\)"):
        ray.put(stream)
    assert ray.get(ray.put(stream.read_all())).to_pylist() == [0, 1, 2]


# --- devices -------------------------------------------------------------------------------------


def test_worker_without_the_device(software):
    array = ad.array(np.arange(3)).to("ext_dev:0")
    with pytest.raises(ray.exceptions.RayError, match="ARROWDEV_UNPICKLE_ON=cpu"):
        ray.get(description.remote(array))
    on_host = description.options(runtime_env={"env_vars": {"ARROWDEV_UNPICKLE_ON": "cpu"}})
    _, found = ray.get(on_host.remote(array))
    assert found == values(ad.array(np.arange(3)))
