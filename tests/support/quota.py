"""A disk quota for the files below a folder, by quota.c."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("quota.c")


class Quota:
    """`variables` of a command let it, and all that it starts, write to the files below `folder`
    until nothing more is `left`."""

    def __init__(self, folder: Path, below: Path) -> None:
        if not shutil.which("cc"):
            pytest.skip("cc missing: apt-get install gcc")
        self._count, library = folder / "count", folder / "quota.so"
        self._below = below
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
        self._library = library

    def variables(self, left: int) -> dict[str, str]:
        """Return the variables for a quota with this number of writes and new files left."""
        self._count.write_bytes(bytes(8))
        return {
            "LD_PRELOAD": str(self._library), "QUOTA_BELOW": str(self._below),
            "QUOTA_COUNT": str(self._count), "QUOTA_AFTER": str(left),
        }  # fmt: skip
