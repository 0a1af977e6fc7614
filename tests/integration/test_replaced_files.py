"""What somebody put in the place of a run's own files is named, and no command waits for it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

OTHERS = {
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "a link to /dev/zero": lambda path: os.symlink("/dev/zero", path),
}


def replace(file: Path, make) -> None:
    """Put something else in the place of a file, which may not exist."""
    file.unlink(missing_ok=True)
    make(file)


@pytest.fixture
def run(local):
    """A run that has ended by itself, and its folder on its host."""
    project = local.project()
    for command in ("push", "start", "attach"):
        project.ok(command)
    return project, project.work("worker:1").parent.parent


@pytest.mark.parametrize("what", OTHERS)
def test_a_log_that_was_replaced_is_named_by_every_command(run, what):
    project, folder = run
    log = folder / "logs" / "worker-1.log"
    replace(log, OTHERS[what])
    problem = f"its log {log} is {what}, not a file"
    assert f"worker:1 on here: {problem}" in project.ok("status").replace("\n", " ")
    printed = project.ok("logs")
    assert f"… {problem}" in printed
    assert "worker:0 step 1" in printed
    collected = project.tf("collect")
    assert collected.returncode == 1
    assert f"{log} does not come: it is {what}, not a file" in collected.stderr
    assert "2 logs" in collected.stdout
    assert "ckpt-" in collected.stdout
    project.ok("stop")
    project.ok("prune", "--yes", "--keep", "0")


def test_a_log_that_was_deleted_after_the_end_is_missed(run):
    project, folder = run
    log = folder / "logs" / "worker-1.log"
    log.unlink()
    assert f"its log {log} is gone" in project.ok("status").replace("\n", " ")
    assert f"… its log {log} is gone" in project.ok("logs")
    assert f"{log} does not come: it is gone" in project.tf("collect").stderr


@pytest.mark.parametrize("what", OTHERS)
def test_no_command_waits_for_what_replaced_any_file_of_a_run(run, what):
    project, folder = run
    for file in [path for path in folder.rglob("*") if path.is_file()]:
        replace(file, OTHERS[what])
    for words in (["status"], ["logs"], ["collect"], ["runs"], ["hosts"], ["stop"]):
        project.tf(*words)
    project.tf("prune", "--yes", "--keep", "0")


@pytest.mark.parametrize("what", OTHERS)
def test_a_task_goes_on_when_its_files_are_replaced(local, what):
    project = local.started("--gate")
    folder = project.work("worker:1").parent
    log = folder.parent / "logs" / "worker-1.log"
    until(lambda: "step 1" in log.read_text(), "its first lines")
    histories = [*log.parent.glob("worker-1.*.jsonl")]
    for file in [log, folder / "saves", folder / "versions", *histories]:
        replace(file, OTHERS[what])
    until(log.is_file, "a new log")
    assert f"the log is {what}, not a file" in project.ok("logs")
    assert {task["state"] for task in project.status().values()} == {"READY"}
    project.ok("stop")
    assert {task["state"] for task in project.status().values()} == {"STOPPED"}


def test_following_continues_in_the_log_that_replaces_a_deleted_one(local):
    project = local.started("--gate")
    log = project.log_file("here", "worker:1")
    until(lambda: "step 1" in log.read_text(), "its first lines")
    with project.start_command("logs", "-f") as following:
        following.wait_for_output("worker:1 step 1")
        log.unlink()
        following.wait_for_output("the log was deleted; a new one starts here")
    shutil.rmtree(log.parent)
    project.ok("stop")
