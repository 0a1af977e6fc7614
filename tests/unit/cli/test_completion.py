"""What a shell proposes after TAB, in the protocol that the scripts of all three shells use."""

from __future__ import annotations

import shutil
import sys

import pytest

from tfdeploy import cli, run
from tfdeploy.config import inventory
from tfdeploy.planning import placing

HOSTS = """
project = "digits"
[training]
command = "python train.py"
role = "flags"
[hosts."gpu-[1-2]"]
address = "10.0.0.[1-2]"
workers = 1
[hosts.store]
address = "10.0.0.3"
ps = 2
"""
TASKS = ["ps:0", "ps:1", "worker:0", "worker:1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "hosts.toml").write_text(HOSTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def propose(monkeypatch, capsys):
    """Return a function that returns what is proposed for a command line, without descriptions.

    Nothing may be printed besides.
    """

    monkeypatch.setenv("COLUMNS", "80")  # is restored: prepare() changes it

    def propose(line):
        monkeypatch.setattr(sys, "argv", ["tfdeploy"])
        monkeypatch.setenv("_TFDEPLOY_COMPLETE", "complete_fish")
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        with pytest.raises(SystemExit):
            cli.main()
        captured = capsys.readouterr()
        assert captured.err == ""
        return [each.partition("\t")[0] for each in captured.out.splitlines() if each]

    return propose


def record(folder, run_id, hosts="hosts.toml", name=""):
    loaded = inventory.load(folder / hosts)
    plan = placing.make_plan_from_addresses(loaded)
    run.save(run.Run(run_id, "release", "agent", loaded, plan, name=name))


def test_commands_are_proposed(propose):
    assert propose("tfdeploy st") == ["start", "status", "stop"]


def test_runs_are_proposed_newest_first(propose, folder):
    for run_id in ("20260101-1", "20260303-3", "20260202-2"):
        record(folder, run_id)
    newest_first = ["20260303-3", "20260202-2", "20260101-1"]
    assert propose("tfdeploy status --run ") == newest_first
    assert propose("tfdeploy attach 202602") == ["20260202-2"]
    assert propose("tfdeploy compare 20260101-1 ") == newest_first


def test_names_of_runs_are_proposed(propose, folder):
    for run_id, name in (("20260101-1", "wide"), ("20260202-2", "deep"), ("20260303-3", "wide")):
        record(folder, run_id, name=name)
    assert propose("tfdeploy status --run ")[3:] == ["wide", "deep"]
    (folder / "runs" / "20260303-3" / "run.json").write_text("[")
    assert propose("tfdeploy stop --run d") == ["deep"]


def test_a_name_that_a_shell_would_run_is_not_proposed(propose, folder):
    """Bash puts a proposal on the command line as it is, and a record may be somebody else's."""
    record(folder, "20260101-1", name="good;touch${IFS}PWNED")
    assert propose("tfdeploy logs --run g") == []


@pytest.mark.parametrize("command", ["logs", "status --task", "exec", "ssh", "fetch"])
def test_tasks_and_jobs_of_the_run_are_proposed(propose, folder, command):
    record(folder, "20260101-1")
    assert propose(f"tfdeploy {command} ") == [*TASKS, "ps", "worker"]
    assert propose(f"tfdeploy {command} worker:") == ["worker:0", "worker:1"]


def test_hosts_are_proposed_with_and_without_a_run(propose, folder):
    assert propose("tfdeploy push --on gpu") == ["gpu-1", "gpu-2"]
    assert propose("tfdeploy logs --on ") == []
    record(folder, "20260101-1")
    assert propose("tfdeploy logs --on ") == ["store", "gpu-1", "gpu-2"]


def test_a_list_is_continued(propose, folder):
    assert propose("tfdeploy push --on gpu-1,st") == ["gpu-1,store"]


def test_names_are_of_the_given_run_and_hosts_file(propose, folder):
    record(folder, "20260101-1")
    (folder / "lab.toml").write_text(HOSTS.replace("store", "lab"))
    record(folder, "20260202-2", "lab.toml")
    assert propose("tfdeploy status --run 20260202-2 --on l") == ["lab"]
    assert propose("tfdeploy status --on l") == []
    assert propose("tfdeploy push --hosts lab.toml --on l") == ["lab"]
    assert propose("tfdeploy push --hosts ") == ["hosts.toml", "lab.toml"]


def test_the_hosts_file_of_the_environment_is_used(propose, folder, monkeypatch):
    (folder / "hosts.toml").rename(folder / "lab.toml")
    monkeypatch.setenv("TFDEPLOY_HOSTS", "lab.toml")
    assert propose("tfdeploy push --on st") == ["store"]


def test_names_are_proposed_in_a_folder_below_hosts_toml(propose, folder, monkeypatch):
    (folder / "notebooks").mkdir()
    monkeypatch.chdir(folder / "notebooks")
    record(folder, "20260101-1")
    assert propose("tfdeploy push --on st") == ["store"]
    assert propose("tfdeploy stop ") == ["20260101-1"]


def test_a_file_of_somebody_else_asks_for_no_trust(propose, folder):
    command = 'ssh_config = "ssh_config"\n'
    (folder / "ssh_config").write_text("Host *\n  ProxyCommand touch stolen\n")
    (folder / "hosts.toml").write_text(command + HOSTS)
    assert propose("tfdeploy push --on st") == ["store"]


def test_without_a_readable_record_nothing_is_proposed(propose, folder):
    record(folder, "20260101-1")
    (folder / "runs" / "20260101-1" / "run.json").write_text("{")
    assert propose("tfdeploy logs ") == []
    (folder / "hosts.toml").write_text("[")
    assert propose("tfdeploy push --on ") == []
    shutil.rmtree(folder / "runs")
    assert propose("tfdeploy status --run ") == []


def test_names_of_files_are_left_to_the_shell(propose, folder):
    assert propose("tfdeploy report -o x") == []
