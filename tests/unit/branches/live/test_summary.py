"""What the view says about a run as a whole."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tfdeploy.branches.live.summary import end_line, run_line, training_parts
from tfdeploy.errors import Unreachable
from unit.branches.live.samples import keras, sample, task_use, watched_run
from unit.output.samples import RUN_ID

IDLE = "its GPUs were idle for 30m (idle_gpu_stop_s)"
ONE = "[hosts.w]\nworkers = 1"


def trained(*losses):
    """A run that reported every 10 s, an epoch later each time."""
    watched = watched_run(ONE)
    for number, loss in enumerate(losses):
        report = task_use(log_progress=keras(number + 1, 50, loss))
        watched.take("w", sample(report), number * 10.0)
    return watched


def test_the_run_line_counts_states_and_hosts_that_are_away():
    watched = watched_run()
    watched.take("p", Unreachable("p", "gone"), 0.0)
    watched.take("w", sample(task_use("worker:0")), 0.0)
    assert run_line(watched) == f"run {RUN_ID}  3 tasks on 2 hosts: 1 AWAY, 1 READY, 1 …"


def test_the_run_line_says_when_the_run_ends_at_the_latest():
    watched = watched_run(ONE)
    watched.take("w", sample(task_use(ends_s=10920.0)), 0.0)
    assert run_line(watched).endswith(": 1 READY; ends at the latest in 3h 02m")


def test_before_the_first_report_the_view_waits():
    assert training_parts(watched_run(), 0.0) == ["waiting for the first report"]


def test_a_script_that_says_nothing_is_unknown():
    watched = watched_run(ONE)
    watched.take("w", sample(task_use()), 0.0)
    assert training_parts(watched, 0.0) == ["no step, epoch or loss is known yet"]


def test_the_training_of_keras_has_epoch_rate_loss_and_time_left():
    assert training_parts(trained("2.0", "1.5", "1.0"), 20.0) == [
        "epoch 3/10, batch 50/100", "10 steps/s", "loss 1.0 █▅▁", "1m 15s left",
    ]  # fmt: skip


def test_a_loss_that_is_not_finite_is_shown_as_it_was_printed():
    assert "loss nan █▁" in training_parts(trained("2.0", "1.5", "nan"), 20.0)


def test_a_long_loss_keeps_its_exponent():
    assert "loss 9.53674e-07" in training_parts(trained("9.5367431640625e-07"), 0.0)


def test_a_loss_from_a_lying_host_is_short_and_harmless():
    [loss] = [part for part in training_parts(trained("\x1b[2J" * 99), 0.0) if "loss" in part]
    assert loss == "loss \\x1b[2J\\x1b["


def test_the_checkpoint_has_its_age():
    watched = watched_run(ONE)
    report = task_use(step=7, step_age_s=0.0)
    watched.take("w", sample(report, checkpoint="model.ckpt-7", checkpoint_age_s=62.0), 0.0)
    assert training_parts(watched, 1.0) == ["step 7", "model.ckpt-7 1m 03s ago"]


@pytest.mark.parametrize(
    ("chief", "text"),
    [
        ({"state": "READY"}, ""),
        ({"state": "SUCCEEDED"}, f"succeeded. Next: tfdeploy collect --run {RUN_ID}"),
        (
            {"state": "STOPPED", "planned": True},
            f"ended after max_duration_s. Next: tfdeploy collect --run {RUN_ID}",
        ),
        (
            {"state": "STOPPED"},
            f"stopped. Next: tfdeploy collect --run {RUN_ID}, or tfdeploy resume --run {RUN_ID}",
        ),
        (
            {"state": "STOPPED", "reason": f"{IDLE}; stopped by SIGTERM"},
            f"stopped: {IDLE}. Next: tfdeploy collect --run {RUN_ID}, "
            f"or tfdeploy resume --run {RUN_ID}",
        ),
        (
            {"state": "FAILED", "reason": "exit 1\nmore"},
            f"failed: worker:0 exit 1. Next: tfdeploy logs --run {RUN_ID}",
        ),
    ],
)
def test_the_end_says_how_and_what_to_type(chief, text, monkeypatch):
    monkeypatch.chdir("/")
    watched = watched_run(ONE)
    watched.take("w", sample(task_use(**chief)), 0.0)
    assert end_line(watched).replace("--hosts home/ada/hosts.toml ", "") == text


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("SUCCEEDED", "succeeded; collected into {folder}"),
        ("STOPPED", f"stopped; collected into {{folder}}. Next: tfdeploy resume --run {RUN_ID}"),
    ],
)
def test_the_end_of_a_run_that_was_collected_does_not_say_to_collect_it(
    state, text, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    watched = watched_run(ONE)
    inventory = watched.run.inventory.copy_with({"file": tmp_path / "hosts.toml"})
    watched.run = replace(watched.run, inventory=inventory)
    watched.take("w", sample(task_use(state=state)), 0.0)
    history = watched.run.folder / "logs/worker-0.history.jsonl"
    history.parent.mkdir(parents=True)
    for collected_state in ("READY", state):
        assert "tfdeploy collect" in end_line(watched)
        with history.open("a") as file:
            print(json.dumps({"at": 1.5, "state": collected_state}), file=file)
    assert end_line(watched) == text.format(folder=watched.run.folder)


def test_a_run_that_has_ended_has_no_rate_and_no_time_left():
    watched = trained("2.0", "1.0")
    watched.take("w", sample(task_use(state="SUCCEEDED")), 20.0)
    assert training_parts(watched, 20.0) == ["epoch 2/10, batch 50/100", "loss 1.0 █▁"]


def test_the_training_of_a_slot_begins_with_its_trial():
    watched = watched_run(f"[trials]\npoints = [{{lr = '1'}}]\n{ONE}")
    report = task_use(log_progress=keras(1, 50), reason="trial 0: lr=1")
    watched.take("w", sample(report), 0.0)
    assert training_parts(watched, 0.0)[:2] == ["trial 0: lr=1", "epoch 1/10, batch 50/100"]
