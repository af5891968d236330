"""What an exchange of device memory adds to the runtime calls that it needs.

Run by run.py, part by part, in processes of their own; prints rows as JSON.
Exchanges are measured on the stand-in driver: no GPU is needed, and the
runtime's calls take the same time on both sides. The parts "gpu" (gpu.py) and
"gpu-exchange" need one.
"""

import gc
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache

from paths import Case, Goal, HotPath
from run import measure_path, part_parser, row_of

GROUP = "devices"
SETUP = (
    "import standin; import arrowdev as ad; from standin import *; "
    "HELPER.library_set(POINTER, PRODUCER)"
)
PAIR = ".__arrow_c_device_array__()"
FROM_PYTHON = Goal(at_most=200)
FROM_C = Goal(at_most=60)
RECORD, WAIT, QUERY = "cuEventRecord", "cuStreamWaitEvent", "cuEventQuery"
SHORT = {RECORD: "record", WAIT: "wait", QUERY: "query"}


def exchange(name, statement, needed, setup="", goal=None, host=(), floor=""):
    """A row beside all runtime calls that are made and beside the required ones.

    The goal is for the time beyond all calls. `host` is the same exchange with host
    memory. `floor` is a statement with floor.py, which makes the same calls.
    """
    label = " + ".join(SHORT[call] for call in needed) if needed else "nothing"
    calls = f"calls_of({statement!r}, globals())"
    least = (
        "import floor; least = floor.bare; tensor = least.Tensor(); least.use(Table); "
        f"give_calls(least, {calls})"
    )
    return HotPath(
        name,
        GROUP,
        Case("arrowdev", statement),
        (
            Case(
                "all its runtime calls, bare", "bare(*calls_of(statement))", loop=f"bare(*{calls})"
            ),
            Case(f"bare {label}", f"bare{needed!r}", loop=f"bare(*{needed!r})"),
            *host,
        ),
        f"{SETUP}; {setup or 'pass'}",
        goal,
        overhead=True,
        floor=Case("floor", floor, least) if floor else None,
    )


def imports():
    record = (RECORD,)
    for name, source, goal, floor in (
        ("C exchange API", "Table()", FROM_PYTHON, f"least.take_on_device(x){PAIR}"),
        ("CUDA Array Interface", "Dict()", None, ""),
        ("__dlpack__()", "Methods()", None, ""),
    ):
        yield exchange(
            f"{name} -> device capsules, event recorded",
            f"ad.array(x){PAIR}",
            record,
            f"x = {source}",
            goal,
            (
                Case(
                    "numpy -> capsules",
                    f"ad.array(h){PAIR}",
                    "import numpy; h = numpy.arange(1000)",
                ),
            ),
            floor,
        )
    yield exchange("C exchange API -> Tensor", "ad.tensor(x)", record, "x = Table()")
    yield exchange(
        "C exchange API -> Tensor, default stream",
        "ad.tensor(x)",
        record,
        "x = Table(); HELPER.library_set(POINTER, 1)",
    )
    yield exchange("CUDA Array Interface -> Tensor", "ad.tensor(x)", record, "x = Dict()")


def exports():
    """Data with an event that arrowdev treats as pending: it never queries it."""
    yield exchange(
        "Tensor -> __dlpack__(stream), consumer waits",
        "x.__dlpack__(stream=CONSUMER)",
        (WAIT,),
        "x = ad.tensor(Table())",
        FROM_PYTHON,
        (Case("the same of host memory", "h.__dlpack__()", "h = ad.tensor(bytearray(80))"),),
        "tensor.on_stream(stream=CONSUMER)",
    )
    yield exchange(
        "Array -> device capsules, event goes along",
        f"x{PAIR}",
        (),
        "x = ad.array(Table())",
        FROM_PYTHON,
    )
    yield exchange(
        "device capsules -> Array",
        f"ad.array(x{PAIR})",
        (),
        "x = ad.array(Table())",
    )
    # A tensor is released after its consumer, whose stream therefore has an
    # event recorded on it; the library's own stream waits for it.
    yield exchange(
        "C exchange API -> Tensor -> __dlpack__(stream)",
        "ad.tensor(x).__dlpack__(stream=CONSUMER)",
        (RECORD, WAIT),
        "x = Table()",
    )


