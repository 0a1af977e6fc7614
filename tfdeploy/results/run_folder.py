"""The folder of a run on the controller: one command writes to it at a time, and no part of a
checkpoint is ever visible in it.

runs/<run>/checkpoints/      the chief's checkpoints, with a state file whose paths are relative
runs/<run>/outputs/          what else the chief wrote, or what another task did: outputs/<task>/
"""

from __future__ import annotations

import json
import posixpath
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypedDict

from tfdeploy.errors import TfdeployError, TransferFailed
from tfdeploy.folders.disk_errors import explain
from tfdeploy.shared import state_file
from tfdeploy.shared.records import ENDED, MAX_HISTORY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

RESULTS, EVENTS = ".collecting", ".collecting-events"
WAITS = "waiting until another command has fetched results of this run"
_LOCKS: dict[Path, threading.Lock] = {}


@contextmanager
def exclusive(run: Run, transfers: Transfers, lock: str = RESULTS) -> Iterator[None]:
    """Hold a lock of the run: two collects would write the same files. That of its EVENTS is held
    by `tensorboard`, too, for a moment every few seconds.

    Wait for another process that holds it, and for another thread, such as one that a Cancelled
    has left to finish a fetch. `transfers` show that, and may end it.
    """
    among_threads = _LOCKS.setdefault(run.folder / lock, threading.Lock())
    with ExitStack() as held:
        with transfers.begin("controller", note=WAITS):
            held.enter_context(among_threads)
            held.enter_context(run.open().locked(lock, check=transfers.check))
        yield


def clean_up(run: Run) -> None:
    """Delete what commands that were killed have left in the run's folder. Both locks are held."""
    with suppress(OSError):  # the fetch that follows says what is wrong with the folder
        run.open().clean_up()


@contextmanager
def disk_errors(agent: Agent, run: Run) -> Iterator[None]:
    """Raise TransferFailed with the host's name for an error of the controller's disk."""
    try:
        yield
    except OSError as error:
        message, hint = explain(error, run.folder)
        raise TransferFailed(agent.host, f"on the controller, {message}", hint) from None


class TaskKeys(TypedDict):
    """The keys by which an agent identifies a task."""

    project: str
    run: str
    task: str


def task_request(run: Run, placement: Placement) -> TaskKeys:
    return TaskKeys(project=run.inventory.project, run=run.id, task=str(placement.task))


def outputs_folder(run: Run, placement: Placement) -> OwnFolder:
    """Return where a task's outputs are stored on the controller. Those of slots are together:
    each trial has its own folder."""
    folder, is_slot = run.open() / "outputs", bool(run.inventory.trials.points)
    is_first = is_slot or placement == run.plan.chief
    return folder if is_first else folder / placement.task.file_name


def folders_of_others(run: Run, placement: Placement) -> set[str]:
    """Return the names in a task's `outputs_folder` that are the folders of other tasks."""
    if placement != run.plan.chief or run.inventory.trials.points:
        return set()
    return {p.task.file_name for p in run.plan.placements if p != placement}


def checkpoint_outputs(run: Run) -> OwnFolder:
    """Return where the files of the chief's checkpoint_dir are stored as outputs. Raises
    OSError."""
    outputs, place = run.open() / "outputs", checkpoint_dir(run).lstrip("/")
    return outputs if place in ("", ".") else outputs / place


def checkpoint_dir(run: Run) -> str:
    return posixpath.normpath(run.inventory.training.checkpoint_dir)


def has_end_of(run: Run, checkpoint: str) -> bool:
    """Return whether a collect has fetched what a run had at its end: the history of its chief's
    states, up to the end, and its newest `checkpoint` ("" if it has none)."""
    history = f"{run.plan.chief.task.file_name}.history.jsonl"
    with suppress(OSError, LookupError, TypeError, ValueError, RecursionError, TfdeployError):
        folder = run.open()
        *_, last = (folder / "logs").read(history, MAX_HISTORY_BYTES).splitlines()
        names = read_state(folder / "checkpoints") if checkpoint else [checkpoint]
        return json.loads(last)["state"] in ENDED and checkpoint in names
    return False


def install(
    incoming: OwnFolder,
    folder: OwnFolder,
    names: Iterable[str],
    mtimes_ns: Mapping[str, int] | None = None,
    newest: str = "",
) -> None:
    """Move verified files, or a whole folder, into `folder`. Raises OSError.

    The index of a checkpoint, which makes TensorFlow see it, disappears first and arrives last.
    Files of `folder` get the times `mtimes_ns`, also those that were in it. Then, if `newest` is a
    checkpoint, the state file names it.
    """
    ordered = state_file.index_last(names)
    for name in ordered:
        if name.endswith(state_file.INDEX):  # of an older checkpoint of the same name
            folder.remove(name)
    for name in ordered:
        incoming.move(name, folder)
    for name, mtime_ns in (mtimes_ns or {}).items():
        folder.set_time(name, mtime_ns)
    if newest:
        write_state(folder, newest)


def read_state(folder: OwnFolder) -> list[str]:
    """Return the checkpoints that the folder's state file names, newest first; [] without one."""
    try:
        text = folder.read(state_file.STATE, state_file.MAX_CHARACTERS).decode(errors="replace")
    except OSError:
        return []
    return state_file.parse(text)


def write_state(folder: OwnFolder, newest: str) -> None:
    """Name all complete checkpoints of the folder, `newest` as the latest. Raises OSError."""
    files = folder.files()
    by_age = sorted(files, key=lambda name: files[name].st_mtime_ns)
    folder.write(state_file.STATE, [state_file.text(by_age, newest).encode()])
