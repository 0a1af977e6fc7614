"""Rows of the tables about tasks and hosts: many that are alike share one row. Pure."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.commands.watching.history import is_healthy, is_stalled
from tfdeploy.formatting.hostlist import MAX_LISTED, fold_names
from tfdeploy.formatting.humanize import (
    escape_line,
    format_bit_rate,
    format_duration,
    format_numbers,
    format_size,
    or_dash,
)
from tfdeploy.shared.records import (
    BACKOFF,
    FAILED,
    LOST,
    READY,
    RUNNING,
    STOPPED,
    SUCCEEDED,
    LogProgress,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.commands.preflight.host_facts import HostFacts
    from tfdeploy.commands.status import TaskStatus
    from tfdeploy.init.machine import Machine
    from tfdeploy.planning.links import Link
    from tfdeploy.planning.plan import Placement
    from tfdeploy.shared.records import TaskReport

    Row = dict[str, str]  # cells by column

COLUMNS = (
    *("TASK", "HOST", "PORT", "GPUS", "PID", "STATE", "SINCE", "RESTARTS", "HEALTH"),
    *("TRAINING", "REASON"),
)
MACHINE_COLUMNS = ("HOSTS", "GPUS", "CPUS", "MEMORY", "FREE", "PYTHON")
LINK_COLUMNS = ("FROM", "TO", "SPEED", "ROUND TRIP", "INTERFACES")
MAX_LOSS_CHARS = 12
MAX_TASKS = 60  # tables of more tasks are grouped
MAX_UNHEALTHY = 20  # then unhealthy tasks that are alike have a row each up to this number
DIFFERENT = "…"
GAP = 2  # spaces between columns
STATE_STYLES = {
    READY: "green", SUCCEEDED: "green", FAILED: "bold red", LOST: "bold red", STOPPED: "dim",
    BACKOFF: "yellow",
}  # fmt: skip
NO_VALUE = {"", "-", "0"}


def rows(tasks: Sequence[TaskStatus]) -> list[Row]:
    """Return a row for each task, with cells of COLUMNS. Of more than MAX_TASKS tasks, those that
    are alike share a row, and unhealthy ones come first."""
    if len(tasks) <= MAX_TASKS:
        return [_row(task) for task in tasks]
    groups: dict[tuple[object, ...], list[Row]] = {}
    for task in sorted(tasks, key=_is_healthy):
        groups.setdefault((_is_healthy(task), *_kind(task)), []).append(_row(task))
    grouped: list[Row] = []
    for (healthy, *_), group in groups.items():
        grouped += (
            [_merge(group)] if len(group) > (MAX_LISTED if healthy else MAX_UNHEALTHY) else group
        )
    return grouped


def fitting_columns(
    columns: Sequence[str], optional: Sequence[str], rows: Sequence[Row], width: int | None
) -> list[str]:
    """Return those of the columns that fit `width` characters (None: all of them), in their order.
    The `optional` ones are left out in theirs, first those that have no value in any row."""
    fitting = list(columns)
    for column in sorted(optional, key=lambda name: not is_empty(rows, name)):
        if width is None or _table_width(rows, fitting) <= width:
            break
        if column in fitting:
            fitting.remove(column)
    return fitting


def is_empty(rows: Sequence[Row], column: str) -> bool:
    return {row[column] for row in rows} <= NO_VALUE


def _table_width(rows: Sequence[Row], columns: Sequence[str]) -> int:
    widths = [max([len(name), *(len(row[name]) for row in rows)]) for name in columns]
    return sum(widths) + GAP * (len(columns) - 1)


def change_rows(reports: Sequence[tuple[str, TaskReport]]) -> list[tuple[str, ...]]:
    """Return (state, tasks, hosts, pid, reason) rows for reports that came at the same time. Only
    the last report of each task counts; each report comes with its host."""
    groups: dict[tuple[str, str], list[tuple[str, TaskReport]]] = {}
    for host, report in {report.task: (host, report) for host, report in reports}.values():
        groups.setdefault((report.state, report.reason), []).append((host, report))
    grouped: list[tuple[str, ...]] = []
    for (state, reason), group in groups.items():
        pid = str(group[0][1].pid or "") if len(group) == 1 else ""
        tasks = fold_names(report.task for _, report in group)
        hosts = fold_names(host for host, _ in group)
        grouped.append((state, tasks, hosts, pid, reason))
    return grouped


def end_rows(states: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return (state, tasks) rows of tasks that have ended, from their states by task."""
    if len(states) <= MAX_TASKS:
        return [(state, task) for task, state in states.items()]
    groups: dict[str, list[str]] = {}
    for task, state in states.items():
        groups.setdefault(state, []).append(task)
    return [(state, fold_names(tasks)) for state, tasks in groups.items()]


