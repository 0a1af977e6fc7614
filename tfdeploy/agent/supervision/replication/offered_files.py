"""Files that the chief's supervisor offers to those of other hosts: a list, then each in pieces.

Both go through the heartbeat (heartbeat.py). A piece of a file is sent only while the file is as in
the list. A supervisor that gets an error fetches the list again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os

from ....shared import TYPE_CHECKING
from ....shared.protocol.message import Invalid, parse
from ....shared.protocol.outputs import OutputUnit
from ....shared.protocol.record import to_json
from ...outputs import install, integrity
from .. import heartbeat

if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from ....shared.records import HeartbeatSettings

    Json = Dict[str, Any]
    Units = List[OutputUnit]

PIECE = 1 << 20
LIST = ".list-"


class OfferedFiles:
    """The chief's side: what is offered of a folder. Threads of the heartbeat's server read it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lists: Dict[str, bytes] = {}
        self._files: Dict[str, Tuple[int, int]] = {}

    def replace(self, units: Units) -> Json:
        """Offer these units instead of the former ones. Return the `name` and `size` of their list,
        which has another name if anything differs."""
        text = json.dumps(to_json(units)).encode()
        name = LIST + hashlib.sha256(text).hexdigest()[:16]
        self._files = {path: (size, mtime) for u in units for path, size, mtime in u.files}
        self._lists = {name: text}
        return {"name": name, "size": len(text)}

    def has(self, file: str) -> bool:
        return file in self._lists or file in self._files

    def read(self, file: str, offset: int) -> bytes:
        """Return a piece of the list or of a file. Raises ValueError if the file has changed."""
        text = self._lists.get(file)
        if text is not None:
            return text[offset : offset + PIECE]
        with open(os.path.join(self._folder, file), "rb") as source:
            source.seek(offset)
            piece = source.read(PIECE)
            info = os.fstat(source.fileno())
        if (info.st_size, info.st_mtime_ns) != self._files.get(file):
            raise ValueError("{} has changed".format(file))
        return piece


def fetch_list(settings: HeartbeatSettings, offer: Json) -> Units:
    """Return the units of an offer, without those whose paths leave their folder.

    Raises OSError, ValueError or signing.Untrusted.
    """
    text = io.BytesIO()
    heartbeat.fetch_file(settings, str(offer["name"]), int(offer["size"]), text)
    try:
        units = [parse(OutputUnit, unit) for unit in json.loads(text.getvalue())]
    except (Invalid, TypeError) as error:  # even the chief's host may lie
        raise ValueError("the list is invalid: {}".format(error)) from None
    return [unit for unit in units if _is_safe(unit)]


def fetch_unit(settings: HeartbeatSettings, unit: OutputUnit, incoming: str, folder: str) -> None:
    """Fetch a unit and install it, unless its content is broken; then the older one stays.

    Raises as `fetch_list` does.
    """
    for path, size, mtime_ns in unit.files:
        target = os.path.join(incoming, path.lstrip("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            heartbeat.fetch_file(settings, path, size, file)
        os.utime(target, ns=(mtime_ns, mtime_ns))
    path = unit.path.lstrip("/")
    if not integrity.format_error(incoming, path, unit.kind):
        files = [file.lstrip("/") for file in paths_of(unit)]
        install.install(incoming, folder, path, unit.kind, files)


def is_current(folder: str, unit: OutputUnit) -> bool:
    """Return whether the folder has the unit's files with the listed sizes and times."""
    for path, size, mtime_ns in unit.files:
        try:
            info = os.lstat(os.path.join(folder, path.lstrip("/")))
        except OSError:
            return False
        if (info.st_size, info.st_mtime_ns) != (size, mtime_ns):
            return False
    return True


def paths_of(unit: OutputUnit) -> List[str]:
    return [path for path, _, _ in unit.files]


def _is_safe(unit: OutputUnit) -> bool:
    return not any(".." in path.split("/") for path in [unit.path, *paths_of(unit)])
