"""Write one page about all runs on the controller, with a link to the report of each."""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tfdeploy import run as runs
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.experiments.run_index.rows import RunRow, columns, make_row
from tfdeploy.experiments.run_report import page as report
from tfdeploy.experiments.run_report.facts import gather
from tfdeploy.experiments.training import course
from tfdeploy.formatting.humanize import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tfdeploy.run import Run

PAGE, SCRIPT = "runs.html", "sort.js"
FILE, REPORT = "index.html", "report.html"


@dataclass(frozen=True)
class Index:
    """The rows, the newest run first, and why other records could not be read."""

    rows: tuple[RunRow, ...]
    unreadable: tuple[str, ...]


def gather_index(hosts: Path, file: Path, on_report: Callable[[str], None]) -> Index:
    """Read all runs beside the hosts file, and write the reports that are missing or older than
    what was collected. `file` is the page from which they are linked; `on_report` is called with
    the run whose report is being written. Raises RunError if there is no run, or no hosts file.
    """
    runs.check_hosts_file(hosts)
    base = hosts.absolute().parent / runs.FOLDER
    folders = [base / run_id for run_id in reversed(runs.run_ids(base))]
    if not folders:
        raise RunError(f"there is no run in {base}", "pass --hosts FILE, or start a run")
    rows, unreadable = [], []
    for folder in folders:
        try:
            rows.append(_row(runs.read_folder(folder), file, on_report))
        except OSError as error:
            unreadable.append(escape_line(f"{error.filename} can't be read: {error.strerror}"))
        except TfdeployError as error:
            unreadable.append(escape_line(f"{folder.name}: {error}"))
    return Index(tuple(rows), tuple(unreadable))


def render(index: Index) -> str:
    """Return the page. Only its own script may run in it: the policy has the script's hash."""
    script = report.read_template(SCRIPT)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    projects = dict.fromkeys(row.course.run.inventory.project for row in index.rows)
    return report.render_template(
        PAGE,
        rows=index.rows,
        metrics=columns(index.rows),
        unreadable=index.unreadable,
        title=f"Runs of {', '.join(projects)}" if projects else "Runs",
        script=script,
        script_policy=f"; script-src 'sha256-{digest}'",
    )


def _row(run: Run, file: Path, on_report: Callable[[str], None]) -> RunRow:
    known = course.read(run, None)
    if not (run.folder / "logs").is_dir():
        return make_row(known, "", "not collected")
    own = run.folder / REPORT
    try:
        if not _is_current(own, run):
            on_report(run.id)
            report.write(own, report.render([gather(run, None)]), run.open())
    except RunError as error:
        return make_row(known, "", f"no report: {escape_line(str(error))}")
    return make_row(known, _link(own, file), "")


def _is_current(own: Path, run: Run) -> bool:
    """Return whether the report is newer than the collected logs: each collect writes them."""
    collected = max((file.stat().st_ctime for file in (run.folder / "logs").iterdir()), default=0.0)
    return own.is_file() and own.stat().st_mtime >= collected


def _link(own: Path, file: Path) -> str:
    """Return a relative link, so that the folder may be moved or sent as a whole."""
    return quote(os.path.relpath(own, file.absolute().parent))
