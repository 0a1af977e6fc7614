"""What hosts have free, what they store, and who waits for them: the tables of `hosts`, `runs`,
`queue` and `prune`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import (
    ends_text,
    escape_line,
    format_count,
    format_duration,
    format_numbers,
    format_size,
    quote_word,
    shorten_names,
)
from tfdeploy.output.results_output import how_to_fetch
from tfdeploy.output.status_table import STATE_STYLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.commands.hosts import SeenHost, SeenHosts
    from tfdeploy.commands.prune import PruneResult, Removal
    from tfdeploy.commands.queue import QueueResult
    from tfdeploy.commands.runs import ProjectRuns, RunSummary
    from tfdeploy.errors import TfdeployError
    from tfdeploy.output.console import Console
    from tfdeploy.output.stream import Cell
    from tfdeploy.shared.protocol.reports import GpuState, GpuUser

MAX_ELSEWHERE = 10  # lines
SEPARATOR = "; "  # between the users of one host
MIN_PART = 8  # characters
HOST_COLUMNS = ("HOST", "FREE", "WAIT", "LOAD", "MEM", "DISK", "GPUS IN USE")
RUN_COLUMNS = ("RUN", "RESULT", "AGE", "TASKS", "HOSTS", "DISK", "COLLECTED")
QUEUE_COLUMNS = ("RUN", "PROJECT", "USER", "PRIORITY", "WAITED", "HOSTS")
PRUNE_COLUMNS = ("HOST", "RUNS", "RELEASES", "ENVIRONMENTS", "LEFTOVERS", "TOTAL")


def print_runs(console: Console, runs: ProjectRuns, flags: str = "") -> None:
    """Print the runs and what each host stores; `flags` name the hosts file in a command."""
    if runs.runs:
        _print_run_table(console, runs.runs, flags)
        _print_missing(console, runs.runs, flags)
        _print_labels(console, runs.runs)
    else:
        console.print_text(f"no run of {runs.project} is on its hosts")
    has_environments = any(disk.environments for disk in runs.disks.values())
    own = ["ENVIRONMENTS"] if has_environments else []
    rows = [
        {
            "HOST": host,
            "USED": format_size(disk.used_bytes),
            "RELEASES": f"{len(disk.releases)}, {format_size(disk.releases_bytes)}",
            "ENVIRONMENTS": _count_and_size([each.bytes for each in disk.environments]),
            "FREE": f"{format_size(disk.free_bytes)} of {format_size(disk.total_bytes)}",
        }
        for host, disk in runs.disks.items()
    ]
    if rows:
        console.print_text("")
        console.out.print_table(["HOST", "USED", "RELEASES", *own, "FREE"], rows)


def print_queue(console: Console, found: QueueResult) -> None:
    rows: list[dict[str, Cell]] = [
        {
            "RUN": run.run,
            "PROJECT": run.project or "-",
            "USER": run.user or "-",
            "PRIORITY": run.priority,
            "WAITED": "-" if run.age_s is None else format_duration(run.age_s),
            "HOSTS": fold_names(run.hosts),
        }
        for run in found.waiting
    ]
    if not rows:
        console.print_text("no run waits" + (" on the hosts that answer" if found.errors else ""))
        return
    console.out.print_table(QUEUE_COLUMNS, rows)
    console.print_text("")
    for run in found.waiting:
        console.print_text(f"{run.run} waits:")
        by_reason: dict[str, list[str]] = {}
        for host, reason in run.hosts.items():
            by_reason.setdefault(reason, []).append(host)
        for reason, hosts in by_reason.items():
            console.print_text(escape_line(f"  {fold_names(hosts)}: {reason}"))


def print_prune_plan(
    console: Console, runs: ProjectRuns, plan: Mapping[str, Removal], flags: str
) -> None:
    """Print what is about to be deleted from each host; `flags` name the hosts file."""
    ids = {run.run for removal in plan.values() for run in removal.runs}
    if ids:
        _print_run_table(console, [run for run in runs.runs if run.id in ids], flags)
    rows = [
        {
            "HOST": host,
            "RUNS": _count_and_size([run.bytes for run in removal.runs]),
            "RELEASES": _count_and_size([release.bytes for release in removal.releases]),
            "ENVIRONMENTS": _count_and_size([each.bytes for each in removal.environments]),
            "LEFTOVERS": format_size(removal.left_bytes),
            "TOTAL": format_size(removal.bytes),
        }
        for host, removal in plan.items()
    ]
    if rows:
        console.print_text("" if ids else "no run to delete")
        console.out.print_table(PRUNE_COLUMNS, rows)


def print_prune_result(
    console: Console,
    plan: Mapping[str, Removal],
    pruned: PruneResult | None,
    unanswered: Sequence[TfdeployError],
) -> None:
    """Print what was freed; without `pruned` it was a dry run. `unanswered` are the errors of
    hosts because of which all runs stay."""
    if unanswered:
        hosts = format_count(len(unanswered), "host")
        console.print_text(f"all runs stay: {hosts} did not answer, where any of them may be live")
    if not plan:
        console.print_text("nothing to delete" if not unanswered else "nothing was deleted")
    elif pruned is None:
        total = format_size(sum(removal.bytes for removal in plan.values()))
        console.print_text("", f"dry run: nothing was deleted; it would free about {total}")
    else:
        freed = format_size(sum(pruned.freed.values()))
        console.print_text("", f"freed {freed}; results on the controller were not touched")


def _print_run_table(console: Console, runs: Sequence[RunSummary], flags: str) -> None:
    rows: list[dict[str, Cell]] = [
        {
            "RUN": run.id,
            "RESULT": (run.result, STATE_STYLES.get(run.result.upper(), "default")),
            "AGE": format_duration(run.age_s),
            "TASKS": str(len(run.tasks)),
            "HOSTS": shorten_names(run.hosts),
            "DISK": format_size(run.bytes),
            "COLLECTED": _collected_text(run),
        }
        for run in runs
    ]
    console.out.print_table(RUN_COLUMNS, rows)
    _print_elsewhere(console, runs, flags)


def _print_elsewhere(console: Console, runs: Sequence[RunSummary], flags: str) -> None:
    """Print what runs have written outside of their folders, and how it is fetched."""
    saved = [(run.id, each) for run in runs for each in run.elsewhere]
    for run_id, each in saved[:MAX_ELSEWHERE]:
        fetch = how_to_fetch(each, f"{flags} --run {quote_word(run_id)}".lstrip())
        console.print_text(f"{each.task} on {each.host} saved in {each.path}: {fetch}")
    more = len(saved) - MAX_ELSEWHERE
    if more > 0:
        lists = f"tfdeploy runs --json {flags}".rstrip()
        console.print_text(f"and {format_count(more, 'more file')} outside of runs: {lists}")


def _print_missing(console: Console, runs: Sequence[RunSummary], flags: str) -> None:
    """Print how many results only hosts have, and the command that fetches or names them."""
    missing = [run for run in runs if run.results_collected < run.results]
    if missing:
        newest, count = missing[0], sum(run.results - run.results_collected for run in missing)
        several = f"{len(missing)} runs (the newest is {newest.id})"
        whose = several if len(missing) > 1 else f"run {newest.id}"
        what = f"{format_count(count, 'result')} (checkpoints, outputs, event files)"
        console.print_sentence(f"only on hosts: {what} of {whose}")
        collect = " ".join(filter(None, ("tfdeploy collect", flags, newest.id)))
        console.print_text(f"  {collect} fetches what it can, and names the rest")


def _print_labels(console: Console, runs: Sequence[RunSummary]) -> None:
    """Print the names of runs, and the words of the command line as a shell takes them."""
    rows = [
        {"RUN": run.id, "NAME": run.name, "WORDS": shlex.join(run.words)}
        for run in runs
        if run.name or run.words
    ]
    if rows:
        console.print_text("")
        columns = [name for name in rows[0] if any(row[name] for row in rows)]
        console.out.print_table(columns, rows)


def _count_and_size(sizes: Sequence[int]) -> str:
    return f"{len(sizes)}, {format_size(sum(sizes))}"


def _collected_text(run: RunSummary) -> str:
    """Return how many of the results that a run wrote are on the controller."""
    return f"{run.results_collected} of {run.results}" if run.results else "no results"


# Free hosts, and who uses their GPUs


def print_hosts(console: Console, result: SeenHosts) -> None:
    """Print a row for each host. A terminal's rows are cut at its width: many hosts shall fit
    its screen."""
    errors = {error.names[-1]: error.message for error in result.errors if error.names}
    rows = [_host_row(each, errors.get(each.host, "")) for each in result.hosts]
    if console.out.is_terminal:
        others = [max(map(len, [name, *(row[name] for row in rows)])) for name in HOST_COLUMNS[:-1]]
        width = max(10, console.out.rich.width - sum(others) - 2 * len(others))
        rows = [{**row, HOST_COLUMNS[-1]: _cut(row[HOST_COLUMNS[-1]], width)} for row in rows]
    cells: list[dict[str, Cell]] = [{**row} for row in rows]
    console.out.print_table(HOST_COLUMNS, cells)
    unseen: dict[str, list[str]] = {}
    for each in result.hosts:
        for text in each.state.unseen if each.state else ():
            unseen.setdefault(text, []).append(each.host)
    for text, hosts in unseen.items():
        console.print_text(f"{fold_names(hosts)}: {text}")


def clear_screen(console: Console) -> None:
    """Clear a terminal, before what changes is printed again."""
    if console.out.is_terminal:
        console.out.rich.clear()


def _host_row(host: SeenHost, error: str) -> dict[str, str]:
    state = host.state
    if state is None:
        return {
            **dict.fromkeys(HOST_COLUMNS, "-"),
            "HOST": host.host,
            HOST_COLUMNS[-1]: escape_line(error),
        }
    return {
        "HOST": host.host,
        "FREE": f"{host.free_gpus}/{len(state.gpus)}" if state.gpus else "-",
        "WAIT": str(state.waiting or "-"),
        "LOAD": f"{state.load:.0f}/{state.cpus}",
        "MEM": f"{100 * state.used_bytes / max(1, state.total_bytes):.0f}%",
        "DISK": format_size(state.free_bytes),
        HOST_COLUMNS[-1]: escape_line(_uses(state.gpus)),
    }


def _uses(gpus: Sequence[GpuState]) -> str:
    """Return who uses which GPUs; those that one user has for the same run or program together."""
    groups: dict[tuple[str, ...], tuple[list[GpuState], list[GpuUser]]] = {}
    for gpu in gpus:
        for user in gpu.users:
            key = (user.user, user.project, user.run, user.program)
            used, users = groups.setdefault(key, ([], []))
            used.append(gpu)
            users.append(user)
        if not gpu.free and not gpu.users:
            groups.setdefault((), ([], []))[0].append(gpu)
    return SEPARATOR.join(_use(used, users) for used, users in groups.values())


def _use(gpus: Sequence[GpuState], users: Sequence[GpuUser]) -> str:
    busy = [gpu.busy_percent for gpu in gpus if gpu.busy_percent is not None]
    mean = [f"{sum(busy) / len(busy):.0f}%"] if busy else []
    used, total = sum(gpu.used_bytes for gpu in gpus), sum(gpu.total_bytes for gpu in gpus)
    memory = f"{used >> 30}/{total >> 30}G"
    ages = [user.age_s for user in users if user.age_s is not None]
    since = [format_duration(max(ages)).split()[0]] if ages else []  # its largest unit
    name = users[0].user or "?" if users else "hidden"
    return " ".join(
        [format_numbers(gpu.index for gpu in gpus), name, *since, *mean, memory, *_what(users)]
    )


def _what(users: Sequence[GpuUser]) -> list[str]:
    if not users:
        return []
    first = users[0]
    if first.run:
        ends = f", {ends_text(first.ends_s)}" if first.ends_s is not None else ""
        return [f"{first.project} {first.run} {fold_names(user.task for user in users)}{ends}"]
    return [first.program or (f"pid {first.pid}" if first.pid else "?")]


def _cut(text: str, width: int) -> str:
    """Cut each part of a cell, so that all users of a host are named."""
    parts = text.split(SEPARATOR)
    share = max(MIN_PART, (width + len(SEPARATOR)) // len(parts) - len(SEPARATOR))
    cut = (part if len(part) <= share else part[: share - 1] + "…" for part in parts)
    return text if len(text) <= width else SEPARATOR.join(cut)[:width]
