"""Pictures of lines, drawn with matplotlib: the same figures give the same file, byte by byte,
whatever the user's own matplotlibrc says."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

ENDINGS = (".svg", ".png")
# Okabe and Ito's: told apart by people who are colour-blind, too. Markers and dashes say it again.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX*"
DASHES = ("-", "--", ":")
MARKED = 8  # markers a line, of more points than twice that
SIZE = (4.6, 3.8)  # inches a panel
LEGEND = 1.6
METADATA = {".svg": {"Date": None}, ".png": {"Software": None}}


@dataclass(frozen=True)
class Line:
    """`raw` are the values behind a smoothed line, drawn pale. NaN leaves a gap."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    raw: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """Lines over one x and one y. `log` names the axes that are logarithmic, as "y" or "xy";
    `ticks` are where x has its numbers, if not where matplotlib likes."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    ideal: Line | None = None
    log: str = ""
    ticks: Sequence[float] = ()


def checked(file: Path) -> Path:
    """Where the picture goes; asked for before the work is done. Raises RunError."""
    if file.suffix not in ENDINGS:
        found = f"found {file.name!r}, which ends in neither {' nor '.join(ENDINGS)}"
        example = file.with_suffix(ENDINGS[0]) if file.name else f"NAME{ENDINGS[0]}"
        raise RunError(found, f"say {example}")
    if not file.parent.is_dir():
        raise RunError(f"{file} can't be written: there is no folder {file.parent}")
    return file


def draw(file: Path, panels: Sequence[Panel]) -> None:
    """The panels beside each other, and one legend for all of them. A line that is in several has
    one colour. Raises RunError where they can't be drawn, or the file can't be written."""
    import matplotlib

    content = io.BytesIO()
    metadata, form = METADATA[checked(file).suffix], file.suffix[1:]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "tfdeploy"
        try:
            _figure(panels).savefig(content, format=form, metadata=metadata, dpi=150)
        except (ValueError, ArithmeticError) as error:  # numbers near the end of what there is
            raise RunError(f"{file} can't be drawn: {error}") from None
    try:
        file.write_bytes(content.getvalue())
    except OSError as error:
        raise RunError(f"{file} can't be written: {error.strerror}") from None


def _figure(panels: Sequence[Panel]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure((SIZE[0] * len(panels) + LEGEND, SIZE[1]), layout="constrained")
    labels = dict.fromkeys(line.label for panel in panels for line in panel.lines)
    places = {label: place for place, label in enumerate(labels)}
    drawn: dict[str, Line2D] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        drawn |= _panel(axes, panel, places)
    named = [_plain(label) for label in drawn]
    figure.legend([*drawn.values()], named, loc="outside right upper", frameon=False)
    return figure


def _panel(axes: Axes, panel: Panel, places: dict[str, int]) -> dict[str, Line2D]:
    for axis in panel.log:
        axes.set(**{f"{axis}scale": "log"})
    drawn = {line.label: _line(axes, line, places[line.label]) for line in panel.lines}
    if panel.ideal:
        ideal = panel.ideal
        [drawn[ideal.label]] = axes.plot(ideal.xs, ideal.ys, "--", color="grey", linewidth=1)
    said = {"title": panel.title, "xlabel": panel.xlabel, "ylabel": panel.ylabel}
    axes.set(**{where: _plain(text) for where, text in said.items()})
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:g}" for tick in panel.ticks])
        axes.set_xticks([], minor=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _line(axes: Axes, line: Line, place: int) -> Line2D:
    """Markers begin at another point in each line, so that lines that meet can be told apart."""
    colour = COLOURS[place % len(COLOURS)]
    if line.raw:
        axes.plot(line.xs, line.raw, color=colour, alpha=0.25, linewidth=0.8)
    every = len(line.xs) // MARKED if len(line.xs) > 2 * MARKED else 1
    [drawn] = axes.plot(
        line.xs, line.ys, color=colour, linewidth=1.6, markersize=4,
        linestyle=DASHES[place // len(COLOURS) % len(DASHES)],
        marker=MARKERS[place % len(MARKERS)], markevery=(place * every // 3 % every, every),
    )  # fmt: skip
    return drawn


def _plain(text: str) -> str:
    """What stands between two of these would be set as a formula."""
    return text.replace("$", r"\$")
