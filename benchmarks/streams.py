"""What streams cost per batch: pull streams from C and from Python, async streams.

Run by run.py, part by part, in processes of their own; prints rows as JSON.
Needs a C compiler.
"""

import asyncio
import ctypes
import gc
import json
import os
import re
import sys
import tempfile
from itertools import chain, islice
from pathlib import Path
from time import perf_counter

from memory import bytes_in_use
from paths import AD, PA, Case, Goal, HotPath, columns
from run import measure_path, part_parser, row_of

import arrowdev as ad
from arrowdev import aio
from arrowdev.testing import _abi

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))

import compiler  # noqa: E402

GROUP, TRAINING = "streams", "training"
SETUP = f"{AD}; import streams; from streams import *"
N_FEW = 20_000  # batches of a repeat that is timed as a whole
MANY = 32  # columns


# --- a producer and a consumer in C --------------------------------------------------------------


def build():
    """streams.c as a library. It compiles quickly, so it is not cached."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "streams.so")
        include = [f"-I{HERE.parent / part}" for part in ("csrc", "tests/c")]
        done = compiler.run(
            [*compiler.command(), *compiler.STRICT, "-O2", "-fPIC", "-shared", *include,
             str(HERE / "streams.c"), "-o", str(target)]
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stderr)
        library = ctypes.CDLL(str(target))
    library.open_producer.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.drain.argtypes = [ctypes.c_void_p, ctypes.c_long]
    library.drain.restype = ctypes.c_double
    return library


LIBRARY = build()


def producer(n_columns):
    """The struct of a producer in C that never ends."""
    struct = _abi.ArrowDeviceArrayStream()
    LIBRARY.open_producer(ctypes.addressof(struct), n_columns)
    return struct


def stream_of(n_columns):
    """An ArrayStream over that producer."""
    struct = producer(n_columns)
    name = b"arrow_device_array_stream"
    return ad.array_stream(_abi.new_capsule(ctypes.addressof(struct), name, None))


def exported(stream):
    """The struct that a consumer in C gets from an ArrayStream."""
    return _abi.take(stream.__arrow_c_device_stream__(), "arrow_device_array_stream")


class Drain:
    """A consumer in C, without the GIL; has timeit() as a Timer has."""

    def __init__(self, struct):
        self.struct = struct

    def timeit(self, number):
        seconds = LIBRARY.drain(ctypes.addressof(self.struct), number)
        assert seconds >= 0, "the stream has ended"
        return seconds


class Iterate:
    """A for loop over an endless iterator."""

    def __init__(self, iterator):
        self.iterator = iterator

    def timeit(self, number):
        start = perf_counter()
        for _ in islice(self.iterator, number):
            pass
        return perf_counter() - start


class Run:
    """An event loop that reads `number` batches: a function of async_streams.py."""

    def __init__(self, function, queue_size):
        self.function, self.queue_size = function, queue_size

    def timeit(self, number):
        start = perf_counter()
        asyncio.run(self.function(number, self.queue_size))
        return perf_counter() - start


class Pushed:
    """A thread in C pushes to another one, both without Python: a stream there and back."""

    def __init__(self, queue_size):
        stream = aio.connect(stream_of(1), queue_size=queue_size).to_stream()
        self.drain = Drain(exported(stream))

    def timeit(self, number):
        return self.drain.timeit(number)


# --- rows ----------------------------------------------------------------------------------------


def passed_on():
    """A stream that arrowdev passes on, beside its producer."""
    for count, goal in ((1, Goal(at_most=10)), (MANY, None)):
        yield HotPath(
            f"batch of {count} columns through a stream, in C",
            GROUP,
            Case("arrowdev", "get_next, release", loop=f"Drain(exported(stream_of({count})))"),
            (Case("producer alone", "get_next, release", loop=f"Drain(producer({count}))"),),
            SETUP,
            goal,
            overhead=True,
        )


def iterated():
    """The objects of a stream in Python, beside its producer in C."""
    for count in (1, MANY):
        yield HotPath(
            f"batch of {count} columns in a for loop",
            GROUP,
            Case("arrowdev", "for batch in stream", loop=f"Iterate(stream_of({count}))"),
            (Case("producer alone", "get_next, release", loop=f"Drain(producer({count}))"),),
            SETUP,
            Goal(at_most=100 + 8 * count),
            overhead=True,
        )


class HostStream:
    """Shows only the C stream of a reader, so that no consumer can take a short cut."""

    __slots__ = ("__arrow_c_stream__",)

    def __init__(self, reader):
        self.__arrow_c_stream__ = reader.__arrow_c_stream__


def table(n_columns):
    """A pyarrow table of many batches."""
    import pyarrow as pa

    return pa.Table.from_batches([columns(n_columns)] * 2000)


def over_and_over(make, *arguments):
    """One endless iterator over the results of `make`."""

    def readers():
        while True:
            yield make(*arguments)

    return chain.from_iterable(readers())


def of_pyarrow():
    """Batches that pyarrow makes."""
    for count, goal in ((1, Goal(factor=1.6)), (10, None)):
        yield HotPath(
            f"batch of a pyarrow table, {count} columns, in a for loop",
            GROUP,
            Case("arrowdev", "for b in ad.array_stream(t)",
                 loop="Iterate(over_and_over(ad.array_stream, t))"),
            (
                Case("pyarrow", "for b in pa.RecordBatchReader.from_stream(HostStream(t))",
                     loop="Iterate(over_and_over("
                     "lambda: pa.RecordBatchReader.from_stream(HostStream(t))))"),
                Case("pyarrow, no C stream", "for b in t.to_reader()",
                     loop="Iterate(over_and_over(t.to_reader))"),
            ),
            f"{SETUP}; {PA}; t = table({count})",
            goal,
        )  # fmt: skip


def of_python():
    """Batches of a Python iterator."""
    setup = f"{SETUP}; {PA}; from itertools import repeat; batch = columns(1)"
    yield HotPath(
        "batch of a Python iterator, 1 column, in a for loop",
        GROUP,
        Case("arrowdev", "for b in ad.array_stream(repeat(batch))",
             loop="Iterate(ad.array_stream(repeat(ad.array(batch))))"),
        (
            Case("pyarrow", "for b in pa.RecordBatchReader.from_batches(..., repeat(batch))",
                 loop="Iterate(pa.RecordBatchReader.from_batches(batch.schema, repeat(batch)))"),
        ),
        setup,
    )  # fmt: skip
    yield HotPath(
        "batch of a Python iterator, 1 column, read in C",
        GROUP,
        Case("arrowdev", "get_next, release",
             loop="Drain(exported(ad.array_stream(repeat(ad.array(batch)))))"),
        setup=setup,
    )  # fmt: skip


async def wake_ups(n, queue_size):
    """What is left of a pushed stream without arrowdev: for as many batches as the queue holds,
    one wake-up of the producer's thread and one of the event loop."""
    loop = asyncio.get_running_loop()
    asked, answered = os.eventfd(0), os.eventfd(0, os.EFD_NONBLOCK)
    woken = None

    def wake():
        os.eventfd_read(answered)
        woken.set_result(None)

    loop.add_reader(answered, wake)
    times = max(n // queue_size, 1)
    assert LIBRARY.start_echo(asked, answered, ctypes.c_long(times)) == 0
    for _ in range(times):
        woken = loop.create_future()
        os.eventfd_write(asked, 1)
        await woken
    loop.remove_reader(answered)
    os.close(asked)
    os.close(answered)


def pushed():
    """Async streams. A batch in 1,000 ns is a million of them a second."""
    for size, goal in ((64, None), (1024, Goal(at_most=1000))):
        yield HotPath(
            f"batch pushed from thread to thread in C, queue {size}",
            GROUP,
            Case("arrowdev", "get_next, release", loop=f"Pushed({size})", number=N_FEW),
            setup=SETUP,
            goal=goal,
        )
    two_wake_ups = Case("floor", "two wake-ups", loop="Run(wake_ups, 5)", number=N_FEW // 4)
    for size, number in ((5, N_FEW // 4), (16, N_FEW // 4), (1024, N_FEW)):
        yield HotPath(
            f"batch in async for, in bursts, queue {size}",
            GROUP,
            Case("arrowdev", "async for", loop=f"Run(a.pushed, {size})", number=number),
            (Case("a wake-up each", "queue.get()", loop="Run(a.woken, 1024)", number=number),),
            f"{SETUP}; import async_streams as a",
            Goal(factor=5) if size != 16 else None,
            floor=two_wake_ups if size == 5 else None,
        )


N_ROWS, BATCH_ROWS = 32 * 1024, 4096


def points():
    """A pyarrow table of two features and a label, in chunks that are no training batches."""
    import numpy as np
    import pyarrow as pa

    x = np.random.default_rng(0).random(N_ROWS, dtype="f4")
    table = pa.table({"x": x, "y": x * 2, "label": (x > 0.5).astype("i8")})
    return pa.concat_tables([table[:20_000], table[20_000:]])


def slices(table):
    """A loop by hand: each column is joined, becomes a tensor, and is cut."""
    import torch

    columns = {
        name: torch.from_dlpack(table[name].combine_chunks()) for name in table.column_names
    }
    for first in range(0, table.num_rows, BATCH_ROWS):
        yield {name: column[first : first + BATCH_ROWS] for name, column in columns.items()}


def cut(table):
    """The same, but the table is cut by pyarrow."""
    import torch

    for batch in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
        yield {name: torch.from_dlpack(batch[name]) for name in batch.schema.names}


def loader(table, n_workers):
    """torch's own way: rows of tensors, collated to batches in other processes."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    columns = [torch.from_dlpack(column.combine_chunks()) for column in table.columns]
    data = TensorDataset(*columns)
    return DataLoader(data, BATCH_ROWS, num_workers=n_workers, persistent_workers=n_workers > 0)


def into_torch():
    """Columns of a table as training batches of torch."""
    ours = Case(
        "arrowdev",
        "for batch in ad.array_stream(t).rechunk(4096).into(classes): pass",
        "import torch; classes = dict.fromkeys(t.column_names, torch.Tensor)",
    )
    loops = (
        Case("columns joined, cut by torch", "for batch in slices(t): pass", "import torch"),
        Case("table joined, cut by pyarrow", "for batch in cut(t): pass", "import torch"),
    )
    loaders = (
        Case("DataLoader, 2 workers", "for batch in b: pass", "b = loader(t, 2)", number=1),
        Case("DataLoader, no worker", "for batch in b: pass", "b = loader(t, 0)", number=1),
    )
    for name, peers, goal in (
        ("training batch of 4,096 rows, beside loops by hand", loops, Goal(factor=0.83)),
        ("training batch of 4,096 rows, beside torch's DataLoader", loaders, Goal(factor=20)),
    ):
        per = N_ROWS // BATCH_ROWS
        setup = f"{SETUP}; t = points()"
        yield HotPath(name, TRAINING, ours, peers, setup, goal, per=per, item="batch")


def per_further_column(few, many):
    """The difference of two rows' overheads, by column."""
    goal = Goal(at_most=7)
    title = "each further column through a stream, in C"
    path = HotPath(title, GROUP, Case("arrowdev", "get_next, release"), goal=goal)
    overheads = [row["peers"][0]["overhead"] for row in (few, many)]
    value = (overheads[1] - overheads[0]) / (MANY - 1)
    return row_of(path) | {"unit": "ns", "value": value, "met": goal.met(value)}


def times(arguments):
    rows = {}
    for path in chain(passed_on(), iterated(), of_pyarrow(), of_python(), into_torch(), pushed()):
        if re.search(arguments.only, path.name):
            rows[path.name] = measure_path(path, arguments.repeats, arguments.seconds)
            gc.collect()
    yield from rows.values()
    both = [rows.get(path.name) for path in passed_on()]
    if all(both):
        yield per_further_column(*both)


# --- memory --------------------------------------------------------------------------------------


def growth(batches, count):
    """Peak of the memory in use, beyond what was in use after a hundredth of the batches."""
    found = []
    for _ in range(100):
        for _ in islice(batches, count // 100):
            pass
        gc.collect()  # memory that the measurement itself keeps
        found.append(bytes_in_use())
    return max(found) - found[0]


MEMORY_GOAL = Goal(at_most=100_000)


def memory(arguments):
    """Streams of a million batches (--quick: fewer) must not grow."""
    count = 1_000_000 if arguments.repeats > 3 else 10_000
    streams = {
        "pull stream": lambda: stream_of(1),
        "async stream, queue 64": lambda: aio.connect(stream_of(1), queue_size=64).to_stream(),
    }
    for name, make in streams.items():
        title = f"growth over {count:,} batches, {name}"
        if re.search(arguments.only, title):
            path = HotPath(title, GROUP, Case("arrowdev", "next(stream)"), goal=MEMORY_GOAL)
            value = growth(iter(make()), count)
            yield row_of(path) | {"unit": "bytes", "value": value, "met": MEMORY_GOAL.met(value)}


PARTS = {"times": times, "memory": memory}


def main():
    parser = part_parser(__doc__)
    parser.add_argument("part", choices=PARTS)
    arguments = parser.parse_args()
    gc.disable()
    print(json.dumps(list(PARTS[arguments.part](arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
