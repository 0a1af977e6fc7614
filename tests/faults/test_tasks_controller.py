"""Faults 13 and 44: a command is killed, and the next command finds no partial state.

integration/test_killed_at_each_call.py kills each command at any of its calls, with small files.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from support.projects import without_tensorflow
from support.training import STUB, Training

if TYPE_CHECKING:
    from pathlib import Path

MEGA = 1_000_000
pytestmark = pytest.mark.slow


def kill_command(run: Training, *words: str, when) -> None:
    """Run `tfdeploy WORDS`, and kill its process group as soon as `when` holds."""
    with run.start_command(*words) as command:
        ended = command.process.poll
        run.until(lambda: when() or ended() is not None, "the moment", every_s=0.02)
        assert command.process.poll() is None, command.output
        os.killpg(command.process.pid, signal.SIGKILL)


def incoming_files(run: Training) -> list[Path]:
    return [path for path in run.on("here").glob("releases/.*/*") if path.is_file()]


def test_hosts_finish_a_start_whose_controller_was_killed(training):
    run = training(STUB, "--hold")
    run.ok("push")
    with run.start_command("start") as command:
        run.until(lambda: run.processes(), "a supervisor", every_s=0.02)
        os.kill(command.process.pid, signal.SIGKILL)
        command.process.wait()
    run.until(lambda: set(run.states().values()) == {"READY"}, "READY")
    run.ok("status")


def test_a_killed_push_shows_no_partial_release_and_is_completed(training):
    run = training(STUB, "--hold")
    for number in range(3):
        (run.folder / f"data-{number}").write_bytes(os.urandom(30_000_000))
    kill_command(run, "push", when=lambda: incoming_files(run))
    assert run.releases("here") == set()
    start = run.tf("start")
    assert (start.returncode, run.processes()) == (1, {})
    assert "tfdeploy push" in start.stderr
    run.ok("push")
    (release,) = run.releases("here")
    assert (release / "data-2").stat().st_size == 30_000_000
    assert list(release.parent.glob(".*")) == []
    run.ok("start")


def save(folder: Path) -> Path:
    """Write a checkpoint that takes long to collect; return its data file."""
    folder.mkdir(exist_ok=True)
    data = folder / "ckpt-7.data-00000-of-00001"
    data.write_bytes(os.urandom(160 * MEGA))
    (folder / "ckpt-7.index").write_text("its index")
    (folder / "checkpoint").write_text('model_checkpoint_path: "ckpt-7"\n')
    return data


def test_a_killed_collect_leaves_no_partial_checkpoint_and_is_completed(training, tmp_path):
    # TensorFlow would reject this checkpoint.
    host = {"python": without_tensorflow(tmp_path / "python")}
    run = training(STUB, "--hold", "--steps=0", host=host).start()
    work = run.work("worker:0")
    data = save(work / "checkpoints")
    kill_command(run, "collect", when=lambda: list(run.run_folder.glob(".incoming/*data*")))
    assert not (run.run_folder / "checkpoints" / "checkpoint").exists()
    assert list(run.run_folder.glob("checkpoints/*.index")) == []
    run.ok("collect")
    assert (run.run_folder / "checkpoints" / data.name).read_bytes() == data.read_bytes()
    assert not (run.run_folder / ".incoming").exists()
    assert not (work.parent / "held").exists()
