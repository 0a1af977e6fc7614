"""`tfdeploy runs`: list every run of a project on the hosts, and the disk space that they use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.errors import RunError
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import answers_of, errors_of
from tfdeploy.results.outputs import SavedElsewhere
from tfdeploy.results.stored_results import StoredResult, stored_results
from tfdeploy.run import FOLDER, ID, by_age, open_runs, run_ids, run_json
from tfdeploy.shared.outcome import RUNNING, RunResult, outcome_of
from tfdeploy.shared.protocol.runs import (
    DiskUse,
    HeldEnvironment,
    HeldRelease,
    HeldRun,
    MeasureDisk,
)
from tfdeploy.shared.records import ENDED
from tfdeploy.transfer.shared_directory import group_by_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.shared.outcome import Ended

DISK_TIMEOUT_S = 300.0  # the agent looks at each file of all runs and releases


@dataclass(frozen=True)
class HostDisk:
    """What one host stores of the project; what hosts share counts on the first."""

    KEYS = ("releases", "environments", "left_bytes", "used_bytes", "free_bytes", "total_bytes")

    runs: tuple[HeldRun, ...]
    releases: tuple[HeldRelease, ...]
    """The releases."""
    left_bytes: int
    """The remains of interrupted removals of runs."""
    free_bytes: int
    """What is free on the disk."""
    total_bytes: int
    """The size of the disk."""
    results: tuple[StoredResult, ...] = ()
    """The files that its runs have written."""
    environments: tuple[HeldEnvironment, ...] = ()
    """The environments of [env]."""
    store_left_bytes: int = 0
    """The remains of interrupted pushes, builds and other removals."""
    is_shared: bool = False
    """Whether it shares its store with hosts after it."""

    @property
    def releases_bytes(self) -> int:
        return sum(release.bytes for release in self.releases)

    @property
    def used_bytes(self) -> int:
        """Everything together, with all remains."""
        runs_bytes = sum(run.bytes for run in self.runs)
        left_bytes = self.left_bytes + self.store_left_bytes
        return runs_bytes + self.releases_bytes + self.environments_bytes + left_bytes

    @property
    def environments_bytes(self) -> int:
        return sum(environment.bytes for environment in self.environments)


@dataclass(frozen=True)
class RunSummary:
    """One run, on all hosts together."""

    id: str
    """The run's id."""
    result: RunResult
    """Whether it is running, or how it ended."""
    age_s: float
    """The seconds since its last start, resume or scale."""
    tasks: Mapping[str, str]
    """The state of each task."""
    hosts: tuple[str, ...]
    """The hosts that store something of it."""
    bytes: int
    """What they store."""
    recorded: bool
    """Whether its record is on the controller."""
    collected: bool
    """Whether a checkpoint of it is on the controller."""
    results: int = 0
    """The number of files that it has written."""
    results_collected: int = 0
    """How many of them are on the controller in every version."""
    elsewhere: tuple[SavedElsewhere, ...] = ()
    """What it wrote elsewhere and was not fetched."""
    release: str = ""
    """The id of its release."""
    name: str = ""
    """The name of --name, or ""."""
    words: tuple[str, ...] = ()
    """The words that the command line added."""


@dataclass(frozen=True)
class ProjectRuns:
    """The runs on the hosts, and what each host stores."""

    __repr__ = short_repr
    NAMES: ClassVar = {"disks": "hosts"}

    project: str
    """The project's name."""
    runs: tuple[RunSummary, ...]
    """The runs, newest first."""
    disks: Mapping[str, HostDisk]
    """Each host that answered."""
    errors: tuple[TfdeployError, ...]
    """The errors of the others."""


