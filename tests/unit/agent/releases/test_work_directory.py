"""A task's directory shows its release and data sets by links, and stores what the task writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.builders import make_launch

from tfdeploy.agent.releases import work_directory


def link_release(release, tmp_path, checkpoint_dir, data=None):
    """Link a release into a task's directory; return {path: what it links to}."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    task_launch = make_launch(checkpoint_dir=checkpoint_dir, data=data or {})
    work_directory.link_releases(task_launch, os.fspath(work))
    return {
        path.relative_to(work).as_posix(): os.path.relpath(path.readlink(), release)
        for path in work.rglob("*")
        if path.is_symlink()
    }


@pytest.mark.parametrize("checkpoint_dir", ["out", "./out", "out/deep", "/elsewhere", "data2"])
def test_the_release_is_linked_into_the_tasks_directory(release, tmp_path, checkpoint_dir):
    (release / "data").mkdir()
    assert link_release(release, tmp_path, checkpoint_dir) == {"run": "run", "data": "data"}


def test_checkpoints_are_not_written_into_the_release(release, tmp_path):
    (release / "out" / "deep").mkdir(parents=True)
    (release / "out" / "old").write_text("")
    (release / "out" / "deep" / "older").write_text("")
    assert link_release(release, tmp_path, "out/deep") == {"run": "run", "out/old": "out/old"}


def test_the_checkpoint_directory_is_not_a_link_into_the_release(release, tmp_path):
    (release / "out").mkdir()
    assert link_release(release, tmp_path, "out/") == {"run": "run"}


def test_a_cluster_file_is_written_into_the_tasks_own_directory(release, tmp_path):
    (release / "config").mkdir()
    (release / "config" / "net.json").write_text("")
    task_launch = make_launch(checkpoint_dir="out", files={"config/cluster.json": "{}"})
    work = tmp_path / "work"
    for _ in range(2):  # the second time as after a resume
        work.mkdir(exist_ok=True)
        work_directory.link_releases(task_launch, os.fspath(work))
        work_directory.write_files(task_launch, os.fspath(work))
    assert (work / "config" / "cluster.json").read_text() == "{}"
    assert (work / "config" / "net.json").is_symlink()
    assert [path.name for path in (release / "config").iterdir()] == ["net.json"]


def test_a_link_changes_with_its_target_and_the_target_is_created(tmp_path):
    work = tmp_path / "evaluator-0" / "work"
    for path in ("../../../worker-0/work/out/saved", "../../../replica"):
        work_directory.make_links(make_launch(links={"out/saved": path}), os.fspath(work))
        assert (work / "out" / "saved").readlink() == Path(path)
        assert (work / "out" / "saved").is_dir()
    assert (tmp_path / "worker-0" / "work" / "out" / "saved").is_dir()


def test_a_link_does_not_replace_what_the_task_wrote(tmp_path):
    (tmp_path / "out").mkdir()
    work_directory.make_links(make_launch(links={"out": "../replica"}), os.fspath(tmp_path))
    assert not (tmp_path / "out").is_symlink()


def test_files_that_a_task_wrote_stay_when_it_is_resumed(release, tmp_path):
    (release / "data").mkdir()
    link_release(release, tmp_path, "out")
    work = tmp_path / "work"
    (work / "run").unlink()
    (work / "run").write_text("its own")
    (work / "out").mkdir()
    (work / "out" / "checkpoint").write_text("")
    assert link_release(release, tmp_path, "out") == {"data": "data"}
    assert (work / "run").read_text() == "its own"
    assert (work / "out" / "checkpoint").exists()


def test_data_sets_are_linked_beside_files_of_the_release(release, tmp_path):
    (release / "data" / "deep").mkdir(parents=True)
    (release / "data" / "labels").write_text("")
    data = {"data/a": "data-a-1", "data/deep/er/b": "b-1", "c": "c-1"}
    assert link_release(release, tmp_path, "out", data) == {
        "run": "run",
        "data/labels": "data/labels",
        "data/a": "../data-a-1",
        "data/deep/er/b": "../b-1",
        "c": "../c-1",
    }


def test_a_resumed_task_has_the_same_data_sets(release, tmp_path):
    data = {"data/a": "data-a-1"}
    first = link_release(release, tmp_path, "out", data)
    assert link_release(release, tmp_path, "out", data) == first
