"""A supervisor that gets validly signed messages with any JSON in them: a host of the run lies."""

from __future__ import annotations

import json
import os
import random
import tempfile
import threading
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from unittest import mock

from support.builders import make_heartbeat_settings, make_launch

from tfdeploy.agent.machine import peers
from tfdeploy.agent.machine.peers import PeerList
from tfdeploy.agent.supervision import membership
from tfdeploy.agent.supervision.heartbeat import signing
from tfdeploy.agent.supervision.heartbeat.messages import Answer
from tfdeploy.shared import records
from tfdeploy.shared.records import TaskState

FOLDER = tempfile.TemporaryDirectory(dir="/dev/shm")  # each input writes files
FILE = os.path.join(FOLDER.name, "file")
SETTINGS = make_heartbeat_settings(replicas=["ps:0"], secret="s3cret")
STATE = TaskState("READY", 0.0)
QUESTION = {
    "sent_ns": 1 << 60, "state": "FAILED", "reason": "exit 1", "cause": "", "restarts": 1,
    "sources": ["192.0.2.7", "::1"], "known_lists": "", "stops_run": True, "silent": False,
    "advance": True, "file": "model-7.index", "offset": 0,
}  # fmt: skip
OFFER = {"name": "model-7", "size": 3, "files": [{"path": "model-7.index", "size": 3}]}
ANSWER = {
    "ended": {"state": "FAILED", "reason": "exit 1"}, "checkpoint": OFFER, "outputs": OFFER,
    "lists": "f00d", "unfinished": ["ps:0", "worker:1"], "sources": ["192.0.2.7"],
    "seen_from": "192.0.2.8", "advance": 7, "size": 0, "sha256": "",
}  # fmt: skip
QUESTIONS, ANSWERS = [json.dumps(QUESTION).encode()], [json.dumps(ANSWER).encode()]
VALUES = [
    None, True, False, 0, -1, 3, 1 << 62, 1 << 70, 10**400, -0.5, 1e999, -1e999, float("nan"),
    "", "\0", "\ud800", "\n", "x" * 12_000, "READY", "FAILED", "STOPPED", "SUCCEEDED", "ps:0",
    "worker:0", "../..", "example.org", "localhost", "192.0.2.9", "::ffff:192.0.2.9", "0.0.0.0",
]  # fmt: skip


def any_json(chance: random.Random, depth: int = 0) -> object:
    kind = chance.randrange(4 if depth < 3 else 2)
    if kind < 2:
        return chance.choice(VALUES)
    values = [any_json(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 2:
        return values * chance.choice([1, 1, 300 if depth == 2 else 1])
    return {str(chance.choice(["name", "path", "size", "state", ""])): value for value in values}


def change(body: dict, data: bytes) -> object:
    """Return the JSON of `data`, or, if it is none, the body with other values in some fields."""
    with suppress(ValueError, RecursionError):
        return json.loads(data)
    chance = random.Random(data)
    fields = chance.sample([*body, "more"], chance.randrange(1, 5))
    changed = {**body, **{name: any_json(chance) for name in fields}}
    for name in chance.sample([*body], chance.randrange(2)):
        del changed[name]
    return changed


class Connection:
    """A connection to the chief's supervisor on which one line has arrived."""

    def __init__(self, line: bytes) -> None:
        self._line = line

    def receive_line(self, max_bytes: int) -> bytes:
        return self._line.rstrip(b"\n")

    def peer_address(self) -> str:
        return "192.0.2.66"

    def send(self, data: bytes) -> None:
        pass


@cache
def member(task: str):
    """Return the membership of a task, without its threads."""
    job, index = task.split(":")
    launch = make_launch(job=job, index=int(index), heartbeat=SETTINGS)
    with mock.patch.object(threading.Thread, "start"):
        return membership.join(launch, FOLDER.name, lambda: STATE, list)


def read_question(data: bytes) -> None:
    """Send a task's message to the chief's supervisor, which then looks at its run."""
    chief, settings = member("worker:0"), SETTINGS.of("ps:0")
    body = change(QUESTION, data)
    line = signing.sign(settings.secret, signing.REQUEST, "ps:0", "0" * 32, body)
    chief._server.reports["ps:0"] = chief._server.reports["worker:1"]
    with suppress(signing.Untrusted, ValueError):  # ValueError: such a file is not offered
        chief._server._answer(Connection(line))
    act(chief)
    chief.failed_task()
    for report in chief._server.reports.values():
        records.write(FILE, records.to_json(report.task_state()))


def read_answer(data: bytes) -> None:
    """Let the chief's supervisor answer, and a task's supervisor act on it."""
    other, settings = member("ps:0"), SETTINGS.of("ps:0")
    line = signing.sign(settings.secret, signing.ANSWER, "worker:0", "0" * 32, change(ANSWER, data))

    def request(*_) -> tuple:
        body = signing.verify(lambda sender: settings.secret, signing.ANSWER, line)[2]
        return body, b""

    other._client.answer, other._client.ended_at = Answer(), None
    with mock.patch.object(signing, "request", request):
        other._client.send()
        act(other)
        other.progress_count()
    for offer in filter(None, (other._client.answer.checkpoint, other._client.answer.outputs)):
        texts = [offer.name, *(file.path for file in offer.files)]
        assert all(isinstance(text, str) for text in texts)


def is_local(address: str) -> bool:
    """Fail for a name: the kernel would not be asked, but a name server."""
    ip_address(address)
    return False


def act(supervisor) -> None:
    """Do what a supervisor does at each tick."""
    with mock.patch.object(peers, "_is_local", is_local):
        PeerList(FILE, ["192.0.2.1"]).add(supervisor.sources())
    order = supervisor.order()
    if order is not None:
        records.write(FILE, records.to_json(TaskState(order.state, 0.0, reason=order.reason)))
    assert len(Path(FILE).read_bytes()) < 1 << 16
