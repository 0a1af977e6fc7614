"""The verb `holders`: who uses the ports and GPUs that a start needs. It takes nothing."""

from __future__ import annotations

from ...shared import TYPE_CHECKING
from ...shared.protocol.preflight import Holders, Taken
from ..machine import leases, nvidia
from ..machine import ports as tcp
from ..refusal import Refusal

if TYPE_CHECKING:
    from typing import Dict, Iterator, List


def holders(ports: Dict[str, List[int]], gpus: List[int]) -> Holders:
    """Return which of the tasks' ports, and of the GPUs, are in use, in the words of `start`."""
    refusals = [*_taken_ports(ports), *_taken_gpus(gpus)]
    return Holders([Taken(each.message, each.hint, each.held_by) for each in refusals])


def _taken_ports(ports: Dict[str, List[int]]) -> Iterator[Refusal]:
    for task, own_ports in ports.items():
        for port in own_ports:
            try:
                _require_free(port, task)
            except Refusal as refusal:
                if refusal.busy:  # if not, waiting does not help, and `start` says so
                    yield refusal


def _require_free(port: int, task: str) -> None:
    resource = "port/{}".format(port)
    holder = leases.holder(resource)
    if holder is not None:
        raise leases.taken_refusal(resource, holder)
    tcp.require_free(port, task)


def _taken_gpus(gpus: List[int]) -> Iterator[Refusal]:
    resources = nvidia.gpu_resources() if gpus else {}
    unleased: Dict[int, str] = {}
    for gpu in gpus:
        holder = leases.holder(resources[gpu]) if gpu in resources else None
        if holder is not None:
            yield leases.taken_refusal(resources[gpu], holder)
        elif gpu in resources:
            unleased[gpu] = resources[gpu]
    if unleased:
        yield from nvidia.filled_refusals(unleased)
