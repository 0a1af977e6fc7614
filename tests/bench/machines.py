"""The hosts of tests/bench/fleet. The bench itself reaches them without SSH, unmeasured."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
STATE = HERE / ".fleet"
SSH_CONFIG = STATE / "ssh_config"
KNOWN_HOSTS = STATE / "known_hosts"
KEY = STATE / "id_ed25519"
FIRST_PORT = 24000
USER = "trainer"


@dataclass(frozen=True)
class Host:
    """A host. `port` is its sshd's port on 127.0.0.1; other hosts connect to `address`."""

    name: str
    port: int
    address: str

    def run(self, command: str, stdin: bytes = b"") -> str:
        """Run a command on the host as the user that SSH logs in; return its output."""
        argv = ["docker", "exec", "--interactive", "--user", USER, f"tfdeploy-bench-{self.name}"]
        done = subprocess.run(
            [*argv, "bash", "-c", command], check=True, capture_output=True, input=stdin
        )
        return done.stdout.decode().strip()

    def transferred(self) -> int:
        """Return the number of bytes that it has received and sent over the network."""
        counters = "/sys/class/net/eth0/statistics/{rx,tx}_bytes"
        return sum(map(int, self.run(f"cat {counters}").split()))


def hosts(count: int) -> tuple[Host, ...]:
    """Return the first `count` running hosts."""
    lines = [line.split() for line in (STATE / "addresses").read_text().splitlines()]
    numbered = enumerate(lines[:count], FIRST_PORT + 1)
    return tuple(Host(name, port, address) for port, (name, address) in numbered)


def run_on_all(hosts: tuple[Host, ...], command: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda host: host.run(command), hosts))
