"""Fetch the event files of the chief and the evaluator, and the logs of all tasks.

runs/<run>/events/                the chief's
runs/<run>/events/evaluator-0/    the evaluator's, if it has its own directory for them
runs/<run>/logs/                  every task's, each with <task>.history.jsonl: its states so far,
                                  and <task>.gpus.jsonl: the use of its GPUs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.agent.protocol.outputs import ListEvents
from tfdeploy.agent.protocol.reports import Logs
from tfdeploy.transfer.fetch import FileFetch, pull_files
from tfdeploy.transfer.outputs import task_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.hosts.pipelines.pipeline import Pipeline
    from tfdeploy.hosts.pipelines.rounds import Steps
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

# The chief's host reads a checkpoint twice before it answers: 100 GB at 100 MB/s.
PIN_TIMEOUT_S = 2000.0


def fetch_events(pipeline: Pipeline, run: Run, placement: Placement) -> Steps[int]:
    """Fetch the event files of a task; return their number. Raises as `FileFetch` does.

    Only those of the chief and of evaluators: those of other workers repeat them.
    """
    if placement != run.plan.chief and placement.task.job != "evaluator":
        return 0
    dest = run.folder / "events"
    if placement != run.plan.chief:
        dest /= placement.task.file_name
    listed = pipeline.send(ListEvents(**task_request(run, placement)))
    yield
    folders = listed.answer().folders
    fetches = [FileFetch(pipeline, folder, dest, files) for folder, files in folders.items()]
    yield
    for folder, fetch in zip(folders, fetches, strict=True):
        pull_files(pipeline.agent, folder, dest, fetch.receive())
    return sum(len(files) for files in folders.values())


def fetch_logs(pipeline: Pipeline, run: Run, placements: Sequence[Placement]) -> Steps[int]:
    """Fetch the logs of one host's tasks, with the older part of a rotated log and the
    tasks' histories.

    Return the number of tasks whose log came. Raises as `FileFetch` does.
    """
    listed = pipeline.send(Logs(run.inventory.project, run.id))
    yield
    answer, dest = listed.answer(), run.folder / "logs"
    tasks = [placement.task.file_name for placement in placements]
    names = [f"{task}.log" for task in tasks]
    histories = [f"{task}.{name}.jsonl" for task in tasks for name in ("history", "gpus")]
    wanted = [*(name for log in names for name in (f"{log}.1", log)), *histories]
    present = [name for name in wanted if name in answer.names]
    fetch = FileFetch(pipeline, answer.folder, dest, present)
    yield
    pull_files(pipeline.agent, answer.folder, dest, fetch.receive())
    return len({*present} & {*names})
