"""The leases of the tasks that start on this host: on their ports, and on GPUs that are free; or
what they wait for in the queue."""

from __future__ import annotations

import time
from typing import Dict, List, Tuple

from ...shared.protocol.message import Done
from ...shared.protocol.record import replace
from ...shared.records import GpuNeed, Launch, gpu_need
from ..machine import gpus, leases, ports
from ..machine.devices import vendors
from ..refusal import Refusal
from . import places

HANDOVER_S = 5.0  # a start passes its leases to its supervisors within this time


def acquire(
    launches: List[Launch], host_gpus: Dict[int, str], sick: Dict[int, Refusal]
) -> Tuple[List[Launch], Dict[str, List[int]]]:
    """Acquire the leases of every task, or none. Return the launches with the GPUs that were chosen
    for them, which are not `sick`, and the descriptors of the leases by task.

    Looks at ports and GPUs after that, when no other run can take them any more. `host_gpus` has
    the name of each GPU's lease by its index. A task that leaves the queue has its heartbeat port.
    Raises Refusal.
    """
    need = gpu_need(launches)
    if not launches[0].turn.submitted:
        leased = [port for launch in launches for port in launch.leased_ports]
        need = _without_awaited(launches[0].run, leased, need, host_gpus)
    own = gpus.acquire(need, host_gpus, sick) if need.count else {}
    try:
        launches = _with_gpus(launches, [*own], host_gpus) if own else launches
        numbers = [(port, each.task) for each in launches for port in _ports(each)]
        by_port = _acquire_ports([port for port, _ in numbers], [task for _, task in numbers])
    except Refusal:
        leases.release([*own.values()])
        raise
    return launches, {
        each.task: [
            *(by_port[port] for port in _ports(each)),
            *(own[gpu] for gpu in each.gpus.indexes),
        ]
        for each in launches
    }


def require_unawaited(run: str, numbers: List[int], need: GpuNeed) -> Done:
    """Answer the request of the same name. Raises Refusal."""
    _without_awaited(run, numbers, need, vendors.resources() if need.count else {})
    return Done()


def _without_awaited(
    run: str, numbers: List[int], need: GpuNeed, host_gpus: Dict[int, str]
) -> GpuNeed:
    """Return the need of a run without GPUs that another one in the queue waits for, if enough are
    left. Raises Refusal if not, or if one waits for a port."""
    awaited = places.first_places(but_of=run)
    for name in map(leases.port, numbers):
        if name in awaited:
            raise places.awaited_refusal(awaited[name], leases.title(name))
    refused = {gpu: awaited[host_gpus[gpu]] for gpu in need.gpus if host_gpus.get(gpu) in awaited}
    if refused and len(need.gpus) - len(refused) < need.count:
        gpu, place = next(iter(refused.items()))
        raise places.awaited_refusal(place, "GPU {}".format(gpu))
    return replace(need, gpus=[gpu for gpu in need.gpus if gpu not in refused])


def enter_queue(
    launches: List[Launch], host_gpus: Dict[int, str]
) -> Tuple[List[Launch], Dict[str, List[int]]]:
    """Return the launches of a queued run with what they wait for, and the lease of the port that
    the chief's supervisor needs while it waits. Raises Refusal."""
    waiting = [
        replace(each, turn=replace(each.turn, waits_for=_needed(each, host_gpus)))
        for each in launches
    ]
    heartbeats = {each.task: each.heartbeat.port for each in launches if each.is_chief}
    held = _acquire_ports([*heartbeats.values()], [*heartbeats])
    return waiting, {
        each.task: [held[heartbeats[each.task]]] if each.is_chief else [] for each in launches
    }


def are_unleased(launch: Launch) -> bool:
    """Return whether nobody has leases of what a task waits for. This is much faster than to try
    to take them."""
    free = [name for name in gpus_of(launch).values() if not leases.is_held(name)]
    awaited = [leases.is_held(leases.port(port)) for port in launch.endpoint.own_ports]
    return len(free) >= len(launch.gpus.indexes) and not any(awaited)


