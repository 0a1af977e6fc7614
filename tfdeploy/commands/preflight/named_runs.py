"""Find the run that a name means, if several runs have it: a live one before those that ended."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line, format_count
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.shared.protocol.runs import ListRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tfdeploy.commands.plan import Intent
    from tfdeploy.run import Run


class SeveralLiveRuns(RunError):
    """A name means several live runs: `live`, the newest first. If there are `silent` hosts, which
    do not answer, some of these runs are only possibly live."""

    def __init__(self, live: list[Run], silent: Collection[str] = ()) -> None:
        lines = (f"\n  {number}  {_describe(run)}" for number, run in enumerate(live, 1))
        kind = f"runs that are live, or may be on {fold_names(silent)}," if silent else "live runs"
        super().__init__(
            f'{len(live)} {kind} are named "{live[0].name}":{"".join(lines)}',
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
    live, silent = _ask(named) if len(named) > 1 else (frozenset(), frozenset())
    meant = choose(named, live, silent)
    if len(meant) > 1:
        raise SeveralLiveRuns(meant, [] if {run.id for run in meant} <= live else sorted(silent))
    return meant[0]


def choose(named: Sequence[Run], live: Collection[str], silent: Collection[str]) -> list[Run]:
    """Return which of these runs, the newest first, their name can mean: those in `live`, and each
    one that is newer and may live on one of the `silent` hosts; the newest run if none lives. Pure.
    """
    possible = [run for run in named if run.id in live or {*run.plan.hosts} & {*silent}]
    while possible and possible[-1].id not in live:
        possible.pop()
    return possible or [named[0]]


def namesake_warnings(fleet: Fleet, intent: Intent) -> list[TfdeployError]:
    """Return a warning if a live run has the name that the intent's run will have."""
    name = intent.options.name
    named = runs.ids_by_name(intent.inventory.file.parent / runs.FOLDER, name) if name else []
    live, _ = _ask_hosts(fleet, intent.plan.hosts) if named else (frozenset(), frozenset())
    found = [run_id for run_id in named if run_id in live]
    if not found:
        return []
    return [
        TfdeployError(
            f'a live run is named "{name}" already: {", ".join(found)}',
            "for commands about one of them, type its id instead of the name",
        )
    ]


def _ask(named: list[Run]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ids of live runs on the hosts of these runs, and the hosts that do not answer."""
    live, silent = frozenset[str](), frozenset[str]()
    asked: set[str] = set()
    for run in named:
        if hosts := [host for host in run.plan.hosts if host not in asked]:
            with Fleet(run.inventory) as fleet:
                found = _ask_hosts(fleet, hosts)
            live, silent = live | found[0], silent | found[1]
            asked |= {*hosts}
    return live, silent


def _ask_hosts(fleet: Fleet, hosts: Collection[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ids of the project's runs that live on these hosts: a task, or its supervisor,
    runs; and the hosts that do not answer."""
    request = ListRecords(fleet.inventory.project)
    answers = fleet.outcomes(hosts, lambda agent: agent.ask(request).runs)
    silent = frozenset(h for h, each in answers.items() if isinstance(each, TfdeployError))
    known = [each for each in answers.values() if not isinstance(each, TfdeployError)]
    return frozenset(run.id for of_host in known for run in of_host if run.live), silent


def _describe(run: Run) -> str:
    tasks = format_count(len(run.plan.placements), "task")
    words = f"  -- {escape_line(shlex.join(run.words))}" if run.words else ""
    return f"{run.id}  {tasks} on {fold_names(run.plan.hosts)}{words}"
