"""Run commands in a terminal, and record what it shows: each screen with its time.

pyte is the terminal: it interprets what the commands write, as a user's terminal does.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pyte

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

KEY_S, PAUSE_S = 0.045, 0.7  # between two keys that are typed, and before a command's output
SETTLE_S = 0.02  # what is written within this time is one screen
TIMEOUT_S = 600.0
# Of the user's environment a command gets only what it needs, so that pictures do not depend on it.
KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "TMPDIR")


class Span(NamedTuple):
    """Characters in one style. A colour is "default", the name of one of 16, or six hex digits."""

    text: str
    front: str
    back: str
    is_bold: bool


Screen = tuple[tuple[Span, ...], ...]


@dataclass(frozen=True)
class Frame:
    """What the terminal shows from `at` on, in seconds since the beginning."""

    at: float
    screen: Screen


@dataclass
class Terminal:
    """A terminal of some size, in a folder; `frames` is its recording."""

    columns: int
    rows: int
    folder: Path
    frames: list[Frame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._screen = pyte.Screen(self.columns, self.rows)
        self._stream = pyte.ByteStream(self._screen)
        self._clock = 0.0

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    def type(self, command: str) -> None:
        """Show a prompt and type a command."""
        self._show(b"\x1b[1;32m$\x1b[0m ", PAUSE_S)
        for key in command:
            self._show(key.encode(), KEY_S)
        self._show(b"\r\n", PAUSE_S)

    def run(
        self,
        words: Sequence[str],
        done: Callable[[str], bool] | None = None,
        key: bytes = b"",
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Run a command to its end, and return its exit code. When what it shows is `done`, press a
        key."""
        main, other = pty.openpty()
        size = struct.pack("HHHH", self.rows, self.columns, 0, 0)
        fcntl.ioctl(other, termios.TIOCSWINSZ, size)
        own = {name: os.environ[name] for name in KEPT if name in os.environ}
        process = subprocess.Popen(
            list(words), cwd=self.folder, stdin=other, stdout=other, stderr=other,
            start_new_session=True,
            env={**own, "TERM": "xterm-256color", **(environment or {})},
        )  # fmt: skip
        os.close(other)
        try:
            self._follow(process, main, done, key)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            os.close(main)
        return process.wait()

    def _follow(
        self,
        process: subprocess.Popen[bytes],
        main: int,
        done: Callable[[str], bool] | None,
        key: bytes,
    ) -> None:
        start, began = time.monotonic(), self._clock
        while time.monotonic() < start + TIMEOUT_S:
            if select.select([main], [], [], 0.2)[0]:
                time.sleep(SETTLE_S)
                try:
                    written = os.read(main, 1 << 16)
                except OSError:  # the command has closed the terminal
                    return
                self._clock = began + time.monotonic() - start
                self._show(written, 0.0)
            elif process.poll() is not None:
                return
            if done and done(self.text):
                os.write(main, key)
                done = None
        raise TimeoutError(f"{process.args} has not ended:\n{self.text}")

    def _show(self, written: bytes, pause_s: float) -> None:
        self._clock += pause_s
        self._stream.feed(written)
        self.frames.append(Frame(self._clock, self.screen))

    @property
    def screen(self) -> Screen:
        return tuple(self._spans(number) for number in range(self.rows))

    def _spans(self, row: int) -> tuple[Span, ...]:
        line = self._screen.buffer[row]
        cells = [line[column] for column in range(self.columns)]
        styles = groupby(cells, key=lambda cell: (*_colours(cell), bool(cell.bold)))
        spans = [Span("".join(c.data for c in run), *style) for style, run in styles]
        while spans and not spans[-1].text.strip() and spans[-1].back == "default":
            spans.pop()
        return tuple(spans)


def _colours(cell: pyte.screens.Char) -> tuple[str, str]:
    """Return the colours of the text and behind it."""
    if not cell.reverse:
        return cell.fg, cell.bg
    front = "back" if cell.bg == "default" else cell.bg
    return front, "front" if cell.fg == "default" else cell.fg
