"""Fetch the chief's checkpoints: each arrives whole, or not at all.

runs/<run>/checkpoints/   with a `checkpoint` state file whose paths are relative
runs/<run>/.incoming/     the remains of an interrupted fetch; the next one continues them
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.machine import hashing
from tfdeploy.agent.outputs import state_file
from tfdeploy.agent.protocol.outputs import Checkpoint as PinnedCheckpoint
from tfdeploy.agent.protocol.outputs import Linked, Pin, PinAnswer, Pinned, Unpin
from tfdeploy.errors import AgentError
from tfdeploy.hosts import parallel
from tfdeploy.transfer.artifacts import PIN_TIMEOUT_S
from tfdeploy.transfer.checkpoints.early_fetch import EarlyFetch
from tfdeploy.transfer.fetch import (
    BULK,
    check_free_space,
    difference,
    fetch_files,
    is_safe_path,
    verify_file,
)
from tfdeploy.transfer.outputs import task_request
from tfdeploy.transfer.run_folder import exclusive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.run import Run


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on the controller.

    `step` is None if its name has no number. `verified` says that TensorFlow read every tensor of
    it, on the chief's host.
    """

    name: str
    step: int | None
    files: tuple[str, ...]
    verified: bool


@dataclass(frozen=True)
class BadCheckpoint:
    """A complete set of files that TensorFlow could not read to its end. It stays on the host."""

    name: str
    error: str


@dataclass(frozen=True)
class SavedElsewhere:
    """A file or folder that a task's program saved outside of every folder that is fetched.

    `exists` says whether the file, or anything in the folder, is still on the host.
    """

    task: str
    host: str
    path: str
    exists: bool


@dataclass(frozen=True)
class FetchedCheckpoints:
    """The checkpoints that arrived, newest first, and the bad ones that were skipped.

    `source` is the folder on the chief's host. `found_names` are a few names from it (None: it is
    no folder, or an older agent does not report them). `elsewhere` is where else the chief's
    program saved, newest first.
    """

    source: str
    checkpoints: tuple[Checkpoint, ...]
    bad: tuple[BadCheckpoint, ...]
    found_names: tuple[str, ...] | None
    elsewhere: tuple[SavedElsewhere, ...]


