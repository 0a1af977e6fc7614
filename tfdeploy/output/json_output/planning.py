"""The documents of commands that need no run: plan, check, push."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.output.json_output.problems import Problem, to_problems
from tfdeploy.output.json_output.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdeploy.commands.check import CheckResult
    from tfdeploy.commands.plan import Intent
    from tfdeploy.commands.preflight.host_facts import HostFacts
    from tfdeploy.errors import TfdeployError
    from tfdeploy.planning.plan import Placement
    from tfdeploy.release.snapshot import Release


@dataclass(frozen=True, kw_only=True)
class ReleaseSize(Shape):
    """An immutable copy of the source."""

    id: str
    """The name of the release: the hash of its content."""
    files: int
    """The number of its files."""
    bytes: int
    """Their size."""


@dataclass(frozen=True, kw_only=True)
class DataRelease(ReleaseSize):
    """An immutable copy of a data set."""

    place: str
    """Its place in the directory of a task, as in hosts.toml."""
    jobs: list[str]
    """The jobs that read it."""
    hosts: list[str]
    """The hosts that get it."""


@dataclass(frozen=True, kw_only=True)
class Environment(Shape):
    """A Python environment that push builds on hosts."""

    id: str
    """Its name: the hash of what it is built from."""
    requirements: list[str]
    """The packages to install, as in a requirements file."""
    locked: bool
    """Whether a lock file decides about every version."""
    python: str | None
    """The version of Python to use; null for the host's own."""
    setup: list[str]
    """The commands that run after the installation."""
    hosts: list[str]
    """The hosts that have it."""


@dataclass(frozen=True, kw_only=True)
class Place(Shape):
    """A task and where it runs."""

    task: str
    """The task, such as `worker:1`."""
    host: str
    """The host's name in hosts.toml."""
    address: str
    """The address at which other tasks reach it."""
    port: int | None
    """Its port; null for a task without one; 0 in a plan if the start chooses it."""
    gpus: list[int]
    """The indices of its GPUs."""


@dataclass(frozen=True, kw_only=True)
class PlannedTask(Place):
    """A task, where it runs, and what is started."""

    argv: list[str]
    """Its command."""
    env: dict[str, str]
    """The variables that tfdeploy sets for it."""
    files: dict[str, str]
    """The files that are written into its directory, by path."""
    ready: str
    """What makes it READY: `server`, `port` or `process`."""


@dataclass(frozen=True, kw_only=True)
class PlanDocument(Shape):
    """What would be started, and on which hosts."""

    project: str
    """The project's name."""
    chief: str
    """The task that saves checkpoints and whose end is the run's end."""
    chief_port: int
    """The port of the chief's host on which the hosts of a run exchange heartbeats."""
    cluster: dict[str, list[str]]
    """TensorFlow's cluster spec: the `address:port` of the tasks of each job."""
    network: str
    """`guarded`, `strict` or `open`: who may connect to the tasks."""
    secrets: list[str]
    """The names of the variables whose values the start takes from its environment."""
    notes: list[Problem]
    """What may matter and prevents nothing."""
    release: ReleaseSize
    """The source."""
    data: list[DataRelease]
    """The data sets."""
    environments: list[Environment]
    """The Python environments of [env]."""
    tasks: list[PlannedTask]
    """All tasks, in the order in which they start."""


@dataclass(frozen=True, kw_only=True)
class HostCheck(Shape):
    """What one host has."""

    python: str
    """The version of its Python."""
    imports: dict[str, str | None]
    """The version of each module of `training.imports`; null if it cannot be imported."""
    tensorflow: str | None
    """The version of its TensorFlow; null if it cannot, or need not, be imported."""
    libraries: dict[str, str]
    """The versions of other libraries that hosts should have alike, such as cuDNN."""
    environment: str | None
    """The id of the environment of [env] that it was checked with; null for its own Python."""
    gpus: list[str]
    """The names of its GPUs, as nvidia-smi lists them."""
    gpus_seen: int
    """The number of the GPUs of its tasks that these modules see."""
    rsync: str | None
    """The version of its rsync."""
    free_bytes: int
    """The free space on the disk of its directory."""
    ahead_s: float
    """The seconds by which its clock is ahead of the controller's."""


