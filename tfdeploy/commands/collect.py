"""`tfdeploy collect`: fetch checkpoints, outputs, events and logs into runs/<run>/.

The modules in results/ say what is stored where: checkpoints.py, outputs.py, events_and_logs.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.commands.trials import trials_of
from tfdeploy.errors import HostError, TfdeployError, raise_all
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import answers_of, errors_of, unless_deleted
from tfdeploy.hosts.pipeline import RoundPart, run_alone, run_parts
from tfdeploy.planning.plan import select_placements
from tfdeploy.results import events_and_logs
from tfdeploy.results.checkpoints import (
    BadCheckpoint,
    Checkpoint,
    FetchedCheckpoints,
    fetch_checkpoints,
)
from tfdeploy.results.outputs import Outputs, fetch_outputs, keep_all
from tfdeploy.results.run_folder import EVENTS, clean_up, disk_errors, exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Placement
    from tfdeploy.results.events_and_logs import Fetched
    from tfdeploy.run import Run


@dataclass(frozen=True)
class CollectResult:
    """What was fetched."""

    __repr__ = short_repr
    KEYS = ("run", "folder", "checkpoints", "bad", "events", "logs", "errors", "outputs")
    MERGED: ClassVar = {"outputs": Outputs}

    folder: Path
    """The run's folder on the controller."""
    source: str
    """The folder of the checkpoints on the chief's host."""
    checkpoints: tuple[Checkpoint, ...]
    """The fetched checkpoints, newest first."""
    events: int
    """The number of event files that were fetched."""
    logs: int
    """The number of logs that were fetched."""
    bad: tuple[BadCheckpoint, ...] = ()
    """The checkpoints that were skipped."""
    errors: tuple[TfdeployError, ...] = ()
    """The errors of hosts."""
    chief_answered: bool = True
    """Whether the chief's host gave its results."""
    outputs: Outputs = field(default_factory=Outputs)
    """What tasks wrote besides these."""
    found_names: tuple[str, ...] | None = None
    """A few names from `source`; None: it is no folder."""
    flags: str = ""
    """The command line options that select the run."""
    uses_tensorflow: bool = True
    """Whether the run's program uses TensorFlow: only then a checkpoint is expected."""
    of_chief: bool = True
    """Whether the chief was among the tasks whose results were wanted."""
    run: str = ""
    """The run's id."""


@dataclass(frozen=True)
class HostResults:
    """What was fetched from one host; `checkpoints` only from the chief's. `errors` are why it is
    not everything."""

    checkpoints: FetchedCheckpoints | None
    events: int
    logs: int
    outputs: Outputs
    errors: tuple[TfdeployError, ...]


def collect(fleet: Fleet, run: Run, *, every: bool = False) -> CollectResult:
    """Collect as `collect_reachable` does; then raise the errors of all hosts."""
    collected = collect_reachable(fleet, run, every=every)
    raise_all(collected.errors)
    return collected


def collect_reachable(
    fleet: Fleet,
    run: Run,
    *,
    every: bool = False,
    tasks: Sequence[str] = (),
    on: Sequence[str] = (),
) -> CollectResult:
    """Fetch the chief's newest good checkpoint (or `every` one), outputs, events and all logs.

    `tasks` and `on` are as in planning/plan.py (empty: all tasks). Hosts that can't be
    reached are among the result's errors. It waits while another command fetches results of the
    run. Raises RunDeleted.

    Of a run of trials it fetches the best one, and the scalars of the others; or with `every` all.
    """
    chief, selected = run.plan.chief, select_placements(run.plan, tasks, on)
    of_chief = chief in selected

    trials = trials_of(fleet, run)
    keeps = partial(trials.keeps, every=every) if trials else keep_all

    def fetch(agent: Agent) -> HostResults:
        placements = [placement for placement in selected if placement.host == agent.host]
        with disk_errors(agent, run):
            return _fetch(agent, run, placements, keeps, every=every)

    with exclusive(run, fleet.transfers), exclusive(run, fleet.transfers, EVENTS):
        clean_up(run)
        hosts = dict.fromkeys(p.host for p in selected)
        outcomes = unless_deleted(fleet.outcomes(hosts, fetch))
    fetched = answers_of(outcomes)
    checkpoints = fetched[chief.host].checkpoints if chief.host in fetched else None
    return replace(
        _result(run, checkpoints),
        events=sum(results.events for results in fetched.values()),
        logs=sum(results.logs for results in fetched.values()),
        outputs=sum((results.outputs for results in fetched.values()), Outputs()),
        errors=(
            *errors_of(outcomes),
            *(error for results in fetched.values() for error in results.errors),
        ),
        chief_answered=checkpoints is not None or not of_chief,
        flags=run.flags,
        of_chief=of_chief and trials is None,
    )


