"""The commands of uv that create an environment and install into it; and uv itself: the user's own,
or the one that the controller sent. A program that runs ends with the agent."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from typing import Deque, Dict, Iterator, List, Tuple

from ...shared import uv_and_pip
from ...shared.protocol.record import Record
from ...shared.uv_and_pip import MAX_LINES, Failed, clean
from .. import children, paths
from . import marker

OLDEST = (0, 5)  # older ones lack options that are used
PLACES = ("~/.local/bin/uv", "~/.cargo/bin/uv")  # where its installers put it
VERSION_TIMEOUT_S = 30.0  # of `uv --version`: its first start reads a slow disk
VERSION = re.compile(r"uv (\d+)\.(\d+)(\.\d+)?")
REQUIREMENTS, CONSTRAINTS = "requirements.txt", "constraints.txt"
OVERRIDES = "overrides.txt"
# Variables of the agent's own Python, or of another environment, that would mislead installers.
MISLEADING = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "CONDA_PREFIX")


class BuildOrder(Record):
    """An environment to build in `folder`: the fields of BuildEnvironment, all variables
    (`environ`), the path of `uv`, the paths of all `wheels` ([]: they come from an
    index), and the descriptor of its `lock`."""

    folder: str
    requirements: List[str]
    constraints: List[str]
    locked: Dict[str, str]
    python: str
    setup: List[str]
    environ: Dict[str, str]
    uv: str
    wheels: List[str]
    lock: int

    @property
    def texts(self) -> Dict[str, str]:
        """The files that installers read, by name."""
        lines = {
            REQUIREMENTS: self.requirements,
            CONSTRAINTS: self.constraints,
            OVERRIDES: uv_and_pip.overrides([*self.requirements, *self.constraints]),
        }
        own = {name: "".join(line + "\n" for line in lines[name]) for name in lines if lines[name]}
        return {**self.locked, **own}

    @property
    def wheels_release(self) -> str:
        """The release that has the wheels, "" without wheels."""
        return os.path.basename(os.path.dirname(self.wheels[0])) if self.wheels else ""

    @property
    def work(self) -> str:
        """The folder of `texts`, in which all programs run. It is hidden, and removed at the
        end."""
        above, name = os.path.split(self.folder)
        return os.path.join(above, ".{}{}".format(name, marker.WORK))


def create_command(order: BuildOrder) -> List[str]:
    """Return the command that creates an empty environment."""
    return [order.uv, "venv", "--no-project", "--python", _python(order), order.folder]


def install_command(order: BuildOrder) -> List[str]:
    """Return the command that installs, in the folder of `texts`, exactly the wheels, without a
    network; or what the uv.lock says, without the project itself; or what the requirements name."""
    if order.locked and not order.wheels:
        options = ["--frozen", "--no-install-project", "--no-dev", "--compile-bytecode"]
        return [order.uv, "sync", *options, "--python", _python(order)]
    own = [order.uv, "pip", "install", "--python", marker.python(order.folder)]
    installer = [*own, "--compile-bytecode"]  # now, because tasks write no bytecode
    if order.wheels:
        return [*installer, "--offline", "--no-index", "--no-deps", *order.wheels]
    constraints = ["-c", CONSTRAINTS] if order.constraints else []
    overrides = ["--override", OVERRIDES] if OVERRIDES in order.texts else []
    return [*installer, "-r", REQUIREMENTS, *constraints, *overrides]


def variables(order: BuildOrder) -> Dict[str, str]:
    """Return the variables of installers and of setup commands, which run in the environment."""
    environ = order.environ
    own = {name: value for name, value in environ.items() if name not in MISLEADING}
    programs = [os.path.join(order.folder, "bin"), os.path.dirname(order.uv)]
    return {
        **own,
        **uv_and_pip.for_uv(environ, uv_and_pip.read_settings),
        "PATH": os.pathsep.join([*programs, environ.get("PATH", os.defpath)]),
        "VIRTUAL_ENV": order.folder,
        "UV_PROJECT_ENVIRONMENT": order.folder,
        "UV_CACHE_DIR": os.path.join(paths.cache(), "uv"),
        "PIP_CACHE_DIR": os.path.join(paths.cache(), "pip"),
        "UV_COMPILE_BYTECODE_TIMEOUT": "0",  # no limit: a host may be busy
        "NO_COLOR": "1",
    }


def _python(order: BuildOrder) -> str:
    return order.python or sys.executable


def find_uv(project: str, release: str) -> Tuple[str, str]:
    """Return the path and the version of uv, both "" if there is none that runs. `release` is the
    one in which the controller sent it, if it did."""
    for path in _uv_candidates(project, release):
        match = VERSION.match(children.output([path, "--version"], VERSION_TIMEOUT_S))
        if match and (int(match[1]), int(match[2])) >= OLDEST:
            return path, match[0][3:]
    return "", ""


def _uv_candidates(project: str, release: str) -> Iterator[str]:
    on_path = shutil.which("uv")
    if on_path:
        yield on_path
    yield from map(os.path.expanduser, PLACES)
    if release:
        yield os.path.join(paths.release(project, release), "uv")


TICK_S = 1.0
BLOCK = 1 << 16


def run_program(order: BuildOrder, argv: List[str]) -> Iterator[str]:
    """Run a program of the build; yield each line that it prints, and "" if there is none for a
    second. Raises Failed if it fails, OSError if it can't be run.

    It inherits the lock, which so lasts as long as any of its processes. They end if this generator
    is closed, or the agent killed.
    """
    process = subprocess.Popen(
        argv,
        cwd=order.work,
        env=variables(order),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=[order.lock],
        preexec_fn=children.die_with(os.getpid()),
    )
    last: Deque[str] = deque(maxlen=MAX_LINES)
    try:
        assert process.stdout is not None
        for line in _read_lines(process.stdout.fileno()):
            if line:
                last.append(line)
            yield line
        code = process.wait()
    finally:
        _kill_program(process)
    if code != 0:
        raise Failed(code, list(last))


def _read_lines(descriptor: int) -> Iterator[str]:
    """Yield the lines of a pipe until its end, without colors and without passwords of URLs."""
    rest = b""
    while True:
        readable, _, _ = select.select([descriptor], [], [], TICK_S)
        if not readable:
            yield ""
            continue
        block = os.read(descriptor, BLOCK)
        *complete, rest = (rest + block).replace(b"\r", b"\n").split(b"\n")
        for line in complete if block else [*complete, rest]:
            text = clean(line.decode(errors="replace"))
            if text:
                yield text
        if not block:
            return
        rest = rest[-BLOCK:]


def _kill_program(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of a program: it leads a process group of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