def fetch_checkpoints(agent: Agent, run: Run, *, every: bool = False) -> FetchedCheckpoints:
    """Fetch the chief's newest good checkpoint, or `every` one. Raises as `fetch_files` does."""
    (run.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    incoming = run.folder / ".incoming"
    incoming.mkdir(exist_ok=True)
    early = EarlyFetch(agent, incoming)
    with _pinned(agent, run, every, early) as answer:
        for checkpoint in answer.checkpoints:
            _fetch(agent, run, answer, checkpoint, early)
    shutil.rmtree(incoming, ignore_errors=True)  # remains of older collects
    return FetchedCheckpoints(
        answer.checkpoint_dir,
        tuple(_parse(checkpoint) for checkpoint in answer.checkpoints),
        tuple(BadCheckpoint(bad.name, bad.error) for bad in answer.bad),
        None if answer.there is None else tuple(answer.there),
        tuple(
            SavedElsewhere(str(run.plan.chief.task), agent.host, saved.path, saved.exists)
            for saved in answer.elsewhere or ()
        ),
    )


def remove_checkpoint(run: Run, old: Checkpoint, newest: Checkpoint) -> None:
    """Delete a checkpoint from the controller, its index first, so that TensorFlow never sees a
    part of it. The state file then names `newest`.

    Raises RunError if a collect is running, and OSError.
    """
    folder = run.folder / "checkpoints"
    with exclusive(run):
        for name in _index_last(old.files)[::-1]:
            (folder / name).unlink(missing_ok=True)
        state_file.write(str(folder), newest.name)


def validate_checkpoints(agent: Agent, checkpoints: Sequence[PinnedCheckpoint]) -> None:
    """Raise AgentError unless each is a complete set of plain file names with sizes.

    A host could otherwise have files written outside of the folder that is meant for them.
    """
    for checkpoint in checkpoints:
        files = [file.path for file in checkpoint.files]
        for name in (checkpoint.name, *files):
            if not is_safe_path(name) or "/" in name:
                raise AgentError(
                    agent.host, f"it names a checkpoint file {name!r}, which is refused"
                )
        valid = all(file.size >= 0 for file in checkpoint.files)
        if not valid or state_file.file_set(files, checkpoint.name) != sorted(files):
            raise AgentError(
                agent.host, f"its checkpoint {checkpoint.name} is incomplete and was refused"
            )


@contextmanager
def _pinned(agent: Agent, run: Run, every: bool, early: EarlyFetch) -> Iterator[Pinned]:
    """Have the chief's host keep its checkpoints unchanged; yield its last answer to `pin`. With
    the first answer `early` begins."""
    request = task_request(run, run.plan.chief)
    pin = ""
    pinned: Pinned | None = None
    try:
        with agent.transfers.begin(agent.host, note="reading its checkpoints"):
            for answer in _answers(agent, Pin(**request, every=every)):
                if isinstance(answer, Linked) and not pin:
                    validate_checkpoints(agent, answer.checkpoints)
                    pin = answer.linked
                    absent = _absent_files(run, answer)
                    if sum(absent.values()) >= BULK:  # less is sent faster over the same session
                        early.begin(pin, absent)
                elif isinstance(answer, Pinned):
                    validate_checkpoints(agent, answer.checkpoints)
                    pin, pinned = answer.pin, answer
        if not pinned:
            raise AgentError(agent.host, "it did not say which of its checkpoints are good")
        yield pinned
    finally:
        early.close()
        if pin:
            agent.ask(Unpin(**request))


def _answers(agent: Agent, request: Pin) -> Iterator[PinAnswer]:
    """Yield what the agent answers. One of another version may give a single answer, without the
    line that ends a stream: its session is left after the last answer that counts."""
    for answer in agent.stream(request, PIN_TIMEOUT_S):
        yield answer
        if isinstance(answer, Pinned) and not agent.is_current:
            return


def _absent_files(run: Run, linked: Linked) -> dict[str, int]:
    """Return the sizes of the linked files that are certainly not on the controller, by name, and
    of the indexes that belong to them."""
    sizes: dict[str, int] = {}
    for checkpoint in linked.checkpoints:
        listed = {file.path: file.size for file in checkpoint.files}
        absent = {name for name, size in listed.items() if _size(run, name) != size}
        names = _index_last({*absent, f"{checkpoint.name}.index"}) if absent else []
        sizes |= {name: listed[name] for name in names}
    return sizes


def _size(run: Run, name: str) -> int | None:
    file = run.folder / "checkpoints" / name
    return file.stat().st_size if file.is_file() else None


def _parse(checkpoint: PinnedCheckpoint) -> Checkpoint:
    files = tuple(file.path for file in checkpoint.files)
    return Checkpoint(checkpoint.name, checkpoint.step, files, checkpoint.verified)


def _fetch(
    agent: Agent, run: Run, answer: Pinned, checkpoint: PinnedCheckpoint, early: EarlyFetch
) -> None:
    """Fetch one checkpoint into .incoming, then move it into checkpoints/.

    The data files move first, then the index, which makes TensorFlow see them. Last the state file
    is written, with the newest checkpoint on top. So no part of a checkpoint is ever visible.
    """
    folder, incoming = run.folder / "checkpoints", run.folder / ".incoming"
    expected = {file.path: file for file in checkpoint.files}
    missing = [name for name, file in expected.items() if difference(folder / name, file)]
    if missing:
        index = f"{checkpoint.name}.index"
        missing = _index_last({*missing, index})
        if set(missing).intersection(early.names):
            early.wait()
        if rest := [name for name in missing if name not in early.names]:
            sizes = [expected[name].size for name in rest]
            check_free_space(agent, incoming, sizes)
            fetch_files(agent, answer.pin, incoming, rest, sum(sizes))
        parallel.each(
            lambda name: verify_file(agent, incoming / name, expected[name], early.hash(name)),
            missing,
            hashing.THREADS,
        )
        (folder / index).unlink(missing_ok=True)  # hides an older checkpoint of the same name
        for name in missing:
            (incoming / name).replace(folder / name)
    state_file.write(str(folder), answer.checkpoints[0].name)


def _index_last(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name.endswith(".index"), name))
