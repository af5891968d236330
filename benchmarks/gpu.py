"""Exchanges, copies and kernels on a GPU, beside torch, CuPy and the driver's bare copies.

    python benchmarks/gpu.py --json gpu.json        # a table in GB/s and microseconds
    python benchmarks/run.py --devices              # the same rows, by medians and ratios
    python benchmarks/gpu.py --quick --standin      # does it run? on the stand-in driver

Nothing is asserted. A copy inside the device reads and writes: its bytes count twice.
"""

import argparse
import gc
import json
import sys
from functools import lru_cache
from pathlib import Path

GROUP = "gpu"
PAIR = ".__arrow_c_device_array__()"
SIZES = {"64 KiB": 1 << 16, "1 MiB": 1 << 20, "64 MiB": 1 << 26, "512 MiB": 1 << 29}
QUICK = ("64 KiB", "1 MiB")
ITEMS = 1 << 28  # rows of the kernels' columns: 1 GiB
QUICK_ITEMS = 1 << 16
EVENT_GOAL_NS = 1500


# --- libraries ----------------------------------------------------------------------------


def torch():
    """torch, built for CUDA."""
    import torch

    if not torch.cuda.is_available():
        raise ImportError("torch was built without CUDA", name="torch (built for CUDA)")
    return torch


def cupy():
    import cupy

    return cupy


def driver():
    """cuda-bindings, with the primary context of device 0."""
    from cuda.bindings import driver as cu

    ask(cu.cuInit, 0)
    ask(cu.cuCtxSetCurrent, ask(cu.cuDevicePrimaryCtxRetain, 0))
    return cu


def ask(function, *arguments):
    code, *results = function(*arguments)
    if code != 0:
        raise RuntimeError(f"{function.__name__} answered {code}")
    return results[0] if results else None


class Interface:
    """1,000 int64 with the CUDA Array Interface, pending on a stream of its own."""

    def __init__(self):
        cu = driver()
        self.stream = int(ask(cu.cuStreamCreate, 1))
        self.pointer = int(ask(cu.cuMemAlloc, 8000))
        self.__cuda_array_interface__ = {
            "shape": (1000,),
            "typestr": "<i8",
            "data": (self.pointer, False),
            "version": 3,
            "stream": self.stream,
        }


# --- exchanges ------------------------------------------------------------------------------

TORCH = "import gpu; torch = gpu.torch(); x = torch.arange(1000, device='cuda')"
CUPY = "import gpu; cupy = gpu.cupy(); x = cupy.arange(1000)"
SIDE = "s = torch.cuda.Stream(); torch.cuda.set_stream(s)"
BOTH = f"{TORCH}; cupy = gpu.cupy()"


def exchanges():
    """(name, statement, setup, goal in ns, peers as (label, statement, setup))."""
    capsules = f"ad.array(x){PAIR}"
    yield (
        "torch on a side stream -> device capsules with an event",
        *(capsules, f"{TORCH}; {SIDE}", EVENT_GOAL_NS, ()),
    )
    yield (
        "the same, with an empty queue, and the synchronization that empties it",
        *(f"{capsules}; s.synchronize()", f"{TORCH}; {SIDE}", None),
        (("the synchronization alone", "s.synchronize()", "pass"),),
    )
    peer = ("torch -> CuPy by DLPack", "cupy.from_dlpack(x)", "cupy = gpu.cupy()")
    yield "torch -> device capsules with an event", capsules, TORCH, None, (peer,)
    peer = ("CuPy -> torch by DLPack", "torch.from_dlpack(x)", "torch = gpu.torch()")
    yield "CuPy -> device capsules with an event", capsules, CUPY, None, (peer,)
    yield (
        "CUDA Array Interface -> device capsules with an event",
        *(capsules, "import gpu; x = gpu.Interface()", EVENT_GOAL_NS, ()),
    )
    yield (
        "device capsules -> torch",
        *("ad.convert(p, torch.Tensor)", f"{TORCH}; p = ad.array(x)", None),
        (("CuPy -> torch by DLPack", "torch.from_dlpack(c)", "c = gpu.cupy().arange(1000)"),),
    )
    yield (
        "torch -> Tensor -> CuPy",
        *("cupy.from_dlpack(ad.tensor(x))", BOTH, None),
        (("torch -> CuPy by DLPack", "cupy.from_dlpack(x)", "pass"),),
    )
    yield (
        "CuPy -> Tensor -> torch",
        *("torch.from_dlpack(ad.tensor(c))", f"{BOTH}; c = cupy.arange(1000)", None),
        (("CuPy -> torch by DLPack", "torch.from_dlpack(c)", "pass"),),
    )
    yield "Tensor -> is_ready()", "t.is_ready()", f"{TORCH}; t = ad.tensor(x)", None, ()


