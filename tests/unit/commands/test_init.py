"""What init writes, and what it leaves alone."""

from __future__ import annotations

import os

import pytest

from tfdeploy.commands import init
from tfdeploy.commands.init import Draft
from tfdeploy.errors import InventoryError


def draft(file):
    return Draft(file, "text", inventory=None, proposal=None, errors=(), notes=())


def test_the_file_is_written_whole(tmp_path):
    init.write(draft(tmp_path / "hosts.toml"))
    assert (tmp_path / "hosts.toml").read_text() == "text"
    assert len([*tmp_path.iterdir()]) == 1


def test_what_a_killed_init_left_is_deleted(tmp_path):
    left, other = tmp_path / ".hosts.toml.0123abcd", tmp_path / ".hosts.toml.swp"
    left.touch()
    other.touch()
    init.write(draft(tmp_path / "hosts.toml"))
    assert {*tmp_path.iterdir()} == {tmp_path / "hosts.toml", other}


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path):
    (tmp_path / "hosts.toml").write_text("mine")
    with pytest.raises(InventoryError, match="exists already"):
        init.write(draft(tmp_path / "hosts.toml"))
    assert (tmp_path / "hosts.toml").read_text() == "mine"
    assert len([*tmp_path.iterdir()]) == 1


def test_a_link_that_leads_nowhere_is_not_followed(tmp_path):
    (tmp_path / "hosts.toml").symlink_to(tmp_path / "other")
    with pytest.raises(InventoryError, match="exists already"):
        init.refuse_existing(tmp_path / "hosts.toml")
    with pytest.raises(InventoryError, match="exists already"):
        init.write(draft(tmp_path / "hosts.toml"))
    assert not (tmp_path / "other").exists()


def test_a_file_system_without_hard_links_gets_the_file(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    init.write(draft(tmp_path / "hosts.toml"))
    assert (tmp_path / "hosts.toml").read_text() == "text"
    assert len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("digits", "digits"),
        ("my model (2)", "my-model-2"),
        ("_x_", "x"),
        ("agent", "training"),
        ("\u00e4", "training"),
    ],
)
def test_the_project_is_named_as_its_folder(tmp_path, folder, name):
    assert init.project_name(tmp_path / folder / "hosts.toml") == name


def test_an_environment_that_is_not_activated_is_named(tmp_path):
    assert init.inactive_environment(tmp_path, "tensorflow") == []
    (tmp_path / ".venv/lib/python3.11/site-packages/tensorflow").mkdir(parents=True)
    [note] = init.inactive_environment(tmp_path, "tensorflow")
    assert note.message == ".venv has TensorFlow, but it is not activated, so it was not run"
    assert "source .venv/bin/activate" in note.hint
