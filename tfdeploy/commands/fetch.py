"""`tfdeploy fetch`: fetch any file or folder of any task into runs/<run>/fetched/<task>/.

Files are not checked for damage, and what `collect` fetched is not touched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.errors import RunError, TfdeployError, raise_all
from tfdeploy.formatting.humanize import escape_line, quote_path
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.pipeline import run_alone
from tfdeploy.planning.plan import select_placements
from tfdeploy.results.fetch import HOLD_TIMEOUT_S
from tfdeploy.results.outputs import Output, SkippedOutput
from tfdeploy.results.run_folder import disk_errors, exclusive, task_request
from tfdeploy.results.stored_results import FETCHED
from tfdeploy.results.units import fetch_units, is_safe, local_path, parse_units
from tfdeploy.shared.protocol.outputs import FindFiles, MissingPath, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run


@dataclass(frozen=True)
class FetchResult:
    """What was fetched."""

    __repr__ = short_repr
    KEYS = ("run", "folder", "fetched", "skipped", "errors")
    NAMES: ClassVar = {"fetched": "files", "skipped": "left"}

    folder: Path
    """The folder of the files on the controller."""
    fetched: tuple[Output, ...]
    """What was fetched."""
    skipped: tuple[SkippedOutput, ...]
    """What was not."""
    errors: tuple[TfdeployError, ...] = ()
    """The errors of tasks that gave no file."""
    run: str = ""
    """The run's id."""


def fetch(
    fleet: Fleet, run: Run, task: str, paths: Sequence[str], on: Sequence[str] = ()
) -> FetchResult:
    """Fetch files and folders by their paths: relative to the task's directory, or absolute.

    `task` and `on` are as in planning/plan.py. Raises RunError if a path does not exist,
    before any is fetched, else as `collect` does; for several tasks only if no task gave a file.
    """
    results: list[FetchResult] = []
    errors: list[TfdeployError] = []
    for placement in select_placements(run.plan, [task], on):
        try:
            results.append(_fetch_from(fleet, run, placement, paths))
        except TfdeployError as error:
            errors.append(error)
    if not results:
        raise_all(errors)
    if len(results) == 1:
        return replace(results[0], errors=tuple(errors))
    return FetchResult(
        run.folder / FETCHED,
        tuple(output for result in results for output in result.fetched),
        tuple(skipped for result in results for skipped in result.skipped),
        tuple(errors),
        run.id,
    )


def _fetch_from(fleet: Fleet, run: Run, placement: Placement, paths: Sequence[str]) -> FetchResult:
    task, agent = str(placement.task), fleet.agents[placement.host]
    dest = fetched_folder(run, placement)
    with exclusive(run, fleet.transfers), disk_errors(agent, run):
        units = parse_units(agent, _find(agent, run, placement, paths))
        safe = [unit for unit in units if is_safe(unit)]
        incoming = run.open() / ".incoming-fetched"
        request = task_request(run, placement)
        fetched, failed = run_alone(
            agent, lambda pipeline: fetch_units(pipeline, request, safe, incoming, dest)
        )
    unsafe = [unit.path for unit in units if not is_safe(unit)]
    why = {**dict.fromkeys(unsafe, "its name is not allowed on the controller"), **failed}
    sizes = {unit.path: unit.size for unit in units}
    return FetchResult(
        dest.path,
        tuple(Output(task, str(dest.path), local_path(unit.path), unit.size) for unit in fetched),
        tuple(SkippedOutput(task, agent.host, p, sizes[p], reason) for p, reason in why.items()),
        run=run.id,
    )


def fetched_folder(run: Run, placement: Placement) -> OwnFolder:
    """Return where the fetched files of a task are stored on the controller."""
    return run.open() / f"{FETCHED}/{placement.task.file_name}"


def _find(agent: Agent, run: Run, placement: Placement, paths: Sequence[str]) -> list[Unit]:
    request = FindFiles(**task_request(run, placement), names=[*paths])
    answer = agent.ask(request, HOLD_TIMEOUT_S)
    if answer.missing:
        links = [each.link for each in answer.missing if each.link]
        flags = " ".join(filter(None, (str(placement.task), run.flags)))
        words = " ".join(map(quote_path, links))
        hint = f"to fetch it: tfdeploy fetch {flags} {words}" if links else ""
        raise RunError("\n".join(_missing(placement, each) for each in answer.missing), hint)
    return answer.found


def _missing(placement: Placement, missing: MissingPath) -> str:
    names, name = ", ".join(map(escape_line, missing.beside)), escape_line(missing.name)
    place = f"{placement.task} on {placement.host}"
    if missing.link:
        link = escape_line(missing.link)
        return f"{place}: {name} is a link, which fetch does not follow, to {link}"
    if missing.folder:
        folder = "its directory" if missing.name == "." else name
        only = (
            f"; it has only files of the release, links and empty folders: {names}" if names else ""
        )
        return f"{place} has written no file in {folder}{only}"
    if missing.what:
        return f"{place}: {name} is {escape_line(missing.what)}, which fetch cannot fetch"
    nearest = f"; the nearest existing folder has: {names}" if names else ""
    return f"{place} has no file {name}{nearest}"
