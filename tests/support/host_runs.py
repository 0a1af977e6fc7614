"""Runs and releases as they are stored on a host."""

from __future__ import annotations

import os
import time
from pathlib import Path

from support.builders import make_launch
from support.releases import write_manifest
from tfdeploy.agent import paths
from tfdeploy.shared import records
from tfdeploy.shared.records import TaskState

OLD_S = 1000.0


def create_run(run, *tasks, state="SUCCEEDED", release="f00d", age_s=OLD_S, **more):
    """Create a run whose tasks were launched and have `state` (None: no state written yet)."""
    for name in tasks:
        job, index = name.split(":")
        folder = paths.task("p", run, name)
        os.makedirs(paths.work(folder))
        task_launch = make_launch(run=run, job=job, index=int(index), release=release, **more)
        records.write(paths.launch(folder), records.to_json(task_launch))
        os.utime(paths.launch(folder), (time.time() - age_s,) * 2)
        if state:
            task_state = TaskState(state, time.time())
            records.write(paths.state(folder), records.to_json(task_state))
    return paths.run("p", run)


def create_release(name):
    folder = Path(paths.release("p", name))
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("train")
    write_manifest(folder)
    folder.chmod(0o555)
    return folder
