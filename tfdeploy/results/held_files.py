"""Fetch files that a host holds unchanged: hashed as they arrive, continued at the byte, verified.

The fetch may begin while the host still reads them: whether they are good is known later.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING

from tfdeploy.errors import TfdeployError, TransferFailed
from tfdeploy.hosts import parallel
from tfdeploy.results.fetch import check_free_space, difference
from tfdeploy.shared import filesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.shared.protocol.outputs import HashedFile
    from tfdeploy.transport import FileStream

BLOCK = 1 << 20


class HeldFiles:
    """Files that a host holds, on their way into `folder`.

    `hashes` are the SHA-256 of those that have arrived over a connection of their own, in hex.
    `continued` are those of which an interrupted fetch had left a part; `early` are those whose
    fetch began first, in a thread.
    """

    def __init__(self, agent: Agent, folder: OwnFolder) -> None:
        self.hashes: dict[str, str] = {}
        self.continued: set[str] = set()
        self.early: tuple[str, ...] = ()
        self.folder = folder
        self._agent = agent
        self._thread: threading.Thread | None = None
        self._error: TfdeployError | OSError | None = None
        self._closed = threading.Event()

    def begin(self, source: str, sizes: Mapping[str, int]) -> None:
        """Fetch files as `fetch` does, in a thread; only the first call does."""
        if self.early or not sizes:
            return
        self.early = tuple(sizes)
        self._thread = threading.Thread(target=self._fetch_early, args=(source, sizes), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the fetch that was started. Raises as `fetch` does."""
        if self._thread:
            self._thread.join()
        if self._error:
            raise self._error

    def close(self) -> None:
        """End the fetch that was started, if it still runs: its files are not needed any more."""
        self._closed.set()
        if self._thread:
            self._thread.join()

    def complete(self, source: str, expected: Mapping[str, HashedFile]) -> None:
        """Fetch files; the fetch of some may have started already. Raises as `fetch` does."""
        if not expected.keys().isdisjoint(self.early):
            self.wait()
        self.fetch(source, {n: file.size for n, file in expected.items() if n not in self.early})
        self.fetch_stale(source, expected)

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
                    raise TransferFailed(self._agent.host, "it sends more than it announced")
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

    def verify(self, files: Iterable[HashedFile]) -> None:
        """Raise TransferFailed if a file differs from what its host reported."""
        for name, text in self.remove_damaged(files).items():
            hint = "tfdeploy collect fetches it again"
            raise TransferFailed(self._agent.host, f"{name} arrived with {text}", hint)

    def set_times(self, mtimes_ns: Mapping[str, int]) -> None:
        """Give the files that have arrived the times that they have on their host. Raises
        OSError."""
        for name in self.hashes.keys() & mtimes_ns.keys():
            self.folder.set_time(name, mtimes_ns[name])

    def _fetch_early(self, source: str, sizes: Mapping[str, int]) -> None:
        def refuse_if_closed() -> None:
            if self._closed.is_set():
                raise TransferFailed(self._agent.host, "the files are not wanted any more")

        try:
            check_free_space(self._agent, self.folder, sizes)
            self.fetch(source, sizes, refuse_if_closed)
        except (TfdeployError, OSError) as error:
            self._error = error

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
