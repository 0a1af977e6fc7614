"""Requests to one host that do not wait for each other: all are sent, and answered in turn.

What is fetched from one host comes in parts that share its round trips. A part is a generator that
sends its requests in a pipeline, and yields before it reads their answers: so all parts have sent
theirs before the first answer is waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from tfdeploy.errors import AgentExitedEarly, HostError
from tfdeploy.hosts.agent_session import ANSWER_TIMEOUT_S, SMALL, AgentExited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.agent_session import Answer, Query, Session
    from tfdeploy.shared.protocol.message import Request

A = TypeVar("A", covariant=True)
T = TypeVar("T", covariant=True)
Steps = Generator[None, None, T]


class Pipeline:
    """Requests in one session with an agent, which answers them in the order in which they were
    sent. Answers are read in this order too.

    A request is sent when an answer is read, or by `flush`: until then there is room for others in
    the same packet. At the end of the context the answers that nobody has read are read; after an
    exception the session is closed, and the agent may never see the last requests.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._session: Session | None = None
        self._first: Answer | None = None  # the answer that came with the session
        self._unsent: deque[Reply[object]] = deque()
        self._sent: deque[Reply[object]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._skip_until(None)
                session, self._session = self._session, None
                if session:
                    self.agent.reuse(session)
        finally:
            if self._session:
                self._session.close()

    def send(self, request: Request[A], timeout_s: float = ANSWER_TIMEOUT_S) -> Reply[A]:
        """Send a request; `timeout_s` limits the time until each of its answers."""
        reply = Reply(self, self.agent.query(request), timeout_s)
        self._unsent.append(reply)
        return reply

    def flush(self) -> None:
        """Send what is not sent yet, except requests that an agent might not have room for while it
        answers the ones before them."""
        waiting = sum(len(reply.data) for reply in self._sent)
        batch: list[Reply[object]] = []
        while self._unsent and waiting + len(self._unsent[0].data) <= SMALL:
            waiting += len(self._unsent[0].data)
            batch.append(self._unsent.popleft())
        if not batch and not self._sent and self._unsent:
            batch = [self._unsent.popleft()]
        self._sent += batch
        if batch and self._session:
            with suppress(HostError):  # if the agent has exited, reading its answer says why
                self._session.write(_join(batch))
        elif batch:
            first, rest = batch[0], memoryview(_join(batch[1:]))
            started = self.agent.begin(first.query, first.timeout_s, lambda: [rest])
            self._session, self._first = started

    def next_answer(self, reply: Reply[object]) -> Answer:
        """Return the next answer to a request, after those of the requests before it."""
        self._skip_until(reply)
        self.flush()
        answer, self._first = self._first, None
        if answer is not None:
            return answer
        assert self._session
        try:
            limit = reply.query.request.MAX_ANSWER_BYTES
            return self._session.answer(reply.timeout_s, limit)
        except AgentExited:
            raise AgentExitedEarly(self.agent.host) from None

    def finish(self, reply: Reply[object]) -> None:
        """Continue with the request after this one, whose last answer was read."""
        assert self._sent[0] is reply
        self._sent.popleft()

    def _skip_until(self, reply: Reply[object] | None) -> None:
        """Read the answers to the requests before this one: they are single ones."""
        self.flush()
        while self._sent and self._sent[0] is not reply:
            self._sent[0].answer()
            self.flush()


class Reply(Generic[A]):
    """What an agent answers to one request of a pipeline."""

    def __init__(self, pipeline: Pipeline, query: Query[A], timeout_s: float) -> None:
        self.query, self.timeout_s = query, timeout_s
        self.data = query.compressed
        self._pipeline = pipeline

    def answer(self) -> A:
        """Return the answer. Raises as `Agent.ask` does; others can be read after a refusal."""
        answer = self._pipeline.next_answer(self)
        self._pipeline.finish(self)
        return self._pipeline.agent.parse(self.query, answer)

    def answers(self) -> Iterator[A]:
        """Yield each answer of a stream. Raises as `answer` does."""
        while "end" not in (answer := self._pipeline.next_answer(self)):
            yield self._pipeline.agent.parse(self.query, answer)
        self._pipeline.finish(self)


def _join(replies: list[Reply[object]]) -> bytes:
    return b"".join(reply.data for reply in replies)


# Rounds


class RoundPart(Generic[T]):
    """One part; `results` has what it returned, once it has ended. `is_unfinished` says whether it
    can be run again: it has neither ended nor failed."""

    def __init__(self, fetch: Callable[[Pipeline], Steps[T]]) -> None:
        self._fetch = fetch
        self.is_unfinished = True
        self.results: list[T] = []

    def begin(self, pipeline: Pipeline) -> None:
        self._steps = self._fetch(pipeline)

    def advance(self) -> bool:
        """Run the part until it waits for answers again; return False when it has ended."""
        self.is_unfinished = False
        try:
            next(self._steps)
        except StopIteration as end:
            self.results = [end.value]
            return False
        self.is_unfinished = True
        return True

    def close(self) -> None:
        """End the part, whether it has finished or not."""
        self._steps.close()


def run_parts(agent: Agent, parts: Sequence[RoundPart[object]]) -> None:
    """Run parts to their end, in rounds of one pipeline. If one fails, the others are run once
    more, one after the other; then its error is raised."""
    try:
        with Pipeline(agent) as pipeline:
            run_rounds(pipeline, parts)
    except (HostError, OSError):
        with suppress(HostError, OSError):
            for part in [part for part in parts if part.is_unfinished]:
                run_parts(agent, [part])
        raise


def run_rounds(pipeline: Pipeline, parts: Sequence[RoundPart[object]]) -> None:
    """Run parts of a pipeline to their end, in rounds. If one fails, all end."""
    running = list(parts)
    for part in parts:
        part.begin(pipeline)
    try:
        while running:
            running = [part for part in running if part.advance()]
    finally:
        for part in parts:
            part.close()


def run_alone(agent: Agent, fetch: Callable[[Pipeline], Steps[T]]) -> T:
    """Run one part in a pipeline of its own; return its result."""
    part = RoundPart(fetch)
    run_parts(agent, [part])
    return part.results[0]
