"""What tasks write is fetched complete and verified, and what is skipped is reported."""

from __future__ import annotations

import json
import os
import shlex
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from support.ports import free_ports
from support.waiting import until

from tfdeploy.transfer.fetch import BULK

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

    from support.projects import Project

LOCAL_ONLY = pytest.mark.parametrize("lasting", ["local"], indirect=True)


def workers(world: Any, count: int) -> dict[str, dict[str, Any]]:
    name, host = list(world.hosts().items())[-1]
    return {name: {**host, "ps": 0, "workers": count, "ports": free_ports(count + 1)}}


def training(world: Any, *flags: str, count: int = 1, **more: Any) -> Project:
    """Start tasks that save no checkpoint; the test writes their files."""
    project = world.pushed("--steps=0", *flags, hosts=workers(world, count), **more)
    project.ok("start")
    events = project.work("worker:0") / "checkpoints/events.out.tfevents.1.host"
    until(events.is_file, "what the chief itself writes")
    return project


def write_keras(file: Path, text: str = "weights") -> bytes:
    """Write a model in one step, so that no part of it counts as an output of its own."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".tfdeploy-{file.name}")  # not an output
    with zipfile.ZipFile(fresh, "w") as archive:
        archive.writestr("model.weights.h5", text * 100)
    content = fresh.read_bytes()
    fresh.replace(file)
    return content


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def collect(project: Project) -> dict[str, Any]:
    return json.loads(project.ok("collect", "--json"))


def test_everything_that_the_chief_wrote_is_fetched_with_its_content(world):
    project = training(world, "--hold")
    work = project.work("worker:0")
    content = write_keras(work / "checkpoints/best.keras")
    (work / "pl ots").mkdir()
    (work / "pl ots/loss's.png").write_bytes(b"picture")
    (work / "large.bin").write_bytes(os.urandom(BULK + 1))
    output = project.ok("collect")
    folder = project.run_folder / "outputs"
    assert files(folder) == {"checkpoints/best.keras", "pl ots/loss's.png", "large.bin"}
    assert (folder / "checkpoints/best.keras").read_bytes() == content
    assert (folder / "large.bin").read_bytes() == (work / "large.bin").read_bytes()
    assert f"output {folder}/checkpoints/best.keras (" in output
    assert f"3 outputs (8.4 MB) in {folder}\n" in output
    assert not (work / ".tfdeploy-outputs").exists()
    assert not (project.run_folder / ".incoming-outputs/worker-0").exists()


@LOCAL_ONLY
def test_only_new_files_are_fetched_again(world):
    project = training(world, "--hold")
    work, folder = project.work("worker:0"), project.run_folder / "outputs"
    (work / "a.csv").write_text("1")
    (work / "b.csv").write_text("1")
    project.ok("collect")
    inode = (folder / "a.csv").stat().st_ino
    (work / "b.csv").write_text("12")
    output = project.ok("collect")
    assert ("b.csv" in output, "a.csv" in output) == (True, False)
    assert (folder / "b.csv").read_text() == "12"
    assert (folder / "a.csv").stat().st_ino == inode


@LOCAL_ONLY
def test_a_broken_file_is_reported_and_the_older_good_one_stays(world):
    project = training(world, "--hold")
    file, copy = project.work("worker:0") / "best.keras", project.run_folder / "outputs/best.keras"
    content = write_keras(file)
    project.ok("collect")
    file.write_bytes(content[:-20])
    output = project.ok("collect")
    assert copy.read_bytes() == content
    assert (
        f"skipped on here: best.keras of worker:0 ({len(content) - 20} B): not fetched: "
        "BadZipFile: File is not a zip file; tfdeploy fetch worker:0 best.keras --run "
    ) in output
    [left] = collect(project)["left"]
    assert (left["path"], left["size"]) == ("best.keras", len(content) - 20)


@LOCAL_ONLY
def test_a_folder_is_replaced_as_a_whole(world):
    project = training(world, "--hold")
    work, folder = project.work("worker:0") / "export", project.run_folder / "outputs/export"
    work.mkdir()
    (work / "_CHECKPOINT_METADATA").write_text("1")
    (work / "old").write_text("1")
    project.ok("collect")
    assert files(folder) == {"_CHECKPOINT_METADATA", "old"}
    (work / "old").rename(work / "new")
    (project.run_folder / ".incoming-outputs/worker-0/export").mkdir(parents=True)
    (project.run_folder / ".incoming-outputs/worker-0/export/stray").write_text(
        "of an interrupted collect"
    )
    project.ok("collect")
    assert files(folder) == {"_CHECKPOINT_METADATA", "new"}


@LOCAL_ONLY
def test_a_file_above_the_limit_is_skipped_and_reported(world):
    project = training(world, "--hold", training={"outputs_limit_mb": 1})
    work = project.work("worker:0")
    for age, (name, size) in enumerate([("new", 600_000), ("old", 500_000), ("small", 10)]):
        (work / name).write_bytes(bytes(size))
        os.utime(work / name, ns=(10**18 - age, 10**18 - age))
    output = project.ok("collect")
    assert files(project.run_folder / "outputs") == {"new", "small"}
    assert (
        "skipped on here: old of worker:0 (500.0 kB): outputs_limit_mb = 1; tfdeploy fetch"
        in output
    )


def test_of_other_jobs_the_files_that_their_outputs_select_are_fetched(world):
    """worker:0 is the chief, to which the outputs of its job apply as well."""
    project = training(
        world, "--hold", count=2, training={"worker": {"outputs": ["*.csv", "!draft*"]}}
    )
    for task in ("worker:0", "worker:1"):
        (project.work(task) / f"{task[-1]}.csv").write_text(task)
        (project.work(task) / "draft.csv").write_text(task)
    output = project.ok("collect")
    assert files(project.run_folder / "outputs") == {"0.csv", "worker-1/1.csv"}
    assert "2 files (16 B) of worker:0, worker:1 skipped: no `outputs`" in output


@LOCAL_ONLY
def test_run_fetches_outputs_and_lists_them_in_json(world):
    project = world.project("--steps=0", "--gate", hosts=workers(world, 1))
    with project.start_command("run", "--json") as running:
        until(lambda: project.hosts and list(project.on("here").glob("runs/*/*/work")), "start")
        write_keras(project.work("worker:0") / "model.keras")
        (project.work("worker:0") / "go").touch()
        assert running.process.wait() == 0
    text = running.output
    document = json.loads(text[text.index("\n{") :])
    assert {output["path"] for output in document["outputs"]} == {"model.keras", "go"}
    assert (document["left"], document["others"]) == ([], [])


@LOCAL_ONLY
def test_run_says_if_the_run_wrote_nothing(world):
    command = ["python", "-c", "print('nothing')"]
    project = world.project(hosts=workers(world, 1), training={"command": command})
    output = project.ok("run")
    assert output.endswith(
        f"run {project.runs[-1]} ended with exit 0 and wrote nothing: "
        "no checkpoint, no output, no event file\n"
    )


@LOCAL_ONLY
def test_a_file_name_with_escape_sequences_is_neither_stored_nor_printed_and_can_be_renamed(world):
    project = training(world, "--hold")
    name = os.fsdecode(b"\x1b[31mred\n'\t\xff")
    (project.work("worker:0") / name).write_text("x")
    output = project.ok("collect")
    quoted = r"$'\033[31mred\012\047\011\377'"
    assert (
        f"skipped on here: {quoted} of worker:0 (1 B): its name is not allowed on the controller; "
        f"rename it: tfdeploy exec worker:0 --run {project.runs[-1]} -- mv {quoted} NAME"
    ) in output
    assert not (project.run_folder / "outputs").exists()
    project.ok("exec", "worker:0", "--", "mv", name, "red")
    project.ok("collect")
    assert (project.run_folder / "outputs/red").read_text() == "x"


WRITES_MANY = """
import os
os.makedirs("out")
for number in range(3_000):
    with open("out/{}.json".format(number), "w") as file:
        file.write(str(number))
