"""Draws the ratios that run.py measured, one bar per row that has a peer.

`run.py --plot FILE.svg` writes what it draws beside the picture, as FILE.json.
`python benchmarks/plot.py FILE.json` draws FILE.svg anew.
"""

import itertools
import json
import sys
from pathlib import Path

# Legible on white and on black.
TEXT = "#768390"
COLOURS = ("#2f9e78", "#4c8fd6", "#b5762a", "#a371f7", "#c4558a", "#7d8b2f")


def data_of(report):
    """What is drawn: of rows with a goal and of the group "more", the ratio to the first peer."""
    rows = [
        row
        for row in report["paths"]
        if row["peers"] and "ratio" in row["peers"][0] and (row["goal"] or row["group"] == "more")
    ]
    return {
        "conditions": report["conditions"],
        "bars": [
            {
                "name": row["name"],
                "peer": row["peers"][0]["label"],
                "arrowdev_ns": row["ours"]["median"],
                "peer_ns": row["peers"][0]["median"],
                "ratio": row["peers"][0]["ratio"],
            }
            for row in rows
        ],
    }


def draw(report, file):
    file = Path(file)
    data = data_of(report)
    file.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    draw_bars(data, file)


def draw_bars(data, file):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    style = {"svg.fonttype": "none", "svg.hashsalt": "arrowdev", "font.family": "sans-serif"}
    style |= {f"{name}.color": TEXT for name in ("text", "xtick", "ytick")}
    bars = data["bars"]
    libraries = [*dict.fromkeys(map(library_of, bars))]
    colours = dict(zip(libraries, itertools.cycle(COLOURS)))
    with matplotlib.rc_context(style | {"axes.labelcolor": TEXT, "axes.edgecolor": TEXT}):
        # Narrow, so that it can be read on a telephone: each bar has its label above it.
        figure, axes = pyplot.subplots(figsize=(5.4, 1.1 + 0.36 * len(bars)), layout="constrained")
        for row, bar in enumerate(bars):
            draw_bar(axes, row, colours[library_of(bar)], **bar)
        axes.set_yticks([])
        axes.set_ylim(len(bars) - 0.3, -0.8)
        axes.axvline(1, color=TEXT, lw=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}x")
        axes.set_xlim(left=0.8, right=max([bar["ratio"] for bar in bars] or [1]) * 1.5)
        axes.set_xlabel("how many times as fast arrowdev is (logarithmic)", fontsize=9)
        handles = [Patch(color=colours[name], label=name) for name in libraries]
        title = "compared with"
        # Without a frame, which would be white on a dark page.
        where = {"loc": "outside lower center", "frameon": False}
        figure.legend(handles=handles, title=title, ncols=4, fontsize=9, **where)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        metadata = {"Date": None} if file.suffix == ".svg" else None
        figure.savefig(file, dpi=130, transparent=True, metadata=metadata)
        pyplot.close(figure)


def library_of(bar):
    return bar["peer"].partition(".")[0]


def draw_bar(axes, row, colour, *, name, ratio, **_):
    axes.text(1.02, row - 0.32, name, va="center", fontsize=9)
    # From the line at 1: a bar to the left of it is slower than the peer.
    axes.barh(row + 0.12, ratio - 1, left=1, color=colour, height=0.36)
    axes.text(max(ratio, 1) * 1.05, row + 0.13, f"{ratio:.1f}x", va="center", fontsize=9)


def main():
    for name in sys.argv[1:]:
        file = Path(name)
        draw_bars(json.loads(file.read_text(encoding="utf-8")), file.with_suffix(".svg"))


if __name__ == "__main__":
    main()
