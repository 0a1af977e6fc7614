"""Start files of login shells that keep tfdeploy's commands from running: `check` names the line to
change within seconds, and no command waits without a word."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.command_line import error_of
from support.ports import ADDRESS, free_ports
from support.projects import Project, without_tensorflow
from support.sshd import PrivateEtcSshd, write_ssh_config
from support.waiting import until

from tfdeploy.hosts import login_shell
from tfdeploy.transport.daemon import locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

FILES = {"bash": ".bashrc", "zsh": ".zshenv", "tcsh": ".cshrc", "fish": ".config/fish/config.fish"}
READS = {
    "bash": "read line",
    "zsh": "read line",
    "tcsh": "set line = $<",
    "fish": "read line",
}
OTHER_SHELL = "a start file of its login shell replaces it by another shell"
READS_INPUT = "a start file of its login shell reads the input of tfdeploy's commands"
ENDLESS = "its login shell runs no command: it prints without end: y; y"


@pytest.fixture
def host(tmp_path: Path, keys: Any) -> Iterator[Callable[[str, str], Project]]:
    """Return a function that makes a project on a host whose user has this login shell, with this
    text in its start file."""
    sshds = []

    def make(shell: str, text: str) -> Project:
        path = shutil.which(shell)
        if not path:
            pytest.skip(f"{shell} missing: apt-get install {shell}")
        home, etc = tmp_path / "home", tmp_path / "home" / "etc"
        file = home / FILES[shell]
        etc.mkdir(parents=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        (etc / "passwd").write_text(_with_shell(path))
        sshds.append(PrivateEtcSshd(home, keys))
        known_hosts, config = tmp_path / "known_hosts", tmp_path / "ssh_config"
        known_hosts.write_text(sshds[0].known_hosts_line)
        write_ssh_config(config, keys, known_hosts, {"one": sshds[0].entry()})
        settings = {"address": ADDRESS, "directory": str(tmp_path / "one"), "workers": 1}
        python = without_tensorflow(tmp_path / "python")
        hosts = {"one": {**settings, "python": python, "ports": free_ports(2)}}
        return Project(tmp_path / "project", hosts, {"ssh_config": str(config)})

    yield make
    locate.stop_daemons()
    for sshd in sshds:
        sshd.stop()


def _with_shell(path: str) -> str:
    """Return /etc/passwd with another login shell of root."""
    root, *others = Path("/etc/passwd").read_text().splitlines()
    return "\n".join([root.rpartition(":")[0] + f":{path}", *others, ""])


@pytest.mark.parametrize(
    ("shell", "other"), [*((shell, "sh") for shell in FILES), ("bash", "zsh"), ("bash", "fish")]
)
def test_a_start_file_that_runs_another_shell_is_named_with_its_guard(host, shell, other):
    error = error_of(host(shell, f"exec {other}").tf("check"))
    assert f"one: {OTHER_SHELL}" in error
    assert error.rstrip().endswith(login_shell.GUARDS[shell])


@pytest.mark.parametrize("shell", FILES)
def test_a_start_file_that_reads_the_input_is_named_with_its_guard(host, shell):
    error = error_of(host(shell, READS[shell]).tf("check"))
    assert f"one: {READS_INPUT}" in error
    assert error.rstrip().endswith(login_shell.GUARDS[shell])


@pytest.mark.parametrize(
    ("shell", "text"), [*((each, "yes") for each in FILES), ("bash", "exec yes")]
)
def test_a_start_file_that_prints_without_end_is_refused(host, shell, text):
    error = error_of(host(shell, text).tf("check"))
    assert f"one: {ENDLESS}" in error
    assert all(guard in error for guard in login_shell.GUARDS.values())


GUARDED = {
    "bash": "case $- in *i*) ;; *) return;; esac\nexec zsh",
    "tcsh": "if (! $?prompt) exit\nexec zsh",
    "fish": "if status is-interactive\nexec zsh\nend",
}


@pytest.mark.parametrize("shell", GUARDED)
def test_a_start_file_with_its_guard_is_no_problem(host, shell):
    done = host(shell, GUARDED[shell]).tf("check")
    assert "login shell" not in done.stderr


@pytest.mark.parametrize(
    ("command", "shell"), [("check", "fish"), ("push", "tcsh"), ("runs", "zsh")]
)
def test_what_is_waited_for_is_said_while_a_start_file_sleeps(host, shell, command):
    project = host(shell, "sleep 60")
    with project.start_command(command) as running:
        until(lambda: login_shell.SLOW in running.output, "what it waits for")
        assert "error" not in running.output


def test_a_shell_that_never_starts_a_command_is_named_in_the_end(host):
    error = error_of(host("bash", "echo modules; sleep 120").tf("check"))
    assert "one: its login shell has not started tfdeploy's command within 60 s, though" in error
    assert "a start file goes on printing: modules" in error


def test_a_shell_that_is_slow_is_waited_for(host):
    done = host("bash", "sleep 12").tf("push")
    assert login_shell.SLOW in done.stderr
    assert done.returncode == 0, done.stderr
