"""Which release each host got last: a hint that saves the question whether it has the next one.

It is a file in the user's cache folder. If it is wrong or missing, a push asks a question more, or
sends a list of files too much.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdeploy.config.inventory import Inventory


class LastPushed:
    """The last releases of a project's source, or of one of its data sets, by host."""

    def __init__(self, inventory: Inventory, name: str) -> None:
        key = json.dumps([str(inventory.file.resolve()), inventory.project, name])
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        cache = Path.home() / (os.environ.get("XDG_CACHE_HOME") or ".cache")
        self._file = cache / "tfdeploy" / "pushed" / f"{digest}.json"
        self._releases = _read(self._file)

    def is_older(self, host: str, release: str) -> bool:
        """Return whether the last release that the host got is another one."""
        return self._releases.get(host, release) != release

    def record(self, hosts: Iterable[str], release: str) -> None:
        """Record that these hosts have the release."""
        releases = {**self._releases, **dict.fromkeys(hosts, release)}
        if releases == self._releases:
            return
        self._releases = releases
        with suppress(OSError):
            nearest = next(folder for folder in self._file.parents if folder.exists())
            if nearest.stat().st_uid not in (0, os.geteuid()):
                return  # for example root with another user's HOME
            self._file.parent.mkdir(0o700, parents=True, exist_ok=True)
            new = self._file.with_name(f"{self._file.name}.{os.getpid()}")
            new.write_text(json.dumps(releases))
            new.replace(self._file)


def _read(file: Path) -> Mapping[str, str]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
