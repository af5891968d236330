"""Render the diagrams of the documentation as SVG.

    python tools/make_diagrams.py           writes the SVG files
    python tools/make_diagrams.py --check   fails where one does not show what its text says

exchange.svg is drawn by hand, with the same variables for colours.

*.dot is drawn by Graphviz; *.toml has lanes in time, drawn here. Versions of Graphviz place the
same boxes differently, so the check compares the words and the arrows, not the coordinates.
"""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html import escape
from pathlib import Path

import tomllib

DOCS = Path(__file__).resolve().parent.parent / "docs"
FOLDERS = [DOCS / "diagrams", DOCS / "internals" / "diagrams"]
SVG = "{http://www.w3.org/2000/svg}"

LANE, UNIT, TOP, WIDTH = 140, 42, 34, 118
GREY = "#768390"  # legible on white and on black
# Colours on white. docs/_static/arrowdev.css has others for the variables in dark mode.
FILL = {"work": "#ddf4ff", "call": "#f6f8fa", "wait": "none", "idle": "none", "free": "#fff8c5"}
LINE = {"work": "#54aeff", "call": "#8c959f", "wait": "#c297ff", "idle": "#8c959f",
        "free": "#d4a72c"}  # fmt: skip
TEXT = "#1f2328"
VARIABLES = {
    "text": TEXT, "event-line": LINE["wait"],
    **{kind: FILL[kind] for kind in ("work", "call", "free")},
    **{f"{kind}-line": LINE[kind] for kind in ("work", "call", "free")},
}  # fmt: skip
DOT = [
    *("dot", "-Tsvg", "-Gbgcolor=transparent", "-Nshape=box", "-Nstyle=rounded,filled"),
    *(f"-Nfillcolor={FILL['call']}", f"-Ncolor={LINE['call']}", f"-Nfontcolor={TEXT}"),
    *("-Nfontname=monospace", "-Nfontsize=11", "-Efontname=sans-serif", "-Efontsize=10"),
    *(f"-Ecolor={GREY}", f"-Efontcolor={GREY}"),
]


def render(source):
    if source.suffix == ".toml":
        figure = tomllib.loads(source.read_text(encoding="utf-8"))
        return with_variables(render_lanes(figure, source.stem))
    done = subprocess.run([*DOT, source], capture_output=True, text=True, check=True)
    # The comments name the version of Graphviz.
    svg = re.sub(r"<!--.*?-->\n?", "", done.stdout, flags=re.S)
    return with_variables(re.sub(r' id="[^"]*"', "", svg))


def with_variables(svg):
    """The picture whose colours a page can change."""
    for name, colour in VARIABLES.items():
        svg = svg.replace(f'"{colour}"', f'"var(--diagram-{name}, {colour})"')
    return svg


def text_lines(x, y, lines, colour, weight="normal"):
    first = y - 8 * (len(lines) - 1) + 4
    for row, line in enumerate(lines):
        yield (
            f'<text x="{x:g}" y="{first + 16 * row:g}" text-anchor="middle" fill="{colour}" '
            f'font-weight="{weight}">{escape(line)}</text>'
        )


def render_box(lane, text, kind, **span):
    x, y = LANE * lane + (LANE - WIDTH) / 2, TOP + UNIT * span["from"]
    height = UNIT * (span["to"] - span["from"])
    dashes = "" if FILL[kind] != "none" else ' stroke-dasharray="5 4"'
    yield (
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{height:g}" rx="6" '
        f'fill="{FILL[kind]}" stroke="{LINE[kind]}"{dashes}/>'
    )
    colour = GREY if FILL[kind] == "none" else TEXT
    yield from text_lines(x + WIDTH / 2, y + height / 2, text, colour)


def render_arrow(head, to, text, **start):
    (lane_1, time_1), (lane_2, time_2) = start["from"], to
    right = 1 if lane_2 > lane_1 else -1
    x_1 = LANE * (lane_1 + 0.5) + right * WIDTH / 2
    x_2 = LANE * (lane_2 + 0.5) - right * (WIDTH / 2 + 3)
    y_1, y_2 = TOP + UNIT * time_1, TOP + UNIT * time_2
    yield (
        f'<path d="M{x_1:g},{y_1:g} L{x_2:g},{y_2:g}" fill="none" stroke="{GREY}" '
        f'stroke-width="1.5" marker-end="url(#{head})"/>'
    )
    yield from text_lines((x_1 + x_2) / 2, (y_1 + y_2) / 2 - 12, [text], GREY, "bold")


def render_lanes(figure, name):
    head = f"{name}-head"  # pictures of one page share their ids
    n_lanes = len(figure["lanes"])
    end = max(box["to"] for box in figure["box"]) + 0.4
    width, height = LANE * n_lanes, TOP + UNIT * end
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:g}" '
        f'viewBox="0 0 {width} {height:g}" font-family="sans-serif" font-size="13">',
        f"<title>{escape(figure['title'])}</title>",
        f'<defs><marker id="{head}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{GREY}"/>'
        "</marker></defs>",
    ]
    for lane, title in enumerate(figure["lanes"]):
        x = LANE * (lane + 0.5)
        lines += text_lines(x, 14, [title], GREY, "bold")
        lines.append(
            f'<path d="M{x:g},{TOP - 8} V{height:g}" stroke="{GREY}" stroke-opacity="0.35"/>'
        )
    for box in figure["box"]:
        lines += render_box(**box)
    for arrow in figure["arrow"]:
        lines += render_arrow(head, **arrow)
    return "\n".join([*lines, "</svg>", ""])


def shown(svg):
    """The words, and the names of boxes and arrows."""
    root = ET.fromstring(svg)
    return sorted(
        element.text or "" for tag in ("title", "text") for element in root.iter(f"{SVG}{tag}")
    )


def main():
    stale = []
    for source in sorted(path for folder in FOLDERS for path in folder.iterdir()):
        if source.suffix not in (".dot", ".toml"):
            continue
        target = source.with_suffix(".svg")
        fresh = render(source)
        if "--check" not in sys.argv[1:]:
            target.write_text(fresh, encoding="utf-8")
        elif not target.exists() or shown(target.read_text(encoding="utf-8")) != shown(fresh):
            stale.append(target.name)
    if stale:
        sys.exit(f"run tools/make_diagrams.py: {', '.join(stale)} differ from their sources")


if __name__ == "__main__":
    main()
