"""How many round trips each command waits for, over a line that delays all that passes."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from support.delaying_proxy import DelayingProxy, RoundTrips
from support.ports import ADDRESS
from support.projects import Project, ssh_hosts
from support.ssh_masters import close_masters
from support.sshd import Keys, Sshd, public, write_ssh_config

from tfdeploy.config import inventory as inventories
from tfdeploy.transport.daemon import locate
from tfdeploy.transport.ssh.config import resolve_route
from tfdeploy.transport.ssh.connection import ALIVE_CACHE_S, connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

ROUND_TRIP_S = 0.5  # far above what a busy machine adds: then pieces that are sent at the same time
# belong to the same round trip
ATTEMPTS = 3  # a machine that is busy for longer adds round trips, and never hides one


@dataclass
class DistantHosts:
    """A project whose two hosts are behind proxies."""

    project: Project
    proxies: list[DelayingProxy]

    def round_trips(self, *words: str) -> int:
        """Run a command; return how many round trips it waited for."""
        for proxy in self.proxies:
            proxy.reset()
            proxy.round_trip_s = ROUND_TRIP_S
        self.project.ok(*words)
        count = max(proxy.trips.answered for proxy in self.proxies)
        time.sleep(ROUND_TRIP_S)  # what was sent last arrives before the next command
        return count

    def handshake(self) -> int:
        """Connect to both hosts; return how many round trips the handshakes waited for."""
        inventory = inventories.load(self.project.folder / "hosts.toml")
        routes = [resolve_route(host, inventory) for host in inventory.hosts]
        for proxy in self.proxies:
            proxy.reset()
            proxy.round_trip_s = ROUND_TRIP_S
        with ThreadPoolExecutor() as threads:
            connections = list(threads.map(connect, routes, [False] * 2))
        count = max(proxy.trips.answered for proxy in self.proxies)
        for connection in connections:
            connection.close()
        time.sleep(ROUND_TRIP_S)
        return count

    def round_trips_of_ssh(self) -> int:
        """Run `true` with ssh on one host; return how many round trips it waited for."""
        proxy, config = self.proxies[0], self.project.top["ssh_config"]
        proxy.reset()
        proxy.round_trip_s = ROUND_TRIP_S
        subprocess.run(["ssh", "-F", config, "one", "true"], check=True, stdin=subprocess.DEVNULL)
        time.sleep(ROUND_TRIP_S)
        return proxy.trips.answered

    def at_once(self, *words: str) -> None:
        """Run a command without delay."""
        for proxy in self.proxies:
            proxy.round_trip_s = 0.0
        self.project.ok(*words)

    def hang_up(self) -> None:
        """Close all connections, and wait until the hosts have noticed."""
        locate.stop_daemons()
        close_masters()
        time.sleep(2 * ROUND_TRIP_S)

    def change(self) -> None:
        idle()
        (self.project.folder / "changed.txt").write_text(str(time.monotonic_ns()))


@pytest.fixture(params=["fabric"])
def distant(
    request: pytest.FixtureRequest, tmp_path: Path, keys: Keys, base: Path
) -> Iterator[DistantHosts]:
    trips = RoundTrips()
    sshds = [Sshd(base, keys) for _ in range(2)]
    proxies = [DelayingProxy(sshd.port, trips) for sshd in sshds]
    known_hosts = tmp_path / "known_hosts"
    lines = (f"[{ADDRESS}]:{proxy.port} {public(keys.host)}" for proxy in proxies)
    known_hosts.write_text("".join(lines))
    ports = zip(("one", "two"), proxies, strict=True)
    entries = {name: {"HostName": ADDRESS, "Port": str(proxy.port)} for name, proxy in ports}
    write_ssh_config(tmp_path / "ssh_config", keys, known_hosts, entries)
    top = {"ssh_config": str(tmp_path / "ssh_config"), "source": {"exclude": ["/*.toml"]}}
    hosts, flags = ssh_hosts(tmp_path / "hosts"), ["--hold", "--steps=2"]
    for host in hosts.values():
        host["transport"] = request.param
    project = Project(tmp_path / "project", hosts, top, flags=flags)
    yield DistantHosts(project, proxies)
    for proxy in proxies:
        proxy.round_trip_s = 0.0
    project.end()
    locate.stop_daemons()
    for proxy in proxies:
        proxy.close()
    for sshd in sshds:
        sshd.stop()


def idle() -> None:
    """Wait until the daemon asks a host again whether it still answers, before the next command."""
    time.sleep(ALIVE_CACHE_S)


def fewest(distant: DistantHosts, enough: int, *commands: str, before=idle) -> list[int]:
    """Return the fewest round trips of each command. A few attempts run them in turn, each after
    `before()`. A busy machine adds round trips and hides none, so `enough` ends the attempts."""
    counts: list[list[int]] = [[] for _ in commands]
    for _ in range(ATTEMPTS):
        for command, of_command in zip(commands, counts, strict=True):
            before()
            of_command.append(distant.round_trips(command))
        if max(map(min, counts)) <= enough:
            break
    return [*map(min, counts)]


BOTH = pytest.mark.parametrize("distant", ["fabric", "openssh"], indirect=True)


@BOTH
def test_a_push_waits_for_one_round_trip_and_two_more_for_a_change(distant):
    distant.at_once("push")
    assert fewest(distant, 1, "push") == [1]
    assert fewest(distant, 3, "push", before=distant.change) == [3]


@BOTH
def test_the_state_and_the_logs_of_a_run_take_one_round_trip(distant):
    distant.at_once("push")
    distant.at_once("start")
    assert fewest(distant, 1, "status") == [1]
    assert fewest(distant, 1, "logs") == [1]
    assert fewest(distant, 2, "collect") == [2]


@BOTH
def test_a_start_and_a_stop_wait_for_few_round_trips(distant):
    distant.at_once("push")
    assert fewest(distant, 2, "start", "stop") == [2, 2]


def test_without_connections_a_command_waits_for_the_handshake_and_three_more(distant):
    """The channel, the command, and its request: sshd takes no input before it has started the
    command. Each line is counted for itself: handshakes with two hosts are not in step."""
    for proxy in distant.proxies:
        proxy.trips = RoundTrips()
    distant.at_once("push")
    connected = min(distant.handshake() for _ in range(ATTEMPTS)) + 2
    enough = connected + 1
    assert fewest(distant, enough, "push", before=distant.hang_up) == [enough]
    distant.at_once("start")
    assert fewest(distant, enough, "status", before=distant.hang_up) == [enough]
    enough = connected + 2  # one is after READY, or after the ends of the workers
    assert fewest(distant, enough, "stop", "start", before=distant.hang_up) == [enough] * 2


@pytest.mark.parametrize("distant", ["openssh"], indirect=True)
def test_without_a_master_a_command_waits_for_ssh_to_log_in_and_two_more(distant):
    """A session and its command, which ssh sends with the request. ssh itself takes as many round
    trips for a command."""
    for proxy in distant.proxies:
        proxy.trips = RoundTrips()
    distant.at_once("push")
    enough = min(distant.round_trips_of_ssh() for _ in range(ATTEMPTS)) + 1
    assert fewest(distant, enough, "push", before=distant.hang_up) <= [enough]
    distant.at_once("start")
    assert fewest(distant, enough, "status", before=distant.hang_up) <= [enough]
