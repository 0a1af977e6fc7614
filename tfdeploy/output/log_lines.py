"""Lines of logs. A terminal also shows which lines are noise, hides noise that repeats, and shows
once for each task and message what a known message means.

The lines are data: their control characters are printed as visible escapes, so they never act on
the terminal.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import escape_log_line
from tfdeploy.formatting.terminal_text import styled_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from tfdeploy.output.console import Console

PREFIX_STYLES = ("cyan", "magenta", "yellow", "blue", "green", "bright_cyan", "bright_magenta")
AT_ONCE = 200  # lines of a log that a terminal gets together


def print_log_lines(console: Console, task: str, host: str, lines: Sequence[str]) -> None:
    """Print each line behind its task and host, in a colour of the task's own."""
    style = PREFIX_STYLES[sum(task.encode()) % len(PREFIX_STYLES)]
    _print_lines(console, task, (f"{task}@{host} | ", style), lines)


def _print_lines(
    console: Console, writer: str, prefix: tuple[str, str], lines: Sequence[str]
) -> None:
    """Print many lines in one step: tasks may write thousands of them in a second."""
    if console.out.is_terminal:
        for begin in range(0, len(lines), AT_ONCE):
            _print_styled(console, writer, prefix, lines[begin : begin + AT_ONCE])
        return
    plain = (line if line.isprintable() else _plain(line) for line in lines)
    text = "".join(f"{prefix[0]}{line}\n" for line in plain)
    with console.lock:
        console.out.write(text)


def _print_styled(
    console: Console, writer: str, prefix: tuple[str, str], lines: Sequence[str]
) -> None:
    from rich.text import Text

    with console.lock:
        texts = list(_styled_lines(console, writer, prefix, lines))
        if texts:
            console.out.rich.print(Text("\n").join(texts))


def _styled_lines(
    console: Console, writer: str, prefix: tuple[str, str], lines: Sequence[str]
) -> Iterator[Text]:
    from rich.text import Text

    from tfdeploy.formatting import known_messages

    console.noise = console.noise or known_messages.NoiseFolder(time.monotonic)
    start = Text.assemble(prefix)
    for written in lines:
        line = console.noise.fold(prefix, written)
        if line is None:
            continue
        text = coloured(line)
        yield start + text
        if meaning := _new_meaning(console, writer, text.plain):
            yield start + Text(meaning, "dim")


def _new_meaning(console: Console, writer: str, line: str) -> str:
    """Return what a line means, the first time that its task writes such a line; else ""."""
    from tfdeploy.formatting import known_messages

    meaning = known_messages.meaning(line)
    if not meaning or (writer, meaning) in console.printed.meanings:
        return ""
    console.printed.meanings.add((writer, meaning))
    return f"  ↳ {meaning}"


def _plain(line: str) -> str:
    return escape_log_line("".join(text for text, _ in styled_spans(line)))


def coloured(line: str) -> Text:
    """Turn colours into rich's styles, so that no escape sequence of a script reaches the terminal,
    and dim TensorFlow's noise."""
    from rich.text import Text

    from tfdeploy.formatting.known_messages import is_noise

    spans = [] if line.isprintable() else styled_spans(line)
    parts = [Text.from_ansi(f"\x1b[{colours}m{escape_log_line(text)}") for text, colours in spans]
    text = Text.assemble(*parts) if parts else Text(line)
    if is_noise(text.plain):
        text.stylize("dim")
    return text
