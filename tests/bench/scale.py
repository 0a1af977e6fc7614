"""Measure only tfdeploy, on many hosts, some of them dead or silent: the cost per host.

From `--standin` hosts on, one process answers for all agents and starts nothing (standin/): then
only the controller is measured, with real SSH.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import meter, results
from bench.machines import HERE, USER
from bench.tools import TFDEPLOY
from bench.workload import STUB

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTAINER = "tfdeploy-bench-many"
SSH_PORT, TASK_PORT, CHIEFS_PORT = 20001, 22001, 26001
ALIVE = ("plan_cold", "push_cold", "push_same", "start", "status")
LOST = ("push_same", "status", "stop")
SHOWN = re.compile(r" done · | READY |STOPPED ")  # what a command has found out about living hosts
STANDIN_SOCKET = "/run/standin.sock"
FIXED = """\
project = "bench"
ssh_config = "ssh_config"
[source]
path = "source"
[training]
command = "python -S -E train.py"
role = "flags"
ready_timeout_s = 900
[defaults]
workers = 1
python = "{python}"
"""
CONFIG = f"""\
Host *
  User {USER}
  IdentityFile "{{folder}}/../id_ed25519"
  IdentitiesOnly yes
  HostKeyAlias many
  UserKnownHostsFile "{{folder}}/known_hosts"
  GlobalKnownHostsFile none
  BatchMode yes
"""
NAMES = re.compile(r"\bs(\d{4}|\[[\d,-]+\])")


@dataclass(frozen=True)
class Row:
    """One command. `threads` and `files` are the maximum of the command itself, `processes` is the
    maximum of the command and its children. `shown_s` is when it had printed what living hosts
    answered."""

    n: int
    dead: int
    silent: int
    step: str
    wall_s: float
    cpu_ms_a_host: float
    peak_mb: float
    threads: int
    files: int
    processes: int
    others: float
    ok: bool
    shown_s: float
    standin: bool


def main() -> int:
    options = _arguments()
    rows = _rows_of_other_sizes(options)
    with tempfile.TemporaryDirectory(prefix="tfb-") as folder, _container(Path(folder)) as address:
        for n in options.n:
            for row in _rows(Path(folder) / str(n), address, n, options):
                rows.append(row)
                print(json.dumps(asdict(row)), flush=True)
            rows.sort(key=lambda row: row.n)
            report = {"machine": results.machine(), "rows": [asdict(row) for row in rows]}
            options.out.parent.mkdir(exist_ok=True)
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(row.ok for row in rows) else 1


def _rows_of_other_sizes(options: argparse.Namespace) -> list[Row]:
    if not options.out.exists():
        return []
    rows = json.loads(options.out.read_text())["rows"]
    return [Row(**row) for row in rows if row["n"] not in options.n and "standin" in row]


@contextmanager
def _container(folder: Path) -> Iterator[str]:
    """Run a container for all hosts, which share one host key; yield its address."""
    keys = folder / "keys"
    keys.mkdir()
    for key in (keys / "ssh_host_ed25519_key", folder / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    shutil.copy(folder / "id_ed25519.pub", keys / "authorized_keys")
    relay = ["gcc", "-O2", "-static", f'-DSOCKET="{STANDIN_SOCKET}"', "-o", keys / "standin"]
    subprocess.run([*relay, HERE / "standin" / "relay.c"], check=True)
    mounts = ["-v", f"{keys}:/keys:ro", "-v", f"{HERE}/many:/many:ro"]
    mounts += ["-v", f"{HERE}/standin:/standin:ro"]
    data = ["--tmpfs", "/data:exec,mode=1777"]
    _docker("run", "-d", "--init", "--name", CONTAINER, *data, *mounts, "tfdeploy-host")
    try:
        yield _docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", CONTAINER)
    finally:
        _docker("rm", "--force", CONTAINER)


def _rows(folder: Path, address: str, n: int, options: argparse.Namespace) -> Iterator[Row]:
    shutil.copytree(STUB, folder / "source")
    standin = n >= options.standin
    _project(folder, address, n, "/keys/standin" if standin else "python3")
    _many("up", SSH_PORT, n)
    if standin:
        _many("standin", STANDIN_SOCKET)
    group = meter.group(f"tfdeploy-bench-{os.getpid()}")
    turn = Turn(folder, group, n, options.timeout, standin)
    try:
        yield from map(turn.row, ALIVE)
        turn.lose(options.lost)
        yield from map(turn.row, LOST)
    finally:
        meter.end(group)
        group.remove()
        _many("clear")


def _project(folder: Path, address: str, n: int, python: str) -> None:
    public = (folder.parent / "keys" / "ssh_host_ed25519_key.pub").read_text()
    (folder / "known_hosts").write_text(f"many {public}")
    (folder / "ssh_config").write_text(CONFIG.format(folder=folder))
    hosts = []
    for index in range(n):
        ports = [TASK_PORT + index, CHIEFS_PORT + index]
        keys = f'hostname = "{address}"\nport = {SSH_PORT + index}\nports = {ports}'
        hosts.append(f'[hosts.{_name(index)}]\n{keys}\ndirectory = "/data/{_name(index)}"\n')
    (folder / "hosts.toml").write_text(FIXED.format(python=python) + "".join(hosts))
    home = {**os.environ, "HOME": str(folder)}
    subprocess.run([TFDEPLOY, "trust"], cwd=folder, env=home, check=True, stdout=subprocess.DEVNULL)


@dataclass
class Turn:
    """tfdeploy's commands on n hosts, some of which get lost. `dead` and `silent` are indexes."""

    folder: Path
    group: meter.Group
    n: int
    timeout_s: float
    standin: bool
    dead: list[int] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)

    def lose(self, share: float) -> None:
        """Stop half of the lost hosts, and make the other half silent; never the chief's host."""
        lost = list(range(1, self.n, max(1, round(1 / share))))
        for index in lost:
            _many("end", SSH_PORT + index)
        self.dead, self.silent = lost[::2], lost[1::2]
        if self.silent:
            _many("mute", *(SSH_PORT + index for index in self.silent))

    def row(self, step: str) -> Row:
        log = self.folder / "log"
        maximum = Maximum(self.group, log)
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(self.folder)}
        command = ([TFDEPLOY, step.partition("_")[0]], environment)
        with log.open("wb") as output:
            cost = meter.run(
                self.group, *command, output, self.timeout_s, self.folder, maximum.observe
            )  # fmt: skip
        ok = self._succeeded(step, cost.exit, log.read_text())
        if not ok:
            print(f"{step}: exit {cost.exit}\n{log.read_text()[-3000:]}", file=sys.stderr)
        figures = (cost.wall_s, 1000 * cost.cpu_s / self.n, cost.peak_mb)
        rounded = (round(figure, 3) for figure in figures)
        maxima = (maximum.threads, maximum.files, maximum.processes, round(cost.others, 2))
        more = (ok, round(maximum.shown_s or cost.wall_s, 3), self.standin)
        return Row(self.n, len(self.dead), len(self.silent), step, *rounded, *maxima, *more)

    def _succeeded(self, step: str, code: int, output: str) -> bool:
        """Return whether it did its work on all remaining hosts and named each lost host."""
        lost = {*self.dead, *self.silent}
        lines = [line for line in output.splitlines() if " READY " in line]
        ready = {index for line in lines for index in _hosts_in(line)}
        if step == "status" and ready != {*range(self.n)} - lost:
            return False
        return code == (1 if lost else 0) and lost <= _hosts_in(output)


