"""Which outputs of a task are listed, which are complete, and how they are held for transfer."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.chief import TASK, save, seen_by_programs
from support.host_outputs import ODD_NAMES, errors, hold_outputs, start_task
from support.releases import write_manifest

from tfdeploy.agent import paths
from tfdeploy.agent.machine import lock
from tfdeploy.agent.outputs import hold, listing
from tfdeploy.agent.releases import work_directory
from tfdeploy.shared import records, units
from tfdeploy.shared.protocol.outputs import MissingPath, Unit
from tfdeploy.shared.protocol.record import to_json
from tfdeploy.shared.records import TaskState

HDF5 = b"\x89HDF\r\n\x1a\n" + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + bytes(24)


@pytest.fixture
def work(root):
    """The directory of a chief that was started with the default `outputs`."""
    return start_task(root, "*")


def write(folder, *names, text="x"):
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def keras(file, text="weights"):
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model.weights.h5", text * 1000)
    return file


def hdf5(size, end):
    return HDF5 + end.to_bytes(8, "little") + bytes(size - len(HDF5) - 8)


def list_outputs():
    return {unit.path: unit for unit in listing.outputs(*TASK).outputs}


# Listed


def test_a_task_that_was_never_started_has_no_outputs(root):
    assert listing.outputs(*TASK).outputs == []


def test_all_files_that_a_chief_wrote_are_listed_newest_first(work):
    write(work, "history.csv", "plots/loss.png", "deep/down/model.weights.h5")
    for age, name in enumerate(["plots/loss.png", "history.csv"]):
        os.utime(work / name, ns=(10**9 - age, 10**9 - age))
    found = [unit.path for unit in listing.outputs(*TASK).outputs]
    assert found == ["deep/down/model.weights.h5", "plots/loss.png", "history.csv"]


def test_files_that_are_collected_in_another_way_are_not_listed(work):
    (work / "checkpoints").mkdir()
    save(work / "checkpoints", 3)
    save(work / "checkpoints", 7, keep=[3])
    write(work, "logs/events.out.tfevents.1.host", "__pycache__/a.pyc")
    assert list_outputs() == {}


def test_a_checkpoint_that_is_not_named_yet_is_an_output_only_after_the_end(work):
    (work / "checkpoints").mkdir()
    save(work / "checkpoints", 3)
    names = ["model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001", "model.keras"]
    write(work / "checkpoints", *names)
    state_ns = (work / "checkpoints/checkpoint").stat().st_mtime_ns
    for name in names:
        os.utime(work / "checkpoints" / name, ns=(state_ns + 1, state_ns + 1))
    held = lock.acquire(str(work.parent))
    _store_state(work, "READY")
    assert [*list_outputs()] == ["checkpoints/model.keras"]
    all_of_it = {"checkpoints/model.keras", "checkpoints/model.ckpt-7"}
    _store_state(work, "SUCCEEDED")
    assert {*list_outputs()} == all_of_it
    _store_state(work, "READY")
    os.close(held)  # its supervisor was killed
    assert {*list_outputs()} == all_of_it


def _store_state(work, state):
    records.write(str(work.parent / "state.json"), records.to_json(TaskState(state, 0.0)))


def test_links_into_the_release_and_cluster_files_are_not_listed(root, tmp_path):
    work = start_task(root, "*", files={"cluster.json": "{}"})
    write(work, "cluster.json", "own.txt")
    write(tmp_path, "release/train.py")
    (work / "train.py").symlink_to(tmp_path / "release/train.py")
    (work / "package").symlink_to(tmp_path / "release")
    assert [*list_outputs()] == ["own.txt"]


@pytest.fixture
def copied(root, release):
    """The directory of a chief, with the copy of a release."""
    names = ["src/train.py", "src/results.csv", "base/saved_model.pb", "base/variables/v", "out/a"]
    write(release, *names)
    (release / "gone").symlink_to("nothing")
    write_manifest(release)
    work = start_task(root, "*", checkpoint_dir="out")
    launch = records.load(records.Launch, paths.launch(os.fspath(work.parent)))
    work_directory.fill(launch, os.fspath(work))
    return work


def test_unchanged_copies_of_the_release_are_no_outputs(copied):
    assert list_outputs() == {}
    os.utime(copied / "src/train.py", ns=(1, 1))
    (copied / "src/results.csv").unlink()
    write(copied, "src/results.csv")
    assert list_outputs() == {}
    assert listing.outputs(*TASK).special == []


def test_what_was_written_beside_copies_or_into_them_is_an_output(copied):
    write(copied, "src/out/model.pt", "src/results.csv", "base/variables/v", "out/a", text="own")
    write(copied, "src/__pycache__/train.pyc")
    (copied / "gone").unlink()
    (copied / "gone").symlink_to("elsewhere")
    assert {path: len(unit.files) for path, unit in list_outputs().items()} == {
        "src/out/model.pt": 1, "src/results.csv": 1, "base": 2, "out/a": 1,
    }  # fmt: skip
    assert [each.path for each in listing.outputs(*TASK).special] == ["gone"]


def test_what_a_task_wrote_in_the_place_of_checkpoints_is_an_output_whatever_it_is(copied):
    write(copied, "out/a")
    assert [*list_outputs()] == ["out/a"]


def test_unchanged_copies_of_a_trial_are_no_outputs(root, release):
    write(release, "src/train.py", "trials/of-the-source")
    write_manifest(release)
    settings = records.TrialSettings(points=[{"lr": "1"}])
    work = start_task(root, "*", trials=settings)
    slot = records.load(records.Launch, paths.launch(os.fspath(work.parent)))
    for launch, folder in ((slot, work), (slot.of_trial(0), work / "trials/0")):
        folder.mkdir(parents=True, exist_ok=True)
        work_directory.fill(launch, os.fspath(folder))
    assert (work / "trials/0/trials/of-the-source").exists()
    assert list_outputs() == {}
    write(work / "trials/0/src", "train.py", "model.pt", text="own")
    assert {*list_outputs()} == {"trials/0/src/train.py", "trials/0/src/model.pt"}


def test_a_folder_is_found_without_unchanged_copies_and_a_copy_by_its_name(copied):
    write(copied, "src/out/model.pt")
    for name, expected in {"src": ["src/out/model.pt"], "src/train.py": ["src/train.py"]}.items():
        assert [unit.path for unit in listing.find(*TASK, [name]).found] == expected
    assert [each.folder for each in listing.find(*TASK, ["base"]).missing] == [True]


def test_a_checkpoint_that_no_state_file_names_is_one_unit(work):
    (work / "backup").mkdir()
    save(work / "backup", 7)
    assert {path: unit.kind for path, unit in list_outputs().items()} == {
        "backup/model.ckpt-7": "set", "backup/checkpoint": "file",
    }  # fmt: skip


def test_keras_files_beside_checkpoints_are_listed(work):
    (work / "checkpoints").mkdir()
    save(work / "checkpoints", 7)
    keras(work / "checkpoints/best.keras")
    assert [*list_outputs()] == ["checkpoints/best.keras"]


@pytest.mark.parametrize(
    ("file", "kind"), [("saved_model.pb", "saved_model"), ("_CHECKPOINT_METADATA", "folder")]
)
def test_a_saved_model_or_orbax_folder_is_one_unit(work, file, kind):
    write(work, f"export/1/{file}", "export/1/variables/variables.index", "export/1/assets/a")
    [unit] = list_outputs().values()
    assert (unit.path, unit.kind, len(unit.files)) == ("export/1", kind, 3)


def test_only_folders_of_savers_are_temporary_and_no_file_is(work):
    write(work, "model.ckpt-7_temp/part-00000-of-00001.index", "__pycache__/a.pyc")
    write(work, "model.ckpt-8_temp/part-00000-of-00001.data-00000-of-00001.tempstate123")
    write(work, "daily_temp/max.csv", "peak_temp", "notes.orbax-checkpoint-tmp")
    write(work, "words_temp/part-00000-of-00010", "words_temp/part-00001-of-00010.csv")
    found = ["daily_temp/max.csv", "notes.orbax-checkpoint-tmp", "peak_temp"]
    found += ["words_temp/part-00000-of-00010", "words_temp/part-00001-of-00010.csv"]
    assert sorted(list_outputs()) == found


def test_an_orbax_folder_that_is_being_written_is_not_listed(work):
    write(work, "10.orbax-checkpoint-tmp-3/_METADATA", "9/_CHECKPOINT_METADATA")
    assert [*list_outputs()] == ["9"]


@pytest.mark.parametrize(
    ("patterns", "included"),
    [
        (["*.keras"], ["best.keras", "models/a.keras"]),
        (["models/"], ["models/a.keras", "models/b.tmp"]),
        (["*", "!*.tmp"], ["best.keras", "models/a.keras"]),
        (["*", "!models/"], ["best.keras"]),
        (["models/*", "!models/b*"], ["models/a.keras"]),
        ([], []),
    ],
)
def test_patterns_work_as_in_a_gitignore(root, patterns, included):
    write(start_task(root, *patterns), "best.keras", "models/a.keras", "models/b.tmp")
    assert sorted(list_outputs()) == included
    others = listing.outputs(*TASK).others
    assert (others.files, others.size) == (3 - len(included), 3 - len(included))


def test_a_pattern_selects_odd_names_too_and_bytes_stay_as_they_are(root):
    names = sorted(os.fsdecode(name) for name in ODD_NAMES)
    write(start_task(root, "*"), *names)
    sent = json.loads(json.dumps(to_json(listing.outputs(*TASK))))
    assert sorted(unit["path"] for unit in sent["outputs"]) == names


def test_files_of_an_absolute_folder_are_listed_with_absolute_paths(root, tmp_path):
    write(tmp_path, "scratch/a.txt")
    start_task(root, folders=[tmp_path / "scratch"])
    assert [*list_outputs()] == [f"{tmp_path}/scratch/a.txt"]
    [one] = hold_outputs().units
    assert one.files[0].path == f"{tmp_path}/scratch/a.txt".lstrip("/")


def test_a_list_that_was_cut_says_so(work, monkeypatch):
    monkeypatch.setattr(units, "MAX_ENTRIES", 3)
    write(work, *"abc")
    assert listing.outputs(*TASK).incomplete == ""
    write(work, "d")
    assert listing.outputs(*TASK).incomplete == "it has more than 3 files"


def test_a_list_without_a_folder_that_can_not_be_read_says_so(work):
    folder = os.open(work, os.O_RDONLY)
    for _ in range(20):  # its path is longer than any call accepts
        os.mkdir("d" * 250, dir_fd=folder)
        folder, parent = os.open("d" * 250, os.O_RDONLY, dir_fd=folder), folder
        os.close(parent)
    os.close(folder)
    assert listing.outputs(*TASK).incomplete.endswith("File name too long")


def test_a_file_that_is_deleted_meanwhile_hides_no_other_file(work, monkeypatch):
    write(work, *"abcd")
    scandir = os.scandir

    @contextmanager
    def scandir_before_a_deletion(folder):
        with scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        if folder == str(work):
            (work / "a").unlink()
        yield found

    monkeypatch.setattr(units.os, "scandir", scandir_before_a_deletion)
    assert {*list_outputs()} == {*"bcd"}


def test_what_is_neither_file_nor_folder_is_named_except_links_to_what_stays(work):
    write(work, "best.keras")
    os.mkfifo(work / "pipe")
    for link, target in {"latest": "best.keras", "away": "/etc/hostname", "lost": "x"}.items():
        (work / link).symlink_to(target)
    special = listing.outputs(*TASK).special
    found = {each.path: (each.what, each.is_link) for each in special}
    assert found == {
        "pipe": ("a FIFO", False),
        "away": ("a link to /etc/hostname", True),
        "lost": ("a link to x", True),
    }


# Complete


def test_complete_files_are_held_with_their_hashes_until_their_hold_ends(work):
    keras(work / "best.keras")
    write(work, "a.csv", text="1,2")
    answer = hold_outputs()
    assert answer.bad == []
    digests = {one.path: one.files[0].sha256 for one in answer.units}
    assert digests["a.csv"] == hashlib.sha256(b"1,2").hexdigest()
    assert {file.name for file in Path(answer.folder).iterdir()} == {"best.keras", "a.csv"}
    hold.end_hold([answer.folder])
    assert not Path(answer.folder).exists()


@pytest.mark.parametrize("is_live", [True, False])
def test_what_is_held_changes_nothing_that_the_task_sees(work, monkeypatch, is_live):
    monkeypatch.setattr(hold.lock, "is_live", lambda task_dir: is_live)
    write(work, "a.csv", "deep/down/b.csv")
    before = seen_by_programs(work)
    assert errors(hold_outputs()) == {}
    assert seen_by_programs(work) == before


def test_a_damaged_archive_is_bad(work):
    data = keras(work / "best.keras").read_bytes()
    (work / "cut.keras").write_bytes(data[:-10])
    flipped = bytearray(data)
    flipped[60] ^= 255
    (work / "flipped.keras").write_bytes(flipped)
    assert errors(hold_outputs()) == {
        "cut.keras": "BadZipFile: File is not a zip file",
        "flipped.keras": "model.weights.h5 in it is damaged",
    }


def test_hdf5_of_another_length_than_in_its_header_is_bad(work):
    (work / "a.weights.h5").write_bytes(hdf5(100, 200))
    (work / "b.h5").write_bytes(b"not HDF5")
    assert errors(hold_outputs()) == {
        "a.weights.h5": "it has 100 of 200 bytes", "b.h5": "it has no HDF5 header",
    }  # fmt: skip


def test_a_file_of_torch_save_needs_its_directory_but_no_checksums(work):
    data = bytearray(keras(work / "whole.pt").read_bytes())
    (work / "cut.pt").write_bytes(data[:-10])
    data[60] ^= 255
    (work / "without_checksums.pt").write_bytes(data)
    (work / "of_an_older_version.pt").write_bytes(b"\x80\x02\x8a")
    assert errors(hold_outputs()) == {"cut.pt": "BadZipFile: File is not a zip file"}


def test_safetensors_of_another_length_than_in_the_header_are_bad(work):
    header = b'{"__metadata__": {}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    data = len(header).to_bytes(8, "little") + header + bytes(8)
    (work / "whole.safetensors").write_bytes(data)
    (work / "cut.safetensors").write_bytes(data[:-1])
    (work / "empty.safetensors").write_bytes(b"")
    assert errors(hold_outputs()) == {
        "cut.safetensors": f"it has {len(data) - 1} of {len(data)} bytes",
        "empty.safetensors": "it has no safetensors header",
    }


def test_a_saved_model_without_all_variables_is_bad(work):
    write(work, "m/saved_model.pb", "m/variables/variables.index")
    assert errors(hold_outputs()) == {"m": "its variables are incomplete"}
    write(work, "m/variables/variables.data-00000-of-00001", "n/saved_model.pb")
    (work / "n/saved_model.pb").write_text("")
    assert errors(hold_outputs("n")) == {"n": "its saved_model.pb is empty"}


def test_a_file_that_was_removed_is_reported(work):
    write(work, "a.csv")
    answer = hold.hold(*TASK, [Unit("b", "file", {"b": (1, 1)})], False)
    assert errors(answer) == {"b": "it was removed meanwhile"}


def test_each_file_is_reported_if_nothing_can_be_held(work):
    write(work, "a.csv")
    write(work.parent, "held")
    assert errors(hold_outputs()) == {
        "a.csv": "it can't be copied for the transfer: Not a directory"
    }


def test_a_file_that_a_running_task_is_writing_is_copied_again(work, monkeypatch):
    """A link would change with the file, so a running task's files are copied."""
    monkeypatch.setattr(hold.lock, "is_live", lambda task_dir: True)
    data = keras(work / "best.keras").read_bytes()
    (work / "best.keras").write_bytes(data[:100])
    # The task writes the rest while `hold` pauses.
    pause = SimpleNamespace(sleep=lambda _: (work / "best.keras").write_bytes(data))
    monkeypatch.setattr(hold, "time", pause)
    answer = hold_outputs()
    assert answer.bad == []
    (work / "best.keras").write_bytes(b"")
    assert (Path(answer.folder) / "best.keras").read_bytes() == data


