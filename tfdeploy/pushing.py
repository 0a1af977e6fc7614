"""How far a push is: a bar a host, and of many hosts a line, as `gpu[001-950] done · 50 to go`."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from tfdeploy.errors import HostError, TfdeployError, Unreachable
from tfdeploy.words import standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

BARS = 12  # more hosts than these have one line together
LINE_S = 3.0


class Tally:
    """Hears from any thread how far each host is; `changed` is told."""

    def __init__(
        self,
        hosts: Sequence[str],
        changed: Callable[[str, float], None] = lambda host, share: None,
    ) -> None:
        self._shares = dict.fromkeys(hosts, 0.0)
        self._failed: dict[str, str] = {}
        self._changed = changed

    def __call__(self, host: str, share: float) -> None:
        """So much of what it needs is there, from 0.0 to 1.0."""
        self._shares[host] = share
        self._changed(host, share)

    def failed(self, error: TfdeployError) -> None:
        """A host is done with, but not well."""
        if isinstance(error, HostError):
            self._failed[error.host] = "unreachable" if isinstance(error, Unreachable) else "failed"

    @property
    def line(self) -> str:
        failed = self._failed.copy()
        where: dict[str, list[str]] = {"done": [], "to go": []}
        for host, share in self._shares.items():
            word = failed.get(host) or ("done" if share >= 1.0 else "to go")
            where.setdefault(word, []).append(host)
        return standing(where)


@contextmanager
def shown(console: Console, hosts: Sequence[str]) -> Iterator[Tally]:
    """Nothing of it is left on a terminal. Elsewhere few hosts show nothing, and many a line now
    and then."""
    if not console.is_terminal:
        yield _lines(console, hosts) if len(hosts) > BARS else Tally(hosts)
    elif len(hosts) > BARS:
        tally = Tally(hosts)
        with Live(get_renderable=lambda: _cut(tally.line), console=console, transient=True):
            yield tally
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            bars = {host: progress.add_task(host, total=1.0) for host in hosts}
            yield Tally(hosts, lambda host, share: progress.update(bars[host], completed=share))


def _cut(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="ellipsis")


def _lines(console: Console, hosts: Sequence[str]) -> Tally:
    told, telling = time.monotonic(), threading.Lock()

    def changed(host: str, share: float) -> None:
        nonlocal told
        with telling:
            if time.monotonic() - told > LINE_S:
                told = time.monotonic()
                console.out(tally.line, highlight=False)

    tally = Tally(hosts, changed)
    return tally
