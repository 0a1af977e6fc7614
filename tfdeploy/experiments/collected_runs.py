"""Find collected runs by their ids, names or folders, and read the scalars that they reported."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.experiments import history, scalars
from tfdeploy.experiments.history import find_pauses
from tfdeploy.folders.own_folder import read_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.experiments.history import Pause
    from tfdeploy.experiments.scalars import Series
    from tfdeploy.run import Run

MAX_LOG_BYTES = 1 << 30


@dataclass(frozen=True)
class CollectedRun:
    """A run's folder on the controller. `record` is None if the folder has no readable one."""

    label: str
    folder: Path
    record: Run | None

    @property
    def id(self) -> str:
        return self.folder.absolute().name

    @property
    def project(self) -> str:
        return self.record.inventory.project if self.record else ""

    @property
    def words(self) -> tuple[str, ...]:
        return self.record.words if self.record else ()

    def pauses(self) -> tuple[Pause, ...]:
        """Return when the run was stopped and resumed later, by the history of its chief. Raises
        OSError."""
        return find_pauses(history.read(_chief_log(self).with_suffix(".history.jsonl")))


def find_runs(hosts: Path, arguments: Sequence[str]) -> list[CollectedRun]:
    """Return the runs of `RUN`, `NAME*` or `LABEL=RUN` arguments.

    A RUN is an id or name beside the hosts file, or a folder; `NAME*` stands for all runs with such
    a name. Raises RunError if one doesn't exist, or two have the same label.
    """
    base = hosts.absolute().parent / runs.FOLDER
    found = [each for argument in arguments for each in _find(base, argument)]
    return _with_labels(found)


def _find(base: Path, argument: str) -> list[CollectedRun]:
    # A folder's name may contain "=".
    label, _, name = ("", "", argument) if _is_folder(Path(argument)) else argument.partition("=")
    label, name = (label, name) if name else ("", label)
    folders = _find_folders(base, name)
    return [CollectedRun(label, folder, _read_record(folder)) for folder in folders]


def _find_folders(base: Path, name: str) -> list[Path]:
    """Return the folder of a run, or with a `*` in its name those of all runs with such a name."""
    exact = [folder for folder in (base / name, Path(name)) if name and _is_folder(folder)]
    if exact:
        return exact[:1]
    named = runs.ids_by_name(base, name)
    if not named:
        message = f'there is no run "{name}" in {base}, and no such folder'
        raise RunError(message, runs.newest_hint(base))
    return [base / run_id for run_id in (sorted(named) if "*" in name else named[:1])]


def _is_folder(path: Path) -> bool:
    """Return False also for a name that is too long, or in a folder that we may not read."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _read_record(folder: Path) -> Run | None:
    with suppress(OSError, TfdeployError):
        return runs.read_folder(folder)
    return None


def _with_labels(found: Sequence[CollectedRun]) -> list[CollectedRun]:
    """Label each unlabelled run with its project if all projects differ; or else with its name, or
    with its id if it has none or shares it."""
    projects = {each.project for each in found} - {""}
    names = Counter(each.record.name for each in found if each.record)
    differ = len(projects) == len(found) > 1

    def label_of(each: CollectedRun) -> str:
        name = each.record.name if each.record else ""
        return each.project if differ else name if names[name] == 1 and name else each.id

    labelled = [replace(each, label=each.label or label_of(each)) for each in found]
    for label, count in Counter(each.label for each in labelled).items():
        if count > 1:
            raise RunError(f'{count} runs have the label "{label}"', "label them: LABEL=RUN")
    return labelled


def read_scalars(collected_run: CollectedRun) -> dict[str, Series]:
    """Return the run's scalars by name: from its event files, or else the losses that its chief's
    log has. Raises RunError if there is none."""
    try:
        _refuse_uncollected(collected_run)
        found = scalars.read_events(collected_run.folder / "events") or _read_log(collected_run)
    except OSError as error:
        raise RunError(f"{error.filename} can't be read: {error.strerror}") from None
    if not found:
        text = "its event files have no scalar, and its chief's log has no losses"
        raise RunError(f"run {collected_run.id}: {text}")
    return found


def _refuse_uncollected(collected_run: CollectedRun) -> None:
    folder, record = collected_run.folder, collected_run.record
    if any((folder / name).is_dir() for name in ("events", "logs")):
        return
    if record:
        hint = f"tfdeploy collect {record.flags}"
        raise RunError(f"run {collected_run.id} was not collected yet", hint)
    raise RunError(f"{folder} is not a run's folder: it has neither events/ nor logs/")


def _read_log(collected_run: CollectedRun) -> dict[str, Series]:
    log = _chief_log(collected_run)
    files = [file for file in (log.with_name(f"{log.name}.1"), log) if file.is_file()]
    text = "".join(read_file(file, MAX_LOG_BYTES).decode(errors="replace") for file in files)
    return scalars.parse_losses(text).scalars


def _chief_log(collected_run: CollectedRun) -> Path:
    logs = collected_run.folder / "logs"
    if collected_run.record:
        return logs / f"{collected_run.record.plan.chief.task.file_name}.log"
    chief = logs / "chief-0.log"
    return chief if chief.is_file() else logs / "worker-0.log"
