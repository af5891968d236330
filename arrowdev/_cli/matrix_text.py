"""The text that ``python -m arrowdev matrix`` prints."""

import functools
import re
import statistics

from arrowdev._cli.device_libraries import DEVICE_PEERS
from arrowdev._cli.machine import machine
from arrowdev._cli.pairs import COPY, HOST, REFUSED, RESULTS, WRONG, ZERO_COPY
from arrowdev._cli.terminal import Painter, aligned, wrapped

SYMBOLS = {ZERO_COPY: "=", COPY: "c", REFUSED: "x", WRONG: "!"}
KINDS = {ZERO_COPY: "good", COPY: "fair", REFUSED: "bad", WRONG: "wrong"}


# --- coverage ---------------------------------------------------------------------


def counts(attempts):
    """Return {result: number}, of the results that there are."""
    found = [attempt.result for attempt in attempts]
    return {result: found.count(result) for result in RESULTS if result in found}


def coverage(matrix):
    """Return [(what, {result: number}, number of pairs)]: through arrowdev, and directly."""
    rows = [("through arrowdev", [pair.through for pair in matrix.pairs])]
    rows.append(("directly", [pair.best_direct for pair in matrix.pairs if pair.direct]))
    if matrix.moves:
        rows.append(("between devices", [move.through for move in matrix.moves]))
    return [(what, counts(made), len(made)) for what, made in rows if made]


def plural(n, result):
    """Return the word for `n` results."""
    return "copies" if result == COPY and n != 1 else result


def coverage_lines(matrix, paint):
    found = coverage(matrix)
    width = max((len(what) for what, _, _ in found), default=0) + 1
    digits = max((len(str(total)) for _, _, total in found), default=0)
    for what, numbers, total in found:
        shown = {ZERO_COPY: 0, COPY: 0, REFUSED: 0, **numbers}
        parts = (
            paint(KINDS[result] if n else "faint", f"{n:{digits}} {plural(n, result)}")
            for result, n in shown.items()
        )
        has_all = what != "directly" or total == len(matrix.pairs)
        where = "" if has_all else " that have a way of their own"
        yield f"{what + ':':{width}} {', '.join(parts)}, of {total} pairs{where}"


# --- the tables -------------------------------------------------------------------


class Reasons:
    """Numbers the distinct reasons."""

    def __init__(self):
        self.texts = []

    def number(self, text):
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def lines(self):
        for i, text in enumerate(self.texts, 1):
            yield from wrapped(text, f"x{i:<3} ", " " * 5)


def refusal(attempts, type_name):
    """Return why the first of `attempts` was refused; x replaces the type, to merge reasons."""
    first, *others = attempts
    short_name = re.escape(type_name.rpartition(".")[2])
    reason = re.sub(rf"'?\b(?:\w+\.)*{short_name}\b'?", "x", first.reason)
    text = f"{first.how}: {reason}"
    if others:
        text += f" (nor did {', '.join(a.how for a in others)} do)"
    return text


def result_text(attempts, best, type_name, reasons):
    if best is None:
        return "-"
    if best.result == WRONG:
        return "!WRONG"
    if best.result == REFUSED:
        return f"x{reasons.number(refusal(attempts, type_name))}"
    return SYMBOLS[best.result]


def painted(cell, paint):
    """Return a cell with each result in its colour."""

    def paint_result(found):
        return paint(kinds[found[0][0]], found[0])

    kinds = {SYMBOLS[result]: kind for result, kind in KINDS.items()}
    return re.sub(r"(?<!\S)(=|c|x\d+|!WRONG)(?!\S)", paint_result, cell)


def short_time(ns):
    """Format a time with two or three digits: 87, 940, 1.2k, 13k, 1.3M."""
    for limit, divisor, unit in ((999.5, 1, ""), (999.5e3, 1e3, "k"), (float("inf"), 1e6, "M")):
        if ns < limit:
            value = ns / divisor
            return f"{value:.1f}{unit}" if unit and value < 9.95 else f"{value:.0f}{unit}"
    raise ValueError(f"not a time: {ns}")


