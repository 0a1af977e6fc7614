"""Faults 18 and 34: a full disk and an endless log cost what can't be kept, and nothing else."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from faults import table
from faults.fault import Fault
from faults.training import patiently

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MEGA = 1 << 20
TALKS = "for n in range(250_000): print('line', n, 'of the log', '.' * 80)"


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A filesystem of a few megabytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as folder:
        yield folder


def fill(file: Path) -> None:
    """Take all the room that is left."""
    with file.open("wb", buffering=0) as rest:
        try:
            while rest.write(b"\0" * 4096):
                pass
        except OSError:
            return


def free(folder: Path) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def test_a_disk_that_fills_at_a_checkpoint(disk, training):
    run = training("train_async.py", "--steps=1000000", host={"directory": str(disk)}).start()
    run.trains()
    fault = Fault(run)
    fill(disk / "filler")
    fault.detected("worker:0", "FAILED")
    patiently(lambda: run.processes() == {}, "the end of all")
    told = run.status()["worker:0"]
    assert "the disk is full; tfdeploy runs shows by what, prune makes room" in told["reason"]
    assert "No space left on device" in run.ok("logs", "worker:0", "-n", "400")
    run.ok("collect")
    (disk / "filler").unlink()
    fault.mended()
    run.ok("resume")
    fault.restored()
    assert fault.steps_lost <= 200
    fault.record("18 the disk is full at a checkpoint: FAILED; resume once there is room")


def test_a_log_without_end_is_bounded_and_holds_the_last_lines(training):
    run = training(
        "train_async.py", tasks={"workers": 1},
        training={"command": ["python", "-c", TALKS], "role": "tf_config", "log_limit_mb": 1},
    )  # fmt: skip
    run.ok("push")
    run.ok("start")
    patiently(lambda: run.states() == {"worker:0": "SUCCEEDED"}, "its end")
    logs = run.work("worker:0").parent.parent / "logs"
    kept = sum(file.stat().st_size for file in logs.iterdir())
    assert kept <= 1.2 * MEGA
    last = run.ok("logs", "-n", "2").splitlines()
    assert [line.split()[3] for line in last] == ["249998", "249999"]
    table.record(f"34 a log of 26 MB, log_limit_mb = 1: {kept / 1e6:.2f} MB kept")
