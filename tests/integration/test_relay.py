"""A release of many bytes leaves home once, and passes from host to host; every hop is checked."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tfdeploy import inventory
from tfdeploy.fleet import Fleet
from tfdeploy.remote import Agent
from tfdeploy.steps import push as pushing
from tfdeploy.steps import relay
from tfdeploy.steps.plan import plan_all
from tfdeploy.steps.push import push

from .projects import Project
from .sshd import ADDRESS, free_ports, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BIG = 3 << 20
HOSTS = ("one", "two", "three", "here")
ALL = set(HOSTS)


@pytest.fixture(autouse=True)
def small_is_big(monkeypatch):
    monkeypatch.setattr(pushing, "RELAYED", BIG)


@pytest.fixture
def project(tmp_path: Path, ssh_config: Path) -> Project:
    """Three hosts by SSH and this machine, each with a folder and ports of its own, and 4 MB."""
    hosts = {
        name: {
            "transport": "local" if name == "here" else "ssh", "address": ADDRESS, "workers": 1,
            "directory": str(tmp_path / name), "ports": free_ports(3),
        }
        for name in HOSTS
    }  # fmt: skip
    top = {"ssh_config": str(ssh_config), "source": {"exclude": ["/*.toml"]}}
    made = Project(tmp_path / "project", hosts, top)
    for part in range(4):
        (made.folder / f"weights-{part}").write_bytes(os.urandom(BIG // 3))
    return made


@contextmanager
def counted(monkeypatch) -> Iterator[dict[str, list[str]]]:
    """The hosts that were asked each verb, and went well."""
    asked: dict[str, list[str]] = {}
    lock = threading.Lock()
    begin = Agent.begin

    def counting(self, question, *rest):
        session, answer = begin(self, question, *rest)
        if not {"refused", "failed"} & answer.keys():
            with lock:
                asked.setdefault(question.split(b'"')[1].decode(), []).append(self.host)
        return session, answer

    with monkeypatch.context() as patch:
        patch.setattr(Agent, "begin", counting)
        yield asked


def pushed(project: Project, monkeypatch) -> dict[str, list[str]]:
    intent = plan_all(inventory.load(project.folder / "hosts.toml"))
    with Fleet(intent.inventory) as fleet, counted(monkeypatch) as asked:
        push(fleet, intent)
    whole = {path: (project.folder / path).read_bytes() for path in intent.release.manifest}
    for host in project.hosts:
        there = project.on(host) / "releases" / intent.release.id
        assert {path: (there / path).read_bytes() for path in whole} == whole
        assert not list(there.parent.glob(".*"))
    return asked


def ports(project: Project) -> list[int]:
    return [port for host in project.hosts.values() for port in host["ports"]]


def listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_home_sends_it_once(project, monkeypatch):
    asked = pushed(project, monkeypatch)
    assert len(asked["take"]) == 1
    assert set(asked["take"]) | set(asked["fetch"]) == ALL
    assert len(asked["fetch"]) == len(HOSTS) - 1
    assert len(asked["share"]) == len(set(asked["share"]))  # once a host, however many fetch
    until(lambda: not any(map(listens, ports(project))), "the end of what was shared")


def test_a_host_that_has_it_already_spares_home_the_sending(project, monkeypatch):
    whole = dict(project.hosts)
    project.hosts = {"one": whole["one"]}
    project.write()
    pushed(project, monkeypatch)
    project.hosts = whole
    project.write()
    asked = pushed(project, monkeypatch)
    assert asked.get("take", []) in ([], ["two"])  # asked before `one` has said that it has it
    assert len(asked["fetch"]) >= len(HOSTS) - 2


def test_a_small_change_comes_from_home(project, monkeypatch):
    pushed(project, monkeypatch)
    (project.folder / "train.py").write_text("print('changed')")
    asked = pushed(project, monkeypatch)
    assert set(asked["take"]) == ALL
    assert "fetch" not in asked


def test_a_host_that_others_can_not_reach_is_not_fetched_from_again(project, monkeypatch):
    for name in ("one", "two"):
        project.hosts[name]["address"] = "nowhere.invalid"
    monkeypatch.setattr(relay, "AT_ONCE", 1)
    asked = pushed(project, monkeypatch)
    assert set(asked["take"]) | set(asked.get("fetch", [])) == ALL


def test_without_relay_home_sends_to_all(project, monkeypatch):
    project.top["source"]["relay"] = False
    project.write()
    asked = pushed(project, monkeypatch)
    assert set(asked["take"]) == ALL
    assert "fetch" not in asked
