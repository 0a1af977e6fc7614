"""A sweep's record at home: what was measured so far, and of what.

It is what `tfdeploy sweep --json` prints, written anew after each run. A cell that was measured
stays as it is.
"""

from __future__ import annotations

import fcntl
import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdeploy import documents
from tfdeploy.errors import RunError
from tfdeploy.run import make_folder
from tfdeploy.speedup import MEASURED, Cell, Load, Rate, Result, Sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FILE = "sweep.json"
LOCK = ".sweeping"  # stays, and says whose folder it is
SHOWN = 40
ANOTHER = "name another folder with --out, or take this one away"


class Logbook:
    """The sweep in a folder. `sweep` is all that is known of it by now."""

    def __init__(self, folder: Path, asked: Sweep) -> None:
        """What is in the folder already, counted as it is `asked` now. Raises RunError where that
        was measured of something else."""
        self._file = folder / FILE
        record = _read(self._file)
        results = _results(self._file, record)
        if any(each.result == MEASURED for each in results.values()):
            _refuse_others(folder, record.get("terms", {}), asked.terms)
        self.sweep = replace(asked, results=results)

    def put(self, result: Result) -> None:
        """In the place of what there was of its cell."""
        self._write({**self.sweep.results, result.cell: result})

    def drop(self, cell: Cell) -> None:
        self._write({c: each for c, each in self.sweep.results.items() if c != cell})

    def _write(self, results: Mapping[Cell, Result]) -> None:
        """Whole or not at all. Raises RunError."""
        self.sweep = replace(self.sweep, results=results)
        fresh = self._file.with_name(f".{FILE}.new")
        try:
            fresh.write_text(json.dumps(documents.swept(self.sweep), indent=1) + "\n")
            fresh.replace(self._file)
        except OSError as error:
            raise RunError(f"{self._file} can't be written: {error.strerror}") from None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two sweeps in one folder would each end the other's runs. The kernel drops the lock with its
    holder. Raises RunError."""
    try:
        _make(folder)
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise RunError(f"{folder} can't be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another sweep is at work in {folder}", "wait for it") from None
        yield


def _make(folder: Path) -> None:
    """It is ignored as a whole where it lies among the source, so it must hold nothing else."""
    if (folder / LOCK).exists():
        return
    if folder.exists():
        raise RunError(f"{folder} is there, and is no sweep's", "name a new folder with --out")
    make_folder(folder)


def _read(file: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return {"terms": {}, "cells": []}
    except (OSError, ValueError) as error:
        raise RunError(f"{file} can't be read: {error}", ANOTHER) from None
    return record


def _results(file: Path, record: dict[str, Any]) -> dict[Cell, Result]:
    try:
        results = [_result(each) for each in record["cells"]]
    except (AttributeError, KeyError, TypeError) as error:
        raise RunError(f"{file} is no record of a sweep: {error!r}", ANOTHER) from None
    return {each.cell: each for each in results}


def _result(told: dict[str, Any]) -> Result:
    measured = told["steps_per_s"] is not None
    rate = Rate(told["steps_per_s"], told["seconds"]) if measured else None
    said = (told["run"], told["result"], told["reason"])
    return Result(Cell(told["workers"], told["ps"]), *said, rate, Load(**told["load"]))


def _refuse_others(folder: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """What differs first is named."""
    old, new = _flat(was), _flat(now)
    for key in {**new, **old}:
        if old.get(key) != new.get(key):
            raise RunError(
                f"what {folder} holds was measured with {key} = {_shown(old.get(key))}, and now it "
                f"is {_shown(new.get(key))}",
                ANOTHER,
            )


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Each value by the path of its keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
