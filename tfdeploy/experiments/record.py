"""A sweep's record on the controller: the results so far, and what they have in common.

It is the document that `tfdeploy sweep --json` prints, written again after each run. A measured
result never changes.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.machine import filesystem
from tfdeploy.errors import RunError
from tfdeploy.experiments.speedup import MEASURED, Cell, Load, Rate, Result, Sweep
from tfdeploy.file_lock import locked
from tfdeploy.run import make_output_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FILE = "sweep.json"
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
        """Write a result, in place of an older one of its cell. Raises RunError."""
        self._write({**self.sweep.results, result.cell: result})

    def delete(self, cell: Cell) -> None:
        self._write({c: result for c, result in self.sweep.results.items() if c != cell})

    def _write(self, results: Mapping[Cell, Result]) -> None:
        """Replace the file at once. Raises RunError."""
        self.sweep = replace(self.sweep, results=results)
        text = json.dumps(to_document(self.sweep), indent=1) + "\n"
        try:
            filesystem.replace_file(str(self._file), text.encode())
        except OSError as error:
            raise RunError(f"{self._file} can't be written: {error.strerror}") from None


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create the folder and hold its lock: two sweeps in one folder would stop each other's runs.
    Raises RunError if another sweep holds it."""
    try:
        _create(folder)
    except OSError as error:
        raise RunError(f"{folder} can't be written: {error.strerror}") from None
    refusal = RunError(f"another sweep is running in {folder}", "wait until it ends")
    with locked(folder / LOCK, refusal):
        yield


def _create(folder: Path) -> None:
    """Create the folder. An existing one must be a sweep's: if it is part of the source, a release
    ignores it as a whole, so it must contain nothing else."""
    if (folder / LOCK).exists():
        return
    if folder.exists():
        found = f"{folder} already exists and is not a sweep's folder"
        raise RunError(found, "choose a new folder with --out")
    make_output_folder(folder)


def _read(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return {"terms": {}, "cells": []}
    except (OSError, ValueError) as error:
        raise RunError(f"{file} can't be read: {error}", OTHER_FOLDER_HINT) from None
    return document


def _parse_results(file: Path, document: dict[str, Any]) -> dict[Cell, Result]:
    try:
        results = [_parse_result(cell) for cell in document["cells"]]
    except (AttributeError, KeyError, TypeError) as error:
        message = f"{file} is not the record of a sweep: {error!r}"
        raise RunError(message, OTHER_FOLDER_HINT) from None
    return {result.cell: result for result in results}


def _parse_result(cell: dict[str, Any]) -> Result:
    is_measured = cell["steps_per_s"] is not None
    return Result(
        cell=Cell(cell["workers"], cell["ps"]),
        run=cell["run"],
        result=cell["result"],
        reason=cell["reason"],
        rate=Rate(cell["steps_per_s"], cell["seconds"]) if is_measured else None,
        load=Load(**cell["load"]),
    )


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


def to_document(sweep: Sweep) -> dict[str, Any]:
    """Return the JSON document. Speed-ups are relative to `base`. An unknown number is null."""
    base = sweep.base and {"ps": sweep.base.cell.ps, "workers": sweep.base.cell.workers}
    enough = {str(workers): cell.ps for workers, cell in sweep.enough().items()}
    return {
        "terms": dict(sweep.terms),
        "examples_per_step": sweep.examples_per_step,
        "synchronous": sweep.synchronous,
        "base": base,
        "cells": [_cell_document(sweep, result) for result in sweep],
        "enough_ps": enough,
    }


def _cell_document(sweep: Sweep, result: Result) -> dict[str, Any]:
    steps_per_s, seconds = result.rate or (None, None)
    return {
        "ps": result.cell.ps,
        "workers": result.cell.workers,
        "run": result.run,
        "result": result.result,
        "reason": result.reason,
        "steps_per_s": steps_per_s,
        "seconds": seconds,
        "examples_per_s": sweep.examples_per_s(result),
        "speedup": sweep.speedup(result),
        "load": asdict(result.load),
    }
