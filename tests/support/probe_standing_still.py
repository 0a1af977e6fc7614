"""Run by test_starter.py: a test, a thread and a fixture that never end."""

from __future__ import annotations

import subprocess
import threading
import time

import pytest


def wait_in_a_thread() -> None:
    time.sleep(1000)


@pytest.fixture
def never_ends():
    yield
    time.sleep(1000)


def test_that_stands_still(never_ends):
    threading.Thread(target=wait_in_a_thread, daemon=True).start()
    with subprocess.Popen(["sleep", "77"]) as child:
        try:
            time.sleep(1000)
        finally:
            threading.Timer(2, child.kill).start()  # `with` waits until then


@pytest.mark.slow
def test_that_may_last(request):
    assert request.node.get_closest_marker("timeout").args == (1200,)
