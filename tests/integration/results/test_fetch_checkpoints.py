"""Checkpoints are fetched as their host holds them."""

from __future__ import annotations

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
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.hosts.pipeline import Pipeline, run_alone
from tfdeploy.results import arrival, checkpoints
from tfdeploy.results import fetch as files
from tfdeploy.shared import state_file
from tfdeploy.shared.filesystem import sha256
from tfdeploy.shared.protocol.outputs import HashedFile, HeldUnit, Hold
from tfdeploy.transport.local import LocalTransport


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
    known = HeldUnit(f"model.ckpt-{step}", files, step)
    verify.remember_verified(str(saves.parents[2] / "verified.json"), [known])


def held_by_agents(saves):
    return saves.parents[1] / "held" / "checkpoints"


def make_agent(transport=LocalTransport):
    host = make_inventory('[hosts.here]\ntransport = "local"').hosts[0]
    return Agent(transport("here"), host)


@pytest.mark.parametrize("bulk", [0, 1 << 20], ids=["large", "small"])
def test_checkpoints_arrive(home, run, saves, bulk, monkeypatch):
    for module in (arrival, files):
        monkeypatch.setattr(module, "BULK", bulk)
    agent = make_agent()
    save_good(saves, 1)
    save_good(saves, 2, shards=2, keep=[1])
    for _ in range(2):
        result = run_alone(agent, lambda pipeline: checkpoints.fetch_checkpoints(pipeline, run))
        [fetched] = result.checkpoints
        assert fetched.name == "model.ckpt-2"
    arrived = {file.name for file in (run.folder / "checkpoints").iterdir()}
    assert arrived == {*fetched.files, "checkpoint"}
    assert not held_by_agents(saves).exists()
    agent.close()


def test_what_an_agent_holds_is_released_when_its_connection_is_lost(home, run, saves):
    agent = make_agent()
    save_good(saves, 1)
    with suppress(ConnectionError), Pipeline(agent) as pipeline:
        answer = pipeline.send(Hold(*TASK)).answer()
        for file in saves.glob("model.ckpt-1.*"):
            file.unlink()
        assert Path(answer.folder, "model.ckpt-1.index").read_text() == "index 1"
        raise ConnectionError
    until(lambda: not held_by_agents(saves).exists(), "the agent's exit")


def test_a_part_of_another_checkpoint_of_this_name_is_not_continued(home, run, saves, monkeypatch):
    for module in (arrival, files):
        monkeypatch.setattr(module, "BULK", 0)
    agent = make_agent()
    save_good(saves, 2)
    incoming = run.folder / ".incoming"
    incoming.mkdir(parents=True)
    (incoming / "model.ckpt-2.data-00000-of-00001").write_text("old")
    run_alone(agent, lambda pipeline: checkpoints.fetch_checkpoints(pipeline, run))
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
    for module in (arrival, files):
        monkeypatch.setattr(module, "BULK", 0)
    agent = make_agent(transport=LyingTransport)
    save_good(saves, 1)
    with pytest.raises(TransferFailed, match=r"model.ckpt-1.* arrived with content that differs"):
        run_alone(agent, lambda pipeline: checkpoints.fetch_checkpoints(pipeline, run))
    assert not [*(run.folder / "checkpoints").iterdir()]
    until(lambda: not held_by_agents(saves).exists(), "the agent's exit")
    agent.close()
