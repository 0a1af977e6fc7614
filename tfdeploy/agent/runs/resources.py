"""The leases of the tasks that start on this host: on their ports, and on GPUs that are free."""

from __future__ import annotations

import time

from ...shared import TYPE_CHECKING
from ...shared.records import gpu_need
from ..machine import gpus, leases, ports
from ..refusal import Refusal

if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ...shared.records import Launch

LEASE_WAIT_S = 5.0


def acquire(
    launches: List[Launch], host_gpus: Dict[int, str]
) -> Tuple[List[Launch], Dict[str, List[int]]]:
    """Acquire the leases of every task, or none. Return the launches with the GPUs that were chosen
    for them, and the descriptors of the leases by task.

    Looks at ports and GPUs after that, when no other run can take them any more. `host_gpus` has
    the name of each GPU's lease by its index. Raises Refusal.
    """
    own = gpus.acquire(gpu_need(launches), host_gpus)
    try:
        launches = _with_gpus(launches, [*own])
        by_port = _acquire_ports(launches)
    except Refusal:
        leases.release([*own.values()])
        raise
    return launches, {
        each.task: [
            *(by_port[port] for port in each.leased_ports),
            *(own[gpu] for gpu in each.gpus),
        ]
        for each in launches
    }


def _with_gpus(launches: List[Launch], chosen: List[int]) -> List[Launch]:
    """Give each task as many of the chosen GPUs as it has planned ones."""
    remaining = iter(chosen)
    return [
        launch.on_gpus([next(remaining) for _ in launch.gpus]) if launch.gpu_choice else launch
        for launch in launches
    ]


def _acquire_ports(launches: List[Launch]) -> Dict[int, int]:
    numbers = [port for launch in launches for port in launch.leased_ports]
    descriptors = _acquire(["port/{}".format(port) for port in numbers])
    try:
        for launch in launches:
            for port in launch.leased_ports:
                ports.require_free(port, launch.task)
    except Refusal:
        leases.release(descriptors)
        raise
    return dict(zip(numbers, descriptors))  # noqa: B905 - Python 3.8 has no strict


def _acquire(names: List[str]) -> List[int]:
    """Acquire the leases; wait a moment for another start that is about to pass them to its
    supervisors, because until then their run is unknown."""
    deadline = time.monotonic() + LEASE_WAIT_S
    while True:
        try:
            return leases.acquire(names)
        except leases.ResourceTaken as taken:
            if taken.holder.run or time.monotonic() > deadline:
                name = taken.resource.replace("/", " ")
                raise leases.taken_refusal(name, taken.holder) from None
        time.sleep(0.05)
