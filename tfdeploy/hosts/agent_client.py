"""The client of a host's agent: send the agent if it is missing, send requests, read answers."""

from __future__ import annotations

import base64
import posixpath
import re
import threading
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tfdeploy.errors import AgentError, CommandFailed, HostError, LeaseConflict, OutdatedRecord
from tfdeploy.hosts.agent_bundle import bundle, current_version, folder_check
from tfdeploy.hosts.agent_session import TIMEOUT_S, AgentExited, Answer, Query, Session, query
from tfdeploy.hosts.byte_progress import Transfers
from tfdeploy.hosts.streams.answer_stream import AnswerStream
from tfdeploy.shared.protocol.message import (
    ABSENT,
    ANOTHER_VERSION,
    RECORD,
    Invalid,
    Request,
    first_that_fits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tfdeploy.config.inventory import Host
    from tfdeploy.run import Run
    from tfdeploy.transport import CompletedCommand, Transport

    Payload = Callable[[], Iterable[memoryview]]  # called again if it has to be sent again

A = TypeVar("A")
NOT_WRITTEN = 95
FOREIGN = 94
UNSAFE = 93
# $1 is the agent's path, absolute or relative to the home directory; $2 the Python; $3 UNPACK. The
# shell finds the home directory, and stores the agent that it reads from its standard input. -S -E:
# neither the environment nor site-packages affect the agent. Supervisors change their directory, so
# SERVE makes the agent's path absolute. The owner of the agent's folder, or of the one around it,
# could replace what is run: both must belong to the user (test -O).
RESOLVE_HOME = 'cd "$HOME" && case $2 in "~/"*) set -- "$1" "$PWD/${2#??}" "$3" ;; esac'
SERVE = (
    f'{RESOLVE_HOME} && case $1 in /*) ;; *) set -- "$PWD/$1" "$2" ;; esac '
    f'&& test -d "$1" || exit {ABSENT}; test -O "$1" && test -O "${{1%/*}}" || exit {FOREIGN}; '
    'exec "$2" -S -E "$1" serve'
)
SEND_AGENT = (
    f'{RESOLVE_HOME} && umask 077 && mkdir -p "${{1%/*}}" || exit {NOT_WRITTEN}; '
    f'test -O "${{1%/*}}" || exit {FOREIGN}; archive=$(mktemp "$1.XXXXXX") && cat > "$archive" '
    f'|| exit {NOT_WRITTEN}; exec "$2" -S -E -c "$3" "$archive" "$1"'
)
# What dash, bash and BusyBox print before the reason for which they can't run a program.
SHELL_WORDS = re.compile(r"^tfdeploy: (?:exec: )?(?:line )?\d+: (?:exec: )?")
# Any Python 3 can run this, after agent/own_folders.py. The folder appears whole; a faster
# controller has stored the same.
UNPACK = f"""
import os, shutil, sys, zipfile
archive, folder = sys.argv[1:]
unsafe = find_unsafe(os.path.dirname(os.path.dirname(os.path.join(os.environ["HOME"], folder))))
if unsafe[0]:
    os.remove(archive)
    print(*unsafe, sep="\\n", file=sys.stderr)
    sys.exit({UNSAFE})
with zipfile.ZipFile(archive) as file:
    file.extractall(archive + ".d")
os.remove(archive)
try:
    os.rename(archive + ".d", folder)
except OSError:
    shutil.rmtree(archive + ".d")
    os.listdir(folder)
"""


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
        self._path = f"{_below_home(self.root)}/agent/{version or current_version()}"
        self._current = version in (None, current_version())
        self._record = record
        self._idle: list[Session] = []
        self._lock = threading.Lock()

    def ask(self, request: Request[A], timeout_s: float = TIMEOUT_S) -> A:
        """Send a request and return its answer.

        Raises AgentError if the agent refuses or its answer is invalid, otherwise HostError.
        """
        return self.ask_encoded(self.query(request), timeout_s)

    def ask_encoded(
        self, query: Query[A], timeout_s: float = TIMEOUT_S, payload: Payload = tuple
    ) -> A:
        """As `ask`, for a request that is encoded already; `payload()` is sent after it."""
        session, answer = self.begin(query, timeout_s, payload)
        self.reuse(session)
        return self.parse(query, answer)

    @property
    def is_current(self) -> bool:
        """Whether the agent is of this version of tfdeploy, and not one that started a run."""
        return self._current

    def stream(self, request: Request[A], silence_s: float | None = None) -> AnswerStream[A]:
        """Send a request that has many answers. `silence_s` limits the time between two of them
        (None: no limit)."""
        return self.stream_encoded(self.query(request), silence_s)

    def stream_encoded(self, query: Query[A], silence_s: float | None = None) -> AnswerStream[A]:
        """As `stream`, for a request that is encoded already."""
        return AnswerStream(self, query, silence_s)

    def query(self, request: Request[A]) -> Query[A]:
        """Encode a request for this agent."""
        more: dict[str, Any] = {} if self._current else {ANOTHER_VERSION: True}
        run = self._record
        if run:
            more[RECORD] = (run.inventory.project, run.id, run.starts)
            if self._current:  # an older agent knows only the number
                more[RECORD] += (run.launched,)
        return query(request, **more)

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
        try:
            return self._send(query, timeout_s, payload)
        except AgentExited as exited:
            if exited.command.exit != ABSENT:
                raise self._no_answer(exited.command) from None
        self._send_agent()
        try:
            return self._send(query, timeout_s, payload)
        except AgentExited as exited:
            raise self._no_answer(exited.command) from None

    def _send(
        self, query: Query[A], timeout_s: float | None, payload: Payload
    ) -> tuple[Session, Answer]:
        session = self._session(repeatable=query.request.REPEATABLE)
        try:
            with suppress(HostError):  # if the agent has exited, reading its answer says why
                session.send(query.compressed if self._current else query.data, payload())
            return session, session.answer(timeout_s, query.request.MAX_ANSWER_BYTES)
        except BaseException:
            session.close()
            raise

    def _session(self, *, repeatable: bool) -> Session:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        argv = ["sh", "-c", SERVE, "tfdeploy", self._path, self._python]
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
        # Base64: within quotes, a csh as login shell accepts no line break, and fish replaces two
        # backslashes by one.
        code = base64.b64encode(zlib.compress(f"{folder_check()}\n{UNPACK}".encode(), 9)).decode()
        unpack = f"import base64, zlib; exec(zlib.decompress(base64.b64decode('{code}')))"
        argv = ["sh", "-c", SEND_AGENT, "tfdeploy", self._path, self._python, unpack]
        command = self.transport.run(argv, stdin=bundle(), timeout_s=TIMEOUT_S)
        if command.exit == NOT_WRITTEN:
            raise CommandFailed(
                self.host,
                f"can't write {self._path}: {_last_line(command.stderr)}",
                "set the host's directory in hosts.toml to one that its user may write",
            )
        if command.exit != 0:
            raise self._no_answer(command)

    def _no_answer(self, command: CompletedCommand) -> HostError:
        if command.exit == FOREIGN:
            return CommandFailed(
                self.host,
                f"{posixpath.dirname(self._path)} belongs to another user, who could replace the "
                "agent",
                "set the host's directory in hosts.toml to a folder of your own",
            )
        if command.exit == UNSAFE:
            *_, unsafe, mend = ["", "", *command.stderr.decode(errors="replace").splitlines()]
            return CommandFailed(self.host, unsafe, mend)
        if command.exit in (126, 127):
            return CommandFailed(
                self.host,
                f"can't run {self._python}: {self._why_not_run(command.stderr)}",
                "set the host's python in hosts.toml to the path of a Python, 3.8 or newer",
            )
        return AgentError(
            self.host,
            f"the agent gave no answer (exit {command.exit}): {_last_line(command.stderr)}",
            f"check that {self._python}, the host's python in hosts.toml, is Python 3.8 or newer",
        )

    def _why_not_run(self, stderr: bytes) -> str:
        """Return why the host's shell can't run Python, without the shell's own words."""
        line = SHELL_WORDS.sub("", _last_line(stderr))
        return line.removeprefix(f"{self._python}: ").removeprefix("cannot execute: ")

    def parse(self, query: Query[A], answer: Answer) -> A:
        """Return an answer as its class. Raises AgentError for a refusal or an invalid answer."""
        self._raise_refusal(answer)
        try:
            parsed: A = first_that_fits(query.request.ANSWER, answer)
        except Invalid as error:
            raise AgentError(self.host, f"invalid answer: {error}") from None
        return parsed

    def _raise_refusal(self, answer: Answer) -> None:
        if "refused" in answer:
            message, hint = str(answer["refused"]), str(answer.get("hint", ""))
            if answer.get("busy") is True:
                raise LeaseConflict(self.host, message, hint, str(answer.get("held_by", "")))
            if answer.get("outdated") is True and self._record:
                run, file = self._record, self._record.inventory.file
                raise OutdatedRecord(self.host, message, hint, run.id, run.starts, file)
            raise AgentError(self.host, message, hint)
        if "failed" in answer:
            raise AgentError(self.host, f"the agent failed: {answer['failed']}")
        self._record = None


def _below_home(directory: str) -> str:
    """Return a path relative to the home directory: the shell does not expand `~` in quotes."""
    return directory.removeprefix("~/").rstrip("/")


def _last_line(output: bytes) -> str:
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
