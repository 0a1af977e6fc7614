"""Who runs where, on which port and which GPUs: an Inventory becomes a Plan. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS, Task
from tfdeploy.errors import PlanError
from tfdeploy.fields import AUTO, PER_GPU

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.cluster import ClusterSpec
    from tfdeploy.inventory import Host, Inventory

LATER = 0
"""The port of a task whose host's ports are "auto", before a start has found free ones."""
WITNESSES = 16
ONE_CHIEF = "say chief = true on one host, or give a host workers: worker:0 is then the chief"


@dataclass(frozen=True)
class Placement:
    """One task on one host. `port` is None for an evaluator, LATER where it isn't known yet; no
    GPUs means that it sees none."""

    task: Task
    host: str
    address: str
    port: int | None
    gpus: tuple[int, ...]

    @property
    def endpoint(self) -> str:
        """`host:port` as TensorFlow dials it; an IPv6 address stands in brackets. A port that is
        found only when the run starts is "auto" until then."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{'auto' if self.port == LATER else self.port}"


@dataclass(frozen=True)
class Plan:
    """Every placement, in the order of starting: ps, workers, chief, evaluator.

    At `beacon_port` of the chief's host its supervisor tells the others how the run goes.
    """

    placements: tuple[Placement, ...]
    beacon_port: int

    @cached_property
    def cluster(self) -> ClusterSpec:
        return {
            job: tuple(p.endpoint for p in self.placements if p.task.job == job)
            for job in JOBS
            if any(p.task.job == job and p.task.in_cluster for p in self.placements)
        }

    @cached_property
    def chief(self) -> Placement:
        """The task that saves, and whose end is the run's: job chief, else worker 0 (TF's rule)."""
        jobs = {p.task.job for p in self.placements}
        task = Task("chief", 0) if "chief" in jobs else Task("worker", 0)
        return self.placement(task)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.host for p in self.placements))

    @cached_property
    def needed(self) -> tuple[Placement, ...]:
        """Whose loss the chief can't survive, and the chief: every ps; without ps, every worker."""
        return tuple(p for p in self.placements if p.task.job in self._dialled or p == self.chief)

    @property
    def _dialled(self) -> tuple[str, ...]:
        """Every other task talks to the ps; without ps, the workers talk to each other."""
        return ("ps",) if "ps" in self.cluster else ("worker", "chief")

    def on(self, host: str) -> tuple[Placement, ...]:
        return tuple(p for p in self.placements if p.host == host)

    def placement(self, task: Task) -> Placement:
        """Where `task` runs. Raises PlanError, listing the tasks there are."""
        for placement in self.placements:
            if placement.task == task:
                return placement
        known = ", ".join(str(p.task) for p in self.placements)
        raise PlanError(f"there is no task {task} in this run", f"its tasks are {known}")

    def dialled_from(self, host: str) -> tuple[Placement, ...]:
        """Whom `host` is to try: of those that its workers talk to, every ps or else every worker,
        WITNESSES at most. Other hosts try others, so each is tried by many, and with twice the
        hosts it takes twice the tries."""
        works_here = any(p.task.job in ("worker", "chief") for p in self.on(host))
        others = [p for p in self.placements if p.task.job in self._dialled and p.host != host]
        if not works_here or not others:
            return ()
        first = self.hosts.index(host) % len(others)
        tried = (others[first:] + others[:first])[:WITNESSES]
        return tuple(sorted(tried, key=lambda placement: placement.task))


def make(inventory: Inventory, addresses: Mapping[str, str]) -> Plan:
    """Place every task; spare hosts carry none. `addresses` has for each host what peers dial.

    Raises PlanError where the inventory can't become a cluster: no chief or two, fewer GPUs or
    ports than tasks, one port of one machine twice, an address that other machines can't dial.
    """
    _refuse_undiallable(inventory, addresses)
    counters = dict.fromkeys(JOBS, 0)
    placements: list[Placement] = []
    for host in inventory.hosts:
        if not host.spare:
            placements += _on_host(host, addresses[host.name], counters)
    _refuse_wrong_chiefs(counters)
    _refuse_shared_ports(placements)
    in_order = tuple(sorted(placements, key=lambda placement: placement.task))
    chief = Plan(in_order, LATER).chief
    return Plan(in_order, _beacon_port(inventory.host(chief.host), chief.address, in_order))


def remake(inventory: Inventory) -> Plan:
    """The plan of hosts that all say their address, as those of a run's record do."""
    return make(inventory, {host.name: host.address or "" for host in inventory.hosts})


def _on_host(host: Host, address: str, counters: dict[str, int]) -> list[Placement]:
    gpus, ports = list(host.gpus), list(host.ports)
    placements = []
    for job, count in _tasks(host).items():
        for _ in range(count):
            mine = [gpus.pop(0) for _ in range(gpus_of(job, host))]
            task = Task(job, counters[job])
            counters[job] += 1
            port = _next(ports) if task.in_cluster else None
            placements.append(Placement(task, host.name, address, port, tuple(mine)))
    return placements


