"""What a resume continues from."""

from __future__ import annotations

import shutil

import pytest
from support.waiting import until


@pytest.mark.parametrize("replicas", [0, 1])
def test_another_host_than_the_chiefs_cannot_invent_a_checkpoint(by_ssh, replicas):
    """A host that was broken into claims a higher step than the chief has reached."""
    project = by_ssh.started("--steps=3", "--hold", training={"replicas": replicas})
    saved = project.work("worker:0") / "checkpoints"
    until(lambda: (saved / "model.ckpt-3.index").is_file(), "checkpoint 3")
    until(lambda: "ckpt-3" in (saved / "checkpoint").read_text(), "the state file")
    project.ok("stop")
    forged = project.on("one") / "runs" / project.runs[-1] / "replica"
    shutil.rmtree(forged, ignore_errors=True)
    shutil.copytree(saved, forged)
    for file in sorted(forged.glob("model.ckpt-3.*")):
        file.rename(str(file).replace("ckpt-3", "ckpt-999"))
    (forged / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-999"\n')
    done = project.tf("resume")
    assert "from model.ckpt-3" in done.stdout, done.stderr
    note = "model.ckpt-999 on one is not used: two, where the chief ran, has none of that name"
    assert (note in done.stderr) is bool(replicas)


def test_a_run_that_has_succeeded_is_collected_or_already_here(local):
    project = local.started("--steps=1")
    until(lambda: project.status()["worker:0"]["state"] == "SUCCEEDED", "the run's end")
    refused = project.tf("resume").stderr
    assert f"nothing to resume\n  tfdeploy collect --run {project.runs[-1]}" in refused
    project.ok("collect")
    assert f"its results are in {project.run_folder}" in project.tf("resume").stderr
