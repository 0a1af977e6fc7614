"""Measure what heartbeats cost with many tasks: python -m bench.heartbeats [TASKS…].

The chief's membership is in one process, those of all other tasks are in another; sockets, secrets
and intervals are real. Both do at every tick what a supervisor does. Only CPU seconds are measured,
so other work on the machine does not matter. Prints rows for results/heartbeats.csv.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from support.builders import make_heartbeat_settings, make_launch
from support.ports import ADDRESS, free_port

from tfdeploy.agent.machine.peers import PeerList
from tfdeploy.agent.supervision import membership, watch
from tfdeploy.agent.supervision.heartbeat.client import MAX_REQUESTS_PER_S
from tfdeploy.shared.records import READY, TaskState

if TYPE_CHECKING:
    Membership = membership.ChiefMembership | membership.OtherMembership

STACK = 1 << 18  # of a thread: a thousand must fit


def settle_s(count: int) -> float:
    """Return until when each task has got the lists of hosts and tasks."""
    return 3.0 + 3 * count / MAX_REQUESTS_PER_S


def join(index: int, count: int, port: int, folder: str) -> Membership:
    """Join the run as one of `count` workers, each on a host of its own."""
    tasks = [f"worker:{number}" for number in range(count)]
    settings = make_heartbeat_settings(port=port, address=ADDRESS, tasks=tasks)
    settings = replace(settings, needed=tasks[1:])
    launch = make_launch(index=index, heartbeat=settings)
    state = TaskState(READY, since=0.0)
    sources = [f"10.77.{index >> 8}.{index & 255}"]
    return membership.join(launch, folder, lambda: state, lambda: sources)


def supervise(first: int, last: int, count: int, port: int, seconds: float) -> None:
    """Be the supervisors of tasks `first` to `last`, and print the CPU time of `seconds`."""
    threading.stack_size(STACK)
    with tempfile.TemporaryDirectory(prefix="tfb-") as folder:
        members = [
            (join(index, count, port, folder), PeerList(f"{folder}/{index}", []))
            for index in range(first, last + 1)
        ]
        tick(members, settle_s(count))
        before = cpu_s()
        tick(members, seconds)
        print(cpu_s() - before, flush=True)


def tick(members: list[tuple[Membership, PeerList]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for member, peers in members:
            peers.add(member.sources())
            member.order()
        time.sleep(watch.READY_TICK_S)


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def row(count: int, seconds: float) -> str:
    command = [sys.executable, "-m", "bench.heartbeats", "--be"]
    run = (count, free_port(), seconds)
    processes = [
        subprocess.Popen([*command, *map(str, (*ends, *run))], stdout=subprocess.PIPE, text=True)
        for ends in ((0, 0), (1, count - 1))
    ]
    chief, others = (float(process.communicate()[0]) for process in processes)
    each = others / (count - 1)
    return f"| {count:,} | {100 * chief / seconds:.2f} | {100 * each / seconds:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", type=int, default=[10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--be", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        *numbers, seconds = options.be
        supervise(*map(int, numbers), float(seconds))
        return
    print("| tasks | the chief's supervisor, % of a core | each other, % of a core |")
    print("| --: | --: | --: |")
    for count in options.tasks:
        print(row(count, options.seconds), flush=True)


if __name__ == "__main__":
    main()
