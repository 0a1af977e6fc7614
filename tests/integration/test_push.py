"""A pushed release has the content that was hashed, or push refuses it."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest
from support.ports import ADDRESS
from support.waiting import until

from tfdeploy.commands.plan import plan_all
from tfdeploy.commands.push import push
from tfdeploy.config import inventory
from tfdeploy.errors import FleetError, TfdeployError, TransferFailed
from tfdeploy.hosts.fleet import Fleet

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("change", ["another text", "the same size"])
def test_push_refuses_a_file_that_changes_during_the_push_and_names_it(world, change):
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
    assert all("weights changed during the push" in error.message for error in errors)
    assert all(project.releases(host) == set() for host in project.hosts)


@pytest.fixture
def sharing_project(by_ssh, tmp_path):
    """A project on three hosts with one directory, as on a network file system."""
    hosts = by_ssh.hosts() | {"three": {"address": ADDRESS}}
    directory = {"directory": str(tmp_path / "home/.tfdeploy")}
    return by_ssh.project("--hold", hosts={name: host | directory for name, host in hosts.items()})


def test_a_copied_directory_gets_an_id_of_its_own(by_ssh, tmp_path):
    hosts = {n: host | {"directory": str(tmp_path / n)} for n, host in by_ssh.hosts().items()}
    (tmp_path / "one").mkdir()
    (tmp_path / "one/.id").symlink_to("f00d")
    (tmp_path / "two").mkdir()
    (tmp_path / "two/.id").write_text("f00d")  # copied by a program that follows links
    project = by_ssh.project(hosts=hosts)
    project.ok("push")
    until(lambda: _is_removed(tmp_path / "two"), "the end of the agent that writes to it")
    (tmp_path / "two").mkdir()
    (tmp_path / "two/.id").symlink_to("f00d")
    project.ok("push")
    names = {name: os.readlink(tmp_path / name / ".id") for name in hosts}
    assert names["one"] != names["two"]
    assert "f00d" in names.values()
    assert not [*tmp_path.glob("*/.mark-*")]


def _is_removed(folder):
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_push_refuses_two_hosts_that_share_a_copied_directory(by_ssh, tmp_path):
    folders = {"one": tmp_path / "one", "two": tmp_path / "both", "three": tmp_path / "both"}
    for folder in {*folders.values()}:
        folder.mkdir()
        (folder / ".id").symlink_to("f00d")
    hosts = by_ssh.hosts() | {"three": {"address": ADDRESS}}
    hosts = {name: host | {"directory": str(folders[name])} for name, host in hosts.items()}
    done = by_ssh.project(hosts=hosts).tf("push")
    assert done.returncode == 1
    assert re.findall(r"(\w+): its directory \S+ is also the directory of (\w+):", done.stderr) in (
        [("three", "two")], [("two", "three")]
    )  # fmt: skip
    assert not [*tmp_path.glob("*/.mark-*")]


def test_push_refuses_hosts_that_share_a_directory_and_says_what_to_write(sharing_project):
    done = sharing_project.tf("push")
    assert done.returncode == 1
    refusal = (
        r"([\w, ]+): its directory (\S+) is also the directory of (\w+): they share a file system\n"
        r"  write shared_fs = true under \[defaults\]; or give each host its own directory: "
        r'directory = ("\2/\{host\}") \(a local disk is faster\); '
    )
    refusals = re.findall(refusal, done.stderr)
    # Two hosts with the same refusal are named in one line.
    named = (name for others, _, first, _ in refusals for name in (*others.split(","), first))
    assert {name.strip() for name in named} == {*sharing_project.hosts}
    [directory] = {json.loads(value) for *_, value in refusals}
    sharing_project.hosts = {
        name: {**host, "directory": directory} for name, host in sharing_project.hosts.items()
    }
    sharing_project.write()
    sharing_project.ok("push")
    sharing_project.ok("start")
    assert {task["state"] for task in sharing_project.status().values()} == {"READY"}
    sharing_project.ok("stop")
