"""Fault 32: tfdeploy is upgraded on the controller during a run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import tfdeploy
from faults.fault import Fault

pytestmark = pytest.mark.slow


def test_a_newer_tfdeploy_controls_and_resumes_the_run_of_an_older_one(
    training, tmp_path, monkeypatch
):
    run = training("train_stub.py", "--steps=1000000").start()
    run.wait_for_checkpoint()
    newer = tmp_path / "newer" / "tfdeploy"
    shutil.copytree(Path(tfdeploy.__file__).parent, newer)
    with (newer / "agent" / "__main__.py").open("a") as module:
        module.write("# newer\n")
    monkeypatch.setenv("PYTHONPATH", str(newer.parent))
    agents = Path(run.hosts["here"]["directory"]) / "agent"
    (older,) = agents.iterdir()
    fault = Fault(run)
    run.wait_for_health()
    assert "step " in run.ok("logs", "worker:0", "-n", "1")
    assert "checkpoint" in run.ok("collect")
    run.ok("stop")
    assert list(agents.iterdir()) == [older]
    fault.start_recovery()
    run.ok("resume")
    fault.wait_for_restore()
    assert len(os.listdir(agents)) == 2
    run.wait_for_health()
    fault.record("32 upgrade in mid-run: stop, then resume with the newer one")
