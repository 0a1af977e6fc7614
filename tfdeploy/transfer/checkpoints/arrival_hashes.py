"""Hash files while rsync writes them: afterwards they would have to be read from the disk again."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from tfdeploy.agent.machine.hashing import BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

POLL_S = 0.02


class ArrivalHashes:
    """The SHA-256 of files that rsync writes into a folder while this context is open.

    rsync writes a file from its beginning to its end under a temporary name, `.NAME.XXXXXX`, and
    then renames it (rsync(1), --temp-dir). Small files may arrive between two looks, and a file
    that rsync continues is written elsewhere: their hashes stay unknown.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self._folder = folder
        self._wanted = {*names}
        self._hashes: dict[tuple[int, int], str] = {}  # by inode and size
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> ArrivalHashes:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def get(self, file: Path) -> str | None:
        """Return the hash of a file as it arrived, in hex; None if it is unknown."""
        try:
            info = file.stat(follow_symlinks=False)
        except OSError:
            return None
        return self._hashes.get((info.st_ino, info.st_size))

    def _follow(self) -> None:
        while not self._ended.wait(POLL_S):
            with suppress(OSError):  # a file was renamed already, or given up
                for temporary in self._temporary_files():
                    with temporary.open("rb") as file:
                        self._hash(file, temporary)

    def _temporary_files(self) -> list[Path]:
        return [
            file
            for file in self._folder.iterdir()
            if file.name.startswith(".") and file.stem[1:] in self._wanted
        ]

    def _hash(self, file: IO[bytes], temporary: Path) -> None:
        """Hash a file until rsync has renamed it, or the context ends."""
        digest, size = hashlib.sha256(), 0
        while True:
            complete = self._ended.is_set() or not temporary.exists()
            while block := file.read(BLOCK):  # after the rename too: all of it is there then
                digest.update(block)
                size += len(block)
            if complete:
                break
            self._ended.wait(POLL_S)
        self._hashes[os.fstat(file.fileno()).st_ino, size] = digest.hexdigest()
