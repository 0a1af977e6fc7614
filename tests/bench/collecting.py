"""Measure `tfdeploy collect` beside rsync, `ssh cat` and a raw stream, from a sshd on loopback.

    PYTHONPATH=tests .venv/bin/python -m bench.collecting 64 512 --runs 3

Each size (MB) is one checkpoint of random bytes, in files of at most 1 GB. The tools take turns.
The CPU seconds are those of all processes of the controller (with the connection daemon), and of
all processes of the host (sshd, the agent, rsync's sender). With --rate, everything passes a line
of that rate, in MB/s.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from support.ports import ADDRESS, free_port, free_ports
from support.projects import Project, environment, without_tensorflow
from support.sshd import Keys, Sshd, public, write_ssh_config

from bench import limited_line, meter

FILE_MB = 1024
FAST = "Ciphers=^aes128-gcm@openssh.com"
SERVER = """
import os, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    line, _ = listener.accept()
    name = line.makefile("rb").readline().decode().strip()
    for file in sorted(os.scandir(name), key=lambda entry: entry.name):
        with open(file.path, "rb") as source:
            line.sendfile(source)
    line.close()
"""
CLIENT = """
import socket, sys
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
line.sendall(sys.argv[3].encode() + b"\\n")
buffer = memoryview(bytearray(1 << 20))
with open(sys.argv[4], "wb") as target:
    while size := line.recv_into(buffer):
        target.write(buffer[:size])
