"""Find the user's connection daemon, and start it if none runs.

Only its own user can connect to it: it gives access to every host that the user's keys open.
"""

from __future__ import annotations

import hashlib
import os
import select
import socket
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

from tfdeploy.folders.user_folders import socket_folder
from tfdeploy.transport.daemon.ipc import HELLO, REQUEST, FrameConnection

PACKAGE = Path(__file__).parents[2]
HELLO_TIMEOUT_S = 2.0
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 10.0
MAX_PATH = 107  # of a socket: unix(7)
IS_SUPPORTED = hasattr(socket, "SO_PEERCRED")  # Linux
READY_FD = 3  # the file descriptor that a daemon closes when it listens
DAEMON_ARGS = ("-P", "-X", "utf8", "-m", "tfdeploy.transport.daemon.server")
# Variables that a daemon has from the command that started it; each value has its own daemon.
RELEVANT_VARIABLES = ("HOME", "SSH_AUTH_SOCK")


def connect() -> FrameConnection | None:
    """Connect to the daemon, and start it if necessary. Return None if that is impossible."""
    daemon_socket = _socket_of_this_user()
    return daemon_socket.connect() if daemon_socket else None


def stop_daemons() -> None:
    """Stop all daemons of this user, and close all their connections."""
    folder = socket_folder() if IS_SUPPORTED else None
    for path in sorted(folder.glob("*.sock")) if folder else ():
        if frames := _daemon_socket(str(path)).connect_to_running():
            with suppress(OSError):
                frames.send(REQUEST, b'{"exit": true}')
                frames.next(STOP_TIMEOUT_S)
            frames.close()


class DaemonSocket:
    """The socket of one daemon; there is one object for it in a process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._start_lock = threading.Lock()
        self._has_failed = False

    def connect(self) -> FrameConnection | None:
        """Connect, and start the daemon if necessary; after a failure, do not try again."""
        frames = None if self._has_failed else self.connect_to_running()
        if frames or self._has_failed:
            return frames
        with self._start_lock:
            if not self._has_failed and not self._is_listening():
                self._start_daemon()
            frames = None if self._has_failed else self.connect_to_running()
            self._has_failed = frames is None
            return frames

    def connect_to_running(self) -> FrameConnection | None:
        """Connect to a daemon that listens and answers in time; else return None."""
        try:
            sock = self._open_socket()
        except OSError:
            return None
        frames = FrameConnection(sock)
        with suppress(OSError):
            if frames.is_own_user() and frames.next(HELLO_TIMEOUT_S)[0] == HELLO:
                return frames
        frames.close()
        return None

    def _is_listening(self) -> bool:
        try:
            self._open_socket().close()
        except OSError:
            return False
        return True

    def _open_socket(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        return sock

    def _start_daemon(self) -> None:
        """Start a daemon, and wait until it listens or has exited."""
        with suppress(OSError, NotImplementedError):
            read_end, write_end = os.pipe()
            try:
                _spawn(self._path, write_end)
            finally:
                os.close(write_end)
                _wait_until_closed(read_end)


def _socket_of_this_user() -> DaemonSocket | None:
    folder = socket_folder() if IS_SUPPORTED else None
    if folder is None:
        return None
    key = [_version(), *(os.environ.get(name, "") for name in RELEVANT_VARIABLES)]
    path = str(folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.sock")
    return _daemon_socket(path) if len(os.fsencode(path)) <= MAX_PATH else None


@cache
def _daemon_socket(path: str) -> DaemonSocket:
    return DaemonSocket(path)


@cache
def _version() -> str:
    """Return what identifies this tfdeploy and Python: another one has another daemon."""
    files = sorted([*PACKAGE.glob("transport/**/*.py"), PACKAGE / "errors.py"])
    states = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    return repr([sys.executable, states])


def _wait_until_closed(read_end: int) -> None:
    closed = select.poll()
    closed.register(read_end)
    closed.poll(START_TIMEOUT_S * 1000)
    os.close(read_end)


def _spawn(path: str, write_end: int) -> None:
    """Start a daemon in its own session, so that neither Ctrl-C nor a closed terminal ends it."""
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    os.posix_spawn(
        sys.executable,
        [sys.executable, *DAEMON_ARGS, path],
        {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, write_end, READY_FD),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ],
        setsid=True,
    )
