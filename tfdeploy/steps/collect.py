"""`tfdeploy collect`: checkpoints, events and logs come home; a checkpoint whole, or not at all.

runs/<run>/checkpoints/   the chief's, with a `checkpoint` state file whose paths are relative
runs/<run>/events/        TensorBoard events, and
runs/<run>/logs/          logs: see traces.py
runs/<run>/.incoming/     what a broken collect left, and the next one goes on with
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tfdeploy import at_once
from tfdeploy.agent import state_file
from tfdeploy.errors import AgentError, RunError, TransferFailed
from tfdeploy.steps import traces
from tfdeploy.steps.bring import bring, is_plain
from tfdeploy.steps.traces import PIN_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tfdeploy.fleet import Fleet
    from tfdeploy.remote import Agent
    from tfdeploy.run import Run

GIGA = 1e9
HASHED_AT_ONCE = 8


@dataclass(frozen=True)
class Checkpoint:
    """A step (None where its name holds none) and its complete file set, at home. `verified` says
    that TensorFlow read every tensor of it, on the chief's host."""

    name: str
    step: int | None
    files: tuple[str, ...]
    verified: bool


@dataclass(frozen=True)
class BadCheckpoint:
    """A complete set that TensorFlow could not read to its end: left where it is."""

    name: str
    error: str


@dataclass(frozen=True)
class Collected:
    """What came home. `checkpoints` are those of this collect, newest first; `source` is where on
    the chief's host they were looked for, and `bad` what was passed over there."""

    folder: Path
    source: str
    checkpoints: tuple[Checkpoint, ...]
    events: int
    logs: int
    bad: tuple[BadCheckpoint, ...] = ()


def collect(fleet: Fleet, run: Run, *, every: bool = False) -> Collected:
    """Fetch the chief's newest good checkpoint (or `every` one), events, and all logs.

    Raises the errors of all hosts, after what could be fetched was fetched, and RunError while
    another collect of this run is at work.
    """
    chief = run.plan.chief.host

    def fetch(agent: Agent) -> tuple[Collected | None, int, int]:
        with _disk_errors(agent):
            found = _chiefs(agent, run, every) if agent.host == chief else None
            return found, traces.events(agent, run), traces.logs(agent, run)

    with _alone(run):
        outcomes = fleet.each(run.plan.hosts, fetch)
    found = outcomes[chief][0]
    assert found
    _, events, logs = zip(*outcomes.values(), strict=True)
    return replace(found, events=sum(events), logs=sum(logs))


def collect_traces(fleet: Fleet, run: Run) -> None:
    """Fetch events and logs, and no checkpoint. Raises as `collect` does."""

    def fetch(agent: Agent) -> None:
        with _disk_errors(agent):
            traces.events(agent, run)
            traces.logs(agent, run)

    with _alone(run):
        fleet.each(run.plan.hosts, fetch)


def collect_checkpoint(fleet: Fleet, run: Run) -> Collected:
    """Fetch the chief's newest good checkpoint and nothing else. Raises as `collect` does."""
    agent = fleet.agents[run.plan.chief.host]
    with _alone(run), _disk_errors(agent), _pinned(agent, run, False) as answer:
        return _fetched(agent, run, answer)


def remove(run: Run, old: Checkpoint, newest: Checkpoint) -> None:
    """Remove one at home, its index first, so that no part of it is ever seen as a checkpoint.

    Raises RunError as `collect` does, and OSError.
    """
    home = run.folder / "checkpoints"
    with _alone(run):
        for name in _index_last(old.files)[::-1]:
            (home / name).unlink(missing_ok=True)
        state_file.write(str(home), newest.name)


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """Two collects would grow the same files. The kernel drops the lock with its holder."""
    try:
        with (run.folder / ".collecting").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError:
        raise RunError(f"another collect of run {run.id} is at work", "wait for it") from None


@contextmanager
def _disk_errors(agent: Agent) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        sentence = f"{error.filename} can't be written here: {error.strerror}"
        raise TransferFailed(agent.host, sentence) from None


def _chiefs(agent: Agent, run: Run, every: bool) -> Collected:
    with _pinned(agent, run, every) as answer:
        return _fetched(agent, run, answer)


