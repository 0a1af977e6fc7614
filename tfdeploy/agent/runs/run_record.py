"""What a host knows of its runs: their records, for a controller without one (the verbs `recorded`
and `record`), and which runs were deleted from it, when, and by whom."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional

from ...shared import filesystem, records
from ...shared.protocol.message import Done
from ...shared.protocol.record import to_json
from ...shared.protocol.runs import KnownRun, KnownRuns, RecordTexts, RunRecord
from .. import paths
from ..machine import lock
from ..refusal import Refusal

MAX_RUNS = 100
# The file begins with the number of starts and the last launch; what follows may be large.
FIRST = re.compile(rb'\s*{\s*"starts":\s*(\d{1,18}),\s*"launched":\s*"(\w{0,40})"')
FIRST_BYTES = 96
MAX_REMOVALS_BYTES = 200_000  # about two thousand runs


def store(project: str, run: str, record: RunRecord) -> None:
    """Store a run's record beside its tasks. Raises OSError."""
    first = {"starts": record.starts, "launched": record.launched}
    records.write(paths.record(project, run), {**first, **to_json(record)})


def refuse_outdated(
    project: str,
    run: str,
    starts: int,
    launched: str,
    newest: Optional[Dict[str, Any]],
) -> None:
    """Raise Refusal if the run was started again since its `starts`-th start, the launch
    `launched`: another controller has resumed or scaled it. Also if the controller
    takes it for the `newest` run of its folder and hosts file, and has no record of a newer one.
    """
    newer = _find_newer(project, run, newest) if newest else ""
    if newer:
        raise Refusal(
            "it has run {}, which is newer than run {}".format(newer, run),
            "name the run that you mean: --run {} or --run {}".format(newer, run),
            newer=newer,
        )
    try:
        with os.fdopen(filesystem.open_regular(paths.record(project, run)), "rb") as file:
            found = FIRST.match(file.read(FIRST_BYTES))
    except OSError:
        return
    if not found:
        return
    stored, other = int(found.group(1)), found.group(2).decode()
    if stored > starts or (stored == starts and other != launched):
        raise Refusal(
            "run {} was resumed or scaled since the controller's record of it".format(run),
            "tfdeploy status --run {} takes the newer record".format(run),
            outdated=True,
        )


def _find_newer(project: str, run: str, newest: Dict[str, Any]) -> str:
    """Return the newest run that was started from the controller's folder and hosts file, and that
    it does not know; "" if there is none that is newer than `run`."""
    for other in _newest(project):
        if other <= run:
            return ""
        if other not in newest["known"] and _is_from(paths.record(project, other), newest):
            return other
    return ""


def _is_from(record: str, newest: Dict[str, Any]) -> bool:
    try:
        values = json.loads(records.read(record)["run"])
        place = (values["folder"], values["hosts_file"])
        return place == (newest["folder"], newest["file"]) and not values["by_id_only"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # no record
        return False


def is_stored(project: str, run: str, record: RunRecord) -> bool:
    """Return whether this very record is stored: then the start that it came with has succeeded."""
    return bool(records.read_or_empty(dict, paths.record(project, run)) == to_json(record))


def recorded(project: str) -> KnownRuns:
    """List the newest runs that have a record here."""
    found = {run: _summary(project, run) for run in _newest(project)}
    return KnownRuns(
        [summary for summary in found.values() if summary],
        [run for run in found if not found[run] and os.path.exists(paths.record(project, run))],
    )


def _newest(project: str) -> List[str]:
    folder = paths.runs(project)
    return sorted(os.listdir(folder), reverse=True)[:MAX_RUNS] if os.path.isdir(folder) else []


def record(project: str, run: str) -> RecordTexts:
    """Return the two texts of a run's record. Raises Refusal if it has none."""
    try:
        found = records.read(paths.record(project, run))
        return RecordTexts(run=found["run"], hosts=found["hosts"])
    except (OSError, ValueError, KeyError, TypeError):
        raise Refusal("it has no record of run {}".format(run)) from None


def forget(project: str, run: str, launched: str) -> Done:
    """Delete the record of a run of which hosts have refused the launch `launched`: no controller
    may take it for the newest run."""
    file = paths.record(project, run)
    if records.read_or_empty(dict, file).get("launched") == launched:
        filesystem.remove_file(file)
    return Done()


def other_folder(project: str, run: str, record: RunRecord) -> str:
    """Return the controller's folder from which the newest other run was started; "" if `run`, with
    this record, was started from the same."""
    files = (paths.record(project, other) for other in _newest(project) if other != run)
    newest = next(filter(os.path.exists, files), "")
    try:
        found = _folder(records.read(newest)["run"]) if newest else ""
        return found if found != _folder(record.run) else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # an unreadable record
        return ""


def _folder(run_json: str) -> str:
    """Return the folder in the text of a run.json."""
    return str(json.loads(run_json)["folder"])


def _summary(project: str, run: str) -> Optional[KnownRun]:
    """Return None if the run has no valid record."""
    try:
        found = records.read(paths.record(project, run))
        run_digest = RecordTexts(found["run"], found["hosts"]).digest
        tasks = [paths.task(project, run, task) for task in paths.tasks(project, run)]
        live = any(lock.is_live(task_dir) for task_dir in tasks)
        return KnownRun(id=run, starts=int(found["starts"]), digest=run_digest, live=live)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def add_removal(project: str, run: str, by: str) -> None:
    """Record that a run is being deleted; not on a disk that is full or read-only."""
    line = json.dumps({"run": run, "at": time.time(), "by": by}).encode() + b"\n"
    with suppress(OSError):
        filesystem.append_line(paths.removals(project), line, MAX_REMOVALS_BYTES)


def removal_refusal(project: str, run: str) -> Optional[Refusal]:
    """Return the refusal of a request for a run that was deleted from this host; None for one that
    is stored here, or that never was."""
    if os.path.isdir(paths.run(project, run)):  # also a run that was resumed since then
        return None
    try:
        lines = filesystem.read_bytes(paths.removals(project)).splitlines()
        removals = [json.loads(line) for line in lines]
        last = next(each for each in reversed(removals) if each["run"] == run)
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(last["at"]))
        by = " by {}".format(last["by"]) if last["by"] else ""
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None
    return Refusal(
        "run {} was deleted from its hosts on {}{}".format(run, day, by),
        "what was collected stays on the controller; a new run: tfdeploy start",
        deleted=True,
    )
