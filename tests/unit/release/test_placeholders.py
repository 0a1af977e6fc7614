"""A release knows what a clone has in place of files: pointers of Git LFS, empty submodules."""

from __future__ import annotations

import pytest
from support.builders import put

from tfdeploy.release import placeholders, snapshot

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 640000000\n"
EXTENDED = POINTER.replace("oid", f"ext-0-foo sha256:{'1' * 64}\noid")


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "top/source"
    put(folder, "train.py")
    return folder


def test_pointers_of_the_source_are_found(tree):
    put(tree, "data/a.bin", POINTER)
    put(tree, "data/extended.bin", EXTENDED)
    put(tree, "notes.md", "Git LFS writes\n" + POINTER)
    put(tree, "long.txt", POINTER.ljust(placeholders.MAX_POINTER_BYTES + 1))
    assert list(snapshot.take(tree).pointers) == ["data/a.bin", "data/extended.bin"]


@pytest.mark.parametrize("compare", ["mtime", "hash"])
def test_pointers_of_a_data_set_are_found(tree, compare):
    put(tree, "a.bin", POINTER)
    put(tree, "b.bin", "x" * len(POINTER))
    assert list(snapshot.take_data_set("data", tree, (), compare).pointers) == ["a.bin"]


def test_empty_folders_of_submodules_are_found(tree):
    (tree / "vendor/one").mkdir(parents=True)
    (tree / "vendor/a two").mkdir()
    (tree / "other").mkdir()
    put(tree, "vendor/full/x.py")
    put(tree, "vendor/full/.gitmodules", '[submodule "deep"]\npath = deep\n')
    (tree / "vendor/full/deep").mkdir()
    put(
        tree,
        ".gitmodules",
        '[submodule "one"]\n\tpath = vendor/one/\n\turl = x\n[submodule "two"]\n'
        '\tpath = "vendor/a two"\n[submodule "three"]\npath=vendor/full\n',
    )
    found = snapshot.take(tree).submodules
    assert list(found) == ["vendor/a two", "vendor/full/deep", "vendor/one"]
    assert list(snapshot.take(tree, ["/vendor/one"]).submodules) == found[:2]


def test_a_source_without_empty_folders_has_none(tree):
    put(tree, ".gitmodules", '[submodule "one"]\npath = vendor\n')
    put(tree, "vendor/x.py")
    assert snapshot.take(tree).submodules == []
