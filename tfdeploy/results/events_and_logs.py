"""Fetch the event files of the chief and the evaluator, and the logs of all tasks.

runs/<run>/events/                the chief's
runs/<run>/events/evaluator-0/    the evaluator's, if it has its own directory for them
runs/<run>/logs/                  every task's, each with <task>.history.jsonl: its states so far,
                                  <task>.gpus.jsonl: the use of its GPUs, and <task>.pace.jsonl:
                                  its steps, and its host's counters; with trials, and
                                  <task>.trials.jsonl: those of a slot
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, TransferFailed
from tfdeploy.folders.own_folder import Budget
from tfdeploy.results.fetch import GrowingFetch, announced
from tfdeploy.results.run_folder import task_request
from tfdeploy.shared.event_records import EVENTS
from tfdeploy.shared.protocol.outputs import ListEvents
from tfdeploy.shared.protocol.reports import Logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

# What one collect may add of a task's event files. Nobody announces their size, because they grow.
EVENTS_BYTES = 4 << 30
MB = 1 << 20
HISTORIES = ("history", "gpus", "pace", "trials")


def fetch_events(agent: Agent, run: Run, placement: Placement) -> int:
    """Fetch the event files of a task that `has_events`; return their number. Raises as `FileFetch`
    does, and OSError."""
    folders = agent.ask(ListEvents(**task_request(run, placement))).folders
    names = [name for names in folders.values() for name in names]
    for name in names:
        if EVENTS not in name.rpartition("/")[2]:
            raise AgentError(agent.host, f"it names a file {name!r:.80}, which is refused")
    below = "" if _is_first(run, placement) else f"/{placement.task.file_name}"
    dest = (run.open() / f"events{below}").within(Budget(EVENTS_BYTES))
    for source, files in folders.items():
        _refuse_missing(agent, GrowingFetch(agent, source, dest, files).receive())
    return len(names)


def has_events(run: Run, placement: Placement) -> bool:
    """Return whether a task's events are fetched: the chief's, evaluators' and slots'. Those of
    other workers repeat them."""
    return _is_first(run, placement) or placement.task.job == "evaluator"


def _is_first(run: Run, placement: Placement) -> bool:
    return placement == run.plan.chief or bool(run.inventory.trials.points)


def fetch_logs(agent: Agent, run: Run, placements: Sequence[Placement]) -> int:
    """Fetch the logs of one host's tasks, with the older part of a rotated log and the
    tasks' histories.

    Return the number of tasks whose log came. Raises as `FileFetch` does, and OSError.
    """
    answer = agent.ask(Logs(run.inventory.project, run.id))
    limit = len(placements) * run.inventory.training.log_limit_mb * MB
    dest = (run.open() / "logs").within(announced(limit))
    tasks = [placement.task.file_name for placement in placements]
    names = [f"{task}.log" for task in tasks]
    histories = [f"{task}.{name}.jsonl" for task in tasks for name in HISTORIES]
    wanted = [*(name for log in names for name in (f"{log}.1", log)), *histories]
    present = [name for name in wanted if name in answer.names]
    _refuse_missing(agent, GrowingFetch(agent, answer.folder, dest, present).receive())
    return len({*present} & {*names})


def _refuse_missing(agent: Agent, names: Sequence[str]) -> None:
    """Raise TransferFailed if files did not come."""
    if names:
        message = f"{names[0]} does not come: it is gone, or larger than a collect takes"
        raise TransferFailed(agent.host, message, "tfdeploy fetch fetches a file of any size")
