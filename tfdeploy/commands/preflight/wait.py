"""--wait of `start`, `run` and `resume`: try again when GPUs and ports that are in use become free.

There is no queue: of several that wait, the first that tries after the end gets everything. Random
pauses give each the same chance.
"""

from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING, TypeVar

from tfdeploy.errors import HostError, LeaseConflict, TfdeployError, individual_errors, raise_all
from tfdeploy.formatting.humanize import format_duration
from tfdeploy.hosts.events import may_return
from tfdeploy.shared.protocol.preflight import FindHolders
from tfdeploy.shared.records import gpu_need

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Plan
    from tfdeploy.shared.records import Launch

    Show = Callable[[Sequence[TfdeployError]], None]

R = TypeVar("R")
POLL_S = 3.0
# What changes while somebody holds a GPU or a port.
CHANGING = re.compile(r" \d+[smhd] ago|: [\d.]+ of its [\d.]+ GiB")


def start_when_free(
    start: Callable[[], R],
    wait_s: float,
    waiting: Callable[[], AbstractContextManager[Show]],
    find_conflicts: Callable[[], Sequence[TfdeployError]],
) -> R:
    """Return what `start()` returns; if it fails only because ports or GPUs are in use, wait until
    `find_conflicts()` returns none, up to `wait_s` seconds in all, and call it again.

    `waiting()` is the context of each wait; it yields a function that shows what is waited for,
    which is called when that changes. Raises what `start` raises, and at the end of the time the
    last conflicts.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return start()
        except TfdeployError as error:
            conflicts = individual_errors(error)
            if wait_s == 0 or not all(isinstance(part, LeaseConflict) for part in conflicts):
                raise
        with waiting() as show:
            _wait(conflicts, find_conflicts, show, deadline, wait_s)


def _wait(
    conflicts: Sequence[TfdeployError],
    find_conflicts: Callable[[], Sequence[TfdeployError]],
    show: Show,
    deadline: float,
    wait_s: float,
) -> None:
    """Return when everything is free. Raises the conflicts when the time is over."""
    shown: set[tuple[str, ...]] = set()
    while conflicts:
        by_holder = {_holder(error): error for error in reversed(conflicts)}
        first_of_each = [*by_holder.values()][::-1]
        if by_holder.keys() != shown:
            show(first_of_each)
            shown = set(by_holder)
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise_all(first_of_each, f"waited {format_duration(wait_s)}")
        time.sleep(min(left_s, POLL_S * (0.5 + random.random())))
        conflicts = find_conflicts()


def _holder(error: TfdeployError) -> tuple[str, ...]:
    """Return what is equal for all that a run holds on a host, and stays equal while it does."""
    run = error.run if isinstance(error, LeaseConflict) else ""
    return (*error.names, run or CHANGING.sub("", error.message))


def find_conflicts(fleet: Fleet, plan: Plan, launches: Sequence[Launch]) -> list[TfdeployError]:
    """Return what is in use, and the hosts that do not answer at the moment. Raises HostError."""
    hosts = {str(p.task): p.host for p in plan.placements}

    def ask(agent: Agent) -> list[TfdeployError]:
        own = [launch for launch in launches if hosts[launch.task] == agent.host]
        taken = agent.ask(_request(own)).taken
        return [LeaseConflict(agent.host, each.message, each.hint, each.run) for each in taken]

    conflicts: list[TfdeployError] = []
    for answer in fleet.outcomes(plan.hosts, ask).values():
        if isinstance(answer, HostError) and may_return(answer):
            conflicts.append(answer)
        elif isinstance(answer, TfdeployError):
            raise answer
        else:
            conflicts += answer
    return conflicts


def _request(launches: Sequence[Launch]) -> FindHolders:
    """Ports that are chosen at the start are not among them."""
    ports = {launch.task: [port for port in launch.leased_ports if port] for launch in launches}
    return FindHolders(ports, gpu_need(launches))