def runs(fleet: Fleet, inventory: Inventory) -> ProjectRuns:
    """Ask every host for its runs, including those that other controllers started. Raises
    nothing."""

    base, own = inventory.file.parent / FOLDER, open_runs(inventory.file.parent)

    def ask(agent: Agent) -> HostDisk:
        disk = _parse_disk(agent.ask(MeasureDisk(inventory.project), DISK_TIMEOUT_S))
        ids = [run.run for run in disk.runs if is_run(run)]
        return replace(disk, results=stored_results(agent, inventory.project, ids, own))

    outcomes = fleet.outcomes(fleet.agents, ask)
    disks = count_stores_once(inventory, answers_of(outcomes))
    summaries = summarize_runs(disks, base)
    return ProjectRuns(inventory.project, summaries, disks, tuple(errors_of(outcomes)))


def summarize_runs(disks: Mapping[str, HostDisk], base: Path) -> tuple[RunSummary, ...]:
    """Return one summary for each run, newest first. `base` is the folder runs/ on the
    controller."""
    parts: dict[str, dict[str, HeldRun]] = {}
    for host, disk in disks.items():
        for run in filter(is_run, disk.runs):
            parts.setdefault(run.run, {})[host] = run
    found = [result for disk in disks.values() for result in disk.results]
    recorded = set(run_ids(base))
    return tuple(
        _summarize(
            parts[run_id],
            base / run_id,
            [result for result in found if result.run == run_id],
            recorded=run_id in recorded,
        )
        for run_id in reversed(by_age(parts))
    )


def is_run(held: HeldRun) -> bool:
    return bool(ID.fullmatch(held.run))


def run_result(tasks: Mapping[str, Ended], chief: str, needed: Sequence[str] = ()) -> RunResult:
    """Return how a run ended by the states of its tasks, or that it is running."""
    if {task.state for task in tasks.values()} - set(ENDED):
        return RUNNING
    return outcome_of(chief, tasks, needed).result


def count_stores_once(inventory: Inventory, disks: Mapping[str, HostDisk]) -> dict[str, HostDisk]:
    """Return the disks, without what a host only shares with another one before it. Pure."""
    groups = group_by_store(inventory, disks)
    return {
        host: replace(disk, is_shared=len(groups[host]) > 1)
        if host in groups
        else replace(disk, releases=(), environments=(), store_left_bytes=0)
        for host, disk in disks.items()
    }


def _parse_disk(use: DiskUse) -> HostDisk:
    return HostDisk(
        runs=tuple(use.runs),
        releases=tuple(use.releases),
        left_bytes=use.left_bytes,
        store_left_bytes=use.store_left_bytes,
        free_bytes=use.free_bytes,
        total_bytes=use.total_bytes,
        environments=tuple(use.environments),
    )


def _summarize(
    parts: Mapping[str, HeldRun], folder: Path, results: Sequence[StoredResult], *, recorded: bool
) -> RunSummary:
    # A run that was resumed without a host, or with fewer tasks, left older ones there.
    newest_last = sorted(parts.values(), key=lambda run: -run.age_s)
    current = [run for run in newest_last if run.launch == newest_last[-1].launch]
    tasks = {task: state for run in current for task, state in run.tasks.items()}
    chief = newest_last[-1].chief
    in_folder = {(r.task, r.path) for r in results if not r.outside}
    only_on_hosts = {(r.task, r.path) for r in results if not (r.outside or r.collected)}
    outside = [result for result in results if result.outside and not result.collected]
    needed = sorted({task for run in current for task in run.needed})
    name, words = _read_labels(folder)
    return RunSummary(
        id=folder.name,
        result=run_result(tasks, chief, needed),
        age_s=newest_last[-1].age_s,
        tasks={task: state.state for task, state in tasks.items()},
        hosts=tuple(parts),
        bytes=sum(run.bytes for run in parts.values()),
        recorded=recorded,
        collected=(folder / "checkpoints" / "checkpoint").is_file(),
        results=len(in_folder),
        results_collected=len(in_folder - only_on_hosts),
        elsewhere=tuple(SavedElsewhere(r.task, r.host, r.path, exists=True) for r in outside),
        release=newest_last[-1].release,
        name=name,
        words=words,
    )


def _read_labels(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Return the name of a run and its words, if its record is on the controller."""
    try:
        record = run_json(folder)
    except (OSError, ValueError, RunError):
        return "", ()
    return record["name"], tuple(record["words"])
