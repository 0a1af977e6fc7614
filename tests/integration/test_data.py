"""Data sets come to the hosts of those who read them, once, and stay while a run uses them."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from tfdeploy import inventory
from tfdeploy.errors import TfdeployError
from tfdeploy.fleet import Fleet
from tfdeploy.steps.plan import plan_all
from tfdeploy.steps.push import BULK, push

from .sshd import until

if TYPE_CHECKING:
    from pathlib import Path

    from .projects import Project

PLACE = "data/set"
FILES = {"a": "one", "deep/b": "two", "large": "x" * (BULK + 1)}


@pytest.fixture(params=["mtime", "hash"])
def compare(request) -> str:
    return request.param


@pytest.fixture
def project(world, compare, request) -> Project:
    """A project with a data set that all but the ps need, below the source and ignored by git."""
    made = world.project("--hold", top={"data": {PLACE: {"compare": compare}}})
    (made.folder / ".gitignore").write_text("data/\n")
    for path, text in FILES.items():
        file = made.folder / PLACE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return made


def reader(project: Project) -> str:
    """The host of the workers."""
    return list(project.hosts)[-1]


def versions(project: Project) -> list[Path]:
    """The whole ones, on the host of the workers, the oldest first."""
    found = project.on(reader(project)).glob("releases/data-set-*")
    return sorted(found, key=lambda folder: folder.stat().st_ctime)


def texts(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def test_it_comes_once_to_those_who_read_it(project):
    said = project.ok("push")
    [there] = versions(project)
    assert f"pushed data {PLACE}, release {there.name} (8.4 MB) to {reader(project)}\n" in said
    assert texts(there) == FILES
    others = [host for host in project.hosts if host != reader(project)]
    assert [list(project.on(host).glob("releases/data-*")) for host in others] == [
        [] for _ in others
    ]
    inodes = [file.stat().st_ino for file in there.rglob("*")]
    assert (
        f"data {PLACE}, release {there.name} was there already: {reader(project)}\n"
        in project.ok("push")
    )
    assert [file.stat().st_ino for file in there.rglob("*")] == inodes


def test_of_the_next_version_only_what_has_changed_comes(project):
    project.ok("push")
    (project.folder / PLACE / "a").write_text("changed")
    (project.folder / PLACE / "deep/b").rename(project.folder / PLACE / "c")
    project.ok("push")
    first, second = versions(project)
    assert texts(second) == {"a": "changed", "c": "two", "large": FILES["large"]}
    assert texts(first) == FILES
    assert os.path.samefile(first / "large", second / "large")
    assert not os.path.samefile(first / "a", second / "a")


@pytest.mark.slow
def test_tasks_see_it_at_its_place_and_none_starts_without_it(project):
    project.ok("push")
    (project.folder / PLACE / "more").write_text("")
    refused = project.tf("start")
    assert refused.returncode == 1
    assert re.search(
        rf"data set {PLACE} \(.*\) is not on this host\n  tfdeploy push sends", refused.stderr
    )
    (project.folder / PLACE / "more").unlink()
    project.ok("start")
    assert texts((project.work("worker:1") / PLACE).resolve()) == FILES
    assert not (project.work("ps:0") / PLACE).exists()


@pytest.mark.slow
def test_a_run_goes_on_with_the_data_that_it_began_with(project):
    project.ok("push")
    project.ok("start")
    (project.folder / PLACE / "a").write_text("changed")
    project.ok("push")
    project.ok("stop")
    project.ok("resume")
    assert texts((project.work("worker:0") / PLACE).resolve()) == FILES
    assert json.loads(project.ok("prune", "--keep", "0", "--json"))["errors"] == []
    [kept] = versions(project)
    assert texts(kept) == FILES


@pytest.mark.parametrize("compare", ["mtime"], indirect=True)
def test_a_file_that_changes_while_it_is_pushed_is_refused_by_name(project):
    intent = plan_all(inventory.load(project.folder / "hosts.toml"))
    (project.folder / PLACE / "a").write_text("two")  # of the same size
    with Fleet(intent.inventory) as fleet, pytest.raises(TfdeployError) as refused:
        push(fleet, intent)
    assert "a changed while it was pushed" in str(refused.value)
    folder = project.on(reader(project)) / "releases"
    assert [entry.name for entry in folder.iterdir()] == [intent.release.id]


@pytest.mark.slow
@pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
@pytest.mark.parametrize("compare", ["mtime"], indirect=True)
def test_a_push_that_was_broken_goes_on_where_it_was(project):
    with (project.folder / PLACE / "larger").open("wb") as larger:
        larger.truncate(1 << 29)
    releases = project.on(reader(project)) / "releases"
    with project.begun("push") as command:
        until(lambda: arrived(releases, ".larger.*") > BULK, "some of it")
        os.killpg(command.process.pid, signal.SIGKILL)  # with its rsync and ssh
    until(lambda: arrived(releases, "larger") > BULK, "what has arrived to be put aside")
    assert arrived(releases, "larger") < 1 << 29
    [large] = releases.glob(".incoming-data-*/large")
    inode = large.stat().st_ino
    project.ok("push")
    [there] = versions(project)
    assert (there / "large").stat().st_ino == inode
    assert sorted(path.name for path in there.iterdir()) == ["a", "deep", "large", "larger"]
    assert (there / "larger").stat().st_size == 1 << 29


def arrived(releases: Path, pattern: str) -> int:
    """In bytes, of the files of this name that grow there."""
    return sum(file.stat().st_size for file in releases.glob(f".incoming-data-*/**/{pattern}"))
