"""Find the run that a name means, if several runs have it: a live one before those that ended."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.agent.protocol.runs import ListRecords
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line, format_count
from tfdeploy.hosts.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tfdeploy.commands.plan import Intent
    from tfdeploy.run import Run


class SeveralLiveRuns(RunError):
    """A name means several live runs: `live`, the newest first."""

    def __init__(self, live: list[Run]) -> None:
        lines = (f"\n  {number}  {_describe(run)}" for number, run in enumerate(live, 1))
        super().__init__(
            f'{len(live)} live runs are named "{live[0].name}":{"".join(lines)}',
            f"type the id of one instead of the name, such as {live[0].id}",
        )
        self.live = live


def resolve_name(newest: Run, run_id: str | None, require_trust: Callable[[Run], None]) -> Run:
    """Return the run that `run_id` means, of which `newest` is the newest run: this one, unless
    `run_id` is a name that older runs have, too, and only one of them lives.

    `require_trust` is called before the hosts of another run are asked. Raises SeveralLiveRuns, and
    what `require_trust` raises.
    """
    if run_id != newest.name:
        return newest
    named = [newest, *runs.namesakes(newest)]
    for other in named[1:]:
        require_trust(other)
    live = _live(named) if len(named) > 1 else []
    if len(live) > 1:
        raise SeveralLiveRuns(live)
    return live[0] if live else newest


def namesake_warnings(fleet: Fleet, intent: Intent) -> list[TfdeployError]:
    """Return a warning if a live run has the name that the intent's run will have."""
    name = intent.options.name
    named = runs.ids_by_name(intent.inventory.file.parent / runs.FOLDER, name) if name else []
    live = _live_ids(fleet, intent.plan.hosts) if named else frozenset()
    found = [run_id for run_id in named if run_id in live]
    if not found:
        return []
    return [
        TfdeployError(
            f'a live run is named "{name}" already: {", ".join(found)}',
            "for commands about one of them, type its id instead of the name",
        )
    ]


def _live(named: list[Run]) -> list[Run]:
    """Return the runs of which a task or its supervisor lives, on a host that answers."""
    live: set[str] = set()
    asked: set[str] = set()
    for run in named:
        if hosts := [host for host in run.plan.hosts if host not in asked]:
            with Fleet(run.inventory) as fleet:
                live |= _live_ids(fleet, hosts)
            asked |= {*hosts}
    return [run for run in named if run.id in live]


def _live_ids(fleet: Fleet, hosts: Collection[str]) -> frozenset[str]:
    """Return the ids of the project's runs that live on these hosts, as far as they answer."""
    request = ListRecords(fleet.inventory.project)
    answers = fleet.outcomes(hosts, lambda agent: agent.ask(request).runs).values()
    known = (run for answer in answers if not isinstance(answer, TfdeployError) for run in answer)
    return frozenset(run.id for run in known if run.live)


def _describe(run: Run) -> str:
    tasks = format_count(len(run.plan.placements), "task")
    words = f"  -- {escape_line(shlex.join(run.words))}" if run.words else ""
    return f"{run.id}  {tasks} on {fold_names(run.plan.hosts)}{words}"
