"""TensorBoard as a process of its own, for programs of the controller only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tfdeploy.errors import RunError
from tfdeploy.transport.openssh import foreground

if TYPE_CHECKING:
    from collections.abc import Mapping

PROCESS = "tfdeploy.commands.following.tensorboard.process"
END_S = 5.0


def require_free(port: int) -> None:
    """Raise RunError if a port of the controller can't be opened."""
    error = foreground.bind_error(port)
    if error is not None:
        raise RunError(
            f"port {port} of the controller can't be opened: {error.strerror}",
            "choose another with --port, or leave it out",
        )


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
