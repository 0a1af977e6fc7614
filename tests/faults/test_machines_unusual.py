"""Unusual machines: a full disk, a wrong clock, a strict sshd, other login shells."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager

import pytest
from support.command_line import error_of
from support.machines import FAULTY, MACHINES, ssh
from support.sites import PROJECT, STUB, training
from support.waiting import until

from faults import table
from tfdeploy.transport.daemon import locate

pytestmark = pytest.mark.slow

HOSTS = {"ps0": {"ps": 1}, "chief": {"workers": 1}, "worker1": {"workers": 1}}
BY_PORT = {"ready": "port"}  # for the stub, which answers no health check
# docker-compose.yml mounts a disk of 8 MiB at /small on each machine.
SMALL_DISK = "/small/tfdeploy"
# Python runs .pth files when it starts. The times of files are not shifted.
CLOCK_FILE = "/opt/python/lib/python3.11/site-packages/an_hour_ahead.pth"
SHIFT_CLOCK = "import time; time.time = lambda now=time.time: now() + 3600"
SSHD_CONFIG = "/etc/ssh/sshd_config"
SSHD_PID = "/run/sshd.pid"
NEW_HOME = ".tfdeploy-fresh"


@contextmanager
def strict_sshds():
    """Let every sshd accept one session per connection and three connections at a time."""
    for machine in MACHINES.values():
        machine.shell(f"touch {FAULTY} && cp {SSHD_CONFIG} {SSHD_CONFIG}.was")
        machine.shell(f"(echo MaxSessions 1; echo MaxStartups 3) >> {SSHD_CONFIG}")
        _reload_sshd(machine)
    try:
        yield
    finally:
        for machine in MACHINES.values():
            machine.shell(f"mv {SSHD_CONFIG}.was {SSHD_CONFIG}")
            _reload_sshd(machine)
            machine.shell(f"rm -f {FAULTY}")


def _reload_sshd(machine):
    """Let sshd read its configuration, and wait until it listens again: then it writes its pid."""
    machine.shell(f"rm -f {SSHD_PID} && pkill -HUP -o -x sshd")
    until(lambda: machine.read(SSHD_PID), f"the sshd of {machine.name}")


@contextmanager
def clock_an_hour_ahead(machine):
    """Shift the machine's clock for every Python process on it."""
    machine.shell(f"touch {FAULTY} && echo '{SHIFT_CLOCK}' > {CLOCK_FILE}")
    try:
        yield
    finally:
        machine.shell(f"rm -f {CLOCK_FILE} {FAULTY}")


@contextmanager
def login_shells(**shells):
    """Give the user other login shells. sshd reads them when a connection is opened, so none of
    the connection daemon's may be older or newer than the block."""
    for name, shell in shells.items():
        MACHINES[name].shell(f"touch {FAULTY} && usermod -s {shell} trainer")
    locate.stop_daemons()
    try:
        yield
    finally:
        for name in shells:
            MACHINES[name].shell(f"usermod -s /bin/bash trainer && rm -f {FAULTY}")
        locate.stop_daemons()


def test_a_full_disk_at_push_is_reported_and_the_old_release_stays(tmp_path):
    hosts = {**HOSTS, "worker1": {"workers": 1, "directory": SMALL_DISK}}
    with training(tmp_path, STUB, hosts=hosts, training=BY_PORT) as site:
        site.ok("push")
        before = _small_disk_files()
        big = site.folder / "data.bin"
        big.write_bytes(os.urandom(12 << 20))
        started_at = time.monotonic()
        push = site.tf("push")
        detected_s = time.monotonic() - started_at
        assert push.returncode == 1
        error = error_of(push)
        assert "worker1: " in error and "No space left on device" in error
        assert "ps0: " not in error and "chief: " not in error
        assert _small_disk_files() == before
        big.unlink()
        assert "is already on ps0, chief, worker1" in site.ok("push")
        site.start()
        table.record("19 a disk full at push", detected_s, None, None, site.startup_s)
    MACHINES["worker1"].shell(f"chmod -R u+w {SMALL_DISK}; rm -rf {SMALL_DISK}")


def _small_disk_files():
    """Return every file of the releases on the small disk, and the MiB that they use."""
    releases = f"{SMALL_DISK}/{PROJECT}/releases"
    return sorted(MACHINES["worker1"].shell(f"find {releases}; du -sm {releases}").splitlines())


