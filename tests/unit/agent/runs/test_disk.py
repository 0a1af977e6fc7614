"""The verb `disk` reports a project's runs and releases as they are stored on this host."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.host_runs import OLD_S, create_run

from tfdeploy.agent import paths
from tfdeploy.agent.machine import lock
from tfdeploy.agent.runs import disk


def held_runs():
    return {run.run: run for run in disk.disk("p").runs}


# Sizes


def test_a_file_with_two_hard_links_counts_once(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    once = disk.used_bytes(os.fspath(tmp_path))
    os.link(tmp_path / "file", tmp_path / "again")
    assert disk.used_bytes(os.fspath(tmp_path)) == once


def test_a_file_shared_by_two_trees_counts_half_for_each(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one/file").write_bytes(b"x" * 100_000)
    alone = disk.used_bytes(os.fspath(tmp_path / "one"))
    os.link(tmp_path / "one/file", tmp_path / "two/file")
    one, two = (disk.used_bytes(os.fspath(tmp_path / name)) for name in ("one", "two"))
    assert one == two < alone
    assert one + two == disk.used_bytes(os.fspath(tmp_path)) - os.lstat(tmp_path).st_blocks * 512


def test_targets_of_symbolic_links_do_not_count(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_bytes(b"x" * 100_000)
    (tmp_path / "tree/folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "tree/file").symlink_to(tmp_path / "elsewhere/file")
    assert disk.used_bytes(os.fspath(tmp_path / "tree")) < 100_000


def test_a_missing_tree_has_size_zero(tmp_path):
    assert disk.used_bytes(os.fspath(tmp_path / "gone")) == 0


# Runs


def test_an_unknown_project_has_no_runs_and_releases(root):
    answer = disk.disk("p")
    assert (answer.runs, answer.releases, answer.left_bytes) == ([], [], 0)
    assert 0 < answer.free_bytes <= answer.total_bytes


def test_a_run_is_listed_with_its_release_and_the_states_of_its_tasks(root):
    folder = create_run("r", "ps:0", "worker:0")
    run = held_runs()["r"]
    states = {task: state.state for task, state in run.tasks.items()}
    assert states == {"ps:0": "SUCCEEDED", "worker:0": "SUCCEEDED"}
    assert (run.release, run.chief) == ("f00d", "worker:0")
    assert (run.live, run.bytes) == (False, disk.used_bytes(folder))


def test_the_data_sets_of_all_tasks_of_a_run_are_listed(root):
    create_run("r", "ps:0")
    create_run("r", "worker:0", data={"a": "a-1", "b": "b-1"})
    create_run("r", "worker:1", data={"a": "a-1"}, age_s=0.5 * OLD_S)
    assert held_runs()["r"].data == ["a-1", "b-1"]


def test_runs_are_sorted_by_name(root):
    for name in ("b", "d", "a", "c"):
        create_run(name, "ps:0")
    assert list(held_runs()) == ["a", "b", "c", "d"]


def test_the_age_of_a_run_is_that_of_its_youngest_task(root):
    create_run("r", "ps:0", age_s=9 * OLD_S)
    create_run("r", "worker:0")
    assert OLD_S <= held_runs()["r"].age_s < 2 * OLD_S


def test_an_age_is_not_negative_after_the_clock_was_set_back(root):
    create_run("r", "ps:0", age_s=-OLD_S)
    assert held_runs()["r"].age_s == 0


@pytest.mark.parametrize("state", ["READY", "BACKOFF", "SUCCEEDED"])
def test_a_run_is_live_while_one_of_its_supervisors_runs(root, state):
    create_run("r", "ps:0", "worker:0", state=state)
    task_lock = lock.acquire(paths.task("p", "r", "worker:0"))
    try:
        assert held_runs()["r"].live
    finally:
        os.close(task_lock)
    assert not held_runs()["r"].live


def test_a_run_that_is_being_started_is_live(root):
    create_run("young", "ps:0", state=None, age_s=0)
    create_run("old", "ps:0", state=None)
    assert (held_runs()["young"].live, held_runs()["old"].live) == (True, False)


def test_a_clock_that_was_set_back_keeps_no_run_from_its_end(root):
    """A start and a resume, which ended early, are of the future now."""
    for run in ("young", "future"):
        create_run(run, "ps:0", state=None, age_s=1)
        Path(paths.resuming(paths.run("p", run))).touch()
        assert disk.is_resuming("p", run)
    later = time.time() + 20 * 365 * 86400
    for file in (paths.launch(paths.task("p", "future", "ps:0")),
                 paths.resuming(paths.run("p", "future"))):  # fmt: skip
        os.utime(file, (later, later))
    assert {name: run.live for name, run in held_runs().items()} == {"young": True, "future": False}
    assert not disk.is_resuming("p", "future")


def test_a_task_without_its_supervisor_is_lost(root):
    create_run("r", "ps:0", state="READY")
    assert held_runs()["r"].tasks["ps:0"].state == "LOST"


def test_a_run_without_tasks_is_listed(root):
    os.makedirs(paths.logs("p", "r"))
    run = held_runs()["r"]
    assert (run.tasks, run.release, run.live) == ({}, "", False)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"project": "p"}'])
def test_a_run_with_an_invalid_launch_is_listed(root, text):
    folder = create_run("r", "ps:0")
    Path(folder, "ps-0", "launch.json").write_text(text)
    assert held_runs()["r"].release == ""


def test_links_files_and_hidden_folders_are_not_listed_as_runs(root, tmp_path):
    create_run("r", "ps:0")
    Path(paths.runs("p"), "link").symlink_to(paths.run("p", "r"))
    Path(paths.runs("p"), "file").write_text("")
    Path(paths.runs("p"), disk.REMOVING + "x").mkdir()
    assert list(held_runs()) == ["r"]


# Releases and leftovers


def test_a_push_in_progress_is_neither_a_release_nor_a_leftover(root):
    Path(paths.incoming("p", "f00d")).mkdir(parents=True)
    answer = disk.disk("p")
    assert (answer.releases, answer.left_bytes) == ([], 0)


def test_a_task_that_another_prune_deletes_meanwhile_has_no_launch(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "task_dirs", lambda project, run: {"worker:0": str(tmp_path / "no")})
    assert disk.last_launch("p", "r") == ""
