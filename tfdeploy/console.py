"""Every character that a person sees. Steps give objects; here they become words, tables, colours.

What comes from hosts (log lines, reasons) is data: control characters in it never reach a terminal.
"""

from __future__ import annotations

import atexit
import json
import math
import shlex
import sys
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console as Rich
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from tfdeploy import pushing, rows, verdict
from tfdeploy.agent.records import (
    BACKOFF,
    FAILED,
    LOST,
    READY,
    STOPPED,
    SUCCEEDED,
    Launch,
    TaskReport,
)
from tfdeploy.errors import FleetError
from tfdeploy.flood import Flood
from tfdeploy.hostnames import FEW, folded
from tfdeploy.words import counted, crew, duration, few, gpus, printable, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tfdeploy.errors import HostError, TfdeployError
    from tfdeploy.pushing import Tally
    from tfdeploy.release import Release
    from tfdeploy.run import Run
    from tfdeploy.speedup import Cell, Result, Sweep
    from tfdeploy.steps.check import Checked
    from tfdeploy.steps.collect import BadCheckpoint, Collected
    from tfdeploy.steps.compare import Comparison
    from tfdeploy.steps.plan import Intent
    from tfdeploy.steps.prune import Going, Pruned
    from tfdeploy.steps.resume import Resumed
    from tfdeploy.steps.run import Finished
    from tfdeploy.steps.runs import ProjectRuns, RunLine
    from tfdeploy.steps.status import RunStatus
    from tfdeploy.steps.stop import Stopped

STYLES = {
    READY: "green", SUCCEEDED: "green", FAILED: "bold red", LOST: "bold red", STOPPED: "dim",
    BACKOFF: "yellow",
}  # fmt: skip
PREFIX_STYLES = ("cyan", "magenta", "yellow", "blue", "green", "bright_cyan", "bright_magenta")
WIDEST = 500
TASKS = 40  # changes of more tasks at the same time are told together


