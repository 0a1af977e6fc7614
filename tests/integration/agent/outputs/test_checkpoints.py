"""Complete checkpoints are held while TensorFlow saves and deletes others."""

from __future__ import annotations

import hashlib
import os
import resource
import threading
from pathlib import Path

import pytest
from support.chief import TASK, save, seen_by_programs, start_task

from tfdeploy.agent.outputs import checkpoints, held, hold, install
from tfdeploy.shared.protocol.outputs import CHECKPOINT, BadUnit, Held


@pytest.fixture
def folder(root):
    """The checkpoint directory of a task that was started."""
    yield start_task(root, "checkpoints")
    held.release_all()


def held_now(every=False):
    """Hold the newest checkpoint, or every one; return what is held."""
    return hold.hold(*TASK, None, every)


def names(answer):
    return [checkpoint.path for checkpoint in answer.units]


# Held


def test_the_newest_complete_checkpoint_is_held(folder):
    save(folder, 1)
    save(folder, 20, shards=2, keep=[1])
    answer = held_now()
    assert answer.source == os.fspath(folder)
    [found] = answer.units
    assert (found.path, found.step) == ("model.ckpt-20", 20)
    assert [(file.path, file.size) for file in found.files] == [
        ("model.ckpt-20.data-00000-of-00002", 9),
        ("model.ckpt-20.data-00001-of-00002", 9),
        ("model.ckpt-20.index", 8),
        ("model.ckpt-20.meta", 7),
    ]
    assert found.files[2].sha256 == hashlib.sha256(b"index 20").hexdigest()


def test_every_checkpoint_is_held_on_request(folder):
    save(folder, 1)
    save(folder, 2, keep=[1])
    assert names(held_now(every=True)) == ["model.ckpt-2", "model.ckpt-1"]


def test_an_incomplete_checkpoint_is_skipped(folder):
    save(folder, 1)
    save(folder, 2, keep=[1])
    (folder / "model.ckpt-2.index").unlink()
    assert names(held_now()) == ["model.ckpt-1"]


def test_a_checkpoint_that_the_state_file_does_not_name_is_not_held(folder):
    save(folder, 9)
    save(folder, 1)
    assert names(held_now(every=True)) == ["model.ckpt-1"]


def test_a_name_without_a_step_has_step_none(folder):
    for suffix in (".index", ".data-00000-of-00001"):
        (folder / f"best{suffix}").write_text("x")
    (folder / "checkpoint").write_text('model_checkpoint_path: "best"')
    assert [found.step for found in held_now().units] == [None]


def test_held_files_exist_after_the_checkpoint_was_deleted(folder):
    save(folder, 1)
    answer = held_now()
    for file in folder.glob("model*"):
        file.unlink()
    held_file = Path(answer.folder, "model.ckpt-1.data-00000-of-00001")
    assert held_file.read_text() == "data 1 0"


def test_a_hold_replaces_the_previous_one_and_can_be_removed(folder):
    save(folder, 1)
    held_now()
    save(folder, 2)
    answer = held_now()
    assert all(name.startswith("model.ckpt-2.") for name in os.listdir(answer.folder))
    hold.end_hold([answer.folder])
    assert not Path(answer.folder).exists()
    hold.end_hold([answer.folder])


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_held(folder, kind, tmp_path):
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
    assert held_now().units == []


@pytest.mark.parametrize("state", [None, "", "garbage", b"\xff\xfe"])
def test_without_a_readable_state_file_there_is_no_checkpoint(folder, state):
    save(folder, 1)
    (folder / "checkpoint").unlink()
    if state is not None:
        (folder / "checkpoint").write_bytes(state if isinstance(state, bytes) else state.encode())
    assert held_now().units == []


def test_a_missing_directory_has_no_checkpoints(folder):
    folder.rmdir()
    assert held_now().units == []


def test_a_task_that_was_never_started_has_no_checkpoints(root):
    assert held_now() == Held("", [], [])


def test_an_absolute_checkpoint_directory_is_used(root, tmp_path):
    elsewhere = start_task(root, os.fspath(tmp_path / "shared"))
    save(elsewhere, 3)
    assert names(held_now()) == ["model.ckpt-3"]


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


def test_a_held_checkpoint_is_complete_while_others_are_deleted(training):
    holds = 0
    while holds < 150 or (training.step <= 10 and training.is_alive()):
        holds += 1
        found = open_newest(training.folder)
        if found:
            step = found.describe().step
            for file in found.describe().files:
                content = os.pread(found.files[file.path], 100, 0).decode()
                assert content.split()[1] == str(step)
                assert len(content) == file.size
            assert len(found.files) == 3
            found.close()
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
    found = held_now().units
    assert [(each.path, len(each.files)) for each in found] == [("model.ckpt-2", 3)]


