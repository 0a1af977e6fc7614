"""A host whose disk becomes read-only, in a mount namespace of its own, is shown and stopped."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from support.projects import environment

SCRIPT = """
set -e
tfdeploy start
touch $(tfdeploy exec worker:0 -- pwd | tail -1)/result.csv
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
! touch "$1/file" 2>/dev/null
tfdeploy status
tfdeploy prune --keep 0 --yes
ls "$1"/*/runs
tfdeploy stop
tfdeploy status
tfdeploy runs
! tfdeploy collect
! tfdeploy start
"""


@pytest.mark.slow
@pytest.mark.parametrize("lasting", ["local"], indirect=True)
def test_a_host_whose_disk_becomes_read_only_is_shown_and_stopped(world):
    project = world.project("--hold")  # its name, and so its runs, are of no other test
    project.ok("push")
    script = SCRIPT.replace("tfdeploy ", f"{sys.executable} -m tfdeploy ")
    (host,) = project.hosts.values()
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", host["directory"]],
        cwd=project.folder, env=environment(project.folder), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"\n{task} " in done.stdout for task in ("ps:0", "worker:0", "worker:1"))
    assert "LOST" not in done.stdout
    assert done.stdout.count("read-only, so how it ended could not be stored") == 3
    assert re.search(rf"{project.runs[-1]} +stopped ", done.stdout)
    assert re.search(
        r"here: can't write \S+: Read-only file system\n +repair or remount", done.stderr
    )
    run = project.runs[-1]
    assert f"\n{run}\n" in done.stdout, "prune keeps the run, which is live"
    assert f"all processes of run {run} have exited" in done.stdout
    assert "tfdeploy fetch" not in done.stdout, "it could not hold the files either"
    assert "scp" in done.stderr
