"""`tfdeploy stop`: every process of one run, and of no other, ended and verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.records import STOPPED
from tfdeploy.cluster import Task
from tfdeploy.errors import TaskError, TfdeployError, raise_all

if TYPE_CHECKING:
    from tfdeploy.fleet import Fleet
    from tfdeploy.plan import Placement
    from tfdeploy.remote import Agent
    from tfdeploy.run import Run

MARGIN_S = 40.0


@dataclass(frozen=True)
class Stopped:
    """The state that each task was left in, and the chief's newest checkpoint with its age in
    seconds, if it was still training and has one."""

    states: dict[str, str]
    saved: tuple[str, float] | None


def stop(fleet: Fleet, run: Run) -> Stopped:
    """End all tasks. Those who dial go first: without its ps a worker ignores SIGTERM for most of
    a minute. A chief that saves as it ends goes before all, for its last step may need the others.

    Raises what went wrong anywhere, after every host was tried: a host that can't be reached, a
    process that survived SIGKILL.
    """
    states: dict[str, str] = {}
    saved: tuple[str, float] | None = None
    errors: list[TfdeployError] = []
    for wave in _waves(run):
        for outcome in _stop(fleet, run, wave).values():
            if isinstance(outcome, TfdeployError):
                errors.append(outcome)
                continue
            states |= {answer["task"]: answer["state"] for answer in outcome}
            saved = saved or _saved(outcome)
            errors += [_survived(run, answer) for answer in outcome if answer["survivors"]]
    raise_all(list({str(error): error for error in errors}.values()))
    return Stopped(states, saved)


def _waves(run: Run) -> list[list[Placement]]:
    served = [p for p in run.plan.placements if p.task.job == "ps"]
    dialling = [p for p in run.plan.placements if p.task.job != "ps"]
    if run.inventory.training.save_on_stop and dialling:
        chief = [p for p in dialling if p.task in (Task("chief", 0), Task("worker", 0))][-1:]
        return [chief, [p for p in dialling if p not in chief], served]
    return [dialling, served]


def _saved(answers: list[dict[str, Any]]) -> tuple[str, float] | None:
    for answer in answers:
        if answer["state"] == STOPPED and answer.get("saved"):
            return answer["saved"]["name"], answer["saved"]["age_s"]
    return None


def _stop(fleet: Fleet, run: Run, placements: list[Placement]) -> dict[str, Any]:
    def ask(agent: Agent) -> list[dict[str, Any]]:
        tasks = [str(p.task) for p in placements if p.host == agent.host]
        body = {"project": run.inventory.project, "run": run.id, "tasks": tasks}
        body["launched"] = run.launched
        timeout_s = run.inventory.training.stop_grace_s * 2 + MARGIN_S
        answer: list[dict[str, Any]] = agent.ask("stop", body, timeout_s)["tasks"]
        return answer

    return fleet.outcomes(dict.fromkeys(p.host for p in placements), ask)


def _survived(run: Run, answer: dict[str, Any]) -> TaskError:
    host = next(p.host for p in run.plan.placements if str(p.task) == answer["task"])
    pids = ", ".join(str(pid) for pid in answer["survivors"])
    return TaskError(
        answer["task"],
        host,
        f"processes {pids} outlived SIGKILL",
        "they hang in the kernel (a lost disk or GPU): only a reboot ends them",
    )
