"""`tfdeploy trials`: how each trial of a run is, as its hosts have recorded it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.folders.own_folder import read_file
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import answers_of, errors_of
from tfdeploy.shared.protocol.message import parse_lines
from tfdeploy.shared.protocol.reports import ListTrials
from tfdeploy.shared.trials import BAD, FAILED, SUCCEEDED, WAITING, TrialRecord, newest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfdeploy.commands.intent import TrialKeys
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run

MAX_JOURNAL_BYTES = 64 << 20
# A file in the directory of a trial, and the log beside it.
OF_TRIAL = re.compile(r"trials/(\d+)(?:/|\.log$)")
# What is fetched of each trial: its log, and what `compare` reads.
SCALARS = re.compile(r"trials/\d+\.log$|.*\.(csv|jsonl)$")


@dataclass(frozen=True)
class Trial:
    """A trial, and its newest attempt."""

    number: int
    """Its number."""
    parameters: Mapping[str, str]
    """Its parameters."""
    state: str
    """WAITING, RUNNING, SUCCEEDED, FAILED, BAD (others were better), LOST or INTERRUPTED."""
    value: float | None = None
    """The best value of the objective so far."""
    step: int | None = None
    """The step at which it was reached."""
    seconds: float | None = None
    """How long the attempt ran."""
    attempts: int = 0
    """How often it was started."""
    task: str | None = None
    """The slot that has it, such as `worker:1`."""
    host: str | None = None
    """The host of that slot."""
    exit: int | None = None
    """Its exit code; negative for a signal."""
    reason: str = ""
    """Why it is in this state."""
    at: float | None = None
    """When it entered this state, in seconds since 1970."""


@dataclass(frozen=True)
class TrialsResult:
    """The trials of a run, the best one first."""

    __repr__ = short_repr
    KEYS = ("run_id", "objective", "best", "trials", "errors")
    NAMES: ClassVar = {"run_id": "run"}

    run: Run = field(repr=False)
    trials: tuple[Trial, ...]
    """The trials, the best values first, the failed ones last."""
    errors: tuple[TfdeployError, ...] = ()
    """The errors of hosts."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.id

    @property
    def objective(self) -> str | None:
        """The objective, such as `val_accuracy:max`; null without one."""
        return self.run.inventory.trials.objective

    @property
    def best(self) -> int | None:
        """The number of the trial with the best value."""
        ended = (t for t in self.trials if t.state in (SUCCEEDED, BAD) and t.value is not None)
        return next((trial.number for trial in ended), None)

    def keeps(self, task: str, path: str, *, every: bool = False) -> bool:
        """Return whether a file that a slot wrote is fetched: all of the best trial's, with `every`
        or without an objective of all trials, and of others their logs and scalars. What an older
        attempt left in another slot is not."""
        found = OF_TRIAL.match(path)
        trial = self._by_number.get(int(found[1])) if found else None
        if trial is None:
            return True
        if trial.host and trial.task != task:
            return False
        is_scalar = bool(SCALARS.match(path))
        return every or not self.objective or is_scalar or trial.number == self.best

    @cached_property
    def _by_number(self) -> Mapping[int, Trial]:
        return {trial.number: trial for trial in self.trials}


def plan_trials(inventory: Inventory, keys: TrialKeys) -> Inventory:
    """Return the inventory of a run of trials. The parameters of the command line come besides
    those of hosts.toml. Raises InventoryError and PlanError."""
    from tfdeploy.config.overrides import override_trials
    from tfdeploy.planning.trials import parse_params, with_trials

    given = {key: value for key, value in vars(keys).items() if value}
    params = {**inventory.trials.params, **parse_params(keys.params)}
    return with_trials(override_trials(inventory, {**given, "params": params}))


def require_trials(run: Run) -> None:
    """Raise RunError if a run has no trials."""
    if not run.inventory.trials.points:
        raise RunError(
            f"run {run.id} has no trials", "start some: tfdeploy trials --param lr=0.1,0.01"
        )


def trials_of(fleet: Fleet | None, run: Run) -> TrialsResult | None:
    """Return what `list_trials` does; None for a run without trials."""
    return list_trials(fleet, run) if run.inventory.trials.points else None


def list_trials(fleet: Fleet | None, run: Run) -> TrialsResult:
    """Ask all hosts what they have recorded, and read what was collected of others; without a fleet
    only read what was collected."""
    request = ListTrials(run.inventory.project, run.id)

    def ask(agent: Agent) -> list[TrialRecord]:
        return agent.ask(request).trials

    chief = run.plan.chief.host
    # The chief's host knows of all trials, and says last how those are that still run.
    hosts = sorted(run.plan.hosts, key=lambda host: host == chief)
    outcomes = fleet.outcomes(hosts, ask) if fleet else {}
    hosts_of = {str(p.task): p.host for p in run.plan.placements}
    # Another host says only how the trials of its own slots are.
    answers = (
        record
        for host, records in answers_of(outcomes).items()
        for record in records
        if host in (chief, hosts_of.get(record.slot))
    )
    records = newest([*_collected(run), *answers])
    points = run.inventory.trials.points
    trials = [_trial(n, point, records.get(n), hosts_of) for n, point in enumerate(points)]
    trials.sort(key=lambda trial: _rank(trial, run.inventory.trials.goal[1]))
    return TrialsResult(run, tuple(trials), tuple(errors_of(outcomes)))


def _collected(run: Run) -> Iterator[TrialRecord]:
    chief = run.plan.chief.task.file_name
    for file in sorted((run.folder / "logs").glob("*.trials.jsonl")):
        task = file.name.partition(".")[0]
        with suppress(OSError):
            for record in parse_lines(TrialRecord, read_file(file, MAX_JOURNAL_BYTES)):
                if task in (chief, record.slot.replace(":", "-")):
                    yield record


def _trial(
    number: int, point: Mapping[str, str], record: TrialRecord | None, hosts: Mapping[str, str]
) -> Trial:
    if record is None:
        return Trial(number, point, WAITING)
    return Trial(
        number,
        point,
        record.state,
        record.value,
        record.step,
        record.seconds,
        record.attempt,
        record.slot,
        hosts.get(record.slot),
        record.exit,
        record.reason,
        record.at,
    )


def _rank(trial: Trial, mode: str) -> tuple[bool, bool, float, bool, int]:
    value = trial.value or 0.0
    is_waiting = trial.state == WAITING
    better = -value if mode == "max" else value
    return trial.state == FAILED, trial.value is None, better, is_waiting, trial.number
