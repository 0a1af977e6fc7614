"""A start reports what follows, and a late one starts nothing."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from support.builders import eventually, make_heartbeat_settings, make_inventory, make_launch
from support.ports import free_port
from support.releases import write_manifest

from tfdeploy.errors import AgentError
from tfdeploy.hosts import agent_bundle
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.hosts.agent_session import query
from tfdeploy.shared.protocol.message import MARK
from tfdeploy.shared.protocol.preflight import Ports
from tfdeploy.shared.protocol.reports import Started, StateChange
from tfdeploy.shared.protocol.runs import RunRecord, Start, Stop
from tfdeploy.shared.records import READY
from tfdeploy.transport.local import LocalTransport

if TYPE_CHECKING:
    from pathlib import Path

RUN = "import os, sys, time; os.write(os.open(sys.argv[1], 1025), b'x'); time.sleep(600)"


class Here:
    """This machine as a host. `starts` gains a byte each time that a task's process starts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        # Of its own: stop ends all processes of this machine that have the task's mark.
        self.project = f"p{secrets.token_hex(4)}"
        self.starts = home / "starts"
        self.starts.touch()
        self.folder = home / ".tfdeploy" / self.project
        release = self.folder / "releases" / "f00d"
        release.mkdir(parents=True)
        (release / "train.py").touch()
        write_manifest(release)
        with closing(self.agent()) as agent:
            agent.ask(Ports(1))  # sends the agent

    def agent(self) -> Agent:
        """An agent with a process of its own, as over another connection."""
        host = make_inventory('[hosts.here]\ntransport = "local"').hosts[0]
        return Agent(LocalTransport("here"), host)

    def request(self, starts: int = 1, **changes) -> Start:
        argv = [sys.executable, "-S", "-c", RUN, os.fspath(self.starts)]
        heartbeat = make_heartbeat_settings(
            port=free_port(), tasks=["worker:0", "worker:1"], needed=["worker:1"]
        )
        launches = [
            make_launch(
                project=self.project,
                index=index,
                argv=argv,
                ready="process",
                heartbeat=heartbeat,
                **changes,
            )
            for index in (0, 1)
        ]
        return Start(launches, RunRecord(starts, "{}", ""))

    def stop(self) -> None:
        with closing(self.agent()) as agent:
            agent.ask(Stop(self.project, "r", ["worker:1", "worker:0"]))


@pytest.fixture
def here(home):
    here = Here(home)
    yield here
    here.stop()


def answer(here: Here, request: Start) -> object:
    """Return the first answer of another agent, or its refusal."""
    with closing(here.agent()) as agent:
        stream = agent.stream(request)
        try:
            return stream.open()
        except AgentError as refused:
            return refused
        finally:
            stream.close()


def both_ready(stream) -> bool:
    ready: set[str] = set()
    for event in stream:
        if isinstance(event, StateChange) and event.state.state == READY:
            ready.add(event.state.task)
        if len(ready) == 2:
            return True
    return False


def test_a_start_reports_what_follows_until_the_next_request(here):
    agent = here.agent()
    stream = agent.stream(here.request())
    assert isinstance(stream.open(), Started)
    assert both_ready(stream)
    stream.close()
    assert eventually(lambda: here.starts.stat().st_size == 2)


def test_the_next_start_of_the_run_is_another_one(here):
    answer(here, here.request())
    assert eventually(lambda: here.starts.stat().st_size == 2)
    refused = answer(here, here.request(starts=2))
    assert "worker:0 of run r is already running" in str(refused)
    here.stop()
    assert isinstance(answer(here, here.request(starts=2)), Started)
    assert eventually(lambda: here.starts.stat().st_size == 4)


def test_a_start_of_a_controller_that_has_hung_up_starts_nothing(here):
    """The network delivers a request after its connection was given up."""
    agent = here.home / ".tfdeploy" / "agent" / agent_bundle.current_version()
    read_end, write_end = os.pipe()
    os.write(write_end, query(here.request()).data)
    os.close(write_end)
    with os.fdopen(read_end) as stdin:
        command = [sys.executable, "-S", "-E", os.fspath(agent), "serve"]
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=600)
    assert json.loads(done.stdout.removeprefix(MARK))["refused"] == (
        "the controller hung up before the start"
    )
    assert not (here.folder / "runs").exists()
