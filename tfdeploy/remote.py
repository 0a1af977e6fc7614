"""The controller's side of the agent: ships it where it is absent, asks it, reads its answers."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.agent.verbs import ABSENT
from tfdeploy.bundle import bundle, current_version
from tfdeploy.errors import AgentError, AgentSilent, CommandFailed, HostError, Leased
from tfdeploy.session import Answer, Ended, Session, question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tfdeploy.inventory import Host
    from tfdeploy.transport import Completed, Transport

    Payload = Callable[[], Iterable[memoryview]]  # called again where it has to be sent again

TIMEOUT_S = 60.0
NOT_WRITTEN = 95
# $1 the agent's path below the home or absolute, $2 the Python. The shell is only there to find the
# home directory. Neither the environment nor site-packages have a say in the agent.
# The agent's path must stay true in whatever folder its supervisors are.
AT_HOME = 'cd "$HOME" && case $2 in "~/"*) set -- "$1" "$PWD/${2#??}" "$3" ;; esac'
SERVE = (
    f'{AT_HOME} && case $1 in /*) ;; *) set -- "$PWD/$1" "$2" ;; esac '
    f'&& test -d "$1" || exit {ABSENT}; exec "$2" -S -E "$1" serve'
)
SHIP = (
    f'{AT_HOME} && umask 077 && mkdir -p "$(dirname "$1")" '
    '&& archive=$(mktemp "$1.XXXXXX") && cat > "$archive" '
    f'|| exit {NOT_WRITTEN}; exec "$2" -S -E -c "$3" "$archive" "$1"'
)
# Readable to any Python 3. The folder appears whole; whoever is faster has put the same there.
UNPACK = """
import os, shutil, sys, zipfile
archive, folder = sys.argv[1:]
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
    """The agent of one host. `version` names it: a run is asked with the one that it began with.

    A process of it that has answered is asked again: one process a host, however many questions,
    and as many as are asked at the same time.
    """

    def __init__(self, transport: Transport, host: Host, version: str | None = None) -> None:
        self.transport = transport
        self.host = host.name
        self.root = host.root
        self._python = host.python
        self._path = f"{_below_home(self.root)}/agent/{version or current_version()}"
        self._current = version in (None, current_version())
        self._idle: list[Session] = []
        self._lock = threading.Lock()

    def ask(self, verb: str, body: Answer, timeout_s: float = TIMEOUT_S) -> Answer:
        """One question, one answer. Raises AgentError where the agent refuses, else HostError."""
        return self.put(question(verb, body), timeout_s)

    def put(self, asked: bytes, timeout_s: float = TIMEOUT_S, payload: Payload = tuple) -> Answer:
        """As `ask`, for a question that is made already; `payload()` is sent with it."""
        session, answer = self.begin(asked, timeout_s, payload)
        self.spare(session)
        return self.accepted(answer)

    def follow(self, body: Answer) -> Followed:
        """Ask `follow`: its answers come as long as they are wanted."""
        return self.answers("follow", body)

    def answers(self, verb: str, body: Answer, silence_s: float | None = None) -> Followed:
        """One question, many answers; the last one says `end`. Between two of them there may be
        `silence_s` (None: any time)."""
        return Followed(self, question(verb, body), silence_s)

    def close(self) -> None:
        """Nothing more will be asked."""
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.keep()
        self.transport.close()

    def begin(
        self, asked: bytes, timeout_s: float | None, payload: Payload = tuple
    ) -> tuple[Session, Answer]:
        """A session that was asked this, and its first answer; shipped first where it is absent."""
        try:
            return self._asked(asked, timeout_s, payload)
        except Ended as ended:
            if ended.how.exit != ABSENT:
                raise self._mute(ended.how) from None
        self._ship()
        try:
            return self._asked(asked, timeout_s, payload)
        except Ended as ended:
            raise self._mute(ended.how) from None

    def _asked(
        self, asked: bytes, timeout_s: float | None, payload: Payload
    ) -> tuple[Session, Answer]:
        session = self._session()
        try:
            with suppress(HostError):  # it may have ended: how, is told where its answer is read
                session.ask(asked, payload())
            return session, session.answer(timeout_s)
        except BaseException:
            session.close()
            raise

    def _session(self) -> Session:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        argv = ["sh", "-c", SERVE, "tfdeploy", self._path, self._python]
        return Session(self.host, self.transport.stream(argv))

    def spare(self, session: Session) -> None:
        """It has answered, and may be asked again."""
        with self._lock:
            self._idle.append(session)

    def _ship(self) -> None:
        if not self._current:
            raise AgentError(
                self.host,
                f"the agent that started this run is gone ({self._path})",
                "was the directory on the host removed?",
            )
        # As one line: a csh, which reads it first as a login shell, takes no line end in quotes.
        unpack = f"exec({UNPACK!r})"
        argv = ["sh", "-c", SHIP, "tfdeploy", self._path, self._python, unpack]
        done = self.transport.run(argv, stdin=bundle(), timeout_s=TIMEOUT_S)
        if done.exit == NOT_WRITTEN:
            raise CommandFailed(
                self.host,
                f"{self._path} can't be written: {_last_line(done.stderr)}",
                "see the host's directory key in hosts.toml",
            )
        if done.exit != 0:
            raise self._mute(done)

    def _mute(self, done: Completed) -> HostError:
        if done.exit in (126, 127):
            return CommandFailed(
                self.host,
                f"{self._python} can't be run there: {_last_line(done.stderr)}",
                "set the host's python in hosts.toml to the path of one, 3.8 or newer",
            )
        return AgentError(
            self.host,
            f"the agent gave no answer (exit {done.exit}): {_last_line(done.stderr)}",
            f"is {self._python} a Python, 3.8 or newer? It is the host's python in hosts.toml",
        )

    def accepted(self, answer: Answer) -> Answer:
        """An answer that is neither a refusal nor a failure; else it is raised."""
        if "refused" in answer:
            found, hint = str(answer["refused"]), str(answer.get("hint", ""))
            if answer.get("held_by"):
                raise Leased(self.host, found, hint, str(answer["held_by"]))
            raise AgentError(self.host, found, hint)
        if "failed" in answer:
            raise AgentError(self.host, f"the agent failed: {answer['failed']}")
        return answer


