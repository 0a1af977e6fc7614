"""What a resume continues from."""

from __future__ import annotations

import shutil

from support.waiting import until


def test_a_host_without_the_results_of_the_chief_cannot_offer_a_checkpoint(by_ssh):
    """A host that was broken into claims a higher step than the chief has reached."""
    project = by_ssh.started("--steps=3", "--hold")
    saved = project.work("worker:0") / "checkpoints"
    until(lambda: (saved / "model.ckpt-3.index").is_file(), "checkpoint 3")
    until(lambda: "ckpt-3" in (saved / "checkpoint").read_text(), "the state file")
    project.ok("stop")
    forged = project.on("one") / "runs" / project.runs[-1] / "replica"
    shutil.copytree(saved, forged)
    for file in sorted(forged.glob("model.ckpt-3.*")):
        file.rename(str(file).replace("ckpt-3", "ckpt-999"))
    (forged / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-999"\n')
    assert "from model.ckpt-3" in project.ok("resume")


def test_a_run_that_has_succeeded_is_collected_or_already_here(local):
    project = local.started("--steps=1")
    until(lambda: project.status()["worker:0"]["state"] == "SUCCEEDED", "the run's end")
    refused = project.tf("resume").stderr
    assert f"nothing to resume\n  tfdeploy collect --run {project.runs[-1]}" in refused
    project.ok("collect")
    assert f"its results are in {project.run_folder}" in project.tf("resume").stderr
