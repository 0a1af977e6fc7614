"""CPU seconds of the whole host, and bytes of all network interfaces."""

from __future__ import annotations

import pytest

from tfdeploy.agent.machine import metrics

NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:  700      10    0    0    0     0          0         0     700      10    0    0
  eth0:1000       5    0    0    0     0          0         0     20       1    0    0
"""


def test_bytes_of_all_interfaces_are_added_up(tmp_path):
    (tmp_path / "dev").write_text(NET)
    assert metrics.network_bytes(str(tmp_path / "dev")) == (1700, 720)


def test_busy_seconds_count_all_processes_of_the_host(tmp_path):
    (tmp_path / "stat").write_text("cpu  100 20 30 9999 999 4 5 6 70 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    assert metrics.cpu_busy_s(str(tmp_path / "stat")) == pytest.approx(165 * metrics.TICK_S)
