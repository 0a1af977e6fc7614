"""A task's event files are found wherever it writes them, and no other task's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfdeploy.agent import event_files, paths, records
from unit.made import launch

NAME = "events.out.tfevents.1.host"


def started(checkpoint_dir="checkpoints", **changes):
    """Its directory, as a start leaves it."""
    order = launch(checkpoint_dir=checkpoint_dir, **changes)
    task_dir = paths.task("p", "r", order.task)
    Path(paths.work(task_dir)).mkdir(parents=True)
    records.write(paths.launch(task_dir), records.to_json(order))
    return Path(paths.work(task_dir))


def write(*files):
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")


def told(task="worker:0"):
    return event_files.events("p", "r", task)["folders"]


def test_they_are_told_by_where_it_saves_and_by_its_directory(root):
    work = started()
    saves = work / "checkpoints"
    write(work / NAME, work / "logs" / NAME, saves / NAME, saves / "eval" / NAME, saves / "other")
    assert told() == {
        f"{saves}": [f"eval/{NAME}", NAME],
        f"{work}": [NAME, f"logs/{NAME}"],
    }


@pytest.mark.parametrize("where", [".", "./", "deep/er"])
def test_none_is_told_twice(root, where):
    work = started(where)
    write(work / "deep" / "er" / NAME)
    assert [len(names) for names in told().values()] == [1]


def test_an_absolute_folder_is_looked_into_as_well(root, tmp_path):
    work = started(os.fspath(tmp_path / "shared"))
    write(work / NAME, tmp_path / "shared" / NAME)
    assert told() == {os.fspath(tmp_path / "shared"): [NAME], f"{work}": [NAME]}


def test_an_absolute_folder_is_the_chiefs_alone_to_tell_of(root, tmp_path):
    work = started(os.fspath(tmp_path / "shared"), index=1)
    write(work / NAME, tmp_path / "shared" / NAME)
    assert told("worker:1") == {f"{work}": [NAME]}


def test_links_and_pipes_are_none(root, tmp_path):
    work = started()
    write(tmp_path / "release" / NAME)
    (work / "release").symlink_to(tmp_path / "release")
    (work / NAME).symlink_to(tmp_path / "release" / NAME)
    os.mkfifo(work / f"{NAME}.pipe")
    assert told() == {}


@pytest.mark.parametrize(
    ("link", "own", "chiefs"),
    [("../../worker-0/work/checkpoints", 1, 2), ("../../replica", 2, 1)],
)
def test_an_evaluator_tells_what_it_writes_and_not_what_the_chief_does(root, link, own, chiefs):
    chief, work = started(), started(job="evaluator")
    (work / "checkpoints").symlink_to(link)
    (work / link).mkdir(parents=True, exist_ok=True)
    write(chief / "checkpoints" / NAME, work / "checkpoints" / "eval" / NAME, work / "own" / NAME)
    counts = [sum(map(len, told(task).values())) for task in ("evaluator:0", "worker:0")]
    assert counts == [own, chiefs]


def test_a_task_that_was_never_started_tells_of_none(root):
    assert told() == {}
