"""The hashes of what was collected: runs/<run>/hashes.json.

A fetch has compared each file with its host's. By its hash, a copy on the controller that was
damaged since then is known, and so is one on the host: a resume continues from neither (damage.py).
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.outputs import HashedFile

FILE = "hashes.json"
MAX_BYTES = 256 << 20
# Files of several hosts are installed at the same time; those that are not seen in a folder yet.
_storing = threading.Lock()
_expected: set[tuple[Path, str]] = set()


def store(run: Run, folder: OwnFolder, files: Iterable[HashedFile]) -> None:
    """Add files that are about to be installed in `folder`, and forget those that it has no longer.
    The hash of the file that one replaces stays: this process may end before. Raises OSError."""
    prefix = _prefix(run, folder)
    new = {prefix + file.path: file.sha256 for file in files}
    if not new:
        return
    with _storing:
        there = {prefix + name for name in folder.files()}
        _expected.difference_update((run.folder, name) for name in there)
        _expected.update((run.folder, name) for name in new)
        known = {
            name: hashes
            for name, hashes in _read(run.open()).items()
            if not name.startswith(prefix) or name in there or (run.folder, name) in _expected
        }
        known |= {name: [*known.get(name, [])[-1:], sha256] for name, sha256 in new.items()}
        run.open().write(FILE, [json.dumps(known, indent=0).encode()])


class Hashes:
    """The hashes of the files in a folder of a run, such as outputs/."""

    def __init__(self, run: Run, folder: OwnFolder) -> None:
        prefix, self._folder = _prefix(run, folder), folder
        found = _read(run.open()).items()
        self._known = {n[len(prefix) :]: hashes for n, hashes in found if n.startswith(prefix)}

    def differ(self, name: str, sha256: str) -> bool:
        """Return whether a file was collected, and never with this hash."""
        return sha256 not in self._known.get(name, [sha256])

    def has(self, name: str, sha256: str) -> bool:
        """Return whether a file was collected with this hash."""
        return sha256 in self._known.get(name, ())

    def of(self, name: str) -> str:
        """Return the hash of the file that was collected last; if it is not recorded, that of its
        content. Raises OSError."""
        known = self._known.get(name)
        return known[-1] if known else self._folder.sha256(name)


def _prefix(run: Run, folder: OwnFolder) -> str:
    return f"{folder.path.relative_to(run.folder).as_posix()}/"


def _read(folder: OwnFolder) -> dict[str, list[str]]:
    with suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        values = json.loads(folder.read(FILE, MAX_BYTES))
        return {name: [str(each) for each in hashes] for name, hashes in values.items()}
    return {}
