"""What logind kills at logout, on machines made of files and a busctl that answers as logind."""

from __future__ import annotations

import os

import pytest

from tfdeploy.agent.machine import logind

IN_SESSION = "1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n"
KILL = ("b true", "as 0", "as 0")
KEEP = ("b false", "as 0", "as 0")
# Prints its answer only to the exact question.
BUSCTL = """#!/bin/sh
[ "$*" = "--system get-property org.freedesktop.login1 /org/freedesktop/login1 \
org.freedesktop.login1.Manager KillUserProcesses KillOnlyUsers KillExcludeUsers" ] || exit 1
cat {answer}
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Create a machine that runs systemd, with ada in a session, and return its root."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def create(answer=KEEP, cgroup=IN_SESSION, lingering=()):
        root = tmp_path / "root"
        for folder in ("run/systemd/system", "proc/self", "var/lib/systemd/linger"):
            (root / folder).mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(cgroup)
        for file_name in lingering:
            (root / "var/lib/systemd/linger" / file_name).touch()
        (tmp_path / "answer").write_text("".join(f"{line}\n" for line in answer))
        (programs / "busctl").write_text(BUSCTL.format(answer=tmp_path / "answer"))
        (programs / "busctl").chmod(0o755)
        return os.fspath(root)

    return create


def test_a_session_that_logind_kills_is_refused_with_the_remedy(machine):
    refusal = logind.logout_refusal(machine(KILL), "ada")
    assert refusal.message == (
        "this host kills all processes of ada at logout (logind has KillUserProcesses=yes)"
    )
    assert refusal.hint == "run on the host, as ada: loginctl enable-linger"


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/user.slice/user-1000.slice/session-3.scope\n",
        "9:pids:/user.slice\n" + IN_SESSION + "0::/\n",
        "0::/user.slice/user-1000.slice/session-c2.scope/more\n",
    ],
)
def test_a_session_is_recognized_by_its_scope(machine, cgroup):
    assert logind.logout_refusal(machine(KILL, cgroup), "ada")


@pytest.mark.parametrize(
    "cgroup",
    [
        "",
        "0::/\n",
        "0::/system.slice/ssh.service\n",
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope\n",
        "0::/session-3.scopes\n",
        "0::/my-session-3.scope\n",
    ],
)
def test_a_process_outside_of_a_session_is_not_killed(machine, cgroup):
    root = machine(KILL, cgroup)
    assert logind.logout_refusal(root, "ada") is None
    assert logind.scope_command(root, "ada") == []


def test_a_machine_that_keeps_processes_needs_no_scope(machine):
    root = machine(KEEP)
    assert logind.logout_refusal(root, "ada") is None
    assert logind.scope_command(root, "ada") == []


def test_a_machine_without_systemd_kills_nothing(machine, tmp_path):
    root = machine(KILL)
    (tmp_path / "root/run/systemd/system").rmdir()
    assert logind.logout_refusal(root, "ada") is None


def test_the_session_of_this_test_is_refused_or_gets_a_scope_or_needs_none():
    assert logind.logout_refusal() is None or logind.scope_command()


# If logind does not answer


@pytest.mark.parametrize("answer", [(), ("b true",), ("b true", "as 0")])
def test_an_incomplete_answer_counts_as_unknown(machine, answer):
    root = machine(answer)
    assert logind.logout_refusal(root, "ada") is None
    assert logind.scope_command(root, "ada") == []


def test_a_machine_without_busctl_counts_as_unknown(machine, tmp_path, monkeypatch):
    root = machine(KILL)
    (tmp_path / "bin/busctl").unlink()
    monkeypatch.setenv("PATH", os.fspath(tmp_path / "bin"))
    assert logind.logout_refusal(root, "ada") is None


def test_a_busctl_that_hangs_counts_as_unknown(machine, tmp_path, monkeypatch):
    root = machine(KILL)
    monkeypatch.setattr(logind, "BUSCTL_TIMEOUT_S", 0.2)
    (tmp_path / "bin/busctl").write_text("#!/bin/sh\nexec sleep 60\n")
    assert logind.logout_refusal(root, "ada") is None


# Lingering


def test_a_user_that_lingers_starts_commands_in_a_scope_of_its_own(machine):
    root = machine(KILL, lingering=["ada"])
    assert logind.logout_refusal(root, "ada") is None
    assert logind.scope_command(root, "ada") == [
        "systemd-run", "--user", "--scope", "--quiet", "--",
    ]  # fmt: skip


def test_lingering_of_another_user_does_not_help(machine):
    assert logind.logout_refusal(machine(KILL, lingering=["bob"]), "ada")


def test_a_domain_user_lingers_under_an_escaped_name(machine):
    root = machine(KILL, lingering=["DOM\\\\ada"])
    assert logind.logout_refusal(root, "DOM\\ada") is None


# The lists of users


@pytest.mark.parametrize(
    ("kills", "only", "excluded", "user", "setting"),
    [
        (True, [], [], "ada", "KillUserProcesses=yes"),
        (True, [], [], "root", None),
        (False, [], [], "ada", None),
        (True, [], ["bob", "ada"], "ada", None),
        (True, [], ["bob"], "ada", "KillUserProcesses=yes"),
        (True, [], ["bob"], "root", "KillUserProcesses=yes"),
        (True, ["bob"], [], "ada", None),
        (False, ["bob", "ada"], [], "ada", "KillOnlyUsers=ada"),
        (False, ["ada"], ["ada"], "ada", None),
    ],
)
def test_the_lists_of_users_override_the_switch(kills, only, excluded, user, setting):
    assert logind.kill_setting(user, kills, only, excluded) == setting


@pytest.mark.parametrize(
    ("answer", "user", "is_killed"),
    [
        (("b false", 'as 2 "bob" "ada"', "as 0"), "ada", True),
        (("b false", 'as 2 "bob" "ada"', "as 0"), "eve", False),
        (("b true", "as 0", 'as 1 "ada"'), "ada", False),
        (("b true", "as 0", 'as 1 "DOM\\\\ada"'), "DOM\\ada", False),
        (("b true", "as 0", 'as 1 "adam"'), "ada", True),
    ],
)
def test_lists_are_read_as_busctl_prints_them(machine, answer, user, is_killed):
    assert bool(logind.scope_command(machine(answer), user)) == is_killed
