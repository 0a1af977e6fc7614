"""Workers that write their results after the chief has ended."""

from __future__ import annotations

import pytest
from support.ports import free_ports
from support.projects import Project

pytestmark = pytest.mark.slow
LATE = """
import os, time
chief = "../../worker-0/state.json"
if os.environ["TFDEPLOY_TASK"].endswith("worker:1"):
    open("early.csv", "w").write("early")
    while '"SUCCEEDED"' not in open(chief).read():
        time.sleep(0.05)
    {then}
    open("late.csv", "w").write("late")
"""


def project(tmp_path, then: str, **training) -> Project:
    host = {
        "transport": "local", "directory": str(tmp_path / "host"), "ports": free_ports(3),
        "workers": 2,
    }  # fmt: skip
    training = {"ready": "process", "imports": [], "stop_grace_s": 0.5, **training}
    created = Project(tmp_path / "project", {"here": host}, training=training)
    (created.folder / "train.py").write_text(LATE.format(then=then))
    created.ok("push")
    return created


def written(created: Project) -> list[str]:
    folder = created.folder / "runs" / created.runs[-1] / "outputs/worker-1"
    return sorted(path.name for path in folder.iterdir())


def test_what_a_worker_writes_after_the_chiefs_end_is_collected(tmp_path):
    created = project(tmp_path, "time.sleep(6)")  # longer than with ends_with = "chief"
    done = created.tf("run")
    assert done.returncode == 0, done.stderr
    assert written(created) == ["early.csv", "late.csv"]
    assert "was stopped" not in done.stdout + done.stderr
    assert created.processes() == {}


def test_a_worker_that_is_cut_off_is_named_with_what_it_had_saved(tmp_path):
    created = project(tmp_path, "time.sleep(3600)", ends_with="chief")
    done = created.tf("run")
    assert done.returncode == 0, done.stderr
    assert written(created) == ["early.csv"]
    assert "worker:1 was still running some time after the chief's success" in done.stdout
    assert "it had saved early.csv" in done.stdout
    assert created.processes() == {}
