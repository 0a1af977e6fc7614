"""A release: what of a tree it holds, what names it, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tfdeploy import release
from tfdeploy.errors import PlanError
from unit.made import as_nobody


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


def write(tree, **files):
    """`a__b_py="x"` writes a/b.py."""
    for name, content in files.items():
        put(tree, name.replace("__", "/").replace("_", "."), content)


def put(tree, path, content="x"):
    file = tree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def paths(tree, *exclude):
    return list(release.snapshot(tree, exclude).manifest)


def refusal(tree, *exclude):
    with pytest.raises(PlanError) as refused:
        release.snapshot(tree, exclude)
    return refused.value.message, refused.value.hint


# What is in it


def test_every_file_is_in_it_with_its_hash_and_mode(tree):
    write(tree, train_py="code", lib__a_py="")
    (tree / "train.py").chmod(0o755)
    made = release.snapshot(tree)
    assert made.manifest == {
        "lib/a.py": ["file", hashlib.sha256(b"").hexdigest(), False],
        "train.py": ["file", hashlib.sha256(b"code").hexdigest(), True],
    }
    assert (made.size, made.root) == (4, tree)


@pytest.mark.parametrize(
    "name",
    [
        " ",
        "a b",
        "-rf",
        "--delete",
        "a\nb",
        "a\tb",
        "é漢😀",
        "*",
        "[a]",
        "a\\b",
        "#",
        "!a",
        "~",
        "$(id)",
    ],
)
def test_any_name_that_is_utf8_is_in_it(tree, name):
    put(tree, name)
    put(tree, f"folder/{name}")
    assert paths(tree) == sorted([name, f"folder/{name}"])


def test_links_are_links(tree):
    write(tree, lib__a_py="x")
    (tree / "to-file").symlink_to("lib/a.py")
    (tree / "lib" / "to-folder").symlink_to("../lib")
    (tree / "to-nothing").symlink_to("missing")
    manifest = release.snapshot(tree).manifest
    assert manifest["to-file"] == ["link", "lib/a.py"]
    assert manifest["lib/to-folder"] == ["link", "../lib"]
    assert manifest["to-nothing"] == ["link", "missing"]


def test_what_is_never_pushed(tree):
    write(tree, train_py="", lib__x_pyc="", lib__runs__b="")
    for name in (".git/HEAD", "lib/.git", "__pycache__/a", "lib/__pycache__/b.pyc"):
        put(tree, name)
    assert paths(tree) == ["lib/runs/b", "train.py"]


def test_no_gitignore_brings_back_what_is_never_pushed(tree):
    write(tree, train_py="", x_pyc="")
    put(tree, ".gitignore", "!*.pyc\n!.git\n")
    put(tree, ".git/HEAD")
    assert paths(tree) == [".gitignore", "train.py"]


def test_exclude_leaves_out_by_the_patterns_of_gitignore(tree):
    write(tree, train_py="", a_csv="", data__b_csv="", data__keep_csv="", lib__data__c="")
    assert paths(tree, "*.csv", "!keep.csv", "/lib/") == ["data/keep.csv", "train.py"]


def test_a_gitignore_does_not_bring_back_what_is_excluded(tree):
    write(tree, train_py="", a_csv="")
    put(tree, ".gitignore", "!a.csv\n")
    assert paths(tree, "*.csv") == [".gitignore", "train.py"]


@pytest.mark.parametrize("pattern", ["!", "a\\"])
def test_a_pattern_that_is_none_is_refused_by_where_it_stands(tree, pattern):
    write(tree, train_py="")
    assert refusal(tree, pattern) == (
        f'source.exclude: "{pattern}" is no pattern',
        "write it as in .gitignore",
    )


# What names it


def name(tree):
    return release.snapshot(tree).id


def test_the_same_tree_has_the_same_id_wherever_and_whenever(tree, tmp_path):
    write(tree, train_py="x", lib__a_py="y")
    (tree / "link").symlink_to("train.py")
    copy = tmp_path / "elsewhere"
    shutil.copytree(tree, copy, symlinks=True)
    os.utime(copy / "train.py", (1, 1))
    (copy / "lib").chmod(0o700)
    assert name(tree) == name(copy)
    assert len(name(tree)) == 16


def test_an_empty_folder_changes_nothing(tree):
    write(tree, train_py="x")
    before = name(tree)
    (tree / "empty").mkdir()
    assert name(tree) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "train.py").write_text("y"),
        lambda tree: (tree / "train.py").chmod(0o755),
        lambda tree: (tree / "train.py").rename(tree / "run.py"),
        lambda tree: put(tree, "more"),
        lambda tree: (tree / "link").unlink(),
        lambda tree: [(tree / "link").unlink(), (tree / "link").symlink_to("gone")],
        lambda tree: [(tree / "link").unlink(), put(tree, "link", "train.py")],
    ],
    ids=["content", "executable", "name", "another file", "no link", "target", "a file for a link"],
)
def test_any_change_gives_another_id(tree, change):
    write(tree, train_py="x")
    (tree / "link").symlink_to("train.py")
    before = name(tree)
    change(tree)
    assert name(tree) != before


def test_what_is_ignored_does_not_change_the_id(tree):
    write(tree, train_py="x")
    before = name(tree)
    put(tree, ".git/index", "y")
    put(tree, "__pycache__/train.pyc", "z")
    assert name(tree) == before


# What it refuses


def test_a_missing_folder_is_refused(tree):
    message, _ = refusal(tree / "gone")
    assert message == f"source.path: {tree / 'gone'} is not a folder"


def test_a_file_for_a_folder_is_refused(tree):
    message, _ = refusal(put(tree, "train.py"))
    assert message == f"source.path: {tree / 'train.py'} is not a folder"


def test_a_tree_without_files_is_refused(tree):
    put(tree, ".gitignore", "*")
    assert refusal(tree) == (
        f"source.path: {tree} holds no file to push",
        "see exclude and .gitignore",
    )


@pytest.mark.parametrize("target", ["/etc/hostname", "..", "../x", "sub/../../x", "a/../../x"])
def test_a_link_that_leaves_the_tree_is_refused(tree, target):
    write(tree, train_py="")
    (tree / "data").symlink_to(target)
    assert refusal(tree) == (
        f"data links to {target}, which is outside of {tree} and absent on the hosts",
        'copy it in, or add "data" to source.exclude',
    )


def test_a_link_that_leaves_its_folder_but_not_the_tree_is_not_refused(tree):
    write(tree, train_py="")
    put(tree, "lib/a")
    (tree / "lib" / "up").symlink_to("../train.py")
    assert "lib/up" in paths(tree)


def test_a_pipe_is_refused(tree):
    write(tree, train_py="")
    os.mkfifo(tree / "pipe")
    assert refusal(tree) == (
        "pipe is neither a file, a folder nor a link, so it can't be pushed",
        'add "pipe" to source.exclude',
    )
    assert paths(tree, "pipe") == ["train.py"]


def test_a_name_that_is_not_utf8_is_refused(tree):
    write(tree, train_py="")
    Path(os.fsdecode(os.fsencode(tree) + b"/caf\xe9")).write_text("x")
    assert refusal(tree) == ("the name caf\\xe9 is not UTF-8", "rename or exclude it")
    assert paths(tree, "caf*") == ["train.py"]


@pytest.mark.parametrize("unreadable", ["lib", "lib/a.py", ".gitignore"])
def test_what_can_not_be_read_is_refused(unreadable):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, train_py="", lib__a_py="")
        put(folder, ".gitignore", "x")
        (folder / unreadable).chmod(0)
        with as_nobody(folder):
            told = refusal(folder)
        (folder / unreadable).chmod(0o755)
    assert told == (
        f"{unreadable} can't be read: Permission denied",
        f'change its permissions, or add "{unreadable}" to source.exclude',
    )