"""


@LOCAL_ONLY
def test_thousands_of_small_outputs_come_home_and_prune_asks_nothing(world):
    command = ["python", "-c", WRITES_MANY]
    project = world.project(hosts=workers(world, 1), training={"command": command})
    project.ok("push")
    assert "3000 outputs" in project.ok("run")
    folder = project.run_folder / "outputs/out"
    contents = {file.stem: file.read_text() for file in folder.iterdir()}
    assert contents == {str(number): str(number) for number in range(3_000)}
    assert "3000 of 3000" in project.ok("runs")
    project.ok("prune", "--keep", "0")


@LOCAL_ONLY
def test_a_chief_that_deletes_its_directory_is_named(world):
    command = ["python", "-c", "import os, shutil; shutil.rmtree(os.getcwd())"]
    project = world.project(hosts=workers(world, 1), training={"command": command})
    assert (
        "worker:0 on here deleted its own directory, with everything that it wrote there"
        in project.ok("run")
    )


KERAS = """
import os
def save_model(model, filepath):
    os.makedirs(os.path.dirname(filepath), exist_ok=True)
    with open(filepath, "w") as file:
        file.write(model)
"""
SAVES_ELSEWHERE = """
import sys, tempfile
from keras.src.saving import saving_api
saving_api.save_model("weights", tempfile.mkdtemp(dir=sys.argv[1]) + "/model.keras")
saving_api.save_model("weights", sys.argv[2] + "/model.keras")
"""


@LOCAL_ONLY
def test_what_the_program_saved_elsewhere_is_named_and_can_be_fetched(world):
    """With a stand-in for Keras: the hook finds Keras by the names of its modules."""
    temporary, listed = world.base / "temporary", world.base / "listed"
    temporary.mkdir()
    command = ["python", "train.py", str(temporary), str(listed)]
    options = {"command": command, "outputs": [str(listed)], "role": "tf_config"}
    project = world.project(hosts=workers(world, 1), training=options)
    (project.folder / "train.py").write_text(SAVES_ELSEWHERE)
    saving = project.folder / "keras/src/saving"
    saving.mkdir(parents=True)
    for folder in (saving, saving.parent, saving.parent.parent):
        (folder / "__init__.py").touch()
    (saving / "saving_api.py").write_text(KERAS)
    output = project.ok("run")
    [model] = temporary.glob("*/model.keras")
    fetch = f"tfdeploy fetch worker:0 {model} --run {project.runs[-1]}"
    assert f"worker:0 on here saved in {model}, which is not fetched: {fetch}; " in output
    assert f"saved in {listed}" not in output
    [saved] = collect(project)["elsewhere"]
    assert saved == {"task": "worker:0", "host": "here", "path": str(model), "exists": True}
    project.ok(*fetch.split()[1:])
    assert (project.run_folder / f"fetched/worker-0{model}").read_text() == "weights"


# During the training


def test_collect_follow_fetches_a_file_each_time_it_changes(world):
    project = training(world, "--gate")
    file, copy = project.work("worker:0") / "best.keras", project.run_folder / "outputs/best.keras"
    with project.start_command("collect", "--follow") as following:
        for text in ("first", "second"):
            content = write_keras(file, text)
            until(lambda: copy.is_file() and copy.read_bytes() == content, f"the {text} model")  # noqa: B023
        file.write_bytes(content[:-20])
        (project.work("worker:0") / "later.csv").write_text("1")
        following.wait_for_output("outputs/later.csv (1 B)\n")
        assert copy.read_bytes() == content
        (project.work("worker:0") / "go").touch()
        assert following.process.wait() == 0
    assert following.output.count("output ") == 3
    assert "skipped on" in following.output


@LOCAL_ONLY
def test_of_files_that_the_chief_removes_the_newest_stay_on_the_controller(world):
    project = training(world, "--hold", training={"keep_checkpoints": 2})
    work, folder = project.work("worker:0"), project.run_folder / "outputs"
    with project.start_command("collect", "--follow"):
        for number in range(5):
            write_keras(work / f"{number}.keras")
            until(lambda: (folder / f"{number}.keras").is_file(), "the file")  # noqa: B023
            if number:
                (work / f"{number - 1}.keras").unlink()
        # When the last one was fetched, 3.keras was still on the host.
        left = {f"{number}.keras" for number in (1, 2, 3, 4)}
        until(lambda: files(folder) == left, "the oldest is gone")


# A run that continues


def two_hosts(world: Any, **more: Any) -> dict[str, dict[str, Any]]:
    """Return the chief's host, and another one."""
    (one, first), (two, second) = world.hosts().items()
    ports = [free_ports(2), free_ports(2)]
    chief = {**first, "ps": 0, "workers": 1, "ports": ports[0]}
    return {one: chief, two: {**second, "workers": 0, "ports": ports[1], **more}}


