"""A training on the compose hosts, and `tfdeploy` called in its folder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.conftest import SSH_CONFIG
from integration.projects import toml

from faults.machines import MACHINES, docker, mended, repair, until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = "machines"
RUNS = f"/home/trainer/.tfdeploy/{PROJECT}/runs"
SCRIPTS = Path(__file__).parent / "scripts"
SETTINGS = {"stop_grace_s": 2, "ready_timeout_s": 120, "orphan_timeout_s": 15}
ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "OMP_NUM_THREADS": "1"}
STEPS = "--steps=1000000"


@dataclass
class Site:
    """A project on the compose hosts. `hosts` are hosts.toml's, by name, which is the address too.
    `startup_s` is how long `tfdeploy start` took."""

    folder: Path
    script: str
    flags: tuple[str, ...]
    hosts: dict[str, dict[str, Any]]
    training: dict[str, Any] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)
    startup_s: float = 0.0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / self.script).write_bytes((SCRIPTS / self.script).read_bytes())
        role = "flags" if self.script == "train_async.py" else "tf_config"
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

    def tf(self, *words: str, timeout_s: float = 150) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tfdeploy", *words], cwd=self.folder, timeout=timeout_s,
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def ok(self, *words: str) -> str:
        done = self.tf(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def begun(self, *words: str) -> Begun:
        return Begun(self, words)

    def started(self) -> Site:
        """Pushed, and every task READY; `startup_s` is how long that took."""
        self.ok("push")
        began = time.monotonic()
        self.ok("start")
        self.startup_s = time.monotonic() - began
        return self

    @property
    def run(self) -> str:
        return max(path.name for path in (self.folder / "runs").iterdir())

    def status(self) -> dict[str, Any]:
        return json.loads(self.tf("status", "--json").stdout)

    def tasks(self) -> dict[str, dict[str, Any]]:
        """What `status --json` says, by task."""
        return {task["task"]: task for task in self.status()["tasks"]}

    def states(self) -> dict[str, str | None]:
        return {task: told["state"] for task, told in self.tasks().items()}

    def errors(self) -> list[str]:
        """What `status` says of hosts that don't answer."""
        return self.status()["errors"]

    def host(self, task: str) -> str:
        """Where it runs now."""
        return self.tasks()[task]["host"]

    def saved(self, task: str, host: str) -> list[int]:
        """The steps of the checkpoints that it has."""
        return self._steps(host, f"{task.replace(':', '-')}/work/checkpoints")

    def replica(self) -> int:
        """The step of the newest copy of a checkpoint on any machine, or -1."""
        with_power = [name for name, machine in MACHINES.items() if machine.up_since()]
        return max(
            (step for name in with_power for step in self._steps(name, "replica")), default=-1
        )

    def _steps(self, host: str, folder: str) -> list[int]:
        names = MACHINES[host].shell(f"ls {RUNS}/{self.run}/{folder} 2>/dev/null")
        return [int(step) for step in re.findall(r"-(\d+)\.index", names)]

    def copied(self) -> int:
        """Wait until a checkpoint has just been copied to another machine; its step."""
        before = self.replica()
        until(lambda: self.replica() > max(0, before), "a replica")
        return self.replica()

    def log(self, task: str, host: str) -> list[str]:
        """Read on the machine itself: its network may be gone."""
        path = f"{RUNS}/{self.run}/logs/{task.replace(':', '-')}.log"
        with suppress(subprocess.CalledProcessError):  # not there yet
            return docker("exec", MACHINES[host].container, "cat", path).splitlines()
        return []

    def steps(self, task: str, host: str) -> list[int]:
        """All that it said, in this order: they go back where it was begun again."""
        said = [re.match(r"step (\d+) ", line) for line in self.log(task, host)]
        return [int(found[1]) for found in said if found]

    def step(self, task: str, host: str) -> int:
        """The highest of the last, or -1."""
        return max(self.steps(task, host)[-40:], default=-1)

    def restored(self, task: str, host: str) -> list[int]:
        """The steps that it went on from."""
        said = [re.match(r"restored step (\d+)", line) for line in self.log(task, host)]
        return [int(found[1]) for found in said if found]

    def lost(self, task: str, host: str, before: int) -> int:
        """The steps that it went back from `before`, once it has said from where it goes on. It may
        save a step that it hasn't said yet."""
        until(lambda: self.restored(task, host), f"{task} to go on from a checkpoint")
        return max(0, before - self.restored(task, host)[-1])

    def goes_on(self, task: str, host: str, beyond: int, timeout_s: float = 120.0) -> int:
        """Wait until the task says a step that is higher than `beyond`."""
        what = f"{task} to go on beyond step {beyond}"
        until(lambda: self.step(task, host) > beyond, what, timeout_s)
        return self.step(task, host)


class Begun:
    """`tfdeploy WORDS` while it runs; what it says goes to a file."""

    def __init__(self, site: Site, words: tuple[str, ...]) -> None:
        self.file = site.folder / f"{'-'.join(words)}.txt"
        command = [sys.executable, "-u", "-m", "tfdeploy", *words]
        with self.file.open("w") as out:
            self._process = subprocess.Popen(
                command, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    @property
    def said(self) -> str:
        return self.file.read_text()

    def says(self, words: str, timeout_s: float = 120.0) -> None:
        def found() -> bool:
            assert words in self.said or self._process.poll() is None, self.said
            return words in self.said

        until(found, f"{words!r} in what it says", timeout_s)

    def ended(self, timeout_s: float = 120.0) -> int:
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def ssh_config(folder: Path) -> Path:
    """As the hosts' own, but straight to each machine: behind a published port there is a proxy of
    the engine, which stays connected to us while the machine is cut off."""
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
    """A Site that is stopped at the end, on machines that are mended then."""
    with mended():
        site = Site(folder, script, (STEPS, *flags), **more)
        try:
            yield site
        finally:
            repair()
            site.tf("stop")
