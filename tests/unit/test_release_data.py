"""A data set at home: what of it goes to the hosts, and what names it."""

from __future__ import annotations

import hashlib
import os
import shutil

import pytest

from tfdeploy import release
from tfdeploy.errors import PlanError
from unit.test_release import put


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "tree"
    put(folder, "a", "one")
    put(folder, "deep/b", "three")
    return folder


def made(tree, *exclude, place="data/mnist", compare="mtime"):
    return release.data_set(place, tree, exclude, compare)


def refusal(tree, *exclude):
    with pytest.raises(PlanError) as refused:
        made(tree, *exclude)
    return refused.value.message, refused.value.hint


def test_a_file_is_named_by_its_size_and_time(tree):
    os.utime(tree / "a", ns=(1, 1_700_000_000_123_456_789))
    (tree / "a").chmod(0o755)
    assert made(tree).manifest["a"] == ["file", "3.1700000000123456789", True]


def test_nothing_is_read_to_name_it(tree, monkeypatch):
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert made(tree).size == 8


def test_a_file_is_named_by_its_content_where_that_is_asked_for(tree):
    manifest = made(tree, compare="hash").manifest
    assert manifest["a"] == ["file", hashlib.sha256(b"one").hexdigest(), False]


def test_the_same_content_at_another_time_is_another_version_by_time_and_none_by_hash(tree):
    before = {compare: made(tree, compare=compare).id for compare in ("mtime", "hash")}
    os.utime(tree / "a", (1, 1))
    assert made(tree).id != before["mtime"]
    assert made(tree, compare="hash").id == before["hash"]


def test_a_copy_that_keeps_its_times_is_the_same(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "copy", symlinks=True)
    assert made(tree).id == made(tmp_path / "copy").id


@pytest.mark.parametrize(
    ("place", "begins"),
    [
        ("data/mnist", "data-mnist-"),
        ("a.b c", "a-b-c-"),
        ("漢", "data-"),
        ("x" * 300, "x" * 60 + "-"),
    ],
)
def test_its_id_tells_its_place_and_can_be_the_name_of_a_folder(tree, place, begins):
    assert made(tree, place=place).id.startswith(begins)


def test_no_two_places_have_ids_that_begin_alike(tree):
    """The beginning says of what it is a version."""
    places = ["data", "data/train", "data-train", "data.train", "漢", "字", "x" * 300, "x" * 301]
    begins = [made(tree, place=place).id.rpartition("-")[0] for place in places]
    assert len({*begins}) == len(places)


def test_all_of_it_goes_but_what_is_excluded(tree):
    put(tree, ".gitignore", "*")
    put(tree, "x.pyc")
    put(tree, "x.tmp")
    assert list(made(tree, "*.tmp").manifest) == [".gitignore", "a", "deep/b", "x.pyc"]


# What it refuses, by the table that has to be changed


def test_a_missing_folder_is_refused(tree):
    assert refusal(tree / "gone")[0] == f"data.data/mnist.path: {tree}/gone is not a folder"


def test_one_without_files_is_refused(tree):
    assert refusal(tree, "*") == (
        f"data.data/mnist.path: {tree} holds no file to push",
        "see its exclude",
    )


def test_a_link_that_leaves_it_is_refused(tree):
    (tree / "link").symlink_to("/mnt")
    assert refusal(tree)[1] == 'copy it in, or add "link" to data.data/mnist.exclude'


def test_a_pattern_that_is_none_is_refused(tree):
    assert refusal(tree, "!")[0] == 'data.data/mnist.exclude: "!" is no pattern'


# What changes while it is sent


def touched(tree):
    os.utime(tree / "a", ns=(1, (tree / "a").stat().st_mtime_ns + 1))


@pytest.mark.parametrize(
    "change",
    [touched, lambda tree: put(tree, "a", "longer"), lambda tree: (tree / "a").unlink()],
    ids=["time", "size", "gone"],
)
def test_what_is_named_by_its_time_is_seen_to_change(tree, change):
    known = made(tree)
    assert known.changed(known.manifest) == []
    change(tree)
    assert known.changed(known.manifest) == ["a"]
    assert known.changed(["deep/b"]) == []


def test_what_is_named_by_its_content_is_seen_where_it_arrives(tree):
    (tree / "link").symlink_to("deep/../a")
    known = made(tree, compare="hash")
    put(tree, "a", "longer")
    assert known.changed(known.manifest) == []