def work_folders(project: Project) -> dict[str, Path]:
    """Return worker:0's directory on each host."""
    run = project.runs[-1]
    return {host: project.on(host) / "runs" / run / "worker-0/work" for host in project.hosts}


def test_a_chief_on_another_host_finds_the_files_of_the_earlier_chief(by_ssh):
    """Only from the controller: the earlier chief's host is not used."""
    project = by_ssh.pushed("--steps=0", "--hold", hosts=two_hosts(by_ssh, spare=True))
    project.ok("start")
    work = work_folders(project)
    content = write_keras(work["one"] / "checkpoints/best.keras")
    (work["one"] / "backup").mkdir()
    (work["one"] / "backup/_CHECKPOINT_METADATA").write_text("1")
    project.ok("collect")
    project.ok("stop")
    output = project.ok("resume", "--without", "one")
    assert "its chief's files backup, checkpoints/best.keras\n" in output
    assert (work["two"] / "checkpoints/best.keras").read_bytes() == content
    assert (work["two"] / "backup/_CHECKPOINT_METADATA").is_file()
    assert not (work["two"] / ".tfdeploy-delivered").exists()
    write_keras(work["two"] / "checkpoints/best.keras", "newer")
    project.ok("stop")
    assert "checkpoints/best.keras" in project.ok("resume")
    assert (work["two"] / "checkpoints/best.keras").read_bytes() != content


