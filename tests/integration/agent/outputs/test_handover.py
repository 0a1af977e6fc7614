"""Copies of a run's checkpoints are found on a host and given to the run's next chief."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from support.chief import save, seen_by_programs

from tfdeploy.agent import paths
from tfdeploy.agent.outputs import hold, install
from tfdeploy.agent.refusal import Refusal
from tfdeploy.shared import filesystem, state_file
from tfdeploy.shared.protocol.message import Done
from tfdeploy.shared.protocol.outputs import CHECKPOINT, DeliveredUnit

RUN = ("p", "r")
CHIEF = "worker:0"
ENDS = ("data-00000-of-00001", "index", "meta")


def checkpoint_dir_of(task=CHIEF, checkpoint_dir="checkpoints"):
    """Create the checkpoint directory of a task."""
    folder = Path(paths.work(paths.task("p", "r", task)), checkpoint_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def replica_dir():
    folder = Path(paths.replica_dir("p", "r"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def find_newest(*tasks, checkpoint_dir="checkpoints"):
    """Return what is held of each place that has a checkpoint."""
    copies = hold.hold_copies(*RUN, [*tasks], checkpoint_dir).copies
    return [place for place in copies if place.units]


def checkpoints(found):
    return [checkpoint for place in found for checkpoint in place.units]


def steps(found):
    return [checkpoint.step for checkpoint in checkpoints(found)]


def end_hold(found):
    return hold.end_hold([place.folder for place in found])


def texts(folder):
    return {path.name: path.read_text() for path in Path(folder).iterdir() if path.is_file()}


# Found


def test_no_copy_is_found_if_nothing_was_saved(root):
    assert find_newest(CHIEF) == []
    checkpoint_dir_of()
    assert find_newest(CHIEF) == []


def test_the_newest_copies_of_the_task_and_of_the_replica_are_found(root):
    save(checkpoint_dir_of(), 7)
    save(checkpoint_dir_of(), 20, keep=[7])
    save(replica_dir(), 19)
    found = find_newest(CHIEF)
    assert steps(found) == [20, 19]
    assert [copy.path for copy in checkpoints(found)] == ["model.ckpt-20", "model.ckpt-19"]
    assert [(file.path, file.size) for file in found[0].units[0].files] == [
        ("model.ckpt-20.data-00000-of-00001", 9), ("model.ckpt-20.index", 8),
        ("model.ckpt-20.meta", 7),
    ]  # fmt: skip


def test_copies_of_earlier_chiefs_are_found(root):
    save(checkpoint_dir_of("chief:0"), 7)
    save(checkpoint_dir_of("worker:0"), 3)
    save(checkpoint_dir_of("worker:1"), 99)
    assert steps(find_newest("worker:0", "chief:0")) == [3, 7]


def test_a_shared_checkpoint_directory_is_searched_once(root, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    save(shared, 7)
    assert steps(find_newest("worker:0", "chief:0", checkpoint_dir=os.fspath(shared))) == [7]


def test_an_incomplete_checkpoint_is_not_a_copy(root):
    save(checkpoint_dir_of(), 1)
    save(checkpoint_dir_of(), 7, keep=[1])
    (checkpoint_dir_of() / "model.ckpt-7.index").unlink()
    assert steps(find_newest(CHIEF)) == [1]


def test_found_copies_are_held_until_their_hold_ends(root):
    save(checkpoint_dir_of(), 7)
    save(replica_dir(), 3)
    found = find_newest(CHIEF)
    for folder in (checkpoint_dir_of(), replica_dir()):
        for file in folder.glob("model*"):
            file.unlink()
    for place, step in zip(found, steps(found), strict=True):
        assert texts(place.folder)[f"model.ckpt-{step}.index"] == f"index {step}"
    assert end_hold(found) == Done()
    assert not any(os.path.exists(copy.folder) for copy in found)


def test_only_what_an_agent_holds_is_released(root, tmp_path):
    assert hold.end_hold([os.fspath(tmp_path)]) == Done()
    assert tmp_path.exists()


def test_a_search_for_copies_changes_nothing_in_their_folders(root):
    save(checkpoint_dir_of(), 7)
    save(replica_dir(), 3)
    before = [seen_by_programs(checkpoint_dir_of()), seen_by_programs(replica_dir())]
    find_newest(CHIEF)
    assert [seen_by_programs(checkpoint_dir_of()), seen_by_programs(replica_dir())] == before


def test_a_shared_checkpoint_directory_is_searched_by_a_host_without_the_run(root, tmp_path):
    """Nothing remains of the search."""
    shared = tmp_path / "shared"
    shared.mkdir()
    save(shared, 7)
    found = find_newest(CHIEF, checkpoint_dir=os.fspath(shared))
    assert steps(found) == [7]
    assert (root / "p").stat().st_mode & 0o077 == 0
    end_hold(found)
    assert not Path(paths.run(*RUN)).exists()


# Handed over


def send_checkpoint(step, task=CHIEF):
    """Write a complete checkpoint to the folder that `expect` answers."""
    incoming = Path(install.expect(*RUN, task).incoming)
    assert [*incoming.iterdir()] == []
    save(incoming, step)
    (incoming / "checkpoint").unlink()


def listed(folder, step):
    files = [(p.name, filesystem.sha256(os.fspath(p))) for p in folder.glob(f"model.ckpt-{step}.*")]
    return DeliveredUnit(f"model.ckpt-{step}", CHECKPOINT, files)


def adopt(step, source="", task=CHIEF):
    folder = Path(source or paths.incoming_for(paths.task(*RUN, task), "outputs"))
    assert install.deliver(*RUN, task, [listed(folder, step)], "checkpoints", source, []) == Done()
    return state_file.read(os.fspath(checkpoint_dir_of(task)))


def test_a_received_checkpoint_becomes_the_newest(root):
    send_checkpoint(7)
    assert adopt(7) == ["model.ckpt-7"]
    assert texts(checkpoint_dir_of())["model.ckpt-7.data-00000-of-00001"] == "data 7 0"
    assert [path for path in checkpoint_dir_of().iterdir() if path.is_dir()] == []


def test_an_adopted_checkpoint_is_newer_than_existing_ones(root):
    save(checkpoint_dir_of(), 3)
    save(checkpoint_dir_of(), 20, keep=[3])
    send_checkpoint(7)
    assert adopt(7)[0] == "model.ckpt-7"
    assert set(state_file.read(os.fspath(checkpoint_dir_of()))) == {
        "model.ckpt-3", "model.ckpt-7", "model.ckpt-20",
    }  # fmt: skip


def test_files_of_an_interrupted_attempt_are_dropped(root):
    send_checkpoint(3)
    send_checkpoint(7)
    adopt(7)
    assert not (checkpoint_dir_of() / "model.ckpt-3.index").exists()


def test_a_checkpoint_that_arrived_with_other_content_is_refused(root):
    send_checkpoint(7)
    incoming = Path(paths.incoming_for(paths.task(*RUN, CHIEF), "outputs"))
    unit = listed(incoming, 7)
    (incoming / "model.ckpt-7.index").write_text("damaged")
    with pytest.raises(Refusal, match="arrived with other content"):
        install.deliver(*RUN, CHIEF, [unit], "checkpoints", "", [])
    assert texts(checkpoint_dir_of()) == {}


def test_an_older_checkpoint_of_the_same_name_disappears_before_a_new_one_arrives(
    root, monkeypatch
):
    save(checkpoint_dir_of(), 7)
    send_checkpoint(7)
    seen = []

    def replace(source, target, rename=os.replace):
        seen.append((checkpoint_dir_of() / "model.ckpt-7.index").exists())
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    adopt(7)
    assert seen == [False, False, False, True], "the index moves before the state file"


def test_a_received_checkpoint_is_invisible_until_it_is_adopted(root):
    send_checkpoint(7)
    assert state_file.read(os.fspath(checkpoint_dir_of())) == []
    assert find_newest(CHIEF) == []


def test_a_copy_on_the_same_host_is_adopted_from_its_folder(root):
    save(replica_dir(), 7)
    [found] = find_newest(CHIEF)
    assert adopt(7, found.folder, "chief:0") == ["model.ckpt-7"]
    assert texts(checkpoint_dir_of("chief:0"))["model.ckpt-7.index"] == "index 7"
    assert state_file.read(os.fspath(replica_dir())) == ["model.ckpt-7"]


def test_a_chief_can_adopt_its_own_copy_which_is_not_copied(root):
    save(checkpoint_dir_of(), 7)
    before = seen_by_programs(checkpoint_dir_of())
    [found] = find_newest(CHIEF)
    assert adopt(7, found.folder) == ["model.ckpt-7"]
    assert steps(find_newest(CHIEF)) == [7]
    changed = before ^ seen_by_programs(checkpoint_dir_of())
    assert {name for name, *_ in changed} == {"checkpoint", "checkpoints"}, (
        "the state, in its folder"
    )


def test_a_copy_on_another_file_system_is_whole_at_once(root, monkeypatch):
    def rename_here(source, target, rename=os.replace):
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "replace", rename_here)
    send_checkpoint(7)
    assert adopt(7) == ["model.ckpt-7"]
    assert set(texts(checkpoint_dir_of())) == {
        "checkpoint", *(f"model.ckpt-7.{end}" for end in ENDS)
    }  # fmt: skip


@pytest.mark.parametrize("checkpoint_dir", ["deep/below", "{tmp}/absolute"])
def test_checkpoints_are_adopted_into_any_checkpoint_directory(root, tmp_path, checkpoint_dir):
    folder = checkpoint_dir.replace("{tmp}", os.fspath(tmp_path))
    incoming = Path(install.expect(*RUN, CHIEF).incoming)
    save(incoming, 7)
    (incoming / "checkpoint").unlink()
    install.deliver(*RUN, CHIEF, [listed(incoming, 7)], folder, "", [])
    assert steps(find_newest(CHIEF, checkpoint_dir=folder)) == [7]


def test_other_users_can_not_read_received_checkpoints(root):
    shutil.rmtree(root / "p", ignore_errors=True)
    send_checkpoint(7)
    assert (root / "p").stat().st_mode & 0o077 == 0
