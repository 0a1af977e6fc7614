"""Small wheels for tests that install packages, so that no test needs a network."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def make(folder: Path, name: str, version: str = "1.0", *, tag: str = "py3-none-any",
         requires: tuple[str, ...] = (), size: int = 0,
         files: Mapping[str, str] = {}) -> None:  # fmt: skip
    """Write a wheel of a package with one module, whose `VERSION` is the version, and with other
    `files`; `size` bytes more make it larger."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        **files,
        f"{name}.py": f"VERSION = {version!r}\nPAD = {'x' * size!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-version = {name}:VERSION.title\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)
