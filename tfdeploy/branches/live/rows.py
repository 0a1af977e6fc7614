"""The table of the live view: hosts with their tasks, or, if these do not fit, tasks that are alike
in one row; and the columns that fit. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy.branches.live.watched_run import WatchedHost
from tfdeploy.commands.watching.history import is_healthy, is_stalled
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line, format_count, format_duration, format_size
from tfdeploy.output.status_table import GAP, fitting_columns, is_empty
from tfdeploy.shared.records import BACKOFF, FAILED, LOST, READY, RUNNING, SUCCEEDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.branches.live.watched_run import WatchedRun, WatchedTask
    from tfdeploy.shared.protocol.reports import GpuUse
    from tfdeploy.shared.records import TaskReport

COLUMNS = ("HOST", "TASK", "STATE", "SINCE", "RESTARTS", "CPU", "MEMORY", "GPU", "GPU MEMORY",
           "NETWORK")  # fmt: skip
# Columns are left out in this order if they do not fit; first those that are empty.
OPTIONAL = ("NETWORK", "GPU MEMORY", "SINCE", "RESTARTS", "MEMORY", "CPU", "GPU")
STATE = COLUMNS.index("STATE")
AWAY = "AWAY"
WAITING = "…"
GIBIBYTE = 1 << 30
MAX_NAMES = 24  # characters of the names in a row of many tasks


@dataclass(frozen=True)
class Row:
    """Cells by COLUMNS. `tasks` are those that share the row; () for a host. `note` is
    the line below it, `is_bad` whether it needs a look. A row `is_old` if its host is away: it
    shows the last report."""

    cells: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    note: str = ""
    is_bad: bool = False
    is_old: bool = False


def rows(watched: WatchedRun, now: float, limit: int) -> list[Row]:
    """Return the rows of a run that fit `limit` lines: if not all do, bad ones come first, and the
    last row says how many more there are."""
    hosts = watched.hosts.values()
    if len(watched.tasks) <= limit:
        full = _once([row for host in hosts for row in _host_rows(watched, host, now)])
        if _height(full) <= limit:
            return full
    folded = _folded_rows(watched, now)
    shown = list(folded)
    while len(shown) > 1 and _height(shown) + (len(shown) < len(folded)) > limit:
        shown.pop()
    hidden = len(folded) - len(shown)
    more = [Row((f"+ {format_count(hidden, 'row')}", *[""] * (len(COLUMNS) - 1)))] if hidden else []
    return [*shown, *more]


def layout(rows: Sequence[Row], width: int) -> list[list[str]]:
    """Return the header's cells and each row's, padded, of the columns that fit `width` characters.
    Columns that have no value are left out; HOST, TASK and STATE stay."""
    cells = [dict(zip(COLUMNS, row.cells, strict=True)) for row in rows]
    filled = [name for name in COLUMNS if name not in OPTIONAL or not is_empty(cells, name)]
    columns = fitting_columns(filled, OPTIONAL, cells, width - GAP)
    lines = [dict(zip(COLUMNS, COLUMNS, strict=True)), *cells]
    widths = {name: max(len(line[name]) for line in lines) for name in columns}
    return [[line[name].ljust(widths[name]) for name in columns] for line in lines]


def _once(rows: list[Row]) -> list[Row]:
    """Leave a note out if the next row has the same."""
    following = [*(row.note for row in rows[1:]), ""]
    return [
        replace(row, note="" if row.note == note else row.note)
        for row, note in zip(rows, following, strict=True)
    ]


def _height(rows: Sequence[Row]) -> int:
    """Return the lines of rows: a note has a line of its own."""
    return sum(2 if row.note else 1 for row in rows)


def _host_rows(watched: WatchedRun, host: WatchedHost, now: float) -> list[Row]:
    tasks = [task for task in watched.tasks.values() if task.placement.host == host.name]
    if len(tasks) == 1 and not host.error:
        return [_only_task_row(host, tasks[0], now)]
    if all(task.has_ended for task in tasks):
        host = WatchedHost(host.name, error=host.error, away_since=host.away_since)
    return [_host_row(host, now), *(_task_row(host, task, now) for task in tasks)]


def _host_row(host: WatchedHost, now: float) -> Row:
    name = host.name
    if host.error:
        since = format_duration(now - host.away_since)
        cells = (name, "", AWAY, since, *[""] * (len(COLUMNS) - 4))
        return Row(cells, note=_first_line(host.error.message), is_bad=True)
    return Row((name, "", "", "", "", *_host_cells(host)))


def _host_cells(host: WatchedHost) -> tuple[str, ...]:
    """Return CPU, MEMORY, GPU, GPU MEMORY and NETWORK of a whole host."""
    use = host.use
    if use is None:
        return ("", "", "", "", "")
    cpu = "" if host.cpu is None else f"{host.cpu:.0%} of {use.cpus}"
    memory = _part(use.used_bytes, use.total_bytes)
    return (cpu, memory, *_gpu_cells(use.gpus), _network(host))


def _only_task_row(host: WatchedHost, task: WatchedTask, now: float) -> Row:
    """Return one row for a host with one task: the task's CPU and memory, the host's network."""
    row = _task_row(host, task, now)
    cells = (host.name, *row.cells[1:-1], "" if task.has_ended else _network(host))
    return Row(cells, row.tasks, row.note, row.is_bad)


def _task_row(host: WatchedHost, task: WatchedTask, now: float) -> Row:
    report, name = task.report, str(task.placement.task)
    now = host.away_since if host.error else now
    if report is None:
        return Row(("", name, WAITING, *[""] * (len(COLUMNS) - 3)), (name,))
    cells = (
        *("", name, state_text(report), format_duration(task.age_s(now)), str(report.restarts)),
        *_task_cells(task),
        *_gpu_cells(host.gpus(task.placement.gpus)),
        "",
    )
    return Row(cells, (name,), note_of(report), _is_bad(report), bool(host.error))


def _task_cells(task: WatchedTask) -> tuple[str, str]:
    if task.has_ended:
        return "", ""
    cpu = "" if task.cpu is None else f"{task.cpu:.0%}"
    return cpu, format_size(task.used_bytes) if task.used_bytes else ""


def _folded_rows(watched: WatchedRun, now: float) -> list[Row]:
    groups: dict[tuple[object, ...], list[WatchedTask]] = {}
    for task in watched.tasks.values():
        host = watched.hosts[task.placement.host]
        kind = (AWAY, host.error.message) if host.error else _kind(task)
        groups.setdefault((task.placement.task.job, *kind), []).append(task)
    merged = [_merge(watched, group, now) for group in groups.values()]
    return sorted(merged, key=lambda row: not row.is_bad)


def _kind(task: WatchedTask) -> tuple[object, ...]:
    report = task.report
    return (state_text(report), note_of(report), report.restarts > 0) if report else (WAITING,)


def _merge(watched: WatchedRun, group: Sequence[WatchedTask], now: float) -> Row:
    """Return one row for tasks that are alike: the longest time, the most restarts, the averages
    of CPU and GPU, and the sums of memory."""
    hosts = [watched.hosts[name] for name in dict.fromkeys(t.placement.host for t in group)]
    tasks = tuple(str(task.placement.task) for task in group)
    names = _names([host.name for host in hosts]), _names(tasks)
    if hosts[0].error:
        away = _host_row(min(hosts, key=lambda host: host.away_since), now)
        return replace(away, cells=(*names, *away.cells[2:]), tasks=tasks)
    first = _task_row(hosts[0], group[0], now)
    reports = [task.report for task in group if task.report]
    cpus = [task.cpu for task in group if task.cpu is not None]
    gpus = [g for t in group for g in watched.hosts[t.placement.host].gpus(t.placement.gpus)]
    used = sum(task.used_bytes for task in group)
    cells = (
        *(*names, first.cells[STATE]),
        format_duration(max(task.age_s(now) for task in group)) if reports else "",
        str(max((r.restarts for r in reports), default=0)) if reports else "",
        f"{sum(cpus) / len(cpus):.0%}" if cpus else "",
        format_size(used) if used else "",
        *_gpu_cells(gpus),
        "",
    )
    return Row(cells, tasks, first.note, first.is_bad)


def _names(names: Sequence[str]) -> str:
    text = fold_names(names)
    return text if len(text) <= MAX_NAMES else f"{names[0]} + {len(names) - 1}"


def _gpu_cells(gpus: Sequence[GpuUse]) -> tuple[str, str]:
    busy = [gpu.busy_percent for gpu in gpus if gpu.busy_percent is not None]
    if not gpus:
        return "", ""
    used, total = (sum(getattr(g, name) for g in gpus) for name in ("used_bytes", "total_bytes"))
    text = f"{sum(busy) / len(busy):.0f}%" if busy else "-"
    return text, f"{used / GIBIBYTE:.1f}/{total / GIBIBYTE:.1f} GiB"  # as nvidia-smi counts it


def _network(host: WatchedHost) -> str:
    if host.received is None or host.sent is None:
        return ""
    return f"↓{format_size(int(host.received))}/s ↑{format_size(int(host.sent))}/s"


def _part(used: int, total: int) -> str:
    """Return `3.0/16.0 GB`; both units if they differ."""
    number, unit = format_size(used).split()
    whole = format_size(total)
    return f"{number}/{whole}" if whole.endswith(f" {unit}") else f"{number} {unit}/{whole}"


def state_text(report: TaskReport) -> str:
    """Return the state, or what contradicts it: the port's answer, or that training stalls."""
    if report.state in (READY, RUNNING) and report.health not in (READY, "-", report.state):
        return escape_line(report.health)
    return "STALLED" if is_stalled(report) else escape_line(report.state)


def note_of(report: TaskReport) -> str:
    """Return why the task is as it is, or which tasks TensorFlow waits for."""
    if report.reason and report.state != SUCCEEDED:
        return _first_line(report.reason)
    waits_for = report.log_progress.waits_for if report.log_progress else []
    return f"TensorFlow waits for {escape_line(fold_names(waits_for))}" if waits_for else ""


def _is_bad(report: TaskReport) -> bool:
    return report.state in (BACKOFF, FAILED, LOST) or (
        report.state == READY and not is_healthy(report)
    )


def _first_line(text: str) -> str:
    return escape_line(text.split("\n", 1)[0])
