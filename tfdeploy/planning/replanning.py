"""Give the same hosts other numbers of ps and workers, as `--with ps=2,workers=8` asks; or plan
again without a lost host: a spare host takes its place, or other hosts take its tasks. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdeploy.config import AUTO_PORTS, PER_GPU, cluster
from tfdeploy.errors import PlanError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import format_count
from tfdeploy.planning.placing import count_tasks, gpus_per_task
from tfdeploy.planning.plan import select_hosts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.planning.plan import Plan


JOBS = {"ps": "ps", "workers": "worker"}  # a host's key in hosts.toml, and the job that it counts
NO_LIMIT = 1 << 30


def with_counts(
    inventory: Inventory, counts: Mapping[str, int], on: Collection[str] = ()
) -> Inventory:
    """Return the inventory with other numbers of tasks; `counts` maps "ps" and "workers" to them.

    The first tasks of a job stay on their hosts. Each further one goes to the host that runs the
    fewest of them and has a port and GPUs left: one of `on`, or else one that runs the job or has
    no task. Numbers follow the order of the hosts, so those of later hosts may change. Without `on`
    no spare host is used, and no host without GPUs for workers with GPUs. Raises PlanError if the
    tasks don't fit.
    """
    select_hosts([host.name for host in inventory.hosts], on)  # refuses unknown ones
    hosts = {
        host.name: without_tasks(host) if host.spare and host.name in on else host
        for host in inventory.hosts
    }
    running = {name for name, host in hosts.items() if any(_tasks(host).values())}
    current = {key: sum(_tasks(host)[job] for host in hosts.values()) for key, job in JOBS.items()}
    for key, count in counts.items():  # first fewer tasks, which makes room for more of another job
        hosts |= _place(hosts, key, min(count, current[key]), on)
    for key, count in counts.items():
        hosts |= _place(hosts, key, count, on)
    if counts and not any(_tasks(h)["worker"] + _tasks(h)["chief"] for h in hosts.values()):
        raise PlanError(
            "no chief and no worker is left: nothing would train", "choose at least workers=1"
        )
    # Tasks are numbered in the order of the hosts: those of a newly used host come last.
    in_order = sorted(hosts.values(), key=lambda host: host.name not in running)
    return inventory.copy_with({"hosts": tuple(in_order)})


def describe(counts: Mapping[str, int]) -> str:
    """Return the numbers of tasks as the command line has them: ps=2,workers=8."""
    return ",".join(f"{key}={count}" for key, count in counts.items())


def describe_counts(inventory: Inventory) -> str:
    """Return how many tasks train, such as "1 ps and 4 workers"."""
    total = sum((Counter(_tasks(host)) for host in inventory.hosts), Counter[str]())
    ps = [f"{total['ps']} ps"] if total["ps"] else []
    chief = ["1 chief"] if total["chief"] else []
    workers = [format_count(total["worker"], "worker")] if total["worker"] else []
    *others, last = [*ps, *chief, *workers]
    return f"{', '.join(others)} and {last}" if others else last


def _tasks(host: Host) -> dict[str, int]:
    """Return the number of tasks of each job that the host runs: none on a spare host."""
    return dict.fromkeys(cluster.JOBS, 0) if host.spare else count_tasks(host)


def without_tasks(host: Host) -> Host:
    """Return a host as one that may run tasks, and runs none yet."""
    none = {"ps": 0, "workers": 0, "chief": False, "evaluator": False, "spare": False}
    return host.copy_with(none)


def _place(hosts: Mapping[str, Host], key: str, count: int, on: Collection[str]) -> dict[str, Host]:
    """Return the hosts that run tasks of one job, with `count` of them in all."""
    job, chief_host = JOBS[key], _chief_host(hosts.values())
    current = [host.name for host in hosts.values() for _ in range(_tasks(host)[job])]
    placed = Counter(dict.fromkeys(current, 0))
    placed.update(current[:count])
    allowed = on or _hosts_that_may_run(hosts.values(), job)
    capacity = {
        name: _capacity(hosts[name], job, has_chief=name == chief_host)
        for name in hosts
        if name in allowed
    }
    while placed.total() < count:
        free = [name for name in capacity if placed[name] < capacity[name]]
        if not free:
            raise _no_capacity(key, placed.total(), list(capacity))
        placed[min(free, key=placed.__getitem__)] += 1  # the first of equal ones
    return {name: hosts[name].copy_with({key: number}) for name, number in placed.items()}


def _hosts_that_may_run(hosts: Collection[Host], job: str) -> list[str]:
    """Return the hosts that run the job, and those without any task and with GPUs if it needs
    some."""
    needs_gpus = any(_tasks(host)[job] and gpus_per_task(job, host) for host in hosts)
    idle = [h for h in hosts if not h.spare and not any(_tasks(h).values())]
    fitting = {h.name for h in idle if gpus_per_task(job, h) > 0 or not needs_gpus}
    return [host.name for host in hosts if _tasks(host)[job] or host.name in fitting]


def _chief_host(hosts: Iterable[Host]) -> str:
    """Return the host of the chief, or the first one with workers, whose worker:0 is the chief."""
    tasks = {host.name: _tasks(host) for host in hosts}
    jobs = ("chief", "worker")
    return next((name for job in jobs for name in tasks if tasks[name][job]), "")


def worker_capacity(host: Host) -> int:
    """Return how many workers the host has ports and GPUs for, even if one is the chief."""
    return _capacity(host, "worker", has_chief=True)


def _capacity(host: Host, job: str, *, has_chief: bool) -> int:
    """Return how many tasks of a job the host has ports and GPUs for. The run itself needs a port
    on the chief's host."""
    tasks = _tasks(host)
    others = sum(tasks[other] for other in ("ps", "worker", "chief") if other != job)
    ports = len(host.ports) - has_chief - others
    gpus = len(host.gpus) - tasks["chief"] * gpus_per_task("chief", host)
    per_task = gpus_per_task(job, host)
    port_limit = NO_LIMIT if host.ports == AUTO_PORTS else ports
    return min(port_limit, gpus // per_task if per_task else NO_LIMIT)


def _no_capacity(key: str, count: int, hosts: list[str]) -> PlanError:
    if not hosts:
        return PlanError(f"no host runs {key}", f"set {key} = 1 on a host")
    tasks = f"{count} ps" if key == "ps" else format_count(count, "worker")
    return PlanError(
        f"the ports and GPUs of {fold_names(hosts)} suffice for only {tasks}",
        f"choose fewer, or set {key} on more hosts",
    )


def remove_host(inventory: Inventory, lost: str) -> Inventory:
    """Return the inventory without host `lost`.

    The first spare host takes its tasks and its place in the order. Without a spare, the first
    other host takes its ps, chief and evaluator, and its workers are dropped. Raises PlanError if
    there is no such host, or no other one.
    """
    names = [host.name for host in inventory.hosts]
    if lost not in names:
        raise PlanError(
            f'there is no host "{lost}" in this run', f"its hosts are {fold_names(names)}"
        )
    lost_host = inventory.host(lost)
    spare = next((h for h in inventory.hosts if h.spare and h.name != lost), None)
    if lost_host.spare:
        hosts = _hosts_without(inventory, lost)
    elif spare:
        hosts = tuple(
            _replace_by_spare(lost_host, spare) if host.name == lost else host
            for host in inventory.hosts
            if host.name != spare.name
        )
    else:
        hosts = _move_tasks(lost_host, _hosts_without(inventory, lost))
    return limit_replicas(inventory.copy_with({"hosts": hosts}))


def limit_replicas(inventory: Inventory) -> Inventory:
    """Return the inventory with no more replicas than hosts that run tasks besides the chief's."""
    running = [h for h in inventory.hosts if not h.spare and any(count_tasks(h).values())]
    replicas = max(0, min(inventory.training.replicas, len(running) - 1))
    if replicas == inventory.training.replicas:
        return inventory
    training = inventory.training.copy_with({"replicas": replicas})
    return inventory.copy_with({"training": training})


def rotate_ports(inventory: Inventory, plan: Plan) -> Inventory:
    """Move the ports that `plan` used behind the other ports of each host.

    A host that only seemed lost may still run tasks: they connect to the old ports, and must not
    reach the new tasks.
    """
    hosts = tuple(_rotate_ports_of(host, plan) for host in inventory.hosts)
    return inventory.copy_with({"hosts": hosts})


def _hosts_without(inventory: Inventory, lost: str) -> tuple[Host, ...]:
    return tuple(host for host in inventory.hosts if host.name != lost)


def _replace_by_spare(lost_host: Host, spare: Host) -> Host:
    tasks = {key: getattr(lost_host, key) for key in ("ps", "workers", "chief", "evaluator")}
    return spare.copy_with({**tasks, "spare": False})


def _move_tasks(lost_host: Host, others: tuple[Host, ...]) -> tuple[Host, ...]:
    """Return the other hosts; the first takes the lost host's ps, chief and evaluator."""
    candidates = [host for host in others if not host.spare]
    if not candidates:
        raise PlanError(
            f"no host is left without {lost_host.name}",
            "add a host to hosts.toml and start a new run",
        )
    first = candidates[0]
    heir = first.copy_with(
        {
            "ps": first.ps + lost_host.ps,
            "chief": first.chief or lost_host.chief,
            "evaluator": first.evaluator or lost_host.evaluator,
        }
    )
    heir = heir.copy_with({"workers": _workers_with_gpus(heir)})
    return tuple(heir if host.name == first.name else host for host in others)


def _workers_with_gpus(host: Host) -> int:
    """Return the number of its workers, without those whose GPUs a chief has taken."""
    per_worker = gpus_per_task("worker", host)
    chief_gpus = host.chief * gpus_per_task("chief", host)
    if host.workers == PER_GPU or not per_worker:
        return host.workers
    return min(host.workers, max(0, len(host.gpus) - chief_gpus) // per_worker)


def _rotate_ports_of(host: Host, plan: Plan) -> Host:
    if host.ports == AUTO_PORTS:
        return host
    used = {p.port for p in plan.placements_on(host.name)} | {plan.heartbeat_port}
    free = tuple(port for port in host.ports if port not in used)
    reused = tuple(port for port in host.ports if port in used)
    return host.copy_with({"ports": (*free, *reused)})
