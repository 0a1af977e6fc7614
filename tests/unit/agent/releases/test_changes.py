"""A release that was changed on a host is found, repaired, and nothing that was written is lost."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest
from support.releases import write_manifest

from tfdeploy.agent import paths
from tfdeploy.agent.releases import changes
from tfdeploy.shared import filesystem


@pytest.fixture
def files(release):
    """A release with a folder and a link, as it was received."""
    (release / "lib").mkdir()
    (release / "lib/tool.py").write_text("tool")
    (release / "link").symlink_to("lib")
    return write_manifest(release)


def age(path):
    os.utime(path, (1, 1), follow_symlinks=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_text("evil"),
        lambda file: file.write_text("more text"),
        lambda file: file.unlink(),
        lambda file: [file.unlink(), file.mkdir()],
        lambda file: [file.unlink(), file.symlink_to("../run")],
    ],
    ids=["content", "size", "deleted", "a folder", "a link"],
)
def test_a_changed_file_is_found(files, change):
    assert changes.changed_file("p", "f00d") == ""
    change(files / "lib/tool.py")
    if (files / "lib/tool.py").is_file():
        age(files / "lib/tool.py")  # the clock of the file system may not have ticked
    assert changes.changed_file("p", "f00d") == "lib/tool.py"


def test_a_link_to_elsewhere_is_found(files):
    (files / "link").unlink()
    (files / "link").symlink_to("..")
    assert changes.changed_file("p", "f00d") == "link"


@pytest.mark.parametrize("text", [None, "", "[1]"])
def test_a_release_without_its_list_of_files_was_changed(files, text):
    file = files.parent.parent / "manifests/f00d.json"
    file.unlink() if text is None else file.write_text(text)
    assert changes.changed_file("p", "f00d") == changes.MANIFEST


def test_a_file_with_another_time_is_read_once(files, monkeypatch):
    age(files / "lib/tool.py")
    assert changes.changed_file("p", "f00d") == ""
    monkeypatch.setattr(filesystem, "sha256", None)
    assert changes.changed_file("p", "f00d") == ""


@pytest.mark.parametrize("name", ["f00d", "data-a-1"])
def test_a_release_of_many_files_is_not_compared_before_a_start(files, monkeypatch, name):
    files = files.rename(files.parent / name)
    write_manifest(files)
    (files / "run").write_text("results")
    assert changes.changed_file("p", name) == "run"
    monkeypatch.setattr(changes, "MAX_MANIFEST_BYTES", 1)
    assert changes.changed_file("p", name) == ""
    assert changes.overwritten_files("p", name) == ["run"]


def test_files_on_a_slow_file_system_are_compared_by_several_threads(files, monkeypatch):
    for number in range(50):
        (files / f"m{number}.py").write_text("x")
    write_manifest(files)
    threads, real = set(), os.lstat

    def slow(*arguments, **more):
        threads.add(threading.get_ident())
        time.sleep(0.002)
        return real(*arguments, **more)

    monkeypatch.setattr(os, "lstat", slow)
    assert changes.changed_file("p", "f00d") == ""
    assert len(threads) > 1


@pytest.mark.parametrize("gone", [False, True])
def test_a_release_is_repaired_and_what_was_changed_stays_beside_it(files, tmp_path, gone):
    entries = {path: entry[:-3] for path, entry in json.loads(manifest_text()).items()}
    incoming = tmp_path / "incoming"
    (incoming / "lib").mkdir(parents=True)
    (incoming / "lib/tool.py").write_text("tool")
    (files / "lib/tool.py").unlink()
    if gone:
        (files / "lib").rmdir()
        (files / "lib").write_text("a result")
    else:
        (files / "lib/tool.py").write_text("a result")
    (files / "lib").chmod(0o555)
    changes.repair("p", "f00d", os.fspath(incoming), entries)
    assert changes.changed_file("p", "f00d") == ""
    assert (files / "lib/tool.py").read_text() == "tool"
    (aside,) = changes.added_files("p", "f00d")
    assert (files / aside).read_text() == "a result"
    assert (files / "lib").stat().st_mode & 0o777 == 0o555


def manifest_text():
    return filesystem.read_bytes(paths.manifest("p", "f00d"))


def test_files_that_were_written_into_a_release_are_named(files):
    (files / "lib/out").mkdir()
    (files / "lib/out/model.pt").write_text("model")
    assert changes.changed_file("p", "f00d") == ""
    assert changes.added_files("p", "f00d") == ["lib/out/model.pt"]
    assert changes.overwritten_files("p", "f00d") == []


def test_a_file_that_a_program_has_overwritten_is_named_and_one_that_is_gone_is_not(files):
    (files / "run").unlink()
    os.utime(files / "lib/tool.py", (1, 1))
    assert changes.overwritten_files("p", "f00d") == []
    (files / "lib/tool.py").write_text("a result")
    assert changes.overwritten_files("p", "f00d") == ["lib/tool.py"]
