"""The agent as it travels: what runs on the hosts and inside the training, in one zip."""

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

# A zip holds times: a fixed one keeps the hash the same between checkouts.
LONG_AGO = (1980, 1, 1, 0, 0, 0)


@cache
def bundle() -> bytes:
    """The same bytes wherever the sources are the same."""
    package = resources.files("tfdeploy")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", package.joinpath("agent/__main__.py").read_bytes())
        _add(archive, "tfdeploy/__init__.py", b"")
        for name, source in _modules(package, "agent"):
            _add(archive, f"tfdeploy/agent/{name}", source)
        for name, source in _modules(package, "inside"):
            _add(archive, f"inside/{name}", source)
    return data.getvalue()


@cache
def current_version() -> str:
    """The name of the agent that this tfdeploy ships."""
    return hashlib.sha256(bundle()).hexdigest()[:16]


def _modules(package: Traversable, folder: str) -> Iterator[tuple[str, bytes]]:
    entries = sorted(package.joinpath(folder).iterdir(), key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield entry.name, entry.read_bytes()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, LONG_AGO), data, zipfile.ZIP_DEFLATED)
