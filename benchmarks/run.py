"""Measures arrowdev against its peers: python benchmarks/run.py [--help].

One process; arrowdev and its peers take turns inside each repeat, in random
order, with the garbage collector off. Repeats are many and short, so that on
a busy machine most of them fit between two interruptions. Goals are judged by
the ratio of the medians; the ratio of the minima is disturbed least.
"""

import argparse
import contextlib
import gc
import importlib
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import timeit
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import instructions
from paths import GOALS, NEAR, Case, Goal, HotPath, all_paths

HERE = Path(__file__).resolve().parent
PIP_NAMES = {"tvm_ffi": "apache-tvm-ffi"}
DISTRIBUTIONS = (
    "arrowdev", "numpy", "pyarrow", "nanoarrow", "torch", "apache-tvm-ffi", "pyopencl", "dpctl",
)  # fmt: skip
MEMORY_ROW = "bytes held per imported column"
MEMORY_GOAL = Goal(at_most=64)
MARKERS = ("<!-- table: begin -->", "<!-- table: end -->")
DEVICE_MARKERS = ("<!-- devices: begin -->", "<!-- devices: end -->")
GPU_MARKERS = ("<!-- gpu: begin -->", "<!-- gpu: end -->")
STREAM_MARKERS = ("<!-- streams: begin -->", "<!-- streams: end -->")
TRAINING_MARKERS = ("<!-- training: begin -->", "<!-- training: end -->")
VALUE_MARKERS = ("<!-- values: begin -->", "<!-- values: end -->")
KERNEL_MARKERS = ("<!-- kernels: begin -->", "<!-- kernels: end -->")
PLACES = {
    "kernels": KERNEL_MARKERS,
    "devices": DEVICE_MARKERS,
    "copies": DEVICE_MARKERS,
    "gpu": GPU_MARKERS,
    "streams": STREAM_MARKERS,
    "training": TRAINING_MARKERS,
    "values": VALUE_MARKERS,
}


