"""Say which hosts are waited for, if they are silent for long: no command waits without a word."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import fold_names

if TYPE_CHECKING:
    from collections.abc import Iterable

SILENT_S = 10.0
_log = logging.getLogger(__name__)


class Silence:
    """The hosts that have not answered. `check` names them once, SILENT_S after the last answer."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._waiting = dict.fromkeys(hosts)
        self._since = time.monotonic()
        self._is_named = False

    def end(self, host: str) -> None:
        """Note that a host has answered. Any thread may call this."""
        if host in self._waiting:
            self._waiting.pop(host, None)
            self._since = time.monotonic()

    def left_s(self) -> float:
        """Return how long `check` has nothing to say; infinity if it never will."""
        if self._is_named or not self._waiting:
            return float("inf")
        return max(0.0, self._since + SILENT_S - time.monotonic())

    def check(self) -> None:
        if self.left_s() == 0:
            self._is_named = True
            hosts = [*self._waiting]
            noun = "host" if len(hosts) == 1 else "hosts"
            _log.warning("waiting for %s %s", noun, fold_names(hosts))
