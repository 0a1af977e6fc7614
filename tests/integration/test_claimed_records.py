"""What a host says about a run is a claim: a forged record from one host that was broken into gets
no secret, gives no other host a command, and keeps nobody from the run. Honest ones are taken.

The broken-into host is `two`; `one` has the ps and the chief, and is honest.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.ports import free_ports
from support.projects import Project, environment
from support.terminal import on_terminal

from tfdeploy import run as runs
from tfdeploy.run import RecordText, from_record, to_record

SECRET = "OF_THE_CONTROLLER"
FEW = "only 1 of 2 hosts of the controller's own record has it"
STARTS = 900_000_000  # more than any resume reaches
NEWER = f"{datetime.now(UTC) + timedelta(hours=12):{runs.TIME}}-aaaa"
FOREVER = "99991231-235959-ffff"


def started(world):
    """Return a project with a run on two hosts that both train, so that it can go on without one.
    Its hosts have no runs of other tests, and other tests have none of its."""
    hosts = world.hosts()
    hosts["one"] |= {"workers": 1, "ports": free_ports(5)}
    hosts["two"] |= {"workers": 1, "ports": free_ports(5)}
    project = world.project("--hold", hosts=hosts)
    project.ok("push")
    project.ok("start")
    return project


def record_file(project, host, run_id=None):
    return project.on(host) / "runs" / (run_id or project.runs[-1]) / "record.json"


def forge(project, edit, run_id=None):
    """Have `two` serve a newer record of the newest run, or a record of the newer run `run_id`,
    with an edited inventory."""
    record = json.loads(record_file(project, "two").read_text())
    texts = RecordText(record["run"], record["hosts"])
    run = from_record(texts, project.run_folder, project.folder / "hosts.toml")
    values = {**json.loads(record["run"]), "starts": STARTS, "launched": "f" * 16}
    hosts = to_record(replace(run, inventory=edit(run.inventory))).hosts_toml
    file = record_file(project, "two", run_id)
    file.parent.mkdir(exist_ok=True)
    first = {"starts": values["starts"], "launched": values["launched"]}
    file.write_text(json.dumps({**first, "run": json.dumps(values), "hosts": hosts}))


def training(inventory, **changes):
    return inventory.copy_with({"training": inventory.training.copy_with(changes)})


def evil(inventory):
    """Return an inventory that has a secret sent, and whose command is the forger's."""
    command = (*inventory.training.command, "evil")
    return training(inventory, command=command, secrets=(SECRET,))


def idle_one(inventory, **of_two):
    """Return an inventory in which all tasks are on `two`, and `one` takes them if that is lost: so
    `one`, which is honest, need not have this record."""
    one, two = inventory.hosts
    one = one.copy_with({"ps": 0, "workers": 0, "spare": True})
    return inventory.copy_with({"hosts": (one, two.copy_with({"ps": 1, **of_two}))})


def has_secret(project):
    """Return whether the secret has reached any file of a host."""
    files = (f for host in project.hosts for f in project.on(host).rglob("*") if f.is_file())
    return any(b"planted-value" in file.read_bytes() for file in files)


def on_pty(project, *words, typed):
    return on_terminal(words, typed, project.folder, environment(project.folder))


@pytest.mark.slow
def test_a_forged_newer_record_gets_no_secret_and_gives_no_other_host_a_command(
    by_ssh, monkeypatch
):
    monkeypatch.setenv(SECRET, "planted-value")
    project = started(by_ssh)
    run_id, own = project.runs[-1], (project.run_folder / "hosts.toml").read_text()
    forge(project, lambda inventory: idle_one(evil(inventory)))
    shown = project.tf("status")  # only reads, so it ignores the claim and says whose it is
    assert (shown.returncode, "READY" in shown.stdout) == (0, True), shown.stderr
    assert f"note: not used: two has a newer record of run {run_id}, but {FEW}" in shown.stderr
    assert f'training.secrets = ["{SECRET}"]; hosts.toml has nothing' in shown.stderr
    assert '"evil"]; hosts.toml has ["python", "train.py", "--hold"]' in shown.stderr
    refused = project.tf("resume", "--with", "workers=1")
    assert refused.returncode == 2
    assert FEW in refused.stderr
    assert f"resume --run {run_id} --without two" in refused.stderr
    code, output = on_pty(project, "resume", "--with", "workers=1", typed="y\n")
    assert (code, "type the id of the run" in output) == (2, True), output
    assert (project.run_folder / "hosts.toml").read_text() == own
    project.ok("resume", "--without", "two")
    launches = [*project.on("one").rglob("launch.json")]
    assert launches
    assert not any("evil" in file.read_text() for file in launches)
    assert not has_secret(project)
    stopped = project.tf("stop")  # all that is known; and what is claimed is said
    assert (stopped.returncode, project.processes()) == (1, {}), stopped.stderr
    assert "no host of the controller's own record has it" in stopped.stderr


