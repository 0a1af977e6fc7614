"""The master: one connection to a host, which all ssh processes of tfdeploy share (ssh_config(5),
ControlMaster)."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shlex
import socket
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tfdeploy.errors import AuthenticationFailed, HostError, Unreachable
from tfdeploy.folders.user_folders import socket_folder
from tfdeploy.transport import ATTEMPTS, wait_before_retry, words
from tfdeploy.transport.openssh import messages, terminal
from tfdeploy.transport.rsync import ALIVE, DROPPED
from tfdeploy.transport.ssh import config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdeploy.config.inventory import Host, Inventory

_log = logging.getLogger(__name__)
OPEN_TIMEOUT_S = 60.0  # without a terminal; a login may take long
ANSWER_TIMEOUT_S = 5.0  # of a master, about itself; it takes milliseconds
MIN_PERSIST_S = 5  # between two commands of one command of tfdeploy
MAX_PATH = 104 - 18  # of a socket, on macOS; ssh adds 17 characters to it for a moment
BATCH = ("-o", "BatchMode=yes", "-o", "LogLevel=ERROR")
# ssh_config may ask for these in the user's own sessions.
NO_EXTRAS = (
    *("-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no"),
)
PLAIN = ("-o", "ForwardAgent=no", "-T")


@dataclass(frozen=True)
class Master:
    """A master of tfdeploy's own at `path`, or with None the user's at the ControlPath of the
    configuration. `command` is ssh with the user's settings, and `answer` that of `ssh -G`."""

    name: str
    command: tuple[str, ...]
    answer: str
    path: Path | None
    persist_s: int

    @cached_property
    def digest(self) -> str:
        """The name of everything that leads to the host: changed settings never use an old
        connection."""
        key = repr([self.name, self.command, self.answer, os.environ.get("HOME")])
        return hashlib.sha256(key.encode()).hexdigest()[:12]

    @property
    def is_open(self) -> bool:
        """Whether it runs; the user's ran when it was found."""
        return self.path is None or is_listening(self.path)

    @property
    def session(self) -> list[str]:
        """The command line of ssh for one more session, without the host's name. If the master is
        gone or sshd allows no more sessions on it (MaxSessions), ssh connects by itself, unless it
        would have to ask something."""
        path = ["-S", os.fspath(self.path)] if self.path else []
        limits = _limits(self.answer)
        own = ["-o", "ControlMaster=no", *path, *limits, *NO_EXTRAS, *PLAIN]
        return [*self.command, *BATCH, *own]

    def open(self, *, accept_new: bool = False) -> None:
        """Open it, unless it is open. ssh asks what it must on the terminal, one host after the
        other. Raises HostError."""
        if self.path is None or self.is_open:
            owner = "the user's" if self.path is None else "an"
            _log.debug("%s: OpenSSH uses %s open connection again", self.name, owner)
            return
        with self._lock():
            if self.is_open:  # another thread or command has opened it
                return
            # Of a master that was killed: ssh would connect without a socket, in the background.
            self.path.unlink(missing_ok=True)
            try:
                self._open_silently(accept_new)
            except AuthenticationFailed as refused:
                self._open_on_terminal(refused, accept_new)

    @property
    def was_refused_by_fabric(self) -> bool:
        """Whether OpenSSH is known to log in where Fabric does not, with these settings."""
        mark = self._mark
        return mark is not None and mark.exists()

    def remember_refusal(self) -> None:
        """Remember until the runtime folder is emptied that only OpenSSH logs in."""
        if mark := self._mark:
            mark.touch(0o600)

    @property
    def _mark(self) -> Path | None:
        folder = socket_folder()
        return folder and folder / f"{self.digest}.openssh"

    def _open_silently(self, accept_new: bool) -> None:
        """Open it without asking anything. Raises AuthenticationFailed if ssh may have to."""
        for attempt in range(1, ATTEMPTS + 1):
            code, text = _run(self._opening(*BATCH, *_accepting(accept_new)))
            if code == 0:
                return
            if self._proxy:  # with a master, ssh does not print what a jump host's ssh says
                text = _run([*self.session, "-S", "none", "--", self.name, "exit"])[1]
            error = self._error(text)
            is_dropped = DROPPED.search(text.encode()) and isinstance(error, Unreachable)
            if not is_dropped or attempt == ATTEMPTS:
                raise error
            wait_before_retry(self.name, attempt, text.strip())

    def _open_on_terminal(self, refused: AuthenticationFailed, accept_new: bool) -> None:
        final = messages.with_certificates(refused, config.certificates(self.answer))
        if final is not refused:
            raise final
        code = terminal.run(self._opening(*_accepting(accept_new)))
        if code is None:
            raise refused.with_hint(f"open the connection on a terminal: {self.typed}")
        if code != 0:
            message, host = "its login on the terminal failed", self.name
            raise AuthenticationFailed(self.name, message, f"try: ssh {host}")

    @property
    def typed(self) -> str:
        """The command that opens it when a user types it."""
        return shlex.join(self._opening())

    def _opening(self, *options: str) -> list[str]:
        assert self.path
        control = ["-o", "ControlMaster=yes", "-S", os.fspath(self.path)]
        persist = ["-o", f"ControlPersist={self.persist_s}"]
        own = [*control, *persist, *_limits(self.answer), *NO_EXTRAS, *PLAIN]
        return [*self.command, *options, *own, "-fN", "--", self.name]

    def _error(self, text: str) -> HostError:
        """Return the error for what ssh has printed when it could not connect."""
        host, proxy = self.name, self._proxy
        printed = messages.without_closing(text) if proxy else ""
        error = messages.translate(host, printed or text)
        if error is None and printed:
            found = words.NO_WAY_THROUGH.format(proxy, words.last_words(printed.encode()))
            return Unreachable(host, found, f"try: ssh {host}")
        if error is None:
            reason = text.strip() or "ssh gave no reason"
            error = Unreachable(host, f"the SSH connection failed: {reason}", f"try: ssh {host}")
        if proxy:
            error = type(error)(host, f"{error.message} (through {proxy})", error.hint)
        return error

    @property
    def _proxy(self) -> str:
        """What the connection goes through, such as "jump host gate"; "" if it is direct."""
        values = config.settings(self.answer)
        jump, command = (values.get(key, ["none"])[0] for key in ("proxyjump", "proxycommand"))
        if jump != "none":
            return f"jump host {jump}"
        return "" if command == "none" else "ProxyCommand"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one thread of one command open it: a second ssh would connect without a master."""
        assert self.path
        with self.path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def find_users(host: Host, inventory: Inventory) -> Master:
    """Return the user's own master for a host. Raises Unreachable."""
    command = tuple(config.users_command(host, inventory))
    persist_s = max(MIN_PERSIST_S, round(inventory.keep_connections_s))
    return Master(host.name, command, config.answer(host, inventory), None, persist_s)


