"""Import only the files of which pytest's marker expression selects tests.

The slow tests are in a third of the files. All files together take 16 s of CPU time to import, in
each of pytest-xdist's workers.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SLOW = "mark.slow"
ALL_SLOW = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file out; never one that the command line names."""
    selected = config.getvalue("markexpr")
    if collection_path.suffix != ".py" or selected not in ("slow", "not slow"):
        return None
    text = _text(collection_path)
    left_out = SLOW not in text if selected == "slow" else ALL_SLOW.search(text)
    return True if left_out else None


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") and SLOW not in _text(item.path):
        raise pytest.UsageError(f"{item.path}: write pytest.{SLOW} there, not only elsewhere")


@cache
def _text(file: Path) -> str:
    return file.read_text()
