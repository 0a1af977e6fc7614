"""An agent's folder appears whole on a host, or not at all."""

from __future__ import annotations

import os
import sys
import zipfile

import pytest

from tfdeploy.hosts import agent_bundle


@pytest.fixture
def unpack(tmp_path, monkeypatch):
    """Return a function that unpacks an archive as a host does."""
    archive, folder = tmp_path / "agent" / "abc.X1", tmp_path / "agent" / "abc"
    archive.parent.mkdir()
    monkeypatch.setattr(sys, "argv", ["-c", str(archive), str(folder)])

    def run(data):
        archive.write_bytes(data)
        exec(agent_bundle.UNPACK, {"find_unsafe": lambda path: ("", "")})

    return run


def test_what_a_killed_controller_has_sent_of_an_agent_is_deleted(unpack, tmp_path):
    with pytest.raises(zipfile.BadZipFile):
        unpack(agent_bundle.bundle()[:-1000])
    assert [*(tmp_path / "agent").iterdir()] == []


def test_an_agents_files_are_on_the_disk_before_its_folder_appears(unpack, tmp_path, monkeypatch):
    on_disk = set()
    monkeypatch.setattr(os, "fsync", lambda number: on_disk.add(os.fstat(number).st_ino))
    renamed = []

    def rename(source, target, rename=os.rename):
        files = {path.stat().st_ino for path in tmp_path.rglob("abc.X1.d/**/*") if path.is_file()}
        renamed.append(files and files <= on_disk)
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename)
    unpack(agent_bundle.bundle())
    assert renamed == [True]
    assert [path.name for path in (tmp_path / "agent").iterdir()] == ["abc"]
