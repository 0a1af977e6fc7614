"""What logging out ends: logind's files in trees made here, read as systemd 252 was seen to."""

from __future__ import annotations

import os

import pytest

from tfdeploy.agent import logout

IN_SESSION = "1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n"
KILL = "[Login]\nKillUserProcesses=yes\n"
KEEP = "[Login]\nKillUserProcesses=no\n"
MAIN = "etc/systemd/logind.conf"


@pytest.fixture
def machine(tmp_path):
    """Write the files of a machine that runs systemd, with ada in a session; its root."""

    def made(files=(), cgroup=IN_SESSION):
        (tmp_path / "run/systemd/system").mkdir(parents=True)
        for path, text in {"proc/self/cgroup": cgroup, **dict(files)}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return os.fspath(tmp_path)

    return made


def killing(text, user="ada"):
    """What a main file says of a user."""
    assignments = logout._assignments(text)
    return logout.killing(logout.collected([*assignments]), user)


# Refused


def test_a_machine_that_kills_is_refused_with_the_remedy(machine):
    no = logout.refusal(machine({MAIN: KILL}), "ada")
    assert no.message == (
        "this host ends all processes of ada at logout (logind has KillUserProcesses=yes)"
    )
    assert no.hint == "type there, as ada: loginctl enable-linger"


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/user.slice/user-1000.slice/session-3.scope\n",
        "9:pids:/user.slice\n" + IN_SESSION + "0::/\n",
        "0::/user.slice/user-1000.slice/session-c2.scope/more\n",
    ],
)
def test_a_session_is_known_by_its_scope(machine, cgroup):
    assert logout.refusal(machine({MAIN: KILL}, cgroup), "ada")


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
def test_what_is_in_no_session_outlives_all(machine, cgroup):
    root = machine({MAIN: KILL}, cgroup)
    assert logout.refusal(root, "ada") is None
    assert logout.outliving(root, "ada") == []


def test_a_machine_that_says_nothing_kills_nothing(machine):
    root = machine()
    assert logout.refusal(root, "ada") is None
    assert logout.outliving(root, "ada") == []


def test_a_machine_without_systemd_kills_nothing(machine, tmp_path):
    root = machine({MAIN: KILL})
    (tmp_path / "run/systemd/system").rmdir()
    assert logout.refusal(root, "ada") is None


def test_this_machine_is_asked_for_ourselves():
    assert logout.refusal() is None or logout.outliving()


# Lingering


def test_who_lingers_is_welcome_if_it_starts_outside_of_its_session(machine):
    root = machine({MAIN: KILL, "var/lib/systemd/linger/ada": ""})
    assert logout.refusal(root, "ada") is None
    assert logout.outliving(root, "ada") == [
        "systemd-run", "--user", "--scope", "--quiet", "--",
    ]  # fmt: skip


def test_that_another_user_lingers_is_no_help(machine):
    assert logout.refusal(machine({MAIN: KILL, "var/lib/systemd/linger/bob": ""}), "ada")


def test_a_user_of_a_domain_lingers_under_an_escaped_name(machine):
    root = machine({MAIN: KILL, "var/lib/systemd/linger/DOM\\\\ada": ""})
    assert logout.refusal(root, "DOM\\ada") is None


# Whom it kills


@pytest.mark.parametrize(
    ("text", "user", "setting"),
    [
        (KILL, "ada", "KillUserProcesses=yes"),
        (KILL, "root", None),
        (KEEP, "ada", None),
        (KILL + "KillExcludeUsers=bob ada", "ada", None),
        (KILL + "KillExcludeUsers=bob", "ada", "KillUserProcesses=yes"),
        (KILL + "KillExcludeUsers=bob", "root", "KillUserProcesses=yes"),
        (KILL + "KillExcludeUsers=", "root", None),
        (KILL + "KillOnlyUsers=bob", "ada", None),
        (KEEP + "KillOnlyUsers=bob ada", "ada", "KillOnlyUsers=ada"),
        (KEEP + "KillOnlyUsers=ada\nKillExcludeUsers=ada", "ada", None),
        (KILL + "KillOnlyUsers=bob\nKillOnlyUsers=", "ada", "KillUserProcesses=yes"),
    ],
)
def test_the_lists_of_users_override_the_switch(text, user, setting):
    assert killing(text, user) == setting


