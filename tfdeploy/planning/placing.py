"""Turn an Inventory into a Plan: place every task on a host, with its port and its GPUs. Pure."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from tfdeploy.config import AUTO_PORTS, PER_GPU
from tfdeploy.config.cluster import JOBS, Task
from tfdeploy.errors import PlanError
from tfdeploy.formatting.humanize import format_count
from tfdeploy.planning.plan import PORT_PENDING, Placement, Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdeploy.config.inventory import Host, Inventory

CHIEF_HINT = "set chief = true on one host, or workers on any: worker:0 is then the chief"
PORTS_HINT = 'give it a wider range, such as ports = "2222-2299"'


def make_plan(inventory: Inventory, addresses: Mapping[str, str]) -> Plan:
    """Place every task; spare hosts get none. `addresses` has each host's address for its peers.

    Raises PlanError if no cluster results: no chief or two, fewer GPUs or ports than tasks need,
    one port of one machine twice, or an address that other machines can't connect to.
    """
    if len(inventory.hosts) > 1:
        _refuse_unreachable_addresses(inventory, addresses)
    counters = dict.fromkeys(JOBS, 0)
    placements: list[Placement] = []
    for host in inventory.hosts:
        if not host.spare:
            placements += _place_on_host(inventory, host, addresses[host.name], counters)
    _refuse_wrong_counts(counters)
    if len(placements) > 1:
        _refuse_shared_ports(placements)
    in_order = tuple(sorted(placements, key=lambda placement: placement.task))
    chief = Plan(in_order, PORT_PENDING).chief
    return Plan(in_order, _heartbeat_port(inventory.host(chief.host), chief.address, in_order))


def make_plan_from_addresses(inventory: Inventory) -> Plan:
    """Return the plan of an inventory whose hosts all have an `address`, as in a run's record."""
    return make_plan(inventory, {host.name: host.address or "" for host in inventory.hosts})


def _place_on_host(
    inventory: Inventory, host: Host, address: str, counters: dict[str, int]
) -> list[Placement]:
    """Return the placements on one host; count the tasks of each job in `counters`. Slots of
    trials have no port: nothing connects to them."""
    gpus, ports = list(host.gpus), list(host.ports)
    placements = []
    counts = count_tasks(host)
    if not inventory.trials.points:
        _refuse_few_ports(host, counts["ps"] + counts["worker"] + counts["chief"])
    needed = sum(count * gpus_per_task(job, host) for job, count in counts.items())
    is_choice = isinstance(host.gpus, range) and needed < len(host.gpus)
    for job, count in counts.items():
        for _ in range(count):
            task_gpus = [gpus.pop(0) for _ in range(gpus_per_task(job, host))]
            task = Task(job, counters[job])
            counters[job] += 1
            has_port = task.in_cluster and not inventory.trials.points
            port = (ports.pop(0) if ports else PORT_PENDING) if has_port else None
            choice = tuple(host.gpus) if is_choice and task_gpus else ()
            placements.append(Placement(task, host.name, address, port, tuple(task_gpus), choice))
    return placements


def _refuse_few_ports(host: Host, tasks: int) -> None:
    if host.ports != AUTO_PORTS and tasks > len(host.ports):
        raise PlanError(
            f"hosts.{host.name}.ports: {tasks} tasks need {tasks} ports; found {len(host.ports)}",
            PORTS_HINT,
        )


def _heartbeat_port(host: Host, address: str, placements: tuple[Placement, ...]) -> int:
    """Return the first port of the chief's host that no task at its address uses."""
    taken = {p.port for p in placements if p.address == address}
    free = [port for port in host.ports if port not in taken]
    if host.ports != AUTO_PORTS and not free:
        count = len(host.ports)
        raise PlanError(
            f"hosts.{host.name}.ports: {format_count(count, 'task')} and the heartbeat of the "
            f"chief's host need {count + 1} ports; found {count}",
            PORTS_HINT,
        )
    return free[0] if free else PORT_PENDING


