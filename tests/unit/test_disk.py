"""What a host holds of a project is told as it lies on the disk, whatever happens meanwhile."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tfdeploy.agent import disk, lock, paths, records
from tfdeploy.agent.records import TaskState
from unit.made import launch

OLD_S = 1000.0


def started(run, *tasks, state="SUCCEEDED", release="f00d", age_s=OLD_S, **more):
    """A run whose tasks were launched and came to `state` (None: none of them wrote one yet)."""
    for name in tasks:
        job, index = name.split(":")
        folder = paths.task("p", run, name)
        os.makedirs(paths.work(folder))
        order = launch(run=run, job=job, index=int(index), release=release, **more)
        records.write(paths.launch(folder), records.to_json(order))
        os.utime(paths.launch(folder), (time.time() - age_s,) * 2)
        if state:
            written = TaskState(state, time.time())
            records.write(paths.state(folder), records.to_json(written))
    return paths.run("p", run)


def released(name):
    folder = Path(paths.release("p", name))
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("train")
    folder.chmod(0o555)
    return folder


def runs():
    return {run["run"]: run for run in disk.disk("p")["runs"]}


# Sizes


def du(path):
    told = subprocess.run(["du", "-s", "--block-size=1", path], capture_output=True, check=True)
    return int(told.stdout.split()[0])


def test_a_tree_takes_what_du_says(tmp_path):
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/file").write_bytes(b"x" * 100_000)
    (tmp_path / "small").write_text("x")
    assert disk.usage(os.fspath(tmp_path)) == du(tmp_path) >= 100_000


def test_a_file_with_two_names_counts_once(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    once = disk.usage(os.fspath(tmp_path))
    os.link(tmp_path / "file", tmp_path / "again")
    assert disk.usage(os.fspath(tmp_path)) == once


def test_two_trees_that_share_a_file_take_half_of_it_each(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one/file").write_bytes(b"x" * 100_000)
    alone = disk.usage(os.fspath(tmp_path / "one"))
    os.link(tmp_path / "one/file", tmp_path / "two/file")
    one, two = (disk.usage(os.fspath(tmp_path / name)) for name in ("one", "two"))
    assert one == two < alone
    assert one + two == disk.usage(os.fspath(tmp_path)) - os.lstat(tmp_path).st_blocks * 512


def test_what_links_lead_to_does_not_count(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_bytes(b"x" * 100_000)
    (tmp_path / "tree/folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "tree/file").symlink_to(tmp_path / "elsewhere/file")
    assert disk.usage(os.fspath(tmp_path / "tree")) < 100_000


def test_what_is_not_there_takes_nothing(tmp_path):
    assert disk.usage(os.fspath(tmp_path / "gone")) == 0


# Runs


def test_a_project_that_was_never_here_holds_nothing(root):
    answer = disk.disk("p")
    assert (answer["runs"], answer["releases"], answer["left_bytes"]) == ([], [], 0)
    assert 0 < answer["free_bytes"] <= answer["total_bytes"]


def test_a_run_is_told_with_its_release_and_the_states_of_its_tasks(root):
    folder = started("r", "ps:0", "worker:0")
    told = runs()["r"]
    assert told["tasks"] == {"ps:0": "SUCCEEDED", "worker:0": "SUCCEEDED"}
    assert (told["release"], told["chief"]) == ("f00d", "worker:0")
    assert (told["live"], told["bytes"]) == (False, disk.usage(folder))


def test_the_data_that_any_task_of_a_run_sees_is_told(root):
    started("r", "ps:0")
    started("r", "worker:0", data={"a": "a-1", "b": "b-1"})
    started("r", "worker:1", data={"a": "a-1"}, age_s=0.5 * OLD_S)
    assert runs()["r"]["data"] == ["a-1", "b-1"]


def test_a_run_from_before_there_was_data_has_none(root):
    file = Path(started("r", "ps:0"), "ps-0", "launch.json")
    records.write(os.fspath(file), {"release": "f00d", "circle": {"chief": "ps:0"}})
    assert (runs()["r"]["release"], runs()["r"]["chief"], runs()["r"]["data"]) == (
        "f00d",
        "ps:0",
        [],
    )


def test_runs_are_told_by_their_names(root):
    for name in ("b", "d", "a", "c"):
        started(name, "ps:0")
    assert list(runs()) == ["a", "b", "c", "d"]


def test_a_run_is_as_old_as_its_youngest_task(root):
    started("r", "ps:0", age_s=9 * OLD_S)
    started("r", "worker:0")
    assert OLD_S <= runs()["r"]["age_s"] < 2 * OLD_S


def test_a_clock_that_was_set_back_gives_no_negative_age(root):
    started("r", "ps:0", age_s=-OLD_S)
    assert runs()["r"]["age_s"] == 0


@pytest.mark.parametrize("state", ["READY", "BACKOFF", "SUCCEEDED"])
def test_a_run_lives_while_one_of_its_supervisors_does(root, state):
    started("r", "ps:0", "worker:0", state=state)
    held = lock.take(paths.task("p", "r", "worker:0"))
    try:
        assert runs()["r"]["live"]
    finally:
        os.close(held)
    assert not runs()["r"]["live"]


def test_a_run_that_is_just_being_started_lives(root):
    started("young", "ps:0", state=None, age_s=0)
    started("old", "ps:0", state=None)
    assert (runs()["young"]["live"], runs()["old"]["live"]) == (True, False)


def test_a_task_whose_supervisor_is_gone_is_lost(root):
    started("r", "ps:0", state="READY")
    assert runs()["r"]["tasks"] == {"ps:0": "LOST"}


def test_a_run_that_never_got_as_far_as_a_task_is_told_too(root):
    os.makedirs(paths.logs("p", "r"))
    told = runs()["r"]
    assert (told["tasks"], told["release"], told["live"]) == ({}, "", False)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"release": "f00d"}'])
def test_a_launch_that_was_cut_or_is_of_another_version_hides_no_run(root, text):
    folder = started("r", "ps:0")
    Path(folder, "ps-0", "launch.json").write_text(text)
    assert runs()["r"]["release"] == ("f00d" if "f00d" in text else "")


def test_links_files_and_what_is_hidden_are_no_runs(root, tmp_path):
    started("r", "ps:0")
    Path(disk.runs_dir("p"), "link").symlink_to(paths.run("p", "r"))
    Path(disk.runs_dir("p"), "file").write_text("")
    Path(disk.runs_dir("p"), disk.REMOVING + "x").mkdir()
    assert list(runs()) == ["r"]


# Releases and what is left over


def test_a_release_is_told_with_what_it_takes(root):
    folder = released("f00d")
    (told,) = disk.disk("p")["releases"]
    assert (told["release"], told["bytes"]) == ("f00d", du(folder))
    assert 0 <= told["age_s"] < OLD_S


def test_a_push_at_work_is_neither_a_release_nor_left_over(root):
    Path(paths.incoming("p", "f00d")).mkdir(parents=True)
    answer = disk.disk("p")
    assert (answer["releases"], answer["left_bytes"]) == ([], 0)


def test_a_push_that_nobody_took_up_for_a_day_is_left_over(root, monkeypatch):
    incoming = Path(paths.incoming("p", "f00d"))
    incoming.mkdir(parents=True)
    monkeypatch.setattr(disk, "FORGOTTEN_S", -1.0)  # a folder's change can't be dated back
    assert disk.disk("p")["left_bytes"] == du(incoming)
