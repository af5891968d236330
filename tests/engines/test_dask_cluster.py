"""Arrays between the processes of a local Dask cluster."""

import os
import sys
import time

import engine_samples
import numpy as np
import peak_memory
import pytest
from engine_samples import samples, values

import arrowdev as ad

pytest.importorskip("pyarrow")
distributed = pytest.importorskip("distributed")

import cloudpickle  # noqa: E402
import dask  # noqa: E402

import arrowdev.dask  # noqa: E402

pytestmark = pytest.mark.slow

# Workers need not import the modules of the tests.
for module in (sys.modules[__name__], engine_samples, peak_memory):
    cloudpickle.register_pickle_by_value(module)

MIB = 1 << 20


def cluster_of(n_workers, **options):
    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        memory_limit=0,
        **options,
    )


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.worker.preload": ["arrowdev.dask"]}),
        cluster_of(2) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def workers(client):
    return list(client.scheduler_info()["workers"])


def same(sample):
    return sample


def description(sample):
    return os.getpid(), values(sample)


def batch(i):
    return ad.record_batch({"i": np.arange(i, i + 2)})


def bytes_of(n):
    return ad.array(np.ones(n, "u1"))


def unpickle_on(device):
    os.environ["ARROWDEV_UNPICKLE_ON"] = device


class TestCluster:
    def test_arguments_and_results(self, client):
        for name, sample in samples().items():
            assert values(client.submit(same, sample, pure=False).result()) == values(sample), name

    def test_from_worker_to_worker(self, client, workers):
        for name, sample in samples().items():
            [data] = client.scatter([sample], workers=workers[:1])
            here = client.submit(description, data, workers=workers[:1], pure=False)
            there = client.submit(description, data, workers=workers[1:], pure=False)
            (first, found), (second, moved) = here.result(), there.result()
            assert first != second and found == moved == values(sample), name

    def test_peaks_of_memory(self, client, workers):
        """Neither side has the bytes twice."""
        size = 128 * MIB
        first, second = workers
        data = client.submit(bytes_of, size, workers=[first])
        distributed.wait(data)
        before = client.run(peak_memory.begin)
        assert client.submit(len, data, workers=[second]).result() == size
        grown = {
            worker: client.run(peak_memory.growth, before[worker], workers=[worker])[worker]
            for worker in workers
        }
        assert grown[first] < 0.3 * size and grown[second] < 1.3 * size, grown

    def test_peak_of_memory_of_a_result(self, client, workers):
        """The scheduler, which passes it on, is in the process of the client."""
        size = 128 * MIB
        data = client.submit(bytes_of, size, workers=workers[:1], pure=False)
        distributed.wait(data)
        before = client.run(peak_memory.begin, workers=workers[:1])[workers[0]]
        here = peak_memory.begin()
        assert len(data.result()) == size
        assert peak_memory.growth(here) < 2.3 * size
        there = client.run(peak_memory.growth, before, workers=workers[:1])[workers[0]]
        assert there < 0.3 * size

    def test_client_without_the_serializers_is_told(self, client, monkeypatch):
        monkeypatch.delitem(distributed.protocol.dask_deserialize._lookup, ad.Array)
        with pytest.raises(TypeError, match=r"No dispatch for <class 'arrowdev\.Array'>"):
            client.submit(bytes_of, 10).result()

    def test_direct_results_need_no_serializers(self, client, monkeypatch):
        monkeypatch.delitem(distributed.protocol.dask_deserialize._lookup, ad.Array)
        assert len(client.gather(client.submit(bytes_of, 10), direct=True)) == 10

    def test_list_of_batches(self, client):
        found = client.submit(lambda: [batch(i) for i in range(3)]).result()
        assert ad.array_stream(found).read_all().to_pylist()[-1] == {"i": 3}

    def test_futures_are_a_stream(self, client):
        futures = client.map(batch, range(3))
        stream = ad.array_stream(future.result() for future in futures)
        assert [b["i"].to_pylist() for b in stream] == [[0, 1], [1, 2], [2, 3]]

    def test_stream_is_refused_with_what_to_do(self, client):
        with pytest.raises(TypeError, match=r"read_all\(\)"):
            client.submit(lambda: ad.array_stream([np.arange(3)])).result()

    def test_stream_as_an_argument_is_refused(self, client):
        with pytest.raises(TypeError, match="Could not serialize") as caught:
            client.submit(len, ad.array_stream([np.arange(3)])).result()
        assert "read_all()" in str(caught.value.__cause__)

    def test_device_memory_for_workers_without_the_device(self, client, software):
        array = ad.array(np.arange(3)).to("ext_dev:0")
        client.run(unpickle_on, "cpu")
        on_host = values(ad.array(np.arange(3)))
        assert client.submit(description, array, pure=False).result()[1] == on_host
        [data] = client.scatter([array], broadcast=True)
        assert client.submit(description, data, pure=False).result()[1] == on_host


def test_worker_that_cannot_unpickle_is_closed_by_dask(software, capfd):
    array = ad.array(np.arange(3)).to("ext_dev:0")
    with cluster_of(1) as cluster, distributed.Client(cluster) as client:
        future = client.submit(description, array)
        end = time.monotonic() + 60
        while client.scheduler_info()["workers"]:
            assert time.monotonic() < end
            time.sleep(0.05)
        future.cancel()
    assert "ARROWDEV_UNPICKLE_ON=cpu" in capfd.readouterr().err
