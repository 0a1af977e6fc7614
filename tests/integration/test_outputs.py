"""What tasks write is fetched complete and verified, and what is skipped is reported."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from support.chief import save
from support.host_outputs import ODD_NAMES
from support.ports import free_ports
from support.waiting import until

from tfdeploy.hosts.agent_session import BULK
from tfdeploy.output.results_output import MAX_FILE_LINES

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
    fresh = next(folder for folder in file.parents if folder.name == "work").with_name(file.name)
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
    assert not (work.parent / "held").exists()
    assert not list(project.run_folder.glob(".incoming-*"))


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


def name_newest(folder: Path, step: int) -> None:
    """Write a state file that names one checkpoint; all others stay, as after a restart."""
    (folder / "fresh").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    (folder / "fresh").replace(folder / "checkpoint")


@LOCAL_ONLY
@pytest.mark.parametrize(("checkpoint_dir", "size"), [("checkpoints", BULK), (".", 1)])
def test_a_checkpoint_that_is_also_an_output_is_stored_once(world, checkpoint_dir, size):
    """It is an output before the state file names it, and again when it names another."""
    options = {"checkpoint_dir": checkpoint_dir}
    flags = ("--steps=0", "--hold", f"--checkpoint_dir={checkpoint_dir}")
    project = world.pushed(*flags, hosts=workers(world, 1), training=options)
    project.ok("start")
    on_host = project.work("worker:0") / checkpoint_dir
    until(lambda: [*on_host.glob("events.*")], "what the chief itself writes")
    checkpoints = project.run_folder / "checkpoints"
    outputs = project.run_folder / "outputs" / checkpoint_dir
    for step in (1, 2, 3):
        save(on_host, step)
        with (on_host / f"model.ckpt-{step}.data-00000-of-00001").open("ab") as data:
            data.write(os.urandom(size))
    for newest in (3, 2):  # 2 is an output first, 3 afterwards
        name_newest(on_host, newest)
        project.ok("collect")
    sets = {step: [*on_host.glob(f"model.ckpt-{step}.*")] for step in (1, 2, 3)}
    assert not any((checkpoints / file.name).exists() for file in sets[1])
    for file in sets[2] + sets[3]:
        assert (checkpoints / file.name).samefile(outputs / file.name)
        assert (checkpoints / file.name).read_bytes() == file.read_bytes()
    project.ok("stop")
    assert "4 of 4" in project.ok("runs"), "events, the newest checkpoint, and two outputs"
    assert "nowhere else" not in project.ok("prune", "--keep", "0", "--dry-run")


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
    (project.run_folder / ".incoming-outputs-worker-0/export").mkdir(parents=True)
    (project.run_folder / ".incoming-outputs-worker-0/export/stray").write_text(
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


def test_files_with_odd_names_are_fetched_and_never_act_on_the_terminal(world):
    project = training(world, "--hold", training={"outputs_limit_mb": 1})
    odd = [os.fsdecode(name) for name in ODD_NAMES]
    for number, name in enumerate(odd):
        (project.work("worker:0") / name).write_text(str(number))
    output = project.ok("collect")
    fetched = project.run_folder / "outputs"
    assert [(fetched / name).read_text() for name in odd] == [str(n) for n in range(len(odd))]
    assert output.replace("\n", "").isprintable()


def test_a_suggested_command_fetches_a_file_with_an_odd_name_after_bash_has_read_it(world):
    project = training(world, "--hold", training={"outputs_limit_mb": 1})
    odd = [os.fsdecode(name) for name in ODD_NAMES]
    for number, name in enumerate(odd):
        (project.work("worker:0") / name).write_text("x" * (2_000_000 + number))
    output = project.ok("collect")
    suggested = [line.split("; ")[-1] for line in output.splitlines() if "outputs_limit" in line]
    assert len(suggested) == MAX_FILE_LINES
    for command in suggested:
        words = subprocess.run(
            ["bash", "-c", f'tfdeploy() {{ printf "%s\\0" "$@"; }}; {command}'],
            stdout=subprocess.PIPE,
            check=True,
        ).stdout.split(b"\0")[:-1]
        project.ok(*map(os.fsdecode, words))
    fetched = project.run_folder / "fetched/worker-0"
    sizes = {name: (fetched / name).stat().st_size for name in odd if (fetched / name).exists()}
    assert len(sizes) == MAX_FILE_LINES
    assert all(sizes[name] == 2_000_000 + odd.index(name) for name in sizes)


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


def program(world: Any, text: str, *words: str, count: int = 1, **more: Any) -> Project:
    """Return a project whose tasks run a program of one file."""
    training = {"command": ["python", "train.py", *words], "role": "tf_config", **more}
    project = world.project(hosts=workers(world, count), training=training)
    (project.folder / "train.py").write_text(text)
    return project


SAVES_ELSEWHERE = """
import os, pickle, subprocess, sys, tempfile
temporary, listed = sys.argv[1:]
with open(tempfile.mkdtemp(dir=temporary) + "/model.keras", "w") as file:
    file.write("weights")
