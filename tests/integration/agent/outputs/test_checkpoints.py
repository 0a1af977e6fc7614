"""Complete checkpoints are pinned while TensorFlow saves and deletes others."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest
from support.chief import TASK, save, start_task

from tfdeploy.agent.outputs import checkpoints
from tfdeploy.agent.protocol.outputs import BadCheckpoint, Pinned


@pytest.fixture
def folder(root):
    """The checkpoint directory of a task that was started."""
    return start_task(root, "checkpoints")


def pin(every=False):
    *_, answer = checkpoints.pin(*TASK, every)
    return answer


def pin_complete(folder, every=False):
    return checkpoints.pin_complete(os.fspath(folder), os.fspath(folder / "pin"), every)


def names(answer):
    return [checkpoint.name for checkpoint in answer.checkpoints]


# Pinned


def test_the_newest_complete_checkpoint_is_pinned(folder):
    save(folder, 1)
    save(folder, 20, shards=2, keep=[1])
    answer = pin()
    assert answer.checkpoint_dir == os.fspath(folder)
    [found] = answer.checkpoints
    assert (found.name, found.step) == ("model.ckpt-20", 20)
    assert [(file.path, file.size) for file in found.files] == [
        ("model.ckpt-20.data-00000-of-00002", 9),
        ("model.ckpt-20.data-00001-of-00002", 9),
        ("model.ckpt-20.index", 8),
        ("model.ckpt-20.meta", 7),
    ]
    assert found.files[2].sha256 == hashlib.sha256(b"index 20").hexdigest()


def test_every_checkpoint_is_pinned_on_request(folder):
    save(folder, 1)
    save(folder, 2, keep=[1])
    assert names(pin(every=True)) == ["model.ckpt-2", "model.ckpt-1"]


def test_an_incomplete_checkpoint_is_skipped(folder):
    save(folder, 1)
    save(folder, 2, keep=[1])
    (folder / "model.ckpt-2.index").unlink()
    assert names(pin()) == ["model.ckpt-1"]


def test_a_checkpoint_that_the_state_file_does_not_name_is_not_pinned(folder):
    save(folder, 9)
    save(folder, 1)
    assert names(pin(every=True)) == ["model.ckpt-1"]


def test_a_name_without_a_step_has_step_none(folder):
    for suffix in (".index", ".data-00000-of-00001"):
        (folder / f"best{suffix}").write_text("x")
    (folder / "checkpoint").write_text('model_checkpoint_path: "best"')
    assert [found.step for found in pin().checkpoints] == [None]


def test_pinned_files_exist_after_the_checkpoint_was_deleted(folder):
    save(folder, 1)
    answer = pin()
    for file in folder.glob("model*"):
        file.unlink()
    pinned_file = Path(answer.pin, "model.ckpt-1.data-00000-of-00001")
    assert pinned_file.read_text() == "data 1 0"


def test_a_pin_replaces_the_previous_one_and_can_be_removed(folder):
    save(folder, 1)
    pin()
    save(folder, 2)
    answer = pin()
    assert all(name.startswith("model.ckpt-2.") for name in os.listdir(answer.pin))
    checkpoints.unpin(*TASK)
    assert not Path(answer.pin).exists()
    checkpoints.unpin(*TASK)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_pinned(folder, kind, tmp_path):
    save(folder, 1)
    index = folder / "model.ckpt-1.index"
    index.unlink()
    if kind == "link":
        (tmp_path / "secret").write_text("x")
        index.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(index)
    else:
        index.mkdir()
    assert pin().checkpoints == []


@pytest.mark.parametrize("state", [None, "", "garbage", b"\xff\xfe"])
def test_without_a_readable_state_file_there_is_no_checkpoint(folder, state):
    save(folder, 1)
    (folder / "checkpoint").unlink()
    if state is not None:
        (folder / "checkpoint").write_bytes(state if isinstance(state, bytes) else state.encode())
    assert pin().checkpoints == []


def test_a_missing_directory_has_no_checkpoints(folder):
    folder.rmdir()
    assert pin().checkpoints == []


def test_a_task_that_was_never_started_has_no_checkpoints(root):
    assert pin() == Pinned(checkpoint_dir="", pin="", checkpoints=[], bad=[])


def test_an_absolute_checkpoint_directory_is_used(root, tmp_path):
    elsewhere = start_task(root, os.fspath(tmp_path / "shared"))
    save(elsewhere, 3)
    assert names(pin()) == ["model.ckpt-3"]


class Trainer(threading.Thread):
    """Saves and deletes without a pause, as TensorFlow does with max_to_keep = 1.

    The state file names the new checkpoint before the old one is deleted.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.step = 0
        self.stopped = threading.Event()

    def run(self):
        while not self.stopped.is_set():
            self.step += 1
            save(self.folder, self.step)
            for old in self.folder.glob(f"model.ckpt-{self.step - 1}.*"):
                old.unlink()


