"""This machine as a host, without SSH: the same seam, by processes and copies."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandFailed, CommandTimedOut, TransferFailed
from tfdeploy.transport import Completed, OnProgress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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

    def stream(self, argv: Sequence[str], *, stdin: bytes = b"") -> LocalStream:
        return LocalStream(self.host, argv, stdin)

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
    """A process of this machine whose output is read as it comes."""

    def __init__(self, host: str, argv: Sequence[str], stdin: bytes) -> None:
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=Path.home(),
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailed(host, f"{argv[0]} can't be run: {error.strerror}") from None
        self._input = self._process.stdin
        if self._input:
            self._input.write(stdin)
            self._input.flush()

    def __iter__(self) -> Iterator[bytes]:
        output = self._process.stdout
        while output and (chunk := output.read1()):  # type: ignore[attr-defined]
            yield chunk

    def close(self) -> None:
        if self._input and not self._input.closed:
            self._input.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


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
