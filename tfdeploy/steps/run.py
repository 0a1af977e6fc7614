"""`tfdeploy run`, once started: follow to the chief's end, stop the rest, bring everything home."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.records import ENDED, FAILED, LOST, SUCCEEDED, TaskReport, from_json
from tfdeploy.errors import HostError, TaskError, TfdeployError, raise_all
from tfdeploy.steps.collect import Collected, collect
from tfdeploy.steps.start import failures
from tfdeploy.steps.stop import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdeploy.fleet import Fleet, Following
    from tfdeploy.plan import Plan
    from tfdeploy.run import Run

# Asynchronous workers end within a moment of each other; a worker in server.join() never does.
STRAGGLERS_S = 5.0


@dataclass(frozen=True)
class Watcher:
    """Whom to tell while a run is followed."""

    on_report: Callable[[str, TaskReport], None] = lambda host, report: None
    on_lines: Callable[[str, str, list[str]], None] = lambda task, host, lines: None
    on_lost: Callable[[HostError], None] = lambda error: None


@dataclass(frozen=True)
class Ended:
    """How the training ended. `exit` is the chief's, as a shell counts (128 + n for signal n), or
    1 where another task's failure ended it; `failure` names who failed."""

    exit: int
    failure: TfdeployError | None


@dataclass(frozen=True)
class Finished(Ended):
    """A run of which nothing is left running, and what it brought home."""

    collected: Collected
    states: dict[str, str]


def follow(fleet: Fleet, run: Run, watcher: Watcher) -> Ended:
    """Follow a started run until its chief ends, or one ends that the chief can't do without.

    Raises HostError where the chief's host was lost on the way: the run goes on without us, as it
    does after Ctrl-C.
    """
    chief = str(run.plan.chief.task)
    going = {str(p.task) for p in run.plan.placements if p.task.job != "ps"}
    with fleet.follow(run, run.plan.placements, logs=True) as following:
        for report in _reports(following, run, watcher, None):
            if report.state not in ENDED:
                continue
            going.discard(report.task)
            if report.task == chief and report.state == SUCCEEDED:
                _wait_for(going, following, run, watcher)
                return Ended(0, None)
            if report.task == chief or _ends_run(run.plan, report):
                code = (report.exit or 1) if report.task == chief else 1
                return Ended(_as_shell(code), failures(fleet, run, report.task))
    raise TaskError(chief, run.plan.chief.host, "its host fell silent before it ended")


def finish(fleet: Fleet, run: Run, ended: Ended) -> Finished:
    """Stop what is left, and collect. Raises the errors of both, behind the failure there was."""
    try:
        states = stop(fleet, run)
        return Finished(ended.exit, ended.failure, collect(fleet, run), states)
    except TfdeployError as error:
        raise_all([ended.failure, error] if ended.failure else [error])
        raise


def _ends_run(plan: Plan, report: TaskReport) -> bool:
    """TensorFlow can't go on without a ps, nor all-reduce without a worker; a worker that shares
    its work through ps is only missed."""
    needed = report.task.startswith("ps:") or ("ps" not in plan.cluster)
    return needed and report.state in (FAILED, LOST)


def _wait_for(going: set[str], following: Following, run: Run, watcher: Watcher) -> None:
    deadline = time.monotonic() + STRAGGLERS_S
    reports = _reports(following, run, watcher, deadline)
    while going and (report := next(reports, None)):
        if report.state in ENDED:
            going.discard(report.task)


def _reports(
    following: Following, run: Run, watcher: Watcher, deadline: float | None
) -> Iterator[TaskReport]:
    for host, event in following.events(deadline):
        if isinstance(event, HostError):
            if host == run.plan.chief.host:
                event.hint = f"the run goes on; come back with tfdeploy logs -f {run.flags}"
                raise event
            watcher.on_lost(event)
        elif "lines" in event:
            watcher.on_lines(event["task"], host, event["lines"])
        elif "state" in event:
            report = from_json(TaskReport, event["state"])
            watcher.on_report(host, report)
            yield report


def _as_shell(code: int) -> int:
    return 128 - code if code < 0 else code
