"""A unit test starts no process: a test that does is in tests/integration."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec")
LIBRARIES_START = ("fc-list", "'uname'")
HERE = Path(__file__).parent
running: list[str] = []  # the name of the unit test that runs


def refuse_process(event: str, details: tuple[object, ...]) -> None:
    """Raise if a unit test starts a process.

    Matplotlib asks fc-list for the machine's fonts, and TensorFlow's import asks uname.
    """
    if event in STARTS and running and not any(name in str(details) for name in LIBRARIES_START):
        raise AssertionError(f"{running[0]} starts {details[:2]}: move it to tests/integration")


sys.addaudithook(refuse_process)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    if HERE in item.path.parents:  # pytest calls this for every test
        running.append(item.nodeid)
    try:
        return (yield)
    finally:
        running.clear()
