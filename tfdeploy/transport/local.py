"""The controller itself as a host: the transport interface with processes and file copies."""

from __future__ import annotations

import os
import secrets
import select
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tfdeploy.errors import CommandFailed, CommandTimedOut, TransferFailed, Unreachable
from tfdeploy.transport import TOO_MUCH, CompletedCommand, OnProgress, ignore_progress
from tfdeploy.transport.file_stream import SEND, FileStream

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK = 1 << 16


class LocalTransport:
    """A host with transport = "local". Commands start in the home directory, as over SSH."""

    def __init__(self, host: str) -> None:
        self.host = host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        try:
            process = subprocess.run(
                list(argv),
                input=stdin,
                capture_output=True,
                timeout=timeout_s,
                cwd=Path.home(),
                start_new_session=True,  # Ctrl-C must not reach an agent in the middle of its work
            )
        except subprocess.TimeoutExpired:
            raise CommandTimedOut(
                self.host, f"{argv[0]} gave no answer within {timeout_s:g} s"
            ) from None
        except OSError as error:
            raise CommandFailed(self.host, f"{argv[0]} can't be run: {error.strerror}") from None
        return CompletedCommand(process.returncode, process.stdout, process.stderr)

    def stream(self, argv: Sequence[str], *, repeatable: bool = False) -> LocalStream:
        return LocalStream(self.host, argv)

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
        self._copy(source, Path(dest), files, on_progress)

    def pull(
        self,
        source: str,
        dest: Path,
        files: Sequence[str],
        *,
        max_bytes: int | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        folder = Path(source)
        regular = [name for name in files if not _is_special(folder / name)]
        present = [folder / name for name in regular if (folder / name).exists()]
        if max_bytes is not None and sum(file.stat().st_size for file in present) > max_bytes:
            raise TransferFailed(self.host, TOO_MUCH)
        self._copy(folder, dest, regular, on_progress)

    def send_files(self, source: str, files: Sequence[tuple[str, int]]) -> FileStream:
        return FileStream(self.host, ["sh", "-c", SEND, "sh", source], files)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _copy(
        self, source: Path, dest: Path, files: Sequence[str], on_progress: OnProgress
    ) -> None:
        try:
            copied_bytes = 0
            for name in files:
                on_progress(name, copied_bytes)
                _copy_atomically(source / name, dest / name)
                copied_bytes += (dest / name).lstat().st_size
                on_progress(name, copied_bytes)
        except OSError as error:
            raise TransferFailed(
                self.host, f"copying {error.filename or ''} failed: {error.strerror or error}"
            ) from None


class LocalStream:
    """A running process of the controller with open input and output."""

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
            with memoryview(data) as view:
                _write_all(_descriptor(self._process.stdin), view)
        except OSError as error:
            raise Unreachable(self._host, f"{self._name} has exited: {error.strerror}") from None

    def read(self, timeout_s: float | None = None) -> bytes:
        output = _descriptor(self._process.stdout)
        poll = select.poll()  # select() supports no descriptor above 1023
        poll.register(output, select.POLLIN)
        if not poll.poll(None if timeout_s is None else timeout_s * 1000):
            raise CommandTimedOut(self._host, f"{self._name} wrote nothing for {timeout_s:g} s")
        return os.read(output, CHUNK)

    def result(self) -> CompletedCommand:
        exit_code = self._process.wait()
        self._errors.seek(0)
        return CompletedCommand(exit_code, b"", self._errors.read()[-CHUNK:])

    def park(self) -> None:
        self.close()

    def close(self) -> None:
        self._close_pipe(self._process.stdin)
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_pipe(self._process.stdout)
        self._errors.close()

    def _close_pipe(self, pipe: IO[bytes] | None) -> None:
        with suppress(OSError):
            if pipe:
                pipe.close()


def _descriptor(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _is_special(path: Path) -> bool:
    """Return whether it is a link, a fifo or a device. A missing file is not: copying it fails."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def _copy_atomically(source: Path, target: Path) -> None:
    """Copy to a temporary name first, as rsync does: `target` is never a partial copy. That name
    does not depend on the file's, which may be as long as a name can be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".tfdeploy-{secrets.token_hex(8)}.new")
    try:
        shutil.copy2(source, partial, follow_symlinks=False)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
