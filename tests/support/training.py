"""A training on this machine, started with the real commands and observed by what it writes."""

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

from support.host_python import tf_python
from support.ports import free_ports
from support.projects import STUB as STUB_SCRIPT
from support.projects import Project
from support.sshd import alive
from support.waiting import until

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

SCRIPTS = Path(__file__).parent / "scripts"
STUB = "stub.py"  # without TensorFlow: opens its port, and misbehaves according to its flags
# The role preset of each script, and its tasks in these tests.
SETUPS = {
    "train_async.py": ("flags", {"ps": 1, "workers": 2}),
    "train_ps_strategy.py": ("tf_config", {"ps": 1, "workers": 1, "chief": True}),
    "train_mirrored.py": ("tf_config", {"workers": 2}),
    STUB: ("flags", {"ps": 1, "workers": 2}),
    "train_stub.py": ("flags", {"ps": 1, "workers": 2}),  # without TensorFlow, but with checkpoints
}
SLEEPER = "import time; time.sleep(3000)"


@dataclass
class Training(Project):
    """`startup_s` is how long it took from `tfdeploy start` to READY."""

    startup_s: float = 0.0

    @classmethod
    def create(cls, script: str, folder: Path, *flags: str, **more: Any) -> Training:
        """Create the project of a script.

        `tasks` and `host` are keys of its only host, `restart` and `training` of those tables; they
        override the defaults of these tests.
        """
        role, tasks = SETUPS.get(script, SETUPS[STUB])
        host = {
            "transport": "local", "python": tf_python(), "directory": str(folder / "host"),
            "ports": free_ports(5), **more.pop("tasks", tasks), **more.pop("host", {}),
        }  # fmt: skip
        training = {"role": role, "ready_timeout_s": 900, "stop_grace_s": 1.5}
        more["training"] = {**training, **more.get("training", {})}
        top = {"restart": {"frozen_timeout_s": 6, **more.pop("restart", {})}}
        created = cls(folder / "project", {"here": host}, top, flags=list(flags), **more)
        if script != STUB:
            shutil.copy(SCRIPTS / script, created.folder / "train.py")
        return created

    def until(self, holds: Callable[[], Any], what: str, *, every_s: float = 0.1) -> Any:
        """Wait for `holds` as long as the tasks write anything: logs, states, checkpoints."""
        return until(holds, what, self._file_sizes, every_s=every_s)

    def _file_sizes(self) -> dict[Path, int]:
        files = self.on("here").glob("runs/**/*") if self.on("here").is_dir() else ()
        return {file: _size(file) for file in files}

    def add_script(self, script: str) -> None:
        """Add another script of these tests to the folder, for imports."""
        source = STUB_SCRIPT if script == STUB else SCRIPTS / script
        shutil.copy(source, self.folder / script)

    def start(self) -> Training:
        """Push a new release and start; return when every task is READY."""
        self.ok("push")
        started_at = time.monotonic()
        self.ok("start")
        self.startup_s = time.monotonic() - started_at
        return self

    def stop(self) -> None:
        """Stop its runs as an operator does, if any process is left."""
        for run in self.runs if self.processes() else ():
            self.ok("stop", "--run", run)

    @property
    def tasks(self) -> list[str]:
        launches = self.work("*").parent.parent.glob("*/launch.json")
        return sorted(launch.parent.name.replace("-", ":") for launch in launches)

    @property
    def chief(self) -> str:
        return "chief:0" if "chief:0" in self.tasks else "worker:0"

    @property
    def runs(self) -> list[str]:
        return super().runs if (self.folder / "runs").is_dir() else []

    def state(self, task: str) -> dict[str, Any]:
        """Return what the task's supervisor last wrote, or an empty state."""
        text = _text(self.work(task).parent / "state.json")
        return json.loads(text) if text else {"state": "", "restarts": 0, "reason": ""}

    def states(self) -> dict[str, str]:
        return {task: self.state(task)["state"] for task in self.tasks}

    def restarts(self) -> dict[str, int]:
        return {task: self.state(task)["restarts"] for task in self.tasks}

    def pid(self, task: str) -> int:
        return self.state(task)["pid"]

    def send_signal(self, number: signal.Signals, task: str) -> None:
        os.kill(self.pid(task), number)

    def log(self, task: str) -> str:
        file = self.work(task).parent.parent / "logs" / f"{task.replace(':', '-')}.log"
        return file.read_text(errors="replace") if file.is_file() else ""

    @property
    def step(self) -> int:
        """The last step that the chief has logged."""
        return steps(self.log(self.chief))[-1]

    @property
    def saved_step(self) -> int:
        """The step of the newest checkpoint, or -1."""
        state = self.work(self.chief) / "checkpoints" / "checkpoint"
        found = re.search(r'^model_checkpoint_path: ".*-(\d+)"', _text(state), re.M)
        return int(found[1]) if found else -1

    def wait_for_health(self) -> None:
        """Wait until all tasks answer on their ports: one that the machine lets wait does not."""
        self.until(lambda: {t["health"] for t in self.status().values()} == {"READY"}, "health")

    def wait_for_checkpoint(self) -> int:
        """Wait until the chief has saved again and made a further step; return that step."""
        before = self.saved_step
        self.until(lambda: self.saved_step > max(before, 0), "the next checkpoint")
        saved = self.saved_step
        self.until(lambda: steps(self.log(self.chief))[-1:] > [saved], "a step after it")
        return self.step


class Bystander:
    """A process that looks like a task of the training but has another mark."""

    def __init__(self, training: Training) -> None:
        words = ["train.py", "--job_name=worker", "--task_index=1"]
        env = {**os.environ, "TFDEPLOY_TASK": f"{training.name}-2/run/worker:1"}
        command = [sys.executable, "-c", SLEEPER, *words]
        self._process = subprocess.Popen(command, cwd=training.folder, env=env)

    def is_alive(self) -> bool:
        return alive(self._process.pid)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def steps(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"^step (\d+)", log, re.M)]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return -1


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
