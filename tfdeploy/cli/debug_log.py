"""What tfdeploy does, as text: with -v on standard error, and always in a small file.

All modules log to the tree "tfdeploy"; only here it gets handlers. Records have names, sizes and
times, but no content of requests. DEBUG is for tfdeploy's own words. Other levels, and records of
other libraries, may quote what a host or a program has said: secrets in them are hidden.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shlex
import sys
import time
import traceback
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import typer

from tfdeploy.errors import TfdeployError
from tfdeploy.folders.user_folders import make_private, state_folder
from tfdeploy.formatting.humanize import escape_control, escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

VARIABLE = "TFDEPLOY_LOG"
LEVELS = {"": 0, "debug": 1, "trace": 2}  # as often as -v
OWN, OTHERS = "tfdeploy", ("paramiko",)
MAX_BYTES = 1 << 20
MAX_FILES = 8  # of commands with the same name that run at the same time
MIN_SECRET = 8  # characters of a variable's value; shorter ones would hide parts of other words
_log = logging.getLogger(OWN)
last_path: Path | None = None  # of this process' file, if it has one


class LogFile:
    """The log of the last command of its name. A command that still runs has it locked, so that
    another one takes the next name."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, BlockingIOError if it is locked, PermissionError if it is not the
        user's."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        self.path, self._file = path, os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        try:
            if os.fstat(self._file.fileno()).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise
        self._file.seek(0, os.SEEK_END)

    def clear(self) -> None:
        self._file.seek(0)
        self._file.truncate()

    def write(self, text: str) -> None:
        """Add text; a file that becomes too large keeps its newer half."""
        self._file.write(text.encode(errors="backslashreplace"))
        if self._file.tell() > MAX_BYTES:
            self._file.seek(-MAX_BYTES // 2, os.SEEK_END)
            newer = self._file.read().partition(b"\n")[2]
            self.clear()
            self._file.write(b"(older lines were deleted)\n" + newer)

    def close(self) -> None:
        self._file.close()


class _LogHandler(logging.Handler):
    """A handler that writes records as lines, which start with the time unless `text` makes
    others."""

    def __init__(
        self,
        write: Callable[[str], object],
        level: int = logging.NOTSET,
        text: Callable[[logging.LogRecord], str] | None = None,
    ) -> None:
        super().__init__(level)
        self._write, self._text = write, text or _line

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # a full disk or a closed terminal stops no command
            self._write(f"{self._text(record)}\n")


@contextmanager
def logged(command: str, verbosity: int) -> Iterator[None]:
    """Log a command until the end of the block: on standard error with a `verbosity` from 1 on,
    and in its file, also the traceback of a defect."""
    global last_path
    verbosity = max(verbosity, _wanted_by_variable())
    file, started = _open(command), time.monotonic()
    last_path = file.path if file else None
    handlers = [_LogHandler(file.write)] if file else []
    handlers += [_on_standard_error(verbosity)]
    names = [OWN, *(OTHERS if verbosity > 1 else ())]
    with closing(file) if file else nullcontext(), _handled_by(handlers, names):
        words = ["tfdeploy", *shown(sys.argv[1:])]
        python = f"Python {sys.version.split()[0]}, process {os.getpid()}"
        _log.debug("%s (%s)", shlex.join(words), python)
        try:
            yield
        except Exception as error:
            # A task's log may have values of training.secrets, which only hosts.toml names.
            said = error.without_log() if isinstance(error, TfdeployError) else error
            _log.info("%s: %s", type(error).__name__, said)
            if file and not hasattr(error, "exit_code"):
                file.write(traceback_of(error))
            raise
        finally:
            _log.debug("the command took %.3f s", time.monotonic() - started)


def _on_standard_error(verbosity: int) -> _LogHandler:
    """Return a handler that prints all records with -v, else only what the user waits for."""

    def write(text: str) -> None:
        sys.stderr.write(text)  # a display of Rich replaces it for a while

    if verbosity:
        return _LogHandler(write)
    return _LogHandler(write, logging.WARNING, lambda record: escape_line(record.getMessage()))


def shown(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command line, without the values of variables and without words for
    another program: both may be secrets."""
    own = list(arguments)
    if "--" in own:
        after = len(own) - own.index("--") - 1
        own[own.index("--") :] = [f"-- ({after} hidden)"]
    for index, word in enumerate(own):
        if word.startswith("--env="):
            own[index] = f"--env={word.split('=')[1]}=(hidden)"
        elif own[index - 1 : index] == ["--env"]:
            own[index] = f"{word.split('=')[0]}=(hidden)"
    return own


def hide(text: str) -> str:
    """Return a text without the secrets of URLs, and without the values of this process' variables
    that their names say to be secret: paths of files, as of an agent's socket, are not."""
    from tfdeploy.config.redact import HIDDEN, SECRET_NAME, any_of, hide_in_urls

    named = (value for name, value in os.environ.items() if SECRET_NAME.search(name))
    long = (value for value in named if len(value) >= MIN_SECRET)
    secrets = (value for value in long if not (value[0] == "/" and os.access(value, os.F_OK)))
    return hide_in_urls(any_of(secrets).sub(HIDDEN, text))


def traceback_of(error: Exception) -> str:
    """Return the traceback of a defect. What it quotes may be of a host or a program."""
    return escape_control(hide("".join(traceback.format_exception(error))))


def _wanted_by_variable() -> int:
    value = os.environ.get(VARIABLE, "")
    if value not in LEVELS:
        raise typer.BadParameter(f'{VARIABLE}: found "{value}"; expected debug or trace')
    return LEVELS[value]


def _open(command: str) -> LogFile | None:
    """Return the file of a command, with what this process has logged there before: a command may
    be tried once more. Return None if it can't be written, as on a full disk."""
    with suppress(OSError, RuntimeError):  # the last: the user has no home directory
        folder = state_folder()
        make_private(folder)
        for number in range(1, MAX_FILES + 1):
            with suppress(BlockingIOError):
                file = LogFile(folder / f"{command}{f'-{number}' if number > 1 else ''}.log")
                if file.path != last_path:
                    file.clear()
                return file
    return None


@contextmanager
def _handled_by(handlers: Sequence[logging.Handler], names: Sequence[str]) -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
            for handler in handlers:
                logger.removeHandler(handler)


def _line(record: logging.LogRecord) -> str:
    text = record.getMessage()
    is_own = record.name.split(".")[0] == OWN
    if record.levelno > logging.DEBUG or not is_own:
        text = hide(text if is_own else f"{record.name}: {text}")
    clock = time.strftime("%H:%M:%S", time.localtime(record.created))
    return f"{clock}.{int(record.msecs):03d} {escape_line(text)}"
