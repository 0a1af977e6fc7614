"""Between-graph recipes, trained on this machine: each shows what its page says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support import warm
from support.recipes import EXAMPLES, run
from support.waiting import until

from examples.forks import train
from tfdeploy.branches.measuring import scalars

pytestmark = pytest.mark.slow

STOPPED = re.compile(r"^stopped at step (\d+).*, own steps: (\d+)$", re.MULTILINE)
EVALUATED = re.compile(r"^evaluated step (\d+) accuracy (\S+)$", re.MULTILINE)


def assert_ended_by_themselves(done, ps=1):
    """Check that all ended by themselves, except the ps and perhaps the second worker.

    A chief does not wait for it to exit, and seconds after the chief it is stopped.
    """
    others = dict(done.tasks)
    assert others.pop("worker:1") in ("SUCCEEDED", "STOPPED")
    assert [others.pop(f"ps:{index}") for index in range(ps)] == ["STOPPED"] * ps
    assert "worker:0" in others
    assert set(others.values()) == {"SUCCEEDED"}


def assert_learned(done, serial):
    """Check that it learned nearly what one process learns, and that its loss was collected."""
    assert done.accuracy() >= serial.accuracy() - 0.04
    loss = scalars.read_events(done.collected)["loss"]
    # The first point may be late: another worker may have trained alone until then.
    assert loss[-1].value < 0.5
    assert loss[-1].step > loss[0].step


def stopped_at(done, task):
    """Return the last step, and the number of steps of this worker."""
    step, own = STOPPED.search(done.log(task)).groups()
    return int(step), int(own)


def test_a_supervisor_trains_and_saves_the_last_step(tmp_path, serial):
    done = train("supervisor", tmp_path)
    assert_ended_by_themselves(done)
    assert_learned(done, serial)
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")
    step, _ = stopped_at(done, "worker:0")
    newest = max(int(path.stem.split("-")[1]) for path in done.checkpoints.glob("*.index"))
    assert newest >= step >= 600


def test_synchronous_replicas_take_every_step_together(tmp_path, serial):
    done = train("sync_replicas", tmp_path)
    assert_ended_by_themselves(done)
    assert_learned(done, serial)
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")
    assert {stopped_at(done, worker) for worker in done.ended_workers()} == {(300, 300)}


def test_a_slow_worker_holds_up_every_step_and_with_a_backup_none(tmp_path):
    """The slowed worker is the chief, whose log is always complete; a step needs two workers."""
    words = ("--net=dense", "--slow_worker=0", "--slow_ms=200")
    waiting = backup_run(tmp_path, (*words, "--backup=0", "--steps=30"))
    assert stopped_at(waiting, "worker:0") == (30, 30)
    done = backup_run(tmp_path, (*words, "--backup=1", "--steps=300"))
    step, own = stopped_at(done, "worker:0")
    assert step >= 300
    # The others alone make steps while it computes a batch.
    assert own <= step / 2


def backup_run(tmp_path, words):
    done = train("sync_replicas", tmp_path, hosts="hosts.backup.toml", words=words)
    assert done.tasks["worker:0"] == "SUCCEEDED"
    return done


@pytest.mark.parametrize("backup", [2, -1])
def test_a_backup_that_leaves_no_worker_is_refused_in_one_sentence(backup):
    role = ["--job_name=worker", "--task_index=0", "--ps_hosts=a:1", "--worker_hosts=b:1,c:1"]
    done = warm.run("-m", "sync_replicas.train", *role, f"--backup={backup}", cwd=EXAMPLES)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"--backup={backup}, but at least one of 2 workers must count"
    )


def test_balanced_ps_share_the_bytes(tmp_path, serial):
    done = train("ps_balance", tmp_path)
    assert_ended_by_themselves(done, ps=2)
    assert_learned(done, serial)
    log = done.log("worker:0")
    assert "using balanced: weights on /job:ps/task:0, /job:ps/task:1\n" in log
    largest = {
        placement: max(int(size.replace(",", "")) for size in re.findall(r"([\d,]+) bytes", line))
        for placement, line in re.findall(r"^(\w+): (/job:ps.*)$", log, re.MULTILINE)
    }
    assert largest["round_robin"] > largest["balanced"] > largest["sliced"]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    return run("evaluator", tmp_path_factory.mktemp("evaluator"))


def test_an_evaluator_measures_checkpoints_until_the_last_one(evaluated, serial):
    assert_ended_by_themselves(evaluated)
    assert_learned(evaluated, serial)
    assert "weights on /job:ps/task:0\n" in evaluated.log("worker:0")
    measured = EVALUATED.findall(evaluated.log("evaluator:0"))
    steps = [int(step) for step, _ in measured]
    assert steps == sorted(set(steps))
    assert steps[-1] >= 600
    assert float(measured[-1][1]) == pytest.approx(evaluated.accuracy(), abs=0.03)


def test_an_evaluator_tries_again_if_a_checkpoint_is_deleted_before_it_is_read(evaluated, tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    shutil.copy(evaluated.checkpoints / "checkpoint", folder)
    words = ["-m", "evaluator.train", "--job_name=evaluator", "--task_index=0"]
    given = [f"--checkpoint_dir={folder}", f"--eval_dir={tmp_path / 'events'}"]
    script = warm.start(*words, "--worker_hosts=a:1", *given, cwd=EXAMPLES)
    try:
        retry = "cannot be read (ValueError): trying again"
        until(lambda: retry in script.output, f"{retry!r}", lambda: script.errors)
        # The index appears last and complete, as when TensorFlow saves.
        copy = shutil.copytree(evaluated.checkpoints, tmp_path / "copy")
        for file in sorted(copy.iterdir(), key=lambda file: file.suffix == ".index"):
            file.rename(folder / file.name)
        code = script.wait()
    finally:
        script.kill()
    assert EVALUATED.search(script.output)
    assert "is the last one\n" in script.output
    assert code == 0
    assert {path.parent for path in Path(tmp_path).rglob("*tfevents*")} == {tmp_path / "events"}
