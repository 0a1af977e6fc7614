"""Files that the chief's supervisor offers to those of other hosts: a list, then each in pieces;
and the copies of the chief's outputs on the hosts that keep replicas of its checkpoints.

<root>/<project>/runs/<run>/replica-outputs/work/     the same layout as the chief's own directory

Both go through the heartbeat (heartbeat/). A piece of a file is sent only while the file is as in
the list. A supervisor that gets an error fetches the list again.

The `checkpoint_dir` of an evaluator on another host is a link to the folder of the replica
(replicas.py). The copies are hard-linked into it, under the chief's paths.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from typing import Dict, Iterator, List, Optional, Tuple

from ....shared import filesystem, records, state_file
from ....shared.filesystem import stamp
from ....shared.protocol.message import Invalid, parse
from ....shared.protocol.outputs import REPLICAS, ReplicatedOutputs, Unit
from ....shared.protocol.record import to_json
from ....shared.records import HeartbeatSettings, Launch
from ....shared.units import ANY, FOLDER, SAVED_MODEL, Walk
from ... import paths
from ...outputs import install, integrity, listing
from ..heartbeat import client, signing
from ..heartbeat.messages import Offer

Units = List[Unit]


PIECE = 1 << 20
LIST = ".list-"


class OfferedFiles:
    """The chief's side: what is offered of a folder. Threads of the heartbeat's server read it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lists: Dict[str, bytes] = {}
        self._files: Dict[str, Tuple[int, int]] = {}

    def replace(self, units: Units) -> Offer:
        """Offer these units instead of the former ones. Return the offer of their list, which has
        another name if anything differs."""
        text = json.dumps(to_json(units), sort_keys=True).encode()
        name = LIST + hashlib.sha256(text).hexdigest()[:16]
        self._files = {path: stamp for unit in units for path, stamp in unit.files.items()}
        self._lists = {name: text}
        return Offer(name, len(text))

    def has(self, file: str) -> bool:
        return file in self._lists or file in self._files

    def read(self, file: str, offset: int) -> bytes:
        """Return a piece of the list or of a file. Raises ValueError if the file has changed."""
        text = self._lists.get(file)
        if text is not None:
            return text[offset : offset + PIECE]
        descriptor = filesystem.open_regular(os.path.join(self._folder, file), 0)
        with os.fdopen(descriptor, "rb") as source:
            source.seek(offset)
            piece = source.read(PIECE)
            info = os.fstat(source.fileno())
        if (info.st_size, info.st_mtime_ns) != self._files.get(file):
            raise ValueError("{} has changed".format(file))
        return piece


def fetch_list(settings: HeartbeatSettings, offer: Offer) -> Units:
    """Return the units of an offer, without those whose paths leave their folder.

    Raises OSError, ValueError or signing.Untrusted.
    """
    text = io.BytesIO()
    client.fetch_file(settings, offer.name, offer.size, text)
    try:
        units = [parse(Unit, unit) for unit in json.loads(text.getvalue())]
    except (Invalid, TypeError) as error:  # even the chief's host may lie
        raise ValueError("the list is invalid: {}".format(error)) from None
    return [unit for unit in units if _is_safe(unit)]


