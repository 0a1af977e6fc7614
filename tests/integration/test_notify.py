"""[notify]: whatever ends a run, the chief's host sends one summary of it, with no controller."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.ports import free_ports
from support.sshd import alive
from support.waiting import until
from support.webhook import BROKEN, Webhook, webhook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.projects import Project

    from .conftest import World

# It shows what it gets, in which directory it runs, and that it has what a task has.
NOTE = """
import json, os, pathlib, sys
found = {"env": dict(os.environ), "cwd": os.getcwd(), "files": sorted(os.listdir())}
found["pid"], found["summary"] = os.getpid(), json.load(sys.stdin)
note = pathlib.Path(sys.argv[1])
note.with_suffix(".new").write_text(json.dumps(found))
note.with_suffix(".new").rename(note.with_name(f"{note.name}{len(os.listdir(note.parent))}"))
print(*sys.argv[2:])
if "hang" in sys.argv:
    import time
    time.sleep(3000)
sys.exit("fail" in sys.argv)
"""


class Notes:
    """What the command NOTE of a project has got, in order."""

    def __init__(self, world: World, *flags: str, **more: Any) -> None:
        self.folder = world.base / f"notes-{time.monotonic_ns()}"
        self.folder.mkdir()
        notify = {key: [*self.command(), *words] for key, words in more.pop("notify").items()}
        self.project = world.project(*flags, top={"notify": notify}, **more)
        (self.project.folder / "note.py").write_text(NOTE)

    def command(self) -> list[str]:
        return ["python", "note.py", str(self.folder / "note")]

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob("note[0-9]*"))]

    def wait(self, count: int = 1) -> list[dict[str, Any]]:
        until(lambda: len(self.read()) >= count, f"notification {count}")
        return self.read()


def supervisor_log(project: Project) -> str:
    return (project.work("worker:0").parent / "supervisor.log").read_text()


def wait_for_log(project: Project, text: str) -> None:
    until(lambda: text in supervisor_log(project), text)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as server:
        yield server


def test_a_success_is_posted_once_and_no_failure(local, hook):
    notify = {"on_end": hook.url + "/end/{TOKEN}", "on_failure": hook.url + "/failure"}
    os.environ["TOKEN"] = "planted-t0ken"
    try:
        project = local.project(top={"notify": notify}, training={"secrets": ["TOKEN"]})
        project.ok("push")
        project.ok("start", "--name", "wide")
    finally:
        del os.environ["TOKEN"]
    until(lambda: hook.posts, "the post")
    until(lambda: project.processes() == {}, "the end of the run")
    wait_for_log(project, "notify.on_end: HTTP 200\n")
    ((path, kind, summary),) = hook.posts
    assert (path, kind) == ("/end/planted-t0ken", "application/json")
    assert (summary["result"], summary["exit"], summary["reason"]) == ("succeeded", 0, "")
    assert (summary["project"], summary["run"]) == (project.name, project.runs[-1])
    assert summary["restarts"] == {"ps:0": 0, "worker:0": 0, "worker:1": 0}
    assert (summary["hosts"], summary["checkpoint_step"]) == (["here"], 3)
    text = f"{project.name}: run wide ({project.runs[-1]}) succeeded after "
    assert (summary["name"], summary["text"][: len(text)]) == ("wide", text)
    assert summary["command"] == f"tfdeploy status --run {project.runs[-1]}"
    assert "planted" not in json.dumps(summary) + supervisor_log(project)


@pytest.mark.slow
def test_a_failure_starts_both_commands_in_the_chiefs_directory(local):
    notes = Notes(
        local, "--gate", "--exit=3", "--who=worker:1",
        notify={"on_end": ["end"], "on_failure": ["failure"]}, hosts=alone_with_workers(local),
    )  # fmt: skip
    project = notes.project
    project.ok("push")
    project.ok("start")
    (project.work("worker:1") / "go").touch()
    first, second = notes.wait(2)
    assert first["summary"] == second["summary"]
    summary, run = first["summary"], project.runs[-1]
    assert (summary["result"], summary["exit"]) == ("failed", 1)
    assert summary["reason"] == "worker:1 on here: it ended: exit 3, which is not retried"
    assert summary["command"] == f"tfdeploy logs --run {run}"
    assert first["cwd"] == str(project.work("worker:0"))
    assert {"train.py", "note.py"} <= {*first["files"]}
    assert first["env"]["TFDEPLOY_RUN"] == run
    assert "TFDEPLOY_TASK" not in first["env"]  # stop ends every process that has it
    wait_for_log(project, "notify.on_end: end\nnotify.on_failure: failure\n")


def alone_with_workers(local: World) -> dict[str, dict[str, Any]]:
    """Return a host without a ps, so that each worker depends on the other."""
    hosts = local.hosts()
    return {name: {**keys, "ps": 0} for name, keys in hosts.items()}


@pytest.mark.slow
def test_a_stop_is_an_end_and_no_failure_and_a_resume_ends_again(local):
    notes = Notes(local, "--hold", notify={"on_end": [], "on_failure": ["failure"]})
    project = notes.project
    project.ok("push")
    project.ok("start")
    project.ok("stop")
    (first,) = notes.wait()
    assert (first["summary"]["result"], first["summary"]["exit"]) == ("stopped", 143)
    assert first["summary"]["reason"].startswith("on request")
    project.ok("resume")
    project.ok("stop")
    _, second = notes.wait(2)
    assert second["summary"]["run"] == first["summary"]["run"]
    assert second["summary"]["started"] >= first["summary"]["ended"]


@pytest.mark.slow
def test_the_stop_within_a_resume_is_no_end(by_ssh):
    notes = Notes(by_ssh, "--hold", notify={"on_end": []}, hosts=with_spare(by_ssh))
    project = notes.project
    project.ok("push")
    project.ok("start")
    pid = project.supervisor("worker:0")
    project.ok("resume", "--without", "one")
    assert not alive(pid)
    assert notes.read() == []
    project.ok("stop")
    notes.wait()
    time.sleep(0.5)  # a second one would come at the same time
    assert [note["summary"]["result"] for note in notes.read()] == ["stopped"]


def with_spare(by_ssh: World) -> dict[str, dict[str, Any]]:
    """Return the two hosts and a spare one for the ps."""
    hosts = by_ssh.hosts()
    directory = str(Path(hosts["one"]["directory"]).with_name("three"))
    own = {"ps": 0, "spare": True, "directory": directory, "ports": free_ports(1)}
    spare = {**hosts["one"], **own}
    return {"one": hosts["one"], "three": spare, "two": hosts["two"]}


@pytest.mark.slow
def test_a_start_that_fails_is_no_end(local):
    """Its command says what is wrong."""
    notes = Notes(
        local, "--hold", "--deaf=worker:1", notify={"on_end": []}, training={"ready_timeout_s": 3}
    )  # fmt: skip
    notes.project.ok("push")
    assert notes.project.tf("start").returncode == 1
    assert notes.project.processes() == {}
    time.sleep(0.5)  # the time in which others came
    assert notes.read() == []


@pytest.mark.slow
def test_max_duration_ends_the_run_without_a_controller_and_is_no_failure(local):
    training = {"max_duration_s": 12}
    notes = Notes(local, "--hold", notify={"on_end": [], "on_failure": ["x"]}, training=training)
    notes.project.ok("push")
    notes.project.ok("start")
    (note,) = notes.wait()
    assert (note["summary"]["result"], note["summary"]["exit"]) == ("ended", 0)
    assert note["summary"]["reason"].startswith("max_duration_s (12 s) has passed")
    until(lambda: notes.project.processes() == {}, "the end of the supervisors")
    tasks = notes.project.status()
    assert {task["state"] for task in tasks.values()} == {"STOPPED"}
    assert tasks["worker:0"]["reason"].startswith("max_duration_s (12 s) has passed")


@pytest.mark.slow
def test_a_command_that_hangs_holds_nothing(local):
    notes = Notes(local, notify={"on_end": ["hang"]})
    project = notes.project
    project.ok("push")
    project.tf("run")
    (note,) = notes.wait()
    assert alive(note["pid"])
    assert project.processes() == {}  # its supervisor has ended
    project.ok("start")  # on the same ports
    project.ok("stop")
    assert alive(note["pid"])
    os.kill(note["pid"], 9)
    wait_for_log_of(project, project.runs[0], "notify.on_end failed: killed by signal 9")


def wait_for_log_of(project: Project, run: str, text: str) -> None:
    log = project.on("here") / "runs" / run / "worker-0" / "supervisor.log"
    until(lambda: text in log.read_text(), text)


@pytest.mark.slow
def test_status_shows_a_notification_that_failed(local, hook):
    notify = {"on_end": ["fail", "no", "mail"]}
    notes = Notes(local, "--hold", notify=notify)
    project = notes.project
    project.ok("push")
    project.ok("start")
    project.ok("stop")
    wait_for_log(project, "notify.on_end failed: exit 1: fail no mail")
    expected = "notify.on_end failed: exit 1 (see supervisor.log of worker:0 on here)"
    until(lambda: expected in project.ok("status"), expected)
    failed = webhook_of(project, hook.url + BROKEN)
    assert failed == "notify.on_end failed: HTTP 404 Not Found"


def webhook_of(project: Project, url: str) -> str:
    """Run the project once more with a webhook; return what `status --json` says of it."""
    project.top["notify"] = {"on_end": url}
    project.write()
    project.ok("start")
    project.ok("stop")

    def notice() -> str:
        return project.status()["worker:0"]["notice"]

    return until(notice, "the notice")


def test_a_program_that_does_not_exist_refuses_the_start(local):
    project = local.project(top={"notify": {"on_failure": "no-such-mailer x"}})
    project.ok("push")
    for command in ("check", "start"):
        refused = project.tf(command)
        assert refused.returncode == 1
        expected = "the program no-such-mailer of notify.on_failure is not on this host"
        assert expected in refused.stderr
    assert project.processes() == {}


def test_plan_does_not_show_the_path_of_a_webhook(local):
    project = local.project(top={"notify": {"on_end": "https://hooks.example.org/T0/SECRET"}})
    shown = project.ok("plan")
    assert "notify   on_end: https://hooks.example.org/***, by here\n" in shown
    assert "SECRET" not in shown + project.ok("plan", "--json")


def test_a_wrong_waiting_time_is_refused_before_the_push(local):
    project = local.project()
    assert project.tf("run", "--wait", "1").returncode == 2
    assert not project.on("here").exists()
