"""The log of what tfdeploy does: its file, what is hidden in it, and what names it."""

from __future__ import annotations

import json
import logging
import stat
import sys

import pytest

from tfdeploy import cli
from tfdeploy.cli import debug_log
from tfdeploy.cli.command import verbose_after_name
from tfdeploy.cli.debug_log import MAX_BYTES, LogFile, hide, shown
from tfdeploy.errors import FleetError, OutdatedRecord, TaskFailed


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.toml").write_text(
        'project = "p"\n[training]\ncommand = "python train.py"\n[hosts.here]\nworkers = 1\n'
    )
    return tmp_path / "state" / "tfdeploy"


@pytest.fixture
def tfdeploy(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tfdeploy", *arguments])
        monkeypatch.setattr(debug_log, "last_path", None)  # as in a process of its own
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        return exit_.value.code or 0, *capsys.readouterr()

    return run


@pytest.mark.parametrize("words", [("-v", "example"), ("example", "-v"), ("example", "--verbose")])
def test_verbose_is_accepted_before_and_after_the_name_of_a_command(tfdeploy, state, words):
    code, out, err = tfdeploy(*words)
    assert (code, out) == (0, tfdeploy("example")[1])
    assert "tfdeploy example -v" in err.replace("--verbose", "-v")
    assert "the command took" in err


def test_a_command_logs_into_its_file_without_verbose_too(tfdeploy, state):
    assert tfdeploy("example")[2] == ""
    file = state / "example.log"
    assert "tfdeploy example" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    tfdeploy("example", "-v")
    assert file.read_text().count("the command took") == 1  # of the newest command alone
    assert logging.getLogger("tfdeploy").level == logging.NOTSET


def test_a_second_attempt_with_a_newer_record_adds_to_the_log_of_the_first(
    tfdeploy, state, monkeypatch
):
    def meet_a_newer_record(*_):
        raise OutdatedRecord("a", "run r was resumed", "", "r", 2, state / "hosts.toml")

    monkeypatch.setattr("tfdeploy.cli.training.load_to_plan", meet_a_newer_record)
    monkeypatch.setattr(cli, "take_newer_record", lambda _: None)
    assert tfdeploy("plan")[0] == 1
    assert (state / "plan.log").read_text().count(
        "OutdatedRecord: a: run r was resumed"
    ) == 1 + cli.MAX_CLAIMS


@pytest.mark.parametrize("words", [("--help",), ("plan", "--help"), ("completion", "bash")])
def test_help_and_completion_write_no_log(tfdeploy, state, words):
    assert tfdeploy(*words)[0] == 0
    assert not state.exists()


def test_a_log_that_cannot_be_written_stops_no_command(tfdeploy, state, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    assert tfdeploy("example")[::2] == (0, "")


def test_an_unknown_level_is_refused(tfdeploy, state, monkeypatch):
    monkeypatch.setenv("TFDEPLOY_LOG", "loud")
    code, _, err = tfdeploy("example")
    assert code == 2
    assert 'TFDEPLOY_LOG: found "loud"; expected debug or trace' in err


def test_an_unexpected_error_names_the_file_which_has_its_traceback(tfdeploy, state, monkeypatch):
    def fail(*_):
        raise ValueError("\x1b[2Jbroken https://me:hunter2hunter2@host/")

    monkeypatch.setattr("tfdeploy.cli.training.load_to_plan", fail)
    code, out, err = tfdeploy("plan", "--json")
    file = state / "plan.log"
    assert (code, json.loads(out)["error"]["message"][:19]) == (1, "unexpected ValueErr")
    shown, _, _ = err.partition("error: ")
    assert shown.startswith("Traceback")
    own_frame = shown[shown.index(f'  File "{__file__}"') :]
    assert f"lines above, and with {file}\n" in err
    assert own_frame in file.read_text()
    assert "hunter2" not in out + err + file.read_text()
    assert "\x1b" not in out + err + file.read_text()


def test_commands_at_the_same_time_have_files_of_their_own(state, tmp_path):
    with debug_log.logged("status", 0):
        first = debug_log.last_path
        with debug_log.logged("status", 0):
            assert (first, debug_log.last_path) == (state / "status.log", state / "status-2.log")
    with debug_log.logged("status", 0):
        assert debug_log.last_path == first


def test_a_file_keeps_its_newer_half(tmp_path):
    file, line = LogFile(tmp_path / "a.log"), "x" * 1000
    for number in range(2 * MAX_BYTES // 1000):
        file.write(f"{number} {line}\n")
    file.close()
    lines = (tmp_path / "a.log").read_text().splitlines()
    assert MAX_BYTES // 3 < (tmp_path / "a.log").stat().st_size <= MAX_BYTES
    assert lines[0] == "(older lines were deleted)"
    assert {line.partition(" ")[2] for line in lines[1:]} == {line}
    assert lines[-1].startswith(f"{2 * MAX_BYTES // 1000 - 1} ")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("start --env KEY=a=b --name x", "start --env KEY=(hidden) --name x"),
        ("start --env=KEY=a=b", "start --env=KEY=(hidden)"),
        ("run --with ps=2 -- --api-key k", "run --with ps=2 -- (2 hidden)"),
        ("start --env", "start --env"),
    ],
)
def test_values_of_variables_and_words_for_programs_are_hidden(given, expected):
    assert " ".join(shown(given.split())) == expected


def test_secrets_of_the_environment_are_hidden_and_files_are_not(monkeypatch, tmp_path):
    secrets = ("w4ndbw4ndb", "w4ndbw4ndb-longer", "/base64/of+a/key=")
    for number, secret in enumerate(secrets):
        monkeypatch.setenv(f"KEY_{number}", secret)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path))
    assert hide(f"{secrets} at {tmp_path}") == f"{('(hidden)',) * 3} at {tmp_path}"


@pytest.mark.parametrize("together", [False, True])
def test_the_end_of_a_task_s_log_is_not_in_the_log_of_a_command(state, together):
    failed = TaskFailed("worker:0", "gpu-01", "it ended", "a hint", log=("the key is hunter2",))
    error = FleetError([failed, TaskFailed("ps:0", "b", "exit 7")]) if together else failed
    with pytest.raises(type(error)), debug_log.logged("status", 0):
        raise error
    text = (state / "status.log").read_text()
    assert "worker:0 on gpu-01: it ended" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        (["-v", "logs", "--json"], ["logs", "-v", "--json"]),
        (["-vv", "--verbose", "logs"], ["logs", "-vv", "--verbose"]),
        (["-v"], ["-v"]),
        (["--version", "-v"], ["--version", "-v"]),
        (["logs", "-v"], ["logs", "-v"]),
    ],
)
def test_verbose_moves_behind_the_name(given, moved):
    assert verbose_after_name(given) == moved
