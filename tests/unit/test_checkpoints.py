"""How whole checkpoints are held still while TensorFlow goes on, and which of them are taken."""

from __future__ import annotations

import hashlib
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


def held(folder, every=False):
    return checkpoints.hold(os.fspath(folder), os.fspath(folder / "pin"), every)


def names(answer):
    return [checkpoint["name"] for checkpoint in answer["checkpoints"]]


# Pinning


def test_the_newest_whole_checkpoint_is_pinned(folder):
    save(folder, 1)
    save(folder, 20, shards=2, keep=[1])
    answer = pinned()
    assert answer["checkpoint_dir"] == os.fspath(folder)
    [found] = answer["checkpoints"]
    assert (found["name"], found["step"]) == ("model.ckpt-20", 20)
    assert [(file["path"], file["size"]) for file in found["files"]] == [
        ("model.ckpt-20.data-00000-of-00002", 9),
        ("model.ckpt-20.data-00001-of-00002", 9),
        ("model.ckpt-20.index", 8),
        ("model.ckpt-20.meta", 7),
    ]
    assert found["files"][2]["sha256"] == hashlib.sha256(b"index 20").hexdigest()


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
    assert pinned()["checkpoints"] == []


def test_a_task_that_was_never_started_has_nothing(root):
    nothing = {"checkpoints": [], "bad": []}
    assert pinned() == {"checkpoint_dir": "", "pin": "", **nothing}


def test_an_absolute_directory_is_looked_into(root, tmp_path):
    elsewhere = started(root, os.fspath(tmp_path / "shared"))
    save(elsewhere, 3)
    assert names(pinned()) == ["model.ckpt-3"]


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
        for found in held(training.folder):
            step = found["step"]
            for file in found["files"]:
                content = (training.folder / "pin" / file["path"]).read_text()
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
    assert [look for look in range(150) if not held(training.folder)] == []


def test_without_hard_links_files_are_copied(folder, monkeypatch):
    def no_links(source, target):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    save(folder, 1)
    answer = pinned()
    assert names(answer) == ["model.ckpt-1"]
    assert Path(answer["pin"], "model.ckpt-1.index").read_text() == "index 1"


# Verified


READER = """
import glob, json
def main(prefixes):
    print("a library prints")
    for prefix in prefixes:
        text = "".join(open(file).read() for file in glob.glob(prefix + ".data*"))
        verdict = {"tensors": 1} if text.startswith("data") else {"error": "DataLossError: " + text}
        print(json.dumps({"prefix": prefix, **verdict}), flush=True)
    return 0
"""


@pytest.fixture
def reader(root):
    """In the agent's place, one that can read what `save` writes."""
    inside = root / "agent" / "abc.pyz" / "inside"
    inside.mkdir(parents=True)
    (inside / "tfdeploy_verify.py").write_text(READER)
    return inside / "tfdeploy_verify.py"


def spoil(folder, step):
    (folder / f"model.ckpt-{step}.data-00000-of-00001").write_text("torn")


def test_a_set_that_was_read_to_its_end_is_verified(folder, reader):
    save(folder, 1)
    answer = pinned()
    assert [found["verified"] for found in answer["checkpoints"]] == [True]
    assert answer["bad"] == []


def test_what_was_read_to_its_end_once_is_not_read_again(folder, reader):
    save(folder, 1)
    assert pinned()["checkpoints"][0]["verified"]
    reader.write_text("main = lambda prefixes: 3")
    assert pinned()["checkpoints"][0]["verified"]


def test_what_has_changed_since_it_was_read_is_read_again(folder, reader):
    save(folder, 1)
    assert pinned()["checkpoints"][0]["verified"]
    spoil(folder, 1)
    assert [bad["name"] for bad in pinned()["bad"]] == ["model.ckpt-1"]


def test_in_the_place_of_a_bad_set_the_next_older_good_one_is_taken(folder, reader):
    for step in (1, 2, 3):
        save(folder, step, keep=range(1, step))
    spoil(folder, 2)
    spoil(folder, 3)
    answer = pinned()
    assert names(answer) == ["model.ckpt-1"]
    assert answer["bad"] == [
        {"name": f"model.ckpt-{step}", "error": "DataLossError: torn"} for step in (3, 2)
    ]


