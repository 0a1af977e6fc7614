"""The documents of commands about what hosts store: runs, prune."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfdeploy.output.json_output.problems import Problem, to_problems
from tfdeploy.output.json_output.results import SavedElsewhere
from tfdeploy.output.json_output.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.commands.prune import PruneResult, Removal
    from tfdeploy.commands.runs import HostDisk, ProjectRuns


@dataclass(frozen=True, kw_only=True)
class RunSummary(Shape):
    """One run, on all hosts together."""

    id: str
    """The run's id."""
    result: Literal["running", "succeeded", "failed", "lost", "stopped"]
    """Whether it is running, or how it ended."""
    age_s: float
    """The seconds since its last start, resume or scale."""
    tasks: dict[str, str]
    """The state of each task."""
    hosts: list[str]
    """The hosts that store something of it."""
    bytes: int
    """What they store."""
    recorded: bool
    """Whether its record is on the controller."""
    collected: bool
    """Whether a checkpoint of it is on the controller."""
    results: int
    """The number of files that it has written."""
    results_collected: int
    """The number of those whose newest version is on the controller."""
    elsewhere: list[SavedElsewhere]
    """What it has written outside of its folder, and `fetch` has not fetched."""
    release: str
    """The id of its release."""
    name: str
    """The name of --name; "" if it has none, or no record on the controller."""
    words: list[str]
    """The words that the command line added, if its record is on the controller."""


@dataclass(frozen=True, kw_only=True)
class StoredRelease(Shape):
    """A release on a host."""

    release: str
    """Its id."""
    age_s: float
    """The seconds since it was pushed."""
    bytes: int
    """Its size."""


@dataclass(frozen=True, kw_only=True)
class StoredEnvironment(Shape):
    """A Python environment on a host."""

    environment: str
    """Its id."""
    age_s: float
    """The seconds since it was built."""
    bytes: int
    """Its size."""


@dataclass(frozen=True, kw_only=True)
class DiskUse(Shape):
    """What one host stores of the project."""

    releases: list[StoredRelease]
    """The releases."""
    environments: list[StoredEnvironment]
    """The environments of [env]."""
    left_bytes: int
    """The remains of interrupted pushes and removals."""
    used_bytes: int
    """Everything together."""
    free_bytes: int
    """What is free on the disk."""
    total_bytes: int
    """The size of the disk."""


@dataclass(frozen=True, kw_only=True)
class RunsDocument(Shape):
    """The runs on the hosts, and what each host stores."""

    project: str
    """The project's name."""
    runs: list[RunSummary]
    """The runs, newest first."""
    hosts: dict[str, DiskUse]
    """Each host that answered."""
    errors: list[Problem]
    """The errors of the others."""


@dataclass(frozen=True, kw_only=True)
class HostPrune(Shape):
    """What is, or would be, deleted from one host."""

    runs: list[str]
    """The ids of the runs."""
    releases: list[str]
    """The ids of the releases."""
    environments: list[str]
    """The ids of the environments."""
    bytes: int
    """The space that becomes free."""
    freed_bytes: int | None
    """The space that became free; null with `--dry-run`, or if the host gave no answer."""


@dataclass(frozen=True, kw_only=True)
class PruneDocument(Shape):
    """What was deleted, or would be with `--dry-run`."""

    project: str
    """The project's name."""
    hosts: dict[str, HostPrune]
    """Each host with something to delete."""
    errors: list[Problem]
    """The errors of hosts, and what could not be deleted."""


def runs_document(runs: ProjectRuns) -> RunsDocument:
    return RunsDocument(
        project=runs.project,
        runs=[
            RunSummary.of(run, elsewhere=[SavedElsewhere.of(each) for each in run.elsewhere])
            for run in runs.runs
        ],
        hosts={host: _to_disk_use(disk) for host, disk in runs.disks.items()},
        errors=to_problems(runs.errors),
    )


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
    errors = to_problems([*runs.errors, *(pruned.errors if pruned else ())])
    return PruneDocument(project=runs.project, hosts=hosts, errors=errors)


def _to_disk_use(disk: HostDisk) -> DiskUse:
    return DiskUse.of(
        disk,
        releases=[StoredRelease.of(release) for release in disk.releases],
        environments=[StoredEnvironment.of(each) for each in disk.environments],
    )
