"""The copies of a run's checkpoints on one host, and how its next chief gets one of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tfdeploy.agent import checkpoints, copies, paths, replicas, state_file
from unit.test_checkpoints import save

RUN = ("p", "r")
CHIEF = "worker:0"


def saves(task=CHIEF, checkpoint_dir="checkpoints"):
    """The checkpoint directory of a task."""
    folder = Path(paths.work(paths.task("p", "r", task)), checkpoint_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def replica():
    folder = Path(replicas.folder("p", "r"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def newest(*tasks, checkpoint_dir="checkpoints"):
    return copies.newest(*RUN, [*tasks], checkpoint_dir)["copies"]


def steps(found):
    return [copy["step"] for copy in found]


def texts(folder):
    return {path.name: path.read_text() for path in Path(folder).iterdir() if path.is_file()}


# Found


def test_where_nothing_was_ever_saved_there_is_no_copy(root):
    assert newest(CHIEF) == []
    saves()
    assert newest(CHIEF) == []


def test_the_newest_of_the_task_and_of_the_replica_are_found(root):
    save(saves(), 7)
    save(saves(), 20, keep=[7])
    save(replica(), 19)
    found = newest(CHIEF)
    assert steps(found) == [20, 19]
    assert [copy["name"] for copy in found] == ["model.ckpt-20", "model.ckpt-19"]
    assert [(file["path"], file["size"]) for file in found[0]["files"]] == [
        ("model.ckpt-20.data-00000-of-00001", 9), ("model.ckpt-20.index", 8),
        ("model.ckpt-20.meta", 7),
    ]  # fmt: skip


def test_a_run_that_was_resumed_may_have_had_another_chief(root):
    save(saves("chief:0"), 7)
    save(saves("worker:0"), 3)
    save(saves("worker:1"), 99)
    assert steps(newest("worker:0", "chief:0")) == [3, 7]


def test_a_place_that_is_one_for_all_tasks_is_looked_at_once(root, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    save(shared, 7)
    assert steps(newest("worker:0", "chief:0", checkpoint_dir=os.fspath(shared))) == [7]


def test_a_set_that_is_not_whole_is_no_copy(root):
    save(saves(), 1)
    save(saves(), 7, keep=[1])
    (saves() / "model.ckpt-7.index").unlink()
    assert steps(newest(CHIEF)) == [1]


def test_what_was_found_holds_still_until_it_is_let_go(root):
    save(saves(), 7)
    save(replica(), 3)
    found = newest(CHIEF)
    for folder in (saves(), replica()):
        for file in folder.glob("model*"):
            file.unlink()
    for copy in found:
        assert texts(copy["folder"])[f"model.ckpt-{copy['step']}.index"] == f"index {copy['step']}"
    copies.unhold(*RUN, [CHIEF], "checkpoints")
    assert not any(os.path.exists(copy["folder"]) for copy in found)


def test_letting_go_of_nothing_is_no_error(root):
    assert copies.unhold(*RUN, [CHIEF], "checkpoints") == {}


def test_the_task_itself_and_collect_see_nothing_of_it(root):
    save(saves(), 7)
    before = texts(saves())
    newest(CHIEF)
    assert texts(saves()) == before
    assert {path.name for path in saves().iterdir() if path.is_dir()} == {copies.PIN}
    assert copies.PIN not in (checkpoints.PIN, replicas.PIN)


# Handed over


def arrived(step, task=CHIEF):
    """A checkpoint that came from afar, whole, as `receive` said where."""
    incoming = Path(copies.receive(*RUN, task, "checkpoints")["incoming"])
    assert [*incoming.iterdir()] == []
    save(incoming, step)
    (incoming / "checkpoint").unlink()


def adopted(step, source="", task=CHIEF):
    assert copies.adopt(*RUN, task, "checkpoints", f"model.ckpt-{step}", source) == {}
    return state_file.read(os.fspath(saves(task)))


def test_what_has_arrived_becomes_the_newest_checkpoint(root):
    arrived(7)
    assert adopted(7) == ["model.ckpt-7"]
    assert texts(saves())["model.ckpt-7.data-00000-of-00001"] == "data 7 0"
    assert [path for path in saves().iterdir() if path.is_dir()] == []


def test_it_is_the_newest_before_those_that_were_there(root):
    save(saves(), 3)
    save(saves(), 20, keep=[3])
    arrived(7)
    assert adopted(7)[0] == "model.ckpt-7"
    held = checkpoints.hold(os.fspath(saves()), os.fspath(saves() / "held"), True)
    assert {found["step"] for found in held} == {3, 7, 20}


def test_what_a_broken_try_left_is_no_part_of_it(root):
    arrived(3)
    arrived(7)
    adopted(7)
    assert not (saves() / "model.ckpt-3.index").exists()


def test_what_has_only_arrived_in_part_is_not_seen(root):
    arrived(7)
    assert state_file.read(os.fspath(saves())) == []
    assert newest(CHIEF) == []


def test_a_copy_of_the_same_host_is_taken_from_where_it_lies(root):
    save(replica(), 7)
    [found] = newest(CHIEF)
    assert adopted(7, found["folder"], "chief:0") == ["model.ckpt-7"]
    assert texts(saves("chief:0"))["model.ckpt-7.index"] == "index 7"
    assert state_file.read(os.fspath(replica())) == ["model.ckpt-7"]


def test_a_chiefs_own_copy_may_become_its_own_again(root):
    save(saves(), 7)
    [found] = newest(CHIEF)
    assert adopted(7, found["folder"]) == ["model.ckpt-7"]
    assert steps(newest(CHIEF)) == [7]


@pytest.mark.parametrize("checkpoint_dir", ["deep/below", "{tmp}/absolute"])
def test_the_checkpoints_may_lie_anywhere(root, tmp_path, checkpoint_dir):
    where = checkpoint_dir.replace("{tmp}", os.fspath(tmp_path))
    incoming = Path(copies.receive(*RUN, CHIEF, where)["incoming"])
    save(incoming, 7)
    (incoming / "checkpoint").unlink()
    copies.adopt(*RUN, CHIEF, where, "model.ckpt-7", "")
    assert steps(newest(CHIEF, checkpoint_dir=where)) == [7]


def test_what_arrives_is_closed_to_others(root):
    shutil.rmtree(root / "p", ignore_errors=True)
    arrived(7)
    assert (root / "p").stat().st_mode & 0o077 == 0
