"""A column and a batch through Dask and Ray: seconds, and the peak of memory of both sides.

By itself: python benchmarks/engines.py [--markdown docs/clusters.md]. Starts a local cluster of
processes; arrowdev, pyarrow and NumPy take turns, in random order.
"""

import argparse
import contextlib
import gc
import json
import random
import statistics
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
from run import conditions, progress, version, when_and_where, write_table

import arrowdev as ad

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

import peak_memory

MARKERS = ("<!-- engines: begin -->", "<!-- engines: end -->")
MIB = 1 << 20


# --- what is moved -------------------------------------------------------------------------------


def numbers(nbytes):
    return np.arange(nbytes // 8)


def batch(nbytes):
    """Half of the bytes are numbers with nulls, the other half is strings of 12 letters."""
    rows = nbytes // 24
    values = numbers(8 * rows)
    bits = np.full((rows + 7) // 8, 0b11111110, "u1")
    offsets = np.arange(0, 12 * rows + 1, 12, dtype="i4")
    letters = np.full(12 * rows, ord("x"), "u1")
    return ad.record_batch(
        {
            "n": ad.Array.from_buffers("l", rows, [bits, values]),
            "s": ad.Array.from_buffers("u", rows, [None, offsets, letters]),
        }
    )


MAKERS = {
    ("int64 column", "arrowdev"): lambda nbytes: ad.array(numbers(nbytes)),
    ("int64 column", "pyarrow"): lambda nbytes: pa.array(numbers(nbytes)),
    ("int64 column", "numpy"): numbers,
    ("batch with nulls and strings", "arrowdev"): batch,
    ("batch with nulls and strings", "pyarrow"): lambda nbytes: pa.record_batch(batch(nbytes)),
}


def read_end(data):
    """Read the last value: the data have to be there."""
    if isinstance(data, np.ndarray):
        return data[-1]
    if isinstance(data, pa.RecordBatch):
        return data.slice(len(data) - 1).to_pylist()
    return data[-1] if isinstance(data, pa.Array) else data[len(data) - 1 :].to_pylist()


# --- Dask ----------------------------------------------------------------------------------------


class Dask:
    """From the first worker to the second one, and from there to the client."""

    ways = ("worker to worker", "worker to client")

    def __enter__(self):
        import dask
        import distributed

        import arrowdev.dask  # noqa: F401

        self.stack = contextlib.ExitStack()
        dask.config.set({"distributed.worker.preload": ["arrowdev.dask"]})
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        )
        self.client = self.stack.enter_context(
            distributed.Client(self.stack.enter_context(cluster))
        )
        self.first, self.second = self.client.scheduler_info()["workers"]
        return self

    def __exit__(self, *args):
        self.stack.close()

    def ask(self, worker, function, *args):
        return self.client.run(function, *args, workers=[worker])[worker]

    def run(self, function, *args, worker):
        return self.client.submit(function, *args, workers=[worker], pure=False)

    def measure(self, make, nbytes):
        """(seconds, growth of the sender, growth of the receiver) of each way."""
        data = self.run(make, nbytes, worker=self.first)
        data.result  # noqa: B018
        self.wait(data)
        begun = [self.ask(worker, peak_memory.begin) for worker in (self.first, self.second)]
        started = perf_counter()
        self.run(read_end, data, worker=self.second).result()
        seconds = perf_counter() - started
        grown = [
            self.ask(worker, peak_memory.growth, before)
            for worker, before in zip((self.first, self.second), begun, strict=True)
        ]
        yield seconds, *grown
        data.cancel()

        data = self.run(make, nbytes, worker=self.first)
        self.wait(data)
        there, here = self.ask(self.first, peak_memory.begin), peak_memory.begin()
        started = perf_counter()
        found = data.result()
        read_end(found)
        seconds = perf_counter() - started
        yield seconds, self.ask(self.first, peak_memory.growth, there), peak_memory.growth(here)

    def wait(self, future):
        import distributed

        distributed.wait(future)


# --- Ray -----------------------------------------------------------------------------------------


class Ray:
    """Put into the object store by this process, and read from there by a worker."""

    ways = ("ray.put", "ray.get in a worker")

    def __enter__(self):
        import ray

        self.ray = ray
        ray.cloudpickle.register_pickle_by_value(peak_memory)
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")

        @ray.remote
        class Reader:
            def begin(self):
                self.before = peak_memory.begin()

            def read(self, references):
                started = perf_counter()
                read_end(ray.get(references[0]))
                return perf_counter() - started, peak_memory.growth(self.before)

        self.reader = Reader.remote()
        return self

    def __exit__(self, *args):
        self.ray.shutdown()

    def measure(self, make, nbytes):
        data = make(nbytes)
        self.ray.get(self.reader.begin.remote())
        before = peak_memory.begin()
        started = perf_counter()
        reference = self.ray.put(data)
        seconds = perf_counter() - started
        grown = peak_memory.growth(before)
        yield seconds, grown, 0
        seconds, theirs = self.ray.get(self.reader.read.remote([reference]))
        yield seconds, 0, theirs


ENGINES = {"dask": Dask, "ray": Ray}


# --- the table -----------------------------------------------------------------------------------


def measure_engine(name, nbytes, repeats):
    with ENGINES[name]() as engine:
        found = {(way, *key): [] for way in engine.ways for key in MAKERS}
        for i in range(repeats + 1):  # the first one warms up
            for key in random.sample(list(MAKERS), len(MAKERS)):
                progress(f"{name}: {i}/{repeats} {' '.join(key)}")
                for way, figures in zip(
                    engine.ways, engine.measure(MAKERS[key], nbytes), strict=True
                ):
                    if i > 0:
                        found[(way, *key)].append(figures)
                gc.collect()
    for (way, what, library), figures in found.items():
        seconds, sent, received = zip(*figures, strict=True)
        yield {
            "engine": name,
            "way": way,
            "what": what,
            "library": library,
            "seconds": statistics.median(seconds),
            "least": min(seconds),
            "sender": max(sent),
            "receiver": max(received),
        }


HEADINGS = ["through", "what", "library", "ms (least)", "sender", "receiver"]


def cells(row, nbytes):
    def times(figure):
        return f"{figure / nbytes:.2f}"

    took = f"{row['seconds'] * 1e3:,.1f} ({row['least'] * 1e3:,.1f})"
    where = f"{row['engine']}, {row['way']}"
    return [
        where, row["what"], row["library"], took, times(row["sender"]), times(row["receiver"])
    ]  # fmt: skip


def table(rows, measured, nbytes):
    rules = ["---", "---", "---", "---:", "---:", "---:"]
    lines = [HEADINGS, rules, *(cells(row, nbytes) for row in rows)]
    return "\n".join(
        [
            *("| " + " | ".join(line) + " |" for line in lines),
            "",
            f"{nbytes / MIB:,.0f} MiB, medians of {measured['repeats']} repeats, "
            f"{when_and_where(measured)}.",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    add("--mib", type=int, default=1024, help="size of what is moved (default 1024)")
    add("--repeats", type=int, default=7)
    add("--json", metavar="FILE")
    add("--markdown", metavar="FILE", help="write the table between its markers")
    arguments = parser.parse_args()
    nbytes = arguments.mib * MIB
    rows = []
    for name in arguments.engines:
        rows += measure_engine(name, nbytes, arguments.repeats)
    progress("")
    measured = conditions(arguments.repeats, None)
    measured["versions"] = {
        name: version(name) for name in ("arrowdev", "numpy", "pyarrow", "distributed", "ray")
    }
    text = table(rows, measured, nbytes)
    print(text)
    if arguments.json:
        report = json.dumps({"conditions": measured, "rows": rows}, indent=1)
        Path(arguments.json).write_text(report + "\n", encoding="utf-8")
    if arguments.markdown:
        write_table(arguments.markdown, text, MARKERS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
