"""Runs and releases go whole; what is live, in use or elsewhere stays, and stops nothing else."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tfdeploy.agent import disk, lock, paths, process
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.remove import remove, weigh
from unit.made import as_nobody, python
from unit.test_disk import released, started

SLEEP = "import time; print(flush=True); time.sleep(60)"


@pytest.fixture
def open_root(monkeypatch):
    """A root that nobody can reach too: pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setattr(sys, "argv", [f"{name}/agent/abc.pyz"])
        yield Path(name)
        for folder, _, _ in os.walk(name):
            os.chmod(folder, 0o755)


def why(answer):
    return {kept["name"]: kept["why"] for kept in answer["kept"]}


def listed(project="p"):
    folders = (disk.runs_dir(project), paths.releases(project))
    return [name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]


# What goes


def test_a_run_goes_whole_and_what_that_freed_is_told(root):
    folder = Path(started("r", "ps:0", "worker:0"))
    (folder / "worker-0/work/model").write_bytes(b"x" * 100_000)
    taken = disk.usage(os.fspath(folder))
    assert remove("p", ["r"], []) == {"removed_bytes": taken, "kept": []}
    assert listed() == []


def test_a_sealed_release_goes(open_root):
    folder = released("f00d")
    (folder.parent / "f00d").chmod(0o755)
    (folder / "lib").mkdir()
    (folder / "lib/a.py").write_text("a")
    for each in (folder / "lib", folder):
        each.chmod(0o555)
    with as_nobody(open_root):
        assert remove("p", [], ["f00d"])["kept"] == []
    assert listed() == []


def test_folders_that_a_task_has_closed_go_too(open_root):
    closed = Path(started("r", "ps:0")) / "ps-0/work/closed"
    (closed / "inner").mkdir(parents=True)
    for each in (closed / "inner", closed):
        each.chmod(0)
    with as_nobody(open_root):
        assert remove("p", ["r"], [])["kept"] == []
    assert listed() == []


def test_what_is_known_of_a_release_goes_with_it(root):
    for name in ("gone", "kept"):
        released(name)
        Path(paths.manifests("p")).mkdir(exist_ok=True)
        Path(paths.manifest("p", name)).write_text("{}")
    remove("p", [], ["gone"])
    assert os.listdir(paths.manifests("p")) == ["kept.json"]


def test_others_stay(root):
    for name in ("one", "two"):
        started(name, "ps:0", release=name)
        released(name)
    assert remove("p", ["one"], ["one"])["kept"] == []
    assert listed() == ["two", "two"]


def test_the_release_of_a_run_that_goes_may_go_with_it(root):
    started("r", "ps:0", release="f00d")
    released("f00d")
    assert remove("p", ["r"], ["f00d"])["kept"] == []


def test_what_is_gone_already_is_no_complaint(root):
    assert remove("p", ["r"], ["f00d"]) == {"removed_bytes": 0, "kept": []}


def test_a_file_that_has_another_name_elsewhere_frees_nothing(root, tmp_path):
    model = Path(started("r", "ps:0")) / "ps-0/work/model"
    model.write_bytes(b"x" * 100_000)
    os.link(model, tmp_path / "kept")
    assert remove("p", ["r"], [])["removed_bytes"] < 100_000
    assert (tmp_path / "kept").stat().st_size == 100_000


@pytest.mark.parametrize("going", [["one"], ["one", "two"], ["one", "two", "three"]])
def test_as_much_is_freed_as_was_said_before(root, tmp_path, going):
    Path(started("r", "ps:0"), "ps-0", "work", "model").write_bytes(b"x" * 5_000)
    releases = [released(name) for name in ("one", "two", "three")]
    (releases[0] / "shared").write_bytes(b"x" * 100_000)
    for other in releases[1:]:
        os.link(releases[0] / "shared", other / "shared")
    said = weigh("p", ["r"], going)["bytes"]
    assert said == remove("p", ["r"], going)["removed_bytes"]
    assert (said > 100_000) == (len(going) == len(releases))


def test_what_broken_removals_and_pushes_left_goes(root, monkeypatch):
    rest = Path(disk.runs_dir("p"), disk.REMOVING + "r-1a2b")
    rest.mkdir(parents=True)
    Path(paths.incoming("p", "f00d")).mkdir(parents=True)
    remove("p", [], [])
    assert listed() == [".incoming-f00d"]
    monkeypatch.setattr(disk, "FORGOTTEN_S", -1.0)
    remove("p", [], [])
    assert listed() == []


# What stays


