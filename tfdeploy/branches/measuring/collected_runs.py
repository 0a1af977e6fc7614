"""Find collected runs by their ids, names or folders, and read the scalars that they reported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.branches.measuring import history, scalars
from tfdeploy.branches.measuring.history import find_pauses
from tfdeploy.errors import RunError
from tfdeploy.folders.own_folder import read_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.branches.measuring.history import Pause
    from tfdeploy.branches.measuring.scalars import Series
    from tfdeploy.run import Run

MAX_LOG_BYTES = 1 << 30


@dataclass(frozen=True)
class CollectedRun:
    """A run, and its folder on the controller, which may have been moved."""

    label: str
    folder: Path
    record: Run

    @property
    def chief_log(self) -> Path:
        return self.folder / "logs" / f"{self.record.plan.chief.task.file_name}.log"

    def pauses(self) -> tuple[Pause, ...]:
        """Return when the run was stopped and resumed later, by the history of its chief. Raises
        OSError."""
        return find_pauses(history.read(self.chief_log.with_suffix(".history.jsonl")))


def find_runs(hosts: Path, arguments: Sequence[str]) -> list[CollectedRun]:
    """Return the runs of `RUN`, `NAME*` or `LABEL=RUN` arguments.

    A RUN is an id or name beside the hosts file, or a folder; `NAME*` stands for all runs with such
    a name. Raises RunError if one doesn't exist.
    """
    base = hosts.absolute().parent / runs.FOLDER
    found = [each for argument in arguments for each in _find(base, argument)]
    records = [_read_record(folder) for _, folder in found]
    return [
        CollectedRun(label or own, folder, record)
        for (label, folder), record, own in zip(found, records, runs.labels(records), strict=True)
    ]


def _find(base: Path, argument: str) -> list[tuple[str, Path]]:
    """Return the label and the folder of each run; "" without a label."""
    # A folder's name may contain "=".
    label, _, name = ("", "", argument) if _is_folder(Path(argument)) else argument.partition("=")
    label, name = (label, name) if name else ("", label)
    exact = [folder for folder in (base / name, Path(name)) if name and _is_folder(folder)]
    named = [] if exact else [base / run_id for run_id in runs.ids_by_name(base, name)]
    folders = exact[:1] or (sorted(named) if "*" in name else named[:1])
    if not folders:
        message = f'there is no run "{name}" in {base}, and no such folder'
        raise RunError(message, runs.newest_hint(base))
    return [(label, folder) for folder in folders]


def _is_folder(path: Path) -> bool:
    """Return False also for a name that is too long, or in a folder that we may not read."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _read_record(folder: Path) -> Run:
    try:
        return runs.read_folder(folder)
    except OSError:
        raise RunError(f"{folder} has no record of a run") from None


def read_scalars(collected_run: CollectedRun) -> dict[str, Series]:
    """Return the run's scalars by name: from its event files, or else the losses that its chief's
    log has. Raises RunError if there is none."""
    folder, record = collected_run.folder, collected_run.record
    try:
        if not any((folder / name).is_dir() for name in ("events", "logs")):
            hint = f"tfdeploy collect {record.flags}"
            raise RunError(f"run {record.id} was not collected yet", hint)
        found = scalars.read_events(folder / "events") or _read_log(collected_run)
    except OSError as error:
        raise RunError(f"{error.filename} can't be read: {error.strerror}") from None
    if not found:
        text = "its event files have no scalar, and its chief's log has no losses"
        raise RunError(f"run {record.id}: {text}")
    return found


def _read_log(collected_run: CollectedRun) -> dict[str, Series]:
    log = collected_run.chief_log
    files = [file for file in (log.with_name(f"{log.name}.1"), log) if file.is_file()]
    text = "".join(read_file(file, MAX_LOG_BYTES).decode(errors="replace") for file in files)
    return scalars.parse_losses(text)
