"""Find what a plan probably does not intend: `plan`, `check` and `start` warn about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import HostError, TfdeployError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import format_count, shorten_names
from tfdeploy.planning import frameworks
from tfdeploy.shared.records import OPEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.commands.intent import Intent
    from tfdeploy.config.inventory import Host, Inventory, Training
    from tfdeploy.planning.plan import Plan
    from tfdeploy.release.snapshot import Release


def plan_warnings(intent: Intent) -> list[TfdeployError]:
    """Return the warnings about an intent, and which hosts were chosen because they are free."""
    inventory, plan = intent.inventory, intent.plan
    found = [TfdeployError(intent.placed)] if intent.placed else []
    if "ps" in plan.cluster and plan.chief.task.job != "chief":
        found += _missing_chief(intent)
    if len(plan.placements) > 1:
        found += _lonely_launchers(inventory.training, plan)
    if any(host.gpus for host in inventory.hosts):
        found += _unused_gpus(intent)
    if inventory.network == OPEN:
        found += _open_ports(plan)
    return found


def placeholder_notes(intent: Intent) -> list[TfdeployError]:
    """Return which files and folders of the releases are pushed without what belongs into them."""
    releases = {"source": intent.release}
    releases |= {f"data.{place}": release for place, release in intent.data.items()}
    return [note for key, release in releases.items() for note in _placeholders(key, release)]


def _placeholders(key: str, release: Release) -> Iterator[TfdeployError]:
    pointers, submodules = release.pointers, release.submodules
    if pointers:
        count = format_count(len(pointers), "pointer")
        yield TfdeployError(
            f"{key}: {count} of Git LFS in place of files: {shorten_names(pointers)}",
            "git lfs pull fetches the files",
        )
    if submodules:
        count = format_count(len(submodules), "empty submodule")
        yield TfdeployError(
            f"{key}: {count}: {shorten_names(submodules)}",
            "git submodule update --init --recursive fetches the files",
        )


def connection_notes(inventory: Inventory) -> list[HostError]:
    """Return which hosts OpenSSH connects to instead of Fabric, and why. A host whose settings ssh
    refuses is no note, but an error of the command that connects to it."""
    hosts = [host for host in inventory.hosts if host.uses_ssh]
    if not hosts:
        return []
    from concurrent.futures import ThreadPoolExecutor

    from tfdeploy.transport.openssh.choice import why_openssh

    def note(host: Host) -> HostError | None:
        try:
            reason = why_openssh(host, inventory)
        except HostError:
            return None
        return HostError(host.name, f"OpenSSH connects to it: {reason}") if reason else None

    with ThreadPoolExecutor() as pool:  # each may need a call of `ssh -G`
        return [found for found in pool.map(note, hosts) if found]


def unlisted_gpus(host: str, count: int) -> HostError:
    """Return the warning that a host has `count` GPUs and hosts.toml lists none."""
    return HostError(
        host,
        f"it has {format_count(count, 'GPU')}, but hosts.toml lists none: its tasks see no GPU",
        f"gpus = {count} gives them to its workers",
    )


def _missing_chief(intent: Intent) -> Iterator[TfdeployError]:
    """Warn if no task trains: a program with ParameterServerStrategy needs a chief."""
    from tfdeploy.init.strategy import uses_parameter_server_strategy  # few plans need it

    if uses_parameter_server_strategy(each.syntax for each in intent.modules.values()):
        yield TfdeployError(
            "no host has chief = true: with ParameterServerStrategy, workers and ps only serve, "
            "and no task trains",
            "chief = true on one host starts a chief",
        )


def _lonely_launchers(training: Training, plan: Plan) -> Iterator[TfdeployError]:
    """Warn if torchrun or accelerate does not get the addresses of the other workers."""
    words = [word for job in plan.cluster for word in training.command_and_args(job)[0]]
    is_configured = any("{chief_address}" in word or "config" in word for word in words)
    for name in () if is_configured else frameworks.launchers(training):
        yield TfdeployError(
            f"{name} does not know the other workers: each would train alone",
            f'role = "torch" and a command without {name}, such as "python train.py", start one '
            "process for each worker that knows the others",
        )


def _open_ports(plan: Plan) -> Iterator[TfdeployError]:
    endpoints = [placement.endpoint for placement in plan.placements if placement.port]
    if endpoints:
        yield TfdeployError(
            f'network = "open": anyone who reaches {shorten_names(endpoints)} can run programs '
            "there as the tasks' user",
            'network = "guarded", the default, admits only the hosts of the run',
        )


def _unused_gpus(intent: Intent) -> Iterator[HostError]:
    used: dict[str, set[int]] = {}
    for placement in intent.plan.placements:
        used.setdefault(placement.host, set()).update(placement.gpu_choice or placement.gpus)
    for host in intent.inventory.hosts:
        unused = [str(gpu) for gpu in host.gpus if gpu not in used.get(host.name, set())]
        if unused and not host.spare:
            yield HostError(
                host.name,
                f"no task uses its {'GPU' if len(unused) == 1 else 'GPUs'} {fold_names(unused)}",
                'workers = "per-gpu" starts a worker for each GPU; or remove them from its gpus',
            )
