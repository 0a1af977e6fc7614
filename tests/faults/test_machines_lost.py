"""A machine that is gone for good: it is named, and the run goes on elsewhere from the newest
checkpoint that is left."""

from __future__ import annotations

import time

import pytest

from faults import table
from faults.machines import MACHINES, until
from faults.sites import training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EVERY = 200
FLAGS = (f"--save_steps={EVERY}", "--pace=0.05")
SPARE = {"spare": True}


def _named(site, host):
    """`status` says that the host is gone; how long that took."""
    began = time.monotonic()
    until(lambda: any(e.startswith(f"{host}: ") for e in site.errors()), f"{host} in status")
    return time.monotonic() - began


def _resumed(site, task, host, before, *words):
    """It goes on there; the steps that were lost."""
    site.ok("resume", *words)
    lost = site.lost(task, host, before)
    site.goes_on(task, host, beyond=before - lost)
    assert set(site.states().values()) == {"READY"}
    return lost


def test_a_workers_machine_without_power_is_replaced_by_a_spare_one(tmp_path):
    hosts = {"chief": {"workers": 1}, "worker1": {"workers": 1}, "ps1": SPARE}
    with training(tmp_path, "train_mirrored.py", *FLAGS, hosts=hosts) as site:
        site.started()
        site.goes_on("worker:0", "chief", beyond=EVERY)
        MACHINES["worker1"].lose_power()
        began, before = time.monotonic(), site.step("worker:0", "chief")
        detected_s = _named(site, "worker1")
        assert "--without worker1" in site.tf("resume").stderr
        lost = _resumed(site, "worker:0", "chief", before, "--without", "worker1")
        assert lost <= EVERY
        assert site.tasks()["worker:1"]["host"] == "ps1"
        recovered_s = time.monotonic() - began
        fault = "16 a worker's machine loses its power, resume --without (mirrored)"
        table.record(fault, detected_s, recovered_s, lost, site.startup_s)


def test_the_chiefs_machine_without_power_leaves_its_checkpoint_on_another(tmp_path):
    hosts = {"ps0": {"ps": 1}, "chief": {"workers": 1}, "worker1": {"workers": 1}, "ps1": SPARE}
    copied = {"replicas": 1}
    with training(tmp_path, "train_async.py", *FLAGS, hosts=hosts, training=copied) as site:
        site.started()
        site.copied()
        before = site.step("worker:0", "chief")
        MACHINES["chief"].lose_power()
        began = time.monotonic()
        detected_s = _named(site, "chief")
        lost = _resumed(site, "worker:0", "ps1", before, "--without", "chief")
        recovered_s = time.monotonic() - began
        assert lost <= EVERY
        fault = (
            "16 the chief's machine loses its power, resume --without, replicas = 1 (asynchronous)"
        )
        table.record(fault, detected_s, recovered_s, lost, site.startup_s)


def test_a_chiefs_machine_cut_off_for_ever_leaves_what_run_brought_home(tmp_path):
    hosts = {"ps0": {"ps": 1}, "chief": {"chief": True}, "worker1": {"workers": 1}, "ps1": SPARE}
    with training(tmp_path, "train_ps_strategy.py", *FLAGS, hosts=hosts) as site:
        began = time.monotonic()
        run = site.begun("run")
        run.says("is READY")
        site.startup_s = time.monotonic() - began
        run.says("checkpoints/")
        before = site.step("chief:0", "chief")
        MACHINES["chief"].cut()
        began = time.monotonic()
        assert run.ended() == 1
        assert "chief: " in run.said and "--without chief" in run.said
        detected_s = time.monotonic() - began
        lost = _resumed(site, "chief:0", "ps1", before, "--without", "chief")
        recovered_s = time.monotonic() - began
        assert lost <= EVERY
        MACHINES["chief"].heal()
        until(lambda: len(MACHINES["chief"].processes()) <= 1, "the end of who was left alone")
        fault = (
            "16 the chief's machine is cut off for good, resume --without, from home (ps strategy)"
        )
        table.record(fault, detected_s, recovered_s, lost, site.startup_s)
