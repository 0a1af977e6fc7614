"""`tfdeploy prune`: delete old runs, releases and environments, never results on the
controller."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.commands.changing import user_at_controller
from tfdeploy.commands.runs import is_run
from tfdeploy.config.hosts_file import hosts_flag
from tfdeploy.environments.wheelhouse import is_wheels
from tfdeploy.errors import AgentError, RunError, TfdeployError
from tfdeploy.formatting.humanize import escape_line, format_count, format_size
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import answers_of, errors_of
from tfdeploy.run import by_age
from tfdeploy.shared.protocol.releases import data_set_name
from tfdeploy.shared.protocol.runs import Remove, Removed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.commands.runs import HostDisk
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.results.stored_results import StoredResult
    from tfdeploy.shared.protocol.runs import HeldEnvironment, HeldRelease, HeldRun

REMOVE_TIMEOUT_S = 600.0  # environments have hundreds of thousands of files
BUILD_S = 3600.0  # what was pushed or built less than this ago may be needed by a start
MAX_LISTED = 10  # results of a folder that are named one by one


@dataclass(frozen=True)
class Removal:
    """What to delete from one host.

    `left_bytes` are the remains of interrupted pushes and removals.
    """

    runs: tuple[HeldRun, ...]
    releases: tuple[HeldRelease, ...]
    left_bytes: int
    environments: tuple[HeldEnvironment, ...] = ()

    @property
    def bytes(self) -> int:
        """The disk space of all of it. A file that something else shares counts in part."""
        of_releases = sum(each.bytes for each in self.releases)
        of_environments = sum(each.bytes for each in self.environments)
        return (
            sum(each.bytes for each in self.runs) + of_releases + of_environments + self.left_bytes
        )


@dataclass(frozen=True)
class PruneResult:
    """The bytes that were freed on each host, and the errors: hosts that did not answer, and runs,
    releases and environments that could not be deleted."""

    __repr__ = short_repr

    freed: Mapping[str, int]
    errors: tuple[TfdeployError, ...]


def choose_removals(
    disks: Mapping[str, HostDisk],
    keep_runs: int,
    keep_releases: int,
    unanswered: Collection[TfdeployError] = (),
) -> dict[str, Removal]:
    """Return what to delete from which host; hosts with nothing to delete are left out. Pure.

    The newest `keep_runs` runs stay on all hosts, and every live run; all of them if a host has not
    answered (`unanswered` are the errors), because any run may be live there. So do the releases
    of these runs, and the newest `keep_releases` releases of the source and of each data set. Of
    the environments, those of these runs stay, and the newest on each host; with them the wheels
    of which they were built.
    """
    runs = [run for disk in disks.values() for run in disk.runs]
    ids = by_age({run.run for run in filter(is_run, runs)})[::-1]
    live = {run.run for run in runs if run.live}
    old_ids = set() if unanswered else {*ids[keep_runs:]} - live
    used = [{run.release, *run.data} for run in runs if run.run not in old_ids]
    in_use = {name for run in runs if run.run not in old_ids for name in run.environments}
    unused = {host: _unused_environments(disk, in_use) for host, disk in disks.items()}
    newest, wheels = _newest_releases(disks, keep_releases), _needed_wheels(disks, unused)
    needed = set().union(newest, wheels, *used)
    removals = {
        host: Removal(
            tuple(run for run in disk.runs if run.run in old_ids),
            tuple(release for release in disk.releases if release.release not in needed),
            disk.left_bytes + disk.store_left_bytes,
            unused[host],
        )
        for host, disk in disks.items()
    }
    return {
        h: r for h, r in removals.items() if r.runs or r.releases or r.environments or r.left_bytes
    }


def _unused_environments(disk: HostDisk, in_use: Collection[str]) -> tuple[HeldEnvironment, ...]:
    """Return the environments that are not `in_use` on any host, except the newest, which the next
    run may use. Where hosts share a store, so may those that other hosts have just built."""
    by_age = sorted(disk.environments, key=lambda each: each.age_s)
    min_age_s = BUILD_S if disk.is_shared else 0.0
    old = (each for each in by_age[1:] if each.age_s >= min_age_s)
    return tuple(each for each in old if each.environment not in in_use)


def _needed_wheels(
    disks: Mapping[str, HostDisk], unused: Mapping[str, Collection[HeldEnvironment]]
) -> set[str]:
    """Return the wheels of environments that stay, and those for which one may be being built."""
    found = {r.release for d in disks.values() for r in d.releases
             if is_wheels(r.release) and r.age_s < BUILD_S}  # fmt: skip
    others = (e for h, d in disks.items() for e in d.environments if e not in unused[h])
    return found | {environment.wheels for environment in others}


def results_only_on_hosts(
    disks: Mapping[str, HostDisk], removals: Mapping[str, Removal]
) -> list[StoredResult]:
    """Return the results that would be deleted and are not on the controller as they are there, the
    largest of each run first. Pure."""
    removed = {(host, run.run) for host, removal in removals.items() for run in removal.runs}
    found = [result for host in removals for result in disks[host].results]
    found = [result for result in found if not (result.collected or result.outside)]
    lost = (result for result in found if (result.host, result.run) in removed)
    return sorted(lost, key=lambda result: (result.run, -result.size, result.path))


def data_loss(results: Sequence[StoredResult], file: Path) -> RunError | None:
    """Return the error that names the results that only hosts have, if there are any.

    None is left out, because a person agrees to what is named: of a folder with many results, the
    rest is named as that folder. `file` is the hosts file.
    """
    if not results:
        return None
    by_folder: dict[tuple[str, str, str, str], list[StoredResult]] = {}
    listed = []
    for r in results:
        folder = posixpath.join(posixpath.dirname(r.path), "")
        others = by_folder.setdefault((r.run, r.task, r.host, folder), [])
        others.append(r)
        if len(others) <= MAX_LISTED:
            what = escape_line(r.note) or format_size(r.size)
            listed.append(f"  run {r.run}: {escape_line(r.path)} of {r.task} on {r.host} ({what})")
    listed += [_rest_line(*key, found[MAX_LISTED:]) for key, found in by_folder.items()
               if len(found) > MAX_LISTED]  # fmt: skip
    count = format_count(len(results), "result")
    verb = "is" if len(results) == 1 else "are"
    found = f"prune would delete {count} that {verb} not on the controller:"
    collect = f"tfdeploy collect {hosts_flag(file)}".rstrip()
    return RunError(
        "\n".join([found, *listed]),
        f"{collect} --run {results[0].run} fetches what hosts.toml selects, tfdeploy fetch any "
        "other file; the same prune with --yes deletes them",
    )


def _rest_line(run: str, task: str, host: str, folder: str, results: Sequence[StoredResult]) -> str:
    """Return the line about the results of a folder that are not named one by one."""
    more = format_count(len(results), "more result")
    size = format_size(sum(result.size for result in results))
    return f"  run {run}: {more} in {escape_line(folder) or './'} of {task} on {host} ({size})"


def prune(fleet: Fleet, project: str, removals: Mapping[str, Removal]) -> PruneResult:
    """Delete what was chosen. Raises nothing.

    Each host checks again: what is live, in use or started again by now stays, and is among the
    errors.
    """

    def ask(agent: Agent) -> Removed:
        removal = removals[agent.host]
        request = Remove(
            project,
            runs=[run.run for run in removal.runs],
            releases=[release.release for release in removal.releases],
            environments=[each.environment for each in removal.environments],
            by=_who("prune"),
            launches={run.run: run.launch for run in removal.runs},
        )
        return agent.ask(request, REMOVE_TIMEOUT_S)

    if any(removal.runs for removal in removals.values()):
        os.sync()  # results that were just collected may be in this machine's memory only
    # A host removes the releases of a store only after the others have removed the runs that use
    # them.
    first = [host for host, each in removals.items() if not each.releases and not each.environments]
    outcomes = fleet.outcomes(first, ask)
    outcomes |= fleet.outcomes([host for host in removals if host not in first], ask)
    answers = answers_of(outcomes)
    not_deleted = [
        AgentError(host, f"{entry.name} was not deleted: {entry.why}")
        for host, answer in answers.items()
        for entry in answer.kept
    ]
    freed = {host: answer.removed_bytes for host, answer in answers.items()}
    return PruneResult(freed, (*errors_of(outcomes), *not_deleted))


def remove_run(fleet: Fleet, project: str, run: str, hosts: Iterable[str], command: str) -> None:
    """Delete one run that has ended, for the command of this name. Raises nothing: a later `prune`
    deletes what stayed."""
    os.sync()  # as in `prune`
    request = Remove(project, [run], [], [], by=_who(command))
    fleet.outcomes(hosts, lambda agent: agent.ask(request, REMOVE_TIMEOUT_S))


def _who(command: str) -> str:
    """Return who deletes, for those who ask for it later."""
    return f"tfdeploy {command} of {user_at_controller()}"


def _newest_releases(disks: Mapping[str, HostDisk], keep: int) -> list[str]:
    """Return the newest `keep` releases of each kind but wheels, by their last push to any host."""
    ages: dict[str, float] = {}
    for disk in disks.values():
        for held in (each for each in disk.releases if not is_wheels(each.release)):
            ages[held.release] = min(held.age_s, ages.get(held.release, held.age_s))
    newest: dict[str, list[str]] = {}
    for release in sorted(ages, key=lambda release: ages[release]):
        newest.setdefault(data_set_name(release), []).append(release)
    return [release for releases in newest.values() for release in releases[:keep]]
