"""`tfdeploy runs`: every run that the hosts hold of a project, and the room that it takes there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.disk import HeldRelease, HeldRun
from tfdeploy.agent.records import ENDED, FAILED, LOST, SUCCEEDED
from tfdeploy.fleet import errors_of
from tfdeploy.run import FOLDER
from tfdeploy.told import record, sound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tfdeploy.errors import TfdeployError
    from tfdeploy.fleet import Fleet
    from tfdeploy.inventory import Inventory
    from tfdeploy.remote import Agent
    from tfdeploy.session import Answer

# As run.new_id makes them: whatever else lies among the runs is not ours to show or to remove.
ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Disk:
    """What one host holds of the project, and the disk that it lies on. `left_bytes` is what broken
    pushes and removals left."""

    runs: tuple[HeldRun, ...]
    releases: tuple[HeldRelease, ...]
    left_bytes: int
    free_bytes: int
    total_bytes: int

    @property
    def releases_bytes(self) -> int:
        return sum(release.bytes for release in self.releases)

    @property
    def used_bytes(self) -> int:
        return sum(run.bytes for run in self.runs) + self.releases_bytes + self.left_bytes


@dataclass(frozen=True)
class RunLine:
    """A run over all hosts. `result` is going, succeeded, failed, lost or stopped; `tasks` maps
    each task to its state; `age_s` is how long ago it was launched; `bytes` is what it takes on all
    hosts together. `recorded` and `collected`: whether its record and checkpoints are at home."""

    id: str
    result: str
    age_s: float
    tasks: Mapping[str, str]
    hosts: tuple[str, ...]
    bytes: int
    recorded: bool
    collected: bool


@dataclass(frozen=True)
class ProjectRuns:
    """The runs, newest first; what each host holds; the errors of the hosts that didn't say."""

    project: str
    lines: tuple[RunLine, ...]
    disks: Mapping[str, Disk]
    errors: tuple[TfdeployError, ...]


def runs(fleet: Fleet, inventory: Inventory) -> ProjectRuns:
    """Ask every host what it holds, whoever started it and from wherever. Raises nothing."""

    def ask(agent: Agent) -> Disk:
        answer = agent.ask("disk", {"project": inventory.project}, TIMEOUT_S)
        return sound(agent.host, lambda: _disk(agent.host, answer))

    outcomes = fleet.outcomes(fleet.agents, ask)
    disks = {host: disk for host, disk in outcomes.items() if isinstance(disk, Disk)}
    lines = merged(disks, inventory.file.parent / FOLDER)
    return ProjectRuns(inventory.project, lines, disks, tuple(errors_of(outcomes)))


def _disk(host: str, answer: Answer) -> Disk:
    held = tuple(record(host, HeldRun, run) for run in answer["runs"])
    releases = tuple(record(host, HeldRelease, release) for release in answer["releases"])
    room = {key: int(answer[key]) for key in ("left_bytes", "free_bytes", "total_bytes")}
    return Disk(held, releases, **room)


def merged(disks: Mapping[str, Disk], home: Path) -> tuple[RunLine, ...]:
    """One line a run, newest first; `home` is the folder of the records."""
    parts: dict[str, dict[str, HeldRun]] = {}
    for host, disk in disks.items():
        for run in filter(is_run, disk.runs):
            parts.setdefault(run.run, {})[host] = run
    return tuple(_line(parts[run_id], home / run_id) for run_id in sorted(parts, reverse=True))


def is_run(held: HeldRun) -> bool:
    return bool(ID.fullmatch(held.run))


def result(tasks: Mapping[str, str], chief: str) -> str:
    """What the states of a run's tasks come to: it succeeds as its chief does. Where the chief's
    state isn't known, whatever failed is told before what succeeded."""
    found = set(tasks.values())
    if found - set(ENDED):
        return "going"
    if tasks.get(chief) == SUCCEEDED:
        return "succeeded"
    words = (FAILED, LOST) if chief in tasks else (FAILED, LOST, SUCCEEDED)
    return next((word.lower() for word in words if word in found), "stopped")


def _line(parts: Mapping[str, HeldRun], home: Path) -> RunLine:
    # A run that was resumed without a host left older states of the same tasks there.
    youngest_last = sorted(parts.values(), key=lambda run: -run.age_s)
    tasks = {task: state for run in youngest_last for task, state in run.tasks.items()}
    return RunLine(
        id=home.name,
        result=result(tasks, youngest_last[-1].chief),
        age_s=youngest_last[-1].age_s,
        tasks=tasks,
        hosts=tuple(parts),
        bytes=sum(run.bytes for run in parts.values()),
        recorded=(home / "run.json").is_file(),
        collected=(home / "checkpoints" / "checkpoint").is_file(),
    )
