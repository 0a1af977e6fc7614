"""Every command through the real command line, over both transports, with a stub trainer."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from support.ports import free_ports
from support.projects import Project, toml
from support.sshd import alive
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

TASKS = ["ps:0", "worker:0", "worker:1"]
DATA = "model.ckpt-3.data-00000-of-00001"
CHECKPOINT = ["data-00000-of-00001", "index", "meta"]


# What happens on a host does not depend on the transport: tested on the faster one only.
LOCAL_ONLY = pytest.mark.parametrize("lasting", ["local"], indirect=True)


def one_worker(world) -> dict:
    """Return hosts with one worker, for tests that need no more."""
    return {"here": {**world.hosts()["here"], "ps": 0, "workers": 1}}


@pytest.fixture(scope="module")
def active(lasting) -> Project:
    """A run that continues after its third checkpoint; no other test has a project of its name."""
    project = lasting.project("--steps=3", "--hold")
    project.ok("push")
    project.ok("start")
    until(lambda: "ckpt-3" in state_file(project.work("worker:0")), "the third checkpoint")
    for task in ("worker:0", "worker:1"):
        log = project.work(task).parents[1] / "logs" / f"{task.replace(':', '-')}.log"
        until(lambda: f"{task} step 3\n" in log.read_text(), f"the last line of {task}")  # noqa: B023
    return project


def state_file(work: Path) -> str:
    file = work / "checkpoints/checkpoint"
    return file.read_text() if file.is_file() else ""


def files(*steps: int) -> list[str]:
    return [f"model.ckpt-{step}.{suffix}" for step in steps for suffix in CHECKPOINT]


LOGS = [
    f"{task}.{kind}"
    for task in ("ps-0", "worker-0", "worker-1")
    for kind in ("history.jsonl", "log")
]


def listed(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def pids(project: Project) -> list[int]:
    return [task["pid"] for task in project.status().values()]


# An active run


def test_tasks_and_supervisors_run_in_sessions_of_their_own(active):
    running = pids(active)
    assert [os.getsid(pid) for pid in running] == running
    assert all(os.getsid(active.supervisor(task)) == active.supervisor(task) for task in TASKS)


def test_status_shows_every_task_as_text_and_as_one_json_document(active):
    text, document = active.ok("status", "--exit-code"), json.loads(active.ok("status", "--json"))
    header = f"run {active.runs[-1]}  release {document['release']}  network guarded\n"
    assert text.startswith(header)
    assert (document["run"], document["errors"]) == (active.runs[-1], [])
    assert [(status["task"], status["state"]) for status in document["tasks"]] == [
        (task, "READY") for task in TASKS
    ]
    for status in document["tasks"]:
        task = status["task"]
        assert re.search(rf"(?m)^{task} .*{status['port']} .*{status['pid']} +READY .*READY", text)


def test_logs_are_merged_with_task_and_host_as_prefix(active):
    lines = active.ok("logs").splitlines()
    workers = list(active.hosts)[-1]
    assert f"worker:1@{workers} | worker:1 step 2" in lines
    assert {line.split("@")[0] for line in lines} == set(TASKS)


def test_logs_can_show_the_last_line_of_one_task(active):
    assert re.fullmatch(
        r"worker:1@\w+ \| worker:1 step 3\n", active.ok("logs", "worker:1", "-n", "1")
    )


def test_logs_of_a_job_are_those_of_all_its_tasks(active):
    lines = active.ok("logs", "worker", "-n", "1").splitlines()
    assert sorted(line.split("@")[0] for line in lines) == ["worker:0", "worker:1"]


def test_logs_of_an_unknown_task_are_refused_with_the_list_of_tasks(active):
    done = active.tf("logs", "worker:7")
    assert done.returncode == 2
    assert "ps:0, worker:0, worker:1" in done.stderr


def test_ctrl_c_stops_following_logs_and_no_task(active):
    running = pids(active)
    with active.start_command("logs", "-f") as following:
        following.wait_for_output("worker:1 step 3")
        assert following.interrupt() == 130
    assert "tfdeploy logs -f" in following.output
    assert all(alive(pid) for pid in running)


def test_push_does_not_send_a_release_that_the_host_has(active):
    before = {
        path: path.stat().st_mtime_ns for host in active.hosts for path in active.releases(host)
    }
    assert "is already on " + ", ".join(active.hosts) in active.ok("push")
    after = {
        path: path.stat().st_mtime_ns for host in active.hosts for path in active.releases(host)
    }
    assert after == before


@LOCAL_ONLY
def test_a_changed_file_makes_another_release_and_does_not_change_the_running_one(world):
    project = world.project("--hold", hosts=one_worker(world))
    project.ok("push")
    project.ok("start")
    running = (project.work("worker:0") / "train.py").read_text()
    (project.folder / "train.py").write_text(running + "# changed\n")
    project.ok("push")
    assert (project.work("worker:0") / "train.py").read_text() == running
    assert all(len(project.releases(host)) == 2 for host in project.hosts)


def test_a_port_in_use_is_refused_with_its_owner_and_nothing_starts(active, world):
    taken = {name: dict(host) for name, host in active.hosts.items()}
    if "one" in taken:  # only the second host refuses; the first could start its tasks
        taken["one"]["ports"] = free_ports(2)
    other = world.pushed(hosts=taken)
    done = other.tf("start")
    assert done.returncode == 1
    sentence = r"port (\d+) is taken by (\S+) of run (\S+) of (\S+), (.*) \d+\w ago"
    found = re.search(sentence, done.stderr)
    port, task, run, name, starter = found.groups()
    assert task in active.status()
    assert int(port) in {each for host in active.hosts.values() for each in host["ports"]}
    assert (run, name, starter) == (active.runs[-1], active.name, f"started by {getpass.getuser()}")
    assert other.processes() == {}


def test_collect_fetches_the_newest_checkpoint_and_with_all_the_others(active):
    assert "checkpoints/model.ckpt-3\n" in active.ok("collect")
    checkpoints = active.run_folder / "checkpoints"
    assert listed(checkpoints) == ["checkpoint", *files(3)]
    assert state_lines(checkpoints) == ["model_checkpoint_path", "all_model_checkpoint_paths"]
    assert "model.ckpt-3 (and 2 older)" in active.ok("collect", "--all")
    assert listed(checkpoints) == ["checkpoint", *files(1, 2, 3)]
    names = re.findall(r'"(.*)"', (checkpoints / "checkpoint").read_text())
    assert names == ["model.ckpt-3", "model.ckpt-1", "model.ckpt-2", "model.ckpt-3"]
    assert all(
        (checkpoints / name).read_text().endswith(f"step {name[11]}\n") for name in files(1, 2, 3)
    )
    assert listed(active.run_folder / "logs") == LOGS
    assert (active.run_folder / "events/events.out.tfevents.1.host").read_bytes() == b"events"


def state_lines(checkpoints: Path) -> list[str]:
    return [
        line.partition(":")[0] for line in (checkpoints / "checkpoint").read_text().splitlines()
    ]


@LOCAL_ONLY
def test_collect_as_json_is_one_document(active):
    document = json.loads(active.ok("collect", "--json"))
    assert document["run"] == active.runs[-1]
    assert document["folder"] == str(active.run_folder)
    assert [(c["name"], c["step"]) for c in document["checkpoints"]] == [("model.ckpt-3", 3)]
    assert (document["events"], document["logs"]) == (1, 3)


def test_collect_continues_an_interrupted_collect(active):
    incoming, checkpoints = active.run_folder / ".incoming", active.run_folder / "checkpoints"
    incoming.mkdir()
    for file in checkpoints.glob("model.ckpt-3.*") if checkpoints.is_dir() else ():
        file.unlink()
    (incoming / DATA).write_text("data-000")
    active.ok("collect")
    assert (checkpoints / DATA).read_text() == (
        active.work("worker:0") / "checkpoints" / DATA
    ).read_text()
    assert not incoming.exists()


@LOCAL_ONLY
def test_collect_leaves_nothing_on_the_chiefs_host(active):
    before = listed(active.work("worker:0") / "checkpoints")
    active.ok("collect", "--all")
    assert listed(active.work("worker:0") / "checkpoints") == before


# From push to the end


@pytest.fixture(scope="module")
def finished(lasting) -> SimpleNamespace:
    """A run from push to its end, and the output of the command."""
    project = lasting.project("--gate")
    return SimpleNamespace(project=project, output=run_to_end(project), run=project.runs[-1])


def run_to_end(project: Project, *words: str) -> str:
    """Run `tfdeploy run WORDS`, and return what it prints. The chief ends last: after its end the
    other workers have only a few seconds."""
    with project.start_command("run", *words) as running:
        running.wait_for_output("is READY")
        (project.work("worker:1") / "go").touch()
        running.wait_for_output("SUCCEEDED worker:1")
        (project.work("worker:0") / "go").touch()
        assert running.process.wait() == 0, running.output
    return running.output


def test_run_collects_everything_and_leaves_no_process(finished):
    assert re.search(rf"run {finished.run} (is READY|has started, .*): 3 tasks on", finished.output)
    assert "worker:1 step 3\n" in finished.output
    assert finished.output.endswith(f"run {finished.run} succeeded\n")
    folder = finished.project.folder / "runs" / finished.run
    assert listed(folder / "checkpoints") == ["checkpoint", *files(3)]
    assert listed(folder / "logs") == LOGS
    assert finished.project.processes() == {}


@LOCAL_ONLY
def test_a_run_that_has_ended_can_be_shown_and_stopped(finished):
    states = [task["state"] for task in finished.project.status().values()]
    assert states == ["STOPPED", "SUCCEEDED", "SUCCEEDED"]
    assert "SUCCEEDED worker:0" in finished.project.ok("stop", "--run", finished.run)


def test_a_second_run_right_after_the_first_is_another_run(finished):
    output = run_to_end(finished.project, "--json")
    document = json.loads(output[output.index("\n{") :])
    assert document["run"] == finished.project.runs[-1] != finished.run
    assert (document["result"], document["exit"], document["error"]) == ("succeeded", 0, None)
    assert [document["tasks"][task] for task in TASKS] == ["STOPPED", "SUCCEEDED", "SUCCEEDED"]
    assert [c["step"] for c in document["checkpoints"]] == [3]
    assert "is already on" in output


@LOCAL_ONLY
def test_run_exits_with_the_chiefs_exit_code_and_collects_what_exists(world):
    project = world.pushed("--exit=7", "--stubborn", "--gate", hosts=one_worker(world))
    with project.start_command("run") as running:
        running.wait_for_output("is READY")
        (project.work("worker:0") / "go").touch()
        assert running.process.wait() == 7
    assert "worker:0 on" in running.output
    assert "it ended: exit 7" in running.output
    assert "| worker:0 step 3" in running.output
    assert "failed (exit 7)" in running.output
    assert (project.run_folder / "checkpoints/model.ckpt-3.index").is_file()
    assert project.processes() == {}  # although the chief left two children


@LOCAL_ONLY
def test_run_ends_when_a_ps_fails_permanently(world):
    project = world.pushed("--hold", top={"restart": {"attempts": 0}})
    with project.start_command("run") as running:
        running.wait_for_output("step 3")
        os.kill(project.status()["ps:0"]["pid"], signal.SIGKILL)
        assert running.process.wait() == 1
    assert "error: ps:0 on" in running.output
    assert "it ended: killed by SIGKILL" in running.output
    assert "it caused the end of worker:0 on" in running.output
    assert project.processes() == {}


@LOCAL_ONLY
def test_ctrl_c_before_all_tasks_are_ready_stops_them(world):
    training = {"ready_timeout_s": 600}
    project = world.pushed("--deaf=worker:1", "--hold", training=training)
    with project.start_command("start") as starting:
        starting.wait_for_output("READY     worker:0")
        assert starting.interrupt() == 130
    assert project.processes() == {}


# Refusals, failures, losses


@pytest.mark.parametrize("command", ["status", "logs", "stop", "collect"])
def test_commands_about_a_run_are_refused_if_there_is_none(tmp_path, command):
    project = Project(tmp_path / "p", {"here": {"transport": "local", "workers": 1}})
    done = project.tf(command)
    assert done.returncode == 2
    assert "no run was started" in done.stderr
    assert "tfdeploy run" in done.stderr


def test_a_script_that_fails_at_import_shows_the_end_of_its_log_and_leaves_no_process(world):
    project = world.pushed("--broken", "--who=worker:1")
    done = project.tf("start")
    assert done.returncode == 1
    assert "worker:1 on" in done.stderr
    assert "exit 1" in done.stderr
    assert "| ImportError: no module named nothing" in done.stderr
    assert project.processes() == {}
    assert "ImportError" in project.ok("logs", "worker:1")
    assert project.status()["worker:1"]["state"] == "FAILED"


@LOCAL_ONLY
def test_tasks_that_do_not_listen_or_answer_as_another_task_are_not_ready(world):
    flags = ("--deaf=worker:0", "--impostor=worker:1", "--hold")
    project = world.pushed(*flags, training={"ready_timeout_s": 15})
    done = project.tf("start")
    assert done.returncode == 1
    for task, health in (("worker:0", "NOT_LISTENING"), ("worker:1", "WRONG_TASK")):
        words = rf"{task} on \w+: not READY within 15 s; port \d+ is {health}"
        assert re.search(words, done.stderr)
    assert "ps:0 on" not in done.stderr
    assert project.processes() == {}


def test_stop_ends_a_task_that_ignores_sigterm_and_its_children(world):
    project = world.started("--stubborn", "--hold", "--who=worker:0")
    group = json.loads((project.work("worker:0") / "children.json").read_text())
    assert len([pid for pid in group if alive(pid)]) == 3
    assert f"all processes of run {project.runs[-1]} have exited" in project.ok("stop")
    assert not any(alive(pid) for pid in group)
    assert project.processes() == {}
    assert project.tf("status", "--exit-code").returncode == 3


@LOCAL_ONLY
def test_stop_does_not_stop_another_run_of_the_project(world):
    project = world.started("--hold", hosts=one_worker(world))
    first = project.runs[-1]
    hosts = {name: {**h, "ports": free_ports(len(h["ports"]))} for name, h in project.hosts.items()}
    second = (project.folder / "hosts.toml").read_text().rpartition("hosts = ")[0]
    (project.folder / "second.toml").write_text(second + toml({"hosts": hosts}))
    project.ok("start", "--hosts", "second.toml")
    assert len(project.processes()) == 4
    stopped = project.ok("stop", "--hosts", "second.toml")
    assert f"all processes of run {first}" not in stopped
    assert [task["state"] for task in project.status().values()] == ["READY"]
    assert f"all processes of run {first} have exited" in project.ok("stop", "--run", first)
    assert project.processes() == {}


@LOCAL_ONLY
def test_a_task_ends_with_its_killed_supervisor_and_stop_cleans_up(world):
    project = world.started("--stubborn", "--hold", "--who=worker:1")
    group = json.loads((project.work("worker:1") / "children.json").read_text())
    os.kill(project.supervisor("worker:1"), signal.SIGKILL)
    until(lambda: not alive(group[0]), "the end of the task")
    tasks = project.status()
    assert tasks["worker:1"]["state"] == "LOST"
    assert tasks["worker:1"]["reason"] == "its supervisor was killed"
    assert tasks["worker:0"]["state"] == "READY"
    project.ok("stop")
    assert project.processes() == {}
    assert project.status()["worker:1"]["state"] == "STOPPED"


def test_an_interrupted_push_is_completed_and_can_not_be_started_before(world):
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


# What collect accepts


@LOCAL_ONLY
def test_only_complete_checkpoints_and_no_links_are_collected(world):
    project = world.started("--hold", hosts=one_worker(world))
    work = project.work("worker:0")
    until(lambda: "ckpt-3" in state_file(work), "the third checkpoint")
    shard = work / "checkpoints" / DATA
    shard.rename(shard.with_name("model.ckpt-3.data-00000-of-00002"))
    (work / "checkpoints/events.out.tfevents.2.host").symlink_to("/etc/passwd")
    assert "checkpoints/model.ckpt-2\n" in project.ok("collect")
    assert listed(project.run_folder / "checkpoints") == ["checkpoint", *files(2)]
    assert listed(project.run_folder / "events") == ["events.out.tfevents.1.host"]
