"""Write the page of a report: everything in one file, which asks no other host for anything.

Jinja2 escapes every value; only the drawings of matplotlib are inserted as markup, and matplotlib
has escaped the names in them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring.run_report import charts, timeline, trials
from tfdeploy.branches.measuring.run_report.summary import (
    DifferenceRow,
    compare,
    different_settings,
    format_length,
    format_time,
    recorded_hosts,
    restarts_of,
    summary,
    trained,
)
from tfdeploy.errors import RunError
from tfdeploy.folders.disk_errors import explain
from tfdeploy.folders.own_folder import OwnFolder
from tfdeploy.formatting.humanize import (
    escape_control,
    escape_line,
    format_count,
    format_size,
)
from tfdeploy.shared import pace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.branches.measuring.run_report.charts import Chart
    from tfdeploy.branches.measuring.run_report.facts import RunFacts
    from tfdeploy.branches.measuring.run_report.timeline import Timeline
    from tfdeploy.branches.measuring.run_report.trials import TrialsView
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

TEMPLATES = Path(__file__).parent / "templates"
PAGE, STYLE = "page.html", "style.css"
MAX_PACES = 50  # rows
MAX_OPEN_CHANGES = 40  # of a table that is open from the beginning


@dataclass(frozen=True)
class RunView:
    """One run as its section of the page shows it."""

    number: int
    facts: RunFacts
    tasks: tuple[tuple[str, ...], ...]
    timeline: Timeline | None
    charts: tuple[Chart, ...]
    more_scalars: tuple[str, ...]
    paces: tuple[DifferenceRow, ...]
    changes: tuple[DifferenceRow, ...]
    command: str
    trials: TrialsView | None

    @property
    def run(self) -> Run:
        return self.facts.run

    @property
    def source_diff(self) -> str:
        """Return what was not committed, with secrets hidden."""
        return escape_control(self.facts.redact(self.facts.run.source.get("diff", "")))

    @property
    def summary(self) -> tuple[tuple[str, str], ...]:
        return summary(self.facts)


def view(facts: RunFacts, number: int = 1, *, is_alone: bool = True) -> RunView:
    """Return what the page shows of a run. `number` distinguishes the runs of a page; only one that
    is alone has its own charts, and what differs from the run before. Raises RunError if its
    scalars can't be drawn."""
    run, before = facts.run, facts.previous if is_alone else None
    drawn, more = charts.draw([trained(facts)], f"run{number}") if is_alone else ((), ())
    return RunView(
        number=number,
        facts=facts,
        tasks=_task_rows(facts),
        timeline=timeline.lay_out(facts.histories, facts.known_until),
        charts=drawn,
        more_scalars=more,
        paces=_pace_rows(facts),
        changes=different_settings([before, run], facts.redact) if before else (),
        command=recorded_hosts(run),
        trials=trials.view(facts, f"run{number}"),
    )


def render(all_facts: Sequence[RunFacts]) -> str:
    """Return the page about one run, or about several side by side. Raises as `view` does."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        size=format_size, duration=format_length, time=format_time, counted=format_count
    )
    return environment.get_template(PAGE).render(
        style=(TEMPLATES / STYLE).read_text(),
        written=format_time(datetime.now(UTC).timestamp()),
        views=[view(f, n, is_alone=len(all_facts) == 1) for n, f in enumerate(all_facts, 1)],
        title=_title(all_facts),
        max_open=MAX_OPEN_CHANGES,
        **compare(all_facts),
    )


def check_file(file: Path) -> None:
    """Raise RunError if the page can't be written to this file. Call it before the work is done."""
    if file.is_dir():
        raise RunError(f"{file} is a folder; expected a file", f"use {file / 'report.html'}")
    if not file.parent.is_dir():
        raise RunError(f"{file} can't be written: there is no folder {file.parent}")


def write(file: Path, page: str, folder: OwnFolder | None = None) -> None:
    """Write the whole page or nothing. Only this user can read it: logs may have secrets. `folder`
    is the file's, unless the user chose the file. Raises RunError."""
    try:
        own = folder or OwnFolder.at(file.parent)
        own.write(file.name, [page.encode(errors="replace")])
    except OSError as error:
        raise RunError(*explain(error, file)) from None


def _title(all_facts: Sequence[RunFacts]) -> str:
    first = all_facts[0].run
    if len(all_facts) > 1:
        return f"{len(all_facts)} runs of {first.inventory.project}"
    return f"{first.inventory.project}: run {first.name or first.id}"


def _task_rows(facts: RunFacts) -> tuple[tuple[str, ...], ...]:
    rows, restarts = [], restarts_of(facts)
    for placement in facts.run.plan.placements:
        task = str(placement.task)
        last = facts.histories[task][-1] if facts.histories[task] else None
        reason = facts.redact(last.reason) if last else ""
        cause = f" (because of {last.cause})" if last and last.cause else ""
        rows.append((
            task, escape_line(placement.host), _task_note(placement) or "–",
            facts.states[task], str(restarts[task]), f"{reason}{cause}" or "–",
        ))  # fmt: skip
    return tuple(rows)


def _pace_rows(facts: RunFacts) -> tuple[DifferenceRow, ...]:
    """Return a row for each worker, the slowest first, and for each other task whose host differs:
    its rate, its part of the workers' median, how long a worker that trains at the median waits if
    it waits for this one, and what is different on its host."""
    (usual, _), rows = pace.usual_rate(facts.paces), []
    for each in facts.paces:
        found = [*pace.differences(each, facts.paces), *pace.gpu_problems(each, facts.paces)]
        rate = each.pace.steps_per_s if pace.is_worker(each.task) else None
        cells = ("–", "–", "–")
        if rate is not None and usual:
            waits = format_length(each.pace.seconds * max(0.0, 1 - rate / usual))
            cells = (f"{rate:.3g}", f"{rate / usual:.0%}", waits)
        if rate is not None or found:
            words = facts.redact(escape_line("; ".join(found))) or "–"
            is_slow = rate is not None and rate < pace.SLOW * usual
            row = DifferenceRow(each.task, (escape_line(each.host), *cells, words), is_slow)
            rows.append((math.inf if rate is None else rate, row))
    return tuple(row for _, row in sorted(rows, key=itemgetter(0))[:MAX_PACES])


def _task_note(placement: Placement) -> str:
    """Return the port and the GPUs of a task, such as "port 2222, GPU 0,1"."""
    port = "" if placement.port is None else f"port {placement.port or 'auto'}"
    gpus = f"GPU {placement.gpu_names}" if placement.gpus else ""
    return ", ".join(filter(None, (port, gpus)))
