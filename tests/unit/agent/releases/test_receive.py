"""A release appears on a host completely or not at all, and is never changed afterwards."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.builders import as_unprivileged_user

from tfdeploy.agent import paths
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.releases import receive
from tfdeploy.release import snapshot
from tfdeploy.shared.pack import BLOCK
from tfdeploy.shared.protocol.releases import MissingFiles
from tfdeploy.transfer.pack import PackCache

ID = "f00d"


@pytest.fixture
def source(tmp_path):
    """A source tree with a file, a program, a folder and a link."""
    folder = tmp_path / "source"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("train")
    (folder / "lib" / "run").write_text("run")
    (folder / "lib" / "run").chmod(0o755)
    (folder / "link").symlink_to("lib/run")
    return folder


def manifest(source):
    return {path: list(entry) for path, entry in snapshot.take(source).manifest.items()}


@pytest.fixture(autouse=True)
def clear_staged_releases():
    receive.staged.clear()


def start_release(source, name=ID):
    """Start a release; return the positions of its missing files, and its folder."""
    answer = receive.lacks("p", name, manifest(source))
    return answer.wanted, Path(answer.incoming)


def send(source, wanted, name=ID, then=b""):
    """Send these files of the tree, as it is now, followed by `then`; return the wrong paths."""
    payload = PackCache(snapshot.take(source)).get(wanted)
    stdin = io.BytesIO(b"".join(payload.blocks()) + then)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=stdin))
        try:
            return receive.take("p", name, payload.size).wrong
        finally:
            assert stdin.read() == then


def push(source, name=ID):
    wanted, _ = start_release(source, name)
    return send(source, wanted, name)


def names(source, wanted):
    paths = list(manifest(source))
    return [paths[index] for index in wanted]


# offer, lacks


def test_a_new_release_lacks_all_its_files(root, source):
    assert receive.offer("p", ID).present is False
    answer = receive.lacks("p", ID, manifest(source))
    assert names(source, answer.wanted) == ["lib/run", "train.py"]
    assert (answer.present, answer.base) == (False, None)
    assert answer.incoming == os.fspath(root / "p" / "releases" / ".incoming-f00d")


def test_an_interrupted_push_is_resumed_with_the_files_that_are_right(root, source):
    _, folder = start_release(source)
    (folder / "lib" / "run").write_text("run")
    (folder / "train.py").write_text("tra")
    (folder / "train.py.123").write_text("tra")
    wanted, again = start_release(source)
    assert again == folder
    assert names(source, wanted) == ["train.py"]
    assert send(source, wanted) == []
    assert manifest(root / "p" / "releases" / ID) == manifest(source)


def test_a_release_that_is_present_is_not_sent(root, source):
    push(source)
    assert receive.offer("p", ID).present is True
    assert receive.lacks("p", ID, manifest(source)) == MissingFiles(True, [], "", None)
    assert sorted(os.listdir(root / "p" / "releases")) == [ID]


def test_an_incomplete_release_is_not_present(root, source):
    start_release(source)
    assert receive.offer("p", ID).present is False


def test_files_of_the_newest_release_are_linked_and_not_sent(root, source):
    push(source, "one")
    (source / "train.py").write_text("train better")
    (source / "moved").write_bytes((source / "lib" / "run").read_bytes())
    (source / "moved").chmod(0o755)
    wanted, _ = start_release(source, "two")
    assert names(source, wanted) == ["train.py"]
    assert send(source, wanted, "two") == []
    one, two = (root / "p" / "releases" / name for name in ("one", "two"))
    assert manifest(two) == manifest(source)
    assert (two / "lib" / "run").samefile(one / "lib" / "run")
    assert (two / "moved").samefile(one / "lib" / "run")
    assert (one / "train.py").read_text() == "train"


def test_a_file_whose_executable_bit_changed_is_not_linked(root, source):
    push(source, "one")
    (source / "lib" / "run").chmod(0o644)
    wanted, _ = start_release(source, "two")
    assert names(source, wanted) == ["lib/run"]
    assert send(source, wanted, "two") == []
    modes = [(root / "p/releases" / n / "lib/run").stat().st_mode & 0o777 for n in ("one", "two")]
    assert modes == [0o555, 0o444]


@pytest.mark.parametrize("change", ["written to", "replaced", "deleted", "a link"])
def test_files_that_were_changed_in_the_newest_release_are_not_linked(root, source, change):
    push(source, "one")
    file = root / "p" / "releases" / "one" / "train.py"
    file.parent.chmod(0o755)
    file.chmod(0o644)
    if change == "written to":
        file.write_text("evil!")
    else:
        file.unlink()
    if change == "replaced":
        file.write_text("train")
    if change == "a link":
        file.symlink_to("lib/run")
    if change in ("written to", "replaced"):
        os.utime(file, (1, 1))  # the clock of the file system may not have ticked since the push
    wanted, _ = start_release(source, "two")
    assert "train.py" in names(source, wanted)
    assert send(source, wanted, "two") == []
    assert manifest(root / "p" / "releases" / "two") == manifest(source)


@pytest.mark.parametrize("text", [None, "", "{", "[1]"])
def test_a_release_without_a_valid_manifest_is_not_linked_from(root, source, text):
    push(source, "one")
    file = Path(paths.manifest("p", "one"))
    file.unlink() if text is None else file.write_text(text)
    wanted, _ = start_release(source, "two")
    assert names(source, wanted) == ["lib/run", "train.py"]


def test_all_files_are_sent_to_a_file_system_without_hard_links(root, source, monkeypatch):
    push(source, "one")

    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert push(source, "two") == []
    assert manifest(root / "p" / "releases" / "two") == manifest(source)


def test_other_users_can_not_read_a_project(root, source):
    start_release(source)
    assert (root / "p").stat().st_mode & 0o777 == 0o700


# take


def test_a_complete_release_is_published(root, source):
    assert push(source) == []
    release = root / "p" / "releases" / ID
    assert manifest(release) == manifest(source)
    assert sorted(os.listdir(release.parent)) == [ID]


def test_the_request_after_the_files_is_not_read(root, source):
    wanted, _ = start_release(source)
    assert send(source, wanted, then=b'["offer", {}]\n') == []


def test_files_of_a_release_that_was_not_started_are_read_and_refused(root, source):
    with pytest.raises(Refusal, match="no push of release f00d is in progress on this host"):
        send(source, [0, 2], then=b"next")


def test_a_file_that_changed_is_reported_and_the_release_is_not_published(root, source):
    wanted, folder = start_release(source)
    (source / "train.py").write_text("other")
    assert send(source, wanted) == ["train.py"]
    assert not (root / "p" / "releases" / ID).exists()
    assert not (folder / "train.py").exists()
    (source / "train.py").write_text("train")
    wanted, _ = start_release(source)
    assert names(source, wanted) == ["train.py"]
    assert send(source, wanted) == []


def test_a_large_file_arrives_completely(root, source):
    (source / "weights").write_bytes(os.urandom(3 * BLOCK + 7))
    assert push(source) == []
    assert manifest(root / "p" / "releases" / ID) == manifest(source)


def test_a_release_is_not_published_if_its_files_are_cut_off(root, source):
    wanted, _ = start_release(source)
    data = b"".join(PackCache(snapshot.take(source)).get(wanted).blocks())
    truncated = SimpleNamespace(buffer=io.BytesIO(data[: len(data) // 2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", truncated)
        with pytest.raises(EOFError):
            receive.take("p", ID, len(data))
    assert not (root / "p" / "releases" / ID).exists()


# Files that were sent in another way (a large one, by rsync) are compared


def write_all(source):
    """Write the whole tree into the release's folder, without a request; return the folder."""
    _, folder = start_release(source)
    for path in manifest(source):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        if (source / path).is_symlink():
            target.symlink_to(os.readlink(source / path))
        else:
            target.write_bytes((source / path).read_bytes())
    return folder


