"""Copies of the chief's newest checkpoint on other hosts, with no laptop and no key on any host.

The chief's supervisor offers it through the circle (see circle.py): pinned by links, so that it
holds still, and read in pieces by those peers that the plan chose. It costs the chief one read of
the files and one SHA-256 a copy, the network one crossing a copy, and each peer's disk one copy.
"""

from __future__ import annotations

import os
import threading
import time

from . import TYPE_CHECKING, checkpoints, circle, paths, records, state_file, wire

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .circle import Asker, Beacon
    from .records import Launch

    Body = Dict[str, Any]

PIN = ".tfdeploy-offered"
COPIED = ".tfdeploy-copied"
PIECE = 1 << 20
PIECE_TIMEOUT_S = 60.0
LOOK_EVERY_S = 1.0
# A copy that is being fetched is not withdrawn for a newer one: else none might ever be whole.
FETCH_GAP_S = 5.0
FAILED_PAUSE_S = 15.0


class Offer:
    """The chief's side. `read` is what the circle answers fetches with."""

    def __init__(self, launch: Launch, task_dir: str) -> None:
        self._wanted = bool(launch.circle.replicas)
        self._folder = paths.checkpoints(task_dir, launch.checkpoint_dir)
        self._pin = os.path.join(self._folder, PIN)
        self._files: List[str] = []
        self._read_at = -FETCH_GAP_S

    def begin(self, beacon: Beacon) -> None:
        if self._wanted:
            threading.Thread(target=self._go_on_offering, args=(beacon,), daemon=True).start()

    def read(self, file: str, offset: int) -> bytes:
        """A piece of an offered file. Raises ValueError for any other."""
        if file not in self._files:
            raise ValueError("{!r} is not on offer".format(file))
        self._read_at = time.monotonic()
        with open(os.path.join(self._pin, file), "rb") as source:
            source.seek(offset)
            return source.read(PIECE)

    def close(self) -> None:
        if self._wanted:
            checkpoints.clear(self._pin)

    def _go_on_offering(self, beacon: Beacon) -> None:
        while True:
            if time.monotonic() > self._read_at + FETCH_GAP_S and os.path.isdir(self._folder):
                try:
                    self._offer_newest(beacon)
                except OSError:
                    pass  # no room for the links: look again
            time.sleep(LOOK_EVERY_S)

    def _offer_newest(self, beacon: Beacon) -> None:
        found = checkpoints.hold_newest(self._folder, self._pin)
        self._files = [file["path"] for file in found["files"]] if found else []
        beacon.checkpoint = found


def begin(launch: Launch, asker: Asker) -> None:
    """The other side, where the plan chose this task: fetch what is new, for as long as we live."""
    if launch.task in launch.circle.replicas:
        threading.Thread(target=_go_on_fetching, args=(launch, asker), daemon=True).start()


def folder(project: str, run: str) -> str:
    """Where a host keeps its copy: a checkpoint directory as TensorFlow knows it."""
    return os.path.join(paths.run(project, run), "replica")


def _go_on_fetching(launch: Launch, asker: Asker) -> None:
    held: Optional[str] = None
    while True:
        offered = asker.told.get("checkpoint")
        if offered and offered["name"] != held:
            try:
                _fetch(launch, offered)
                held = offered["name"]
            except (OSError, ValueError, wire.Untrusted):
                # Withdrawn for a newer one, cut off, or our disk is full.
                checkpoints.clear(_incoming(launch))
                time.sleep(FAILED_PAUSE_S)
        time.sleep(LOOK_EVERY_S)


def _fetch(launch: Launch, offered: Body) -> None:
    """The new set arrives beside the old one, which goes only when the new one is whole."""
    home = folder(launch.project, launch.run)
    incoming = _incoming(launch)
    checkpoints.clear(incoming)
    os.makedirs(incoming)
    for file in offered["files"]:
        _fetch_file(launch, file["path"], int(file["size"]), incoming)
    # An evaluator may read the one before, and may write checkpoints of its own beside them.
    copied = [name for name in _copied(home) if name != offered["name"]] + [offered["name"]]
    kept = 2 if launch.links else 1
    checkpoints.install(incoming, home, offered["name"])
    _remove(home, copied[:-kept])
    records.write(os.path.join(home, COPIED), copied[-kept:])
    state_file.write(home, offered["name"])  # which names the oldest no more
    checkpoints.clear(incoming)


def _copied(home: str) -> List[str]:
    """The sets in the folder that were fetched, the newest last."""
    try:
        return [str(name) for name in records.read(os.path.join(home, COPIED))]
    except (OSError, ValueError, TypeError):
        return []


def _remove(home: str, names: List[str]) -> None:
    for file in os.listdir(home):
        if any(state_file.is_part(file, name) for name in names):
            os.remove(os.path.join(home, file))


def _incoming(launch: Launch) -> str:
    return os.path.join(folder(launch.project, launch.run), ".incoming")


def _fetch_file(launch: Launch, name: str, size: int, incoming: str) -> None:
    if os.path.basename(name) != name:
        raise ValueError("{!r} is no file name".format(name))
    with open(os.path.join(incoming, name), "wb") as target:
        while target.tell() < size:
            body = {"file": name, "offset": target.tell()}
            _, data = circle.ask(launch.circle, body, PIECE_TIMEOUT_S)
            if not data:
                raise ValueError("{} is shorter than was said".format(name))
            target.write(data)
        target.flush()
        os.fsync(target.fileno())
