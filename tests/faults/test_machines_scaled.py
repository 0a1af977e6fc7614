"""A live training continues on more machines, and then on fewer, from its newest checkpoint."""

from __future__ import annotations

import pytest
from support.sites import training

from faults.partition import cut_off_for_a_while

pytestmark = pytest.mark.slow

SAVE_STEPS = 40
MIRRORED = "train_mirrored.py"
CHIEF = ("worker:0", "chief")


@pytest.mark.parametrize("script", ["train_stub.py", MIRRORED])
def test_a_training_continues_with_other_numbers_of_workers(tmp_path, script):
    """That of mirrored workers also continues after their hosts could not reach each other."""
    ps = {} if script == MIRRORED else {"ps0": {"ps": 1}}
    hosts = {**ps, "chief": {"workers": 1}, "worker1": {"spare": True}}
    words = (tmp_path, script, f"--save_steps={SAVE_STEPS}")
    with training(*words, hosts=hosts, training={"orphan_timeout_s": 600}) as site:
        site.start()
        site.wait_for_step(*CHIEF, beyond=SAVE_STEPS)
        _scale(site, 2, "--on", "worker1", ps=ps)
        if script == MIRRORED:
            assert cut_off_for_a_while(site, "worker:0", ("worker1",), "mirrored") <= SAVE_STEPS
        _scale(site, 1, ps=ps)


def _scale(site, workers, *words, ps):
    before, restores = site.step(*CHIEF), len(site.restored_steps(*CHIEF))
    scaled = site.ok("scale", f"workers={workers}", *words)
    assert f" to {'1 ps and ' if ps else ''}{workers} worker" in scaled
    site.until(lambda: len(site.restored_steps(*CHIEF)) > restores, "a restored checkpoint")
    assert site.steps_lost(*CHIEF, before) <= 2 * SAVE_STEPS
    site.wait_for_step(*CHIEF, beyond=before)
    assert set(site.states().values()) == {"READY"}
    assert len([task for task in site.states() if task.startswith("worker")]) == workers