def _next(ports: list[int]) -> int:
    return ports.pop(0) if ports else LATER


def _beacon_port(host: Host, address: str, placements: tuple[Placement, ...]) -> int:
    """The first port of the chief's host that no task at its address has."""
    taken = {p.port for p in placements if p.address == address}
    free = [port for port in host.ports if port not in taken]
    if host.ports != AUTO and not free:
        count = len(host.ports)
        raise PlanError(
            f"hosts.{host.name}.ports: {count} task{_s(count)} and the run itself, whose chief is "
            f"here, need a port each, found {count}",
            'give it a wider range, as ports = "2222-2299"',
        )
    return free[0] if free else LATER


def _tasks(host: Host) -> dict[str, int]:
    """How many tasks of each job `host` carries, checked against its GPUs and ports."""
    where, chief = f"hosts.{host.name}", int(host.chief)
    free = len(host.gpus) - chief * gpus_of("chief", host)
    if free < 0:
        needs = gpus_of("chief", host)
        raise PlanError(
            f"{where}: the chief needs {needs} GPU{_s(needs)}, found {_free(host, 0)}",
            "lower gpus_per_chief",
        )
    workers = _per_gpu(host, free) if host.workers == PER_GPU else host.workers
    needed = workers * gpus_of("worker", host)
    if needed > free:
        raise PlanError(
            f"{where}: {workers} worker{_s(workers)} with {gpus_of('worker', host)} GPU each "
            f"need {needed}, found {_free(host, chief)}",
            "lower workers, or set gpus_per_worker = 0 for workers that may run without a GPU",
        )
    ports = host.ps + workers + chief
    if host.ports != AUTO and ports > len(host.ports):
        raise PlanError(
            f"{where}.ports: {ports} tasks need a port each, found {len(host.ports)}",
            'give it a wider range, as ports = "2222-2299"',
        )
    return {"ps": host.ps, "worker": workers, "chief": chief, "evaluator": int(host.evaluator)}


def gpus_of(job: str, host: Host) -> int:
    """A ps and an evaluator get none; a worker and a chief one each where the host has any."""
    default = 1 if host.gpus else 0
    per_job = {"worker": host.gpus_per_worker, "chief": host.gpus_per_chief}
    if job not in per_job:
        return 0
    own = per_job[job]
    return default if own is None else own


def _per_gpu(host: Host, free: int) -> int:
    each = gpus_of("worker", host)
    if not host.gpus or not each:
        raise PlanError(
            f'hosts.{host.name}.workers: "per-gpu" needs GPUs, found gpus = {len(host.gpus)}'
            f" and gpus_per_worker = {each}",
            "say gpus = 2, or give workers as a number",
        )
    if free < each:
        raise PlanError(
            f'hosts.{host.name}.workers: "per-gpu" with gpus_per_worker = {each} comes to none, '
            f"found {_free(host, int(host.chief))}",
            "lower gpus_per_worker",
        )
    return free // each


def _free(host: Host, chief: int) -> str:
    ids = ", ".join(str(gpu) for gpu in host.gpus)
    count = len(host.gpus)
    found = f"{count} GPU{_s(count)} (id{_s(count)} {ids})" if host.gpus else "no GPU"
    return f"{found}, of which the chief takes {gpus_of('chief', host)}" if chief else found


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _refuse_wrong_chiefs(counters: Mapping[str, int]) -> None:
    if counters["chief"] > 1:
        raise PlanError(f"found {counters['chief']} hosts with chief = true", ONE_CHIEF)
    if counters["chief"] + counters["worker"] == 0:
        raise PlanError("found no chief and no worker: nothing would train", ONE_CHIEF)
    if counters["evaluator"] > 1:
        raise PlanError(
            f"found {counters['evaluator']} hosts with evaluator = true, expected at most one",
            "TensorFlow knows one evaluator",
        )


def _refuse_shared_ports(placements: list[Placement]) -> None:
    seen: dict[str, Placement] = {}
    for placement in placements:
        if placement.port in (None, LATER):
            continue
        first = seen.setdefault(placement.endpoint, placement)
        if first is not placement:
            raise PlanError(
                f"{first.task} on {first.host} and {placement.task} on {placement.host} "
                f"would both listen on {placement.endpoint}",
                f"give hosts.{placement.host} its own address, or other ports",
            )


def _refuse_undiallable(inventory: Inventory, addresses: Mapping[str, str]) -> None:
    for host in inventory.hosts if len(inventory.hosts) > 1 else ():
        if _is_own(addresses[host.name]) and host.address is None:
            raise PlanError(
                f"hosts.{host.name}: its peers would dial {addresses[host.name]}, "
                "which on every other machine is that machine itself",
                f'say hosts.{host.name}.address = "…", as the other hosts reach it',
            )


def _is_own(address: str) -> bool:
    """An address that on every machine means that machine itself."""
    try:
        parsed = ipaddress.ip_address(address)
        return parsed.is_loopback or parsed.is_unspecified
    except ValueError:
        return address == "localhost"
