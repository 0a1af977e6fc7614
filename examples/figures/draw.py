"""Draw the figures of docs/recipes.md from the raw data."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures import grid, store, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

# Colours of Okabe and Ito, which colour-blind people can tell apart; markers differ as well.
STYLES = {
    "hogwild": ("#767676", "o"), "downpour": ("#D55E00", "s"), "downpour-sgd": ("#E69F00", "D"),
    "adag": ("#0072B2", "^"), "dynsgd": ("#009E73", "v"),
    "aeasgd": ("#0072B2", "o"), "aeamsgd": ("#56B4E9", "s"), "ssgd": ("#767676", "D"),
    "ssgd-backup": ("#CC79A7", "^"), "sagn": ("#D55E00", "v"),
}  # fmt: skip
DASHED = ("downpour-sgd", "ssgd-backup")  # often on top of another line
FAMILIES = {
    "pushed at any time": ("hogwild", "downpour", "downpour-sgd", "adag", "dynsgd"),
    "elastic, synchronous": ("aeasgd", "aeamsgd", "ssgd", "ssgd-backup", "sagn"),
}
LOWEST, HIGHEST, GUESSING = 0.03, 4.0, float(np.log(10))
INK, PAPER, FRAME = "#1a1a1a", "#ffffff", "#8c8c8c"
DARK = f"""<style>@media (prefers-color-scheme: dark) {{
[style*="fill: {PAPER}"] {{ fill: #14171c !important }}
[style*="fill: {INK}"] {{ fill: #e4e4e4 !important }}
[style*="stroke: {INK}"] {{ stroke: #e4e4e4 !important }}
}}</style>"""


def all_figures() -> None:
    simulated, real = store.read(store.SIMULATION), store.read(store.REAL)
    save("scaling", scaling(simulated["scaling"]))
    save("curves", curves(simulated["scaling"]))
    save("slow", slow(simulated))
    save("rates", rates(simulated))
    save("real", side_by_side(simulated, real))


def save(name: str, figure: Figure) -> None:
    """Write an SVG that is dark if the reader's screen is."""
    content = io.StringIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    svg = content.getvalue()
    start = svg.index("<defs>")
    (store.FOLDER / f"{name}.svg").write_text(svg[:start] + DARK + "\n " + svg[start:])


def scaling(runs: list[dict[str, Any]]) -> Figure:
    """Draw the last loss against workers: a row for each family, a column for each window."""
    figure, grid_of_axes = panels(2, 3, (11, 6.6))
    serial = summary.losses(summary.where(runs, algorithm="ssgd", workers=1)).middle
    for row, (family, names) in zip(grid_of_axes, FAMILIES.items(), strict=True):
        for axes, window in zip(row, grid.WINDOWS, strict=True):
            axes.axhline(serial, color=FRAME, linewidth=1, linestyle=":")
            for name in names:
                own = summary.where(runs, algorithm=name, window=window)
                points = [summary.losses(summary.where(own, workers=w)) for w in workers_of(own)]
                draw_band(axes, name, workers_of(own), points)
            axes.set(title=f"{family}: window {window}", xlabel="workers")
            axes.set_xscale("log", base=2)
            axes.set_xticks(grid.WORKERS, [str(each) for each in grid.WORKERS])
            axes.set_xlim(0.9, 18)
        legend(row[0], row[-1], names)
    return figure


def workers_of(runs: list[dict[str, Any]]) -> list[int]:
    return sorted({run["workers"] for run in runs})


def curves(runs: list[dict[str, Any]]) -> Figure:
    """Draw the loss of many workers against updates, examples and time."""
    figure, grid_of_axes = panels(2, 3, (11, 6.6))
    labels = {
        "updates": "updates of the centre",
        "batches": "batches computed (× 64 examples)",
        "time": "simulated time (1 = a batch)",
    }
    for row, (family, names) in zip(grid_of_axes, FAMILIES.items(), strict=True):
        for axes, (axis, label) in zip(row, labels.items(), strict=True):
            for name in names:
                own = summary.where(runs, algorithm=name, workers=grid.MANY)
                own = summary.where(own, window=grid.own_window(name, grid.WINDOW))
                xs, *ys = summary.band(own, axis)
                draw_lines(axes, name, xs, *ys)
            axes.set(title=family if axis == "updates" else "", xlabel=label)
        legend(row[0], row[-1], names)
    return figure


def slow(simulated: dict[str, Any]) -> Figure:
    """Draw the time to a loss and the slowed worker's share, with and without a slowed worker."""
    figure, [[left, right]] = panels(1, 2, (9.5, 4.2), shared=False, log=False)
    names = [name for family in FAMILIES.values() for name in family]
    for row, name in enumerate(reversed(names)):
        for runs, filled in (
            (even_runs(simulated, name), False),
            (slow_runs(simulated, name), True),
        ):
            times = [time for time in map(summary.reached, runs) if time is not None]
            if len(times) == len(runs):
                draw_range(left, name, row, summary.spread(times), filled=filled)
            elif filled:
                text = f"reached by {len(times)} of {len(runs)}"
                box = {"facecolor": PAPER, "edgecolor": "none", "pad": 2}
                left.text(30, row, text, va="center", fontsize=8.5, bbox=box)
            shares = summary.spread([100 * summary.slow_share(run) for run in runs])
            draw_range(right, name, row, shares, filled=filled)
    for axes in (left, right):
        axes.set_yticks(range(len(names)), list(reversed(names)))
        axes.set_ylim(-0.6, len(names) - 0.4)
    left.set(xscale="log", xlabel=f"simulated time to a test loss of {summary.TARGET}")
    left.set_xlim(25, 1100)
    left.set_xticks([30, 100, 300, 1000], ["30", "100", "300", "1000"])
    left.set_xticks([], minor=True)
    right.set(xlabel="the last worker's share of all batches, %", xlim=(0, None))
    right.axvline(100 / grid.MANY, color=FRAME, linewidth=1, linestyle=":")
    figure.suptitle(
        f"hollow: equal workers; filled: the last worker takes {grid.SLOWEST:g} times as long",
        fontsize=10,
    )
    return figure


def draw_range(axes: Axes, name: str, row: int, spread: summary.Spread, *, filled: bool) -> None:
    """Draw a marker at the median, and a line from the lowest to the highest value."""
    colour, marker = STYLES[name]
    axes.plot([spread.low, spread.high], [row, row], color=colour, linewidth=1.4)
    face = colour if filled else PAPER
    axes.plot([spread.middle], [row], color=colour, marker=marker, markerfacecolor=face)


def even_runs(simulated: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the runs of many equal workers: those with a curve."""
    own = summary.where(simulated["scaling"], algorithm=name, workers=grid.MANY)
    return summary.where(own, window=grid.own_window(name, grid.WINDOW))


def slow_runs(simulated: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return summary.where(simulated["slow"], algorithm=name)


def rates(simulated: dict[str, Any]) -> Figure:
    """Draw the last loss of many workers against the learning rate."""
    figure, [row] = panels(1, 2, (9.5, 4.6))
    for axes, (family, names) in zip(row, FAMILIES.items(), strict=True):
        for name in names:
            own = summary.where(simulated["rates"], algorithm=name)
            points = [summary.losses(summary.where(own, rate=rate)) for rate in grid.RATES]
            draw_band(axes, name, grid.RATES, points)
        axes.set(xscale="log", xlabel="learning rate η", title=family)
        axes.set_xticks(grid.RATES, [f"{rate:g}" for rate in grid.RATES])
        axes.set_xticks([], minor=True)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
        axes.legend(*keys(names), frameon=False, **place)
    row[0].set_ylabel("test loss of the centre")
    return figure


def real_workers(real: dict[str, Any]) -> list[int]:
    return sorted({run["workers"] for run in real["runs"]})


def overlapping(real: dict[str, Any], name: str, workers: int) -> list[dict[str, Any]]:
    """Return the real runs of a recipe in which all workers computed at the same time."""
    pause = real["constants"]["compute_ms"]
    return summary.where(real["runs"], algorithm=name, workers=workers, compute_ms=pause)


def taking_turns(real: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return summary.where(real["runs"], algorithm=name, compute_ms=0.0)


def side_by_side(simulated: dict[str, Any], real: dict[str, Any]) -> Figure:
    """Draw each recipe's real runs with many workers above the band of the simulation."""
    names = list(real["rates"])
    figure, grid_of_axes = panels(3, 3, (9.5, 8))
    for axes, name in zip(grid_of_axes.flat, names, strict=True):
        colour = STYLES[name][0]
        xs, middle, low, high = summary.band(even_runs(simulated, name), "batches")
        axes.fill_between(xs, clipped(low), clipped(high), color=colour, alpha=0.3, linewidth=0)
        axes.plot(xs, clipped(middle), color=colour, linewidth=1.6, linestyle="--")
        for run in overlapping(real, name, grid.MANY):
            curve = run["curve"]
            axes.plot(curve["batches"], clipped(curve["loss"]), color=INK, linewidth=0.9)
        axes.set(title=f"{name}, η = {real['rates'][name]:g}")
    for axes in grid_of_axes[-1]:
        axes.set_xlabel("batches computed")
    for axes in grid_of_axes[:, 0]:
        axes.set_ylabel("test loss of the centre")
    lines = [Line2D([], [], color=INK, linewidth=0.9), Line2D([], [], color=FRAME, linestyle="--")]
    labels = ["a real run", "simulated: the median, and the range of the seeds"]
    figure.legend(lines, labels, loc="outside upper center", ncols=2, frameon=False)
    return figure


def panels(
    rows: int, columns: int, size: tuple[float, float], *, shared: bool = True, log: bool = True
) -> tuple[Figure, np.ndarray]:
    """Return a figure with a grid of axes; the loss is on a logarithmic axis."""
    mpl.rcdefaults()
    mpl.rcParams.update({
        "svg.hashsalt": "recipes", "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": FRAME, "xtick.color": FRAME, "ytick.color": FRAME,
        "xtick.labelcolor": INK, "ytick.labelcolor": INK,
        "font.size": 9.5, "axes.titlesize": 10, "figure.facecolor": PAPER, "axes.facecolor": PAPER,
    })  # fmt: skip
    figure = Figure(size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=shared)
    for each in axes.flat:
        each.grid(alpha=0.25)
        each.spines[["top", "right"]].set_visible(False)
        if log:
            each.set_yscale("log")
            each.set_ylim(LOWEST, HIGHEST * 1.15)
            each.set_yticks([0.03, 0.1, 0.3, 1, HIGHEST], ["0.03", "0.1", "0.3", "1", "≥ 4"])
            each.set_yticks([], minor=True)
    return figure, axes


def legend(first: Axes, last: Axes, names: Sequence[str]) -> None:
    first.set_ylabel("test loss of the centre")
    last.legend(*keys(names), frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def keys(names: Sequence[str]) -> tuple[list[Any], list[str]]:
    """Return the legend's lines and labels."""
    lines = [
        Line2D(
            [],
            [],
            color=STYLES[name][0],
            marker=STYLES[name][1],
            markersize=5,
            linestyle=dashes(name),
        )
        for name in names
    ]
    return lines, list(names)


def draw_band(axes: Axes, name: str, xs: Sequence[float], points: Sequence[summary.Spread]) -> None:
    middle, low, high = (
        [getattr(point, part) for point in points] for part in ("middle", "low", "high")
    )
    draw_lines(axes, name, xs, middle, low, high, every=1)


def draw_lines(
    axes: Axes,
    name: str,
    xs: Sequence[float],
    middle: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    every: int = 16,
) -> None:
    """Draw the median as a line, and the range of the seeds as a band."""
    colour, marker = STYLES[name]
    axes.fill_between(xs, clipped(low), clipped(high), color=colour, alpha=0.22, linewidth=0)
    axes.plot(
        xs, clipped(middle), color=colour, linewidth=1.6, marker=marker, markersize=4.5,
        markevery=every, linestyle=dashes(name),
    )  # fmt: skip


def dashes(name: str) -> str:
    return "--" if name in DASHED else "-"


def clipped(losses: Sequence[float]) -> np.ndarray:
    return np.clip(losses, LOWEST, HIGHEST)
