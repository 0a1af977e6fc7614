"""Run scripts that need TensorFlow as forks of one process that has imported it.

The import takes about 3 s of CPU time. Each fork is a process with its own session, folder,
environment, output and exit status; with tfdeploy/inside on PYTHONPATH it is patched as a task is.
These scripts start from an interpreter instead: tasks that tfdeploy starts, and scripts of which
the import itself is tested: its output, or that a patch comes right after it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.host_python import tf_python
from support.waiting import until

LEGACY = "TF_USE_LEGACY_KERAS"  # selects, during the import, which Keras tf.keras is
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
SERVER = Path(__file__).with_name("warm_server.py")


def run(*words: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` with `env` added to the environment, and wait until it has exited."""
    script = start(*words, cwd=cwd, **env)
    code = script.wait()
    return subprocess.CompletedProcess(script.words, code, script.output, script.errors)


def start(*words: str | Path, cwd: Path, **env: str) -> Script:
    """Start `python WORDS` with `env` added to the environment, and return while it runs."""
    environment = {**os.environ, **QUIET, **env}
    return _server(environment.get(LEGACY, "")).start([*map(str, words)], cwd, environment)


@dataclass
class Script:
    """A script that runs or has exited. It prints into files in `folder`."""

    words: list[str]
    folder: Path
    pid: int

    def poll(self) -> int | None:
        """Return its exit status in subprocess's format, or None while it runs."""
        status = self.folder / "status"
        return int(status.read_text()) if status.exists() else None

    def wait(self) -> int:
        """Wait for its exit as long as it prints; return its exit status."""
        until(lambda: self.poll() is not None, f"the end of {self.words}", self._printed)
        code = self.poll()
        assert code is not None
        return code

    def terminate(self) -> None:
        """Send SIGTERM to the script, not to the processes that it has started."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it with all processes of its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text()

    def _printed(self) -> str:
        return self.output + self.errors


class Server:
    """The process that has imported TensorFlow. It exits with this process, which holds its stdin.

    What it prints goes to a file, which is shown if it can not start a script.
    """

    def __init__(self, legacy: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self._count = 0
        self._errors = Path(self._folder.name) / "errors"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [tf_python(), SERVER], env={**os.environ, **QUIET, LEGACY: legacy}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def start(self, words: list[str], cwd: Path, env: dict[str, str]) -> Script:
        self._count += 1
        folder = Path(self._folder.name) / str(self._count)
        folder.mkdir()
        (folder / "output").touch()
        (folder / "errors").touch()
        request = {"words": words, "cwd": str(cwd), "env": env, "folder": str(folder)}
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._errors.read_text()
        return Script(words, folder, int(answer))


@cache
def _server(legacy: str) -> Server:
    return Server(legacy)
