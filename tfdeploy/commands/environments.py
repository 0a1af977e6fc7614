"""Build the environment of each host, or require that it is built: a part of `push` and `start`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.environments import spec, wheelhouse
from tfdeploy.environments.packages import differences
from tfdeploy.errors import (
    AgentError,
    Cancelled,
    HostError,
    RunError,
    TfdeployError,
    individual_errors,
    raise_all,
)
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.hosts.fleet import errors_of
from tfdeploy.shared.protocol.environments import (
    BuildEnvironment,
    BuildStep,
    Built,
    EnvironmentState,
    FindEnvironment,
    NotInstalled,
)
from tfdeploy.transfer import shared_directory
from tfdeploy.transfer.send import send

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.environments.spec import EnvironmentSpec
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.byte_progress import Transfer
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.parallel import Cancellation
    from tfdeploy.planning.plan import Plan
    from tfdeploy.release.snapshot import Release
    from tfdeploy.run import Run

    Specs = Mapping[str, EnvironmentSpec]
    Outcomes = dict[str, Built | TfdeployError]

SILENCE_S = 600.0  # an agent that builds reports every second, except while it deletes a build


@dataclass(frozen=True)
class BuildResult:
    """The hosts whose environment was built now, and those that had it already."""

    built: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


class InstallationFailed(AgentError):
    """A host could not install the packages; `end` has the installer's words."""

    def __init__(self, host: str, end: NotInstalled, words: str = "") -> None:
        message = f"can't install its environment: {words or end.words}"
        super().__init__(host, message, "correct env.requirements")
        self.end = end


def build_environments(fleet: Fleet, specs: Specs) -> BuildResult:
    """Build the environment of each host that lacks it, on all hosts at the same time; `specs` are
    the environments by host.

    A host that can't install from an index gets all wheels from the controller. Of hosts that share
    a file system, one builds what they have in common, and all of them try it. Raises the errors of
    all hosts, also if they have different versions of a package afterwards.
    """
    ids = {host: spec.id for host, spec in specs.items()}
    groups = _groups(fleet, ids)
    shared_directory.refuse_unshared(fleet, groups)
    states = _find(fleet, {host: ids[host] for host in groups})
    lacking = {host: specs[host] for host in groups if not states[host].built}
    uv = _send_uv(fleet, {host: states[host] for host in lacking})
    outcomes = _build_all(fleet, lacking, uv)
    failed = {host: o for host, o in outcomes.items() if isinstance(o, InstallationFailed)}
    outcomes |= _build_from_wheels(fleet, specs, uv, failed)
    raise_all(errors_of(outcomes))
    built = {host: end for host, end in outcomes.items() if isinstance(end, Built)}
    ends: dict[str, Built | EnvironmentState] = {**states, **built}
    shared_directory.verify_environments(fleet, fleet.inventory.project, groups, ids)
    raise_all([*differences({host: end.packages for host, end in ends.items()})])
    fresh = tuple(host for host, end in built.items() if end.fresh)
    return BuildResult(fresh, tuple(host for host in specs if host not in fresh))


def restore_environments(fleet: Fleet, run: Run) -> Mapping[str, str]:
    """Build a run's environments on the hosts of its plan that lack them, or are new in it; return
    the ids of all, by host.

    Raises RunError if that is necessary and the requirements have changed since its start.
    """
    recorded = {host: id_ for host, id_ in run.environments.items() if host in run.plan.hosts}
    states = _find(fleet, recorded)
    new = [host for host in run.plan.hosts if host not in recorded]
    lacking = [host for host in recorded if not states[host].built] + (new if recorded else [])
    if not lacking:
        return run.environments
    current = spec.for_hosts(run.inventory)
    if any(current[host].id != id_ for host, id_ in recorded.items()):
        raise RunError(
            f"the run's environment is not on {fold_names(lacking)}, and env.requirements has "
            "changed since the start",
            "restore the requirements as they were at the start, or start a new run",
        )
    build_environments(fleet, {host: current[host] for host in run.plan.hosts})
    return {**run.environments, **{host: current[host].id for host in run.plan.hosts}}


def require_environments(fleet: Fleet, plan: Plan, environments: Mapping[str, str]) -> None:
    """Raise the errors of all hosts of a plan that lack their environment, or have another version
    of a package than most; `environments` are ids, by host."""
    states = _find(fleet, {host: environments[host] for host in plan.hosts if environments})
    hint = "build it with tfdeploy push"
    raise_all(
        [
            AgentError(host, "its environment ([env] in hosts.toml) is not built", hint)
            for host, state in states.items()
            if not state.built
        ]
    )
    raise_all([*differences({host: state.packages for host, state in states.items()})])


