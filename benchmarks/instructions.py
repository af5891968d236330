"""Instructions of the hot paths, counted by callgrind: repeatable, unlike time.

A worker runs under valgrind: each path N times, then 2N times; the difference
over N is the path's own count, without start-up or set-up. os.getppid() marks
the borders: callgrind writes its counter out, and starts again from zero, at
each call of the C function of that name.

budget.json holds what was counted last, with the versions of what else is in
the count (the interpreter, numpy). `run.py --instructions --check` fails when
a path takes more than that and the tolerance.
"""

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from itertools import repeat
from pathlib import Path

BUDGET = Path(__file__).resolve().parent / "budget.json"
TOLERANCE = 1.05
TOLERANCE_OTHER_VERSIONS = 1.15
MARK = "getppid"


@dataclass(frozen=True)
class Row:
    """`minus`: a statement that is counted in the same way and subtracted.
    `per`: columns, or iterations of a loop in C."""

    name: str
    statement: str
    setup: str = ""
    minus: str = ""
    per: int = 1
    loops: int = 400
    needs: str = "numpy"


PAIR = ".__arrow_c_device_array__()"
WIDE = (
    "wide = ad.array(ad.record_batch({f'c{i}': x for i in range(COUNT)})"
    ".__arrow_c_device_array__())"
)
PRODUCER = (
    f"from paths import DeviceOnly; column = ad.array(ad.array(x){PAIR}); obj = DeviceOnly(column)"
)


