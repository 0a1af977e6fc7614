"""Hosts with one file system: one receives and builds, all of them use it."""

from __future__ import annotations

import json
import shutil
import threading

import pytest
from support import wheels
from support.ports import ADDRESS, free_ports
from support.projects import without_tensorflow
from support.sshd import Sshd, write_ssh_config

from tfdeploy.config import inventory
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.shared import filesystem
from tfdeploy.shared.protocol.releases import SeeRelease

TRAIN = """
import os, sys
import tiny
print("tiny", sys.prefix, os.getcwd(), flush=True)
"""
NAMES = ("one", "two", "three")


def hosts(folder, python, **more):
    """Three hosts behind a real sshd each, with the same directory."""
    ports = iter(free_ports(9))
    return {
        name: {
            "address": ADDRESS, "workers": 1, "directory": str(folder), "shared_fs": True,
            "python": python, "ports": [next(ports) for _ in range(3)], **more,
        }
        for name in NAMES
    }  # fmt: skip


@pytest.fixture
def project(by_ssh, tmp_path):
    python = without_tensorflow(tmp_path / "python")
    return by_ssh.project("--hold", hosts=hosts(tmp_path / "nas", python))


def asked_of_two(project, release, digest, before):
    """Ask one of the hosts that did not receive the release how it sees it."""
    before.start()
    with Fleet(inventory.load(project.folder / "hosts.toml")) as fleet:
        return fleet.agents["two"].ask(SeeRelease(project.name, release, digest), 60.0).digest


def own(project, host):
    """Return the folder of what only this host uses."""
    return project.on(host).parent / ".hosts" / host / project.name


def test_one_host_receives_the_release_and_all_start_from_it(project):
    out = project.ok("push")
    assert "kB) to one\n" in out
    assert "two, three see it on the file system that they share" in out
    [release] = project.releases("one")
    project.ok("start")
    assert {task["state"] for task in project.status().values()} == {"READY"}
    [run] = project.runs
    for index, host in enumerate(NAMES):
        assert [task.name for task in (own(project, host) / "runs" / run).glob("worker-*")] == [
            f"worker-{index}"
        ]
        work = own(project, host) / "runs" / run / f"worker-{index}" / "work"
        assert (work / "train.py").read_bytes() == (release / "train.py").read_bytes()
    project.ok("stop")
    assert not project.processes()
    assert not [*project.on("one").parent.glob(".mark-*")]


def test_a_second_push_sends_nothing(project):
    project.ok("push")
    out = project.ok("push")
    assert "is already on one, two, three" in out
    pushed = json.loads(project.ok("push", "--json"))["hosts"]
    assert [pushed[name]["sent"] for name in NAMES] == [[], [], []]


@pytest.fixture
def split(keys, tmp_path, by_ssh):
    """The same, but the third host has another home, and `directory` is in the homes."""
    homes = {"one": tmp_path / "home", "two": tmp_path / "home", "three": tmp_path / "another"}
    for home in {*homes.values()}:
        home.mkdir()
    running = {name: Sshd(home, keys) for name, home in homes.items()}
    known_hosts, config = tmp_path / "known_hosts", tmp_path / "ssh_config"
    known_hosts.write_text("".join(sshd.known_hosts_line for sshd in running.values()))
    write_ssh_config(config, keys, known_hosts, {n: sshd.entry() for n, sshd in running.items()})
    tables = hosts("~/nas", without_tensorflow(tmp_path / "python"))
    yield by_ssh.project(hosts=tables, top={"ssh_config": str(config)})
    for sshd in running.values():
        sshd.stop()


def test_a_host_that_does_not_share_is_refused_before_anything_is_sent(split, tmp_path):
    for command in ("push", "check"):
        done = split.tf(command)
        assert done.returncode != 0
        message = "three: hosts.toml says shared_fs = true, but it does not see what one writes to"
        assert message in done.stderr
        assert "two: hosts.toml" not in done.stderr
    assert not [*tmp_path.glob("*/nas/*/releases/*")]
    assert not [*tmp_path.glob("*/nas/.mark-*")]


def test_a_host_whose_cache_of_the_directory_is_old_is_waited_for(project, tmp_path):
    """A host may see late what another one wrote (nfs(5), ac): here, the manifest is hidden for a
    while."""
    project.ok("push")
    [manifest] = (project.on("one") / "manifests").iterdir()
    hidden = manifest.rename(tmp_path / "hidden")
    appears = threading.Timer(1.5, lambda: shutil.copy(hidden, manifest))
    answers = asked_of_two(project, manifest.stem, filesystem.sha256(str(hidden)), appears)
    assert answers == filesystem.sha256(str(hidden))


def test_check_finds_nothing_wrong_with_hosts_that_share(project):
    project.training["imports"] = []
    project.write()
    assert "ready to start 3 tasks on 3 hosts" in project.ok("check")


def test_prune_deletes_a_release_once_and_keeps_what_any_host_uses(project):
    project.ok("push")
    project.ok("start")
    [used] = project.releases("one")
    for number in range(6):
        (project.folder / "more").write_text(str(number))
        project.ok("push")
    assert len(project.releases("one")) == 7
    listing = json.loads(project.ok("runs", "--json"))
    assert [len(listing["hosts"][name]["releases"]) for name in NAMES] == [7, 0, 0]
    project.ok("prune", "--yes")
    assert len(project.releases("one")) == 6
    assert used in project.releases("one")
    project.ok("stop")


@pytest.mark.slow
def test_one_host_builds_the_environment_and_all_train_in_it(project, tmp_path):
    wheels.make(tmp_path / "wheels", "tiny")
    (project.folder / "run.py").write_text(TRAIN)
    project.top["env"] = {"requirements": ["tiny"]}
    project.training = {"command": ["python", "run.py"], "ready": "process"}
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
    project.hosts = {name: {**host, "env": env} for name, host in project.hosts.items()}
    project.write()
    out = project.ok("push")
    assert " on one\n" in out.partition("built environment ")[2]
    [folder] = [path for path in project.on("one").glob("envs/*") if path.is_dir()]
    assert project.ok("run").count(f" | tiny {folder} ") == 3
