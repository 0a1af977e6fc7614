"""Machines that come back without their processes, and `run --resilient`, with nobody watching."""

from __future__ import annotations

import time

import pytest

from faults import table
from faults.machines import MACHINES, until
from faults.sites import training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EVERY = 200
FLAGS = (f"--save_steps={EVERY}", "--pace=0.05")
HOSTS = {
    "ps0": {"ps": 1},
    "chief": {"chief": True},
    "worker1": {"workers": 1},
    "ps1": {"spare": True},
}
# All containers have the boot id of the one kernel, so a reboot looks like a kill here.
REBOOTED = ("its supervisor was killed", "the host restarted")


def test_a_host_that_rebooted_is_named_and_resume_goes_on(tmp_path):
    with training(tmp_path, "train_ps_strategy.py", *FLAGS, hosts=HOSTS) as site:
        site.started()
        site.goes_on("chief:0", "chief", beyond=EVERY)
        before = site.step("chief:0", "chief")
        began = time.monotonic()
        MACHINES["ps0"].reboot()
        told = until(lambda: _lost(site, "ps:0"), "ps:0 to be LOST")
        detected_s = time.monotonic() - began
        assert told["reason"] in REBOOTED
        site.ok("resume")
        lost = site.lost("chief:0", "chief", before)
        site.goes_on("chief:0", "chief", beyond=before - lost)
        recovered_s = time.monotonic() - began
        assert lost <= EVERY
        assert set(site.states().values()) == {"READY"}
        fault = "17 the ps's host reboots, resume (ps strategy)"
        table.record(fault, detected_s, recovered_s, lost, site.startup_s)


def _lost(site, task):
    told = site.tasks()[task]
    return told if told["state"] == "LOST" else None


def test_run_resilient_survives_a_reboot_and_the_loss_of_the_chiefs_machine(tmp_path):
    copied = {"replicas": 1, "orphan_timeout_s": 100}
    with training(tmp_path, "train_ps_strategy.py", *FLAGS, hosts=HOSTS, training=copied) as site:
        began = time.monotonic()
        run = site.begun("run", "--resilient")
        run.says("is READY")
        site.startup_s = time.monotonic() - began
        _survived(site, run, "chief", 1, MACHINES["ps0"].reboot, "17 the ps's host reboots")
        stopped = MACHINES["chief"].shut_down
        _survived(site, run, "ps1", 2, stopped, "16 the chief's host is shut down, replicas = 1")
        run.kill()


def _survived(site, run, host, times, fault, words):
    """`fault` strikes; the chief, on `host` then, goes on, the run for the `times`-th time."""
    site.copied()
    before = site.step("chief:0", site.host("chief:0"))
    began = time.monotonic()
    fault()
    until(lambda: run.said.count("goes on from") == times, "run to resume", 200)
    lost = site.lost("chief:0", host, before)
    site.goes_on("chief:0", host, beyond=before - lost)
    assert lost <= EVERY
    name = f"{words}, run --resilient (ps strategy)"
    table.record(name, None, time.monotonic() - began, lost, site.startup_s)
