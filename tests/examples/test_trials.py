"""The recipe of trials: the best net of some comes home, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tomllib
from pathlib import Path

import pytest
from support import command_line
from support.host_python import tf_python
from support.projects import Project
from support.recipes import EXAMPLES, copied_to, environment
from support.sshd import Keys, Sshd, write_ssh_config
from support.waiting import until

from tfdeploy.shared.trials import SUCCEEDED

pytestmark = pytest.mark.slow

HOSTS = ("one", "two")


def test_the_best_of_some_trials_learns_and_comes_home(tmp_path):
    copy = copied_to(tmp_path)
    env = environment(copy)
    env["PATH"] = f"{Path(tf_python()).parent}:{env['PATH']}"
    params = (
        "--param",
        "learning_rate=0.00001,0.01",
        "--param",
        "batch_size=64",
        "--param",
        "width=32",
    )
    done = command_line.run("trials", *params, "--json", cwd=copy / "trials", env=env)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    table = json.loads(done.stdout)
    best, other = table["trials"]
    assert best["parameters"]["learning_rate"] == "0.01"
    assert best["value"] > 0.9 > other["value"]
    folder = copy / "trials" / "runs" / table["run"] / "outputs" / "trials"
    assert [model.parts[-3] for model in folder.glob("*/checkpoints/*.keras")] == ["1"]
    assert len([*folder.glob("*/log.csv")]) == 2


@pytest.fixture
def sshds(tmp_path):
    keys = Keys(tmp_path / "keys")
    running = {name: Sshd(tmp_path, keys) for name in HOSTS}
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("".join(sshd.known_hosts_line for sshd in running.values()))
    entries = {name: sshd.entry() for name, sshd in running.items()}
    write_ssh_config(tmp_path / "ssh_config", keys, known_hosts, entries)
    yield running
    for name in HOSTS:
        running[name].stop()


@pytest.fixture
def project(tmp_path, sshds):
    """Return the recipe with its twelve trials, on two hosts with two slots each."""
    folder = copied_to(tmp_path) / "trials"
    tables = tomllib.loads((folder / "hosts.toml").read_text())
    hosts = {name: {"workers": 1, "address": "127.0.0.1", "ports": "auto", "python": tf_python(),
                    "directory": str(tmp_path / name)} for name in HOSTS}  # fmt: skip
    trials = {**tables["trials"], "slots_per_host": 2, "lost_after_s": 20}
    top = {"trials": trials, "source": tables["source"], "ssh_config": str(tmp_path / "ssh_config")}
    made = Project(folder, hosts, top, tables["training"])
    shutil.copy(EXAMPLES / "trials" / "train.py", folder)  # Project has put a stub there
    made.ok("trust")  # its home directory is in the copy
    yield made
    made.end()


def table(project):
    return {t["number"]: t for t in json.loads(project.ok("trials", "--json"))["trials"]}


def of_trial(project, number):
    """Return the processes of a trial that runs."""
    parameters = table(project)[number]["parameters"].items()
    words = [f"--{name}={value}" for name, value in parameters]
    return [pid for pid, args in project.processes().items() if {*words} <= {*args.split()}]


def switch_off(project, host, sshds):
    """End everything on a host at once; nothing of it answers any more."""
    sshds[host].stop()
    folder = project.hosts[host]["directory"]
    for pid, args in sorted(project.processes().items()):  # a supervisor before its trial
        if f"{folder}/" in f"{args} {os.readlink(f'/proc/{pid}/cwd')}":
            os.kill(pid, signal.SIGKILL)


def succeeded(project):
    """Return the trial of each record of a success, as the host that hands them out has it."""
    journal = project.on("one") / "runs" / project.runs[-1] / "logs" / "worker-0.trials.jsonl"
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    return [record["trial"] for record in records if record["state"] == SUCCEEDED]


def written(project):
    """Return the size of all logs and journals on the host that is left."""
    return [file.stat().st_size for file in project.on("one").glob("runs/*/logs/*")]


def test_each_trial_ends_once_if_one_is_killed_and_a_host_is_switched_off(project, sshds):
    with project.start_command("trials", "--start", "--", "--epochs=4") as command:
        until(lambda: (project.folder / "runs").exists() and project.runs, "a run")
        until(lambda: of_trial(project, 0), "the first trial")
        os.kill(of_trial(project, 0)[0], signal.SIGKILL)
        until(lambda: table(project)[0]["attempts"] == 2, "its second attempt")
        running = [n for n, t in table(project).items()
                   if t["state"] == "RUNNING" and t["host"] == "two"]  # fmt: skip
        switch_off(project, "two", sshds)
        until(lambda: command.process.poll() is not None, "its end", lambda: written(project))
        assert "12 succeeded" in command.output
    shown = json.loads(project.tf("trials", "--json").stdout)
    again = {t["number"] for t in shown["trials"] if t["attempts"] == 2}
    assert len(shown["trials"]) == 12
    assert {t["state"] for t in shown["trials"]} == {"SUCCEEDED"}
    assert again >= {0, *running}
    assert sorted(succeeded(project)) == [*range(12)]
    assert shown["trials"][0]["value"] > 0.9
