"""The summary of a run's end: its result, its reason, and what is never in it."""

from __future__ import annotations

import json

import pytest
from support.builders import make_heartbeat_settings, make_launch

from tfdeploy.agent.reports import run_summary
from tfdeploy.shared.records import Notification, TaskState

HOSTS = {"ps:0": "cpu-01", "worker:0": "gpu-01", "worker:1": "gpu-02"}
LAUNCH = make_launch(
    heartbeat=make_heartbeat_settings(),
    notify=Notification(hosts=HOSTS, flags="--run r", name="wide"),
)
READY = TaskState("READY", 0.0)


def summarize(tmp_path, chief, **others):
    """Summarize a run of 65 seconds; `others` has other states than READY."""
    states = {"ps:0": READY, "worker:1": READY, "worker:0": chief}
    states |= {task.replace("_", ":"): state for task, state in others.items()}
    return run_summary.summarize(LAUNCH, states, 1000.0, 1065.0, str(tmp_path))


@pytest.mark.parametrize(
    ("chief", "result", "reason", "code"),
    [
        (TaskState("SUCCEEDED", 0.0, exit=0, reason="exit 0"), "succeeded", "", 0),
        (
            TaskState("FAILED", 0.0, exit=3, reason="exit 3, which is not retried", restarts=2),
            "failed",
            "worker:0 on gpu-01: it ended after 2 restarts: exit 3, which is not retried",
            3,
        ),
        (
            TaskState("FAILED", 0.0, exit=-9, reason="killed by SIGKILL", restarts=1),
            "failed",
            "worker:0 on gpu-01: it ended after 1 restart: killed by SIGKILL",
            137,
        ),
        (TaskState("STOPPED", 0.0, reason="on request"), "stopped", "on request", 143),
        (
            TaskState("STOPPED", 0.0, reason="max_duration_s (5 s) has passed", planned=True),
            "ended",
            "max_duration_s (5 s) has passed",
            0,
        ),
    ],
)
def test_the_chiefs_end_is_the_runs(tmp_path, chief, result, reason, code):
    summary = summarize(tmp_path, chief)
    assert (summary.result, summary.reason, summary.exit) == (result, reason, code)


def test_a_task_that_made_the_chief_end_is_the_root_cause(tmp_path):
    chief = TaskState("FAILED", 0.0, exit=-15, reason="worker:1 failed: exit 3", cause="worker:1")
    summary = summarize(tmp_path, chief, worker_1=TaskState("FAILED", 0.0, reason="exit 3"))
    assert (summary.result, summary.exit) == ("failed", 1)
    assert summary.reason == "worker:1 on gpu-02: it ended: exit 3"


def test_a_task_that_fell_silent_has_not_said_why(tmp_path):
    reason = "no message from worker:1 for 15 s"
    chief = TaskState("FAILED", 0.0, exit=-15, reason=reason, cause="worker:1")
    assert summarize(tmp_path, chief).reason == f"worker:0 on gpu-01: it ended: {reason}"


def test_a_run_is_stopped_if_a_command_stopped_a_task_that_the_chief_needs(tmp_path):
    chief = TaskState("STOPPED", 0.0, reason="ps:0 was stopped: on request", cause="ps:0")
    by_command = TaskState("STOPPED", 0.0, reason="on request")
    assert summarize(tmp_path, chief, ps_0=by_command).result == "stopped"
    lost_contact = TaskState("STOPPED", 0.0, reason="no message", cause="worker:0")
    assert summarize(tmp_path, chief, ps_0=lost_contact).result == "failed"


def test_the_document_has_everything(tmp_path):
    (tmp_path / "work" / "checkpoints").mkdir(parents=True)
    state = tmp_path / "work" / "checkpoints" / "checkpoint"
    state.write_text('model_checkpoint_path: "model.ckpt-1200"\n')
    chief = TaskState("FAILED", 0.0, exit=1, reason="exit 1")
    assert run_summary.to_document(summarize(tmp_path, chief)) == {
        "text": "p: run wide (r) failed after 1m 05s: worker:0 on gpu-01: it ended: exit 1",
        "project": "p",
        "run": "r",
        "name": "wide",
        "release": "f00d",
        "result": "failed",
        "reason": "worker:0 on gpu-01: it ended: exit 1",
        "exit": 1,
        "started": "1970-01-01T00:16:40Z",
        "ended": "1970-01-01T00:17:45Z",
        "duration_s": 65.0,
        "restarts": {"ps:0": 0, "worker:0": 0, "worker:1": 0},
        "checkpoint_step": 1200,
        "hosts": ["cpu-01", "gpu-01", "gpu-02"],
        "command": "tfdeploy logs --run r",
    }


def test_a_secret_in_an_exception_is_not_in_the_document(tmp_path):
    chief = TaskState("FAILED", 0.0, exit=1, reason="exit 1: ValueError: bad key s3cr3t-long")
    document = run_summary.to_document(summarize(tmp_path, chief), ["s3cr3t", "s3cr3t-long", ""])
    assert "s3cr3t" not in json.dumps(document)
    assert document["reason"].endswith("bad key ***")


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0s"), (59.9, "59s"), (3600, "1h 00m"), (90000, "1d 1h")]
)
def test_a_duration_is_short(seconds, text):
    assert run_summary.format_duration(seconds) == text


def test_what_is_slow_is_one_sentence_for_a_chat():
    document = run_summary.slow_document(LAUNCH, "gpu-02", "worker:1 makes 1.2 steps/s")
    assert document["text"] == "p: run wide (r): gpu-02: worker:1 makes 1.2 steps/s"
    assert (document["result"], document["hosts"]) == ("slow", ["gpu-02"])
    assert document["command"] == "tfdeploy status --run r"
