"""Draw line plots with matplotlib for an HTML page. The same data gives the same plot, whatever the
user's matplotlibrc says, and one of the current folder is not read."""

from __future__ import annotations

import io
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tfdeploy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

# Okabe and Ito's palette: colour-blind people can tell the colours apart. Dashes help.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":")
PANEL_SIZE = (4.6, 3.8)  # inches
# Text stays text, and the same drawing gets the same ids.
SETTINGS = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 11.0,
    "svg.hashsalt": "tfdeploy",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """`raw` holds the values behind a smoothed line, drawn pale. NaN leaves a gap. If it `is_dots`,
    its points are not connected."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    raw: Sequence[float] = ()
    is_dots: bool = False


@dataclass(frozen=True)
class Panel:
    """Lines with one x axis and one y axis, which may be logarithmic.

    `title` is what an error calls it; `xlimits` and `ylimits` are the ends of the axes, by default
    those that matplotlib chooses.
    """

    title: str
    xlabel: str
    lines: Sequence[Line]
    log_y: bool = False
    xlimits: tuple[float, float] | None = None
    ylimits: tuple[float, float] | None = None


def to_web_svg(panel: Panel, labels: Sequence[str], name: str) -> str:
    """Return one panel as an <svg> element for an HTML page, without a legend and background.

    A line's style is that of its place in `labels`. Colours are CSS: `var(--line-0)` and so on, and
    `currentColor` for text and axes. `name` makes ids differ from those of other plots of the page.
    Raises RunError if the panel can't be drawn.
    """
    _import_outside_of_the_current_folder()
    import matplotlib
    from matplotlib.figure import Figure

    content = io.StringIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast("matplotlib.RcParams", SETTINGS))
        try:
            figure = Figure(PANEL_SIZE, layout="constrained")
            _draw_panel(figure.subplots(), panel, {label: n for n, label in enumerate(labels)})
            figure.savefig(content, format="svg", metadata={"Date": None}, transparent=True)
        except (ValueError, ArithmeticError) as error:
            raise RunError(f"{panel.title} can't be drawn: {error}") from None
    return _for_web(content.getvalue(), name)


def _import_outside_of_the_current_folder() -> None:
    """Import matplotlib in the root folder: it reads the matplotlibrc of the current one, which may
    be somebody else's repository. Versions before 3.10.9 evaluate parts of it."""
    if "matplotlib" in sys.modules:
        return
    folder = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    try:
        os.chdir("/")
        import matplotlib  # noqa: F401
    finally:
        os.fchdir(folder)
        os.close(folder)


def _for_web(svg: str, name: str) -> str:
    """Return the <svg> element of a file of matplotlib, with CSS colours and ids of its own."""
    svg = svg[svg.index("<svg ") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style .*?</style>|<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r' (?:width|height)="[0-9.]+pt"| xmlns(?::xlink)?="[^"]*"', "", svg, count=4)
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for number, colour in enumerate(COLOURS[:-1]):
        svg = svg.replace(colour.lower(), f"var(--line-{number})")
    return svg.replace("#000000", "currentColor")


def _draw_panel(axes: Axes, panel: Panel, style_numbers: dict[str, int]) -> None:
    for line in panel.lines:
        _draw_line(axes, line, style_numbers[line.label])
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")  # 0.1 says more than 10⁻¹
    axes.set_xlabel(panel.xlabel)
    if panel.xlimits:
        axes.set_xlim(panel.xlimits)
    if panel.ylimits:
        axes.set_ylim(panel.ylimits)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_line(axes: Axes, line: Line, style_number: int) -> None:
    colour = COLOURS[style_number % len(COLOURS)]
    if line.raw:
        axes.plot(line.xs, line.raw, color=colour, alpha=0.25, linewidth=0.8)
    is_point = len(line.xs) == 1
    axes.plot(
        line.xs, line.ys, color=colour, linewidth=1.6, markersize=4,
        linestyle="" if line.is_dots else DASHES[style_number // len(COLOURS) % len(DASHES)],
        marker="o" if line.is_dots or is_point else "",
    )  # fmt: skip
