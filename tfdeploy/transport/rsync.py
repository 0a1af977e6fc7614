"""rsync over OpenSSH: its options, its progress output and its exit codes."""

from __future__ import annotations

import logging
import os
import re
import select
import shlex
import subprocess
import sys
import tempfile
import time
from typing import IO, TYPE_CHECKING

from tfdeploy.errors import TransferFailed
from tfdeploy.transport import ATTEMPTS, ignore_progress, wait_before_retry
from tfdeploy.transport.file_stream import (
    CHECK_INTERVAL_S,
    MAX_MESSAGES,
    MESSAGES_LIMIT,
    SEND,
    SshFileStream,
)
from tfdeploy.transport.words import endless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tfdeploy.transport import OnProgress

_log = logging.getLogger(__name__)
# -l: links as links. -t: keep times, which rsync's quick check needs. -s: no remote shell splits a
# path. -8: print names unescaped. The agent sets permissions when it seals a release.
COMMON = ("rsync", "-lts8", "--from0", "--files-from=-", "--timeout=60")
PARTIAL = "--partial-dir=.rsync-partial"  # continue a file where its transfer was interrupted
# An ssh whose controller was killed ends within a minute of silence, as rsync does by --timeout.
ALIVE = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")
# OpenSSH's messages if sshd drops the handshake, as it does above MaxStartups.
DROPPED = re.compile(rb"kex_exchange_identification|Connection (reset|closed) by")
# rsync prints a line with a name, then the bytes of all files, repeatedly: 8,749,056  22%
PROGRESS = re.compile(rb"\s*([\d,.]+) +\d+%.*")
VERSION = re.compile(rb"rsync +version v?(\d+)\.(\d+)\.(\d+)")
MAX_LINE = 500  # characters of a message: it may have a long path
# Source: rsync(1), EXIT VALUES. 12 also means that the host has no rsync.
SYNTAX = 1
MEANINGS = {
    SYNTAX: "rsync must be 3.1 or newer, on the controller and on the host",
    2: "the host's login shell prints text: let its profile print only if [ -t 1 ]",
    11: "a disk is full or not writable",
    12: "the connection was lost, or rsync is not installed on the host",
    23: "some files could not be transferred",
    24: "files were deleted during the transfer",
    30: "no data for 60 s",
    127: "rsync is not installed on the host",
    255: "ssh could not connect",
}
MIN_VERSION = (3, 1)
INSTALL = {
    "darwin": "macOS has openrsync: brew install rsync, and have its folder first in PATH",
}


def find_problem() -> tuple[str, str] | None:
    """Return why the controller's rsync can transfer no files, and what to do; None if it can."""
    version, hint = installed_version(), INSTALL.get(sys.platform, "apt-get install rsync")
    if version is None:
        return "rsync is not installed on the controller", hint
    if version < MIN_VERSION:
        found = ".".join(map(str, version))
        return f"the controller's rsync is like rsync {found}; expected 3.1 or newer", hint
    return None