def find(host: Host, inventory: Inventory) -> Master:
    """Return tfdeploy's master for a host, which may not be open yet. Raises Unreachable."""
    found, folder = find_users(host, inventory), socket_folder()
    path = folder / f"{found.digest}.ssh" if folder else None
    if path is None or len(os.fsencode(path)) > MAX_PATH:
        reason = "could be replaced by another user" if path is None else "has too long a path"
        message = f"the folder for ssh's sockets {reason}"
        raise Unreachable(host.name, message, "set XDG_RUNTIME_DIR to a short folder of your own")
    return replace(found, path=path)


def end(name: str, path: Path) -> None:
    """End the master at a path, and with it everything that runs over it. One that does not answer
    loses its socket, so that the next command opens another one."""
    argv = ["ssh", "-S", os.fspath(path), "-O", "exit", "--", name]
    try:
        subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        path.unlink(missing_ok=True)


def is_listening(path: Path) -> bool:
    """Return whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_TIMEOUT_S)  # a process that hangs accepts only a few
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
        return True


def _limits(answer: str) -> list[str]:
    """Return ssh's limits of time, where the configuration sets none."""
    values = config.settings(answer)
    connect = ["-o", f"ConnectTimeout={config.CONNECT_TIMEOUT_S}"]
    options = connect if values.get("connecttimeout", ["none"]) == ["none"] else []
    return [*options, *(ALIVE if values.get("serveraliveinterval") == ["0"] else ())]


def _accepting(accept_new: bool) -> list[str]:
    """Return the option of --accept-new-host-keys."""
    return ["-o", "StrictHostKeyChecking=accept-new"] if accept_new else []


def _run(argv: list[str]) -> tuple[int, str]:
    """Run ssh without a terminal, on which a jump host's could ask; return its exit code and its
    messages. They go to a file: what stays in the background keeps a pipe open. A host may have
    ssh log in without end."""
    _log.debug("%s", shlex.join(argv))
    env = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
    null = subprocess.DEVNULL
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv, stdin=null, stdout=null, stderr=errors, env=env, start_new_session=True
        )
        try:
            code = process.wait(OPEN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = 255
            errors.write(f"the login was not finished within {OPEN_TIMEOUT_S:g} s".encode())
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        errors.seek(0)
        return code, errors.read().decode(errors="replace")
