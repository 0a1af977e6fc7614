"""Half of the hosts are cut off from the other half for a while, under each of TF2's strategies."""

from __future__ import annotations

import time

import pytest

from faults import table
from faults.machines import MACHINES, until
from faults.sites import training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CUT_S = 30.0
EVERY = 100
FLAGS = (f"--save_steps={EVERY}", "--pace=0.05")
SERVED = {
    "ps0": {"ps": 1}, "ps1": {"ps": 1}, "chief": {"chief": True}, "worker1": {"workers": 1},
}  # fmt: skip
MIRRORED = {"chief": {"workers": 1}, "worker1": {"workers": 1}}


@pytest.mark.parametrize(
    ("script", "hosts", "chief", "cut"),
    [
        ("train_ps_strategy.py", SERVED, "chief:0", ("ps1", "worker1")),
        ("train_mirrored.py", MIRRORED, "worker:0", ("worker1",)),
    ],
    ids=["ps_strategy", "mirrored"],
)
def test_a_cut_through_the_middle_heals_without_a_storm_of_restarts(
    tmp_path, script, hosts, chief, cut
):
    with training(
        tmp_path, script, *FLAGS, hosts=hosts, training={"orphan_timeout_s": 600}
    ) as site:
        site.started()
        site.goes_on(chief, "chief", beyond=EVERY)
        for host in cut:
            MACHINES[host].cut()
        time.sleep(CUT_S)
        said = site.steps(chief, "chief")
        for host in cut:
            MACHINES[host].heal()
        healed = time.monotonic()
        until(lambda: len(site.steps(chief, "chief")) > len(said), "it to go on")
        recovered_s = time.monotonic() - healed
        lost = site.lost(chief, "chief", said[-1]) if site.restored(chief, "chief") else 0
        site.goes_on(chief, "chief", beyond=said[-1])
        restarts = {task: told["restarts"] for task, told in site.tasks().items()}
        assert max(restarts.values()) <= 2, restarts
        assert lost <= EVERY
        kind = script.removeprefix("train_").removesuffix(".py").replace("_", " ")
        again = f"{kind}, {sum(restarts.values())} restarts"
        fault = f"39 no network for 30 s: half of the hosts ({again})"
        table.record(fault, None, recovered_s, lost, site.startup_s)
