"""A live training continues on more machines, and then on fewer, from its newest checkpoint."""

from __future__ import annotations

import pytest
from support.sites import training

from faults.partition import cut_off_for_a_while

pytestmark = pytest.mark.slow

SAVE_STEPS = 40
CHIEF = ("worker:0", "chief")


def test_a_training_continues_with_other_numbers_of_workers_and_after_a_cut(tmp_path):
    hosts = {"chief": {"workers": 1}, "worker1": {"spare": True}}
    words = (tmp_path, "train_mirrored.py", f"--save_steps={SAVE_STEPS}")
    with training(*words, hosts=hosts, training={"orphan_timeout_s": 600}) as site:
        site.start()
        site.wait_for_step(*CHIEF, beyond=SAVE_STEPS)
        _scale(site, 2, "--on", "worker1")
        assert cut_off_for_a_while(site, "worker:0", ("worker1",), "mirrored") <= SAVE_STEPS
        _scale(site, 1)


def _scale(site, workers, *words):
    before, restores = site.step(*CHIEF), len(site.restored_steps(*CHIEF))
    assert f" to {workers} worker" in site.ok("scale", f"workers={workers}", *words)
    assert site.steps_lost(*CHIEF, before, restores) <= 2 * SAVE_STEPS
    site.wait_for_step(*CHIEF, beyond=before)
    assert set(site.states().values()) == {"READY"}
    assert len(site.states()) == workers