def time_text(attempt):
    return short_time(attempt.ns) if attempt and attempt.ns is not None else ""


def ratio_text(pairs):
    """Return the median ratio of the pairs of two different libraries."""
    ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
    if not ratios:
        return ""
    middle = statistics.median(ratios)
    return f"{middle:.2f}x" if middle < 10 else f"{middle:.0f}x"


class Grid:
    """The pairs on one device, by producer and consumer."""

    def __init__(self, matrix, device, headings):
        pairs = matrix.pairs_on(device)
        self.types = {lib.name: lib.type for lib in matrix.libraries if lib.device == device}
        self.consumers = list(dict.fromkeys(pair.consumer for pair in pairs))
        self.producers = list(dict.fromkeys(pair.producer for pair in pairs))
        self.at = {(pair.producer, pair.consumer): pair for pair in pairs}
        self.headings = headings

    def row(self, producer):
        return [self.at[producer, consumer] for consumer in self.consumers]

    def head(self):
        """Return two lines of headings."""
        parts = [self.headings.get(name, name).split("/") for name in self.consumers]
        return [
            ["", *(part[0] if len(part) > 1 else "" for part in parts)],
            ["from \\ to", *(part[-1] for part in parts)],
        ]


def result_rows(grid, reasons):
    rows = grid.head()
    for producer in grid.producers:
        cells = []
        for pair in grid.row(producer):
            type_name = grid.types[producer]
            through = result_text([pair.through], pair.through, type_name, reasons)
            direct = result_text(pair.direct, pair.best_direct, type_name, reasons)
            cells.append(f"{through} {direct:3}")
        rows.append([producer, *cells])
    return rows


def time_rows(grid):
    rows = grid.head()
    for producer in grid.producers:
        pairs = grid.row(producer)
        rows.append([producer, *(time_text(pair.through) for pair in pairs)])
        rows.append(["  direct", *(time_text(pair.best_direct) for pair in pairs)])
    columns = [[grid.at[p, consumer] for p in grid.producers] for consumer in grid.consumers]
    ratios = [ratio_text(pairs) for pairs in columns]
    if any(ratios):
        rows.append(["ratio", *ratios])
    return rows


def faster_directly(matrix):
    """Return the consumers whose direct calls are faster, by the median ratio."""
    ratios = {}
    for pair in matrix.pairs:
        if pair.ratio is not None:
            ratios.setdefault(pair.consumer, []).append(pair.ratio)
    return [name for name, found in ratios.items() if statistics.median(found) > 1]


def move_rows(matrix, cell):
    """Return the cells of the transfers: a row and a column for each device and its library."""
    libraries = {move.device: move.producer for move in matrix.moves}
    at = {(move.device, move.target): move for move in matrix.moves}
    rows = [["", *libraries], ["from \\ to", *libraries.values()]]
    for device, library in libraries.items():
        cells = [cell(at[device, t]) if (device, t) in at else "" for t in libraries]
        rows.append([f"{device} {library}", *cells])
    return rows


# --- what is left out -------------------------------------------------------------


def absent(matrix):
    """Yield the libraries that are left out, and how to install those that are missing."""
    left_out = {}
    for library in matrix.libraries:
        if library.reason and not library.missing:
            name = " ".join(filter(None, (library.name, library.version)))
            where = f" on {library.device}" if library.device not in (None, HOST) else ""
            what = "No device for" if library.device is None else "Left out"
            left_out.setdefault((what, where, library.reason), []).append(name)
    for (what, where, reason), names in left_out.items():
        separator = " " if what.startswith("No") else f"{where}: "
        yield f"{what}{separator}{', '.join(names)}: {reason}"
    missing = [library for library in matrix.libraries if library.missing]
    useful = [library for library in missing if would_add(library, matrix)]
    if useful:
        yield f"Not installed, each would add a row: pip install {pip_names(useful)}"
    elif missing and not matrix.pairs:
        yield f"Not installed: pip install {pip_names(missing)}"


def pip_names(libraries):
    return " ".join(dict.fromkeys(library.pip for library in libraries))


