"""The basics, each run through tfdeploy on this machine, and what each one is to show."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_serial_learns(serial):
    assert serial.tasks == {"worker:0": "SUCCEEDED"}
    assert serial.log("worker:0").endswith("ended after 600 steps\n")
    assert serial.accuracy() >= 0.96
