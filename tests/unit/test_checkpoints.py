"""Which files make a whole checkpoint, and how they are held still while TensorFlow goes on."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tfdeploy.agent import checkpoints, paths, records
from unit.made import launch

TASK = ("p", "r", "worker:0")


@pytest.fixture
def folder(root):
    """The checkpoint directory of a task that was started."""
    return started(root, "checkpoints")


def started(root, checkpoint_dir):
    task = root / "p" / "runs" / "r" / "worker-0"
    (task / "work").mkdir(parents=True)
    records.write(
        paths.launch(os.fspath(task)), records.to_json(launch(checkpoint_dir=checkpoint_dir))
    )
    made = task / "work" / checkpoint_dir
    made.mkdir(parents=True)
    return made


def save(folder, step, shards=1, keep=()):
    """A checkpoint as TensorFlow writes it: data, index, meta, then the state file."""
    name = f"model.ckpt-{step}"
    for shard in range(shards):
        (folder / f"{name}.data-{shard:05}-of-{shards:05}").write_text(f"data {step} {shard}")
    (folder / f"{name}.index").write_text(f"index {step}")
    (folder / f"{name}.meta").write_text(f"meta {step}")
    names = [*(f"model.ckpt-{old}" for old in keep), name]
    lines = [f'model_checkpoint_path: "{name}"']
    lines += [f'all_model_checkpoint_paths: "{one}"' for one in names]
    (folder / "state.new").write_text("\n".join(lines) + "\n")
    (folder / "state.new").replace(folder / "checkpoint")


def pinned(every=False):
    return checkpoints.pin(*TASK, every)


def names(answer):
    return [checkpoint["name"] for checkpoint in answer["checkpoints"]]


# The state file


def test_the_state_file_names_checkpoints_newest_first():
    state = (
        'model_checkpoint_path: "m-30"\n'
        'all_model_checkpoint_paths: "m-10"\n'
        'all_model_checkpoint_paths: "m-20"\n'
        'all_model_checkpoint_paths: "m-30"\n'
        "all_model_checkpoint_timestamps: 1.5\n"
        "last_preserved_timestamp: 1.5\n"
    )
    assert checkpoints.named(state) == ["m-30", "m-20", "m-10"]


def test_an_older_checkpoint_may_be_the_one_in_use():
    state = 'model_checkpoint_path: "m-1"\nall_model_checkpoint_paths: "m-1"\n'
    assert checkpoints.named(state + 'all_model_checkpoint_paths: "m-2"\n') == ["m-1", "m-2"]


def test_absolute_paths_as_v1_writes_them_are_cut_to_names():
    assert checkpoints.named('model_checkpoint_path: "/data/run 1/m.ckpt-7"') == ["m.ckpt-7"]


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
    assert checkpoints.named(f'model_checkpoint_path: "{written}"') == [name]


@pytest.mark.parametrize("state", ["", "garbage", 'model_checkpoint_path: "cut', "x: 1"])
def test_a_state_file_that_is_none_names_nothing(state):
    assert checkpoints.named(state) == []


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
    assert checkpoints.file_set(there, "m-1") == whole


def test_a_set_holds_no_file_of_another_and_none_that_is_still_written():
    others = ["m-10.index", "m-1.index.tempstate12", f"{DATA}.tempstate12", "m-1.x", "checkpoint"]
    assert checkpoints.file_set([DATA, "m-1.index", *others], "m-1") == [DATA, "m-1.index"]


def test_all_shards_belong_to_a_set():
    shards = [f"m-1.data-{number:05}-of-00012" for number in range(12)]
    assert checkpoints.file_set(["m-1.index", *shards], "m-1") == [*shards, "m-1.index"]
    assert checkpoints.file_set(["m-1.index", *shards[1:]], "m-1") is None


# Pinning


def test_the_newest_whole_checkpoint_is_pinned(folder):
    save(folder, 1)
    save(folder, 20, shards=2, keep=[1])
    answer = pinned()
    assert answer["checkpoint_dir"] == os.fspath(folder)
    assert answer["checkpoints"] == [
        {
            "name": "model.ckpt-20",
            "step": 20,
            "files": [
                {"path": "model.ckpt-20.data-00000-of-00002", "size": 9},
                {"path": "model.ckpt-20.data-00001-of-00002", "size": 9},
                {"path": "model.ckpt-20.index", "size": 8},
                {"path": "model.ckpt-20.meta", "size": 7},
            ],
        }
    ]


def test_every_checkpoint_is_pinned_where_that_is_asked(folder):
    save(folder, 1)
    save(folder, 2, keep=[1])
    assert names(pinned(every=True)) == ["model.ckpt-2", "model.ckpt-1"]


def test_a_broken_one_is_passed_over_for_the_one_before(folder):
    save(folder, 1)
    save(folder, 2, keep=[1])
    (folder / "model.ckpt-2.index").unlink()
    assert names(pinned()) == ["model.ckpt-1"]


def test_what_the_state_file_does_not_name_is_not_pinned(folder):
    save(folder, 9)
    save(folder, 1)
    assert names(pinned(every=True)) == ["model.ckpt-1"]


def test_a_name_without_a_step_has_none(folder):
    for suffix in (".index", ".data-00000-of-00001"):
        (folder / f"best{suffix}").write_text("x")
    (folder / "checkpoint").write_text('model_checkpoint_path: "best"')
    assert [found["step"] for found in pinned()["checkpoints"]] == [None]


def test_pinned_files_outlive_the_deletion_of_the_checkpoint(folder):
    save(folder, 1)
    answer = pinned()
    for file in folder.glob("model*"):
        file.unlink()
    held = Path(answer["pin"], "model.ckpt-1.data-00000-of-00001")
    assert held.read_text() == "data 1 0"


def test_a_pin_replaces_the_one_before_and_is_let_go(folder):
    save(folder, 1)
    pinned()
    save(folder, 2)
    answer = pinned()
    assert all(name.startswith("model.ckpt-2.") for name in os.listdir(answer["pin"]))
    checkpoints.unpin(*TASK)
    assert not Path(answer["pin"]).exists()
    checkpoints.unpin(*TASK)


@pytest.mark.parametrize("trick", ["link", "pipe", "folder"])
def test_what_is_no_regular_file_is_never_pinned(folder, trick, tmp_path):
    save(folder, 1)
    index = folder / "model.ckpt-1.index"
    index.unlink()
    if trick == "link":
        (tmp_path / "secret").write_text("x")
        index.symlink_to(tmp_path / "secret")
    elif trick == "pipe":
        os.mkfifo(index)
    else:
        index.mkdir()
    assert pinned()["checkpoints"] == []


@pytest.mark.parametrize("state", [None, "", "garbage", b"\xff\xfe"])
def test_without_a_readable_state_file_there_is_no_checkpoint(folder, state):
    save(folder, 1)
    (folder / "checkpoint").unlink()
    if state is not None:
        (folder / "checkpoint").write_bytes(state if isinstance(state, bytes) else state.encode())
    assert pinned()["checkpoints"] == []


def test_a_directory_that_was_never_made_holds_nothing(folder):
    folder.rmdir()
    assert pinned()["checkpoints"] == pinned()["events"] == []


def test_a_task_that_was_never_started_has_nothing(root):
    assert pinned() == {"checkpoint_dir": "", "pin": "", "checkpoints": [], "events": []}


def test_an_absolute_directory_is_looked_into(root, tmp_path):
    elsewhere = started(root, os.fspath(tmp_path / "shared"))
    save(elsewhere, 3)
    assert names(pinned()) == ["model.ckpt-3"]


def test_events_are_found_wherever_they_lie(folder, tmp_path):
    for name in ("events.out.tfevents.1.a", "eval/events.out.tfevents.2.b", "eval/other"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    (folder / "events.out.tfevents.link").symlink_to(tmp_path)
    os.mkfifo(folder / "events.out.tfevents.pipe")
    assert pinned()["events"] == ["eval/events.out.tfevents.2.b", "events.out.tfevents.1.a"]


class Trainer(threading.Thread):
    """Saves and deletes without a pause, as TensorFlow does it with max_to_keep = 1: the state file
    names the new set before the old one goes."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.step = 0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.is_set():
            self.step += 1
            save(self.folder, self.step)
            for old in self.folder.glob(f"model.ckpt-{self.step - 1}.*"):
                old.unlink()


