"""Folders that several tasks write are one on the controller, and no file is stored twice."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tfdeploy.config.cluster import Task
from tfdeploy.folders.own_folder import OwnFolder
from tfdeploy.results.merged import merge_outputs

CHIEF, ONE, TWO = Task("chief", 0), Task("worker", 0), Task("worker", 1)


@pytest.fixture
def run(tmp_path):
    placements = [SimpleNamespace(task=task) for task in (ONE, TWO, CHIEF)]
    training = SimpleNamespace(outputs_merge=("results",))
    return SimpleNamespace(
        open=lambda: OwnFolder.at(tmp_path),
        plan=SimpleNamespace(placements=placements, chief=placements[-1]),
        inventory=SimpleNamespace(training=training, trials=SimpleNamespace(points=())),
    )


def write(folder, files, mtime=1):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (mtime, mtime))


def merged(tmp_path):
    top = tmp_path / "merged"
    files = (path for path in top.rglob("*") if path.is_file())
    return {path.relative_to(top).as_posix(): path.read_text() for path in files}


def test_the_files_of_all_tasks_are_together_and_stored_once(run, tmp_path):
    write(tmp_path / "outputs" / "results", {"oracle.json": "chief"})
    write(tmp_path / "outputs" / ONE.file_name / "results", {"trial_1/a": "one"})
    write(tmp_path / "outputs" / TWO.file_name, {"results/trial_2/a": "two", "log": "not merged"})
    assert merge_outputs(run) == []
    names = {"results/oracle.json": "chief", "results/trial_1/a": "one", "results/trial_2/a": "two"}
    assert merged(tmp_path) == names
    one = tmp_path / "outputs" / ONE.file_name / "results" / "trial_1" / "a"
    assert (tmp_path / "merged" / "results" / "trial_1" / "a").samefile(one)


def test_of_one_name_the_chiefs_file_counts_else_the_newest(run, tmp_path):
    write(tmp_path / "outputs" / "results", {"both": "chief"}, mtime=1)
    write(tmp_path / "outputs" / ONE.file_name / "results", {"both": "one", "a": "new"}, mtime=9)
    write(tmp_path / "outputs" / TWO.file_name / "results", {"both": "two", "a": "old"}, mtime=5)
    assert merge_outputs(run) == []
    assert merged(tmp_path) == {"results/both": "chief", "results/a": "new"}


def test_what_a_task_has_deleted_is_not_in_the_next_merge(run, tmp_path):
    write(tmp_path / "outputs" / "results", {"a": "old", "b": "stays"})
    merge_outputs(run)
    (tmp_path / "outputs" / "results" / "a").unlink()
    assert merge_outputs(run) == []
    assert merged(tmp_path) == {"results/b": "stays"}


def test_a_name_that_is_a_file_and_a_folder_is_an_error_that_names_it(run, tmp_path):
    write(tmp_path / "outputs" / ONE.file_name / "results", {"a": "a file"}, mtime=1)
    write(tmp_path / "outputs" / TWO.file_name / "results", {"a/b": "in a folder"}, mtime=2)
    [error] = merge_outputs(run)
    assert "merged/results/a" in str(error)


def test_nothing_is_merged_or_deleted_without_the_key(run, tmp_path):
    run.inventory.training.outputs_merge = ()
    write(tmp_path / "merged", {"of the user": "stays"})
    assert merge_outputs(run) == []
    assert merged(tmp_path) == {"of the user": "stays"}
