"""A session is used again only if nobody has closed it; a host can't name an impossible run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.builders import make_run

from tfdeploy.errors import NewerRun, Note
from tfdeploy.hosts.agent_client import Agent, AnswerStream
from tfdeploy.hosts.agent_session import query
from tfdeploy.shared.protocol.message import RECORD
from tfdeploy.shared.protocol.preflight import Ports

PORTS = {"tag": "free_ports", "ports": [1]}


class FakeSession:
    """A session that answers twice; `on_last` is called with the last answer."""

    answer_bytes = 1

    def __init__(self, on_last):
        self.is_closed, self._on_last = False, on_last

    def answer(self, timeout_s, max_bytes):
        self._on_last()
        return {"end": True}

    def close(self):
        self.is_closed = True


class FakeAgent:
    host = "gpu1"

    def __init__(self, session):
        self.reused, self._session = [], session

    def begin(self, query, timeout_s):
        return self._session, {"ports": [1]}

    def parse(self, query, answer):
        return answer

    def reuse(self, session):
        self.reused.append(session)


@pytest.mark.parametrize("closes", [False, True])
def test_a_stream_that_another_thread_closes_gives_no_session_back(closes):
    session = FakeSession(lambda: stream.close() if closes else None)
    agent = FakeAgent(session)
    stream = AnswerStream(agent, query(Ports(1)))
    assert [*stream] == [{"ports": [1]}]
    assert session.is_closed == closes
    assert agent.reused == ([] if closes else [session])


def test_an_impossible_newer_run_is_ignored_and_the_host_is_asked_again(tmp_path):
    run = replace(make_run(tmp_path), known_newer=())
    sent, answers = [], [{"refused": "no", "newer": "99991231-235959-ffff"}, PORTS]

    class Once(FakeSession):
        sent_bytes = 0
        has_answered = True

        def write(self, data, payload):
            sent.append(json.loads(data)[1][RECORD][-1])

        def answer(self, timeout_s, max_bytes):
            return answers.pop(0)

    agent = Agent(None, run.inventory.hosts[0], record=run)
    agent.reuse(Once(None))
    with pytest.warns(Note, match="ignored run 99991231-235959-ffff of "):
        assert agent.ask(Ports(1)).ports == [1]
    assert [each is None for each in sent] == [False, True]


def test_a_possible_newer_run_is_named(tmp_path):
    agent = Agent(None, make_run(tmp_path).inventory.hosts[0], record=make_run(tmp_path))
    with pytest.raises(NewerRun, match="it has run 20260201-000000-aaaa"):
        agent.parse(query(Ports(1)), {"refused": "no", "newer": "20260201-000000-aaaa"})