def host_columns(imports: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of `host_rows`, if the hosts have imported these modules."""
    return ("HOSTS", "PYTHON", *(module.upper() for module in imports), "GPUS", "RSYNC", "FREE")


def host_rows(hosts: Sequence[HostFacts]) -> list[Row]:
    """Return rows with cells of `host_columns`: hosts that are alike share a row, with the
    smallest free space among them. A host whose environment is not built has imported nothing."""
    return _alike([(each.host, each.free_bytes, _host_cells(each)) for each in hosts])


def link_rows(links: Sequence[Link]) -> list[Row]:
    """Return rows with cells of LINK_COLUMNS, the slowest link first. Of more than MAX_TASKS links
    only the slowest are shown."""
    by_speed = sorted(links, key=lambda each: each.bits_s or 0.0)
    return [
        {
            **{"FROM": link.source.host, "TO": link.target.host},
            "SPEED": format_bit_rate(link.bits_s) if link.bits_s else "-",
            "ROUND TRIP": f"{link.round_trip_s * 1e3:.2f} ms" if link.round_trip_s else "-",
            "INTERFACES": f"{link.source.words} → {link.target.words}",
        }
        for link in by_speed[:MAX_TASKS]
    ]


def _host_cells(facts: HostFacts) -> Row:
    return {
        "PYTHON": facts.python_version,
        **{module.upper(): found.version or "-" for module, found in facts.imports.items()},
        "GPUS": _gpus_by_name(facts),
        "RSYNC": facts.rsync or "-",
    }


def machine_rows(machines: Sequence[Machine], framework: str) -> list[Row]:
    """Return rows with cells of MACHINE_COLUMNS and of the framework: machines that are alike share
    a row, with the smallest free space among them."""
    cells = [(each, {framework: each.framework or "missing"}) for each in machines]
    return _alike([(m.name, m.free_bytes, {**_machine_cells(m), **own}) for m, own in cells])


def _alike(hosts: Sequence[tuple[str, int, Row]]) -> list[Row]:
    """Return one row for the hosts with equal cells; each comes with its name and free bytes."""
    groups: dict[tuple[tuple[str, str], ...], list[tuple[str, int]]] = {}
    for name, free_bytes, cells in hosts:
        groups.setdefault(tuple(cells.items()), []).append((name, free_bytes))
    return [
        {
            **dict(cells),
            "HOSTS": fold_names(name for name, _ in group),
            "FREE": format_size(min(free_bytes for _, free_bytes in group)),
        }
        for cells, group in groups.items()
    ]


def _gpus_by_name(facts: HostFacts) -> str:
    indices: dict[str, list[int]] = {}
    for index, name in facts.gpus.items():
        indices.setdefault(name, []).append(index)
    return ", ".join(f"{format_numbers(group)} {name}" for name, group in indices.items()) or "-"


def _is_healthy(task: TaskStatus) -> bool:
    return task.report is not None and is_healthy(task.report)


def _kind(task: TaskStatus) -> tuple[object, ...]:
    job, report = task.placement.task.job, task.report
    if report is None:
        return (job,)
    return job, report.state, report.health, is_stalled(report), report.reason


def _row(task: TaskStatus) -> Row:
    placement, report = task.placement, task.report
    place = {
        "TASK": str(placement.task),
        "HOST": placement.host,
        "PORT": or_dash(placement.port),
        "GPUS": gpu_indices(placement),
    }
    if report is None:
        return {**dict.fromkeys(COLUMNS, "-"), **place, "STATE": "UNKNOWN"}
    return {
        **place,
        "PID": or_dash(report.pid),
        "STATE": report.state,
        "SINCE": format_duration(report.age_s),
        "RESTARTS": str(report.restarts),
        "HEALTH": report.health,
        "TRAINING": training_text(report),
        "REASON": report.reason,
    }


def _merge(group: Sequence[Row]) -> Row:
    same = {
        name: text if all(row[name] == text for row in group) else DIFFERENT
        for name, text in group[0].items()
    }
    names = {name: fold_names(row[name] for row in group) for name in ("TASK", "HOST")}
    return {**same, **names}


def gpu_indices(placement: Placement) -> str:
    """Return the GPUs' indices, as hosts.toml gives them."""
    return placement.gpu_names or "-"


def training_text(report: TaskReport) -> str:
    """Return whether training makes progress: from the script's event files, else from its log."""
    if report.state not in (READY, RUNNING):
        return "-"
    said = report.log_progress or LogProgress()
    loss = f", loss {loss_text(said)}" if said.loss else ""
    if report.step is not None and report.step_age_s is not None:
        stalled = "stalled at " if is_stalled(report) else ""
        return f"{stalled}step {report.step}, {format_duration(report.step_age_s)} ago{loss}"
    if report.quiet_s is None:
        return "unknown"
    reached = f"{_reached(said) or 'unknown'}, log {format_duration(report.quiet_s)} ago"
    return f"{reached}{loss}"


def _reached(said: LogProgress) -> str:
    step = f"step {said.step}" if said.step is not None else ""
    return epoch_text(said) or step


def loss_text(said: LogProgress) -> str:
    """Return the loss as it was printed, or with 6 digits if that is too long."""
    if len(said.loss) > MAX_LOSS_CHARS:
        with suppress(ValueError):
            return f"{float(said.loss):.6g}"
    return escape_line(said.loss)[:MAX_LOSS_CHARS]


def epoch_text(said: LogProgress) -> str:
    """Return how far the log says that training is, such as "epoch 3/10, batch 20/157"; "" if it
    names no epoch and no batch."""
    total = f"/{said.epochs}" if said.epochs is not None else ""
    epoch = [f"epoch {said.epoch}{total}"] if said.epoch is not None else []
    batch = [f"batch {said.batch}/{said.batches or '?'}"] if said.batch is not None else []
    return ", ".join([*epoch, *batch])


def _machine_cells(machine: Machine) -> Row:
    gpus = ", ".join(f"{machine.gpus.count(name)} {name}" for name in dict.fromkeys(machine.gpus))
    return {
        "GPUS": gpus or "-",
        "CPUS": str(machine.cpus),
        "MEMORY": format_size(machine.memory_bytes),
        "PYTHON": f"{machine.python} ({machine.python_version})",
    }