with open(temporary + "/object.pkl", "wb") as file:
    pickle.dump("object", file)
subprocess.run(["sh", "-c", "echo text > command.txt"], cwd=temporary, check=True)
with tempfile.TemporaryFile(dir=temporary) as file:
    file.write(b"x")
os.makedirs(listed, exist_ok=True)
with open(listed + "/model.csv", "w") as file:
    file.write("weights")
"""


@LOCAL_ONLY
def test_what_the_program_saved_elsewhere_is_named_and_can_be_fetched(world):
    temporary, listed = world.base / "temporary", world.base / "listed"
    temporary.mkdir()
    (temporary / "of_another_program").write_text("x")
    words = (str(temporary), str(listed))
    project = program(world, SAVES_ELSEWHERE, *words, outputs=[str(listed)])
    output = project.ok("run")
    [model] = temporary.glob("*/model.keras")
    saved = [temporary / "command.txt", temporary / "object.pkl", model.parent]
    for path in saved:
        fetch = f"tfdeploy fetch worker:0 {path} --run {project.runs[-1]}"
        assert f"worker:0 on here saved in {path}, which is not fetched: {fetch}; " in output
        assert f"worker:0 on here saved in {path}: {fetch}\n" in project.ok("runs")
        project.ok(*fetch.split()[1:])
    assert output.count(" saved in ") == len(saved)
    assert collect(project)["elsewhere"] == [
        {"task": "worker:0", "host": "here", "path": str(path), "exists": True} for path in saved
    ]
    fetched = project.run_folder / "fetched/worker-0"
    assert (fetched / str(model)[1:]).read_text() == "weights"
    assert (fetched / str(temporary)[1:] / "command.txt").read_text() == "text\n"
    assert "saved in" not in project.ok("runs")


EVENTS_ELSEWHERE = """
import json, os, sys
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
os.makedirs(f"{sys.argv[1]}/{index}")
with open(f"{sys.argv[1]}/{index}/events.out.tfevents.1.host", "w") as file:
    file.write("events")
