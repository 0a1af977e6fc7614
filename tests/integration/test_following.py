"""Following logs over an unreliable network: each line arrives once, whatever is cut or rotated."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from support.ports import ADDRESS, free_ports
from support.projects import Project
from support.sshd import Sshd, public, write_ssh_config
from support.waiting import until

from tfdeploy import run as runs
from tfdeploy.agent.reports.tail import LINES_LOST
from tfdeploy.commands.logs import logs
from tfdeploy.errors import AgentError, HostError, Unreachable
from tfdeploy.hosts.events import HostIsBack
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.shared.protocol.reports import LogLines
from tfdeploy.transport.daemon import locate

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Relay:
    """The network between the controller and an sshd. It can be cut, which both sides notice, and
    healed."""

    def __init__(self, port: int) -> None:
        self.port = free_ports(1)[0]
        self._to = port
        self._pairs: list[socket.socket] = []
        self.heal()

    def heal(self) -> None:
        self._listener = socket.create_server((ADDRESS, self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        for each in (self._listener, *self._pairs):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._pairs.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((ADDRESS, self._to))
                self._pairs += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class FollowedRun:
    """An active run of one worker behind a relay, and the events of following it."""

    def __init__(self, project: Project, relay: Relay) -> None:
        self.project, self.relay = project, relay
        self.log = project.log_file("one", "worker:0")
        self.run = runs.load(project.folder / "hosts.toml")
        self.written: list[str] = []
        self.events: list[Any] = []
        until(
            lambda: "worker:0 step 1\n" in self.log.read_text(), "the last line of the task itself"
        )

    def write(self, count: int = 50) -> None:
        first = len(self.written)
        lines = [f"line {number}" for number in range(first, first + count)]
        with self.log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        self.written += lines

    def rotate(self) -> None:
        self.log.rename(f"{self.log}.1")
        self.log.touch()

    def fleet(self) -> Fleet:
        return Fleet(self.run.inventory, version=self.run.agent)

    def listen(self, following: Any) -> threading.Thread:
        def listen() -> None:
            for _, event in following.events():
                self.events.append(event)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        return thread

    @property
    def lines(self) -> list[str]:
        logs = [event for event in self.events if isinstance(event, LogLines)]
        lines = [line for event in logs for line in event.lines]
        return [line for line in lines if line.startswith(("line ", LINES_LOST))]

    @property
    def lost(self) -> int:
        return sum(isinstance(event, HostError) for event in self.events)

    @property
    def back(self) -> int:
        return sum(isinstance(event, HostIsBack) for event in self.events)

    def wait_for_last_line(self) -> None:
        last = self.written[-1]
        until(lambda: last in self.lines, last, lambda: len(self.events))


@pytest.fixture
def network(tmp_path, keys, sshds: dict[str, Sshd]) -> Iterator[Relay]:
    relay = Relay(sshds["one"].port)
    entry = {"HostName": ADDRESS, "Port": str(relay.port)}
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[{ADDRESS}]:{relay.port} {public(keys.host)}")
    write_ssh_config(tmp_path / "ssh_config", keys, known_hosts, {"one": entry})
    yield relay
    relay.cut()


@pytest.fixture
def followed(tmp_path: Path, network: Relay) -> Iterator[FollowedRun]:
    host = {
        "workers": 1, "ports": free_ports(2), "address": ADDRESS, "python": sys.executable,
        "directory": str(tmp_path / "host"),
    }  # fmt: skip
    top = {"ssh_config": str(tmp_path / "ssh_config"), "source": {"exclude": ["/*.toml"]}}
    project = Project(tmp_path / "project", {"one": host}, top, flags=["--hold", "--steps=1"])
    project.ok("push")
    project.ok("start")
    yield FollowedRun(project, network)
    project.end()


def test_each_line_arrives_once_although_the_network_is_cut_and_the_log_is_rotated(followed):
    with (
        followed.fleet() as fleet,
        fleet.follow(followed.run, followed.run.plan.placements, logs=True) as following,
    ):
        followed.listen(following)
        followed.write()
        followed.wait_for_last_line()
        for _ in range(2):
            followed.relay.cut()
            followed.write()
            followed.rotate()
            followed.write()
            followed.relay.heal()
            followed.write()
            followed.wait_for_last_line()
        followed.rotate()
        followed.write()
        followed.wait_for_last_line()
    assert followed.lines == followed.written
    assert (followed.lost, followed.back) == (2, 2)


def test_a_cut_in_the_middle_of_many_lines_loses_and_repeats_none(followed):
    with (
        followed.fleet() as fleet,
        fleet.follow(followed.run, followed.run.plan.placements, logs=True) as following,
    ):
        followed.listen(following)
        followed.write()
        followed.wait_for_last_line()
        followed.write(200_000)
        until(lambda: len(followed.lines) > 1000, "some of them")
        followed.relay.cut()
        followed.relay.heal()
        followed.wait_for_last_line()
    assert followed.lines == followed.written


def test_a_host_that_has_sent_no_line_yet_sends_the_lines_written_during_the_cut(followed):
    with (
        followed.fleet() as fleet,
        fleet.follow(followed.run, followed.run.plan.placements, logs=True, lines=0) as following,
    ):
        followed.listen(following)
        until(lambda: followed.events, "the first state")
        followed.relay.cut()
        until(lambda: followed.lost, "the loss")
        followed.write()
        followed.relay.heal()
        followed.wait_for_last_line()
    assert followed.lines == followed.written


def test_lines_lost_by_rotation_during_a_cut_are_reported_once(followed):
    with (
        followed.fleet() as fleet,
        fleet.follow(followed.run, followed.run.plan.placements, logs=True) as following,
    ):
        followed.listen(following)
        followed.write()
        followed.wait_for_last_line()
        followed.relay.cut()
        for _ in range(3):
            followed.write()
            followed.rotate()
        followed.write()
        followed.relay.heal()
        followed.wait_for_last_line()
    assert followed.lines == [*followed.written[:50], LINES_LOST, *followed.written[150:]]


def test_a_host_that_is_unreachable_at_first_is_followed_once_it_is_reachable(followed):
    followed.relay.cut()
    followed.write()
    with (
        followed.fleet() as fleet,
        fleet.follow(followed.run, followed.run.plan.placements, logs=True) as following,
    ):
        followed.listen(following)
        until(lambda: followed.lost, "the loss")
        followed.relay.heal()
        followed.wait_for_last_line()
    assert (followed.lines, followed.lost, followed.back) == (followed.written, 1, 1)


def test_a_closed_following_sends_no_more_requests(followed):
    followed.relay.cut()
    with (
        followed.fleet() as fleet,
        fleet.follow(followed.run, followed.run.plan.placements, logs=True) as following,
    ):
        listening = followed.listen(following)
        until(lambda: followed.lost, "the loss")
    listening.join()
    assert not listening.is_alive()


def test_a_host_that_refuses_the_request_is_given_up(followed):
    with Fleet(followed.run.inventory, version="0123456789abcdef") as fleet:
        following = fleet.follow(followed.run, followed.run.plan.placements, logs=True)
        with following:
            events = list(following.events())
    assert [type(event) for _, event in events] == [AgentError]


def test_without_follow_a_lost_host_is_given_up_at_once(followed):
    locate.stop_daemons()  # it may not have noticed the cut yet, and use the connection
    followed.relay.cut()
    with followed.fleet() as fleet, pytest.raises(Unreachable, match="one: no SSH connection"):
        list(logs(fleet, followed.run))


def test_logs_reports_a_lost_host_and_its_return_and_shows_the_lines_between(followed):
    followed.write()
    with followed.project.start_command("logs", "-f", "-n", "5") as following:
        following.wait_for_output("line 49")
        followed.relay.cut()
        following.wait_for_output("retrying one until it answers; the run continues")
        followed.write()
        followed.relay.heal()
        following.wait_for_output("one answers again")
        following.wait_for_output("line 99")
        assert following.interrupt() == 130
        output = following.output
    shown = [line for line in output.splitlines() if "| line " in line]
    assert shown == [f"worker:0@one | line {number}" for number in range(45, 100)]


def test_a_connection_that_the_host_closes_is_opened_again(followed, sshds):
    with (
        followed.fleet() as fleet,
        fleet.follow(followed.run, followed.run.plan.placements, logs=True) as following,
    ):
        followed.listen(following)
        followed.write()
        followed.wait_for_last_line()
        sshds["one"].drop_connections()
        followed.write()
        followed.wait_for_last_line()
    assert followed.lines == followed.written
