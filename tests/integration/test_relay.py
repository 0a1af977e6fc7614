"""A large release leaves the controller once; hosts send it on, and each host verifies it."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.ports import ADDRESS, free_ports
from support.projects import Project
from support.waiting import until

from tfdeploy.commands.plan import plan_all
from tfdeploy.commands.push import push
from tfdeploy.config import inventory
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.transfer import relay, send

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

RELAY_BYTES = 3 << 20
HOSTS = ("one", "two", "three", "here")
ALL = set(HOSTS)


@pytest.fixture(autouse=True)
def relay_small_releases(monkeypatch):
    monkeypatch.setattr(send, "RELAY_BYTES", RELAY_BYTES)


@pytest.fixture
def project(tmp_path: Path, ssh_config: Path) -> Project:
    """A project of 4 MB on three hosts by SSH and this machine, each with its own directory."""
    hosts = {
        name: {
            "transport": "local" if name == "here" else "ssh", "address": ADDRESS, "workers": 1,
            "directory": str(tmp_path / name), "ports": free_ports(3),
        }
        for name in HOSTS
    }  # fmt: skip
    top = {"ssh_config": str(ssh_config), "source": {"exclude": ["/*.toml"]}}
    project = Project(tmp_path / "project", hosts, top)
    for part in range(4):
        (project.folder / f"weights-{part}").write_bytes(os.urandom(RELAY_BYTES // 3))
    return project


@contextmanager
def count_requests(monkeypatch) -> Iterator[dict[str, list[str]]]:
    """Yield the hosts that answered each verb without an error."""
    requests: dict[str, list[str]] = {}
    lock = threading.Lock()
    begin = Agent.begin

    def count(self, question, *rest):
        session, answer = begin(self, question, *rest)
        if not {"refused", "failed"} & answer.keys():
            with lock:
                requests.setdefault(question.data.split(b'"')[1].decode(), []).append(self.host)
        return session, answer

    with monkeypatch.context() as patch:
        patch.setattr(Agent, "begin", count)
        yield requests


def push_and_verify(project: Project, monkeypatch) -> dict[str, list[str]]:
    intent = plan_all(inventory.load(project.folder / "hosts.toml"))
    with Fleet(intent.inventory) as fleet, count_requests(monkeypatch) as requests:
        push(fleet, intent)
    contents = {path: (project.folder / path).read_bytes() for path in intent.release.manifest}
    for host in project.hosts:
        release_folder = project.on(host) / "releases" / intent.release.id
        assert {path: (release_folder / path).read_bytes() for path in contents} == contents
        assert not list(release_folder.parent.glob(".*"))
    return requests


def ports(project: Project) -> list[int]:
    return [port for host in project.hosts.values() for port in host["ports"]]


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_the_controller_sends_a_large_release_once(project, monkeypatch):
    requests = push_and_verify(project, monkeypatch)
    assert len(requests["take"]) == 1
    assert set(requests["take"]) | set(requests["fetch"]) == ALL
    assert len(requests["fetch"]) == len(HOSTS) - 1
    assert len(requests["share"]) == len(
        set(requests["share"])
    )  # once for each host, however many fetch
    until(lambda: not any(map(listens, ports(project))), "the end of the shares")


def test_a_host_that_has_the_release_sends_it_instead_of_the_controller(project, monkeypatch):
    contents = dict(project.hosts)
    project.hosts = {"one": contents["one"]}
    project.write()
    push_and_verify(project, monkeypatch)
    project.hosts = contents
    project.write()
    requests = push_and_verify(project, monkeypatch)
    # One host may ask before `one` answers that it has the release.
    assert len(requests.get("take", [])) <= 1
    assert len(requests["fetch"]) >= len(HOSTS) - 2


def test_a_small_change_is_sent_by_the_controller(project, monkeypatch):
    push_and_verify(project, monkeypatch)
    (project.folder / "train.py").write_text("print('changed')")
    requests = push_and_verify(project, monkeypatch)
    assert set(requests["take"]) == ALL
    assert "fetch" not in requests


def test_no_host_fetches_again_from_a_host_that_can_not_be_reached(project, monkeypatch):
    for name in ("one", "two"):
        project.hosts[name]["address"] = "nowhere.invalid"
    monkeypatch.setattr(relay, "SENDS_PER_HOST", 1)
    requests = push_and_verify(project, monkeypatch)
    assert set(requests["take"]) | set(requests.get("fetch", [])) == ALL


def test_without_relay_the_controller_sends_to_all_hosts(project, monkeypatch):
    project.top["source"]["relay"] = False
    project.write()
    requests = push_and_verify(project, monkeypatch)
    assert set(requests["take"]) == ALL
    assert "fetch" not in requests
