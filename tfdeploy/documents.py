"""What --json prints: one function a document. Names here are a promise to scripts. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdeploy.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.steps.collect import Collected
    from tfdeploy.steps.plan import Intent
    from tfdeploy.steps.run import Finished
    from tfdeploy.steps.status import RunStatus


def plan(intent: Intent) -> dict[str, Any]:
    launches = {launch.task: launch for launch in intent.launches()}
    tasks = [
        {**_placed(p), "argv": launches[str(p.task)].argv, "env": launches[str(p.task)].env}
        for p in intent.plan.placements
    ]
    release = intent.release
    return {
        "project": intent.inventory.project,
        "chief": str(intent.plan.chief.task),
        "cluster": intent.plan.cluster,
        "release": {"id": release.id, "files": len(release.manifest), "bytes": release.size},
        "tasks": tasks,
    }


def status(seen: RunStatus) -> dict[str, Any]:
    tasks = [
        {**_placed(task.placement), **(asdict(task.report) if task.report else {"state": None})}
        for task in seen.tasks
    ]
    errors = [str(error) for error in seen.errors]
    return {"run": seen.run.id, "release": seen.run.release, "tasks": tasks, "errors": errors}


def collected(run: Run, what: Collected) -> dict[str, Any]:
    return {
        "run": run.id,
        "folder": str(what.folder),
        "checkpoints": [asdict(checkpoint) for checkpoint in what.checkpoints],
        "events": what.events,
        "logs": what.logs,
    }


def finished(run: Run, what: Finished) -> dict[str, Any]:
    return {
        "run": run.id,
        "result": "succeeded" if what.exit == 0 else "failed",
        "exit": what.exit,
        "error": str(what.failure) if what.failure else None,
        "tasks": what.states,
        "collected": str(what.collected.folder),
        "checkpoints": [asdict(checkpoint) for checkpoint in what.collected.checkpoints],
    }


def _placed(placement: Placement) -> dict[str, Any]:
    return {
        "task": str(placement.task),
        "host": placement.host,
        "address": placement.address,
        "port": placement.port,
        "gpus": list(placement.gpus),
    }
