"""Each new good checkpoint is fetched while the training goes on."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from support.ports import free_ports
from support.waiting import STILL_S, until

from tfdeploy import run as runs
from tfdeploy.commands import collect as steps
from tfdeploy.commands.running.background_collect import BackgroundCollector
from tfdeploy.errors import Cancelled, TransferFailed
from tfdeploy.hosts.agent_session import BULK
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.results import fetch
from tfdeploy.results.run_folder import WAITS
from tfdeploy.shared import parallel

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

    from support.projects import Project

LOCAL_ONLY = pytest.mark.parametrize("lasting", ["local"], indirect=True)


def one_worker(world: Any) -> dict[str, dict[str, Any]]:
    name, host = list(world.hosts().items())[-1]
    return {name: {**host, "ps": 0, "workers": 1, "ports": free_ports(2)}}


def training(world: Any, *flags: str, **more: Any) -> Project:
    """Start a chief that has saved its first checkpoint; the test saves the others."""
    project = world.pushed("--steps=1", *flags, hosts=one_worker(world), **more)
    project.ok("start")
    until(lambda: (saved_in(project) / "checkpoint").is_file(), "the first checkpoint")
    return project


def saved_in(project: Project) -> Path:
    return project.work("worker:0") / "checkpoints"


def save(project: Project, step: int) -> None:
    """Save as TensorFlow does with max_to_keep = 1: first the state file changes, then the old
    checkpoint is deleted."""
    folder = saved_in(project)
    name = f"model.ckpt-{step}"
    for suffix in ("data-00000-of-00001", "index", "meta"):
        (folder / f"{name}.{suffix}").write_text(f"{suffix} of step {step}\n")
    (folder / "fresh").write_text(f'model_checkpoint_path: "{folder / name}"\n')
    (folder / "fresh").replace(folder / "checkpoint")
    for old in folder.glob("model.ckpt-*"):
        if not old.name.startswith(f"{name}."):
            old.unlink()


def checkpoints_on_controller(project: Project) -> set[str]:
    folder = project.run_folder / "checkpoints"
    return {file.name.removesuffix(".index") for file in folder.glob("*.index")}


def state(project: Project) -> str:
    return (project.run_folder / "checkpoints/checkpoint").read_text()


def test_each_new_checkpoint_is_fetched_until_the_chief_ends(world):
    project = training(world, "--gate")
    with project.start_command("attach", "--quiet") as following:
        following.wait_for_output("checkpoints/model.ckpt-1\n")
        for step in (2, 3):
            save(project, step)
            following.wait_for_output(f"checkpoints/model.ckpt-{step}\n")
        text = (project.run_folder / "checkpoints/model.ckpt-3.index").read_text()
        assert text == "index of step 3\n"
        assert not (project.run_folder / "logs").exists()
        (project.work("worker:0") / "go").touch()
        assert following.process.wait() == 0
    assert re.search(r"1 event file and 1 log in .*\nrun .* succeeded\n$", following.output)
    assert (project.run_folder / "logs/worker-0.log").is_file()
    assert checkpoints_on_controller(project) == {f"model.ckpt-{step}" for step in (1, 2, 3)}


@LOCAL_ONLY
def test_only_the_newest_five_checkpoints_stay_on_the_controller(world):
    project = training(world, "--hold")
    with project.start_command("attach", "--quiet") as following:
        for step in range(2, 7):
            save(project, step)
            following.wait_for_output(f"checkpoints/model.ckpt-{step}\n")
        newest = {f"model.ckpt-{step}" for step in range(2, 7)}
        until(lambda: checkpoints_on_controller(project) == newest, "the oldest is gone")
        # The state file is written after the oldest checkpoint was deleted.
        until(lambda: set(re.findall('paths: "(.*)"', state(project))) == newest, "its new state")
    assert re.findall('path: "(.*)"', state(project)) == ["model.ckpt-6"]


@LOCAL_ONLY
def test_another_collect_may_run_beside_attach(world):
    project = training(world, "--hold")
    with project.start_command("attach", "--quiet") as following:
        following.wait_for_output("checkpoints/model.ckpt-1\n")
        assert "checkpoints/model.ckpt-1\n" in project.ok("collect")


@LOCAL_ONLY
def test_a_failed_fetch_is_reported_and_retried_at_the_next_announcement(world):
    project = training(world, "--hold")
    run = runs.load(project.folder / "hosts.toml")
    collected, failed = queue.Queue(), queue.Queue()
    (run.folder / "checkpoints").write_text("a file in the way")
    with (
        Fleet(run.inventory, version=run.agent) as fleet,
        BackgroundCollector(fleet, run, collected.put, failed.put) as collector,
    ):
        collector.announce_checkpoint()
        assert "can't write" in str(failed.get(timeout=STILL_S))
        (run.folder / "checkpoints").unlink()
        collector.announce_checkpoint()
        result = collected.get(timeout=STILL_S)
    assert [found.name for found in result.checkpoints] == ["model.ckpt-1"]
    assert failed.empty()


@LOCAL_ONLY
def test_the_same_process_may_collect_after_a_background_collector(world):
    project = training(world, "--hold")
    run = runs.load(project.folder / "hosts.toml")
    with Fleet(run.inventory, version=run.agent) as fleet:
        with BackgroundCollector(fleet, run, ignore, ignore) as collector:
            collector.announce_checkpoint()
        assert steps.collect(fleet, run).logs == 1


def ignore(_):
    """Take what is reported."""


@contextmanager
def another_process_collects(folder, lock):
    """Hold a lock that a collect holds, from another process."""
    lock = ["flock", folder / lock, "sh", "-c", "echo locked; cat"]
    with subprocess.Popen(lock, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"locked\n"
        yield
        holder.stdin.close()


@LOCAL_ONLY
@pytest.mark.parametrize("lock", [".collecting", ".collecting-events"])
def test_a_second_collect_says_that_it_waits_until_the_first_has_finished(world, lock):
    project = training(world, "--hold")
    run = runs.load(project.folder / "hosts.toml")
    with Fleet(run.inventory) as fleet:
        with another_process_collects(project.run_folder, lock):
            second = parallel.begin(lambda: steps.collect(fleet, run))
            until(lambda: f"controller: {WAITS}" in fleet.transfers.lines(), "what it waits for")
            assert not (project.run_folder / "checkpoints").exists()
        assert [fetched.name for fetched in second().checkpoints] == ["model.ckpt-1"]
        assert not fleet.transfers.lines()


@LOCAL_ONLY
def test_a_collect_that_waits_for_another_one_can_be_cancelled(world):
    project = training(world, "--hold")
    run, cancel = runs.load(project.folder / "hosts.toml"), threading.Event()
    with (
        another_process_collects(project.run_folder, ".collecting"),
        Fleet(run.inventory, cancel=cancel) as fleet,
    ):
        second = parallel.begin(lambda: steps.collect(fleet, run))
        until(fleet.transfers.lines, "that it waits")
        cancel.set()
        with pytest.raises(Cancelled):
            second()


# What a host may have, by accident or by malice


def test_a_checkpoint_that_changed_on_the_controller_is_fetched_again(world):
    project = training(world, "--hold")
    project.ok("collect")
    data = project.run_folder / "checkpoints/model.ckpt-1.data-00000-of-00001"
    content, before = data.read_bytes(), data.stat()
    data.write_bytes(content.swapcase())
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    project.ok("collect")
    assert data.read_bytes() == content


@pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
@pytest.mark.parametrize("size", [BULK + 1, BULK // 2], ids=["whole", "a part"])
def test_what_is_left_of_other_content_is_fetched_again(world, size):
    project = training(world, "--hold")
    name = "model.ckpt-1.data-00000-of-00001"
    on_host, on_controller = saved_in(project) / name, project.run_folder / ".incoming" / name
    os.truncate(on_host, BULK + 1)
    on_controller.parent.mkdir()
    on_controller.write_bytes(on_host.read_bytes()[:size].swapcase())
    os.utime(on_controller, ns=(on_host.stat().st_atime_ns, on_host.stat().st_mtime_ns))
    project.ok("collect")
    assert (project.run_folder / "checkpoints" / name).read_bytes() == on_host.read_bytes()


def test_both_parts_of_a_rotated_log_are_fetched(world):
    project = training(world, "--hold")
    log = project.work("worker:0").parents[1] / "logs/worker-0.log"
    until(lambda: "worker:0 step 1\n" in log.read_text(), "the last line of the task itself")
    log.rename(f"{log}.1")
    log.write_text("and on\n")
    assert "and 1 log in" in project.ok("collect")
    logs = project.run_folder / "logs"
    assert (logs / "worker-0.log").read_text() == "and on\n"
    assert "worker:0 step 1" in (logs / "worker-0.log.1").read_text()


def test_paths_outside_of_the_checkpoint_folder_in_a_state_file_are_ignored(world, tmp_path):
    project = training(world, "--hold")
    for suffix in ("data-00000-of-00001", "index"):
        (tmp_path / f"m-9.{suffix}").write_text("secret")
    state = f'model_checkpoint_path: "{tmp_path}/m-9"\nall_model_checkpoint_paths: "../../m-8"\n'
    (saved_in(project) / "checkpoint").write_text(
        f'{state}all_model_checkpoint_paths: "/elsewhere/model.ckpt-1"\n'
    )
    project.ok("collect")
    assert checkpoints_on_controller(project) == {"model.ckpt-1"}
    home_state = (project.run_folder / "checkpoints/checkpoint").read_text()
    assert re.findall('"(.*)"', home_state) == ["model.ckpt-1"] * 2


@LOCAL_ONLY
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_shard_that_is_no_regular_file_makes_a_checkpoint_incomplete(world, kind, tmp_path):
    project = training(world, "--hold")
    shard = saved_in(project) / "model.ckpt-1.data-00000-of-00001"
    shard.unlink()
    if kind == "link":
        (tmp_path / "secret").write_text("secret")
        shard.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(shard)
    else:
        shard.mkdir()
    assert "has no complete one" in project.ok("collect")
    assert checkpoints_on_controller(project) == set()


@LOCAL_ONLY
def test_escape_sequences_in_a_name_are_fetched_and_printed_escaped(world):
    project = training(world, "--hold")
    for suffix in ("data-00000-of-00001", "index"):
        (saved_in(project) / f"\x1b[31mred-1.{suffix}").write_text("x")
    (saved_in(project) / "checkpoint").write_text('model_checkpoint_path: "\x1b[31mred-1"\n')
    done = project.tf("collect")
    assert done.returncode == 0, done.stderr
    assert r"\x1b[31mred-1" in done.stdout
    assert "\x1b" not in done.stderr + done.stdout
    [run] = (project.folder / "runs").glob("2*")
    assert (run / "checkpoints/\x1b[31mred-1.index").read_text() == "x"


@LOCAL_ONLY
def test_files_that_do_not_fit_on_the_disk_are_refused_before_they_are_fetched(world):
    project = training(world, "--hold")
    run = runs.load(project.folder / "hosts.toml")
    room = os.statvfs(run.folder)
    with Fleet(run.inventory) as fleet:
        [agent] = fleet.agents.values()
        message = r"[\d.]+ .B of its files do not fit .* has [\d.]+ .B free of "
        with pytest.raises(TransferFailed, match=message):
            fetch.check_free_space(agent, run.open(), {"a": room.f_frsize * room.f_blocks})


@LOCAL_ONLY
def test_a_sparse_file_is_fetched_with_its_content(world):
    project = training(world, "--hold")
    shard = saved_in(project) / "model.ckpt-1.data-00000-of-00001"
    os.truncate(shard, 3_000_000)
    project.ok("collect")
    assert (project.run_folder / "checkpoints" / shard.name).read_bytes() == shard.read_bytes()