def test_a_live_run_stays_and_its_release_with_it(root):
    folder = started("r", "ps:0", "worker:0", release="f00d")
    released("f00d")
    held = lock.take(os.path.join(folder, "worker-0"))
    try:
        answer = remove("p", ["r"], ["f00d"])
    finally:
        os.close(held)
    assert why(answer) == {"r": "its worker:0 is live", "f00d": "run r uses it"}
    assert listed() == ["r", "f00d"]


def test_a_run_that_is_just_being_started_stays(root):
    started("r", "ps:0", state=None, age_s=0)
    assert why(remove("p", ["r"], [])) == {"r": "its ps:0 is live"}


def test_a_run_whose_lost_task_left_processes_stays_until_they_are_stopped(root):
    started("r", "ps:0", state="READY")
    own = {**os.environ, process.MARK: process.mark("p", "r", "ps:0")}
    left = python(SLEEP, env=own)
    try:
        said = "processes of its ps:0 live on: tfdeploy stop ends them"
        assert why(remove("p", ["r"], [])) == {"r": said}
    finally:
        left.kill()
        left.wait()
        left.stdout.close()
    assert remove("p", ["r"], [])["kept"] == []


def test_the_data_of_a_run_stays_with_it(root):
    started("r", "ps:0")
    started("r", "worker:0", data={"a": "a-1"})
    for name in ("a-1", "a-2"):
        released(name)
    assert why(remove("p", [], ["a-1", "a-2"])) == {"a-1": "run r uses it"}
    assert listed() == ["r", "a-1"]


def test_a_release_stays_while_it_is_not_known_what_a_run_uses(root):
    folder = started("r", "ps:0", release="f00d")
    released("beef")
    Path(folder, "ps-0", "launch.json").write_text("{")
    said = "run r may use it: its launch.json can't be read"
    assert why(remove("p", [], ["beef"])) == {"beef": said}


@pytest.mark.parametrize("name", ["", ".", "..", "../q", "a/b", "/etc", ".incoming-f00d", "a\0b"])
@pytest.mark.parametrize("place", ["project", "runs", "releases"])
def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_touched(root, place, name):
    started("r", "ps:0")
    asked = {"project": "p", "runs": ["r"], "releases": []}
    asked[place] = name if place == "project" else ["r", name]
    with pytest.raises(Refusal, match="is not the name of a run or a release"):
        remove(**asked)
    with pytest.raises(Refusal, match="is not the name of a run or a release"):
        weigh(**asked)
    assert listed() == ["r"]


def test_a_link_in_place_of_a_run_or_release_is_not_followed(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("mine")
    for folder in (disk.runs_dir("p"), paths.releases("p")):
        os.makedirs(folder)
        Path(folder, "link").symlink_to(tmp_path / "elsewhere")
    assert [kept["name"] for kept in remove("p", ["link"], ["link"])["kept"]] == ["link", "link"]
    assert (tmp_path / "elsewhere/file").read_text() == "mine"


def test_links_inside_of_a_run_go_and_what_they_lead_to_stays(root, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o500)
    folder = Path(started("r", "ps:0"))
    (folder / "ps-0/work/data").symlink_to(tmp_path / "elsewhere")
    assert remove("p", ["r"], [])["kept"] == []
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o500


def test_what_may_not_be_renamed_stays_whole_and_named(open_root):
    started("r", "ps:0")
    released("beef")
    os.chmod(disk.runs_dir("p"), 0o555)
    with as_nobody(open_root):
        answer = remove("p", ["r"], ["beef"])
    assert why(answer) == {"r": "Permission denied"}
    assert listed() == ["r"]


def bottomless(folder):
    """A tree deeper than any path may be long: nobody can delete it by its name."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=place)
        inner = os.open("x" * 250, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)


def test_what_can_not_be_deleted_is_named_stops_nothing_else_and_shows_as_no_run(root):
    work = os.path.join(started("r", "ps:0"), "ps-0", "work")
    Path(work, "file").write_text("")
    bottomless(work)
    started("other", "ps:0")
    answer = remove("p", ["r", "other"], [])
    assert why(answer) == {"r": "not all of it can be deleted yet: Directory not empty"}
    (rest,) = listed()
    assert rest.startswith(".removing-r-")
    assert disk.disk("p")["runs"] == []
    assert disk.disk("p")["left_bytes"] > 0
    assert os.listdir(os.path.join(disk.runs_dir("p"), rest, "ps-0", "work")) == ["x" * 250]
    shutil.rmtree(os.path.join(disk.runs_dir("p"), rest))
