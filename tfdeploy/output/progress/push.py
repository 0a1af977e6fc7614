"""How far a push is, and how it is shown without a terminal: a line every few seconds."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfdeploy.errors import HostError, TfdeployError, Unreachable
from tfdeploy.formatting.humanize import summarize_groups
from tfdeploy.hosts.byte_progress import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Needs = Mapping[str, Mapping[str, int]]

LINE_S = 3.0
QUIET_S = 1.0


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


@contextmanager
def progress_in_lines(print_line: Callable[[str], None], needs: Needs) -> Iterator[PushProgress]:
    """Print lines about all hosts until the context ends."""
    lines = _ProgressLines(print_line)
    progress = PushProgress(needs, lines.report)
    lines.progress = progress
    ended = threading.Event()
    threading.Thread(target=lines.print_when_quiet, args=(ended,), daemon=True).start()
    try:
        yield progress
    finally:
        ended.set()


class _ProgressLines:
    """The progress in lines: one every LINE_S seconds while anything changes, and one QUIET_S after
    the last change, because the hosts that are done must not wait for the others to be shown."""

    progress: PushProgress

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line = print_line
        self._lock = threading.Lock()
        self._printed_s = self._changed_s = time.monotonic()
        self._is_printed = True

    def report(self, host: str) -> None:
        with self._lock:
            self._changed_s, self._is_printed = time.monotonic(), False
            if self._changed_s - self._printed_s > LINE_S:
                self._print()

    def print_when_quiet(self, ended: threading.Event) -> None:
        while not ended.wait(QUIET_S / 4):
            with self._lock:
                if not self._is_printed and time.monotonic() - self._changed_s > QUIET_S:
                    self._print()

    def _print(self) -> None:
        self._printed_s, self._is_printed = time.monotonic(), True
        self._print_line(self.progress.line)