def would_add(library, matrix):
    """Return whether there is a device for a library that is not installed."""
    if library.device == HOST:
        return True
    [types] = [cls.types for cls in DEVICE_PEERS if cls.name == library.name and cls.module]
    return any(device.partition(":")[0] in types for device in matrix.devices)


def wrong_lines(matrix, paint):
    if matrix.wrong:
        yield paint("wrong", "!! WRONG: what arrived is not what was handed over. Please report:")
        for pair, found in matrix.wrong:
            on = f" on {pair.device}" if pair.device != HOST else ""
            yield f"!!   {pair.producer} to {pair.consumer}{on} by {found.how}: {found.reason}"
        yield ""


# --- the whole text ---------------------------------------------------------------


def title(matrix, device):
    if device == HOST:
        return "In host memory"
    name = matrix.devices[device]
    return f"On {device} ({name})" if name != device else f"On {device}"


def head_lines(matrix):
    here = machine()
    # A no-break space keeps a version on the line of its name.
    versions = [f"{lib.name}\xa0{lib.version}" for lib in matrix.libraries if lib.version]
    yield from wrapped(
        f"arrowdev {here['arrowdev']}, {here['implementation']} {here['python']}, "
        f"{here['platform']}"
    )
    for line in wrapped(", ".join(dict.fromkeys(versions))):
        yield line.replace("\xa0", " ")


def result_lines(matrix, headings, paint):
    payload = matrix.payload
    reasons = Reasons()
    paint_cell = functools.partial(painted, paint=paint)
    marks = ("=", "zero-copy"), ("c", "a copy"), ("x1", "refused: reason 1 below")
    legend = "   ".join(f"{painted(mark, paint)} {text}" for mark, text in marks)
    yield (
        f"{payload.length} numbers of {payload.dtype}, from each row to each column: first "
        "through arrowdev, then"
    )
    yield "directly, by the best of the column's own constructors. The values are compared."
    yield f"{legend}   - it has no way of its own"
    yield ""
    for device in (HOST, *matrix.devices):
        if matrix.pairs_on(device):
            yield f"{title(matrix, device)}:"
            rows = result_rows(Grid(matrix, device, headings), reasons)
            yield from aligned(rows, paint_cell)
    if matrix.moves:
        types = {(lib.name, lib.device): lib.type for lib in matrix.libraries}

        def moved(move):
            type_name = types[move.producer, move.device]
            return result_text([move.through], move.through, type_name, reasons)

        yield "From device to device, by arrowdev's .to():"
        yield from aligned(move_rows(matrix, moved), paint_cell)
    yield from reasons.lines()
    if reasons.texts:
        yield ""


def time_lines(matrix, headings):
    yield "Nanoseconds (k: thousand, M: million), the median of a few runs. Upper line: through"
    yield "arrowdev; lower line: directly."
    yield ""
    for device in (HOST, *matrix.devices):
        if matrix.pairs_on(device):
            yield f"{title(matrix, device)}, nanoseconds:"
            yield from aligned(time_rows(Grid(matrix, device, headings)))
    if matrix.moves:
        yield "From device to device, nanoseconds until the call of .to() returns:"
        yield from aligned(move_rows(matrix, lambda move: time_text(move.through)))
    if any(pair.ratio is not None for pair in matrix.pairs):
        yield "ratio: time through arrowdev / direct time, the median of the pairs of different"
        yield "libraries where both are zero-copy or both copy. Calls within one library, or of"
        yield "Python's own memoryview and ctypes, are no exchange and have none."
        names = faster_directly(matrix)
        if names:
            yield f"Directly is faster, with a ratio above 1, into: {', '.join(names)}."
        yield ""


def lines(matrix, headings, *, has_times, paint=None):
    """Yield the lines of the whole text."""
    paint = paint or Painter()
    if matrix.pairs:
        yield from coverage_lines(matrix, paint)
        yield ""
    yield from wrong_lines(matrix, paint)
    yield from (paint("faint", line) for line in head_lines(matrix))
    yield ""
    if matrix.pairs:
        yield from result_lines(matrix, headings, paint)
        if has_times:
            yield from time_lines(matrix, headings)
    for line in absent(matrix):
        yield from wrapped(line, rest="  ")
