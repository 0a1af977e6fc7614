"""docs/recipes.md, from the raw data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures import draw, grid, store, summary
from figures.prose import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

FEW = 4  # workers of the first real runs
FAILS = 1.0  # a loss above it: the training has not learned
FOLDERS = {"downpour-sgd": "downpour", "ssgd-backup": "sync_replicas"}
IDEAS = {
    "hogwild": "each gradient applied at once, no locks; clipped",
    "downpour": "own copy, the sum of a window pushed, Adagrad on the ps",
    "downpour-sgd": "the same, SGD on the ps",
    "adag": "own copy, the mean of a window pushed",
    "dynsgd": "the sum of a window, divided by its staleness + 1",
    "aeasgd": "own copy, pulled to the centre and pulling it",
    "aeamsgd": "the same, with momentum",
    "ssgd": "synchronous, one round per batch",
    "ssgd-backup": "the same, without waiting for the slowest worker",
    "sagn": "synchronous, one round per window",
}


def write() -> None:
    text = render(store.read(store.SIMULATION), store.read(store.REAL))
    (store.DOCS / "recipes.md").write_text(text)


def render(simulated: dict[str, Any], real: dict[str, Any]) -> str:
    names = list(grid.ALGORITHMS)
    return PAGE.format(
        **{key.replace(" ", "_"): value for key, value in simulated["constants"].items()},
        real=real["constants"],
        target=summary.TARGET,
        runs=sum(len(simulated[key]) for key in ("trial", "scaling", "rates", "slow")),
        rates=", ".join(f"{rate:g}" for rate in grid.RATES),
        algorithms=rows([name_of(n), IDEAS[n], f"{simulated['chosen rates'][n]:g}"] for n in names),
        scaling=rows(scaling(simulated, name) for name in names),
        curves=rows(one_training(simulated, name) for name in names),
        slow=rows(slowed(simulated, name) for name in names),
        rate_rows=rows(best_rate(simulated, name) for name in names),
        few=FEW,
        fails=FAILS,
        real_workers=" and ".join(map(str, draw.real_workers(real))),
        real_rows=rows(real_row(simulated, real, name) for name in ranked(real)),
        turn_rows=rows(turn_row(real, name) for name in in_turns(real)),
        learn_in_turns=", ".join(filter(lambda name: learns_in_turns(real, name), in_turns(real))),
        never=", ".join(name for name in names if "-" in slowed(simulated, name)[1:4]),
        backup=rows(map(backup_row, real["backup"])),
        repeats=plural(real["constants"]["repeats"], "real run"),
        said=said(simulated) | agreement(simulated, real) | backup_cost(real),
    )


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def rows(cells: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def name_of(name: str) -> str:
    return f"[{name}](../examples/{FOLDERS.get(name, name)}/)"


def loss(value: float) -> str:
    return "≥ 4" if value >= draw.HIGHEST else f"{value:.3f}"


def figure(spread: summary.Spread) -> str:
    """Return the median and the range, such as 0.062 (0.055 to 0.069)."""
    return f"{loss(spread.middle)} ({loss(spread.low)} to {loss(spread.high)})"


def at(simulated: dict[str, Any], name: str, workers: int, window: int) -> summary.Spread:
    own = summary.where(simulated["scaling"], algorithm=name, workers=workers)
    return summary.losses(summary.where(own, window=grid.own_window(name, window)))


def scaling(simulated: dict[str, Any], name: str) -> list[str]:
    """Return a row: the loss with each number of workers, and window 5."""
    cells = [loss(at(simulated, name, workers, grid.WINDOW).middle) for workers in grid.WORKERS]
    wide = loss(at(simulated, name, grid.MANY, grid.WINDOWS[-1]).middle)
    return [name, *cells, "-" if name in grid.WITHOUT_WINDOW else wide]


def one_training(simulated: dict[str, Any], name: str) -> list[str]:
    runs = draw.even_runs(simulated, name)
    updates, time, right = (
        summary.spread([run[key] for run in runs]).middle for key in ("updates", "time", "accuracy")
    )
    spread = figure(summary.losses(runs))
    return [name, spread, f"{right:.3f}", f"{updates:.0f}", f"{time:.0f}"]


def slowed(simulated: dict[str, Any], name: str) -> list[str]:
    even, slow = draw.even_runs(simulated, name), draw.slow_runs(simulated, name)
    share = summary.spread([summary.slow_share(run) for run in slow]).middle
    times = [time_to_target(even), time_to_target(slow)]
    ratio = f"{times[1] / times[0]:.1f}" if times[0] and times[1] else "-"
    shown = [f"{time:.0f}" if time else "-" for time in times]
    return [name, *shown, ratio, f"{100 * share:.1f} %", figure(summary.losses(slow))]


def time_to_target(runs: list[dict[str, Any]]) -> float | None:
    """Return the median of the times; None if a seed did not reach the target."""
    times = [summary.reached(run) for run in runs]
    reached = [time for time in times if time is not None]
    return summary.spread(reached).middle if len(reached) == len(times) else None


def best_rate(simulated: dict[str, Any], name: str) -> list[str]:
    own = summary.where(simulated["rates"], algorithm=name)
    spreads = {rate: summary.losses(summary.where(own, rate=rate)) for rate in grid.RATES}
    best = min(spreads, key=lambda rate: spreads[rate].middle)
    works = [rate for rate, spread in spreads.items() if spread.high <= summary.TARGET]
    span = f"{min(works):g} to {max(works):g}" if works else "none"
    return [name, f"{best:g}", figure(spreads[best]), span]


def ranked(real: dict[str, Any]) -> list[str]:
    """Return the recipes, the lowest real loss with many workers first."""
    return sorted(real["rates"], key=lambda name: losses_of(real, name, grid.MANY).middle)


def losses_of(real: dict[str, Any], name: str, workers: int) -> summary.Spread:
    return summary.losses(draw.overlapping(real, name, workers))


def real_row(simulated: dict[str, Any], real: dict[str, Any], name: str) -> list[str]:
    cells = [name, f"{real['rates'][name]:g}"]
    for workers in (FEW, grid.MANY):
        cells.append(figure(losses_of(real, name, workers)))
        cells.append(figure(at(simulated, name, workers, grid.WINDOW)))
    return [*cells, shares(draw.overlapping(real, name, grid.MANY))]


def shares(runs: list[dict[str, Any]]) -> str:
    """Return the smallest and the largest share of a worker."""
    found = [100 * own / sum(run["shares"]) for run in runs for own in run["shares"]]
    return f"{min(found):.0f} to {max(found):.0f} %"


def in_turns(real: dict[str, Any]) -> list[str]:
    return [name for name in real["rates"] if draw.taking_turns(real, name)]


def learns_in_turns(real: dict[str, Any], name: str) -> bool:
    """Whether a recipe fails if all workers compute at the same time, and learns if they do not."""
    turns = summary.losses(draw.taking_turns(real, name))
    return losses_of(real, name, grid.MANY).low > FAILS and turns.high <= FAILS


def turn_row(real: dict[str, Any], name: str) -> list[str]:
    turns = draw.taking_turns(real, name)
    together = figure(losses_of(real, name, grid.MANY))
    return [name, together, figure(summary.losses(turns)), shares(turns)]


def backup_row(run: dict[str, Any]) -> list[str]:
    own = ["-" if each is None else str(each) for each in run["own"]]
    return [str(run["backup"]), str(run["steps"]), *own, f"{run['seconds']:.1f}"]


def backup_cost(real: dict[str, Any]) -> dict[str, str]:
    """Return how many batches the first run with a backup worker computed, and how many it used."""
    run = next(run for run in real["backup"] if run["backup"])
    used = run["steps"] * (len(run["own"]) - run["backup"])
    return {"backup_computed": str(sum(map(int, run["own"]))), "backup_used": str(used)}


def said(simulated: dict[str, Any]) -> dict[str, str]:
    """Return the figures that sentences of the page quote."""
    many, most = grid.MANY, grid.WORKERS[-1]
    quoted = {
        f"{name}_{workers}_{window}": loss(at(simulated, name, workers, window).middle)
        for name in grid.ALGORITHMS
        for workers in (2, many, most)
        for window in grid.WINDOWS
    }
    rounds = summary.where(simulated["scaling"], algorithm="sagn", workers=most, window=20)
    quoted["sagn_updates"] = f"{summary.spread([run['updates'] for run in rounds]).middle:.0f}"
    return {key.replace("-", "_"): value for key, value in quoted.items()}


def agreement(simulated: dict[str, Any], real: dict[str, Any]) -> dict[str, str]:
    """Return how far the real runs and the simulation differ."""
    within, ratios, disagreed = 0, {}, []
    points = [(name, workers) for name in real["rates"] for workers in (FEW, grid.MANY)]
    for name, workers in points:
        run = losses_of(real, name, workers).middle
        twin = at(simulated, name, workers, grid.WINDOW)
        within += twin.low <= run <= twin.high
        if (run > FAILS) != (twin.middle > FAILS):
            disagreed.append(f"{name} with {workers}")
        elif run <= FAILS:
            ratios[f"{name} with {workers}"] = max(run / twin.middle, twin.middle / run)
    furthest = max(ratios, key=ratios.__getitem__, default="none")
    return {
        "within": str(within), "compared": str(len(points)), "furthest": furthest,
        "ratio": f"{ratios.get(furthest, 1):.1f}", "agreed": str(len(points) - len(disagreed)),
        "disagreed": f" (not for {', '.join(disagreed)} workers)" if disagreed else "",
    }  # fmt: skip
