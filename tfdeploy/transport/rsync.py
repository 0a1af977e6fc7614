"""rsync over OpenSSH: the one place that knows its options, its progress and its exit codes."""

from __future__ import annotations

import random
import re
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from tfdeploy.errors import TransferFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdeploy.transport import OnProgress

# -l -t: links as links, times kept (rsync's own quick check needs them). -s: no remote shell ever
# splits a path. Permissions are set by the agent when it seals a release.
COMMON = ("rsync", "-lts", "--from0", "--files-from=-", "--timeout=60")
# Only regular files come home: a hostile or careless host can't plant links or devices here.
PARTIAL = "--partial-dir=.rsync-partial"  # a file that broke off goes on from what had arrived
REGULAR_ONLY = ("--no-links", "--no-devices", "--no-specials", PARTIAL)
ATTEMPTS = 4
# What OpenSSH says when sshd drops the handshake, as it does beyond MaxStartups.
DROPPED = re.compile(rb"kex_exchange_identification|Connection (reset|closed) by")
PROGRESS = re.compile(rb"(\d+)%")
# Source: rsync(1), EXIT VALUES. 12 is what rsync says when the other side has no rsync either.
MEANINGS = {
    1: "rsync has to be 3.1 or newer, here and there",
    2: "what the login shell's profile prints there is in its way: print only if [ -t 1 ]",
    11: "a disk is full or can't be written",
    12: "the connection broke, or rsync is not installed there",
    23: "some files could not be transferred",
    24: "files vanished while they were transferred",
    30: "nothing moved for 60 s",
    127: "rsync is not installed there",
    255: "ssh could not connect",
}


class ByRsync:
    """The half of a transport that moves files, with an ssh of its own."""

    def __init__(self, host: str, ssh: Sequence[str]) -> None:
        self.host = host
        self._ssh = ssh

    def push(
        self,
        source: Path,
        dest: str,
        files: Sequence[str],
        *,
        base: str | None = None,
        checksum: bool = False,
        on_progress: OnProgress = lambda share: None,
    ) -> None:
        options = push_options(base, checksum)
        remote = f"{self.host}:{folder(dest)}"
        transfer(self.host, self._ssh, folder(source), remote, files, options, on_progress)

    def pull(self, source: str, dest: Path, files: Sequence[str]) -> None:
        dest.mkdir(parents=True, exist_ok=True)
        remote = f"{self.host}:{folder(source)}"
        transfer(
            self.host, self._ssh, remote, folder(dest), files, REGULAR_ONLY, lambda share: None
        )


def transfer(
    host: str,
    ssh: Sequence[str],
    source: str,
    dest: str,
    files: Sequence[str],
    options: Sequence[str],
    on_progress: OnProgress,
) -> None:
    """Run rsync with the ssh command `ssh`. Raises TransferFailed with rsync's own last words."""
    argv = [*COMMON, *options, f"--rsh={_joined(ssh)}", "--info=progress2", source, dest]
    # A line that begins with "#" or ";" would be a comment, even with --from0.
    listing = b"\0".join(b"./" + name.encode() for name in files)
    for attempt in range(1, ATTEMPTS + 1):
        code, errors = _run(host, argv, listing, on_progress)
        if code == 0:
            return
        if not DROPPED.search(errors) or attempt == ATTEMPTS:
            raise TransferFailed(host, _reason(code, errors))
        time.sleep(random.uniform(0.2, 0.6) * 2**attempt)  # sshd drops handshakes under load


def _run(
    host: str, argv: Sequence[str], listing: bytes, on_progress: OnProgress
) -> tuple[int, bytes]:
    with tempfile.TemporaryFile() as names, tempfile.TemporaryFile() as errors:
        names.write(listing)
        names.seek(0)
        try:
            process = subprocess.Popen(argv, stdin=names, stdout=subprocess.PIPE, stderr=errors)
        except FileNotFoundError:
            raise TransferFailed(
                host, "rsync is not installed on this machine", "apt-get install rsync, or the like"
            ) from None
        _watch(process, on_progress)
        errors.seek(0)
        return process.wait(), errors.read()


def push_options(base: str | None, checksum: bool) -> list[str]:
    """What a push adds: a neighbour to copy equal files from, on the host itself."""
    options = [PARTIAL, f"--copy-dest={base}"] if base else [PARTIAL]
    return [*options, "--checksum"] if checksum else options


def folder(path: str | Path) -> str:
    """rsync's trailing slash: the content of the folder, not the folder."""
    return f"{path}".rstrip("/") + "/"


def _joined(words: Sequence[str]) -> str:
    """rsync splits --rsh itself: quotes group, and a quote inside stands doubled (rsync(1), -e)."""
    return " ".join("'" + word.replace("'", "''") + "'" for word in words)


def _watch(process: subprocess.Popen[bytes], on_progress: OnProgress) -> None:
    with process:
        output = process.stdout
        while output and (chunk := output.read1(4096)):  # type: ignore[attr-defined]
            found = PROGRESS.findall(chunk)
            if found:
                on_progress(int(found[-1]) / 100)


def _reason(code: int, stderr: bytes) -> str:
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("rsync error:")]
    said = "; ".join(own[-2:] or lines[-1:])
    meaning = f" ({MEANINGS[code]})" if code in MEANINGS else ""
    return f"rsync ended with {code}{meaning}" + (f": {said}" if said else "")
