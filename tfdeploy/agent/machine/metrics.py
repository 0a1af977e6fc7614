"""Counters of the whole host in /proc: CPU seconds of all processes, bytes of all interfaces."""

from __future__ import annotations

import os

from ...shared import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Tuple

NET, STAT = "/proc/net/dev", "/proc/stat"
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
# proc(5), stat, after the name: utime, stime, and those of children that were waited for.
CPU_FIELDS = slice(11, 15)
RECEIVED, SENT = 0, 8  # the columns of NET
# The columns of STAT's first row: user, nice, system; irq, softirq, steal.
BUSY = (1, 2, 3, 6, 7, 8)


def network_bytes(path: str) -> Tuple[int, int]:
    """Return the bytes received and sent by all interfaces.

    Source: proc(5), /proc/net/dev: two header lines, then `name: ` and eight columns each for
    receiving and sending.
    """
    with open(path, encoding="ascii") as file:
        rows = [line.rpartition(":")[2].split() for line in file.readlines()[2:]]
    return sum(int(row[RECEIVED]) for row in rows), sum(int(row[SENT]) for row in rows)


def cpu_busy_s(path: str) -> float:
    """Return the CPU seconds of all processes since the boot. Source: proc(5), /proc/stat."""
    with open(path, encoding="ascii") as file:
        row = file.readline().split()
    return sum(int(row[column]) for column in BUSY) * TICK_S
