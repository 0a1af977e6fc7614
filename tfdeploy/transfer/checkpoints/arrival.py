"""The files of pinned checkpoints on their way into runs/<run>/checkpoints/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.hosts import parallel
from tfdeploy.shared import hashing
from tfdeploy.transfer.checkpoints.state import write_state
from tfdeploy.transfer.checkpoints.stored_once import checkpoint_outputs
from tfdeploy.transfer.fetch import (
    BULK,
    FileFetch,
    announced,
    check_free_space,
    difference,
    verify_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdeploy.hosts.pipelines.pipeline import Pipeline
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.outputs import Checkpoint, Pinned
    from tfdeploy.transfer.checkpoints.early_fetch import EarlyFetch
    from tfdeploy.transfer.streamed_files import StreamedFiles


class Arrival:
    """The files that the controller lacks. If they are small they are requested in the pipeline,
    otherwise `streamed`: by `early`, which began before, or later. `large` are these."""

    def __init__(
        self,
        pipeline: Pipeline,
        run: Run,
        pinned: Pinned,
        early: EarlyFetch,
        streamed: StreamedFiles,
    ) -> None:
        self._agent, self._pinned, self._early = pipeline.agent, pinned, early
        self._streamed = streamed
        self._folder, self._incoming = run.open() / "checkpoints", streamed.folder
        self._expected = {f.path: f for found in pinned.checkpoints for f in found.files}
        self._missing = {found.name: self._lacking(found) for found in pinned.checkpoints}
        missing = [name for names in self._missing.values() for name in names]
        linked = {name for name in missing if name not in early.names and self._link(run, name)}
        if not set(missing).intersection(early.names):  # its checkpoint is bad
            early.close()
        self._incoming = self._incoming.within(announced(self._sum(missing)))
        rest = [name for name in missing if name not in early.names and name not in linked]
        sizes = {name: self._expected[name].size for name in rest}
        check_free_space(self._agent, self._incoming, sizes)
        # Another version's agent was asked in a session of its own, and only there it would answer.
        small = rest if self._sum(rest) <= BULK and self._agent.is_current else []
        self.large = set(missing).difference(small, linked)
        self._fetch = FileFetch(pipeline, pinned.pin, self._incoming, small, self._sum(small))

    def receive(self) -> None:
        """Write the small files."""
        self.large.update(self._fetch.receive())

    def pull(self, checkpoint: Checkpoint) -> None:
        """Wait until the large files of a checkpoint are here. Raises as `StreamedFiles.fetch`
        does."""
        wanted = [name for name in self._missing[checkpoint.name] if name in self.large]
        if set(wanted).intersection(self._early.names):
            self._early.wait()
        rest = {name: self._expected[name].size for name in wanted if name not in self._early.names}
        self._streamed.fetch(self._pinned.pin, rest)
        self._streamed.fetch_stale(self._pinned.pin, {n: self._expected[n] for n in wanted})

    def install(self, checkpoint: Checkpoint) -> None:
        """Verify the files of a checkpoint, then move them into checkpoints/.

        The data files move first, then the index, which makes TensorFlow see them. Last the state
        file is written, with the newest checkpoint on top. So no part of a checkpoint is ever
        visible. Raises TransferFailed if a file differs.
        """
        missing, incoming = self._missing[checkpoint.name], self._incoming
        parallel.each(
            lambda name: verify_file(
                self._agent, incoming, self._expected[name], self._streamed.hashes.get(name)
            ),
            missing,
            hashing.THREADS,
        )
        if missing:  # hides an older checkpoint of the same name
            self._folder.remove(f"{checkpoint.name}.index")
        for name in missing:
            incoming.move(name, self._folder)
        self._set_times(checkpoint)
        write_state(self._folder, self._pinned.checkpoints[0].name)

    def _set_times(self, checkpoint: Checkpoint) -> None:
        """Give all files the times that they have on their host, also those that were here: by the
        same content and the same time `prune` knows that the controller has them."""
        for file in checkpoint.files:
            mtime_ns = (self._pinned.mtimes_ns or {}).get(file.path)
            if mtime_ns is not None:
                self._folder.set_time(file.path, mtime_ns)

    def _lacking(self, checkpoint: Checkpoint) -> list[str]:
        """Return the files of a checkpoint that differ on the controller, and then its index."""
        names = [f.path for f in checkpoint.files if difference(self._folder, f)]
        return index_last({*names, f"{checkpoint.name}.index"}) if names else []

    def _link(self, run: Run, name: str) -> bool:
        """Take a file that has arrived as an output before; return whether there is one."""
        outputs = checkpoint_outputs(run)
        if difference(outputs, self._expected[name]):
            return False
        outputs.give(name, self._incoming)
        return True

    def _sum(self, names: Iterable[str]) -> int:
        return sum(self._expected[name].size for name in names)


def index_last(names: Iterable[str]) -> list[str]:
    """Return the names in the order in which files of a checkpoint may appear."""
    return sorted(names, key=lambda name: (name.endswith(".index"), name))
