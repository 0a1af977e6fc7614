"""Fetch large files that do not change meanwhile: hashed as they arrive, continued at the byte."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from tfdeploy.errors import TransferFailed
from tfdeploy.transport import TOO_MUCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.own_folder import OwnFolder
    from tfdeploy.shared.protocol.outputs import HashedFile
    from tfdeploy.transport import FileStream

BLOCK = 1 << 20


class StreamedFiles:
    """Files that a host holds, on their way into `folder`.

    `hashes` are the SHA-256 of those that have arrived, in hex. `continued` are those of which an
    interrupted fetch had left a part.
    """

    def __init__(self, agent: Agent, folder: OwnFolder) -> None:
        self.hashes: dict[str, str] = {}
        self.continued: set[str] = set()
        self._agent, self.folder = agent, folder

    def fetch(
        self, source: str, sizes: Mapping[str, int], check: Callable[[], None] = lambda: None
    ) -> None:
        """Fetch files of the host's folder `source`, in the order of `sizes` (bytes by name).

        `check` is called as bytes arrive, and repeatedly while none do; it may raise to end the
        fetch. Raises TransferFailed, and OSError.
        """
        if not sizes:
            return
        present = {name: self._present(name, size) for name, size in sizes.items()}

        def check_all() -> None:
            check()
            self._agent.transfers.check()

        stream = self._agent.transport.send_files(source, [*present.items()])
        try:
            with self._agent.transfers.begin(self._agent.host, sum(sizes.values())) as transfer:
                for name, size in sizes.items():
                    transfer.skip(transfer.there + present[name])

                    def report(arrived: int, name: str = name) -> None:
                        transfer(name, transfer.there + arrived)

                    self._write(stream, name, present[name], size, report, check_all)
                if stream.read_into(memoryview(bytearray(1)), check_all):
                    raise TransferFailed(self._agent.host, TOO_MUCH)
        finally:
            stream.close()

    def fetch_stale(self, source: str, expected: Mapping[str, HashedFile]) -> None:
        """Fetch again what was continued from a part of other content. Raises as `fetch` does."""
        stale = {
            name: expected[name].size
            for name in self.continued.intersection(expected)
            if self.hashes.get(name) != expected[name].sha256
        }
        for name in stale:
            self.folder.remove(name)
        self.fetch(source, stale)

    def set_times(self, mtimes_ns: Mapping[str, int]) -> None:
        """Give the files that have arrived the times that they have on their host. Raises
        OSError."""
        for name in self.hashes.keys() & mtimes_ns.keys():
            self.folder.set_time(name, mtimes_ns[name])

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
                _write_all(file.fileno(), block)
                left -= count
                report(count)
        self.hashes[name] = digest.hexdigest()


def _write_all(descriptor: int, block: memoryview) -> None:
    while block:
        block = block[os.write(descriptor, block) :]
