"""The user's key, with which tfdeploy signs its own plans."""

from __future__ import annotations

import os

import pytest
from support.builders import NOBODY_UID

from tfdeploy.folders import user_folders
from tfdeploy.trust import signature

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@pytest.fixture
def folder(home, monkeypatch):
    """The folder of tfdeploy in the configuration, which does not exist yet."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return user_folders.config_folder()


def test_only_the_user_can_read_the_key_whatever_the_umask(folder):
    before = os.umask(0)
    try:
        assert signature.sign("text")
    finally:
        os.umask(before)
    assert [file.name for file in folder.iterdir()] == ["key"]
    assert (folder.stat().st_mode & 0o777, (folder / "key").stat().st_mode & 0o777) == (
        0o700, 0o600
    )  # fmt: skip


def test_only_what_was_signed_is_signed(folder):
    signed = signature.sign("one", "two")
    assert signature.is_signed(signed, "one", "two")
    for texts in (("onetwo",), ("one", "two", ""), ("two", "one")):
        assert not signature.is_signed(signed, *texts)
    assert not signature.is_signed("", "one", "two")


def test_two_commands_that_create_the_key_have_the_same_one(folder, monkeypatch):
    """The other one stores its key when this one has found none."""
    read_key, signed = signature._read_key, []

    def finds_none():
        monkeypatch.setattr(signature, "_read_key", read_key)
        signed.append(signature.sign("text"))
        return b""

    monkeypatch.setattr(signature, "_read_key", finds_none)
    signed.append(signature.sign("text"))
    assert [signature.is_signed(each, "text") for each in signed] == [True, True]


def test_a_key_that_can_not_be_stored_leaves_no_file(folder):
    (folder / "key").mkdir(parents=True)
    assert signature.sign("text") == ""
    assert [file.name for file in folder.iterdir()] == ["key"]


def test_a_killed_command_leaves_no_key_for_ever(folder):
    signed = signature.sign("text")
    (folder / "key.1234.abcd0123").write_bytes(b"half")
    (folder / "key").write_bytes(b"")  # the power has failed
    assert not signature.is_signed(signed, "text")
    assert signature.is_signed(signature.sign("text"), "text")
    assert [file.name for file in folder.iterdir()] == ["key"]


@as_root
@pytest.mark.parametrize("name", ["", ".config"])
def test_root_stores_no_key_in_the_home_of_another_user(home, folder, name):
    """As with `sudo` that keeps HOME: the user could not create ~/.config/tfdeploy any more."""
    (home / name).mkdir(exist_ok=True)
    os.chown(home / name, NOBODY_UID, -1)
    assert signature.sign("text") == ""
    assert not folder.exists()


def test_nothing_is_signed_with_a_key_that_others_know(folder, monkeypatch):
    """A file system whose files all can read, whatever their mode."""
    monkeypatch.setattr(os, "open", lambda *args, opened=os.open: _shown(opened(*args)))
    assert signature.sign("text") == ""


def _shown(descriptor):
    os.fchmod(descriptor, 0o644)
    return descriptor
