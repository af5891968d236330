"""The matrix as a picture (SVG), and as a page around it."""

import pathlib

from arrowdev._cli import matrix_text
from arrowdev._cli.machine import machine
from arrowdev._cli.pairs import COPY, HOST, REFUSED, WRONG, ZERO_COPY
from arrowdev._pages.page import cell, document, escaped, heading, paragraph, table, turned

SIDE = 26  # of a cell
LETTER = 7.2  # the width of one, about
FONT = 12
HEAD = 92  # the height of the names of consumers, which are slanted
GAP = 36  # between the two halves, and between devices

_SYMBOLS = {**matrix_text.SYMBOLS, REFUSED: "\u00d7"}
_CLASSES = {ZERO_COPY: "zero", COPY: "copy", REFUSED: "refused", WRONG: "wrong"}

# The colours differ in lightness too, and each cell has a symbol.
_STYLE = """
svg.matrix { font: 12px system-ui, sans-serif; }
.matrix .name { fill: #1f2328; } .matrix .faint { fill: #59636e; }
.matrix .half { fill: #1f2328; font-weight: 600; font-size: 14px; }
.matrix .sign { fill: #fff; font-weight: 700; text-anchor: middle; pointer-events: none; }
.matrix .zero { fill: #1f8a5b; } .matrix .copy { fill: #d99a1c; }
.matrix .refused { fill: #c2455a; } .matrix .wrong { fill: #6f42c1; }
.matrix .none { fill: #8c959f; fill-opacity: .18; }
.matrix g:hover > rect, .matrix g:focus > rect { stroke: #1f6feb; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  .matrix .name, .matrix .half { fill: #e6edf3; } .matrix .faint { fill: #9198a1; }
}
"""


_STYLE_OF_BOX = """
.matrix g:focus { outline: none; }
.matrix g:focus-visible > rect { stroke: var(--text); stroke-width: 3; }
output { position: fixed; z-index: 1; box-sizing: border-box; max-width: min(30rem, 100vw - 16px);
  max-height: calc(100vh - 16px); overflow: auto; padding: .5rem .8rem; border-radius: 6px;
  border: 1px solid var(--line); background: var(--raised); font-size: 13px;
  white-space: pre-wrap; overflow-wrap: anywhere; box-shadow: 0 4px 16px #0003; }
output[hidden] { display: none; }
"""


# --- cells ------------------------------------------------------------------------


def attempt_text(attempt):
    """Return what came of an attempt, in words."""
    time = f", {matrix_text.short_time(attempt.ns)} ns" if attempt.ns is not None else ""
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"{attempt.how}: {attempt.result}{time}{reason}"


def through_text(pair):
    return f"{pair.producer} to {pair.consumer}, through arrowdev\n{attempt_text(pair.through)}"


def direct_text(pair):
    ways = [attempt_text(attempt) for attempt in pair.direct] or ["it has no way of its own"]
    return "\n".join([f"{pair.producer} to {pair.consumer}, directly", *ways])


def _square(x, y, attempt, text):
    kind = _CLASSES[attempt.result] if attempt else "none"
    sign = _SYMBOLS[attempt.result] if attempt else ""
    half = SIDE / 2
    return (
        f'<g><title>{escaped(text)}</title><rect class="{kind}" x="{x:g}" y="{y:g}" '
        f'width="{SIDE - 2}" height="{SIDE - 2}" rx="4"/><text class="sign" '
        f'x="{x + half - 1:g}" y="{y + half + 3.5:g}">{sign}</text></g>'
    )


def _text(x, y, text, kind="name", more=""):
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{more}>{escaped(text)}</text>'


# --- the picture ------------------------------------------------------------------


class _Half:
    """One grid of squares: through arrowdev, or directly."""

    def __init__(self, grid, title, attempt_of, text_of):
        self.grid = grid
        self.title = title
        self.attempt_of = attempt_of
        self.text_of = text_of
        attempts = [attempt_of(pair) for pair in grid.at.values()]
        self.numbers = matrix_text.counts(attempt for attempt in attempts if attempt)

    def summary(self):
        parts = (f"{n} {matrix_text.plural(n, result)}" for result, n in self.numbers.items())
        return ", ".join(parts) or "no way of its own"

    def width(self, names):
        slanted = max((len(name) for name in self.grid.consumers), default=0) * LETTER * 0.7
        squares = len(self.grid.consumers) * SIDE
        return names + max(squares + slanted, LETTER * len(self.summary()))

    def elements(self, x, y, names):
        yield _text(x, y + FONT, self.title, "half")
        yield _text(x, y + 2.6 * FONT, self.summary(), "faint")
        top = y + 2.6 * FONT + HEAD
        for i, consumer in enumerate(self.grid.consumers):
            at = x + names + (i + 0.5) * SIDE
            turned = f' transform="rotate(-45 {at:g} {top - 6:g})"'
            yield _text(at, top - 6, consumer, more=turned)
        for row, producer in enumerate(self.grid.producers):
            below = top + row * SIDE
            yield _text(x + names - 8, below + SIDE / 2 + 3, producer, more=' text-anchor="end"')
            for column, pair in enumerate(self.grid.row(producer)):
                yield _square(
                    x + names + column * SIDE, below, self.attempt_of(pair), self.text_of(pair)
                )


