"""A training on the compose hosts, and its `tfdeploy` commands."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import command_line, evidence
from support.machines import MACHINES, SSH_CONFIG, repair, repaired_machines, starts
from support.projects import toml
from support.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

PROJECT = "machines"
RUNS = f"/home/trainer/.tfdeploy/{PROJECT}/runs"
SCRIPTS = Path(__file__).parent / "scripts"
STUBS = Path(__file__).parent / "stub"
STUB = "steps.py"  # no TensorFlow: it opens its port, and runs until it is stopped
SETTINGS = {"stop_grace_s": 2, "ready_timeout_s": 900, "orphan_timeout_s": 15}
ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "OMP_NUM_THREADS": "1"}
STEPS = "--steps=1000000"


@dataclass
class Site:
    """A project on the compose hosts.

    `hosts` are those of hosts.toml by name; the name is also the address. `runs_folder` is where
    the hosts store the runs. `startup_s` is how long `tfdeploy start` took.
    """

    folder: Path
    script: str
    flags: tuple[str, ...]
    hosts: dict[str, dict[str, Any]]
    training: dict[str, Any] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)
    runs_folder: str = RUNS
    startup_s: float = 0.0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        source = STUBS if self.script == STUB else SCRIPTS
        (self.folder / self.script).write_bytes((source / self.script).read_bytes())
        role = "flags" if self.script in ("train_async.py", STUB) else "tf_config"
        command = ["python", self.script, *self.flags]
        training = {"command": command, "role": role, "env": ENV, **SETTINGS, **self.training}
        tables = {
            "project": PROJECT,
            "ssh_config": str(ssh_config(self.folder)),
            "source": {"exclude": ["/*.toml", "/*.txt", "runs/"]},
            "training": training,
            "restart": {"frozen_timeout_s": 8},
            "defaults": {"python": "/opt/python/bin/python"},
            **self.top,
            "hosts": {name: {"address": name, **keys} for name, keys in self.hosts.items()},
        }
        (self.folder / "hosts.toml").write_text(toml(tables))

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Wait for `holds` as long as the tasks write anything: logs, states, checkpoints."""
        return until(holds, what, self._file_sizes, every_s=0.3)

    def _file_sizes(self) -> list[str]:
        powered = [MACHINES[name] for name, since in starts().items() if since]
        return [
            machine.shell(f"find {self.runs_folder} -type f -printf '%p %s\\n'")
            for machine in powered
        ]

    def tf(self, *words: str) -> subprocess.CompletedProcess[str]:
        evidence.used(self)
        return command_line.run(*words, cwd=self.folder, env=os.environ)

    def ok(self, *words: str) -> str:
        done = self.tf(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def evidence(self) -> dict[str, str]:
        """Return `status`, and the logs and processes of machines that may have no network."""
        status = self.tf("status")
        found = {"status.txt": status.stdout + status.stderr}
        for name, since in starts().items():
            if since:
                machine = MACHINES[name]
                logs = machine.shell(f"tail -n 40 {self.runs_folder}/*/logs/*.log 2>&1")
                found[f"{name}.txt"] = f"{machine.shell('ps -ef')}\n{logs}"
        return found

    def start_command(self, *words: str) -> Command:
        return Command(self, words)

    def start(self) -> Site:
        """Push and start; return when every task is READY."""
        self.ok("push")
        started_at = time.monotonic()
        self.ok("start")
        self.startup_s = time.monotonic() - started_at
        return self

    @property
    def run(self) -> str:
        return max(path.name for path in (self.folder / "runs").iterdir())

    def status(self) -> dict[str, Any]:
        return json.loads(self.tf("status", "--json").stdout)

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Return the tasks of `status --json` by name."""
        return {task["task"]: task for task in self.status()["tasks"]}

    def states(self) -> dict[str, str | None]:
        return {task: fields["state"] for task, fields in self.tasks().items()}

    def unreachable(self) -> list[str]:
        """Return the hosts that do not answer to `status`."""
        return [error["host"] for error in self.status()["errors"]]

    def host(self, task: str) -> str:
        """Return the host that runs the task now."""
        return self.tasks()[task]["host"]

    def saved_steps(self, task: str, host: str) -> list[int]:
        """Return the steps of the task's checkpoints."""
        return self._steps(host, f"{task.replace(':', '-')}/work/checkpoints")

    def saved_step(self, task: str, host: str) -> int:
        """Return the step of the checkpoint that the task would restore now, or -1."""
        work = f"{self.runs_folder}/{self.run}/{task.replace(':', '-')}/work"
        state = MACHINES[host].read(f"{work}/checkpoints/checkpoint")
        found = re.search(r'^model_checkpoint_path: ".*-(\d+)"', state, re.M)
        return int(found[1]) if found else -1

    def replica_step(self) -> int:
        """Return the step of the newest copy of a checkpoint on any machine, or -1."""
        return max((step for name in MACHINES for step in self._steps(name, "replica")), default=-1)

    def collected_step(self) -> int:
        """Return the step of the newest checkpoint on the controller."""
        names = [file.name for file in (self.folder / "runs" / self.run / "checkpoints").iterdir()]
        return max(_checkpoint_steps(names))

    def _steps(self, host: str, folder: str) -> list[int]:
        return _checkpoint_steps(MACHINES[host].names(f"{self.runs_folder}/{self.run}/{folder}"))

    def wait_for_replica(self) -> int:
        """Wait until a checkpoint has just been copied to another machine; return its step."""
        before = self.replica_step()
        self.until(lambda: self.replica_step() > max(0, before), "a replica")
        return self.replica_step()

    def log(self, task: str, host: str) -> list[str]:
        """Read the log on the machine itself, which may have no network."""
        path = f"{self.runs_folder}/{self.run}/logs/{task.replace(':', '-')}.log"
        return MACHINES[host].read(path).splitlines()

    def steps(self, task: str, host: str) -> list[int]:
        """Return all logged steps in order; they decrease where the task was restarted."""
        matches = [re.match(r"step (\d+) ", line) for line in self.log(task, host)]
        return [int(match[1]) for match in matches if match]

    def step(self, task: str, host: str) -> int:
        """Return the highest of the last steps, or -1."""
        return max(self.steps(task, host)[-40:], default=-1)

    def restored_steps(self, task: str, host: str) -> list[int]:
        """Return the steps of the checkpoints that the task has restored."""
        matches = [re.match(r"restored step (\d+)", line) for line in self.log(task, host)]
        return [int(match[1]) for match in matches if match]

    def steps_lost(self, task: str, host: str, before: int, restores: int = 0) -> int:
        """Wait until the task has restored more than `restores` checkpoints; return the steps lost
        since `before`.

        The task may have saved a step that it had not logged yet.
        """
        what = f"{task} to restore a checkpoint"
        self.until(lambda: len(self.restored_steps(task, host)) > restores, what)
        return max(0, before - self.restored_steps(task, host)[-1])

    def wait_for_step(self, task: str, host: str, beyond: int) -> int:
        """Wait until the task logs a step higher than `beyond`, and return it."""
        what = f"{task} beyond step {beyond}"
        self.until(lambda: self.step(task, host) > beyond, what)
        return self.step(task, host)


def _checkpoint_steps(names: list[str]) -> list[int]:
    return [int(step) for step in re.findall(r"-(\d+)\.index", "\n".join(names))]


class Command:
    """A running `tfdeploy WORDS`, with its output in a file."""

    def __init__(self, site: Site, words: tuple[str, ...]) -> None:
        self.site = site
        self.file = site.folder / f"{'-'.join(words)}.txt"
        self.file.unlink(missing_ok=True)
        self._process = command_line.start_with_output_in(
            self.file, *words, cwd=site.folder, env=os.environ
        )

    @property
    def output(self) -> str:
        return self.file.read_text()

    def wait_for_output(self, text: str) -> None:
        """Wait until the output contains `text`."""

        def is_found() -> bool:
            assert text in self.output or self._process.poll() is None, self.output
            return text in self.output

        self.site.until(is_found, f"{text!r} in the output")

    def wait(self) -> int:
        return self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def ssh_config(folder: Path) -> Path:
    """Write an ssh_config that connects to each machine directly.

    Behind a published port there is a proxy of the engine, which stays connected to the controller
    while the machine is cut off.
    """
    blocks = [
        f"Host {machine.name}\n  HostName {machine.address}\n  Port 22\n"
        f"  HostKeyAlias [{machine.published[0]}]:{machine.published[1]}\n"
        for machine in MACHINES.values()
    ]
    file = folder / "ssh_config.txt"
    file.write_text("".join(blocks) + SSH_CONFIG.read_text())
    return file


@contextmanager
def training(folder: Path, script: str, *flags: str, **more: Any) -> Iterator[Site]:
    """Yield a Site, and afterwards stop its run and repair the machines."""
    with repaired_machines():
        site = Site(folder, script, flags if script == STUB else (STEPS, *flags), **more)
        try:
            yield site
        finally:
            repair()
            site.tf("stop")