def in_c():
    """The core makes no call beyond the needed ones."""
    for name, step, needed in (
        ("core: event recorded", "record", (RECORD,)),
        ("core: stream waits", "wait", (WAIT,)),
        ("core: event recorded, stream waits", "both", (RECORD, WAIT)),
    ):
        label = " + ".join(SHORT[call] for call in needed)
        yield HotPath(
            name,
            GROUP,
            Case("arrowdev", f"core({step!r})", loop=f"core({step!r})"),
            (Case(f"bare {label}", f"bare{needed!r}", loop=f"bare(*{needed!r})"),),
            SETUP,
            FROM_C,
            overhead=True,
        )


def on_threads(label, loop, number=8000):
    """Many exchanges per repeat, so that the start of the threads does not count."""
    return Case(label, loop, loop=loop, number=number)


def scaling():
    """8 threads, with the driver whose lock they share, and with a runtime that has none."""
    yield HotPath(
        "core: record and wait, 8 threads",
        GROUP,
        on_threads("arrowdev, 8 threads", "threads(8)"),
        (
            on_threads(
                "bare record + wait, 8 threads", f"bare_on_threads(8, {RECORD!r}, {WAIT!r})"
            ),
            on_threads("1 thread", "threads(1)"),
            on_threads("2 threads", "threads(2)"),
        ),
        SETUP,
        overhead=True,
    )
    many = 200_000
    yield HotPath(
        "core alone, no runtime: 8 threads",
        GROUP,
        on_threads("arrowdev, 8 threads", "threads(8, IDLE)", many),
        (
            on_threads("1 thread", "threads(1, IDLE)", many),
            on_threads("2 threads", "threads(2, IDLE)", many),
        ),
        SETUP,
    )


# --- a GPU ------------------------------------------------------------------------

NO_GPU = "needs a GPU"
ON_A_GPU = ("gpu", "gpu-exchange")


def exchange_on_a_gpu():
    """The rows above with NVIDIA's driver instead of the stand-in (standin.py)."""
    for path in [*imports(), *exports(), *in_c(), *scaling()]:
        peers = tuple(peer for peer in path.peers if not peer.label.startswith("all its"))
        name = f"GPU: {path.name}"
        yield replace(path, name=name, group="gpu", peers=peers, goal=None, floor=None)


@cache
def has_gpu():
    """In a process of its own, because it loads libraries that affect the other parts."""
    question = "import arrowdev as ad; print(any(d.type in (2, 10) for d in ad.devices()))"
    done = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True)
    return done.stdout.strip() == "True"


# --- parts -------------------------------------------------------------------------


def copies_of(name):
    import copies  # needs numpy

    return copies.paths(name)


def on_a_gpu():
    import gpu

    return gpu.paths()


PARTS = {
    "exchange": lambda: [*imports(), *exports(), *in_c(), *scaling()],
    **{name: lambda name=name: copies_of(name) for name in ("host", "cuda", "opencl", "oneapi")},
    "gpu": on_a_gpu,
    "gpu-exchange": exchange_on_a_gpu,
}


def measured(path, part, arguments):
    """The row, or why there is no figure in it."""
    if part in ON_A_GPU and not has_gpu():
        return row_of(path) | {"not_measured": NO_GPU}
    try:
        return measure_path(path, arguments.repeats, arguments.seconds)
    except BaseException as error:
        # Without a compiler, tests/helpers/compiler.py raises pytest's Skipped.
        is_skipped = type(error).__name__ == "Skipped"
        if is_skipped or (part in ON_A_GPU and isinstance(error, Exception)):
            # A part that fails must not lose the figures of the others.
            return row_of(path) | {"not_measured": str(error) or repr(error)}
        raise


def main():
    parser = part_parser(__doc__)
    parser.add_argument("part", choices=PARTS)
    arguments = parser.parse_args()
    if arguments.part == "gpu-exchange":
        os.environ["ARROWDEV_BENCHMARKS_DRIVER"] = "real"  # for standin.py
    gc.disable()
    rows = []
    for path in PARTS[arguments.part]():
        if re.search(arguments.only, path.name):
            rows.append(measured(path, arguments.part, arguments))
            gc.collect()
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