def progress(text):
    """One line that is written over, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def missing_package(error):
    name = (error.name or str(error)).partition(".")[0]
    return PIP_NAMES.get(name, name)


class Runner:
    """A case ready to run, and the nanoseconds of its repeats."""

    def __init__(self, case, names, seconds):
        names = dict(names)
        exec(case.setup, names)
        self.case = case
        self.names = names
        if case.loop:
            self.timer = eval(case.loop, names)
        else:
            self.timer = timeit.Timer(case.statement, case.prepare, globals=names)
        self.number = names["number"] = case.number or 1
        self.once()  # warm: caches of types, imports inside the libraries
        if not case.number:
            self.calibrate(seconds)
        self.times = []

    def once(self):
        return self.timer.timeit(self.number)

    def calibrate(self, seconds):
        while (taken := self.once()) < seconds / 4 and self.number < 10**7:
            self.number *= 2
        self.number = max(1, round(self.number * seconds / max(taken, 1e-9)))
        self.names["number"] = self.number

    def measure(self):
        self.times.append(self.once() / self.number * 1e9)

    def figures(self, per):
        return {
            "label": self.case.label,
            "statement": self.case.statement,
            "setup": self.case.setup,
            "median": statistics.median(self.times) / per,
            "minimum": min(self.times) / per,
            "number": self.number,
        }


def prepare(case, names, seconds):
    """A Runner, or the text for a missing peer."""
    try:
        return Runner(case, names, seconds)
    except ImportError as error:
        return {"label": case.label, "not_measured": f"pip install {missing_package(error)}"}


def take_turns(runners, repeats):
    order = random.Random(0)
    for _ in range(repeats):
        for runner in order.sample(runners, len(runners)):
            runner.measure()
        gc.collect(0)


def row_of(path):
    return {
        "name": path.name,
        "group": path.group,
        "unit": path.unit,
        "setup": path.setup,
        "goal": str(path.goal) if path.goal else None,
        "peers": [],
        "met": None,
    } | ({"bytes": path.nbytes} if path.nbytes else {})


def repeats_of(runners, repeats, path):
    """More repeats where large figures differ by little, fewer where each repeat is slow."""
    if path.overhead:
        return 3 * repeats
    slow = max(runner.number for runner in runners) == 1
    return max(3, repeats // 3) if slow else repeats


def measure_path(path: HotPath, repeats, seconds):
    row = row_of(path)
    names = {}
    try:
        exec(path.setup, names)
        ours = Runner(path.ours, names, seconds)
    except ImportError as error:
        return row | {"not_measured": f"pip install {missing_package(error)}"}
    peers = [prepare(case, names, seconds) for case in path.peers]
    floor = prepare(path.floor, names, seconds) if path.floor else None
    running = [r for r in (ours, *peers, floor) if isinstance(r, Runner)]
    row["repeats"] = repeats_of(running, repeats, path)
    take_turns(running, row["repeats"])
    row["ours"] = ours.figures(path.per)
    row["peers"] = [
        compare(ours, peer, path) if isinstance(peer, Runner) else peer for peer in peers
    ]
    if isinstance(floor, Runner):
        row["floor"] = floor.figures(path.per)
        row["of_floor"] = row["ours"]["median"] / row["floor"]["median"]
    judge(row, path.goal)
    return row


def compare(ours, peer, path):
    """The peer's figures, with arrowdev's distance to it."""
    figures = peer.figures(path.per)
    if path.overhead:
        beyond = [a - b for a, b in zip(ours.times, peer.times, strict=True)]
        figures["overhead"] = statistics.median(beyond) / path.per
        figures["overhead_minima"] = (min(ours.times) - min(peer.times)) / path.per
        return figures
    figures["ratio"] = statistics.median(peer.times) / statistics.median(ours.times)
    figures["ratio_minima"] = min(peer.times) / min(ours.times)
    return figures


def judge(row, goal):
    """Says whether the goal is met. A goal compares with the first peer, and cannot be judged if
    that peer is missing. A row without peers is judged by arrowdev's own figure. A figure near
    the floor meets its goal."""
    if goal is None or (row["peers"] and "not_measured" in row["peers"][0]):
        return
    first = row["peers"][0] if row["peers"] else {"ratio": row["ours"]["median"]}
    row["value"] = first.get("ratio", first.get("overhead"))
    row["met"] = goal.met(row["value"]) or row.get("of_floor", NEAR + 1) <= NEAR


def measure_memory():
    path = HotPath(MEMORY_ROW, GOALS, Case("arrowdev", "ad.array(pair)"), goal=MEMORY_GOAL)
    row = row_of(path) | {"unit": "bytes per column"}
    done = subprocess.run(
        [sys.executable, str(HERE / "memory.py")],
        env=os.environ | {"PYTHONMALLOC": "malloc"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["failed"])[-1]
        missing = re.search(r"No module named '([\w.]+)'", last)
        return row | {"not_measured": f"pip install {missing[1]}" if missing else last}
    held, with_export = map(float, done.stdout.split())
    row |= {"value": held, "with_a_live_export": with_export, "met": MEMORY_GOAL.met(held)}
    return row


def measure_elsewhere(module, only, repeats, seconds):
    """The rows of one of the other files; each part has a process of its own."""
    for part in importlib.import_module(module).PARTS:
        progress(f"{module}: {part}")
        done = subprocess.run(
            [sys.executable, str(HERE / f"{module}.py"), part, "--only", only,
             "--repeats", str(repeats), "--seconds", str(seconds)],
            env=os.environ | ({"PYTHONMALLOC": "malloc"} if part == "memory" else {}),
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{module}.py {part} failed")
        yield from json.loads(done.stdout.splitlines()[-1])


def processor():
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        if found:
            return found[1]
    return platform.processor() or platform.machine()


def version(distribution):
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def conditions(repeats, seconds):
    load = os.getloadavg() if hasattr(os, "getloadavg") else (0.0,)
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "load": round(load[0], 2),
        "repeats": repeats,
        "seconds_per_repeat": seconds,
        "versions": {name: version(name) for name in DISTRIBUTIONS},
    }


def when_and_where(conditions):
    """The conditions in words, for below a table."""
    versions = conditions["versions"].items()
    return (
        "{date}, load {load} on {cpus} CPUs ({processor}), {platform}, Python {python}; ".format(
            **conditions
        )
        + ", ".join(f"{name} {found}" for name, found in versions if found)
    )


def measure_all(arguments):
    repeats = arguments.repeats or (3 if arguments.quick else 101)
    seconds = 0.0002 if arguments.quick else 0.0005
    report = {"conditions": conditions(repeats, seconds), "paths": []}
    modules = ("devices", "kernels", "streams")
    elsewhere = next((name for name in modules if getattr(arguments, name)), None)
    paths = [] if elsewhere else all_paths(arguments.only)
    gc.disable()  # between the statements too; timeit turns it off inside
    for index, path in enumerate(paths, 1):
        progress(f"{index}/{len(paths)} {path.name}")
        report["paths"].append(measure_path(path, repeats, seconds))
        gc.collect()
    gc.enable()
    if elsewhere:
        report["paths"].extend(measure_elsewhere(elsewhere, arguments.only, repeats, seconds))
    elif re.search(arguments.only, MEMORY_ROW):
        progress(MEMORY_ROW)
        report["paths"].append(measure_memory())
    progress("")
    return report


def number(value):
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def cells(row):
    """One line per peer of the row; arrowdev's own cells are in the first."""
    if "not_measured" in row:
        reason = f"not measured: {row['not_measured']}"
        return [[row["name"], "", "", reason, "", "", "", row["goal"] or "", ""]]
    ours = number(row["ours"]["median"] if "ours" in row else row["value"])
    met = {True: "yes", False: "NO", None: ""}[row["met"]]
    peers = [peer_cells(peer) for peer in row["peers"]] or [["", "", ""]]
    floor = f"{number(row['floor']['median'])} ({row['of_floor']:.2f}x)" if "floor" in row else ""
    first = [row["name"], row["unit"], ours, *peers[0], floor, row["goal"] or "", met]
    return [first, *(["", "", "", *peer, "", "", ""] for peer in peers[1:])]


