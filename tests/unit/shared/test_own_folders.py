"""Who could replace a folder on a host, by the owner and mode of each folder above it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from support.builders import NOBODY_UID

from tfdeploy.shared import own_folders

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")


@pytest.fixture
def folder():
    """A folder of this user two below another one, which a test may open."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name).resolve() / "lab" / "me" / "deploy"
        path.mkdir(parents=True)
        yield path


def unsafe(folder):
    return own_folders.find_unsafe(str(folder))


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o1777, 0o1770, 0o2755])
def test_a_folder_that_nobody_else_can_rename_is_safe(folder, mode):
    folder.parent.parent.chmod(mode)
    assert unsafe(folder) == ("", "")


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o2777, 0o773])
@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_folder_that_others_can_write_is_unsafe(folder, mode, above):
    open_folder = [folder, *folder.parents][above]
    open_folder.chmod(mode)
    message, hint = unsafe(folder)
    assert f"{open_folder} belongs to " in message
    assert f" and has mode {mode:04o}, so that other users could replace" in message
    assert hint.startswith(f"chmod go-w {open_folder}; or set the host's directory")


@root_only
@pytest.mark.parametrize(("group", "is_safe"), [(0, True), (NOBODY_UID, False)])
def test_of_groups_only_the_users_own_may_write(folder, group, is_safe):
    os.chown(folder.parent, -1, group)
    folder.parent.chmod(0o775)
    assert (unsafe(folder) == ("", "")) == is_safe


@root_only
@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_folder_of_another_user_is_unsafe(folder, above):
    theirs = [folder, *folder.parents][above]
    os.chown(theirs, NOBODY_UID, -1)
    message, hint = unsafe(folder)
    assert f"{theirs} belongs to nobody and has mode" in message
    assert hint == "set the host's directory in hosts.toml to a folder of your own"


@root_only
def test_a_link_of_another_user_is_unsafe_even_if_it_leads_to_a_folder_of_ones_own(folder):
    shared = folder.parent.parent
    shared.chmod(0o1777)
    (shared / "link").symlink_to(folder)
    os.chown(shared / "link", NOBODY_UID, -1, follow_symlinks=False)
    assert f"{shared}/link belongs to nobody" in unsafe(shared / "link")[0]


def test_what_is_above_each_link_counts(folder, tmp_path):
    middle = tmp_path / "middle"
    middle.mkdir()
    (middle / "second").symlink_to(f"{folder.parent.parent}/./me/../me/deploy")
    (tmp_path / "first").symlink_to("middle/second")
    assert unsafe(tmp_path / "first") == ("", "")
    middle.chmod(0o777)
    assert f"{middle} belongs to" in unsafe(tmp_path / "first")[0]


def test_links_without_end_are_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="too many"):
        unsafe(tmp_path / "a")
