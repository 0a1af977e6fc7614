"""Runs an example as its README says, through tfdeploy on this machine, and reads the outcome."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from integration.projects import environment

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Done:
    """A recipe's run, at its end. `said` is what `tfdeploy run --json` told of it."""

    recipe: str
    folder: Path
    said: dict[str, Any]

    @property
    def tasks(self) -> dict[str, str]:
        return self.said["tasks"]

    @property
    def collected(self) -> Path:
        return Path(self.said["collected"])

    @property
    def checkpoints(self) -> Path:
        return self.collected / "checkpoints"

    def log(self, task: str) -> str:
        return (self.collected / "logs" / f"{task.replace(':', '-')}.log").read_text()

    def accuracy(self) -> float:
        """What the collected checkpoint comes to on the test images, by digits/eval.py."""
        return judge().accuracy(self.checkpoints)

    def python(self, *words: str) -> str:
        """A script of the examples, run from their folder; what it printed."""
        done = subprocess.run(
            [sys.executable, *words], cwd=self.folder, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class Judge:
    """digits/eval.py, in one process for all checkpoints: TensorFlow takes seconds to import."""

    SCRIPT = """
import pathlib, sys
import data, eval
for line in sys.stdin:
    found = eval.latest_checkpoint(pathlib.Path(line.strip()))
    print(eval.measure(found, data.load("test")).accuracy, flush=True)
"""

    def __init__(self) -> None:
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT], cwd=EXAMPLES / "digits", text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # It runs where the sources lie.
        )  # fmt: skip

    def accuracy(self, checkpoints: Path) -> float:
        self._process.stdin.write(f"{checkpoints}\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        if not said:
            judge.cache_clear()  # Whoever asks next asks another one.
            self._complaints.seek(0)
            raise AssertionError(f"{checkpoints}:\n{self._complaints.read()}")
        return float(said)


@cache
def judge() -> Judge:
    """It ends with the tests, when nobody can ask it any more."""
    return Judge()


def run(recipe: str, folder: Path, *, hosts: str = "hosts.toml", timeout_s: float = 200) -> Done:
    """`tfdeploy run` in a copy of the examples below `folder`; it must exit with 0."""
    copy = folder / "examples"
    if not copy.exists():
        shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    words = ["run", "--hosts", hosts, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tfdeploy", *words], cwd=copy / recipe, env=environment(copy),
        capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return Done(recipe, copy, json.loads(done.stdout))
