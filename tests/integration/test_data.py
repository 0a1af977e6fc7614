"""Data sets are sent once to the hosts whose tasks read them, and stay while a run uses them."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from support.waiting import until

from tfdeploy.commands.plan import plan_all
from tfdeploy.commands.push import push
from tfdeploy.config import inventory
from tfdeploy.errors import TfdeployError
from tfdeploy.hosts.agent_session import BULK
from tfdeploy.hosts.fleet import Fleet

if TYPE_CHECKING:
    from pathlib import Path

    from support.projects import Project

pytestmark = pytest.mark.slow

PLACE = "data/set"
FILES = {"a": "one", "deep/b": "two", "large": "x" * (BULK + 1)}
BY_TIME = pytest.mark.parametrize("compare", ["mtime"], indirect=True)


@pytest.fixture(params=["mtime", "hash"])
def compare(request) -> str:
    return request.param


@pytest.fixture
def project(world, compare, request) -> Project:
    """A project with a data set for all tasks except the ps, in the source and ignored by git."""
    project = world.project("--hold", top={"data": {PLACE: {"compare": compare}}})
    (project.folder / ".gitignore").write_text("data/\n")
    for path, text in FILES.items():
        file = project.folder / PLACE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return project


def reader(project: Project) -> str:
    """Return the host of the workers."""
    return list(project.hosts)[-1]


def versions(project: Project) -> list[Path]:
    """Return the complete versions on the host of the workers, oldest first."""
    found = project.on(reader(project)).glob("releases/data-set-*")
    return sorted(found, key=lambda folder: folder.stat().st_ctime)


def texts(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def test_a_data_set_is_sent_once_to_the_hosts_that_read_it(project):
    output = project.ok("push")
    [version] = versions(project)
    assert f"pushed data {PLACE}, release {version.name} (8.4 MB) to {reader(project)}\n" in output
    assert texts(version) == FILES
    others = [host for host in project.hosts if host != reader(project)]
    assert [list(project.on(host).glob("releases/data-*")) for host in others] == [
        [] for _ in others
    ]
    inodes = [file.stat().st_ino for file in version.rglob("*")]
    assert f"data {PLACE}, release {version.name} is already on {reader(project)}\n" in project.ok(
        "push"
    )
    assert [file.stat().st_ino for file in version.rglob("*")] == inodes


def test_of_the_next_version_only_the_changed_files_are_sent(project):
    project.ok("push")
    (project.folder / PLACE / "a").write_text("changed")
    (project.folder / PLACE / "deep/b").rename(project.folder / PLACE / "c")
    project.ok("push")
    first, second = versions(project)
    assert texts(second) == {"a": "changed", "c": "two", "large": FILES["large"]}
    assert texts(first) == FILES
    assert os.path.samefile(first / "large", second / "large")
    assert not os.path.samefile(first / "a", second / "a")


@BY_TIME  # a task gets the version that its launch names, however it was named
def test_tasks_see_a_data_set_at_its_place_and_do_not_start_without_it(project):
    project.ok("push")
    (project.folder / PLACE / "more").write_text("")
    refused = project.tf("start")
    assert refused.returncode == 1
    assert re.search(
        rf"data set {PLACE} \(.*\) is not on this host\n  send it with tfdeploy push",
        refused.stderr,
    )
    (project.folder / PLACE / "more").unlink()
    project.ok("start")
    assert texts((project.work("worker:1") / PLACE).resolve()) == FILES
    assert not (project.work("ps:0") / PLACE).exists()


@BY_TIME
def test_a_run_continues_with_the_data_that_it_started_with(project):
    project.ok("push")
    project.ok("start")
    (project.folder / PLACE / "a").write_text("changed")
    project.ok("push")
    project.ok("stop")
    project.ok("resume")
    assert texts((project.work("worker:0") / PLACE).resolve()) == FILES
    assert json.loads(project.ok("prune", "--keep", "0", "--json"))["errors"] == []
    [version] = versions(project)
    assert texts(version) == FILES


@BY_TIME
def test_push_refuses_a_data_file_that_changes_during_the_push_and_names_it(project):
    intent = plan_all(inventory.load(project.folder / "hosts.toml"))
    (project.folder / PLACE / "a").write_text("two")  # of the same size
    with Fleet(intent.inventory) as fleet, pytest.raises(TfdeployError) as refused:
        push(fleet, intent)
    assert "a changed during the push" in str(refused.value)
    folder = project.on(reader(project)) / "releases"
    assert [entry.name for entry in folder.iterdir()] == [intent.release.id]


@pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
@BY_TIME
def test_push_continues_an_interrupted_push(project):
    with (project.folder / PLACE / "larger").open("wb") as larger:
        larger.truncate(1 << 29)
    releases = project.on(reader(project)) / "releases"
    with project.start_command("push") as command:
        until(lambda: arrived(releases, ".larger.*") > BULK, "some of it")
        os.killpg(command.process.pid, signal.SIGKILL)  # with its rsync and ssh
    until(lambda: arrived(releases, "larger") > BULK, "what has arrived to be put aside")
    assert arrived(releases, "larger") < 1 << 29
    [large] = releases.glob(".incoming-data-*/large")
    inode = large.stat().st_ino
    project.ok("push")
    [version] = versions(project)
    assert (version / "large").stat().st_ino == inode
    assert sorted(path.name for path in version.iterdir()) == ["a", "deep", "large", "larger"]
    assert (version / "larger").stat().st_size == 1 << 29


def arrived(releases: Path, pattern: str) -> int:
    """Return the bytes of the files of this name that have arrived."""
    return sum(file.stat().st_size for file in releases.glob(f".incoming-data-*/**/{pattern}"))


def test_a_task_reads_its_data_at_the_path_of_the_field(world):
    shell = ["sh", "-c", 'cd / && cat "$0/a" "$DATA/deep/b"', f"{{data:{PLACE}}}"]
    training = {"command": shell, "role": "tf_config", "role_env": {"DATA": f"{{data:{PLACE}}}"}}
    own = {**list(world.hosts().values())[-1], "ps": 0, "workers": 1}
    project = world.project(
        hosts={"two" if world.ssh_config else "here": own},
        training=training,
        top={"data": {PLACE: {}}},
    )
    for path, text in FILES.items():
        file = project.folder / PLACE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert "worker:0@" in (output := project.ok("run"))
    assert "| onetwo\n" in output
