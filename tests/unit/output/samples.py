"""A run of one ps and one worker, and reports of its tasks."""

from __future__ import annotations

from support.builders import make_inventory, make_plan

from tfdeploy.run import Run
from tfdeploy.shared.records import TaskReport

RUN_ID = "20260101-000000-abcd"
HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\ngpus = 2\nworkers = 1\ngpus_per_worker = 2"


def make_run(hosts=HOSTS):
    return Run(RUN_ID, "f00d", "a9e", make_inventory(hosts), make_plan(hosts))


def make_report(**changes):
    fields = {
        "task": "worker:0", "state": "READY", "age_s": 75.0, "pid": 7, "exit": None, "restarts": 0,
        "reason": "", "health": "READY",
    }  # fmt: skip
    return TaskReport(**{**fields, **changes})
