"""What uv and pip print, for people: how far they are, and why they failed. Pure."""

from __future__ import annotations

import re

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List

MAX_LINES = 60
MAX_LINE = 500  # characters
MAX_WORDS = 500
MAX_ERRORS = 5
FILES = (".whl", ".gz", ".zip", ".metadata")  # pip names a file, and downloads one after the other
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
CREDENTIALS = re.compile(r"(://)[^/\s@]+@")
# How uv and pip mark their errors, and what follows one.
ERROR = re.compile(r"(?:error|ERROR|fatal): *|[×✗x] +(?=[A-Z])")
MARKS = re.compile(r"^(?:(?:error|ERROR|cause|Caused by): *|[×╰├─▶│ ]+)+")
DURATION = re.compile(r" in \d[\d.]*m?s\b")  # it would make equal errors of hosts different


class Failed(Exception):
    """A program exited with `code`; `lines` are the last ones that it printed."""

    def __init__(self, code: int, lines: List[str]) -> None:
        super().__init__("exit {}".format(code))
        self.code = code
        self.lines = lines

    @property
    def words(self) -> str:
        """The program's own words about its failure, in one line."""
        return error_words(self.lines) or "exit {}, and it printed nothing".format(self.code)


class Progress:
    """What an installer does now, as `text`, from the lines that it prints."""

    def __init__(self) -> None:
        self.text = ""
        self._downloads: Dict[str, str] = {}  # the package and its size, by package

    def take(self, line: str) -> None:
        """Take the next line; "" if there is none yet."""
        verb, _, rest = line.strip().partition(" ")
        name = rest.partition(" ")[0]
        if verb == "Downloading" and not name.endswith(FILES):
            self._downloads[name] = rest  # uv downloads many packages at once
        elif verb == "Downloaded":
            self._downloads.pop(name, None)
        elif verb == "Installed":  # uv then compiles, which takes longer
            self.text = "compiling"
            return
        if self._downloads:
            first, *others = self._downloads.values()
            more = " and {} more".format(len(others)) if others else ""
            self.text = "downloading {}{}".format(first, more)
        elif line:
            self.text = line.strip()


def error_words(lines: List[str]) -> str:
    """Return the error in the last lines of a program, in one line; the last line if none is marked
    as an error. Pure."""
    meaningful = [line for line in lines if line.strip() and not line.startswith("hint:")]
    starts = [at for at, line in enumerate(meaningful) if ERROR.match(line.strip())]
    chosen = meaningful[starts[0] :][:MAX_ERRORS] if starts else meaningful[-1:]
    parts = [MARKS.sub("", line).strip().rstrip(".:") for line in chosen]
    text = DURATION.sub("", ": ".join(part for part in parts if part))
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"


def clean(line: str) -> str:
    """Return a line without colors, and without the passwords of URLs. Pure."""
    return CREDENTIALS.sub(r"\1***@", ESCAPES.sub("", line).rstrip())[:MAX_LINE]
