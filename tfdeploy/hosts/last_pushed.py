"""Which release each host got last: a hint that saves the question whether it has the next one.

It is a file in the user's cache folder. If it is wrong or missing, a push asks a question more, or
sends a list of files too much.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tfdeploy.user_folders import cache_file, write_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tfdeploy.config.inventory import Inventory


class LastPushed:
    """The last releases of a project's source, or of one of its data sets, by host."""

    def __init__(self, inventory: Inventory, name: str) -> None:
        self._file = cache_file("pushed", str(inventory.file.resolve()), inventory.project, name)
        self._releases = _read(self._file)

    def is_older(self, host: str, release: str) -> bool:
        """Return whether the last release that the host got is another one."""
        return self._releases.get(host, release) != release

    def record(self, hosts: Iterable[str], release: str) -> None:
        """Record that these hosts have the release."""
        releases = {**self._releases, **dict.fromkeys(hosts, release)}
        if releases != self._releases:
            self._releases = releases
            write_cache(self._file, releases)


def _read(file: Path) -> Mapping[str, str]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
