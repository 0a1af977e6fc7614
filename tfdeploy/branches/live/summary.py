"""What the live view says about a run as a whole: its training, its end and what to type.

Pure, except for `end_line`, which looks at what was collected.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from tfdeploy.branches.live.rows import AWAY, WAITING, state_text
from tfdeploy.formatting.humanize import ends_text, escape_line, format_count, format_duration
from tfdeploy.output.status_table import epoch_text, loss_text
from tfdeploy.shared.outcome import why_stopped
from tfdeploy.shared.records import LogProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.branches.live.watched_run import WatchedRun

SPARKLINE_WIDTH = 24
BLOCKS = "▁▂▃▄▅▆▇█"


def run_line(watched: WatchedRun) -> str:
    """Return the run's names, and how many of its tasks are in which state."""
    run = watched.run
    name = f"  {run.name}" if run.name else ""
    counts = Counter(
        AWAY if watched.hosts[t.placement.host].error
        else state_text(t.report) if t.report else WAITING
        for t in watched.tasks.values()
    )  # fmt: skip
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    hosts = format_count(len(watched.hosts), "host")
    ends_s = watched.chief.report.ends_s if watched.chief.report else None
    ends = "" if ends_s is None or watched.has_ended else f"; {ends_text(ends_s)}"
    tasks = format_count(len(watched.tasks), "task")
    return f"run {run.id}{name}  {tasks} on {hosts}: {states}{ends}"


def training_parts(watched: WatchedRun, now: float) -> list[str]:
    """Return what is known of the training, most important first."""
    report = watched.training
    if report is None:
        if watched.chief.report is None:
            return ["waiting for the first report"]
        return [] if watched.has_ended else ["no step, epoch or loss is known yet"]
    said = report.log_progress or LogProgress()
    history = watched.history
    rate, left_s, position = history.rate(now), history.left_s(now), history.position
    trial = escape_line(report.reason) if watched.run.inventory.trials.points else ""
    step = report.step if report.step is not None else said.step
    parts = [trial, epoch_text(said), "" if step is None else f"step {step}"]
    if rate is not None and position and position.unit == "step" and not watched.has_ended:
        parts.append(f"{rate:.3g} steps/s")
    late_s = history.late_s(now)
    if late_s is not None and position and not watched.has_ended:
        parts.append(f"no new {position.unit} for {format_duration(late_s)}")
    if said.loss:
        losses = list(history.losses)
        line = sparkline(losses, SPARKLINE_WIDTH) if len(losses) > 1 else ""
        parts.append(f"loss {loss_text(said)} {line}".rstrip())
    if left_s is not None and not watched.has_ended:
        parts.append(f"{format_duration(left_s)} left")
    parts.append(_checkpoint(watched, now))
    return [part for part in parts if part]


def fit(parts: Sequence[str], width: int) -> str:
    """Return the first part, and those of the others that fit the line with it."""
    line = "".join(parts[:1])
    for part in parts[1:]:
        if len(line) + len(part) + 2 <= width:
            line += f"  {part}"
    return line


def _checkpoint(watched: WatchedRun, now: float) -> str:
    if not watched.checkpoint:
        return ""
    age = format_duration(watched.checkpoint_age_s(now))
    return f"{escape_line(watched.checkpoint)} {age} ago"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return finite values as at most `width` blocks, from the lowest to the highest of them. Of
    more values, neighbours are averaged."""
    points = _averages(values, width)
    if not points:
        return ""
    lowest = min(points)
    span = max(points) / 2 - lowest / 2  # halved, because the difference may be no finite number
    last = len(BLOCKS) - 1
    heights = [(point / 2 - lowest / 2) / span * last if span else 0 for point in points]
    return "".join(BLOCKS[round(height)] for height in heights)


def _averages(values: Sequence[float], width: int) -> list[float]:
    count = min(len(values), width)
    bounds = [round(index * len(values) / count) for index in range(count + 1)] if count else []
    groups = [values[start:end] for start, end in pairwise(bounds)]
    return [sum(value / len(group) for value in group) for group in groups]


def end_line(watched: WatchedRun) -> str:
    """Return how the run ended and what to type next; "" while it continues."""
    end, commands = _end(watched)
    if "collect" in commands and watched.is_collected:
        end = f"{end}; collected into {watched.run.folder}"
        commands = tuple(command for command in commands if command != "collect")
    typed = ", or ".join(f"tfdeploy {command} {watched.run.flags}" for command in commands)
    return f"{end}. Next: {typed}" if typed else end


def _end(watched: WatchedRun) -> tuple[str, tuple[str, ...]]:
    """Return how the run ended, and the commands to type next."""
    report = watched.chief.report
    if not watched.has_ended:
        return "", ()
    outcome = watched.outcome
    if outcome.result == "unknown" or report is None:
        return "ended; its chief's host does not report", ("status",)
    if outcome.result == "succeeded":
        return "succeeded", ("collect",)
    if outcome.result == "ended":
        return "ended after max_duration_s", ("collect",)
    if outcome.result == "stopped":
        why = escape_line(why_stopped(report.reason))
        return f"stopped: {why}" if why else "stopped", ("collect", "resume")
    first = watched.tasks[outcome.task].report or report
    reason = escape_line(first.reason.split("\n", 1)[0]) or f"exit {first.exit}"
    return f"{outcome.result}: {first.task} {reason}", ("logs",)
