"""Run an example with tfdeploy on this machine, as its README says, and read the result.

`run` is for recipes that need a restart, an evaluator or another readiness. `forks.train` starts
the tasks of the others, which is faster. faults/test_tasks_killed.py has runs with a
ParameterServerStrategy. That a task learns its role, of whatever kind, is shown by
integration/test_roles.py.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from support import command_line, excerpts, warm
from support.host_python import tf_python
from support.projects import environment

EXAMPLES = Path(__file__).parents[2] / "examples"
EVAL = EXAMPLES / "digits" / "eval.py"


@dataclass(frozen=True)
class RecipeRun:
    """A recipe's run that has ended, in `folder`, a copy of the examples. `tasks` has the last
    state of each task; `collected` is the folder with the chief's outputs and the logs."""

    recipe: str
    folder: Path
    tasks: dict[str, str]
    collected: Path

    def ended_workers(self) -> list[str]:
        """Return the workers that exited by themselves.

        tfdeploy stops a worker that exits more than a few seconds after the chief, which happens on
        a busy machine: the end of its log may be missing.
        """
        return [t for t in self.tasks if t.startswith("worker:") and self.tasks[t] == "SUCCEEDED"]

    def check_page(self) -> None:
        """Require that the tasks have printed what the recipe's page shows of their logs. One that
        was stopped may not have printed its last lines; a ps prints only when it starts."""
        ends = {t for t, state in self.tasks.items() if state != "STOPPED" or t.startswith("ps:")}
        page = (EXAMPLES / self.recipe / "README.md").read_text()
        assert excerpts.unprinted(page, {task: self.log(task) for task in ends}) == []

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
    copy = copied_to(folder)
    env = environment(copy)
    env["PATH"] = f"{Path(tf_python()).parent}:{env['PATH']}"
    command = ("run", "--hosts", hosts, "--json", "--", *words)
    done = command_line.run(*command, cwd=copy / recipe, env=env)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    report = json.loads(done.stdout)
    ended = RecipeRun(recipe, copy, report["tasks"], Path(report["collected"]))
    ended.check_page()
    return ended


def copied_to(folder: Path) -> Path:
    """Return a copy of the examples in `folder`, made by the first call."""
    copy = folder / "examples"
    if not copy.exists():
        shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("runs", "__pycache__"))
        (copy / ".git").mkdir()  # as in a clone: recipes read the folder above their own
        for file in copy.glob("*/hosts*.toml"):  # other tests may use most of the CPU time
            text = file.read_text()
            file.write_text(text.replace("[training]\n", "[training]\nready_timeout_s = 900\n"))
    return copy
