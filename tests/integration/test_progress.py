"""Transfers report their progress: bytes of the total, the file, and the host."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from support.ports import free_ports
from support.waiting import until

from tfdeploy import run as runs
from tfdeploy.commands.collect import collect
from tfdeploy.commands.fetch import fetch
from tfdeploy.commands.plan import plan_all
from tfdeploy.commands.push import push
from tfdeploy.commands.resume import Changes, resume
from tfdeploy.commands.running.follow import Watcher
from tfdeploy.commands.running.run import follow_resiliently
from tfdeploy.config import inventory
from tfdeploy.hosts.agent_session import BULK
from tfdeploy.hosts.byte_progress import Transfer, Transfers
from tfdeploy.hosts.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
DATA = "model.ckpt-1.data-00000-of-00001"
SIZE = BULK + 1000
SLOWLY = f"""{sys.executable} -c '
import sys, time
while block := sys.stdin.buffer.read(100_000):
    sys.stdout.buffer.write(block)
    time.sleep(0.1)
'"""


class RecordingTransfers(Transfers):
    """Record each transfer: (host, transfer, {file: bytes of all files by then})."""

    def __init__(self) -> None:
        super().__init__()
        self.of: list[tuple[str, Transfer, dict[str, int]]] = []

    @contextmanager
    def begin(self, host: str, total: int | None = None, note: str = "") -> Iterator[Transfer]:
        files: dict[str, int] = {}

        class RecordingTransfer(Transfer):
            def __call__(self, file: str, there: int) -> None:
                super().__call__(file, there)
                files[file] = self.there

        with super().begin(host, total, note):
            transfer = RecordingTransfer(total, note)
            self.of.append((host, transfer, files))
            yield transfer

    def one(self, file: str) -> tuple[str, Transfer, dict[str, int]]:
        [found] = [each for each in self.of if file in each[2]]
        return found


def training(world: Any, flag: str = "--hold", **more: Any) -> Any:
    """Start a run whose chief has saved a checkpoint that is too large for the session."""
    hosts = {name: {**host, "ports": free_ports(4)} for name, host in world.hosts().items()}
    hosts |= {name: {**hosts["two"], "workers": 0, **host} for name, host in more.items()}
    project = world.started("--steps=1", flag, hosts=hosts)
    saved = next(project.on("two").glob(f"runs/{project.runs[-1]}/worker-0/work")) / "checkpoints"
    until(lambda: (saved / "checkpoint").is_file(), "the first checkpoint")
    (saved / DATA).write_bytes(bytes(SIZE))
    return project, runs.load(project.folder / "hosts.toml")


def test_collect_reports_the_progress_of_each_file(by_ssh):
    _, run = training(by_ssh)
    transfers = RecordingTransfers()
    with Fleet(run.inventory, version=run.agent, transfers=transfers) as fleet:
        collect(fleet, run)
    host, transfer, files = transfers.one(DATA)
    assert (host, transfer.there) == ("two", transfer.total)
    assert transfer.total > SIZE
    assert files[DATA] >= SIZE
    assert transfers.one("worker-0.log")[0] == "two"
    assert transfers.lines() == []  # no transfer is active any more


def test_fetch_reports_the_progress_of_each_file(by_ssh):
    _, run = training(by_ssh)
    transfers = RecordingTransfers()
    with Fleet(run.inventory, version=run.agent, transfers=transfers) as fleet:
        fetch(fleet, run, "worker:0", [f"checkpoints/{DATA}"])
    host, transfer, files = transfers.one(f"checkpoints/{DATA}")
    assert (host, transfer.there, [*files.values()][-1]) == ("two", SIZE, transfer.total)


def test_resume_reports_the_progress_of_a_checkpoint_to_another_host(by_ssh, tmp_path):
    three = {"spare": True, "directory": str(tmp_path), "ports": free_ports(4)}
    project, run = training(by_ssh, three=three)
    project.ok("collect")
    project.ok("stop")  # on one machine the tasks of two and three are indistinguishable
    transfers = RecordingTransfers()
    resume(run, Changes(["two"]), transfers=transfers)
    host, transfer, _ = transfers.one(DATA)
    assert (host, transfer.there) == ("to three", transfer.total)


def test_a_resilient_run_reports_the_progress_of_its_resume(by_ssh):
    """The chief's host has lost the checkpoint; only the controller has it."""
    project, run = training(by_ssh, "--gate")
    work = project.on("two") / "runs" / run.id / "worker-0/work"
    project.ok("collect")
    shutil.rmtree(work / "checkpoints")
    os.kill(project.supervisor("worker:0"), signal.SIGKILL)
    until(lambda: project.status()["worker:0"]["state"] == "LOST", "the loss of the chief")
    (work / "go").touch()
    transfers, resumed = RecordingTransfers(), []
    watcher = Watcher(on_resumed=resumed.append)
    with Fleet(run.inventory, version=run.agent, transfers=transfers) as fleet:
        _, ended = follow_resiliently(fleet, run, watcher)
    assert (ended.result, len(resumed)) == ("succeeded", 1)
    [sent] = [sent for host, sent, files in transfers.of if host == "to two" and DATA in files]
    assert sent.there == sent.total
    assert sent.total > SIZE


def test_a_push_reports_the_progress_of_each_host_up_to_the_total(world, tmp_path):
    """With a large file, many small files, and a data set."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "large").write_bytes(bytes(SIZE))
    for number in range(50):
        (data / f"small-{number}").write_text("x" * number)
    project = world.project(top={"data": {"data": {"path": str(data)}}})
    intent = plan_all(inventory.load(project.folder / "hosts.toml"))
    transfers = RecordingTransfers()
    with Fleet(intent.inventory, transfers=transfers) as fleet:
        push(fleet, intent)
    assert {host for host, *_ in transfers.of} == {f"to {host}" for host in project.hosts}
    assert all(sent.there == sent.total for _, sent, _ in transfers.of)
    assert max(sent.moved for _, sent, _ in transfers.of) > SIZE


def test_without_a_terminal_a_slow_collect_prints_progress_lines(by_ssh, monkeypatch, tmp_path):
    """What ssh sends of large files is slowed down, so that it takes long enough."""
    project, _ = training(by_ssh)
    shim = tmp_path / "bin/ssh"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\ncase "$*" in *"read -r begin"*) {shutil.which("ssh")} "$@" | {SLOWLY};; '
        f'*) exec {shutil.which("ssh")} "$@";; esac\n'
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    done = project.tf("collect")
    assert done.returncode == 0
    assert re.search(rf"(?m)^two: [\d.]+ [kM]B of 8\.4 MB, [\d.]+ [kM]B/s, .*{DATA}$", done.stderr)
