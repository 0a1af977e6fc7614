"""A release of the source: its files, its id, and the trees that are refused."""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from support.builders import as_unprivileged_user, put

from tfdeploy.errors import PlanError
from tfdeploy.release import large, snapshot


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


def write(tree, **files):
    """Write files: `a__b_py="x"` is a/b.py with the content x."""
    for name, content in files.items():
        put(tree, name.replace("__", "/").replace("_", "."), content)


def paths(tree, *exclude):
    return list(snapshot.take(tree, exclude).manifest)


def refusal(tree, *exclude):
    with pytest.raises(PlanError) as refused:
        snapshot.take(tree, exclude)
    return refused.value.message, refused.value.hint


# Files


def test_the_manifest_has_the_hash_and_the_mode_of_every_file(tree):
    write(tree, train_py="code", lib__a_py="")
    (tree / "train.py").chmod(0o755)
    release = snapshot.take(tree)
    assert release.manifest == {
        "lib/a.py": ["file", hashlib.sha256(b"").hexdigest(), False],
        "train.py": ["file", hashlib.sha256(b"code").hexdigest(), True],
    }
    assert (release.size, release.root) == (4, tree)


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
def test_a_release_has_files_with_any_utf8_name(tree, name):
    put(tree, name)
    put(tree, f"folder/{name}")
    assert paths(tree) == sorted([name, f"folder/{name}"])


def test_links_stay_links(tree):
    write(tree, lib__a_py="x")
    (tree / "to-file").symlink_to("lib/a.py")
    (tree / "lib" / "to-folder").symlink_to("../lib")
    (tree / "to-nothing").symlink_to("missing")
    manifest = snapshot.take(tree).manifest
    assert manifest["to-file"] == ["link", "lib/a.py"]
    assert manifest["lib/to-folder"] == ["link", "../lib"]
    assert manifest["to-nothing"] == ["link", "missing"]


def test_compiled_python_is_never_pushed(tree):
    write(tree, train_py="", lib__x_pyc="", lib__runs__b="")
    for name in ("__pycache__/a", "lib/__pycache__/b.pyc"):
        put(tree, name)
    assert paths(tree) == ["lib/runs/b", "train.py"]


def test_no_gitignore_includes_what_is_never_pushed(tree):
    write(tree, train_py="", x_pyc="")
    put(tree, ".gitignore", "!*.pyc\n")
    assert paths(tree) == [".gitignore", "train.py"]


def test_exclude_has_patterns_as_in_gitignore(tree):
    write(tree, train_py="", a_csv="", data__b_csv="", data__keep_csv="", lib__data__c="")
    assert paths(tree, "*.csv", "!keep.csv", "/lib/") == ["data/keep.csv", "train.py"]


HOSTS_FILE = 'project = "p"\n[training]\ncommand = "python train.py"\n[hosts.a]\nworkers = 1\n'


def test_notebooks_and_hosts_files_are_pushed_only_if_asked_for(tree):
    write(tree, train_py="", a_ipynb="{}", lib__b_ipynb="{}")
    put(tree, ".ipynb_checkpoints/a-checkpoint.ipynb", "{}")
    put(tree, ".ipynb_checkpoints/train-checkpoint.py")
    put(tree, "lab.toml", HOSTS_FILE)
    put(tree, "conf/cloud.toml", HOSTS_FILE)
    put(tree, "model.toml", "[training]\n[hosts]\n")
    put(tree, "broken.toml", HOSTS_FILE + "[")
    code = ["broken.toml", "model.toml", "train.py"]
    assert paths(tree) == code
    assert paths(tree, "!b.ipynb", "!lab.toml") == sorted([*code, "lab.toml", "lib/b.ipynb"])
    assert paths(tree, "!conf/") == sorted([*code, "conf/cloud.toml"])


def test_what_is_too_large_for_code_is_pushed_only_if_asked_for(tree):
    write(tree, train_py="")
    for name in ("one.bin", "two.bin"):
        put(tree, f"data/{name}")
        os.truncate(tree / "data" / name, 60_000_000)
    message, hint = refusal(tree)
    assert message.startswith("data/ (120.0 MB in 2 files): larger than 100.0 MB, so not sent")
    assert [line.split("  ")[2] for line in hint.splitlines()[1:]] == [
        '[data."data"]',
        'exclude = ["/data/"]',
        'exclude = ["!/data/"]',
    ]
    assert paths(tree, "/data/") == ["train.py"]
    assert paths(tree, "/data/one.bin") == ["data/two.bin", "train.py"]
    for asked in ("!/data/", "!*.bin", "!two.bin"):
        assert paths(tree, asked) == ["data/one.bin", "data/two.bin", "train.py"]


def test_a_tree_with_too_many_files_is_refused_before_it_is_read(tree, monkeypatch):
    monkeypatch.setattr(snapshot, "MAX_FILES", 3)
    write(tree, a_py="", b_py="", c_py="")
    assert len(paths(tree)) == 3
    write(tree, d_py="")
    message, hint = refusal(tree)
    assert message == f"source.path: {tree} has more than 3 files"
    assert hint.startswith("exclude what no host needs (source.exclude), or pack them")


def test_a_gitignore_does_not_override_exclude(tree):
    write(tree, train_py="", a_csv="")
    put(tree, ".gitignore", "!a.csv\n")
    assert paths(tree, "*.csv") == [".gitignore", "train.py"]


