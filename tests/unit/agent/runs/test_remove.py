"""Runs and releases are removed completely, except those that are live, in use or elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support.builders import as_unprivileged_user
from support.host_runs import create_release, create_run
from support.refusals import reasons
from support.releases import write_manifest

from tfdeploy.agent import paths
from tfdeploy.agent.environments import marker
from tfdeploy.agent.machine import lock
from tfdeploy.agent.outputs import hold
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.runs import disk, run_record
from tfdeploy.agent.runs.remove import remove
from tfdeploy.shared.protocol.outputs import Unit
from tfdeploy.shared.protocol.runs import Removed


@pytest.fixture
def open_root(monkeypatch):
    """A root that the user nobody can reach: pytest's folders are closed to other users."""
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setattr(sys, "argv", [f"{name}/agent/abc.pyz"])
        yield Path(name)
        for folder, _, _ in os.walk(name):
            os.chmod(folder, 0o755)


def remaining(project="p"):
    folders = (paths.runs(project), paths.releases(project))
    return [name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]


# Removed


def test_a_run_is_removed_and_the_freed_bytes_are_reported(root):
    folder = Path(create_run("r", "ps:0", "worker:0"))
    (folder / "worker-0/work/model").write_bytes(b"x" * 100_000)
    size = disk.used_bytes(os.fspath(folder))
    assert remove("p", ["r"], [], []) == Removed(size, [])
    assert remaining() == []


def test_a_release_into_which_a_program_wrote_stays(release):
    for name in ("lib/out/model.pt", "lib/__pycache__/a.pyc"):
        (release / name).parent.mkdir(parents=True, exist_ok=True)
        (release / name).write_text("x")
    model = release / "lib/out/model.pt"
    why = f"{model} was written by a program: move or delete it"
    assert reasons(remove("p", [], ["f00d"], [])) == {"f00d": why}
    (release / "run").write_text("results")
    why = f"{model} and 1 other file of {release} were written by a program: move or delete them"
    assert reasons(remove("p", [], ["f00d"], [])) == {"f00d": why}
    model.unlink()
    why = f"{release}/run was written by a program: move or delete it"
    assert reasons(remove("p", [], ["f00d"], [])) == {"f00d": why}
    (release / "run").unlink()
    assert reasons(remove("p", [], ["f00d"], [])) == {}
    assert remaining() == []


def test_a_release_stays_if_what_was_written_into_it_can_not_be_told(release):
    Path(paths.manifest("p", "f00d")).write_text("{")
    (why,) = reasons(remove("p", [], ["f00d"], [])).values()
    assert why == (
        f"its list of files can't be read: move what was written into {release} and delete the rest"
    )
    assert remaining() == ["f00d"]


def test_a_read_only_release_is_removed(open_root):
    folder = create_release("f00d")
    (folder.parent / "f00d").chmod(0o755)
    (folder / "lib").mkdir()
    (folder / "lib/a.py").write_text("a")
    write_manifest(folder)
    for each in (folder / "lib", folder):
        each.chmod(0o555)
    with as_unprivileged_user(open_root):
        assert remove("p", [], ["f00d"], []).kept == []
    assert remaining() == []


def test_folders_without_permissions_are_removed(open_root):
    closed = Path(create_run("r", "ps:0")) / "ps-0/work/closed"
    (closed / "inner").mkdir(parents=True)
    for each in (closed / "inner", closed):
        each.chmod(0)
    with as_unprivileged_user(open_root):
        assert remove("p", ["r"], [], []).kept == []
    assert remaining() == []


def test_the_manifest_of_a_release_is_removed_with_it(root):
    for name in ("gone", "kept"):
        create_release(name)
    remove("p", [], ["gone"], [])
    assert os.listdir(paths.manifests("p")) == ["kept.json"]


def test_other_runs_and_releases_are_not_removed(root):
    for name in ("one", "two"):
        create_run(name, "ps:0", release=name)
        create_release(name)
    assert remove("p", ["one"], ["one"], []).kept == []
    assert remaining() == ["two", "two"]


def test_a_release_can_be_removed_with_the_only_run_that_uses_it(root):
    create_run("r", "ps:0", release="f00d")
    create_release("f00d")
    assert remove("p", ["r"], ["f00d"], []).kept == []


def test_a_missing_run_or_release_is_ignored(root):
    assert remove("p", ["r"], ["f00d"], []) == Removed(0, [])


def test_a_removed_run_is_refused_with_who_removed_it_and_one_that_is_back_is_not(root):
    create_run("r", "ps:0")
    remove("p", ["r", "never"], [], [], by="tfdeploy prune of ann@laptop")
    refusal = run_record.removal_refusal("p", "r")
    assert re.fullmatch(
        r"run r was deleted from its hosts on [-0-9]+ [0-9:]+ UTC by tfdeploy prune of ann@laptop",
        refusal.message,
    )
    assert run_record.removal_refusal("p", "never") is None
    create_run("r", "ps:0")
    assert run_record.removal_refusal("p", "r") is None


