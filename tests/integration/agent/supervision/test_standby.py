"""Standby processes under real supervisors: when they start, and that they end with the task."""

from __future__ import annotations

import os
import signal
import sys
import time
import zipfile
from pathlib import Path

import pytest
from support.builders import eventually, make_heartbeat_settings, make_policy

from integration.agent.supervised_task import (
    RUN_FOREVER,
    RUN_UNTIL_LET_END,
    SCRIPT,
    TIMEOUT_S,
    children,
    is_alive,
)
from tfdeploy import inside
from tfdeploy.agent import paths
from tfdeploy.agent.machine import process
from tfdeploy.agent.supervision import standby

ALONE = make_heartbeat_settings(tasks=["worker:0"], needed=[])
SOON = make_policy(delay_s=0.1, max_delay_s=0.2, standby=True)
IMPORT = "import tensorflow; attempt(); "
USED = "goes on in the standby process"


@pytest.fixture
def run_task(supervise, root, tmp_path):
    """Start a task whose agent has the folder inside/, with a package named tensorflow."""
    agent = Path(root, "agent", "abc.pyz")
    agent.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(agent, "w") as bundle:
        for source in Path(inside.__file__).parent.glob("*.py"):
            bundle.write(source, f"inside/{source.name}")
    (tmp_path / "tensorflow.py").write_text("")

    def run(code, **changes):
        changes.setdefault("argv", [sys.executable, "-c", SCRIPT + code])
        env = {"PYTHONPATH": str(tmp_path)}
        return supervise(code, **{"heartbeat": ALONE, "policy": SOON, "env": env, **changes})

    return run


def standby_of(task):
    """Wait until the task has a standby process that waits, and return its pid."""
    found = []

    def waits():
        found[:] = [pid for pid in children(task.process.pid) if name(pid) == "standby"]
        return bool(found)

    assert eventually(waits, TIMEOUT_S), task.log
    return found[0]


def name(pid):
    return process.read(pid, "comm").decode().strip()


def processes(task):
    launch = task.launch
    return process.task_processes(process.mark(launch.project, launch.run, launch.task))


def test_a_killed_task_goes_on_in_its_standby_process(run_task):
    task = run_task(IMPORT + RUN_FOREVER)
    assert task.reaches("READY")
    for restarts in (1, 2):  # the standby process that became the task gets one, too
        waiting = standby_of(task)
        os.kill(task.state.pid, signal.SIGKILL)
        assert task.reaches("READY", restarts=restarts)
        assert task.state.pid == waiting
        assert task.log.count(USED) == restarts
    task.stop()
    task.wait_for_end()
    assert processes(task) == []


def test_a_frozen_task_goes_on_in_its_standby_process(run_task):
    """All other processes of the task write their stacks and end."""
    policy = make_policy(delay_s=0.1, max_delay_s=0.2, standby=True, frozen_timeout_s=1.0)
    task = run_task(IMPORT + RUN_FOREVER, policy=policy)
    assert task.reaches("READY")
    waiting = standby_of(task)
    os.kill(task.state.pid, signal.SIGSTOP)
    assert task.reaches("READY", restarts=1)
    assert task.state.pid == waiting


@pytest.mark.parametrize("end", ["stop", "let_end"])
def test_it_ends_with_the_task(run_task, end):
    task = run_task(IMPORT + "become_ready()\n" + RUN_UNTIL_LET_END)
    assert task.reaches("READY")
    waiting = standby_of(task)
    getattr(task, end)()
    assert task.wait_for_end().state == {"stop": "STOPPED", "let_end": "SUCCEEDED"}[end]
    assert not is_alive(waiting)
    assert task.attempts == 1  # the script never ran in it


def test_it_ends_with_its_supervisor(run_task):
    task = run_task(IMPORT + RUN_FOREVER)
    assert task.reaches("READY")
    waiting = standby_of(task)
    task.kill()
    assert eventually(lambda: not is_alive(waiting), TIMEOUT_S)


def test_if_it_was_killed_the_task_starts_from_the_beginning(run_task):
    task = run_task(IMPORT + RUN_FOREVER)
    assert task.reaches("READY")
    waiting = standby_of(task)
    os.kill(waiting, signal.SIGKILL)
    assert eventually(lambda: standby.ENDED in task.log, TIMEOUT_S)
    os.kill(task.state.pid, signal.SIGKILL)
    assert task.reaches("READY", restarts=1)
    assert task.state.pid != waiting
    assert USED not in task.log


def test_a_task_in_a_crash_loop_gets_none(run_task):
    policy = make_policy(delay_s=0.1, max_delay_s=600.0, standby=True)
    task = run_task(IMPORT + RUN_FOREVER, policy=policy)
    assert task.reaches("READY")
    os.kill(task.state.pid, signal.SIGKILL)
    assert task.reaches("READY", restarts=1)
    time.sleep(0.5)  # many ticks of the supervisor
    assert len(processes(task)) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sh", "-c", 'echo x >> begun; exec "$0" -c "$1"', sys.executable], IMPORT + RUN_FOREVER),
        ([sys.executable, "-c"], "attempt(); " + RUN_FOREVER),
        ([sys.executable, "-I", "-c"], "attempt(); " + RUN_FOREVER),
    ],
)
def test_a_command_that_is_not_python_with_tensorflow_gets_none_and_the_log_says_so(
    run_task, words, code
):
    task = run_task("", argv=[*words, SCRIPT + code])
    assert task.reaches("READY")
    assert eventually(lambda: standby.FOREIGN in task.log, TIMEOUT_S)
    assert (task.attempts, len(processes(task))) == (1, 1)
    begun = Path(paths.work(task.task_dir), "begun")
    assert not begun.exists() or begun.read_text() == "x\n"


def test_without_memory_there_is_none_and_the_log_says_so(run_task, monkeypatch):
    monkeypatch.setenv("MIN_AVAILABLE_BYTES", str(1 << 60))  # more than any machine has
    task = run_task(IMPORT + RUN_FOREVER)
    assert task.reaches("READY")
    assert eventually(lambda: standby.NO_MEMORY in task.log, TIMEOUT_S)
    assert len(processes(task)) == 1


@pytest.mark.parametrize("record", ["[]", "3", '{"pid": 1}', "{"])
def test_a_damaged_record_does_not_end_the_training(run_task, record):
    damage = f"open('../standby.json', 'w').write({record!r})\n"
    task = run_task(IMPORT + damage + RUN_FOREVER)
    assert task.reaches("READY")
    assert eventually(lambda: "there is no standby process" in task.log, TIMEOUT_S)
    assert task.state.state == "READY"
