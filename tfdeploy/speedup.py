"""What the runs of a sweep come to: steps a second, and the speed-up against the smallest. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tfdeploy.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdeploy.curves import Curve

# The first part of what was told: sessions, queues and caches come to their pace there.
WARM_UP = 0.25
# Of one worker count the fewest ps that come so near to the most steps are enough.
ENOUGH = 0.95

GOING = "going"
MEASURED = "measured"
FAILED = "failed"


class Cell(NamedTuple):
    """So many workers with so many ps. Cells sort with the smallest first: it is what all others
    are compared with."""

    workers: int
    ps: int

    def __str__(self) -> str:
        return f"{self.ps} ps, {counted(self.workers, 'worker')}"


class Rate(NamedTuple):
    """Steps a second, of so many seconds after the warm-up."""

    steps_per_s: float
    seconds: float


class Sample(NamedTuple):
    """What a host told of its tasks at a moment of its own clock: see agent/load.py."""

    at: float
    cpu_s: Mapping[str, float]
    busy_s: float
    received: int
    sent: int


@dataclass(frozen=True)
class Load:
    """The CPU cores that the busiest ps and the busiest worker kept busy, and the bytes a second
    that the busiest host received or sent, whichever were more. `other_cores` are what a host spent
    on anything but the run, at most: then it was not alone. None: nobody told."""

    ps_cores: float | None = None
    worker_cores: float | None = None
    network_bytes_per_s: float | None = None
    other_cores: float | None = None


@dataclass(frozen=True)
class Result:
    """A cell and its run: GOING, MEASURED, or FAILED for a `reason`."""

    cell: Cell
    run: str
    result: str = GOING
    reason: str = ""
    rate: Rate | None = None
    load: Load = field(default_factory=Load)


@dataclass(frozen=True)
class Sweep:
    """All results there are, the `terms` that they have in common, and how they are counted: a step
    takes `examples_per_step`, and if it is `synchronous`, so many from each worker. Where there is
    no ps, a `chief` of its own trains as they do."""

    results: Mapping[Cell, Result]
    terms: Mapping[str, Any]
    examples_per_step: int | None = None
    synchronous: bool = False
    chief: bool = False

    def __iter__(self) -> Iterator[Result]:
        return (self.results[cell] for cell in sorted(self.results))

    @property
    def base(self) -> Result | None:
        """The fewest workers with the fewest ps that were measured."""
        return next((each for each in self if each.rate), None)

    def examples_per_s(self, result: Result) -> float | None:
        if result.rate is None or self.examples_per_step is None:
            return None
        return self.pace(result) * self.examples_per_step

    def pace(self, result: Result) -> float:
        """Batches a second, of all workers together; 0.0 where none were measured."""
        each = self._training(result.cell) if self.synchronous else 1
        return result.rate.steps_per_s * each if result.rate else 0.0

    def speedup(self, result: Result) -> float | None:
        return self.pace(result) / self.pace(self.base) if self.base and result.rate else None

    def ideal(self, workers: int) -> float:
        """As many times as fast as there are workers for one of the base."""
        if not self.base:
            return 1.0
        base = self.base.cell
        return self._training(base._replace(workers=workers)) / self._training(base)

    def _training(self, cell: Cell) -> int:
        return cell.workers + (self.chief and not cell.ps)

    def enough(self) -> dict[int, Cell]:
        """For each number of workers the fewest ps with which they are (nearly) as fast as ever."""
        found: dict[int, Cell] = {}
        for workers in sorted({cell.workers for cell in self.results}):
            alike = [each for each in self if each.cell.workers == workers and each.rate]
            best = max(map(self.pace, alike), default=0.0)
            if len(alike) > 1:
                near = (each for each in alike if self.pace(each) >= ENOUGH * best)
                found[workers] = next(near).cell
        return found


def rate(curve: Curve) -> Rate | None:
    """Of the points after the warm-up; None where that leaves fewer than two moments."""
    if not curve:
        return None
    begin = curve[0].at + WARM_UP * (curve[-1].at - curve[0].at)
    told = [point for point in curve if point.at >= begin]
    seconds = told[-1].at - told[0].at
    return Rate((told[-1].step - told[0].step) / seconds, seconds) if seconds > 0 else None


def load(samples: Mapping[str, Sequence[Sample]]) -> Load:
    """Of what each host told, again and again. A task that ended is judged by what was told before.
    Of what a host receives and sends the larger counts: a link carries both at once, and loopback
    tells each byte twice."""
    cores = dict(_cores(samples.values()))
    spans = [told for told in samples.values() if told and told[-1].at > told[0].at]
    return Load(
        max((cores[task] for task in cores if task.startswith("ps:")), default=None),
        max((cores[task] for task in cores if not task.startswith("ps:")), default=None),
        max(map(_traffic, spans), default=None),
        max(map(_others, spans), default=None),
    )


def _traffic(told: Sequence[Sample]) -> float:
    """An interface that goes away takes its bytes with it."""
    first, last = told[0], told[-1]
    return max(0, last.received - first.received, last.sent - first.sent) / (last.at - first.at)


def _others(told: Sequence[Sample]) -> float:
    """What tasks spent that have ended since is the run's, too."""
    first, last = told[0], told[-1]
    spent = {task: seconds for sample in told for task, seconds in sample.cpu_s.items()}
    ours = sum(seconds - first.cpu_s.get(task, 0.0) for task, seconds in spent.items())
    return max(0.0, last.busy_s - first.busy_s - ours) / (last.at - first.at)


def _cores(hosts: Iterable[Sequence[Sample]]) -> Iterator[tuple[str, float]]:
    for told in hosts:
        for task in {task for sample in told for task in sample.cpu_s}:
            first, *_, last = [each for each in told if task in each.cpu_s] * 2
            if last.at > first.at:
                yield task, (last.cpu_s[task] - first.cpu_s[task]) / (last.at - first.at)