def peer_cells(peer):
    """Label, time, figure by medians, and by minima in brackets."""
    if "not_measured" in peer:
        return [f"{peer['label']} not measured: {peer['not_measured']}", "", ""]
    if "overhead" in peer:
        figures = f"+{peer['overhead']:.1f} (+{peer['overhead_minima']:.1f})"
    else:
        figures = f"{peer['ratio']:.2f}x ({peer['ratio_minima']:.2f}x)"
    return [peer["label"], number(peer["median"]), figures]


HEADINGS = ["path", "unit", "arrowdev", "against", "its", "ratio (of minima)", "floor",
            "goal", "met"]  # fmt: skip
RIGHT = (2, 4, 5, 6, 7)
NO_BREAK = "\N{NO-BREAK SPACE}"


def summary(report):
    judged = [row for row in report["paths"] if row["met"] is not None]
    missed = [row["name"] for row in judged if not row["met"]]
    text = f"{len(judged) - len(missed)} of {len(judged)} goals met"
    return text + (f"; missed: {'; '.join(missed)}" if missed else "")


def text_table(report):
    lines = [HEADINGS, *(line for row in report["paths"] for line in cells(row))]
    # A cell without a figure may be wider than its column.
    plain = [line for line in lines if "not measured" not in line[3]]
    widths = [max(len(line[column]) for line in plain) for column in range(len(HEADINGS))]

    def padded(line):
        pairs = zip(line, widths, strict=True)
        sides = (
            text.rjust(width) if column in RIGHT else text.ljust(width)
            for column, (text, width) in enumerate(pairs)
        )
        return "  ".join(sides).rstrip()

    return "\n".join([*map(padded, lines), "", summary(report)])


def quantity(value, unit):
    """A figure with three digits and its unit, on one line: 2.44 µs, 9.0 ns per column."""
    symbol, _, rest = unit.partition(" ")
    if symbol != "ns":
        return f"{number(value)} {unit}"
    for larger in ("µs", "ms", "s"):
        if abs(value) < 999.5:
            break
        value, symbol = value / 1000, larger
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 or symbol == "ns" else 2
    digits = f"{value:.{decimals}f}"
    return f"{digits}{NO_BREAK}{symbol} {rest}".rstrip()


def markdown_cells(row):
    """One line per peer of the row: path, arrowdev, of its floor, against, ratio, goal."""
    if "not_measured" in row:
        return [[row["name"], "", "", f"not measured: {row['not_measured']}", "", ""]]
    unit = row["unit"]
    ours = quantity(row["ours"]["median"] if "ours" in row else row["value"], unit)
    floor = f"{row['of_floor']:.2f}x" if "floor" in row else ""
    met = {True: " ✓", False: " ✗", None: ""}[row["met"]]
    goal = f"{row['goal']}{met}".replace(" ", NO_BREAK) if row["goal"] else ""
    peers = [markdown_peer(peer, unit) for peer in row["peers"]] or [["", ""]]
    first = [row["name"], ours, floor, *peers[0], goal]
    return [first, *(["", "", "", *peer, ""] for peer in peers[1:])]


