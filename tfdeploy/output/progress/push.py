"""How far a push is, and how it is shown without a terminal: a line every few seconds."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tfdeploy.errors import HostError, TfdeployError, Unreachable
from tfdeploy.formatting.humanize import summarize_groups
from tfdeploy.hosts.byte_progress import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Needs = Mapping[str, Mapping[str, int]]

LINE_S = 3.0


class PushProgress:
    """How many bytes each host has; any thread may report them.

    `needs` gives the size in bytes of each release that a host needs, by host and release id.
    `on_change` is called with the host after each report.
    """

    def __init__(self, needs: Needs, on_change: Callable[[str], None] = lambda host: None) -> None:
        self._needs = needs
        self._arrived: dict[str, dict[str, int]] = {host: {} for host in needs}
        self._failures: dict[str, str] = {}
        self._on_change = on_change
        self.total = Transfer(sum(sum(sizes.values()) for sizes in needs.values()))
        self.hosts = {host: Transfer(sum(sizes.values())) for host, sizes in needs.items()}
        self._lock = threading.Lock()

    def __call__(self, host: str, release: str, arrived: int) -> None:
        """Report that a host has `arrived` bytes of a release. The first report of each release
        gives the bytes that the host had before the push."""
        with self._lock:
            releases, size = self._arrived[host], self._needs[host][release]
            before = releases.get(release)
            releases[release] = max(min(arrived, size), before or 0)
            gained = releases[release] - (before or 0)
            for transfer in (self.hosts[host], self.total):
                if before is None:
                    transfer.skip(transfer.there + gained)
                else:
                    transfer("", transfer.there + gained)
        self._on_change(host)

    def fail(self, error: TfdeployError) -> None:
        """Report that the push to a host has failed."""
        if isinstance(error, HostError):
            unreachable = isinstance(error, Unreachable)
            self._failures[error.host] = "unreachable" if unreachable else "failed"
            self._on_change(error.host)

    def host_text(self, host: str) -> str:
        return self._failures.get(host) or self.hosts[host].figures

    @property
    def line(self) -> str:
        """All hosts in one line, such as `gpu[001-950] done · 50 to go`."""
        failures = self._failures.copy()  # another thread may add one
        groups: dict[str, list[str]] = {"done": [], "to go": []}
        for host in self._needs:
            state = failures.get(host) or ("done" if self._is_done(host) else "to go")
            groups.setdefault(state, []).append(host)
        return " · ".join(filter(None, (summarize_groups(groups), self.total.figures)))

    def _is_done(self, host: str) -> bool:
        arrived = self._arrived[host]
        return all(arrived.get(id_, -1) >= size for id_, size in self._needs[host].items())


def progress_in_lines(print_line: Callable[[str], None], needs: Needs) -> PushProgress:
    """Return a progress that prints a line about all hosts every LINE_S seconds."""
    last_line, lock = time.monotonic(), threading.Lock()

    def print_changes(host: str) -> None:
        nonlocal last_line
        with lock:
            if time.monotonic() - last_line > LINE_S:
                last_line = time.monotonic()
                print_line(progress.line)

    progress = PushProgress(needs, print_changes)
    return progress
