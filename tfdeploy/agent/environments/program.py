"""Run an installer: yield what it prints, and end it with the agent."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import subprocess
from collections import deque

from .. import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Deque, Dict, Iterator, List

TICK_S = 1.0
BLOCK = 1 << 16
MAX_LINES = 60
MAX_LINE = 500  # characters
MAX_WORDS = 500
MAX_ERRORS = 5
PR_SET_PDEATHSIG = 1  # source: linux/prctl.h
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
CREDENTIALS = re.compile(r"(://)[^/\s@]+@")
# How uv and pip mark their errors, and what follows one.
ERROR = re.compile(r"(?:error|ERROR|fatal): *|[×✗x] +(?=[A-Z])")
MARKS = re.compile(r"^(?:(?:error|ERROR|cause|Caused by): *|[×╰├─▶│ ]+)+")
DURATION = re.compile(r" in \d[\d.]*m?s\b")  # it would make equal errors of hosts different


class Failed(Exception):
    """A program exited with `code`; `lines` are the last ones that it printed."""

    def __init__(self, code: int, lines: List[str]) -> None:
        super().__init__("exit {}".format(code))
        self.code = code
        self.lines = lines

    @property
    def words(self) -> str:
        """The program's own words about its failure, in one line."""
        return error_words(self.lines) or "exit {}, and it printed nothing".format(self.code)


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


def error_words(lines: List[str]) -> str:
    """Return the error in the last lines of a program, in one line; the last line if none is marked
    as an error. Pure."""
    meaningful = [line for line in lines if line.strip() and not line.startswith("hint:")]
    starts = [at for at, line in enumerate(meaningful) if ERROR.match(line.strip())]
    chosen = meaningful[starts[0] :][:MAX_ERRORS] if starts else meaningful[-1:]
    parts = [MARKS.sub("", line).strip().rstrip(".:") for line in chosen]
    text = DURATION.sub("", ": ".join(part for part in parts if part))
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"


def clean(line: str) -> str:
    """Return a line without colors, and without the passwords of URLs. Pure."""
    return CREDENTIALS.sub(r"\1***@", ESCAPES.sub("", line).rstrip())[:MAX_LINE]


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
