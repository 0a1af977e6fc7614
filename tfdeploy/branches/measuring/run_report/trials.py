"""What a report shows of trials: the table, which parameters gave which objective, when, and how
the best ones trained."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring import plots
from tfdeploy.branches.measuring.plots import COLOURS, Line, Panel
from tfdeploy.branches.measuring.run_report import charts
from tfdeploy.branches.measuring.run_report.over_time import TimePanel, of_all
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.output import trial_table
from tfdeploy.shared.objective import Objective
from tfdeploy.shared.trials import ENDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.branches.measuring.run_report.charts import Chart
    from tfdeploy.branches.measuring.run_report.facts import RunFacts
    from tfdeploy.commands.trials import Trial, TrialsResult
    from tfdeploy.run import Run

MAX_BEST = len(COLOURS)  # more lines can't be told apart
MAX_LINES = 500  # of the table, and of the picture
MAX_TICKS, MAX_LABEL = 6, 14
LOG_RATIO = 50.0  # parameters that differ by more than this get a logarithmic axis
STEP, TOP, HEIGHT = 190, 40, 220  # of the axes, in pixels
EACH, BEST = "each trial", "the best so far"


@dataclass(frozen=True)
class Axis:
    """An axis of parallel coordinates at `x`: its ticks are heights with their labels."""

    name: str
    x: int
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class TrialPath:
    """A trial's line through all axes. `style` is its place among the best ones, None below."""

    path: str
    title: str
    style: int | None


@dataclass(frozen=True)
class ParallelAxes:
    """An axis for each parameter and the objective. `trials` has the best ones last, on top."""

    objective: str
    axes: tuple[Axis, ...]
    trials: tuple[TrialPath, ...]
    top: int = TOP
    bottom: int = TOP + HEIGHT

    @property
    def width(self) -> int:
        return STEP * len(self.axes)


@dataclass(frozen=True)
class TrialsView:
    """The trials as the page shows them. `best` are the labels of those that have a colour, `more`
    is the number of trials without a row."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    more: int
    best: tuple[str, ...]
    parallel: ParallelAxes | None
    charts: tuple[Chart, ...]


def view(facts: RunFacts, prefix: str) -> TrialsView | None:
    """Return what the page shows of a run's trials; None if it has none. `prefix` is that of ids in
    the page. Raises RunError if something can't be drawn."""
    result = facts.trials
    if result is None:
        return None
    good = [trial for trial in result.trials if trial.value is not None]
    shown = good if result.objective else [t for t in result.trials if t.state in ENDED]
    best = [trial for trial in shown if trial.state in ENDED][:MAX_BEST]
    over_time = _over_time(result, facts.started_s, f"{prefix}-objective")
    curves = _curves(result.run, best, f"{prefix}-curves")
    rows = tuple(islice(trial_table.rows(result), MAX_LINES))
    more = len(result.trials) - len(rows)
    drawn = tuple(chart for chart in (over_time, curves) if chart)
    columns, labels = trial_table.columns(result), tuple(map(_label, best))
    return TrialsView(columns, rows, more, labels, parallel(good, result), drawn)


def _label(trial: Trial) -> str:
    return f"trial {trial.number}"


def _over_time(result: TrialsResult, started_s: float, name: str) -> Chart | None:
    """Draw the objective of each trial when it ended, and the best value until then."""
    objective, mode = result.run.inventory.trials.goal
    ended = sorted(
        (trial.at - started_s, trial.value)
        for trial in result.trials
        if trial.at is not None and trial.value is not None and trial.state in ENDED
    )
    if not ended or not math.isfinite(started_s):
        return None
    better = max if mode == "max" else min
    xs, ys, best = [], [], ended[0][1]
    for x, value in ended:
        xs += [x, x]
        ys += [best, better(best, value)]
        best = ys[-1]
    times, values = zip(*ended, strict=True)
    lines = [Line(EACH, times, values, is_dots=True), Line(BEST, xs, ys)]
    panel = TimePanel(f"{objective} when each trial ended", lines, (EACH, BEST), legend=True)
    return charts.draw_panel(panel, of_all([panel]), name)


