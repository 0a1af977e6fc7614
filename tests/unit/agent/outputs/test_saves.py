"""What a task wrote outside of its directory, as the agent reports it."""

from __future__ import annotations

import os
import socket

import pytest
from support.builders import make_launch
from support.chief import TASK, start_task

from tfdeploy.agent import paths
from tfdeploy.agent.outputs import listing, saves
from tfdeploy.shared import records


@pytest.fixture
def elsewhere(root, tmp_path):
    """A function that stores what the preloaded library has recorded (paths within tmp_path, the
    oldest first), and returns what the agent answers: whether each path exists."""
    start_task(root, "checkpoints")
    task_dir = paths.task(*TASK)

    def answer(*recorded, older=(), **launch):
        records.write(paths.launch(task_dir), records.to_json(make_launch(**launch)))
        for file, names in (
            (paths.older_saves(task_dir), older),
            (paths.saves(task_dir), recorded),
        ):
            with open(file, "wb") as record:
                for name in names:
                    record.write(os.path.join(os.fsencode(tmp_path), os.fsencode(name)) + b"\0")
        found = listing.outputs(*TASK)
        assert found.elsewhere is not None
        answer.more = found.elsewhere_more
        return {os.path.relpath(saved.path, tmp_path): saved.exists for saved in found.elsewhere}

    return answer


def write(tmp_path, *names, text="x"):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)


def test_what_was_written_into_a_data_set_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    monkeypatch.setattr("sys.argv", [os.fspath(tmp_path / ".tfdeploy/agent/abc.pyz")])
    start_task(tmp_path / ".tfdeploy", "checkpoints")
    data_set = tmp_path / ".tfdeploy/p/releases/data-a-1"
    names = ["cache.npy", "__pycache__/a.pyc"]
    write(data_set, *names)
    recorded = b"".join(os.fsencode(data_set / name) + b"\0" for name in names)
    with open(paths.saves(paths.task(*TASK)), "wb") as record:
        record.write(recorded)
    found = [saved.path for saved in listing.outputs(*TASK).elsewhere]
    assert found == [os.fspath(data_set / "cache.npy")]


def test_the_newest_file_is_first(elsewhere, tmp_path):
    write(tmp_path, "a/one.npz", "b/two.pkl", "three")
    found = elsewhere("b/two.pkl", "three", "a/one.npz", older=["a/one.npz"])
    assert [*found.items()] == [("a/one.npz", True), ("three", True), ("b/two.pkl", True)]


def test_two_files_in_a_folder_of_others_are_two_files(elsewhere, tmp_path):
    write(tmp_path, "shared/1.pt", "shared/2.pt", "shared/not-ours")
    assert [*elsewhere("shared/1.pt", "shared/2.pt")] == ["shared/2.pt", "shared/1.pt"]


def test_a_folder_that_the_task_made_stands_for_all_that_it_contains(elsewhere, tmp_path):
    write(tmp_path, "m/1.keras", "m/deep/2.keras", "one.keras")
    found = elsewhere("m/", "m/1.keras", "m/deep/", "m/deep/2.keras", "one.keras")
    assert [*found] == ["one.keras", "m"]


def test_a_folder_that_got_its_name_when_it_was_complete_is_found(elsewhere, tmp_path):
    write(tmp_path, "new/a.bin")
    assert elsewhere("old/", "old/a.bin", "new/") == {"new": True}


def test_many_paths_are_counted(elsewhere, tmp_path):
    names = [f"{number}.csv" for number in range(saves.MAX_PATHS + 3)]
    write(tmp_path, *names)
    found = elsewhere(*names)
    assert (len(found), next(iter(found)), elsewhere.more) == (saves.MAX_PATHS, names[-1], 3)


def test_a_folder_that_is_fetched_is_not_elsewhere(elsewhere, tmp_path):
    write(tmp_path, "saves/1.keras", "saves-2/1.keras")
    outputs = {"patterns": [], "folders": [f"{tmp_path}/saves"]}
    found = elsewhere("saves/", "saves/1.keras", "saves-2/", "saves-2/1.keras", outputs=outputs)
    assert found == {"saves-2": True}


def test_of_a_folder_above_one_that_is_fetched_only_other_files_count(elsewhere, tmp_path):
    write(tmp_path, "scratch/saves/1.keras")
    outputs = {"patterns": [], "folders": [f"{tmp_path}/scratch/saves"]}
    recorded = ("scratch/", "scratch/saves/", "scratch/saves/1.keras")
    assert elsewhere(*recorded, outputs=outputs) == {}


@pytest.mark.parametrize(("index", "events"), [(0, {}), (1, {"events.out.tfevents.7": True})])
def test_in_a_checkpoint_dir_that_tasks_share_checkpoints_are_the_chiefs(
    elsewhere, tmp_path, index, events
):
    names = ["checkpoint", "ckpt-1.index", "ckpt-1.data-00000-of-00001", "events.out.tfevents.7"]
    write(tmp_path / "shared", *names)
    recorded = [f"shared/{name}" for name in names]
    found = elsewhere(*recorded, checkpoint_dir=f"{tmp_path}/shared", index=index)
    assert found == {f"shared/{name}": exists for name, exists in events.items()}


@pytest.mark.parametrize(
    "name",
    [
        ".cache/pip/wheel",
        ".nv/ComputeCache/index",
        "lib/__pycache__/a.bin",
        "lib/site-packages/a/b.txt",
        "tensorflow_datasets/mnist/1.record",
        "torchinductor_user/x.so",
        "__autograph_generated_file7.py",
        "train.host.user.log.INFO.20260101-000000.1",
        "models/model.keras.lock",
    ],
)
def test_what_every_program_leaves_behind_is_left_out(elsewhere, tmp_path, name):
    write(tmp_path, name)
    assert elsewhere(name) == {}


