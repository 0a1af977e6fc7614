"""Fetch large files that a host holds: hashed as they arrive, continued at the byte, verified."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tfdeploy.errors import TransferFailed
from tfdeploy.hosts import parallel
from tfdeploy.results.fetch import difference
from tfdeploy.shared import filesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.shared.protocol.outputs import HashedFile
    from tfdeploy.transport import FileStream

BLOCK = 1 << 20


class HeldFiles:
    """Files that a host holds, on their way into `folder`, over a connection of their own.

    `hashes` are the SHA-256 of those that have arrived, in hex. `continued` are those of which an
    interrupted fetch had left a part.
    """

    def __init__(self, agent: Agent, folder: OwnFolder) -> None:
        self.hashes: dict[str, str] = {}
        self.continued: set[str] = set()
        self.folder = folder
        self._agent = agent

    def complete(self, source: str, expected: Mapping[str, HashedFile]) -> None:
        """Fetch files, and again what was continued from a part of other content. Raises as `fetch`
        does."""
        self.fetch(source, {name: file.size for name, file in expected.items()})
        stale = [
            n for n in self.continued & expected.keys() if self.hashes[n] != expected[n].sha256
        ]
        for name in stale:
            self.folder.remove(name)
        self.fetch(source, {name: expected[name].size for name in stale})

    def fetch(self, source: str, sizes: Mapping[str, int]) -> None:
        """Fetch files of the host's folder `source`, in the order of `sizes` (bytes by name).
        Raises TransferFailed, and OSError."""
        if not sizes:
            return
        present = {name: self._present(name, size) for name, size in sizes.items()}
        check = self._agent.transfers.check
        stream = self._agent.transport.send_files(source, [*present.items()])
        try:
            with self._agent.transfers.begin(self._agent.host, sum(sizes.values())) as transfer:
                for name, size in sizes.items():
                    transfer.skip(transfer.there + present[name])

                    def report(arrived: int, name: str = name) -> None:
                        transfer(name, transfer.there + arrived)

                    self._write(stream, name, present[name], size, report, check)
                if stream.read_into(memoryview(bytearray(1)), check):
                    raise TransferFailed(self._agent.host, "it sends more than it announced")
        finally:
            stream.close()

    def remove_damaged(self, files: Iterable[HashedFile]) -> dict[str, str]:
        """Delete the files that differ from what their host reported; return how, by path. If one
        stayed, the next fetch would skip it, because its size is the same."""
        expected = [*files]
        found = parallel.call_each(
            lambda file: difference(self.folder, file, self.hashes.get(file.path)),
            expected,
            filesystem.HASH_THREADS,
        )
        damaged = {file.path: text for file, text in zip(expected, found, strict=True) if text}
        for name in damaged:
            self.folder.remove(name)
        return damaged

    def _present(self, name: str, size: int) -> int:
        """Return how many bytes an interrupted fetch has left; they can be continued. A file that
        was stored in another way, too, is never changed in place."""
        info = self.folder.stat(name)
        if info and info.st_size <= size and info.st_nlink == 1:
            return info.st_size
        self.folder.remove(name)
        return 0

    def _write(
        self,
        stream: FileStream,
        name: str,
        present: int,
        size: int,
        report: Callable[[int], None],
        check: Callable[[], None],
    ) -> None:
        """Write the rest of one file; hash all of it."""
        digest, left = hashlib.sha256(), size - present
        buffer = memoryview(bytearray(BLOCK))  # another thread may write another file
        self.folder.take(left)
        with self.folder.update(name) as file:
            if present:
                self.continued.add(name)
                while count := file.readinto(buffer):
                    check()
                    digest.update(buffer[:count])
            while left:
                check()
                count = stream.read_into(buffer[:left], check)
                if not count:
                    message = f"it sent {size - left} of {size} bytes of {name}"
                    raise TransferFailed(self._agent.host, message)
                block = buffer[:count]
                digest.update(block)
                filesystem.write_all(file.fileno(), block)
                left -= count
                report(count)
        self.hashes[name] = digest.hexdigest()
