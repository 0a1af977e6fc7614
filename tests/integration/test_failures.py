"""Commands report what happened: a planned end, a stop, an unreachable host, a lost record."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time

import pytest
from support.command_line import REAL
from support.ports import free_ports
from support.projects import Project, environment
from support.trusting import trust
from support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def project(local):
    return local.pushed("--hold")


def test_a_stop_by_another_command_is_no_failure_for_run(project):
    with project.start_command("run") as running:
        running.wait_for_output("worker:0 step 3")
        project.ok("stop")
        assert running.process.wait() == 143
    assert f"run {project.runs[-1]} was stopped" in running.output
    assert "error" not in running.output
    assert "failed" not in running.output
    assert "  | " not in running.output


# Without the record


def delete_record(project):
    """Delete the record of the newest run; return the run's id."""
    run_id = project.runs[-1]
    shutil.rmtree(project.folder / "runs")
    return run_id


def test_a_run_of_another_hosts_file_is_not_taken_over(local):
    project = local.project("--hold")  # only this project has no older run on the host
    project.ok("push", "-q")
    project.ok("start", "-q")
    project.folder.joinpath("other.toml").write_text((project.folder / "hosts.toml").read_text())
    trust(project.folder / "other.toml")
    stopped = project.tf("stop", "--hosts", "other.toml")
    assert stopped.returncode == 2
    assert "no run was started from other.toml yet" in stopped.stderr
    assert {task["state"] for task in project.status().values()} == {"READY"}


@pytest.mark.parametrize("command", ["status", "logs", "collect", "resume", "stop"])
def test_a_run_without_a_record_is_recovered_from_its_hosts(local, command):
    project = local.started("--hold")
    run_id = delete_record(project)
    done = project.tf(command)
    assert f"run {run_id} had no record on the controller: restored it from here" in done.stderr
    assert project.runs == [run_id]
    if command == "resume":
        assert "is active on all of its hosts" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr


def test_another_clone_finds_a_run_by_its_id_and_reaches_hosts_by_its_own_hosts_toml(by_ssh):
    project = by_ssh.started("--hold")
    run_id = project.runs[-1]
    clone = Project(
        project.folder.parent / "clone", project.hosts, project.top, flags=project.flags,
        name=project.name,
    )  # fmt: skip
    assert "have exited" in clone.ok("stop", "--run", run_id)
    assert project.processes() == {}
    assert {task["state"] for task in clone.status().values()} == {"STOPPED"}


def test_a_record_that_differs_on_one_host_is_refused(by_ssh):
    project = by_ssh.started("--hold")
    run_id = delete_record(project)
    record_file = project.on("two") / "runs" / run_id / "record.json"
    record = json.loads(record_file.read_text())
    record["hosts"] = record["hosts"].replace("train.py", "evil.py")
    record_file.write_text(json.dumps(record))
    done = project.tf("status", "--run", run_id)
    assert done.returncode == 2
    assert f"of run {run_id}, but " in done.stderr
    assert "has another record of it, or none" in done.stderr
    assert not (project.folder / "runs").exists()


def test_a_run_that_no_host_knows_is_refused(local):
    project = local.project()
    done = project.tf("status")
    assert done.returncode == 2
    assert "no run was started from hosts.toml yet, and its hosts have no record" in done.stderr


def test_a_failed_start_fetches_its_logs(local):
    project = local.project("--deaf=worker:1", training={"ready_timeout_s": 4})
    done = project.tf("run")
    assert done.returncode == 1
    assert f"the logs are in {project.run_folder / 'logs'}" in done.stderr
    assert {log.name for log in (project.run_folder / "logs").iterdir()} >= {
        "worker-0.log",
        "ps-0.log",
    }


# One host is unreachable


class UnreachableHosts:
    """A started project on two hosts that SSH can stop reaching while their tasks run."""

    def __init__(self, world, folder, *flags, **hosts):
        self.usual = world.ssh_config.read_text()
        world.ssh_config = folder / "ssh_config"
        world.ssh_config.write_text(self.usual)
        self.config = world.ssh_config
        host_tables = world.hosts()
        for name, tasks in hosts.items():
            host_tables[name] = {
                k: v for k, v in host_tables[name].items() if k not in ("ps", "workers")
            }
            host_tables[name] |= {"ports": free_ports(3), **tasks}
        self.project = world.project("--hold", *flags, hosts=host_tables)
        self.project.ok("push")
        self.project.ok("start")

    def lose(self, name):
        closed = free_ports(1)[0]
        head, found, tail = self.usual.partition(f"Host {name}\n")
        assert found
        lines = tail.splitlines(keepends=True)
        at = next(n for n, line in enumerate(lines) if line.split()[:1] == ["Port"])
        lines[at] = f" Port {closed}\n"
        self.config.write_text(head + found + "".join(lines))


