"""Draw docs/performance.svg: the cost of each tool's commands against the number of hosts."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from bench import results
from bench.results import STEPS

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "tfdeploy"  # the same figures produce the same file
from matplotlib import pyplot  # noqa: E402

HERE = Path(__file__).parent
SHOWN = ("push_cold", "push_same", "push_one", "start", "status")
FIGURES = {"wall_s": "wall seconds", "cpu_s": "controller CPU seconds"}


def main() -> None:
    found = results.load(HERE / "results" / "peers.json")
    size = (3 * len(SHOWN), 3.2 * len(FIGURES))
    figure, panels = pyplot.subplots(len(FIGURES), len(SHOWN), figsize=size, sharex=True)
    for row, (key, label) in zip(panels, FIGURES.items(), strict=True):
        row[0].set_ylabel(label)
        for panel, step in zip(row, SHOWN, strict=True):
            panel.set_title(STEPS[step], fontsize=9)
            _draw(panel, found, step, key)
    for panel in panels[-1]:
        panel.set_xlabel("hosts")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    target = HERE.parent.parent / "docs" / "performance.svg"
    figure.savefig(target, metadata={"Date": None})


def _draw(panel, found, step, key) -> None:
    """Draw one panel with logarithmic scales: a slope of 1 means the same cost for each host."""
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    for tool in found.tools:
        points = [(n, found.median(tool, n, step, key)) for n in found.sizes]
        points = [(n, value) for n, value in points if value]
        if points:
            ours = {"color": "black", "linewidth": 2.2} if tool == "tfdeploy" else {}
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=tool, **ours)
    panel.set_xticks(found.sizes, [str(n) for n in found.sizes])
    panel.minorticks_off()
    panel.grid(alpha=0.3)


if __name__ == "__main__":
    main()
