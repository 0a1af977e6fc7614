"""A controller on macOS, as far as Linux can show it: without /proc and what only Linux has.

The hosts are Linux. sys.platform stays "linux", because Python's own library relies on it.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import until

from tfdeploy.transport import rsync

pytestmark = pytest.mark.slow
WITHOUT_LINUX = Path(__file__).parent / "macos"
OPENRSYNC = "openrsync: protocol version 29\nrsync version 2.6.9 compatible\n"
LARGE = 9 << 20  # from 8 MiB on a file is sent by rsync


@pytest.fixture
def macos(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(WITHOUT_LINUX))


@pytest.fixture
def openrsync(monkeypatch, tmp_path):
    """Put a program before rsync that answers as that of macOS 15 does."""
    program = tmp_path / "rsync"
    program.write_text(
        f"#!/bin/sh\ncase $* in --version) printf '{OPENRSYNC}';; "
        "*) echo 'openrsync: unrecognized option -- s' >&2; exit 1;; esac\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_the_simulation_takes_away_what_macos_lacks(macos):
    code = "import socket, resource, pathlib; pathlib.Path('/proc/self/stat').read_text()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "macOS has no such file" in done.stderr
    code = "import socket, resource; print(hasattr(socket, 'SO_PEERCRED'), dir(resource))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("False")
    assert "prlimit" not in done.stdout


def test_every_command_works_from_a_controller_without_linux(by_ssh, macos):
    project = by_ssh.project("--steps=3", "--hold")
    (project.folder / "large.bin").write_bytes(os.urandom(LARGE))
    assert json.loads(project.tf("check", "--json").stdout)["hosts"]
    project.ok("push")
    project.ok("start")
    until(lambda: "step 3" in project.ok("logs", "-n1", "worker:0"), "step 3")
    assert "READY" in project.ok("status")
    copied = project.work("worker:0") / "written.bin"
    copied.write_bytes(os.urandom(LARGE))
    project.ok("collect")
    assert (project.run_folder / "outputs" / "written.bin").read_bytes() == copied.read_bytes()
    assert "model.ckpt-3.index" in os.listdir(project.run_folder / "checkpoints")
    project.ok("stop")
    project.ok("resume")
    project.ok("stop")
    assert project.processes() == {}
    project.ok("runs")
    project.ok("prune", "--keep=0", "--yes")


def test_check_says_that_the_rsync_of_macos_is_not_enough(by_ssh, openrsync):
    notes = json.loads(by_ssh.project().tf("check", "--json").stdout)["notes"]
    [note] = [note for note in notes if "controller's rsync" in note["message"]]
    assert note["message"] == (
        "the controller's rsync is like rsync 2.6.9; expected 3.1 or newer, for files from 8 MiB on"
    )


def test_a_large_file_says_that_the_rsync_of_macos_is_not_enough(by_ssh, openrsync, monkeypatch):
    project = by_ssh.project()
    (project.folder / "large.bin").write_bytes(os.urandom(LARGE))
    done = project.tf("push")
    assert done.returncode == 1
    assert "the controller's rsync is like rsync 2.6.9; expected 3.1 or newer" in done.stderr
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "brew install rsync" in rsync.find_problem()[1]


def test_a_host_that_runs_macos_is_refused_in_one_sentence(by_ssh, tmp_path):
    project = by_ssh.project()
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\ncase " $* " in *" serve "*) ;; *) exec python3 "$@";; esac\n'
        'exec python3 -S -E -c \'import runpy, sys; sys.platform = "darwin"; '
        "sys.argv = sys.argv[1:]; sys.path.insert(0, sys.argv[0]); "
        'runpy.run_path(sys.argv[0], run_name="__main__")\' "$3" serve\n'
    )
    python.chmod(0o755)
    project.hosts["two"]["python"] = str(python)
    project.write()
    done = project.tf("push")
    assert "two: hosts must run Linux; this one runs macOS\n" in done.stderr