@pytest.fixture
def training(folder):
    save(folder, 0)
    trainer = Trainer(folder)
    trainer.start()
    yield trainer
    trainer.ended.set()
    trainer.join()


def test_whatever_is_deleted_meanwhile_a_pinned_set_is_whole(training):
    for _ in range(150):
        answer = pinned()
        for found in answer["checkpoints"]:
            step = found["step"]
            for file in found["files"]:
                content = Path(answer["pin"], file["path"]).read_text()
                assert content.split()[1] == str(step)
                assert len(content) == file["size"]
            assert len(found["files"]) == 3
    assert training.step > 10


def test_a_set_whose_deletion_has_begun_is_passed_over_for_the_newer(folder, monkeypatch):
    """The state file names the new set before the old one goes: so it tells what is going."""
    save(folder, 1)
    real = os.listdir

    def late(path):
        monkeypatch.setattr(os, "listdir", real)
        save(folder, 2)
        (folder / "model.ckpt-1.meta").unlink()
        return real(path)

    def first_look(path):
        return late(path) if path == os.fspath(folder) else real(path)

    monkeypatch.setattr(os, "listdir", first_look)
    found = pinned()["checkpoints"]
    assert [(each["name"], len(each["files"])) for each in found] == [("model.ckpt-2", 3)]


def test_while_there_is_always_a_checkpoint_one_is_always_found(training):
    assert [step for step in range(150) if not pinned()["checkpoints"]] == []


def test_without_hard_links_files_are_copied(folder, monkeypatch):
    def no_links(source, target):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    save(folder, 1)
    answer = pinned()
    assert names(answer) == ["model.ckpt-1"]
    assert Path(answer["pin"], "model.ckpt-1.index").read_text() == "index 1"