# Found by path


def find(*names):
    answer = listing.find(*TASK, [*names])
    return [unit.path for unit in answer.found], answer.missing


def test_files_and_folders_are_found_by_path(work, tmp_path):
    write(work, "a.csv", "m/saved_model.pb", "m/variables/variables.index", "checkpoints/x-1.index")
    write(tmp_path, "elsewhere/b")
    assert find("a.csv", "m") == (["a.csv", "m/saved_model.pb", "m/variables/variables.index"], [])
    assert find(f"{work}/a.csv") == (["a.csv"], [])
    assert find("checkpoints/") == (["checkpoints/x-1.index"], [])
    assert find(f"{tmp_path}/elsewhere") == ([f"{tmp_path}/elsewhere/b"], [])


def test_a_missing_file_is_reported_with_names_beside_it(work):
    write(work, "models/a.keras")
    assert find("models/b.keras")[1] == [MissingPath("models/b.keras", ["a.keras"])]
    assert find("x/y")[1] == [MissingPath("x/y", ["models"])]


def test_links_special_files_and_folders_without_files_are_no_missing_files(work, tmp_path):
    write(tmp_path, "release/train.py")
    (work / "src").mkdir(parents=True)
    (work / "src/train.py").symlink_to(tmp_path / "release/train.py")
    beside, target = ["train.py"], str(tmp_path / "release/train.py")
    assert find("src/train.py")[1] == [MissingPath("src/train.py", beside, link=target)]
    assert find("src")[1] == [MissingPath("src", beside, folder=True)]
    os.mkfifo(work / "src/pipe")
    assert find("src/pipe")[1] == [MissingPath("src/pipe", ["pipe", "train.py"], what="a FIFO")]
