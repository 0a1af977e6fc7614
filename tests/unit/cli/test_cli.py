"""The command line without hosts: exit codes, messages, and what `plan` prints."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from io import StringIO
from pathlib import Path

import pytest
import typer
from support import json_documents
from support.trusting import trust

from tfdeploy import cli
from tfdeploy.cli.questions import require_yes
from tfdeploy.environments import installation

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
python = "python3.99"
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
    """Return a function that runs a command line and returns its exit code, standard output and
    standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tfdeploy", *arguments])
        trust()
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        captured, code = capsys.readouterr(), exit_.value.code or 0
        json_documents.check_output(arguments, captured.out, code)
        return code, captured.out, captured.err

    return run


COMMANDS = [*typer.main.get_command(cli.app).commands]
WITH_HOSTS = [name for name in COMMANDS if name not in ("example", "completion")]


def test_help_lists_every_command(tfdeploy):
    code, out, _ = tfdeploy("--help")
    assert code == 0
    assert sorted(re.findall(r"^  ([a-z]+)  ", out, re.M)) == sorted(COMMANDS)


def test_help_groups_the_commands(tfdeploy):
    _, out, _ = tfdeploy("--help")
    groups = ["Prepare", "Train", "Watch", "Results", "Runs on the hosts", "Measure", "Shell"]
    assert re.findall(r"^(\w[\w ]*):$", out, re.M) == ["Options", *groups]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(tfdeploy, command):
    assert f"  tfdeploy {command}" in tfdeploy(command, "--help")[1].partition("Examples:")[2]


@pytest.mark.parametrize("command", WITH_HOSTS)
def test_every_command_has_help(tfdeploy, command):
    code, out, _ = tfdeploy(command, "-h")
    assert code == 0
    assert "--hosts" in out


@pytest.mark.parametrize("command", ["plan", "push", "start", "run", "runs", "prune", "status",
                                     "logs", "stop", "collect", "resume"])  # fmt: skip
def test_a_missing_hosts_file_is_refused_with_a_hint(tfdeploy, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert tfdeploy(command) == (
        2,
        "",
        "error: hosts.toml: there is no such file\n"
        "  pass --hosts FILE, or change to its folder; tfdeploy init writes a new one\n",
    )


def test_an_unknown_run_exits_with_2(tfdeploy, folder):
    code, _, err = tfdeploy("status", "--run", "nope")
    assert (code, err.splitlines()[0]) == (2, f'error: there is no run "nope" in {folder}/runs')


@pytest.mark.parametrize("command", ["plan --nope", "nope", "logs -n -1", "plan x"])
def test_an_unknown_command_option_or_value_exits_with_2(tfdeploy, folder, command):
    assert tfdeploy(*command.split())[0] == 2


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("colect", "No such command 'colect'. Did you mean 'collect'?"),
        ("xyz", "No such command 'xyz'."),
        ("fetch", "Missing argument 'TASK'. For example: tfdeploy fetch worker:1 tuner.csv"),
        ("sweep", "Missing option '--workers'. For example: tfdeploy sweep --workers 1,2,4"),
        ("check gpu-01", "Unexpected argument 'gpu-01'. For example: tfdeploy check"),
        ("exec worker:1 ls -l", "follow --: tfdeploy exec worker:1 -- nvidia-smi"),
        ("exec worker:1 ls", "expected -- before the command: tfdeploy exec worker:1 -- ls"),
        ("prune --keep x", "a whole number."),
        (
            "plan --lr",
            "--lr; words for the program follow --: tfdeploy plan -- --lr",
        ),
        (
            "start --queu",
            "--queu (did you mean --queue?); "
            "words for the program follow --: tfdeploy start -- --queu",
        ),
        ("plan --lr=0.1 --hosts x", "words for the program follow --: tfdeploy plan -- --lr=0.1"),
    ],
)
def test_a_usage_error_shows_a_whole_command(tfdeploy, folder, command, message):
    code, out, err = tfdeploy(*command.split())
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith(message)


@pytest.mark.parametrize("command", ["plan", "status"])
def test_a_folder_instead_of_a_file_is_refused(tfdeploy, folder, command):
    code, _, err = tfdeploy(command, "--hosts", ".")
    assert (code, err.splitlines()[0]) == (2, "error: . is a folder; expected a file")
    assert "--hosts FOLDER/hosts.toml" in err


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_a_question_that_is_not_answered_with_yes_ends_with_a_sentence(monkeypatch, capsys, answer):
    monkeypatch.setattr(sys, "stdin", StringIO(answer))
    with pytest.raises(typer.Exit) as refused:
        require_yes("delete them?", "nothing was deleted")
    assert refused.value.exit_code == 1
    assert capsys.readouterr().err.endswith("nothing was deleted\n")