"""


@LOCAL_ONLY
def test_event_files_of_each_task_outside_of_its_directory_are_named(world):
    logs = world.base / "logs"
    logs.mkdir()
    project = program(world, EVENTS_ELSEWHERE, str(logs), count=2)
    output = project.ok("run")
    for index in (0, 1):
        fetch = f"tfdeploy fetch worker:{index} {logs}/{index} --run {project.runs[-1]}"
        assert f"worker:{index} on here saved in {logs}/{index}, which is not " in output
        assert f"{fetch}; " in output
        project.ok(*fetch.split()[1:])
        fetched = project.run_folder / f"fetched/worker-{index}{logs}/{index}"
        assert files(fetched) == {"events.out.tfevents.1.host"}
    last = f"run {project.runs[-1]} ended with exit 0; everything that it saved is on its host only"
    assert output.splitlines()[-1] == last


@LOCAL_ONLY
def test_a_program_that_leaves_its_directory_is_named(world):
    code = "import os, sys; os.chdir(sys.argv[1]); open('result.csv', 'w').write('1')"
    output = program(world, code, str(world.base)).ok("run")
    assert f"worker:0 on here saved in {world.base}/result.csv, which is not fetched" in output


@LOCAL_ONLY
def test_a_file_beside_the_tasks_directory_is_not_deleted_unasked(world):
    project = program(world, "open('../result.csv', 'w').write('1')")
    output = project.ok("run")
    file = project.work("worker:0").parent / "result.csv"
    assert f"saved in {file}, which is not fetched" in output
    refused = project.tf("prune", "--keep", "0")
    assert (refused.returncode, file.exists()) == (2, True)
    assert f"{file} of worker:0" in refused.stderr
    project.ok("fetch", "worker:0", str(file))
    project.ok("prune", "--keep", "0")
    assert not file.exists()


@LOCAL_ONLY
def test_an_absolute_folder_of_outputs_gives_only_what_the_run_wrote(world):
    models = world.base / "models"
    models.mkdir()
    (models / "old.csv").write_text("1")
    os.utime(models / "old.csv", (1, 1))
    code = "import sys; open(sys.argv[1] + '/new.csv', 'w').write('2')"
    project = program(world, code, str(models), outputs=[str(models)])
    project.ok("run")
    assert files(project.run_folder / "outputs") == {f"{models}/new.csv"[1:]}


@LOCAL_ONLY
def test_fetch_says_that_a_task_has_written_nothing(world):
    project = program(world, "pass")
    project.ok("run")
    refused = project.tf("fetch", "worker:0", ".")
    assert refused.returncode == 2
    assert "worker:0 on here has written no file" in refused.stderr


# During the training


def test_attach_fetches_a_file_each_time_it_changes(world):
    project = training(world, "--gate")
    file, copy = project.work("worker:0") / "best.keras", project.run_folder / "outputs/best.keras"
    with project.start_command("attach", "--quiet") as following:
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
    project = training(world, "--hold")
    work, folder = project.work("worker:0"), project.run_folder / "outputs"
    with project.start_command("attach", "--quiet"):
        for number in range(8):
            write_keras(work / f"{number}.keras")
            until(lambda: (folder / f"{number}.keras").is_file(), "the file")  # noqa: B023
            if number:
                (work / f"{number - 1}.keras").unlink()
        # When the last one was fetched, 6.keras was still on the host.
        left = {f"{number}.keras" for number in range(1, 8)}
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
    first_start, begin = work["one"].with_name("launch.json"), work["two"].with_name("started")
    assert begin.stat().st_mtime <= first_start.stat().st_mtime < work["two"].stat().st_ctime
    assert (work["two"] / "backup/_CHECKPOINT_METADATA").is_file()
    assert [*work["two"].parent.glob("incoming-*")] == []
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
folder, printed = pathlib.Path("checkpoints"), set()
def saved():
    for file in folder.glob("**/*.keras"):
        yield f"{file} {zipfile.ZipFile(file).read('model.weights.h5')[:5]}"
    if (folder / "checkpoint").exists():
        newest = (folder / "checkpoint").read_text().split('"')[1]
        files = [folder / f"{newest}.{part}" for part in ("data-00000-of-00001", "index", "meta")]
        yield f"{newest} {[file.read_text() for file in files]}"
while len(printed) < 4:
    for line in set(saved()) - printed:
        print(line, flush=True)
        printed.add(line)
    time.sleep(0.05)
"""


def test_an_evaluator_on_another_host_finds_each_model_and_checkpoint_of_the_chief(by_ssh):
    hosts = two_hosts(by_ssh, evaluator=True)
    evaluator = {"command": ["python", "evaluate.py"]}
    project = by_ssh.project("--steps=0", "--gate", hosts=hosts, training={"evaluator": evaluator})
    (project.folder / "evaluate.py").write_text(EVALUATE)
    project.ok("push")
    project.ok("start")
    chief = work_folders(project)["one"]
    log = project.log_file("two", "evaluator:0")

    def until_evaluated(line: str) -> None:
        until(lambda: f"{line}\n" in log.read_text(), line, log.read_text)

    for text in ("first", "later"):
        write_keras(chief / "checkpoints/best.keras", text)
        until_evaluated(f"checkpoints/best.keras {text.encode()}")
    for step in (7, 9):
        save(chief / "checkpoints", step)
        until_evaluated(f"model.ckpt-{step} ['data {step} 0', 'index {step}', 'meta {step}']")
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
    assert not (work.parent / "held").exists()


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
    (project.work("worker:0") / "away").symlink_to(project.folder / "train.py")
    link = project.tf("fetch", "worker:0", "away").stderr
    assert "worker:0 on here: away is a link, which fetch does not follow, to /" in link
    os.mkfifo(project.work("worker:0") / "pipe")
    special = project.tf("fetch", "worker:0", "pipe").stderr
    assert "worker:0 on here: pipe is a FIFO, which fetch cannot fetch" in special
    skipped = next(line for line in project.ok("collect").splitlines() if " pipe of " in line)
    assert skipped.endswith("it is a FIFO")
    command = link.rpartition("to fetch it: tfdeploy ")[2]
    assert "fetched 1 file" in project.ok(*shlex.split(command))