def fetch_unit(settings: HeartbeatSettings, unit: Unit, incoming: str, folder: str) -> None:
    """Fetch a unit and install it, unless its content is broken; then the older one stays.

    Raises as `fetch_list` does.
    """
    for path, (size, mtime_ns) in unit.files.items():
        target = os.path.join(incoming, path.lstrip("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            client.fetch_file(settings, path, size, file)
        os.utime(target, ns=(mtime_ns, mtime_ns))
    path = unit.path.lstrip("/")
    if not integrity.format_error(incoming, path, unit.kind):
        files = [file.lstrip("/") for file in unit.files]
        install.install(incoming, folder, path, unit.kind, files)


def is_current(folder: str, unit: Unit) -> bool:
    """Return whether the folder has the unit's files with the listed sizes and times."""
    return all(
        stamp(os.path.join(folder, path.lstrip("/")))[:2] == listed
        for path, listed in unit.files.items()
    )


def _is_safe(unit: Unit) -> bool:
    return not any(".." in path.split("/") for path in [unit.path, *unit.files])


INCOMING_LINKS = ".incoming-links"


class OutputsOffer:
    """The chief's side. `announced` is what the heartbeat announces: the list, if it has any."""

    def __init__(self, launch: Launch, task_dir: str) -> None:
        self.announced: Optional[Offer] = None
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
        return [u for u in units if not folder or is_below(folder, u.path)]


def fetch_outputs(launch: Launch, offer: Offer) -> None:
    """Fetch new outputs, unit by unit, and delete those that are no longer offered.

    A unit that changes meanwhile does not delay the others. Raises OSError; for the first unit that
    has changed, after all others have arrived, ValueError or signing.Untrusted.
    """
    folder = paths.work(paths.task(launch.project, launch.run, REPLICAS))
    incoming = os.path.join(os.path.dirname(folder), ".incoming-work")
    filesystem.remove_folder(incoming)
    os.makedirs(incoming)
    units = fetch_list(launch.heartbeat, offer)
    checkpoints = _fetched_checkpoints(launch)
    changed: List[Exception] = []
    for unit in units:
        try:
            if not is_current(folder, unit):
                fetch_unit(launch.heartbeat, unit, incoming, folder)
            if launch.directory.links and is_current(folder, unit):
                link_unit(launch, folder, unit, checkpoints)
        except (ValueError, signing.Untrusted) as error:
            changed.append(error)
    _remove_others(launch, folder, units, checkpoints)
    filesystem.remove_folder(incoming)
    if changed:
        raise changed[0]


def replicated_outputs(project: str, run: str) -> ReplicatedOutputs:
    """List this host's replica. `hold` takes its units as those of a task REPLICAS."""
    return ReplicatedOutputs([*replica_units(Walk(), project, run)])


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


def _remove_others(launch: Launch, folder: str, units: Units, checkpoints: List[str]) -> None:
    offered = {path.lstrip("/") for unit in units for path in unit.files}
    for unit in Walk().units(folder, ""):
        for path in set(unit.files) - offered:
            if launch.directory.links:
                unlink_file(launch, folder, path, checkpoints)
            os.remove(os.path.join(folder, path))


def link_unit(launch: Launch, copies: str, unit: Unit, checkpoints: List[str]) -> None:
    """Link a unit of the folder `copies` into the evaluator's `checkpoint_dir`, if it belongs there
    and is not linked yet. `checkpoints` are those that were fetched there. Raises OSError."""
    names = [*unit.files]
    if not all(_is_the_evaluators(launch, path, checkpoints) for path in [unit.path, *names]):
        return
    if all(_is_linked(launch, copies, path) for path in names):
        return
    incoming = os.path.join(os.path.dirname(copies), INCOMING_LINKS)
    filesystem.remove_folder(incoming)
    for path in names:
        target = os.path.join(incoming, _relative(launch, path))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        filesystem.link_or_copy(os.path.join(copies, path), target)
    path, files = _relative(launch, unit.path), [_relative(launch, file) for file in names]
    # A model may be the whole folder. Other files that the evaluator has there must stay.
    is_everything = path == "." and unit.kind in (FOLDER, SAVED_MODEL)
    kind = ANY if is_everything else unit.kind
    install.install(incoming, _folder(launch), path, kind, files)
    filesystem.remove_folder(incoming)


def unlink_file(launch: Launch, copies: str, path: str, checkpoints: List[str]) -> None:
    """Remove a file from the evaluator's folder, if it is still the copy. Raises OSError."""
    if _is_the_evaluators(launch, path, checkpoints) and _is_linked(launch, copies, path):
        os.remove(os.path.join(_folder(launch), _relative(launch, path)))


def is_below(folder: str, path: str) -> bool:
    """Return whether a file of the chief is in `folder`.

    False for TensorFlow's state file: the replica has its own, which names the checkpoints on this
    host.
    """
    relative = os.path.relpath(path, folder)
    return relative.split("/")[0] != ".." and relative != state_file.STATE


def _fetched_checkpoints(launch: Launch) -> List[str]:
    """Return the names of the checkpoints in this host's replica (replicas.py)."""
    return records.read_or_empty(list, paths.replica(launch.project, launch.run))


def _is_the_evaluators(launch: Launch, path: str, checkpoints: List[str]) -> bool:
    """Return whether an output of the chief belongs into the evaluator's folder: the files of a
    checkpoint that was fetched are no outputs, though they were until the chief named it."""
    name = _relative(launch, path)
    is_fetched = any(state_file.is_part(name, checkpoint) for checkpoint in checkpoints)
    return is_below(launch.directory.checkpoint_dir, path) and not is_fetched


def _folder(launch: Launch) -> str:
    return paths.replica_dir(launch.project, launch.run)


def _relative(launch: Launch, path: str) -> str:
    return os.path.relpath(path, launch.directory.checkpoint_dir)


def _is_linked(launch: Launch, copies: str, path: str) -> bool:
    """Return whether the evaluator's file is the copy: it may have its own file of this name."""
    linked = stamp(os.path.join(_folder(launch), _relative(launch, path)))[:2]
    return linked == stamp(os.path.join(copies, path))[:2] != ()
