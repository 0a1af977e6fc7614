"""Faults 18 and 34: a full disk and an endless log lose only what has no space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.small_disk import fill, small_disk

from faults import table
from faults.fault import Fault
from tfdeploy.shared.records import MAX_LOG_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow
BLOCK = 4096
ENDLESS_LOG = "for n in range(250_000): print('line', n, 'of the log', '.' * 800)"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 8192) as folder:
        yield folder


def test_a_run_resumes_after_its_disk_was_full_at_a_checkpoint(disk, training):
    tasks, host = {"ps": 1, "workers": 1}, {"directory": str(disk)}
    run = training("train_stub.py", "--steps=1000000", tasks=tasks, host=host).start()
    run.wait_for_checkpoint()
    # On the full disk the log can still grow in its last block: the error must fit there.
    run.until(lambda: len(run.log("worker:0")) % BLOCK < BLOCK - 1500, "space in the log's block")
    fault = Fault(run)
    fill(disk / "filler")
    fault.wait_for_detection("worker:0", "FAILED")
    run.until(lambda: run.processes() == {}, "the end of all processes")
    task = run.status()["worker:0"]
    assert (
        "the disk is full; tfdeploy runs shows what uses it, tfdeploy prune frees space"
        in task["reason"]
    )
    assert "No space left on device" in run.ok("logs", "worker:0", "-n", "400")
    run.ok("collect")
    (disk / "filler").unlink()
    fault.start_recovery()
    run.ok("resume")
    fault.wait_for_restore()
    fault.record("18 the disk is full at a checkpoint: FAILED; resume once there is room")


def test_an_endless_log_is_bounded_and_has_the_last_lines(training):
    run = training(
        "train_async.py", tasks={"workers": 1},
        training={"command": ["python", "-c", ENDLESS_LOG], "role": "tf_config"},
    )  # fmt: skip
    run.ok("push")
    run.ok("start")
    run.until(lambda: run.states() == {"worker:0": "SUCCEEDED"}, "its end")
    logs = run.work("worker:0").parent.parent / "logs"
    size = sum(file.stat().st_size for file in logs.iterdir())
    assert size <= 1.2 * MAX_LOG_BYTES
    last = run.ok("logs", "-n", "2").splitlines()
    assert [line.split()[3] for line in last] == ["249998", "249999"]
    table.record(f"34 a log of 206 MB: {size / 1e6:.0f} MB kept")
