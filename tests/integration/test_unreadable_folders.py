"""A folder of a host that can't be read is named with the command that mends it; nothing is
concluded from what is not found in it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.projects import Project, local_hosts

from tfdeploy.hosts import agent_bundle
from tfdeploy.transport import CompletedCommand
from tfdeploy.transport.local import LocalTransport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv missing: util-linux"),
]

# Root without these capabilities may read no more than what modes allow, as any other user.
WITHOUT_OVERRIDE = """\
#!/bin/sh
exec setpriv --bounding-set=-dac_override,-dac_read_search {} "$@"
"""


@pytest.fixture
def run(local, tmp_path: Path) -> Iterator[Project]:
    """A run that has ended, on a host whose agent obeys the modes of folders."""
    hosts = local_hosts(local.base / "hosts")
    if os.getuid() == 0:
        python = tmp_path / "python"
        python.write_text(WITHOUT_OVERRIDE.format(hosts["here"]["python"]))
        python.chmod(0o755)
        hosts["here"]["python"] = str(python)
    project = local.project(hosts=hosts)
    for command in ("push", "start", "attach"):
        project.ok(command)
    return project


COMMANDS = (["status"], ["logs"], ["collect"], ["stop"], ["resume"], ["runs"], ["push"])


@pytest.mark.parametrize(("below", "mode"), [("", 0o000), ("runs", 0o600)])
def test_a_folder_without_permissions_is_named_by_all_commands(run, below, mode):
    folder = run.on("here") / below
    before = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(mode)
    try:
        done = {" ".join(words): run.tf(*words) for words in COMMANDS}
    finally:
        folder.chmod(before)
    for command, each in done.items():
        assert each.returncode == 1, command
        assert f"here: can't read {folder}: permission denied" in each.stderr, (command, each)
        assert f"chmod u+rwx {folder}" in each.stderr, command
        assert "never started" not in each.stderr + each.stdout, command
    assert {task["state"] for task in run.status().values()} == {"SUCCEEDED", "STOPPED"}


def test_the_folder_of_a_run_without_permissions_is_named(run):
    folder = run.on("here") / "runs" / run.runs[-1]
    folder.chmod(0)
    try:
        for words in (["status"], ["logs"], ["collect"], ["stop"]):
            assert f"can't read {folder}: permission denied" in run.tf(*words).stderr, words
    finally:
        folder.chmod(0o755)


def test_a_directory_without_permissions_is_named(run):
    """The host's own shell starts the agent: here as the controller's user."""
    root = run.on("here").parent
    away = root.with_name("away")
    root.rename(away)
    root.mkdir(mode=0)
    words = agent_bundle.serving(f"{root}/agent/x", sys.executable)
    limits = ["--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    code = subprocess.run(["setpriv", *limits, *words], check=False).returncode
    root.rmdir()
    away.rename(root)
    assert code == agent_bundle.UNREADABLE
    found = CompletedCommand(code, b"", b"")
    error = agent_bundle.no_answer(LocalTransport("here"), f"{root}/agent/x", "python3", found)
    assert error.message == f"can't read {root}: permission denied"
    assert error.hint == f"on this host: chmod u+rwx {root}"


def test_what_replaced_the_folder_of_runs_is_named(run):
    folder = run.on("here") / "runs"
    folder.rename(f"{folder}.away")
    folder.write_text("")
    assert f"{folder} is a file, not a folder" in run.tf("status").stderr
    folder.unlink()
    folder.symlink_to("/nowhere/runs")
    done = run.tf("status")
    assert f"{folder} is a link to /nowhere/runs, which does not exist" in done.stderr
    assert f"mv {folder} {folder}.found" in done.stderr
    folder.unlink()
    folder.symlink_to(f"{folder}.away")  # on a larger disk, for example
    run.ok("status")


# As a user who may not search the folder: root may do everything.
AS_NOBODY = """
import errno, os, sys
from pathlib import Path
from tfdeploy.folders.disk_errors import explain
os.setuid(65534)
print("; ".join(explain(OSError(errno.EACCES, "denied"), Path(sys.argv[1]))))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("owner", "hint"), [(0, "sudo chown -R 65534"), (65534, "chmod u+rwx")])
def test_a_folder_of_the_controller_is_named_with_the_command_of_its_owner(tmp_path, owner, hint):
    for each in (tmp_path, *tmp_path.parents):
        if not each.stat().st_mode & stat.S_IXOTH:  # of pytest
            each.chmod(0o755)
    os.chown(tmp_path, 65534, 65534)
    runs = tmp_path / "runs"
    runs.mkdir()
    os.chown(runs, owner, owner)
    runs.chmod(0o700 if owner == 0 else 0)
    command = [sys.executable, "-c", AS_NOBODY, str(runs / "r" / "run.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"{hint} {runs}" in done.stdout, done.stderr
