"""`tfdeploy run`, once started: follow to the chief's end, stop what is left, bring all home."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.records import ENDED, LOST, SUCCEEDED, TaskReport, from_json
from tfdeploy.errors import (
    HostError,
    TaskError,
    TfdeployError,
    Unreachable,
    parts,
    raise_all,
)
from tfdeploy.fleet import may_return
from tfdeploy.steps.blame import blame
from tfdeploy.steps.collect import Collected, collect
from tfdeploy.steps.gather import Gathering
from tfdeploy.steps.resume import Resumed, resume
from tfdeploy.steps.status import status
from tfdeploy.steps.stop import stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.fleet import Fleet, Following
    from tfdeploy.run import Run

TAIL = 20
TICK_S = 0.5
# Beyond what the tasks themselves are given to end after their chief.
END_MARGIN_S = 15.0
# How long a host may be silent before `run --resilient` goes on without it.
HOST_PATIENCE_S = 60.0
RESUMES = 10


@dataclass(frozen=True)
class Watcher:
    """Whom to tell while a run is followed."""

    on_report: Callable[[str, TaskReport], None] = lambda host, report: None
    on_lines: Callable[[str, str, list[str]], None] = lambda task, host, lines: None
    on_lost: Callable[[HostError], None] = lambda error: None
    on_back: Callable[[str], None] = lambda host: None
    on_collected: Callable[[Collected], None] = lambda collected: None
    on_delayed: Callable[[TfdeployError], None] = lambda error: None
    on_fallen: Callable[[TfdeployError], None] = lambda error: None
    on_resumed: Callable[[Resumed], None] = lambda resumed: None


@dataclass(frozen=True)
class Ended:
    """How the training ended. `exit` is the chief's, as a shell counts (128 + n for signal n), or
    1 where another task's failure ended it; `failure` names who failed first."""

    exit: int
    failure: TfdeployError | None


@dataclass(frozen=True)
class Fallen:
    """What can't heal by itself: supervisors that are gone from hosts that answer, or hosts that
    have been silent for too long (`hosts`). `error` says it."""

    hosts: tuple[str, ...]
    error: TfdeployError


@dataclass(frozen=True)
class Finished(Ended):
    """A run of which nothing is left running, and what it brought home."""

    collected: Collected
    states: dict[str, str]


def follow(fleet: Fleet, run: Run, watcher: Watcher, patience_s: float) -> Ended | Fallen:
    """Follow a started run until its chief has ended, or until one that it can't do without is
    lost for good: a host is when it was silent for `patience_s`, while another one answers. Each
    new checkpoint comes home on the way.

    Raises HostError where the chief's host refuses to be followed.
    """
    with (
        Gathering(fleet, run, watcher.on_collected, watcher.on_delayed) as gathering,
        fleet.follow(run, run.plan.placements, logs=True) as following,
    ):
        seen = _Seen(run, watcher, gathering)
        while seen.chief is None and not seen.lost:
            silent = seen.silent_for(patience_s)
            if silent:
                return Fallen(tuple(silent), _unheard(run, silent))
            _take(following, seen)
        if seen.chief and seen.chief.state == SUCCEEDED:
            _wait_for_the_rest(following, seen, _linger_s(run))
    if seen.chief is None or seen.chief.state == LOST:
        return Fallen((), blame(status(fleet, run, TAIL), seen.lost))
    if seen.chief.state == SUCCEEDED:
        return Ended(0, None)
    code = 1 if seen.chief.cause else _as_shell(seen.chief.exit or 1)
    return Ended(code, blame(status(fleet, run, TAIL)))


def follow_to_end(fleet: Fleet, begun: Run, watcher: Watcher) -> tuple[Run, Ended]:
    """As `follow`; a task that is lost ends the run. Raises HostError where a host that it can't do
    without is silent for as long as the run itself would wait: then the run is left alone."""
    outcome = follow(fleet, begun, watcher, begun.inventory.training.orphan_timeout_s)
    if isinstance(outcome, Ended):
        return begun, outcome
    if outcome.hosts:
        raise outcome.error
    return begun, Ended(1, outcome.error)


def follow_resiliently(fleet: Fleet, begun: Run, watcher: Watcher) -> tuple[Run, Ended]:
    """As `follow`, but the run goes on without what is lost (see resume.py), up to RESUMES times.
    Returns it as it is then, on some of the fleet's hosts, and how it ended. Raises what `resume`
    raises."""
    resumes = 0
    while True:
        outcome = follow(fleet, begun, watcher, HOST_PATIENCE_S)
        if isinstance(outcome, Ended):
            return begun, outcome
        watcher.on_fallen(outcome.error)
        if resumes == RESUMES:
            return begun, Ended(1, outcome.error)
        resumed = _resumed(begun, outcome.hosts, watcher)
        watcher.on_resumed(resumed)
        begun, resumes = resumed.run, resumes + 1


