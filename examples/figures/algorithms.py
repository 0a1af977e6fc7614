"""The update equations of the recipes in NumPy, on one vector of weights.

tests/examples compares each with what the recipe computes with TensorFlow.
An algorithm has two parts: `compute` is what a worker does with the gradient of a batch, and
`exchange` is what the worker and the ps do at the end of a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

STEEPEST = 2.0  # Hogwild's largest norm of a gradient, see hogwild/train.py
FIRST_SUM = 0.1  # TensorFlow's Adagrad starts with it


class Centre:
    """What the ps hold: the weights w, the pushes t, and Adagrad's sums."""

    def __init__(self, weights: np.ndarray) -> None:
        self.w = weights.copy()
        self.pushes = 0
        self.squares = np.full_like(weights, FIRST_SUM)


class Worker:
    """What a worker holds: a copy x, the sum a of a window's gradients, and a velocity v."""

    def __init__(self, centre: Centre) -> None:
        self.x = centre.w.copy()
        self.a, self.v = np.zeros_like(self.x), np.zeros_like(self.x)
        self.pulled_at = centre.pushes

    def pull(self, centre: Centre) -> None:
        self.x = centre.w.copy()
        self.a = np.zeros_like(self.a)
        self.pulled_at = centre.pushes


class Algorithm:
    """Descend on the copy x, and add up the gradients: x ← x - η g, a ← a + g."""

    momentum = 0.0

    def __init__(self, rate: float, window: int, workers: int) -> None:
        self.rate, self.window, self.workers = np.float32(rate), window, workers

    def point(self, worker: Worker) -> np.ndarray:
        """Return the weights at which the worker computes its gradient."""
        return worker.x

    def compute(self, worker: Worker, g: np.ndarray) -> None:
        worker.x = worker.x - self.rate * g
        worker.a = worker.a + g

    def exchange(self, centre: Centre, worker: Worker) -> None:
        self.push(centre, worker)
        centre.pushes += 1
        worker.pull(centre)

    def push(self, centre: Centre, worker: Worker) -> None:
        raise NotImplementedError


class Hogwild(Algorithm):
    """w ← w - η g · min(1, 2 / ‖g‖). That two updates may damage each other is not simulated."""

    def push(self, centre: Centre, worker: Worker) -> None:
        norm = float(np.linalg.norm(worker.a))
        centre.w = centre.w - self.rate * min(1.0, STEEPEST / max(norm, 1e-30)) * worker.a


class DownpourSgd(Algorithm):
    """w ← w - η a."""

    def push(self, centre: Centre, worker: Worker) -> None:
        centre.w = centre.w - self.rate * worker.a


class Downpour(Algorithm):
    """w ← w - η a / √(0.1 + Σ a²): Adagrad on the ps."""

    def push(self, centre: Centre, worker: Worker) -> None:
        centre.squares = centre.squares + worker.a**2
        centre.w = centre.w - self.rate * worker.a / np.sqrt(centre.squares)


class Adag(Algorithm):
    """w ← w - η a / λ."""

    def push(self, centre: Centre, worker: Worker) -> None:
        centre.w = centre.w - self.rate * worker.a / self.window


class DynSgd(Algorithm):
    """w ← w - η a / (s + 1), s is the number of other pushes since this worker pulled."""

    def push(self, centre: Centre, worker: Worker) -> None:
        staleness = centre.pushes - worker.pulled_at
        centre.w = centre.w - self.rate * worker.a / (staleness + 1)


class Aeasgd(Algorithm):
    """e = α (x - c), x ← x - e, c ← c + e, with α = 0.9 / workers."""

    def exchange(self, centre: Centre, worker: Worker) -> None:
        force = np.float32(0.9 / self.workers) * (worker.x - centre.w)
        worker.x, centre.w = worker.x - force, centre.w + force
        centre.pushes += 1


class Aeamsgd(Aeasgd):
    """v ← δ v - η g(x + δ v), x ← x + v, and the spring of Aeasgd."""

    momentum = 0.9

    def point(self, worker: Worker) -> np.ndarray:
        return worker.x + np.float32(self.momentum) * worker.v

    def compute(self, worker: Worker, g: np.ndarray) -> None:
        worker.v = np.float32(self.momentum) * worker.v - self.rate * g
        worker.x = worker.x + worker.v


class Synchronous(Algorithm):
    """w ← w - η (a_1 / λ + … + a_m / λ) / m, once the gradients of m workers have arrived."""

    def __init__(self, rate: float, window: int, workers: int, backup: int = 0) -> None:
        super().__init__(rate, window, workers)
        self.needed = max(1, workers - backup)

    def meet(self, centre: Centre, arrived: Sequence[np.ndarray]) -> None:
        centre.w = centre.w - self.rate * (sum(arrived) / len(arrived) / self.window)
        centre.pushes += 1


ALGORITHMS = {
    "hogwild": Hogwild,
    "downpour": Downpour,
    "downpour-sgd": DownpourSgd,
    "adag": Adag,
    "dynsgd": DynSgd,
    "aeasgd": Aeasgd,
    "aeamsgd": Aeamsgd,
    "ssgd": Synchronous,
    "ssgd-backup": lambda rate, window, workers: Synchronous(rate, window, workers, backup=1),
    "sagn": Synchronous,
}
# These exchange after each batch; the others after a window.
WITHOUT_WINDOW = ("hogwild", "ssgd", "ssgd-backup")
