"""Which cells a sweep measures, and the plan of each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring.speed.results import Cell
from tfdeploy.commands.intent import Intent
from tfdeploy.config.cluster import JOBS
from tfdeploy.errors import PlanError
from tfdeploy.planning import placing
from tfdeploy.planning.replanning import with_counts

if TYPE_CHECKING:
    from tfdeploy.config.inventory import Host, Inventory, Restart, Training

MARGIN_S = 60.0  # for what a run does beside training: hosts are queried, the session saves
MAX_COUNT = 1024


@dataclass(frozen=True)
class Grid:
    """The cells to measure, each `repeats` times for `seconds`."""

    cells: tuple[Cell, ...]
    repeats: int
    seconds: float


def cells(ps: str, workers: str) -> tuple[Cell, ...]:
    """Return each number of workers with each number of ps, the smallest cell first. Raises
    PlanError."""
    pairs = product(_parse_counts("--workers", workers, 1), _parse_counts("--ps", ps, 0))
    return tuple(sorted(Cell(*pair) for pair in pairs))


def _parse_counts(flag: str, text: str, least: int) -> set[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and least <= int(word) <= MAX_COUNT for word in words):
        raise PlanError(
            f'{flag}: found "{text}", expected whole numbers from {least} to {MAX_COUNT}',
            f"separate them with commas: {flag} 1,2,4",
        )
    return {int(word) for word in words}


def default_ps(inventory: Inventory) -> str:
    """Return the default of --ps."""
    return "1" if any(host.ps for host in inventory.hosts) else "0"


def refuse_what_cannot_be_compared(training: Training) -> None:
    """Raise PlanError if all runs would write their checkpoints to one folder, or each would run on
    other hosts."""
    if training.workers is not None:
        raise PlanError(
            "training.workers: each run would use other hosts",
            "measure a copy of it with --hosts, in which hosts have workers instead",
        )
    if training.checkpoint_dir.startswith("/"):
        raise PlanError(
            f"training.checkpoint_dir is {training.checkpoint_dir}: each run would continue from "
            "the checkpoint of the run before",
            "use a relative path, so that each run has its own folder",
        )


def plan_cells(whole: Intent, grid: Grid) -> dict[Cell, Intent]:
    """Return the plan of each cell, with the releases of the whole plan. Raises one PlanError for
    all cells that can't be planned."""
    intents: dict[Cell, Intent] = {}
    problems: dict[str, str] = {}
    for cell in grid.cells:
        try:
            intents[cell] = _plan_cell(whole, cell, grid.seconds)
        except PlanError as error:
            problems[f"{cell}: {error.message}"] = error.hint
    if problems:
        raise PlanError("\n".join(problems), "\n  ".join(dict.fromkeys(problems.values())))
    return intents


def _plan_cell(whole: Intent, cell: Cell, seconds: float) -> Intent:
    """Twice `seconds`, because `measure` waits that long for the first step, too."""
    limit_s = whole.inventory.training.ready_timeout_s + 2 * seconds + MARGIN_S
    inventory = rescale(whole.inventory, cell.ps, cell.workers, limit_s)
    plan = placing.make_plan_from_addresses(inventory)
    names = {host.name for host in inventory.hosts}
    environments = {host: spec for host, spec in whole.environments.items() if host in names}
    intent = Intent(inventory, plan, whole.release, whole.data, environments)
    intent.examples()  # finds a wrong {field} before anything runs
    return intent


def rescale(inventory: Inventory, ps: int, workers: int, limit_s: float) -> Inventory:
    """Return the inventory with these numbers of ps and workers, placed as with_counts does.

    Left out are hosts without a task, the evaluator, replicas, and restarts: a task that fails is
    a result of the measurement.

    `save_on_stop` is set, because a session writes its last events when it exits in order.
    `max_duration_s` is at most `limit_s`, in case nothing is left that could stop the run. Raises
    PlanError if the tasks don't fit.
    """
    hosts = with_counts(inventory, {"ps": ps, "workers": workers}).hosts
    limit_s = min(limit_s, inventory.training.max_duration_s or limit_s)
    training = {"replicas": 0, "save_on_stop": True, "max_duration_s": limit_s}
    return inventory.copy_with(
        {
            "hosts": tuple(h.copy_with({"evaluator": False}) for h in hosts if trains(h)),
            "restart": _without_restarts(inventory.restart),
            "training": inventory.training.copy_with(training),
        }
    )


def trains(host: Host) -> bool:
    """Return whether the host has tasks that train, so that a measured run may use it."""
    return not host.spare and bool(host.ps or host.workers or host.chief)


def _without_restarts(restart: Restart) -> Restart:
    """Set the attempts of all jobs to 0; keep everything else."""
    jobs = {job: getattr(restart, job).copy_with({"attempts": 0}) for job in JOBS}
    return restart.copy_with({"attempts": 0, **jobs})
