"""Draw the picture of docs/recipes.md from the raw data."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures import real

if TYPE_CHECKING:
    from collections.abc import Sequence

LOWEST, HIGHEST = 0.03, 4.0
INK, PAPER, FRAME = "#1a1a1a", "#ffffff", "#8c8c8c"
# The colour of each number of workers, of Okabe and Ito: colour-blind people can tell them apart.
COLOURS = dict(zip(real.WORKERS, ("#0072B2", "#D55E00"), strict=True))
DARK = f"""<style>@media (prefers-color-scheme: dark) {{
[style*="fill: {PAPER}"] {{ fill: #14171c !important }}
[style*="fill: {INK}"] {{ fill: #e4e4e4 !important }}
[style*="stroke: {INK}"] {{ stroke: #e4e4e4 !important }}
}}</style>"""


def svg(figure: Figure) -> str:
    """Return an SVG that is dark if the reader's screen is."""
    content = io.StringIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    text = content.getvalue()
    start = text.index("<defs>")
    return text[:start] + DARK + "\n " + text[start:]


def curves(data: dict[str, Any]) -> Figure:
    """Draw the loss of each recipe's runs against the batches."""
    mpl.rcdefaults()
    mpl.rcParams.update({
        "svg.hashsalt": "recipes", "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": FRAME, "xtick.color": FRAME, "ytick.color": FRAME,
        "xtick.labelcolor": INK, "ytick.labelcolor": INK,
        "font.size": 9.5, "axes.titlesize": 10, "figure.facecolor": PAPER, "axes.facecolor": PAPER,
    })  # fmt: skip
    figure = Figure((9.5, 8), layout="constrained")
    grid = figure.subplots(3, 3, squeeze=False, sharey=True)
    for axes, name in zip(grid.flat, data["rates"], strict=True):
        for workers, colour in COLOURS.items():
            for run in real.overlapping(data, name, workers):
                curve = run["curve"]
                axes.plot(curve["batches"], clipped(curve["loss"]), color=colour, linewidth=1)
        axes.set(title=f"{name}, η = {data['rates'][name]:g}", yscale="log")
        axes.set_ylim(LOWEST, HIGHEST * 1.15)
        axes.set_yticks([0.03, 0.1, 0.3, 1, HIGHEST], ["0.03", "0.1", "0.3", "1", "≥ 4"])
        axes.set_yticks([], minor=True)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("batches computed")
    for axes in grid[:, 0]:
        axes.set_ylabel("test loss of the centre")
    lines = [Line2D([], [], color=colour) for colour in COLOURS.values()]
    labels = [f"{workers} workers" for workers in COLOURS]
    figure.legend(lines, labels, loc="outside upper center", ncols=2, frameon=False)
    return figure


def clipped(losses: Sequence[float]) -> np.ndarray:
    return np.clip(losses, LOWEST, HIGHEST)
