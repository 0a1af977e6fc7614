"""The documents of commands that fetch what tasks wrote: collect, fetch, tensorboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.output.json_output.problems import Problem, to_problems
from tfdeploy.output.json_output.shape import Shape

if TYPE_CHECKING:
    from tfdeploy.commands.collect import CollectResult
    from tfdeploy.commands.fetch import FetchResult
    from tfdeploy.commands.following.tensorboard.board import EventBoard
    from tfdeploy.run import Run


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Shape):
    """A complete checkpoint on the controller."""

    name: str
    """Its name."""
    step: int | None
    """Its step, if its name has one."""
    files: list[str]
    """The names of its files."""
    verified: bool
    """Whether TensorFlow read every tensor of it, on the chief's host."""


@dataclass(frozen=True, kw_only=True)
class BadCheckpoint(Shape):
    """A checkpoint that TensorFlow could not read. It stays on the host."""

    name: str
    """Its name."""
    error: str
    """TensorFlow's error."""


@dataclass(frozen=True, kw_only=True)
class Output(Shape):
    """A file or folder on the controller, with the same content as on its host."""

    task: str
    """The task that wrote it."""
    folder: str
    """A folder on the controller."""
    path: str
    """Its path below that folder."""
    size: int
    """Its size in bytes."""


@dataclass(frozen=True, kw_only=True)
class SkippedOutput(Shape):
    """A file or folder that stays on its host."""

    task: str
    """The task that wrote it."""
    host: str
    """The task's host."""
    path: str
    """Its path, as `tfdeploy fetch` takes it."""
    size: int
    """Its size in bytes."""
    why: str
    """Why it was not fetched."""


@dataclass(frozen=True, kw_only=True)
class UnlistedFiles(Shape):
    """The files of a task that no key of hosts.toml selects."""

    task: str
    """The task that wrote them."""
    host: str
    """The task's host."""
    files: int
    """Their number."""
    size: int
    """Their size in bytes."""


@dataclass(frozen=True, kw_only=True)
class SavedElsewhere(Shape):
    """What a task wrote outside of every folder that is fetched."""

    task: str
    """The task that wrote it."""
    host: str
    """The task's host."""
    path: str
    """Its path on the host."""
    exists: bool
    """Whether it is still on the host."""


@dataclass(frozen=True, kw_only=True)
class CollectDocument(Shape):
    """What was fetched."""

    run: str
    """The run's id."""
    folder: str
    """The folder of its results on the controller."""
    checkpoints: list[Checkpoint]
    """The checkpoints that were fetched, newest first."""
    bad: list[BadCheckpoint]
    """The checkpoints that were skipped."""
    events: int
    """The number of event files that were fetched."""
    logs: int
    """The number of logs that were fetched."""
    errors: list[Problem]
    """The errors of hosts that gave nothing, or not everything."""
    outputs: list[Output]
    """Files and folders that tasks wrote and that are on the controller now."""
    left: list[SkippedOutput]
    """Files and folders that were not fetched."""
    others: list[UnlistedFiles]
    """Files that no key of hosts.toml selects."""
    elsewhere: list[SavedElsewhere]
    """What tasks wrote outside of every folder that is fetched, the newest 64 of each task."""
    elsewhere_more: int
    """How many further files and folders they wrote there."""


@dataclass(frozen=True, kw_only=True)
class FetchDocument(Shape):
    """What was fetched."""

    run: str
    """The run's id."""
    folder: str
    """The folder of the files on the controller."""
    files: list[Output]
    """What was fetched."""
    left: list[SkippedOutput]
    """What was not."""
    errors: list[Problem]
    """The errors of hosts."""


@dataclass(frozen=True, kw_only=True)
class TaskEvents(Shape):
    """The event files of a task on the controller."""

    task: str
    """The task that wrote them."""
    files: int
    """Their number."""
    size: int
    """Their size in bytes."""


@dataclass(frozen=True, kw_only=True)
class RunEvents(Shape):
    """A run in TensorBoard."""

    run: str
    """The run's id."""
    label: str
    """What TensorBoard calls it: its name, or its id."""
    folder: str
    """The folder of the copies on the controller."""
    tasks: list[TaskEvents]
    """The tasks that have written events so far."""
    live: bool
    """Whether a host that answers may still send events."""
    errors: list[Problem]
    """The errors of hosts that do not answer."""


@dataclass(frozen=True, kw_only=True)
class TensorBoardDocument(Shape):
    """What TensorBoard shows. It is printed when TensorBoard answers, which it does until the
    command ends."""

    url: str
    """Its address, for programs of the controller."""
    runs: list[RunEvents]
    """The runs that it shows."""


def collect_document(run: Run, collected: CollectResult) -> CollectDocument:
    return CollectDocument(
        run=run.id,
        folder=str(collected.folder),
        checkpoints=[Checkpoint.of(checkpoint) for checkpoint in collected.checkpoints],
        bad=[BadCheckpoint.of(checkpoint) for checkpoint in collected.bad],
        events=collected.events,
        logs=collected.logs,
        errors=to_problems(collected.errors),
        **written_files(collected),
    )


def fetch_document(run: Run, fetched: FetchResult) -> FetchDocument:
    return FetchDocument(
        run=run.id,
        folder=str(fetched.folder),
        files=[Output.of(output) for output in fetched.fetched],
        left=[SkippedOutput.of(skipped) for skipped in fetched.skipped],
        errors=to_problems(fetched.errors),
    )


def tensorboard_document(board: EventBoard, url: str) -> TensorBoardDocument:
    runs = []
    for fetcher in board.fetchers:
        counts = fetcher.copies.counts().items()
        runs.append(RunEvents(
            run=fetcher.run.id,
            label=board.labels[fetcher.run.id],
            folder=str(fetcher.copies.folder),
            tasks=[TaskEvents(task=task, files=files, size=size) for task, (files, size) in counts],
            live=fetcher.is_live,
            errors=to_problems(list(fetcher.errors.values())),
        ))  # fmt: skip
    return TensorBoardDocument(url=url, runs=runs)


def written_files(collected: CollectResult) -> dict[str, Any]:
    """Return the keys for what tasks wrote besides checkpoints, events and logs."""
    outputs = collected.outputs
    return {
        "outputs": [Output.of(output) for output in (*outputs.fetched, *outputs.unchanged)],
        "left": [SkippedOutput.of(skipped) for skipped in outputs.skipped],
        "others": [UnlistedFiles.of(unlisted) for unlisted in outputs.unlisted],
        "elsewhere": [SavedElsewhere.of(saved) for saved in outputs.elsewhere],
        "elsewhere_more": outputs.elsewhere_more,
    }