class Followed:
    """The answers to one question. Any thread may say that it is enough, or hang up."""

    def __init__(self, agent: Agent, asked: bytes, silence_s: float | None = None) -> None:
        self._agent = agent
        self._asked = asked
        self._silence_s = silence_s
        self._session: Session | None = None
        self._enough = False

    def __iter__(self) -> Iterator[Answer]:
        """Until it has said its last. Raises AgentSilent where it falls silent before."""
        session, answer = self._agent.begin(self._asked, self._silence_s)
        self._session = session
        if self._enough:
            self.enough()
        try:
            while "end" not in self._agent.accepted(answer):
                yield answer
                answer = session.answer(self._silence_s)
            self._session = None
            self._agent.spare(session)
        except Ended:
            raise AgentSilent(
                self._agent.host,
                "the agent fell silent before its last word",
                "was it killed, or its directory removed? tfdeploy status asks again",
            ) from None
        finally:
            self.close()  # unless it was spared
        yield answer

    def enough(self) -> None:
        """It ends then with its last answer."""
        self._enough = True
        session = self._session
        if session:
            with suppress(HostError):
                session.enough()

    def close(self) -> None:
        """Hang up."""
        session, self._session = self._session, None
        if session:
            session.close()


def _below_home(directory: str) -> str:
    """`~/x` is x below the home that the shell is in; `~` inside quotes would not be expanded."""
    return directory.removeprefix("~/").rstrip("/")


def _last_line(output: bytes) -> str:
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
