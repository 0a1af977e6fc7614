"""Find collected runs by their ids or folders, and read the scalars that they reported."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import run
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.experiments import scalars

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from tfdeploy.experiments.scalars import Series
    from tfdeploy.run import Run

VALUE_GROUPS = ("value", "loss")
PATTERN_HINT = r"--pattern 'step (?P<step>\d+) loss (?P<loss>\S+)' reads the chief's log instead"


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


def find_runs(hosts: Path, arguments: Sequence[str]) -> list[CollectedRun]:
    """Return the runs of `RUN` or `LABEL=RUN` arguments; a RUN is an id beside the hosts file, or a
    folder. Raises RunError if one doesn't exist, or two have the same label."""
    return _with_labels([_find_run(hosts, argument) for argument in arguments])


def _find_run(hosts: Path, argument: str) -> CollectedRun:
    # A folder's name may contain "=".
    label, _, name = ("", "", argument) if _is_folder(Path(argument)) else argument.partition("=")
    label, name = (label, name) if name else ("", label)
    base = hosts.absolute().parent / run.FOLDER
    folder = base / name if _is_folder(base / name) else Path(name)
    if not _is_folder(folder):
        hint = run.newest_hint(base) or "pass --hosts FILE"
        raise RunError(f'there is no run "{name}" in {base}, and no such folder', hint)
    return CollectedRun(label, folder, _read_record(folder))


def _is_folder(path: Path) -> bool:
    """Return False also for a name that is too long, or in a folder that we may not read."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _read_record(folder: Path) -> Run | None:
    with suppress(OSError, TfdeployError):
        return run.read_folder(folder)
    return None


def _with_labels(runs: Sequence[CollectedRun]) -> list[CollectedRun]:
    """Label each unlabelled run with its project if all projects differ, or else with its id."""
    projects = {each.project for each in runs} - {""}
    differ = len(projects) == len(runs) > 1
    labels = [each.label or (each.project if differ else each.id) for each in runs]
    for label, count in Counter(labels).items():
        if count > 1:
            raise RunError(f'{count} runs have the label "{label}"', "label them: LABEL=RUN")
    return [replace(each, label=label) for label, each in zip(labels, runs, strict=True)]


def read_scalars(collected_run: CollectedRun, pattern: re.Pattern[str] | None) -> dict[str, Series]:
    """Return the run's scalars by name: from its event files, or with `pattern` from its chief's
    log. Raises RunError if there is none."""
    try:
        _refuse_uncollected(collected_run)
        if pattern:
            return _read_log(collected_run, pattern)
        return _read_events(collected_run)
    except OSError as error:
        raise RunError(f"{error.filename} can't be read: {error.strerror}") from None


def _refuse_uncollected(collected_run: CollectedRun) -> None:
    folder, record = collected_run.folder, collected_run.record
    if any((folder / name).is_dir() for name in ("events", "logs")):
        return
    if record:
        hint = f"tfdeploy collect {record.flags}"
        raise RunError(f"run {collected_run.id} was not collected yet", hint)
    raise RunError(f"{folder} is not a run's folder: it has neither events/ nor logs/")


def _read_events(collected_run: CollectedRun) -> dict[str, Series]:
    found = scalars.read_events(collected_run.folder / "events")
    if not found:
        raise RunError(f"run {collected_run.id}: its event files have no scalar", PATTERN_HINT)
    return found


def _read_log(collected_run: CollectedRun, pattern: re.Pattern[str]) -> dict[str, Series]:
    group = next((name for name in VALUE_GROUPS if name in pattern.groupindex), None)
    if not group:
        found = f'the pattern "{pattern.pattern}" has no group (?P<loss>…) or (?P<value>…)'
        raise RunError(found, scalars.GROUPS)
    log = _chief_log(collected_run)
    files = [file for file in (log.with_name(f"{log.name}.1"), log) if file.is_file()]
    text = "".join(file.read_text(errors="replace") for file in files)
    points = scalars.parse_log(text, pattern)
    series = tuple(point for point in points if point.value is not None)
    if not series:
        last = (text.splitlines() or [""])[-1]
        found = f'no line of {log} matches "{pattern.pattern}"'
        raise RunError(found, f"its last line is: {last}" if last else "")
    return {group: series}


def _chief_log(collected_run: CollectedRun) -> Path:
    logs = collected_run.folder / "logs"
    if collected_run.record:
        return logs / f"{collected_run.record.plan.chief.task.file_name}.log"
    chief = logs / "chief-0.log"
    return chief if chief.is_file() else logs / "worker-0.log"