def test_a_checkpoint_is_always_found_while_one_exists(training):
    for _ in range(150):
        open_newest(training.folder).close()


def test_holding_changes_nothing_that_the_task_sees(folder, reader):
    save(folder, 1)
    save(folder, 2, keep=[1])
    before = seen_by_programs(folder.parent)
    assert all(found.verified for found in held_now(every=True).units)
    assert seen_by_programs(folder.parent) == before


def test_more_checkpoints_are_held_than_the_usual_limit_of_open_files_allows(folder):
    held.release_all()  # what other tests have held
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = (200, before[1])
    for step in range(1, 100):
        save(folder, step, keep=range(1, step))
    resource.setrlimit(resource.RLIMIT_NOFILE, few)
    try:
        answer = held_now(every=True)
        assert len(names(answer)) == 99
        hold.end_hold([answer.folder])
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == few
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


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
    answer = held_now()
    assert [found.verified for found in answer.units] == [True]
    assert answer.bad == []


def test_a_verified_checkpoint_is_not_read_again(folder, reader):
    save(folder, 1)
    assert held_now().units[0].verified
    reader.write_text("main = lambda prefixes: 3")
    assert held_now().units[0].verified


def test_a_verified_checkpoint_that_has_changed_is_read_again(folder, reader):
    save(folder, 1)
    assert held_now().units[0].verified
    damage(folder, 1)
    assert [bad.path for bad in held_now().bad] == ["model.ckpt-1"]


def test_the_next_older_good_checkpoint_replaces_a_bad_one(folder, reader):
    for step in (1, 2, 3):
        save(folder, step, keep=range(1, step))
    damage(folder, 2)
    damage(folder, 3)
    answer = held_now()
    assert names(answer) == ["model.ckpt-1"]
    assert answer.bad == [BadUnit(f"model.ckpt-{step}", "DataLossError: torn") for step in (3, 2)]


def test_bad_checkpoints_are_skipped_if_every_one_is_held(folder, reader):
    for step in (1, 2, 3):
        save(folder, step, keep=range(1, step))
    damage(folder, 2)
    answer = held_now(every=True)
    assert names(answer) == ["model.ckpt-3", "model.ckpt-1"]
    assert [bad.path for bad in answer.bad] == ["model.ckpt-2"]


def test_checkpoints_older_than_the_first_good_one_are_not_read(folder, reader):
    for step in (1, 2, 3):
        save(folder, step, keep=range(1, step))
    damage(folder, 3)
    damage(folder, 1)
    answer = held_now()
    assert names(answer) == ["model.ckpt-2"]
    assert [bad.path for bad in answer.bad] == ["model.ckpt-3"]


def test_no_checkpoint_is_held_if_all_are_bad(folder, reader):
    save(folder, 1)
    damage(folder, 1)
    answer = held_now()
    assert (names(answer), [bad.path for bad in answer.bad]) == ([], ["model.ckpt-1"])


@pytest.mark.parametrize("text", ["main = lambda prefixes: 3", "1 / 0"])
def test_a_checkpoint_is_held_but_not_verified_without_tensorflow(folder, reader, text):
    save(folder, 1)
    reader.write_text(text)
    answer = held_now()
    assert [found.verified for found in answer.units] == [False]
    assert answer.bad == []


# Kept open by their caller


def open_newest(folder):
    return next(iter(checkpoints.open_complete(os.fspath(folder), False)), None)


def test_an_open_checkpoint_is_the_newest_until_another_is_saved(folder):
    save(folder, 1)
    found = open_newest(folder)
    assert (found.name, found.describe().step) == ("model.ckpt-1", 1)
    assert found.is_newest_in(os.fspath(folder))
    save(folder, 2)
    assert not found.is_newest_in(os.fspath(folder))
    found.close()


def test_another_checkpoint_of_the_same_name_is_another(folder):
    save(folder, 1)
    found = open_newest(folder)
    for file in folder.glob("model.ckpt-1.*"):
        file.unlink()
    save(folder, 1)
    assert not found.is_newest_in(os.fspath(folder))
    found.close()


def test_there_is_none_without_a_checkpoint(folder):
    assert open_newest(folder) is None
    assert open_newest(folder / "none") is None
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
    written = os.listdir(incoming)
    install.install(os.fspath(incoming), os.fspath(folder), "model.ckpt-2", CHECKPOINT, written)
    assert os.listdir(incoming) == []
    assert names(held_now(every=True)) == ["model.ckpt-2", "model.ckpt-9"]
