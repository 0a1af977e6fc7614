"""A disk quota that is used up at any write, on the controller and on a host: one sentence names
it and the file, and the next command finds nothing half-done."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.projects import Project, environment, local_hosts
from support.quota import Quota

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path):
    created = Project(tmp_path / "project", local_hosts(tmp_path / "hosts"), flags=["--hold"])
    created.ok("push")
    yield created
    created.end()


def run_with(project, variables, *words):
    return subprocess.run(
        [sys.executable, "-m", "tfdeploy", *words], capture_output=True, text=True,
        cwd=project.folder, env={**environment(project.folder), **variables},
    )  # fmt: skip


def failing_starts(project, quota, lefts):
    """Start with ever more of the quota left; yield the message of each start that fails."""
    for left in lefts:
        done = run_with(project, quota.variables(left), "start")
        if done.returncode == 0:
            return
        assert project.processes() == {}, left
        assert not list(project.folder.glob("runs/*/run.json")), left
        yield done.stderr


def test_a_start_with_a_quota_on_the_controller_names_it_and_leaves_no_run(project, tmp_path):
    quota = Quota(tmp_path, project.folder / "runs")
    messages = [*failing_starts(project, quota, range(0, 99, 2))]
    for message in messages:
        assert message.startswith(f"error: can't write {project.folder}/runs"), message
        assert ": your disk quota on " in message and message.count("\n") == 2, message
    assert len(messages) > 3
    assert {task["state"] for task in project.status().values()} == {"READY"}


def test_a_start_with_a_quota_on_its_host_names_it_and_leaves_no_run(project, tmp_path):
    quota = Quota(tmp_path, project.on("here"))
    words = f"error: here: can't write {project.on('here')}"
    for message in failing_starts(project, quota, range(7, 20, 4)):
        assert message.startswith(words) and ": Disk quota exceeded\n" in message, message
        assert "tfdeploy prune frees space" in message
    project.ok("start")


def test_a_collect_with_a_quota_is_completed_by_the_next_one(project, tmp_path):
    project.ok("start")
    project.ok("stop")
    quota = Quota(tmp_path, project.folder / "runs")
    for left in (0, 9):
        done = run_with(project, quota.variables(left), "collect")
        assert done.returncode in (1, 2)
        assert ": your disk quota on " in done.stderr and "Traceback" not in done.stderr
    project.ok("collect")
    on_host = project.work("worker:0") / "checkpoints"
    files = {path.name: path.read_bytes() for path in project.run_folder.glob("checkpoints/*.*")}
    assert files and files == {name: (on_host / name).read_bytes() for name in files}
