"""Fetch files while their host still reads them: whether they are good is known later."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tfdeploy.errors import TfdeployError, TransferFailed
from tfdeploy.transfer.fetch import check_free_space

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.transfer.streamed_files import StreamedFiles


class EarlyFetch:
    """Fetches large files in a thread of its own. `names` are these files."""

    def __init__(self, agent: Agent, files: StreamedFiles) -> None:
        self.names: tuple[str, ...] = ()
        self._agent, self._files = agent, files
        self._thread: threading.Thread | None = None
        self._error: TfdeployError | OSError | None = None
        self._closed = threading.Event()

    def begin(self, source: str, sizes: Mapping[str, int]) -> None:
        """Fetch files of the host's folder `source`, in the order of `sizes` (bytes by name); only
        the first call does."""
        if self.names or not sizes:
            return
        self.names = tuple(sizes)
        self._thread = threading.Thread(target=self._fetch, args=(source, sizes), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until all files have arrived. Raises as `StreamedFiles.fetch` does."""
        if self._thread:
            self._thread.join()
        if self._error:
            raise self._error

    def close(self) -> None:
        """End the fetch if it still goes on: nobody wants its files any more."""
        self._closed.set()
        if self._thread:
            self._thread.join()

    def _fetch(self, source: str, sizes: Mapping[str, int]) -> None:
        try:
            check_free_space(self._agent, self._files.folder, sizes)
            self._files.fetch(source, sizes, self._refuse_if_closed)
        except (TfdeployError, OSError) as error:
            self._error = error

    def _refuse_if_closed(self) -> None:
        if self._closed.is_set():
            raise TransferFailed(self._agent.host, "the files are not wanted any more")