def test_a_question_that_is_answered_with_yes_ends_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    require_yes("delete them?", "nothing was deleted")
    assert "nothing" not in capsys.readouterr().err


def test_all_errors_of_a_file_are_printed(tfdeploy, folder):
    (folder / "hosts.toml").write_text(TOML + "port = 0\nworkres = 1\n")
    code, out, err = tfdeploy("plan")
    assert (code, out) == (2, "")
    assert err == (
        "error: hosts.toml: hosts.here.port: found 0; expected at least 1\n"
        'hosts.toml: hosts.here.workres: unknown key; did you mean "workers"?\n'
        "  tfdeploy example shows every key\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("workers = 1", "", "found no chief and no worker: nothing would train"),
        ("train.py", "trian.py", "training.command: trian.py is not among the files that would be"),
        ("{checkpoint_dir}", "{dir}", "training.command: unknown field {dir}"),
        ("workers = 1", 'workers = "per-gpu"', 'hosts.here.workers: "per-gpu" needs GPUs; found'),
    ],
)
def test_a_plan_that_is_impossible_exits_with_2(tfdeploy, folder, old, new, message):
    (folder / "hosts.toml").write_text(TOML.replace(old, new))
    code, out, err = tfdeploy("plan")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: hosts.toml: {message}")


def test_workers_on_free_hosts_need_gpus(tfdeploy, folder):
    text = TOML.replace("role =", "workers = 2\nrole =").replace("\nworkers = 1", "")
    (folder / "hosts.toml").write_text(text)
    code, _, err = tfdeploy("plan")
    assert (code, "training.workers: found no host with gpus" in err) == (2, True), err


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
    assert any(line.endswith(f"  1 file, 5 B from {folder}") for line in lines)
    assert (
        "  $ python3.99 train.py --dir=checkpoints --job_name=worker --task_index=0 "
        "--ps_hosts=127.0.0.1:2222 --worker_hosts=127.0.0.1:2223"
    ) in lines
    assert lines.count("  SPACE='a b'") == 2


def test_plan_shows_words_and_variables_of_the_command_line(tfdeploy, folder):
    code, out, _ = tfdeploy("plan", "--env", "SPACE=c", "--env=N=1", "--", "--lr", "0.1", "--json")
    assert code == 0
    assert "  $ python3.99 train.py --dir=checkpoints --lr 0.1 --json --job_name=worker" in out
    assert (out.count("  SPACE=c\n"), out.count("  N=1\n")) == (2, 2)


@pytest.mark.parametrize("command", ["plan", "start", "run"])
def test_words_without_dashes_are_refused(tfdeploy, folder, command):
    code, out, err = tfdeploy(command, "hosts.toml")
    assert (code, out) == (2, "")
    assert 'found "hosts.toml"; expected -- before words' in err


