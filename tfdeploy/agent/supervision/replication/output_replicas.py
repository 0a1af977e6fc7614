"""Copy the chief's other outputs to the hosts that keep replicas of its checkpoints.

<root>/<project>/runs/<run>/replica-outputs/work/     the same layout as the chief's own directory

The chief's supervisor offers a list of its files through the heartbeat (heartbeat.py). It returns a
piece of a file only while the file is as in the list; a file that changes is listed and fetched
again.
"""

from __future__ import annotations

import json
import os

from ....shared import TYPE_CHECKING, filesystem
from ....shared.protocol.message import parse
from ....shared.protocol.outputs import REPLICAS, OutputUnit, ReplicatedOutputs
from ....shared.protocol.record import to_json
from ....shared.units import Unit, Walk
from ... import paths
from ...outputs import install, integrity, listing
from .. import heartbeat, signing
from . import evaluator_files

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

    from ....shared.records import Launch

    Json = Dict[str, Any]
    Units = List[OutputUnit]

PIECE = 1 << 20
LIST = ".outputs"


class OutputsOffer:
    """The chief's side. `announced` is what the heartbeat announces: the list's `{name, size}`."""

    def __init__(self, launch: Launch, task_dir: str) -> None:
        self.announced: Json = {}
        self._launch = launch
        self._work = paths.work(task_dir)
        self._changes = listing.OutputWatch(launch.project, launch.run, launch.task)
        self._lists: Dict[str, bytes] = {}
        self._files: Dict[str, Tuple[int, int]] = {}

    def update(self) -> None:
        """Announce a new list if files have changed and are no longer being written."""
        if not self._launch.outputs.copied_bytes or not self._changes.poll():
            return
        outputs = listing.outputs(self._launch.project, self._launch.run, self._launch.task)
        units = _newest(self._copied(outputs.outputs), self._launch.outputs.copied_bytes)
        text = json.dumps(to_json(units)).encode()
        name = "{}-{}".format(LIST, os.urandom(4).hex())
        self._files = {path: (size, mtime) for u in units for path, size, mtime in u.files}
        self._lists = {name: text}
        self.announced = {"name": name, "size": len(text)}

    def _copied(self, units: Units) -> Units:
        """Return the units that other hosts need: all, or those in the evaluator's folder."""
        folder = self._launch.outputs.copied_from
        return [u for u in units if not folder or evaluator_files.is_below(folder, u.path)]

    def has(self, file: str) -> bool:
        return file in self._lists or file in self._files

    def read(self, file: str, offset: int) -> bytes:
        """Return a piece of the list or of a file. Raises ValueError if the file has changed."""
        if file in self._lists:
            return self._lists[file][offset : offset + PIECE]
        with open(os.path.join(self._work, file), "rb") as source:
            source.seek(offset)
            piece = source.read(PIECE)
            info = os.fstat(source.fileno())
        if (info.st_size, info.st_mtime_ns) != self._files[file]:
            raise ValueError("{} has changed".format(file))
        return piece


def fetch(launch: Launch, offer: Json) -> None:
    """Fetch new outputs, unit by unit, and delete those that are no longer offered.

    A unit that changes meanwhile does not delay the others. Raises OSError; for the first unit that
    has changed, after all others have arrived, ValueError or signing.Untrusted.
    """
    folder = paths.work(paths.task(launch.project, launch.run, REPLICAS))
    incoming = os.path.join(os.path.dirname(folder), ".incoming-work")
    filesystem.remove_folder(incoming)
    os.makedirs(incoming)
    list_path = os.path.join(incoming, LIST)
    with open(list_path, "wb") as target:
        heartbeat.fetch_file(launch.heartbeat, offer["name"], int(offer["size"]), target)
    with open(list_path, encoding="utf-8") as file:
        listed = [parse(OutputUnit, unit) for unit in json.load(file)]
    units = [unit for unit in listed if _is_safe(unit)]
    changed: List[Exception] = []
    for unit in units:
        try:
            if not _is_current(folder, unit):
                _fetch_unit(launch, unit, incoming, folder)
            if launch.links and _is_current(folder, unit):
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


def _is_safe(unit: OutputUnit) -> bool:
    return not any(".." in path.split("/") for path in [unit.path, *_paths(unit)])


def _paths(unit: OutputUnit) -> List[str]:
    return [path for path, _, _ in unit.files]


def _is_current(folder: str, unit: OutputUnit) -> bool:
    """Return whether the folder has the unit's files with the listed sizes and times."""
    for path, size, mtime_ns in unit.files:
        try:
            info = os.lstat(os.path.join(folder, path.lstrip("/")))
        except OSError:
            return False
        if (info.st_size, info.st_mtime_ns) != (size, mtime_ns):
            return False
    return True


def _fetch_unit(launch: Launch, unit: OutputUnit, incoming: str, folder: str) -> None:
    """Fetch a unit and install it, unless its content is broken; then the older one stays."""
    for path, size, mtime_ns in unit.files:
        target = os.path.join(incoming, path.lstrip("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            heartbeat.fetch_file(launch.heartbeat, path, size, file)
        os.utime(target, ns=(mtime_ns, mtime_ns))
    path = unit.path.lstrip("/")
    if not integrity.format_error(incoming, path, unit.kind):
        files = [file.lstrip("/") for file in _paths(unit)]
        install.install(incoming, folder, path, unit.kind, files)


def _remove_others(launch: Launch, folder: str, units: Units) -> None:
    offered = {path.lstrip("/") for unit in units for path in _paths(unit)}
    for unit in Walk().units(folder, ""):
        for path in set(unit.files) - offered:
            if launch.links:
                evaluator_files.unlink_file(launch, folder, path)
            os.remove(os.path.join(folder, path))