def _resumed(begun: Run, lost: tuple[str, ...], watcher: Watcher) -> Resumed:
    """Hosts that turn out to be gone as well are done without, too."""
    without = lost
    while True:
        try:
            return resume(begun, without, watcher.on_report)
        except TfdeployError as error:
            more = {e.host for e in parts(error) if isinstance(e, Unreachable)}
            if more <= {*without} or more >= {*begun.plan.hosts} - {*without}:
                raise
            watcher.on_fallen(error)
            without = (*without, *sorted(more - {*without}))


def finish(fleet: Fleet, run: Run, ended: Ended) -> Finished:
    """Stop what is left, and collect. Raises the errors of both, behind the failure there was,
    after all that could be brought home was brought home."""
    errors = [ended.failure] if ended.failure else []
    states: dict[str, str] = {}
    try:
        states = stop(fleet, run).states
    except TfdeployError as error:
        errors.append(error)
    try:
        collected = collect(fleet, run)
    except TfdeployError as error:
        raise_all([*errors, error])
        raise
    if len(errors) > (ended.failure is not None):
        raise_all(errors)
    return Finished(ended.exit, ended.failure, collected, states)


class _Seen:
    """What is known of a run that is followed. `chief` is its chief's last report, once it has
    ended; `lost` the first task that was found LOST which the chief can't do without."""

    def __init__(self, run: Run, watcher: Watcher, gathering: Gathering) -> None:
        self.run = run
        self.watcher = watcher
        self.gathering = gathering
        self.chief: TaskReport | None = None
        self.lost = ""
        self.going = {str(p.task) for p in run.plan.placements}
        self._needed = {str(p.task) for p in run.plan.needed}
        self._silent: dict[str, tuple[float, HostError]] = {}

    def take(self, host: str, event: Any) -> None:
        if isinstance(event, HostError):
            self._take_error(host, event)
        elif "back" in event:
            self._silent.pop(host, None)
            self.watcher.on_back(host)
        elif "lines" in event:
            self.watcher.on_lines(event["task"], host, event["lines"])
        elif "checkpoint" in event:
            self.gathering.announced(event["checkpoint"])
        elif "state" in event:
            self._take_report(host, from_json(TaskReport, event["state"]))

    def silent_for(self, patience_s: float) -> dict[str, HostError]:
        """The hosts that can't be done without and gave no answer for so long; none while every
        host is silent that is not this machine, for then it is our own network that is gone."""
        hosts = self.run.plan.hosts
        if len(self._silent) == sum(not self.run.inventory.host(h).is_local for h in hosts):
            return {}
        needed = {p.host for p in self.run.plan.needed}
        before = time.monotonic() - patience_s
        return {h: e for h, (at, e) in self._silent.items() if h in needed and at < before}

    def _take_error(self, host: str, error: HostError) -> None:
        if host == self.run.plan.chief.host and not may_return(error):
            error.hint = f"the run goes on; come back with tfdeploy logs -f {self.run.flags}"
            raise error
        self._silent.setdefault(host, (time.monotonic(), error))
        self.watcher.on_lost(error)

    def _take_report(self, host: str, report: TaskReport) -> None:
        self.watcher.on_report(host, report)
        if report.state not in ENDED:
            return
        self.going.discard(report.task)
        if report.task == str(self.run.plan.chief.task):
            self.chief = report
        if report.state == LOST and report.task in self._needed:
            self.lost = self.lost or report.task


def _take(following: Following, seen: _Seen) -> None:
    """What comes within a moment, up to the first sign of an end."""
    deadline = time.monotonic() + TICK_S
    for host, event in following.events(deadline):
        seen.take(host, event)
        if seen.chief or seen.lost or time.monotonic() > deadline:
            return
    if time.monotonic() < deadline:  # every host has said its last
        chief = seen.run.plan.chief
        raise TaskError(str(chief.task), chief.host, "its host fell silent before it ended")


def _wait_for_the_rest(following: Following, seen: _Seen, limit_s: float) -> None:
    """The tasks end by themselves after their chief; what doesn't is stopped when this is over."""
    deadline = time.monotonic() + limit_s
    for host, event in following.events(deadline):
        seen.take(host, event)
        if not seen.going:
            return


def _linger_s(run: Run) -> float:
    evaluates = any(p.task.job == "evaluator" for p in run.plan.placements)
    return END_MARGIN_S + (run.inventory.training.evaluator_grace_s if evaluates else 0.0)


def _unheard(run: Run, silent: dict[str, HostError]) -> TfdeployError:
    flags = " ".join(f"--without {host}" for host in silent)
    for error in silent.values():
        error.hint = f"to go on elsewhere: tfdeploy resume {run.flags} {flags}"
    return next(iter(silent.values()))


def _as_shell(code: int) -> int:
    return 128 - code if code < 0 else code
