"""`runs` and `prune` through the real command line: what is shown is what the disks hold."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tfdeploy import inventory
from tfdeploy.fleet import Fleet
from tfdeploy.steps.prune import Going, prune
from tfdeploy.steps.runs import runs

from .projects import Project
from .sshd import until

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

# What happens on a host is the same whichever way one came there: asked once, on the quicker way.
ONCE = pytest.mark.parametrize("lasting", ["local"], indirect=True)


OLDER = "20200101-000000-abcd"


@pytest.fixture(scope="module")
def lived(lasting) -> Project:
    """A run that has ended, and one of another release that goes on: no test removes that one."""
    made = lasting.project("--gate")
    (made.folder / "data").write_text("of the first release")
    made.ok("push")
    made.ok("start")
    for task in ("worker:0", "worker:1"):
        (made.work(task) / "go").touch()
    ends = ["STOPPED", "SUCCEEDED", "SUCCEEDED"]
    until(lambda: [task["state"] for task in made.status().values()] == ends, "the end")
    (made.home / "checkpoints").mkdir()
    (made.home / "checkpoints/checkpoint").touch()  # as a collect leaves it
    for host in made.hosts:
        shutil.copytree(made.on(host), kept(made, host), symlinks=True)
    made.flags = ["--hold"]
    made.write()
    (made.folder / "data").write_text("of the second release")
    made.ok("push")
    made.ok("start")
    return made


@pytest.fixture
def project(lived) -> Project:
    """The ended run lies on the hosts twice, the second time under an older name, with its release:
    whatever an earlier test has removed is there again."""
    (ended, _) = lived.runs
    for host in lived.hosts:
        (release,) = (kept(lived, host) / "releases").iterdir()
        again(release, lived.on(host) / "releases" / release.name)
        for name in (ended, OLDER):
            again(kept(lived, host) / "runs" / ended, lived.on(host) / "runs" / name)
    return lived


def kept(project: Project, host: str) -> Path:
    return project.folder.parent / "kept" / host


def again(source: Path, target: Path) -> None:
    if not target.exists():
        shutil.copytree(source, target, symlinks=True)


def elsewhere(project: Project, folder: Path, **more: dict[str, Any]) -> Project:
    """The same project as another folder has it, with `more` hosts."""
    return Project(folder, {**project.hosts, **more}, project.top, name=project.name)


def listed(project: Project, host: str) -> list[str]:
    """The runs that lie on a host."""
    return sorted(path.name for path in (project.on(host) / "runs").glob("*"))


def document(project: Project, *words: str) -> dict[str, Any]:
    return json.loads(project.ok(*words, "--json"))


def files(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_runs_are_shown_with_their_results_and_what_they_take_on_every_host(project):
    seen = document(project, "runs")
    ended, live = project.runs
    assert [(run["id"], run["result"]) for run in seen["runs"]] == [
        (live, "going"), (ended, "succeeded"), (OLDER, "succeeded"),
    ]  # fmt: skip
    assert [(run["recorded"], run["collected"]) for run in seen["runs"]] == [
        (True, False), (True, True), (False, False),
    ]  # fmt: skip
    assert all(run["hosts"] == list(project.hosts) for run in seen["runs"])
    assert [run["tasks"]["worker:0"] for run in seen["runs"]] == ["READY", *["SUCCEEDED"] * 2]
    assert list(seen["hosts"]) == list(project.hosts)
    for room in seen["hosts"].values():
        assert len(room["releases"]) == 2
        assert 0 < room["used_bytes"] < room["total_bytes"]


def test_people_see_a_line_a_run_and_a_line_a_host(project):
    text = project.ok("runs")
    cells = rf"[\w ]+ ago +3 +{', '.join(project.hosts)} +[\d.]+ kB"
    ended, live = project.runs
    assert re.search(rf"(?m)^{live} +going +{cells} +record *$", text)
    assert re.search(rf"(?m)^{ended} +succeeded +{cells} +checkpoints *$", text)
    assert re.search(rf"(?m)^{OLDER} +succeeded +{cells} +- *$", text)
    for host in project.hosts:
        assert re.search(rf"(?m)^{host} +[\d.]+ kB +2, [\d.]+ kB +[\d.]+ GB of [\d.]+ GB *$", text)


def test_a_dry_run_shows_what_prune_then_removes_and_touches_nothing(project):
    ended, live = project.runs
    before = {host: files(project.on(host) / "runs" / OLDER) for host in project.hosts}
    said = project.ok("prune", "--keep", "1", "--dry-run")
    assert "nothing was touched" in said
    assert (OLDER in said, ended in said, live in said) == (True, True, False)
    asked = document(project, "prune", "--keep", "1", "--dry-run")["hosts"]
    assert {h: files(project.on(h) / "runs" / OLDER) for h in project.hosts} == before
    done = document(project, "prune", "--keep", "1")["hosts"]
    for host in project.hosts:
        assert asked[host]["runs"] == done[host]["runs"] == [OLDER, ended]
        assert asked[host]["freed_bytes"] is None
        assert asked[host]["bytes"] == done[host]["freed_bytes"] > 0
        assert listed(project, host) == [live]


def test_prune_leaves_what_is_live_and_what_is_at_home(project):
    home = files(project.folder)
    assert "results at home were not touched" in project.ok("prune", "--keep", "0")
    assert files(project.folder) == home
    assert all(listed(project, host) == project.runs[-1:] for host in project.hosts)
    assert all(len(project.releases(host)) == 1 for host in project.hosts)
    assert [task["state"] for task in project.status().values()] == ["READY"] * 3
    assert (project.work("worker:0") / "data").read_text() == "of the second release"
    assert project.ok("prune", "--keep", "0") == "nothing to remove\n"


@ONCE
def test_a_run_that_lives_when_it_is_to_go_stays_and_is_named(project):
    asked = inventory.load(project.folder / "hosts.toml")
    with Fleet(asked) as fleet:
        disk = runs(fleet, asked).disks["here"]
        done = prune(fleet, project.name, {"here": Going(disk.runs, disk.releases, 0)})
    live = project.runs[-1]
    told = [str(error) for error in done.errors]
    assert re.fullmatch(rf"here: {live} stays there: its \w+:\d is live", told[0])
    assert re.fullmatch(rf"here: \w+ stays there: run {live} uses it", told[1])
    assert listed(project, "here") == [live]
    assert len(project.releases("here")) == 1


@pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
def test_a_host_that_does_not_answer_is_named_and_the_others_are_seen_and_pruned(project, tmp_path):
    gone = {**project.hosts["two"], "hostname": "127.0.0.1", "port": 1}
    other = elsewhere(project, tmp_path / "p", gone=gone)
    seen = other.tf("runs")
    assert seen.returncode == 1
    assert seen.stdout.count("\n20") == seen.stdout.count("one, two") == 3
    assert seen.stderr.startswith("error: gone: ")
    done = other.tf("prune", "--keep=0", "--json")
    assert done.returncode == 1
    assert [error.partition(":")[0] for error in json.loads(done.stdout)["errors"]] == ["gone"]
    assert listed(project, "one") == listed(project, "two") == project.runs[-1:]


@ONCE
def test_runs_that_were_started_from_elsewhere_are_seen_too(project, tmp_path):
    seen = document(elsewhere(project, tmp_path / "p"), "runs")["runs"]
    assert [run["id"] for run in seen] == [*reversed(project.runs), OLDER]
    assert not any(run["recorded"] or run["collected"] for run in seen)


@ONCE
def test_before_anything_was_pushed_there_is_nothing_to_show_and_nothing_to_remove(world):
    project = world.project()
    assert project.ok("runs").startswith(f"no run of {project.name} is on its hosts\n")
    assert project.ok("prune") == "nothing to remove\n"


@pytest.mark.parametrize("command", ["runs", "prune"])
def test_a_missing_hosts_file_exits_with_2(tmp_path, command):
    project = Project(tmp_path, {"here": {"transport": "local", "workers": 1}})
    done = project.tf(command, "--hosts", "other.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "other.toml: there is no such file" in done.stderr
