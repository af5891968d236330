"""Draws the ratios that run.py measured, one bar per peer of each row."""

from paths import Goal

MET, MISSED, NO_GOAL = "#2a7f62", "#c0392b", "#7f8c8d"


def bars_of(report):
    for row in report["paths"]:
        for index, peer in enumerate(row["peers"]):
            if "ratio" not in peer:
                continue
            judged = row["met"] if index == 0 else None
            colour = {True: MET, False: MISSED, None: NO_GOAL}[judged]
            label = f"{row['name']}  vs {peer['label']}"
            yield label, peer["ratio"], colour, goal_of(row) if index == 0 else None


def goal_of(row):
    found = row["goal"]
    if found is None:
        return None
    return 1.0 if found == str(Goal(factor=1)) else float(found.strip(">= x"))


def draw(report, file):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = list(bars_of(report))
    figure, axes = pyplot.subplots(figsize=(11, 1.6 + 0.32 * len(bars)), layout="constrained")
    for height, (_, ratio, colour, goal) in enumerate(bars):
        axes.barh(height, ratio, color=colour, height=0.7)
        # Beside the goal's mark where that would strike it through.
        clear = goal if goal and ratio <= goal < ratio * 1.2 else ratio
        axes.text(clear * 1.03, height, f"{ratio:.1f}x", va="center", fontsize=8)
        if goal:
            axes.plot([goal, goal], [height - 0.42, height + 0.42], color="black", lw=1.5)
    axes.set_yticks(range(len(bars)), [label for label, *_ in bars], fontsize=8)
    axes.set_ylim(len(bars), -1)
    axes.axvline(1, color="black", lw=0.6, ls=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}x")
    axes.set_xlim(right=max([ratio for _, ratio, *_ in bars] or [1]) * 1.5)
    axes.set_xlabel("times faster than the peer (medians, logarithmic); black mark: the goal")
    told = report["conditions"]
    axes.set_title(
        f"arrowdev {told['versions']['arrowdev']}, Python {told['python']}, {told['date']}",
        fontsize=10,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)