def installed_version() -> tuple[int, ...] | None:
    """Return the version of the controller's rsync, such as (3, 2, 7); None if it has none."""
    try:
        output = subprocess.run([COMMON[0], "--version"], capture_output=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = VERSION.search(output)
    return tuple(map(int, match.groups())) if match else None


class RsyncTransfers:
    """The half of a transport that transfers files: rsync, each with its own ssh process."""

    def __init__(self, host: str, ssh: Callable[[], Sequence[str]]) -> None:
        """`ssh` returns the command line of ssh; it is called when files are to be transferred."""
        self.host = host
        self.transfer_command = ssh

    def push(
        self,
        source: Path,
        dest: str,
        files: Sequence[str],
        *,
        base: str | None = None,
        checksum: bool = False,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        """As the contract says; retry if sshd drops the handshake."""
        rsh = f"--rsh={_quote_words(self.transfer_command())}"
        ends = (_content_of(source), f"{self.host}:{_content_of(dest)}")
        options = [*_push_options(base, checksum), rsh, "--info=progress2,name1"]
        # "./": a name that starts with "#" or ";" would be a comment, even with --from0.
        file_list = b"\0".join(b"./" + os.fsencode(name) for name in files)
        for attempt in range(1, ATTEMPTS + 1):
            code, errors = _run(self.host, [*COMMON, *options, *ends], file_list, on_progress)
            if code == 0:
                return
            if code == SYNTAX and (problem := find_problem()):
                raise TransferFailed(self.host, *problem)
            if not DROPPED.search(errors) or attempt == ATTEMPTS:
                raise TransferFailed(self.host, _reason(code, errors))
            wait_before_retry(self.host, attempt, _reason(code, errors))

    def send_files(self, source: str, files: Sequence[tuple[str, int]]) -> SshFileStream:
        """As the contract says; not with rsync, which would compute checksums of its own."""
        remote = shlex.join(["sh", "-c", SEND, "sh", source])
        command = [*self.transfer_command(), *ALIVE, "--", self.host, remote]
        _log.debug("%s: files of %s: %s", self.host, source, shlex.join(command[:-1]))
        return SshFileStream(self.host, command, files, lambda text: bool(DROPPED.search(text)))


def _run(
    host: str, argv: Sequence[str], file_list: bytes, on_progress: OnProgress
) -> tuple[int, bytes]:
    with tempfile.TemporaryFile() as names, tempfile.TemporaryFile() as errors:
        names.write(file_list)
        names.seek(0)
        started = time.monotonic()
        _log.debug("%s: %s", host, shlex.join(argv))
        try:
            process = subprocess.Popen(argv, stdin=names, stdout=subprocess.PIPE, stderr=errors)
        except FileNotFoundError:
            message, hint = find_problem() or ("rsync can't be run on the controller", "")
            raise TransferFailed(host, message, hint) from None
        _report_progress(_lines(host, process, len(file_list), errors), process, on_progress)
        code, messages = process.wait(), _end_of(errors)
        _log.debug("%s: rsync: exit %d after %.3f s", host, code, time.monotonic() - started)
        return code, messages


def _lines(
    host: str, process: subprocess.Popen[bytes], names_bytes: int, errors: IO[bytes]
) -> Iterator[bytes]:
    """Yield the lines that rsync prints until it ends: names, and their progress. Raises
    TransferFailed if the host has it print more: what is no progress is at most each name twice."""
    assert process.stdout
    output, rest, printed = process.stdout, b"", 0
    ready = select.poll()
    ready.register(output, select.POLLIN)
    while True:
        if os.fstat(errors.fileno()).st_size > MESSAGES_LIMIT:
            raise TransferFailed(host, endless(_end_of(errors)))
        if not ready.poll(CHECK_INTERVAL_S * 1000):
            continue
        chunk = output.read1(4096)  # type: ignore[attr-defined]
        *lines, rest = re.split(rb"[\r\n]", rest + chunk)
        printed += sum(len(line) for line in lines if not PROGRESS.fullmatch(line))
        if printed + len(rest) > 2 * names_bytes + MESSAGES_LIMIT:
            raise TransferFailed(host, endless(lines[-1] if lines else rest))
        yield from lines
        if not chunk:
            return


def _end_of(errors: IO[bytes]) -> bytes:
    """Return the end of what rsync, ssh and the host wrote about errors."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - MAX_MESSAGES))
    return errors.read()


def _push_options(base: str | None, checksum: bool) -> list[str]:
    """Return the options of a push; rsync copies equal files from `base`, on the host itself."""
    options = [PARTIAL, f"--copy-dest={base}"] if base else [PARTIAL]
    return [*options, "--checksum"] if checksum else options


def _content_of(path: str | Path) -> str:
    """Return the path with the slash that makes rsync copy a folder's content, not the folder."""
    return f"{path}".rstrip("/") + "/"


def _quote_words(words: Sequence[str]) -> str:
    """Quote words for --rsh, which rsync splits itself; it wants quotes doubled (rsync(1), -e)."""
    return " ".join("'" + word.replace("'", "''") + "'" for word in words)


def _report_progress(
    lines: Iterable[bytes], process: subprocess.Popen[bytes], on_progress: OnProgress
) -> None:
    """Report rsync's progress until it ends; end it if `lines` or `on_progress` raises. It is
    terminated, not killed: its other processes would go on without it."""
    file = ""
    with process:
        try:
            for line in lines:
                if match := PROGRESS.fullmatch(line):
                    on_progress(file, int(re.sub(rb"\D", b"", match[1])))
                elif line:
                    file = line.decode(errors="replace")
        except BaseException:
            process.terminate()
            raise


def _reason(code: int, stderr: bytes) -> str:
    """Return a message with the exit code, its meaning, and rsync's last messages."""
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    details = [line for line in lines if not line.startswith("rsync error:")]
    last = "; ".join(line[:MAX_LINE] for line in details[-2:] or lines[-1:])
    meaning = f" ({MEANINGS[code]})" if code in MEANINGS else ""
    return f"rsync exited with {code}{meaning}" + (f": {last}" if last else "")