def picture(matrix):
    """Return an SVG: for each device the ways through arrowdev, beside them the direct ones."""
    elements, width, y = [], 0, 4
    for device in (HOST, *matrix.devices):
        if not matrix.pairs_on(device):
            continue
        grid = matrix_text.Grid(matrix, device, {})
        names = 12 + LETTER * max(len(name) for name in grid.producers)
        halves = (
            _Half(grid, "Through arrowdev", lambda pair: pair.through, through_text),
            _Half(grid, "Directly", lambda pair: pair.best_direct, direct_text),
        )
        x = 4
        elements.append(_text(x, y + FONT, matrix_text.title(matrix, device), "faint"))
        y += 2 * FONT
        for half in halves:
            elements.extend(half.elements(x, y, names))
            x += half.width(names) + GAP
        width = max(width, x - GAP + 4)
        y += 2.6 * FONT + HEAD + SIDE * len(grid.producers) + GAP
    elements.append(_legend(4, y))
    return (
        f'<svg class="matrix" xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{y + SIDE:.0f}" viewBox="0 0 {width:.0f} {y + SIDE:.0f}" role="img" '
        f'aria-label="Which exchanges share memory"><style>{_STYLE}</style>'
        f"{''.join(elements)}</svg>\n"
    )


def _legend(x, y):
    parts = []
    for kind, sign, text in (
        ("zero", "=", "zero-copy: the same memory"),
        ("copy", "c", "a copy"),
        ("refused", "\u00d7", "refused"),
        ("none", "", "the consumer has no way of its own"),
    ):
        parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="16" height="16" rx="3"/>'
            f'<text class="sign" x="{x + 8:g}" y="{y + 12:g}">{sign}</text>'
        )
        parts.append(_text(x + 22, y + 12.5, text))
        x += 22 + LETTER * len(text) + 22
    return "".join(parts)


# --- the page ---------------------------------------------------------------------


def _numbers(rows, names):
    """Return a table of numbers. Names of libraries stand upright, so that none is split."""
    body = [
        [cell(name.strip(), kind="below" if name[0] == " " else None), *map(cell, texts)]
        for name, *texts in rows
    ]
    return table(body, [[cell("from \\ to", "th"), *map(turned, names)]], "numbers")


def _times(matrix, headings):
    for device in (HOST, *matrix.devices):
        if matrix.pairs_on(device):
            yield heading(f"Nanoseconds: {matrix_text.title(matrix, device)}")
            grid = matrix_text.Grid(matrix, device, headings)
            yield _numbers(matrix_text.time_rows(grid)[2:], grid.consumers)
    if matrix.moves:
        yield heading("Nanoseconds: from device to device, until the call of .to() returns")
        devices, libraries, *rows = matrix_text.move_rows(
            matrix, lambda move: matrix_text.time_text(move.through)
        )
        names = [" ".join(pair) for pair in zip(devices[1:], libraries[1:], strict=True)]
        yield _numbers(rows, names)


def _coverage(matrix):
    for what, numbers, total in matrix_text.coverage(matrix):
        parts = (f"<b>{n}</b> {matrix_text.plural(n, result)}" for result, n in numbers.items())
        yield f'<p class="lead">{escaped(what)}: {", ".join(parts)}, of {total} pairs</p>'


def _libraries(matrix):
    rows = []
    for library in matrix.libraries:
        spoken = ", ".join(library.protocols)
        rows.append(
            [
                cell(library.name),
                cell(library.version or ""),
                cell(library.device or ""),
                cell(library.reason or spoken, kind="bad" if library.reason else None),
            ]
        )
    names = ("library", "version", "device", "protocols of its array, or why it is left out")
    return table(rows, [[cell(name, "th") for name in names]])


def page(matrix, headings):
    """Return the HTML page."""
    here = machine()
    payload = matrix.payload
    parts = [
        *_coverage(matrix),
        paragraph(
            f"{payload.length} numbers of {payload.dtype}, handed from each row to each column, "
            f"compared and timed. arrowdev {here['arrowdev']}, {here['implementation']} "
            f"{here['python']}, {here['platform']}.",
            "faint",
        ),
        paragraph(
            "Point at a square to see the call, its time, or why it was refused. On the keyboard: "
            "Tab, the arrow keys, Enter to show and Escape to close.",
            "faint",
        ),
        f'<div class="scroll">{picture(matrix)}</div>',
        "<output hidden></output>",
        *_times(matrix, headings),
        heading("Libraries"),
        _libraries(matrix),
    ]
    text = "\n".join(matrix_text.lines(matrix, headings, has_times=True))
    script = pathlib.Path(__file__).with_name("matrix.js").read_text(encoding="utf-8")
    return document("python -m arrowdev matrix", parts, text, _STYLE_OF_BOX, script)
