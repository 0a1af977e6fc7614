"""A Plan: on which host, port and GPUs each task runs; and which tasks the arguments of a command
name, as tfdeploy writes them: `worker:[0-3]`, `gpu-[01-04],gpu-07`. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from tfdeploy.config.cluster import JOBS, Task
from tfdeploy.errors import PlanError
from tfdeploy.formatting.hostlist import expand_list, fold_names
from tfdeploy.formatting.humanize import format_numbers
from tfdeploy.formatting.short_repr import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdeploy.config.cluster import ClusterSpec


PORT_PENDING = 0
"""The port of a task on a host with ports = "auto", until a start has chosen a free one."""
MAX_TARGETS = 16


@dataclass(frozen=True)
class Placement:
    """A task and where it runs."""

    task: Task
    """The task, such as `worker:1`."""
    host: str
    """The host's name in hosts.toml."""
    address: str
    """The address at which other tasks reach it."""
    port: int | None
    """Its port; 0 in a plan if the start chooses it."""
    gpus: tuple[int, ...]
    """The indices of its GPUs; without any, it sees none."""
    gpu_choice: tuple[int, ...] = ()
    """The GPUs from which its host chooses at the start."""

    @property
    def gpu_names(self) -> str:
        """Return for example `0,1`, or `one of 0-3` if its host chooses; "" without GPUs."""
        if not self.gpu_choice:
            return format_numbers(self.gpus)
        count = len(self.gpus)
        return f"{'one' if count == 1 else count} of {format_numbers(self.gpu_choice)}"

    def with_gpus(self, chosen: Sequence[int] | None) -> Placement:
        """Return it with the GPUs that its host reports, if it reports any."""
        return self if chosen is None else replace(self, gpus=tuple(chosen), gpu_choice=())

    @property
    def endpoint(self) -> str:
        """Return `host:port` as TensorFlow connects to it: an IPv6 address in brackets, and "auto"
        for a port that is not chosen yet."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{'auto' if self.port == PORT_PENDING else self.port}"


@dataclass(frozen=True)
class Plan:
    """All placements, in the order in which tasks start: ps, workers, chief, evaluator.

    The chief's supervisor serves the run's heartbeat on `heartbeat_port` of the chief's host.
    """

    __repr__ = short_repr

    placements: tuple[Placement, ...]
    heartbeat_port: int

    @cached_property
    def cluster(self) -> ClusterSpec:
        return {
            job: tuple(p.endpoint for p in self.placements if p.task.job == job)
            for job in JOBS
            if any(p.task.job == job and p.port is not None for p in self.placements)
        }

    @cached_property
    def chief(self) -> Placement:
        """Return the task that saves checkpoints and whose end is the run's end: the task of job
        chief, else worker 0 (TensorFlow's rule)."""
        jobs = {p.task.job for p in self.placements}
        task = Task("chief", 0) if "chief" in jobs else Task("worker", 0)
        return self.placement(task)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.host for p in self.placements))

    @cached_property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of all hosts with tasks, sorted."""
        return tuple(sorted({p.address for p in self.placements}))

    @cached_property
    def evaluators(self) -> tuple[Placement, ...]:
        return tuple(p for p in self.placements if p.task.job == "evaluator")

    @cached_property
    def _by_host(self) -> dict[str, tuple[Placement, ...]]:
        found: dict[str, list[Placement]] = {}
        for placement in self.placements:
            found.setdefault(placement.host, []).append(placement)
        return {host: tuple(placements) for host, placements in found.items()}

    @cached_property
    def essential(self) -> tuple[Placement, ...]:
        """Return the tasks without which training can't continue: the chief and every ps; without
        a ps, every worker to which others connect."""
        return tuple(p for p in self.placements if self._is_serving(p) or p == self.chief)

    @property
    def needed(self) -> list[str]:
        """Return the names of the tasks that the chief can't run without."""
        return [str(p.task) for p in self.essential if p != self.chief]

    def _is_serving(self, placement: Placement) -> bool:
        return placement.task.job in self._serving_jobs and placement.port is not None

    @property
    def _serving_jobs(self) -> tuple[str, ...]:
        """Return the jobs that others connect to: the ps; without a ps, the workers."""
        return ("ps",) if "ps" in self.cluster else ("worker", "chief")

    def placements_on(self, host: str) -> tuple[Placement, ...]:
        return self._by_host.get(host, ())

    def placement(self, task: Task) -> Placement:
        """Return where `task` runs. Raises PlanError, which lists the plan's tasks."""
        for placement in self.placements:
            if placement.task == task:
                return placement
        tasks = fold_names(str(p.task) for p in self.placements)
        raise PlanError(f"there is no task {task} in this run", f"its tasks are {tasks}")

    def reachability_targets(self, host: str) -> tuple[Placement, ...]:
        """Return the tasks to which `host` tries to connect, in a check of the network: those that
        its workers talk to, at most MAX_TARGETS. Hosts start at different ones, so that several
        try each task, and the number of tries grows only linearly with the hosts."""
        has_worker = any(p.task.job in ("worker", "chief") for p in self.placements_on(host))
        if not has_worker or not self._serving:
            return ()
        first = self._positions[host] % len(self._serving)
        in_turn = self._serving[first:] + self._serving[:first]
        targets = islice((p for p in in_turn if p.host != host), MAX_TARGETS)
        return tuple(sorted(targets, key=lambda placement: placement.task))

    @cached_property
    def _serving(self) -> tuple[Placement, ...]:
        return tuple(filter(self._is_serving, self.placements))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {host: position for position, host in enumerate(self.hosts)}


