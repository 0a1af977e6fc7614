"""Nothing that is below a folder leads out of it, and one fetch adds only so much."""

from __future__ import annotations

import os
from contextlib import ExitStack
from threading import Timer

import pytest

from tfdeploy.errors import RunError
from tfdeploy.folders import own_folder
from tfdeploy.folders.own_folder import Budget, OwnFolder, read_file

REFUSAL = RunError("another collect is running")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "runs").mkdir()
    return OwnFolder.at(tmp_path / "runs")


@pytest.fixture
def elsewhere(tmp_path):
    """A folder with a file of the user's; a link to it is `runs/link`."""
    found = tmp_path / "elsewhere"
    found.mkdir()
    (found / "mine").write_text("my own")
    (tmp_path / "runs" / "link").symlink_to(found)
    yield found
    assert [(file.name, file.read_text()) for file in found.iterdir()] == [("mine", "my own")]


def test_what_is_written_is_there_and_private(folder):
    folder.write("a/b/c", [b"one", b"two"], mtime_ns=5)
    file = folder.path / "a/b/c"
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (b"onetwo", 5)
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent)] == [0o600, 0o700]
    assert os.listdir(file.parent) == ["c"]


@pytest.mark.parametrize("act", [
    lambda folder: folder.write("link/mine", [b"x"]),
    lambda folder: folder.write("link/sub/new", [b"x"]),
    lambda folder: folder.append("link/mine", b"x"),
    lambda folder: folder.update("link/mine"),
    lambda folder: folder.set_time("link/mine", 1),
    lambda folder: folder.remove("link/mine"),
    lambda folder: folder.open("link/mine"),
    lambda folder: folder.read("link/mine", 100),
    lambda folder: (folder / "link").make(),
    lambda folder: (folder / "link").checked(),
    lambda folder: (folder / "link").clean(lambda name: False),
    lambda folder: (folder / "link").move("mine", folder),
    lambda folder: (folder.write("mine", [b"x"]), folder.move("mine", folder / "link")),
    lambda folder: (folder / "link").free_bytes(),
])  # fmt: skip
def test_no_way_leads_through_a_link(folder, elsewhere, act):
    with pytest.raises(OSError, match="it is a link") as refused:
        act(folder)
    assert refused.value.filename == str(folder.path / "link")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "", ".", "a/..", "a\0b", "\ud800"])
def test_a_name_that_leads_out_is_refused(folder, name):
    for act in (folder.open, folder.remove, lambda each: folder.write(each, [b"x"])):
        with pytest.raises(OSError, match="its name"):
            act(name)


def test_a_link_is_no_file_and_is_replaced_by_one(folder, elsewhere):
    (folder.path / "file").symlink_to(elsewhere / "mine")
    assert (folder.stat("file"), folder.size("file"), folder.files()) == (None, 0, {})
    for act in (folder.open, folder.update, lambda name: folder.append(name, b"x")):
        with pytest.raises(OSError, match="it is a link"):
            act("file")
    folder.write("file", [b"new"])
    assert (folder.path / "file").read_text() == "new"


def test_deleting_a_link_deletes_nothing_else(folder, elsewhere):
    folder.remove("link")
    (folder.path / "sub").mkdir()
    (folder.path / "sub/link").symlink_to(elsewhere)
    folder.remove("sub")
    folder.remove("absent")
    assert os.listdir(folder.path) == []


def test_cleaning_keeps_only_regular_files_that_are_wanted(folder, elsewhere):
    for name in ("a/b", "a/old", "empty/x/y", "keep"):
        folder.write(name, [b"x"])
    (folder.path / "a/link").symlink_to(elsewhere)
    os.mkfifo(folder.path / "fifo")
    folder.clean({"a/b", "keep", "fifo", "a/link", "link"}.__contains__)
    assert sorted(folder.files()) == ["a/b", "keep"]
    assert sorted(os.listdir(folder.path)) == ["a", "keep"]


@pytest.mark.parametrize("there", ["file", "folder", "nothing"])
@pytest.mark.parametrize("moved", ["file", "folder"])
def test_a_file_or_a_folder_takes_the_place_of_another(folder, there, moved):
    incoming, dest = folder / "incoming", folder / "dest"
    for where, kind in ((dest, there), (incoming, moved)):
        if kind != "nothing":
            where.write("model" if kind == "file" else "model/part", [kind.encode()])
    incoming.move("model", dest)
    (path,) = (dest.path / "model",) if moved == "file" else (dest.path / "model").iterdir()
    assert path.read_text() == moved
    assert os.listdir(dest.path) == ["model"]


def test_a_file_gives_way_to_a_folder_of_its_name(folder):
    """The program has replaced its file `model` by a folder."""
    folder.write("dest/model", [b"old"])
    folder.write("incoming/model/a/part", [b"new"])
    (folder / "incoming").move("model/a/part", folder / "dest")
    assert (folder.path / "dest/model/a/part").read_text() == "new"


