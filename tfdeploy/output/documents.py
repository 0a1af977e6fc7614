"""What each command prints with --json, and the documents that combine several objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tfdeploy import branches
from tfdeploy.planning.plan import Placement
from tfdeploy.release.snapshot import Release

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.commands.intent import Intent
    from tfdeploy.commands.prune import PruneResult, Removal
    from tfdeploy.commands.runs import ProjectRuns
    from tfdeploy.errors import TfdeployError
    from tfdeploy.shared.records import Launch


def classes() -> dict[str, type]:
    """Return the class of what each command prints; "error" is printed instead by a command that
    fails. Each is described by its fields, see tfdeploy/documents.py."""
    from tfdeploy.commands.check import CheckResult
    from tfdeploy.commands.collect import CollectResult
    from tfdeploy.commands.fetch import FetchResult
    from tfdeploy.commands.hosts import SeenHosts
    from tfdeploy.commands.logs import LogLine
    from tfdeploy.commands.queue import QueueResult
    from tfdeploy.commands.resume import ResumeResult
    from tfdeploy.commands.running.run import FinishedRun
    from tfdeploy.commands.runs import ProjectRuns
    from tfdeploy.commands.scale import ScaleResult
    from tfdeploy.commands.start import StartResult
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.commands.stop import StopResult
    from tfdeploy.commands.trials import TrialsResult
    from tfdeploy.documents import Failure

    return {
        "plan": PlanDocument,
        "check": CheckResult,
        "hosts": SeenHosts,
        "push": PushDocument,
        "start": StartResult,
        "run": FinishedRun,
        "attach": FinishedRun,
        "resume": ResumeResult,
        "scale": ScaleResult,
        "trials": TrialsResult,
        "status": RunStatus,
        "logs": LogLine,
        "collect": CollectResult,
        "fetch": FetchResult,
        "stop": StopResult,
        "runs": ProjectRuns,
        "queue": QueueResult,
        "prune": PruneDocument,
        **branches.documents(),
        "error": Failure,
    }


# plan and push: an Intent holds the whole inventory, with its secrets' names and all files


@dataclass(frozen=True)
class DataRelease:
    """An immutable copy of a data set."""

    MERGED: ClassVar = {"release": Release}

    release: Release
    place: str
    """Its place in the directory of a task, as in hosts.toml."""
    jobs: Sequence[str]
    """The jobs that read it."""
    hosts: Sequence[str]
    """The hosts that get it."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A Python environment that push builds on hosts."""

    id: str
    """Its name: the hash of what it is built from."""
    requirements: Sequence[str]
    """The packages to install."""
    locked: bool
    """Whether a lock file decides about every version."""
    python: str | None
    """The version of Python to use; null for the host's own."""
    setup: Sequence[str]
    """The commands that run after the installation."""
    hosts: Sequence[str]
    """The hosts that have it."""


@dataclass(frozen=True)
class PlannedTask:
    """A task, where it runs, and what is started."""

    MERGED: ClassVar = {"placement": Placement}

    placement: Placement
    argv: Sequence[str]
    """Its command."""
    env: Mapping[str, str]
    """The variables that tfdeploy sets for it."""
    files: Mapping[str, str]
    """The files that are written into its directory, by path."""
    ready: str
    """What makes it READY: `server`, `port`, `process` or `rendezvous`."""


@dataclass(frozen=True, kw_only=True)
class PlanDocument:
    """What would be started, and on which hosts."""

    project: str
    """The project's name."""
    chief: str
    """The task that saves checkpoints and whose end is the run's end."""
    chief_port: int
    """The port of the chief's host for heartbeats."""
    cluster: Mapping[str, Sequence[str]]
    """TensorFlow's cluster spec: each job's `address:port`."""
    network: str
    """`guarded`, `strict` or `open`: who may connect to the tasks."""
    secrets: Sequence[str]
    """The variables whose values the start takes from its environment."""
    notes: Sequence[TfdeployError]
    """What may matter and prevents nothing."""
    release: Release
    """The source."""
    data: Sequence[DataRelease]
    """The data sets."""
    environments: Sequence[Environment]
    """The Python environments of [env]."""
    tasks: Sequence[PlannedTask]
    """All tasks, in the order in which they start."""
    trials: Sequence[Mapping[str, str]]
    """The parameters of each trial of `--param`."""