@pytest.fixture
def training(folder, monkeypatch):
    # A save without pauses may end within every try, for as long as the scheduler prefers it.
    monkeypatch.setattr(checkpoints, "MAX_TRIES", 1_000_000)
    save(folder, 0)
    trainer = Trainer(folder)
    trainer.start()
    yield trainer
    trainer.stopped.set()
    trainer.join()


def test_a_pinned_checkpoint_is_complete_while_others_are_deleted(training):
    pins = 0
    while pins < 150 or (training.step <= 10 and training.is_alive()):
        pins += 1
        for found in pin_complete(training.folder):
            step = found["step"]
            for file in found["files"]:
                content = (training.folder / "pin" / file["path"]).read_text()
                assert content.split()[1] == str(step)
                assert len(content) == file["size"]
            assert len(found["files"]) == 3
    assert training.step > 10


def test_a_checkpoint_that_is_being_deleted_is_skipped_for_the_newer_one(folder, monkeypatch):
    """The state file names the new checkpoint before the old one is deleted."""
    save(folder, 1)
    real = os.listdir

    def list_after_save(path):
        monkeypatch.setattr(os, "listdir", real)
        save(folder, 2)
        (folder / "model.ckpt-1.meta").unlink()
        return real(path)

    def list_first(path):
        return list_after_save(path) if path == os.fspath(folder) else real(path)

    monkeypatch.setattr(os, "listdir", list_first)
    found = pin().checkpoints
    assert [(each.name, len(each.files)) for each in found] == [("model.ckpt-2", 3)]


def test_a_checkpoint_is_always_found_while_one_exists(training):
    assert [attempt for attempt in range(150) if not pin_complete(training.folder)] == []


def test_files_are_copied_on_a_file_system_without_hard_links(folder, monkeypatch):
    def no_links(source, target):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    save(folder, 1)
    answer = pin()
    assert names(answer) == ["model.ckpt-1"]
    assert Path(answer.pin, "model.ckpt-1.index").read_text() == "index 1"


# Verified


READER = """
import glob, json
def main(prefixes):
    print("a library prints")
    for prefix in prefixes:
        text = "".join(open(file).read() for file in glob.glob(prefix + ".data*"))
        result = {"tensors": 1} if text.startswith("data") else {"error": "DataLossError: " + text}
        print(json.dumps({"prefix": prefix, **result}), flush=True)
    return 0
"""


@pytest.fixture
def reader(root):
    """A reader in place of tfdeploy_verify that can read what `save` writes."""
    inside = root / "agent" / "abc.pyz" / "inside"
    inside.mkdir(parents=True)
    (inside / "tfdeploy_verify.py").write_text(READER)
    return inside / "tfdeploy_verify.py"


def damage(folder, step):
    (folder / f"model.ckpt-{step}.data-00000-of-00001").write_text("torn")


def test_a_checkpoint_that_was_read_completely_is_verified(folder, reader):
    save(folder, 1)
    answer = pin()
    assert [found.verified for found in answer.checkpoints] == [True]
    assert answer.bad == []


def test_a_verified_checkpoint_is_not_read_again(folder, reader):
    save(folder, 1)
    assert pin().checkpoints[0].verified
    reader.write_text("main = lambda prefixes: 3")
    assert pin().checkpoints[0].verified


def test_a_verified_checkpoint_that_has_changed_is_read_again(folder, reader):
    save(folder, 1)
    assert pin().checkpoints[0].verified
    damage(folder, 1)
    assert [bad.name for bad in pin().bad] == ["model.ckpt-1"]


def test_the_next_older_good_checkpoint_replaces_a_bad_one(folder, reader):
    for step in (1, 2, 3):
        save(folder, step, keep=range(1, step))
    damage(folder, 2)
    damage(folder, 3)
    answer = pin()
    assert names(answer) == ["model.ckpt-1"]
    assert answer.bad == [
        BadCheckpoint(f"model.ckpt-{step}", "DataLossError: torn") for step in (3, 2)
    ]


def test_bad_checkpoints_are_skipped_if_every_one_is_pinned(folder, reader):
    for step in (1, 2, 3):
        save(folder, step, keep=range(1, step))
    damage(folder, 2)
    answer = pin(every=True)
    assert names(answer) == ["model.ckpt-3", "model.ckpt-1"]
    assert [bad.name for bad in answer.bad] == ["model.ckpt-2"]


def test_checkpoints_older_than_the_first_good_one_are_not_read(folder, reader):
    for step in (1, 2, 3):
        save(folder, step, keep=range(1, step))
    damage(folder, 3)
    damage(folder, 1)
    answer = pin()
    assert names(answer) == ["model.ckpt-2"]
    assert [bad.name for bad in answer.bad] == ["model.ckpt-3"]


