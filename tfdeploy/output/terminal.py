"""Standard output and standard error, and the few ways in which text is printed to them.

Text from hosts (log lines, reasons) is data: its control characters are printed as visible escapes,
so they never act on the terminal.
"""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tfdeploy.errors import FleetError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_log_line
from tfdeploy.formatting.terminal_text import styled_spans
from tfdeploy.output.stream import TextStream
from tfdeploy.shared.records import BACKOFF, FAILED, LOST, READY, STOPPED, SUCCEEDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from rich.text import Text

    from tfdeploy.errors import TfdeployError
    from tfdeploy.formatting.known_messages import NoiseFolder

STATE_STYLES = {
    READY: "green", SUCCEEDED: "green", FAILED: "bold red", LOST: "bold red", STOPPED: "dim",
    BACKOFF: "yellow",
}  # fmt: skip
PREFIX_STYLES = ("cyan", "magenta", "yellow", "blue", "green", "bright_cyan", "bright_magenta")
AT_ONCE = 200  # lines of a log that a terminal gets together


class Terminal:
    """Both streams. With `for_json`, standard output belongs to one JSON document, and text goes to
    standard error. If `is_quiet`, only results, warnings and errors are printed: no steps on the
    way, and no progress."""

    def __init__(self, *, for_json: bool = False, is_quiet: bool = False) -> None:
        self.is_quiet = is_quiet
        self._out = TextStream(stderr=for_json)
        self._err = TextStream(stderr=True)
        self._lock = threading.RLock()  # batches of events are printed by threads of their own

    def flush(self) -> None:
        """Print what waits to be printed in a batch. This class has nothing that waits."""

    def print_text(self, *lines: str) -> None:
        """Print each text as one line, whatever it contains."""
        self.flush()
        for line in lines:
            self._out.print(line)

    def print_step(self, text: str) -> None:
        """Print what is going on, unless only the result is wanted."""
        if not self.is_quiet:
            self.print_text(text)

    def print_waiting(self, hosts: Sequence[str]) -> None:
        """Print which hosts have not answered yet."""
        if not self.is_quiet:
            noun = "host" if len(hosts) == 1 else "hosts"
            self._err.print((f"waiting for {noun} {fold_names(hosts)}", "dim"))

    def print_error(self, error: TfdeployError) -> None:
        """Print what was found, what was expected and what to type next."""
        self._print_problem("error: ", "bold red", error)

    def print_notes(self, notes: Sequence[TfdeployError]) -> None:
        """Print what may matter and prevents nothing."""
        if notes:
            self._print_problem("note: ", "yellow", FleetError(notes))

    def print_interrupted(self, *lines: str) -> None:
        self.flush()
        for line in ("", *lines):
            self._err.print(line)

    @property
    def _progress_stream(self) -> TextStream:
        """Where progress is shown: on the terminal if there is one, never in a file of results."""
        if self.is_quiet:
            return TextStream(quiet=True)
        return self._out if self._out.is_terminal else self._err

    def _spinner(self, text: str) -> AbstractContextManager[object]:
        """Return a context that shows `text` beside a spinner, on a terminal only."""
        is_shown = self._err.is_terminal and not self.is_quiet
        return self._err.status(text) if is_shown else nullcontext()

    def _print_problem(self, label: str, style: str, error: TfdeployError) -> None:
        self.flush()
        first, *rest = str(error).split("\n")
        with self._lock:
            self._err.print((label, style), first)
            for line in rest:
                self._err.print(line)

    def _print_warning(self, error: TfdeployError, next_step: str) -> None:
        self._print_yellow(*str(error).split("\n"), next_step)

    def _print_yellow(self, *lines: str) -> None:
        for line in lines:
            self._err.print((line, "yellow"))


class LogTerminal(Terminal):
    """Lines of logs. A terminal also shows which lines are noise, hides noise that repeats, and
    shows once for each task and message what a known message means."""

    def __init__(self, *, for_json: bool = False, is_quiet: bool = False) -> None:
        super().__init__(for_json=for_json, is_quiet=is_quiet)
        self._explained: set[tuple[str, str]] = set()
        # By the prefix of a task's lines, with its style.
        self._noise: NoiseFolder[tuple[str, str]] | None = None

    def flush(self) -> None:
        """Print how many lines of noise were hidden."""
        with self._lock:
            for (prefix, style), text in self._noise.take_hidden() if self._noise else ():
                self._out.print((prefix, style), (text, "dim"))

    def print_log_lines(self, task: str, host: str, lines: Sequence[str]) -> None:
        """Print each line behind its task and host, in a colour of the task's own."""
        style = PREFIX_STYLES[sum(task.encode()) % len(PREFIX_STYLES)]
        self._print_lines(task, (f"{task}@{host} | ", style), lines)

    def _print_lines(self, writer: str, prefix: tuple[str, str], lines: Sequence[str]) -> None:
        """Print many lines in one step: tasks may write thousands of them in a second."""
        if self._out.is_terminal:
            for begin in range(0, len(lines), AT_ONCE):
                self._print_styled(writer, prefix, lines[begin : begin + AT_ONCE])
            return
        plain = (line if line.isprintable() else _plain(line) for line in lines)
        text = "".join(f"{prefix[0]}{line}\n" for line in plain)
        with self._lock:
            self._out.write(text)

    def _print_styled(self, writer: str, prefix: tuple[str, str], lines: Sequence[str]) -> None:
        from rich.text import Text

        with self._lock:
            texts = list(self._styled_lines(writer, prefix, lines))
            if texts:
                self._out.rich.print(Text("\n").join(texts))

    def _styled_lines(
        self, writer: str, prefix: tuple[str, str], lines: Sequence[str]
    ) -> Iterator[Text]:
        from rich.text import Text

        from tfdeploy.formatting import known_messages

        self._noise = self._noise or known_messages.NoiseFolder(time.monotonic)
        start = Text.assemble(prefix)
        for written in lines:
            line = self._noise.fold(prefix, written)
            if line is None:
                continue
            text = Text(line) if line.isprintable() else coloured(line)
            if known_messages.is_noise(text.plain):
                text.stylize("dim")
            yield start + text
            if meaning := self._new_meaning(writer, text.plain):
                yield start + Text(meaning, "dim")

    def _new_meaning(self, writer: str, line: str) -> str:
        """Return what a line means, the first time that its task writes such a line; else ""."""
        from tfdeploy.formatting import known_messages

        meaning = known_messages.meaning(line)
        if not meaning or (writer, meaning) in self._explained:
            return ""
        self._explained.add((writer, meaning))
        return f"  ↳ {meaning}"


def _plain(line: str) -> str:
    return escape_log_line("".join(text for text, _ in styled_spans(line)))


def coloured(line: str) -> Text:
    """Turn colours into rich's styles: no escape sequence of a script reaches the terminal."""
    from rich.text import Text

    spans = styled_spans(line)
    parts = [Text.from_ansi(f"\x1b[{colours}m{escape_log_line(text)}") for text, colours in spans]
    return Text.assemble(*parts)
