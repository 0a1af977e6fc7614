"""Fetch the chief's checkpoints: each arrives whole, or not at all.

runs/<run>/checkpoints/   with a `checkpoint` state file whose paths are relative
runs/<run>/.incoming/     the remains of an interrupted fetch; the next one continues them

A checkpoint that is also an output, because no state file named it at some time, is stored once:
runs/<run>/outputs/<checkpoint_dir>/ has hard links to its files.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.hosts.agent_session import BULK
from tfdeploy.results import hashes
from tfdeploy.results.fetch import (
    HOLD_TIMEOUT_S,
    FileFetch,
    announced,
    check_free_space,
    difference,
    is_safe_path,
    released_on_failure,
)
from tfdeploy.results.held_files import HeldFiles
from tfdeploy.results.run_folder import (
    checkpoint_outputs,
    exclusive,
    install,
    task_request,
    write_state,
)
from tfdeploy.shared import state_file
from tfdeploy.shared.protocol.outputs import HeldCheckpoint, Linked, Pin, PinAnswer, Pinned, Unpin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.hosts.pipeline import Pipeline, Steps
    from tfdeploy.run import Run


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on the controller."""

    name: str
    """Its name."""
    step: int | None
    """Its step, if its name has one."""
    files: tuple[str, ...]
    """The names of its files."""
    verified: bool
    """Whether TensorFlow read every tensor of it, on the chief's host."""


@dataclass(frozen=True)
class BadCheckpoint:
    """A checkpoint that TensorFlow could not read to its end. It stays on the host."""

    name: str
    """Its name."""
    error: str
    """TensorFlow's error."""


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
    answers = pipeline.send(Pin(**request, every=every), HOLD_TIMEOUT_S).answers()
    with (
        released_on_failure(agent, Unpin(**request)),
        closing(HeldFiles(agent, incoming)) as held,
    ):
        yield
        answer = _read_answers(agent, run, answers, held)
        arrival = Arrival(pipeline, run, answer, held)
        if not arrival.large:
            pipeline.send(Unpin(**request))
        yield
        arrival.receive()
        for checkpoint in answer.checkpoints:
            arrival.complete(checkpoint)
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


class Arrival:
    """The files that the controller lacks. If they are small they are requested in the pipeline,
    otherwise they come over a connection of their own: `large` are these."""

    def __init__(self, pipeline: Pipeline, run: Run, pinned: Pinned, held: HeldFiles) -> None:
        self._run, self._pinned, self._held, agent = run, pinned, held, pipeline.agent
        self._folder, self._outputs = run.open() / "checkpoints", checkpoint_outputs(run)
        self._expected = {f.path: f for found in pinned.checkpoints for f in found.files}
        self._missing = {found.name: self._lacking(found) for found in pinned.checkpoints}
        missing = [name for names in self._missing.values() for name in names]
        if not set(missing).intersection(held.early):  # its checkpoint is bad
            held.close()
        absent = [name for name in missing if name not in held.early and not self._link(name)]
        held.folder = held.folder.within(announced(self._sum(missing)))
        check_free_space(agent, held.folder, {name: self._expected[name].size for name in absent})
        small = absent if self._sum(absent) <= BULK else []
        self.large = {*held.early, *absent}.intersection(missing).difference(small)
        self._fetch = FileFetch(pipeline, pinned.pin, held.folder, small, self._sum(small))

    def receive(self) -> None:
        """Write the small files."""
        self.large.update(self._fetch.receive())

    def complete(self, checkpoint: HeldCheckpoint) -> None:
        """Wait until the large files of a checkpoint are here. Raises as `HeldFiles.fetch` does."""
        wanted = [name for name in self._missing[checkpoint.name] if name in self.large]
        self._held.complete(self._pinned.pin, {name: self._expected[name] for name in wanted})

    def install(self, checkpoint: HeldCheckpoint) -> None:
        """Verify the files of a checkpoint, then move them into checkpoints/. Raises
        TransferFailed if a file differs.

        All files get the times that they have on their host, also those that were here: by the
        same content and the same time `prune` knows that the controller has them.
        """
        missing = self._missing[checkpoint.name]
        self._held.verify(self._expected[name] for name in missing)
        reported = self._pinned.mtimes_ns or {}
        times = {f.path: reported[f.path] for f in checkpoint.files if f.path in reported}
        newest = self._pinned.checkpoints[0].name
        hashes.store(self._run, self._folder, [self._expected[name] for name in missing])
        install(self._held.folder, self._folder, missing, times, newest)

    def _lacking(self, checkpoint: HeldCheckpoint) -> list[str]:
        """Return the files of a checkpoint that differ on the controller, and its index."""
        names = [file.path for file in checkpoint.files if difference(self._folder, file)]
        index = f"{checkpoint.name}{state_file.INDEX}"
        return state_file.index_last({*names, index}) if names else []

    def _link(self, name: str) -> bool:
        """Take a file that has arrived as an output before; return whether there is one."""
        if difference(self._outputs, self._expected[name]):
            return False
        self._outputs.give(name, self._held.folder)
        return True

    def _sum(self, names: Iterable[str]) -> int:
        return sum(self._expected[name].size for name in names)


def remove_checkpoint(run: Run, old: Checkpoint, newest: Checkpoint, transfers: Transfers) -> None:
    """Delete a checkpoint from the controller, its index first, so that TensorFlow never sees a
    part of it. The state file then names `newest`. Raises OSError."""
    folder = run.open() / "checkpoints"
    with exclusive(run, transfers):
        for name in reversed(state_file.index_last(old.files)):
            folder.remove(name)
        write_state(folder, newest.name)


def validate_checkpoints(agent: Agent, checkpoints: Sequence[HeldCheckpoint]) -> None:
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


def _read_answers(agent: Agent, run: Run, answers: Iterator[PinAnswer], held: HeldFiles) -> Pinned:
    """Return the last answer to `pin`. With the first one `held` begins."""
    pinned: Pinned | None = None
    with agent.transfers.begin(agent.host, note="reading its checkpoints"):
        for answer in answers:
            if isinstance(answer, Linked):
                validate_checkpoints(agent, answer.checkpoints)
                held.begin(answer.linked, _absent_files(run, answer))
            elif isinstance(answer, Pinned):
                validate_checkpoints(agent, answer.checkpoints)
                pinned = answer
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


def _parse(checkpoint: HeldCheckpoint) -> Checkpoint:
    files = tuple(file.path for file in checkpoint.files)
    return Checkpoint(checkpoint.name, checkpoint.step, files, checkpoint.verified)
