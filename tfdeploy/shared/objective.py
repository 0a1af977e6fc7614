"""Read a trial's objective, also while it trains: from event files, CSV, lines of JSON, or its log.

The first of these that has the scalar counts. In event files `val_accuracy` is also Keras's
`epoch_accuracy` in the folder of the validation; a name with a folder is the tag in that folder.
"""

from __future__ import annotations

import csv
import json
import os
import re
from itertools import islice
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .event_records import EVENTS
from .event_scalars import read_scalars
from .filesystem import open_regular, walk
from .log_patterns import EPOCH, ESCAPE, STEP
from .trials import is_number
from .units import MAX_ENTRIES

Points = Dict[int, float]


MAX_FILE_BYTES = 64 << 20
MAX_NAMES = 12
OVERLAP = 1 << 16  # of two reads of an event file: its last record may have been incomplete
VALIDATION = re.compile(r"(^|/)(validation|eval|val)(?=[/_]|$)")
STEPS = ("step", "epoch", "global_step", "iteration")  # columns and keys
NUMBER = r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|-?inf"
NAMED = re.compile(r"(?<![\w/])([A-Za-z]\w*)([ =:]{1,3})(" + NUMBER + r")(?!\.?\w)", re.I)
csv.field_size_limit(MAX_FILE_BYTES)  # a row may have a whole array


class Objective:
    """The values of a scalar that a trial has written so far, by step.

    `folder` is the trial's directory, `log` the file of what it prints; a file of which `is_input`
    says so was there before the trial. `names` are the scalars that were found, at most MAX_NAMES.
    """

    def __init__(
        self, name: str, mode: str, folder: str, log: str,
        is_input: Callable[[os.DirEntry[str]], bool] = lambda entry: False,
    ) -> None:  # fmt: skip
        self.name, self._folder, self._log = name, folder, log
        self._is_input = is_input
        self._better: Callable[..., float] = max if mode == "max" else min
        self._sources: List[Points] = [{}, {}, {}, {}]
        self._offsets: Dict[str, int] = {}
        self._epoch = 0
        self._counted = 0
        self.names: Dict[str, None] = {}

    def read(self) -> None:
        """Read what was written since the last call. Never raises OSError."""
        for entry in islice(walk(self._folder), MAX_ENTRIES):
            try:
                if entry.is_file(follow_symlinks=False) and self._may_have_values(entry):
                    self._read_file(entry)
            except OSError:  # it was deleted
                continue
        for line in self._new_lines(self._log):
            self._read_line(line)

    @property
    def points(self) -> List[Tuple[int, float]]:
        """Return the step and the value of each point, by step."""
        return sorted(next(filter(None, self._sources), {}).items())

    def best(self) -> Tuple[Optional[float], Optional[int]]:
        """Return the best value and its step; None for both if there is no number."""
        numbers = [(value, step) for step, value in self.points if is_number(value)]
        if not numbers:
            return None, None
        value = self._better(value for value, _ in numbers)
        return value, next(step for each, step in numbers if each == value)

    def rungs(self) -> List[Optional[float]]:
        """Return the best values up to the 1st, 3rd, 9th … point; None where none is a number."""
        values = [value for _, value in self.points]
        rungs, count = [], 1
        while count <= len(values):
            numbers = [each for each in values[:count] if is_number(each)]
            rungs.append(self._better(numbers) if numbers else None)
            count *= 3
        return rungs

    def _may_have_values(self, entry: os.DirEntry[str]) -> bool:
        is_known = EVENTS in entry.name or entry.name.endswith((".csv", ".jsonl"))
        return is_known and not self._is_input(entry)

    def _read_file(self, entry: os.DirEntry[str]) -> None:
        if EVENTS in entry.name:
            folder = os.path.relpath(os.path.dirname(entry.path), self._folder)
            start = max(0, self._offsets.get(entry.path, 0) - OVERLAP)
            for tag, point in read_scalars(self._read_from(entry.path, start)):
                self._add(0, _names_of_tag(folder, tag), point.step, point.value)
        elif entry.name.endswith(".csv"):
            if entry.stat().st_size != self._offsets.get(entry.path):
                rows = self._read_from(entry.path, 0).decode(errors="replace").splitlines()
                for row in csv.DictReader(line for line in rows if "\0" not in line):
                    self._read_values(1, row)
        elif entry.name.endswith(".jsonl"):
            for line in self._new_lines(entry.path):
                self._read_json(line)

    def _read_from(self, path: str, start: int) -> bytes:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(start)
            data = file.read(MAX_FILE_BYTES)
        self._offsets[path] = start + len(data)
        return data

    def _new_lines(self, path: str) -> Iterator[str]:
        """Yield the complete lines since the last call; a progress bar rewrites its line."""
        try:
            data = self._read_from(path, self._offsets.get(path, 0))
        except OSError:
            return
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._offsets[path] -= len(data) - end
        yield from re.split(r"[\r\n\b]+", ESCAPE.sub("", data[:end].decode(errors="replace")))

    def _read_line(self, line: str) -> None:
        if line.startswith("{"):
            self._read_json(line)
            return
        epoch, step = EPOCH.match(line), STEP.search(line)
        self._epoch = int(epoch[1]) if epoch else self._epoch
        for name, between, value in NAMED.findall(line):
            if not (name == self.name or between.strip()):
                continue  # such as "took 5"
            if name == self.name and not (step or self._epoch):
                self._counted += 1
            at = int(step[1]) if step else self._epoch or self._counted
            self._add(3, [name], at, float(value))

    def _read_json(self, line: str) -> None:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            return
        if isinstance(values, dict):
            self._read_values(2, values)

    def _read_values(self, source: int, values: Dict[Any, Any]) -> None:
        """Add the numbers of a row or an object, whose step is one of them, or else its place."""
        numbers = {str(name): _number(value) for name, value in values.items()}
        steps = [numbers[name] for name in STEPS if numbers.get(name) is not None]
        whole = next((int(each) for each in steps if each is not None and is_number(each)), None)
        at = len(self._sources[source]) if whole is None else whole
        for name, value in numbers.items():
            if value is not None and name not in STEPS:
                self._add(source, [name], at, value)

    def _add(self, source: int, names: List[str], step: int, value: Optional[float]) -> None:
        if len(self.names) < MAX_NAMES:
            self.names.setdefault(names[0])
        if self.name in names and value is not None:
            self._sources[source][step] = value


def _names_of_tag(folder: str, tag: str) -> List[str]:
    """Return the names of a tag in a folder of event files, the plainest one first."""
    names = [tag, "{}/{}".format(folder, tag)]
    plain = tag[len("epoch_") :] if tag.startswith("epoch_") else tag
    if VALIDATION.search(folder):
        return ["val_" + plain, names[1]]
    return [*names, plain]


def _number(value: Any) -> Optional[float]:
    try:
        return None if isinstance(value, bool) else float(value)
    except (ValueError, TypeError, OverflowError):
        return None
