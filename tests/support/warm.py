"""Run scripts that need TensorFlow as forks of one process that has imported it.

The import takes about 3 s of CPU time. Each fork is a process with its own session, folder,
environment, output and exit status; with tfdeploy/inside on PYTHONPATH it is patched as a task is.
These scripts start from an interpreter instead: tasks that tfdeploy starts, and scripts of which
the import itself is tested: its output, or that a patch comes right after it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.forks import Fork, ForkServer
from support.host_python import tf_python
from support.waiting import until

LEGACY = "TF_USE_LEGACY_KERAS"  # selects, during the import, which Keras tf.keras is
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
IMPORTS = "import tensorflow; tensorflow.keras.layers"  # tf.keras is imported when it is first used


def run(*words: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` with `env` added to the environment, and wait until it has exited."""
    script = start(*words, cwd=cwd, **env)
    code = script.wait()
    return subprocess.CompletedProcess(script.process.args, code, script.output, script.errors)


def start(*words: str | Path, cwd: Path, **env: str) -> Script:
    """Start `python WORDS` with `env` added to the environment, and return while it runs."""
    environment = {**os.environ, **QUIET, **env}
    folder = Path(tempfile.mkdtemp(dir=_folder().name))
    with (
        open(os.devnull) as null,
        (folder / "output").open("a") as output,
        (folder / "errors").open("a") as errors,
    ):
        streams = null.fileno(), output.fileno(), errors.fileno()
        server = _server(environment.get(LEGACY, ""))
        words_text = [*map(str, words)]
        process = server.start(words_text, cwd, environment, streams, own_session=True)
        return Script(folder, process)


@dataclass
class Script:
    """A script that runs or has exited. It prints into files in `folder`."""

    folder: Path
    process: Fork

    def poll(self) -> int | None:
        """Return its exit status in subprocess's format, or None while it runs."""
        return self.process.poll()

    def wait(self) -> int:
        """Wait for its exit as long as it prints; return its exit status."""
        until(lambda: self.poll() is not None, f"the end of {self.process.args}", self._printed)
        return self.process.wait()

    def terminate(self) -> None:
        """Send SIGTERM to the script, not to the processes that it has started."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it with all processes of its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text()

    def _printed(self) -> str:
        return self.output + self.errors


@cache
def _server(legacy: str) -> ForkServer:
    return ForkServer(tf_python(), IMPORTS, {**os.environ, **QUIET, LEGACY: legacy})


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Create a folder that is deleted when this process exits."""
    return tempfile.TemporaryDirectory(prefix="warm-")
