"""A session is used again only if nobody has closed it."""

from __future__ import annotations

import pytest

from tfdeploy.hosts.agent_client import AnswerStream
from tfdeploy.hosts.agent_session import query
from tfdeploy.shared.protocol.preflight import Ports


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
