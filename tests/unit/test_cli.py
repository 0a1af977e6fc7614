"""The command line where it needs no host: exit codes, sentences, and what `plan` prints."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tfdeploy import cli

TOML = """
project = "digits"
[source]
exclude = ["hosts.toml"]
[training]
command = "python train.py --dir={checkpoint_dir}"
role = "flags"
env = { SPACE = "a b" }
[hosts.here]
transport = "local"
python = "/opt/py"
ps = 1
workers = 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "hosts.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tfdeploy(monkeypatch, capsys):
    """Run a command line: (exit code, standard output, standard error)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["tfdeploy", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


COMMANDS = (
    *("plan", "check", "push", "start", "run", "resume", "status", "logs", "collect", "stop"),
    *("runs", "prune", "compare", "sweep"),
)


def test_help_lists_every_command(tfdeploy):
    code, out, _ = tfdeploy("--help")
    assert code == 0
    assert re.findall(r"^│ (\w+) ", out, re.M) == [*COMMANDS]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(tfdeploy, command):
    code, out, _ = tfdeploy(command, "-h")
    assert code == 0
    assert "--hosts" in out


@pytest.mark.parametrize("command", ["plan", "push", "start", "run", "runs", "prune"])
def test_a_missing_hosts_file_exits_with_2_and_a_sentence(tfdeploy, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert tfdeploy(command) == (
        2,
        "",
        "error: hosts.toml: there is no such file\n"
        "  copy hosts.example.toml to it, or say --hosts FILE\n",
    )


@pytest.mark.parametrize("command", ["status", "logs", "stop", "collect", "resume"])
def test_a_run_is_not_looked_for_without_its_hosts_file(tfdeploy, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert tfdeploy(command) == (
        2,
        "",
        "error: hosts.toml: there is no such file\n  say --hosts FILE, or go to its folder\n",
    )


@pytest.mark.parametrize("command", ["status", "logs", "stop", "collect", "resume"])
def test_that_nothing_was_started_exits_with_2(tfdeploy, folder, command):
    code, _, err = tfdeploy(command)
    assert code == 2
    assert err.startswith("error: no run was started from hosts.toml yet\n")


def test_an_unknown_run_exits_with_2(tfdeploy, folder):
    code, _, err = tfdeploy("status", "--run", "nope")
    assert (code, err.splitlines()[0]) == (2, f'error: there is no run "nope" in {folder}/runs')


@pytest.mark.parametrize("words", ["plan --nope", "nope", "logs -n -1", "plan x"])
def test_a_wrong_word_exits_with_2(tfdeploy, folder, words):
    assert tfdeploy(*words.split())[0] == 2


def test_all_errors_of_a_file_are_printed(tfdeploy, folder):
    (folder / "hosts.toml").write_text(TOML + "port = 0\nworkres = 1\n")
    code, out, err = tfdeploy("plan")
    assert (code, out) == (2, "")
    assert err == (
        "error: hosts.toml: hosts.here.port: found 0; it should be greater than or equal to 1\n"
        'hosts.toml: hosts.here.workres: unknown key; did you mean "workers"?\n'
        "  hosts.example.toml shows every key\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("workers = 1", "", "found no chief and no worker: nothing would train"),
        ("train.py", "trian.py", "training.command: trian.py is not among the files that would be"),
        ("{checkpoint_dir}", "{dir}", "training.command: found {dir}, which is no field"),
    ],
)
def test_what_can_not_be_planned_exits_with_2(tfdeploy, folder, old, new, message):
    (folder / "hosts.toml").write_text(TOML.replace(old, new))
    code, out, err = tfdeploy("plan")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: hosts.toml: {message}")


def test_plan_shows_tasks_and_their_commands(tfdeploy, folder):
    code, out, err = tfdeploy("plan")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert [line.split() for line in lines[:3]] == [
        ["TASK", "HOST", "LISTENS", "ON", "GPUS", "CHIEF"],
        ["ps:0", "here", "127.0.0.1:2222", "-"],
        ["worker:0", "here", "127.0.0.1:2223", "-", "chief"],
    ]
    assert 'cluster  {"ps": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}' in lines
    assert any(line.endswith(f"  1 file, 5 B of {folder}") for line in lines)
    assert (
        "  $ /opt/py train.py --dir=checkpoints --job_name=worker --task_index=0 "
        "--ps_hosts=127.0.0.1:2222 --worker_hosts=127.0.0.1:2223"
    ) in lines
    assert lines.count("  SPACE='a b'") == 2


def test_plan_as_json_is_one_document(tfdeploy, folder):
    code, out, err = tfdeploy("plan", "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert list(told) == ["project", "chief", "cluster", "release", "data", "tasks"]
    assert (told["project"], told["chief"]) == ("digits", "worker:0")
    assert told["cluster"] == {"ps": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}
    assert told["release"].keys() == {"id", "files", "bytes"}
    assert (told["release"]["files"], told["release"]["bytes"]) == (1, 5)
    worker = told["tasks"][1]
    placed = ["task", "host", "address", "port", "gpus"]
    assert list(worker) == [*placed, "argv", "env", "files", "ready"]
    assert (worker["files"], worker["ready"]) == ({}, "server")
    assert (worker["task"], worker["host"], worker["port"]) == ("worker:0", "here", 2223)
    assert worker["argv"][:3] == ["/opt/py", "train.py", "--dir=checkpoints"]
    assert json.loads(worker["env"]["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}


def test_plan_takes_the_file_that_is_said(tfdeploy, folder, monkeypatch):
    (folder / "hosts.toml").rename(folder / "other.toml")
    monkeypatch.chdir("/")
    assert tfdeploy("plan", "--hosts", f"{folder}/other.toml")[0] == 0


def test_what_runs_brought_home_is_not_pushed(tfdeploy, folder):
    before = json.loads(tfdeploy("plan", "--json")[1])["release"]
    (folder / "runs" / "one" / "logs").mkdir(parents=True)
    (folder / "runs" / "one" / "logs" / "ps-0.log").write_text("x")
    assert json.loads(tfdeploy("plan", "--json")[1])["release"] == before


@pytest.fixture
def data(folder):
    """A data set of two files, below the source, and what of it is a file of the source."""
    (folder / "data" / "set").mkdir(parents=True)
    for name in ("a", "b"):
        (folder / "data" / "set" / name).write_text(name)
    (folder / "data" / "labels").write_text("")
    (folder / "hosts.toml").write_text(f'{TOML}[data."data/set"]\njobs = ["worker"]\n')
    return folder / "data" / "set"


def test_what_is_data_is_shown_and_is_no_source(tfdeploy, data):
    told = json.loads(tfdeploy("plan", "--json")[1])
    assert told["release"]["files"] == 2
    [one] = told["data"]
    assert one.pop("id").startswith("data-set-")
    where = {"place": "data/set", "jobs": ["worker"], "hosts": ["here"]}
    assert one == {"files": 2, "bytes": 2, **where}
    [line] = [line for line in tfdeploy("plan")[1].splitlines() if line.startswith("data ")]
    assert line.endswith(f"  2 files, 2 B of {data}, for worker on here")


def test_data_behind_a_link_is_no_source_either(tfdeploy, data, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "set"
    data.rename(elsewhere)
    data.symlink_to(elsewhere)
    told = json.loads(tfdeploy("plan", "--json")[1])
    assert (told["release"]["files"], told["data"][0]["files"]) == (2, 2)


def test_data_that_is_missing_exits_with_2(tfdeploy, data):
    data.rename(data.parent / "gone")
    code, _, err = tfdeploy("plan")
    said = f"error: hosts.toml: data.data/set.path: {data} is not a folder"
    assert (code, err.splitlines()[0]) == (2, said)


def test_data_goes_to_the_hosts_of_its_tasks_and_to_spare_ones(tfdeploy, data, folder):
    others = {"ps": "ps = 1", "idle": "", "extra": "spare = true", "more": "workers = 1"}
    tables = "".join(f'[hosts.{n}]\naddress = "{n}"\n{keys}\n' for n, keys in others.items())
    here = TOML.replace("ps = 1", 'address = "here"')
    (folder / "hosts.toml").write_text(f'{here}{tables}[data."data/set"]')
    told = json.loads(tfdeploy("plan", "--json")[1])
    assert told["data"][0]["hosts"] == ["here", "more", "extra"]


def test_the_module_is_the_command(folder):
    done = subprocess.run(
        [sys.executable, "-m", "tfdeploy", "plan"], capture_output=True, text=True, cwd=folder
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("TASK ")
