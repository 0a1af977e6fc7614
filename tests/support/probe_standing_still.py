"""Run by test_starter.py: a test, a thread and a fixture that never end, and a skipped test."""

from __future__ import annotations

import subprocess
import threading
import time

import pytest

from support import timeouts


def wait_in_a_thread() -> None:
    time.sleep(1000)


@pytest.fixture
def children():
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
    time.sleep(1000)


def test_that_stands_still(request, children):
    settings = request.node.stash[timeouts.SETTINGS]._replace(timeout=1)
    timeouts.pytest_timeout_set_timer(request.node, settings)
    threading.Thread(target=wait_in_a_thread, daemon=True).start()
    with subprocess.Popen(["sleep", "77"]) as child:  # waits for it, whatever was raised
        children.append(child)
        time.sleep(1000)


def test_that_is_skipped():
    pytest.skip("something is missing")


@pytest.mark.slow
def test_that_may_last(request):
    assert request.node.get_closest_marker("timeout").args == (1200,)
