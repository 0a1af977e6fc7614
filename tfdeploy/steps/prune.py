"""`tfdeploy prune`: old runs and releases leave the hosts; results at home are never touched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.releases import kind
from tfdeploy.errors import AgentError, TfdeployError
from tfdeploy.fleet import errors_of
from tfdeploy.steps.runs import is_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdeploy.agent.disk import HeldRelease, HeldRun
    from tfdeploy.fleet import Fleet
    from tfdeploy.remote import Agent
    from tfdeploy.steps.runs import Disk

TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Going:
    """What is to leave one host. `left_bytes` is what broken pushes and removals left there,
    `bytes` what becomes free of all that: releases share files, so `weighed` has to ask."""

    runs: tuple[HeldRun, ...]
    releases: tuple[HeldRelease, ...]
    left_bytes: int
    bytes: int = 0

    def named(self, project: str) -> dict[str, Any]:
        runs = [run.run for run in self.runs]
        releases = [release.release for release in self.releases]
        return {"project": project, "runs": runs, "releases": releases}


@dataclass(frozen=True)
class Pruned:
    """The bytes that became free on each host, and the errors: hosts that didn't answer, and what
    could not go."""

    freed: Mapping[str, int]
    errors: tuple[TfdeployError, ...]


def choose(disks: Mapping[str, Disk], keep_runs: int, keep_releases: int) -> dict[str, Going]:
    """What is to leave which host; hosts with nothing of the kind are left out. Pure.

    The newest `keep_runs` runs over all hosts stay, and every live one; so do the releases of all
    these, and of the source and of each data set the newest `keep_releases` that were pushed.
    """
    runs = [run for disk in disks.values() for run in disk.runs]
    ids = sorted({run.run for run in filter(is_run, runs)}, reverse=True)
    leaving = {*ids[keep_runs:]} - {run.run for run in runs if run.live}
    used = [{run.release, *run.data} for run in runs if run.run not in leaving]
    needed = set().union(_newest_releases(disks, keep_releases), *used)
    chosen = {
        host: Going(
            tuple(run for run in disk.runs if run.run in leaving),
            tuple(release for release in disk.releases if release.release not in needed),
            disk.left_bytes,
        )
        for host, disk in disks.items()
    }
    return {h: what for h, what in chosen.items() if what.runs or what.releases or what.left_bytes}


def weighed(fleet: Fleet, project: str, going: Mapping[str, Going]) -> dict[str, Going]:
    """The same, with what becomes free on each host. Raises the errors of all hosts."""

    def ask(agent: Agent) -> Going:
        what = going[agent.host]
        return replace(what, bytes=agent.ask("weigh", what.named(project), TIMEOUT_S)["bytes"])

    return fleet.each(going, ask)


def prune(fleet: Fleet, project: str, going: Mapping[str, Going]) -> Pruned:
    """Remove what was chosen. Each host looks once more: what is live or in use by now stays, and
    is among the errors. Raises nothing."""

    def ask(agent: Agent) -> dict[str, Any]:
        return agent.ask("remove", going[agent.host].named(project), TIMEOUT_S)

    outcomes = fleet.outcomes(going, ask)
    answers = {h: answer for h, answer in outcomes.items() if not isinstance(answer, TfdeployError)}
    stays = [
        AgentError(host, f"{each['name']} stays there: {each['why']}")
        for host, answer in answers.items()
        for each in answer["kept"]
    ]
    freed = {host: answer["removed_bytes"] for host, answer in answers.items()}
    return Pruned(freed, (*errors_of(outcomes), *stays))


def remove(fleet: Fleet, project: str, run: str, hosts: Iterable[str]) -> None:
    """One run that has ended. What can't go is left to `prune`; raises nothing."""
    named = {"project": project, "runs": [run], "releases": []}
    fleet.outcomes(hosts, lambda agent: agent.ask("remove", named, TIMEOUT_S))


def _newest_releases(disks: Mapping[str, Disk], keep: int) -> list[str]:
    """Of each kind. All hosts get a release in one push, or later; the last one counts."""
    ages: dict[str, float] = {}
    for disk in disks.values():
        for held in disk.releases:
            ages[held.release] = min(held.age_s, ages.get(held.release, held.age_s))
    newest: dict[str, list[str]] = {}
    for release in sorted(ages, key=lambda release: ages[release]):
        newest.setdefault(kind(release), []).append(release)
    return [release for releases in newest.values() for release in releases[:keep]]
