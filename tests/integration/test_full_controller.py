"""A full disk of the controller, or a folder that it may not use: each command names the file
system or the folder, and what mends it; nothing half-written is taken for whole later."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.projects import Project, environment, local_hosts
from support.small_disk import fill, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

WITHOUT_OVERRIDE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.fixture
def project(local, tmp_path: Path) -> Iterator[Project]:
    """A project on a small disk, which is pushed."""
    with small_disk(tmp_path / "disk", 512) as disk:
        hosts = local_hosts(local.base / "hosts")
        created = Project(disk / "project", hosts, {"source": {"exclude": ["/*.toml"]}})
        created.ok("push")
        yield created
        created.end()


def full(project: Project) -> str:
    return f"the file system {project.folder.parent} has 0 B free of 524.3 kB"


def test_a_start_without_space_for_its_record_starts_nothing(project):
    fill(project.folder.parent / "filler")
    for command in ("start", "run"):
        done = project.tf(command)
        assert done.returncode != 0
        assert f"can't write {project.folder}/runs" in done.stderr
        assert full(project) in done.stderr
        assert f"du -xh {project.folder.parent}" in done.stderr
    assert project.processes() == {}
    (project.folder.parent / "filler").unlink()
    assert "no run was started" in project.tf("status").stderr
    project.ok("start")


def test_a_collect_without_space_is_completed_by_the_next_one(project):
    project.ok("start")
    project.ok("attach", "--quiet")
    shutil.rmtree(project.run_folder / "checkpoints")
    shutil.rmtree(project.run_folder / "logs")
    fill(project.folder.parent / "filler")
    done = project.tf("collect")
    assert done.returncode == 1
    assert "error: here: 61 B of its files do not fit on the controller: " in done.stderr
    assert full(project) in done.stderr
    assert full(project) in project.tf("report").stderr
    project.ok("status")
    project.ok("logs")
    (project.folder.parent / "filler").unlink()
    collected = project.ok("collect")
    assert "model.ckpt-3" in collected and "3 logs" in collected
    files = {path.name: path.read_bytes() for path in project.run_folder.glob("checkpoints/*.*")}
    on_host = project.work("worker:0") / "checkpoints"
    assert {name: (on_host / name).read_bytes() for name in files} == files


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv missing: util-linux")
@pytest.mark.parametrize("which", ["runs", "the newest run"])
def test_a_folder_of_the_controller_without_permissions_is_named(local, which):
    project = local.started()
    folder = project.folder / "runs" if which == "runs" else project.run_folder
    limited = WITHOUT_OVERRIDE if os.getuid() == 0 else []
    folder.chmod(0)
    try:
        for command in ("status", "collect", "stop", "runs"):
            done = subprocess.run(
                [*limited, sys.executable, "-m", "tfdeploy", command],
                cwd=project.folder, env=environment(project.folder), capture_output=True, text=True,
            )  # fmt: skip
            error = f"error: {folder} can't be used: permission denied\n  chmod u+rwx {folder}"
            assert error in done.stderr, command
    finally:
        folder.chmod(0o700)
