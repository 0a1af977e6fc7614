"""`tfdeploy collect`: fetch checkpoints, outputs, events and logs into runs/<run>/.

The modules in results/ say what is stored where: checkpoints.py, outputs.py, events_and_logs.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from tfdeploy.commands.trials import list_trials
from tfdeploy.errors import HostError, TfdeployError, raise_all
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import errors_of
from tfdeploy.planning.plan import select_placements
from tfdeploy.results import events_and_logs
from tfdeploy.results.checkpoints import (
    BadCheckpoint,
    Checkpoint,
    FetchedCheckpoints,
    fetch_checkpoints,
)
from tfdeploy.results.merged import merge_outputs
from tfdeploy.results.outputs import Outputs, fetch_outputs
from tfdeploy.results.run_folder import disk_errors, exclusive, exclusive_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run


@dataclass(frozen=True)
class CollectResult:
    """What was fetched."""

    __repr__ = short_repr
    KEYS = ("run", "folder", "checkpoints", "bad", "events", "logs", "errors", "outputs")
    MERGED: ClassVar = {"outputs": Outputs}

    folder: Path
    """The folder of its results on the controller."""
    source: str
    """The folder of the checkpoints on the chief's host."""
    checkpoints: tuple[Checkpoint, ...]
    """The checkpoints that were fetched, newest first."""
    events: int
    """The number of event files that were fetched."""
    logs: int
    """The number of logs that were fetched."""
    bad: tuple[BadCheckpoint, ...] = ()
    """The checkpoints that were skipped."""
    errors: tuple[TfdeployError, ...] = ()
    """The errors of hosts that gave nothing, or not everything."""
    chief_answered: bool = True
    """Whether the chief's host gave its results."""
    outputs: Outputs = field(default_factory=Outputs)
    """What tasks wrote besides these."""
    found_names: tuple[str, ...] | None = None
    """A few names from `source`; None: it is no folder, or an older agent does not report them."""
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
    """What was fetched from hosts; `checkpoints` only from the chief's."""

    checkpoints: FetchedCheckpoints | None = None
    events: int = 0
    logs: int = 0
    outputs: Outputs = field(default_factory=Outputs)

    def __add__(self, more: HostResults) -> HostResults:
        return HostResults(
            self.checkpoints or more.checkpoints,
            self.events + more.events,
            self.logs + more.logs,
            self.outputs + more.outputs,
        )


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
    reached are among the result's errors. Raises RunError if another collect of this run is
    running.

    Of a run of trials it fetches the best one, and the scalars of the others; or with `every` all.
    """
    chief, selected = run.plan.chief, select_placements(run.plan, tasks, on)
    of_chief = chief in selected

    has_trials = bool(run.inventory.trials.points)
    keeps = list_trials(fleet, run).keeps if has_trials and not every else lambda path: True

    def fetch(agent: Agent) -> HostResults:
        placements = [placement for placement in selected if placement.host == agent.host]
        checkpoint = [partial(_checkpoints, agent, run, every=every)] if chief in placements else []
        outputs = [partial(_outputs, agent, run, each, keeps) for each in placements]
        return _fetch(
            agent,
            [
                *checkpoint,
                *_events(agent, run, placements),
                _logs(agent, run, placements),
                *outputs,
            ],
        )

    with exclusive(run), exclusive_events(run):
        outcomes = fleet.outcomes(dict.fromkeys(p.host for p in selected), fetch)
        unmerged = merge_outputs(run)
    fetched = [each for each in outcomes.values() if isinstance(each, HostResults)]
    results = sum(fetched, HostResults())
    return _result(
        run,
        results,
        errors=(*errors_of(outcomes), *unmerged),
        chief_answered=results.checkpoints is not None or not of_chief,
        flags=run.flags,
        of_chief=of_chief and not has_trials,
    )


def collect_events_and_logs(fleet: Fleet, run: Run) -> None:
    """Fetch events and logs only. Raises as `collect` does."""

    def fetch(agent: Agent) -> None:
        placements = run.plan.placements_on(agent.host)
        _fetch(agent, [*_events(agent, run, placements), _logs(agent, run, placements)])

    with exclusive(run), exclusive_events(run):
        fleet.each(run.plan.hosts, fetch)


def collect_events(fleet: Fleet, run: Run) -> list[TfdeployError]:
    """Fetch events only; return the errors of hosts. Raises Busy."""

    def fetch(agent: Agent) -> None:
        _fetch(agent, _events(agent, run, run.plan.placements_on(agent.host)))

    hosts = (p.host for p in run.plan.placements if events_and_logs.has_events(run, p))
    with exclusive_events(run):
        return errors_of(fleet.outcomes(dict.fromkeys(hosts), fetch))


def collect_checkpoint(fleet: Fleet, run: Run) -> CollectResult:
    """Fetch the chief's newest good checkpoint only. Raises as `collect` does."""
    agent = fleet.agents[run.plan.chief.host]
    with exclusive(run), disk_errors(agent):
        return _result(run, _checkpoints(agent, run))


def collect_outputs(fleet: Fleet, run: Run) -> CollectResult:
    """Fetch the outputs of the chief only. Raises as `collect` does."""
    chief = run.plan.chief
    agent = fleet.agents[chief.host]
    with exclusive(run), disk_errors(agent):
        return _result(run, _outputs(agent, run, chief))


def _fetch(agent: Agent, parts: Iterable[Callable[[], HostResults]]) -> HostResults:
    """Fetch parts of a host's results, one after the other. If one fails, such as the outputs
    because the controller's disk is too small for them, the others are fetched before its error is
    raised. After a second error, as of a host that is lost, nothing more is tried."""
    results, errors = HostResults(), list[HostError | OSError]()
    for part in parts:
        try:
            results += part()
        except (HostError, OSError) as error:
            errors.append(error)
            if len(errors) > 1:
                break
    with disk_errors(agent):
        for first in errors:
            raise first
    return results


def _checkpoints(agent: Agent, run: Run, *, every: bool = False) -> HostResults:
    return HostResults(fetch_checkpoints(agent, run, every=every))


def _outputs(
    agent: Agent,
    run: Run,
    placement: Placement,
    keeps: Callable[[str], bool] = lambda path: True,
) -> HostResults:
    return HostResults(outputs=fetch_outputs(agent, run, placement, keeps))


def _events(
    agent: Agent, run: Run, placements: Sequence[Placement]
) -> list[Callable[[], HostResults]]:
    def fetch(placement: Placement) -> HostResults:
        return HostResults(events=events_and_logs.fetch_events(agent, run, placement))

    return [partial(fetch, p) for p in placements if events_and_logs.has_events(run, p)]


def _logs(agent: Agent, run: Run, placements: Sequence[Placement]) -> Callable[[], HostResults]:
    return lambda: HostResults(logs=events_and_logs.fetch_logs(agent, run, placements))


def _result(run: Run, results: HostResults, **more: Any) -> CollectResult:
    found = results.checkpoints or FetchedCheckpoints("", (), (), None)
    return CollectResult(
        run.folder,
        found.source,
        found.checkpoints,
        results.events,
        results.logs,
        found.bad,
        outputs=results.outputs,
        found_names=found.found_names,
        uses_tensorflow=run.inventory.training.uses_tensorflow,
        run=run.id,
        **more,
    )
