"""A live training continues on more machines, and then on fewer, from its newest checkpoint."""

from __future__ import annotations

import pytest
from support.sites import training

pytestmark = pytest.mark.slow

SAVE_STEPS = 40


@pytest.mark.parametrize("script", ["train_stub.py", "train_mirrored.py"])
def test_a_training_continues_with_other_numbers_of_workers(tmp_path, script):
    ps = {"ps0": {"ps": 1}} if script == "train_stub.py" else {}
    hosts = {**ps, "chief": {"workers": 1}, "worker1": {"spare": True}}
    with training(tmp_path, script, f"--save_steps={SAVE_STEPS}", hosts=hosts) as site:
        site.start()
        site.wait_for_step("worker:0", "chief", beyond=SAVE_STEPS)
        for words, workers in [(("workers=2", "--on", "worker1"), 2), (("workers=1",), 1)]:
            before = site.step("worker:0", "chief")
            scaled = site.ok("scale", *words)
            assert f" to {'1 ps and ' if ps else ''}{workers} worker" in scaled
            assert site.steps_lost("worker:0", "chief", before) <= 2 * SAVE_STEPS
            site.wait_for_step("worker:0", "chief", beyond=before)
            assert set(site.states().values()) == {"READY"}
            assert len([task for task in site.states() if task.startswith("worker")]) == workers
