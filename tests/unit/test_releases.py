"""A release appears on a host whole or not at all, and is never written to again."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tfdeploy import release
from tfdeploy.agent import releases
from unit.made import as_nobody

ID = "f00d"


@pytest.fixture
def source(tmp_path):
    """A source tree: a file, a program, a folder, a link."""
    folder = tmp_path / "source"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("train")
    (folder / "lib" / "run").write_text("run")
    (folder / "lib" / "run").chmod(0o755)
    (folder / "link").symlink_to("lib/run")
    return folder


def manifest(source):
    return {path: list(entry) for path, entry in release.snapshot(source).manifest.items()}


def arrive(source, incoming):
    """Copy the tree as a push does."""
    for path in manifest(source):
        target = Path(incoming, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        if (source / path).is_symlink():
            target.symlink_to(os.readlink(source / path))
        else:
            target.write_bytes((source / path).read_bytes())


def pushed(source, name=ID):
    """Offer, arrive: where the release is growing."""
    incoming = releases.offer("p", name)["incoming"]
    arrive(source, incoming)
    return Path(incoming)


def commit(source, name=ID):
    return releases.commit("p", name, manifest(source))["wrong"]


# offer


def test_a_release_that_is_not_there_is_told_where_to_grow(root):
    answer = releases.offer("p", ID)
    assert answer == {
        "present": False,
        "incoming": os.fspath(root / "p" / "releases" / ".incoming-f00d"),
        "base": None,
    }
    assert Path(answer["incoming"]).is_dir()


def test_an_offer_goes_on_where_a_broken_push_ended(root, source):
    incoming = pushed(source)
    assert releases.offer("p", ID)["incoming"] == os.fspath(incoming)
    assert (incoming / "train.py").read_text() == "train"


def test_a_release_that_is_there_need_not_be_sent(root, source):
    pushed(source)
    commit(source)
    assert releases.offer("p", ID) == {"present": True}


def test_the_newest_release_is_offered_to_copy_from(root, source):
    pushed(source, "one")
    commit(source, "one")
    pushed(source, "half")
    assert releases.offer("p", "two")["base"] == os.fspath(root / "p" / "releases" / "one")


def test_a_project_is_closed_to_other_users(root):
    releases.offer("p", ID)
    assert (root / "p").stat().st_mode & 0o777 == 0o700


# commit


def test_what_arrived_whole_is_shown(root, source):
    pushed(source)
    assert commit(source) == []
    there = root / "p" / "releases" / ID
    assert manifest(there) == manifest(source)
    assert sorted(os.listdir(there.parent)) == [ID]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda tree: (tree / "train.py").write_text("other"), "train.py"),
        (lambda tree: (tree / "train.py").unlink(), "train.py"),
        (lambda tree: [(tree / "link").unlink(), (tree / "link").symlink_to("train.py")], "link"),
        (lambda tree: [(tree / "link").unlink(), (tree / "link").write_text("run")], "link"),
        (
            lambda tree: [(tree / "train.py").unlink(), (tree / "train.py").symlink_to("lib/run")],
            "train.py",
        ),
        (lambda tree: [(tree / "train.py").unlink(), os.mkfifo(tree / "train.py")], "train.py"),
    ],
    ids=["content", "missing", "target", "a file for a link", "a link for a file", "a pipe"],
)
def test_what_differs_is_named_and_nothing_is_shown(root, source, change, wrong):
    change(pushed(source))
    assert commit(source) == [wrong]
    assert not (root / "p" / "releases" / ID).exists()


def test_what_differed_can_be_sent_again(root, source):
    (pushed(source) / "train.py").write_text("other")
    commit(source)
    pushed(source)
    assert commit(source) == []


def test_no_more_than_twenty_are_named(root, source):
    for number in range(30):
        (source / f"f{number:02}").write_text("x")
    releases.offer("p", ID)
    assert commit(source) == [f"f{number:02}" for number in range(20)]


@pytest.mark.parametrize(
    "stranger",
    [
        lambda tree: (tree / "stranger").write_text("x"),
        lambda tree: (tree / "lib" / "stranger").write_text("x"),
        lambda tree: (tree / "stranger").symlink_to("/etc/hostname"),
        lambda tree: (tree / "stranger").symlink_to("lib"),
        lambda tree: os.mkfifo(tree / "stranger"),
    ],
    ids=["file", "deep", "link", "link to a folder", "pipe"],
)
def test_what_the_release_does_not_hold_is_dropped(root, source, stranger):
    stranger(pushed(source))
    assert commit(source) == []
    there = root / "p" / "releases" / ID
    assert not os.path.lexists(there / "stranger")
    assert not os.path.lexists(there / "lib" / "stranger")


def test_a_link_in_the_place_of_a_folder_is_no_folder(root, source, tmp_path):
    incoming = pushed(source)
    (incoming / "lib").rename(tmp_path / "elsewhere")
    (incoming / "lib").symlink_to(tmp_path / "elsewhere")
    assert commit(source) == ["lib/run"]


def test_a_release_is_read_only(root, source):
    pushed(source)
    commit(source)
    there = root / "p" / "releases" / ID
    modes = {path: (there / path).stat().st_mode & 0o777 for path in ("train.py", "lib/run")}
    assert modes == {"train.py": 0o444, "lib/run": 0o555}


def test_nothing_can_be_added_to_a_release_or_taken_from_it(root, source):
    pushed(source)
    commit(source)
    there = root / "p" / "releases" / ID
    assert [folder.stat().st_mode & 0o222 for folder in (there, there / "lib")] == [0, 0]


def test_a_second_commit_changes_nothing(root, source):
    pushed(source)
    commit(source)
    assert commit(source) == []


def test_the_faster_of_two_pushes_wins_and_the_other_leaves_nothing(source, monkeypatch):
    real = os.rename
    with tempfile.TemporaryDirectory() as name:
        tree = Path(shutil.copytree(source, Path(name, "source"), symlinks=True))
        final = Path(name, "p", "releases", ID)

        def late(growing, target):
            monkeypatch.setattr(os, "rename", real)
            final.mkdir()
            arrive(tree, final)
            real(growing, target)

        monkeypatch.setattr(os, "rename", late)
        monkeypatch.setattr(sys, "argv", [f"{name}/agent/abc.pyz"])
        with as_nobody(Path(name)):
            incoming = pushed(tree)
            assert commit(tree) == []
        assert sorted(manifest(final)) == sorted(manifest(source))
        assert not incoming.exists()


def test_two_commits_at_once_leave_one_whole_release(root, source):
    for number in range(20):
        name = f"r{number}"
        pushed(source, name)
        answers = []
        both = threading.Barrier(2)

        def one(name=name, answers=answers, both=both):
            both.wait()
            answers.append(commit(source, name))

        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [] in answers
        assert len(answers) == 2
        assert manifest(root / "p" / "releases" / name) == manifest(source)


def test_a_push_that_is_given_up_leaves_nothing_and_no_other_release_goes(root, source):
    pushed(source, "whole")
    commit(source, "whole")
    incoming = pushed(source, "half")
    incoming.chmod(0o555)
    releases.abandon("p", "half")
    releases.abandon("p", "never-there")
    assert [path.name for path in (root / "p" / "releases").iterdir()] == ["whole"]
