"""Machines that reboot without their processes, and `run --resilient`, which resumes by itself."""

from __future__ import annotations

import time

import pytest
from support.machines import MACHINES
from support.sites import training

from faults import table

pytestmark = pytest.mark.slow

SAVE_STEPS = 40
FLAGS = (f"--save_steps={SAVE_STEPS}",)
HOSTS = {
    "ps0": {"ps": 1},
    "chief": {"chief": True},
    "worker1": {"workers": 1},
    "ps1": {"spare": True},
}
# All containers share one kernel and its boot id, so a reboot may look like a kill.
REBOOT_REASONS = ("its supervisor was killed", "the host restarted")


def test_a_host_that_rebooted_is_reported_and_resume_continues(tmp_path):
    with training(tmp_path, "train_stub.py", *FLAGS, hosts=HOSTS) as site:
        site.start()
        site.wait_for_step("chief:0", "chief", beyond=SAVE_STEPS)
        before = site.step("chief:0", "chief")
        rebooted_at = time.monotonic()
        MACHINES["ps0"].reboot()
        task = site.until(lambda: _lost_task(site, "ps:0"), "ps:0 to be LOST")
        detected_s = time.monotonic() - rebooted_at
        assert task["reason"] in REBOOT_REASONS
        site.ok("resume")
        lost = site.steps_lost("chief:0", "chief", before)
        site.wait_for_step("chief:0", "chief", beyond=before - lost)
        recovered_s = time.monotonic() - rebooted_at
        assert lost <= SAVE_STEPS
        assert set(site.states().values()) == {"READY"}
        fault = "17 the ps's host reboots, resume, stub"
        table.record(fault, detected_s, recovered_s, lost, site.startup_s)


def _lost_task(site, name):
    task = site.tasks()[name]
    return task if task["state"] == "LOST" else None


def test_run_resilient_survives_a_reboot_and_the_loss_of_the_chiefs_machine(tmp_path):
    training_table = {"replicas": 1, "orphan_timeout_s": 100}
    with training(tmp_path, "train_stub.py", *FLAGS, hosts=HOSTS, training=training_table) as site:
        started_at = time.monotonic()
        run = site.start_command("run", "--resilient")
        run.wait_for_output("is READY")
        site.startup_s = time.monotonic() - started_at
        _inject_and_wait(site, run, "chief", 1, MACHINES["ps0"].reboot, "17 the ps's host reboots")
        shut_down = MACHINES["chief"].shut_down
        _inject_and_wait(
            site, run, "ps1", 2, shut_down, "16 the chief's host is shut down, replicas = 1"
        )
        run.kill()


def _inject_and_wait(site, run, host, times, fault, name):
    """Inject `fault`; wait until the run has resumed for the `times`-th time, with the chief on
    `host`."""
    copied_step = site.wait_for_replica()
    before = site.step("chief:0", site.host("chief:0"))
    started_at = time.monotonic()
    fault()
    site.until(lambda: run.output.count("resumes from") == times, "run to resume")
    lost = site.steps_lost("chief:0", host, before)
    site.wait_for_step("chief:0", host, beyond=before - lost)
    assert site.restored_steps("chief:0", host)[-1] >= copied_step
    row = f"{name}, run --resilient, stub"
    table.record(row, None, time.monotonic() - started_at, lost, site.startup_s)
