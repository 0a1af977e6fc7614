"""Measure tfdeploy's commands with three kinds of connections, with and without network delay.

The three: the connection daemon with Fabric (keep_connections_s = 300), new connections for each
command (keep_connections_s = 0), and the daemon with OpenSSH (transport = "openssh").
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import delay, meter, results
from bench.machines import FIRST_PORT, HERE, KNOWN_HOSTS, SSH_CONFIG, hosts, run_on_all
from bench.tools import TFDEPLOY
from bench.workload import PORT, STUB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.machines import Host

HOST_FOLDER = "/data/connections"
DAEMON, OWN, OPENSSH = "daemon", "own", "openssh"
STEPS = ("status", "push_same")
TIMEOUT_S = 300


@dataclass(frozen=True)
class Sample:
    """One command. `memory_mb` is the memory of the processes that it leaves running."""

    kind: str
    rtt_ms: int
    step: str
    cold: bool
    wall_s: float
    cpu_s: float
    memory_mb: float
    others: float


def main() -> int:
    options = _arguments()
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="tfb-") as name:
        folder, fleet = Path(name), hosts(options.n)
        _start_run(folder, fleet)
        for rtt_ms in options.rtt_ms:
            with _delayed(folder, options.n, rtt_ms):
                for _ in range(options.runs):
                    for kind in (DAEMON, OWN, OPENSSH):
                        for sample in _commands(folder, fleet, kind, rtt_ms):
                            samples.append(sample)
                            print(json.dumps(asdict(sample)), flush=True)
        _project(folder, fleet, OWN, SSH_CONFIG)
        subprocess.run([TFDEPLOY, "stop"], cwd=folder, check=True)
    report = {"machine": results.machine(), "n": options.n, "rows": list(map(asdict, samples))}
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "connections.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _start_run(folder: Path, fleet: tuple[Host, ...]) -> None:
    run_on_all(fleet, f"chmod -R u+w {HOST_FOLDER} 2>/dev/null; rm -rf {HOST_FOLDER}")
    _project(folder, fleet, OWN, SSH_CONFIG)
    for command in ("push", "start"):
        subprocess.run([TFDEPLOY, command], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _project(folder: Path, fleet: tuple[Host, ...], kind: str, ssh_config: Path) -> None:
    transport = f'transport = "{"openssh" if kind == OPENSSH else "fabric"}"'
    lines = [
        'project = "bench"', f"ssh_config = {json.dumps(str(ssh_config))}",
        f"keep_connections_s = {0 if kind == OWN else 300}",
        f"[source]\npath = {json.dumps(str(STUB))}",
        '[training]\nrole = "flags"\ncommand = "python train.py"\nready_timeout_s = 900',
        f'[defaults]\nports = [{PORT}, {PORT + 1}]\ndirectory = "{HOST_FOLDER}"\nworkers = 1',
        transport,
        *(f'[hosts.{host.name}]\naddress = "{host.address}"' for host in fleet),
    ]  # fmt: skip
    (folder / "hosts.toml").write_text("\n".join(lines) + "\n")
    subprocess.run([TFDEPLOY, "trust"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for record in folder.glob("runs/*/hosts.toml"):  # `status` uses the settings of the run
        text = record.read_text()
        for line in (lines[1], lines[2], transport):
            text = re.sub(f"^{line.split()[0]} = .*$", line, text, flags=re.MULTILINE)
            assert line in text, text
        record.write_text(text)


@contextmanager
def _delayed(folder: Path, count: int, rtt_ms: int) -> Iterator[None]:
    """Write folder/ssh_config, with which ssh reaches the hosts after this delay."""
    text, known_hosts = SSH_CONFIG.read_text(), KNOWN_HOSTS.read_text()
    if rtt_ms:
        for number in range(1, count + 1):
            old, new = str(FIRST_PORT + number), str(delay.FIRST_PORT + number)
            text = text.replace(f"Port {old}\n", f"Port {new}\n")
            known_hosts = known_hosts.replace(f"]:{old} ", f"]:{new} ")
    (folder / "known_hosts").write_text(known_hosts)
    (folder / "ssh_config").write_text(text.replace(str(KNOWN_HOSTS), f"{folder}/known_hosts"))
    argv = [sys.executable, "-m", "bench.delay", str(count), str(rtt_ms / 2000)]
    proxy = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        assert proxy.stdout and proxy.stdout.readline() == b"ready\n"
        yield
    finally:
        proxy.kill()
        proxy.wait()


def _commands(folder: Path, fleet: tuple[Host, ...], kind: str, rtt_ms: int) -> Iterator[Sample]:
    """Run a first command, which connects, and then each step."""
    _project(folder, fleet, kind, folder / "ssh_config")
    group = meter.group(f"tfdeploy-bench-{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="tfc-") as runtime:
        environment = {
            "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": runtime,
            "XDG_RUNTIME_DIR": runtime,
        }  # fmt: skip
        output = folder / "output"
        trust = [TFDEPLOY, "trust"]
        subprocess.run(trust, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            for position, step in enumerate((STEPS[0], *STEPS)):
                command = [TFDEPLOY, step.partition("_")[0]]
                with output.open("wb") as file:
                    cost = meter.run(group, command, environment, file, TIMEOUT_S, folder)
                assert cost.exit == 0, output.read_text()
                figures = (cost.wall_s, cost.cpu_s, group.memory() / 1e6, cost.others)
                rounded = (round(figure, 3) for figure in figures)
                yield Sample(kind, rtt_ms, step, position == 0, *rounded)
        finally:
            meter.end(group)
            group.remove()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=48, help="number of hosts")
    parser.add_argument("--runs", type=int, default=5, help="number of measurements")
    parser.add_argument("--rtt-ms", default="0,200", help="round-trip times of the network")
    options = parser.parse_args()
    options.rtt_ms = [int(rtt_ms) for rtt_ms in options.rtt_ms.split(",")]
    return options


if __name__ == "__main__":
    sys.exit(main())
