"""Fetched files are what the host has, and nothing that was not requested."""

from __future__ import annotations

import base64
import os
import zlib
from types import SimpleNamespace
from typing import ClassVar

import pytest
from support.builders import make_inventory

from tfdeploy.errors import AgentError
from tfdeploy.folders.own_folder import Budget, OwnFolder
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.hosts.pipeline import Pipeline
from tfdeploy.results import fetch as fetch_module
from tfdeploy.results.checkpoints import validate_checkpoints
from tfdeploy.results.fetch import BULK, FileFetch
from tfdeploy.shared.protocol.outputs import HashedFile, HeldUnit
from tfdeploy.shared.protocol.reports import Piece
from tfdeploy.transport.local import LocalTransport

FILES = ["a.log", "sub/b"]
LOCAL = '[hosts.h]\ntransport = "local"'


@pytest.fixture
def agent(home):
    agent = Agent(LocalTransport("h"), make_inventory(LOCAL).hosts[0])
    yield agent
    agent.close()


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.log").write_text("one\n")
    (folder / "sub" / "b").write_bytes(b"")
    return folder


def fetch(agent, source, folder, files=FILES, kind=FileFetch):
    """Fetch files; return the names of those that did not come."""
    dest = OwnFolder.named(folder)
    with Pipeline(agent) as pipeline:
        return kind(pipeline, os.fspath(source), dest, files).receive()


def test_small_files_come_over_the_session_with_their_times(agent, source, tmp_path):
    os.utime(source / "a.log", ns=(1, 1_234_567_890_123_456_789))
    assert fetch(agent, source, tmp_path / "dest") == {}
    assert (tmp_path / "dest" / "a.log").read_text() == "one\n"
    assert (tmp_path / "dest" / "sub" / "b").read_bytes() == b""
    assert (tmp_path / "dest" / "a.log").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert sorted(path.name for path in (tmp_path / "dest").iterdir()) == ["a.log", "sub"]


@pytest.mark.parametrize("size", [4, BULK + 4])
def test_a_growing_file_is_continued_in_place_whatever_its_size(agent, source, tmp_path, size):
    (source / "a.log").write_bytes(b"x" * size)
    fetch(agent, source, tmp_path / "dest")
    copy = tmp_path / "dest" / "a.log"
    inode = copy.stat().st_ino
    for more in (b"", b"yz", b"y" * 3_000_000):
        with (source / "a.log").open("ab") as file:
            file.write(more)
        assert fetch(agent, source, tmp_path / "dest") == {}
        assert copy.read_bytes() == (source / "a.log").read_bytes()
        assert copy.stat().st_mtime_ns == (source / "a.log").stat().st_mtime_ns
    assert copy.stat().st_ino == inode


def test_a_growing_file_that_was_replaced_is_fetched_whole(agent, source, tmp_path):
    fetch(agent, source, tmp_path / "dest")
    (source / "a.log").write_text("other\n")
    fetch(agent, source, tmp_path / "dest")
    assert (tmp_path / "dest" / "a.log").read_text() == "other\n"


@pytest.mark.parametrize("content", ["one\ntwo\n", "one\n", "", "new", "o", "x" * 3_000_000])
def test_a_file_that_grew_or_was_rewritten_is_the_same_after_the_fetch(
    agent, source, tmp_path, content
):
    dest = tmp_path / "dest"
    fetch(agent, source, dest)
    (source / "a.log").write_text(content)
    assert fetch(agent, source, dest) == {}
    assert (dest / "a.log").read_text() == content


class NotedFetch(FileFetch):
    """A fetch that notes how much it has written of each file."""

    written_sizes: ClassVar[list[int]] = []

    def _write(self, *words):
        self.written_sizes.append(len(words[1]))
        super()._write(*words)


def test_of_a_file_that_grew_only_the_new_part_is_sent(agent, source, tmp_path):
    (source / "a.log").write_bytes(os.urandom(500_000))
    fetch(agent, source, tmp_path / "dest")
    with (source / "a.log").open("ab") as log:
        log.write(b"more")
    fetch(agent, source, tmp_path / "dest", kind=NotedFetch)
    assert sorted(NotedFetch.written_sizes) == [0, 4]
    assert (tmp_path / "dest" / "a.log").read_bytes() == (source / "a.log").read_bytes()


@pytest.mark.parametrize("step", [1, 2])  # each piece has two bytes
def test_a_host_can_not_have_a_file_written_once_for_each_byte(agent, source, tmp_path, step):
    dest = OwnFolder.named(tmp_path / "dest")
    data = base64.b64encode(zlib.compress(b"xy")).decode()
    with Pipeline(agent) as pipeline:
        fetched = FileFetch(pipeline, os.fspath(source), dest, ["a.log"])
        pieces = [Piece("a.log", 1, begin, data) for begin in range(0, 9, step)]
        fetched._reply = SimpleNamespace(answers=lambda: pieces)
        with pytest.raises(AgentError, match="twice, or not in order"):
            fetched.receive()