def test_a_home_below_a_hidden_folder_hides_nothing(elsewhere, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / ".volumes/user"))
    write(tmp_path, ".volumes/user/a.npz", ".volumes/user/.cache/b.npz")
    found = elsewhere(".volumes/user/a.npz", ".volumes/user/.cache/b.npz")
    assert found == {".volumes/user/a.npz": True}


@pytest.mark.parametrize("name", ["versions", "saves", "state.json", "incoming-outputs/a.npz"])
def test_what_tfdeploy_itself_writes_in_a_tasks_folder_is_left_out(elsewhere, tmp_path, name):
    task_dir = os.path.relpath(paths.task(*TASK), tmp_path)
    write(tmp_path, f"{task_dir}/{name}", f"{task_dir}/beside.npz")
    found = elsewhere(f"{task_dir}/{name}", f"{task_dir}/beside.npz")
    assert found == {f"{task_dir}/beside.npz": True}


def test_of_the_logs_of_a_run_only_other_files_count(elsewhere, tmp_path):
    logs = os.path.relpath(paths.logs(*TASK[:2]), tmp_path)
    names = [f"{logs}/{name}" for name in ("worker-0.log.1", "worker-0.log", "mine/a.npz")]
    write(tmp_path, *names)
    assert elsewhere(*names) == {f"{logs}/mine/a.npz": True}


def test_a_folder_that_a_variable_names_as_a_cache_is_left_out(elsewhere, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "scratch"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))  # has the run: no cache alone
    write(tmp_path, "scratch/matplotlib/fontlist.json", "fonts/list.json", "a.npz")
    names = ("scratch/matplotlib/fontlist.json", "fonts/list.json", "a.npz")
    assert elsewhere(*names, env={"MPLCONFIGDIR": f"{tmp_path}/fonts"}) == {"a.npz": True}


def test_offline_sessions_in_a_hidden_folder_are_named(elsewhere, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    names = [".clearml/cache/offline/1.zip", ".clearml/cache/storage_manager/1.bin"]
    write(tmp_path, *names)
    assert elsewhere(*names) == {names[0]: True}


def test_a_folder_with_only_half_written_files_is_left_out(elsewhere, tmp_path):
    write(tmp_path, "models/7.orbax-checkpoint-tmp/_METADATA", "my_temp/a.pt")
    found = elsewhere("models/", "models/7.orbax-checkpoint-tmp/", "my_temp/", "my_temp/a.pt")
    assert found == {"my_temp": True}


def test_files_of_the_system_are_left_out(elsewhere):
    assert elsewhere("/dev/null", "/proc/self/oom_score_adj", "/var/cache/fontconfig/x") == {}


def test_only_files_with_content_count(elsewhere, tmp_path):
    write(tmp_path, "empty", text="")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert elsewhere("empty", "link", "folder/", "fifo", "socket", "gone.tmp") == {}


def test_a_result_that_was_deleted_is_reported_if_nothing_is_left(elsewhere, tmp_path):
    recorded = ("tmp1/", "tmp1/model.keras", "tmp1/part.tmp")
    assert elsewhere(*recorded) == {"tmp1/model.keras": False}
    write(tmp_path, "left.csv")
    assert elsewhere(*recorded, "left.csv") == {"left.csv": True}


def test_files_beside_the_tasks_directory_count_and_those_of_other_tasks_do_not(
    elsewhere, tmp_path, root
):
    task = os.path.realpath(paths.task(*TASK))
    beside, other = f"{task}/beside.csv", f"{os.path.dirname(task)}/worker-1/work/own.csv"
    write(tmp_path, beside, other)
    assert elsewhere(beside, other) == {os.path.relpath(beside, tmp_path): True}


def test_a_name_of_any_bytes_is_reported(elsewhere, tmp_path):
    name = os.fsdecode(b"a\n\xff.npz")
    write(tmp_path, name)
    assert elsewhere(name) == {name: True}


@pytest.mark.parametrize("text", [b"", b"x", b"relative\0", b"\0\0", b"/cut"])
def test_a_record_that_makes_no_sense_reports_nothing(root, text):
    start_task(root, "checkpoints")
    with open(paths.saves(paths.task(*TASK)), "wb") as file:
        file.write(text)
    assert listing.outputs(*TASK).elsewhere == []


# Absolute folders of `outputs`


@pytest.fixture
def folder(root, tmp_path):
    """A function that lists the files of an absolute folder of `outputs`."""
    start_task(root, "checkpoints")
    task_dir, models = paths.task(*TASK), tmp_path / "models"
    launch = make_launch(outputs={"patterns": [], "folders": [str(models)]})
    records.write(paths.launch(task_dir), records.to_json(launch))

    def names(recorded=()):
        with open(paths.saves(task_dir), "wb") as record:
            record.writelines(os.fsencode(models / name) + b"\0" for name in recorded)
        listed = [unit.path for unit in listing.outputs(*TASK).outputs]
        return sorted(os.path.relpath(path, models) for path in listed)

    names.models, names.started = models, paths.started(task_dir)
    return names


def test_files_older_than_the_run_are_not_its_results(folder):
    write(folder.models, "old.keras", "new.keras", "copied.keras")
    os.utime(folder.models / "old.keras", (1, 1))
    os.utime(folder.models / "copied.keras", (1, 1))
    assert folder() == ["copied.keras", "new.keras", "old.keras"]  # an older version started it
    open(folder.started, "w").close()
    os.utime(folder.started, (2, 2))
    assert folder() == ["new.keras"]
    assert folder(recorded=["copied.keras"]) == ["copied.keras", "new.keras"]