def test_a_run_stays_while_it_is_resumed_and_not_after_that_has_launched_its_tasks(root):
    create_run("r", "worker:0")
    hold.hold_copies("p", "r", ["worker:0"], "checkpoints")
    assert [kept.why for kept in remove("p", ["r"], [], []).kept] == ["it is being resumed"]
    now = time.time() + 1
    os.utime(paths.launch(paths.task("p", "r", "worker:0")), (now, now))
    assert remove("p", ["r"], [], []).kept == []


def test_outputs_of_a_run_that_was_removed_meanwhile_are_not_reported_one_by_one(root, monkeypatch):
    """The verb answers that the run was deleted, which needs that no folder of it is left."""
    units = [Unit("a/b.csv", "file", {"a/b.csv": (1, 1)})]
    folder = create_run("r", "worker:0")

    def remove_now(task_dir):
        run_record.add_removal("p", "r", "ann")
        os.rename(folder, f"{folder}.removing")
        return False

    monkeypatch.setattr(hold.lock, "is_live", remove_now)
    for _ in ("while they are held", "before"):
        with pytest.raises(FileNotFoundError):
            hold.hold("p", "r", "worker:0", units, False)
        assert run_record.removal_refusal("p", "r")


def test_a_file_with_a_hard_link_elsewhere_frees_nothing(root, tmp_path):
    model = Path(create_run("r", "ps:0")) / "ps-0/work/model"
    model.write_bytes(b"x" * 100_000)
    os.link(model, tmp_path / "kept")
    assert remove("p", ["r"], [], []).removed_bytes < 100_000
    assert (tmp_path / "kept").stat().st_size == 100_000


def test_leftovers_of_interrupted_removals_and_pushes_are_removed(root, monkeypatch):
    leftover = Path(paths.runs("p"), disk.REMOVING + "r-1a2b")
    leftover.mkdir(parents=True)
    Path(paths.incoming("p", "f00d")).mkdir(parents=True)
    remove("p", [], [], [])
    assert remaining() == [".incoming-f00d"]
    monkeypatch.setattr(disk, "ABANDONED_AFTER_S", -1.0)
    remove("p", [], [], [])
    assert remaining() == []


# Not removed


def test_a_live_run_and_its_release_are_not_removed(root):
    folder = create_run("r", "ps:0", "worker:0", release="f00d")
    create_release("f00d")
    task_lock = lock.acquire(os.path.join(folder, "worker-0"))
    try:
        answer = remove("p", ["r"], ["f00d"], [])
    finally:
        os.close(task_lock)
    assert reasons(answer) == {"r": "its worker:0 is live", "f00d": "run r uses it"}
    assert remaining() == ["r", "f00d"]


def test_a_run_that_is_being_started_is_not_removed(root):
    create_run("r", "ps:0", state=None, age_s=0)
    assert reasons(remove("p", ["r"], [], [])) == {"r": "its ps:0 is live"}


def test_a_data_set_that_a_run_uses_is_not_removed(root):
    create_run("r", "ps:0")
    create_run("r", "worker:0", data={"a": "a-1"})
    for name in ("a-1", "a-2"):
        create_release(name)
    assert reasons(remove("p", [], ["a-1", "a-2"], [])) == {"a-1": "run r uses it"}
    assert remaining() == ["r", "a-1"]


@pytest.fixture
def environments(root):
    """Two environments, and a cache with a hard link to a file of the first."""
    for name in ("used", "other"):
        folder = Path(paths.environment("p", name))
        folder.mkdir(parents=True)
        (folder / "tfdeploy.json").write_text("{}")
        (folder / "module.py").write_text("x" * 100_000)
    Path(paths.cache()).mkdir()
    os.link(folder / "module.py", os.path.join(paths.cache(), "module.py"))
    return Path(paths.environments("p"))


def test_an_environment_is_removed_with_the_cache_that_has_its_files(environments):
    create_run("r", "worker:0", environment="used")
    answer = remove("p", [], [], ["used", "other"])
    assert reasons(answer) == {"used": "run r uses it"}
    assert answer.removed_bytes > 100_000
    assert not os.path.exists(paths.cache())
    assert [p.name for p in environments.iterdir() if p.is_dir()] == ["used"]


def test_an_environment_that_is_being_built_is_not_removed(environments):
    with marker.lock_taken(paths.environment_lock("p", "other")):
        answer = remove("p", [], [], ["other"])
    assert reasons(answer) == {"other": "it is being built"}


def test_the_cache_stays_if_no_environment_is_removed(environments):
    remove("p", [], [], [])
    assert os.path.exists(paths.cache())


def test_what_an_interrupted_build_left_is_removed(environments):
    Path(paths.environment("p", "half")).mkdir()
    Path(paths.environment("p", ".half.work")).mkdir()
    remove("p", [], [], [])
    assert sorted(p.name for p in environments.iterdir() if p.is_dir()) == ["other", "used"]