@dataclass(frozen=True)
class HostPush:
    """What one host got."""

    sent: Sequence[str]
    """The releases that it got."""
    present: Sequence[str]
    """The releases that it had."""


@dataclass(frozen=True)
class PushDocument:
    """Which releases each host got."""

    project: str
    """The project's name."""
    release: Release
    """The source."""
    data: Sequence[DataRelease]
    """The data sets."""
    hosts: Mapping[str, HostPush]
    """Each host."""


def plan_document(intent: Intent, notes: Sequence[TfdeployError]) -> PlanDocument:
    launches = {launch.task: launch for launch in intent.launches()}
    placed = [(placement, launches[str(placement.task)]) for placement in intent.plan.placements]
    return PlanDocument(
        project=intent.inventory.project,
        chief=str(intent.plan.chief.task),
        chief_port=intent.plan.heartbeat_port,
        cluster=intent.plan.cluster,
        network=intent.inventory.network,
        secrets=intent.inventory.training.secrets,
        notes=notes,
        release=intent.release,
        data=_data(intent),
        environments=_environments(intent),
        tasks=[_planned_task(*each) for each in placed],
        trials=intent.inventory.trials.points,
    )


def _planned_task(placement: Placement, launch: Launch) -> PlannedTask:
    process, files = launch.process, launch.directory.files
    return PlannedTask(placement, process.argv, process.env, files, launch.endpoint.ready)


def push_document(intent: Intent, outcome: Mapping[str, Mapping[str, bool]]) -> PushDocument:
    """`outcome` is what `push` returned."""

    def releases(host: str, lacked: bool) -> list[str]:
        return [release for release, hosts in outcome.items() if hosts.get(host) is lacked]

    hosts = {h.name: HostPush(releases(h.name, True), releases(h.name, False))
             for h in intent.inventory.hosts}  # fmt: skip
    return PushDocument(intent.inventory.project, intent.release, _data(intent), hosts)


def _data(intent: Intent) -> list[DataRelease]:
    return [
        DataRelease(release, place, intent.inventory.data[place].jobs, intent.readers(place))
        for place, release in intent.data.items()
    ]


def _environments(intent: Intent) -> list[Environment]:
    specs = {spec.id: spec for spec in intent.environments.values()}
    return [
        Environment(
            id=spec.id,
            requirements=spec.packages,
            locked=bool(spec.locked),
            python=spec.python or None,
            setup=spec.setup,
            hosts=[host for host, each in intent.environments.items() if each.id == spec.id],
        )
        for spec in specs.values()
    ]


# prune: what was chosen, and what became of it


@dataclass(frozen=True, kw_only=True)
class HostPrune:
    """What is, or would be, deleted from one host."""

    runs: Sequence[str]
    """The ids of the runs."""
    releases: Sequence[str]
    """The ids of the releases."""
    environments: Sequence[str]
    """The ids of the environments."""
    bytes: int
    """The space that they use."""
    freed_bytes: int | None
    """The space that became free."""


@dataclass(frozen=True)
class PruneDocument:
    """What was deleted, or would be with `--dry-run`."""

    project: str
    """The project's name."""
    hosts: Mapping[str, HostPrune]
    """Each host with something to delete."""
    errors: Sequence[TfdeployError]
    """The errors of hosts."""


def prune_document(
    runs: ProjectRuns, plan: Mapping[str, Removal], pruned: PruneResult | None
) -> PruneDocument:
    """`pruned` is None in a dry run."""
    freed = pruned.freed if pruned else {}
    hosts = {
        host: HostPrune(
            runs=[run.run for run in removal.runs],
            releases=[release.release for release in removal.releases],
            environments=[each.environment for each in removal.environments],
            bytes=removal.bytes,
            freed_bytes=freed.get(host),
        )
        for host, removal in plan.items()
    }
    return PruneDocument(runs.project, hosts, [*runs.errors, *(pruned.errors if pruned else ())])
