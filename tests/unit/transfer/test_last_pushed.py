"""The hint which release a host got last survives between commands, and may always be wrong."""

from __future__ import annotations

import os

import pytest
from support.builders import NOBODY_UID, make_inventory

from tfdeploy.transfer.send import LastPushed


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def last(name=""):
    return LastPushed(make_inventory(), name)


def test_only_a_host_that_got_another_release_is_known_to_lack_this_one():
    last().record(["a", "b"], "new")
    last().record(["a"], "newer")
    assert last().is_older("b", "newer")
    assert not last().is_older("a", "newer")
    assert not last().is_older("unknown", "newer")


def test_each_data_set_has_its_own_releases():
    last("data-mnist").record(["a"], "data-mnist-1")
    assert not last().is_older("a", "code")


def test_a_damaged_file_is_no_hint(cache):
    last().record(["a"], "new")
    (file,) = cache.glob("tfdeploy/pushed/*")
    file.write_text("[")
    assert not last().is_older("a", "newer")
    last().record(["a"], "newer")
    assert last().is_older("a", "new")


def test_a_cache_folder_that_cannot_be_written_is_ignored(cache):
    (cache / "tfdeploy").write_text("")
    last().record(["a"], "new")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_root_creates_no_cache_in_the_home_of_another_user(cache):
    os.chown(cache, NOBODY_UID, -1)
    last().record(["a"], "new")
    assert [*cache.iterdir()] == []
