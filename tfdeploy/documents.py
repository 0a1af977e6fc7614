"""What --json prints: one function a document. Names here are a promise to scripts. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tfdeploy.plan import Placement
    from tfdeploy.release import Release
    from tfdeploy.run import Run
    from tfdeploy.speedup import Result, Sweep
    from tfdeploy.steps.check import Checked
    from tfdeploy.steps.collect import Collected
    from tfdeploy.steps.compare import Comparison, Told
    from tfdeploy.steps.plan import Intent
    from tfdeploy.steps.prune import Going, Pruned
    from tfdeploy.steps.run import Finished
    from tfdeploy.steps.runs import Disk, ProjectRuns
    from tfdeploy.steps.status import RunStatus


SHOWN = ("argv", "env", "files", "ready")


def plan(intent: Intent) -> dict[str, Any]:
    launches = {launch.task: launch for launch in intent.launches()}
    tasks = [
        {**_placed(p), **{key: getattr(launches[str(p.task)], key) for key in SHOWN}}
        for p in intent.plan.placements
    ]
    release = intent.release
    return {
        "project": intent.inventory.project,
        "chief": str(intent.plan.chief.task),
        "cluster": intent.plan.cluster,
        "release": _sized(release),
        "data": [{"place": place, **_data(intent, place)} for place in intent.data],
        "tasks": tasks,
    }


def _data(intent: Intent, place: str) -> dict[str, Any]:
    jobs = list(intent.inventory.data[place].jobs)
    return {**_sized(intent.data[place]), "jobs": jobs, "hosts": intent.readers(place)}


def _sized(release: Release) -> dict[str, Any]:
    return {"id": release.id, "files": len(release.manifest), "bytes": release.size}


def checked(seen: Checked) -> dict[str, Any]:
    hosts = {
        survey.host: {
            "python": survey.version,
            "tensorflow": survey.tensorflow or None,
            "gpus": list(survey.gpus.values()),
            "gpus_seen": survey.seen,
            "rsync": survey.rsync or None,
            "free_bytes": survey.free_bytes,
            "ahead_s": round(survey.ahead_s, 3),
        }
        for survey in seen.surveys
    }
    errors, notes = ([str(error) for error in told] for told in (seen.errors, seen.notes))
    return {"hosts": hosts, "errors": errors, "notes": notes}


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
        "bad": [asdict(checkpoint) for checkpoint in what.bad],
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


def runs(seen: ProjectRuns) -> dict[str, Any]:
    return {
        "project": seen.project,
        "runs": [asdict(line) for line in seen.lines],
        "hosts": {host: _room(disk) for host, disk in seen.disks.items()},
        "errors": [str(error) for error in seen.errors],
    }


def pruned(seen: ProjectRuns, going: Mapping[str, Going], done: Pruned | None) -> dict[str, Any]:
    """`freed_bytes` is null where nothing was touched: in a dry run, on a host that was lost."""
    freed = done.freed if done else {}
    errors = [*seen.errors, *(done.errors if done else ())]
    hosts = {
        host: {
            "runs": [run.run for run in what.runs],
            "releases": [release.release for release in what.releases],
            "bytes": what.bytes,
            "freed_bytes": freed.get(host),
        }
        for host, what in going.items()
    }
    return {"project": seen.project, "hosts": hosts, "errors": [str(error) for error in errors]}


def swept(sweep: Sweep) -> dict[str, Any]:
    """Speed-ups are against `base`. A figure that nobody told is null."""
    base = sweep.base and {"ps": sweep.base.cell.ps, "workers": sweep.base.cell.workers}
    enough = {str(workers): cell.ps for workers, cell in sweep.enough().items()}
    return {
        "terms": dict(sweep.terms),
        "examples_per_step": sweep.examples_per_step,
        "synchronous": sweep.synchronous,
        "base": base,
        "cells": [_measured(sweep, each) for each in sweep],
        "enough_ps": enough,
    }


def _measured(sweep: Sweep, result: Result) -> dict[str, Any]:
    steps_per_s, seconds = result.rate or (None, None)
    return {
        "ps": result.cell.ps,
        "workers": result.cell.workers,
        "run": result.run,
        "result": result.result,
        "reason": result.reason,
        "steps_per_s": steps_per_s,
        "seconds": seconds,
        "examples_per_s": sweep.examples_per_s(result),
        "speedup": sweep.speedup(result),
        "load": asdict(result.load),
    }


def compared(seen: Comparison, picture: Path) -> dict[str, Any]:
    """Values are smoothed, but for the curves' own; null stands for what is no number."""
    return {
        "tag": seen.tag,
        "smooth_steps": seen.smooth,
        "best_is": "highest" if seen.rises else "lowest",
        "target": seen.target,
        "picture": str(picture),
        "runs": [_told(told, seen) for told in seen.runs],
    }


def _told(told: Told, seen: Comparison) -> dict[str, Any]:
    step, seconds = seen.reached(told) or (None, None)
    values = {"first": told.smoothed[0], "last": told.smoothed[-1], "best": seen.best(told)}
    return {
        "label": told.label,
        "run": told.run,
        "folder": str(told.folder),
        "tasks": dict(told.tasks),
        "steps": told.curve[-1].step,
        "seconds": _number(told.seconds[-1]),
        "steps_per_s": _number(told.rate),
        **{name: _number(value) for name, value in values.items()},
        "reached": None if step is None else {"step": step, "seconds": _number(seconds)},
        "curve": {
            "step": [point.step for point in told.curve],
            "seconds": _numbers(told.seconds),
            "value": _numbers(point.value for point in told.curve),
            "smoothed": _numbers(told.smoothed),
        },
    }


def _numbers(values: Iterable[float | None]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: float | None) -> float | None:
    """JSON has neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None


def _room(disk: Disk) -> dict[str, Any]:
    return {
        "releases": [asdict(release) for release in disk.releases],
        "left_bytes": disk.left_bytes,
        "used_bytes": disk.used_bytes,
        "free_bytes": disk.free_bytes,
        "total_bytes": disk.total_bytes,
    }


def _placed(placement: Placement) -> dict[str, Any]:
    return {
        "task": str(placement.task),
        "host": placement.host,
        "address": placement.address,
        "port": placement.port,
        "gpus": list(placement.gpus),
    }
