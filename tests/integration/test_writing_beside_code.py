"""A program may write beside its own file: that is its task's output, and of no other run."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import namespaces
from support.ports import free_ports
from support.waiting import until

if TYPE_CHECKING:
    from support.projects import Project

pytestmark = pytest.mark.slow
LOCAL_ONLY = pytest.mark.parametrize("lasting", ["local"], indirect=True)

# Like many a research script: everything is beside its own file.
SCRIPT = """\
import os, sys, time
from pathlib import Path
import helper

here = os.path.dirname(os.path.abspath(__file__))
task = os.environ["TASK_NAME"]
print("found", open("config.json").read(), open(Path(helper.__file__).parent / "note").read())
print("imports", sys.path[0] == here, Path(__file__).resolve().parent == Path(here))
os.makedirs(os.path.join(here, "out"), exist_ok=True)
print("before", sorted(os.listdir(os.path.join(here, "out"))))
with open(os.path.join(here, "out", "model-%s.pt" % len(os.listdir(here + "/out"))), "w") as file:
    file.write("weights of " + task)
with open(__file__, "a") as file:
    file.write("# written by " + task + "\\n")
while not os.path.exists("go"):
    time.sleep(0.05)
sys.exit(int(open("go").read() or 0))
"""
SOURCE = {
    "src/train.py": SCRIPT, "src/helper.py": "", "src/note": "a note", "config.json": "0",
    "run.sh": "#!/bin/sh\ncd src && exec python3 train.py\n",
}  # fmt: skip


def project_of(world: Any, count: int = 1, **more: Any) -> Project:
    """Return a project whose program is src/train.py, on one host."""
    name, host = list(world.hosts().items())[-1]
    hosts = {name: {**host, "ps": 0, "workers": count, "ports": free_ports(count + 1)}}
    training = {"command": ["python", "src/train.py"], "ready": "process", "role": "tf_config",
                "role_env": {"TASK_NAME": "{task}"}}  # fmt: skip
    project: Project = world.project(hosts=hosts, training={**training, **more})
    for path, text in SOURCE.items():
        (project.folder / path).parent.mkdir(exist_ok=True)
        (project.folder / path).write_text(text)
    (project.folder / "run.sh").chmod(0o755)
    return project


def wrote(project: Project, task: str = "worker:0") -> list[str]:
    """Wait until a task has written; return the files of its folder src."""
    src = project.work(task) / "src"
    until(lambda: "written by worker" in (src / "train.py").read_text(), "what the program writes")
    return sorted(os.listdir(src / "out"))


def end(project: Project, code: str = "", tasks: tuple[str, ...] = ("worker:0",)) -> None:
    for task in tasks:
        (project.work(task) / "go").write_text(code)
    state = "FAILED" if code else "SUCCEEDED"
    until(lambda: {t["state"] for t in project.status().values()} == {state}, state)


def release(project: Project) -> Path:
    return next(iter(project.releases(next(iter(project.hosts)))))


def texts(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text()
            for path in folder.rglob("*") if path.is_file()}  # fmt: skip


def test_what_a_program_writes_beside_its_file_comes_home_and_prune_loses_nothing(world):
    project = project_of(world)
    project.ok("start", "--push")
    assert wrote(project) == ["model-0.pt"]
    before = texts(release(project))
    end(project)
    refused = project.tf("prune", "--keep", "0")
    assert refused.returncode == 2
    assert "src/out/model-0.pt of worker:0" in refused.stderr
    output = project.ok("collect")
    outputs = project.run_folder / "outputs"
    assert f"output {outputs}/src/out/model-0.pt (" in output
    assert sorted(texts(outputs)) == ["go", "src/out/model-0.pt", "src/train.py"]
    assert (outputs / "src/out/model-0.pt").read_text() == "weights of worker:0"
    assert texts(release(project)) == before == {
        path: text for path, text in texts(project.folder).items()
        if path in before
    }  # fmt: skip
    log = project.ok("logs", "worker:0")
    assert "found 0 a note" in log
    assert "imports True True" in log
    assert project.tf("prune", "--keep", "0").returncode == 0
    assert sorted(texts(outputs)) == ["go", "src/out/model-0.pt", "src/train.py"]


@LOCAL_ONLY
def test_tasks_of_one_host_do_not_see_what_the_others_write(world):
    tasks = ("worker:0", "worker:1")
    project = project_of(world, 2, outputs=["*"], worker={"outputs": ["*"]})
    project.ok("start", "--push")
    for task in tasks:
        assert wrote(project, task) == ["model-0.pt"]
    end(project, tasks=tasks)
    project.ok("collect")
    found = texts(project.run_folder / "outputs")
    assert sorted(text for path, text in found.items() if path.endswith("model-0.pt")) == [
        f"weights of {task}" for task in tasks
    ]


@LOCAL_ONLY
def test_a_restart_and_a_resume_keep_what_was_written(world):
    project = project_of(world)
    project.ok("start", "--push")
    assert wrote(project) == ["model-0.pt"]
    (project.work("worker:0") / "go").write_text("7")
    until(lambda: project.status()["worker:0"]["state"] in ("FAILED", "BACKOFF"), "the failure")
    (project.work("worker:0") / "go").unlink()
    project.tf("stop")
    project.ok("resume")
    until(lambda: len(wrote(project)) == 2, "the second start")
    assert wrote(project) == ["model-0.pt", "model-1.pt"]
    assert "before ['model-0.pt']" in project.ok("logs", "worker:0")
    source = (project.work("worker:0") / "src/train.py").read_text()
    assert source.count("written by worker") == 2
    end(project)


@LOCAL_ONLY
@pytest.mark.parametrize(
    "command", ["sh run.sh", "./run.sh", "python -m src.train", "python src/train.py"]
)
def test_every_way_to_start_a_program_finds_its_files(world, command):
    project = project_of(world, command=command)
    (project.folder / "src/train.py").write_text(
        "import os, pathlib\n"
        "here = pathlib.Path(__file__).resolve().parent\n"
        "(here / 'model.pt').write_text((here / 'note').read_text())\n"
        "print('in', os.getcwd())\n"
    )
    project.ok("start", "--push")
    until(lambda: project.status()["worker:0"]["state"] == "SUCCEEDED", "the end")
    project.ok("collect")
    assert texts(project.run_folder / "outputs") == {"src/model.pt": "a note"}


@LOCAL_ONLY
def test_a_release_that_was_changed_on_a_host_is_sent_again(world):
    project = project_of(world)
    host = next(iter(project.hosts))
    project.ok("push")
    file = release(project) / "src/train.py"
    file.chmod(0o644)
    file.write_text("raise SystemExit('changed on the host')\n")
    refused = project.tf("start")
    assert "was changed on this host: src/train.py" in refused.stderr
    again = project.tf("push")
    assert again.returncode == 0
    id_ = release(project).name
    note = f"release {id_} was changed on {host}, and is sent again: src/train.py"
    assert note in again.stdout + again.stderr
    assert file.read_text() == SCRIPT
    (kept,) = file.parent.glob("train.py.changed-*")
    assert "changed on the host" in kept.read_text()
    assert note not in project.ok("push")
    project.ok("start")
    assert wrote(project) == ["model-0.pt"]
    end(project)


@LOCAL_ONLY
def test_a_resume_sends_a_release_again_that_was_changed(world):
    project = project_of(world)
    project.ok("start", "--push")
    assert wrote(project) == ["model-0.pt"]
    project.ok("stop")
    file = release(project) / "src/helper.py"
    file.parent.chmod(0o755)
    file.unlink()
    source = project.folder / "config.json"
    source.write_text("[]")
    refused = project.tf("resume")
    host = next(iter(project.hosts))
    assert f"was changed on {host} (src/helper.py), and " in refused.stderr
    source.write_text("0")
    project.ok("resume")
    assert file.read_text() == ""
    end(project)


@LOCAL_ONLY
def test_a_data_set_that_a_program_changed_is_repaired_and_its_file_stays(world):
    shell = ["sh", "-c", "chmod u+w data/set data/set/a; echo more >> data/set/a; "
             "echo cache > data/set/cache"]  # fmt: skip
    project = project_of(world, command=shell)
    project.top["data"] = {"data/set": {"path": "elsewhere"}}
    (project.folder / ".gitignore").write_text("elsewhere\n")
    (project.folder / "elsewhere").mkdir()
    (project.folder / "elsewhere/a").write_text("one")
    project.write()
    project.ok("start", "--push")
    until(lambda: project.status()["worker:0"]["state"] == "SUCCEEDED", "the end")
    assert "cache" in project.ok("collect")
    host = next(iter(project.hosts))
    (version,) = project.on(host).glob("releases/data-set-*")
    assert "is sent again: a" in project.tf("push").stderr
    assert (version / "a").read_text() == "one"
    assert (version / "cache").read_text() == "cache\n"
    assert len(list(version.glob("a.changed-*"))) == 1
    project.tf("prune", "--keep", "0", "--yes")
    (project.folder / "elsewhere/a").write_text("two")
    project.ok("push")
    project.tf("prune", "--keep", "1", "--yes")
    assert (version / "cache").exists()


@LOCAL_ONLY
def test_the_json_of_a_run_names_what_was_written_beside_the_code(world):
    project = project_of(world)
    project.ok("start", "--push")
    wrote(project)
    end(project)
    document = json.loads(project.ok("collect", "--json"))
    assert "src/out/model-0.pt" in json.dumps(document)


HOSTS = """\
project = "mine"
[training]
command = "python src/train.py"
role = "tf_config"
role_env = {TASK_NAME = "{task}"}
ready = "process"
[hosts.gpu-01]
user = "bob"
python = "/usr/bin/python3"
directory = "/home/bob/tf"
workers = 1
"""


@pytest.mark.skipif(not namespaces.is_possible(), reason="needs root, iproute2 and sshd")
def test_a_user_who_is_not_root_may_write_beside_the_code():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # sshd reads the authorized keys as the user
        machines = namespaces.Machines(folder, ["gpu-01"])
        try:
            (folder / "keys").chmod(0o755)
            on_host = machines.enter("gpu-01", "/")
            subprocess.run([*on_host, "install", "-d", "-o", "bob", "/home/bob"], check=True)
            home = machines.home(namespaces.LAPTOP)
            for path, text in {**SOURCE, "hosts.toml": HOSTS}.items():
                (home / "mine" / path).parent.mkdir(parents=True, exist_ok=True)
                (home / "mine" / path).write_text(text.replace('"go"', '"config.json"'))
            laptop = machines.enter(namespaces.LAPTOP, f"{namespaces.HOME}/mine")
            subprocess.run([*laptop, "tfdeploy", "trust"], check=True)
            done = subprocess.run([*laptop, "tfdeploy", "run"], capture_output=True, text=True)
            assert "Permission denied" not in done.stdout + done.stderr
            (outputs,) = (home / "mine/runs").glob("*/outputs")
            assert sorted(texts(outputs)) == ["src/out/model-0.pt", "src/train.py"]
            find = ["find", "/home/bob/tf/mine/releases", "-type", "f", "-writable"]
            found = subprocess.run([*on_host, "setpriv", "--reuid=bob", "--clear-groups", *find],
                                   capture_output=True, text=True, check=True)  # fmt: skip
            assert found.stdout == ""
        finally:
            machines.end()
