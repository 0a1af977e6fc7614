"""What runs that wait in the queue cost their hosts: the CPU time of their supervisors.

    python tests/bench/queueing.py RUNS HOSTS [SECONDS]

Each host is a network of this machine, so that it has leases and a queue of its own. Each run has
two tasks on two hosts, whose supervisors send heartbeats to each other. All tasks on a host wait
for the same GPU, of which only the name exists. Needs root.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

PACKAGE = Path(__file__).parents[2]
sys.path[:0] = [os.fspath(PACKAGE), os.fspath(PACKAGE / "tests")]

from support.builders import make_heartbeat_settings, make_launch  # noqa: E402
from support.networks import networks  # noqa: E402

from tfdeploy.agent import paths  # noqa: E402
from tfdeploy.shared import records  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.networks import Network

    Process = subprocess.Popen[bytes]

HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent.machine import leases
held = leases.acquire(sys.argv[2:])
print("holds", flush=True)
while True:
    time.sleep(5)
    leases.drop_queries(held)
"""
SUPERVISOR = """
import os, sys
package, sys.argv[0], task_dir = sys.argv[1:]
sys.path.insert(0, package)
from tfdeploy.agent.machine import lock
from tfdeploy.agent.runs import supervise
supervise.supervise(task_dir, os.dup(1), lock.acquire(task_dir))
"""
FIRST_PORT = 20_000
AT_ONCE = 8
SETTLE_S = 210.0  # until pauses between heartbeats have reached their full length


def start(host: Network, code: str, *words: str) -> Process:
    command = host.enter(sys.executable, "-S", "-c", code, os.fspath(PACKAGE), *words)
    return subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE)


def wait_for_start(process: Process) -> None:
    assert process.stdout
    assert process.stdout.readline()


def submit(number: int, hosts: list[Network], gpus: list[str]) -> Iterator[tuple[int, Process]]:
    """Start the supervisors of a run. Yield each with the number of its host."""
    count = len(hosts)
    own = (number % count, (number + 1 + number // count) % count)
    run, tasks = secrets.token_hex(4), ["worker:0", "worker:1"]
    settings = make_heartbeat_settings(
        address=hosts[own[0]].address, port=FIRST_PORT + number, tasks=tasks, needed=tasks[1:]
    )
    for index, host in enumerate(own):
        launch = make_launch(
            run=run, index=index, heartbeat=settings, ready="process", submitted=number + 1,
            gpus=[0], waits_for=[gpus[host]],
        )  # fmt: skip
        task_dir = paths.task("p", run, launch.task)
        os.makedirs(paths.work(task_dir))
        os.makedirs(paths.logs("p", run), exist_ok=True)
        records.write(paths.launch(task_dir), records.to_json(launch))
        yield host, start(hosts[host], SUPERVISOR, paths.agent(), task_dir)


def submit_all(
    runs: int, hosts: list[Network], gpus: list[str], waiting: list[tuple[int, Process]]
) -> None:
    """Start the supervisors of all runs, some at a time, and add them to `waiting`."""
    for number in range(runs):
        waiting.extend(submit(number, hosts, gpus))
        for _, process in waiting[-AT_ONCE : -AT_ONCE + 2]:
            wait_for_start(process)
    for _, process in waiting[-AT_ONCE + 2 :]:
        wait_for_start(process)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(waiting: list[tuple[int, Process]], hosts: int, seconds: float) -> list[float]:
    """Return the shares of a core that the supervisors of each host use."""
    before, at = [cpu_s(each.pid) for _, each in waiting], time.monotonic()
    time.sleep(seconds)
    elapsed_s, used = time.monotonic() - at, [0.0] * hosts
    for (host, each), earlier in zip(waiting, before, strict=True):
        used[host] += (cpu_s(each.pid) - earlier) / elapsed_s
    return used


def main() -> None:
    runs, count, seconds = int(sys.argv[1]), int(sys.argv[2]), float([*sys.argv, "240"][3])
    waiting: list[tuple[int, Process]] = []
    gpus = [f"gpu/GPU-{secrets.token_hex(4)}" for _ in range(count)]
    with tempfile.TemporaryDirectory() as root, networks(count) as hosts:
        sys.argv[0] = f"{root}/agent/abc.pyz"
        holders = [start(host, HOLDER, gpu) for host, gpu in zip(hosts, gpus, strict=True)]
        try:
            for holder in holders:
                wait_for_start(holder)
            submit_all(runs, hosts, gpus, waiting)
            print(f"{runs} runs with {len(waiting)} tasks wait on {count} hosts", flush=True)
            time.sleep(SETTLE_S)
            used = measure(waiting, count, seconds)
        finally:
            for process in [*holders, *(each for _, each in waiting)]:
                process.kill()
                process.wait()
    by_task = 100 * sum(used) / len(waiting)
    print(f"% of a core: {by_task:.4f} for each task; {100 * sum(used) / count:.3f} for each host, "
          f"at most {100 * max(used):.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
