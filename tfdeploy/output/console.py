"""The one object that prints for people, and the functions that print for scripts.

Commands return objects; the other modules of this package turn them into text, tables and colours.
"""

from __future__ import annotations

import atexit
import json
import sys
import textwrap
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from tfdeploy.documents import to_json
from tfdeploy.errors import FleetError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_json
from tfdeploy.output.batching import TIMES, Batch, BatchTimes
from tfdeploy.output.stream import TextStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from tfdeploy.errors import TfdeployError
    from tfdeploy.formatting.known_messages import NoiseFolder
    from tfdeploy.results.checkpoints import BadCheckpoint

T = TypeVar("T")


@dataclass
class Printed:
    """What a console has printed, so that it prints nothing twice."""

    changes: dict[str, tuple[str, int | None, int]] = field(default_factory=dict)
    """Of each task the last change of its state: the state, the pid and the number of restarts."""
    followed: set[str] = field(default_factory=set)
    """Tasks with lines of their logs."""
    meanings: set[tuple[str, str]] = field(default_factory=set)
    """Tasks with what a line of their log means."""
    ended: set[str] = field(default_factory=set)
    """Tasks whose ends were printed before those of others."""
    tasks: set[str] = field(default_factory=set)
    """Tasks whose rows were printed before those of others."""
    bad: set[BadCheckpoint] = field(default_factory=set)
    verified: dict[str, bool] = field(default_factory=dict)
    """Checkpoints by their names, and whether they were verified."""
    outputs: dict[tuple[str, str], int] = field(default_factory=dict)
    """The sizes of outputs by folder and path."""


class Console:
    """Text for people, on both standard streams. With `for_json`, standard output belongs to one
    JSON document, and text goes to standard error. If `is_quiet`, only results, warnings and errors
    are printed: no steps on the way, and no progress. `times` is how long its batches wait."""

    def __init__(
        self, *, for_json: bool = False, is_quiet: bool = False, times: BatchTimes = TIMES
    ) -> None:
        self.is_quiet, self.for_json, self._times = is_quiet, for_json, times
        self.out = TextStream(stderr=for_json)
        self.err = TextStream(stderr=True)
        self.lock = threading.RLock()  # batches of events are printed by threads of their own
        self.printed = Printed()
        # Of a terminal's log lines, by the prefix of a task's lines, with its style.
        self.noise: NoiseFolder[tuple[str, str]] | None = None
        self._batches: dict[object, Batch[object]] = {}
        atexit.register(self.flush)  # main() prints the error that ends a command by a new Console

    def batch(self, report: Callable[[Console, Sequence[T]], None], single: int) -> Batch[T]:
        """Return the batch of the events that `report` prints."""
        batch = self._batches.setdefault(report, Batch(partial(report, self), single, self._times))
        return cast("Batch[T]", batch)

    def flush(self) -> None:
        """Print what waits to be printed in a batch, and how many lines of noise were hidden."""
        for batch in list(self._batches.values()):
            batch.flush()
        with self.lock:
            for (prefix, style), text in self.noise.take_hidden() if self.noise else ():
                self.out.print((prefix, style), (text, "dim"))

    def print_text(self, *lines: str) -> None:
        """Print each text as one line, whatever it contains."""
        self.flush()
        for line in lines:
            self.out.print(line)

    def print_sentence(self, text: str) -> None:
        """Print a text that may be long: a terminal gets lines that end between words."""
        if not self.out.is_terminal:
            self.print_text(text)
            return
        width = self.out.rich.width
        # Only at spaces: a path, for example, stays whole.
        lines = textwrap.wrap(
            text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        self.print_text(*lines)

    def print_document(self, result: object) -> None:
        """Print the JSON document of what a command returned, if that is wanted."""
        if self.for_json:
            print_json(result)

    def print_result(self, result: T, print_table: Callable[[Console, T], None]) -> None:
        """Print what a command returned: as its JSON document, or else as a table."""
        print_json(result) if self.for_json else print_table(self, result)

    def print_step(self, text: str) -> None:
        """Print what is going on, unless only the result is wanted."""
        if not self.is_quiet:
            self.print_text(text)

    def print_waiting(self, hosts: Sequence[str]) -> None:
        """Print which hosts have not answered yet."""
        if not self.is_quiet:
            noun = "host" if len(hosts) == 1 else "hosts"
            self.err.print((f"waiting for {noun} {fold_names(hosts)}", "dim"))

    def print_error(self, error: TfdeployError) -> None:
        """Print what was found, what was expected and what to type next."""
        self._print_problem("error: ", "bold red", error)

    def print_notes(self, notes: Sequence[TfdeployError]) -> None:
        """Print what may matter and prevents nothing."""
        if notes:
            self._print_problem("note: ", "yellow", FleetError(notes))

    def _print_problem(self, label: str, style: str, error: TfdeployError) -> None:
        self.flush()
        first, *rest = str(error).split("\n")
        with self.lock:
            self.err.print((label, style), first)
            for line in rest:
                self.err.print(line)

    def print_interrupted(self, *lines: str) -> None:
        self.flush()
        for line in ("", *lines):
            self.err.print(line)

    def print_warning(self, error: TfdeployError, next_step: str) -> None:
        self.print_yellow(*str(error).split("\n"), next_step)

    def print_yellow(self, *lines: str) -> None:
        for line in lines:
            self.err.print((line, "yellow"))

    @property
    def progress_stream(self) -> TextStream:
        """Where progress is shown: on the terminal if there is one, never in a file of results."""
        if self.is_quiet:
            return TextStream(quiet=True)
        return self.out if self.out.is_terminal else self.err

    def spinner(self, text: str) -> AbstractContextManager[object]:
        """Return a context that shows `text` beside a spinner, on a terminal only."""
        is_shown = self.err.is_terminal and not self.is_quiet
        return self.err.status(text) if is_shown else nullcontext()


def print_json(document: object) -> None:
    """Print what a command returned, on standard output.

    Characters that a terminal would obey or hide (C1, bidirectional) are written as JSON's escapes.
    """
    _write(_dump(document, indent=1))


def print_json_lines(documents: Iterable[object]) -> None:
    """Print each document in a line of its own, at once."""
    _write(*(_dump(document) for document in documents))


def _dump(document: object, indent: int | None = None) -> str:
    # JSON is UTF-8 (RFC 8259); ASCII is, too.
    is_utf8 = (sys.stdout.encoding or "utf-8").lower() in ("utf-8", "utf8")
    text = json.dumps(to_json(document), indent=indent, ensure_ascii=not is_utf8)
    return escape_json(text)


def _write(*texts: str) -> None:
    sys.stdout.write("".join(f"{text}\n" for text in texts))
    sys.stdout.flush()
