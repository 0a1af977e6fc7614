"""Where this user's keeper is to be found, and how it is begun by whoever needs it first.

Only its own user may reach it: it opens what that user's keys have opened.
"""

from __future__ import annotations

import hashlib
import os
import select
import socket
import stat
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

from tfdeploy.transport.frames import ASK, HELLO, Frames

PACKAGE = Path(__file__).parents[1]
HELLO_S = 2.0
BEGIN_S = 10.0
HANG_UP_S = 10.0
MAX_PATH = 107  # unix(7)
CAN = hasattr(socket, "SO_PEERCRED")  # Linux
READY = 3  # the descriptor that a keeper closes once it listens
KEEPER = ("-P", "-m", "tfdeploy.transport.keeper")
# A keeper has these of the command that began it.
MATTERS = ("HOME", "SSH_AUTH_SOCK")


def reached() -> Frames | None:
    """A connection to the keeper, who is begun if need be; None where there can be none."""
    way_in = _way_in()
    return way_in.reached() if way_in else None


def hang_up() -> None:
    """End the keepers that this user has, and with them everything that they keep."""
    where = folder() if CAN else None
    for path in sorted(where.glob("*.sock")) if where else ():
        if frames := _way_in_at(str(path)).greeted():
            with suppress(OSError):
                frames.send(ASK, b'{"exit": true}')
                frames.next(HANG_UP_S)
            frames.close()


class WayIn:
    """The socket of one keeper, to be had in one process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._beginning = threading.Lock()
        self._in_vain = False

    def reached(self) -> Frames | None:
        found = None if self._in_vain else self.greeted()
        if found or self._in_vain:
            return found
        with self._beginning:
            if not self._in_vain and not self._is_there():
                self._begin()
            found = None if self._in_vain else self.greeted()
            self._in_vain = found is None
            return found

    def greeted(self) -> Frames | None:
        """A connection to a keeper who listens and is awake."""
        try:
            sock = self._connected()
        except OSError:
            return None
        frames = Frames(sock)
        with suppress(OSError):
            if frames.is_mine() and frames.next(HELLO_S)[0] == HELLO:
                return frames
        frames.close()
        return None

    def _is_there(self) -> bool:
        try:
            self._connected().close()
        except OSError:
            return False
        return True

    def _connected(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        return sock

    def _begin(self) -> None:
        """Begin one, and wait until it listens, or has ended."""
        with suppress(OSError, NotImplementedError):
            listens, ready = os.pipe()
            try:
                _spawn(self._path, ready)
            finally:
                os.close(ready)
                _wait(listens)


def folder() -> Path | None:
    """Where sockets may lie: nobody else can enter. None where somebody else made it."""
    uid = os.geteuid()
    try:
        path = _own_runtime_dir(uid) or Path(tempfile.gettempdir(), f"tfdeploy-{uid}")
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return None
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == uid
    return path if mine and not found.st_mode & 0o077 else None


def _own_runtime_dir(uid: int) -> Path | None:
    """`su` and `sudo -E` may keep another user's, who could put something else in the place of what
    we make there."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    return Path(given, "tfdeploy") if given and os.stat(given).st_uid == uid else None  # noqa: PTH116


def _way_in() -> WayIn | None:
    where = folder() if CAN else None
    if where is None:
        return None
    about = [_version(), *(os.environ.get(name, "") for name in MATTERS)]
    path = str(where / f"{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}.sock")
    return _way_in_at(path) if len(os.fsencode(path)) <= MAX_PATH else None


@cache
def _way_in_at(path: str) -> WayIn:
    return WayIn(path)


@cache
def _version() -> str:
    """Another tfdeploy, or another Python, has another keeper."""
    files = sorted([*PACKAGE.glob("transport/*.py"), PACKAGE / "errors.py"])
    known = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    return repr([sys.executable, known])


def _wait(listens: int) -> None:
    closed = select.poll()
    closed.register(listens)
    closed.poll(BEGIN_S * 1000)
    os.close(listens)


def _spawn(path: str, ready: int) -> None:
    """Begin one: in a session of its own, where neither Ctrl-C nor a closed terminal meets it."""
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    os.posix_spawn(
        sys.executable,
        [sys.executable, *KEEPER, path],
        {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, ready, READY),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ],
        setsid=True,
    )
