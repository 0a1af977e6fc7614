"""Which trainings are simulated, and their results as JSON: docs/figures/simulation.json.

Rates are chosen first, in a trial with 2 workers; the other experiments use them unchanged.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from figures.algorithms import ALGORITHMS, WITHOUT_WINDOW
from figures.simulate import BATCH, EXCHANGE, JITTER, Point, Result, Setting, Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable

BATCHES = 3200  # of all workers together
RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
WORKERS = (1, 2, 4, 8, 16)
WINDOWS = (1, 5, 20)
MANY, WINDOW, TRIAL = 8, 5, 2  # workers and window of the curves; workers of the trial
SLOWEST = 5.0  # times as long
SEEDS = range(5)
TRIAL_SEEDS = range(100, 105)  # others than SEEDS: a rate must not be chosen on what it is shown on
POINTS = 65


def simulate() -> dict[str, Any]:
    """Run all simulations; return what simulation.json holds."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        trial = [*pool.map(run, trials())]
        rates = {name: best(name, trial) for name in ALGORITHMS}
        experiments = {
            "scaling": [*pool.map(run, scaling(rates))],
            "rates": [*pool.map(run, rate_settings())],
            "slow": [*pool.map(run, slowed(rates))],
        }
    return {
        "made by": "make figures",
        "constants": {
            "batches": BATCHES, "batch": BATCH, "jitter": JITTER, "exchange": EXCHANGE,
            "seeds": len(SEEDS), "trial workers": TRIAL, "workers": MANY, "window": WINDOW,
            "slowest": SLOWEST,
        },
        "chosen rates": rates,
        "trial": trial,
        **experiments,
    }  # fmt: skip


def own_window(algorithm: str, window: int) -> int:
    return 1 if algorithm in WITHOUT_WINDOW else window


def trials() -> Iterable[Setting]:
    for name in ALGORITHMS:
        for rate in RATES:
            for seed in TRIAL_SEEDS:
                yield Setting(name, TRIAL, own_window(name, WINDOW), rate, seed, BATCHES)


def best(name: str, trial: list[dict[str, Any]]) -> float:
    """Return the rate with the lowest median loss; among diverged ones the lowest rate."""
    return min(
        RATES,
        key=lambda rate: (
            median(r["loss"] for r in trial if (r["algorithm"], r["rate"]) == (name, rate)),
            rate,
        ),
    )


def scaling(rates: dict[str, float]) -> Iterable[Setting]:
    for name in ALGORITHMS:
        for workers in WORKERS:
            for window in (1,) if name in WITHOUT_WINDOW else WINDOWS:
                curve = workers == MANY and window == own_window(name, WINDOW)
                for seed in SEEDS:
                    one = Setting(name, workers, window, rates[name], seed, BATCHES)
                    yield one._replace(points=POINTS) if curve else one


def rate_settings() -> Iterable[Setting]:
    for name in ALGORITHMS:
        for rate in RATES:
            for seed in SEEDS:
                yield Setting(name, MANY, own_window(name, WINDOW), rate, seed, BATCHES)


def slowed(rates: dict[str, float]) -> Iterable[Setting]:
    for name in ALGORITHMS:
        for seed in SEEDS:
            window = own_window(name, WINDOW)
            yield Setting(name, MANY, window, rates[name], seed, BATCHES, SLOWEST, POINTS)


def run(setting: Setting) -> dict[str, Any]:
    with np.errstate(all="ignore"):  # Weights that diverge become infinite.
        return as_json(Simulation(setting).run())


def as_json(result: Result) -> dict[str, Any]:
    """Return one run. A loss that is not finite is written as 1000."""
    setting, last = result.setting, result.curve[-1]
    answer = {
        "algorithm": setting.algorithm, "workers": setting.workers, "window": setting.window,
        "rate": setting.rate, "seed": setting.seed, "slowest": setting.slowest,
        "loss": finite(last.loss), "accuracy": round(result.accuracy, 4),
        "batches": last.batches, "updates": last.updates, "time": last.time,
        "shares": result.shares,
    }  # fmt: skip
    if setting.points > 2:
        columns = zip(*result.curve, strict=True)
        answer["curve"] = dict(zip(Point._fields, map(list, columns), strict=True))
        answer["curve"]["loss"] = [finite(loss) for loss in answer["curve"]["loss"]]
    return answer


def finite(loss: float) -> float:
    return round(float(np.nan_to_num(loss, nan=1000.0, posinf=1000.0)), 4)
