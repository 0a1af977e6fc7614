"""Checkpoints are fetched while their host reads them, from agents of this and other versions."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.builders import make_inventory
from support.chief import TASK, save, start_task
from support.waiting import until

from tfdeploy.agent.outputs import verify
from tfdeploy.config.cluster import Task
from tfdeploy.errors import TransferFailed
from tfdeploy.folders.own_folder import OwnFolder
from tfdeploy.hosts.agent_bundle import current_version
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.results import checkpoints
from tfdeploy.results import fetch as files
from tfdeploy.results.held_files import HeldFiles
from tfdeploy.shared import state_file
from tfdeploy.shared.filesystem import sha256
from tfdeploy.shared.protocol.outputs import HashedFile, HeldCheckpoint, Pin, Pinned
from tfdeploy.transport.file_stream import SILENCE_S
from tfdeploy.transport.local import LocalTransport

ANOTHER_VERSION = "0123456789abcdef"


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / TASK[1]
    return SimpleNamespace(
        id=TASK[1],
        folder=folder,
        open=lambda: OwnFolder.named(folder),
        inventory=SimpleNamespace(
            project=TASK[0], training=SimpleNamespace(checkpoint_dir="checkpoints")
        ),
        plan=SimpleNamespace(chief=SimpleNamespace(task=Task("worker", 0))),
    )


@pytest.fixture
def saves(home):
    """The checkpoint directory of a chief on this machine."""
    return start_task(home / ".tfdeploy", "checkpoints")


def save_good(saves, step, shards=1, keep=()):
    """Save a checkpoint that is known to be good: TensorFlow could not read it."""
    save(saves, step, shards, keep)
    names = state_file.file_set([file.name for file in saves.iterdir()], f"model.ckpt-{step}")
    files = [HashedFile(n, (saves / n).stat().st_size, sha256(str(saves / n))) for n in names]
    known = HeldCheckpoint(f"model.ckpt-{step}", step, verified=True, files=files)
    verify.remember_verified(str(saves.parents[2] / "verified.json"), [known])


def held_by_agents(saves):
    return saves.parents[1] / "held" / "checkpoints"


def make_agent(version=None, transport=LocalTransport):
    host = make_inventory('[hosts.here]\ntransport = "local"').hosts[0]
    return Agent(transport("here"), host, version)


def make_other_agent(home):
    """Install this agent under the name of another version, as after an upgrade of tfdeploy."""
    with_request = make_agent()
    with_request.ask(Pin("none", "none", "none", every=False))
    with_request.close()
    installed = home / ".tfdeploy" / "agent"
    (installed / current_version()).rename(installed / ANOTHER_VERSION)
    return make_agent(ANOTHER_VERSION)


@pytest.mark.parametrize("bulk", [0, 1 << 20], ids=["early", "small"])
@pytest.mark.parametrize("is_current", [True, False])
def test_checkpoints_arrive_from_an_agent_of_any_version(
    home, run, saves, is_current, bulk, monkeypatch
):
    for module in (checkpoints, files):
        monkeypatch.setattr(module, "BULK", bulk)
    agent = make_agent() if is_current else make_other_agent(home)
    save_good(saves, 1)
    save_good(saves, 2, shards=2, keep=[1])
    for _ in range(2):
        result = checkpoints.fetch_checkpoints(agent, run)
        [fetched] = result.checkpoints
        assert fetched.name == "model.ckpt-2"
    arrived = {file.name for file in (run.folder / "checkpoints").iterdir()}
    assert arrived == {*fetched.files, "checkpoint"}
    assert not held_by_agents(saves).exists()
    agent.close()


def test_what_an_agent_holds_is_released_when_its_connection_is_lost(home, run, saves):
    agent = make_agent()
    save_good(saves, 1)
    *_, answer = agent.stream(Pin(*TASK, every=False))
    for file in saves.glob("model.ckpt-1.*"):
        file.unlink()
    assert Path(answer.pin, "model.ckpt-1.index").read_text() == "index 1"
    agent.close()
    until(lambda: not held_by_agents(saves).exists(), "the agent's exit")


def test_a_part_of_another_checkpoint_of_this_name_is_not_continued(home, run, saves, monkeypatch):
    for module in (checkpoints, files):
        monkeypatch.setattr(module, "BULK", 0)
    agent = make_agent()
    save_good(saves, 2)
    incoming = run.folder / ".incoming"
    incoming.mkdir(parents=True)
    (incoming / "model.ckpt-2.data-00000-of-00001").write_text("old")
    checkpoints.fetch_checkpoints(agent, run)
    for file in saves.glob("model.ckpt-2.*"):
        arrived = run.folder / "checkpoints" / file.name
        assert arrived.read_bytes() == file.read_bytes()
        assert arrived.stat().st_mtime_ns == file.stat().st_mtime_ns
    agent.close()


class LyingTransport(LocalTransport):
    """Send other content of the same size."""

    def send_files(self, source, files):
        false = Path(source).parent / "false"
        false.mkdir(exist_ok=True)
        for name, _ in files:
            (false / name).write_bytes((Path(source) / name).read_bytes().swapcase())
        return super().send_files(str(false), files)


def test_a_file_that_arrives_with_other_content_is_refused_and_named(home, run, saves, monkeypatch):
    for module in (checkpoints, files):
        monkeypatch.setattr(module, "BULK", 0)
    agent = make_agent(transport=LyingTransport)
    save_good(saves, 1)
    with pytest.raises(TransferFailed, match=r"model.ckpt-1.* arrived with content that differs"):
        checkpoints.fetch_checkpoints(agent, run)
    assert not [*(run.folder / "checkpoints").iterdir()]
    until(lambda: not held_by_agents(saves).exists(), "the agent's exit")
    agent.close()


def begin_endless_fetch(tmp_path):
    """Begin to fetch a file of a host that sends what the test writes into it."""
    os.mkfifo(tmp_path / "model.data")
    agent, dest = make_agent(), tmp_path / "dest"
    dest.mkdir()
    early = HeldFiles(agent, OwnFolder.at(dest))
    early.begin(str(tmp_path), {"model.data": 1 << 30})
    return agent, dest, early


def test_a_fetch_that_nobody_wants_any_more_ends(tmp_path):
    """Its host sends without end."""
    agent, dest, early = begin_endless_fetch(tmp_path)
    with (tmp_path / "model.data").open("wb", buffering=0) as endless, suppress(BrokenPipeError):
        endless.write(b"x")
        until((dest / "model.data").exists, "the first byte")
        closing = threading.Thread(target=early.close)
        closing.start()
        while closing.is_alive():
            endless.write(b"x")
            closing.join(0.01)
    closing.join()
    with pytest.raises(TransferFailed, match="not wanted"):
        early.wait()
    agent.close()


def test_a_fetch_that_nobody_wants_any_more_ends_though_its_host_is_silent(tmp_path):
    agent, dest, early = begin_endless_fetch(tmp_path)
    until((dest / "model.data").exists, "the fetch")
    with (tmp_path / "model.data").open("wb", buffering=0) as silent:
        silent.write(b"x")
        until(lambda: (dest / "model.data").read_bytes(), "the first byte")
        start = time.monotonic()
        early.close()
        assert time.monotonic() - start < SILENCE_S / 2
    agent.close()


def test_the_early_fetch_of_a_bad_checkpoint_ends_before_another_is_fetched(home, tmp_path, run):
    os.mkfifo(tmp_path / "bad.data")
    agent, incoming = make_agent(), run.folder / ".incoming"
    incoming.mkdir(parents=True)
    early = HeldFiles(agent, OwnFolder.at(incoming))
    early.begin(str(tmp_path), {"bad.data": 1 << 30})
    files = [HashedFile("good.index", 1, "ab"), HashedFile("good.data-00000-of-00001", 1, "ab")]
    good = HeldCheckpoint("good", 1, verified=True, files=files)
    pinned = Pinned(checkpoint_dir="", pin=str(tmp_path), checkpoints=[good], bad=[])
    arriving = checkpoints.Arrival(agent, run, pinned, early)
    with pytest.raises(TransferFailed, match="not wanted"):
        early.wait()
    arriving.receive()
    agent.close()
