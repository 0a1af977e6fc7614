"""The standard streams of a command, which may lose their reader, or be closed from the start.

`tfdeploy start | grep -q READY` has no reader after grep's first match: the command does its work
to its end, exits with its code, and what it still prints goes nowhere. So does `exec` with several
tasks: what it runs may change something on hosts. A command that only shows something, for as long
as there is something to show (`logs`, `watch`, `hosts --watch`), exits with 0.

They print any text in any locale: a character that its encoding lacks is written out.
"""

from __future__ import annotations

import codecs
import io
import locale
import os
import select
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from tfdeploy.errors import TfdeployError
from tfdeploy.formatting.humanize import write_out

if TYPE_CHECKING:
    from typing import TextIO

STDIN, STDOUT, STDERR = range(3)
UTF8, WRITE_OUT = "utf-8", "tfdeploy.write_out"
READER_HAS_LEFT = signal.SIGURG  # ignored by default, and nothing else sends it


class _Descriptor(io.FileIO):
    """A standard stream on which a write never fails. After a failure all goes nowhere; `failure`
    is what it was, unless only the reader has left."""

    failure: OSError | None = None

    # A buffer, for which Python 3.11 has no name.
    def write(self, data: Any, /) -> int:  # type: ignore[explicit-any]
        try:
            return super().write(data)
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.failure = error
            _discard(self.fileno())
            return memoryview(data).nbytes


def prepare() -> None:
    """Let this process survive what happens to its standard streams, and print any text."""
    if sys.getfilesystemencoding() != UTF8:
        # Names of files are UTF-8. Python's mode for that is its own choice for C and POSIX only.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    if sys.stdin is None:
        _discard(STDIN)
        sys.stdin = open(STDIN, closefd=False)  # noqa: SIM115 - it stays open
    if sys.stdout is sys.__stdout__:  # else a test reads what is printed
        sys.stdout = _survivor(sys.stdout, STDOUT)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _survivor(sys.stderr, STDERR)


def require_written() -> None:
    """Raise TfdeployError if standard output could not be written, for example on a full disk."""
    sys.stdout.flush()
    output = _output()
    if output and output.failure:
        raise TfdeployError(f"standard output can't be written: {output.failure.strerror}")


def end_with_reader() -> None:
    """Exit with 0 as soon as nothing reads standard output any more, even if nothing is printed
    then: after `tfdeploy logs -f | grep -m1 loss` nobody looks."""
    if not _output() or sys.stdout.isatty():
        return
    output = os.dup(STDOUT)

    def wait_for_end() -> None:
        poll = select.poll()
        poll.register(output, 0)  # an error is always reported, and here nothing else
        poll.poll()
        signal.pthread_kill(threading.main_thread().ident or 0, READER_HAS_LEFT)

    signal.signal(READER_HAS_LEFT, _leave)
    threading.Thread(target=wait_for_end, daemon=True).start()


def forget_reader() -> None:
    """Undo what `end_with_reader` does, so that a command that has ended keeps its exit code."""
    signal.signal(READER_HAS_LEFT, signal.SIG_DFL)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


def _output() -> _Descriptor | None:
    """Return what standard output writes to, unless something has replaced it, such as a test."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Descriptor) else None


def _discard(descriptor: int) -> None:
    """Let what is written to a descriptor go nowhere; there is nothing to read from it either."""
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != descriptor:
        os.dup2(nothing, descriptor)
        os.close(nothing)


def _survivor(stream: TextIO | None, descriptor: int) -> TextIO:
    """Return the stream in place of one of Python's. One that was closed at the start (None) is
    opened: a file or a connection must not get its number."""
    if stream is None:
        _discard(descriptor)
    buffer = io.BufferedWriter(_Descriptor(descriptor, "w", closefd=False))
    if stream is None:
        return io.TextIOWrapper(buffer, UTF8, WRITE_OUT)
    is_by_line = bool(stream.line_buffering)
    is_locales = "utf8" in sys._xoptions and "PYTHONIOENCODING" not in os.environ
    encoding = locale.getencoding() if is_locales else stream.encoding
    return io.TextIOWrapper(buffer, encoding, WRITE_OUT, line_buffering=is_by_line)


def _write_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(write_out, error.object[error.start : error.end])), error.end


codecs.register_error(WRITE_OUT, _write_out)
