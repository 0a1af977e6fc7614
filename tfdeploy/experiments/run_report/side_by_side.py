"""Put several runs side by side: a table in which differences are marked, and shared charts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdeploy.experiments.run_report import differences
from tfdeploy.experiments.run_report.differences import DifferenceRow
from tfdeploy.experiments.run_report.summary import summary
from tfdeploy.experiments.run_report.training import charts
from tfdeploy.experiments.run_report.training.charts import TrainedRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.experiments.run_report.facts import RunFacts

UNMARKED = ("Run", "Name", "Started")  # they always differ
IN_OTHER_ROWS = ("Release", "Project")


def compare(all_facts: Sequence[RunFacts]) -> dict[str, Any]:
    """Return what a page about several runs has besides: a table, charts with a line for each run,
    and their legend."""
    if len(all_facts) == 1:
        return {"comparison": (), "shared_charts": (), "labels": ()}
    labels = _distinct(all_facts)
    runs = [replace(trained(f), label=label) for f, label in zip(all_facts, labels, strict=True)]
    drawn, _ = charts.draw(runs, "all")
    return {"comparison": _comparison_rows(all_facts), "shared_charts": drawn, "labels": labels}


def trained(facts: RunFacts) -> TrainedRun:
    """Return the scalars and the use of GPUs of a run with the start of their time axis."""
    start = _scalars_start(facts)
    return TrainedRun(facts.label, start, facts.scalars, facts.log_losses, facts.gpus, facts.pauses)


def _scalars_start(facts: RunFacts) -> float:
    """Return the run's start, or that of its first scalar if the clocks of the hosts differ."""
    times = [facts.started_s, *(series[0].time_s for series in facts.scalars.values())]
    return min((time for time in times if math.isfinite(time)), default=math.nan)


def _distinct(all_facts: Sequence[RunFacts]) -> list[str]:
    """Return the label of each run, or the id if runs share a name."""
    labels = [facts.label for facts in all_facts]
    return [f.label if labels.count(f.label) == 1 else f.run.id for f in all_facts]


def _comparison_rows(all_facts: Sequence[RunFacts]) -> tuple[DifferenceRow, ...]:
    def redact(text: str) -> str:
        for facts in all_facts:
            text = facts.redact(text)
        return text

    summaries = [dict(summary(facts)) for facts in all_facts]
    keys = dict.fromkeys(key for each in summaries for key in each)
    shown = [key for key in keys if key not in IN_OTHER_ROWS]
    rows = []
    for key in shown:
        values = tuple(each.get(key, differences.ABSENT) for each in summaries)
        rows.append(DifferenceRow(key, values, len(set(values)) > 1 and key not in UNMARKED))
    return (*rows, *differences.rows([facts.run for facts in all_facts], redact))
