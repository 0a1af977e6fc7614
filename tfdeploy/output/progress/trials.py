"""The table of trials: the best one first, and on a terminal how they go on."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import escape_line, format_duration
from tfdeploy.output.terminal import STATE_STYLES
from tfdeploy.shared.trials import BAD, FAILED, INTERRUPTED, LOST, RUNNING, SUCCEEDED, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from tfdeploy.commands.trials import Trial, TrialsResult
    from tfdeploy.output.stream import Cell

NAMES = {
    SUCCEEDED: "succeeded", BAD: "ended early", FAILED: "failed", RUNNING: "running",
    WAITING: "waiting", LOST: "lost", INTERRUPTED: "interrupted",
}  # fmt: skip
MAX_LIVE_ROWS = 20


def columns(result: TrialsResult) -> tuple[str, ...]:
    parameters = result.trials[0].parameters if result.trials else ()
    objective = result.objective.rpartition(":")[0] if result.objective else ""
    values = (objective, "AT STEP") if objective else ()
    return ("TRIAL", *parameters, *values, "TIME", "STATE", "HOST", "REASON")


def rows(result: TrialsResult) -> Iterator[dict[str, Cell]]:
    """Yield the cells of each trial, by column."""
    objective = result.objective.rpartition(":")[0] if result.objective else ""
    for trial in result.trials:
        yield {
            **trial.parameters,
            "TRIAL": str(trial.number),
            objective: "-" if trial.value is None else f"{trial.value:.6g}",
            "AT STEP": "-" if trial.step is None else str(trial.step),
            "TIME": "-" if trial.seconds is None else format_duration(trial.seconds),
            "STATE": (trial.state, STATE_STYLES.get(trial.state, "")),
            "HOST": f"{trial.host} {trial.task}" if trial.host else trial.task or "-",
            "REASON": _reason(trial),
        }


def _reason(trial: Trial) -> str:
    return f"attempt {trial.attempts}: {trial.reason}" if trial.attempts > 1 else trial.reason


def summary(result: TrialsResult) -> str:
    """Return how many trials are in which state, and which one is best."""
    counts = Counter(trial.state for trial in result.trials)
    states = ", ".join(f"{counts[state]} {name}" for state, name in NAMES.items() if counts[state])
    trials = f"{len(result.trials):,} trial{'' if len(result.trials) == 1 else 's'}: {states}"
    best = next((trial for trial in result.trials if trial.number == result.best), None)
    if best is None or best.value is None:
        return trials
    words = " ".join(f"{name}={value}" for name, value in best.parameters.items())
    return f"{trials}; best: trial {best.number} with {best.value:.6g} ({words})"


@contextmanager
def live(console: Console) -> Iterator[Callable[[TrialsResult], None]]:
    """Yield a function that replaces what is shown: the best trials, and how many there are."""
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def draw(result: TrialsResult) -> None:
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        names = columns(result)
        for column in names:
            drawn.add_column(Text(column), no_wrap=True)
        for row in list(rows(result))[:MAX_LIVE_ROWS]:
            drawn.add_row(*(_text(row.get(name, "")) for name in names))
        drawn.caption, drawn.caption_justify = Text(escape_line(summary(result))), "left"
        view.update(drawn, refresh=True)

    def _text(cell: Cell) -> Text:
        text, style = (cell, "") if isinstance(cell, str) else cell
        return Text(escape_line(text), style)

    with Live(console=console, transient=True, auto_refresh=False) as view:
        yield draw