def require_available(launch: Launch) -> None:
    """Raise Refusal if a task that waits can't take what it needs now, as far as it is known."""
    for port in launch.endpoint.own_ports:
        require_free(port, launch.task)
    for refusal in (
        gpus.refusals(gpu_need([launch]), gpus_of(launch)) if launch.gpus.indexes else []
    ):
        raise refusal


def require_unused(waiting: List[places.Place]) -> None:
    """Raise Refusal if a process without a lease uses a port or GPU that is waited for, or
    nvidia-smi does not list the GPUs."""
    names = {place.resource: place.task for place in waiting}
    for kind, _, name in (resource.partition("/") for resource in names):
        if kind == "port" and name.isdecimal() and int(name) < 1 << 16:  # a stranger may lie
            ports.require_free(int(name), names["port/" + name])
    found = vendors.resources() if any(name.startswith("gpu/") for name in names) else {}
    wanted = {gpu: name for gpu, name in found.items() if name in names}
    for refusal in gpus.foreign_use(wanted).values() if wanted else []:
        raise refusal


def require_free(port: int, task: str) -> None:
    """Raise Refusal if a run has the lease of a port, or a program uses it."""
    holder = leases.holder(leases.port(port))
    if holder is not None:
        raise leases.taken_refusal(leases.title(leases.port(port)), holder)
    ports.require_free(port, task)


def gpus_of(launch: Launch) -> Dict[int, str]:
    """Return the leases of GPUs that a task waits for, by the GPUs' indexes."""
    names = launch.turn.waits_for[len(launch.endpoint.own_ports) :]
    return dict(zip(launch.gpus.choice or launch.gpus.indexes, names))  # noqa: B905 - no strict in 3.8


def _needed(launch: Launch, host_gpus: Dict[int, str]) -> List[str]:
    """Return the names of all leases that a task takes some of, without that of a heartbeat."""
    own = [leases.port(port) for port in launch.endpoint.own_ports]
    return [*own, *(host_gpus[gpu] for gpu in launch.gpus.choice or launch.gpus.indexes)]


def _ports(launch: Launch) -> List[int]:
    return launch.endpoint.own_ports if launch.turn.submitted else launch.leased_ports


def _with_gpus(
    launches: List[Launch], chosen: List[int], host_gpus: Dict[int, str]
) -> List[Launch]:
    """Give each task its GPUs, of those to choose from as many as it has planned ones, and the
    variables that show them."""
    remaining, found = iter(chosen), []
    for launch in launches:
        own = (
            [next(remaining) for _ in launch.gpus.indexes]
            if launch.gpus.choice
            else launch.gpus.indexes
        )
        found.append(launch.on_gpus(own, vendors.variables(own, host_gpus)) if own else launch)
    return found


def _acquire_ports(numbers: List[int], tasks: List[str]) -> Dict[int, int]:
    """Acquire the leases of these ports, each for its task; return their descriptors by port."""
    descriptors = _acquire([leases.port(port) for port in numbers])
    try:
        for port, task in zip(numbers, tasks):  # noqa: B905 - Python 3.8 has no strict
            ports.require_free(port, task)
    except Refusal:
        leases.release(descriptors)
        raise
    return dict(zip(numbers, descriptors))  # noqa: B905 - as above


def _acquire(names: List[str]) -> List[int]:
    """Acquire the leases; wait a moment for another start that is about to pass them to its
    supervisors, because until then their run is unknown."""
    deadline = time.monotonic() + HANDOVER_S
    while True:
        try:
            return leases.acquire(names)
        except leases.ResourceTaken as taken:
            if taken.holder.run or time.monotonic() > deadline:
                title = leases.title(taken.resource)
                raise leases.taken_refusal(title, taken.holder) from None
        time.sleep(0.05)