class Console:
    """People's text: on standard output, or on standard error where that carries JSON."""

    def __init__(self, *, for_json: bool = False) -> None:
        self._out = Rich(stderr=for_json, highlight=False, soft_wrap=True, emoji=False)
        self._err = Rich(stderr=True, highlight=False, soft_wrap=True, emoji=False)

        self._in_turn = threading.RLock()  # changes of state are told by threads of their own
        self._changes = Flood(self._reports, TASKS)
        self._lost = Flood(self._waiting, FEW)
        self._found = Flood(self._back, FEW)
        self._told: dict[str, tuple[Any, ...]] = {}
        self._bad: set[BadCheckpoint] = set()
        atexit.register(self.flush)  # whoever tells the error that ends a command has another one

    def flush(self) -> None:
        """What waits to be told together is told now."""
        for flood in (self._changes, self._lost, self._found):
            flood.flush()

    def say(self, text: str) -> None:
        self.flush()
        self._out.out(printable(text), highlight=False)

    def error(self, error: TfdeployError) -> None:
        """What was found, what was expected, what to type next."""
        self._complain("error: ", "bold red", error)

    def _complain(self, word: str, style: str, error: TfdeployError) -> None:
        self.flush()
        first, *rest = str(error).splitlines() or [""]
        with self._in_turn:
            self._err.out(word, style=style, end="", highlight=False)
            for line in (first, *rest):
                self._err.out(printable(line), highlight=False)

    def interrupted(self, text: str) -> None:
        self.flush()
        self._err.print(f"\n{escape(text)}")

    def plan(self, intent: Intent) -> None:
        table = _table("TASK", "HOST", "LISTENS ON", "GPUS", "CHIEF")
        for placement in intent.plan.placements:
            chief = "chief" if placement == intent.plan.chief else ""
            listens = placement.endpoint if placement.port else "-"
            table.add_row(str(placement.task), placement.host, listens, gpus(placement), chief)
        self._table(table)
        self.say(f"\ncluster  {json.dumps(intent.plan.cluster)}")
        self.say(f"release  {_told(intent.release)}")
        for place, data in intent.data.items():
            jobs, hosts = intent.inventory.data[place].jobs, intent.readers(place)
            self.say(f"data     {place}  {_told(data)}, for {', '.join(jobs)} on {few(hosts)}")
        for launch in intent.launches():
            self._command(launch)

    def busy(self, text: str) -> AbstractContextManager[object]:
        """That something takes its time, on a terminal."""
        return self._err.status(escape(text)) if self._err.is_terminal else nullcontext()

    def checked(self, checked: Checked, intent: Intent) -> None:
        table = _table(*rows.SURVEYED)
        for row in rows.surveyed(checked.surveys):
            table.add_row(*(escape(printable(cell)) for cell in row))
        if checked.surveys:
            self._table(table)
        if checked.notes:
            self._complain("note: ", "yellow", FleetError(checked.notes))
        if not checked.errors:
            tasks, hosts = len(intent.plan.placements), len(checked.surveys)
            self.say(f"{counted(hosts, 'host')} can take {counted(tasks, 'task')}: tfdeploy run")

    def _table(self, table: Table) -> None:
        """At its own width, whatever the terminal's: a cut name can't be copied."""
        wide = self._out.options.update(max_width=WIDEST)
        table.width = Measurement.get(self._out, wide, table).maximum
        self._out.print(table, width=table.width, crop=False)

    def _command(self, launch: Launch) -> None:
        self._out.print(f"\n[bold]{launch.task}[/]")
        for name, value in launch.env.items():
            self.say(f"  {name}={shlex.quote(value)}")
        for place, text in launch.files.items():
            self.say(f"  {place}: {text}")
        self.say(f"  $ {shlex.join(launch.argv)}")

    def pushing(self, hosts: Sequence[str]) -> AbstractContextManager[Tally]:
        """How far it is, until `pushed`."""
        return pushing.shown(self._out, hosts)

    def pushed(self, outcome: Mapping[str, Mapping[str, bool]], intent: Intent) -> None:
        named = {f"data {place}, release": data for place, data in intent.data.items()}
        for what, release in {"release": intent.release, **named}.items():
            sent = [host for host, was_sent in outcome[release.id].items() if was_sent]
            held = [host for host, was_sent in outcome[release.id].items() if not was_sent]
            if sent:
                self.say(f"pushed {what} {release.id} ({size(release.size)}) to {folded(sent)}")
            if held:
                self.say(f"{what} {release.id} was there already: {folded(held)}")

    def report(self, host: str, report: TaskReport) -> None:
        """One line at each change of a task's state, told once however often it is reported."""
        seen = (report.state, report.pid, report.restarts)
        if self._told.get(report.task) == seen:
            return
        self._told[report.task] = seen
        self._changes.add((host, report))

    def _reports(self, changes: Sequence[tuple[str, TaskReport]]) -> None:
        for state, task, host, pid, reason in rows.changes(changes):
            where, why = escape(f"{task:<10} {host}"), escape(printable(reason))
            shown, process = escape(printable(f"{state!s:<9}")), escape(printable(pid))
            told = f"[{STYLES.get(state, 'default')}]{shown}[/] {where}"
            with self._in_turn:
                self._out.print(f"{told}{process and f'  pid {process}'}{why and f'  {why}'}")

    def started(self, run: Run) -> None:
        tasks, hosts = len(run.plan.placements), len(run.plan.hosts)
        where = f"{counted(tasks, 'task')} on {counted(hosts, 'host')}"
        ended = sum(state == SUCCEEDED for state, *_ in self._told.values())
        ready = f"has started, {ended} ended well already" if ended else "is READY"
        self.say(f"run {run.id} {ready}: {where}")

    def resumed(self, resumed: Resumed) -> None:
        source = resumed.source
        where = f"{source.name}, from {source.host or 'here'}" if source else "the beginning"
        self.say(f"run {resumed.run.id} goes on from {where}")
        self.started(resumed.run)

    def lines(self, task: str, host: str, lines: list[str]) -> None:
        """Log lines, each behind its task and host."""
        style = PREFIX_STYLES[sum(task.encode()) % len(PREFIX_STYLES)]
        for line in lines:
            # A progress bar rewrites its line with "\r": what it came to is what there is to read.
            text = printable(line.rstrip("\r").rpartition("\r")[2])
            with self._in_turn:
                self._out.out(f"{task}@{host} | ", style=style, end="", highlight=False)
                self._out.out(text, highlight=False)

    def status(self, seen: RunStatus) -> None:
        self.say(f"run {seen.run.id}  release {seen.run.release}")
        table = _table(*rows.COLUMNS)
        for row in rows.rows(seen.tasks):
            cells = [escape(printable(cell)) for cell in row]
            cells[rows.STATE] = f"[{STYLES.get(row[rows.STATE], 'default')}]{cells[rows.STATE]}[/]"
            table.add_row(*cells)
        self._table(table)

    def stopped(self, run: Run, stopped: Stopped) -> None:
        for state, task in rows.ends(stopped.states):
            self.say(f"{state:<9} {task}")
        if stopped.saved:
            name, age_s = stopped.saved
            self.say(f"the newest checkpoint is {name}, {duration(age_s)} old: what came after it")
            self.say("is lost (save_on_stop = true has a session save before it ends)")
        self.say(f"nothing of run {run.id} is left running")

    def collected(self, collected: Collected) -> None:
        self.arrived(collected)
        if not collected.checkpoints:
            found = f"'s {collected.source} holds no complete one" if collected.source else ""
            self.say(f"no checkpoint: the chief{found or ' was never started'}")
        events, logs = counted(collected.events, "event file"), counted(collected.logs, "log")
        self.say(f"{events} and {logs} in {collected.folder}")

    def arrived(self, collected: Collected) -> None:
        """The checkpoints that came home, and why others did not."""
        newest, *older = collected.checkpoints or (None,)
        if newest:
            total = f" (and {len(older)} older)" if older else ""
            self.say(f"checkpoint {collected.folder / 'checkpoints' / newest.name}{total}")
        if newest and not newest.verified:
            self.say("not verified: no TensorFlow on the chief's host, or no room, to read it with")
        for bad in [bad for bad in collected.bad if bad not in self._bad]:
            self.say(f"checkpoint {bad.name} is broken there and was left: {bad.error}")
        self._bad |= set(collected.bad)

    def finished(self, run: Run, finished: Finished) -> None:
        self.collected(finished.collected)
        word = "succeeded" if finished.exit == 0 else f"failed (exit {finished.exit})"
        self.say(f"run {run.id} {word}")

    def runs(self, seen: ProjectRuns) -> None:
        if seen.lines:
            self._runs(seen.lines)
        else:
            self.say(f"no run of {seen.project} is on its hosts")
        table = _table("HOST", "USED", "RELEASES", "FREE")
        for host, disk in seen.disks.items():
            releases = f"{len(disk.releases)}, {size(disk.releases_bytes)}"
            free = f"{size(disk.free_bytes)} of {size(disk.total_bytes)}"
            table.add_row(host, size(disk.used_bytes), releases, free)
        if seen.disks:
            self.say("")
            self._table(table)

    def _runs(self, lines: Sequence[RunLine]) -> None:
        table = _table("RUN", "RESULT", "STARTED", "TASKS", "HOSTS", "ON HOSTS", "AT HOME")
        for line in lines:
            style = STYLES.get(line.result.upper(), "default")
            result = f"[{style}]{line.result}[/]"
            home = "checkpoints" if line.collected else "record" if line.recorded else "-"
            counts = (f"{duration(line.age_s)} ago", str(len(line.tasks)), few(line.hosts))
            table.add_row(line.id, result, *counts, size(line.bytes), home)
        self._table(table)

    def going(self, seen: ProjectRuns, going: Mapping[str, Going]) -> None:
        """What is to leave the hosts, before it does."""
        leaving = {run.run for what in going.values() for run in what.runs}
        if leaving:
            self._runs([line for line in seen.lines if line.id in leaving])
        table = _table("HOST", "RUNS", "RELEASES", "LEFTOVERS", "TOGETHER")
        for host, what in going.items():
            runs = f"{len(what.runs)}, {size(sum(run.bytes for run in what.runs))}"
            releases = f"{len(what.releases)}, {size(sum(each.bytes for each in what.releases))}"
            table.add_row(host, runs, releases, size(what.left_bytes), size(what.bytes))
        if going:
            self.say("" if leaving else "no run is to go")
            self._table(table)

    def pruned(self, going: Mapping[str, Going], done: Pruned | None) -> None:
        together = size(sum(what.bytes for what in going.values()))
        if not going:
            self.say("nothing to remove")
        elif done is None:
            self.say(f"\na dry run: nothing was touched; {together} would become free")
        else:
            freed = size(sum(done.freed.values()))
            self.say(f"\n{freed} became free; results at home were not touched")

    @contextmanager
    def sweeping(self) -> Iterator[Callable[[Cell, str], None]]:
        """To be told which run is measured. Nothing of it is left on a terminal."""
        if not self._out.is_terminal:
            yield lambda cell, run: None
            return
        with self._out.status("push") as status:
            yield lambda cell, run: status.update(escape(f"{cell}: run {run}"))

    def cell(self, sweep: Sweep, result: Result) -> None:
        self.say(verdict.line(sweep, result))

    def swept(self, sweep: Sweep, picture: Path) -> None:
        self.say("")
        table = _table(*verdict.columns(sweep))
        for result in sweep:
            table.add_row(*(escape(printable(cell)) for cell in verdict.row(sweep, result)))
        self._table(table)
        for remark in verdict.remarks(sweep):
            self.say(remark)
        if sweep.base:
            self.say(f"picture: {picture}")

    def compared(self, seen: Comparison, picture: Path) -> None:
        """STEPS and SECONDS are those of a curve's last point."""
        best = "HIGHEST" if seen.rises else "LOWEST"
        columns = ("RUN", "TASKS", "STEPS", "SECONDS", "STEPS/S", "FIRST", "LAST", best)
        table = _table(*columns, *([] if seen.target is None else [f"REACHED {seen.target:g}"]))
        for told in seen.runs:
            name, last = escape(printable(told.label)), str(told.curve[-1].step)
            speed = [_tenths(told.seconds[-1]), _tenths(told.rate)]
            values = (told.smoothed[0], told.smoothed[-1], seen.best(told))
            figures = [f"{value:.4g}" for value in values]
            reached = [] if seen.target is None else [_moment(seen.reached(told))]
            table.add_row(name, crew(told.tasks) or "-", last, *speed, *figures, *reached)
        self._table(table)
        mean = f"a mean over {counted(seen.smooth, 'step')}" if seen.smooth > 1 else "not smoothed"
        self.say(f"\n{seen.tag}: {mean} (--smooth)\npicture: {picture}")

    def delayed(self, error: TfdeployError) -> None:
        self._warn(error, "the next checkpoint is tried again")

    def waiting(self, error: HostError) -> None:
        self._lost.add(error)

    def _waiting(self, errors: Sequence[HostError]) -> None:
        one = len(errors) == 1
        asked = "is asked again until it answers" if one else "are asked again until they answer"
        found = errors[0] if one else FleetError(errors)
        self._warn(found, f"{folded(error.host for error in errors)} {asked}; the run goes on")

    def back(self, host: str) -> None:
        self._lost.flush()
        self._found.add(host)

    def _back(self, hosts: Sequence[str]) -> None:
        answer = "answers" if len(hosts) == 1 else "answer"
        self._err.print(f"[yellow]{escape(folded(hosts))} {answer} again[/]")

    def _warn(self, error: TfdeployError, then: str) -> None:
        self._err.print(f"[yellow]{escape(printable(str(error)))}\n{escape(then)}[/]")

    def fallen(self, error: TfdeployError) -> None:
        self._warn(error, "that won't heal by itself: the run is resumed")


def document(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def _told(release: Release) -> str:
    files = f"{counted(len(release.manifest), 'file')}, {size(release.size)}"
    return f"{release.id}  {files} of {release.root}"


def _tenths(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _moment(reached: tuple[int, float] | None) -> str:
    if reached is None:
        return "-"
    step, seconds = reached
    return f"step {step}" if math.isnan(seconds) else f"step {step}, {_tenths(seconds)} s"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table