"""


@dataclass
class Sample:
    wall_s: float
    cpu_s: float
    host_cpu_s: float


@dataclass
class Bench:
    """A run with a chief on one host, the tools that fetch its checkpoint, and their costs."""

    folder: Path
    rate: float
    samples: dict[tuple[int, str], list[Sample]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.controller = meter.group(f"collect-controller-{os.getpid()}")
        self.host = meter.group(f"collect-host-{os.getpid()}")
        own = meter.group(f"collect-bench-{os.getpid()}")
        self.host.join()  # what is started now belongs to the host
        keys = Keys(self.folder / "keys")
        self.sshd = Sshd(self.folder, keys)
        self.raw = free_port()
        argv = [sys.executable, "-c", SERVER, ADDRESS, str(self.raw)]
        self.server = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self.server.stdout and self.server.stdout.readline()
        own.join()
        ports = [self.sshd.port, self.raw]
        self.lines = limited_line.start(ports, self.rate) if self.rate else None
        self.ports = self.lines.ports if self.lines else ports
        known_hosts = self.folder / "known_hosts"
        known_hosts.write_text(f"[{ADDRESS}]:{self.ports[0]} {public(keys.host)}")
        entry = {"one": {"HostName": ADDRESS, "Port": str(self.ports[0])}}
        self.ssh_config = self.folder / "ssh_config"
        write_ssh_config(self.ssh_config, keys, known_hosts, entry)
        python = without_tensorflow(self.folder / "python")
        one = {"workers": 1, "ports": free_ports(2), "address": ADDRESS, "python": python}
        hosts = {"one": {**one, "directory": str(self.folder / "host")}}
        top = {"ssh_config": str(self.ssh_config), "source": {"exclude": ["/*.toml"]}}
        flags = ["--hold", "--steps=0"]
        self.project = Project(self.folder / "project", hosts, top, flags=flags)
        self.project.ok("push")
        self.project.ok("start")
        self.saves = self.project.work("worker:0") / "checkpoints"
        self.env = environment(self.project.folder)
        self.run("warm", ["tfdeploy", "status"])

    def close(self) -> None:
        self.project.end()
        meter.end(self.controller)
        self.server.kill()
        self.sshd.stop()
        meter.end(self.host)
        if self.lines:
            self.lines.close()

    def save(self, megabytes: int) -> None:
        """Let the host have one checkpoint of this size."""
        shutil.rmtree(self.saves, ignore_errors=True)
        self.saves.mkdir()
        name, count = f"model.ckpt-{megabytes}", -(-megabytes // FILE_MB)
        block = random.randbytes(1 << 20)
        for shard in range(count):
            size = min(FILE_MB, megabytes - shard * FILE_MB)
            file = self.saves / f"{name}.data-{shard:05}-of-{count:05}"
            with file.open("wb") as target:
                for _ in range(size):
                    target.write(block)
        (self.saves / f"{name}.index").write_text("index")
        (self.saves / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')

    def commands(self, dest: Path) -> dict[str, list[str]]:
        ssh, source = f"ssh -F {self.ssh_config}", str(self.saves)
        fast, remote, local = f"{ssh} -o {FAST}", f"one:{source}/", f"{dest}/"
        cat = f"cat {source}/model*"
        return {
            "raw stream": [
                *(sys.executable, "-c", CLIENT, ADDRESS, str(self.ports[1])),
                *(source, str(dest / "all")),
            ],
            "ssh cat": ["sh", "-c", f"{ssh} one '{cat}' >{dest}/all"],
            "ssh cat AES-GCM": ["sh", "-c", f"{fast} one '{cat}' >{dest}/all"],
            "rsync": ["rsync", "-rt", "-e", ssh, remote, local],
            "rsync AES-GCM": ["rsync", "-rt", "-e", fast, remote, local],
            "tfdeploy": ["tfdeploy", "collect"],
        }  # fmt: skip

    def run(self, tool: str, argv: list[str]) -> Sample:
        before = self.host.cpu_s()
        with (self.folder / "output").open("wb+") as output:
            cost = meter.run(self.controller, argv, self.env, output, 600, self.project.folder)
            output.seek(0)
            assert cost.exit == 0, f"{tool}: {output.read().decode()}"
        return Sample(cost.wall_s, cost.cpu_s, self.host.cpu_s() - before)

    def measure(self, megabytes: int, runs: int, tools: list[str]) -> None:
        self.save(megabytes)
        dest = self.folder / "dest"
        for number in range(runs):
            commands = [
                each for each in self.commands(dest).items() if each[0] in tools or not tools
            ]
            for tool, argv in commands[:: -1 if number % 2 else 1]:
                for old in (dest, self.project.run_folder / "checkpoints"):
                    shutil.rmtree(old, ignore_errors=True)
                dest.mkdir()
                os.sync()
                sample = self.run(tool, argv)
                arrived = self.project.run_folder / "checkpoints" if tool == "tfdeploy" else dest
                size = sum(file.stat().st_size for file in arrived.iterdir())
                assert size >= megabytes << 20, (tool, size)
                self.samples.setdefault((megabytes, tool), []).append(sample)
        shutil.rmtree(dest, ignore_errors=True)
        self.print_rows(megabytes)

    def print_rows(self, megabytes: int) -> None:
        found = {tool: s for (size, tool), s in self.samples.items() if size == megabytes}
        own = [sample.wall_s for sample in found.get("tfdeploy", [])]
        gigabytes = (megabytes << 20) / 1e9
        for tool, samples in found.items():
            walls = [sample.wall_s for sample in samples]
            wall = statistics.median(walls)
            ratio = f"{wall / statistics.median(own):.2f}" if own else ""
            cpu = statistics.median(sample.cpu_s for sample in samples) / gigabytes
            host = statistics.median(sample.host_cpu_s for sample in samples) / gigabytes
            spread = f"{wall:.2f} ({min(walls):.2f}..{max(walls):.2f})"
            row = (megabytes, tool, spread, ratio, f"{cpu:.2f}", f"{host:.2f}")
            print("|", " | ".join(map(str, row)), "|", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", type=int, nargs="+", help="MB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.0, help="MB/s of the line; 0: no limit")
    parser.add_argument("--tools", type=lambda text: text.split(","), default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfdeploy-collecting-") as folder:
        bench = Bench(Path(folder), options.rate)
        try:
            print("| MB | tool | wall s | ratio | controller CPU s/GB | host CPU s/GB |")
            print("| --: | --- | --: | --: | --: | --: |", flush=True)
            for size in options.sizes:
                bench.measure(size, options.runs, options.tools)
        finally:
            bench.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
