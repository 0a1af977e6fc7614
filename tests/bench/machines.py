"""The hosts of tests/bench/fleet, as the bench itself reaches them: past SSH, untimed."""

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
    """`port` is its sshd's on 127.0.0.1, `address` what the other hosts dial."""

    name: str
    port: int
    address: str

    def does(self, command: str) -> str:
        """Run a command there, as the user whom SSH logs in."""
        argv = ["docker", "exec", "--user", USER, f"tfdeploy-bench-{self.name}"]
        done = subprocess.run(
            [*argv, "bash", "-c", command], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def moved(self) -> int:
        """Bytes that have come to it and gone from it by the network."""
        counters = "/sys/class/net/eth0/statistics/{rx,tx}_bytes"
        return sum(map(int, self.does(f"cat {counters}").split()))


def hosts(count: int) -> tuple[Host, ...]:
    """The first ones that are up."""
    lines = [line.split() for line in (STATE / "addresses").read_text().splitlines()]
    numbered = enumerate(lines[:count], FIRST_PORT + 1)
    return tuple(Host(name, port, address) for port, (name, address) in numbered)


def everywhere(hosts: tuple[Host, ...], command: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda host: host.does(command), hosts))
