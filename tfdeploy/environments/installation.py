"""The environment of tfdeploy itself: how to add to it, and how to mend its compiled modules."""

from __future__ import annotations

import importlib.util
import json
import marshal
import shlex
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER_BYTES = 16  # of a .pyc file; source: PEP 552
# The file in an environment that names its installer, and the installer's command.
# What tfdeploy imports of each extra. A module's name is the package's in lower case.
EXTRAS = {
    "env": ("uv", "pip"),
    "plots": ("matplotlib", "Jinja2"),
    "tensorboard": ("TensorBoard",),
    "watch": ("Textual",),
}
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


def command_to_mend() -> str:
    """Return the command that compiles again what cannot be loaded of the installed packages; ""
    if all of it can be loaded.

    The file of a compiled module may be cut off, for example by a full disk. Python does not
    replace it while its source stays the same, and an upgrade only replaces what is new.
    """
    folders = dict.fromkeys(str(file.parent.parent) for file in _cut_off())
    if not folders:
        return ""
    return shlex.join([sys.executable, "-m", "compileall", "-q", "-f", *folders])


def exit_if_modules_are_cut_off() -> None:
    """Exit with the command that mends the installation, if that is why an import failed."""
    if command := command_to_mend():
        # Not by Console: its modules may be cut off, too.
        sys.exit(
            "error: compiled modules of this installation are cut off, so Python can't load them\n"
            f"  compile them again: {command}"
        )


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


def _cut_off() -> Iterator[Path]:
    """Yield the compiled modules of this Python that it cannot load."""
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for file in sorted(Path(folder).rglob(f"*.{sys.implementation.cache_tag}.pyc")):
            try:
                marshal.loads(file.read_bytes()[HEADER_BYTES:])
            except OSError:  # another user's: Python compiles its source each time
                continue
            except (EOFError, ValueError, TypeError):
                yield file