WORKERS = {"one": {"workers": 1}, "two": {"workers": 1}}


@pytest.fixture
def unreachable(by_ssh, tmp_path):
    return lambda *flags, **hosts: UnreachableHosts(by_ssh, tmp_path, *flags, **hosts)


def test_a_task_on_an_unreachable_host_ends_on_stop(unreachable):
    run = unreachable(**WORKERS)
    run.lose("two")
    done = run.project.tf("stop")
    assert done.returncode == 1
    assert "STOPPED   worker:0" in done.stdout
    assert re.search(
        r"STOPPED +worker:1 on two +worker:0's supervisor passed on the stop", done.stdout
    )
    assert "two: no SSH connection" in done.stderr
    until(lambda: run.project.processes() == {}, "the end of all tasks and supervisors")


def test_a_chief_on_an_unreachable_host_ends_on_stop(unreachable):
    run = unreachable(**WORKERS)
    run.lose("one")
    done = run.project.tf("stop")
    assert done.returncode == 1
    assert "worker:0 on one may still be running: no answer" in done.stdout
    assert "have exited" not in done.stdout
    until(lambda: run.project.processes() == {}, "the end of all tasks")


def test_a_partly_stopped_run_can_be_stopped_again_and_resumed(unreachable):
    run = unreachable(**WORKERS)
    run.lose("two")
    run.project.tf("stop")
    run.config.write_text(run.usual)
    assert "have exited" in run.project.ok("stop")
    assert "READY" in run.project.ok("resume")


def test_collect_fetches_from_the_reachable_hosts_and_names_the_others(unreachable):
    run = unreachable(**WORKERS)
    [chief] = run.project.on("one").glob("runs/*/worker-0/work")
    state_file = chief / "checkpoints/checkpoint"
    until(lambda: state_file.is_file() and "ckpt-3" in state_file.read_text(), "checkpoint 3")
    run.lose("two")
    done = run.project.tf("collect")
    assert done.returncode == 1
    assert "checkpoints/model.ckpt-3\n" in done.stdout
    assert re.search(r"1 event file and 1 log in ", done.stdout)
    assert "two: no SSH connection" in done.stderr
    run.config.write_text(run.usual)
    run.lose("one")
    done = run.project.tf("collect")
    assert done.returncode == 1
    assert "no checkpoint was fetched, see the error" in done.stdout
    assert "one: no SSH connection" in done.stderr


# What is not part of the release


def test_the_hosts_file_in_use_is_not_part_of_the_release(local):
    project = local.project(top={"source": {}})
    project.ok("push")
    project.training["stop_grace_s"] = 7
    project.write()
    assert "is already on" in project.ok("push")
    [release] = project.releases("here")
    assert {file.name for file in release.iterdir()} == {"train.py"}


def test_a_file_that_the_output_goes_to_is_not_part_of_the_release(local):
    project = local.project(top={"source": {}})
    command = [*REAL, "push"]
    with (
        (project.folder / "push.out").open("wb") as out,
        (project.folder / "err").open("wb") as err,
    ):
        options = {"cwd": project.folder, "env": environment(project.folder)}
        assert subprocess.run(command, stdout=out, stderr=err, **options).returncode == 0
    [release] = project.releases("here")
    assert {file.name for file in release.iterdir()} == {"train.py"}
    assert "pushed release" in (project.folder / "push.out").read_text()


# Signals


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def default_sighup():
    """Tests that run under nohup ignore SIGHUP, and the commands that they start would, too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_all_tasks_are_ready_stops_them(local, number):
    training = {"ready_timeout_s": 600}
    project = local.pushed("--deaf=worker:1", "--hold", training=training)
    with project.start_command("start") as starting:
        starting.wait_for_output("READY     worker:0")
        starting.process.send_signal(number)
        assert starting.process.wait() == 130
    assert "those that had started were stopped" in starting.output
    assert project.processes() == {}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_run_follows_ends_no_task(local, number):
    project = local.pushed("--hold")
    with project.start_command("run") as running:
        running.wait_for_output("worker:0 step 3")
        running.process.send_signal(number)
        assert running.process.wait() == 130
    assert f"run {project.runs[-1]} continues" in running.output
    assert [task["state"] for task in project.status().values()] == ["READY"] * 3


def test_a_second_signal_does_not_end_the_cleanup(local):
    """unit/commands/test_signals.py shows it for each signal."""
    training = {"ready_timeout_s": 600, "stop_grace_s": 2}
    project = local.pushed("--deaf=worker:1", "--hold", "--stubborn", training=training)
    with project.start_command("start") as starting:
        starting.wait_for_output("READY     worker:0")
        starting.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        starting.process.send_signal(signal.SIGINT)
        assert starting.process.wait() == 130
    assert project.processes() == {}
