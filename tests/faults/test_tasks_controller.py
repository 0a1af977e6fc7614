"""Faults 13 and 44: the controller is killed in the middle, and the next command finds no half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from faults.training import STUB, Training, patiently

if TYPE_CHECKING:
    from pathlib import Path

SAVE = """
import tensorflow as tf
checkpoint = tf.train.Checkpoint(weights=tf.Variable(tf.random.uniform([40_000_000])))
tf.train.CheckpointManager(checkpoint, "checkpoints", 1).save(checkpoint_number=7)
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MOMENTS = {
    "its record is written": lambda run: list(run.folder.glob("runs/*/run.json")),
    "a task is ordered": lambda run: list(run.on("here").glob("runs/*/*/launch.json")),
    "a supervisor lives": lambda run: run.processes(),
    "a task is READY": lambda run: "READY" in states(run),
}


def states(run: Training) -> set[str]:
    return {file.read_text().split('"')[3] for file in run.on("here").glob("runs/*/*/state.json")}


def killed(run: Training, *words: str, when) -> None:
    """`tfdeploy WORDS`, killed with all that it began as soon as `when` holds."""
    with run.begun(*words) as command:
        patiently(lambda: when() or command.process.poll() is not None, "the moment")
        assert command.process.poll() is None, command.said
        os.killpg(command.process.pid, signal.SIGKILL)


def incoming(run: Training) -> list[Path]:
    return [path for path in run.on("here").glob("releases/.*/*") if path.is_file()]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_start_that_is_killed_is_whole_or_swept_by_stop(training, moment):
    run = training(STUB, "--hold")
    run.ok("push")
    killed(run, "start", when=lambda: MOMENTS[moment](run))
    again = run.tf("start")
    if again.returncode:
        assert run.runs[0] in again.stderr
        run.ok("stop")
        assert run.processes() == {}
        run.ok("start")
    assert set(run.states().values()) == {"READY"}


def test_a_controller_that_is_killed_alone_leaves_its_hosts_to_finish(training):
    run = training(STUB, "--hold")
    run.ok("push")
    with run.begun("start") as command:
        patiently(lambda: run.processes(), "a supervisor")
        os.kill(command.process.pid, signal.SIGKILL)
        command.process.wait()
    patiently(lambda: set(run.states().values()) == {"READY"}, "READY")
    run.ok("status")


def test_a_push_that_is_killed_shows_no_half_release_and_is_completed(training):
    run = training(STUB, "--hold")
    for number in range(4):
        (run.folder / f"data-{number}").write_bytes(os.urandom(30_000_000))
    killed(run, "push", when=lambda: incoming(run))
    assert run.releases("here") == set()
    refused = run.tf("start")
    assert (refused.returncode, run.processes()) == (1, {})
    assert "tfdeploy push" in refused.stderr
    run.ok("push")
    (release,) = run.releases("here")
    assert (release / "data-3").stat().st_size == 30_000_000
    assert list(release.parent.glob(".*")) == []
    run.ok("start")


def test_a_stop_that_is_killed_is_finished_by_the_next(training):
    run = training(STUB, "--hold", "--stubborn", "--who", "worker:1").start()
    killed(run, "stop", when=lambda: "STOPPED" in states(run))
    run.ok("status")
    run.ok("stop")
    assert run.processes() == {}
    assert set(run.states().values()) == {"STOPPED"}


def test_a_collect_that_is_killed_tears_no_checkpoint_and_is_completed(training):
    run = training(STUB, "--hold", "--steps=0").start()
    work = run.work("worker:0")
    subprocess.run([sys.executable, "-c", SAVE], cwd=work, check=True, timeout=100)
    data = work / "checkpoints" / "ckpt-7.data-00000-of-00001"
    killed(run, "collect", when=lambda: list(run.home.glob(".incoming/*data*")))
    assert not (run.home / "checkpoints" / "checkpoint").exists()
    assert list(run.home.glob("checkpoints/*.index")) == []
    run.ok("collect")
    assert (run.home / "checkpoints" / data.name).read_bytes() == data.read_bytes()
    assert not (run.home / ".incoming").exists()
    assert not (data.parent / ".tfdeploy-pin").exists()
