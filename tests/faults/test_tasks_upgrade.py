"""Fault 32: tfdeploy is upgraded in the middle of a run, which knows nothing of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import tfdeploy
from faults.fault import Fault

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_newer_tfdeploy_sees_stops_collects_and_resumes_an_older_ones_run(
    training, tmp_path, monkeypatch
):
    run = training("train_async.py", "--steps=1000000").start()
    run.trains()
    newer = tmp_path / "newer" / "tfdeploy"
    shutil.copytree(Path(tfdeploy.__file__).parent, newer)
    with (newer / "agent" / "__main__.py").open("a") as module:
        module.write("# newer\n")
    monkeypatch.setenv("PYTHONPATH", str(newer.parent))
    agents = Path(run.hosts["here"]["directory"]) / "agent"
    (older,) = agents.iterdir()
    fault = Fault(run)
    assert {told["health"] for told in run.status().values()} == {"READY"}
    assert "step " in run.ok("logs", "worker:0", "-n", "1")
    assert "checkpoint" in run.ok("collect")
    run.ok("stop")
    assert list(agents.iterdir()) == [older]
    fault.mended()
    run.ok("resume")
    fault.restored()
    assert fault.steps_lost <= 200
    assert len(os.listdir(agents)) == 2
    assert {told["health"] for told in run.status().values()} == {"READY"}
    fault.record("32 upgrade in mid-run: stop, then resume with the newer one")
