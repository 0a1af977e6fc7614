"""Measure what watching costs with 1 and 48 hosts: python -m bench.watching [HOSTS…].

All hosts are this machine: each has a folder and an agent of its own, over one real sshd and over
a connection of its own. Only CPU seconds, bytes and memory are measured, so other work on the
machine makes the measurement longer, not wrong. Prints rows for results/watching.csv.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from support.ports import ADDRESS, free_ports
from support.projects import Project, environment
from support.sshd import Keys, Sshd, write_ssh_config

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
START_S = 30.0  # until all streams are open; grows with the number of hosts
TRAINER = r"""
import time
for step in range(10**9):
    print(f"\r{step}/1000000 [====>....] - loss: {1 / (step + 1):.4f}", end="", flush=True)
    if step % 50 == 49:
        print(flush=True)
    time.sleep(0.2)
"""


@dataclass(frozen=True)
class Usage:
    """CPU seconds and written bytes of processes since they started, and their resident bytes."""

    cpu_s: float
    written: int
    resident: int


def usage(pids: list[int]) -> Usage:
    cpu = written = resident = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu += int(fields[11]) + int(fields[12])
        io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        written += int(io["wchar"])
        resident += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return Usage(cpu / TICKS, written, resident)


def agents(folder: Path) -> list[int]:
    """Return the agents that answer a controller on the hosts below `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[-2:-1] == ["serve"] and any(str(folder) in word for word in words):
                found.append(int(entry.name))
    return found


def measure(base: Path, count: int, seconds: float) -> str:
    """Watch a run on `count` hosts for `seconds` and return a row of the table."""
    sshd = Sshd(base, Keys(base / "keys"), "MaxSessions 100", "MaxStartups 200")
    names = [f"gpu{number:02}" for number in range(count)]
    config, known_hosts = base / "ssh_config", base / "known_hosts"
    known_hosts.write_text(sshd.known_hosts_line)
    write_ssh_config(config, sshd.keys, known_hosts, {name: sshd.entry() for name in names})
    hosts = {
        name: {"address": ADDRESS, "workers": 1, "ports": [port], "python": sys.executable,
               "directory": str(base / "hosts" / name)}
        for name, port in zip(names, free_ports(count + 1), strict=False)
    }  # fmt: skip
    hosts[names[0]]["ports"] = [*hosts[names[0]]["ports"], *free_ports(1)]
    project = Project(
        base / "project", hosts, {"ssh_config": str(config), "keep_connections_s": 0},
        training={"command": ["python", "bar.py"], "role_args": [], "ready": "process"},
    )  # fmt: skip
    (project.folder / "bar.py").write_text(TRAINER)
    try:
        project.ok("push")
        project.ok("start")
        return watch(project, base, count, seconds)
    finally:
        project.tf("stop")
        project.end()
        sshd.stop()


def watch(project: Project, base: Path, count: int, seconds: float) -> str:
    before_s = time.monotonic()
    watching = subprocess.Popen(
        [sys.executable, "-m", "tfdeploy", "watch", "--json"], cwd=project.folder,
        env=environment(project.folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while len(agents(base)) < count and time.monotonic() < before_s + START_S * (1 + count / 8):
        time.sleep(0.5)
    time.sleep(5.0)
    pids, start_s = agents(base), time.monotonic()
    first, controller = usage(pids), usage([watching.pid])
    time.sleep(seconds)
    elapsed_s = time.monotonic() - start_s
    last, controller_last = usage(pids), usage([watching.pid])
    watching.terminate()
    watching.wait()
    per_host = len(pids) * elapsed_s
    return (
        f"| {len(pids)} | {100 * (last.cpu_s - first.cpu_s) / per_host:.2f} "
        f"| {(last.written - first.written) / per_host:.0f} "
        f"| {100 * (controller_last.cpu_s - controller.cpu_s) / elapsed_s:.1f} "
        f"| {controller_last.resident / 1e6:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hosts", nargs="*", type=int, default=[1, 48])
    parser.add_argument("--seconds", type=float, default=45.0)
    options = parser.parse_args()
    print("| hosts | % of a core, each host | bytes/s, each host | % of a core, controller | "
          "MB, controller |\n| --: | --: | --: | --: | --: |")  # fmt: skip
    for count in options.hosts:
        base = Path(tempfile.mkdtemp(prefix="watching-"))
        os.environ |= {"HOME": str(base), "XDG_CONFIG_HOME": str(base / "config"),
                       "XDG_CACHE_HOME": str(base / "cache")}  # fmt: skip
        try:
            print(measure(base, count, options.seconds), flush=True)
        finally:
            shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