@dataclass(frozen=True, kw_only=True)
class CheckDocument(Shape):
    """What each host has, and what would make a start fail."""

    hosts: dict[str, HostCheck]
    """Each host that answered."""
    errors: list[Problem]
    """What would make a start fail."""
    notes: list[Problem]
    """What may matter."""


@dataclass(frozen=True, kw_only=True)
class HostPush(Shape):
    """What one host got."""

    sent: list[str]
    """The ids of the releases that it lacked and got."""
    present: list[str]
    """The ids of the releases that it had before."""


@dataclass(frozen=True, kw_only=True)
class PushDocument(Shape):
    """Which releases each host got."""

    project: str
    """The project's name."""
    release: ReleaseSize
    """The source."""
    data: list[DataRelease]
    """The data sets."""
    hosts: dict[str, HostPush]
    """Each host."""


def plan_document(intent: Intent, notes: Iterable[TfdeployError]) -> PlanDocument:
    launches = {launch.task: launch for launch in intent.launches()}
    return PlanDocument(
        project=intent.inventory.project,
        chief=str(intent.plan.chief.task),
        chief_port=intent.plan.heartbeat_port,
        cluster={job: list(tasks) for job, tasks in intent.plan.cluster.items()},
        network=intent.inventory.network,
        secrets=list(intent.inventory.training.secrets),
        notes=to_problems(notes),
        release=_to_size(intent.release),
        data=_to_data(intent),
        environments=_to_environments(intent),
        tasks=[
            PlannedTask.of(launches[str(p.task)], **vars(to_place(p)))
            for p in intent.plan.placements
        ],
    )


def check_document(checked: CheckResult) -> CheckDocument:
    return CheckDocument(
        hosts={facts.host: _to_host_check(facts) for facts in checked.hosts},
        errors=to_problems(checked.errors),
        notes=to_problems(checked.notes),
    )


def push_document(intent: Intent, outcome: Mapping[str, Mapping[str, bool]]) -> PushDocument:
    """`outcome` is what `push` returned."""
    hosts = {
        host.name: HostPush(
            sent=[release for release, lacked in outcome.items() if lacked.get(host.name) is True],
            present=[r for r, lacked in outcome.items() if lacked.get(host.name) is False],
        )
        for host in intent.inventory.hosts
    }
    return PushDocument(
        project=intent.inventory.project,
        release=_to_size(intent.release),
        data=_to_data(intent),
        hosts=hosts,
    )


def to_place(placement: Placement) -> Place:
    return Place.of(placement, task=str(placement.task))


def _to_size(release: Release) -> ReleaseSize:
    return ReleaseSize(id=release.id, files=len(release.manifest), bytes=release.size)


def _to_data(intent: Intent) -> list[DataRelease]:
    return [
        DataRelease(
            **vars(_to_size(release)),
            place=place,
            jobs=list(intent.inventory.data[place].jobs),
            hosts=intent.readers(place),
        )
        for place, release in intent.data.items()
    ]


def _to_environments(intent: Intent) -> list[Environment]:
    specs = {spec.id: spec for spec in intent.environments.values()}
    return [
        Environment(
            id=spec.id,
            requirements=list(spec.packages),
            locked=bool(spec.locked),
            python=spec.python or None,
            setup=list(spec.setup),
            hosts=[host for host, each in intent.environments.items() if each.id == spec.id],
        )
        for spec in specs.values()
    ]


def _to_host_check(facts: HostFacts) -> HostCheck:
    versions = {module: found.version or None for module, found in facts.imports.items()}
    return HostCheck(
        python=facts.python_version,
        imports=versions,
        tensorflow=versions.get("tensorflow"),
        libraries=dict(facts.libraries),
        environment=facts.environment or None,
        gpus=list(facts.gpus.values()),
        gpus_seen=max((found.gpus for found in facts.imports.values()), default=0),
        rsync=facts.rsync or None,
        free_bytes=facts.free_bytes,
        ahead_s=round(facts.ahead_s, 3),
    )
