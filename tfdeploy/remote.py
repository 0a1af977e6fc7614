"""The controller's side of the agent: ships it where it is absent, asks it, reads its answers."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.records import MARK
from tfdeploy.errors import AgentError, AgentSilent, CommandFailed, Leased

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from tfdeploy.inventory import Host
    from tfdeploy.transport import Completed, Stream, Transport

Answer = dict[str, Any]
ABSENT = 96
TIMEOUT_S = 60.0
MAX_LINE = 64 << 20
# $1 the agent's path below the home or absolute, $2 the Python, $3 the verb. The shell is only
# there to find the home directory; the agent's exit codes stay below 90.
ASK = f'cd "$HOME" && test -f "$1" || exit {ABSENT}; exec "$2" "$1" "$3"'
SHIP = (
    'cd "$HOME" && umask 077 && mkdir -p "$(dirname "$1")" && cat > "$1.$$" && mv -f "$1.$$" "$1"'
)
# A zip holds times: a fixed one keeps the hash the same between checkouts.
LONG_AGO = (1980, 1, 1, 0, 0, 0)


class Agent:
    """The agent of one host. `version` names the zipapp: a run is asked with the one it had."""

    def __init__(self, transport: Transport, host: Host, version: str | None = None) -> None:
        self.transport = transport
        self.host = host.name
        self._python = host.python
        self._path = f"{_below_home(host.directory)}/agent/{version or current_version()}.pyz"
        self._current = version in (None, current_version())

    def ask(self, verb: str, body: Answer, timeout_s: float = TIMEOUT_S) -> Answer:
        """One question, one answer. Raises AgentError where the agent refuses, else HostError."""
        data = json.dumps(body).encode() + b"\n"
        done = self.transport.run(self._argv(verb), stdin=data, timeout_s=timeout_s)
        if done.exit == ABSENT:
            self._ship()
            done = self.transport.run(self._argv(verb), stdin=data, timeout_s=timeout_s)
        return self._accepted(self._only_answer(done))

    def follow(self, body: Answer) -> tuple[Stream, Iterator[Answer]]:
        """Ask `follow`: the stream, to hang up with, and its answers as they come."""
        data = json.dumps(body).encode() + b"\n"
        stream = self.transport.stream(self._argv("follow"), stdin=data)
        return stream, self._answers(stream)

    def _argv(self, verb: str) -> list[str]:
        return ["sh", "-c", ASK, "tfdeploy", self._path, self._python, verb]

    def _ship(self) -> None:
        if not self._current:
            raise AgentError(
                self.host,
                f"the agent that started this run is gone ({self._path})",
                "was the directory on the host removed?",
            )
        argv = ["sh", "-c", SHIP, "tfdeploy", self._path]
        done = self.transport.run(argv, stdin=bundle(), timeout_s=TIMEOUT_S)
        if done.exit != 0:
            raise CommandFailed(
                self.host,
                f"{self._path} can't be written: {_last_line(done.stderr)}",
                "see the host's directory key in hosts.toml",
            )

    def _only_answer(self, done: Completed) -> Answer:
        lines = done.stdout.decode(errors="replace").splitlines()
        answers = [line.partition(MARK)[2] for line in lines if MARK in line]
        if answers:
            return self._parsed(answers[-1])
        if done.exit in (126, 127):
            raise CommandFailed(
                self.host,
                f"{self._python} can't be run there: {_last_line(done.stderr)}",
                "set the host's python in hosts.toml to the absolute path of one, 3.8 or newer",
            )
        raise AgentError(
            self.host,
            f"the agent gave no answer (exit {done.exit}): {_last_line(done.stderr)}",
            f"is {self._python} a Python, 3.8 or newer? It is the host's python in hosts.toml",
        )

    def _answers(self, stream: Stream) -> Iterator[Answer]:
        rest, began, ended = b"", False, False
        for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE:
                raise AgentError(self.host, f"its answer has no end: {len(rest)} bytes in one line")
            for line in lines:
                _, marked, text = line.decode(errors="replace").partition(MARK)
                if marked:
                    answer = self._accepted(self._parsed(text))
                    began, ended = True, "end" in answer
                    yield answer
        if not ended:
            # One that has never said a word isn't there, and won't be there the next time.
            kind = AgentSilent if began else AgentError
            raise kind(
                self.host,
                "the agent fell silent before its last word",
                "was it killed, or its directory removed? tfdeploy status asks again",
            )

    def _parsed(self, text: str) -> Answer:
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise AgentError(self.host, f"the agent's answer is no JSON object: {text[:80]!r}")
        return answer

    def _accepted(self, answer: Answer) -> Answer:
        if "refused" in answer:
            found, hint = str(answer["refused"]), str(answer.get("hint", ""))
            if answer.get("held_by"):
                raise Leased(self.host, found, hint, str(answer["held_by"]))
            raise AgentError(self.host, found, hint)
        if "failed" in answer:
            raise AgentError(self.host, f"the agent failed: {answer['failed']}")
        return answer


@cache
def bundle() -> bytes:
    """The agent and what is loaded inside the training, as one zip that Python can run."""
    package = resources.files("tfdeploy")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", package.joinpath("agent/__main__.py").read_bytes())
        _add(archive, "tfdeploy/__init__.py", b"")
        for name, source in _modules(package, "agent"):
            _add(archive, f"tfdeploy/agent/{name}", source)
        for name, source in _modules(package, "inside"):
            _add(archive, f"inside/{name}", source)
    return data.getvalue()


@cache
def current_version() -> str:
    return hashlib.sha256(bundle()).hexdigest()[:16]


def _modules(package: Traversable, folder: str) -> Iterator[tuple[str, bytes]]:
    entries = sorted(package.joinpath(folder).iterdir(), key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield entry.name, entry.read_bytes()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, LONG_AGO), data, zipfile.ZIP_DEFLATED)


def _below_home(directory: str) -> str:
    """`~/x` is x below the home that the shell is in; `~` inside quotes would not be expanded."""
    return directory.removeprefix("~/").rstrip("/")


def _last_line(output: bytes) -> str:
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
