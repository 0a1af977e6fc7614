"""Which hosts file a command uses, and how it is named on a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.config import hosts_file
from tfdeploy.config.hosts_file import find_hosts_file, hosts_flag


@pytest.fixture
def below(tmp_path, monkeypatch):
    """A folder two levels below a hosts.toml, in which the test runs."""
    (tmp_path / "hosts.toml").touch()
    folder = tmp_path / "notebooks" / "deep"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_hosts_toml_is_found_from_a_folder_below_it(below):
    found = below.parent.parent / "hosts.toml"
    assert find_hosts_file() == found
    assert hosts_flag(found) == ""
    assert hosts_flag(found.with_name("lab.toml")) == f"--hosts {found.with_name('lab.toml')}"


def test_the_nearest_hosts_toml_is_found(below):
    nearer = below.parent / "hosts.toml"
    nearer.mkdir()
    assert find_hosts_file() == below.parent.parent / "hosts.toml"
    nearer.rmdir()
    nearer.touch()
    assert find_hosts_file() == nearer
    Path("hosts.toml").touch()
    assert find_hosts_file() == Path("hosts.toml")


def test_a_hosts_toml_of_another_user_is_not_found_from_below(below, monkeypatch):
    monkeypatch.setattr(hosts_file.os, "geteuid", lambda: -1)
    assert find_hosts_file() == Path("hosts.toml")
