"""Every command through the real command line, over both transports, on a stub that trains."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tfdeploy.errors import AgentError
from tfdeploy.steps import collect
from tfdeploy.steps.bring import bring

from .projects import Project, toml
from .sshd import alive, free_ports, until

if TYPE_CHECKING:
    from pathlib import Path

TASKS = ["ps:0", "worker:0", "worker:1"]
DATA = "model.ckpt-3.data-00000-of-00001"
CHECKPOINT = ["data-00000-of-00001", "index", "meta"]


# What happens on a host is the same whichever way one came there: asked once, on the quicker way.
ONCE = pytest.mark.parametrize("lasting", ["local"], indirect=True)


def alone(world) -> dict:
    """One worker and nothing else, where more would only take longer."""
    return {"here": {**world.hosts()["here"], "ps": 0, "workers": 1}}


@pytest.fixture(scope="module")
def held(lasting) -> Project:
    """A run that goes on after its third checkpoint; no other test has a project of its name."""
    project = lasting.project("--steps=3", "--hold")
    project.ok("push")
    project.ok("start")
    until(lambda: "ckpt-3" in state_file(project.work("worker:0")), "the third checkpoint")
    return project


def state_file(work: Path) -> str:
    file = work / "checkpoints/checkpoint"
    return file.read_text() if file.is_file() else ""


def files(*steps: int) -> list[str]:
    return [f"model.ckpt-{step}.{suffix}" for step in steps for suffix in CHECKPOINT]


def listed(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def pids(project: Project) -> list[int]:
    return [task["pid"] for task in project.status().values()]


# A run that is held


def test_a_run_outlives_the_commands_in_sessions_of_its_own(held):
    running = pids(held)
    assert [os.getsid(pid) for pid in running] == running
    assert all(os.getsid(held.supervisor(task)) == held.supervisor(task) for task in TASKS)


def test_status_shows_every_task_to_people_and_as_one_json_document(held):
    text, document = held.ok("status"), json.loads(held.ok("status", "--json"))
    assert text.startswith(f"run {held.runs[-1]}  release {document['release']}\n")
    assert (document["run"], document["errors"]) == (held.runs[-1], [])
    assert [(seen["task"], seen["state"]) for seen in document["tasks"]] == [
        (task, "READY") for task in TASKS
    ]
    for seen in document["tasks"]:
        task = seen["task"]
        assert re.search(rf"(?m)^{task} .*{seen['port']} .*{seen['pid']} +READY .*READY", text)


def test_logs_are_merged_behind_task_and_host(held):
    lines = held.ok("logs").splitlines()
    workers = list(held.hosts)[-1]
    assert f"worker:1@{workers} | worker:1 step 2" in lines
    assert {line.split("@")[0] for line in lines} == set(TASKS)


def test_logs_of_one_task_from_its_last_line(held):
    assert re.fullmatch(
        r"worker:1@\w+ \| worker:1 step 3\n", held.ok("logs", "worker:1", "-n", "1")
    )


def test_logs_of_an_unknown_task_are_refused_with_the_known(held):
    done = held.tf("logs", "worker:7")
    assert done.returncode == 2
    assert "ps:0, worker:0, worker:1" in done.stderr


def test_ctrl_c_ends_the_following_of_logs_and_no_task(held):
    running = pids(held)
    with held.begun("logs", "-f") as following:
        following.says("worker:1 step 3")
        assert following.interrupted() == 130
    assert "tfdeploy logs -f" in following.said
    assert all(alive(pid) for pid in running)


def test_a_tree_that_is_there_is_not_sent_again(held):
    before = {path: path.stat().st_mtime_ns for host in held.hosts for path in held.releases(host)}
    assert "was there already: " + ", ".join(held.hosts) in held.ok("push")
    after = {path: path.stat().st_mtime_ns for host in held.hosts for path in held.releases(host)}
    assert after == before


@ONCE
def test_a_changed_file_is_another_release_and_leaves_the_running_one_alone(world):
    project = world.project("--hold", hosts=alone(world))
    project.ok("push")
    project.ok("start")
    running = (project.work("worker:0") / "train.py").read_text()
    (project.folder / "train.py").write_text(running + "# changed\n")
    project.ok("push")
    assert (project.work("worker:0") / "train.py").read_text() == running
    assert all(len(project.releases(host)) == 2 for host in project.hosts)


def test_a_taken_port_is_refused_with_its_holder_and_nothing_starts_anywhere(held, world):
    taken = {name: dict(host) for name, host in held.hosts.items()}
    if "one" in taken:  # so that the first host could start what it is to start
        taken["one"]["ports"] = free_ports(2)
    other = world.pushed(hosts=taken)
    done = other.tf("start")
    assert done.returncode == 1
    sentence = r"port (\d+) is taken by (\S+) of run (\S+) of (\S+), (.*) \d+s ago"
    found = re.search(sentence, done.stderr)
    port, task, run, name, whose = found.groups()
    assert task in held.status()
    assert int(port) in {each for host in held.hosts.values() for each in host["ports"]}
    assert (run, name, whose) == (held.runs[-1], held.name, f"started by {getpass.getuser()}")
    assert other.processes() == {}


def test_collect_brings_the_newest_checkpoint_and_with_all_adds_the_others(held):
    assert "checkpoints/model.ckpt-3\n" in held.ok("collect")
    home = held.home / "checkpoints"
    assert listed(home) == ["checkpoint", *files(3)]
    assert state_lines(home) == ["model_checkpoint_path", "all_model_checkpoint_paths"]
    assert "model.ckpt-3 (and 2 older)" in held.ok("collect", "--all")
    assert listed(home) == ["checkpoint", *files(1, 2, 3)]
    names = re.findall(r'"(.*)"', (home / "checkpoint").read_text())
    assert names == ["model.ckpt-3", "model.ckpt-1", "model.ckpt-2", "model.ckpt-3"]
    assert all((home / name).read_text().endswith(f"step {name[11]}\n") for name in files(1, 2, 3))
    assert listed(held.home / "logs") == ["ps-0.log", "worker-0.log", "worker-1.log"]
    assert (held.home / "events/events.out.tfevents.1.host").read_bytes() == b"events"


def state_lines(home: Path) -> list[str]:
    return [line.partition(":")[0] for line in (home / "checkpoint").read_text().splitlines()]


@ONCE
def test_collect_as_json_is_one_document(held):
    document = json.loads(held.ok("collect", "--json"))
    assert document["run"] == held.runs[-1]
    assert document["folder"] == str(held.home)
    assert [(c["name"], c["step"]) for c in document["checkpoints"]] == [("model.ckpt-3", 3)]
    assert (document["events"], document["logs"]) == (1, 3)


def test_collect_goes_on_with_what_a_broken_one_left(held):
    incoming, home = held.home / ".incoming", held.home / "checkpoints"
    incoming.mkdir()
    for file in home.glob("model.ckpt-3.*") if home.is_dir() else ():
        file.unlink()
    (incoming / DATA).write_text("data-000")
    held.ok("collect")
    assert (home / DATA).read_text() == (held.work("worker:0") / "checkpoints" / DATA).read_text()
    assert not incoming.exists()


@ONCE
def test_collect_leaves_nothing_on_the_chiefs_host(held):
    before = listed(held.work("worker:0") / "checkpoints")
    held.ok("collect", "--all")
    assert listed(held.work("worker:0") / "checkpoints") == before


# From push to the end


@pytest.fixture(scope="module")
def ran(lasting) -> SimpleNamespace:
    """A run from push to its end, and what it said."""
    project = lasting.project()
    return SimpleNamespace(project=project, said=project.ok("run"), run=project.runs[-1])


def test_run_brings_everything_home_and_leaves_nothing_running(ran):
    assert re.search(rf"run {ran.run} (is READY|has started, .*): 3 tasks on", ran.said)
    assert "worker:1 step 3\n" in ran.said
    assert ran.said.endswith(f"run {ran.run} succeeded\n")
    home = ran.project.folder / "runs" / ran.run
    assert listed(home / "checkpoints") == ["checkpoint", *files(3)]
    assert listed(home / "logs") == ["ps-0.log", "worker-0.log", "worker-1.log"]
    assert ran.project.processes() == {}


@ONCE
def test_what_has_ended_is_shown_and_stopped_without_an_error(ran):
    states = [task["state"] for task in ran.project.status().values()]
    assert states == ["STOPPED", "SUCCEEDED", "SUCCEEDED"]
    assert "SUCCEEDED worker:0" in ran.project.ok("stop", "--run", ran.run)


@pytest.mark.slow
def test_a_second_run_right_after_the_first_is_another_run(ran):
    done = ran.project.tf("run", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document["run"] == ran.project.runs[-1] != ran.run
    assert (document["result"], document["exit"], document["error"]) == ("succeeded", 0, None)
    assert [document["tasks"][task] for task in TASKS] == ["STOPPED", "SUCCEEDED", "SUCCEEDED"]
    assert [c["step"] for c in document["checkpoints"]] == [3]
    assert "was there already" in done.stderr


@ONCE
def test_run_exits_as_the_chief_does_and_brings_home_what_there_is(world):
    project = world.pushed("--exit=7", "--stubborn", "--gate", hosts=alone(world))
    with project.begun("run") as running:
        running.says("is READY")
        (project.work("worker:0") / "go").touch()
        assert running.process.wait(timeout=30) == 7
    assert "worker:0 on" in running.said
    assert "it ended: exit 7" in running.said
    assert "| worker:0 step 3" in running.said
    assert "failed (exit 7)" in running.said
    assert (project.home / "checkpoints/model.ckpt-3.index").is_file()
    assert project.processes() == {}  # though the chief left two children


@ONCE
def test_run_ends_when_a_ps_fails_for_good(world):
    project = world.pushed("--hold", top={"restart": {"attempts": 0}})
    with project.begun("run") as running:
        running.says("step 3")
        os.kill(project.status()["ps:0"]["pid"], signal.SIGKILL)
        assert running.process.wait(timeout=30) == 1
    assert "error: ps:0 on" in running.said
    assert "it ended: killed by SIGKILL" in running.said
    assert "because of it ended worker:0 on" in running.said
    assert project.processes() == {}


@pytest.mark.slow
def test_run_goes_on_when_a_ps_falls_and_is_begun_again(world):
    project = world.pushed("--hold")
    with project.begun("run") as running:
        running.says("step 3")
        before = project.status()["ps:0"]["pid"]
        os.kill(before, signal.SIGKILL)
        running.says("BACKOFF   ps:0")
        until(lambda: project.status()["ps:0"]["state"] == "READY", "the ps again")
        after = project.status()
        assert after["ps:0"]["pid"] != before
        assert after["ps:0"]["restarts"] == 1
        assert after["ps:0"]["reason"] == "killed by SIGKILL; restart 1 of 10"
        assert running.interrupted() == 130


def test_ctrl_c_in_a_run_ends_the_following_and_no_task(world):
    project = world.pushed("--hold")
    with project.begun("run") as running:
        running.says("worker:0 step 3")
        assert running.interrupted() == 130
    assert f"run {project.runs[-1]} goes on" in running.said
    for way in ("logs -f", "status", "collect", "stop"):
        assert f"tfdeploy {way}" in running.said
    assert [task["state"] for task in project.status().values()] == ["READY"] * 3


@ONCE
def test_ctrl_c_before_all_is_ready_stops_what_had_started(world):
    project = world.pushed("--deaf=worker:1", "--hold")
    with project.begun("start") as starting:
        starting.says("READY     worker:0")
        assert starting.interrupted() == 130
    assert project.processes() == {}


# Refused, failed, lost


@pytest.mark.parametrize("command", ["status", "logs", "stop", "collect"])
def test_without_a_run_there_is_nothing_to_ask(tmp_path, command):
    project = Project(tmp_path / "p", {"here": {"transport": "local", "workers": 1}})
    done = project.tf(command)
    assert done.returncode == 2
    assert "no run was started" in done.stderr
    assert "tfdeploy run" in done.stderr


def test_a_script_that_dies_at_import_shows_its_last_words_and_leaves_nothing(world):
    project = world.pushed("--broken", "--who=worker:1")
    done = project.tf("start")
    assert done.returncode == 1
    assert "worker:1 on" in done.stderr
    assert "exit 1" in done.stderr
    assert "| ImportError: no module named nothing" in done.stderr
    assert project.processes() == {}
    assert "ImportError" in project.ok("logs", "worker:1")
    assert project.status()["worker:1"]["state"] == "FAILED"


@pytest.mark.slow
@ONCE
def test_tasks_that_never_answer_as_themselves_are_not_ready(world):
    flags = ("--deaf=worker:0", "--impostor=worker:1", "--hold")
    project = world.pushed(*flags, training={"ready_timeout_s": 2})
    done = project.tf("start")
    assert done.returncode == 1
    for task, health in (("worker:0", "NOT_LISTENING"), ("worker:1", "WRONG_TASK")):
        words = rf"{task} on \w+: it was not ready within 2 s: its port \d+ says {health}"
        assert re.search(words, done.stderr)
    assert "ps:0 on" not in done.stderr
    assert project.processes() == {}


@pytest.mark.slow
def test_stop_ends_what_ignores_sigterm_with_all_its_children(world):
    project = world.started("--stubborn", "--hold", "--who=worker:0")
    group = json.loads((project.work("worker:0") / "children.json").read_text())
    assert len([pid for pid in group if alive(pid)]) == 3
    assert f"nothing of run {project.runs[-1]} is left running" in project.ok("stop")
    assert not any(alive(pid) for pid in group)
    assert project.processes() == {}


@pytest.mark.slow
@ONCE
def test_stop_leaves_another_run_of_the_project_alone(world):
    project = world.started("--hold", hosts=alone(world))
    first = project.runs[-1]
    hosts = {name: {**h, "ports": free_ports(len(h["ports"]))} for name, h in project.hosts.items()}
    second = (project.folder / "hosts.toml").read_text().rpartition("hosts = ")[0]
    (project.folder / "second.toml").write_text(second + toml({"hosts": hosts}))
    project.ok("start", "--hosts", "second.toml")
    assert len(project.processes()) == 4
    stopped = project.ok("stop", "--hosts", "second.toml")
    assert f"nothing of run {first}" not in stopped
    assert [task["state"] for task in project.status().values()] == ["READY"]
    assert f"nothing of run {first} is left" in project.ok("stop", "--run", first)
    assert project.processes() == {}


@pytest.mark.slow
@ONCE
def test_a_killed_supervisor_takes_its_task_along_and_stop_cleans_up(world):
    project = world.started("--stubborn", "--hold", "--who=worker:1")
    group = json.loads((project.work("worker:1") / "children.json").read_text())
    os.kill(project.supervisor("worker:1"), signal.SIGKILL)
    until(lambda: not alive(group[0]), "the end of the task")
    seen = project.status()
    assert seen["worker:1"]["state"] == "LOST"
    assert seen["worker:1"]["reason"] == "its supervisor was killed"
    assert seen["worker:0"]["state"] == "READY"
    project.ok("stop")
    assert project.processes() == {}
    assert project.status()["worker:1"]["state"] == "STOPPED"


@pytest.mark.slow
def test_a_broken_push_is_completed_and_can_not_be_started_before(world):
    project = world.project()
    (project.folder / "data").write_bytes(b"x" * 100_000)
    release = json.loads(project.ok("plan", "--json"))["release"]["id"]
    for host in project.hosts:
        incoming = project.on(host) / "releases" / f".incoming-{release}"
        incoming.mkdir(parents=True)
        script = project.folder / "train.py"
        (incoming / "train.py").write_bytes(b"#" * script.stat().st_size)
        os.utime(incoming / "train.py", ns=(0, script.stat().st_mtime_ns))
        (incoming / "data").write_bytes(b"x" * 50_000)
        (incoming / "stranger").write_text("of a tree that has changed since")
    refused = project.tf("start")
    assert refused.returncode == 1
    assert f"release {release} is not on this host" in refused.stderr
    assert "tfdeploy push" in refused.stderr
    assert project.processes() == {}
    project.ok("push")
    for host in project.hosts:
        assert [path.name for path in project.releases(host)] == [release]
        for name in ("train.py", "data"):
            pushed = project.on(host) / "releases" / release / name
            assert pushed.read_bytes() == (project.folder / name).read_bytes()
        assert listed(project.on(host) / "releases" / release) == ["data", "train.py"]


# What may be collected


@ONCE
def test_only_whole_checkpoints_and_no_links_are_collected(world):
    project = world.started("--hold", hosts=alone(world))
    work = project.work("worker:0")
    until(lambda: "ckpt-3" in state_file(work), "the third checkpoint")
    shard = work / "checkpoints" / DATA
    shard.rename(shard.with_name("model.ckpt-3.data-00000-of-00002"))
    (work / "checkpoints/events.out.tfevents.2.host").symlink_to("/etc/passwd")
    assert "checkpoints/model.ckpt-2\n" in project.ok("collect")
    assert listed(project.home / "checkpoints") == ["checkpoint", *files(2)]
    assert listed(project.home / "events") == ["events.out.tfevents.1.host"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", ".", "new\nline", 7, None])
def test_a_path_that_a_host_may_not_name_is_refused(name, tmp_path):
    whole = {"name": "model", "files": [{"path": "model.index"}]}
    for found in ({**whole, "name": name}, {**whole, "files": [{"path": name}]}):
        with pytest.raises(AgentError, match="refused"):
            collect.refuse_tricks(SimpleNamespace(host="one"), {"checkpoints": [found]})
    with pytest.raises(AgentError, match="refused"):
        bring(SimpleNamespace(host="one"), "/", tmp_path, [name])