def test_a_run_works_with_all_that_is_unusual_at_once(tmp_path):
    """Strict sshds, other login shells, a Python in the home, and a clock an hour ahead."""
    own = {"python": f"~/{NEW_HOME}/python/bin/python", "directory": f"~/{NEW_HOME}"}
    hosts = {"ps0": {"ps": 1, **own}, "chief": {"workers": 1, **own}}
    for name in hosts:
        ssh(name, f"mkdir {NEW_HOME} && ln -s /opt/python {NEW_HOME}/python")
    more = {"training": {"replicas": 1}, "runs_folder": f"/home/trainer/{NEW_HOME}/{PROJECT}/runs"}
    # With TensorFlow: gRPC in Python, as in train_stub.py, hangs until the hour is over.
    with (
        training(tmp_path, "train_async.py", hosts=hosts, **more) as site,
        strict_sshds(),
        login_shells(ps0="/usr/bin/fish", chief="/bin/tcsh"),
        clock_an_hour_ahead(MACHINES["chief"]),
    ):
        (site.folder / "data.bin").write_bytes(os.urandom(12 << 20))  # large enough for rsync
        started_at = time.monotonic()
        run = site.start_command("run")
        run.wait_for_output("is READY")
        site.startup_s = time.monotonic() - started_at
        run.wait_for_output("checkpoints/")
        assert set(site.states().values()) == {"READY"}
        assert "step" in site.ok("logs", "-n", "3")
        assert _clock("chief") - _clock("ps0") > 3500
        _assert_the_chief_recovers(site)
        site.ok("stop")
        run.wait()
        collected = json.loads(site.ok("collect", "--json"))
        assert collected["checkpoints"][0]["step"] == max(site.saved_steps("worker:0", "chief"))
        table.record("48 MaxSessions 1, MaxStartups 3", None, None, None, site.startup_s)
    for name in hosts:
        ssh(name, f"chmod -R u+w {NEW_HOME}; rm -r {NEW_HOME}")


def _assert_the_chief_recovers(site):
    """Kill the chief, whose clock is ahead, after a copy of its checkpoint was made."""
    site.wait_for_replica()
    tasks = site.tasks()
    assert all(task["age_s"] < 600 for task in tasks.values())
    before, saved = site.step("worker:0", "chief"), site.saved_step("worker:0", "chief")
    killed_at = time.monotonic()
    MACHINES["chief"].kill([tasks["worker:0"]["pid"]])
    lost = site.steps_lost("worker:0", "chief", before)
    site.wait_for_step("worker:0", "chief", beyond=before - lost)
    recovered_s = time.monotonic() - killed_at
    assert site.restored_steps("worker:0", "chief")[-1] >= saved > 0
    name = "28 kill -9 of a chief whose clock is an hour ahead"
    table.record(name, None, recovered_s, lost, site.startup_s)


def _clock(host):
    python = "/opt/python/bin/python"
    return float(MACHINES[host].root(python, "-c", "import time; print(time.time())"))


def test_check_finds_problems_before_a_start(tmp_path):
    hosts = {**HOSTS, "worker1": {"workers": 1, "gpus": 1}}
    with training(tmp_path, STUB, hosts=hosts, training=BY_PORT) as site:
        MACHINES["ps0"].cut_network("-p", "tcp", "--dport", "2222")
        done = site.tf("check", "--json")
        report = json.loads(done.stdout)
        assert done.returncode == 1
        assert {host["tensorflow"] for host in report["hosts"].values()} == {"2.21.0"}
        port_error, gpu_error = sorted(report["errors"], key=lambda error: error["host"])
        assert gpu_error["host"] == "worker1"
        assert gpu_error["message"] == "TensorFlow 2.21.0 sees 0 of its 1 GPU"
        assert gpu_error["hint"].startswith("check that it is built for GPUs")
        assert (port_error["task"], port_error["host"]) == ("ps:0", "ps0")
        assert port_error["message"].startswith("chief, worker1 can't reach ps0 at ")
        assert port_error["message"].endswith("on the port of ps:0: no answer within 5 s")
        assert port_error["hint"].startswith("check for a firewall ")
        [note] = report["notes"]
        assert note["host"] == "chief"
        assert note["message"].startswith("it has 2 GPUs, but hosts.toml lists none")
        MACHINES["ps0"].restore_network()
        site.start()