def finish(source):
    return send(source, [])


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda tree: (tree / "train.py").write_text("other"), "train.py"),
        (lambda tree: (tree / "train.py").unlink(), "train.py"),
        (
            lambda tree: [(tree / "train.py").unlink(), (tree / "train.py").symlink_to("lib/run")],
            "train.py",
        ),
        (lambda tree: [(tree / "train.py").unlink(), os.mkfifo(tree / "train.py")], "train.py"),
    ],
    ids=["content", "missing", "a link for a file", "a pipe"],
)
def test_a_wrong_file_is_reported_and_the_release_is_not_published(root, source, change, wrong):
    change(write_all(source))
    assert finish(source) == [wrong]
    assert not (root / "p" / "releases" / ID).exists()


def test_at_most_twenty_wrong_files_are_reported(root, source):
    for number in range(30):
        (source / f"f{number:02}").write_text("x")
    start_release(source)
    assert finish(source) == [f"f{number:02}" for number in range(20)]


@pytest.mark.parametrize(
    "extra",
    [
        lambda tree: (tree / "extra").write_text("x"),
        lambda tree: (tree / "lib" / "extra").write_text("x"),
        lambda tree: (tree / "extra").symlink_to("/etc/hostname"),
        lambda tree: (tree / "extra").symlink_to("lib"),
        lambda tree: os.mkfifo(tree / "extra"),
    ],
    ids=["file", "deep", "link", "link to a folder", "pipe"],
)
def test_files_that_are_not_in_the_manifest_are_deleted(root, source, extra):
    extra(write_all(source))
    assert finish(source) == []
    release = root / "p" / "releases" / ID
    assert not os.path.lexists(release / "extra")
    assert not os.path.lexists(release / "lib" / "extra")


