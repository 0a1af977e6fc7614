"""What comes home over the session is what the host has, and nothing that was not asked for."""

from __future__ import annotations

import base64
import os
import zlib

import pytest

from tfdeploy.errors import AgentError, TransferFailed
from tfdeploy.remote import Agent
from tfdeploy.steps import bring as bringing
from tfdeploy.steps.bring import bring
from tfdeploy.transport.local import LocalTransport
from unit.made import inventory

ASKED = ["a.log", "sub/b"]


class Counting(LocalTransport):
    """Says what came by a transfer of its own."""

    def __init__(self, host):
        super().__init__(host)
        self.pulled = []

    def pull(self, source, dest, files):
        self.pulled += files
        super().pull(source, dest, files)


@pytest.fixture
def here(home):
    host = inventory('[hosts.here]\ntransport = "local"').hosts[0]
    agent = Agent(Counting("here"), host)
    yield agent
    agent.close()


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.log").write_text("one\n")
    (folder / "sub" / "b").write_bytes(b"")
    return folder


def brought(agent, source, dest, files=ASKED):
    bring(agent, os.fspath(source), dest, files)
    pulled, agent.transport.pulled = agent.transport.pulled, []
    return pulled


def test_files_come_over_the_session_with_their_times(here, source, tmp_path):
    os.utime(source / "a.log", ns=(1, 1_234_567_890_123_456_789))
    assert brought(here, source, tmp_path / "dest") == []
    assert (tmp_path / "dest" / "a.log").read_text() == "one\n"
    assert (tmp_path / "dest" / "sub" / "b").read_bytes() == b""
    assert (tmp_path / "dest" / "a.log").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert sorted(path.name for path in (tmp_path / "dest").iterdir()) == ["a.log", "sub"]


@pytest.mark.parametrize("there", ["one\ntwo\n", "one\n", "", "new", "o", "x" * 3_000_000])
def test_what_grew_or_was_begun_anew_is_the_same_after(here, source, tmp_path, there):
    dest = tmp_path / "dest"
    brought(here, source, dest)
    (source / "a.log").write_text(there)
    assert brought(here, source, dest) == []
    assert (dest / "a.log").read_text() == there


def test_only_what_is_new_of_a_grown_file_is_given(here, source, tmp_path, monkeypatch):
    (source / "a.log").write_bytes(os.urandom(500_000))
    brought(here, source, tmp_path / "dest")
    with (source / "a.log").open("ab") as log:
        log.write(b"more")
    written = []
    write = bringing._write
    monkeypatch.setattr(bringing, "_write", lambda *a: (written.append(len(a[2])), write(*a)))
    brought(here, source, tmp_path / "dest")
    assert sorted(written) == [0, 4]
    assert (tmp_path / "dest" / "a.log").read_bytes() == (source / "a.log").read_bytes()


def test_what_is_large_comes_by_a_transfer_of_its_own(here, source, tmp_path, monkeypatch):
    monkeypatch.setattr(bringing, "BULK", 1000)
    (source / "a.log").write_bytes(os.urandom(1001))
    assert brought(here, source, tmp_path / "dest") == ["a.log"]
    assert (tmp_path / "dest" / "a.log").read_bytes() == (source / "a.log").read_bytes()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_regular_files_come(here, source, tmp_path, kind):
    (source / "a.log").unlink()
    make = {
        "link": lambda path: path.symlink_to("/etc/hostname"),
        "fifo": os.mkfifo,
        "folder": os.mkdir,
    }[kind]
    make(source / "a.log")
    assert brought(here, source, tmp_path / "dest") == ["a.log"]  # which leaves it out, too
    assert not (tmp_path / "dest" / "a.log").exists()


def test_what_is_missing_is_an_error(here, source, tmp_path):
    with pytest.raises(TransferFailed, match="absent"):
        brought(here, source, tmp_path / "dest", ["absent"])


def test_a_link_in_the_way_is_not_followed(here, source, tmp_path):
    (tmp_path / "dest").mkdir()
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "dest" / "a.log").symlink_to(tmp_path / "elsewhere")
    brought(here, source, tmp_path / "dest", ["a.log"])
    assert (tmp_path / "dest" / "a.log").read_text() == "one\n"
    assert (tmp_path / "elsewhere").read_text() == "kept"


def packed(data):
    return base64.b64encode(zlib.compress(data)).decode()


GOOD = {"path": "a.log", "mtime_ns": 1, "begin": 0, "data": packed(b"x")}


@pytest.mark.parametrize(
    "lie",
    [
        {"path": "../a.log"}, {"path": "/etc/passwd"}, {"path": None}, {"path": []}, {"begin": -1},
        {"begin": "0"}, {"begin": 1 << 40}, {"mtime_ns": 1 << 70}, {"mtime_ns": None},
        {"data": "not base64!"}, {"data": None}, {"data": base64.b64encode(b"x").decode()},
        {"data": packed(bytes(bringing.BULK + 1))},
    ],
    ids=lambda lie: f"{lie}"[:40],
)  # fmt: skip
def test_a_host_that_lies_writes_nothing(here, tmp_path, lie, monkeypatch):
    monkeypatch.setattr(here, "answers", lambda *_: [{**GOOD, **lie}])
    with pytest.raises(AgentError):
        bring(here, "/source", tmp_path / "dest", ["a.log"])
    assert not (tmp_path / "dest").exists()