def markdown_peer(peer, unit):
    if "not_measured" in peer:
        return [f"{peer['label']} not measured: {peer['not_measured']}", ""]
    if "overhead" in peer:
        sign = "-" if peer["overhead"] < 0 else "+"
        compared = sign + quantity(abs(peer["overhead"]), unit.partition(" ")[0])
    else:
        compared = f"{peer['ratio']:.2f}x" if peer["ratio"] < 10 else f"{peer['ratio']:.1f}x"
    return [f"{peer['label']}: {quantity(peer['median'], unit)}", compared]


def markdown_table(report):
    """Without the column of floors where no row has one."""
    measured = report["conditions"]
    headings = ["path", "arrowdev", "of its floor", "against", "ratio", "goal"]
    rules = ["---", "---:", "---:", "---", "---:", "---:"]
    lines = [headings, rules, *(line for row in report["paths"] for line in markdown_cells(row))]
    if not any("floor" in row for row in report["paths"]):
        lines = [[cell for column, cell in enumerate(line) if column != 2] for line in lines]
    return as_markdown(
        [
            *("| " + " | ".join(line) + " |" for line in lines),
            "",
            f"{summary(report)}. Medians of {measured['repeats']} repeats of "
            f"{measured['seconds_per_repeat'] * 1e3:g} ms (three times as many for a "
            "difference, a third where one execution takes longer), "
            f"{when_and_where(measured)}.",
        ]
    )


def as_markdown(lines):
    """No name becomes bold text, and an arrow is one character, so that no line ends within it."""
    return "\n".join(lines).replace("__", r"\_\_").replace("->", "→")


def write_markdown(file, report):
    """Writes the rows of each kind to their table, or to the first where the file has no other.
    Without a GPU, the tables keep the figures that were measured on one."""
    path = Path(file)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    places = {group: markers for group, markers in PLACES.items() if markers[0] in old}
    for markers in (MARKERS, *dict.fromkeys(places.values())):
        rows = [row for row in report["paths"] if places.get(row["group"], MARKERS) == markers]
        if markers == GPU_MARKERS:
            rows = rows if any("ours" in row for row in rows) else []
        if rows:
            write_table(file, markdown_table(report | {"paths": rows}), markers)


def write_table(file, table, markers):
    """Replaces the text between the markers if the file has them, else the whole file."""
    path = Path(file)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    begin, end = markers
    if begin in old and end in old:
        head, _, rest = old.partition(begin)
        tail = rest.partition(end)[2]
        table = f"{head}{begin}\n{table}\n{end}{tail}"
    else:
        table += "\n"
    path.write_text(table, encoding="utf-8")


def part_parser(description):
    """The parser of a program that run.py starts; the program adds its parts."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=101)
    parser.add_argument("--seconds", type=float, default=0.0005)
    return parser


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--only", default="", metavar="REGEX", help="rows whose name matches")
    add("--quick", action="store_true", help="does it run? the figures mean little")
    add("--repeats", type=int, default=0, help="turns per row (default 101)")
    instead = parser.add_mutually_exclusive_group()
    for name, text in {
        "--devices": "device memory instead (needs a C compiler)",
        "--kernels": "bits, nulls, strides, validation: 15 minutes",
        "--streams": "streams instead (needs a C compiler)",
        "--instructions": "no times: callgrind counts the hot paths",
    }.items():
        instead.add_argument(name, action="store_true", help=text)
    add("--json", metavar="FILE", help="write everything that was measured")
    add("--plot", metavar="FILE.svg", help="draw the ratios (needs matplotlib)")
    add("--markdown", metavar="FILE", help="write the table, between its markers if it has any")
    add("--strict", action="store_true", help="exit 1 when a goal is missed")
    group = parser.add_argument_group("of the instructions")
    group.add_argument("--with-torch", action="store_true", help="torch's rows too: minutes")
    group.add_argument("--check", action="store_true", help="exit 1 when over budget.json")
    group.add_argument("--update-budget", action="store_true", help="write budget.json")
    return parser.parse_args(arguments)


def main():
    arguments = parse()
    if arguments.instructions or arguments.check or arguments.update_budget:
        return instructions.main(arguments)
    report = measure_all(arguments)
    print(text_table(report))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown:
        write_markdown(arguments.markdown, report)
    if arguments.plot:
        from plot import draw

        draw(report, arguments.plot)
    return int(arguments.strict and any(row["met"] is False for row in report["paths"]))


if __name__ == "__main__":
    sys.exit(main())