def test_empty_folders_are_deleted(root, source):
    partial = write_all(source) / "lib" / "deep" / ".rsync-partial"
    partial.mkdir(parents=True)
    (partial / "weights").write_text("half of it")
    assert finish(source) == []
    assert os.listdir(root / "p" / "releases" / ID / "lib") == ["run"]


def test_a_link_in_place_of_a_folder_is_replaced(root, source, tmp_path):
    folder = write_all(source)
    (folder / "lib").rename(tmp_path / "elsewhere")
    (folder / "lib").symlink_to(tmp_path / "elsewhere")
    assert finish(source) == ["lib/run"]
    wanted, _ = start_release(source)
    assert names(source, wanted) == ["lib/run"]
    assert send(source, wanted) == []
    assert not (root / "p" / "releases" / ID / "lib").is_symlink()
    assert os.listdir(tmp_path / "elsewhere") == ["run"]


def test_the_files_of_a_release_are_read_only(root, source):
    push(source)
    release = root / "p" / "releases" / ID
    modes = {path: (release / path).stat().st_mode & 0o777 for path in ("train.py", "lib/run")}
    assert modes == {"train.py": 0o444, "lib/run": 0o555}


def test_the_folders_of_a_release_are_read_only(root, source):
    push(source)
    release = root / "p" / "releases" / ID
    assert [folder.stat().st_mode & 0o222 for folder in (release, release / "lib")] == [0, 0]


@pytest.mark.parametrize("name", ["train.py.{}", ".{}", ".{}~", ".{}/a"])
def test_temporary_files_do_not_overwrite_files_of_the_release(root, source, name):
    """Also not a file whose name looks like a temporary file's."""
    other = source / name.format(os.getpid())
    other.parent.mkdir(exist_ok=True)
    other.write_text("other")
    assert push(source, "first") == []
    (source / "train.py").write_text("train better")
    assert push(source, "second") == []
    second, first = (root / "p" / "releases" / each for each in ("second", "first"))
    assert manifest(second) == manifest(source)
    assert (first / name.format(os.getpid())).read_text() == "other"
    assert (first / "train.py").read_text() == "train"


def test_a_file_that_was_deleted_during_the_push_is_reported(root, source):
    """Prune deletes what an old, interrupted push left."""
    wanted, folder = start_release(source)
    assert send(source, wanted[:1]) != []
    wanted, folder = start_release(source)
    shutil.rmtree(folder / "lib")
    (folder / "lib").mkdir()
    assert send(source, wanted) == ["lib/run"]
    assert not (root / "p" / "releases" / ID).exists()
    assert push(source) == []


def test_a_release_is_not_published_without_its_manifest(root, source):
    wanted, _ = start_release(source)
    (root / "p" / "manifests").write_text("in the way")
    with pytest.raises(OSError):
        send(source, wanted)
    assert receive.offer("p", ID).present is False


def test_the_manifest_of_a_release_is_dropped_from_memory_once_it_is_complete(root, source):
    """Supervisors are forked from this process, and keep its memory."""
    assert push(source) == []
    assert receive.staged == {}


def test_the_slower_of_two_pushes_succeeds_and_leaves_nothing(source, monkeypatch):
    real = os.rename
    with tempfile.TemporaryDirectory() as name:
        tree = Path(shutil.copytree(source, Path(name, "source"), symlinks=True))
        final = Path(name, "p", "releases", ID)

        def rename_after_another_push(incoming, target):
            monkeypatch.setattr(os, "rename", real)
            shutil.copytree(incoming, final, symlinks=True)
            final.chmod(0o755)
            real(incoming, target)

        monkeypatch.setattr(os, "rename", rename_after_another_push)
        monkeypatch.setattr(sys, "argv", [f"{name}/agent/abc"])
        with as_unprivileged_user(Path(name)):
            assert push(tree) == []
        assert sorted(manifest(final)) == sorted(manifest(source))
        assert os.listdir(final.parent) == [ID]


def test_the_slower_push_succeeds_if_its_folder_is_gone(root, source):
    wanted, _ = start_release(source)
    staged = receive.staged.copy()
    assert push(source) == []
    receive.staged.update(staged)
    assert send(source, wanted) == []
    assert manifest(root / "p" / "releases" / ID) == manifest(source)


def test_an_abandoned_push_leaves_nothing_and_keeps_other_releases(root, source):
    push(source, "whole")
    _, folder = start_release(source, "half")
    folder.chmod(0o555)
    receive.abandon("p", "half")
    receive.abandon("p", "never-there")
    assert [path.name for path in (root / "p" / "releases").iterdir()] == ["whole"]