@pytest.mark.parametrize("pattern", ["!", "a\\"])
def test_an_invalid_pattern_is_refused_with_its_key(tree, pattern):
    write(tree, train_py="")
    assert refusal(tree, pattern) == (
        f'source.exclude: "{pattern}" is not a valid pattern',
        "write it as in .gitignore",
    )


# Ids


def release_id(tree):
    return snapshot.take(tree).id


def test_equal_trees_have_equal_ids(tree, tmp_path):
    write(tree, train_py="x", lib__a_py="y")
    (tree / "link").symlink_to("train.py")
    copy = tmp_path / "elsewhere"
    shutil.copytree(tree, copy, symlinks=True)
    os.utime(copy / "train.py", (1, 1))
    (copy / "lib").chmod(0o700)
    assert release_id(tree) == release_id(copy)
    assert len(release_id(tree)) == 16


def test_an_empty_folder_does_not_change_the_id(tree):
    write(tree, train_py="x")
    before = release_id(tree)
    (tree / "empty").mkdir()
    assert release_id(tree) == before


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
def test_any_change_of_a_file_changes_the_id(tree, change):
    write(tree, train_py="x")
    (tree / "link").symlink_to("train.py")
    before = release_id(tree)
    change(tree)
    assert release_id(tree) != before


def test_what_is_ignored_does_not_change_the_id(tree):
    write(tree, train_py="x")
    before = release_id(tree)
    put(tree, "__pycache__/train.pyc", "z")
    assert release_id(tree) == before


# Refusals


def test_a_missing_folder_is_refused(tree):
    message, _ = refusal(tree / "gone")
    assert message == f"source.path: {tree / 'gone'} is not a folder"


def test_a_file_instead_of_a_folder_is_refused(tree):
    message, _ = refusal(put(tree, "train.py"))
    assert message == f"source.path: {tree / 'train.py'} is not a folder"


def test_a_tree_without_files_is_refused(tree):
    put(tree, ".gitignore", "*")
    assert refusal(tree) == (
        f"source.path: {tree} has no file to push",
        "check exclude and what git ignores",
    )


def test_a_virtual_environment_is_refused_as_a_whole(tree):
    write(tree, train_py="")
    (tree / "lab/.venv/bin").mkdir(parents=True)
    (tree / "lab/.venv/pyvenv.cfg").write_text("")
    (tree / "lab/.venv/bin/python").symlink_to("/usr/bin/python3")
    with (tree / "lab/.venv/libtensorflow.so").open("wb") as library:
        library.truncate(large.MAX_CODE_BYTES + 1)
    assert refusal(tree) == (
        "lab/.venv/ is a Python virtual environment, which runs only on this machine",
        'add "lab/.venv/" to source.exclude; [env] builds one on each host',
    )


@pytest.mark.parametrize("target", ["/etc/hostname", "..", "../x", "sub/../../x", "a/../../x"])
def test_a_link_out_of_the_tree_is_refused(tree, target):
    write(tree, train_py="")
    (tree / "data").symlink_to(target)
    assert refusal(tree) == (
        f"data links to {target}, which is outside of {tree} and so not on the hosts",
        'copy it in, or add "data" to source.exclude',
    )


def test_a_link_out_of_its_folder_but_inside_the_tree_is_accepted(tree):
    write(tree, train_py="")
    put(tree, "lib/a")
    (tree / "lib" / "up").symlink_to("../train.py")
    assert "lib/up" in paths(tree)


def test_a_pipe_is_refused(tree):
    write(tree, train_py="")
    os.mkfifo(tree / "pipe")
    assert refusal(tree) == (
        "pipe can't be pushed: it is neither a file, a folder nor a link",
        'add "pipe" to source.exclude',
    )
    assert paths(tree, "pipe") == ["train.py"]


def test_a_name_that_is_not_utf8_is_refused(tree):
    write(tree, train_py="")
    Path(os.fsdecode(os.fsencode(tree) + b"/caf\xe9")).write_text("x")
    assert refusal(tree) == ("the name caf\\xe9 is not UTF-8", "rename or exclude it")
    assert paths(tree, "caf*") == ["train.py"]


@pytest.mark.parametrize("unreadable", ["lib", "lib/a.py", ".gitignore"])
def test_an_unreadable_file_or_folder_is_refused(unreadable):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, train_py="", lib__a_py="")
        put(folder, ".gitignore", "x")
        (folder / unreadable).chmod(0)
        with as_unprivileged_user(folder):
            found = refusal(folder)
        (folder / unreadable).chmod(0o755)
    assert found == (
        f"{unreadable} can't be read: Permission denied",
        f'change its permissions, or add "{unreadable}" to source.exclude',
    )


# Hostile trees


def test_a_tree_that_is_deeper_than_the_stack_is_read(tree):
    put(tree, "d/" * 200 + "file")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        found = paths(tree)
    finally:
        sys.setrecursionlimit(limit)
    assert found == ["d/" * 200 + "file"]


def test_an_ignore_file_without_end_is_refused(tree):
    put(tree, "sub/.gitignore", "a\n" * 500_001)
    assert refusal(tree)[0] == f"{tree}/sub/.gitignore is larger than 1.0 MB"
