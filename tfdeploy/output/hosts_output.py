"""The table of `hosts`: a row for each host, with what is free and who uses its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import (
    ends_text,
    escape_line,
    format_duration,
    format_numbers,
    format_size,
)
from tfdeploy.output.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.commands.hosts import SeenHost, SeenHosts
    from tfdeploy.output.stream import Cell
    from tfdeploy.shared.protocol.reports import GpuState, GpuUser

SEPARATOR = "; "  # between the users of one host
MIN_PART = 8  # characters
COLUMNS = ("HOST", "FREE", "WAIT", "LOAD", "MEM", "DISK", "GPUS IN USE")


class HostsOutput(Terminal):
    def print_hosts(self, seen: SeenHosts) -> None:
        """Print a row for each host. A terminal's rows are cut at its width: many hosts shall fit
        its screen."""
        errors = {error.names[-1]: error.message for error in seen.errors if error.names}
        rows = [_row(each, errors.get(each.host, "")) for each in seen.hosts]
        if self._out.is_terminal:
            others = [max(map(len, [name, *(row[name] for row in rows)])) for name in COLUMNS[:-1]]
            width = max(10, self._out.rich.width - sum(others) - 2 * len(others))
            rows = [{**row, COLUMNS[-1]: _cut(row[COLUMNS[-1]], width)} for row in rows]
        cells: list[dict[str, Cell]] = [{**row} for row in rows]
        self._out.print_table(COLUMNS, cells)
        unseen: dict[str, list[str]] = {}
        for each in seen.hosts:
            for text in each.state.unseen if each.state else ():
                unseen.setdefault(text, []).append(each.host)
        for text, hosts in unseen.items():
            self.print_text(f"{fold_names(hosts)}: {text}")

    def clear_screen(self) -> None:
        """Clear a terminal, before what changes is printed again."""
        if self._out.is_terminal:
            self._out.rich.clear()


def _row(seen: SeenHost, error: str) -> dict[str, str]:
    state = seen.state
    if state is None:
        return {**dict.fromkeys(COLUMNS, "-"), "HOST": seen.host, COLUMNS[-1]: escape_line(error)}
    return {
        "HOST": seen.host,
        "FREE": f"{seen.free_gpus}/{len(state.gpus)}" if state.gpus else "-",
        "WAIT": str(state.waiting or "-"),
        "LOAD": f"{state.load:.0f}/{state.cpus}",
        "MEM": f"{100 * state.used_bytes / max(1, state.total_bytes):.0f}%",
        "DISK": format_size(state.free_bytes),
        COLUMNS[-1]: escape_line(_uses(state.gpus)),
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
    since = [_age(max(ages))] if ages else []
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


def _age(seconds: float) -> str:
    """Return the age in its largest unit, such as `3h`."""
    return format_duration(seconds).split()[0]


def _cut(text: str, width: int) -> str:
    """Cut each part of a cell, so that all users of a host are named."""
    parts = text.split(SEPARATOR)
    share = max(MIN_PART, (width + len(SEPARATOR)) // len(parts) - len(SEPARATOR))
    cut = (part if len(part) <= share else part[: share - 1] + "…" for part in parts)
    return text if len(text) <= width else SEPARATOR.join(cut)[:width]
