"""A training on this machine: begun as a person begins it, watched by what its tasks write."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.projects import Project
from integration.sshd import alive, free_ports, until

if TYPE_CHECKING:
    import signal

SCRIPTS = Path(__file__).parent / "scripts"
STUB = "stub.py"  # no TensorFlow: opens its port, and misbehaves as it is told
PATIENCE_S = 120.0
# How each script is told its role, and the tasks that it has here.
KINDS = {
    "train_async.py": ("flags", {"ps": 1, "workers": 2}),
    "train_ps_strategy.py": ("tf_config", {"ps": 1, "workers": 1, "chief": True}),
    "train_mirrored.py": ("tf_config", {"workers": 2}),
    STUB: ("flags", {"ps": 1, "workers": 2}),
}
SLEEPER = "import time; time.sleep(3000)"


def patiently(holds, what: str):
    """Poll until it holds: as long as two busy cores may need for a few starts of TensorFlow."""
    return until(holds, what, PATIENCE_S)


@dataclass
class Training(Project):
    """`startup_s` is what it took from `tfdeploy start` to READY."""

    startup_s: float = 0.0

    @classmethod
    def of(cls, script: str, folder: Path, *flags: str, **more: Any) -> Training:
        """`tasks` and `host` are keys of its only host, `restart` and `training` of those tables,
        over what a test usually wants."""
        role, tasks = KINDS.get(script, KINDS[STUB])
        host = {
            "transport": "local", "python": sys.executable, "directory": str(folder / "host"),
            "ports": free_ports(5), **more.pop("tasks", tasks), **more.pop("host", {}),
        }  # fmt: skip
        training = {"role": role, "ready_timeout_s": 150, "stop_grace_s": 1.5}
        more["training"] = {**training, **more.get("training", {})}
        top = {"restart": {"frozen_timeout_s": 6, **more.pop("restart", {})}}
        made = cls(folder / "project", {"here": host}, top, flags=list(flags), **more)
        if script != STUB:
            shutil.copy(SCRIPTS / script, made.folder / "train.py")
        return made

    def beside(self, script: str) -> None:
        """Another script of ours in the same folder, to be imported."""
        shutil.copy(SCRIPTS / script, self.folder)

    def tf(self, *words: str, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
        return super().tf(*words, timeout_s=timeout_s)

    def start(self) -> Training:
        """READY, from a tree that no host has seen yet."""
        self.ok("push")
        began = time.monotonic()
        self.ok("start")
        self.startup_s = time.monotonic() - began
        return self

    def stopped(self) -> None:
        """As an operator ends it, if anything of it is left."""
        for run in self.runs if self.processes() else ():
            self.ok("stop", "--run", run)

    @property
    def tasks(self) -> list[str]:
        names = [path.name for path in self.work("*").parent.parent.iterdir()]
        return sorted(name.replace("-", ":") for name in names if name != "logs")

    @property
    def chief(self) -> str:
        return "chief:0" if "chief:0" in self.tasks else "worker:0"

    @property
    def runs(self) -> list[str]:
        return super().runs if (self.folder / "runs").is_dir() else []

    def state(self, task: str) -> dict[str, Any]:
        """What its supervisor last wrote, if it has."""
        text = _text(self.work(task).parent / "state.json")
        return json.loads(text) if text else {"state": "", "restarts": 0, "reason": ""}

    def states(self) -> dict[str, str]:
        return {task: self.state(task)["state"] for task in self.tasks}

    def restarts(self) -> dict[str, int]:
        return {task: self.state(task)["restarts"] for task in self.tasks}

    def pid(self, task: str) -> int:
        return self.state(task)["pid"]

    def send(self, number: signal.Signals, task: str) -> None:
        os.kill(self.pid(task), number)

    def log(self, task: str) -> str:
        file = self.work(task).parent.parent / "logs" / f"{task.replace(':', '-')}.log"
        return file.read_text(errors="replace") if file.is_file() else ""

    @property
    def step(self) -> int:
        """The last that the chief has told."""
        return steps(self.log(self.chief))[-1]

    @property
    def saved(self) -> int:
        """The step of its newest checkpoint, or -1."""
        state = self.work(self.chief) / "checkpoints" / "checkpoint"
        found = re.search(r'^model_checkpoint_path: ".*-(\d+)"', _text(state), re.M)
        return int(found[1]) if found else -1

    def trains(self) -> int:
        """Wait until it has just saved, and told a step since then; that step."""
        before = self.saved
        patiently(lambda: self.saved > max(before, 0), "the next checkpoint")
        saved = self.saved
        patiently(lambda: steps(self.log(self.chief))[-1:] > [saved], "a step behind it")
        return self.step


class Bystander:
    """A process that resembles a task of the training in all but the mark, and isn't one."""

    def __init__(self, training: Training) -> None:
        words = ["train.py", "--job_name=worker", "--task_index=1"]
        env = {**os.environ, "TFDEPLOY_TASK": f"{training.name}-2/run/worker:1"}
        command = [sys.executable, "-c", SLEEPER, *words]
        self._process = subprocess.Popen(command, cwd=training.folder, env=env)

    def lives(self) -> bool:
        return alive(self._process.pid)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def steps(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"^step (\d+)", log, re.M)]


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
