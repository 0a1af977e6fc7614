"""Half of the hosts are cut off from the other half for 30 s, under each of TF2's strategies."""

from __future__ import annotations

import time

import pytest
from support.machines import MACHINES
from support.sites import training

from faults import table

pytestmark = pytest.mark.slow

CUT_S = 30.0
SAVE_STEPS = 40
FLAGS = (f"--save_steps={SAVE_STEPS}",)
PS_STRATEGY_HOSTS = {
    "ps0": {"ps": 1}, "ps1": {"ps": 1}, "chief": {"chief": True}, "worker1": {"workers": 1},
}  # fmt: skip
MIRRORED_HOSTS = {"chief": {"workers": 1}, "worker1": {"workers": 1}}


@pytest.mark.parametrize(
    ("script", "hosts", "chief", "cut"),
    [
        ("train_ps_strategy.py", PS_STRATEGY_HOSTS, "chief:0", ("ps1", "worker1")),
        ("train_mirrored.py", MIRRORED_HOSTS, "worker:0", ("worker1",)),
    ],
    ids=["ps_strategy", "mirrored"],
)
def test_training_continues_after_a_partition_with_few_restarts(
    tmp_path, script, hosts, chief, cut
):
    with training(
        tmp_path, script, *FLAGS, hosts=hosts, training={"orphan_timeout_s": 600}
    ) as site:
        site.start()
        site.wait_for_step(chief, "chief", beyond=SAVE_STEPS)
        for host in cut:
            MACHINES[host].cut_network()
        time.sleep(CUT_S)
        steps = site.steps(chief, "chief")
        for host in cut:
            MACHINES[host].restore_network()
        healed_at = time.monotonic()
        site.until(lambda: len(site.steps(chief, "chief")) > len(steps), "further steps")
        recovered_s = time.monotonic() - healed_at
        lost = (
            site.steps_lost(chief, "chief", steps[-1]) if site.restored_steps(chief, "chief") else 0
        )
        site.wait_for_step(chief, "chief", beyond=steps[-1])
        restarts = {task: fields["restarts"] for task, fields in site.tasks().items()}
        assert max(restarts.values()) <= 2, restarts
        assert lost <= SAVE_STEPS
        kind = script.removeprefix("train_").removesuffix(".py").replace("_", " ")
        result = f"{kind}, {sum(restarts.values())} restarts"
        fault = f"39 no network for 30 s: half of the hosts ({result})"
        table.record(fault, None, recovered_s, lost, site.startup_s)
