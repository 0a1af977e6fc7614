"""Fetch what the chief writes while `run` or `attach` follows the training."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tfdeploy.commands.collect import CollectResult, collect_checkpoint, collect_outputs
from tfdeploy.errors import TfdeployError
from tfdeploy.results.checkpoints import remove_checkpoint
from tfdeploy.results.outputs import remove_output
from tfdeploy.results.units import local_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.results.checkpoints import Checkpoint
    from tfdeploy.results.outputs import Output, Outputs
    from tfdeploy.run import Run


KEPT = 5  # checkpoints, as many as TensorFlow's Saver keeps


class BackgroundCollector:
    """Fetch announced checkpoints and outputs in a thread: always the newest, one at a time.

    The controller keeps the newest KEPT of the fetched checkpoints, and as many of the other files
    that the chief has removed since: a long training would fill its disk.

    What has failed is retried at the next announcement. On exit it waits for a fetch that is going
    on, so that another collect may follow; after an exception it does not.
    """

    def __init__(
        self,
        fleet: Fleet,
        run: Run,
        on_collected: Callable[[CollectResult], None],
        on_failed: Callable[[TfdeployError], None],
    ) -> None:
        self._fleet, self._run = fleet, run
        self._on_collected, self._on_failed = on_collected, on_failed
        self._checkpoints: list[Checkpoint] = []
        self._outputs: dict[str, Output] = {}
        self._has_checkpoint = self._has_outputs = False
        self._wake_up, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._closed.set()
        self._wake_up.set()
        if kind is None:
            self._thread.join()

    def announce_checkpoint(self) -> None:
        """Fetch the newest checkpoint. A host that answers again after a failure announces it
        again."""
        self._has_checkpoint = True
        self._wake_up.set()

    def announce_outputs(self) -> None:
        """Fetch the chief's other files: some have changed."""
        self._has_outputs = True
        self._wake_up.set()

    def _work(self) -> None:
        while True:
            self._wake_up.wait()
            self._wake_up.clear()
            if self._closed.is_set():
                return
            if self._has_checkpoint:
                self._has_checkpoint = False
                self._collect(collect_checkpoint)
            if self._has_outputs:
                self._has_outputs = False
                self._collect(collect_outputs)

    def _collect(self, collect: Callable[[Fleet, Run], CollectResult]) -> None:
        try:
            collected = collect(self._fleet, self._run)
        except TfdeployError as error:
            if not self._closed.is_set():  # otherwise the controller closed the connection itself
                self._on_failed(error)
            return
        if collected.source:
            for checkpoint in collected.checkpoints:
                self._remove_old_checkpoints(checkpoint)
        else:
            self._remove_old_outputs(collected.outputs)
        self._on_collected(collected)

    def _remove_old_checkpoints(self, newest: Checkpoint) -> None:
        others = [old for old in self._checkpoints if old.name != newest.name]
        self._checkpoints = [*others, newest]
        while len(self._checkpoints) > KEPT:
            with suppress(TfdeployError, OSError):  # then it stays
                remove_checkpoint(self._run, self._checkpoints[0], newest, self._fleet.transfers)
            del self._checkpoints[0]

    def _remove_old_outputs(self, outputs: Outputs) -> None:
        """Of the files that the chief has removed since they were fetched, keep the newest."""
        self._outputs |= {output.path: output for output in outputs.fetched}
        on_host = {output.path for output in (*outputs.fetched, *outputs.unchanged)}
        on_host |= {local_path(skipped.path) for skipped in outputs.skipped}
        removed = [path for path in self._outputs if path not in on_host]
        for path in removed[:-KEPT]:
            with suppress(TfdeployError, OSError):  # then it stays
                remove_output(self._run, self._outputs.pop(path), self._fleet.transfers)