# --- copies ---------------------------------------------------------------------------------

WAYS = ("host -> device", "device -> host", "device -> pinned host", "device -> device")


def by_arrowdev(nbytes):
    import numpy as np

    import arrowdev as ad

    here = ad.tensor(np.zeros(nbytes, "u1"))
    there = here.to("cuda:0")
    there.synchronize()

    def done(tensor):
        tensor.synchronize()
        return tensor

    return (
        lambda: done(here.to("cuda:0")),
        lambda: there.to("cpu"),
        lambda: done(there.to("cuda_host:0")),
        lambda: done(ad.tensor(there, copy=True)),
    )


def by_torch(nbytes):
    library = torch()
    here = library.zeros(nbytes, dtype=library.uint8)
    pinned, there = here.pin_memory(), here.cuda()

    def done(tensor):
        library.cuda.current_stream().synchronize()
        return tensor

    return (
        lambda: done(here.cuda()),
        lambda: there.cpu(),
        lambda: done(pinned.copy_(there, non_blocking=True)),
        lambda: done(there.clone()),
    )


def by_cupy(nbytes):
    library = cupy()
    import numpy as np

    here = np.zeros(nbytes, "u1")
    memory = library.cuda.alloc_pinned_memory(nbytes)
    pinned = np.frombuffer(memory, "u1", nbytes)
    there = library.asarray(here)

    def done(array):
        library.cuda.get_current_stream().synchronize()
        return array

    return (
        lambda: done(library.asarray(here)),
        lambda: library.asnumpy(there),
        lambda: there.get(out=pinned),
        lambda: done(there.copy()),
    )


def by_driver(nbytes):
    """Into memory that is there already: no allocation."""
    import numpy as np

    cu = driver()
    here = np.zeros(nbytes, "u1")
    pinned = int(ask(cu.cuMemHostAlloc, nbytes, 0))
    one, two = (int(ask(cu.cuMemAlloc, nbytes)) for _ in range(2))

    def inside():
        ask(cu.cuMemcpyDtoDAsync, one, two, nbytes, 1)
        ask(cu.cuStreamSynchronize, 1)

    return (
        lambda: ask(cu.cuMemcpyHtoD, one, here.ctypes.data, nbytes),
        lambda: ask(cu.cuMemcpyDtoH, here.ctypes.data, two, nbytes),
        lambda: ask(cu.cuMemcpyDtoH, pinned, two, nbytes),
        inside,
    )


COPIES = {
    "arrowdev": by_arrowdev,
    "driver, no allocation": by_driver,
    "torch": by_torch,
    "CuPy": by_cupy,
}


@lru_cache(maxsize=len(COPIES))
def copies_of(label, nbytes):
    """Keeps the arrays of one size at a time."""
    return dict(zip(WAYS, COPIES[label](nbytes), strict=True))


# --- kernels --------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def kernels_of(n):
    """{row: (what arrowdev does, bytes of the copy beside it)}."""
    import kernels

    driver()
    return {name: (run, nbytes) for name, run, nbytes in kernels.on_device("cuda:0", n)}


@lru_cache(maxsize=2)
def bare_copy(nbytes):
    return by_driver(max(8, nbytes))[3]