def test_a_growing_file_comes_within_the_budget(agent, source, tmp_path):
    (source / "a.log").write_bytes(os.urandom(3 * BULK))
    dest = OwnFolder.named(tmp_path / "dest")
    for budget, missing in ((3 * BULK - 1, ["a.log"]), (3 * BULK, [])):
        with Pipeline(agent) as pipeline:
            within = dest.within(Budget(budget))
            fetched = FileFetch(pipeline, os.fspath(source), within, ["a.log"])
            assert [*fetched.receive()] == missing
    assert (dest.path / "a.log").read_bytes() == (source / "a.log").read_bytes()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_regular_files_are_fetched(agent, source, tmp_path, kind):
    (source / "a.log").unlink()
    make = {
        "link": lambda path: path.symlink_to("/etc/hostname"),
        "fifo": os.mkfifo,
        "folder": os.mkdir,
    }[kind]
    make(source / "a.log")
    what = {"link": "a link to /etc/hostname", "fifo": "a FIFO", "folder": "a folder"}[kind]
    assert fetch(agent, source, tmp_path / "dest") == {"a.log": f"is {what}, not a file"}
    assert not (tmp_path / "dest" / "a.log").exists()


def test_a_missing_file_does_not_come(agent, source, tmp_path):
    assert fetch(agent, source, tmp_path / "dest", ["absent", "a.log"]) == {"absent": "is gone"}


def test_a_link_at_the_destination_is_replaced_and_not_followed(agent, source, tmp_path):
    (tmp_path / "dest").mkdir()
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "dest" / "a.log").symlink_to(tmp_path / "elsewhere")
    fetch(agent, source, tmp_path / "dest", ["a.log"])
    assert (tmp_path / "dest" / "a.log").read_text() == "one\n"
    assert (tmp_path / "elsewhere").read_text() == "kept"


def packed(data):
    return base64.b64encode(zlib.compress(data)).decode()


class Answering(Agent):
    """An agent that sends these pieces, whatever it is asked for."""

    def __init__(self, *pieces):
        super().__init__(LocalTransport("h"), make_inventory(LOCAL).hosts[0])
        self._answers = iter([*pieces, {"end": True}])

    def begin(self, *request):
        session = SimpleNamespace(close=lambda: None, answer=lambda *limits: next(self._answers))
        return session, next(self._answers)


ANSWER = {"tag": "piece", "path": "a.log", "mtime_ns": 1, "begin": 0, "data": packed(b"x")}


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../a.log"}, {"path": "/etc/passwd"}, {"path": None}, {"path": []}, {"begin": -1},
        {"begin": "0"}, {"begin": 1 << 40}, {"mtime_ns": 1 << 70}, {"mtime_ns": None},
        {"data": "not base64!"}, {"data": None}, {"data": base64.b64encode(b"x").decode()},
        {"data": packed(bytes(fetch_module.BULK + 1))},
    ],
    ids=lambda change: f"{change}"[:40],
)  # fmt: skip
def test_an_invalid_answer_writes_nothing(tmp_path, change):
    with pytest.raises(AgentError), Pipeline(Answering({**ANSWER, **change})) as pipeline:
        FileFetch(pipeline, "/source", OwnFolder.at(tmp_path) / "dest", ["a.log"]).receive()
    assert not (tmp_path / "dest").exists()


def test_a_host_that_sends_a_piece_again_and_again_is_refused(tmp_path):
    agent = Answering(*[ANSWER] * 10)
    with pytest.raises(AgentError, match="twice"), Pipeline(agent) as pipeline:
        FileFetch(pipeline, "/source", OwnFolder.at(tmp_path) / "dest", ["a.log"]).receive()


def test_a_piece_continues_no_file_that_the_link_names(tmp_path):
    """Its first bytes would be those of a file of the user's."""
    (tmp_path / "mine").write_text("my own\n")
    dest = OwnFolder.at(tmp_path) / "dest"
    dest.make()
    (dest.path / "a.log").symlink_to(tmp_path / "mine")
    agent = Answering({**ANSWER, "begin": 3})
    with pytest.raises(OSError, match="it is a link"), Pipeline(agent) as pipeline:
        FileFetch(pipeline, "/source", dest, ["a.log"]).receive()
    assert (tmp_path / "mine").read_text() == "my own\n"


def test_a_host_that_sends_more_than_the_budget_is_refused(tmp_path):
    size = 100_000
    pieces = [{**ANSWER, "begin": n * size, "data": packed(bytes(size))} for n in range(50)]
    agent = Answering(*pieces)
    dest = (OwnFolder.at(tmp_path) / "dest").within(Budget(size + 20))
    with pytest.raises(OSError, match="more bytes"), Pipeline(agent) as pipeline:
        FileFetch(pipeline, "/source", dest, ["a.log"]).receive()
    assert (tmp_path / "dest/a.log").stat().st_size <= size + 20


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", "", ".", "a\0b", "\ud800", "\nx/../../y"]
)
def test_an_unsafe_file_name_from_a_host_is_refused(name, tmp_path):
    for checkpoint, file in ((name, "model.index"), ("model", name)):
        found = HeldUnit(checkpoint, [HashedFile(file, 1, "ab")])
        with pytest.raises(AgentError, match="refused"):
            validate_checkpoints("one", [found])
    with pytest.raises(AgentError, match="refused"):
        FileFetch(Pipeline(SimpleNamespace(host="one")), "/", tmp_path, [name])
