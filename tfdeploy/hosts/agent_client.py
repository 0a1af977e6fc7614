"""The client of a host's agent: send the agent if it is missing, send requests, read answers."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from tfdeploy.errors import (
    AgentError,
    AgentExitedEarly,
    CommandTimedOut,
    HostError,
    LeaseConflict,
    NewerRun,
    Note,
    OutdatedRecord,
    RunBeingChanged,
    RunDeleted,
)
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.hosts import agent_bundle
from tfdeploy.hosts.agent_bundle import current_version
from tfdeploy.hosts.agent_session import (
    ANSWER_TIMEOUT_S,
    AgentExited,
    Answer,
    Query,
    Session,
    query,
)
from tfdeploy.hosts.answers import read_answer
from tfdeploy.hosts.byte_progress import Transfers
from tfdeploy.hosts.login_shell import CHECK_AFTER_S, SLOW, START_S, LoginShell, never_starts, probe
from tfdeploy.shared.protocol.message import (
    ABSENT,
    RECORD,
    Invalid,
    Request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tfdeploy.config.inventory import Host
    from tfdeploy.run import Run
    from tfdeploy.transport import Transport

    Payload = Callable[[], Iterable[memoryview]]  # called again if it has to be sent again

A = TypeVar("A")
_log = logging.getLogger(__name__)


class Agent:
    """The agent of one host. A run is always asked with the `version` that started it. Until it has
    answered once, it compares the controller's `record` of the run with its own.

    Its process is used again for the next request, so there is one for each host, or as many as
    there are requests at the same time.
    """

    def __init__(
        self,
        transport: Transport,
        host: Host,
        version: str | None = None,
        record: Run | None = None,
    ) -> None:
        self.transport = transport
        self.host = host.name
        self.root = host.root
        self.store = host.store
        self.transfers = Transfers()  # the fleet sets its own
        self._python = host.python
        self._path = agent_bundle.path_below_home(self.root, version or current_version())
        self._current = version in (None, current_version())
        self._record = record
        self._idle: list[Session] = []
        self._lock = threading.Lock()

    def ask(self, request: Request[A], timeout_s: float = ANSWER_TIMEOUT_S) -> A:
        """Send a request and return its answer.

        Raises AgentError if the agent refuses or its answer is invalid, otherwise HostError.
        """
        return self.ask_encoded(self.query(request), timeout_s)

    def ask_encoded(
        self, query: Query[A], timeout_s: float = ANSWER_TIMEOUT_S, payload: Payload = tuple
    ) -> A:
        """As `ask`, for a request that is encoded already; `payload()` is sent after it."""
        session, answer = self.begin(query, timeout_s, payload)
        self.reuse(session)
        return self.parse(query, answer)

    def stream(self, request: Request[A], silence_s: float | None = None) -> AnswerStream[A]:
        """Send a request that has many answers. `silence_s` limits the time between two of them
        (None: no limit)."""
        return self.stream_encoded(self.query(request), silence_s)

    def stream_encoded(self, query: Query[A], silence_s: float | None = None) -> AnswerStream[A]:
        """As `stream`, for a request that is encoded already."""
        return AnswerStream(self, query, silence_s)

    def query(self, request: Request[A]) -> Query[A]:
        """Encode a request for this agent."""
        run = self._record
        if not run:
            return query(request)
        record = (run.inventory.project, run.id, run.starts, run.launched, _newest(run))
        return query(request, **{RECORD: record})

    def park(self) -> None:
        """Release the sessions; the connection daemon may keep them."""
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.keep()

    def close(self) -> None:
        self.park()
        self.transport.close()

    def begin(
        self, query: Query[A], timeout_s: float | None, payload: Payload = tuple
    ) -> tuple[Session, Answer]:
        """Send a query; return its session and the first answer, not yet parsed. If the host has no
        agent, send it first."""
        data, was_sent = query.compressed, False
        started = time.monotonic()
        while True:
            request = query.request
            session = self._session(repeatable=request.REPEATABLE or request.READS_RUN)
            try:
                with suppress(HostError):  # if the agent has exited, reading its answer says why
                    session.write(data, payload())
                answer = self._wait(session, timeout_s, query.request.MAX_ANSWER_BYTES)
                _log.debug("%s: %s: %d bytes sent, %d received, %.3f s", self.host,
                           query.request.TAG, session.sent_bytes, session.answer_bytes,
                           time.monotonic() - started)  # fmt: skip
                if not self._names_no_run(answer):
                    return session, answer
                self.reuse(session)
                data = self.query(query.request).compressed
                continue
            except AgentExited as exited:
                session.close()
                if was_sent or exited.command.exit != ABSENT:
                    raise agent_bundle.no_answer(
                        self.transport, self._path, self._python, exited.command
                    ) from None
            except BaseException as error:
                reason, took_s = str(error) or type(error).__name__, time.monotonic() - started
                _log.info("%s: %s: %s after %.3f s", self.host, query.request.TAG, reason, took_s)
                session.close()
                raise
            self._send_agent()
            was_sent = True

    def _names_no_run(self, answer: Answer) -> bool:
        """Return whether the host refuses because of a newer run that no controller can have made
        by now. That is ignored, with a note: from now on the host is not asked for one."""
        run, newer = self._record, str(answer.get("newer", ""))
        if not (newer and run and run.known_newer is not None) or run.may_be_beside(newer):
            return False
        text = f"ignored run {escape_line(newer[:40])} of {self.host}: its date is impossible, or "
        warnings.warn(f"{text}more than a day ahead", Note, stacklevel=2)
        self._record = replace(run, known_newer=None)
        return True

    def _wait(self, session: Session, timeout_s: float | None, max_bytes: int) -> Answer:
        """Return an answer. If a new session gives none for a while, check the login shell."""
        if not session.has_answered and (timeout_s is None or timeout_s > CHECK_AFTER_S):
            try:
                return session.answer(CHECK_AFTER_S, max_bytes)
            except CommandTimedOut:
                shell = probe(self.transport, self.host)
                if shell.problem:
                    raise shell.problem from None
                if not shell.runs:
                    return self._wait_for(shell, session, timeout_s, max_bytes)
        return session.answer(timeout_s, max_bytes)

    def _wait_for(
        self, shell: LoginShell, session: Session, timeout_s: float | None, max_bytes: int
    ) -> Answer:
        """Return the answer of an agent that the login shell has not started yet."""
        _log.warning("%s: %s", self.host, SLOW)
        left_s = min(timeout_s or START_S, START_S)
        try:
            return session.answer(left_s, max_bytes)
        except CommandTimedOut:
            if not probe(self.transport, self.host).runs:
                raise never_starts(self.host, left_s, shell.printed) from None
            return session.answer(timeout_s, max_bytes)  # it has started

    def _session(self, *, repeatable: bool) -> Session:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        argv = agent_bundle.serving(self._path, self._python)
        return Session(self.host, self.transport.stream(argv, repeatable=repeatable))

    def reuse(self, session: Session) -> None:
        """Keep a session, which has answered, for the next request."""
        with self._lock:
            self._idle.append(session)

    def _send_agent(self) -> None:
        if not self._current:
            raise AgentError(
                self.host,
                f"the agent that started this run is gone ({self._path})",
                "was the directory on the host deleted?",
            )
        _log.debug("%s: it has no agent of this version; sending it", self.host)
        agent_bundle.send(self.transport, self._path, self._python)

    def parse(self, query: Query[A], answer: Answer) -> A:
        """Return an answer as its class. Raises AgentError for a refusal or an invalid answer."""
        self._raise_refusal(query, answer)
        try:
            return read_answer(query.request, answer)
        except Invalid as error:
            raise AgentError(self.host, f"invalid answer: {error}") from None

    def _raise_refusal(self, query: Query[A], answer: Answer) -> None:
        if "refused" in answer:
            message, hint = str(answer["refused"]), str(answer.get("hint", ""))
            if answer.get("busy") is True:
                raise LeaseConflict(self.host, message, hint, str(answer.get("held_by", "")))
            if answer.get("outdated") is True and self._record:
                run, file = self._record, self._record.inventory.file
                message = f"run {run.id} was resumed or scaled since the controller's record of it"
                hint = f"tfdeploy status {run.flags} takes the newer record"
                raise OutdatedRecord(
                    self.host, message, hint, run.id, run.starts, file, run.launched
                )
            run_id = str(answer.get("newer", ""))
            if self._record and self._record.may_be_beside(run_id):
                run, file = self._record, self._record.inventory.file
                message = f"it has run {run_id}, which is newer than run {run.id}"
                hint = f"name the run that you mean: --run {run_id} or --run {run.id}"
                raise NewerRun(self.host, message, hint, run_id, run.id, file)
            if answer.get("changing") is True:
                raise RunBeingChanged(self.host, message, hint)
            kind = RunDeleted if answer.get("deleted") is True else AgentError
            raise kind(self.host, message, hint)
        if "failed" in answer:
            raise AgentError(self.host, f"the agent failed: {answer['failed']}")
        self._record = None


def _newest(run: Run) -> dict[str, object] | None:
    """Return what a host compares with its newest run; None if the user has named this one."""
    if run.known_newer is None:
        return None
    file = run.inventory.file
    return {"known": run.known_newer, "folder": str(file.parent.resolve()), "file": file.name}


class AnswerStream(Generic[A]):
    """The answers of an agent to one request, as they come. Any thread may end or close it."""

    def __init__(self, agent: Agent, query: Query[A], silence_s: float | None = None) -> None:
        self._agent = agent
        self._query = query
        self._silence_s = silence_s
        self._session: Session | None = None
        self._finishing = False
        self._next: Query[object] | None = None
        self.next_answer: object = None
        self.answer_bytes = 0  # of the last answer, as it was received
        self._lock = threading.Lock()

    def open(self, timeout_s: float = ANSWER_TIMEOUT_S) -> A:
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
            raise AgentExitedEarly(self._agent.host) from None
        finally:
            self.close()  # if the session is not reused

    def finish(self) -> None:
        """Ask the agent to finish: its last answer still arrives."""
        self._finishing = True
        session = self._session
        if session:
            with suppress(HostError):
                session.finish()

    def finish_with(self, request: Request[object]) -> None:
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
                    session.write(query.data)

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
        """Read the answer to the next request, if there is one, and keep the session, unless
        another thread has closed it."""
        with self._lock:
            query = self._next
            if query is None:
                idle, self._session = self._session, None
        if query is not None:
            answer = session.answer(ANSWER_TIMEOUT_S, query.request.MAX_ANSWER_BYTES)
            idle, self._session = self._session, None
            self.next_answer = self._agent.parse(query, answer)
        if idle:
            self._agent.reuse(idle)
