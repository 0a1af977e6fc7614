"""The connection daemon: a process on the controller that keeps SSH connections open.

It is started as `python -m tfdeploy.transport.daemon.server SOCKET`, once for each user, and exits
when it has no connection left to keep.
"""

from __future__ import annotations

import fcntl
import importlib
import io
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

from tfdeploy.transport.daemon import client_log
from tfdeploy.transport.daemon.ipc import HELLO, REQUEST, FrameConnection
from tfdeploy.transport.daemon.locate import READY_FD

if TYPE_CHECKING:
    from tfdeploy.transport.daemon.host_pool import HostPool

CHECK_INTERVAL_S = 1.0
# A thread that waits for the interpreter's lock wakes up after each such interval. The usual 5 ms
# are for a few threads: 3,000 of them, in a start on 1,000 hosts, did little else for two minutes.
# Threads that wait for the network release the lock at once, whatever the interval.
SWITCH_INTERVAL_S = 0.05
UNUSED_S = 20.0  # the command that started it has not sent a request yet, or was ended
MAX_LOG_BYTES = 64 << 10
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
BACKLOG = 4096


class ConnectionDaemon:
    """The pools of all hosts, each by the route to its host."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener = listener
        self._path = path
        self._inode = path.stat().st_ino
        self._pools: dict[str, HostPool] = {}
        self._lock = threading.Lock()
        self._last_used = time.monotonic()
        self._ending = threading.Event()

    def serve(self) -> None:
        """Serve clients until no connection is left to keep."""
        threading.Thread(target=self._close_unused, daemon=True).start()
        while not self._ending.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:  # shut down by _end, or no file descriptor is left
                self._ending.wait(0.1)
                continue
            client = FrameConnection(sock)
            threading.Thread(target=self._serve_client, args=(client,), daemon=True).start()

    def close(self) -> None:
        with self._lock:
            for pool in self._pools.values():
                pool.close()

    def _serve_client(self, frames: FrameConnection) -> None:
        """Serve one request of a client, until it leaves."""
        try:
            if not frames.is_own_user():
                return
            frames.send(HELLO)
            kind, data = frames.next()
            request = json.loads(data) if kind == REQUEST else {}
            if request.get("exit"):
                self._end()
                threading.Event().wait()  # the client waits for the end of the process
            elif request:
                self._serve_request(frames, request)
        except OSError:
            return  # the client is gone
        finally:
            frames.close()

    def _serve_request(self, frames: FrameConnection, request: dict[str, Any]) -> None:
        pool = self._enter_pool(request["route"], request["keep_s"])
        try:
            pool.serve(frames, request["argv"], request["run_s"], request["repeatable"])
        finally:
            with self._lock:
                pool.leave()
                self._last_used = time.monotonic()

    def _enter_pool(self, route: str, keep_s: float) -> HostPool:
        from tfdeploy.transport.daemon.host_pool import HostPool  # loads Paramiko: slow

        with self._lock:
            pool = self._pools.get(route) or self._pools.setdefault(route, HostPool(route))
            pool.enter(keep_s)
            return pool

    def _close_unused(self) -> None:
        """Close unused connections, and end the daemon when it is no longer used."""
        while not self._ending.wait(CHECK_INTERVAL_S):
            for pool in self._remove_expired_pools():
                pool.close()
            with self._lock:
                pools = list(self._pools.values())
                is_unused = not pools and time.monotonic() - self._last_used > UNUSED_S
            for pool in pools:
                pool.close_exited()
            is_busy = any(pool.is_in_use for pool in pools)
            if is_unused or (self._is_socket_replaced() and not is_busy):
                self._end()

    def _remove_expired_pools(self) -> list[HostPool]:
        """Remove pools that were not used for their time."""
        with self._lock:
            pools = self._pools.items()
            expired = [key for key, pool in pools if pool.is_expired and not pool.is_in_use]
            return [self._pools.pop(key) for key in expired]

    def _is_socket_replaced(self) -> bool:
        """Return whether the socket's file is gone or replaced, so that no client can connect."""
        try:
            return self._path.stat().st_ino != self._inode
        except OSError:
            return True

    def _end(self) -> None:
        self._ending.set()
        if not self._is_socket_replaced():
            with suppress(OSError):
                self._path.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Listen first, then load Paramiko, so that clients do not wait for that."""
    path = Path(sys.argv[1])
    _detach(path)
    client_log.start()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listener = _listen(path)
    os.close(READY_FD)
    if listener:
        loading = threading.Thread(
            target=importlib.import_module,
            args=("tfdeploy.transport.daemon.host_pool",),
            daemon=True,
        )
        loading.start()
        daemon = ConnectionDaemon(listener, path)
        daemon.serve()
        daemon.close()
    os._exit(0)  # do not wait for Paramiko's threads


def _detach(path: Path) -> None:
    """Release everything that was inherited from the command that started the daemon; write errors
    to a small file.

    What is set here for the whole process also applies to the modules that are compiled and loaded
    later: neither a limit of file sizes nor a umask, which would store modules cut off, or for this
    user only.
    """
    os.chdir("/")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    os.closerange(READY_FD + 1, min(files, 1 << 16) if files > 0 else 1 << 16)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    log = os.open(path.with_name("keeper.log"), LOG_FLAGS, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.stdout = sys.stderr = io.TextIOWrapper(
        _Log(2, "w"), "utf-8", "backslashreplace", write_through=True
    )


class _Log(io.FileIO):
    """A file that keeps the first MAX_LOG_BYTES of what is written to it."""

    def write(self, data: Any, /) -> int:
        super().write(memoryview(data)[: max(0, MAX_LOG_BYTES - self.tell())])
        return len(data)


def _listen(path: Path) -> socket.socket | None:
    """Listen on the socket; return None if another daemon does. A lock on the folder decides
    between two daemons that start at the same time."""
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
    path.chmod(0o600)  # before anybody can connect
    sock.listen(BACKLOG)
    os.close(folder)
    return sock


if __name__ == "__main__":
    main()