def _curves(run: Run, best: Sequence[Trial], name: str) -> Chart | None:
    """Draw the objective of the best trials over their steps."""
    objective, _ = run.inventory.trials.goal
    lines = []
    for trial in best:
        points = _points(run, trial.number)
        shown = points[:: math.ceil(len(points) / charts.MAX_POINTS)] if points else []
        steps, values = [float(step) for step, _ in shown], [value for _, value in shown]
        lines += [Line(_label(trial), steps, values)] if shown else []
    if not lines:
        return None
    title = f"{objective} of the best trials"
    panel = Panel(title, "step or epoch", lines)
    svg = plots.to_web_svg(panel, [_label(trial) for trial in best], name)
    return charts.Chart(escape_line(title), svg, f"{title} over steps. {charts.describe(lines)}")


def _points(run: Run, number: int) -> list[tuple[int, float]]:
    """Return the steps and values of the objective, in what was collected of a trial."""
    for folder in ("events", "outputs"):
        base = run.folder / folder / "trials"
        trial, log = str(base / str(number)), str(base / f"{number}.log")
        found = Objective(*run.inventory.trials.goal, trial, log)
        found.read()
        if found.points:
            return found.points
    return []


# Parallel coordinates


def parallel(trials: Sequence[Trial], result: TrialsResult) -> ParallelAxes | None:
    """Lay out an axis for each parameter and one for the objective, the best value at its top, and
    a line for each of these trials, which all have a value and are sorted, the best one first."""
    shown = trials[:MAX_LINES]
    if not shown:
        return None
    objective, mode = result.run.inventory.trials.goal
    values = [f"{trial.value:.6g}" for trial in shown]
    columns = {name: [trial.parameters[name] for trial in shown] for name in shown[0].parameters}
    axes, heights = [], []
    for number, (name, texts) in enumerate([*columns.items(), (objective, values)]):
        places = _places(texts)
        if name == objective and mode == "min":
            places = {text: 1.0 - place for text, place in places.items()}
        at = {text: round(TOP + HEIGHT * (1.0 - place), 1) for text, place in places.items()}
        axes.append(Axis(_short(name), STEP // 2 + STEP * number, _ticks(at)))
        heights.append([at[text] for text in texts])
    lines, ranks = [], iter(range(MAX_BEST))
    for trial, ys in zip(shown, zip(*heights, strict=True), strict=True):
        path = "M" + "L".join(f"{axis.x} {y}" for axis, y in zip(axes, ys, strict=True))
        words = " ".join(f"{name}={value}" for name, value in trial.parameters.items())
        style = next(ranks, None) if trial.state in ENDED else None
        lines.append(TrialPath(path, f"{_label(trial)}: {trial.value:.6g} with {words}", style))
    return ParallelAxes(objective, tuple(axes), tuple(reversed(lines)))


def _places(texts: Sequence[str]) -> dict[str, float]:
    """Return where each different text is on an axis from 0 to 1: numbers by their size, others in
    equal distances."""
    found, numbers = sorted(set(texts)), []
    with suppress(ValueError):
        numbers = [float(text) for text in found]
    if not numbers or not all(map(math.isfinite, numbers)):
        numbers = [float(place) for place in range(len(found))]
    if min(numbers) > 0 and max(numbers) / min(numbers) > LOG_RATIO:
        numbers = [math.log(number) for number in numbers]
    low, span = min(numbers), max(numbers) - min(numbers)
    places = [(number - low) / span if span else 0.5 for number in numbers]
    return dict(zip(found, places, strict=True))


def _ticks(heights: dict[str, float]) -> tuple[tuple[float, str], ...]:
    """Return all values of an axis with their heights, or of many the lowest and the highest."""
    ordered = sorted((height, text) for text, height in heights.items())
    shown = ordered if len(ordered) <= MAX_TICKS else [ordered[0], ordered[-1]]
    return tuple((height, _short(text)) for height, text in shown)


def _short(text: str) -> str:
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"
