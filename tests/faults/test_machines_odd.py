"""Machines that are unlike the others: a full disk, a clock that is wrong, a strict sshd."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager

import pytest
from e2e.conftest import ssh

from faults import table
from faults.machines import FAULTY, MACHINES
from faults.sites import PROJECT, training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOSTS = {"ps0": {"ps": 1}, "chief": {"workers": 1}, "worker1": {"workers": 1}}
# docker-compose.yml gives each machine a disk of 8 MiB there.
SMALL = "/small/tfdeploy"
# Python runs such a file at its start. Only the kernel could shift the times of files as well.
AHEAD = "/opt/python/lib/python3.11/site-packages/an_hour_ahead.pth"
SHIFT = "import time; time.time = lambda now=time.time: now() + 3600"
STRICT = "/etc/ssh/sshd_config"
FRESH = ".tfdeploy-fresh"


@contextmanager
def strict_sshds():
    """Every sshd lets one session into a connection, and three connections in at a time."""
    for machine in MACHINES.values():
        machine.shell(f"touch {FAULTY} && cp {STRICT} {STRICT}.was")
        machine.shell(f"(echo MaxSessions 1; echo MaxStartups 3) >> {STRICT}")
        machine.shell("pkill -HUP -o -x sshd")
    try:
        yield
    finally:
        for machine in MACHINES.values():
            machine.shell(f"mv {STRICT}.was {STRICT} && pkill -HUP -o -x sshd && rm -f {FAULTY}")


@contextmanager
def an_hour_ahead(machine):
    """The machine's clock, as far as any Python there reads it."""
    machine.shell(f"touch {FAULTY} && echo '{SHIFT}' > {AHEAD}")
    try:
        yield
    finally:
        machine.shell(f"rm -f {AHEAD} {FAULTY}")


@contextmanager
def login_shells(**shells):
    for name, shell in shells.items():
        MACHINES[name].shell(f"touch {FAULTY} && usermod -s {shell} trainer")
    try:
        yield
    finally:
        for name in shells:
            MACHINES[name].shell(f"usermod -s /bin/bash trainer && rm -f {FAULTY}")


def test_a_disk_that_is_full_at_push_is_named_and_the_old_release_stays(tmp_path):
    hosts = {**HOSTS, "worker1": {"workers": 1, "directory": SMALL}}
    with training(tmp_path, "train_async.py", hosts=hosts) as site:
        site.ok("push")
        held = _small()
        big = site.folder / "data.bin"
        big.write_bytes(os.urandom(12 << 20))
        began = time.monotonic()
        refused = site.tf("push")
        detected_s = time.monotonic() - began
        assert refused.returncode == 1
        assert "worker1: " in refused.stderr and "No space left on device" in refused.stderr
        assert "ps0: " not in refused.stderr and "chief: " not in refused.stderr
        assert _small() == held
        big.unlink()
        assert "was there already: ps0, chief, worker1" in site.ok("push")
        site.started()
        table.record("19 a disk full at push", detected_s, None, None, site.startup_s)
    MACHINES["worker1"].shell(f"chmod -R u+w {SMALL}; rm -rf {SMALL}")


def _small():
    """Every file below the small disk's releases, and how much of the disk is taken, in MiB."""
    found = MACHINES["worker1"].shell(f"find {SMALL}/{PROJECT}/releases; du -sm {SMALL}")
    return sorted(found.splitlines())


def test_a_clock_that_is_an_hour_ahead_changes_nothing(tmp_path):
    hosts = {**HOSTS, "ps1": {"spare": True}}
    flags, copied = ("--save_steps=100", "--pace=0.05"), {"replicas": 1}
    with (
        training(tmp_path, "train_async.py", *flags, hosts=hosts, training=copied) as site,
        an_hour_ahead(MACHINES["chief"]),
    ):
        site.started()
        assert _clock("chief") - _clock("ps0") > 3500
        site.copied()
        told = site.tasks()
        assert all(task["age_s"] < 600 for task in told.values())
        before = site.step("worker:0", "chief")
        began = time.monotonic()
        MACHINES["chief"].end([told["worker:0"]["pid"]])
        lost = site.lost("worker:0", "chief", before)
        site.goes_on("worker:0", "chief", beyond=before - lost)
        recovered_s = time.monotonic() - began
        assert lost <= 100
        site.ok("stop")
        collected = json.loads(site.ok("collect", "--json"))
        assert collected["checkpoints"][0]["step"] == max(site.saved("worker:0", "chief"))
        name = "28 kill -9 of a chief whose clock is an hour ahead"
        table.record(name, None, recovered_s, lost, site.startup_s)


def _clock(host):
    python = "/opt/python/bin/python"
    return float(MACHINES[host].root(python, "-c", "import time; print(time.time())"))


def test_strict_sshds_let_a_whole_run_through(tmp_path):
    flags = ("--save_steps=50", "--pace=0.05")
    with training(tmp_path, "train_async.py", *flags, hosts=HOSTS) as site, strict_sshds():
        began = time.monotonic()
        run = site.begun("run")
        run.says("is READY")
        startup_s = time.monotonic() - began
        run.says("checkpoints/")
        assert set(site.states().values()) == {"READY"}
        assert "step" in site.ok("logs", "-n", "3")
        site.ok("stop")
        run.ended()
        assert "checkpoints/model.ckpt-" in site.ok("collect")
        table.record("48 MaxSessions 1, MaxStartups 3", None, None, None, startup_s)


def test_any_login_shell_will_do_and_a_python_below_the_home(tmp_path):
    python = {"python": f"~/{FRESH}/python/bin/python", "directory": f"~/{FRESH}"}
    hosts = {name: keys | python for name, keys in HOSTS.items()}
    for name in HOSTS:
        ssh(name, f"mkdir {FRESH} && ln -s /opt/python {FRESH}/python")
    with (
        training(tmp_path, "train_async.py", "--save_steps=50", hosts=hosts) as site,
        login_shells(ps0="/bin/tcsh", chief="/bin/tcsh", worker1="/usr/bin/fish"),
    ):
        (site.folder / "data.bin").write_bytes(os.urandom(12 << 20))  # rsync takes it
        run = site.begun("run")
        run.says("is READY")
        run.says("checkpoints/")
        assert set(site.states().values()) == {"READY"}
        site.ok("stop")
        run.ended()
    for name in HOSTS:
        ssh(name, f"chmod -R u+w {FRESH}; rm -r {FRESH}")


def test_check_finds_what_a_start_would_meet_only_later(tmp_path):
    hosts = {**HOSTS, "worker1": {"workers": 1, "gpus": 1}}
    with training(tmp_path, "train_async.py", hosts=hosts) as site:
        MACHINES["ps0"].cut("-p", "tcp", "--dport", "2222")
        done = site.tf("check", "--json")
        told = json.loads(done.stdout)
        assert done.returncode == 1
        assert {host["tensorflow"] for host in told["hosts"].values()} == {"2.21.0"}
        unseen, unreached = sorted(told["errors"], reverse=True)
        assert unseen.startswith(
            "worker1: of its 1 GPUs TensorFlow 2.21.0 sees 0\n  is it built for GPUs"
        )
        assert unreached.startswith("ps:0 on ps0: chief, worker1 can't reach ps0 at ")
        assert "on the port of ps:0: no answer within 5 s\n  is a firewall " in unreached
        [idle] = told["notes"]
        assert idle.startswith("chief: hosts.toml says nothing of its 2 GPUs")
        MACHINES["ps0"].heal()
        site.started()
