"""What a run told comes home: the event files of its chief and its evaluator, and every log.

runs/<run>/events/                the chief's
runs/<run>/events/evaluator-0/    the evaluator's, if it has a directory of its own for them
runs/<run>/logs/                  every task's
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy import bundle
from tfdeploy.errors import AgentError
from tfdeploy.steps.bring import bring

if TYPE_CHECKING:
    from tfdeploy.plan import Placement
    from tfdeploy.remote import Agent
    from tfdeploy.run import Run

# The chief's host reads a checkpoint twice before it answers: a hundred GB at a hundred MB/s.
PIN_TIMEOUT_S = 2000.0


def events(agent: Agent, run: Run) -> int:
    """How many event files came from one host. Raises as `bring` does."""
    return sum(_events(agent, run, placement) for placement in run.plan.on(agent.host))


def logs(agent: Agent, run: Run) -> int:
    """How many tasks' logs came; where one was rotated, what it held before came too."""
    answer = agent.ask("logs", {"project": run.inventory.project, "run": run.id})
    names = [f"{p.task.file_name}.log" for p in run.plan.on(agent.host)]
    wanted = [name for log in names for name in (f"{log}.1", log)]
    there = [name for name in wanted if name in answer["names"]]
    if there:
        bring(agent, answer["folder"], run.folder / "logs", there)
    return len({*there} & {*names})


def _events(agent: Agent, run: Run, placement: Placement) -> int:
    """Other workers' would say the same again, for the steps of all."""
    if placement != run.plan.chief and placement.task.job != "evaluator":
        return 0
    home = run.folder / "events"
    if placement != run.plan.chief:
        home /= placement.task.file_name
    folders = _folders(agent, run, placement)
    for folder, files in folders.items():
        bring(agent, folder, home, files)
    return sum(len(files) for files in folders.values())


def _folders(agent: Agent, run: Run, placement: Placement) -> dict[str, list[str]]:
    """A run is asked with the agent that began it; an older one tells of events as it pins."""
    named = {"project": run.inventory.project, "run": run.id, "task": str(placement.task)}
    try:
        folders: dict[str, list[str]] = agent.ask("events", named)["folders"]
        return folders
    except AgentError:
        if run.agent == bundle.current_version():
            raise
    answer = agent.ask("pin", {**named, "every": False}, PIN_TIMEOUT_S)
    agent.ask("unpin", named)
    return {answer["checkpoint_dir"]: answer["events"]} if answer["events"] else {}
