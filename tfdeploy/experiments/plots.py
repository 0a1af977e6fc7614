"""Draw line plots with matplotlib. The same data gives the same file, byte by byte, whatever the
user's matplotlibrc says, and one of the current folder is not read."""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import RunError
from tfdeploy.own_folder import OwnFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.axis import YAxis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

SUFFIXES = (".svg", ".png")
# Okabe and Ito's palette: colour-blind people can tell the colours apart. Markers and dashes help.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX*"
DASHES = ("-", "--", ":")
MARKERS_PER_LINE = 8  # if it has more than twice as many points
PANEL_SIZE = (4.6, 3.8)  # inches
LEGEND_WIDTH = 1.6
SHORT_AXIS = 1000.0  # its highest value over its lowest one
# Text stays text.
WEB_SETTINGS = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 11.0}
# By the name of their maker, a release leaves plots out (release/snapshot.py).
METADATA = {".svg": {"Date": None, "Creator": "tfdeploy"}, ".png": {"Software": "tfdeploy"}}


@dataclass(frozen=True)
class Line:
    """`raw` holds the values behind a smoothed line, drawn pale. NaN leaves a gap. `ranges` are the
    lowest and highest values of each point, drawn as bars; `low` and `high` those of a band around
    the line. `note` stands below the label in the legend."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    raw: Sequence[float] = ()
    ranges: Sequence[tuple[float, float]] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """Lines with one x axis and one y axis. `log` names the logarithmic axes, such as "y" or "xy";
    `ticks` are the numbers on the x axis, and `xlimits` and `ylimits` the ends of the axes, by
    default those that matplotlib chooses."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    ideal: Line | None = None
    log: str = ""
    ticks: Sequence[float] = ()
    xlimits: tuple[float, float] | None = None
    ylimits: tuple[float, float] | None = None


def check_file(file: Path) -> None:
    """Raise RunError if the plot can't be written to this file. Call it before the work is done."""
    if file.suffix not in SUFFIXES:
        found = f"found {file.name!r}, expected a file name that ends in {' or '.join(SUFFIXES)}"
        example = file.with_suffix(SUFFIXES[0]) if file.name else f"NAME{SUFFIXES[0]}"
        raise RunError(found, f"use {example}")
    if not file.parent.is_dir():
        raise RunError(f"{file} can't be written: there is no folder {file.parent}")


def draw(file: Path, panels: Sequence[Panel], folder: OwnFolder | None = None) -> None:
    """Draw the panels side by side, with one legend. A line has the same colour in every panel.
    `folder` is the file's, unless the user chose the file. Raises RunError if they can't be drawn,
    or the file can't be written."""
    check_file(file)
    content, suffix = io.BytesIO(), file.suffix
    with _settings({}):
        try:
            _figure(panels).savefig(content, format=suffix[1:], metadata=METADATA[suffix], dpi=150)
        except (ValueError, ArithmeticError) as error:  # numbers near the limits of a float
            raise RunError(f"{file} can't be drawn: {error}") from None
    try:
        (folder or OwnFolder.at(file.parent)).write(file.name, [content.getvalue()])
    except OSError as error:
        raise RunError(f"{file} can't be written: {error.strerror}") from None


def to_web_svg(panel: Panel, labels: Sequence[str], name: str) -> str:
    """Return one panel as an <svg> element for an HTML page, without a legend and background.

    A line's style is that of its place in `labels`. Colours are CSS: `var(--line-0)` and so on, and
    `currentColor` for text and axes. `name` makes ids differ from those of other plots of the page.
    Raises RunError if the panel can't be drawn.
    """
    content = io.StringIO()
    with _settings(WEB_SETTINGS):
        from matplotlib.figure import Figure

        try:
            figure = Figure(PANEL_SIZE, layout="constrained")
            _draw_panel(figure.subplots(), panel, {label: n for n, label in enumerate(labels)})
            figure.savefig(content, format="svg", metadata=METADATA[".svg"], transparent=True)
        except (ValueError, ArithmeticError) as error:
            raise RunError(f"{panel.title} can't be drawn: {error}") from None
    return _for_web(content.getvalue(), name)