def test_no_release_is_removed_while_a_launch_can_not_be_read(root):
    folder = create_run("r", "ps:0", release="f00d")
    create_release("beef")
    Path(folder, "ps-0", "launch.json").write_text("{")
    why = "run r may use it: its launch.json can't be read"
    assert reasons(remove("p", [], ["beef"], [])) == {"beef": why}


@pytest.mark.parametrize("name", ["", ".", "..", "../q", "a/b", "/etc", ".incoming-f00d", "a\0b"])
@pytest.mark.parametrize("field", ["project", "runs", "releases", "environments"])
def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_removed(root, field, name):
    create_run("r", "ps:0")
    arguments = {"project": "p", "runs": ["r"], "releases": [], "environments": []}
    arguments[field] = name if field == "project" else ["r", name]
    with pytest.raises(Refusal, match="is not the name of a run, a release or an environment"):
        remove(**arguments)
    assert remaining() == ["r"]


def test_a_link_in_place_of_a_run_or_release_is_not_followed(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("mine")
    for folder in (paths.runs("p"), paths.releases("p")):
        os.makedirs(folder)
        Path(folder, "link").symlink_to(tmp_path / "elsewhere")
    assert [kept.name for kept in remove("p", ["link"], ["link"], []).kept] == ["link", "link"]
    assert (tmp_path / "elsewhere/file").read_text() == "mine"


def test_links_in_a_run_are_removed_without_their_targets(root, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o500)
    folder = Path(create_run("r", "ps:0"))
    (folder / "ps-0/work/data").symlink_to(tmp_path / "elsewhere")
    assert remove("p", ["r"], [], []).kept == []
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o500


def test_a_run_that_can_not_be_renamed_is_reported_and_unchanged(open_root):
    create_run("r", "ps:0")
    create_release("beef")
    os.chmod(paths.runs("p"), 0o555)
    with as_unprivileged_user(open_root):
        answer = remove("p", ["r"], ["beef"], [])
    assert reasons(answer) == {"r": "Permission denied"}
    assert remaining() == ["r"]


def make_deep_tree(folder):
    """Make a tree that is deeper than a path may be long, so it can't be deleted by path."""
    parent = os.open(folder, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=parent)
        inner = os.open("x" * 250, os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = inner
    os.close(parent)


def test_a_run_that_can_not_be_deleted_is_reported_and_hidden(root):
    work = os.path.join(create_run("r", "ps:0"), "ps-0", "work")
    Path(work, "file").write_text("")
    make_deep_tree(work)
    create_run("other", "ps:0")
    answer = remove("p", ["r", "other"], [], [])
    assert reasons(answer) == {"r": "not all of it could be deleted: Directory not empty"}
    (leftover,) = remaining()
    assert leftover.startswith(".removing-r-")
    assert disk.disk("p").runs == []
    assert disk.disk("p").left_bytes > 0
    assert os.listdir(os.path.join(paths.runs("p"), leftover, "ps-0", "work")) == ["x" * 250]
    shutil.rmtree(os.path.join(paths.runs("p"), leftover))


# The installers' cache


def create_cache():
    os.makedirs(paths.environments("p"))
    cache = Path(paths.cache())
    (cache / "uv").mkdir(parents=True)
    (cache / "uv/wheel").write_bytes(b"x" * 10_000)
    return cache


def test_the_cache_is_emptied_with_an_environment(root):
    cache = create_cache()
    remove("p", [], [], ["abc"])
    assert not cache.exists()


def test_the_cache_stays_while_any_environment_is_being_built(root):
    cache = create_cache()
    with marker.cache_in_use():  # of another project, or of another host
        remove("p", [], [], ["abc"])
        assert (cache / "uv/wheel").exists()
    remove("p", [], [], ["abc"])
    assert not cache.exists()


def test_a_cache_whose_removal_was_interrupted_is_a_leftover(root):
    hidden = create_cache().rename(root / f"{disk.REMOVING}.cache-0123abcd")
    assert disk.disk("p").store_left_bytes > 10_000
    assert remove("p", [], [], []).removed_bytes > 10_000
    assert not hidden.exists()


# A store that hosts share


@pytest.fixture
def on_host(root, monkeypatch):
    """Return a function that makes the test a host of this name, which shares its store."""

    def become(name):
        agent = root / paths.OWN_ROOTS / name / "agent/abc.pyz"
        agent.parent.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(sys, "argv", [str(agent)])

    return become


def test_a_release_that_a_run_of_another_host_uses_stays(on_host):
    on_host("a")
    create_run("r", "ps:0", release="f00d")
    create_release("f00d")
    on_host("b")
    assert remaining() == ["f00d"]
    assert reasons(remove("p", [], ["f00d"], [])) == {"f00d": "run r uses it"}
    on_host("a")
    assert remove("p", ["r"], ["f00d"], []).kept == []
    assert remaining() == []


def test_a_run_of_another_host_is_not_removed_with_its_name(on_host):
    on_host("a")
    folder = Path(create_run("r", "ps:0"))
    on_host("b")
    assert disk.disk("p").runs == []
    remove("p", ["r"], [], [])
    assert folder.exists()
