"""Other processes that attach to what a test shares."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")


def wait_until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def connections(shared):
    return ad._core._published_state(shared._published)[1]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def run(code, *arguments, **options):
    """Run code in a process of its own; what it has printed."""
    start = "import sys, os, pickle, arrowdev as ad, numpy as np\n"
    done = subprocess.run(
        [sys.executable, "-c", start + code, *map(str, arguments)],
        capture_output=True,
        timeout=60,
        **options,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@contextlib.contextmanager
def process(code, *arguments):
    """A process that has printed a line, and ends when its input is closed."""
    start = "import sys, os, arrowdev as ad, numpy as np\n"
    end = "\nsys.stdout.flush()\nsys.stdin.read()\n"
    child = subprocess.Popen(
        [sys.executable, "-c", start + code + end, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        child.line = child.stdout.readline().decode().strip()
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


# One of each kind of array, by its name.
VALUES = {
    "numbers": np.arange(100),
    "nulls": pa.array([1, None, 3], "int16"),
    "slice": pa.array([None, True, False, None, True])[1:4],
    "strings": pa.array(["a", None, "", "long" * 10]),
    "views": pa.array(["a", None, "long" * 10], pa.string_view()),
    "lists": pa.array([[1, None], None, [], [2]]),
    "structs": pa.array([{"a": 1, "b": "x"}, None]),
    "categories": pa.array(["x", "y", "x", None]).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays([2, 3], [5, None]),
    "times": pa.array([0, None], pa.timestamp("us", "Europe/Paris")),
    "a batch": pa.record_batch({"a": [1, 2], "b": ["x", None]}),
    "no rows": pa.array([], "float64"),
    "a batch without columns": pa.record_batch([pa.array([])], names=["n"]),
    "nothing but nulls": pa.nulls(3),
    "a table": pa.table({"a": pa.chunked_array([[1], [2, 3]])}),
    "a matrix": np.arange(12.0).reshape(3, 4),
    "columns first": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "every second": np.arange(10)[::2],
    "a scalar": np.array(5),
    "an empty matrix": np.empty((0, 3)),
    "bools": np.array([True, False]),
    "bytes": b"abc",
    "a buffer": ad.device("cpu").empty(3),
}
