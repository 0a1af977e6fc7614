"""A release appears on a host whole or not at all, and is never written to again."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfdeploy import release
from tfdeploy.agent import paths, releases
from tfdeploy.agent.payload import BLOCK
from tfdeploy.agent.refusal import Refusal
from tfdeploy.payload import Payloads
from unit.made import as_nobody

ID = "f00d"


@pytest.fixture
def source(tmp_path):
    """A source tree: a file, a program, a folder, a link."""
    folder = tmp_path / "source"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("train")
    (folder / "lib" / "run").write_text("run")
    (folder / "lib" / "run").chmod(0o755)
    (folder / "link").symlink_to("lib/run")
    return folder


def manifest(source):
    return {path: list(entry) for path, entry in release.snapshot(source).manifest.items()}


@pytest.fixture(autouse=True)
def nothing_grows():
    releases.growing.clear()


def begun(source, name=ID):
    """What the release still lacks, and where it grows."""
    answer = releases.lacks("p", name, manifest(source))
    return answer["wanted"], Path(answer["incoming"])


def sent(source, wanted, name=ID, then=b""):
    """Take what is wanted of the tree, as it is now; what was wrong, and what `then` is left."""
    payload = Payloads(release.snapshot(source)).of(wanted)
    told = io.BytesIO(b"".join(payload.parts()) + then)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=told))
        try:
            return releases.take("p", name, payload.size)["wrong"]
        finally:
            assert told.read() == then


def pushed(source, name=ID):
    wanted, _ = begun(source, name)
    return sent(source, wanted, name)


def names(source, wanted):
    paths = list(manifest(source))
    return [paths[index] for index in wanted]


# offer, lacks


def test_a_release_that_is_not_there_lacks_all_its_files(root, source):
    assert releases.offer("p", ID)["present"] is False
    answer = releases.lacks("p", ID, manifest(source))
    assert names(source, answer.pop("wanted")) == ["lib/run", "train.py"]  # links come along
    assert answer == {
        "present": False,
        "incoming": os.fspath(root / "p" / "releases" / ".incoming-f00d"),
        "base": None,
    }


def test_what_a_broken_push_left_is_looked_at_again(root, source):
    _, folder = begun(source)
    (folder / "lib" / "run").write_text("run")
    (folder / "train.py").write_text("tra")
    (folder / "train.py.123").write_text("tra")
    wanted, again = begun(source)
    assert again == folder
    assert names(source, wanted) == ["train.py"]
    assert sent(source, wanted) == []
    assert manifest(root / "p" / "releases" / ID) == manifest(source)


def test_a_release_that_is_there_need_not_be_sent(root, source):
    pushed(source)
    assert releases.offer("p", ID)["present"] is True
    assert releases.lacks("p", ID, manifest(source)) == {"present": True}
    assert sorted(os.listdir(root / "p" / "releases")) == [ID]


def test_a_release_that_grows_is_not_there(root, source):
    begun(source)
    assert releases.offer("p", ID)["present"] is False


def test_what_the_newest_release_holds_is_shared_and_not_sent(root, source):
    pushed(source, "one")
    (source / "train.py").write_text("train better")
    (source / "moved").write_bytes((source / "lib" / "run").read_bytes())
    (source / "moved").chmod(0o755)
    wanted, _ = begun(source, "two")
    assert names(source, wanted) == ["train.py"]
    assert sent(source, wanted, "two") == []
    one, two = (root / "p" / "releases" / name for name in ("one", "two"))
    assert manifest(two) == manifest(source)
    assert (two / "lib" / "run").samefile(one / "lib" / "run")
    assert (two / "moved").samefile(one / "lib" / "run")
    assert (one / "train.py").read_text() == "train"


def test_what_is_a_program_now_is_not_shared(root, source):
    pushed(source, "one")
    (source / "lib" / "run").chmod(0o644)
    wanted, _ = begun(source, "two")
    assert names(source, wanted) == ["lib/run"]
    assert sent(source, wanted, "two") == []
    modes = [(root / "p/releases" / n / "lib/run").stat().st_mode & 0o777 for n in ("one", "two")]
    assert modes == [0o555, 0o444]


@pytest.mark.parametrize("how", ["written to", "replaced", "gone", "a link"])
def test_what_was_touched_in_the_newest_release_is_not_shared(root, source, how):
    pushed(source, "one")
    held = root / "p" / "releases" / "one" / "train.py"
    held.parent.chmod(0o755)
    held.chmod(0o644)
    if how == "written to":
        held.write_text("evil!")
    else:
        held.unlink()
    if how == "replaced":
        held.write_text("train")
    if how == "a link":
        held.symlink_to("lib/run")
    wanted, _ = begun(source, "two")
    assert "train.py" in names(source, wanted)
    assert sent(source, wanted, "two") == []
    assert manifest(root / "p" / "releases" / "two") == manifest(source)


@pytest.mark.parametrize("known", [None, "", "{", "[1]"])
def test_a_neighbour_of_which_nothing_is_known_gives_nothing(root, source, known):
    pushed(source, "one")
    file = Path(paths.manifest("p", "one"))
    file.unlink() if known is None else file.write_text(known)
    wanted, _ = begun(source, "two")
    assert names(source, wanted) == ["lib/run", "train.py"]


def test_a_file_system_without_such_links_gets_all_files(root, source, monkeypatch):
    pushed(source, "one")

    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert pushed(source, "two") == []
    assert manifest(root / "p" / "releases" / "two") == manifest(source)


def test_a_project_is_closed_to_other_users(root, source):
    begun(source)
    assert (root / "p").stat().st_mode & 0o777 == 0o700


# take


def test_what_arrived_whole_is_shown(root, source):
    assert pushed(source) == []
    there = root / "p" / "releases" / ID
    assert manifest(there) == manifest(source)
    assert sorted(os.listdir(there.parent)) == [ID]


def test_what_comes_behind_the_files_is_left_for_the_next(root, source):
    wanted, _ = begun(source)
    assert sent(source, wanted, then=b'["offer", {}]\n') == []


def test_a_release_that_was_not_begun_is_refused_and_what_comes_is_read(root, source):
    with pytest.raises(Refusal, match="was not begun here"):
        sent(source, [0, 2], then=b"next")


def test_a_file_that_has_changed_is_named_and_nothing_is_shown(root, source):
    wanted, folder = begun(source)
    (source / "train.py").write_text("other")
    assert sent(source, wanted) == ["train.py"]
    assert not (root / "p" / "releases" / ID).exists()
    assert not (folder / "train.py").exists()
    (source / "train.py").write_text("train")
    wanted, _ = begun(source)
    assert names(source, wanted) == ["train.py"]
    assert sent(source, wanted) == []


def test_a_large_file_arrives_whole(root, source):
    (source / "weights").write_bytes(os.urandom(3 * BLOCK + 7))
    assert pushed(source) == []
    assert manifest(root / "p" / "releases" / ID) == manifest(source)


def test_less_than_was_said_is_an_error_and_no_release(root, source):
    wanted, _ = begun(source)
    whole = b"".join(Payloads(release.snapshot(source)).of(wanted).parts())
    cut = SimpleNamespace(buffer=io.BytesIO(whole[: len(whole) // 2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", cut)
        with pytest.raises(EOFError):
            releases.take("p", ID, len(whole))
    assert not (root / "p" / "releases" / ID).exists()


# What came another way (a big file, by rsync) is compared


def arrived(source):
    """All of the tree, beside the questions."""
    _, folder = begun(source)
    for path in manifest(source):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        if (source / path).is_symlink():
            target.symlink_to(os.readlink(source / path))
        else:
            target.write_bytes((source / path).read_bytes())
    return folder


def finished(source):
    return sent(source, [])


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
def test_what_differs_is_named_and_nothing_is_shown(root, source, change, wrong):
    change(arrived(source))
    assert finished(source) == [wrong]
    assert not (root / "p" / "releases" / ID).exists()


def test_no_more_than_twenty_are_named(root, source):
    for number in range(30):
        (source / f"f{number:02}").write_text("x")
    begun(source)
    assert finished(source) == [f"f{number:02}" for number in range(20)]


@pytest.mark.parametrize(
    "stranger",
    [
        lambda tree: (tree / "stranger").write_text("x"),
        lambda tree: (tree / "lib" / "stranger").write_text("x"),
        lambda tree: (tree / "stranger").symlink_to("/etc/hostname"),
        lambda tree: (tree / "stranger").symlink_to("lib"),
        lambda tree: os.mkfifo(tree / "stranger"),
    ],
    ids=["file", "deep", "link", "link to a folder", "pipe"],
)
def test_what_the_release_does_not_hold_is_dropped(root, source, stranger):
    stranger(arrived(source))
    assert finished(source) == []
    there = root / "p" / "releases" / ID
    assert not os.path.lexists(there / "stranger")
    assert not os.path.lexists(there / "lib" / "stranger")


def test_folders_that_nothing_is_left_in_are_dropped(root, source):
    partial = arrived(source) / "lib" / "deep" / ".rsync-partial"
    partial.mkdir(parents=True)
    (partial / "weights").write_text("half of it")
    assert finished(source) == []
    assert os.listdir(root / "p" / "releases" / ID / "lib") == ["run"]


def test_a_link_in_the_place_of_a_folder_is_no_folder(root, source, tmp_path):
    folder = arrived(source)
    (folder / "lib").rename(tmp_path / "elsewhere")
    (folder / "lib").symlink_to(tmp_path / "elsewhere")
    assert finished(source) == ["lib/run"]
    wanted, _ = begun(source)
    assert names(source, wanted) == ["lib/run"]
    assert sent(source, wanted) == []
    assert not (root / "p" / "releases" / ID / "lib").is_symlink()
    assert os.listdir(tmp_path / "elsewhere") == ["run"]


def test_a_release_is_read_only(root, source):
    pushed(source)
    there = root / "p" / "releases" / ID
    modes = {path: (there / path).stat().st_mode & 0o777 for path in ("train.py", "lib/run")}
    assert modes == {"train.py": 0o444, "lib/run": 0o555}


def test_nothing_can_be_added_to_a_release_or_taken_from_it(root, source):
    pushed(source)
    there = root / "p" / "releases" / ID
    assert [folder.stat().st_mode & 0o222 for folder in (there, there / "lib")] == [0, 0]


@pytest.mark.parametrize("name", ["train.py.{}", ".{}", ".{}~", ".{}/a"])
def test_what_arrives_is_written_beside_everything_that_the_release_holds(root, source, name):
    """Also beside what looks like the name of something half written."""
    other = source / name.format(os.getpid())
    other.parent.mkdir(exist_ok=True)
    other.write_text("other")
    assert pushed(source, "first") == []
    (source / "train.py").write_text("train better")
    assert pushed(source, "second") == []
    second, first = (root / "p" / "releases" / each for each in ("second", "first"))
    assert manifest(second) == manifest(source)
    assert (first / name.format(os.getpid())).read_text() == "other"
    assert (first / "train.py").read_text() == "train"


def test_what_went_while_others_came_is_missed(root, source):
    """A prune takes what an old, broken push has left."""
    wanted, folder = begun(source)
    assert sent(source, wanted[:1]) != []
    wanted, folder = begun(source)
    shutil.rmtree(folder / "lib")
    (folder / "lib").mkdir()
    assert sent(source, wanted) == ["lib/run"]
    assert not (root / "p" / "releases" / ID).exists()
    assert pushed(source) == []


def test_a_release_is_not_shown_before_it_is_known_what_it_holds(root, source):
    wanted, _ = begun(source)
    (root / "p" / "manifests").write_text("in the way")
    with pytest.raises(OSError):
        sent(source, wanted)
    assert releases.offer("p", ID)["present"] is False


def test_what_was_told_of_a_release_is_forgotten_once_it_is_whole(root, source):
    """Supervisors are forked from the process that heard it."""
    assert pushed(source) == []
    assert releases.growing == {}


def test_the_faster_of_two_pushes_wins_and_the_other_leaves_nothing(source, monkeypatch):
    real = os.rename
    with tempfile.TemporaryDirectory() as name:
        tree = Path(shutil.copytree(source, Path(name, "source"), symlinks=True))
        final = Path(name, "p", "releases", ID)

        def late(growing, target):
            monkeypatch.setattr(os, "rename", real)
            shutil.copytree(growing, final, symlinks=True)
            final.chmod(0o755)
            real(growing, target)

        monkeypatch.setattr(os, "rename", late)
        monkeypatch.setattr(sys, "argv", [f"{name}/agent/abc"])
        with as_nobody(Path(name)):
            assert pushed(tree) == []
        assert sorted(manifest(final)) == sorted(manifest(source))
        assert os.listdir(final.parent) == [ID]


def test_the_slower_push_finds_its_folder_gone_and_is_content(root, source):
    wanted, _ = begun(source)
    mine = releases.growing.copy()
    assert pushed(source) == []
    releases.growing.update(mine)
    assert sent(source, wanted) == []
    assert manifest(root / "p" / "releases" / ID) == manifest(source)


def test_a_push_that_is_given_up_leaves_nothing_and_no_other_release_goes(root, source):
    pushed(source, "whole")
    _, folder = begun(source, "half")
    folder.chmod(0o555)
    releases.abandon("p", "half")
    releases.abandon("p", "never-there")
    assert [path.name for path in (root / "p" / "releases").iterdir()] == ["whole"]
