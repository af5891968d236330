"""Dask over ucxx, which carries frames of host memory. distributed-ucxx is 200 MB of wheels."""

import subprocess
import sys

import pytest

pytest.importorskip("distributed")
pytest.importorskip("ucxx")

pytestmark = pytest.mark.slow

# In a program of its own: UCX starts threads, and stays for the life of a process.
CODE = """
import arrowdev as ad, arrowdev.dask, numpy as np
from distributed import Client, LocalCluster

def make(n):
    return ad.record_batch({"x": np.arange(n)})

def total(batch):
    return type(batch).__name__, sum(batch["x"].to_pylist())

if __name__ == "__main__":
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(protocol="ucxx", **options) as cluster, Client(cluster) as client:
        assert client.scheduler.address.startswith("ucxx://")
        first, second = client.scheduler_info()["workers"]
        made = client.submit(make, 100_000, workers=[first])
        there = client.submit(total, made, workers=[second])
        print(*there.result(timeout=60), len(made.result()))
"""


def test_batch_goes_from_worker_to_worker(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(CODE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=150
    )
    assert done.stdout.splitlines()[-1:] == ["Array 4999950000 100000"], done.stderr
