"""Predict speeds that were not measured, by a model that is fitted to those that were. Pure.

The seconds that a worker takes for a step, among `w` workers with `p` ps, are

    compute + update / p + bandwidth * w / p

compute     what a worker does by itself: its input, its gradients, waiting for the network
update      what the ps do for one step, divided among them
bandwidth   moving one worker's weights and gradients through the links of the ps, which all
            workers share; at the limit, the ps let through p / bandwidth steps per second

A synchronous step of all workers takes as long. The terms are found by least squares of the
relative errors, and none is negative. With a single number of ps, update is part of compute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.experiments.speed.results import Cell

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfdeploy.experiments.speed.results import Sweep

TERMS = ("compute", "update", "bandwidth")
FEW_TERMS = ("compute", "bandwidth")
MAX_TRUSTED_ERROR = 0.2


@dataclass(frozen=True)
class Model:
    """The seconds of each term, and the relative error of the speed of each measured cell if the
    model is fitted to all other cells."""

    terms: Mapping[str, float]
    errors: Mapping[Cell, float]

    @property
    def median_error(self) -> float:
        return median(self.errors.values())

    @property
    def worst(self) -> Cell:
        """The cell with the largest error."""
        return max(self.errors, key=lambda cell: self.errors[cell])

    @property
    def max_error(self) -> float:
        return self.errors[self.worst]

    @property
    def is_trusted(self) -> bool:
        """Whether the model describes all cells that were measured."""
        return self.max_error <= MAX_TRUSTED_ERROR

    def worker_step_s(self, cell: Cell) -> float:
        """Return the seconds that each worker takes for a step."""
        return _worker_step_s(self.terms, cell)


class PredictedSpeed(NamedTuple):
    """Steps per second, the speed-up over the measured base, and its range over models that are
    each fitted to one repeat alone; None with a single one."""

    steps_per_s: float
    speedup: float
    speedup_range: tuple[float, float] | None


@dataclass(frozen=True)
class Prediction:
    """Speeds that were not measured."""

    model: Model
    cells: Mapping[Cell, PredictedSpeed]


def why_too_few(cells: Collection[Cell]) -> str:
    """Return why no model can be fitted to measurements of these cells; "" if one can be."""
    usable = [cell for cell in cells if cell.ps]
    if not usable:
        return "a prediction needs cells with ps: the model is one of parameter servers"
    lines = (len({cell.workers for cell in usable if cell.ps == ps}) for _, ps in usable)
    if max(lines) < 2:
        return "a prediction needs at least two numbers of workers with the same number of ps"
    needed = len(_terms_of(usable)) + 1
    if len(usable) < needed:
        return f"a prediction needs at least {needed} cells with ps; found {len(usable)}"
    return ""


def fit(worker_step_s: Mapping[Cell, float]) -> Model:
    """Return the model of the seconds that each worker took for a step. `why_too_few` must have
    nothing against these cells."""
    times = {cell: seconds for cell, seconds in worker_step_s.items() if cell.ps}
    names = _terms_of(times)
    errors = {}
    for cell, seconds in times.items():
        others = {other: times[other] for other in times if other != cell}
        errors[cell] = abs(seconds / _worker_step_s(_least_squares(others, names), cell) - 1)
    return Model(_least_squares(times, names), errors)


def predict(sweep: Sweep, most: int) -> Prediction | str:
    """Predict 1, 2, 4 … and `most` workers with each measured number of ps, from the medians of
    what was measured; or return why that is impossible."""
    times = dict(_worker_step_times(sweep))
    problem = why_too_few(times)
    if problem:
        return problem
    model = fit(times)
    models = list(_models_of_repeats(sweep))
    cells = {}
    for cell in _cells_up_to(most, {cell.ps for cell in times if cell.ps}):
        speedups = [_speedup(sweep, each, cell) for each in models]
        spread = (min(speedups), max(speedups)) if len(speedups) > 1 else None
        steps_per_s = sweep.training_tasks(cell) / model.worker_step_s(cell)
        steps_per_s /= sweep.batches_per_step(cell)
        speedup = _speedup(sweep, _Scaled(model, _base_step_s(sweep)), cell)
        cells[cell] = PredictedSpeed(steps_per_s, speedup, spread)
    return Prediction(model, cells)


class _Scaled(NamedTuple):
    """A model, and the seconds that a worker of the base took for a step."""

    model: Model
    base_step_s: float


def _models_of_repeats(sweep: Sweep) -> Iterator[_Scaled]:
    """Yield a model of each repeat in which enough cells were measured, the base among them."""
    for repeat in sorted({repeat for _, repeat in sweep.results}):
        results = {key: result for key, result in sweep.results.items() if key[1] == repeat}
        of_repeat = replace(sweep, results=results)
        times = dict(_worker_step_times(of_repeat))
        if sweep.base and sweep.base.cell in times and not why_too_few(times):
            yield _Scaled(fit(times), times[sweep.base.cell])


def _base_step_s(sweep: Sweep) -> float:
    return next(seconds for _, seconds in _worker_step_times(sweep))


def _speedup(sweep: Sweep, scaled: _Scaled, cell: Cell) -> float:
    return sweep.ideal(cell) * scaled.base_step_s / scaled.model.worker_step_s(cell)


def _worker_step_times(sweep: Sweep) -> Iterator[tuple[Cell, float]]:
    for results in sweep.measured:
        speed = sweep.batches_per_s(results)
        if speed:
            yield results.cell, sweep.training_tasks(results.cell) / speed.median


def _cells_up_to(most: int, ps: Collection[int]) -> list[Cell]:
    powers = [1 << exponent for exponent in range(most.bit_length())]
    return [Cell(workers, each) for workers in sorted({*powers, most}) for each in sorted(ps)]


def _terms_of(cells: Collection[Cell]) -> Sequence[str]:
    """Return the terms that these cells can tell apart, at least one fewer than there are cells."""
    import numpy as np

    rows = [[_share(name, cell) for name in TERMS] for cell in cells]
    all_differ = np.linalg.matrix_rank(np.array(rows)) == len(TERMS)
    return TERMS if all_differ and len(cells) > len(TERMS) else FEW_TERMS


def _least_squares(times: Mapping[Cell, float], names: Sequence[str]) -> dict[str, float]:
    """Return the terms, none of which is negative, with the smallest sum of squared relative
    errors. There are so few terms that each subset of them can be tried."""
    subsets = (subset for size in range(len(names), 0, -1) for subset in combinations(names, size))
    solutions = [solution for subset in subsets if (solution := _solve(times, subset))]
    _, best = min(solutions, key=lambda solution: solution[0])
    return {name: best.get(name, 0.0) for name in names}


def _solve(
    times: Mapping[Cell, float], names: Sequence[str]
) -> tuple[float, dict[str, float]] | None:
    """Return the squared error and the terms; None if they can't be told apart, or one is
    negative."""
    import numpy as np

    shares = [[_share(name, cell) / times[cell] for name in names] for cell in times]
    matrix, ones = np.array(shares), np.ones(len(times))
    solution, _, rank, _ = np.linalg.lstsq(matrix, ones, rcond=None)
    if rank < len(names) or min(solution) < 0:
        return None
    error = float(np.sum((matrix @ solution - ones) ** 2))
    return error, dict(zip(names, map(float, solution), strict=True))


def _worker_step_s(terms: Mapping[str, float], cell: Cell) -> float:
    return sum(seconds * _share(name, cell) for name, seconds in terms.items())


def _share(term: str, cell: Cell) -> float:
    """Return how often a term counts in the step of a cell."""
    return {"compute": 1.0, "update": 1 / cell.ps, "bandwidth": cell.workers / cell.ps}[term]
