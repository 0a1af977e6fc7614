"""The commands that create an environment and install into it, with uv or with venv and pip; and uv
itself: the user's own, or the one that the controller sent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from ...shared import TYPE_CHECKING, uv_and_pip
from ...shared.protocol.record import Record
from .. import paths
from ..refusal import Refusal
from . import marker

if TYPE_CHECKING:
    from typing import Container, Dict, Iterator, List, Mapping, Tuple

OLDEST = (0, 5)  # older ones lack options that are used
PLACES = ("~/.local/bin/uv", "~/.cargo/bin/uv")  # where its installers put it
TIMEOUT_S = 30.0
VERSION = re.compile(r"uv (\d+)\.(\d+)(\.\d+)?")
REQUIREMENTS, CONSTRAINTS = "requirements.txt", "constraints.txt"
# Variables of the agent's own Python, or of another environment, that would mislead installers.
MISLEADING = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "CONDA_PREFIX")


class BuildOrder(Record):
    """An environment to build in `folder`: the fields of BuildEnvironment, all variables
    (`environ`), the path of `uv` ("" for none), and the paths of all `wheels` ([]: they come from
    an index)."""

    folder: str
    requirements: List[str]
    constraints: List[str]
    locked: Dict[str, str]
    python: str
    setup: List[str]
    environ: Dict[str, str]
    uv: str
    wheels: List[str]

    @property
    def texts(self) -> Dict[str, str]:
        """The files that installers read, by name."""
        lines = {REQUIREMENTS: self.requirements, CONSTRAINTS: self.constraints}
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


def create_command(folder: str, python: str, uv: str) -> List[str]:
    """Return the command that creates an empty environment. Raises Refusal if this host does not
    have the version `python`, and no uv that could provide it."""
    if uv:
        return [uv, "venv", "--no-project", "--python", python or sys.executable, folder]
    return [_local_python(python), "-m", "venv", folder]


def install_command(folder: str, files: Container[str], uv: str) -> List[str]:
    """Return the command that installs what `files` in its current folder name."""
    constraints = ["-c", CONSTRAINTS] if CONSTRAINTS in files else []
    return [*_installer(folder, uv), "-r", REQUIREMENTS, *constraints]


def install_wheels_command(folder: str, wheels: List[str], uv: str) -> List[str]:
    """Return the command that installs exactly these wheels, without a network."""
    offline = ["--offline"] if uv else []
    return [*_installer(folder, uv), *offline, "--no-index", "--no-deps", *wheels]


def sync_command(python: str, uv: str) -> List[str]:
    """Return the command that installs what a uv.lock says, without the project itself."""
    options = ["--frozen", "--no-install-project", "--no-dev", "--compile-bytecode"]
    return [uv, "sync", *options, "--python", python or sys.executable]


def variables(folder: str, environ: Mapping[str, str], uv: str) -> Dict[str, str]:
    """Return the variables of installers and of setup commands, which run in the environment."""
    own = {name: value for name, value in environ.items() if name not in MISLEADING}
    programs = [os.path.join(folder, "bin"), *([os.path.dirname(uv)] if uv else [])]
    return {
        **own,
        **uv_and_pip.for_uv(environ, uv_and_pip.read_settings),
        "PATH": os.pathsep.join([*programs, environ.get("PATH", os.defpath)]),
        "VIRTUAL_ENV": folder,
        "UV_PROJECT_ENVIRONMENT": folder,
        "UV_CACHE_DIR": os.path.join(paths.cache(), "uv"),
        "PIP_CACHE_DIR": os.path.join(paths.cache(), "pip"),
        "UV_COMPILE_BYTECODE_TIMEOUT": "0",  # no limit: a host may be busy
        "NO_COLOR": "1",
    }


def _installer(folder: str, uv: str) -> List[str]:
    """Return the start of an installation. Tasks write no bytecode, so it is compiled now."""
    if uv:
        return [uv, "pip", "install", "--python", marker.python(folder), "--compile-bytecode"]
    quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    return [marker.python(folder), "-m", "pip", "install", *quiet]


def _local_python(version: str) -> str:
    """Return a Python of this host with this version, "" for the agent's own. Raises Refusal."""
    own = ".".join(map(str, sys.version_info[:3]))
    if not version or (own + ".").startswith(version + "."):
        return sys.executable
    found = shutil.which("python" + version)
    if found is None:
        raise Refusal(
            "it has no Python {} for its environment".format(version),
            "install it or uv on the host, or set env.python to a version that it has: {}".format(
                own
            ),
        )
    return found


def find_uv(project: str, release: str) -> Tuple[str, str]:
    """Return the path and the version of uv, both "" if there is none that runs. `release` is the
    one in which the controller sent it, if it did."""
    for path in _uv_candidates(project, release):
        match = VERSION.match(_uv_version(path))
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


def _uv_version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")
