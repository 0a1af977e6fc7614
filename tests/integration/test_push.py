"""The release is what was hashed, or there is none."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest

from tfdeploy import inventory
from tfdeploy.errors import FleetError, TfdeployError, TransferFailed
from tfdeploy.fleet import Fleet
from tfdeploy.steps.plan import plan_all
from tfdeploy.steps.push import push

from .sshd import ADDRESS


@pytest.mark.parametrize("change", ["another text", "the same size"])
def test_a_source_that_changes_while_it_is_pushed_is_refused_by_name(world, change):
    project = world.project()
    weights = project.folder / "weights"
    weights.write_text("y" * len(change))
    intent = plan_all(inventory.load(project.folder / "hosts.toml"))
    weights.write_text(change)
    with Fleet(intent.inventory) as fleet, pytest.raises(TfdeployError) as refused:
        push(fleet, intent)
    errors = refused.value.errors if isinstance(refused.value, FleetError) else [refused.value]
    assert len(errors) == len(project.hosts)
    assert all(isinstance(error, TransferFailed) for error in errors)
    assert all("weights changed while it was pushed" in error.message for error in errors)
    assert all(project.releases(host) == set() for host in project.hosts)


@pytest.fixture
def shared(by_ssh, tmp_path):
    """Three hosts whose home is one folder, as a network file system makes it."""
    hosts = by_ssh.hosts() | {"three": {"address": ADDRESS}}
    home = {"directory": str(tmp_path / "home/.tfdeploy")}
    return by_ssh.project("--hold", hosts={name: host | home for name, host in hosts.items()})


def test_a_host_that_was_copied_from_another_is_one_of_its_own(by_ssh, tmp_path):
    hosts = {n: host | {"directory": str(tmp_path / n)} for n, host in by_ssh.hosts().items()}
    (tmp_path / "one").mkdir()
    (tmp_path / "one/.id").symlink_to("f00d")
    (tmp_path / "two").mkdir()
    (tmp_path / "two/.id").write_text("f00d")  # by a program that follows links
    project = by_ssh.project(hosts=hosts)
    project.ok("push")
    shutil.rmtree(tmp_path / "two", ignore_errors=True)
    (tmp_path / "two").mkdir()
    (tmp_path / "two/.id").symlink_to("f00d")
    project.ok("push")
    names = {name: os.readlink(tmp_path / name / ".id") for name in hosts}
    assert names["one"] != names["two"]
    assert "f00d" in names.values()
    assert not [*tmp_path.glob("*/.mark-*")]


def test_hosts_that_share_a_copy_are_refused_nevertheless(by_ssh, tmp_path):
    folders = {"one": tmp_path / "one", "two": tmp_path / "both", "three": tmp_path / "both"}
    for folder in {*folders.values()}:
        folder.mkdir()
        (folder / ".id").symlink_to("f00d")
    hosts = by_ssh.hosts() | {"three": {"address": ADDRESS}}
    hosts = {name: host | {"directory": str(folders[name])} for name, host in hosts.items()}
    done = by_ssh.project(hosts=hosts).tf("push")
    assert done.returncode == 1
    assert re.findall(r"(\w+): its \S+ is (\w+)'s as well", done.stderr) in (
        [("three", "two")], [("two", "three")]
    )  # fmt: skip
    assert not [*tmp_path.glob("*/.mark-*")]


def test_hosts_that_share_a_directory_are_told_what_to_write(shared):
    done = shared.tf("push")
    assert done.returncode == 1
    refusal = (
        r"(\w+): its (\S+) is (\w+)'s as well: they share a file system\n"
        r"  give each host a directory of its own, with this under \[defaults\]: "
        r'directory = ("\2/\{host\}") \(a local disk is faster still\); '
    )
    said = re.findall(refusal, done.stderr)
    assert {name for second, _, first, _ in said for name in (second, first)} == {*shared.hosts}
    [written] = {json.loads(value) for *_, value in said}
    shared.hosts = {name: {**host, "directory": written} for name, host in shared.hosts.items()}
    shared.write()
    shared.ok("push")
    shared.ok("start")
    assert {task["state"] for task in shared.status().values()} == {"READY"}
    shared.ok("stop")
