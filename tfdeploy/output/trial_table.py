"""The table of a run's trials, for a terminal and for the page of a report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import format_count, format_duration
from tfdeploy.output.status_table import STATE_STYLES
from tfdeploy.shared.trials import BAD, FAILED, INTERRUPTED, LOST, RUNNING, SUCCEEDED, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.commands.trials import Trial, TrialsResult
    from tfdeploy.output.console import Console
    from tfdeploy.output.stream import Cell

STATES = {
    SUCCEEDED: "succeeded", BAD: "ended early", FAILED: "failed", RUNNING: "running",
    WAITING: "waiting", LOST: "lost", INTERRUPTED: "interrupted",
}  # fmt: skip


def print_trials(console: Console, result: TrialsResult) -> None:
    """Print a row for each trial, the best one first."""
    console.out.print_table(columns(result), _styled_rows(result))
    console.print_text("", summary(result))


def columns(result: TrialsResult) -> tuple[str, ...]:
    """Return the columns. What matters comes first: a narrow terminal cuts the rest."""
    parameters = result.trials[0].parameters if result.trials else ()
    objective, _ = result.run.inventory.trials.goal
    values = (objective, "AT STEP") if objective else ()
    reason = ("REASON",) if any(map(_reason, result.trials)) else ()
    return ("TRIAL", *values, "TIME", "STATE", *parameters, "HOST", *reason)


def rows(result: TrialsResult) -> Iterator[dict[str, str]]:
    """Yield the cells of each trial, by column."""
    objective, _ = result.run.inventory.trials.goal
    for trial in result.trials:
        yield {
            **trial.parameters,
            "TRIAL": str(trial.number),
            objective: "-" if trial.value is None else f"{trial.value:.6g}",
            "AT STEP": "-" if trial.step is None else str(trial.step),
            "TIME": "-" if trial.seconds is None else format_duration(trial.seconds),
            "STATE": trial.state,
            "HOST": f"{trial.host} {trial.task}" if trial.host else trial.task or "-",
            "REASON": _reason(trial),
        }


def summary(result: TrialsResult) -> str:
    """Return how many trials are in which state, and which one is best."""
    counts = Counter(trial.state for trial in result.trials)
    states = ", ".join(f"{counts[state]} {name}" for state, name in STATES.items() if counts[state])
    trials = f"{format_count(len(result.trials), 'trial')}: {states}"
    best = next((trial for trial in result.trials if trial.number == result.best), None)
    if best is None or best.value is None:
        return trials
    words = " ".join(f"{name}={value}" for name, value in best.parameters.items())
    return f"{trials}; best: trial {best.number} with {best.value:.6g} ({words})"


def _reason(trial: Trial) -> str:
    attempt = f"attempt {trial.attempts}" if trial.attempts > 1 else ""
    return ": ".join(filter(None, (attempt, trial.reason)))


def _styled_rows(result: TrialsResult) -> Iterator[dict[str, Cell]]:
    for row in rows(result):
        yield {**row, "STATE": (row["STATE"], STATE_STYLES.get(row["STATE"], ""))}
