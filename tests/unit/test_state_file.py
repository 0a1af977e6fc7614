"""The `checkpoint` state file as TensorFlow writes it, and which files make a whole set."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent import state_file

# Read


def test_the_state_file_names_checkpoints_newest_first():
    state = (
        'model_checkpoint_path: "m-30"\n'
        'all_model_checkpoint_paths: "m-10"\n'
        'all_model_checkpoint_paths: "m-20"\n'
        'all_model_checkpoint_paths: "m-30"\n'
        "all_model_checkpoint_timestamps: 1.5\n"
        "last_preserved_timestamp: 1.5\n"
    )
    assert state_file.named(state) == ["m-30", "m-20", "m-10"]


def test_an_older_checkpoint_may_be_the_one_in_use():
    state = 'model_checkpoint_path: "m-1"\nall_model_checkpoint_paths: "m-1"\n'
    assert state_file.named(state + 'all_model_checkpoint_paths: "m-2"\n') == ["m-1", "m-2"]


def test_absolute_paths_as_v1_writes_them_are_cut_to_names():
    assert state_file.named('model_checkpoint_path: "/data/run 1/m.ckpt-7"') == ["m.ckpt-7"]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (r"a\"b-1", 'a"b-1'),
        (r"a\\b-1", r"a\b-1"),
        (r"a\'b-1", "a'b-1"),
        ("a#b-1", "a#b-1"),
        (r"mod\303\250le-1", "modèle-1"),
        ("modèle-1", "modèle-1"),
        (r"a\tb-1", "a\tb-1"),
    ],
)
def test_names_are_read_as_protobuf_writes_them(written, name):
    assert state_file.named(f'model_checkpoint_path: "{written}"') == [name]


@pytest.mark.parametrize("state", ["", "garbage", 'model_checkpoint_path: "cut', "x: 1"])
def test_a_state_file_that_is_none_names_nothing(state):
    assert state_file.named(state) == []


# A whole set


DATA = "m-1.data-00000-of-00001"


@pytest.mark.parametrize(
    ("there", "whole"),
    [
        ([DATA, "m-1.index"], [DATA, "m-1.index"]),
        ([DATA, "m-1.index", "m-1.meta"], [DATA, "m-1.index", "m-1.meta"]),
        ([DATA], None),
        (["m-1.index"], None),
        (["m-1.meta", "m-1.index"], None),
        ([], None),
        (["m-1.data-00000-of-00002", "m-1.index"], None),
        (["m-1.data-00001-of-00002", "m-1.index"], None),
        (["m-1.data-00000-of-00002", "m-1.data-00001-of-00003", "m-1.index"], None),
        (["m-1.data-00000-of-00002", "m-1.data-00002-of-00002", "m-1.index"], None),
        (["m-10.data-00000-of-00001", "m-10.index", "m-1.index"], None),
        ([DATA, "m-1.index.tmp"], None),
    ],
)
def test_a_set_is_whole_with_its_index_and_every_shard(there, whole):
    assert state_file.file_set(there, "m-1") == whole


def test_a_set_holds_no_file_of_another_and_none_that_is_still_written():
    others = ["m-10.index", "m-1.index.tempstate12", f"{DATA}.tempstate12", "m-1.x", "checkpoint"]
    assert state_file.file_set([DATA, "m-1.index", *others], "m-1") == [DATA, "m-1.index"]


def test_all_shards_belong_to_a_set():
    shards = [f"m-1.data-{number:05}-of-00012" for number in range(12)]
    assert state_file.file_set(["m-1.index", *shards], "m-1") == [*shards, "m-1.index"]
    assert state_file.file_set(["m-1.index", *shards[1:]], "m-1") is None


# Written


@given(st.text(st.characters(exclude_categories=["C"], exclude_characters="/\n"), min_size=1))
def test_what_is_written_is_read(tmp_path_factory, name):
    folder = os.fspath(tmp_path_factory.mktemp("checkpoints"))
    state_file.write(folder, name)
    assert state_file.read(folder) == [name]


def test_all_whole_sets_are_named_by_their_age_and_the_newest_on_top(tmp_path):
    for age, name in enumerate(("m-2", "m-10", "m-1", "half-1")):
        for file in (f"{name}.index", f"{name}.data-00000-of-00001"):
            (tmp_path / file).touch()
            os.utime(tmp_path / file, (100 - age, 100 - age))
    (tmp_path / "half-1.data-00000-of-00001").unlink()
    state_file.write(os.fspath(tmp_path), "m-10")
    assert state_file.read(os.fspath(tmp_path)) == ["m-10", "m-2", "m-1"]


def test_a_folder_without_a_state_file_names_nothing(tmp_path):
    assert state_file.read(os.fspath(tmp_path)) == []
    assert state_file.read(os.fspath(tmp_path / "none")) == []


@pytest.mark.parametrize(("name", "step"), [("model.ckpt-20", 20), ("best", None), ("a-1-b", None)])
def test_a_step_stands_at_a_names_end(name, step):
    assert state_file.step(name) == step
