"""Units of files arrive whole, whatever an interrupted fetch has left and whatever a host says."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from types import SimpleNamespace

import pytest

from tfdeploy.errors import AgentError, TransferFailed
from tfdeploy.folders.own_folder import OwnFolder
from tfdeploy.hosts.agent_session import BULK
from tfdeploy.hosts.byte_progress import Transfers
from tfdeploy.results.fetch import check_free_space
from tfdeploy.results.run_folder import disk_errors
from tfdeploy.results.units import fetch_units, parse_units
from tfdeploy.shared.protocol.outputs import HashedFile, Held, HeldUnit, Unit
from tfdeploy.transport.local import LocalTransport

SIZE = BULK + 1  # it comes over a connection of its own
CONTENT = bytes(SIZE)
TASK = {"project": "p", "run": "r", "task": "worker:0"}


@pytest.fixture
def agent():
    transport = LocalTransport("h")
    return SimpleNamespace(
        host="h", transport=transport, transfers=Transfers(), ask=lambda request: None
    )


@pytest.fixture
def fetch(agent, tmp_path):
    """Return a function that fetches the unit `model`, of which the host says that it has `size`
    bytes when it holds it."""
    held = tmp_path / "held"
    held.mkdir()
    (held / "model").write_bytes(CONTENT)

    def run(size=SIZE, listed=SIZE):
        files = [HashedFile("model", size, hashlib.sha256(CONTENT).hexdigest())]
        answer = Held(str(held), [HeldUnit("model", files)], [])
        reply = SimpleNamespace(answer=lambda: answer)
        pipeline = SimpleNamespace(agent=agent, send=lambda *request: reply, flush=lambda: None)
        unit = Unit("model", "file", {"model": (listed, 1)})
        folder = OwnFolder.at(tmp_path)
        steps = fetch_units(pipeline, TASK, [unit], folder / "incoming", folder / "dest")
        next(steps)  # until the host is asked
        next(steps)  # until it holds the unit
        with pytest.raises(StopIteration) as end:
            next(steps)
        return end.value.value

    return run


def test_a_file_takes_the_place_of_a_folder_that_an_interrupted_fetch_left(fetch, tmp_path):
    (tmp_path / "incoming/model/assets").mkdir(parents=True)
    (tmp_path / "incoming/model/assets/words").write_text("old")
    arrived, bad = fetch()
    assert ([unit.path for unit in arrived], bad) == (["model"], {})
    assert (tmp_path / "dest/model").read_bytes() == CONTENT


def test_a_file_that_grew_after_it_was_listed_has_the_size_that_arrived(fetch):
    arrived, _ = fetch(listed=SIZE - 1)
    assert [unit.size for unit in arrived] == [SIZE]


@pytest.mark.parametrize("size", [-1, 1 << 40])
def test_a_host_that_holds_much_more_than_it_listed_is_refused(fetch, tmp_path, size):
    with pytest.raises(AgentError, match="other sizes"):
        fetch(size)
    assert not [*(tmp_path / "incoming").iterdir()]


def test_a_full_disk_is_reported_with_what_it_means(agent, tmp_path):
    run = SimpleNamespace(folder=tmp_path / "runs" / "r")
    message = rf"on the controller, can't write {run.folder}: the file system /\S* has .* free of "
    with pytest.raises(TransferFailed, match=message), disk_errors(agent, run):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_an_interrupted_fetch_left_takes_no_space_again(agent, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=3))
    (tmp_path / "model").write_bytes(b"12345")
    check_free_space(agent, OwnFolder.at(tmp_path), {"model": 8})
    with pytest.raises(TransferFailed, match="4 B of its files do not fit on the controller: "):
        check_free_space(agent, OwnFolder.at(tmp_path), {"model": 8, "other": 1})


def test_a_unit_that_is_listed_in_two_folders_is_fetched_once(agent):
    unit = Unit("/scratch/a", "file", {"/scratch/a": (1, 2)})
    assert parse_units(agent, [unit, unit]) == [unit]
