"""Copies of the event files of a run's tasks. They only grow, as TensorBoard reads them.

runs/<run>/tensorboard/<task>/…    as below the task's checkpoint directory, or its own directory
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tfdeploy.errors import TransferFailed
from tfdeploy.hosts.pipeline import RoundPart, run_parts
from tfdeploy.results import events_and_logs
from tfdeploy.results.run_folder import disk_errors
from tfdeploy.shared.event_records import EVENTS
from tfdeploy.shared.protocol.reports import NewEvents, StateChange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipeline import Pipeline, Steps
    from tfdeploy.own_folder import OwnFolder
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import RunEvent

FOLDER = "tensorboard"
FREE_BYTES = 256 << 20  # that stay free on the controller's disk


class EventCopies:
    """The copies of one run. Of two threads, each writes the files of other tasks."""

    def __init__(self, run: Run) -> None:
        self._own = run.open() / FOLDER
        self._tasks: dict[str, str] = {}
        self.follow(run)

    def follow(self, run: Run) -> None:
        """Take the tasks of the run's newest plan; those of its earlier ones stay."""
        self._run = run
        self._placements = {str(p.task): p for p in run.plan.placements}
        self._tasks |= {task: p.task.file_name for task, p in self._placements.items()}

    @property
    def folder(self) -> Path:
        return self._own.path

    def prepare(self) -> None:
        """Take over what `collect` has fetched. TensorBoard reads the folder: what is no regular
        file is deleted. Raises OSError."""
        self._own.clean(lambda name: True)
        self._take_collected()

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the number of files and bytes of each task that has any."""
        files = {task: _event_files(self._own / name) for task, name in self._tasks.items()}
        return {task: (len(own), sum(own.values())) for task, own in files.items() if own}

    def update(self, agent: Agent, event: RunEvent) -> None:
        """Fetch the event files that a host says have changed; of an agent that is too old to say
        so those of a task whose state has changed.

        Raises as `fetch_events` does, and TransferFailed if the disk is almost full.
        """
        if isinstance(event, NewEvents):
            self._fetch(
                agent, event.of, partial(events_and_logs.fetch_event_files, folders=event.events)
            )
        elif isinstance(event, StateChange) and not agent.is_current:
            task = event.state.task
            every = partial(events_and_logs.fetch_all_events, run=self._run)
            self._fetch(agent, task, partial(every, placement=self._placements[task]))

    def _fetch(self, agent: Agent, task: str, fetch: Callable[..., Steps[Any]]) -> None:
        name = self._tasks[task]

        def into_copies(pipeline: Pipeline) -> Steps[Any]:
            return fetch(pipeline, dest=self._own / name)

        with disk_errors(agent):
            self._check_disk(agent.host)
            run_parts(agent, [RoundPart(into_copies)])

    def _check_disk(self, host: str) -> None:
        self._own.make()
        free = self._own.free_bytes()
        if free < FREE_BYTES:
            raise TransferFailed(
                host,
                f"only {free >> 20} MB are free on the disk of {self.folder}",
                "free disk space on the controller",
            )

    def _take_collected(self) -> None:
        """Copy the chief's and the evaluators' files that `collect` fetched, if more of them."""
        collected = self._run.open() / "events"
        chief = self._run.plan.chief.task.file_name
        evaluators = {name for name in self._tasks.values() if name.startswith("evaluator-")}
        for source, size in _event_files(collected).items():
            of_evaluator = source.partition("/")[0] in evaluators
            copy = source if of_evaluator else f"{chief}/{source}"
            if size > self._own.size(copy):
                self._own.write(copy, collected.head(source, size))


def _event_files(folder: OwnFolder) -> dict[str, int]:
    """Return the size of each regular event file below a folder, by its path there."""
    found = sorted(folder.files().items())
    return {path: info.st_size for path, info in found if EVENTS in path.rpartition("/")[2]}
