"""Copy the chief's newest checkpoint to other hosts, without the controller and without SSH keys.

The chief's supervisor offers it through the heartbeat (heartbeat/): kept open, so that it can be
read after TensorFlow has deleted it, in pieces by the tasks that the plan has chosen. Each copy
costs the chief one read of the files and one SHA-256, the network one transfer, and the peer's disk
one copy.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Callable, Dict, List, Optional

from ....shared import filesystem, records, state_file
from ....shared.protocol.outputs import CHECKPOINT
from ....shared.records import Launch
from ... import paths
from ...outputs import checkpoints, install
from ..heartbeat import signing
from ..heartbeat.client import HeartbeatClient, fetch_file
from ..heartbeat.messages import Offer, OfferedFile
from ..heartbeat.server import HeartbeatServer
from . import backups, offered_files

CHECK_EVERY_S = 1.0
# While a peer fetches a checkpoint, it is not withdrawn for a newer one; otherwise slow peers might
# never get a complete copy.
FETCH_GAP_S = 5.0
FAILED_PAUSE_S = 15.0


class CheckpointOffer:
    """The chief's side. The heartbeat server calls `read` for each piece of a file."""

    def __init__(
        self, launch: Launch, task_dir: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._is_wanted = bool(launch.heartbeat.replicas)
        self._folder = paths.checkpoints(task_dir, launch.directory.checkpoint_dir)
        self._offered: Optional[checkpoints.OpenCheckpoint] = None
        self._lock = threading.Lock()  # a descriptor that is closed may become another file's
        has_outputs = self._is_wanted and launch.outputs.copied_bytes
        self._outputs = offered_files.OutputsOffer(launch, task_dir) if has_outputs else None
        self._launch, self._task_dir = launch, task_dir
        self._backup: Optional[backups.BackupOffer] = None
        self._backup_lock = threading.Lock()  # another one: the folder may be large
        self._read_at = -FETCH_GAP_S

    def start(self, server: HeartbeatServer) -> None:
        """Keep the offers of `server` up to date, in a thread."""
        if self._is_wanted:
            threading.Thread(target=self._update_forever, args=(server,), daemon=True).start()

    def read(self, file: str, offset: int) -> bytes:
        """Return a piece of an offered file. Raises ValueError for any other file."""
        for listed in [offer.files for offer in (self._outputs, self._backup) if offer]:
            if listed.has(file):
                return listed.read(file, offset)
        with self._lock:
            if not self._offered or file not in self._offered.files:
                raise ValueError("{!r} is not offered".format(file))
            self._read_at = self._clock()
            return os.pread(self._offered.files[file], offered_files.PIECE, offset)

    def offer_backup(self) -> Offer:
        """Offer what synchronous workers need before they start (backups.py)."""
        with self._backup_lock:
            self._backup = self._backup or backups.BackupOffer(self._launch, self._task_dir)
            return self._backup.update()

    def close(self) -> None:
        self._offer(None)

    def update(self, server: HeartbeatServer) -> None:
        """Offer the newest checkpoint, unless a peer fetches the offered one, and the outputs."""
        with suppress(OSError):  # too many open files: the next update tries again
            if self._clock() > self._read_at + FETCH_GAP_S and os.path.isdir(self._folder):
                self._offer_newest(server)
            if self._outputs:
                self._outputs.update()
                server.outputs = self._outputs.announced

    def _update_forever(self, server: HeartbeatServer) -> None:
        while True:
            self.update(server)
            time.sleep(CHECK_EVERY_S)

    def _offer_newest(self, server: HeartbeatServer) -> None:
        if not self._offered or not self._offered.is_newest_in(self._folder):
            self._offer(next(iter(checkpoints.open_complete(self._folder, False)), None))
        server.checkpoint = _to_offer(self._offered) if self._offered else None

    def _offer(self, checkpoint: Optional[checkpoints.OpenCheckpoint]) -> None:
        with self._lock:
            if self._offered:
                self._offered.close()
            self._offered = checkpoint


def _to_offer(checkpoint: checkpoints.OpenCheckpoint) -> Offer:
    files = checkpoint.describe().files
    return Offer(checkpoint.name, files=[OfferedFile(each.path, each.size) for each in files])


def start_fetching(
    launch: Launch, client: HeartbeatClient, *,
    every_s: float = CHECK_EVERY_S, pause_s: float = FAILED_PAUSE_S,
) -> None:  # fmt: skip
    """Fetch what the chief offers, in a thread, if the plan has chosen this task for replicas.
    After a failure it waits for `pause_s`."""
    if launch.task in launch.heartbeat.replicas:
        words = (launch, client, every_s, pause_s)
        threading.Thread(target=_fetch_forever, args=words, daemon=True).start()


def _fetch_forever(launch: Launch, client: HeartbeatClient, every_s: float, pause_s: float) -> None:
    fetched: Dict[str, str] = {}
    retry_at: Dict[str, float] = {}
    while True:
        answer = client.answer
        for kind, fetch, offer in (
            ("checkpoint", _fetch_checkpoint, answer.checkpoint),
            ("outputs", offered_files.fetch_outputs, answer.outputs),
        ):
            is_paused = time.monotonic() < retry_at.get(kind, 0.0)
            if offer and offer.name != fetched.get(kind) and not is_paused:
                try:
                    fetch(launch, offer)
                    fetched[kind] = offer.name
                except (OSError, ValueError, signing.Untrusted):
                    # Withdrawn for a newer one, disconnected, or this host's disk is full.
                    filesystem.remove_folder(_incoming_dir(launch))
                    retry_at[kind] = time.monotonic() + pause_s
        time.sleep(every_s)


def _fetch_checkpoint(launch: Launch, offer: Offer) -> None:
    """Fetch a checkpoint next to the older one, which is deleted when it is complete."""
    folder = paths.replica_dir(launch.project, launch.run)
    incoming = _incoming_dir(launch)
    filesystem.remove_folder(incoming)
    os.makedirs(incoming)
    for file in offer.files:
        _fetch_file(launch, file.path, file.size, incoming)
    # An evaluator may be reading the one before, and may write its own checkpoints to this folder.
    record = paths.replica(launch.project, launch.run)
    before = records.read_or_empty(list, record)  # the names of those that were fetched
    copied = [name for name in before if name != offer.name] + [offer.name]
    keep = 2 if launch.directory.links else 1
    install.install(incoming, folder, offer.name, CHECKPOINT, os.listdir(incoming))
    _remove(folder, copied[:-keep])
    records.write(record, copied[-keep:])
    state_file.write(folder, offer.name)  # without the removed ones
    filesystem.remove_folder(incoming)


def _remove(folder: str, names: List[str]) -> None:
    for file in os.listdir(folder):
        if any(state_file.is_part(file, name) for name in names):
            os.remove(os.path.join(folder, file))


def _incoming_dir(launch: Launch) -> str:
    return paths.incoming_for(paths.run(launch.project, launch.run), "replica")


def _fetch_file(launch: Launch, name: str, size: int, incoming: str) -> None:
    if os.path.basename(name) != name:
        raise ValueError("{!r} is not a file name".format(name))
    with open(os.path.join(incoming, name), "wb") as target:
        fetch_file(launch.heartbeat, name, size, target)
        target.flush()
        os.fsync(target.fileno())
