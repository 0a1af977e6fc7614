"""Every character that a person sees. Steps give objects; here they become words, tables, colours.

What comes from hosts (log lines, reasons) is data: control characters in it never reach a terminal.
"""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console as Rich
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from tfdeploy.agent.records import FAILED, LOST, READY, STOPPED, SUCCEEDED, Launch, TaskReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdeploy.errors import HostError, TfdeployError
    from tfdeploy.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.steps.collect import Collected
    from tfdeploy.steps.plan import Intent
    from tfdeploy.steps.run import Finished
    from tfdeploy.steps.status import RunStatus

STYLES = {READY: "green", SUCCEEDED: "green", FAILED: "bold red", LOST: "bold red", STOPPED: "dim"}
PREFIX_STYLES = ("cyan", "magenta", "yellow", "blue", "green", "bright_cyan", "bright_magenta")
KILO = 1000
WIDEST = 500


class Console:
    """People's text: on standard output, or on standard error where that carries JSON."""

    def __init__(self, *, for_json: bool = False) -> None:
        self._out = Rich(stderr=for_json, highlight=False, soft_wrap=True, emoji=False)
        self._err = Rich(stderr=True, highlight=False, soft_wrap=True, emoji=False)

        self._told: dict[str, tuple[Any, ...]] = {}

    def say(self, text: str) -> None:
        self._out.out(printable(text), highlight=False)

    def error(self, error: TfdeployError) -> None:
        """What was found, what was expected, what to type next."""
        first, *rest = str(error).splitlines() or [""]
        self._err.out("error: ", style="bold red", end="", highlight=False)
        for line in (first, *rest):
            self._err.out(printable(line), highlight=False)

    def interrupted(self, text: str) -> None:
        self._err.print(f"\n{escape(text)}")

    def plan(self, intent: Intent) -> None:
        table = _table("TASK", "HOST", "LISTENS ON", "GPUS", "CHIEF")
        for placement in intent.plan.placements:
            chief = "chief" if placement == intent.plan.chief else ""
            listens = placement.endpoint if placement.port else "-"
            table.add_row(str(placement.task), placement.host, listens, gpus(placement), chief)
        self._table(table)
        self.say(f"\ncluster  {json.dumps(intent.plan.cluster)}")
        release = intent.release
        files = f"{_counted(len(release.manifest), 'file')}, {size(release.size)}"
        self.say(f"release  {release.id}  {files} of {release.root}")
        for launch in intent.launches():
            self._command(launch)

    def _table(self, table: Table) -> None:
        """At its own width, whatever the terminal's: a cut name can't be copied."""
        wide = self._out.options.update(max_width=WIDEST)
        table.width = Measurement.get(self._out, wide, table).maximum
        self._out.print(table, width=table.width, crop=False)

    def _command(self, launch: Launch) -> None:
        self._out.print(f"\n[bold]{launch.task}[/]")
        for name, value in launch.env.items():
            self.say(f"  {name}={shlex.quote(value)}")
        self.say(f"  $ {shlex.join(launch.argv)}")

    @contextmanager
    def pushing(self, hosts: Sequence[str]) -> Iterator[Callable[[str, float], None]]:
        """A bar a host on a terminal; elsewhere nothing until `pushed`."""
        if not self._out.is_terminal:
            yield lambda host, share: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        with Progress(*columns, console=self._out, transient=True) as progress:
            bars = {host: progress.add_task(host, total=1.0) for host in hosts}
            yield lambda host, share: progress.update(bars[host], completed=share)

    def pushed(self, outcome: dict[str, bool], intent: Intent) -> None:
        sent = [host for host, was_sent in outcome.items() if was_sent]
        held = [host for host, was_sent in outcome.items() if not was_sent]
        release = intent.release
        if sent:
            self.say(f"pushed release {release.id} ({size(release.size)}) to {', '.join(sent)}")
        if held:
            self.say(f"release {release.id} was there already: {', '.join(held)}")

    def report(self, host: str, report: TaskReport) -> None:
        """One line at each change of a task's state, told once however often it is reported."""
        seen = (report.state, report.pid, report.restarts)
        if self._told.get(report.task) == seen:
            return
        self._told[report.task] = seen
        state = f"[{STYLES.get(report.state, 'default')}]{report.state:<9}[/]"
        reason = f"  {report.reason}" if report.reason else ""
        pid = f"  pid {report.pid}" if report.pid else ""
        where = escape(f"{report.task:<10} {host}")
        self._out.print(f"{state} {where}{pid}{escape(printable(reason))}")

    def started(self, run: Run) -> None:
        tasks, hosts = len(run.plan.placements), len(run.plan.hosts)
        where = f"{_counted(tasks, 'task')} on {_counted(hosts, 'host')}"
        ended = sum(state == SUCCEEDED for state, *_ in self._told.values())
        ready = f"has started, {ended} ended well already" if ended else "is READY"
        self.say(f"run {run.id} {ready}: {where}")

    def lines(self, task: str, host: str, lines: list[str]) -> None:
        """Log lines, each behind its task and host."""
        style = PREFIX_STYLES[sum(task.encode()) % len(PREFIX_STYLES)]
        for line in lines:
            # A progress bar rewrites its line with "\r": what it came to is what there is to read.
            text = printable(line.rstrip("\r").rpartition("\r")[2])
            self._out.out(f"{task}@{host} | ", style=style, end="", highlight=False)
            self._out.out(text, highlight=False)

    def status(self, seen: RunStatus) -> None:
        self.say(f"run {seen.run.id}  release {seen.run.release}")
        table = _table(
            "TASK", "HOST", "PORT", "GPUS", "PID", "STATE", "SINCE", "RESTARTS", "HEALTH", "REASON"
        )
        for task in seen.tasks:
            placement, report = task.placement, task.report
            fixed = (str(placement.task), placement.host, _or_dash(placement.port), gpus(placement))
            table.add_row(*fixed, *(_cells(report) if report else ("-", "UNKNOWN", *"----")))
        self._table(table)

    def stopped(self, run: Run, states: dict[str, str]) -> None:
        for task, state in states.items():
            self.say(f"{state:<9} {task}")
        self.say(f"nothing of run {run.id} is left running")

    def collected(self, collected: Collected) -> None:
        newest = collected.checkpoints[0] if collected.checkpoints else None
        if newest:
            total = f" (and {len(collected.checkpoints) - 1} older)" * (
                len(collected.checkpoints) > 1
            )
            self.say(f"checkpoint {collected.folder / 'checkpoints' / newest.name}{total}")
        else:
            found = f"'s {collected.source} holds no complete one" if collected.source else ""
            self.say(f"no checkpoint: the chief{found or ' was never started'}")
        events, logs = _counted(collected.events, "event file"), _counted(collected.logs, "log")
        self.say(f"{events} and {logs} in {collected.folder}")

    def finished(self, run: Run, finished: Finished) -> None:
        self.collected(finished.collected)
        word = "succeeded" if finished.exit == 0 else f"failed (exit {finished.exit})"
        self.say(f"run {run.id} {word}")

    def lost(self, error: HostError) -> None:
        self._err.print(f"[yellow]{escape(printable(str(error)))}[/]")
        self._err.print(f"[yellow]{escape(error.host)} is followed no more; the run goes on[/]")


def document(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


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
    for unit in ("kB", "MB", "GB"):  # noqa: B007
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


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _cells(report: TaskReport) -> tuple[str, ...]:
    style = STYLES.get(report.state, "default")
    return (
        _or_dash(report.pid),
        f"[{style}]{report.state}[/]",
        duration(report.age_s),
        str(report.restarts),
        report.health,
        escape(printable(report.reason)),
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
