"""A project folder like a user's, and the real command line in it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import command_line, evidence, host_python, json_documents
from support.evidence import end_of
from support.ports import ADDRESS, free_ports
from support.sshd import alive
from support.trusting import trust
from support.waiting import until

if TYPE_CHECKING:
    import subprocess

STUB = Path(__file__).parent / "stub" / "train.py"
NUMBERS = itertools.count()


def toml(table: dict[str, Any]) -> str:
    """Return the text of a hosts.toml: dotted keys, strings in JSON's syntax."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


@dataclass
class Project:
    """A folder with a hosts.toml and the stub trainer. `hosts` are its host tables, by name."""

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
            "ready_timeout_s": 120,
            **self.training,
        }
        tables = {"project": self.name, **self.top, "training": training, "hosts": self.hosts}
        file = self.folder / "hosts.toml"
        file.write_text(toml(tables))
        trust(file)

    def tf(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `tfdeploy WORDS` in the project's folder to its end; compare what it prints with
        --json with the documentation."""
        evidence.used(self)
        done = command_line.run(*words, cwd=self.folder, env=environment(self.folder))
        json_documents.check_output(words, done.stdout, done.returncode, done.stderr)
        return done

    def ok(self, *words: str) -> str:
        """Run as `tf` does; require exit code 0 and return the standard output."""
        done = self.tf(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start_command(self, *words: str) -> Command:
        """Start `tfdeploy WORDS` in the background."""
        evidence.used(self)
        return Command(self, words)

    def evidence(self) -> dict[str, str]:
        """Return its logs, its processes and its `status`, for the report of a failed test."""
        processes = "".join(f"{pid} {args}\n" for pid, args in self.processes().items())
        status = self.tf("status")
        found = {"processes.txt": processes, "status.txt": status.stdout + status.stderr}
        logs = [log for host in self.hosts for log in self.on(host).glob("runs/*/logs/*.log")]
        for log in filter(Path.is_file, logs):  # a test may put something else there
            found[f"{log.parts[-3]}-{log.name}"] = end_of(log.read_text(errors="replace"))
        return found

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the tasks of `status --json` by name."""
        return {task["task"]: task for task in json.loads(self.ok("status", "--json"))["tasks"]}

    @property
    def runs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "runs").iterdir() if path.is_dir())

    @property
    def run_folder(self) -> Path:
        """The newest run's folder on the controller."""
        return self.folder / "runs" / self.runs[-1]

    def on(self, host: str) -> Path:
        """Return the project's folder on a host."""
        return Path(self.hosts[host]["directory"]) / self.name

    def work(self, task: str) -> Path:
        """Return the directory of a task of the newest run. The ps is on the first host, all other
        tasks are on the last."""
        host = list(self.hosts)[0 if task.startswith("ps") else -1]
        return self.on(host) / "runs" / self.runs[-1] / task.replace(":", "-") / "work"

    def log_file(self, host: str, task: str) -> Path:
        """Return the log of a task of the newest run on a host."""
        return self.on(host) / "runs" / self.runs[-1] / "logs" / f"{task.replace(':', '-')}.log"

    def releases(self, host: str) -> set[Path]:
        """Return the complete releases on a host."""
        return set(self.on(host).glob("releases/[!.]*"))

    def supervisor(self, task: str) -> int:
        """Return the pid of a task's supervisor, from the task's lock file."""
        return int((self.work(task).parent / "lock").read_text())

    def processes(self) -> dict[int, str]:
        """Return the project's live supervisors, tasks and their children on this machine."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (command := _command_of(entry, self.name)):
                found[int(entry.name)] = command
        return {pid: command for pid, command in found.items() if alive(pid)}

    def end(self) -> None:
        """Kill the processes that a test left."""
        while left := self.processes():
            for pid in left:
                _kill(pid)


def _command_of(entry: Path, name: str) -> str:
    """Return the command line of a process of the project; "" for any other process."""
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
    """A running command line, in a process group of its own like a terminal's foreground."""

    def __init__(self, project: Project, words: tuple[str, ...]) -> None:
        self._output_file = project.folder.parent / f"output-{next(NUMBERS)}"
        self.process = command_line.start_with_output_in(
            self._output_file, *words, cwd=project.folder, env=environment(project.folder)
        )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def output(self) -> str:
        return self._output_file.read_text()

    def wait_for_output(self, text: str) -> None:
        """Wait until the output contains `text`."""
        until(lambda: text in self.output or self.process.poll() is not None, text)
        assert text in self.output, self.output

    def interrupt(self) -> int:
        """Send Ctrl-C to the whole process group; return the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait()


def without_tensorflow(folder: Path) -> str:
    """Make a host's Python without packages, as TensorFlow would reject the stub's checkpoints.
    Return its path."""
    return host_python.make(folder)


def environment(folder: Path) -> dict[str, str]:
    """Return an environment without an ssh-agent and a terminal, with the test's home directory.
    `python` is the interpreter of this process."""
    outer = ("SSH_", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"HOME": str(folder.parent), "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
    return {**inherited, **own}


def local_hosts(directory: Path) -> dict[str, dict[str, Any]]:
    """Return this machine as a host with a ps and two workers."""
    here = {"transport": "local", "ps": 1, "workers": 2, "ports": free_ports(4)}
    python = without_tensorflow(directory / "python")
    return {"here": {**here, "python": python, "directory": str(directory / "here")}}


def ssh_hosts(directory: Path) -> dict[str, dict[str, Any]]:
    """Return two hosts of the session's ssh_config: a ps on one, two workers on the other."""
    ps, workers = free_ports(1), free_ports(3)
    tasks = {"one": {"ps": 1, "ports": ps}, "two": {"workers": 2, "ports": workers}}
    common = {"address": ADDRESS, "python": without_tensorflow(directory / "python")}
    return {
        name: {**own, **common, "directory": str(directory / name)} for name, own in tasks.items()
    }
