"""Fetch the chief's checkpoints: each arrives whole, or not at all.

runs/<run>/checkpoints/   with a `checkpoint` state file whose paths are relative
runs/<run>/.incoming/     the remains of an interrupted fetch; the next one continues them

A checkpoint that is also an output, because no state file named it at some time, is stored once:
runs/<run>/outputs/<checkpoint_dir>/ has hard links to its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, TransferFailed
from tfdeploy.results import hashes
from tfdeploy.results.arrival import Destination, fetch_held
from tfdeploy.results.fetch import difference, is_safe_path
from tfdeploy.results.run_folder import (
    checkpoint_outputs,
    exclusive,
    install,
    task_request,
    write_state,
)
from tfdeploy.shared import state_file
from tfdeploy.shared.protocol.outputs import Hold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.hosts.pipeline import Pipeline, Steps
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.outputs import HashedFile, Held, HeldUnit


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
    """Whether TensorFlow read every tensor of it."""


@dataclass(frozen=True)
class BadCheckpoint:
    """A checkpoint that TensorFlow could not read."""

    name: str
    """Its name."""
    error: str
    """TensorFlow's error."""


@dataclass(frozen=True)
class FetchedCheckpoints:
    """The checkpoints that arrived, newest first, and the bad ones that were skipped.

    `source` is the folder on the chief's host. `found_names` are a few names from it (None: it is
    no folder).
    """

    source: str
    checkpoints: tuple[Checkpoint, ...]
    bad: tuple[BadCheckpoint, ...]
    found_names: tuple[str, ...] | None


def fetch_checkpoints(
    pipeline: Pipeline, run: Run, *, every: bool = False
) -> Steps[FetchedCheckpoints]:
    """Fetch the chief's newest good checkpoint, or `every` one. Raises as `fetch_held` does, and
    TransferFailed if a file differs from the host's."""
    destination = _Checkpoints(pipeline.agent.host, run)
    request = Hold(**task_request(run, run.plan.chief), every=every)
    held = yield from fetch_held(pipeline, request, destination)
    return FetchedCheckpoints(
        held.source,
        tuple(_parse(checkpoint) for checkpoint in held.units),
        tuple(BadCheckpoint(bad.path, bad.error) for bad in held.bad),
        None if held.there is None else tuple(held.there),
    )


class _Checkpoints(Destination):
    """The folder checkpoints/ of a run."""

    note = "reading its checkpoints"

    def __init__(self, host: str, run: Run) -> None:
        folder = run.open()
        super().__init__(folder / ".incoming")
        self._host, self._run = host, run
        self._folder, self._outputs = folder / "checkpoints", checkpoint_outputs(run)
        self._folder.make()
        self.incoming.clean(lambda name: True)  # of an interrupted collect

    def check(self, held: Held) -> None:
        validate_checkpoints(self._host, held.units)

    def lacking(self, unit: HeldUnit) -> Sequence[HashedFile]:
        """Return the files that differ on the controller, and the checkpoint's index."""
        index = f"{unit.path}{state_file.INDEX}"
        differ = [file for file in unit.files if difference(self._folder, file)]
        return differ and [f for f in unit.files if f in differ or f.path == index]

    def take(self, file: HashedFile) -> bool:
        """Take a file that has arrived as an output before."""
        if difference(self._outputs, file):
            return False
        self._outputs.give(file.path, self.incoming)
        return True

    def groups(self, units: Sequence[HeldUnit]) -> Sequence[Sequence[HeldUnit]]:
        return [[unit] for unit in units]

    def refuse(self, damaged: Mapping[str, str]) -> None:
        refuse_damaged(self._host, damaged)

    def install(self, units: Sequence[HeldUnit], files: Sequence[HashedFile], held: Held) -> None:
        """Move the files of a checkpoint into checkpoints/.

        All of its files get the times that they have on their host, also those that were here: by
        the same content and the same time `prune` knows that the controller has them.
        """
        own = {file.path for unit in units for file in unit.files}
        times = {path: time for path, time in held.mtimes_ns.items() if path in own}
        hashes.store(self._run, self._folder, files)
        names = [file.path for file in files]
        install(self.incoming, self._folder, names, times, held.units[0].path)


def remove_checkpoint(run: Run, old: Checkpoint, newest: Checkpoint, transfers: Transfers) -> None:
    """Delete a checkpoint from the controller, its index first, so that TensorFlow never sees a
    part of it. The state file then names `newest`. Raises OSError."""
    folder = run.open() / "checkpoints"
    with exclusive(run, transfers):
        for name in reversed(state_file.index_last(old.files)):
            folder.remove(name)
        write_state(folder, newest.name)


def validate_checkpoints(host: str, checkpoints: Sequence[HeldUnit]) -> None:
    """Raise AgentError unless each is a complete set of plain file names with sizes.

    A host could otherwise have files written outside of the folder that is meant for them.
    """
    for checkpoint in checkpoints:
        files = [file.path for file in checkpoint.files]
        for name in (checkpoint.path, *files):
            if not is_safe_path(name) or "/" in name:
                raise AgentError(host, f"it names a checkpoint file {name!r}, which is refused")
        valid = all(file.size >= 0 for file in checkpoint.files)
        if not valid or state_file.file_set(files, checkpoint.path) != sorted(files):
            message = f"its checkpoint {checkpoint.path} is incomplete and was refused"
            raise AgentError(host, message)


def refuse_damaged(host: str, damaged: Mapping[str, str]) -> None:
    """Raise TransferFailed if a file has arrived damaged."""
    for name, text in damaged.items():
        hint = "tfdeploy collect fetches it again"
        raise TransferFailed(host, f"{name} arrived with {text}", hint)


def _parse(checkpoint: HeldUnit) -> Checkpoint:
    files = tuple(file.path for file in checkpoint.files)
    return Checkpoint(checkpoint.path, checkpoint.step, files, checkpoint.verified)