def _groups(fleet: Fleet, environments: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the hosts that build, each with the others that use what it builds."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(environments.values()):
        hosts = [host for host, id_ in environments.items() if id_ == name]
        groups |= shared_directory.group_by_store(fleet.inventory, hosts)
    return groups


def _find(fleet: Fleet, environments: Mapping[str, str]) -> dict[str, EnvironmentState]:
    project = fleet.inventory.project

    def ask(agent: Agent) -> EnvironmentState:
        return agent.ask(FindEnvironment(project, environments[agent.host]))

    return fleet.each(environments, ask)


def _send_uv(fleet: Fleet, states: Mapping[str, EnvironmentState]) -> dict[str, str]:
    """Send uv to the hosts that have none; return the release's id by host. Raises the errors of
    the hosts for which the controller has none."""
    platforms: dict[tuple[str, str], list[str]] = {}
    for host, state in states.items():
        if not state.uv:
            platforms.setdefault((state.machine, state.libc), []).append(host)
    sent: dict[str, str] = {}
    errors: list[TfdeployError] = []
    for platform, hosts in platforms.items():
        try:
            release = _send_uv_of(fleet, platform, hosts)
        except wheelhouse.NoWheels as reason:
            words = f"it has no uv, and the controller can't send it: {reason}"
            errors += [AgentError(host, words, "install uv on the host") for host in hosts]
        else:
            sent |= dict.fromkeys(hosts, release.id)
    raise_all(errors)
    return sent


def _send_uv_of(fleet: Fleet, platform: tuple[str, str], hosts: list[str]) -> Release:
    """Send a uv that runs on hosts of this machine and libc. Raises NoWheels, and what `send`
    raises."""
    with tempfile.TemporaryDirectory(prefix="tfdeploy-uv-") as folder:
        with fleet.transfers.begin("controller", note=f"uv for {fold_names(hosts)}"):
            release = wheelhouse.uv_release(*platform, Path(folder))
        send(fleet, fleet.inventory.project, release, hosts, what="uv")
        return release


def _build_all(fleet: Fleet, specs: Specs, uv: Mapping[str, str], wheels: str = "") -> Outcomes:
    """Build on all hosts of `specs`; `uv` and `wheels` are releases that were sent."""
    project = fleet.inventory.project

    def act(agent: Agent) -> Built:
        spec = specs[agent.host]
        env, own_uv = fleet.inventory.host(agent.host).env, uv.get(agent.host, "")
        request = BuildEnvironment(
            project, spec.id, [*spec.lines], [*spec.constraints], {**spec.locked},
            spec.python, [*spec.setup], env, own_uv, wheels,
        )  # fmt: skip
        with fleet.transfers.begin(agent.host, note="environment") as progress:
            return _follow(agent, request, progress, fleet.cancellation)

    return fleet.outcomes(specs, act)


def _follow(
    agent: Agent, request: BuildEnvironment, progress: Transfer, cancellation: Cancellation
) -> Built:
    """Show the steps of a build until it ends. Raises InstallationFailed and Cancelled."""
    end: object = None
    for report in agent.stream(request, SILENCE_S):
        cancellation.check()
        end = report
        if isinstance(report, BuildStep):
            progress.file = f"environment: {report.doing}"
    if isinstance(end, NotInstalled):
        raise InstallationFailed(agent.host, end)
    if not isinstance(end, Built):
        raise AgentError(agent.host, "invalid answer: the build has no end")
    return end


def _build_from_wheels(
    fleet: Fleet, specs: Specs, uv: Mapping[str, str], failed: Mapping[str, InstallationFailed]
) -> Outcomes:
    """Download the wheels for the hosts that could not install from an index, send them, and build
    again. A host whose wheels can't be downloaded keeps its error, with the controller's words."""
    groups: dict[tuple[str, wheelhouse.WheelTarget], list[str]] = {}
    for host, error in failed.items():
        groups.setdefault((specs[host].id, _target(error.end)), []).append(host)
    outcomes: Outcomes = {}
    for (_, target), hosts in groups.items():
        try:
            release = _send_wheels(fleet, specs[hosts[0]], target, hosts)
        except wheelhouse.NoWheels as reason:
            outcomes |= {host: _without_wheels(failed[host], str(reason)) for host in hosts}
        except Cancelled:
            raise
        except TfdeployError as error:
            outcomes |= {e.host: e for e in individual_errors(error) if isinstance(e, HostError)}
        else:
            of_group = {host: specs[host] for host in hosts}
            outcomes |= _build_all(fleet, of_group, uv, release.id)
    return outcomes


def _target(end: NotInstalled) -> wheelhouse.WheelTarget:
    return wheelhouse.WheelTarget(".".join(end.python.split(".")[:2]), end.machine, end.libc)


def _send_wheels(
    fleet: Fleet, spec: EnvironmentSpec, target: wheelhouse.WheelTarget, hosts: list[str]
) -> Release:
    """Raises NoWheels, and what `send` raises."""
    with tempfile.TemporaryDirectory(prefix="tfdeploy-wheels-") as folder:
        note = f"downloading wheels for {fold_names(hosts)}"
        with fleet.transfers.begin("controller", note=note) as transfer:

            def show(step: str) -> None:
                transfer.file = f"{note}: {step}"

            release = wheelhouse.download(spec, target, Path(folder), show)
        send(fleet, fleet.inventory.project, release, hosts, what="wheels")
        return release


def _without_wheels(error: InstallationFailed, reason: str) -> InstallationFailed:
    own = error.end.words
    words = own if own == reason else f"{own}; the controller can't send wheels either: {reason}"
    return InstallationFailed(error.host, error.end, words)
