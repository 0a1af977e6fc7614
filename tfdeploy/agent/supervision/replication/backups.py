"""Give the chief's newest checkpoints to the other workers of a synchronous run, before they start.

All workers must continue from the same step, and only the chief saves: Keras' BackupAndRestore and
programs after TensorFlow's guides restore every worker from the chief's folder, which they expect
on a shared disk. So a worker's supervisor fetches the newest checkpoint of each such folder before
each start but the first one of the run. A folder in which the worker itself has saved stays as it
is.
"""

from __future__ import annotations

import os
import sys
import time

from ....shared import filesystem, state_file
from ....shared.protocol.outputs import Unit
from ....shared.records import Launch
from ....shared.units import SET, Walk
from ... import paths
from ...outputs import listing
from ...releases import release_files
from ..heartbeat import client, signing
from ..heartbeat.messages import Offer, Question
from . import offered_files

# For how long a worker tries: after a resume, the chief's supervisor may start later than its own.
LIMIT_S = 60.0
RETRY_S = 1.0


class BackupOffer:
    """The chief's side."""

    def __init__(self, launch: Launch, task_dir: str) -> None:
        self._work, self._of_release = paths.work(task_dir), release_files.of_launch(launch)
        self.files = offered_files.OfferedFiles(self._work)

    def update(self) -> Offer:
        """Offer the newest complete checkpoint of each folder; return the offer of the list."""
        units = []
        for unit in Walk().units(self._work, ""):
            folder, name = os.path.split(unit.path)
            saved = state_file.read(os.path.join(self._work, folder)) if unit.kind == SET else []
            if saved[:1] == [name] and not self._of_release.have_all(self._work, unit.files):
                units.append(unit)
        return self.files.replace(units)


def fetch(launch: Launch, task_dir: str) -> None:
    """Fetch the chief's newest checkpoints, and remove those that it has no longer. Gives up after
    LIMIT_S seconds, and says why in supervisor.log: the program decides what follows."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            _fetch_once(launch, task_dir)
            return
        except (OSError, ValueError, signing.Untrusted) as error:
            if time.monotonic() > deadline:
                print("no checkpoints from the chief: {}".format(error), file=sys.stderr)
                return
        time.sleep(RETRY_S)


def _fetch_once(launch: Launch, task_dir: str) -> None:
    work, before = paths.work(task_dir), listing.load_given(task_dir)
    incoming = paths.incoming_for(task_dir, "backup")
    answer, _ = client.request(launch.heartbeat, Question(backup=True, known_lists=None))
    if not answer.backup:
        raise ValueError("the chief's supervisor offers none")
    listed = offered_files.fetch_list(launch.heartbeat, answer.backup)
    units = [unit for unit in listed if _may_place(task_dir, before, unit)]
    offered = {path: stamp for unit in units for path, stamp in unit.files.items()}
    # First: a supervisor that is killed leaves no stray copy.
    listing.store_given(task_dir, {**before, **offered})
    for unit in units:
        if not offered_files.is_current(work, unit):
            filesystem.remove_folder(incoming)
            os.makedirs(incoming)
            offered_files.fetch_unit(launch.heartbeat, unit, incoming, work)
    filesystem.remove_folder(incoming)
    old = {path: stamp for path, stamp in before.items() if path not in offered}
    own = {path: old[path] for path in old if _is_own(task_dir, before, os.path.dirname(path))}
    _remove(task_dir, {path: old[path] for path in old if path not in own})
    for unit in units:
        folder, name = os.path.split(unit.path)
        state_file.write(os.path.join(work, folder), name)
    listing.store_given(task_dir, {**own, **offered})


def _may_place(task_dir: str, before: listing.Files, unit: Unit) -> bool:
    """Return whether a checkpoint may be placed: not where the worker has saved by itself, and not
    through a link, for example into the release. All of its files are in one folder."""
    work, folder = paths.work(task_dir), os.path.dirname(unit.path)
    place, root = os.path.join(work, folder), os.path.realpath(work)
    is_inside = os.path.realpath(place) == os.path.normpath(os.path.join(root, folder))
    folders = {os.path.dirname(path) for path in [unit.path, *unit.files]}
    is_set = unit.kind == SET and folders == {folder} and not unit.path.startswith("/")
    return is_set and is_inside and not _is_own(task_dir, before, folder)


def _is_own(task_dir: str, before: listing.Files, folder: str) -> bool:
    """Return whether the worker itself has saved in a folder of its directory."""
    saved = state_file.read(os.path.join(paths.work(task_dir), folder))
    return bool(saved) and not listing.names_given(task_dir, before, folder)


def _remove(task_dir: str, old: listing.Files) -> None:
    """Remove given files that are as they were, and state files that name none of the others."""
    work = paths.work(task_dir)
    for path, stamp in old.items():
        place = os.path.join(work, path)
        if filesystem.stamp(place)[:2] == stamp:
            os.remove(place)
    for folder in {os.path.dirname(path) for path in old}:
        if listing.names_given(task_dir, old, folder):
            os.remove(os.path.join(work, folder, state_file.STATE))
