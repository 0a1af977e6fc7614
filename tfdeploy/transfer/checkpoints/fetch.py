"""Fetch the chief's checkpoints: each arrives whole, or not at all.

runs/<run>/checkpoints/   with a `checkpoint` state file whose paths are relative
runs/<run>/.incoming/     the remains of an interrupted fetch; the next one continues them
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.shared import state_file
from tfdeploy.shared.protocol.outputs import Checkpoint as PinnedCheckpoint
from tfdeploy.shared.protocol.outputs import Linked, Pin, PinAnswer, Pinned, Unpin
from tfdeploy.transfer.artifacts import PIN_TIMEOUT_S
from tfdeploy.transfer.checkpoints.arrival import Arrival, index_last
from tfdeploy.transfer.checkpoints.early_fetch import EarlyFetch
from tfdeploy.transfer.checkpoints.state import write_state
from tfdeploy.transfer.checkpoints.stored_once import checkpoint_outputs
from tfdeploy.transfer.fetch import BULK, is_safe_path, released_on_failure
from tfdeploy.transfer.outputs import task_request
from tfdeploy.transfer.run_folder import exclusive
from tfdeploy.transfer.streamed_files import StreamedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipelines.pipeline import Pipeline
    from tfdeploy.hosts.pipelines.rounds import Steps
    from tfdeploy.own_folder import OwnFolder
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
class FetchedCheckpoints:
    """The checkpoints that arrived, newest first, and the bad ones that were skipped.

    `source` is the folder on the chief's host. `found_names` are a few names from it (None: it is
    no folder, or an older agent does not report them).
    """

    source: str
    checkpoints: tuple[Checkpoint, ...]
    bad: tuple[BadCheckpoint, ...]
    found_names: tuple[str, ...] | None


def fetch_checkpoints(
    pipeline: Pipeline, run: Run, *, every: bool = False
) -> Steps[FetchedCheckpoints]:
    """Fetch the chief's newest good checkpoint, or `every` one. Raises as `FileFetch` does."""
    agent, request = pipeline.agent, task_request(run, run.plan.chief)
    folder = run.open()
    (folder / "checkpoints").make()
    incoming = folder / ".incoming"
    incoming.clean(lambda name: True)  # of an interrupted collect
    streamed = StreamedFiles(agent, incoming)
    answers = _ask(pipeline, Pin(**request, every=every))
    with (
        released_on_failure(agent, Unpin(**request)),
        closing(EarlyFetch(agent, streamed)) as early,
    ):
        yield
        answer = _read_answers(agent, run, answers, early)
        arrival = Arrival(pipeline, run, answer, early, streamed)
        if not arrival.large:
            pipeline.send(Unpin(**request))
        yield
        arrival.receive()
        for checkpoint in answer.checkpoints:
            arrival.pull(checkpoint)
            if arrival.large and checkpoint is answer.checkpoints[-1]:
                pipeline.send(Unpin(**request))
                pipeline.flush()
            arrival.install(checkpoint)
    incoming.delete()  # also remains of older collects
    return FetchedCheckpoints(
        answer.checkpoint_dir,
        tuple(_parse(checkpoint) for checkpoint in answer.checkpoints),
        tuple(BadCheckpoint(bad.name, bad.error) for bad in answer.bad),
        None if answer.there is None else tuple(answer.there),
    )


def remove_checkpoint(run: Run, old: Checkpoint, newest: Checkpoint) -> None:
    """Delete a checkpoint from the controller, its index first, so that TensorFlow never sees a
    part of it. The state file then names `newest`.

    Raises RunError if a collect is running, and OSError.
    """
    folder = run.open() / "checkpoints"
    with exclusive(run):
        for name in index_last(old.files)[::-1]:
            folder.remove(name)
        write_state(folder, newest.name)


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


def _ask(pipeline: Pipeline, request: Pin) -> Iterator[PinAnswer]:
    """Send the request; return its answers. An agent of another version may give a single one,
    without the line that ends a stream. Its session stays open, because the agent may hold what it
    answered only so long, until nobody has the iterator any more."""
    agent = pipeline.agent
    if agent.is_current:
        return pipeline.send(request, PIN_TIMEOUT_S).answers()
    return iter(agent.stream(request, PIN_TIMEOUT_S))


def _read_answers(
    agent: Agent, run: Run, answers: Iterator[PinAnswer], early: EarlyFetch
) -> Pinned:
    """Return the last answer to `pin`. With the first one `early` begins."""
    pinned: Pinned | None = None
    with agent.transfers.begin(agent.host, note="reading its checkpoints"):
        for answer in answers:
            if isinstance(answer, Linked):
                validate_checkpoints(agent, answer.checkpoints)
                early.begin(answer.linked, _absent_files(run, answer))
            elif isinstance(answer, Pinned):
                validate_checkpoints(agent, answer.checkpoints)
                pinned = answer
                if not agent.is_current:
                    break
    if not pinned:
        raise AgentError(agent.host, "it did not say which of its checkpoints are good")
    return pinned


def _absent_files(run: Run, linked: Linked) -> dict[str, int]:
    """Return the sizes of the linked files that are certainly not on the controller; none if they
    are so small that they come faster over the same session."""
    folder = run.open() / "checkpoints"
    files = [file for checkpoint in linked.checkpoints for file in checkpoint.files]
    outputs = checkpoint_outputs(run)
    absent = {
        f.path: f.size
        for f in files
        if f.size not in (_size(folder, f.path), _size(outputs, f.path))
    }
    return absent if sum(absent.values()) > BULK else {}


def _size(folder: OwnFolder, name: str) -> int | None:
    info = folder.stat(name)
    return info.st_size if info else None


def _parse(checkpoint: PinnedCheckpoint) -> Checkpoint:
    files = tuple(file.path for file in checkpoint.files)
    return Checkpoint(checkpoint.name, checkpoint.step, files, checkpoint.verified)
