"""A project folder as a user has it, and the real command line run in it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .sshd import ADDRESS, alive, free_ports, until

STUB = Path(__file__).parent / "stub" / "train.py"
NUMBERS = itertools.count()


def toml(table: dict[str, Any]) -> str:
    """hosts.toml's text: dotted keys, strings as JSON writes them."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


@dataclass
class Project:
    """A folder with hosts.toml and the stub trainer. `hosts` are hosts.toml's, by name."""

    folder: Path
    hosts: dict[str, dict[str, Any]]
    top: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or f"p{os.getpid()}-{next(NUMBERS)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(STUB, self.folder / "train.py")
        self.write()

    def write(self) -> None:
        training = {
            "command": ["python", "train.py", *self.flags],
            "role": "flags",
            "stop_grace_s": 0.5,
            "ready_timeout_s": 20,
            **self.training,
        }
        tables = {"project": self.name, **self.top, "training": training, "hosts": self.hosts}
        (self.folder / "hosts.toml").write_text(toml(tables))

    def tf(self, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """`tfdeploy WORDS` in the project's folder, run to its end."""
        command = [sys.executable, "-m", "tfdeploy", *words]
        return subprocess.run(
            command, cwd=self.folder, env=environment(self.folder), timeout=timeout_s,
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def ok(self, *words: str) -> str:
        """As `tf`, which must exit with 0; what it said on standard output."""
        done = self.tf(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def begun(self, *words: str) -> Command:
        return Command(self, words)

    def status(self) -> dict[str, dict[str, Any]]:
        """What `status --json` says, by task."""
        return {task["task"]: task for task in json.loads(self.ok("status", "--json"))["tasks"]}

    @property
    def runs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "runs").iterdir() if path.is_dir())

    @property
    def home(self) -> Path:
        """The newest run's folder at home."""
        return self.folder / "runs" / self.runs[-1]

    def on(self, host: str) -> Path:
        """The project's folder on a host."""
        return Path(self.hosts[host]["directory"]) / self.name

    def work(self, task: str) -> Path:
        """The directory of a task of the newest run; the ps is on the first host, no other is."""
        host = list(self.hosts)[0 if task.startswith("ps") else -1]
        return self.on(host) / "runs" / self.runs[-1] / task.replace(":", "-") / "work"

    def releases(self, host: str) -> set[Path]:
        """Those that are visible there."""
        return set(self.on(host).glob("releases/[!.]*"))

    def supervisor(self, task: str) -> int:
        """Its pid, as the task's lock says."""
        return int((self.work(task).parent / "lock").read_text())

    def processes(self) -> dict[int, str]:
        """All that lives of the project on this machine: supervisors, tasks and their children."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (what := _of_project(entry, self.name)):
                found[int(entry.name)] = what
        return {pid: what for pid, what in found.items() if alive(pid)}

    def end(self) -> None:
        """Whatever a test left."""
        while left := self.processes():
            for pid in left:
                _kill(pid)


def _of_project(entry: Path, name: str) -> str:
    try:
        command = b" ".join((entry / "cmdline").read_bytes().split(b"\0"))
        marked = f"TFDEPLOY_TASK={name}/".encode() in (entry / "environ").read_bytes()
    except OSError:
        return ""
    supervises = b" supervise " in command and f"/{name}/runs/".encode() in command
    return command.decode() if marked or supervises else ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Command:
    """A command line that goes on: a terminal's foreground, as far as Ctrl-C is concerned."""

    def __init__(self, project: Project, words: tuple[str, ...]) -> None:
        self._said = project.folder.parent / f"said-{next(NUMBERS)}"
        with self._said.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tfdeploy", *words],
                cwd=project.folder,
                env=environment(project.folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def said(self) -> str:
        return self._said.read_text()

    def says(self, text: str) -> None:
        """Wait until it has said that."""
        until(lambda: text in self.said or self.process.poll() is not None, text)
        assert text in self.said, self.said

    def interrupted(self) -> int:
        """Ctrl-C goes to the whole foreground group; its exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(timeout=30)


def environment(folder: Path) -> dict[str, str]:
    """No agent's keys, no terminal, no home but the test's; `python` is this one, as it is where
    this one's virtual environment is active."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SSH_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"HOME": str(folder.parent), "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
    return {**kept, **own}


def host_python(folder: Path) -> str:
    """The hosts' Python: it has what the stub needs, and no TensorFlow, which would find that the
    stub's checkpoints are none."""
    import grpc
    import typing_extensions

    if not folder.exists():
        venv.create(folder, symlinks=True)
        [packages] = folder.glob("lib/python3*/site-packages")
        for source in (Path(grpc.__file__).parent, Path(typing_extensions.__file__)):
            (packages / source.name).symlink_to(source)
    return str(folder / "bin/python")


def local_hosts(directory: Path) -> dict[str, dict[str, Any]]:
    """This machine with a ps and two workers."""
    here = {"transport": "local", "ps": 1, "workers": 2, "ports": free_ports(4)}
    python = host_python(directory / "python")
    return {"here": {**here, "python": python, "directory": str(directory / "here")}}


def ssh_hosts(directory: Path) -> dict[str, dict[str, Any]]:
    """Two hosts of the session's ssh_config: a ps on one, two workers on the other."""
    ps, workers = free_ports(1), free_ports(3)
    tasks = {"one": {"ps": 1, "ports": ps}, "two": {"workers": 2, "ports": workers}}
    common = {"address": ADDRESS, "python": host_python(directory / "python")}
    return {
        name: {**own, **common, "directory": str(directory / name)} for name, own in tasks.items()
    }
