"""The environment of tfdeploy itself: how to add to it."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from importlib import metadata
from pathlib import Path

from tfdeploy.errors import RunError

# What tfdeploy imports of each extra. A module's name is the package's in lower case.
EXTRAS = {
    "env": ("uv", "pip"),
    "plots": ("matplotlib", "Jinja2"),
    "tensorboard": ("TensorBoard",),
    "watch": ("Textual",),
}
# The file in an environment that names its installer, and the installer's command.
INSTALLERS = {"uv-receipt.toml": "uv tool install", "pipx_metadata.json": "pipx install --force"}


def require(extra: str) -> None:
    """Raise RunError with the command that installs an extra, if it is missing."""
    if error := find_missing(extra):
        raise error


def find_missing(extra: str) -> RunError | None:
    """Return what is missing of an extra, and the command that installs it; None if it is there."""
    missing = [package for package in EXTRAS[extra] if not _is_installed(package)]
    if not missing:
        return None
    return RunError(f"{missing[0]} is not installed beside tfdeploy", command_to_add(extra))


def command_to_add(extra: str) -> str:
    """Return the command that adds an extra to this installation, with the installer that made it.

    uv and pipx make the environment of tfdeploy anew: they need to know where it is from, and all
    extras.
    """
    present = {name for name in EXTRAS if all(map(_is_installed, EXTRAS[name]))}
    package = f"tfdeploy[{','.join(sorted({extra} | present))}]"
    for file, command in INSTALLERS.items():
        if Path(sys.prefix, file).is_file():
            return f"{command} {shlex.quote(package + _source())}"
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(package)}"


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package.lower())
    return spec is not None and spec.origin is not None  # None: a folder of that name


def _source() -> str:
    """Return " @ " and the URL from which tfdeploy was installed; "" if it was from an index.

    Source: PEP 610.
    """
    text = metadata.distribution("tfdeploy").read_text("direct_url.json")
    if text is None:
        return ""
    recorded = json.loads(text)
    vcs = f"{recorded['vcs_info']['vcs']}+" if "vcs_info" in recorded else ""
    return f" @ {vcs}{recorded['url']}"
