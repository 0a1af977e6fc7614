"""A sweep's record on the controller: the results so far, and what they have in common.

It is the document that `tfdeploy sweep --json` prints, written again after each run. Only its runs
are read again; everything else follows from them. A measured result never changes.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdeploy.documents import to_json
from tfdeploy.errors import RunError
from tfdeploy.experiments.speed.report import sweep_document
from tfdeploy.experiments.speed.results import MEASURED, Cell, Rate, Result
from tfdeploy.folders.own_folder import OwnFolder, read_file
from tfdeploy.run import make_output_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tfdeploy.experiments.speed.results import Sweep

FILE = "sweep.json"
MAX_BYTES = 64 << 20
LOCK = ".sweeping"  # it stays, and marks the folder as a sweep's
MAX_VALUE_LENGTH = 40
OTHER_FOLDER_HINT = "choose another folder with --out, or delete this one"


class SweepRecord:
    """The record in a folder. `sweep` holds its results."""

    def __init__(self, folder: Path, empty: Sweep) -> None:
        """Read the results in the folder and count them as the `empty` sweep says. Raises RunError
        if they were measured with other terms."""
        self._file = folder / FILE
        document = _read(self._file)
        results = _parse_results(self._file, document)
        if any(result.result == MEASURED for result in results.values()):
            _refuse_other_terms(folder, document.get("terms", {}), empty.terms)
        self.sweep = replace(empty, results=results)

    def put(self, result: Result) -> None:
        """Write a result, in place of an older one of its cell and repeat. Raises RunError."""
        self._write({**self.sweep.results, (result.cell, result.repeat): result})

    def delete(self, result: Result) -> None:
        key = (result.cell, result.repeat)
        self._write({k: each for k, each in self.sweep.results.items() if k != key})

    def _write(self, results: Mapping[tuple[Cell, int], Result]) -> None:
        """Replace the file at once. Raises RunError."""
        self.sweep = replace(self.sweep, results=results)
        text = json.dumps(to_json(sweep_document(self.sweep)), indent=1) + "\n"
        try:
            OwnFolder.named(self._file.parent).write(FILE, [text.encode()])
        except OSError as error:
            raise RunError(f"{self._file} can't be written: {error.strerror}") from None


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create the folder and hold its lock: two sweeps in one folder would stop each other's runs.
    Raises RunError if another sweep holds it."""
    try:
        own = OwnFolder.named(folder)
        _create(own)
    except OSError as error:
        raise RunError(f"{folder} can't be written: {error.strerror}") from None
    refusal = RunError(f"another sweep is running in {folder}", "wait until it ends")
    with own.locked(LOCK, refusal):
        yield


def _create(folder: OwnFolder) -> None:
    """Create the folder. An existing one must be a sweep's: if it is part of the source, a release
    ignores it as a whole, so it must contain nothing else."""
    if folder.stat(LOCK):
        return
    if folder.path.exists():
        found = f"{folder.path} already exists and is not a sweep's folder"
        raise RunError(found, "choose a new folder with --out")
    make_output_folder(folder)


def _read(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(read_file(file, MAX_BYTES))
    except FileNotFoundError:
        return {"terms": {}, "cells": []}
    except (OSError, ValueError) as error:
        raise RunError(f"{file} can't be read: {error}", OTHER_FOLDER_HINT) from None
    return document


def _parse_results(file: Path, document: dict[str, Any]) -> dict[tuple[Cell, int], Result]:
    try:
        results = [_parse_run(cell, run) for cell in document["cells"] for run in cell["runs"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"{file} is not the record of a sweep: {error!r}"
        raise RunError(message, OTHER_FOLDER_HINT) from None
    return {(result.cell, result.repeat): result for result in results}


def _parse_run(cell: dict[str, Any], run: dict[str, Any]) -> Result:
    rate = run["steps_per_s"]
    return Result(
        cell=Cell(int(cell["workers"]), int(cell["ps"])),
        run=run["run"],
        result=run["result"],
        reason=run["reason"],
        rate=None if rate is None else _parse_rate(rate, run["seconds"], run["source"]),
        repeat=int(run["repeat"]),
        hosts=tuple(run["hosts"]),
    )


def _parse_rate(steps_per_s: float, seconds: float, source: str) -> Rate:
    if not steps_per_s > 0:
        raise ValueError(f"steps_per_s is {steps_per_s}")
    return Rate(steps_per_s, seconds, source)


def _refuse_other_terms(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise RunError with the first term that differs."""
    old, new = _flatten(old), _flatten(new)
    for key in {**new, **old}:
        if old.get(key) != new.get(key):
            was = f"with {key} = {_shorten(old[key])}" if key in old else f"without {key}"
            now = f"it is {_shorten(new[key])}" if key in new else "it is not set"
            raise RunError(f"{folder} was measured {was}; now {now}", OTHER_FOLDER_HINT)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return each value by the path of its keys, such as `training.role`."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 1] + "…"