def collect_events_and_logs(fleet: Fleet, run: Run) -> None:
    """Fetch events and logs only. Raises as `collect` does."""

    def fetch(agent: Agent) -> None:
        placements = run.plan.placements_on(agent.host)
        _fetch_all(agent, run, [*_events_parts(run, placements), _logs_part(run, placements)])

    with exclusive(run, fleet.transfers), exclusive(run, fleet.transfers, EVENTS):
        fleet.each(run.plan.hosts, fetch)


def collect_events(fleet: Fleet, run: Run) -> list[TfdeployError]:
    """Fetch events only; return the errors of hosts."""

    def fetch(agent: Agent) -> None:
        _fetch_all(agent, run, _events_parts(run, run.plan.placements_on(agent.host)))

    hosts = (p.host for p in run.plan.placements if events_and_logs.has_events(run, p))
    with exclusive(run, fleet.transfers, EVENTS):
        return errors_of(fleet.outcomes(dict.fromkeys(hosts), fetch))


def collect_checkpoint(fleet: Fleet, run: Run) -> CollectResult:
    """Fetch the chief's newest good checkpoint only. Raises as `collect` does."""
    agent = fleet.agents[run.plan.chief.host]
    with exclusive(run, fleet.transfers), disk_errors(agent, run):
        return _result(run, run_alone(agent, lambda p: fetch_checkpoints(p, run)))


def collect_outputs(fleet: Fleet, run: Run) -> CollectResult:
    """Fetch the outputs of the chief only. Raises as `collect` does."""
    chief = run.plan.chief
    agent = fleet.agents[chief.host]
    with exclusive(run, fleet.transfers), disk_errors(agent, run):
        outputs = run_alone(agent, lambda pipeline: fetch_outputs(pipeline, run, chief))
    return replace(_result(run), outputs=outputs)


def _fetch(
    agent: Agent,
    run: Run,
    placements: Sequence[Placement],
    keeps: Callable[[str, str], bool],
    *,
    every: bool,
) -> HostResults:
    """Fetch the results of these tasks of one host: the checkpoint first, and small files of all
    kinds in the same round trips."""
    has_chief = run.plan.chief in placements
    checkpoints = [RoundPart(partial(fetch_checkpoints, run=run, every=every))] if has_chief else []
    events, logs = _events_parts(run, placements), _logs_part(run, placements)
    fetch = partial(fetch_outputs, run=run, keeps=keeps)
    outputs = [RoundPart(partial(fetch, placement=each)) for each in placements]
    parts: list[RoundPart[object]] = [*checkpoints, *events, logs, *outputs]
    failed: list[TfdeployError] = []
    try:
        run_parts(agent, parts)
    except HostError as error:
        if not any(part.results for part in parts):
            raise
        failed = [error]
    return HostResults(
        next((found for part in checkpoints for found in part.results), None),
        sum(found.count for part in events for found in part.results),
        sum(found.count for found in logs.results),
        sum((found for part in outputs for found in part.results), Outputs()),
        (*_errors_of([*events, logs]), *failed),
    )


def _fetch_all(agent: Agent, run: Run, parts: Sequence[RoundPart[Fetched]]) -> None:
    """Fetch these parts from one host; raise the errors of all files that did not come."""
    with disk_errors(agent, run):
        run_parts(agent, parts)
    raise_all(_errors_of(parts))


def _errors_of(parts: Sequence[RoundPart[Fetched]]) -> tuple[TfdeployError, ...]:
    return tuple(error for part in parts for found in part.results for error in found.errors)


def _events_parts(run: Run, placements: Sequence[Placement]) -> list[RoundPart[Fetched]]:
    return [
        RoundPart(partial(events_and_logs.fetch_events, run=run, placement=each))
        for each in placements
        if events_and_logs.has_events(run, each)
    ]


def _logs_part(run: Run, placements: Sequence[Placement]) -> RoundPart[Fetched]:
    return RoundPart(partial(events_and_logs.fetch_logs, run=run, placements=placements))


def _result(run: Run, fetched: FetchedCheckpoints | None = None) -> CollectResult:
    """Return the result of a run of which nothing but these checkpoints was fetched."""
    found = fetched or FetchedCheckpoints("", (), (), None)
    return CollectResult(
        run.folder,
        found.source,
        found.checkpoints,
        0,
        0,
        found.bad,
        found_names=found.found_names,
        uses_tensorflow=run.inventory.training.uses_tensorflow,
        run=run.id,
    )
