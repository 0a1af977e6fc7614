"""End a test that stands still, with the stacks of all threads and its processes.

pytest-timeout alone fails a test once: what then waits on the way out, such as the `with` of a
process or a fixture, would wait without end. waiting.py decides how long a test waits, on a slow
machine too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

SLOW_S = 1200  # pyproject.toml has the timeout of the other tests; a soak gives all of them more
USUAL_LOAD = 2  # processes per CPU that wait for one, or have it, while only the suite runs
SETTINGS = pytest.StashKey[Any]()


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
        given_s = float(item.config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(max(SLOW_S, given_s)))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """Fail each time that the timeout passes. On a machine that is busy with something else, let
    the test last longer in proportion."""
    item.stash[SETTINGS], start_s = settings, time.monotonic()

    def fail(*_: object) -> None:
        elapsed_s = time.monotonic() - start_s
        if elapsed_s >= settings.timeout * _overload():
            text = f"the test stands still: it has not ended after {elapsed_s:.0f} s"
            pytest.fail(f"{text}\n{_stacks()}{_processes()}")

    signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> bool:
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True


def pytest_enter_pdb() -> None:
    pytest_timeout_cancel_timer()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Start the timeout again: pytest-timeout cancels it when the test itself has failed."""
    if SETTINGS in item.stash:
        pytest_timeout_set_timer(item, item.stash[SETTINGS])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Stop the timer meanwhile: on a busy machine it takes seconds to format a traceback."""
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, 0)
    report = yield
    if not report.failed:
        signal.setitimer(signal.ITIMER_REAL, left_s, every_s)
    return report


def _overload() -> float:
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / USUAL_LOAD)


def _stacks() -> str:
    """Return the stacks of all other threads: pytest shows that of this one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "".join(
        f"== thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    )


def _processes() -> str:
    """Return the command lines of this process's descendants, and of those that have outlived their
    parent: pytest's variable with the test's name marks them."""
    mark = f"PYTEST_CURRENT_TEST={os.environ['PYTEST_CURRENT_TEST'].rpartition(' ')[0]} ".encode()
    parents, marked = {}, set()
    for entry in filter(lambda entry: entry.name.isdecimal(), Path("/proc").iterdir()):
        try:
            stat, variables = (entry / "stat").read_bytes(), (entry / "environ").read_bytes()
        except OSError:  # has exited, or another user's
            continue
        parents[int(entry.name)] = int(stat.rpartition(b")")[2].split()[1])
        if mark in variables:
            marked.add(int(entry.name))
    found = marked | {pid for pid in parents if os.getpid() in _ancestors(pid, parents)}
    return "".join(f"== process {pid}: {_command(pid)}\n" for pid in sorted(found - {os.getpid()}))


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while pid := parents.get(pid, 0):
        found.append(pid)
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
    except OSError:
        return "has exited"
