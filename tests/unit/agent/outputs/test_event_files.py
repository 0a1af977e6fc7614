"""A task's event files are found wherever it writes them, and no other task's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.builders import make_launch
from support.releases import write_manifest

from tfdeploy.agent import paths
from tfdeploy.agent.outputs import event_files
from tfdeploy.agent.releases import work_directory
from tfdeploy.shared import records

NAME = "events.out.tfevents.1.host"


def start_task(checkpoint_dir="checkpoints", **changes):
    """Create a task as a start does; return its directory."""
    task_launch = make_launch(checkpoint_dir=checkpoint_dir, **changes)
    task_dir = paths.task("p", "r", task_launch.task)
    Path(paths.work(task_dir)).mkdir(parents=True)
    records.write(paths.launch(task_dir), records.to_json(task_launch))
    return Path(paths.work(task_dir))


def write(*files):
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")


def event_folders(task="worker:0"):
    return event_files.events("p", "r", task).folders


def test_event_files_of_the_release_are_not_the_tasks(root, release):
    write(release / "logs" / NAME, release / "logs" / ("other" + NAME))
    write_manifest(release)
    work = start_task()
    work_directory.fill(make_launch(checkpoint_dir="checkpoints"), os.fspath(work))
    assert event_folders() == {}
    (work / "logs" / NAME).write_text("more events")
    assert event_folders() == {os.fspath(work): [f"logs/{NAME}"]}


def test_event_files_are_listed_by_checkpoint_directory_and_work_directory(root):
    work = start_task()
    saves = work / "checkpoints"
    write(work / NAME, work / "logs" / NAME, saves / NAME, saves / "eval" / NAME, saves / "other")
    assert event_folders() == {
        f"{saves}": [f"eval/{NAME}", NAME],
        f"{work}": [NAME, f"logs/{NAME}"],
    }


@pytest.mark.parametrize("where", [".", "./", "deep/er"])
def test_no_event_file_is_listed_twice(root, where):
    work = start_task(where)
    write(work / "deep" / "er" / NAME)
    assert [len(names) for names in event_folders().values()] == [1]


def test_an_absolute_checkpoint_directory_is_listed(root, tmp_path):
    work = start_task(os.fspath(tmp_path / "shared"))
    write(work / NAME, tmp_path / "shared" / NAME)
    assert event_folders() == {os.fspath(tmp_path / "shared"): [NAME], f"{work}": [NAME]}


def test_an_absolute_checkpoint_directory_is_listed_only_by_the_chief(root, tmp_path):
    work = start_task(os.fspath(tmp_path / "shared"), index=1)
    write(work / NAME, tmp_path / "shared" / NAME)
    assert event_folders("worker:1") == {f"{work}": [NAME]}


def test_links_and_pipes_are_not_listed(root, tmp_path):
    work = start_task()
    write(tmp_path / "release" / NAME)
    (work / "release").symlink_to(tmp_path / "release")
    (work / NAME).symlink_to(tmp_path / "release" / NAME)
    os.mkfifo(work / f"{NAME}.pipe")
    assert event_folders() == {}


@pytest.mark.parametrize(
    ("link", "own", "chiefs"),
    [("../../worker-0/work/checkpoints", 1, 2), ("../../replica", 2, 1)],
)
def test_an_evaluator_does_not_list_the_chiefs_event_files(root, link, own, chiefs):
    chief, work = start_task(), start_task(job="evaluator")
    (work / "checkpoints").symlink_to(link)
    (work / link).mkdir(parents=True, exist_ok=True)
    write(chief / "checkpoints" / NAME, work / "checkpoints" / "eval" / NAME, work / "own" / NAME)
    counts = [sum(map(len, event_folders(task).values())) for task in ("evaluator:0", "worker:0")]
    assert counts == [own, chiefs]


def test_a_task_that_was_never_started_has_no_event_files(root):
    assert event_folders() == {}
