"""Bits, nulls and strides: arrowdev beside NumPy, pyarrow and a plain copy.

    python benchmarks/kernels.py                    # on the host: about two minutes
    python benchmarks/run.py --kernels              # the same by medians, and validation
    python benchmarks/kernels.py --sizes 1e3 1e6    # quicker
    python benchmarks/kernels.py --device opencl    # kernels beside the runtime's own copy

Every row is one statement per library; they are run in turns, in one process, and the
smallest time of each counts. "copy" is the copy of as many bytes as the larger of what the
statement reads and writes, into new memory, as the result is: numpy.ndarray.copy() on the
host, and on a device arrowdev's copy, which is one call of the runtime (copies.py shows
what it adds). Nothing is asserted: the table says how many times as long as each peer
arrowdev takes, so that below 1 it is faster. run.py writes the ratio the other way round.
"""

import gc
import json
import re
import sys
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
from paths import KERNELS, Case, Goal, HotPath, validation
from run import measure_path, part_parser

import arrowdev as ad

SIZES = [10**3, 10**6, 10**8]
SECONDS = 0.4  # per statement and row
ROUNDS = 7


def best_of(statements):
    """Seconds of each, in turns."""
    best = dict.fromkeys(statements, float("inf"))
    counts = {}
    for name, run in statements.items():
        start = time.perf_counter()
        run()
        taken = time.perf_counter() - start
        counts[name] = max(1, min(10000, int(SECONDS / ROUNDS / max(taken, 1e-7))))
    for _ in range(ROUNDS):
        for name, run in statements.items():
            n = counts[name]
            start = time.perf_counter()
            for _ in range(n):
                run()
            best[name] = min(best[name], (time.perf_counter() - start) / n)
    return best


# --- on the host ------------------------------------------------------------------------------


def bools(n):
    return np.random.default_rng(1).integers(0, 2, n, np.uint8).astype(bool)


def unpack(n, pa):
    """Bits to bytes."""
    bits = pa.array(bools(n))
    ours = ad.array(bits)
    packed = np.frombuffer(bits.buffers()[1], np.uint8)
    yield "arrowdev", lambda: ad.tensor(ours)
    yield "numpy", lambda: np.unpackbits(packed, count=n, bitorder="little")
    yield "pyarrow", lambda: bits.to_numpy(zero_copy_only=False)
    yield "copy", np.zeros(n, np.uint8).copy


def pack(n, pa):
    """Bytes to bits."""
    values = bools(n)
    yield "arrowdev", lambda: ad.array(values, "bool")
    yield "numpy", lambda: np.packbits(values, bitorder="little")
    yield "pyarrow", lambda: pa.array(values)
    yield "copy", values.copy


def count(n, pa):
    """Nulls are counted, at a bit offset of 3."""
    validity = np.packbits(bools(n + 8), bitorder="little")
    values = np.zeros(n + 8, np.int8)
    buffers = [pa.py_buffer(validity), pa.py_buffer(values)]
    tensors = [ad.tensor(validity), ad.tensor(values)]

    def ours():
        return ad.Array.from_buffers("int8", n, tensors, offset=3).null_count

    def theirs():
        return pa.Array.from_buffers(pa.int8(), n, buffers, offset=3).null_count

    assert ours() == theirs()
    yield "arrowdev", ours
    yield "pyarrow", theirs
    yield "copy", validity.copy


def column(n, dtype):
    import pyarrow as pa

    values = np.arange(n).astype(dtype)
    return pa.array(values, mask=bools(n))


def fill(dtype):
    def rows(n, pa):
        import pyarrow.compute

        col = column(n, dtype)
        ours = ad.array(col)
        valid = ~bools(n)
        values = np.arange(n).astype(dtype)
        zero = values.dtype.type(0)
        yield "arrowdev", lambda: ad.tensor(ours, nulls="fill", fill_value=0)
        yield "numpy", lambda: np.where(valid, values, zero)
        yield "pyarrow", lambda: pyarrow.compute.fill_null(col, pa.scalar(0, col.type))
        yield "copy", values.copy

    rows.__doc__ = f"Nulls of {np.dtype(dtype)} are filled, half of the rows."
    return rows


