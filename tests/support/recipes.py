"""Run an example as its README says, with tfdeploy on this machine, and read the result."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import command_line, warm
from support.host_python import tf_python
from support.projects import environment

EXAMPLES = Path(__file__).parents[2] / "examples"
EVAL = EXAMPLES / "digits" / "eval.py"


@dataclass(frozen=True)
class RecipeRun:
    """A recipe's run that has ended. `report` is the document of `tfdeploy run --json`."""

    recipe: str
    folder: Path
    report: dict[str, Any]

    @property
    def tasks(self) -> dict[str, str]:
        return self.report["tasks"]

    def ended_workers(self) -> list[str]:
        """Return the workers that exited by themselves.

        tfdeploy stops a worker that exits more than a few seconds after the chief, which happens on
        a busy machine: the end of its log may be missing.
        """
        return [t for t in self.tasks if t.startswith("worker:") and self.tasks[t] == "SUCCEEDED"]

    @property
    def collected(self) -> Path:
        return Path(self.report["collected"])

    @property
    def checkpoints(self) -> Path:
        return self.collected / "checkpoints"

    def log(self, task: str) -> str:
        return (self.collected / "logs" / f"{task.replace(':', '-')}.log").read_text()

    def accuracy(self) -> float:
        """Return the collected checkpoint's accuracy on the test images, by digits/eval.py."""
        done = warm.run(EVAL, self.checkpoints, "--json", cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["accuracy"]

    def python(self, *words: str) -> str:
        """Run a script of the examples from their folder, and return its output."""
        done = warm.run(*words, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def run(
    recipe: str, folder: Path, *, hosts: str = "hosts.toml", words: tuple[str, ...] = ()
) -> RecipeRun:
    """Run `tfdeploy run` in a copy of the examples in `folder`; it must exit with 0.

    `words` are added to the recipe's command.
    """
    copy = folder / "examples"
    if not copy.exists():
        shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("runs", "__pycache__"))
        (copy / ".git").mkdir()  # as in a clone: recipes read the folder above their own
        for file in copy.glob("*/hosts*.toml"):  # other tests may use most of the CPU time
            text = file.read_text()
            file.write_text(text.replace("[training]\n", "[training]\nready_timeout_s = 900\n"))
    env = environment(copy)
    env["PATH"] = f"{Path(tf_python()).parent}:{env['PATH']}"
    command = ("run", "--hosts", hosts, "--json", "--", *words)
    done = command_line.run(*command, cwd=copy / recipe, env=env)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return RecipeRun(recipe, copy, json.loads(done.stdout))
