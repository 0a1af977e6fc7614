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
from tfdeploy.transfer.fetch import fetch_files
from tfdeploy.transfer.outputs import task_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

# The chief's host reads a checkpoint twice before it answers: 100 GB at 100 MB/s.
PIN_TIMEOUT_S = 2000.0


def fetch_events(agent: Agent, run: Run, placements: Sequence[Placement]) -> int:
    """Fetch the event files of one host's tasks; return their number. Raises as `fetch_files`
    does."""
    return sum(_fetch_task_events(agent, run, placement) for placement in placements)


def fetch_logs(agent: Agent, run: Run, placements: Sequence[Placement]) -> int:
    """Fetch the logs of one host's tasks, with the older part of a rotated log and the
    tasks' histories.

    Return the number of tasks whose log came. Raises as `fetch_files` does.
    """
    answer = agent.ask(Logs(run.inventory.project, run.id))
    tasks = [placement.task.file_name for placement in placements]
    names = [f"{task}.log" for task in tasks]
    histories = [f"{task}.{name}.jsonl" for task in tasks for name in ("history", "gpus")]
    wanted = [*(name for log in names for name in (f"{log}.1", log)), *histories]
    present = [name for name in wanted if name in answer.names]
    if present:
        fetch_files(agent, answer.folder, run.folder / "logs", present)
    return len({*present} & {*names})


def _fetch_task_events(agent: Agent, run: Run, placement: Placement) -> int:
    """Fetch the chief's and the evaluator's event files; those of other workers repeat them."""
    if placement != run.plan.chief and placement.task.job != "evaluator":
        return 0
    dest = run.folder / "events"
    if placement != run.plan.chief:
        dest /= placement.task.file_name
    folders = _event_folders(agent, run, placement)
    for folder, files in folders.items():
        fetch_files(agent, folder, dest, files)
    return sum(len(files) for files in folders.values())


def _event_folders(agent: Agent, run: Run, placement: Placement) -> dict[str, list[str]]:
    """Return the event files of a task by their folder on the host."""
    return agent.ask(ListEvents(**task_request(run, placement))).folders