def test_plan_as_json_is_one_document(tfdeploy, folder):
    code, out, err = tfdeploy("plan", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert list(document) == [
        "project", "chief", "chief_port", "cluster", "network", "secrets", "notes", "release",
        "data", "environments", "tasks", "trials",
    ]  # fmt: skip

    assert (document["project"], document["chief"]) == ("digits", "worker:0")
    assert document["cluster"] == {"ps": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}
    assert document["release"].keys() == {"id", "files", "bytes"}
    assert (document["release"]["files"], document["release"]["bytes"]) == (1, 5)
    worker = document["tasks"][1]
    placed = ["task", "host", "address", "port", "gpus", "gpu_choice"]
    assert list(worker) == [*placed, "argv", "env", "files", "ready"]
    assert (worker["files"], worker["ready"]) == ({}, "server")
    assert (worker["task"], worker["host"], worker["port"]) == ("worker:0", "here", 2223)
    assert worker["argv"][:3] == ["python3.99", "train.py", "--dir=checkpoints"]
    assert json.loads(worker["env"]["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}


def test_plan_reads_the_given_hosts_file(tfdeploy, folder, monkeypatch):
    (folder / "hosts.toml").rename(folder / "other.toml")
    monkeypatch.chdir("/")
    assert tfdeploy("plan", "--hosts", f"{folder}/other.toml")[0] == 0


def test_a_folder_below_hosts_toml_gives_the_same_plan(tfdeploy, folder, monkeypatch):
    printed = tfdeploy("plan")
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    assert tfdeploy("plan") == printed
    monkeypatch.setenv("TFDEPLOY_HOSTS", "hosts.toml")
    for command in ("plan", "status"):
        code, out, err = tfdeploy(command)
        assert (code, out) == (2, "")
        assert "hosts.toml (named by TFDEPLOY_HOSTS): there is no such file" in err
    monkeypatch.delenv("TFDEPLOY_HOSTS")
    assert tfdeploy("plan", "--hosts", "hosts.toml")[0] == 2


def test_collected_results_are_not_part_of_the_source(tfdeploy, folder):
    before = json.loads(tfdeploy("plan", "--json")[1])["release"]
    (folder / "runs" / "one" / "logs").mkdir(parents=True)
    (folder / "runs" / "one" / "logs" / "ps-0.log").write_text("x")
    assert json.loads(tfdeploy("plan", "--json")[1])["release"] == before


@pytest.fixture
def data(folder):
    """Create a data set of two files inside the source folder, beside a file of the source."""
    (folder / "data" / "set").mkdir(parents=True)
    for name in ("a", "b"):
        (folder / "data" / "set" / name).write_text(name)
    (folder / "data" / "labels").write_text("")
    (folder / "hosts.toml").write_text(f'{TOML}[data."data/set"]\njobs = ["worker"]\n')
    return folder / "data" / "set"


def test_data_is_shown_and_is_not_part_of_the_source(tfdeploy, data):
    document = json.loads(tfdeploy("plan", "--json")[1])
    assert document["release"]["files"] == 2
    [data_set] = document["data"]
    assert data_set.pop("id").startswith("data-set-")
    where = {"place": "data/set", "jobs": ["worker"], "hosts": ["here"]}
    assert data_set == {"files": 2, "bytes": 2, **where}
    [line] = [line for line in tfdeploy("plan")[1].splitlines() if line.startswith("data ")]
    assert line.endswith(f"  2 files, 2 B from {data}, for worker on here")


def test_data_behind_a_link_is_not_part_of_the_source(tfdeploy, data, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "set"
    data.rename(elsewhere)
    data.symlink_to(elsewhere)
    assert tfdeploy("trust")[0] == 0
    document = json.loads(tfdeploy("plan", "--json")[1])
    assert (document["release"]["files"], document["data"][0]["files"]) == (2, 2)


def test_missing_data_exits_with_2(tfdeploy, data):
    data.rename(data.parent / "gone")
    code, _, err = tfdeploy("plan")
    message = f"error: hosts.toml: data.data/set.path: {data} is not a folder"
    assert (code, err.splitlines()[0]) == (2, message)


# For a plan that asks no ssh.
FABRIC = 'transport = "fabric"\n'


def test_data_goes_to_the_hosts_of_its_jobs_and_to_spare_hosts(tfdeploy, data, folder):
    others = {"ps": "ps = 1", "idle": "", "extra": "spare = true", "more": "workers = 1"}
    tables = "".join(
        f'[hosts.{n}]\naddress = "{n}"\n{keys}\n{FABRIC}' for n, keys in others.items()
    )
    here = TOML.replace("ps = 1", 'address = "here"')
    (folder / "hosts.toml").write_text(f'{here}{tables}[data."data/set"]')
    document = json.loads(tfdeploy("plan", "--json")[1])
    assert document["data"][0]["hosts"] == ["here", "more", "extra"]


# Init


def test_init_never_overwrites_a_file(tfdeploy, folder):
    code, out, err = tfdeploy("init", "--local")
    assert (code, out) == (2, "")
    assert err == (
        "error: hosts.toml exists already, and is never overwritten\n"
        "  to write another file: --hosts other.toml\n"
    )
    assert (folder / "hosts.toml").read_text() == TOML


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name the hosts, or use this machine alone"),
        (["gpu:22"], "gpu:22: a port is not part of a host's name"),
        (["gpu", "--script", "no.py"], "--script: there is no file no.py"),
        (["gpu", "--hosts", "no/hosts.toml"], "no/hosts.toml: there is no folder no"),
    ],
)
def test_a_slip_at_init_is_refused_before_a_host_is_asked(tfdeploy, folder, words, message):
    (folder / "hosts.toml").unlink()
    code, out, err = tfdeploy("init", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"]


# Version and example


def test_the_installed_version_is_printed(tfdeploy):
    assert tfdeploy("--version") == (0, f"tfdeploy {metadata.version('tfdeploy')}\n", "")


def test_the_example_documents_every_key_and_is_valid(tfdeploy, folder):
    code, out, err = tfdeploy("example")
    assert (code, err) == (0, "")
    assert out == (Path(__file__).parents[3] / "hosts.example.toml").read_text()
    (folder / "hosts.toml").write_text(out)
    assert tfdeploy("plan")[0] == 2  # its data set does not exist, but every key is valid


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("plots", ("report",)),
        ("tensorboard", ("tensorboard",)),
    ],
)
def test_a_command_without_its_extra_says_first_what_to_type(
    tfdeploy, folder, monkeypatch, extra, arguments
):
    (folder / "hosts.toml").write_text("neither read nor asked")
    monkeypatch.setitem(installation.EXTRAS, extra, ("no_such_package",))
    code, out, err = tfdeploy(*arguments)
    message, hint = err.splitlines()
    assert (code, out) == (2, "")
    assert message.endswith("no_such_package is not installed beside tfdeploy")
    assert extra in hint
