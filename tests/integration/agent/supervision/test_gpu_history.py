"""The use of a task's GPUs, kept by a real supervisor with a stub of nvidia-smi."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.builders import make_heartbeat_settings, make_policy
from support.ports import free_port
from support.waiting import until

from integration.agent.supervised_task import RUN_FOREVER
from tfdeploy.agent import paths
from tfdeploy.agent.machine import process

ALONE = make_heartbeat_settings(tasks=["worker:0"], needed=[])
SOON = make_policy(delay_s=0.1, exits=[7, "signals"])
ANSWER = 'echo "0, 97, 71680, 81559"; echo "3, 50, 1, 81559"; echo "4, [N/A], 7, 8"'


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Give this host an nvidia-smi; return the folder with its `calls` and its last `pid`."""

    def provide(script):
        folder = tmp_path / "bin"
        folder.mkdir()
        tool = folder / "nvidia-smi"
        tool.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\necho $$ > {folder}/pid\n{script}')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return folder

    return provide


def samples(task):
    file = Path(paths.gpu_history("p", task.launch.run, task.launch.task))
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def recorders(task):
    """Return the pids of the processes that keep the use of this task's GPUs."""
    title = f"tfdeploy gpu-history {task.task_dir}".encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if process.read(pid, "cmdline").startswith(title)]


def test_the_use_of_the_own_gpus_is_kept_until_the_supervisor_has_ended(supervise, nvidia_smi):
    folder = nvidia_smi(ANSWER)
    task = supervise(RUN_FOREVER, heartbeat=ALONE, gpus=[0, 3, 4])
    until(lambda: len(samples(task)) >= 3, "three samples")
    assert samples(task)[0]["gpus"] == [[0, 97.0, 71680, 81559], [3, 50.0, 1, 81559],
                                        [4, None, 7, 8]]  # fmt: skip
    assert "--id=0,3,4" in (folder / "calls").read_text()
    times = [each["at"] for each in samples(task)]
    assert times == sorted(times)
    task.stop()
    assert task.wait_for_end().state == "STOPPED"
    until(lambda: not recorders(task), "the end of its recorder")


def test_a_killed_supervisor_leaves_no_recorder(supervise, nvidia_smi):
    nvidia_smi(ANSWER)
    task = supervise(RUN_FOREVER, heartbeat=ALONE, gpus=[0])
    until(lambda: samples(task), "a sample")
    task.process.kill()
    until(lambda: not recorders(task), "the end of its recorder")


def test_an_nvidia_smi_that_hangs_harms_nothing(supervise, nvidia_smi):
    """It ignores SIGTERM. Restarts and the end of the task don't see it, and leave none behind."""
    folder = nvidia_smi("trap '' TERM\nwhile :; do sleep 1; done")
    code = "first = attempt() == 1; become_ready(); sys.exit(7) if first else " + RUN_FOREVER
    task = supervise(code, heartbeat=ALONE, policy=SOON, gpus=[0])
    until(lambda: (folder / "pid").exists(), "a question")
    hanging = int((folder / "pid").read_text())
    assert task.reaches("READY", restarts=1)
    assert process.read(hanging, "cmdline")  # ending the first attempt has not ended it
    mark = process.mark("p", task.launch.run, "worker:0")
    assert hanging not in process.task_processes(mark, task.state.pid, task.process.pid)
    task.stop()
    assert task.wait_for_end().state == "STOPPED"
    until(lambda: not recorders(task), "the end of its recorder")
    until(lambda: not process.read(hanging, "cmdline"), "the end of nvidia-smi")
    assert samples(task) == []


def test_a_failing_nvidia_smi_and_a_task_without_gpus_leave_no_file(supervise, nvidia_smi):
    nvidia_smi("exit 9")
    failing = supervise("become_ready(); time.sleep(0.5)", heartbeat=ALONE, gpus=[0])
    assert failing.wait_for_end().state == "SUCCEEDED"
    assert samples(failing) == []
    without = supervise(RUN_FOREVER, heartbeat=ALONE, index=1)
    assert without.reaches("READY")
    assert not recorders(without)


def test_a_run_is_stopped_once_the_gpus_of_all_its_tasks_are_idle(supervise, nvidia_smi, tmp_path):
    for gpu in (0, 1):
        (tmp_path / f"--id={gpu}").write_text(f"{gpu}, 0, 1000, 81559\n")
    (tmp_path / "--id=1").write_text("1, 3, 1000, 81559\n")
    nvidia_smi(f"cat {tmp_path}/$3")
    tasks = ["worker:0", "worker:1"]
    settings = make_heartbeat_settings(port=free_port(), tasks=tasks, needed=["worker:1"])
    chief, other = (
        supervise(RUN_FOREVER, heartbeat=settings, index=index, gpus=[index], idle_gpu_stop_s=1.0)
        for index in (0, 1)
    )
    wait_for_lines = 15  # of 0.1 s each: longer than the limit
    until(lambda: len(samples(chief)) > wait_for_lines, "an idle chief")
    assert {chief.state.state, other.state.state} <= {"RUNNING", "READY"}
    (tmp_path / "--id=1").write_text("1, 0, 1000, 81559\n")
    idle, ended = chief.wait_for_end(), other.wait_for_end()
    assert idle.state == "STOPPED"
    assert idle.reason == "its GPUs were idle for 1s (idle_gpu_stop_s); stopped by SIGTERM"
    assert ended.reason == "the run has ended: worker:0 was stopped; stopped by SIGTERM"
