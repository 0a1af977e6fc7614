"""What goes wrong on one real host is named, and nothing is left running on any other."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_more_gpus_than_the_host_has_are_refused_before_anything_starts(project):
    project.edit(("gpus = 1\nworkers", "gpus = [1]\nworkers"))
    project.ok("push")
    done = project.tfdeploy("start")
    assert done.returncode == 1
    assert "worker1: worker:1 is to have GPU 1, and nvidia-smi lists 1 here" in done.stderr


def test_each_worker_of_a_host_gets_its_own_gpu(project):
    project.edit(
        ("gpus = 2\nworkers = 1", 'gpus = 2\nworkers = "per-gpu"'),
        ("python train.py --checkpoint_dir={checkpoint_dir} --steps=400", "python dump.py"),
    )
    (project.folder / "dump.py").write_text(
        "import os, sys, time\n"
        "print('saw', repr(os.environ['CUDA_VISIBLE_DEVICES']), flush=True)\n"
        "time.sleep(1)\n"
    )
    project.json("run")
    logs = project.ok("logs").splitlines()
    seen = {line.split(" | ")[0]: line.split("saw ")[1] for line in logs if "saw " in line}
    assert seen == {
        "ps:0@ps0": "'-1'", "ps:1@ps1": "'-1'",
        "worker:0@chief": "'0'", "worker:1@chief": "'1'", "worker:2@worker1": "'0'",
    }  # fmt: skip


def test_a_pair_that_cannot_reach_each_other_is_named(project):
    # ps0's peers are told a machine that answers, but not on that port: as behind a wrong NAT.
    project.edit(('address = "ps0"', 'address = "chief"\nports = [2777]'))
    project.ok("push")
    done = project.tfdeploy("start")
    assert done.returncode == 1
    assert "ps:0 on ps0: chief, worker1 can't reach it at chief:2777" in done.stderr
    assert "hosts.ps0.address" in done.stderr


def test_a_host_without_tensorflow_is_named_with_its_log(project):
    project.edit(('address = "worker1"', 'address = "worker1"\npython = "/usr/bin/python3"'))
    project.ok("push")
    done = project.tfdeploy("start")
    assert done.returncode == 1
    assert "worker:1 on worker1: it ended: exit 1" in done.stderr
    assert "ModuleNotFoundError: No module named" in done.stderr


def test_bad_hosts_do_not_hide_each_other_nor_hurt_the_good_ones(project):
    project.edit(
        ('address = "ps0"', 'address = "ps0"\nport = 22299'),
        ('address = "ps1"', 'address = "ps1"\nuser = "nobody"'),
        ('address = "worker1"', 'address = "worker1"\npython = "/opt/none/python"'),
    )
    done = project.tfdeploy("push")
    assert done.returncode == 1
    assert "ps0: no SSH connection" in done.stderr
    assert "ps1: it refused every key" in done.stderr
    assert "worker1: /opt/none/python can't be run there" in done.stderr
    assert "chief:" not in done.stderr


def test_status_of_a_host_that_is_gone_says_so_and_shows_the_others(project):
    project.edit(("--steps=400", "--steps=1000000"))
    project.ok("push")
    project.ok("start")
    record = next(project.folder.glob("runs/*/hosts.toml"))
    whole = record.read_text()
    record.write_text(whole.replace("[hosts.ps1]", "[hosts.ps1]\nport = 22299"))
    done = project.tfdeploy("status", "--json")
    record.write_text(whole)
    project.ok("stop")
    assert done.returncode == 1
    states = {task["task"]: task["state"] for task in json.loads(done.stdout)["tasks"]}
    assert states == {"ps:0": "READY", "ps:1": None, "worker:0": "READY", "worker:1": "READY"}
    assert "ps1: no SSH connection" in done.stderr
