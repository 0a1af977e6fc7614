"""One cell of a sweep: a run that is READY is watched for a while, stopped, and measured."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from tfdeploy import curves, speedup
from tfdeploy.agent.records import ENDED, FAILED, LOST, SUCCEEDED, TaskReport, from_json
from tfdeploy.curves import Point
from tfdeploy.errors import AgentError, HostError
from tfdeploy.fleet import may_return
from tfdeploy.speedup import MEASURED, Load, Result, Sample
from tfdeploy.steps.blame import blame
from tfdeploy.steps.collect import collect_traces
from tfdeploy.steps.start import uninterrupted
from tfdeploy.steps.status import status
from tfdeploy.steps.stop import stop
from tfdeploy.words import counted

if TYPE_CHECKING:
    import re

    from tfdeploy.curves import Curve
    from tfdeploy.fleet import Fleet, Following
    from tfdeploy.remote import Agent
    from tfdeploy.run import Run
    from tfdeploy.speedup import Cell

LOOK_S = 1.0
TAIL = 20


def measure(
    fleet: Fleet, begun: Run, cell: Cell, seconds: float, pattern: re.Pattern[str] | None
) -> Result:
    """Watch it for so many seconds after its first step, or until its chief ends; stop it; bring
    its events and logs home. Steps are those of the events, or with `pattern` those of the chief's
    log, each at the moment at which its line was heard.

    Raises HostError, and at Ctrl-C KeyboardInterrupt, after everything was stopped.
    """
    watch = _Watch(fleet, begun, pattern)
    try:
        watch.go_on(seconds)
    finally:
        with uninterrupted(heard_after=True):
            stop(fleet, begun)
    collect_traces(fleet, begun)
    reason = _failure(fleet, begun, watch.fallen)
    if reason:
        return Result(cell, begun.id, speedup.FAILED, reason)
    told = curves.steps(curves.of_events(begun.folder / "events"))
    return _judged(cell, begun.id, tuple(watch.points) if pattern else told, watch.load, pattern)


def _failure(fleet: Fleet, begun: Run, fallen: str) -> str:
    """Whoever falls because the chief has just ended well is no failure."""
    if not fallen:
        return ""
    seen = status(fleet, begun, TAIL)
    chief = seen.report(str(begun.plan.chief.task))
    return "" if chief and chief.state == SUCCEEDED else str(blame(seen, fallen))


def _judged(
    cell: Cell, run: str, told: Curve, load: Load, pattern: re.Pattern[str] | None
) -> Result:
    rate = speedup.rate(told)
    if rate:
        return Result(cell, run, MEASURED, "", rate, load)
    if told:
        reason = f"told only {counted(len(told), 'step')}: give it more --seconds"
    elif pattern:
        reason = f'no line of its chief\'s log matches "{pattern.pattern}": see tfdeploy logs'
    else:
        reason = "no events of its chief tell a step: say --pattern, to read its log"
    return Result(cell, run, speedup.FAILED, reason, load=load)


class _Watch:
    """What is seen of a run. `fallen` is the first task that failed; `points` are what the chief's
    log told."""

    def __init__(self, fleet: Fleet, begun: Run, pattern: re.Pattern[str] | None) -> None:
        self.fallen = ""
        self.points: list[Point] = []
        self._fleet, self._run, self._pattern = fleet, begun, pattern
        self._chief = str(begun.plan.chief.task)
        self._begun = self._ended = False
        self._samples: dict[str, list[Sample]] = {host: [] for host in begun.plan.hosts}

    @property
    def load(self) -> Load:
        return speedup.load(self._samples)

    def go_on(self, seconds: float) -> None:
        """For so long after its first sign of training. One that gives no sign for as long is
        watched all the same: events may lie in a buffer until its session ends."""
        logs = self._pattern is not None
        run, limit = self._run, time.monotonic() + seconds
        with self._fleet.follow(run, run.plan.placements, logs=logs, lines=0) as following:
            while not self._is_over and not self._has_begun() and time.monotonic() < limit:
                self._hear(following)
            limit = time.monotonic() + seconds
            while not self._is_over and time.monotonic() < limit:
                self._look()
                self._hear(following, limit)
            if not self._is_over:
                self._look()

    @property
    def _is_over(self) -> bool:
        return self._ended or bool(self.fallen)

    def _has_begun(self) -> bool:
        if not self._begun and not self._pattern:
            seen = status(self._fleet, self._run).report(self._chief)
            self._begun = seen is not None and seen.step is not None
        return self._begun

    def _hear(self, following: Following, limit: float | None = None) -> None:
        """What comes until the next look."""
        deadline = time.monotonic() + LOOK_S
        deadline = min(deadline, limit or deadline)
        for host, event in following.events(deadline):
            self._take(host, event)
            if self._is_over or time.monotonic() > deadline:
                return
        time.sleep(max(0.0, deadline - time.monotonic()))  # every host has said its last

    def _take(self, host: str, event: Any) -> None:
        if isinstance(event, HostError):
            if not may_return(event):
                raise event
        elif "checkpoint" in event:
            self._begun = self._begun or not self._pattern
        elif "lines" in event and self._pattern and event["task"] == self._chief:
            self._read(self._pattern, event["lines"])
        elif "state" in event:
            self._take_report(from_json(TaskReport, event["state"]))

    def _take_report(self, report: TaskReport) -> None:
        if report.state in (FAILED, LOST):
            self.fallen = self.fallen or report.task
        elif report.task == self._chief:
            self._ended = report.state in ENDED

    def _read(self, pattern: re.Pattern[str], lines: list[str]) -> None:
        """One line a step, the first: other lines may repeat it."""
        at = time.time()
        for point in curves.of_log("\n".join(lines), pattern):
            if not self.points or point.step > self.points[-1].step:
                self.points.append(Point(point.step, at, None))
        self._begun = bool(self.points)

    def _look(self) -> None:
        """What the hosts tell of their load; one that doesn't tell is left out."""
        named = {"project": self._run.inventory.project, "run": self._run.id}

        def ask(agent: Agent) -> Sample:
            return _sample(agent.host, agent.ask("load", named))

        outcomes = self._fleet.outcomes(self._samples, ask)
        for host, told in outcomes.items():
            if isinstance(told, Sample):
                self._samples[host].append(told)


def _sample(host: str, answer: dict[str, Any]) -> Sample:
    """A host may lie: what it says are numbers, or nothing."""
    try:
        cpu_s = {str(task): _finite(spent) for task, spent in answer["cpu_s"].items()}
        seconds = (_finite(answer["at"]), cpu_s, _finite(answer["busy_s"]))
        return Sample(*seconds, int(_finite(answer["received"])), int(_finite(answer["sent"])))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise AgentError(host, "what it tells of its load are no numbers") from None


def _finite(told: Any) -> float:
    if not math.isfinite(told):
        raise ValueError(told)
    return float(told)