def test_of_all_sets_the_bad_ones_are_left_out(folder, reader):
    for step in (1, 2, 3):
        save(folder, step, keep=range(1, step))
    spoil(folder, 2)
    answer = pinned(every=True)
    assert names(answer) == ["model.ckpt-3", "model.ckpt-1"]
    assert [bad["name"] for bad in answer["bad"]] == ["model.ckpt-2"]


def test_what_is_older_than_the_first_good_set_is_not_read(folder, reader):
    for step in (1, 2, 3):
        save(folder, step, keep=range(1, step))
    spoil(folder, 3)
    spoil(folder, 1)
    answer = pinned()
    assert names(answer) == ["model.ckpt-2"]
    assert [bad["name"] for bad in answer["bad"]] == ["model.ckpt-3"]


def test_where_all_sets_are_bad_none_is_taken(folder, reader):
    save(folder, 1)
    spoil(folder, 1)
    answer = pinned()
    assert (names(answer), [bad["name"] for bad in answer["bad"]]) == ([], ["model.ckpt-1"])


@pytest.mark.parametrize("text", ["main = lambda prefixes: 3", "1 / 0"])
def test_what_nothing_here_can_read_is_taken_and_not_called_verified(folder, reader, text):
    save(folder, 1)
    reader.write_text(text)
    answer = pinned()
    assert [found["verified"] for found in answer["checkpoints"]] == [False]
    assert answer["bad"] == []


# Held by another


def newest(folder):
    return checkpoints.hold_newest(os.fspath(folder), os.fspath(folder / "mine"))


def test_the_newest_set_is_held_beside_a_pin(folder):
    save(folder, 1)
    found = newest(folder)
    assert (found["name"], found["step"]) == ("model.ckpt-1", 1)
    assert [file["path"] for file in found["files"]] == sorted(os.listdir(folder / "mine"))
    pinned()
    checkpoints.unpin(*TASK)
    assert (folder / "mine" / "model.ckpt-1.index").read_text() == "index 1"


def test_what_is_held_stays_until_there_is_a_newer_one(folder):
    save(folder, 1)
    first = newest(folder)
    before = os.stat(folder / "mine").st_ino
    assert newest(folder) == first
    assert os.stat(folder / "mine").st_ino == before
    save(folder, 2)
    assert newest(folder)["name"] == "model.ckpt-2"
    assert all(file.startswith("model.ckpt-2.") for file in os.listdir(folder / "mine"))


def test_another_set_of_the_same_name_is_held_anew(folder):
    save(folder, 1)
    newest(folder)
    for file in folder.glob("model.ckpt-1.*"):
        file.unlink()
    save(folder, 1)
    (folder / "model.ckpt-1.index").write_text("longer than before")
    assert newest(folder)["files"][1]["size"] == len("longer than before")
    assert (folder / "mine" / "model.ckpt-1.index").read_text() == "longer than before"


def test_where_there_is_no_checkpoint_nothing_is_held_or_made(folder):
    assert newest(folder) is None
    assert newest(folder / "none") is None
    assert os.listdir(folder) == []


# Announced


def test_each_new_set_is_announced_once(folder):
    saves = checkpoints.Saves(*TASK)
    assert saves.new() == []
    save(folder, 1)
    assert [saves.new(), saves.new()] == [["model.ckpt-1"], []]
    save(folder, 2)
    assert [saves.new(), saves.new()] == [["model.ckpt-2"], []]


def test_a_state_file_that_names_the_same_again_is_no_news(folder):
    saves = checkpoints.Saves(*TASK)
    save(folder, 1)
    saves.new()
    save(folder, 1)
    assert saves.new() == []


def test_a_set_is_announced_when_its_last_file_is_there(folder):
    saves = checkpoints.Saves(*TASK)
    save(folder, 1)
    (folder / "model.ckpt-1.index").rename(folder / "away")
    assert saves.new() == []
    (folder / "away").rename(folder / "model.ckpt-1.index")
    assert saves.new() == ["model.ckpt-1"]


# Installed


def test_a_set_is_moved_beside_the_others_and_named_as_the_newest(folder, tmp_path):
    save(folder, 9)
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    save(incoming, 2)
    (incoming / "checkpoint").unlink()
    written = checkpoints.install(os.fspath(incoming), os.fspath(folder), "model.ckpt-2")
    assert written[-2:] == ["model.ckpt-2.index", "checkpoint"]
    assert os.listdir(incoming) == []
    assert names(pinned(every=True)) == ["model.ckpt-2", "model.ckpt-9"]
