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


@dataclass(frozen=True)
class RunGroup:
    """Runs that are one line of a plot: a single run, or repeated ones."""

    label: str
    runs: tuple[CollectedRun, ...]


def find_groups(hosts: Path, arguments: Sequence[str]) -> list[RunGroup]:
    """Return the runs of `RUN`, `RUN,RUN`, `NAME*` or `LABEL=…` arguments, one group for each.

    A RUN is an id or name beside the hosts file, or a folder; `NAME*` stands for all runs with such
    a name. Raises RunError if one doesn't exist, or two have the same label.
    """
    groups = [_find_group(hosts.absolute().parent / runs.FOLDER, each) for each in arguments]
    return _with_labels(groups)


def _find_group(base: Path, argument: str) -> RunGroup:
    # A folder's name may contain "=" or ",".
    label, _, names = ("", "", argument) if _is_folder(Path(argument)) else argument.partition("=")
    label, names = (label, names) if names else ("", label)
    is_one = _is_folder(Path(names)) or _is_folder(base / names)
    folders = [found for name in ([names] if is_one else names.split(","))
               for found in _find_folders(base, name)]  # fmt: skip
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise RunError(f"{argument} has a run twice", "name each run once")
    found = _labelled([CollectedRun("", folder, _read_record(folder)) for folder in folders])
    repeats = names if len(found) > 1 else ""
    return RunGroup(label or repeats, tuple(found))


def _find_folders(base: Path, name: str) -> list[Path]:
    """Return the folder of a run, or with a `*` in its name those of all runs with such a name."""
    exact = [folder for folder in (base / name, Path(name)) if name and _is_folder(folder)]
    if exact:
        return exact[:1]
    named = runs.ids_by_name(base, name)
    if not named:
        hint = runs.newest_hint(base) or "pass --hosts FILE"
        raise RunError(f'there is no run "{name}" in {base}, and no such folder', hint)
    return [base / run_id for run_id in (sorted(named) if "*" in name else named[:1])]


def _labelled(runs: Sequence[CollectedRun]) -> list[CollectedRun]:
    """Label each run with its name, or with its id if it has none or shares it."""
    names = [each.record.name if each.record else "" for each in runs]
    return [
        replace(each, label=name if name and names.count(name) == 1 else each.id)
        for each, name in zip(runs, names, strict=True)
    ]


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


def _with_labels(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Label each unlabelled group of one run with its project if all projects differ, or else with
    the run's name or id."""
    singles = _labelled([group.runs[0] for group in groups])
    projects = {each.project for each in singles} - {""}
    differ = len(projects) == len(groups) > 1
    labels = [
        group.label or (single.project if differ else single.label)
        for group, single in zip(groups, singles, strict=True)
    ]
    for label, count in Counter(labels).items():
        if count > 1:
            raise RunError(f'{count} runs have the label "{label}"', "label them: LABEL=RUN")
    return [_with_label(group, label) for label, group in zip(labels, groups, strict=True)]


def _with_label(group: RunGroup, label: str) -> RunGroup:
    """Label the group; a single run has its label, too."""
    is_single = len(group.runs) == 1
    runs = (replace(group.runs[0], label=label),) if is_single else group.runs
    return RunGroup(label, runs)


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
