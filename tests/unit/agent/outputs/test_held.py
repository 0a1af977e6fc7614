"""Files are held under their names, until they are released or their process exits."""

from __future__ import annotations

import os
import shutil

import pytest

from tfdeploy.agent.outputs import held


@pytest.fixture
def folder(tmp_path):
    folder = str(tmp_path / "run" / "task" / "held" / "checkpoints")
    yield folder
    held.release(folder)


def hold(folder, file, text="weights"):
    """Hold a file that its task then deletes."""
    file.write_text(text)
    held.begin(folder)
    held.add(folder, {file.name: os.open(file, os.O_RDONLY)})
    file.unlink()


def read(folder, name):
    with open(os.path.join(folder, name)) as file:
        return file.read()


def test_a_deleted_file_is_read_under_its_name_until_it_is_released(folder, tmp_path):
    hold(folder, tmp_path / "a")
    assert held.has(folder)
    assert read(folder, "a") == "weights"
    held.release(folder)
    assert not held.has(folder)
    assert os.listdir(tmp_path) == [], "no folder that only the hold needed"


def test_a_second_hold_replaces_the_first(folder, tmp_path):
    hold(folder, tmp_path / "a")
    hold(folder, tmp_path / "b")
    assert os.listdir(folder) == ["b"]


def test_an_exit_releases_everything(folder, tmp_path):
    hold(folder, tmp_path / "a")
    held.release_all()
    assert os.listdir(tmp_path) == []


def test_an_exit_leaves_what_another_agent_holds(folder, tmp_path):
    """It started after the connection to this one was lost."""
    hold(folder, tmp_path / "a")
    shutil.rmtree(folder)
    os.mkdir(folder)
    held.release_all()
    assert os.path.isdir(folder)


def test_nothing_is_written_before_a_file_is_held(folder, tmp_path):
    held.begin(folder)
    assert os.listdir(tmp_path) == []