KERNEL_ROWS = {  # bytes of the copy, for n rows, as kernels.on_device() has them
    "bits to bytes": lambda n: n,
    "bytes to bits": lambda n: n,
    "fill float32": lambda n: 4 * n,
    "count of nulls": lambda n: n // 8,
    "shift of bits": lambda n: n // 8,
    "compact": lambda n: n // 8,
    "concat": lambda n: 8 * n,
}


# --- rows -----------------------------------------------------------------------------------


def paths(quick=False):
    from paths import Case, Goal, HotPath

    for name, statement, setup, goal, peers in exchanges():
        yield HotPath(
            f"GPU: {name}",
            GROUP,
            Case("arrowdev", statement),
            tuple(Case(*peer) for peer in peers),
            f"import arrowdev as ad; {setup}",
            Goal(at_most=goal) if goal else None,
        )
    for label, nbytes in SIZES.items():
        for way in WAYS if not quick or label in QUICK else ():
            cases = [
                Case(who, "run()", f"run = gpu.copies_of({who!r}, {nbytes})[{way!r}]")
                for who in COPIES
            ]
            moved = 2 * nbytes if way == WAYS[3] else nbytes
            yield HotPath(
                f"GPU: copy of {label}, {way}",
                *(GROUP, cases[0], tuple(cases[1:]), "import gpu"),
                nbytes=moved,
            )
    n = QUICK_ITEMS if quick else ITEMS
    for name, copied in KERNEL_ROWS.items():
        yield HotPath(
            f"GPU: {name}, {n:,}",
            GROUP,
            Case("arrowdev", "run()", f"run = gpu.kernels_of({n})[{name!r}][0]"),
            (Case("copy", "run()", f"run = gpu.bare_copy({copied(n)})"),),
            "import gpu",
            nbytes=2 * copied(n),
        )


# --- the table ------------------------------------------------------------------------------


def line(row):
    if "not_measured" in row:
        return f"{row['name']:<64} not measured: {row['not_measured']}"
    if "ours" not in row:
        return row["name"]
    ours = row["ours"]["median"]
    rate = f"{row['bytes'] / ours:10.1f} GB/s" if row.get("bytes") else " " * 15
    peers = "  ".join(
        f"{peer['label']} {peer['median'] / 1e3:.2f} us"
        + (f" ({peer['ratio']:.2f}x)" if "ratio" in peer else "")
        for peer in row["peers"]
        if "median" in peer
    )
    return f"{row['name']:<64} {ours / 1e3:12.2f} us {rate}   {peers}"


def conditions():
    import run

    cu = driver()
    name = ask(cu.cuDeviceGetName, 256, 0).split(b"\0")[0].decode()
    names = ("torch", "cupy-cuda13x", "cupy-cuda12x", "jax", "numba-cuda", "cuda-bindings")
    return run.conditions(0, 0) | {
        "device": name,
        "cuda_driver": int(ask(cu.cuDriverGetVersion)),
        "versions": {name: run.version(name) for name in ("arrowdev", "numpy", *names)},
    }


def use_standin():
    import standin

    assert standin.DRIVER is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--only", default="", help="rows with this text in their name")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats")
    parser.add_argument("--standin", action="store_true", help="on the stand-in driver")
    parser.add_argument("--show", metavar="FILE", help="print what --json wrote, or run.py's")
    arguments = parser.parse_args()
    if arguments.show:
        report = json.loads(Path(arguments.show).read_text(encoding="utf-8"))
        print(*map(line, report["paths"]), sep="\n")
        return 0
    if arguments.standin:
        use_standin()
    from run import measure_path, row_of

    repeats, seconds = (5, 0.0002) if arguments.quick else (31, 0.005)
    report = {"conditions": conditions(), "paths": []}
    gc.disable()
    for path in paths(arguments.quick):
        if arguments.only not in path.name:
            continue
        try:
            row = measure_path(path, repeats, seconds)
        except Exception as error:
            row = row_of(path) | {"not_measured": str(error) or repr(error)}
        report["paths"].append(row)
        print(line(row), flush=True)
        gc.collect()
    print("{device}, CUDA {cuda_driver}, Python {python}".format(**report["conditions"]))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
