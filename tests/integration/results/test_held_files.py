"""Large files arrive as their host holds them, hashed on the way and continued at the byte."""

from __future__ import annotations

import hashlib
import os
from random import Random

import pytest
from support.builders import make_inventory

from tfdeploy.errors import TransferFailed
from tfdeploy.folders.own_folder import OwnFolder
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.results.held_files import HeldFiles
from tfdeploy.shared.protocol.outputs import HashedFile
from tfdeploy.transport.local import LocalTransport

CONTENTS = {name: Random(name).randbytes(3_000_001) for name in ("a", "sub/b", "c")}
HASHES = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
SIZES = {name: len(content) for name, content in CONTENTS.items()}
EXPECTED = {name: HashedFile(name, SIZES[name], HASHES[name]) for name in CONTENTS}


class NestedTransport(LocalTransport):
    """While a block of the first file is on its way, another fetch runs."""

    def __init__(self, host):
        super().__init__(host)
        self.during_read = None

    def send_files(self, source, files):
        stream = super().send_files(source, files)
        during_read, self.during_read = self.during_read, None
        read_into = stream.read_into

        def read_and_fetch(*request):
            nonlocal during_read
            size = read_into(*request)
            fetch, during_read = during_read, None
            if fetch:
                fetch()
            return size

        stream.read_into = read_and_fetch
        return stream


class RecordingTransport(LocalTransport):
    """Record which bytes a host is asked for."""

    def __init__(self, host):
        super().__init__(host)
        self.requests = []

    def send_files(self, source, files):
        self.requests.append(dict(files))
        return super().send_files(source, files)


@pytest.fixture
def agent():
    host = make_inventory('[hosts.h]\ntransport = "local"').hosts[0]
    agent = Agent(RecordingTransport("h"), host)
    yield agent
    agent.close()


@pytest.fixture
def source(tmp_path):
    for name, content in CONTENTS.items():
        file = tmp_path / "source" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path / "source"


@pytest.fixture
def held(agent, tmp_path):
    (tmp_path / "dest").mkdir()
    return HeldFiles(agent, OwnFolder.at(tmp_path / "dest"))


def arrived(held):
    return {name: (held.folder.path / name).read_bytes() for name in CONTENTS}


def test_files_are_hashed_as_they_arrive(held, source):
    held.fetch(str(source), SIZES)
    assert (arrived(held), held.hashes) == (CONTENTS, HASHES)
    assert not held.continued


def test_an_interrupted_fetch_is_continued_at_the_byte(held, source, agent):
    (held.folder.path / "a").write_bytes(CONTENTS["a"])
    (held.folder.path / "c").write_bytes(CONTENTS["c"][:1234])
    held.fetch(str(source), SIZES)
    assert agent.transport.requests == [{"a": SIZES["a"], "sub/b": 0, "c": 1234}]
    assert (arrived(held), held.hashes) == (CONTENTS, HASHES)


def test_a_part_that_is_a_link_to_a_stored_file_is_not_continued(held, source, tmp_path):
    stored = tmp_path / "stored"
    stored.write_bytes(b"of an earlier checkpoint")
    os.link(stored, held.folder.checked() / "a")
    held.fetch(str(source), SIZES)
    assert stored.read_bytes() == b"of an earlier checkpoint"
    assert arrived(held) == CONTENTS


def test_a_part_of_other_content_is_fetched_again(held, source, agent):
    (held.folder.path / "c").write_bytes(b"other")
    held.complete(str(source), EXPECTED)
    assert agent.transport.requests[1:] == [{"c": 0}]
    assert (arrived(held), held.hashes) == (CONTENTS, HASHES)


def test_a_file_that_is_longer_than_its_host_said_starts_again(held, source):
    (held.folder.path / "a").write_bytes(bytes(SIZES["a"] + 1))
    held.fetch(str(source), SIZES)
    assert arrived(held) == CONTENTS


def test_a_link_at_the_destination_is_replaced_and_not_followed(held, source, tmp_path):
    (tmp_path / "elsewhere").write_text("kept")
    (held.folder.path / "a").symlink_to(tmp_path / "elsewhere")
    held.fetch(str(source), SIZES)
    assert arrived(held) == CONTENTS
    assert (tmp_path / "elsewhere").read_text() == "kept"


@pytest.mark.parametrize(
    ("change", "message"), [(1, "of 3000002 bytes of c"), (-1, "more than it announced")]
)
def test_a_host_that_sends_more_or_less_than_it_said_is_refused(held, source, change, message):
    with pytest.raises(TransferFailed, match=message):
        held.fetch(str(source), {**SIZES, "c": SIZES["c"] + change})
    assert "c" not in held.hashes or change < 0


def test_two_fetches_at_the_same_time_do_not_mix_their_content(source, tmp_path):
    transport = NestedTransport("h")
    agent = Agent(transport, make_inventory('[hosts.h]\ntransport = "local"').hosts[0])
    held = HeldFiles(agent, OwnFolder.at(tmp_path) / "dest")
    transport.during_read = lambda: held.fetch(str(source), {"a": SIZES["a"]})
    held.fetch(str(source), {"c": SIZES["c"]})
    assert (held.folder.path / "a").read_bytes() == CONTENTS["a"]
    assert (held.folder.path / "c").read_bytes() == CONTENTS["c"]
    agent.close()
