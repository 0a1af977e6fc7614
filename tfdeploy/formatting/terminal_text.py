"""Compute what a terminal finally shows of a line that a progress bar rewrites or a script colors.

Source: ECMA-48 (CSI sequences; SGR, "m", sets colors; EL, "K", erases). Pure.
"""

from __future__ import annotations

import re
from itertools import groupby

# A sequence may be cut off at the end of the line. `tput sgr0` adds \x1b(B.
ESCAPE = r"\x1b\[(?P<params>[0-?]*)[ -/]*(?P<final>[@-~]|\Z)|\x1b\([AB0]|\x1b\Z"
TOKEN = re.compile(rf"(?P<text>[^\r\b\x1b]+)|(?P<move>[\r\b])|{ESCAPE}|(?P<other>\x1b)")
STYLE = re.compile(r"[0-9;]{0,32}")
MAX_STYLES = 16  # that are combined: a host may send any number of them


def plain_text(line: str) -> str:
    """Return the final text of `line` without colors. Other control characters stay."""
    return "".join(text for text, _ in styled_spans(line))


def styled_spans(line: str) -> list[tuple[str, str]]:
    """Return the final text of `line` as (text, parameters of its SGR sequence or "") pairs."""
    if not re.search(r"[\r\b\x1b]", line):
        return [(line, "")]
    cells = _Cells()
    for token in TOKEN.finditer(line):
        if text := token["text"] or token["other"]:
            cells.write(text)
        elif token["move"]:
            cells.column = 0 if token["move"] == "\r" else max(0, cells.column - 1)
        elif token["final"] == "m":
            cells.restyle(token["params"])
        elif token["final"] == "K":
            cells.erase(token["params"])
    return cells.styled_spans()


class _Cells:
    """One line of a terminal, with a character and a style in each column."""

    def __init__(self) -> None:
        self.column = 0
        self._style: tuple[str, ...] = ()
        self._chars: list[str] = []
        self._styles: list[tuple[str, ...]] = []

    def write(self, text: str) -> None:
        end = self.column + len(text)
        self._chars[self.column : end] = text
        self._styles[self.column : end] = [self._style] * len(text)
        self.column = end

    def restyle(self, params: str) -> None:
        if params in ("", "0"):
            self._style = ()
        elif STYLE.fullmatch(params):
            self._style = (*self._style, params)[-MAX_STYLES:]

    def erase(self, params: str) -> None:
        """Erase the line from the cursor on; with "2", all of it."""
        del self._chars[self.column :], self._styles[self.column :]
        if params == "2":
            self._chars[:] = " " * len(self._chars)

    def styled_spans(self) -> list[tuple[str, str]]:
        while self._chars and self._chars[-1] == " ":  # bars erase longer text with spaces
            self._chars.pop()
        cells = zip(self._chars, self._styles, strict=False)
        groups = groupby(cells, key=lambda cell: cell[1])
        return [("".join(char for char, _ in group), ";".join(style)) for style, group in groups]