@pytest.mark.slow
def test_a_forged_newer_run_hides_no_run_and_none_of_its_texts_is_used_unseen(by_ssh):
    project = started(by_ssh)
    own = project.runs[-1]
    forge(project, evil, NEWER)
    shown = project.tf("status")
    assert (shown.returncode, f"run {own} " in shown.stdout) == (0, True), shown.stderr
    assert f"not used: two: it has run {NEWER}, which is newer than run {own}" in shown.stderr
    refused = project.tf("stop")
    assert refused.returncode == 2
    assert f"name the run that you mean: --run {NEWER} or --run {own}" in refused.stderr
    assert project.runs == [own]
    # Also if it names no other host, so that all of its hosts agree.
    forge(project, lambda inventory: idle_one(evil(inventory)), NEWER)
    refused = project.tf("stop")
    assert (refused.returncode, project.runs) == (2, [own])
    assert f"two has a record of run {NEWER}, but only 1 of 2 hosts of hosts" in refused.stderr
    refused = project.tf("stop", "--run", NEWER)
    assert (refused.returncode, project.runs) == (2, [own])
    assert f"two has a record of run {NEWER}, which differs from hosts.toml" in refused.stderr
    # The least of what a stranger could add: an address is not asked about, but found again.
    forge(project, lambda inventory: idle_one(inventory, address="203.0.113.9"), NEWER)
    assert f"run {own} " in project.tf("status").stdout
    assert project.runs == [own]
    shown = project.tf("status", "--run", NEWER)  # whoever names it has agreed
    assert f"run {NEWER} had no record on the controller: restored it from two" in shown.stderr
    assert "203.0.113.9" not in (project.run_folder / "hosts.toml").read_text()
    shutil.rmtree(project.run_folder)
    shutil.rmtree(record_file(project, "two", NEWER).parent)
    # A run that nobody can have started by now would be the newest one for ever.
    forge(project, lambda inventory: inventory, FOREVER)
    stopped = project.tf("stop")
    assert (stopped.returncode, project.runs) == (0, [own]), stopped.stderr
    assert f"ignored run {FOREVER} of two" in stopped.stderr


@pytest.mark.slow
def test_one_of_two_hosts_is_not_enough_in_a_script_and_a_person_types_the_id(by_ssh, tmp_path):
    project = started(by_ssh)
    run_id = project.runs[-1]
    project.ok("stop")
    second = Project(
        tmp_path / "second", project.hosts, project.top, flags=project.flags, name=project.name
    )
    second.ok("resume", run_id, "--without", "one")  # it has no record, and both hosts agree
    for command in (["resume", "--with", "workers=1"], ["scale", "workers=1"]):
        refused = project.tf(*command)
        assert (refused.returncode, FEW in refused.stderr) == (2, True), refused.stderr
        assert "run the command on a terminal" in refused.stderr
    code, output = on_pty(project, "status", typed=f"{run_id}\n")
    assert (code, "took its record from two" in output) == (0, True), output
    assert runs.load(project.folder / "hosts.toml").plan.hosts == ("two",)
    shutil.rmtree(project.folder / "runs")
    refused = project.tf("stop", run_id)  # `one` was left out, and has an older record
    assert refused.returncode == 2
    assert "only 1 of 2 hosts of the run has it" in refused.stderr
    code, output = on_pty(project, "stop", run_id, typed=f"{run_id}\n")
    assert (code, project.processes()) == (0, {}), output
