"""Say in short how a run was started and how it ended, and which commands do it again. Pure."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tfdeploy.experiments.run_report import redact
from tfdeploy.experiments.scalars import of_same_clock, step_times
from tfdeploy.experiments.training import history, metrics
from tfdeploy.formatting.humanize import escape_line, format_duration, format_job_counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.experiments.run_report.facts import RunFacts
    from tfdeploy.experiments.training.metrics import Reached
    from tfdeploy.run import Run

MAX_METRICS = 4
HOSTS_FILE = "hosts.toml"


def summary(facts: RunFacts) -> tuple[tuple[str, str], ...]:
    """Return the facts in short, as pairs of a name and a value."""
    run = facts.run
    values = (
        ("Words", facts.redact(" ".join(redact.show_words(run.words)))),
        ("Result", facts.result),
        ("Project", run.inventory.project),
        ("Run", run.id),
        ("Name", run.name),
        ("Started", format_time(facts.started_s)),
        ("Duration", format_length(facts.duration_s)),
        ("Tasks", format_job_counts(Counter(p.task.job for p in run.plan.placements))),
        ("Hosts", str(len(run.plan.hosts))),
        ("Restarts", str(sum(restarts_of(facts).values()))),
        *_last_scalars(facts),
        ("Release", run.release),
        *((f"Data {place}", release) for place, release in run.data.items()),
    )
    return tuple((name, value) for name, value in values if value)


def format_time(seconds: float) -> str:
    """Return `2026-11-22 23:57:56 UTC`, or "unknown"."""
    if not math.isfinite(seconds):
        return "unknown"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_length(seconds: float) -> str:
    """Return a duration, or "unknown"."""
    return format_duration(max(seconds, 0.0)) if math.isfinite(seconds) else "unknown"


def restarts_of(facts: RunFacts) -> dict[str, int]:
    """Return the restarts of each task that are known."""
    histories = facts.histories.items()
    return {task: max((c.restarts for c in changes), default=0) for task, changes in histories}


def _last_scalars(facts: RunFacts) -> Iterator[tuple[str, str]]:
    """Yield the last step, the mean speed, and what each metric reached."""
    main = metrics.main_loss(list(facts.scalars))
    steps = step_times(of_same_clock(facts.scalars, main))
    if steps:
        speed = history.steps_per_s(steps, facts.pauses)
        yield "Last step", str(steps[-1].step)
        yield "Steps/s", f"{speed:.3g}" if math.isfinite(speed) else ""
    for metric in metrics.of_run(facts.scalars, facts.log_losses)[:MAX_METRICS]:
        name = escape_line(metric.name)
        yield name[:1].upper() + name[1:], _reached_text(metric.training)
        yield f"Validation {name}", _reached_text(metric.validation)


def _reached_text(reached: Reached | None) -> str:
    """Return `0.25 (best 0.2)`; "" if unknown."""
    if not reached:
        return ""
    best = f" (best {reached.best:.4g})" if reached.best != reached.last else ""
    return f"{reached.last:.4g}{best}"


def same_release(run: Run) -> str:
    """Return the command that starts the run's release with the hosts.toml of today."""
    jobs = [placement.task.job for placement in run.plan.placements]
    counts = f"workers={jobs.count('worker')}"
    if "ps" in jobs:
        counts = f"ps={jobs.count('ps')},{counts}"
    words = ["tfdeploy", "run", *_hosts(run.inventory.file.name)]
    words += ["--release", run.release, "--with", counts]
    words += ["--name", run.name] if run.name else []
    words += ["--", *redact.show_words(run.words)] if run.words else []
    return shlex.join(words)


def recorded_hosts(run: Run) -> str:
    """Return the commands that start the run's release with the hosts.toml of its record, which
    has its words, variables and ports, too."""
    copy = f"hosts.{run.id}.toml"
    name = f" --name {shlex.quote(run.name)}" if run.name else ""
    return (
        f"cp runs/{run.id}/{HOSTS_FILE} {copy}\n"
        f"tfdeploy run --hosts {copy} --release {shlex.quote(run.release)}{name}"
    )


def _hosts(name: str) -> list[str]:
    return [] if name == HOSTS_FILE else ["--hosts", name]
