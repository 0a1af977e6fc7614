"""What a report shows of trials: the table, and how the best ones trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from tfdeploy.experiments import plots, scalars, trial_table
from tfdeploy.experiments.plots import COLOURS, Line, Panel
from tfdeploy.experiments.run_report import charts
from tfdeploy.experiments.run_report.over_time import TrainedRun
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.shared.objective import Objective
from tfdeploy.shared.trials import ENDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.commands.trials import Trial
    from tfdeploy.experiments.run_report.charts import Chart
    from tfdeploy.experiments.run_report.facts import RunFacts
    from tfdeploy.run import Run

MAX_BEST = len(COLOURS)  # more lines can't be told apart
MAX_ROWS = 500


@dataclass(frozen=True)
class TrialsView:
    """The trials as the page shows them. `best` are the labels of those that have a colour, `more`
    is the number of trials without a row."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    more: int
    best: tuple[str, ...]
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
    own = [_trained(result.run, trial) for trial in best]
    found, _ = charts.draw(own, f"{prefix}-trial", of="trial")
    curves = _curves(result.run, best, f"{prefix}-curves")
    rows = tuple(islice(trial_table.rows(result), MAX_ROWS))
    more = len(result.trials) - len(rows)
    drawn = (curves, *found) if curves else found
    return TrialsView(trial_table.columns(result), rows, more, tuple(map(_label, best)), drawn)


def _label(trial: Trial) -> str:
    return f"trial {trial.number}"


def _trained(run: Run, trial: Trial) -> TrainedRun:
    """Return what a trial wrote into event files; its time starts with the first point."""
    found = scalars.read_events(run.folder / "events" / "trials" / str(trial.number))
    times = [series[0].time_s for series in found.values()]
    return TrainedRun(_label(trial), min(times, default=math.nan), found)


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
    panel = Panel("", "step or epoch", "", lines)
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
