"""Measure what supervisors and heartbeats cost: python -m bench.supervising [--seconds S].

Only CPU seconds, wake-ups and memory are measured, so other work on the machine does not matter.
Prints rows for results/supervising.csv.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support.ports import free_ports
from support.projects import Project, local_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

TICKS = os.sysconf("SC_CLK_TCK")
SETTLE_S = 5.0
PRINTED = 1000  # lines per second
PRINTER = f"""
import time
started, lines = time.monotonic(), 0
while True:
    due = int((time.monotonic() - started) * {PRINTED})
    for lines in range(lines, due):
        print(f"step {{lines}} loss 0.123456 accuracy 0.987654 examples/s 12345.6", flush=True)
    time.sleep(0.01)
"""


@dataclass(frozen=True)
class Usage:
    """What processes have used: CPU in seconds, wake-ups, and memory (PSS) in bytes."""

    cpu_s: float
    wakeups: int
    memory: int


def usage(pids: list[int]) -> Usage:
    cpu_s, wakeups, memory = 0.0, 0, 0
    for process in (Path(f"/proc/{pid}") for pid in pids):
        for task in (process / "task").iterdir():  # in ns, of each thread; source: proc(5)
            cpu_s += int((task / "schedstat").read_text().split()[0]) / 1e9
            status = (task / "status").read_text()
            wakeups += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        rollup = (process / "smaps_rollup").read_text()
        memory += int(rollup.partition("\nPss:")[2].split()[0]) * 1024
    return Usage(cpu_s, wakeups, memory)


def row(title: str, pids: list[int], seconds: float) -> str:
    """Return a row of the table: what each of the processes uses."""
    time.sleep(SETTLE_S)
    # Threads that end in between are counted by the process's own clock, not by its threads.
    clock_s, before = process_cpu_s(pids), usage(pids)
    time.sleep(seconds)
    after = usage(pids)
    cpu_s = process_cpu_s(pids) - clock_s
    each = len(pids) * seconds
    return (
        f"| {title} | {100 * cpu_s / each:.3f} | {3600 * cpu_s / each:.1f} "
        f"| {(after.wakeups - before.wakeups) / each:.1f} "
        f"| {after.memory / len(pids) / 1e6:.1f} |"
    )


def process_cpu_s(pids: list[int]) -> float:
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def supervisors(folder: Path, count: int, seconds: float) -> list[str]:
    """Return the rows of idle tasks on this machine: the chief's supervisor, and the others'."""
    [(name, host)] = local_hosts(folder).items()
    host |= {"ps": 1, "workers": count - 1, "ports": free_ports(count + 1)}
    if count == 1:
        del host["ps"]
        host["workers"] = 1
    project = Project(folder / "project", {name: host}, flags=["--hold"])
    tasks = ["worker:0", *(f"worker:{index}" for index in range(1, count - 1)), "ps:0"][:count]
    try:
        project.ok("push")
        project.ok("start")
        pids = [project.supervisor(task) for task in tasks]
        groups = {f"{count} idle, the chief's": pids[:1], f"{count} idle, each other": pids[1:]}
        return [row(title, group, seconds) for title, group in groups.items() if group]
    finally:
        project.tf("stop")
        project.end()


def printing(folder: Path, seconds: float) -> str:
    """Return the row of a task that prints PRINTED lines a second."""
    [(name, host)] = local_hosts(folder).items()
    host = {**host, "ps": 0, "workers": 1, "ports": free_ports(2)}
    training = {"command": ["python", "printer.py"], "role_args": [], "ready": "process"}
    project = Project(folder / "project", {name: host}, training=training)
    (project.folder / "printer.py").write_text(PRINTER)
    try:
        project.ok("push")
        project.ok("start")
        return row(f"1 that prints {PRINTED:,} lines/s", [project.supervisor("worker:0")], seconds)
    finally:
        project.tf("stop")
        project.end()


@contextmanager
def own_home() -> Iterator[Path]:
    """Create a folder that is also the home, so that hosts.toml is trusted only there.

    SIGTERM raises SystemExit in the block, so that it ends what it has started.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="tfb-") as folder:
        os.environ |= {"HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--tasks", nargs="*", type=int, default=[1, 8])
    options = parser.parse_args()
    print("| tasks on a host | % of a core | CPU s per hour | wake-ups per s | MB |")
    print("| --- | --: | --: | --: | --: |")
    for count in options.tasks:
        with own_home() as folder:
            print(*supervisors(folder, count, options.seconds), sep="\n", flush=True)
    with own_home() as folder:
        print(printing(folder, options.seconds), flush=True)


if __name__ == "__main__":
    main()