def wide(count):
    return {"setup": WIDE.replace("COUNT", str(count)), "per": count, "loops": 4000 // count}


ROWS = (
    Row("empty loop", "pass"),
    Row("numpy -> capsules", f"ad.array(x){PAIR}"),
    Row("numpy -> ad.array", "ad.array(x)"),
    Row("numpy -> ad.tensor", "ad.tensor(x)"),
    Row("re-export of a column", f"column{PAIR}", f"column = ad.array(ad.array(x){PAIR})"),
    Row("device capsules -> np.from_dlpack", "np.from_dlpack(ad.array(obj))", PRODUCER,
        minus=f"obj{PAIR}"),
    Row("Tensor.__dlpack__()", "tensor.__dlpack__()"),
    Row("Tensor -> np.from_dlpack", "np.from_dlpack(tensor)"),
    Row("memoryview(Tensor)", "memoryview(tensor)"),
    Row("export of 100 columns, per column", f"wide{PAIR}", **wide(100)),
    Row("export of 1,000 columns, per column", f"wide{PAIR}", **wide(1000)),
    Row("import of 100 columns, per column", f"ad.array(wide{PAIR})", minus=f"wide{PAIR}",
        **wide(100)),
    Row("import of 1,000 columns, per column", f"ad.array(wide{PAIR})", minus=f"wide{PAIR}",
        **wide(1000)),
    Row("device tensor -> capsules, event recorded", f"ad.array(t){PAIR}", "t = Table()",
        needs="standin"),
    Row("CUDA Array Interface -> ad.tensor", "ad.tensor(d)", "d = Dict()", needs="standin"),
    Row("device tensor -> __dlpack__(stream)", "there.__dlpack__(stream=CONSUMER)",
        "there = ad.tensor(Table())", needs="standin"),
    Row("device capsules -> ad.array", f"ad.array(there{PAIR})",
        "there = ad.array(Table())", needs="standin"),
    Row("device tensor on the default stream -> ad.tensor", "ad.tensor(t)",
        "HELPER.library_set(POINTER, 1); t = Table()", needs="standin"),
    Row("core: event recorded", "record.timeit(100)", "record = core('record')", per=100, loops=20,
        needs="standin"),
    Row("core: stream waits", "wait.timeit(100)", "wait = core('wait')", per=100, loops=20,
        needs="standin"),
    Row("export + import of a column from C", "pass_on.timeit(100)",
        "from from_c import pass_on, produce", minus="produce.timeit(100)", per=100, loops=20,
        needs="compiler"),
    Row("stream: batch handed on, in C", "through.timeit(100)",
        "through = Drain(exported(stream_of(1))); alone = Drain(producer(1))",
        minus="alone.timeit(100)", per=100, loops=20, needs="streams"),
    Row("stream: batch of one column in Python", "next(stream)", "stream = stream_of(1)",
        needs="streams"),
    Row("device capsules -> torch by .into", "ad.array(obj).into(torch.Tensor)", PRODUCER,
        minus=f"obj{PAIR}", needs="torch"),
    Row("torch int64 -> capsules", f"ad.array(t){PAIR}", "t = torch.arange(1000)", needs="torch"),
    Row("torch float32 -> capsules", f"ad.array(t){PAIR}", "t = torch.rand(1000)", needs="torch"),
)  # fmt: skip


def is_there(need):
    """Says whether the library is installed. A C compiler meets all other needs."""
    if need in ("standin", "compiler", "streams"):
        return bool(os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc"))
    return importlib.util.find_spec(need) is not None


def selected(need, only=""):
    return [row for row in ROWS if row.needs == need and re.search(only, row.name)]


def statements(rows):
    """What the worker runs, in its order: (row, statement)."""
    for row in rows:
        yield row, row.statement
        if row.minus:
            yield row, row.minus


# In the worker, under valgrind


def loop_of(statement, names):
    source = f"def loop(times):\n    for _ in repeat(None, times):\n        {statement}\n"
    exec(source, names)
    return names["loop"]


def work(need, only):
    import gc

    common = {}
    if need == "standin":  # before anything may load a driver
        import standin

        common |= vars(standin)
    if need == "streams":
        import streams

        common |= vars(streams)
    import numpy as np

    import arrowdev as ad

    common |= {"ad": ad, "np": np, "repeat": repeat, "x": np.arange(1000)}
    common["tensor"] = ad.tensor(common["x"])
    if need == "torch":
        import torch

        common["torch"] = torch
    gc.disable()
    for row, statement in statements(selected(need, only)):
        names = dict(common)
        exec(row.setup, names)
        loop = loop_of(statement, names)
        loop(max(row.loops // 2, 20))  # warm: caches of types, specialised bytecode
        os.getppid()
        loop(row.loops)
        os.getppid()
        loop(2 * row.loops)
        os.getppid()


# Outside


def run_worker(need, only, folder):
    environment = os.environ | {
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [
        shutil.which("valgrind"),
        "--tool=callgrind",
        f"--callgrind-out-file={folder}/{need}",
        f"--dump-before={MARK}",
        sys.executable,
        __file__,
        need,
        only,
    ]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def totals(folder, need):
    """Instructions between the marks, in order; callgrind numbers its files."""
    found = {}
    for path in Path(folder).glob(f"{need}.*"):
        with path.open(encoding="utf-8") as lines:
            text = "".join(line for line in lines if line.startswith(("totals:", "summary:")))
        found[int(path.suffix[1:])] = int(re.search(r"(?:totals|summary): (\d+)", text)[1])
    return [found[part] for part in sorted(found)]


def counts_of(need, only, folder):
    """{name: instructions per execution, column or turn}."""
    rows = selected(need, only)
    parts = totals(folder, need)
    per_statement = {}
    for index, (row, statement) in enumerate(statements(rows)):
        # Each statement made three marks: warm-up, N and 2N.
        _, once, twice = parts[3 * index : 3 * index + 3]
        per_statement[row.name, statement] = (twice - once) / row.loops
    return {
        row.name: (
            per_statement[row.name, row.statement]
            - (per_statement[row.name, row.minus] if row.minus else 0)
        )
        / row.per
        for row in rows
    }


def count(only="", with_torch=False):
    """Counts of all rows whose libraries are there; the workers run at once.

    torch takes minutes to be imported under valgrind, so it has to be asked for.
    """
    if not shutil.which("valgrind"):
        raise SystemExit("valgrind is not installed: apt-get install valgrind")
    needs = [
        need
        for need in dict.fromkeys(row.needs for row in ROWS)
        if selected(need, only) and is_there(need)
        if need != "torch" or with_torch
    ]
    counted = {}
    with tempfile.TemporaryDirectory() as folder:
        workers = [(need, run_worker(need, only, folder)) for need in needs]
        for need, worker in workers:
            output, _ = worker.communicate()
            if worker.returncode:
                raise SystemExit(f"the worker for {need} failed:\n{output}")
            counted |= counts_of(need, only, folder)
    return counted


def versions():
    libraries = {}
    for name in ("numpy", "torch"):
        try:
            libraries[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return {
        "python": platform.python_version(),
        "compiler of python": platform.python_compiler(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    } | libraries


def read_budget():
    if not BUDGET.exists():
        raise SystemExit(f"{BUDGET} is missing: run with --update-budget")
    return json.loads(BUDGET.read_text(encoding="utf-8"))


def write_budget(counted):
    old = json.loads(BUDGET.read_text(encoding="utf-8")) if BUDGET.exists() else {}
    kept = {row.name: old.get("counts", {}).get(row.name) for row in ROWS}
    kept |= {name: round(value, 1) for name, value in counted.items()}
    budget = {
        "versions": old.get("versions", {}) | versions(),
        "counts": {name: value for name, value in kept.items() if value is not None},
    }
    BUDGET.write_text(json.dumps(budget, indent=2) + "\n", encoding="utf-8")


def differing_versions(budget):
    now = versions()
    return [
        f"{name} {now[name]} (budget: {was})"
        for name, was in budget["versions"].items()
        if name in now and now[name] != was
    ]


def complaints(counted, budget):
    """One line per row over its budget or without one."""
    different = differing_versions(budget)
    tolerance = TOLERANCE_OTHER_VERSIONS if different else TOLERANCE
    for name, value in counted.items():
        was = budget["counts"].get(name)
        if was is None:
            yield f"{name}: {value:,.1f} instructions, and no budget (--update-budget writes one)"
        elif value > was * tolerance:
            yield (
                f"{name}: {value:,.1f} instructions, {value / was - 1:+.1%} over the "
                f"{was:,.1f} of the budget, {tolerance - 1:.0%} allowed"
            )


def check(counted):
    budget = read_budget()
    different = differing_versions(budget)
    if different:
        print(f"other versions than the budget's, so 15% is allowed: {', '.join(different)}")
    found = list(complaints(counted, budget))
    for line in found:
        print(f"OVER BUDGET  {line}")
    lower = [
        name for name, value in counted.items() if value < budget["counts"].get(name, 0) / 1.05
    ]
    if lower and not different:
        print(f"faster than the budget by more than 5%, so update it: {', '.join(lower)}")
    if not found:
        print("within the budget")
    return 1 if found else 0


def print_counts(counted):
    was = json.loads(BUDGET.read_text(encoding="utf-8"))["counts"] if BUDGET.exists() else {}
    width = max(map(len, counted))
    for name, value in counted.items():
        change = f"{value / was[name] - 1:+8.1%} to the budget" if was.get(name) else ""
        print(f"{name:{width}}  {value:12,.1f} instructions {change}".rstrip())
    if not any(row.name in counted for row in ROWS if row.needs == "torch"):
        print("rows of torch not counted: --with-torch, and torch installed")


def main(arguments):
    counted = count(arguments.only, arguments.with_torch)
    if not counted:
        raise SystemExit("no row matches, or numpy is missing: pip install numpy")
    print_counts(counted)
    if arguments.json:
        report = {"versions": versions(), "instructions": counted}
        Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if arguments.update_budget:
        write_budget(counted)
        print(f"wrote {BUDGET}")
        return 0
    return check(counted) if arguments.check else 0


if __name__ == "__main__":
    work(*sys.argv[1:3])
