"""Messages of a run's supervisors that a stranger has recorded, sent again after a resume and to
another run of the same hosts: what one launch has signed means nothing to another."""

from __future__ import annotations

import os
import socket
import time

import pytest
from support.projects import Project, local_hosts

from tfdeploy.agent import paths
from tfdeploy.agent.supervision.heartbeat import signing
from tfdeploy.shared import records
from tfdeploy.shared.records import Launch

pytestmark = pytest.mark.slow

REPORT = {
    "state": "FAILED", "reason": "exit 1", "sources": ["192.0.2.7"], "file": "model.ckpt-3.index"
}  # fmt: skip


def heartbeat_of(project):
    """Return the settings with which a task of the newest run signs."""
    return records.load(Launch, paths.launch(str(project.work("worker:1").parent))).heartbeat


def recorded(settings, body):
    """Return a message as it is on the network."""
    body = {**body, "sent_ns": time.monotonic_ns()}
    nonce = os.urandom(16).hex()
    return signing.sign(settings.secret, signing.REQUEST, settings.task, nonce, body)


def send(settings, line):
    """Send a recorded message to a run's chief; return what is answered."""
    with socket.create_connection((settings.address, settings.port), 30.0) as connection:
        connection.sendall(line)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_no_launch_answers_what_another_one_has_signed(tmp_path):
    project = Project(tmp_path / "project", local_hosts(tmp_path / "hosts"), flags=["--gate"])
    try:
        project.ok("push")
        project.ok("start")
        first = heartbeat_of(project)
        lines = [recorded(first, REPORT), recorded(first, {"file": "model.ckpt-3.index"})]
        question = recorded(first, {"advance": True})
        assert send(first, question)  # what the run itself says is answered, once
        assert send(first, question) == b""
        project.ok("stop")
        for command in ("resume", "start"):
            project.ok(command)
            now = heartbeat_of(project)
            assert now.secret != first.secret
            assert [send(now, line) for line in (*lines, question)] == [b"", b"", b""]
            assert {task["state"] for task in project.status().values()} == {"READY"}
            project.ok("stop")
    finally:
        project.end()
