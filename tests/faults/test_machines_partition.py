"""Half of the hosts of a ParameterServerStrategy are cut off; and where its checkpoints are.

test_machines_scaled.py does the same to workers that mirror their variables.
"""

from __future__ import annotations

import json

import pytest
from support import tensors
from support.sites import training

from faults.partition import cut_off_for_a_while

pytestmark = pytest.mark.slow

SAVE_STEPS = 40
FLAGS = (f"--save_steps={SAVE_STEPS}",)
HOSTS = {
    "ps0": {"ps": 1}, "ps1": {"ps": 1}, "chief": {"chief": True}, "worker1": {"workers": 1},
}  # fmt: skip
SLOPES = (2.0, -3.0, 0.5)  # which train_ps_strategy.py learns
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def test_training_continues_after_a_partition_and_the_chief_saves_all_variables(tmp_path):
    table = {"orphan_timeout_s": 600}
    with training(tmp_path, "train_ps_strategy.py", *FLAGS, hosts=HOSTS, training=table) as site:
        site.start()
        site.wait_for_step("chief:0", "chief", beyond=SAVE_STEPS)
        lost = cut_off_for_a_while(site, "chief:0", ("ps1", "worker1"), "ps strategy")
        assert lost <= SAVE_STEPS
        site.ok("stop")
        _assert_the_chief_alone_has_saved_all_variables(site)


def _assert_the_chief_alone_has_saved_all_variables(site):
    """The variables are those of two ps, and each host has its own disk."""
    saved = max(site.saved_steps("chief:0", "chief"))
    for task, host in (("ps:0", "ps0"), ("ps:1", "ps1"), ("worker:0", "worker1")):
        assert site.saved_steps(task, host) == []
    assert json.loads(site.ok("collect", "--json"))["checkpoints"][0]["step"] == saved
    values = tensors.read(site.folder / "runs" / site.run / "checkpoints")
    assert values[f"model/step/{VALUE}"] == saved
    # On their way from 0 to the slopes.
    weights = zip(values[f"model/weights/{VALUE}"], SLOPES, strict=True)
    assert all(0 < weight / slope < 1.1 for [weight], slope in weights)