def select_placements(
    plan: Plan, names: Sequence[str] = (), on: Sequence[str] = ()
) -> tuple[Placement, ...]:
    """Return the placements of the named tasks on the hosts `on`, in the plan's order; without
    names those of all tasks, and without `on` those on all hosts.

    A name is a task (`worker:1`), a job (`worker`: all of its tasks), or several. Raises PlanError
    for a name that matches no task of the plan, a host without a task, or if nothing is left.
    """
    tasks = {task for name in names for task in _tasks(plan, name)}
    hosts = select_hosts(plan.hosts, on)
    selected = tuple(
        p for p in plan.placements if (not names or p.task in tasks) and p.host in hosts
    )
    if not selected and plan.placements:  # a plan of spare hosts has no task
        named = fold_names(map(str, sorted(tasks)))
        raise PlanError(f"{named} does not run on {fold_names(hosts)}", _tasks_hint(plan))
    return selected


def tasks_by_host(placements: Iterable[Placement]) -> dict[str, list[str]]:
    """Return the names of tasks by the host that runs them."""
    tasks: dict[str, list[str]] = {}
    for placement in placements:
        tasks.setdefault(placement.host, []).append(str(placement.task))
    return tasks


def select_placement(plan: Plan, name: str) -> Placement:
    """Return the placement of the only task that a name matches. Raises PlanError."""
    selected = select_placements(plan, [name])
    if len(selected) > 1:
        tasks = fold_names(str(placement.task) for placement in selected)
        raise PlanError(f"{name}: found {len(selected)} tasks; expected one", f"one of {tasks}")
    return selected[0]


def select_hosts(known: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the named hosts in the order of `known`; without names, all of them.

    Raises PlanError for a name that is not known.
    """
    hosts, named = tuple(known), tuple(names)
    if not named:
        return hosts
    wanted = [host for name in named for host in _expand(name)]
    for host in wanted:
        if host not in hosts:
            raise PlanError(f'there is no host "{host}"', f"the hosts are {fold_names(hosts)}")
    return tuple(host for host in hosts if host in wanted)


def _tasks(plan: Plan, name: str) -> list[Task]:
    return [task for each in _expand(name) for task in _tasks_of_name(plan, each)]


def _tasks_of_name(plan: Plan, name: str) -> list[Task]:
    if name in JOBS:
        return _tasks_of_job(plan, name)
    return [plan.placement(Task.parse(name)).task]


def _tasks_of_job(plan: Plan, job: str) -> list[Task]:
    tasks = [placement.task for placement in plan.placements if placement.task.job == job]
    if not tasks:
        raise PlanError(f"there is no {job} in this run", _tasks_hint(plan))
    return tasks


def _expand(text: str) -> list[str]:
    try:
        return expand_list(text)
    except ValueError as error:
        raise PlanError(f"{text}: {error}") from None


def _tasks_hint(plan: Plan) -> str:
    return f"its tasks are {fold_names(str(placement.task) for placement in plan.placements)}"
