"""Find what is damaged of a task's files on its host, by what was collected of them.

The host compares (agent/outputs/compare.py): only hashes are sent, and only files that a script
could continue from are read.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdeploy.results.fetch import HOLD_TIMEOUT_S
from tfdeploy.results.hashes import Hashes
from tfdeploy.results.run_folder import outputs_folder, task_request
from tfdeploy.results.units import local_path
from tfdeploy.shared.protocol.outputs import CollectedFile, CollectedUnit, CompareUnits, Unit
from tfdeploy.shared.units import SET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run


def find_damaged(
    agent: Agent,
    run: Run,
    placement: Placement,
    present: Mapping[str, Unit],
    stored: Iterable[Unit],
) -> dict[str, str]:
    """Return why units of a task that has ended are damaged on its host, by path.

    `present` are its units there, `stored` those that the controller has of it.
    """
    hashes = Hashes(run, outputs_folder(run, placement))
    own = {unit.path: unit for unit in stored}
    wanted = {path for path in present if path in own} | _newest_of_folders(present.values())
    wanted |= {unit.path for unit in (*own.values(), *present.values()) if unit.kind == SET}
    units = [_collected(present.get(path), own.get(path), hashes) for path in sorted(wanted)]
    if not units:
        return {}
    request = CompareUnits(**task_request(run, placement), units=units)
    with agent.transfers.begin(agent.host, note="comparing its files with the collected ones"):
        answer = agent.ask(request, HOLD_TIMEOUT_S)
    return {each.path: each.error for each in answer.damaged if each.path in wanted}


def _newest_of_folders(units: Iterable[Unit]) -> set[str]:
    """Return the path of the newest unit of each folder: what a script continues from."""
    by_age = sorted(units, key=lambda unit: unit.mtime_ns)
    return {*{posixpath.dirname(unit.path): unit.path for unit in by_age}.values()}


def _collected(present: Unit | None, stored: Unit | None, hashes: Hashes) -> CollectedUnit:
    unit = stored or present
    assert unit
    files = {path: (*stamp, "") for path, stamp in (present.files if present else {}).items()}
    for path, stamp in (stored.files if stored else {}).items():
        files[path] = (*stamp, hashes.of(local_path(path)))
    return CollectedUnit(
        unit.path, unit.kind, [CollectedFile(path, *values) for path, values in files.items()]
    )