def test_what_a_killed_process_left_is_deleted_or_put_back(folder, elsewhere, monkeypatch):
    (folder / "a").make()
    (folder.path / "a" / ".tfdeploy-1.new").write_bytes(b"half")
    (folder.path / "a" / ".tfdeploy-2.new").symlink_to(elsewhere)
    folder.write("a/.tfdeploy-3.new/model/part", [b"the only one"])
    folder.write("a/.tfdeploy-4.new/newer/part", [b"replaced"])
    folder.write("a/newer/part", [b"new"])
    folder.write("incoming/other/part", [b"new"])
    folder.write("a/other/part", [b"old"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):  # as if it were killed
        patch.setattr(
            own_folder.os, "replace", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        patch.setattr(own_folder, "_remove", lambda *a: None)
        (folder / "incoming").move("other", folder / "a")
    assert not (folder / "a").has("other")
    folder.clean_up()
    found = {name: (folder / "a").read(name, 20) for name in (folder / "a").files()}
    wanted = {"model/part": b"the only one", "newer/part": b"new", "other/part": b"old"}
    assert (found, len(os.listdir(folder.path / "a"))) == (wanted, 3)


def test_a_file_that_another_command_writes_is_not_deleted(folder):
    def blocks():
        yield b"one"
        OwnFolder.at(folder.path).clean_up()
        yield b"two"

    folder.write("file", blocks())
    assert folder.read("file", 9) == b"onetwo"


def test_what_can_not_be_replaced_stays(folder):
    folder.write("dest/model/part", [b"old"])
    with pytest.raises(FileNotFoundError):
        (folder / "incoming").move("model", folder / "dest")
    (folder / "incoming").make()
    with pytest.raises(FileNotFoundError):
        (folder / "incoming").move("model", folder / "dest")
    assert folder.read("dest/model/part", 3) == b"old"


def test_a_folder_of_another_user_is_refused(folder, monkeypatch):
    (folder / "other").make()
    monkeypatch.setattr(folder._top, "owners", {12345})
    with pytest.raises(PermissionError, match="belongs to another user"):
        folder.write("other/x", [b"x"])


def test_a_folder_that_everybody_may_write_is_closed_to_them(folder):
    (folder / "open").make()
    (folder.path / "open").chmod(0o777)
    folder.write("open/x", [b"x"])
    assert (folder.path / "open").stat().st_mode & 0o777 == 0o775


def test_data_is_appended_as_a_whole_or_not_at_all(folder, monkeypatch):
    folder.append("log", b"one\n")
    monkeypatch.setattr(own_folder.os, "fdopen", lambda *a, **k: Full(*a, **k))
    with pytest.raises(OSError, match="No space"):
        folder.append("log", b"two\n")
    assert (folder.path / "log").read_text() == "one\n"


class Full:
    """A file on a disk that has space for two bytes more."""

    def __init__(self, descriptor, mode, buffering):
        self.file = open(descriptor, mode, buffering)  # noqa: SIM115

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        return self.file.write(data[:2])


def test_a_fetch_adds_no_more_than_its_budget(folder):
    limited = folder.within(Budget(10, 4))
    limited.write("a", [b"12345"])
    limited.write("a", [b"12345678"])  # three more
    limited.append("a", b"90")
    with pytest.raises(OSError, match="more bytes than it announced"):
        limited.write("a", [b"12345678901"])
    assert (folder.path / "a").read_bytes() == b"1234567890"
    limited.write("sub/b", [b""])
    with pytest.raises(OSError, match="more names than are allowed"):
        limited.write("x/y/z", [b""])
    assert os.listdir(folder.path / "sub") == ["b"]


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "large", "absent"])
def test_only_a_regular_file_of_a_limited_size_is_read(tmp_path, kind):
    file = tmp_path / "run.json"
    make = {
        "link": lambda: file.symlink_to("/dev/zero"), "fifo": lambda: os.mkfifo(file),
        "folder": file.mkdir, "large": lambda: file.write_bytes(bytes(11)), "absent": list,
    }[kind]  # fmt: skip
    make()
    with pytest.raises(OSError, match=r"link|regular|larger|directory|No such"):
        read_file(file, 10)
    with pytest.raises(OSError, match=r"link|regular|larger|directory|No such"):
        OwnFolder.at(tmp_path).read("run.json", 10)


def test_a_lock_is_held_once_and_free_afterwards(folder):
    with (
        folder.locked("lock", REFUSAL),
        pytest.raises(RunError, match="another collect"),
        folder.locked("lock", REFUSAL),
    ):
        pass
    with folder.locked("lock", REFUSAL):
        pass


def test_a_lock_that_is_soon_free_is_waited_for(folder):
    held = ExitStack()
    held.enter_context(folder.locked("lock", REFUSAL))
    release = Timer(0.2, held.close)
    release.start()
    with folder.locked("lock"):
        release.join()


def test_a_link_in_place_of_the_lock_is_refused(folder, elsewhere):
    (folder.path / "lock").symlink_to(elsewhere / "mine")
    with pytest.raises(RunError, match=r"can't lock .*lock: it is a link"):
        folder.locked("lock", REFUSAL).__enter__()


def test_a_descriptor_is_open_as_long_as_a_folder_uses_it(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    below = OwnFolder.at(tmp_path) / "a"
    below.write("b", [b"x"])
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del below
    assert len(os.listdir("/proc/self/fd")) == before


def test_cleaning_does_not_fail_if_another_process_is_faster(folder):
    for name in ("a/b", "a/c", "d/e"):
        folder.write(name, [b"x"])

    def delete_all(name):
        for each in ("a", "d"):
            folder.remove(each)
        return True

    folder.clean(delete_all)
    assert folder.files() == {}
