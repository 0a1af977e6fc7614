"""Requests of a pipeline are answered in turn by the real agent, however large they are."""

from __future__ import annotations

import os

import pytest
from support.builders import make_inventory

from tfdeploy.errors import AgentError, AgentExitedEarly
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.hosts.pipeline import Pipeline
from tfdeploy.shared.protocol.reports import Logs, ReadFiles
from tfdeploy.shared.protocol.runs import ReadRecord
from tfdeploy.transport.local import LocalTransport

REFUSED = Logs("../..", "r")


class CountingTransport(LocalTransport):
    """Count the agents that were started."""

    started = 0

    def stream(self, argv, **how):
        self.started += 1
        return super().stream(argv, **how)


@pytest.fixture
def agent(home):
    host = make_inventory('[hosts.h]\ntransport = "local"').hosts[0]
    agent = Agent(CountingTransport("h"), host)
    agent.ask(Logs("p", "r"))  # sends the agent
    yield agent
    agent.close()


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(os.urandom(3_000_000))
    return str(tmp_path)


def read(folder, *names):
    return ReadFiles(folder, [(name, 0, "") for name in names], 1 << 30)


def paths(reply):
    return [piece.path for piece in reply.answers() if not piece.problem]


def test_all_requests_are_answered_in_turn_in_one_session(agent, folder):
    with Pipeline(agent) as pipeline:
        first = pipeline.send(Logs("p", "one"))
        second = pipeline.send(read(folder, "a"))
        third = pipeline.send(Logs("p", "two"))
        assert first.answer().folder.endswith("one/logs")
        fourth = pipeline.send(read(folder, "b"))
        assert paths(second) == ["a", "a", "a"]
        assert third.answer().folder.endswith("two/logs")
        assert paths(fourth) == ["b", "b", "b"]
    assert agent.ask(Logs("p", "three")).folder.endswith("three/logs")
    assert agent.transport.started == 2  # the first one only said that there was no agent


def test_requests_that_nobody_reads_are_answered_too(agent, folder):
    with Pipeline(agent) as pipeline:
        pipeline.send(Logs("p", "one"))
        wanted = pipeline.send(read(folder, "a"))
        pipeline.send(Logs("p", "two"))
        assert paths(wanted) == ["a", "a", "a"]
        pipeline.send(Logs("p", "three"))
    assert agent.ask(Logs("p", "four")).folder.endswith("four/logs")


def test_many_large_requests_with_large_answers_do_not_block_each_other(agent, folder):
    names = [os.urandom(30).hex() for _ in range(2_000)]  # these can't be compressed
    with Pipeline(agent) as pipeline:
        replies = [pipeline.send(read(folder, "a", *names, "b")) for _ in range(20)]
        for reply in replies:
            assert paths(reply) == ["a"] * 3 + ["b"] * 3


def test_a_host_without_the_agent_gets_it_and_then_all_requests(home):
    host = make_inventory('[hosts.h]\ntransport = "local"').hosts[0]
    agent = Agent(LocalTransport("h"), host)
    with Pipeline(agent) as pipeline:
        replies = [pipeline.send(Logs("p", name)) for name in ("one", "two")]
        assert [reply.answer().folder[-8:] for reply in replies] == ["one/logs", "two/logs"]
    agent.close()


def test_after_a_failed_request_the_others_are_answered(agent):
    with Pipeline(agent) as pipeline:
        failed, other = pipeline.send(ReadRecord("p", "absent")), pipeline.send(Logs("p", "r"))
        with pytest.raises(AgentError):
            failed.answer()
        assert other.answer().folder.endswith("r/logs")


def test_an_agent_that_exits_between_two_answers_is_an_error(agent, home):
    with pytest.raises(AgentExitedEarly), Pipeline(agent) as pipeline:
        pipeline.send(Logs("p", "one")).answer()
        os.rename(home / ".tfdeploy" / "agent", home / "gone")
        pipeline.send(Logs("p", "two")).answer()
