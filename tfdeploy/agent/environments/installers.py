"""The commands that create an environment and install into it, with uv or with venv and pip."""

from __future__ import annotations

import os
import shutil
import sys

from ...shared import TYPE_CHECKING, index_settings
from .. import paths
from ..refusal import Refusal
from . import marker
from .order import CONSTRAINTS, REQUIREMENTS

if TYPE_CHECKING:
    from typing import Container, Dict, List, Mapping

# Variables of the agent's own Python, or of another environment, that would mislead installers.
MISLEADING = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "CONDA_PREFIX")


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
        **index_settings.for_uv(environ, index_settings.read_file),
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
