"""The agent as one zip: what runs on the hosts and inside the training."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

# A zip stores times: a fixed one keeps the hash the same in every checkout.
EPOCH = (1980, 1, 1, 0, 0, 0)
# Those that inside/preload/build.sh builds for.
PROCESSORS = ("aarch64", "x86_64")


@cache
def bundle() -> bytes:
    """Return the zip: the same bytes for the same sources."""
    package = resources.files("tfdeploy")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", package.joinpath("agent/__main__.py").read_bytes())
        _add(archive, "tfdeploy/__init__.py", b"")
        for folder in ("agent", "shared"):
            for name, source in _modules(package, folder):
                _add(archive, f"tfdeploy/{folder}/{name}", source)
        for name, source in _modules(package, "inside"):
            _add(archive, f"inside/{name}", source)
        for processor in PROCESSORS:
            library = f"preload/{processor}.so"
            _add(archive, library, package.joinpath(f"inside/{library}").read_bytes())
    return data.getvalue()


@cache
def folder_check() -> str:
    """Return the source of the agent's module that finds who could replace a folder."""
    return resources.files("tfdeploy").joinpath("agent/own_folders.py").read_text()


@cache
def current_version() -> str:
    """Return the name of the agent that this tfdeploy sends."""
    return hashlib.sha256(bundle()).hexdigest()[:16]


def _modules(package: Traversable, folder: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(package.joinpath(folder).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".py"):
            yield entry.name, entry.read_bytes()
        elif entry.is_dir() and entry.name != "__pycache__":
            for name, source in _modules(package, f"{folder}/{entry.name}"):
                yield f"{entry.name}/{name}", source


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
