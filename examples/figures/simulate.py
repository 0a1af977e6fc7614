"""A discrete-event simulation of a training: each worker has its own clock.

A batch takes 1 unit of time on average, times a random jitter and the worker's slowness; an
exchange takes another EXCHANGE. The ps apply each exchange at once, in the order of its end.
All random numbers come from the seed.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from digits import data

from figures import net
from figures.algorithms import ALGORITHMS, Centre, Synchronous, Worker

JITTER = 0.2  # σ of the logarithm of a batch's time
EXCHANGE = 0.5  # of a batch's mean time: a push and a pull
BATCH = 64


class Setting(NamedTuple):
    """One simulated training. `slowest`: how many times longer the last worker computes."""

    algorithm: str
    workers: int
    window: int
    rate: float
    seed: int
    batches: int
    slowest: float = 1.0
    points: int = 2  # in the curve; the first is at the start and the last at the end


class Point(NamedTuple):
    """The centre, measured on the test images."""

    batches: int
    updates: int
    time: float
    loss: float


class Result(NamedTuple):
    setting: Setting
    curve: list[Point]
    accuracy: float
    shares: list[int]  # each worker's batches


class Simulation:
    """A cluster whose workers compute with the algorithm's equations."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.algorithm = ALGORITHMS[setting.algorithm](
            setting.rate, setting.window, setting.workers
        )
        self.draw = np.random.default_rng([setting.seed, 1])
        self.images, self.labels = _flat("train")
        self.tests = _flat("test")
        self.centre = Centre(net.initial(np.random.default_rng([setting.seed, 0])))
        self.workers = [Worker(self.centre) for _ in range(setting.workers)]
        self.shares = [0] * setting.workers
        self.curve: list[Point] = []
        self.heap = [(self.duration(index), index) for index in range(setting.workers)]
        heapq.heapify(self.heap)

    def run(self) -> Result:
        self.measure(0.0)
        advance = self.rendezvous() if isinstance(self.algorithm, Synchronous) else self.exchanges()
        spacing = self.setting.batches / (self.setting.points - 1)
        for now in advance:
            while self.done >= spacing * len(self.curve) and not self.finished:
                self.measure(now)
            if self.finished:
                break
        _, accuracy = net.measure(self.centre.w, *self.tests)
        return Result(self.setting, self.curve, accuracy, self.shares)

    @property
    def done(self) -> int:
        return sum(self.shares)

    @property
    def finished(self) -> bool:
        return len(self.curve) >= self.setting.points

    def measure(self, now: float) -> None:
        loss, _ = net.measure(self.centre.w, *self.tests)
        self.curve.append(Point(self.done, self.centre.pushes, round(now, 2), loss))

    def duration(self, index: int) -> float:
        """Return the time of a window of the worker and its exchange."""
        batches = self.draw.lognormal(-(JITTER**2) / 2, JITTER, self.setting.window).sum()
        slow = self.setting.slowest if index == self.setting.workers - 1 else 1.0
        return float(batches * slow + EXCHANGE)

    def train(self, index: int) -> None:
        """Compute a window of batches on the worker's copy."""
        worker = self.workers[index]
        for chosen in self.draw.integers(len(self.labels), size=(self.setting.window, BATCH)):
            point = self.algorithm.point(worker)
            g = net.gradient(point, self.images[chosen], self.labels[chosen])
            self.algorithm.compute(worker, g)
        self.shares[index] += self.setting.window

    def exchanges(self):  # noqa: ANN201
        """Asynchronous: yield the time of each exchange."""
        while True:
            now, index = heapq.heappop(self.heap)
            self.train(index)
            self.algorithm.exchange(self.centre, self.workers[index])
            heapq.heappush(self.heap, (now + self.duration(index), index))
            yield now

    def rendezvous(self):  # noqa: ANN201
        """Synchronous: yield the time of each round's end. Gradients of an older round are lost."""
        arrived, waiting = [], []
        while True:
            now, index = heapq.heappop(self.heap)
            self.train(index)
            worker = self.workers[index]
            if worker.pulled_at == self.centre.pushes:
                arrived.append(worker.a)
                waiting.append(index)
            else:
                self.resume(index, now)
            if len(arrived) == self.algorithm.needed:
                self.algorithm.meet(self.centre, arrived)
                for each in waiting:
                    self.resume(each, now)
                arrived, waiting = [], []
                yield now

    def resume(self, index: int, now: float) -> None:
        self.workers[index].pull(self.centre)
        heapq.heappush(self.heap, (now + self.duration(index), index))


def _flat(part: str) -> tuple[np.ndarray, np.ndarray]:
    if part not in _CACHE:
        examples = data.load(part)
        _CACHE[part] = examples.images.reshape(len(examples.labels), -1), examples.labels
    return _CACHE[part]


_CACHE: dict[str, tuple[np.ndarray, np.ndarray]] = {}
