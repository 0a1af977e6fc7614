"""The answers of one host's agent to one request, as they come."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tfdeploy.errors import AgentError, AgentExitedEarly, HostError
from tfdeploy.hosts.agent_session import TIMEOUT_S, AgentExited

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.agent_session import Answer, Query, Session
    from tfdeploy.shared.protocol.message import Request

A = TypeVar("A")


class AnswerStream(Generic[A]):
    """The answers to one request. Any thread may end or close it."""

    def __init__(self, agent: Agent, query: Query[A], silence_s: float | None = None) -> None:
        self._agent = agent
        self._query = query
        self._silence_s = silence_s
        self._session: Session | None = None
        self._finishing = False
        self._next: Query[Any] | None = None
        self.next_answer: Any = None
        self.answer_bytes = 0  # of the last answer, as it was received
        self._lock = threading.Lock()

    def open(self, timeout_s: float = TIMEOUT_S) -> A:
        """Send the request and return the first answer; iterating continues with the second one.

        Raises as Agent.ask does; after a refusal the agent can be asked again."""
        session, answer = self._agent.begin(self._query, timeout_s)
        if "refused" in answer:
            self._agent.reuse(session)
        else:
            self._session = session
        try:
            return self._agent.parse(self._query, answer)
        except AgentError:
            self.close()
            raise

    def __iter__(self) -> Iterator[A]:
        """Yield each answer. Raises AgentExitedEarly if the agent exits before it has finished."""
        session = self._session
        try:
            if session is None:
                session, answer = self._agent.begin(self._query, self._silence_s)
                self._session, self.answer_bytes = session, session.answer_bytes
                if self._finishing:
                    self.finish()
            else:
                answer = self._read(session)
            while "end" not in answer:
                yield self._agent.parse(self._query, answer)
                answer = self._read(session)
            self._end(session)
        except AgentExited:
            raise AgentExitedEarly(
                self._agent.host,
                "the agent exited before it finished its answer",
                "check whether it was killed or its directory deleted; tfdeploy status asks again",
            ) from None
        finally:
            self.close()  # if the session is not kept

    def finish(self) -> None:
        """Ask the agent to finish: its last answer still arrives."""
        self._finishing = True
        session = self._session
        if session:
            with suppress(HostError):
                session.finish()

    def finish_with(self, request: Request[Any]) -> None:
        """Ask the agent to finish, by the next request: its answer follows the last one of the
        stream, so both take one round trip. When the iteration has ended, `next_answer` is the
        answer, or None if the stream had ended before."""
        query = self._agent.query(request)
        self._finishing = True
        with self._lock:
            session = self._session
            if session:
                self._next = query
                with suppress(HostError):  # reading says why
                    session.send(query.data)

    def close(self) -> None:
        """Hang up."""
        session, self._session = self._session, None
        if session:
            session.close()

    def _read(self, session: Session) -> Answer:
        answer = session.answer(self._silence_s, self._query.request.MAX_ANSWER_BYTES)
        self.answer_bytes = session.answer_bytes
        return answer

    def _end(self, session: Session) -> None:
        """Read the answer to the next request, if there is one, and keep the session."""
        with self._lock:
            query = self._next
            if query is None:
                self._session = None
        if query is not None:
            answer = session.answer(TIMEOUT_S, query.request.MAX_ANSWER_BYTES)
            self._session = None
            self.next_answer = self._agent.parse(query, answer)
        self._agent.reuse(session)
