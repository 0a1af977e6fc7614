"""`python -m tfdeploy.transport.keeper SOCKET`: the process at home that keeps connections open.

One a user, as OpenSSH's ControlPersist has one a host. It ends when nothing is left to keep.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import resource
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.transport.frames import ASK, HELLO, Frames
from tfdeploy.transport.reaching import READY

if TYPE_CHECKING:
    from tfdeploy.transport.keeping import Host

LOOK_S = 1.0
UNUSED_S = 20.0  # whoever began it has not asked yet, or has gone meanwhile
MAX_LINKS = 128
MAX_LOG = 64 << 10
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
BACKLOG = 4096


class Keeper:
    """The hosts that it has connections to, each by the way that leads there."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener = listener
        self._path = path
        self._inode = path.stat().st_ino
        self._hosts: dict[str, Host] = {}
        self._lock = threading.Lock()
        self._used = time.monotonic()
        self._over = threading.Event()

    def serve(self) -> None:
        """Until nothing is left to keep."""
        threading.Thread(target=self._look_after, daemon=True).start()
        while not self._over.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:  # shut down by us, or no descriptor is left
                self._over.wait(0.1)
                continue
            threading.Thread(target=self._attend, args=(Frames(sock),), daemon=True).start()

    def close(self) -> None:
        with self._lock:
            for host in self._hosts.values():
                host.close()

    def _attend(self, frames: Frames) -> None:
        """One command of somebody's, from its first word to its last."""
        try:
            if not frames.is_mine():
                return
            frames.send(HELLO)
            kind, data = frames.next()
            asked = json.loads(data) if kind == ASK else {}
            if asked.get("exit"):
                self._end()
                threading.Event().wait()  # who asked it sees the end of the process
            elif asked:
                self._serve(frames, asked)
        except OSError:
            return  # the command has gone
        finally:
            frames.close()

    def _serve(self, frames: Frames, asked: dict[str, Any]) -> None:
        host = self._host(asked["way"], asked["keep_s"])
        try:
            host.serve(frames, asked["argv"], asked["run_s"])
        finally:
            with self._lock:
                host.leave()
                self._used = time.monotonic()

    def _host(self, way: str, keep_s: float) -> Host:
        from tfdeploy.transport.keeping import Host  # it loads Paramiko

        with self._lock:
            host = self._hosts.get(way) or self._hosts.setdefault(way, Host(way))
            host.enter(keep_s)
            return host

    def _look_after(self) -> None:
        while not self._over.wait(LOOK_S):
            for host in self._given_up():
                host.close()
            with self._lock:
                hosts = list(self._hosts.values())
                unused = not hosts and time.monotonic() - self._used > UNUSED_S
            for host in hosts:
                host.drop_dead()
            busy = any(host.is_served for host in hosts)
            if unused or (self._is_lost() and not busy):
                self._end()

    def _given_up(self) -> list[Host]:
        """Hosts that nobody has used for their time, or too many others since."""
        with self._lock:
            idle = {way: host for way, host in self._hosts.items() if not host.is_served}
            links = sum(len(host) for host in self._hosts.values())
            gone = []
            for way, host in sorted(idle.items(), key=lambda item: item[1].used):
                if host.is_over or links > MAX_LINKS:
                    links -= len(host)
                    gone.append(self._hosts.pop(way))
            return gone

    def _is_lost(self) -> bool:
        """Whether nobody can find it any more."""
        try:
            return self._path.stat().st_ino != self._inode
        except OSError:
            return True

    def _end(self) -> None:
        self._over.set()
        if not self._is_lost():
            with suppress(OSError):
                self._path.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Listen first, so that nobody waits for what takes time to load."""
    path = Path(sys.argv[1])
    _detach(path)
    listener = _listener(path)
    os.close(READY)
    if listener:
        loading = threading.Thread(
            target=importlib.import_module, args=("tfdeploy.transport.keeping",), daemon=True
        )
        loading.start()
        keeper = Keeper(listener, path)
        keeper.serve()
        keeper.close()
    os._exit(0)  # whatever a thread of Paramiko's is doing


def _detach(path: Path) -> None:
    """Hold nothing that belongs to who began it; what goes wrong is told in a small file."""
    os.chdir("/")
    os.umask(0o077)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    os.closerange(READY + 1, min(files, 1 << 16) if files > 0 else 1 << 16)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    log = os.open(path.with_name("keeper.log"), LOG_FLAGS, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_LOG, MAX_LOG))


def _listener(path: Path) -> socket.socket | None:
    """The socket, unless another keeper listens on it. Of two that begin at once one gets it."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(os.fspath(path))
        return None
    except OSError:
        path.unlink(missing_ok=True)
    sock.close()
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(os.fspath(path))
    sock.listen(BACKLOG)
    os.close(folder)
    return sock


if __name__ == "__main__":
    main()
