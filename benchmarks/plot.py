"""Draws the ratios that run.py measured, one bar per row that has a peer.

`run.py --plot FILE.svg` writes what it draws beside the picture, as FILE.json.
`python benchmarks/plot.py FILE.json` draws FILE.svg anew.
"""

import json
import sys
from pathlib import Path

# Legible on white and on black.
MET, MISSED, NO_GOAL, TEXT = "#2f9e78", "#d1493b", "#7aa2c4", "#768390"


def data_of(report):
    """What is drawn: of each row the first peer, if there is a ratio to it."""
    told = report["conditions"]
    rows = [row for row in report["paths"] if row["peers"] and "ratio" in row["peers"][0]]
    return {
        "conditions": told,
        "bars": [
            {
                "name": row["name"],
                "peer": row["peers"][0]["label"],
                "arrowdev_ns": row["ours"]["median"],
                "peer_ns": row["peers"][0]["median"],
                "ratio": row["peers"][0]["ratio"],
                "goal": goal_of(row["goal"]),
                "met": row["met"],
            }
            for row in rows
        ],
    }


def goal_of(text):
    """The ratio that a goal names: ">= 3x", "faster"."""
    if text is None:
        return None
    return 1.0 if text == "faster" else float(text.strip(">= x"))


def draw(report, file):
    file = Path(file)
    data = data_of(report)
    file.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    draw_bars(data, file)


def draw_bars(data, file):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style = {"svg.fonttype": "none", "svg.hashsalt": "arrowdev", "font.family": "sans-serif"}
    style |= {f"{name}.color": TEXT for name in ("text", "xtick", "ytick")}
    bars = data["bars"]
    with matplotlib.rc_context(style | {"axes.labelcolor": TEXT, "axes.edgecolor": TEXT}):
        figure, axes = pyplot.subplots(figsize=(9, 1.1 + 0.29 * len(bars)), layout="constrained")
        for height, bar in enumerate(bars):
            draw_bar(axes, height, **bar)
        labels = [f"{bar['name']}  ({bar['peer']})" for bar in bars]
        axes.set_yticks(range(len(bars)), labels, fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.axvline(1, color=TEXT, lw=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}x")
        axes.set_xlim(right=max([bar["ratio"] for bar in bars] or [1]) * 1.6)
        axes.set_xlabel("times as fast as the peer in brackets (logarithmic); mark: the goal")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        metadata = {"Date": None} if file.suffix == ".svg" else None
        figure.savefig(file, dpi=130, transparent=True, metadata=metadata)
        pyplot.close(figure)


def draw_bar(axes, height, *, ratio, goal, met, **_):
    colour = {True: MET, False: MISSED, None: NO_GOAL}[met]
    # From the line at 1: a bar to the left of it is slower than the peer.
    axes.barh(height, ratio - 1, left=1, color=colour, height=0.7)
    # Beside the goal's mark where that would strike it through.
    clear = goal if goal and ratio <= goal < ratio * 1.3 else max(ratio, 1)
    axes.text(clear * 1.05, height, f"{ratio:.1f}x", va="center", fontsize=9)
    if goal:
        axes.plot([goal, goal], [height - 0.42, height + 0.42], color=TEXT, lw=1.6)


def main():
    for name in sys.argv[1:]:
        file = Path(name)
        draw_bars(json.loads(file.read_text(encoding="utf-8")), file.with_suffix(".svg"))


if __name__ == "__main__":
    main()
