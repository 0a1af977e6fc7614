"""Each new checkpoint comes home while the training goes on, and only good ones do."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tfdeploy import run as runs
from tfdeploy.errors import RunError, TransferFailed
from tfdeploy.fleet import Fleet
from tfdeploy.steps import collect as steps
from tfdeploy.steps.bring import BULK
from tfdeploy.steps.gather import KEPT, Gathering

from .sshd import free_ports, until

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

    from .projects import Project

ONCE = pytest.mark.parametrize("lasting", ["local"], indirect=True)


def one_worker(world: Any) -> dict[str, dict[str, Any]]:
    name, host = list(world.hosts().items())[-1]
    return {name: {**host, "ps": 0, "workers": 1, "ports": free_ports(2)}}


def training(world: Any, *flags: str) -> Project:
    """A chief that has saved its first checkpoint, and leaves the others to the test."""
    project = world.pushed("--steps=1", *flags, hosts=one_worker(world))
    project.ok("start")
    until(lambda: (saved_in(project) / "checkpoint").is_file(), "the first checkpoint")
    return project


def saved_in(project: Project) -> Path:
    return project.work("worker:0") / "checkpoints"


def save(project: Project, step: int) -> None:
    """As TensorFlow does with max_to_keep = 1: the state file moves on, then the old set goes."""
    folder = saved_in(project)
    name = f"model.ckpt-{step}"
    for suffix in ("data-00000-of-00001", "index", "meta"):
        (folder / f"{name}.{suffix}").write_text(f"{suffix} of step {step}\n")
    (folder / "fresh").write_text(f'model_checkpoint_path: "{folder / name}"\n')
    (folder / "fresh").replace(folder / "checkpoint")
    for old in folder.glob("model.ckpt-*"):
        if not old.name.startswith(f"{name}."):
            old.unlink()


def at_home(project: Project) -> set[str]:
    home = project.home / "checkpoints"
    return {file.name.removesuffix(".index") for file in home.glob("*.index")}


def test_each_new_checkpoint_comes_home_until_the_chief_ends(world):
    project = training(world, "--gate")
    with project.begun("collect", "--follow") as following:
        following.says("checkpoints/model.ckpt-1\n")
        for step in (2, 3):
            save(project, step)
            following.says(f"checkpoints/model.ckpt-{step}\n")
        text = (project.home / "checkpoints/model.ckpt-3.index").read_text()
        assert text == "index of step 3\n"
        assert not (project.home / "logs").exists()
        (project.work("worker:0") / "go").touch()
        assert following.process.wait(timeout=30) == 0
    assert re.search(r"1 event file and 1 log in .*\n$", following.said)
    assert (project.home / "logs/worker-0.log").is_file()
    assert at_home(project) == {f"model.ckpt-{step}" for step in (1, 2, 3)}


@ONCE
def test_ctrl_c_ends_the_following_and_no_task(world):
    project = training(world, "--hold")
    with project.begun("collect", "--follow") as following:
        following.says("checkpoints/model.ckpt-1\n")
        assert following.interrupted() == 130
    assert f"run {project.runs[-1]} goes on" in following.said
    assert project.status()["worker:0"]["state"] == "READY"


@ONCE
def test_a_long_training_does_not_fill_the_disk_at_home(world):
    project = training(world, "--hold")
    with project.begun("collect", "--follow") as following:
        for step in range(2, KEPT + 2):
            save(project, step)
            following.says(f"checkpoints/model.ckpt-{step}\n")
        newest = [f"model.ckpt-{step}" for step in range(2, KEPT + 2)]
        until(lambda: at_home(project) == set(newest), "the oldest is gone")
    state = (project.home / "checkpoints/checkpoint").read_text()
    assert re.findall('path: "(.*)"', state) == [newest[-1]]
    assert set(re.findall('paths: "(.*)"', state)) == set(newest)


@ONCE
def test_beside_a_gathering_there_may_be_another_collect(world):
    project = training(world, "--hold")
    with project.begun("collect", "--follow") as following:
        following.says("checkpoints/model.ckpt-1\n")
        assert "checkpoints/model.ckpt-1\n" in project.ok("collect")


@ONCE
def test_what_can_not_be_fetched_is_told_and_fetched_with_the_next(world):
    project = training(world, "--hold")
    known = runs.load(project.folder / "hosts.toml")
    came, failed = threading.Event(), threading.Event()
    (known.folder / "checkpoints").write_text("a file in the way")
    with (
        Fleet(known.inventory, version=known.agent) as fleet,
        Gathering(fleet, known, lambda _: came.set(), lambda _: failed.set()) as gathering,
    ):
        gathering.announced("model.ckpt-1")
        assert failed.wait(20)
        assert "can't be written here" in str(gathering.error)
        (known.folder / "checkpoints").unlink()
        gathering.announced("model.ckpt-1")
        assert came.wait(20)
        assert gathering.error is None
    assert gathering.last
    assert [found.name for found in gathering.last.checkpoints] == ["model.ckpt-1"]


@ONCE
def test_after_a_gathering_its_own_process_may_collect(world):
    project = training(world, "--hold")
    known = runs.load(project.folder / "hosts.toml")
    with Fleet(known.inventory, version=known.agent) as fleet:
        with Gathering(fleet, known) as gathering:
            gathering.announced("model.ckpt-1")
        assert steps.collect(fleet, known).logs == 1


@ONCE
def test_two_collects_of_one_run_at_once_are_refused(world):
    project = training(world, "--hold")
    known = runs.load(project.folder / "hosts.toml")
    with (
        steps._alone(known),
        Fleet(known.inventory) as fleet,
        pytest.raises(RunError, match=r"another collect of run .* is at work"),
    ):
        steps.collect_checkpoint(fleet, known)


# What a host may hold, by accident or by malice


def test_a_checkpoint_that_changed_at_home_is_fetched_again(world):
    project = training(world, "--hold")
    project.ok("collect")
    data = project.home / "checkpoints/model.ckpt-1.data-00000-of-00001"
    whole, seen = data.read_bytes(), data.stat()
    data.write_bytes(whole.swapcase())
    os.utime(data, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    project.ok("collect")
    assert data.read_bytes() == whole


@pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
def test_what_arrives_with_other_content_is_no_checkpoint_and_named(world):
    """rsync, which brings what is large, takes a file of the same size and time for the same."""
    project = training(world, "--hold")
    name = "model.ckpt-1.data-00000-of-00001"
    there, here = saved_in(project) / name, project.home / ".incoming" / name
    os.truncate(there, BULK + 1)
    here.parent.mkdir()
    here.write_bytes(there.read_bytes().swapcase())
    os.utime(here, ns=(there.stat().st_atime_ns, there.stat().st_mtime_ns))
    done = project.tf("collect")
    assert done.returncode == 1
    assert f"{name} arrived with other content than it has there" in done.stderr
    assert at_home(project) == set()
    project.ok("collect")
    assert (project.home / "checkpoints" / name).read_bytes() == there.read_bytes()


def test_a_log_that_was_rotated_comes_home_in_both_parts(world):
    project = training(world, "--hold")
    log = project.work("worker:0").parents[1] / "logs/worker-0.log"
    log.rename(f"{log}.1")
    log.write_text("and on\n")
    assert "and 1 log in" in project.ok("collect")
    logs = project.home / "logs"
    assert (logs / "worker-0.log").read_text() == "and on\n"
    assert "worker:0 step 1" in (logs / "worker-0.log.1").read_text()


def test_a_state_file_with_paths_elsewhere_brings_nothing_from_there(world, tmp_path):
    project = training(world, "--hold")
    for suffix in ("data-00000-of-00001", "index"):
        (tmp_path / f"m-9.{suffix}").write_text("secret")
    state = f'model_checkpoint_path: "{tmp_path}/m-9"\nall_model_checkpoint_paths: "../../m-8"\n'
    (saved_in(project) / "checkpoint").write_text(
        f'{state}all_model_checkpoint_paths: "/elsewhere/model.ckpt-1"\n'
    )
    project.ok("collect")
    assert at_home(project) == {"model.ckpt-1"}
    home_state = (project.home / "checkpoints/checkpoint").read_text()
    assert re.findall('"(.*)"', home_state) == ["model.ckpt-1"] * 2


@ONCE
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_shard_that_is_no_regular_file_makes_a_set_incomplete(world, kind, tmp_path):
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
    assert "holds no complete one" in project.ok("collect")
    assert at_home(project) == set()


@ONCE
def test_escapes_in_a_name_are_refused_and_reach_no_terminal(world):
    project = training(world, "--hold")
    for suffix in ("data-00000-of-00001", "index"):
        (saved_in(project) / f"\x1b[31mred-1.{suffix}").write_text("x")
    (saved_in(project) / "checkpoint").write_text('model_checkpoint_path: "\x1b[31mred-1"\n')
    done = project.tf("collect")
    assert done.returncode == 1
    assert r"it names a checkpoint file '\x1b[31mred-1', which is refused" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


@ONCE
def test_more_than_there_is_room_for_is_refused_before_it_comes(world):
    project = training(world, "--hold")
    known = runs.load(project.folder / "hosts.toml")
    room = os.statvfs(known.folder)
    with Fleet(known.inventory) as fleet:
        [agent] = fleet.agents.values()
        with pytest.raises(TransferFailed, match=r"takes [\d.]+ GB, [\d.]+ GB are free in"):
            steps.refuse_too_much(agent, known.folder, [room.f_frsize * room.f_blocks, 1])


@ONCE
def test_a_sparse_file_comes_home_with_the_content_that_it_has(world):
    project = training(world, "--hold")
    shard = saved_in(project) / "model.ckpt-1.data-00000-of-00001"
    os.truncate(shard, 3_000_000)
    project.ok("collect")
    assert (project.home / "checkpoints" / shard.name).read_bytes() == shard.read_bytes()