# What stands in a file


@pytest.mark.parametrize("word", ["yes", "1", "true", "on", "y", "t", "YES", "On"])
def test_every_word_for_yes_is_known(word):
    assert killing(f"[Login]\n  KillUserProcesses = {word} \n")


@pytest.mark.parametrize("word", ["no", "0", "false", "off", "n", "f", "NO"])
def test_every_word_for_no_is_known(word):
    assert not killing(KILL + f"KillUserProcesses={word}")


@pytest.mark.parametrize("line", ["KillUserProcesses=", "KillUserProcesses=maybe", "odd", "=", ""])
def test_a_line_that_says_nothing_changes_nothing(line):
    assert killing(KILL + line)


@pytest.mark.parametrize(
    "text",
    [
        "KillUserProcesses=yes",
        "[Other]\nKillUserProcesses=yes",
        "[Login]\n[Other]\nKillUserProcesses=yes",
        "[Login]\n#KillUserProcesses=yes",
        "[Login]\n ; KillUserProcesses=yes",
        "[Login]\nKillUserProcesses=yes # always",
        "[Login]\nkilluserprocesses=yes",
        "[Login]\nX=1 \\\nKillUserProcesses=yes",
    ],
)
def test_what_only_resembles_the_setting_is_none(text):
    assert killing(text) is None


def test_a_line_that_goes_on_ends_where_it_does():
    assert killing("[Login]\nX=1 \\\n2\nKillUserProcesses=yes")


@pytest.mark.parametrize("mark", "#;")
def test_a_comment_does_not_go_on(mark):
    assert killing(f"[Login]\n{mark} odd \\\nKillUserProcesses=yes")


def test_a_comment_does_not_end_a_line_that_goes_on():
    lines = ["[Login]", "KillOnlyUsers=bob \\", "# and", " \\", "ada"]
    assert killing("\n".join(lines)) == "KillOnlyUsers=ada"


def test_names_may_be_quoted():
    assert killing("[Login]\nKillOnlyUsers='bob' \"ada\"") == "KillOnlyUsers=ada"


# Which file counts


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({"usr/lib/systemd/logind.conf": KILL}, True),
        ({"usr/lib/systemd/logind.conf": KILL, MAIN: ""}, False),
        ({"run/systemd/logind.conf": KEEP, MAIN: KILL}, True),
        ({MAIN: KEEP, "usr/lib/systemd/logind.conf.d/1.conf": KILL}, True),
        ({MAIN: KILL, "usr/local/lib/systemd/logind.conf.d/1.conf": KEEP}, False),
        ({MAIN: KILL, "lib/systemd/logind.conf.d/1.conf": KEEP}, False),
        ({f"{MAIN}.d/10.conf": KILL, f"{MAIN}.d/9.conf": KEEP}, False),
        ({f"{MAIN}.d/10.conf": KEEP, "run/systemd/logind.conf.d/20.conf": KILL}, True),
        ({f"{MAIN}.d/10.conf": KEEP, "run/systemd/logind.conf.d/10.conf": KILL}, False),
        ({"run/systemd/logind.conf.d/1.conf": "", "usr/lib/systemd/logind.conf.d/1.conf": KILL},
         False),
        ({f"{MAIN}.d/10.conf.bak": KILL, f"{MAIN}.d/README": KILL}, False),
    ],
)  # fmt: skip
def test_files_are_read_by_systemds_precedence(machine, files, kills):
    assert bool(logout.outliving(machine(files), "ada")) == kills


def test_lists_are_collected_over_the_files(machine):
    root = machine({
        MAIN: "[Login]\nKillOnlyUsers=ada",
        f"{MAIN}.d/1.conf": "[Login]\nKillOnlyUsers=bob",
    })  # fmt: skip
    assert logout.settings(root) == {"KillOnlyUsers": ["ada", "bob"]}


def test_a_drop_in_that_is_masked_counts_no_more(machine, tmp_path):
    root = machine({"usr/lib/systemd/logind.conf.d/1.conf": KILL})
    (tmp_path / f"{MAIN}.d").mkdir(parents=True)
    (tmp_path / f"{MAIN}.d/1.conf").symlink_to("/dev/null")
    assert logout.refusal(root, "ada") is None
