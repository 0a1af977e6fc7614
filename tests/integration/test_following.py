"""A following over a network that comes and goes: each line once, whatever is cut or rotated."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tfdeploy import run as runs
from tfdeploy.agent.tail import LOST
from tfdeploy.errors import AgentError, HostError, Unreachable
from tfdeploy.fleet import Fleet
from tfdeploy.steps.logs import logs

from .projects import Project
from .sshd import ADDRESS, Sshd, free_ports, public, until, write_ssh_config

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Relay:
    """The network between us and an sshd: it can be cut, which both sides notice, and healed."""

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


class Place:
    """A run of one worker that holds, behind a relay, and whatever its following told."""

    def __init__(self, project: Project, relay: Relay) -> None:
        self.project, self.relay = project, relay
        self.log = project.on("one") / "runs" / project.runs[-1] / "logs" / "worker-0.log"
        self.run = runs.load(project.folder / "hosts.toml")
        self.written: list[str] = []
        self.events: list[Any] = []
        until(lambda: "worker:0 step 1\n" in self.log.read_text(), "the task's own last line")

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
    def told(self) -> list[str]:
        lines = [line for event in self.seen if "lines" in event for line in event["lines"]]
        return [line for line in lines if line.startswith(("line ", LOST))]

    @property
    def seen(self) -> list[dict[str, Any]]:
        return [event for event in self.events if not isinstance(event, HostError)]

    @property
    def lost(self) -> int:
        return sum(isinstance(event, HostError) for event in self.events)

    @property
    def back(self) -> int:
        return sum("back" in event for event in self.seen)

    def all_told(self) -> None:
        last = self.written[-1]
        until(lambda: last in self.told, last)


@pytest.fixture
def network(tmp_path, keys, sshds: dict[str, Sshd]) -> Iterator[Relay]:
    relay = Relay(sshds["one"].port)
    entry = {"HostName": ADDRESS, "Port": str(relay.port)}
    known = tmp_path / "known_hosts"
    known.write_text(f"[{ADDRESS}]:{relay.port} {public(keys.host)}")
    write_ssh_config(tmp_path / "ssh_config", keys, known, {"one": entry})
    yield relay
    relay.cut()


@pytest.fixture
def place(tmp_path: Path, network: Relay) -> Iterator[Place]:
    host = {
        "workers": 1, "ports": free_ports(2), "address": ADDRESS, "python": sys.executable,
        "directory": str(tmp_path / "host"),
    }  # fmt: skip
    top = {"ssh_config": str(tmp_path / "ssh_config"), "source": {"exclude": ["/*.toml"]}}
    project = Project(tmp_path / "project", {"one": host}, top, flags=["--hold", "--steps=1"])
    project.ok("push")
    project.ok("start")
    yield Place(project, network)
    project.end()


def test_each_line_is_told_once_whenever_the_network_is_cut_and_the_log_is_rotated(place):
    with (
        place.fleet() as fleet,
        fleet.follow(place.run, place.run.plan.placements, logs=True) as following,
    ):
        place.listen(following)
        place.write()
        place.all_told()
        for _ in range(2):
            place.relay.cut()
            place.write()
            place.rotate()
            place.write()
            place.relay.heal()
            place.write()
            place.all_told()
        place.rotate()
        place.write()
        place.all_told()
    assert place.told == place.written
    assert (place.lost, place.back) == (2, 2)


def test_a_cut_in_the_middle_of_many_lines_loses_and_doubles_none(place):
    with (
        place.fleet() as fleet,
        fleet.follow(place.run, place.run.plan.placements, logs=True) as following,
    ):
        place.listen(following)
        place.write()
        place.all_told()
        place.write(200_000)
        until(lambda: len(place.told) > 1000, "some of them")
        place.relay.cut()
        place.relay.heal()
        place.all_told()
    assert place.told == place.written


def test_a_host_that_has_told_nothing_yet_tells_what_came_while_it_was_away(place):
    with (
        place.fleet() as fleet,
        fleet.follow(place.run, place.run.plan.placements, logs=True, lines=0) as following,
    ):
        place.listen(following)
        until(lambda: place.events, "the first state")
        place.relay.cut()
        until(lambda: place.lost, "the loss")
        place.write()
        place.relay.heal()
        place.all_told()
    assert place.told == place.written


def test_where_a_log_was_rotated_away_meanwhile_that_is_told_once(place):
    with (
        place.fleet() as fleet,
        fleet.follow(place.run, place.run.plan.placements, logs=True) as following,
    ):
        place.listen(following)
        place.write()
        place.all_told()
        place.relay.cut()
        for _ in range(3):
            place.write()
            place.rotate()
        place.write()
        place.relay.heal()
        place.all_told()
    assert place.told == [*place.written[:50], LOST, *place.written[150:]]


def test_a_host_that_could_not_be_reached_at_first_is_followed_when_it_can(place):
    place.relay.cut()
    place.write()
    with (
        place.fleet() as fleet,
        fleet.follow(place.run, place.run.plan.placements, logs=True) as following,
    ):
        place.listen(following)
        until(lambda: place.lost, "the loss")
        place.relay.heal()
        place.all_told()
    assert (place.told, place.lost, place.back) == (place.written, 1, 1)


def test_a_following_that_is_closed_asks_no_more(place):
    place.relay.cut()
    with (
        place.fleet() as fleet,
        fleet.follow(place.run, place.run.plan.placements, logs=True) as following,
    ):
        listening = place.listen(following)
        until(lambda: place.lost, "the loss")
    listening.join(timeout=30)
    assert not listening.is_alive()


def test_a_host_that_refuses_is_given_up(place):
    with Fleet(place.run.inventory, version="0123456789abcdef") as fleet:
        following = fleet.follow(place.run, place.run.plan.placements, logs=True)
        with following:
            events = list(following.events())
    assert [type(event) for _, event in events] == [AgentError]


def test_without_an_end_to_wait_for_a_lost_host_is_given_up_at_once(place):
    place.relay.cut()
    with place.fleet() as fleet, pytest.raises(Unreachable, match="one: no SSH connection"):
        logs(fleet, place.run, [], lambda *_: None, lines=None, forever=False)


def test_logs_says_that_a_host_is_lost_and_back_and_shows_what_came_between(place):
    place.write()
    with place.project.begun("logs", "-f", "-n", "5") as following:
        following.says("line 49")
        place.relay.cut()
        following.says("one is asked again until it answers; the run goes on")
        place.write()
        place.relay.heal()
        following.says("one answers again")
        following.says("line 99")
        assert following.interrupted() == 130
        said = following.said
    shown = [line for line in said.splitlines() if "| line " in line]
    assert shown == [f"worker:0@one | line {number}" for number in range(45, 100)]


def test_a_connection_that_its_own_side_kills_is_made_anew(place, sshds):
    with (
        place.fleet() as fleet,
        fleet.follow(place.run, place.run.plan.placements, logs=True) as following,
    ):
        place.listen(following)
        place.write()
        place.all_told()
        sshds["one"].hang_up()
        place.write()
        place.all_told()
    assert place.told == place.written
