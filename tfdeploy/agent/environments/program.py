"""Run an installer: yield what it prints, and end it with the agent."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
from collections import deque

from ...shared import TYPE_CHECKING
from ...shared.uv_and_pip import MAX_LINES, Failed, clean

if TYPE_CHECKING:
    from typing import Callable, Deque, Dict, Iterator, List

TICK_S = 1.0
BLOCK = 1 << 16
PR_SET_PDEATHSIG = 1  # source: linux/prctl.h


def run(argv: List[str], env: Dict[str, str], folder: str, descriptor: int) -> Iterator[str]:
    """Run a program in `folder`; yield each line that it prints, and "" if there is none for a
    second. Raises Failed if it fails, OSError if it can't be run.

    It inherits the `descriptor` of a lock, so that the lock lasts as long as any of its processes.
    They end if this generator is closed, or the agent killed.
    """
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=[descriptor],
        preexec_fn=_die_with_parent(os.getpid()),
    )
    last: Deque[str] = deque(maxlen=MAX_LINES)
    try:
        assert process.stdout is not None
        for line in _lines(process.stdout.fileno()):
            if line:
                last.append(line)
            yield line
        code = process.wait()
    finally:
        _kill(process)
    if code != 0:
        raise Failed(code, list(last))


def _lines(descriptor: int) -> Iterator[str]:
    """Yield the lines of a pipe until its end, without colors and without passwords of URLs."""
    rest = b""
    while True:
        readable, _, _ = select.select([descriptor], [], [], TICK_S)
        if not readable:
            yield ""
            continue
        block = os.read(descriptor, BLOCK)
        *complete, rest = (rest + block).replace(b"\r", b"\n").split(b"\n")
        for line in complete if block else [*complete, rest]:
            text = clean(line.decode(errors="replace"))
            if text:
                yield text
        if not block:
            return
        rest = rest[-BLOCK:]


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of a program: it leads a process group of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _die_with_parent(parent: int) -> Callable[[], None]:
    """Return what the child runs before exec, so that it dies when the agent is killed."""
    libc = ctypes.CDLL(None)

    def before_exec() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec
