"""A program that writes nothing leaves nothing behind: what tfdeploy itself writes on a host is
never a result, a file that is not fetched, or a reason to keep a run."""

from __future__ import annotations

import json

import pytest
from support.ports import free_ports

from tfdeploy.agent import paths

pytestmark = pytest.mark.slow

# Each replaces a framework: after its import, the task's process reports its version in a file.
FRAMEWORK = '__version__ = "1.0"\n'
# It meets no other task, and ends when all of them run.
SCRIPT = "import {}, time; time.sleep(1)"
ROLES = {
    "flags": ("tensorflow", {"ps": 1, "workers": 2}),
    "tf_config": ("tensorflow", {"ps": 1, "workers": 1, "chief": True, "evaluator": True}),
    "torch": ("torch", {"workers": 2}),
    "jax": ("jax", {"workers": 2}),
    "positional": ("tensorflow", {"workers": 1}),
}


@pytest.mark.parametrize("role", ROLES)
def test_a_program_that_writes_nothing_has_no_results_anywhere(local, tmp_path, role):
    framework, tasks = ROLES[role]
    (tmp_path / f"{framework}.py").write_text(FRAMEWORK)
    here = next(iter(local.hosts().values()))
    host = {
        **{key: here[key] for key in ("transport", "python")},
        **tasks, "directory": str(tmp_path / "host"), "ports": free_ports(6),
    }  # fmt: skip
    training = {
        "command": ["python", "-c", SCRIPT.format(framework)],
        "role": role,
        "ready": "process",
        "env": {"PYTHONPATH": str(tmp_path)},
        "evaluator_grace_s": 0,
    }
    project = local.project(hosts={"here": host}, training=training)

    shown = project.tf("run")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "not fetched" not in shown.stdout + shown.stderr
    run_dir = project.on("here") / "runs" / project.runs[-1]
    assert any(run_dir.glob("*/versions")) == (sum(map(int, tasks.values())) > 1)
    _every_file_is_declared(run_dir)

    (listed,) = json.loads(project.ok("runs", "--json"))["runs"]
    assert (listed["results"], listed["results_collected"], listed["elsewhere"]) == (0, 0, [])
    assert project.tf("prune", "--keep", "0").returncode == 0
    assert not run_dir.exists()


def _every_file_is_declared(run_dir):
    """Require that agent/paths.py knows all that tfdeploy has stored of the run."""
    files = [path for path in run_dir.rglob("*") if not path.is_dir() or path.is_symlink()]
    unknown = [str(path) for path in files if "work" not in path.relative_to(run_dir).parts
               and not paths.is_own(str(run_dir), str(path))]  # fmt: skip
    assert len(files) > 3
    assert unknown == []