class Maximum:
    """The maximum numbers of threads, open files and processes of a command, and when it had first
    printed results."""

    def __init__(self, group: meter.Group, log: Path) -> None:
        self._group = group
        self._log = log
        self._start_s = 0.0
        self.shown_s = 0.0
        self.threads = self.files = self.processes = 0

    def observe(self, pid: int) -> None:
        self._start_s = self._start_s or time.monotonic()
        if not self.shown_s and SHOWN.search(self._log.read_text()):
            self.shown_s = time.monotonic() - self._start_s
        self.processes = max(self.processes, len(self._group.pids()))
        with suppress(OSError):  # it has just exited
            self.threads = max(self.threads, len(os.listdir(f"/proc/{pid}/task")))
            self.files = max(self.files, len(os.listdir(f"/proc/{pid}/fd")))


def _name(index: int) -> str:
    return f"s{index + 1:04d}"


def _hosts_in(text: str) -> set[int]:
    """Return the indexes of the hosts in a text: s0001, and s[0001-0003,0007]."""
    spans = [span for listed in NAMES.findall(text) for span in listed.strip("[]").split(",")]
    ends = [[int(number) for number in span.split("-")] for span in spans]
    return {number - 1 for end in ends for number in range(end[0], end[-1] + 1)}


def _many(*words: Any) -> None:
    _docker("exec", CONTAINER, "/many", *map(str, words))


def _docker(*words: str) -> str:
    docker = shutil.which("docker") or "docker"
    done = subprocess.run([docker, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", default="50,200,1000", help="numbers of hosts: 50,200,1000")
    parser.add_argument("--lost", type=float, default=0.05, help="the share of hosts to lose")
    parser.add_argument("--standin", type=int, default=500, help="hosts from which on none is real")
    parser.add_argument("--timeout", type=float, default=1200, help="seconds for one command")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "scale.json")
    options = parser.parse_args()
    options.n = [int(size) for size in options.n.split(",")]
    return options


if __name__ == "__main__":
    sys.exit(main())
