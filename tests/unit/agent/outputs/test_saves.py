"""Where a program saved outside of its task's directory, as the agent reports it."""

from __future__ import annotations

import json
import os

import pytest
from support.chief import TASK, start_task

from tfdeploy.agent import paths
from tfdeploy.agent.outputs import checkpoints


@pytest.fixture
def elsewhere(root, tmp_path):
    """A function that writes what the process recorded (names within tmp_path, or a text), and
    returns what `pin` answers: whether each name exists."""

    def answer(recorded, checkpoint_dir="checkpoints"):
        start_task(root, checkpoint_dir)
        is_text = isinstance(recorded, str)
        text = recorded if is_text else json.dumps([str(tmp_path / name) for name in recorded])
        with open(paths.saves(paths.task(*TASK)), "w") as file:
            file.write(text)
        *_, pinned = checkpoints.pin(*TASK, False)
        found = pinned.elsewhere
        return {os.path.relpath(saved.path, tmp_path): saved.exists for saved in found}

    return answer


def write(tmp_path, *names):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")


def test_the_newest_is_first_and_deleted_paths_do_not_exist(elsewhere, tmp_path):
    write(tmp_path, "a/ckpt-1.index", "b/model.keras")
    (tmp_path / "empty").mkdir()
    found = elsewhere(["empty", "a", "gone", "b/model.keras"])
    assert [*found.items()] == [
        ("b/model.keras", True), ("gone", False), ("a", True), ("empty", False)
    ]  # fmt: skip


def test_several_files_of_one_folder_are_reported_as_the_folder(elsewhere, tmp_path):
    write(tmp_path, "m/1.keras", "m/2.keras", "one.keras")
    (tmp_path / "other").mkdir()
    found = elsewhere(["m/1.keras", "other", "one.keras", "m/2.keras"])
    assert [*found] == ["m", "one.keras", "other"]


def test_a_folder_of_the_launch_is_not_elsewhere(elsewhere, tmp_path):
    found = elsewhere(["saves", "saves/1.keras", "saves-2"], str(tmp_path / "saves"))
    assert [*found] == ["saves-2"]


@pytest.mark.parametrize("text", ["", "{", "3", "null"])
def test_a_record_that_can_not_be_read_reports_nothing(elsewhere, text):
    assert elsewhere(text) == {}