@contextmanager
def _pinned(agent: Agent, run: Run, every: bool) -> Iterator[dict[str, Any]]:
    """What the chief's host holds still for us, for as long as it takes."""
    body = {"project": run.inventory.project, "run": run.id, "task": str(run.plan.chief.task)}
    answer = agent.ask("pin", {**body, "every": every}, PIN_TIMEOUT_S)
    try:
        refuse_tricks(agent, answer)
        yield answer
    finally:
        if answer["pin"]:
            agent.ask("unpin", body)


def _fetched(agent: Agent, run: Run, answer: dict[str, Any]) -> Collected:
    for found in answer["checkpoints"]:
        _fetch(agent, run, answer, found)
    shutil.rmtree(run.folder / ".incoming", ignore_errors=True)  # what older, broken collects left
    checkpoints = tuple(
        Checkpoint(
            found["name"],
            found["step"],
            tuple(file["path"] for file in found["files"]),
            found.get("verified") is True,  # an older agent doesn't
        )
        for found in answer["checkpoints"]
    )
    bad = tuple(BadCheckpoint(str(b["name"]), str(b["error"])) for b in answer.get("bad", ()))
    return Collected(run.folder, answer["checkpoint_dir"], checkpoints, 0, 0, bad)


def _fetch(agent: Agent, run: Run, answer: dict[str, Any], found: dict[str, Any]) -> None:
    """Through .incoming into checkpoints/: data first, then the index, which makes TensorFlow see
    it, then the state file, which names it (the newest on top). No part of it is ever visible as a
    checkpoint.
    """
    home, incoming = run.folder / "checkpoints", run.folder / ".incoming"
    home.mkdir(parents=True, exist_ok=True)
    incoming.mkdir(exist_ok=True)
    sums = {file["path"]: file for file in found["files"]}
    missing = [name for name, file in sums.items() if _difference(home / name, file)]
    if missing:
        index = f"{found['name']}.index"
        missing = _index_last({*missing, index})
        refuse_too_much(agent, incoming, [sums[name]["size"] for name in missing])
        bring(agent, answer["pin"], incoming, missing)
        at_once.each(
            lambda name: refuse_different(agent, incoming / name, sums[name]),
            missing,
            HASHED_AT_ONCE,
        )
        (home / index).unlink(missing_ok=True)  # an older set of this name is none from here on
        for name in missing:
            (incoming / name).replace(home / name)
    state_file.write(str(home), answer["checkpoints"][0]["name"])


def _index_last(names: Sequence[str] | set[str]) -> list[str]:
    return sorted(names, key=lambda name: (name.endswith(".index"), name))


def _difference(file: Path, told: dict[str, Any]) -> str:
    """What tells a file here from what its host said of it; "" where nothing does."""
    found = file.stat().st_size if file.is_file() and not file.is_symlink() else 0
    if found != told["size"]:
        return f"{found} bytes of {told['size']}"
    if "sha256" not in told:  # an older agent: rsync has to tell
        return "" if file.parent.name == ".incoming" else "unknown content"
    with file.open("rb") as content:
        same = hashlib.file_digest(content, "sha256").hexdigest() == told["sha256"]
    return "" if same else "other content than it has there"


def refuse_different(agent: Agent, file: Path, told: dict[str, Any]) -> None:
    difference = _difference(file, told)
    if difference:
        file.unlink(missing_ok=True)  # or rsync would take it for the same, by its size and time
        sentence = f"{file.name} arrived with {difference}"
        raise TransferFailed(agent.host, sentence, "tfdeploy collect fetches it again")


def refuse_too_much(agent: Agent, folder: Path, sizes: list[int]) -> None:
    needed, free = sum(sizes), shutil.disk_usage(folder).free
    if needed > free:
        sentence = f"its checkpoint takes {needed / GIGA:.2f} GB, {free / GIGA:.2f} GB are free"
        raise TransferFailed(agent.host, f"{sentence} in {folder.parent}", "make room there")


def refuse_tricks(agent: Agent, answer: dict[str, Any]) -> None:
    """A host names files, and may lie: nothing may land outside of the folder meant for it."""
    for found in answer["checkpoints"]:
        files = [file["path"] for file in found["files"]]
        for name in (found["name"], *files):
            if not is_plain(name) or "/" in name:
                raise AgentError(
                    agent.host, f"it names a checkpoint file {name!r}, which is refused"
                )
        sizes = [file.get("size") for file in found["files"]]
        sound = all(isinstance(size, int) and size >= 0 for size in sizes)
        if not sound or state_file.file_set(files, found["name"]) != sorted(files):
            raise AgentError(agent.host, f"its {found['name']} is no complete set: it is refused")