@contextmanager
def _settings(changes: dict[str, Any]) -> Iterator[None]:
    """Draw with matplotlib's defaults and these changes."""
    _import_outside_of_the_current_folder()
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update({"svg.hashsalt": "tfdeploy", **changes})
        yield


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


def _figure(panels: Sequence[Panel]) -> Figure:
    from matplotlib.figure import Figure

    width, height = PANEL_SIZE
    figure = Figure((width * len(panels) + LEGEND_WIDTH, height), layout="constrained")
    labels = dict.fromkeys(line.label for panel in panels for line in panel.lines)
    style_numbers = {label: number for number, label in enumerate(labels)}
    drawn: dict[str, Line2D] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        drawn = _draw_panel(axes, panel, style_numbers) | drawn  # the first panel's style counts
    notes = {line.label: line.note for panel in panels for line in panel.lines}
    texts = [
        _escape_formulas("\n".join(filter(None, (label, notes.get(label))))) for label in drawn
    ]
    figure.legend([*drawn.values()], texts, loc="outside right upper", frameon=False)
    return figure


def _draw_panel(axes: Axes, panel: Panel, style_numbers: dict[str, int]) -> dict[str, Line2D]:
    for axis in panel.log:
        axes.set(**{f"{axis}scale": "log"})
        getattr(axes, f"{axis}axis").set_major_formatter("{x:g}")  # 0.01 and not a power of 10
    drawn = {}
    for line in panel.lines:
        drawn[line.label] = _draw_line(axes, line, style_numbers[line.label])
    if panel.ideal:
        ideal = panel.ideal
        [drawn[ideal.label]] = axes.plot(ideal.xs, ideal.ys, "--", color="grey", linewidth=1)
    if "y" in panel.log:
        _label_plainly(axes.yaxis)
    texts = {"title": panel.title, "xlabel": panel.xlabel, "ylabel": panel.ylabel}
    axes.set(**{name: _escape_formulas(text) for name, text in texts.items()})
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:g}" for tick in panel.ticks])
        axes.set_xticks([], minor=True)
    if panel.xlimits:
        axes.set_xlim(panel.xlimits)
    if panel.ylimits:
        axes.set_ylim(panel.ylimits)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _label_plainly(axis: YAxis) -> None:
    """Label a logarithmic axis with plain numbers: 0.2 says more than 2×10⁻¹. A short axis gets
    more of them. It has its lines already, so its limits are known."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < SHORT_AXIS * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _draw_line(axes: Axes, line: Line, style_number: int) -> Line2D:
    """Markers start at a different point in each line, to tell lines apart where they overlap."""
    colour = COLOURS[style_number % len(COLOURS)]
    if line.raw:
        axes.plot(line.xs, line.raw, color=colour, alpha=0.25, linewidth=0.8)
    if line.ranges:
        _draw_ranges(axes, line, colour)
    if line.low:
        axes.fill_between(line.xs, line.low, line.high, color=colour, alpha=0.2, linewidth=0)
    many = len(line.xs) > 2 * MARKERS_PER_LINE
    every = len(line.xs) // MARKERS_PER_LINE if many else 1
    [drawn] = axes.plot(
        line.xs, line.ys, color=colour, linewidth=1.6, markersize=4,
        linestyle=DASHES[style_number // len(COLOURS) % len(DASHES)],
        marker=MARKERS[style_number % len(MARKERS)],
        markevery=(style_number * every // 3 % every, every),
    )  # fmt: skip
    return drawn


def _draw_ranges(axes: Axes, line: Line, colour: str) -> None:
    below = [max(0.0, y - low) for y, (low, _) in zip(line.ys, line.ranges, strict=True)]
    above = [max(0.0, high - y) for y, (_, high) in zip(line.ys, line.ranges, strict=True)]
    axes.errorbar(
        line.xs, line.ys, [below, above], fmt="none", ecolor=colour, elinewidth=1, capsize=3
    )


def _escape_formulas(text: str) -> str:
    """Escape dollar signs: matplotlib would set the text between two of them as a formula."""
    return text.replace("$", r"\$")
