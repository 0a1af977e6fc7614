"""The command line without hosts: exit codes, messages, and what `plan` prints."""

from __future__ import annotations

import subprocess
import sys

import pytest
from unit.cli.test_cli import TOML

from tfdeploy import cli


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "hosts.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tfdeploy(monkeypatch, capsys):
    """Return a function that runs a command line and returns its exit code, standard output and
    standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tfdeploy", *arguments])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        captured = capsys.readouterr()
        return exit_.value.code or 0, captured.out, captured.err

    return run


@pytest.mark.parametrize("command", ["status", "logs", "stop", "collect", "resume"])
def test_a_project_without_runs_exits_with_2(tfdeploy, folder, home, command):
    code, _, err = tfdeploy(command)
    assert code == 2
    found = (
        "no run was started from hosts.toml yet, and its hosts have no record (here gave no answer)"
    )
    assert err.startswith(f"error: {found}\n")


def test_the_package_can_be_run_as_a_module(folder):
    process = subprocess.run(
        [sys.executable, "-m", "tfdeploy", "plan"], capture_output=True, text=True, cwd=folder
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith("TASK ")
