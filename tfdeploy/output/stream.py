"""One of the two standard streams: Rich draws on a terminal; a file or a pipe gets plain text.

The text is the same. A command whose output is no terminal does not load Rich, which takes as long
as the rest of a short command.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, TextIO

from tfdeploy.formatting.humanize import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console as RichConsole
    from rich.text import Text

    Cell = str | tuple[str, str]  # a text, or a text and its style in Rich's words

# With these variables Rich takes a file for a terminal, or a terminal for a file.
RICH_DECIDES = ("FORCE_COLOR", "TTY_COMPATIBLE")
GAP = "  "  # between the columns of a table


class TextStream:
    """Standard output or standard error; a quiet one prints nothing."""

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        self._stderr = stderr
        self._quiet = quiet

    @cached_property
    def rich(self) -> RichConsole:
        """The stream for what only a terminal shows."""
        from rich.console import Console as RichConsole

        from tfdeploy.hosts.transports import pause_while_ssh_asks

        console = RichConsole(stderr=self._stderr, highlight=False, soft_wrap=True, emoji=False)
        if console.is_terminal:
            pause_while_ssh_asks(partial(_without_display, console))
        return console

    @property
    def is_terminal(self) -> bool:
        return not self._is_plain and self.rich.is_terminal

    def print(self, *parts: Cell) -> None:
        """Print one line in several styles.

        Control characters are written out, also newlines: a name from a host can't look like a line
        of its own. This is the only way for text to a terminal, so nobody has to think of it.
        """
        escaped = [_escaped(part) for part in parts]
        if self._is_plain:
            self.write("".join(map(_text, escaped)) + "\n")
            return
        from rich.text import Text

        self.rich.print(Text.assemble(*escaped))

    def write(self, text: str) -> None:
        """Write the text as it is, and at once."""
        file = self._file
        if self._quiet or file is None or file.closed:
            return
        file.write(text)
        file.flush()

    def print_table(self, columns: Sequence[str], rows: Iterable[Mapping[str, Cell]]) -> None:
        """Print a table without lines. Each row has its cells by column: a missing cell is empty,
        and a cell of another column is not shown.

        It has its own width, whatever the terminal's: a cut name can't be copied. Control
        characters are written out, as in `print`.
        """
        if self._is_plain:
            lines = _table_lines(columns, rows)
            self.write("".join(f"{''.join(map(_text, line))}\n" for line in lines))
        else:
            self.rich.print(table_text(columns, rows))

    def status(self, text: str) -> AbstractContextManager[object]:
        """Return a context that shows `text` beside a spinner on a terminal."""
        from rich.text import Text

        return self.rich.status(Text(escape_line(text)))

    @property
    def _is_plain(self) -> bool:
        """Whether it is surely no terminal; else Rich decides."""
        if self._quiet:
            return True
        if any(name in os.environ for name in RICH_DECIDES):
            return False
        try:
            return self._file is None or not self._file.isatty()
        except ValueError:  # it is closed
            return True

    @property
    def _file(self) -> TextIO | None:
        file: TextIO | None = sys.stderr if self._stderr else sys.stdout
        # While Rich redraws the other stream, which is a terminal, it replaces this one.
        return getattr(file, "rich_proxied_file", file)


def table_text(columns: Sequence[str], rows: Iterable[Mapping[str, Cell]]) -> Text:
    """Return the table that `print_table` prints on a terminal."""
    from rich.text import Text

    lines = _table_lines(columns, rows)
    return Text("\n").join(Text.assemble(*line) for line in lines)


def _table_lines(
    columns: Sequence[str], rows: Iterable[Mapping[str, Cell]]
) -> Iterator[list[Cell]]:
    cells = [[_escaped(row.get(name, "")) for name in columns] for row in rows]
    return _aligned([[(name, "bold") for name in columns], *cells])


@contextmanager
def _without_display(console: RichConsole) -> Iterator[None]:
    """Erase what is drawn on a terminal, and draw it again afterwards."""
    stopped = list(console._live_stack)
    for live in reversed(stopped):
        live.stop()
    try:
        yield
    finally:
        for live in stopped:
            live.start()


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]


def _escaped(cell: Cell) -> Cell:
    return escape_line(cell) if isinstance(cell, str) else (escape_line(cell[0]), cell[1])


def _aligned(rows: Sequence[Sequence[Cell]]) -> Iterator[list[Cell]]:
    """Yield the parts of each row: its cells, padded to the width of their columns but the last."""
    widths = [max(_width(_text(cell)) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        parts: list[Cell] = []
        for cell, width in zip(row, widths, strict=True):
            # As Rich does, a column without width shows nothing, not even a combining character.
            shown = cell if width else ""
            parts += [GAP if parts else "", shown, " " * (width - _width(_text(shown)))]
        yield parts[:-1]


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
