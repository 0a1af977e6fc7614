"""A task's log: bounded, complete lines, no gaps, and it never blocks the task."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.small_disk import small_disk
from support.task_log import FEW_BYTES, PATIENT, SMALL, contents, write

from tfdeploy.agent.supervision.log import TaskLog

PACKAGE = os.fspath(Path(__file__).parents[4])


@pytest.fixture
def log(tmp_path):
    """A log of a few kilobytes."""
    return TaskLog(os.fspath(tmp_path / "ps-0.log"), 2 * SMALL, FEW_BYTES)


# A full disk


FILL = """
import os, resource, sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent.supervision.log import Buffers, TaskLog
"""


def test_a_full_disk_costs_lines_and_the_log_says_how_many_bytes(tmp_path):
    with small_disk(tmp_path / "disk", 1024) as disk:
        log = TaskLog(os.fspath(disk / "log"), 1 << 30, PATIENT)
        (disk / "checkpoint").write_bytes(b"x" * 700_000)
        write(log, *[b"y" * 999 + b"\n"] * 400)
        assert log.tail.endswith(b"y\n")
        lost = 400_000 - (disk / "log").stat().st_size
        assert lost > 0
        (disk / "checkpoint").unlink()
        write(log, b"room again\n")
        end = (disk / "log").read_bytes()[-200:]
        assert end.endswith(b"\n[%d bytes of log lost: no space]\nroom again\n" % lost)


def test_a_file_that_cannot_grow_does_not_block_the_task(tmp_path):
    """Needs no disk of its own: the kernel refuses every byte beyond a limit."""
    code = FILL + (
        "log = TaskLog(sys.argv[2], 1 << 30, Buffers(flush_s=60.0))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "for _ in range(50):\n"
        "    os.write(log.descriptor, b'x' * 100_000)\n"
        "log.flush()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "os.write(log.descriptor, b'room again\\n')\n"
        "log.flush()\n"
    )
    path = tmp_path / "log"
    subprocess.run([sys.executable, "-c", code, PACKAGE, os.fspath(path)], check=True, timeout=120)
    text = path.read_bytes()
    assert text[:100_000] == b"x" * 100_000
    assert text[100_000:] == b"\n[4900000 bytes of log lost: no space]\nroom again\n"


def test_a_task_that_writes_much_never_blocks(log):
    """The pump reads the pipe in its own thread."""
    noisy = "import sys\nfor n in range(30_000): print('line', n)"
    process = subprocess.Popen([sys.executable, "-c", noisy], stdout=log.descriptor)
    assert process.wait(120.0) == 0
    log.flush()  # during a rotation one of the files does not exist
    assert contents(log)[1].endswith(b"line 29999\n")
