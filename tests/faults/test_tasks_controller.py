"""Faults 13 and 44: a command is killed, and the next command finds no partial state."""

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
MOMENTS = {
    "its record is written": lambda run: list(run.folder.glob("runs/*/run.json")),
    "a launch is written": lambda run: list(run.on("here").glob("runs/*/*/launch.json")),
    "a supervisor runs": lambda run: run.processes(),
    "a task is READY": lambda run: "READY" in states(run),
}


def states(run: Training) -> set[str]:
    return {file.read_text().split('"')[3] for file in run.on("here").glob("runs/*/*/state.json")}


def kill_command(run: Training, *words: str, when) -> None:
    """Run `tfdeploy WORDS`, and kill its process group as soon as `when` holds."""
    with run.start_command(*words) as command:
        ended = command.process.poll
        run.until(lambda: when() or ended() is not None, "the moment", every_s=0.02)
        assert command.process.poll() is None, command.output
        os.killpg(command.process.pid, signal.SIGKILL)


def incoming_files(run: Training) -> list[Path]:
    return [path for path in run.on("here").glob("releases/.*/*") if path.is_file()]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_start_is_complete_or_stop_cleans_it_up(training, moment, tmp_path):
    gate = tmp_path / "gate"
    run = training("waits_for_gate.py", "--hold", training={"env": {"GATE": str(gate)}})
    run.add_script(STUB)
    run.ok("push")
    # Before the gate opens, `start` waits for worker:1, so it cannot end before it is killed.
    kill_command(run, "start", when=lambda: MOMENTS[moment](run))
    gate.touch()
    again = run.tf("start")
    if again.returncode:
        assert run.runs[0] in again.stderr
        run.ok("stop")
        assert run.processes() == {}
        run.ok("start")
    assert set(run.states().values()) == {"READY"}


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


def test_a_killed_stop_is_completed_by_the_next(training):
    # As long as worker:1 has its grace period, `stop` waits.
    words = ("--hold", "--stubborn", "--who", "worker:1")
    run = training(STUB, *words, training={"stop_grace_s": 6}).start()
    kill_command(run, "stop", when=lambda: "STOPPED" in states(run))
    run.ok("status")
    run.ok("stop")
    assert run.processes() == {}
    assert set(run.states().values()) == {"STOPPED"}


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
