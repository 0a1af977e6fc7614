"""Speed of the runs of a sweep: steps per second, and the speed-up over the smallest run. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdeploy.agent.protocol.reports import Load as HostLoad
    from tfdeploy.experiments.scalars import Series

# The first part of the time, in which sessions, queues and caches reach their normal speed.
WARM_UP = 0.25
# The fewest ps with which workers reach this part of their best speed are enough.
ENOUGH = 0.95

GOING = "running"
MEASURED = "measured"
FAILED = "failed"


class Cell(NamedTuple):
    """A number of workers and a number of ps. The smallest cell sorts first: all others are
    compared with it."""

    workers: int
    ps: int

    def __str__(self) -> str:
        return f"{self.ps} ps, {format_count(self.workers, 'worker')}"


class Rate(NamedTuple):
    """Steps per second, measured over `seconds` after the warm-up."""

    steps_per_s: float
    seconds: float


@dataclass(frozen=True)
class Load:
    """The CPU cores that the busiest ps and the busiest worker used, and the bytes per second that
    the busiest host received or sent, whichever is more. `other_cores` are the cores that a host
    used for anything but the run, the largest number of all hosts. None: no host reported it."""

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
    """All results so far, and the `terms` that they have in common.

    A step takes `examples_per_step`; if `synchronous`, it takes that many from each worker. If
    there is a `chief` of its own, it trains like a worker in cells without ps.
    """

    results: Mapping[Cell, Result]
    terms: Mapping[str, Any]
    examples_per_step: int | None = None
    synchronous: bool = False
    chief: bool = False

    def __iter__(self) -> Iterator[Result]:
        return (self.results[cell] for cell in sorted(self.results))

    @property
    def base(self) -> Result | None:
        """The measured result with the fewest workers, and of these with the fewest ps."""
        return next((result for result in self if result.rate), None)

    def examples_per_s(self, result: Result) -> float | None:
        if result.rate is None or self.examples_per_step is None:
            return None
        return self.batches_per_s(result) * self.examples_per_step

    def batches_per_s(self, result: Result) -> float:
        """Return the batches of all workers per second; 0.0 if the result was not measured."""
        batches_per_step = self._training_tasks(result.cell) if self.synchronous else 1
        return result.rate.steps_per_s * batches_per_step if result.rate else 0.0

    def speedup(self, result: Result) -> float | None:
        if not self.base or not result.rate:
            return None
        return self.batches_per_s(result) / self.batches_per_s(self.base)

    def ideal(self, workers: int) -> float:
        """Return the speed-up if each training task were as fast as one of the base."""
        if not self.base:
            return 1.0
        base = self.base.cell
        return self._training_tasks(base._replace(workers=workers)) / self._training_tasks(base)

    def _training_tasks(self, cell: Cell) -> int:
        return cell.workers + (self.chief and not cell.ps)

    def enough(self) -> dict[int, Cell]:
        """Return, for each number of workers, the cell with the fewest ps that is as fast as the
        best one, or nearly so. Numbers of workers with a single measured cell are left out."""
        cells: dict[int, Cell] = {}
        for workers in sorted({cell.workers for cell in self.results}):
            measured = [each for each in self if each.cell.workers == workers and each.rate]
            best = max(map(self.batches_per_s, measured), default=0.0)
            if len(measured) > 1:
                near_best = (r for r in measured if self.batches_per_s(r) >= ENOUGH * best)
                cells[workers] = next(near_best).cell
        return cells


def rate(series: Series) -> Rate | None:
    """Return the rate after the warm-up, or None if fewer than two times are left."""
    if not series:
        return None
    begin = series[0].time_s + WARM_UP * (series[-1].time_s - series[0].time_s)
    points = [point for point in series if point.time_s >= begin]
    seconds = points[-1].time_s - points[0].time_s
    return Rate((points[-1].step - points[0].step) / seconds, seconds) if seconds > 0 else None


def load(samples: Mapping[str, Sequence[HostLoad]]) -> Load:
    """Return the load from the samples of each host, in their order.

    A task that has exited counts until its last sample. Of the bytes received and sent, the larger
    number counts: a link transfers both at the same time, and loopback counts each byte twice.
    """
    cores = dict(_task_cores(samples.values()))
    spans = [host for host in samples.values() if host and host[-1].at > host[0].at]
    return Load(
        max((cores[task] for task in cores if task.startswith("ps:")), default=None),
        max((cores[task] for task in cores if not task.startswith("ps:")), default=None),
        max(map(_network_bytes_per_s, spans), default=None),
        max(map(_other_cores, spans), default=None),
    )


def _network_bytes_per_s(samples: Sequence[HostLoad]) -> float:
    """At least 0: the totals shrink if an interface disappears."""
    first, last = samples[0], samples[-1]
    return max(0, last.received - first.received, last.sent - first.sent) / (last.at - first.at)


def _other_cores(samples: Sequence[HostLoad]) -> float:
    """Return the cores used by processes that are not the run's. The time of a task that has exited
    meanwhile counts as the run's."""
    first, last = samples[0], samples[-1]
    latest = {task: cpu_s for sample in samples for task, cpu_s in sample.cpu_s.items()}
    run_s = sum(cpu_s - first.cpu_s.get(task, 0.0) for task, cpu_s in latest.items())
    return max(0.0, last.busy_s - first.busy_s - run_s) / (last.at - first.at)


def _task_cores(hosts: Iterable[Sequence[HostLoad]]) -> Iterator[tuple[str, float]]:
    for samples in hosts:
        for task in {task for sample in samples for task in sample.cpu_s}:
            of_task = [sample for sample in samples if task in sample.cpu_s]
            first, last = of_task[0], of_task[-1]
            if last.at > first.at:
                yield task, (last.cpu_s[task] - first.cpu_s[task]) / (last.at - first.at)
