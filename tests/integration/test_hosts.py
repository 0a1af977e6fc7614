"""`tfdeploy hosts` shows what each host has free and who uses it."""

from __future__ import annotations

import json
import os

import pytest
from support.nvidia_smi import StubNvidiaSmi

from tfdeploy.agent.machine import leases
from tfdeploy.agent.queue import places
from tfdeploy.agent.queue.places import Place

pytestmark = pytest.mark.slow


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    stub = StubNvidiaSmi(tmp_path / "smi", 3)
    monkeypatch.setenv("PATH", f"{stub.folder}:{os.environ['PATH']}")
    return stub


def test_hosts_shows_gpus_with_their_users(local, nvidia_smi):
    nvidia_smi.use(0, os.getpid(), mib=2048)
    waiting = [Place(nvidia_smi.resource(gpu), 1, 1, "r", "worker:0") for gpu in range(3)]
    descriptors = [*leases.acquire([nvidia_smi.resource(2)]), *places.enter(waiting)]
    project = local.project()
    document = json.loads(project.ok("hosts", "--json"))
    [here] = document["hosts"]
    assert document["errors"] == []
    assert [gpu["free"] for gpu in here["gpus"]] == [False, True, False]
    user = here["gpus"][0]["users"][0]
    assert (user["pid"], user["used_bytes"], user["run"]) == (os.getpid(), 2 << 30, "")
    assert here["gpus"][2]["users"][0]["pid"] == os.getpid()
    assert here["free_bytes"] > 0
    assert here["waiting"] >= 1
    table = project.ok("hosts")
    assert "1/3" in table
    leases.release(descriptors)


def test_a_host_whose_driver_fails_shows_no_gpu(local, nvidia_smi):
    nvidia_smi.behave("fails")
    document = json.loads(local.project().ok("hosts", "--json"))
    assert document["hosts"][0]["gpus"] == []


def test_hosts_that_are_named_need_no_hosts_toml(by_ssh, tmp_path, monkeypatch):
    project = by_ssh.project()
    (project.folder / "hosts.toml").unlink()
    done = project.tf("hosts", "no-such-host.invalid", "--json")
    assert done.returncode != 0
    assert "no-such-host.invalid" in done.stderr + done.stdout


def test_a_host_that_is_not_in_hosts_toml_is_refused(local):
    done = local.project().tf("hosts", "gpu-77")
    assert done.returncode == 2
    assert 'there is no host "gpu-77"' in done.stderr


def test_every_view_says_when_a_run_ends_at_the_latest(local, nvidia_smi):
    hosts = {
        name: {**host, "ps": 0, "workers": 1, "gpus": 3} for name, host in local.hosts().items()
    }
    project = local.project("--hold", hosts=hosts, training={"max_duration_s": 7230})
    project.ok("start", "--push")
    task = project.status()["worker:0"]
    [here] = json.loads(project.ok("hosts", "--json"))["hosts"]
    [user] = [user for gpu in here["gpus"] for user in gpu["users"]]
    assert user["task"] == "worker:0"
    assert all(0 < ends_s <= 7230 for ends_s in (task["ends_s"], user["ends_s"]))
    words = "ends at the latest in "
    assert all(words in project.ok(command) for command in ("status", "hosts"))
    project.ok("stop")
    assert project.status()["worker:0"]["ends_s"] is None
