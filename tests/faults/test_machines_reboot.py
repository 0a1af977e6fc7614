"""`run --resilient` resumes by itself after a reboot, and after the loss of a machine."""

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
