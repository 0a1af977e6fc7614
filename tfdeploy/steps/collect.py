"""`tfdeploy collect`: checkpoints, events and logs come home; a checkpoint whole, or not at all.

runs/<run>/checkpoints/   the chief's, with a `checkpoint` state file whose paths are relative
runs/<run>/events/        its TensorBoard events
runs/<run>/logs/          every task's log
runs/<run>/.incoming/     what a broken collect left, and the next one goes on with
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.checkpoints import file_set
from tfdeploy.errors import AgentError, RunError, TransferFailed, raise_all
from tfdeploy.fleet import errors_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.fleet import Fleet
    from tfdeploy.remote import Agent
    from tfdeploy.run import Run

PIN_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Checkpoint:
    """A step (None where its name holds none) and its complete file set, at home."""

    name: str
    step: int | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class Collected:
    """What came home. `checkpoints` are those of this collect, newest first; `source` is where on
    the chief's host they were looked for."""

    folder: Path
    source: str
    checkpoints: tuple[Checkpoint, ...]
    events: int
    logs: int


def collect(fleet: Fleet, run: Run, *, every: bool = False) -> Collected:
    """Fetch the chief's newest complete checkpoint (or `every` one), its events, and all logs.

    Raises the errors of all hosts, after what could be fetched was fetched, and RunError while
    another collect of this run is at work.
    """
    with _alone(run):
        return _collect(fleet, run, every)


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """Two collects would grow the same files. The kernel drops the lock with its holder."""
    try:
        with (run.folder / ".collecting").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError:
        raise RunError(f"another collect of run {run.id} is at work", "wait for it") from None


def _collect(fleet: Fleet, run: Run, every: bool) -> Collected:
    chief = run.plan.chief
    found: list[tuple[str, tuple[Checkpoint, ...], int]] = []

    def fetch(agent: Agent) -> int:
        try:
            if agent.host == chief.host:
                found.append(_chiefs(agent, run, every))
            return _logs(agent, run)
        except OSError as error:
            sentence = f"{error.filename} can't be written here: {error.strerror}"
            raise TransferFailed(agent.host, sentence) from None

    outcomes = fleet.outcomes(run.plan.hosts, fetch)
    raise_all(errors_of(outcomes))
    source, checkpoints, events = found[0]
    logs = sum(count for count in outcomes.values() if isinstance(count, int))
    return Collected(run.folder, source, checkpoints, events, logs)


def _chiefs(agent: Agent, run: Run, every: bool) -> tuple[str, tuple[Checkpoint, ...], int]:
    body = {"project": run.inventory.project, "run": run.id, "task": str(run.plan.chief.task)}
    answer = agent.ask("pin", {**body, "every": every}, PIN_TIMEOUT_S)
    _refuse_tricks(agent, answer)
    try:
        checkpoints = tuple(_fetch(agent, run, answer, found) for found in answer["checkpoints"])
    finally:
        if answer["pin"]:
            agent.ask("unpin", body)
    shutil.rmtree(run.folder / ".incoming", ignore_errors=True)  # what older, broken collects left
    if answer["events"]:
        agent.transport.pull(answer["checkpoint_dir"], run.folder / "events", answer["events"])
    return answer["checkpoint_dir"], checkpoints, len(answer["events"])


def _fetch(agent: Agent, run: Run, answer: dict[str, Any], found: dict[str, Any]) -> Checkpoint:
    """Through .incoming into checkpoints/: data first, then the index, which makes TensorFlow see
    it, then the state file, which names it (the newest on top). No part of it is ever visible as a
    checkpoint.
    """
    home, incoming = run.folder / "checkpoints", run.folder / ".incoming"
    home.mkdir(parents=True, exist_ok=True)
    incoming.mkdir(exist_ok=True)
    files = [file["path"] for file in found["files"]]
    for name in files:
        _offer_own_copy(home / name, incoming / name)
    agent.transport.pull(answer["pin"], incoming, files)
    for file in found["files"]:
        _refuse_short(agent, incoming / file["path"], file["size"])
    for name in sorted(files, key=lambda name: name.endswith(".index")):
        (incoming / name).replace(home / name)
        (incoming / name).unlink(missing_ok=True)  # rename does nothing between links of one file
    _write_state(home, answer["checkpoints"][0]["name"])
    return Checkpoint(found["name"], found["step"], tuple(files))


def _offer_own_copy(own: Path, incoming: Path) -> None:
    """What is at home already need not cross the network again, if it is still the same."""
    if own.is_file() and not incoming.exists():
        with suppress(OSError):  # a filesystem without links: then it crosses the network
            os.link(own, incoming)


def _refuse_short(agent: Agent, file: Path, size: int) -> None:
    found = file.stat().st_size if file.is_file() else 0
    if found != size:
        raise TransferFailed(agent.host, f"{file.name} arrived with {found} bytes of {size}")


def _write_state(home: Path, newest: str) -> None:
    """TensorFlow's own `checkpoint` file over all whole sets here, relative, `newest` on top."""
    names = [file.name for file in home.iterdir()]
    indexes = sorted(
        (home / name for name in names if name.endswith(".index")), key=lambda f: f.stat().st_mtime
    )
    whole = [f.name.removesuffix(".index") for f in indexes]
    kept = [name for name in whole if name != newest and file_set(names, name)]
    lines = [f'model_checkpoint_path: "{_escaped(newest)}"']
    lines += [f'all_model_checkpoint_paths: "{_escaped(name)}"' for name in [*kept, newest]]
    fresh = home / ".checkpoint.new"
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(home / "checkpoint")


def _logs(agent: Agent, run: Run) -> int:
    answer = agent.ask("logs", {"project": run.inventory.project, "run": run.id})
    names = [f"{p.task.file_name}.log" for p in run.plan.on(agent.host)]
    there = [name for name in names if name in answer["names"]]
    if there:
        agent.transport.pull(answer["folder"], run.folder / "logs", there)
    return len(there)


def _refuse_tricks(agent: Agent, answer: dict[str, Any]) -> None:
    """A host names files, and may lie: nothing may land outside of the folder meant for it."""
    flat = [file["path"] for found in answer["checkpoints"] for file in found["files"]]
    flat += [found["name"] for found in answer["checkpoints"]]
    for name in flat:
        if not _is_plain(name) or "/" in name:
            raise AgentError(agent.host, f"it names a checkpoint file {name!r}, which is refused")
    for name in answer["events"]:
        if not _is_plain(name):
            raise AgentError(agent.host, f"it names an event file {name!r}, which is refused")


def _is_plain(name: Any) -> bool:
    if not isinstance(name, str) or not name.isprintable():
        return False
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
