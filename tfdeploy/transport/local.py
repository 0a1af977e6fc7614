"""This machine as a host, without SSH: the same seam, by processes and copies."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tfdeploy.errors import CommandFailed, CommandTimedOut, TransferFailed, Unreachable
from tfdeploy.transport import Completed, OnProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK = 1 << 16


class LocalTransport:
    """Commands start in the home directory, as they do over SSH."""

    def __init__(self, host: str) -> None:
        self.host = host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        try:
            done = subprocess.run(
                list(argv),
                input=stdin,
                capture_output=True,
                timeout=timeout_s,
                cwd=Path.home(),
                start_new_session=True,  # Ctrl-C is for us, not for a half-done agent
            )
        except subprocess.TimeoutExpired:
            raise CommandTimedOut(
                self.host, f"{argv[0]} gave no answer within {timeout_s:g} s"
            ) from None
        except OSError as error:
            raise CommandFailed(self.host, f"{argv[0]} can't be run: {error.strerror}") from None
        return Completed(done.returncode, done.stdout, done.stderr)

    def stream(self, argv: Sequence[str]) -> LocalStream:
        return LocalStream(self.host, argv)

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
        self._copy(source, Path(dest), files, on_progress)

    def pull(self, source: str, dest: Path, files: Sequence[str]) -> None:
        there = Path(source)
        regular = [name for name in files if not _is_special(there / name)]
        self._copy(there, dest, regular, lambda share: None)

    def close(self) -> None:
        """There is nothing to hang up."""

    def _copy(
        self, source: Path, dest: Path, files: Sequence[str], on_progress: OnProgress
    ) -> None:
        try:
            for done, name in enumerate(files, start=1):
                _copy_one(source / name, dest / name)
                on_progress(done / len(files))
        except OSError as error:
            raise TransferFailed(
                self.host, f"copying {error.filename or ''} failed: {error.strerror or error}"
            ) from None


class LocalStream:
    """A process of this machine, talked with as it goes on."""

    def __init__(self, host: str, argv: Sequence[str]) -> None:
        self._host = host
        self._name = argv[0]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the stream
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=Path.home(),
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise CommandFailed(host, f"{argv[0]} can't be run: {error.strerror}") from None

    def send(self, data: bytes | memoryview) -> None:
        try:
            with memoryview(data) as left:
                _write_all(_descriptor(self._process.stdin), left)
        except OSError as error:
            raise Unreachable(self._host, f"{self._name} has ended: {error.strerror}") from None

    def read(self, timeout_s: float | None = None) -> bytes:
        output = _descriptor(self._process.stdout)
        waiting = select.poll()  # select() knows no descriptor beyond 1023
        waiting.register(output, select.POLLIN)
        if not waiting.poll(None if timeout_s is None else timeout_s * 1000):
            raise CommandTimedOut(self._host, f"{self._name} said nothing for {timeout_s:g} s")
        return os.read(output, CHUNK)

    def ended(self) -> Completed:
        exit_code = self._process.wait()
        self._errors.seek(0)
        return Completed(exit_code, b"", self._errors.read()[-CHUNK:])

    def keep(self) -> None:
        self.close()

    def close(self) -> None:
        self._hang_up(self._process.stdin)
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._hang_up(self._process.stdout)
        self._errors.close()

    def _hang_up(self, pipe: IO[bytes] | None) -> None:
        with suppress(OSError):
            if pipe:
                pipe.close()


def _descriptor(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()


def _write_all(descriptor: int, left: memoryview) -> None:
    while left:
        left = left[os.write(descriptor, left) :]


def _is_special(path: Path) -> bool:
    """A link, a fifo, a device. What is missing is not: the copy will say so."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def _copy_one(source: Path, target: Path) -> None:
    """As rsync does it: beside the target first, so that a broken copy never has its name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.incoming")
    fresh.unlink(missing_ok=True)
    shutil.copy2(source, fresh, follow_symlinks=False)
    fresh.replace(target)
