"""The `checkpoint` text file as TensorFlow writes it, and which files a checkpoint needs."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.shared import state_file

# Parsed


def test_the_state_file_names_checkpoints_newest_first():
    text = (
        'model_checkpoint_path: "m-30"\n'
        'all_model_checkpoint_paths: "m-10"\n'
        'all_model_checkpoint_paths: "m-20"\n'
        'all_model_checkpoint_paths: "m-30"\n'
        "all_model_checkpoint_timestamps: 1.5\n"
        "last_preserved_timestamp: 1.5\n"
    )
    assert state_file.parse(text) == ["m-30", "m-20", "m-10"]


def test_an_older_checkpoint_may_be_the_latest():
    text = 'model_checkpoint_path: "m-1"\nall_model_checkpoint_paths: "m-1"\n'
    assert state_file.parse(text + 'all_model_checkpoint_paths: "m-2"\n') == ["m-1", "m-2"]


def test_absolute_paths_that_v1_writes_are_reduced_to_names():
    assert state_file.parse('model_checkpoint_path: "/data/run 1/m.ckpt-7"') == ["m.ckpt-7"]


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
def test_names_are_unescaped_as_protobuf_escapes_them(written, name):
    assert state_file.parse(f'model_checkpoint_path: "{written}"') == [name]


@pytest.mark.parametrize("text", ["", "garbage", 'model_checkpoint_path: "cut', "x: 1"])
def test_an_invalid_state_file_names_no_checkpoints(text):
    assert state_file.parse(text) == []


# Complete checkpoints


DATA = "m-1.data-00000-of-00001"


@pytest.mark.parametrize(
    ("files", "file_set"),
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
def test_a_checkpoint_needs_its_index_and_every_shard(files, file_set):
    assert state_file.file_set(files, "m-1") == file_set


def test_files_of_other_checkpoints_and_temporary_files_do_not_belong_to_it():
    others = ["m-10.index", "m-1.index.tempstate12", f"{DATA}.tempstate12", "m-1.x", "checkpoint"]
    assert state_file.file_set([DATA, "m-1.index", *others], "m-1") == [DATA, "m-1.index"]


def test_all_shards_belong_to_a_checkpoint():
    shards = [f"m-1.data-{number:05}-of-00012" for number in range(12)]
    assert state_file.file_set(["m-1.index", *shards], "m-1") == [*shards, "m-1.index"]
    assert state_file.file_set(["m-1.index", *shards[1:]], "m-1") is None


# Written


@given(st.text(st.characters(exclude_categories=["C"], exclude_characters="/\n"), min_size=1))
def test_a_written_name_is_read_back(tmp_path_factory, name):
    folder = os.fspath(tmp_path_factory.mktemp("checkpoints"))
    state_file.write(folder, name)
    assert state_file.read(folder) == [name]


def test_write_names_complete_checkpoints_by_age_with_the_newest_first(tmp_path):
    for age, name in enumerate(("m-2", "m-10", "m-1", "half-1")):
        for file in (f"{name}.index", f"{name}.data-00000-of-00001"):
            (tmp_path / file).touch()
            os.utime(tmp_path / file, (100 - age, 100 - age))
    (tmp_path / "half-1.data-00000-of-00001").unlink()
    state_file.write(os.fspath(tmp_path), "m-10")
    assert state_file.read(os.fspath(tmp_path)) == ["m-10", "m-2", "m-1"]


def test_a_folder_without_a_state_file_has_no_checkpoints(tmp_path):
    assert state_file.read(os.fspath(tmp_path)) == []
    assert state_file.read(os.fspath(tmp_path / "none")) == []


@pytest.mark.parametrize(("name", "step"), [("model.ckpt-20", 20), ("best", None), ("a-1-b", None)])
def test_the_step_is_at_the_end_of_the_name(name, step):
    assert state_file.step(name) == step