def count_tasks(host: Host) -> dict[str, int]:
    """Return the number of tasks of each job on `host`, checked against its GPUs."""
    path, chief = f"hosts.{host.name}", int(host.chief)
    free = len(host.gpus) - chief * gpus_per_task("chief", host)
    if free < 0:
        needs = format_count(gpus_per_task("chief", host), "GPU")
        raise PlanError(
            f"{path}: the chief needs {needs}; found {_describe_gpus(host, 0)}",
            "lower gpus_per_chief",
        )
    workers = _workers_per_gpu(host, free) if host.workers == PER_GPU else host.workers
    per_worker = gpus_per_task("worker", host)
    if workers * per_worker > free:
        raise PlanError(
            f"{path}: {format_count(workers, 'worker')} with {format_count(per_worker, 'GPU')} "
            f"each need {format_count(workers * per_worker, 'GPU')}; "
            f"found {_describe_gpus(host, chief)}",
            "lower workers, or set gpus_per_worker = 0 for workers that may run without a GPU",
        )
    return {"ps": host.ps, "worker": workers, "chief": chief, "evaluator": int(host.evaluator)}


def gpus_per_task(job: str, host: Host) -> int:
    """Return the number of GPUs of one task: by default 1 for a worker and a chief on a host with
    GPUs; always 0 for a ps and an evaluator."""
    default = 1 if host.gpus else 0
    settings = {"worker": host.gpus_per_worker, "chief": host.gpus_per_chief}
    if job not in settings:
        return 0
    own = settings[job]
    return default if own is None else own


def _workers_per_gpu(host: Host, free: int) -> int:
    """Return the number of workers that "per-gpu" means, with `free` GPUs left for workers."""
    per_worker = gpus_per_task("worker", host)
    if not host.gpus or not per_worker:
        raise PlanError(
            f'hosts.{host.name}.workers: "per-gpu" needs GPUs; found gpus = {len(host.gpus)}'
            f" and gpus_per_worker = {per_worker}",
            "set gpus, for example gpus = 2, or set workers to a number",
        )
    if free < per_worker:
        raise PlanError(
            f'hosts.{host.name}.workers: "per-gpu" yields 0 workers because gpus_per_worker is '
            f"{per_worker}; found {_describe_gpus(host, int(host.chief))}",
            "lower gpus_per_worker",
        )
    return free // per_worker


def _describe_gpus(host: Host, chief: int) -> str:
    ids = ", ".join(str(gpu) for gpu in host.gpus)
    count = len(host.gpus)
    found = f"{format_count(count, 'GPU')} (id{'' if count == 1 else 's'} {ids})"
    found = found if host.gpus else "no GPU"
    return f"{found}, of which the chief takes {gpus_per_task('chief', host)}" if chief else found


def _refuse_wrong_counts(counters: Mapping[str, int]) -> None:
    """Refuse two chiefs, neither chief nor worker, and two evaluators."""
    if counters["chief"] > 1:
        raise PlanError(
            f"found {counters['chief']} hosts with chief = true; expected at most one", CHIEF_HINT
        )
    if counters["chief"] + counters["worker"] == 0:
        raise PlanError("found no chief and no worker: nothing would train", CHIEF_HINT)
    if counters["evaluator"] > 1:
        raise PlanError(
            f"found {counters['evaluator']} hosts with evaluator = true; expected at most one",
            "TensorFlow supports one evaluator: keep one of them",
        )


def _refuse_shared_ports(placements: list[Placement]) -> None:
    by_endpoint: dict[str, Placement] = {}
    for placement in placements:
        if placement.port in (None, PORT_PENDING):
            continue
        first = by_endpoint.setdefault(placement.endpoint, placement)
        if first is not placement:
            raise PlanError(
                f"{first.task} on {first.host} and {placement.task} on {placement.host} "
                f"would both listen on {placement.endpoint}",
                f"give hosts.{placement.host} its own address, or other ports",
            )


def _refuse_unreachable_addresses(inventory: Inventory, addresses: Mapping[str, str]) -> None:
    for host in inventory.hosts:
        if is_loopback(addresses[host.name]) and host.address is None:
            raise PlanError(
                f"hosts.{host.name}: its address is {addresses[host.name]}, "
                "with which every other host would connect to itself",
                f'set hosts.{host.name}.address = "…" to an address that the other hosts can reach',
            )


def refuse_loopback(hosts: Iterable[Host]) -> None:
    """Raise PlanError if a run is on the controller alone, where no other host can join it."""
    for host in hosts:
        if host.is_local and host.address and is_loopback(host.address):
            raise PlanError(
                f"hosts.{host.name}: its address in this run is {host.address}, with which every "
                "other host would connect to itself",
                f'set hosts.{host.name}.address = "…" and start a new run',
            )


def is_loopback(address: str) -> bool:
    """Return whether the address means on every machine that machine itself."""
    try:
        parsed = ipaddress.ip_address(address)
        return parsed.is_loopback or parsed.is_unspecified
    except ValueError:
        return address == "localhost"
