"""A machine that reboots without its processes, or never comes back: it is reported, and the run
resumes from the newest checkpoint that is left, if need be on another host."""

from __future__ import annotations

import time

import pytest
from support.machines import MACHINES
from support.sites import training

from faults import table

pytestmark = pytest.mark.slow

SAVE_STEPS = 40
FLAGS = (f"--save_steps={SAVE_STEPS}",)
SPARE = {"spare": True}
# All containers share one kernel and its boot id, so a reboot may look like a kill.
REBOOT_REASONS = ("its supervisor was killed", "the host restarted")


def _detection_s(site, host):
    """Wait until `status` has an error for the host; return how long that took."""
    started_at = time.monotonic()
    site.until(lambda: host in site.unreachable(), f"{host} in status")
    return time.monotonic() - started_at


def _resume(site, task, host, before, *words):
    """Resume, wait until the task continues on the host, and return the lost steps."""
    restores = len(site.restored_steps(task, host))
    site.ok("resume", *words)
    lost = site.steps_lost(task, host, before, restores)
    site.wait_for_step(task, host, beyond=before - lost)
    assert set(site.states().values()) == {"READY"}
    return lost


def test_a_rebooted_host_is_reported_and_then_a_machine_without_power_is_replaced(tmp_path):
    hosts = {"ps0": {"ps": 1}, "chief": {"chief": True}, "worker1": {"workers": 1}, "ps1": SPARE}
    with training(tmp_path, "train_stub.py", *FLAGS, hosts=hosts) as site:
        site.start()
        site.wait_for_step("chief:0", "chief", beyond=SAVE_STEPS)
        _reboot(site)
        _lose_the_workers_machine(site)


def _reboot(site):
    before = site.step("chief:0", "chief")
    rebooted_at = time.monotonic()
    MACHINES["ps0"].reboot()
    task = site.until(lambda: _lost_task(site, "ps:0"), "ps:0 to be LOST")
    detected_s = time.monotonic() - rebooted_at
    assert task["reason"] in REBOOT_REASONS
    lost = _resume(site, "chief:0", "chief", before)
    recovered_s = time.monotonic() - rebooted_at
    assert lost <= SAVE_STEPS
    fault = "17 the ps's host reboots, resume, stub"
    table.record(fault, detected_s, recovered_s, lost, site.startup_s)


def _lost_task(site, name):
    task = site.tasks()[name]
    return task if task["state"] == "LOST" else None


def _lose_the_workers_machine(site):
    MACHINES["worker1"].lose_power()
    lost_at, before = time.monotonic(), site.step("chief:0", "chief")
    detected_s = _detection_s(site, "worker1")
    assert "--without worker1" in site.tf("resume").stderr
    lost = _resume(site, "chief:0", "chief", before, "--without", "worker1")
    assert lost <= SAVE_STEPS
    assert site.tasks()["worker:0"]["host"] == "ps1"
    recovered_s = time.monotonic() - lost_at
    fault = "16 a worker's machine loses its power, resume --without, stub"
    table.record(fault, detected_s, recovered_s, lost, site.startup_s)


def test_the_chief_resumes_from_a_collected_checkpoint_when_its_machine_is_cut_off(tmp_path):
    hosts = {"ps0": {"ps": 1}, "chief": {"chief": True}, "worker1": {"workers": 1}, "ps1": SPARE}
    with training(tmp_path, "train_stub.py", *FLAGS, hosts=hosts) as site:
        started_at = time.monotonic()
        run = site.start_command("run")
        run.wait_for_output("is READY")
        site.startup_s = time.monotonic() - started_at
        run.wait_for_output("checkpoints/")
        collected_step = site.collected_step()
        before = site.step("chief:0", "chief")
        MACHINES["chief"].cut_network()
        lost_at = time.monotonic()
        assert run.wait() == 1
        assert "chief: " in run.output and "--without chief" in run.output
        detected_s = time.monotonic() - lost_at
        lost = _resume(site, "chief:0", "ps1", before, "--without", "chief")
        recovered_s = time.monotonic() - lost_at
        assert site.restored_steps("chief:0", "ps1")[-1] >= collected_step
        MACHINES["chief"].restore_network()
        site.until(lambda: len(MACHINES["chief"].processes()) <= 1, "the end of the abandoned task")
        fault = "16 the chief's machine is cut off for good, resume --without, from home, stub"
        table.record(fault, detected_s, recovered_s, lost, site.startup_s)
