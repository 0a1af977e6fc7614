"""Run the commands of a transcript on machines of their own, and record what they print.

The settings of a transcript:

    about     what it shows, in one line
    project   a folder of examples/ or of tests/transcripts/projects/, or a page such as
              docs/jax.md, whose Python is a folder's train.py; or several: each is copied to the
              controllers' homes; the commands start in the first. Default: the home itself
    machines  besides the laptop: of namespaces.ADDRESSES. `desk` is a second controller
    python    what ~/venv/bin/python has on each machine: distributions, such as tensorflow-cpu, or
              jax; "none" if there is no such Python
    gpus      such as `gpu-01=2 gpu-02=4`: these machines have the stand-in for nvidia-smi, and a
              hidden command `gpu` (gpu.py) that says who uses its GPUs and what is wrong with them
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from support import host_python, jax_packages, pages
from support.namespaces import DESK, HOME, LAPTOP, Machines
from support.nvidia_smi import StubNvidiaSmi
from support.transcript import ERRORS, RUN, Step, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT, ROOT / "tests/transcripts/projects")
CHANGE = re.compile(r"cd (\S+)(?: && (.+))?")
MAX_DATAGRAM = 1 << 18


class Session:
    """A user's machines, and the folder in which the next command of each runs."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._machines = Machines(folder, settings.get("machines", "").split())
        self._runs: dict[str, str] = {}  # those of the stored transcript, by what they are now
        controllers = [name for name in self._machines.names if name in (LAPTOP, DESK)]
        projects = settings.get("project", "").split()
        for project in projects:
            for name in controllers:
                _copy(project, self._machines.home(name))
        start = f"{HOME}/{Path(projects[0]).stem}" if projects else HOME
        self._folders = {n: start if n in controllers else HOME for n in self._machines.names}
        if settings.get("python") != "none":
            self._install_python(folder, settings.get("python", "").split())
        for machine in settings.get("gpus", "").split():
            self._install_gpus(*machine.split("="))

    def _install_python(self, folder: Path, distributions: list[str]) -> None:
        host_python.make(folder / "venv", *distributions)
        if "jax" in distributions:
            host_python.add_folder(folder / "venv", jax_packages.folder())
        for name in self._machines.names:
            (self._machines.home(name) / "venv").symlink_to(folder / "venv")

    def _install_gpus(self, machine: str, count: str) -> None:
        folder = self._machines.home(machine) / "bin"
        StubNvidiaSmi(folder, int(count))
        (folder / "gpu").symlink_to(Path(__file__).with_name("gpu.py"))

    def close(self) -> None:
        self._machines.end()

    def replay(self, stored: Transcript) -> Transcript:
        """Run the commands of a stored transcript, and return the new recording."""
        steps = []
        for step in stored.steps:
            done = self._run(replace(step, text=self._with_runs_of_now(step.text)))
            assert not (step.is_hidden and done.code), f"{step.text}\n" + "\n".join(done.output)
            self._pair_runs(step, done)
            steps.append(replace(done, output=()) if step.is_hidden else done)
        return replace(stored, steps=tuple(steps))

    def _with_runs_of_now(self, text: str) -> str:
        """A command that names a run means the one that was printed in its place."""
        return RUN.sub(lambda run: self._runs.get(run[0], run[0]), text)

    def _pair_runs(self, stored: Step, done: Step) -> None:
        old, new = (dict.fromkeys(RUN.findall("\n".join(s.output))) for s in (stored, done))
        known = set(self._runs.values())
        unpaired = [run for run in old if run not in self._runs]
        self._runs.update(zip(unpaired, [run for run in new if run not in known], strict=False))

    def _run(self, step: Step) -> Step:
        machine, command = step.machine or LAPTOP, step.text
        if change := CHANGE.fullmatch(command):
            folder = change[1].replace("~", HOME, 1)
            self._folders[machine] = os.path.normpath(f"{self._folders[machine]}/{folder}"
                                                      if folder[0] != "/" else folder)  # fmt: skip
            command = change[2] or "true"
        words = [*self._machines.enter(machine, self._folders[machine]), "bash", "-c", command]

        def act(pid: int) -> None:
            if step.meanwhile == "C":
                _press_ctrl_c(pid)
            else:
                other, _, text = step.meanwhile.partition(" ")
                enter = self._machines.enter(other, self._folders[other])
                subprocess.run([*enter, "bash", "-c", text], check=True)

        lines, code = _printed(words, step.after, act)
        return replace(step, output=tuple(lines), code=code)


def _copy(project: str, home: Path) -> None:
    if project.endswith(".md"):
        folder = home / Path(project).stem
        folder.mkdir()
        (folder / "train.py").write_text(pages.block(project, "python"))
        return
    [source] = [top / project for top in SOURCES if (top / project).is_dir()]
    ignored = shutil.ignore_patterns("runs", "__pycache__", ".*_cache")
    shutil.copytree(source, home / source.name, ignore=ignored)


def _printed(words: list[str], after: str, act: Callable[[int], None]) -> tuple[list[str], int]:
    """Run a command to its end; call `act` with its pid when it has printed `after`. Return its
    lines on both streams, in the order in which they were written, and its exit status.

    Each stream is a socket that is connected to one receiver, which so has the order of what both
    send, and the sender's name.
    """
    name = f"\0transcript-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        receiver = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        receiver.bind(name)
        out, errors, end = (
            stack.enter_context(_sender(f"{name}-{kind}", name)) for kind in ("out", "err", "end")
        )
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
        )
        waiting = threading.Thread(target=lambda: (process.wait(), end.send(b"")))
        waiting.start()
        lines = list(_lines(receiver, after, lambda: act(process.pid)))
        waiting.join()
    return lines, process.returncode


def _sender(name: str, receiver: str) -> socket.socket:
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_DATAGRAM)
    sender.bind(name)
    sender.connect(receiver)
    return sender


def _lines(receiver: socket.socket, after: str, act: Callable[[], None]) -> Iterator[str]:
    """Yield each line that was written, until the process has ended; call `act` after one."""
    rest = {"": b"", ERRORS: b""}
    while True:
        data, sender = receiver.recvfrom(MAX_DATAGRAM)
        if sender.endswith(b"-end"):
            break
        label = ERRORS if sender.endswith(b"-err") else ""
        *lines, rest[label] = (rest[label] + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            yield (label + text).rstrip()
            if after and after in text:
                act()
                after = ""
    assert not after, f"it never printed {after!r}"
    yield from (label + text.decode(errors="replace") for label, text in rest.items() if text)


def _press_ctrl_c(pid: int) -> None:
    """Send SIGINT to the command's group, as a terminal does, but not to nsenter, which would leave
    before the command."""
    for entry in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            if int(entry.name) != pid and os.getpgid(int(entry.name)) == pid:
                os.kill(int(entry.name), signal.SIGINT)
