"""A file is replaced at once or not at all, and a full disk is recognized."""

from __future__ import annotations

import errno
import os

import pytest

from tfdeploy.shared import filesystem, records


def test_replace_file_replaces_a_file_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "state"
    path.write_text("old")
    filesystem.replace_file(os.fspath(path), b"new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["state"]


def test_a_failed_write_keeps_the_old_content_and_leaves_nothing_beside_it(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    path = tmp_path / "state"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        filesystem.replace_file(os.fspath(path), b"new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["state"]


def test_a_full_disk_is_recognized_by_its_error_and_by_its_message():
    for code, message in zip((errno.ENOSPC, errno.EDQUOT), filesystem.NO_SPACE, strict=True):
        assert filesystem.is_disk_full(OSError(code, message))
        assert os.strerror(code) == message
    assert not filesystem.is_disk_full(OSError(errno.EACCES, "Permission denied"))


@pytest.mark.parametrize("is_old", [False, True], ids=["in memory", "without memfd_create"])
def test_a_file_without_a_name_has_its_data_from_the_start(monkeypatch, is_old):
    if is_old:
        monkeypatch.delattr(os, "memfd_create")
    descriptor = filesystem.memory_file(b"a summary")
    with os.fdopen(descriptor, "rb") as file:
        assert filesystem.read_bytes(f"/proc/self/fd/{descriptor}") == b"a summary"
        assert file.read() == b"a summary"


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    import socket

    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))


def make_link(path):
    os.symlink("/etc/hostname", path)


ODD = {"a FIFO": make_fifo, "a socket": make_socket, "a folder": os.mkdir, "a link": make_link}


@pytest.fixture(params=ODD)
def odd(request, tmp_path, monkeypatch):
    """A path at which something else than a file is, and what it is."""
    monkeypatch.chdir(tmp_path)
    path = os.fspath(tmp_path / "odd")
    ODD[request.param](path)
    return path, request.param


def test_what_is_no_file_is_named_and_nothing_waits_for_it(odd):
    path, what = odd
    assert filesystem.file_problem(path).startswith(f"is {what}")
    with pytest.raises(OSError, match=what):
        filesystem.open_regular(path)
    if what != "a link":  # through a link a file may be read
        assert filesystem.read_if_possible(path) == filesystem.read_end(path, 10) == b""
        with pytest.raises(OSError, match=what):
            records.read(path)


def test_nothing_is_appended_to_what_is_no_file(odd):
    path, _ = odd
    with pytest.raises(OSError):
        filesystem.append_line(path, b"line\n", 1000)


def test_a_file_has_no_problem_and_one_that_is_gone_has(tmp_path):
    file = tmp_path / "file"
    assert filesystem.file_problem(os.fspath(file)) == "is gone"
    file.write_text("content")
    assert filesystem.file_problem(os.fspath(file)) == ""
