"""How things are said to people: sizes, durations, counts, how training goes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.agent.records import READY, RUNNING
from tfdeploy.hostnames import folded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.agent.records import TaskReport
    from tfdeploy.plan import Placement

KILO = 1000
ROOM = 40  # for names beside other things in one line
# A step that is older is called stalled where it is shown; scripts write events far more often.
STALLED_S = 120.0


def printable(text: str) -> str:
    """Control characters (terminal escapes among them) made visible; newlines and tabs kept."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text
    )


def size(count: int) -> str:
    """Bytes for people: 15.2 MB."""
    if count < KILO:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):  # noqa: B007
        value /= KILO
        if round(value, 1) < KILO:
            break
    return f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """`42s`, `3m 05s`, `2h 10m`, `4d 3h`."""
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {whole % 60:02}s" if minutes else f"{whole}s"


def gpus(placement: Placement) -> str:
    return ",".join(str(gpu) for gpu in placement.gpus) or "-"


def training(report: TaskReport) -> str:
    """Whether training moves, as far as the script tells: by event files, else by its log."""
    if report.state not in (READY, RUNNING):
        return "-"
    if report.step is not None and report.step_age_s is not None:
        stalled = "stalled at " if is_stalled(report) else ""
        return f"{stalled}step {report.step}, {duration(report.step_age_s)} ago"
    if report.quiet_s is None:
        return "unknown"
    return f"unknown, log {duration(report.quiet_s)} ago"


def is_stalled(report: TaskReport) -> bool:
    """Whether it trains, and has told of no step for long."""
    trains = report.state in (READY, RUNNING) and report.step is not None
    return trains and report.step_age_s is not None and report.step_age_s > STALLED_S


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def crew(jobs: Mapping[str, int]) -> str:
    """How many tasks of each job: `1 ps, 2 workers`."""
    return ", ".join(f"{n} ps" if job == "ps" else counted(n, job) for job, n in jobs.items())


def few(names: Sequence[str]) -> str:
    """All names, where there is room for them; else the first and how many more."""
    text = folded(names)
    return text if len(text) <= ROOM else f"{names[0]} and {len(names) - 1} more"


def standing(where: Mapping[str, Sequence[str]]) -> str:
    """Where many stand: `gpu[001-950] done · 37 to go`. The first are named, if there is room."""
    first = next(iter(where), "")
    named = folded(where.get(first, ()))
    counts = {word: str(len(names)) for word, names in where.items() if names}
    if first in counts and len(named) <= ROOM:
        counts[first] = named
    return " · ".join(f"{count} {word}" for word, count in counts.items())


def or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