def test_a_new_chief_finds_the_replicas_of_files_from_a_lost_host(by_ssh):
    """Nothing was collected: only a replica exists."""
    hosts = two_hosts(by_ssh, workers=1)
    spare = {"directory": str(by_ssh.base / "hosts/three"), "ports": free_ports(2)}
    hosts["three"] = {**hosts["two"], **spare, "workers": 0, "spare": True}
    project = by_ssh.pushed("--steps=0", "--hold", hosts=hosts, training={"replicas": 1})
    project.ok("start")
    work = work_folders(project)
    copy = project.on("two") / "runs" / project.runs[-1] / "replica-outputs/work"
    content = write_keras(work["one"] / "checkpoints/best.keras")
    until(lambda: (copy / "checkpoints/best.keras").is_file(), "the copy")
    project.ok("stop")
    output = project.ok("resume", "--without", "one")
    assert "its chief's files checkpoints/best.keras\n" in output
    chief = json.loads(project.ok("plan", "--json"))["chief"]
    placed = {task["task"]: task["host"] for task in project.status().values()}
    assert (work[placed[chief]] / "checkpoints/best.keras").read_bytes() == content


# An evaluator

EVALUATE = """
import pathlib, time, zipfile
printed = set()
while len(printed) < 2:
    for file in pathlib.Path("checkpoints").glob("**/*.keras"):
        line = f"{file} {zipfile.ZipFile(file).read('model.weights.h5')[:5]}"
        if line not in printed:
            print(line, flush=True)
            printed.add(line)
    time.sleep(0.05)
"""


def test_an_evaluator_on_another_host_finds_each_keras_file_of_the_chief(by_ssh):
    hosts = two_hosts(by_ssh, evaluator=True)
    evaluator = {"command": ["python", "evaluate.py"]}
    project = by_ssh.project("--steps=0", "--gate", hosts=hosts, training={"evaluator": evaluator})
    (project.folder / "evaluate.py").write_text(EVALUATE)
    project.ok("push")
    project.ok("start")
    chief = work_folders(project)["one"]
    for text in ("first", "later"):
        write_keras(chief / "checkpoints/best.keras", text)
        line = f"checkpoints/best.keras {text.encode()}\n"
        until(lambda: line in project.ok("logs", "evaluator:0"), f"the {text} model")  # noqa: B023
    (chief / "go").touch()
    until(lambda: project.status()["evaluator:0"]["state"] == "SUCCEEDED", "the evaluator's end")


# Any file of any task


def test_fetch_fetches_any_file_or_folder_of_any_task(world):
    project = training(world, "--hold", count=2, training={"outputs": []})
    work = project.work("worker:1")
    content = write_keras(work / "models/a.keras")
    (work / "models/b.keras").write_bytes(content[:50])
    (work / "models/1/variables").mkdir(parents=True)
    (work / "models/1/variables/x").write_text("x")
    folder = project.run_folder / "fetched/worker-1"
    output = project.ok("fetch", "worker:1", "models/a.keras", f"{work}/models/1")
    assert files(folder) == {"models/a.keras", "models/1/variables/x"}
    assert output.endswith(f"fetched 2 files ({len(content) + 1} B) into {folder}\n")
    project.ok("fetch", "worker-1", "models/b.keras")
    assert (folder / "models/b.keras").read_bytes() == content[:50]
    assert not (work / ".tfdeploy-outputs").exists()


@LOCAL_ONLY
def test_fetch_refuses_a_missing_file_and_lists_existing_ones(world):
    project = training(world, "--hold")
    (project.work("worker:0") / "model.keras").write_text("x")
    done = project.tf("fetch", "worker:0", "model.keras", "best.keras")
    assert done.returncode == 2
    assert (
        "error: worker:0 on here has no file best.keras; the nearest existing folder has: "
        "checkpoints, model.keras, train.py"
    ) in done.stderr
    assert not (project.run_folder / "fetched").exists()
    assert "there is no task worker:7" in project.tf("fetch", "worker:7", "x").stderr
    release = project.tf("fetch", "worker:0", "train.py").stderr
    assert "worker:0 on here: train.py is a link, which fetch does not follow, to /" in release
    command = release.rpartition("to fetch it: tfdeploy ")[2]
    assert "fetched 1 file" in project.ok(*shlex.split(command))
