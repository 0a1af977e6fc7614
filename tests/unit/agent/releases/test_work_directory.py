"""A task's directory has a copy of its release, and links to its data sets."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest
from support.builders import make_launch
from support.releases import write_manifest

from tfdeploy.agent.releases import copy_release, release_files, work_directory
from tfdeploy.agent.releases.copy_release import CopyLimits
from tfdeploy.shared import filesystem


def write(folder, *names, text=""):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def fill(release, work, limits=copy_release.LIMITS, **changes):
    """Fill a task's directory; return {path: what it links to}, with "" for a regular file."""
    write_manifest(release)
    work.mkdir(exist_ok=True)
    launch = make_launch(**{"checkpoint_dir": "out", **changes})
    work_directory.fill(launch, os.fspath(work), limits)
    return {
        path.relative_to(work).as_posix(): os.readlink(path) if path.is_symlink() else ""
        for path in work.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


@pytest.fixture
def work(tmp_path):
    return tmp_path / "work"


def test_the_release_is_copied_with_its_times_and_programs(release, work):
    write(release, "pkg/deep/train.py", text="train")
    (release / "run").chmod(0o555)
    (release / "pkg/deep/train.py").chmod(0o444)
    os.utime(release / "pkg/deep/train.py", ns=(1, 123456789))
    (release / "link").symlink_to("pkg/deep")
    assert fill(release, work) == {"run": "", "pkg/deep/train.py": "", "link": "pkg/deep"}
    for name in ("run", "pkg/deep/train.py"):
        source, copy = release / name, work / name
        assert copy.read_text() == source.read_text()
        assert copy.stat().st_mtime_ns == source.stat().st_mtime_ns
        assert not copy.samefile(source)
    assert [(work / name).stat().st_mode & 0o777 for name in ("run", "pkg/deep/train.py")] == [
        0o755,
        0o644,
    ]


@pytest.mark.parametrize("checkpoint_dir", ["out", "./out", "out/deep", "/elsewhere", "data2"])
def test_folders_of_the_release_are_the_tasks_own(release, work, checkpoint_dir):
    write(release, "data/labels")
    assert fill(release, work, checkpoint_dir=checkpoint_dir) == {"run": "", "data/labels": ""}
    write(work, "data/own")
    assert os.listdir(release / "data") == ["labels"]


def test_checkpoints_of_the_release_are_not_copied(release, work):
    write(release, "out/old", "out/deep/older")
    assert fill(release, work, checkpoint_dir="out/deep") == {"run": "", "out/old": ""}
    assert fill(release, work / "other", checkpoint_dir="out/") == {"run": ""}


def test_a_file_in_the_place_of_a_folder_above_the_checkpoints_is_not_copied(release, work):
    write(release, "out")
    assert fill(release, work, checkpoint_dir="out/deep") == {"run": ""}


@pytest.mark.parametrize(
    ("free_bytes", "most_bytes", "is_linked"),
    [(0, 1000, False), (1 << 62, 1000, True), (0, 120, True)],
)
def test_large_files_are_hard_links_if_copies_would_fill_the_disk_or_are_too_large(
    release, work, free_bytes, most_bytes, is_linked
):
    write(release, "weights", text="x" * 100)
    write(release, "train.py", text="x" * 50)
    limits = CopyLimits(100, most_bytes, free_bytes)
    assert fill(release, work, limits) == {"run": "", "train.py": "", "weights": ""}
    linked = {name for name in os.listdir(work) if (work / name).samefile(release / name)}
    assert linked == ({"weights"} if is_linked else set())


def test_a_large_file_for_which_a_quota_has_no_room_is_a_hard_link(release, work, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(copy_release, "_copy_bytes", refuse)
    assert fill(release, work, CopyLimits(always_bytes=0)) == {"run": ""}
    assert (work / "run").samefile(release / "run")


def test_what_can_not_be_copied_is_a_link_without_hard_links(release, work, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert fill(release, work, CopyLimits(always_bytes=0, free_bytes=1 << 62)) == {
        "run": os.fspath(release / "run")
    }


def test_a_host_whose_python_can_not_copy_ranges_copies_in_blocks(release, work, monkeypatch):
    write(release, "weights", text="x" * 200_000)
    monkeypatch.delattr(os, "copy_file_range")
    fill(release, work)
    assert (work / "weights").read_bytes() == (release / "weights").read_bytes()


def test_all_files_of_a_slow_file_system_are_copied_by_several_threads(release, work, monkeypatch):
    names = [f"pkg/m{number}.py" for number in range(50)]
    write(release, *names, text="train")
    threads, real = set(), os.utime

    def slow(*arguments, **more):
        threads.add(threading.get_ident())
        time.sleep(0.002)
        real(*arguments, **more)

    monkeypatch.setattr(os, "utime", slow)
    assert fill(release, work) == dict.fromkeys(["run", *names], "")
    assert len(threads) > 1


def test_what_the_task_wrote_or_changed_stays_when_it_is_resumed(release, work):
    write(release, "src/train.py", "src/gone", "folder/file", "data/file")
    fill(release, work)
    write(work, "src/train.py", "src/out/model", "out/checkpoint", text="its own")
    (work / "src/gone").unlink()
    (work / "folder/file").unlink()
    (work / "folder").rmdir()
    (work / "folder").write_text("a file now")
    (work / "data/file").unlink()
    (work / "data").rmdir()
    elsewhere = work.parent / "elsewhere"
    elsewhere.mkdir()
    (work / "data").symlink_to(elsewhere)
    fill(release, work)
    assert {path: (work / path).read_text() for path in ("src/train.py", "src/out/model", "folder")
            } == {"src/train.py": "its own", "src/out/model": "its own",
                  "folder": "a file now"}  # fmt: skip
    assert (work / "src/gone").exists()
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("harm", ["incomplete", "cut off"])
def test_a_copy_that_a_crash_has_cut_off_is_made_again(release, work, harm):
    fill(release, work)
    copy, mtime_ns = work / "run", (work / "run").stat().st_mtime_ns
    copy.write_text("#!")
    if harm == "incomplete":
        copy.chmod(copy_release.INCOMPLETE)
    else:
        os.utime(copy, ns=(1, mtime_ns))
    fill(release, work)
    assert copy.read_text() == (release / "run").read_text()


def test_unchanged_copies_and_empty_folders_are_removed_after_a_trial(release, work):
    write(release, "src/train.py", "src/results.csv", "lib/deep/tool.py")
    (release / "link").symlink_to("src")
    fill(release, work)
    write(work, "src/results.csv", "out/model", text="its own")
    copy_release.remove_copies(make_launch(checkpoint_dir="out"), os.fspath(work))
    assert {path.relative_to(work).as_posix() for path in work.rglob("*")} == {
        "src", "src/results.csv", "out", "out/model",
    }  # fmt: skip


def test_what_a_trial_has_linked_in_the_place_of_a_folder_is_not_removed(release, work, tmp_path):
    write(release, "data/labels", "data/deep/labels")
    fill(release, work)
    shared = tmp_path / "shared"
    (work / "data").rename(shared)
    (shared / "empty").mkdir()
    write(release, "data/empty/file")
    write_manifest(release)
    (work / "data").symlink_to(shared)
    copy_release.remove_copies(make_launch(checkpoint_dir="out"), os.fspath(work))
    assert [path.name for path in work.iterdir()] == ["data"]
    assert {path.relative_to(shared).as_posix() for path in shared.rglob("*")} == {
        "labels", "deep", "deep/labels", "empty",
    }  # fmt: skip


def test_a_changed_copy_is_read_again_only_when_its_time_has_changed(release, work, monkeypatch):
    write(release, "weights", text="old")
    fill(release, work)
    write(work, "weights", text="new")
    os.utime(work / "weights", (9, 9))
    assert has_weights(work) is False
    real = filesystem.sha256
    monkeypatch.setattr(filesystem, "sha256", pytest.fail)
    assert has_weights(work) is False
    monkeypatch.setattr(filesystem, "sha256", real)
    write(work, "weights", text="old")
    assert has_weights(work) is True  # its time may be that of the next write
    write(work, "weights", text="new")
    assert has_weights(work) is False


def has_weights(work):
    stamp = filesystem.stamp(os.fspath(work / "weights"))[:2]
    return release_files.of_launch(make_launch()).has(os.fspath(work), "weights", stamp)


def test_a_cluster_file_is_written_into_the_tasks_own_directory(release, work):
    write(release, "config/net.json")
    for _ in range(2):  # the second time as after a resume
        fill(release, work, files={"config/cluster.json": "{}"})
    assert (work / "config" / "cluster.json").read_text() == "{}"
    assert os.listdir(release / "config") == ["net.json"]


def test_a_link_changes_with_its_target_and_the_target_is_created(tmp_path):
    work = tmp_path / "evaluator-0" / "work"
    for path in ("../../../worker-0/work/out/saved", "../../../replica"):
        work_directory.make_links(make_launch(links={"out/saved": path}), os.fspath(work))
        assert (work / "out" / "saved").readlink() == Path(path)
        assert (work / "out" / "saved").is_dir()
    assert (tmp_path / "worker-0" / "work" / "out" / "saved").is_dir()


def test_a_link_does_not_replace_what_the_task_wrote(tmp_path):
    (tmp_path / "out").mkdir()
    work_directory.make_links(make_launch(links={"out": "../replica"}), os.fspath(tmp_path))
    assert not (tmp_path / "out").is_symlink()


def test_data_sets_are_linked_beside_files_of_the_release_also_after_a_resume(release, work):
    write(release, "data/labels")
    data = {"data/a": "data-a-1", "data/deep/er/b": "b-1", "c": "c-1"}
    releases = os.fspath(release.parent)
    for _ in range(2):
        assert fill(release, work, data=data) == {
            "run": "",
            "data/labels": "",
            **{place: f"{releases}/{name}" for place, name in data.items()},
        }
