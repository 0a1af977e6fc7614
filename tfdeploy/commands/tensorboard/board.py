"""The events of runs in TensorBoard: fetched, and served until the user ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tfdeploy.commands.signals import delay_signals
from tfdeploy.commands.tensorboard import hparams
from tfdeploy.commands.tensorboard.fetching import EventFetcher
from tfdeploy.commands.trials import trials_of
from tfdeploy.errors import RunError
from tfdeploy.run import labels
from tfdeploy.shared.event_records import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdeploy.errors import TfdeployError
    from tfdeploy.run import Run

FIRST_LOOK_S = 20.0  # later, what hosts that are slow have is added
PROCESS = "tfdeploy.commands.tensorboard.process"
END_S = 5.0
WRITERS = "keras.callbacks.TensorBoard and tf.summary.create_file_writer (SummaryWriter) write them"


class EventBoard:
    """Runs, the fetchers of their events, and TensorBoard. Leaving the context ends all of it; what
    was fetched stays."""

    def __init__(
        self,
        runs: Sequence[Run],
        on_away: Callable[[TfdeployError], None],
        on_back: Callable[[str], None],
        reload: Callable[[Run], Run],
        port: int | None = None,
        *,
        offline: bool,
    ) -> None:
        self.fetchers = [EventFetcher(run, on_away, on_back, reload) for run in runs]
        self.labels = dict(zip((run.id for run in runs), labels(runs), strict=True))
        self._port, self._offline = port, offline
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        folders = {self.labels[each.run.id]: prepare_events(each.run) for each in self.fetchers}
        with ExitStack() as stack:
            for fetcher in () if self._offline else self.fetchers:
                stack.enter_context(fetcher)
            stack.callback(self._end_fetching)  # of all runs, before one of them is waited for
            self._server = stack.enter_context(TensorBoard(folders, self._port))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with delay_signals():
            self._stack.close()

    def _end_fetching(self) -> None:
        for fetcher in self.fetchers:
            fetcher.end()

    def look(self) -> None:
        """Wait until every host has sent what it has, or FIRST_LOOK_S."""
        deadline = time.monotonic() + FIRST_LOOK_S
        for fetcher in () if self._offline else self.fetchers:
            fetcher.looked.wait(max(0.0, deadline - time.monotonic()))

    def url(self) -> str:
        """Wait until TensorBoard answers, and return its address. Raises RunError."""
        return self._server.url()

    def wait(self) -> None:
        """Wait until TensorBoard exits. Raises RunError."""
        self._server.wait()


def prepare_events(run: Run) -> Path:
    """Return the folder that TensorBoard reads: what is no regular file in it is deleted, because
    it might lead elsewhere, and trials get their parameters. Raises RunError."""
    folder = run.open() / "events"
    try:
        folder.clean(lambda name: True)
        hparams.write(run, trials_of(None, run))
    except OSError as error:
        message = f"{error.filename or folder.path} can't be used: {error.strerror}"
        raise RunError(message) from None
    return folder.path


def events_of(run: Run) -> list[int]:
    """Return the size of each event file of a run that was fetched."""
    found = (run.open() / "events").files().items()
    names = ((path.rpartition("/")[2], info.st_size) for path, info in found)
    return [size for name, size in names if EVENTS in name and name != hparams.NAME]


# The process


class TensorBoard:
    """A TensorBoard that shows these folders by their names. Leaving the context ends it.

    `port` None: 6006, or the next one that is free.
    """

    def __init__(self, folders: Mapping[str, Path], port: int | None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="tfdeploy-tensorboard-")
        base = Path(self._temporary.name)
        logdir, self._log = base / "runs", base / "tensorboard.log"
        logdir.mkdir()
        for name, folder in folders.items():
            (logdir / name).symlink_to(folder.absolute())
        # -P: nothing in the current folder is imported, for example of somebody else's repository.
        self._command = [sys.executable, "-P", "-m", PROCESS, str(logdir), str(port or "")]

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C is for this command, which then ends both in order.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._temporary.cleanup()

    def url(self) -> str:
        """Wait until it answers, and return its address. Raises RunError if it has exited."""
        assert self._process.stdout
        line = self._process.stdout.readline().decode().strip()
        if not line:
            raise self._failure()
        return line

    def wait(self) -> None:
        """Wait until it exits, which it should not. Raises RunError."""
        self._process.wait()
        raise self._failure()

    def _failure(self) -> RunError:
        code = self._process.wait()
        lines = self._log.read_text(errors="replace").split("\n")
        last = next(
            (line.strip() for line in reversed(lines) if line.strip()), "it printed nothing"
        )
        return RunError(f"TensorBoard exited with {code}: {last}")
