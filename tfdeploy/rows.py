"""What is told of each task, in rows: of very many tasks, one for all that are alike. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdeploy.agent.records import READY
from tfdeploy.hostnames import FEW, folded
from tfdeploy.words import duration, gpus, is_stalled, or_dash, size, training

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.agent.records import TaskReport
    from tfdeploy.steps.check import Survey
    from tfdeploy.steps.status import TaskStatus

    Row = tuple[str, ...]

COLUMNS = (
    *("TASK", "HOST", "PORT", "GPUS", "PID", "STATE", "SINCE", "RESTARTS", "HEALTH"),
    *("TRAINING", "REASON"),
)
SURVEYED = ("HOSTS", "PYTHON", "TENSORFLOW", "GPUS", "RSYNC", "FREE")
STATE = COLUMNS.index("STATE")
MANY = 60  # so many tasks have a row each
ODD = 20  # and of more than these, so many that are not well in the same way
DIFFERENT = "…"


def rows(tasks: Sequence[TaskStatus]) -> list[Row]:
    """As COLUMNS say. Of more than MANY tasks those that are not well stand first."""
    if len(tasks) <= MANY:
        return [_row(task) for task in tasks]
    kinds: dict[tuple[object, ...], list[Row]] = {}
    for task in sorted(tasks, key=_is_well):
        kinds.setdefault((_is_well(task), *_kind(task)), []).append(_row(task))
    found: list[Row] = []
    for (is_well, *_), alike in kinds.items():
        found += [_together(alike)] if len(alike) > (FEW if is_well else ODD) else alike
    return found


def changes(reports: Sequence[tuple[str, TaskReport]]) -> list[Row]:
    """(state, task, host, pid, reason) of what hosts report at the same time: of each task what it
    came to."""
    kinds: dict[tuple[str, str], list[tuple[str, TaskReport]]] = {}
    for host, report in {report.task: (host, report) for host, report in reports}.values():
        kinds.setdefault((report.state, report.reason), []).append((host, report))
    found: list[Row] = []
    for (state, reason), alike in kinds.items():
        pid = str(alike[0][1].pid or "") if len(alike) == 1 else ""
        tasks, hosts = folded(r.task for _, r in alike), folded(host for host, _ in alike)
        found.append((state, tasks, hosts, pid, reason))
    return found


def ends(states: Mapping[str, str]) -> list[Row]:
    """(state, task) of tasks that have ended."""
    if len(states) <= MANY:
        return [(state, task) for task, state in states.items()]
    kinds: dict[str, list[str]] = {}
    for task, state in states.items():
        kinds.setdefault(state, []).append(task)
    return [(state, folded(tasks)) for state, tasks in kinds.items()]


def surveyed(surveys: Sequence[Survey]) -> list[Row]:
    """As SURVEYED say: hosts that have the same stand together, with the least that is free."""
    kinds: dict[Row, list[Survey]] = {}
    for survey in surveys:
        has = (survey.version, survey.tensorflow or "-", _gpus_of(survey), survey.rsync or "-")
        kinds.setdefault(has, []).append(survey)
    return [
        (folded(s.host for s in alike), *has, size(min(s.free_bytes for s in alike)))
        for has, alike in kinds.items()
    ]


def _gpus_of(survey: Survey) -> str:
    names = Counter(survey.gpus.values())
    listed = ", ".join(f"{count} × {name}" for name, count in names.items())
    return listed or "-"


def _is_well(task: TaskStatus) -> bool:
    report = task.report
    return report is not None and report.state == report.health == READY and not is_stalled(report)


def _kind(task: TaskStatus) -> tuple[object, ...]:
    job, report = task.placement.task.job, task.report
    if report is None:
        return (job,)
    return job, report.state, report.health, is_stalled(report), report.reason


def _row(task: TaskStatus) -> Row:
    placement, report = task.placement, task.report
    fixed = (str(placement.task), placement.host, or_dash(placement.port), gpus(placement))
    if report is None:
        return (*fixed, "-", "UNKNOWN", *"-----")
    told = (or_dash(report.pid), report.state, duration(report.age_s), str(report.restarts))
    return (*fixed, *told, report.health, training(report), report.reason)


def _together(alike: Sequence[Row]) -> Row:
    tasks, hosts, *others = zip(*alike, strict=True)
    same = (column[0] if len({*column}) == 1 else DIFFERENT for column in others)
    return folded(tasks), folded(hosts), *same
