"""`tfdeploy check`: find what would make a start fail. Nothing is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.commands.preflight import keras_version, program
from tfdeploy.commands.preflight.host_facts import (
    HostFacts,
    ask_facts,
    gpus_of,
    launches_by_python,
)
from tfdeploy.commands.preflight.links import measure_links
from tfdeploy.commands.preflight.plan_warnings import (
    connection_notes,
    placeholder_notes,
    plan_warnings,
    unlisted_gpus,
)
from tfdeploy.commands.preflight.port_check import check_ports
from tfdeploy.errors import AgentError, HostError, TfdeployError
from tfdeploy.formatting.humanize import (
    format_count,
    format_duration,
    format_numbers,
    format_size,
)
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import answers_of, errors_of
from tfdeploy.planning.frameworks import TENSORFLOW, title
from tfdeploy.planning.links import faster_addresses, slow_links
from tfdeploy.planning.versions import differences
from tfdeploy.transfer.shared_directory import DirectoryClaims, errors_of_sharing, group_by_store
from tfdeploy.transport import rsync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdeploy.commands.intent import Intent
    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.links import Link
    from tfdeploy.shared.records import Launch

SEE_GPUS = (TENSORFLOW, "torch")  # that say how many GPUs they see without using one
MAX_CLOCK_OFFSET_S = 5.0
MIN_FREE_BYTES = 1 << 30  # for checkpoints and logs


@dataclass
class CheckResult:
    """What each host has, and what would make a start fail."""

    __repr__ = short_repr
    KEYS = ("by_host", "errors", "notes", "links")
    NAMES: ClassVar = {"by_host": "hosts"}

    hosts: tuple[HostFacts, ...] = ()
    errors: list[TfdeployError] = field(default_factory=list)
    """What would make a start fail."""
    notes: list[TfdeployError] = field(default_factory=list)
    """What may matter."""
    links: list[Link] = field(default_factory=list)
    """With `--network`, the measured links."""

    @property
    def by_host(self) -> Mapping[str, HostFacts]:
        """Each host that answered."""
        return {facts.host: facts for facts in self.hosts}


def check(fleet: Fleet, intent: Intent, hosts: Sequence[str] | None = None) -> CheckResult:
    """Ask every host, or each of `hosts`, what it has, and whether it reaches the hosts that its
    tasks depend on.

    Nothing is written to the hosts except the agent. Raises nothing.
    """
    launches: dict[str, list[Launch]] = {host: [] for host in fleet.agents}
    for placement, launch in zip(intent.plan.placements, intent.launches(), strict=True):
        launches[placement.host].append(launch)

    def ask(agent: Agent) -> HostFacts:
        return ask_facts(agent, intent, launches[agent.host])

    outcomes = fleet.outcomes(intent.hosts if hosts is None else hosts, ask)
    result = CheckResult(tuple(answers_of(outcomes).values()))
    result.errors += errors_of(outcomes)
    for facts in result.hosts:
        host = intent.inventory.host(facts.host)
        of_program = program.errors(intent, facts)
        _check_host(result, facts, host, launches[facts.host], of_program)
        for launch in launches[facts.host][:1]:
            errors, notes = keras_version.problem(intent, facts, launch.process.env)
            result.errors += errors
            result.notes += notes
    _check_directories(result, fleet)
    _check_versions(result, intent.inventory)
    result.notes += [*plan_warnings(intent), *placeholder_notes(intent)]
    result.notes += connection_notes(intent.inventory)
    result.notes += _controllers_rsync(intent.inventory)
    answered = [facts.host for facts in result.hosts]
    result.errors += check_ports(fleet, intent, answered)
    return result


def check_network(fleet: Fleet, intent: Intent, result: CheckResult) -> None:
    """Measure the links between the hosts that answered, and add them to the result, with notes
    about slow ones, and about addresses that are faster."""
    found, others = measure_links(fleet, intent, [facts.host for facts in result.hosts])
    result.links += found
    result.notes += [*slow_links(found), *faster_addresses(found, others)]


def _check_host(
    result: CheckResult,
    facts: HostFacts,
    host: Host,
    launches: Sequence[Launch],
    of_program: Iterable[HostError],
) -> None:
    """Add what is wrong with one host, and what it found wrong `of_program`.

    What a spare host lacks is only a note; so is what `python` lacks if it runs no task.
    """
    need, errors = gpus_of(launches, host), result.notes if host.spare else result.errors
    gpus = need.gpus
    of_python = [*_failed_imports(facts), *of_program, *_invisible_gpus(facts, gpus)]
    (errors if launches_by_python(launches, facts.python) else result.notes).extend(of_python)
    result.notes += _unbuilt_environment(facts)
    errors += [AgentError(facts.host, *problem) for problem in facts.problems]
    enough = need.count <= sum(gpu in facts.gpus for gpu in need.gpus)
    (result.notes if enough else errors).extend(_missing_gpus(facts, host, gpus))
    result.notes += _missing_gpus(facts, host, [gpu for gpu in host.gpus if gpu not in gpus])
    result.notes += [*_missing_rsync(facts, host), *_unlisted_gpus(facts, host)]
    result.notes += [*_wrong_clock(facts), *_full_disk(facts)]
    result.notes += [AgentError(facts.host, problem) for problem in facts.gpu_problems]


def _unbuilt_environment(facts: HostFacts) -> Iterator[HostError]:
    if facts.unbuilt:
        words = "its environment is not built yet, so the program's imports are not tried"
        yield AgentError(facts.host, words, "tfdeploy push builds it; then check again")


def _failed_imports(facts: HostFacts) -> Iterator[HostError]:
    failed = {title(module): found for module, found in facts.imports.items() if found.error}
    install = (
        "add it to requirements of [env], or set training.imports to what the program needs"
        if facts.environment
        else "add it to requirements of [env], from which tfdeploy push builds an environment; or "
        "set the host's python to one that has it, or training.imports to what the program needs"
    )
    for name, found in failed.items():
        if found.slow:
            yield AgentError(
                facts.host,
                f"{facts.python_name} is slow to import {name}: {found.error}",
                "check for a slow disk or a busy host; a task is READY only after the import: see "
                "training.ready_timeout_s",
            )
        else:
            words = f"{facts.python_name} can't import {name}: {found.error}"
            yield AgentError(facts.host, words, install)


def _invisible_gpus(facts: HostFacts, gpus: Sequence[int]) -> Iterator[HostError]:
    listed = [facts.gpus[gpu] for gpu in gpus if gpu in facts.gpus]
    # Of several MIG instances, CUDA shows one process only some.
    expected = 1 if any(" MIG " in name for name in listed) else len(listed)
    for framework in SEE_GPUS:
        found = facts.imports.get(framework)
        if found and not found.error and found.gpus < expected:
            words = f"{title(framework)} {found.version} sees {found.gpus} of its "
            hint = _how_to_see(facts, framework, is_amd=listed[0].startswith("AMD"))
            yield AgentError(facts.host, words + format_count(len(listed), "GPU"), hint)


def _how_to_see(facts: HostFacts, framework: str, *, is_amd: bool) -> str:
    """Return what to do for a framework that sees no GPU."""
    if is_amd:
        built = "tensorflow-rocm" if framework == TENSORFLOW else "built for ROCm"
        return f"check that it is {built}, and that the user may open /dev/kfd"
    built = "check that it is built for GPUs, and that its CUDA is not newer than the driver"
    if framework != TENSORFLOW:
        return built
    if facts.environment:
        return f"{built}; env.requirements: tensorflow[and-cuda] installs CUDA"
    return f"{built}; {facts.python} -m pip install 'tensorflow[and-cuda]' installs CUDA"


def _missing_gpus(facts: HostFacts, host: Host, gpus: Sequence[int]) -> Iterator[HostError]:
    missing = [gpu for gpu in gpus if gpu not in facts.gpus]
    if missing and facts.gpu_failure:
        yield AgentError(facts.host, *facts.gpu_failure)
    elif missing:
        listed = f"lists {'GPU' if len(missing) == 1 else 'GPUs'} {format_numbers(missing)}"
        hint = "correct the host's gpus: nvidia-smi -L lists them, or rocm-smi"
        if isinstance(host.gpus, range) and facts.gpus:
            listed, hint = (
                f"has gpus = {len(host.gpus)}",
                f"set the host's gpus = {len(facts.gpus)}",
            )
        found = format_count(len(facts.gpus), "GPU") if facts.gpus else "no GPU"
        yield AgentError(facts.host, f"hosts.toml {listed}, but it has {found}", hint)


def _missing_rsync(facts: HostFacts, host: Host) -> Iterator[HostError]:
    if not facts.rsync and host.uses_ssh:
        yield AgentError(
            facts.host,
            "rsync is not installed",
            "install it: files from 8 MiB on are sent by rsync",
        )


def _controllers_rsync(inventory: Inventory) -> Iterator[TfdeployError]:
    if not any(host.uses_ssh for host in inventory.hosts):
        return
    problem = rsync.find_problem()
    if problem:
        message, hint = problem
        yield TfdeployError(f"{message}, for files from 8 MiB on", hint)


def _unlisted_gpus(facts: HostFacts, host: Host) -> Iterator[HostError]:
    if facts.gpus and not host.gpus and host.workers:
        yield unlisted_gpus(facts.host, len(facts.gpus))


def _wrong_clock(facts: HostFacts) -> Iterator[HostError]:
    if abs(facts.ahead_s) > MAX_CLOCK_OFFSET_S:
        direction = "ahead of" if facts.ahead_s > 0 else "behind"
        offset = format_duration(abs(facts.ahead_s))
        yield AgentError(
            facts.host,
            f"its clock is {offset} {direction} the controller's",
            "tfdeploy compares no clocks, but the times in its logs and events are wrong",
        )


def _full_disk(facts: HostFacts) -> Iterator[HostError]:
    if facts.free_bytes < MIN_FREE_BYTES:
        yield AgentError(
            facts.host,
            f"only {format_size(facts.free_bytes)} are free on the disk of its directory",
            "tfdeploy prune deletes old runs; or set the host's directory to another disk",
        )


def _check_directories(result: CheckResult, fleet: Fleet) -> None:
    """Add an error for each host that shares its directory with another, against hosts.toml."""
    groups = group_by_store(fleet.inventory, (facts.host for facts in result.hosts))
    result.errors += errors_of_sharing(fleet, groups)
    with DirectoryClaims() as claims:
        for facts in (each for each in result.hosts if each.host in groups):
            try:
                claims.claim(fleet.agents[facts.host], facts.directory_id)
            except TfdeployError as error:
                result.errors.append(error)


def _check_versions(result: CheckResult, inventory: Inventory) -> None:
    """Compare the hosts of tasks as a start does; what a spare host has is only a note."""
    found = {facts.host: _versions(facts) for facts in result.hosts}
    spare = {host.name for host in inventory.hosts if host.spare}
    own = {host: versions for host, versions in found.items() if host not in spare}
    errors, notes = differences(own, inventory.training)
    result.errors += errors
    result.notes += notes if errors else chain(*differences(found, inventory.training))


def _versions(facts: HostFacts) -> dict[str, str]:
    imported = {name: each.version for name, each in facts.imports.items() if not each.error}
    return {"Python": facts.python_version, **imported, **facts.libraries}
