"""The environment of tfdeploy itself: how to add to it."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec

# What tfdeploy imports of each extra. A module's name is the package's in lower case.
EXTRAS = {
    "env": ("uv", "pip"),
    "plots": ("matplotlib", "Jinja2"),
    "tensorboard": ("TensorBoard",),
    "watch": ("Textual",),
}
# The file in an environment that names its installer, and the installer's command.
INSTALLERS = {"uv-receipt.toml": "uv tool install", "pipx_metadata.json": "pipx install --force"}


def _is_installed(package: str) -> bool:
    return has_origin(importlib.util.find_spec(package.lower()))


def has_origin(spec: ModuleSpec | None) -> bool:
    """Return whether a package was found, and not only a folder of its name."""
    return spec is not None and spec.origin is not None


def _direct_url() -> str | None:
    return metadata.distribution("tfdeploy").read_text("direct_url.json")


@dataclass(frozen=True)
class Installation:
    """An environment with tfdeploy. `direct_url` returns the content of the file of PEP 610."""

    prefix: Path = field(default_factory=lambda: Path(sys.prefix))
    executable: str = sys.executable
    is_installed: Callable[[str], bool] = _is_installed
    direct_url: Callable[[], str | None] = _direct_url


OWN = Installation()


def require(extra: str) -> None:
    """Raise RunError with the command that installs an extra, if it is missing."""
    if error := find_missing(extra):
        raise error


def find_missing(extra: str, installation: Installation = OWN) -> RunError | None:
    """Return what is missing of an extra, and the command that installs it; None if it is there."""
    missing = [package for package in EXTRAS[extra] if not installation.is_installed(package)]
    if not missing:
        return None
    message = f"{missing[0]} is not installed beside tfdeploy"
    return RunError(message, command_to_add(extra, installation))


def command_to_add(extra: str, installation: Installation = OWN) -> str:
    """Return the command that adds an extra to an installation, with the installer that made it.

    uv and pipx make the environment of tfdeploy anew: they need to know where it is from, and all
    extras.
    """
    present = {name for name in EXTRAS if all(map(installation.is_installed, EXTRAS[name]))}
    package = f"tfdeploy[{','.join(sorted({extra} | present))}]"
    for file, command in INSTALLERS.items():
        if (installation.prefix / file).is_file():
            return f"{command} {shlex.quote(package + _source(installation.direct_url()))}"
    return f"{shlex.quote(installation.executable)} -m pip install {shlex.quote(package)}"


def _source(text: str | None) -> str:
    """Return " @ " and the URL from which tfdeploy was installed; "" if it was from an index."""
    if text is None:
        return ""
    recorded = json.loads(text)
    vcs = f"{recorded['vcs_info']['vcs']}+" if "vcs_info" in recorded else ""
    return f" @ {vcs}{recorded['url']}"
