"""Between-graph recipes, each run through tfdeploy on this machine, and what each is to show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.recipes import EXAMPLES, run
from tfdeploy import curves

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STOPPED = re.compile(r"^stopped at step (\d+) after (\d+) of my own", re.MULTILINE)
EVALUATED = re.compile(r"^evaluated step (\d+) accuracy (\S+)$", re.MULTILINE)


def ended_by_themselves(done, ps=1):
    """But a ps, which never does, and the second worker if it is still about to.

    Nothing makes an asynchronous chief wait for it, and seconds after the chief it is stopped.
    """
    others = dict(done.tasks)
    assert others.pop("worker:1") in ("SUCCEEDED", "STOPPED")
    assert [others.pop(f"ps:{index}") for index in range(ps)] == ["STOPPED"] * ps
    assert "worker:0" in others
    assert set(others.values()) == {"SUCCEEDED"}


def learned(done, serial):
    """Nearly what one process learns; and the curve of it came home."""
    assert done.accuracy() >= serial.accuracy() - 0.04
    loss = curves.of_events(done.collected)["loss"]
    assert loss[-1].value < 0.5 < loss[0].value


def stopped(done, task):
    """The last step of all, and how many of them were this worker's."""
    step, own = STOPPED.search(done.log(task)).groups()
    return int(step), int(own)


def test_a_supervisor_trains_and_saves_the_last_step(tmp_path, serial):
    done = run("supervisor", tmp_path)
    ended_by_themselves(done)
    learned(done, serial)
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")
    step, _ = stopped(done, "worker:0")
    newest = max(int(path.stem.split("-")[1]) for path in done.checkpoints.glob("*.index"))
    assert newest >= step >= 600


def test_synchronous_replicas_take_every_step_together(tmp_path, serial):
    done = run("sync_replicas", tmp_path)
    ended_by_themselves(done)
    learned(done, serial)
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")
    assert done.tasks["worker:1"] == "SUCCEEDED"
    assert stopped(done, "worker:0") == stopped(done, "worker:1") == (300, 300)


def test_balanced_ps_share_the_bytes(tmp_path, serial):
    done = run("ps_balance", tmp_path)
    ended_by_themselves(done, ps=2)
    learned(done, serial)
    said = done.log("worker:0")
    assert "balanced it is: weights on /job:ps/task:0, /job:ps/task:1\n" in said
    most = {
        placement: max(int(size.replace(",", "")) for size in re.findall(r"([\d,]+) bytes", line))
        for placement, line in re.findall(r"^(\w+): (/job:ps.*)$", said, re.MULTILINE)
    }
    assert most["round_robin"] > most["balanced"] > most["sliced"]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    return run("evaluator", tmp_path_factory.mktemp("evaluator"))


def test_an_evaluator_measures_checkpoints_until_the_last_one(evaluated, serial):
    ended_by_themselves(evaluated)
    learned(evaluated, serial)
    assert "weights on /job:ps/task:0\n" in evaluated.log("worker:0")
    measured = EVALUATED.findall(evaluated.log("evaluator:0"))
    steps = [int(step) for step, _ in measured]
    assert steps == sorted(set(steps))
    assert steps[-1] >= 600
    assert float(measured[-1][1]) == pytest.approx(evaluated.accuracy(), abs=0.03)


def test_an_evaluator_asks_again_where_a_checkpoint_is_gone_before_it_is_read(evaluated, tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    shutil.copy(evaluated.checkpoints / "checkpoint", folder)
    words = ["-m", "evaluator.train", "--job_name=evaluator", "--task_index=0"]
    given = [f"--checkpoint_dir={folder}", f"--eval_dir={tmp_path / 'events'}"]
    process = subprocess.Popen(
        [sys.executable, *words, "--worker_hosts=a:1", *given],
        cwd=EXAMPLES, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        try:
            assert "can't be read (ValueError): asking again" in process.stdout.readline()
            shutil.copytree(evaluated.checkpoints, folder, dirs_exist_ok=True)
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert EVALUATED.search(said)
    assert "is the last one\n" in said
    assert process.returncode == 0
    assert {path.parent for path in Path(tmp_path).rglob("*tfevents*")} == {tmp_path / "events"}
