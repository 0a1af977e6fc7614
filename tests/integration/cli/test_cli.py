"""The command line without hosts: exit codes, messages, and what `plan` prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.builders import hosts_toml
from support.command_line import REAL
from support.trusting import trust

from tfdeploy import cli

REPOSITORY = Path(__file__).parents[3]
HOST = '[hosts.here]\ntransport = "local"\npython = "python3.99"\nworkers = 1'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "hosts.toml").write_text(hosts_toml(HOST))
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
    trust()
    code, _, err = tfdeploy(command)
    assert code == 2
    found = (
        "no run was started from hosts.toml yet, and its hosts have no record (here gave no answer)"
    )
    assert err.startswith(f"error: {found}\n")


def test_the_package_can_be_run_as_a_module(folder):
    process = subprocess.run([*REAL, "plan"], capture_output=True, text=True, cwd=folder)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith("TASK ")


LOCALES = {
    "C": {"LC_ALL": "C"},
    # As a locale with another encoding, which few machines have.
    "ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("locale", LOCALES)
def test_names_are_readable_in_a_locale_without_utf8(folder, locale):
    project = folder / "projé漢"
    project.mkdir()
    for name in ("hosts.toml", "train.py"):
        (folder / name).rename(project / name)
    env = {**os.environ, **LOCALES[locale]}

    def run(*words):
        done = subprocess.run([*REAL, *words], capture_output=True, cwd=project, env=env)
        return done.returncode, (done.stdout + done.stderr).decode()

    assert run("plan")[0] == 0
    shown = "é" if locale == "C" else r"\xe9"
    code, text = run("plan", "--hosts", b"b\xff\xc3\xa9.toml")
    assert (code, text.splitlines()[0]) == (
        2,
        rf"error: b\xff{shown}.toml: there is no such file",
    )
    code, text = run(b"b\xff")
    assert code == 2
    assert r"No such command 'b\xff'" in text


INTERRUPTED_IMPORT = """
import signal, sys
from tfdeploy.cli import _handle_as_ctrl_c
_handle_as_ctrl_c(signal.SIGINT)
try:
    exec("import signal; signal.raise_signal(signal.SIGINT)")  # as @dataclass does in a module
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_during_an_import_ends_a_command_with_130(tmp_path):
    """Python would end itself by SIGINT, although the command has handled Ctrl-C."""
    (tmp_path / "command.py").write_text(INTERRUPTED_IMPORT)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    argv = [sys.executable, "-m", "command"]
    assert subprocess.run(argv, env=environment, cwd=tmp_path).returncode == 130
