"""A release of a data set: its files, its id, and the trees that are refused."""

from __future__ import annotations

import hashlib
import os
import shutil

import pytest
from support.builders import put

from tfdeploy.errors import PlanError
from tfdeploy.release import snapshot


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "tree"
    put(folder, "a", "one")
    put(folder, "deep/b", "three")
    return folder


def take(tree, *exclude, place="data/mnist", compare="mtime"):
    return snapshot.take_data_set(place, tree, exclude, compare)


def refusal(tree, *exclude):
    with pytest.raises(PlanError) as refused:
        take(tree, *exclude)
    return refused.value.message, refused.value.hint


def test_a_file_is_named_by_its_size_and_time(tree):
    os.utime(tree / "a", ns=(1, 1_700_000_000_123_456_789))
    (tree / "a").chmod(0o755)
    assert take(tree).manifest["a"] == ["file", "3.1700000000123456789", True]


def test_no_file_is_read_to_compare_by_time(tree, monkeypatch):
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert take(tree).size == 8


def test_a_file_is_named_by_its_content_with_compare_hash(tree):
    manifest = take(tree, compare="hash").manifest
    assert manifest["a"] == ["file", hashlib.sha256(b"one").hexdigest(), False]


def test_a_changed_time_changes_the_id_only_without_compare_hash(tree):
    before = {compare: take(tree, compare=compare).id for compare in ("mtime", "hash")}
    os.utime(tree / "a", (1, 1))
    assert take(tree).id != before["mtime"]
    assert take(tree, compare="hash").id == before["hash"]


def test_a_copy_with_equal_times_has_the_same_id(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "copy", symlinks=True)
    assert take(tree).id == take(tmp_path / "copy").id


@pytest.mark.parametrize(
    ("place", "prefix"),
    [
        ("data/mnist", "data-mnist-"),
        ("a.b c", "a-b-c-"),
        ("漢", "data-"),
        ("x" * 300, "x" * 60 + "-"),
    ],
)
def test_the_id_starts_with_the_place_as_the_name_of_a_folder(tree, place, prefix):
    assert take(tree, place=place).id.startswith(prefix)


def test_ids_of_different_places_start_differently(tree):
    """The start of an id says of which data set it is a version."""
    places = ["data", "data/train", "data-train", "data.train", "漢", "字", "x" * 300, "x" * 301]
    prefixes = [take(tree, place=place).id.rpartition("-")[0] for place in places]
    assert len({*prefixes}) == len(places)


def test_only_exclude_leaves_files_of_a_data_set_out(tree):
    put(tree, ".gitignore", "*")
    put(tree, "x.pyc")
    put(tree, "x.tmp")
    assert list(take(tree, "*.tmp").manifest) == [".gitignore", "a", "deep/b", "x.pyc"]


# Refusals


def test_a_missing_folder_is_refused(tree):
    assert refusal(tree / "gone")[0] == f"data.data/mnist.path: {tree}/gone is not a folder"


def test_a_data_set_without_files_is_refused(tree):
    assert refusal(tree, "*") == (
        f"data.data/mnist.path: {tree} has no file to push",
        "check its exclude",
    )


def test_a_link_out_of_a_data_set_is_refused(tree):
    (tree / "link").symlink_to("/mnt")
    assert refusal(tree)[1] == 'copy it in, or add "link" to data.data/mnist.exclude'


def test_an_invalid_pattern_is_refused(tree):
    assert refusal(tree, "!")[0] == 'data.data/mnist.exclude: "!" is not a valid pattern'


# Changes during a push


def touched(tree):
    os.utime(tree / "a", ns=(1, (tree / "a").stat().st_mtime_ns + 1))


@pytest.mark.parametrize(
    "change",
    [touched, lambda tree: put(tree, "a", "longer"), lambda tree: (tree / "a").unlink()],
    ids=["time", "size", "gone"],
)
def test_changed_files_finds_a_change_of_size_or_time(tree, change):
    release = take(tree)
    assert release.changed_files(release.manifest) == []
    change(tree)
    assert release.changed_files(release.manifest) == ["a"]
    assert release.changed_files(["deep/b"]) == []


def test_changed_files_leaves_hashes_to_the_receiver(tree):
    (tree / "link").symlink_to("deep/../a")
    release = take(tree, compare="hash")
    put(tree, "a", "longer")
    assert release.changed_files(release.manifest) == []
