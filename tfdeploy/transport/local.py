"""The controller itself as a host: the transport interface with processes and file copies."""

from __future__ import annotations

import logging
import secrets
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import TransferFailed
from tfdeploy.transport import OnProgress, ignore_progress
from tfdeploy.transport.file_stream import SEND, SshFileStream
from tfdeploy.transport.process_stream import ProcessStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.transport import CompletedCommand

_log = logging.getLogger(__name__)
PATIENCE_S = 2.0  # an agent ends by itself when its input ends


class LocalTransport:
    """A host with transport = "local". Commands start in the home directory, as over SSH."""

    def __init__(self, host: str) -> None:
        self.host = host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        with closing(ProcessStream(self.host, argv, argv[0])) as process:
            return process.finish(stdin, timeout_s)

    def stream(self, argv: Sequence[str], *, repeatable: bool = False) -> ProcessStream:
        _log.debug("%s: a process on this machine, without SSH", self.host)
        return ProcessStream(self.host, argv, argv[0], patience_s=PATIENCE_S)

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

    def send_files(self, source: str, files: Sequence[tuple[str, int]]) -> SshFileStream:
        return SshFileStream(self.host, ["sh", "-c", SEND, "sh", source], files)

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
