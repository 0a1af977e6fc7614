"""Runs as they are on the controller when they have ended and were collected."""

from __future__ import annotations

import json
from dataclasses import replace

from support.builders import make_run
from support.events import record, scalar_event, write
from tfdeploy import run as runs
from tfdeploy.branches.measuring.run_report.facts import gather

ONE, TWO = "20260101-000000-aaaa", "20260102-000000-bbbb"
START = 1767225600.0  # 2026-01-01 00:00:00 UTC
HOSTS = "[hosts.a]\nps = 1\n[hosts.b]\nworkers = 2\ngpus = 2\ngpus_per_worker = 1"


def change(at, state, **more):
    return json.dumps({"at": START + at, "state": state, **more})


def finished_run(folder, run_id=ONE, *, name="", words=(), hosts=HOSTS, losses=(2.0, 1.0, 0.5),
                 **toml):  # fmt: skip
    """Collect a run with a restart of worker:1, events, logs, a checkpoint; return the Run."""
    made = make_run(folder, run_id=run_id, hosts=hosts, **toml)
    run = replace(made, name=name, words=words)
    runs.save(run)
    events = [record(scalar_event(10 * n, START + 5 + n, loss=v)) for n, v in enumerate(losses)]
    if events:
        write(run.folder / "events", *events)
    (run.folder / "logs").mkdir(exist_ok=True)
    for placement in run.plan.placements:
        task = placement.task.file_name
        write_history(run, task, change(0, "STARTING"), change(4, "READY"), change(60, "SUCCEEDED"))
        (run.folder / "logs" / f"{task}.log").write_text(f"{task} trains\nstep 1\n")
    write_history(
        run, "worker-1", change(0, "STARTING"), change(4, "READY"),
        change(20, "BACKOFF", reason="killed by SIGKILL; restart 1 of 10"),
        change(22, "RUNNING", restarts=1), change(25, "READY", restarts=1),
        change(60, "SUCCEEDED", restarts=1, reason="exit 0"),
    )  # fmt: skip
    (run.folder / "checkpoints").mkdir()
    (run.folder / "checkpoints" / "model.ckpt-20.index").write_bytes(b"weights")
    return run


def write_history(run, task, *lines):
    (run.folder / "logs").mkdir(exist_ok=True)
    file = run.folder / "logs" / f"{task}.history.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))


def facts_of(run):
    return gather(run, None)
