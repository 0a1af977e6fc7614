"""Copy the chief's other outputs to the hosts that keep replicas of its checkpoints.

<root>/<project>/runs/<run>/replica-outputs/work/     the same layout as the chief's own directory

The chief's supervisor offers them (offered_files.py); a file that changes is fetched again.
"""

from __future__ import annotations

import os

from ....shared import TYPE_CHECKING, filesystem
from ....shared.protocol.outputs import REPLICAS, OutputUnit, ReplicatedOutputs
from ....shared.units import Unit, Walk
from ... import paths
from ...outputs import listing
from .. import signing
from . import evaluator_files
from .offered_files import OfferedFiles, fetch_list, fetch_unit, is_current, paths_of

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List

    from ....shared.records import Launch

    Json = Dict[str, Any]
    Units = List[OutputUnit]


class OutputsOffer:
    """The chief's side. `announced` is what the heartbeat announces: the list's `{name, size}`."""

    def __init__(self, launch: Launch, task_dir: str) -> None:
        self.announced: Json = {}
        self.files = OfferedFiles(paths.work(task_dir))
        self._launch = launch
        self._changes = listing.OutputWatch(launch.project, launch.run, launch.task)

    def update(self) -> None:
        """Announce a new list if files have changed and are no longer being written."""
        if not self._launch.outputs.copied_bytes or not self._changes.poll():
            return
        outputs = listing.outputs(self._launch.project, self._launch.run, self._launch.task)
        units = _newest(self._copied(outputs.outputs), self._launch.outputs.copied_bytes)
        self.announced = self.files.replace(units)

    def _copied(self, units: Units) -> Units:
        """Return the units that other hosts need: all, or those in the evaluator's folder."""
        folder = self._launch.outputs.copied_from
        return [u for u in units if not folder or evaluator_files.is_below(folder, u.path)]


def fetch(launch: Launch, offer: Json) -> None:
    """Fetch new outputs, unit by unit, and delete those that are no longer offered.

    A unit that changes meanwhile does not delay the others. Raises OSError; for the first unit that
    has changed, after all others have arrived, ValueError or signing.Untrusted.
    """
    folder = paths.work(paths.task(launch.project, launch.run, REPLICAS))
    incoming = os.path.join(os.path.dirname(folder), ".incoming-work")
    filesystem.remove_folder(incoming)
    os.makedirs(incoming)
    units = fetch_list(launch.heartbeat, offer)
    changed: List[Exception] = []
    for unit in units:
        try:
            if not is_current(folder, unit):
                fetch_unit(launch.heartbeat, unit, incoming, folder)
            if launch.links and is_current(folder, unit):
                evaluator_files.link_unit(launch, folder, unit)
        except (ValueError, signing.Untrusted) as error:
            changed.append(error)
    _remove_others(launch, folder, units)
    filesystem.remove_folder(incoming)
    if changed:
        raise changed[0]


def replicated_outputs(project: str, run: str) -> ReplicatedOutputs:
    """List this host's replica. `hold` takes its units as those of a task REPLICAS."""
    return ReplicatedOutputs([unit.to_message() for unit in replica_units(Walk(), project, run)])


def replica_units(walk: Walk, project: str, run: str) -> Iterator[Unit]:
    """Yield the units of this host's replica."""
    return walk.units(paths.work(paths.task(project, run, REPLICAS)), "")


def _newest(units: Units, limit_bytes: int) -> Units:
    """Return the first units that fit into `limit_bytes`; the newest are first."""
    chosen = []
    for unit in units:
        if unit.size <= limit_bytes:
            chosen.append(unit)
            limit_bytes -= unit.size
    return chosen


def _remove_others(launch: Launch, folder: str, units: Units) -> None:
    offered = {path.lstrip("/") for unit in units for path in paths_of(unit)}
    for unit in Walk().units(folder, ""):
        for path in set(unit.files) - offered:
            if launch.links:
                evaluator_files.unlink_file(launch, folder, path)
            os.remove(os.path.join(folder, path))