def test_no_checkpoint_is_pinned_if_all_are_bad(folder, reader):
    save(folder, 1)
    damage(folder, 1)
    answer = pin()
    assert (names(answer), [bad.name for bad in answer.bad]) == ([], ["model.ckpt-1"])


@pytest.mark.parametrize("text", ["main = lambda prefixes: 3", "1 / 0"])
def test_a_checkpoint_is_pinned_but_not_verified_without_tensorflow(folder, reader, text):
    save(folder, 1)
    reader.write_text(text)
    answer = pin()
    assert [found.verified for found in answer.checkpoints] == [False]
    assert answer.bad == []


# Pinned in a folder of the caller's


def pin_newest(folder):
    return checkpoints.pin_newest(os.fspath(folder), os.fspath(folder / "own-pin"))


def test_pin_newest_is_independent_of_the_verb_pin(folder):
    save(folder, 1)
    found = pin_newest(folder)
    assert (found["name"], found["step"]) == ("model.ckpt-1", 1)
    assert [file["path"] for file in found["files"]] == sorted(os.listdir(folder / "own-pin"))
    pin()
    checkpoints.unpin(*TASK)
    assert (folder / "own-pin" / "model.ckpt-1.index").read_text() == "index 1"


def test_pin_newest_keeps_its_links_until_there_is_a_newer_checkpoint(folder):
    save(folder, 1)
    first = pin_newest(folder)
    before = os.stat(folder / "own-pin").st_ino
    assert pin_newest(folder) == first
    assert os.stat(folder / "own-pin").st_ino == before
    save(folder, 2)
    assert pin_newest(folder)["name"] == "model.ckpt-2"
    assert all(file.startswith("model.ckpt-2.") for file in os.listdir(folder / "own-pin"))


def test_pin_newest_links_another_checkpoint_of_the_same_name_again(folder):
    save(folder, 1)
    pin_newest(folder)
    for file in folder.glob("model.ckpt-1.*"):
        file.unlink()
    save(folder, 1)
    (folder / "model.ckpt-1.index").write_text("longer than before")
    assert pin_newest(folder)["files"][1]["size"] == len("longer than before")
    assert (folder / "own-pin" / "model.ckpt-1.index").read_text() == "longer than before"


def test_pin_newest_creates_nothing_without_a_checkpoint(folder):
    assert pin_newest(folder) is None
    assert pin_newest(folder / "none") is None
    assert os.listdir(folder) == []


# New checkpoints


def test_each_new_checkpoint_is_returned_once(folder):
    watch = checkpoints.CheckpointWatch(*TASK)
    assert watch.poll() == []
    save(folder, 1)
    assert [watch.poll() for _ in range(3)] == [[], ["model.ckpt-1"], []]
    save(folder, 2)
    assert [watch.poll() for _ in range(3)] == [[], ["model.ckpt-2"], []]


def test_a_checkpoint_is_new_when_the_meta_file_has_followed_the_state_file(folder):
    watch = checkpoints.CheckpointWatch(*TASK)
    save(folder, 1)
    meta = folder / "model.ckpt-1.meta"
    meta.rename(folder / "later")
    assert watch.poll() == []
    (folder / "later").rename(meta)
    assert [watch.poll(), watch.poll()] == [[], ["model.ckpt-1"]]


def test_a_rewritten_state_file_with_the_same_name_is_not_new(folder):
    watch = checkpoints.CheckpointWatch(*TASK)
    save(folder, 1)
    assert [watch.poll(), watch.poll()] == [[], ["model.ckpt-1"]]
    save(folder, 1)
    assert [watch.poll(), watch.poll()] == [[], []]


def test_a_checkpoint_is_new_once_it_is_complete(folder):
    watch = checkpoints.CheckpointWatch(*TASK)
    save(folder, 1)
    (folder / "model.ckpt-1.index").rename(folder / "away")
    assert watch.poll() == []
    (folder / "away").rename(folder / "model.ckpt-1.index")
    assert [watch.poll(), watch.poll()] == [[], ["model.ckpt-1"]]


# Installed


def test_install_moves_a_checkpoint_beside_others_and_names_it_as_the_newest(folder, tmp_path):
    save(folder, 9)
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    save(incoming, 2)
    (incoming / "checkpoint").unlink()
    written = checkpoints.install(os.fspath(incoming), os.fspath(folder), "model.ckpt-2")
    assert written[-2:] == ["model.ckpt-2.index", "checkpoint"]
    assert os.listdir(incoming) == []
    assert names(pin(every=True)) == ["model.ckpt-2", "model.ckpt-9"]
