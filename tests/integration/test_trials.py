"""Runs of trials: each runs once, in a slot of some host, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import suppress

import pytest
from support.waiting import until

from tfdeploy.shared.trials import SUCCEEDED

pytestmark = pytest.mark.slow

SCRIPT = """
import argparse, json, os, pathlib, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--gate")
flags = parser.parse_args()
with open("attempts", "a") as file:
    file.write("x")
with open("env.json", "w") as file:
    json.dump(dict(os.environ), file)
done = len(open("log.csv").readlines()) - 1 if os.path.exists("log.csv") else 0
with open("log.csv", "a") as file:
    if not done:
        print("epoch,val_accuracy", file=file, flush=True)
    for epoch in range(done, flags.epochs):
        print("{},{}".format(epoch, flags.lr * (epoch + 1)), file=file, flush=True)
        while flags.gate and not os.path.exists(flags.gate):
            time.sleep(0.01)
pathlib.Path("model.bin").write_text("the model of {}".format(flags.lr))
pathlib.Path(__file__).resolve().with_name("beside.bin").write_text(str(flags.lr))
print("trained with", flags.lr)
"""
OBJECTIVE = ("--objective", "val_accuracy:max")


@pytest.fixture
def project(by_ssh):
    """Return a project with the hosts `one` and `two`, of two slots each."""
    hosts = list(by_ssh.hosts().items())[:2]
    made = by_ssh.project(
        hosts={name: {**host, "workers": 1, "ps": 0} for name, host in hosts},
        top={"trials": {"slots_per_host": 2}},
        training={"orphan_timeout_s": 20},
    )
    (made.folder / "train.py").write_text(SCRIPT)
    (made.folder / "old.csv").write_text("epoch,val_accuracy\n0,99\n")  # of the source: no result
    return made


def values(count):
    return "--param", "lr=" + ",".join(str(n / 100) for n in range(1, count + 1))


def table(project):
    return {t["number"]: t for t in json.loads(project.ok("trials", "--json"))["trials"]}


def trial_folders(project, number):
    """Return the directories of a trial on all hosts."""
    return [f for host in project.hosts
            for f in project.on(host).glob(f"runs/*/worker-*/work/trials/{number}")]  # fmt: skip


def supervisor_of(project, slot):
    (lock,) = [f for host in project.hosts
               for f in project.on(host).glob(f"runs/*/{slot.replace(':', '-')}/lock")]  # fmt: skip
    return int(lock.read_text())


def test_each_trial_runs_once_and_the_best_one_comes_home(project):
    document = json.loads(project.ok("trials", *values(6), *OBJECTIVE, "--json"))
    assert (document["best"], document["trials"][0]["value"]) == (5, 0.12)
    assert [t["state"] for t in document["trials"]] == ["SUCCEEDED"] * 6
    assert {t["host"] for t in document["trials"]} <= {*project.hosts}  # whose slot asks first
    for number in range(6):
        (folder,) = trial_folders(project, number)
        assert (folder / "attempts").read_text() == "x"
        written = {"attempts", "beside.bin", "env.json", "log.csv", "model.bin"}
        assert {*os.listdir(folder)} == written
        env = json.loads((folder / "env.json").read_text())
        assert (env["TFDEPLOY_TRIAL"], "TF_CONFIG" in env) == (str(number), False)
    outputs = project.run_folder / "outputs" / "trials"
    assert (outputs / "5" / "model.bin").read_text() == "the model of 0.06"
    assert (outputs / "5" / "beside.bin").read_text() == "0.06"
    assert [file.parent.name for file in outputs.glob("*/model.bin")] == ["5"]
    assert len([*outputs.glob("*/log.csv")]) == 6
    assert (outputs / "0.log").read_text() == "trained with 0.01\n"


def test_the_table_is_known_when_the_hosts_are_gone(project):
    project.ok("trials", *values(2), *OBJECTIVE)
    for host in project.hosts:
        shutil.rmtree(project.on(host) / "runs")
    shown = project.tf("trials").stdout
    assert "best: trial 1 with 0.04 (lr=0.02)" in shown


def test_all_files_come_home_if_that_is_wanted(project):
    project.ok("trials", *values(3), *OBJECTIVE, "--keep", "all")
    assert len([*project.run_folder.glob("outputs/trials/*/model.bin")]) == 3


def test_a_dry_run_shows_all_trials_and_starts_nothing(project):
    shown = project.ok("trials", *values(6), "--dry-run")
    assert "trials   6, 4 trials at once" in shown
    assert project.ok("plan", *values(6)) == shown
    document = json.loads(project.ok("plan", *values(6), "--json"))
    assert [trial["lr"] for trial in document["trials"]] == [f"0.0{n}" for n in range(1, 7)]
    assert not (project.folder / "runs").exists()


def test_an_option_that_the_script_does_not_know_fails_ten_times(project):
    done = project.tf("trials", "--param", "lrr=" + ",".join(map(str, range(1000, 1040))))
    assert done.returncode == 1
    assert "10 trials in a row failed in the same way" in done.stderr
    assert "unrecognized arguments: --lrr=10" in done.stderr
    states = [t["state"] for t in table(project).values()]
    assert 10 <= states.count("FAILED") <= 13
    assert states.count("WAITING") == 40 - states.count("FAILED")


def test_an_objective_that_nobody_writes_stops_after_the_first_trials(project):
    done = project.tf("trials", *values(20), "--objective", "val_acc:max")
    assert done.returncode == 1
    assert "it wrote no val_acc; it wrote val_accuracy" in done.stderr
    assert [t["state"] for t in table(project).values()].count("SUCCEEDED") <= 4


def test_a_host_whose_disk_is_full_starts_no_more_trials(project):
    full = "import os\nif '/two/' in os.getcwd(): raise OSError(28, os.strerror(28))\n"
    (project.folder / "train.py").write_text(full + SCRIPT)
    trials = json.loads(project.ok("trials", *values(8), *OBJECTIVE, "--json"))["trials"]
    assert {(t["state"], t["host"]) for t in trials} == {("SUCCEEDED", "one")}
    assert sum(t["attempts"] - 1 for t in trials) <= 2  # one of each slot


def test_no_number_is_never_the_best_and_ends_no_other_trial(project):
    document = json.loads(
        project.ok("trials", "--param", "lr=nan,0.1,inf,0.2", *OBJECTIVE, "--json")
    )
    assert [t["value"] for t in document["trials"]] == [0.4, 0.2, None, None]
    assert {t["reason"] for t in document["trials"][2:]} == {"its val_accuracy is no number"}


def start(project, count, *words):
    """Start trials that wait for the file `gate`, until each slot has one; return the command, the
    gate and the words."""
    gate = project.folder / "gate"
    command = project.start_command(
        "trials", *values(count), *OBJECTIVE, "--", "--gate", str(gate), *words
    )
    until(lambda: (project.folder / "runs").exists() and project.runs, "a run")
    until(lambda: len([p for n in range(4) for p in trial_folders(project, n)]) == 4, "4 trials")
    folders = [folder for n in range(4) for folder in trial_folders(project, n)]
    until(lambda: all((folder / "log.csv").exists() for folder in folders), "their first epochs")
    return command, gate


def test_a_trial_whose_process_is_killed_continues_from_what_it_wrote(project):
    command, gate = start(project, 5)
    with command:
        (folder,) = trial_folders(project, 0)
        env = json.loads((folder / "env.json").read_text())
        pids = [pid for pid, args in project.processes().items() if "--lr=0.01 " in f"{args} "]
        os.kill(pids[0], signal.SIGKILL)
        until(lambda: "xx" in [f.joinpath("attempts").read_text()
                               for f in trial_folders(project, 0)], "attempt 2")  # fmt: skip
        gate.touch()
        command.wait_for_output("5 succeeded")
    assert env["TFDEPLOY_TRIAL"] == "0"
    found = table(project)[0]
    assert (found["state"], found["attempts"], found["value"]) == ("SUCCEEDED", 2, 0.02)


@pytest.fixture
def sshd_of_two(sshds):
    """The sshd of the host `two`, which a test may stop."""
    yield sshds["two"]
    sshds["two"].stop()
    sshds["two"].start()


def switch_off(project, host, sshd):
    """End everything on a host at once; nothing of it answers any more."""
    sshd.stop()
    folder = project.hosts[host]["directory"]
    for pid, args in sorted(project.processes().items()):  # a supervisor before its trial
        with suppress(OSError):  # it has ended with its supervisor
            if f"{folder}/" in f"{args} {os.readlink(f'/proc/{pid}/cwd')}":
                os.kill(pid, signal.SIGKILL)


def sizes_on(project, host):
    """Return the sizes of all logs and journals of a host."""
    return [file.stat().st_size for file in project.on(host).glob("runs/*/logs/*")]


def test_the_trials_of_a_host_that_is_switched_off_end_once_on_the_other(project, sshd_of_two):
    command, gate = start(project, 8)
    with command:
        lost = {n for n in range(4) if project.on("two") in trial_folders(project, n)[0].parents}
        assert lost
        switch_off(project, "two", sshd_of_two)
        gate.touch()
        until(lambda: command.process.poll() is not None, "its end",
              lambda: sizes_on(project, "one"))  # fmt: skip
        assert "8 succeeded" in command.output
    shown = json.loads(project.tf("trials", "--json").stdout)["trials"]
    assert {(t["number"], t["attempts"]) for t in shown} == {(n, 1 + (n in lost)) for n in range(8)}
    assert {(t["state"], t["host"]) for t in shown} == {("SUCCEEDED", "one")}
    journal = project.on("one") / "runs" / project.runs[-1] / "logs" / "worker-0.trials.jsonl"
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    assert sorted(r["trial"] for r in records if r["state"] == SUCCEEDED) == [*range(8)]


def test_a_trial_of_a_frozen_slot_goes_to_another_one_and_counts_once(project):
    command, gate = start(project, 4)
    with command:
        slot = next(t["task"] for t in table(project).values() if t["task"] != "worker:0")
        number = next(n for n, t in table(project).items() if t["task"] == slot)
        supervisor = supervisor_of(project, slot)
        os.kill(supervisor, signal.SIGSTOP)
        gate.touch()
        until(lambda: table(project)[number]["attempts"] == 2, "another slot")
        os.kill(supervisor, signal.SIGCONT)
        command.wait_for_output("4 succeeded")
    assert table(project)[number]["task"] != slot


def test_a_slot_that_does_not_reach_the_chief_ends_its_trial(project):
    """So it has ended when another slot may get it."""
    command, _ = start(project, 4)
    with command:
        command.wait_for_output("is READY")
        assert command.interrupt() == 130  # it would stop a run whose chief is lost
        os.kill(supervisor_of(project, "worker:0"), signal.SIGKILL)
        others = [f"--lr={t['parameters']['lr']}" for t in table(project).values()
                  if t["task"] != "worker:0"]  # fmt: skip
        until(lambda: not any(lr in args for args in project.processes().values() for lr in others),
              "the end of the others' trials")  # fmt: skip
        until(lambda: [t for t in table(project).values()
                       if "no message from worker:0 for" in t["reason"]], "the reason")  # fmt: skip


def test_a_stopped_run_continues_with_the_trials_that_have_not_ended(project):
    command, gate = start(project, 6)
    with command:
        project.ok("stop")
    assert {t["state"] for n, t in table(project).items() if n < 4} == {"INTERRUPTED"}
    gate.touch()
    project.ok("resume")
    assert "6 trials: 6 succeeded; best: trial 5 with" in project.ok("attach")
    assert [table(project)[n]["attempts"] for n in range(6)] == [2, 2, 2, 2, 1, 1]


def test_without_the_chiefs_host_a_resume_continues_with_what_the_others_recorded(project):
    command, gate = start(project, 5)
    with command:
        gate.touch()
        command.wait_for_output("succeeded")
    project_runs = project.on("one") / "runs"
    ended = {n for n, t in table(project).items() if t["host"] == "two"}
    shutil.rmtree(project_runs)
    shutil.rmtree(project.run_folder / "logs")
    project.tf("resume", "--without", "one")
    project.tf("attach")
    found = table(project)
    assert [t["state"] for t in found.values()] == ["SUCCEEDED"] * 5
    assert {n for n, t in found.items() if t["attempts"] == 1} >= ended