def gather(n, pa):
    """Every second column of a matrix of float32, made compact."""
    matrix = np.zeros((max(1, n // 500), 1000), np.float32)[:, ::2]
    yield "arrowdev", lambda: ad.tensor(matrix, copy=True)
    yield "numpy", lambda: np.ascontiguousarray(matrix)
    yield "copy", np.zeros(2 * matrix.size, np.float32).copy


def compact(n, pa):
    """A bitmap at a bit offset of 3 is copied to offset 0."""
    col = column(n + 8, "int8")[3 : n + 3]
    ours = ad.array(col)
    ours.count_nulls()
    yield "arrowdev", ours.compact
    yield "copy", np.zeros((n + 7) // 8, np.uint8).copy


def join(n, pa):
    """Ten columns of int32 with nulls, at odd bit offsets, become one."""
    col = column(n + 80, "int32")
    parts = [col[k : k + n // 10] for k in range(3, 13)]
    ours = [ad.array(part) for part in parts]
    yield "arrowdev", lambda: ad.concat(ours)
    yield "pyarrow", lambda: pa.concat_arrays(parts)
    # pyarrow's default pool reuses the memory of the last turn; this one asks the system.
    fresh = pa.system_memory_pool()
    yield "pyarrow, new memory", lambda: pa.concat_arrays(parts, memory_pool=fresh)
    yield "copy", np.zeros(n, np.int32).copy


HOST = {
    "bits to bytes": unpack,
    "bytes to bits": pack,
    "count of nulls": count,
    "fill int8": fill("int8"),
    "fill int32": fill("int32"),
    "fill float64": fill("float64"),
    "gather": gather,
    "compact": compact,
    "concat": join,
}


# --- on a device ------------------------------------------------------------------------------


def done(result):
    result.synchronize()
    return result


def on_device(name, n):
    """(row, what arrowdev does, bytes of the copy to compare with)"""
    rng_bits = bools(n)
    bits = ad.array(rng_bits, "bool").to(name)
    mask = ad.tensor(rng_bits).to(name)
    data = ad.tensor(np.arange(n, dtype=np.float32)).to(name)
    nullable = ad.array(data, validity=mask)
    part = nullable[3:]
    part.count_nulls()
    nullable.count_nulls()
    shifted = bits[3:]
    # Where handles name memory, the values have to be copied, too.
    compacted = 4 * n if name.startswith("opencl") else n // 8
    for each in (bits, mask, data):
        each.synchronize()
    yield "bits to bytes", lambda: done(ad.tensor(bits)), n
    yield "bytes to bits", lambda: done(ad.array(ad.array(mask), "bool")), n
    yield "fill float32", lambda: done(ad.tensor(nullable, nulls="fill", fill_value=0)), 4 * n
    yield "count of nulls", lambda: nullable[3:].count_nulls(), n // 8
    yield "shift of bits", lambda: done(shifted.compact()), n // 8
    # The bitmap is read twice, and the host waits for the count in between.
    yield "compact", lambda: done(part.compact()), compacted
    yield "concat", lambda: done(ad.concat([part, part])), 8 * n


def copied(name, nbytes):
    there = ad.tensor(np.zeros(max(8, nbytes), np.uint8)).to(name)
    there.synchronize()
    return lambda: done(ad.tensor(there, copy=True))


# --- rows for run.py ----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def prepared(title, n):
    import pyarrow

    return dict(HOST[title](n, pyarrow))


def row(title, n):
    """The first peer does the same work, if there is such a peer. The goal is about it."""
    cases = [
        Case(label, "run()", f"import kernels; run = kernels.prepared({title!r}, {n})[{label!r}]")
        for label in prepared(title, n)
    ]
    ours, *peers = cases
    goal = Goal(factor=1) if peers[0].label != "copy" else None
    return HotPath(f"{title}, {n:,}", KERNELS, ours, tuple(peers), goal=goal)


def rows_of(n, arguments):
    found = (row(title, n) for title in HOST if re.search(arguments.only, f"{title}, {n:,}"))
    # An execution may take seconds, so a few are enough.
    repeats = min(arguments.repeats, 21) if n > 10**6 else arguments.repeats
    for path in found:
        yield measure_path(path, repeats, arguments.seconds)


def rows_of_validation(arguments):
    for path in validation():
        if re.search(arguments.only, path.name):
            yield measure_path(path, arguments.repeats, arguments.seconds)


PARTS = {"validation": rows_of_validation}
PARTS |= {str(n): lambda arguments, n=n: rows_of(n, arguments) for n in SIZES}


# --- the table ----------------------------------------------------------------------------------


def print_row(title, n, best):
    ours = best.pop("arrowdev")
    ratios = "  ".join(f"{name} {ours / time:5.2f}" for name, time in best.items())
    print(f"{title:<16} {n:>10,}  {ours * 1e6:12.2f} us   {ratios}", flush=True)


def device_name(kind):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))
    peer = __import__(f"peer_{kind}")
    return peer.name() if kind == "opencl" else peer.NAME


def main():
    parser = part_parser(__doc__)
    parser.add_argument("--sizes", nargs="+", type=float, default=SIZES)
    parser.add_argument("--device", choices=["opencl", "oneapi"])
    parser.add_argument("part", nargs="?", choices=PARTS, help="for run.py: its rows as JSON")
    arguments = parser.parse_args()
    if arguments.part:
        gc.disable()
        print(json.dumps(list(PARTS[arguments.part](arguments))))
        return
    print("how many times as long as each peer arrowdev takes")
    for n in map(int, arguments.sizes):
        if arguments.device:
            for title, ours, nbytes in on_device(device_name(arguments.device), n):
                if arguments.only in title:
                    theirs = copied(device_name(arguments.device), nbytes)
                    print_row(title, n, best_of({"arrowdev": ours, "copy": theirs}))
            continue
        import pyarrow

        for title, rows in HOST.items():
            if arguments.only in title:
                print_row(title, n, best_of(dict(rows(n, pyarrow))))


if __name__ == "__main__":
    main()
