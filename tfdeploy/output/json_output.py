"""The documents of --json, one function for each. Scripts rely on the field names. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import individual_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tfdeploy.commands.check import CheckResult
    from tfdeploy.commands.collect import CollectResult
    from tfdeploy.commands.fetch import FetchResult
    from tfdeploy.commands.host_facts import HostFacts
    from tfdeploy.commands.plan import Intent
    from tfdeploy.commands.prune import PruneResult, Removal
    from tfdeploy.commands.run import FinishedRun
    from tfdeploy.commands.runs import HostDisk, ProjectRuns
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.errors import TfdeployError
    from tfdeploy.experiments.compare import Comparison, RunSeries
    from tfdeploy.planning.plan import Placement
    from tfdeploy.release.snapshot import Release
    from tfdeploy.run import Run


LAUNCH_FIELDS = ("argv", "env", "files", "ready")


def plan_document(intent: Intent, notes: Iterable[TfdeployError]) -> dict[str, Any]:
    launches = {launch.task: launch for launch in intent.launches()}
    tasks = [
        {**_placement(p), **{key: getattr(launches[str(p.task)], key) for key in LAUNCH_FIELDS}}
        for p in intent.plan.placements
    ]
    return {
        "project": intent.inventory.project,
        "chief": str(intent.plan.chief.task),
        "chief_port": intent.plan.heartbeat_port,
        "cluster": intent.plan.cluster,
        "network": intent.inventory.network,
        "secrets": list(intent.inventory.training.secrets),
        "notes": _problems(notes),
        "release": _release(intent.release),
        "data": [{"place": place, **_data(intent, place)} for place in intent.data],
        "environments": _environments(intent),
        "tasks": tasks,
    }


def _environments(intent: Intent) -> list[dict[str, Any]]:
    """Return each environment with its hosts."""
    specs = {spec.id: spec for spec in intent.environments.values()}
    return [
        {
            "id": spec.id,
            "requirements": spec.packages,
            "locked": bool(spec.locked),
            "python": spec.python or None,
            "setup": list(spec.setup),
            "hosts": [host for host, each in intent.environments.items() if each.id == spec.id],
        }
        for spec in specs.values()
    ]


def _data(intent: Intent, place: str) -> dict[str, Any]:
    jobs = list(intent.inventory.data[place].jobs)
    return {**_release(intent.data[place]), "jobs": jobs, "hosts": intent.readers(place)}


def _release(release: Release) -> dict[str, Any]:
    return {"id": release.id, "files": len(release.manifest), "bytes": release.size}


def check_document(checked: CheckResult) -> dict[str, Any]:
    hosts = {
        facts.host: {
            "python": facts.python_version,
            "imports": (versions := _versions(facts)),
            "tensorflow": versions.get("tensorflow"),
            "libraries": dict(facts.libraries),
            "environment": facts.environment or None,
            "gpus": list(facts.gpus.values()),
            "gpus_seen": max((each.gpus for each in facts.imports.values()), default=0),
            "rsync": facts.rsync or None,
            "free_bytes": facts.free_bytes,
            "ahead_s": round(facts.ahead_s, 3),
        }
        for facts in checked.hosts
    }
    return {
        "hosts": hosts,
        "errors": _problems(checked.errors),
        "notes": _problems(checked.notes),
    }


def _versions(facts: HostFacts) -> dict[str, str | None]:
    """Return the versions of the imported modules; null if the import failed."""
    return {module: found.version or None for module, found in facts.imports.items()}


def failure_document(error: TfdeployError) -> dict[str, Any]:
    """What a failed command prints: `error` is everything in one message, `errors` has an object
    for each host and task."""
    return {"error": _problem(error), "errors": _problems([error])}


def _problems(errors: Iterable[TfdeployError]) -> list[dict[str, Any]]:
    return [_problem(each) for error in errors for each in individual_errors(error)]


def _problem(error: TfdeployError) -> dict[str, Any]:
    """`task` and `host` are null if the error is not about one; `log` is the end of the task's
    log."""
    *tasks, host = error.names or (None,)
    return {
        "host": host,
        "task": tasks[0] if tasks else None,
        "message": error.message,
        "hint": error.hint or None,
        "log": list(error.log),
    }


def status_document(status: RunStatus) -> dict[str, Any]:
    tasks = [
        {**_placement(task.placement), **(asdict(task.report) if task.report else {"state": None})}
        for task in status.tasks
    ]
    return {
        "run": status.run.id,
        "release": status.run.release,
        "network": status.run.inventory.network,
        "tasks": tasks,
        "errors": _problems(status.errors),
    }


def collect_document(run: Run, collected: CollectResult) -> dict[str, Any]:
    return {
        "run": run.id,
        "folder": str(collected.folder),
        "checkpoints": [asdict(checkpoint) for checkpoint in collected.checkpoints],
        "bad": [asdict(checkpoint) for checkpoint in collected.bad],
        "events": collected.events,
        "logs": collected.logs,
        "errors": _problems(collected.errors),
        **_outputs(collected),
    }


def _outputs(collected: CollectResult) -> dict[str, Any]:
    """`outputs` are files and folders on the controller; the others are on hosts."""
    outputs = collected.outputs
    return {
        "outputs": [asdict(output) for output in (*outputs.fetched, *outputs.unchanged)],
        "left": [asdict(skipped) for skipped in outputs.skipped],
        "others": [asdict(unlisted) for unlisted in outputs.unlisted],
        "elsewhere": [asdict(saved) for saved in collected.elsewhere],
    }


def fetch_document(run: Run, fetched: FetchResult) -> dict[str, Any]:
    return {
        "run": run.id,
        "folder": str(fetched.folder),
        "files": [asdict(output) for output in fetched.fetched],
        "left": [asdict(skipped) for skipped in fetched.skipped],
    }


def run_document(run: Run, finished: FinishedRun) -> dict[str, Any]:
    collected = finished.collected
    return {
        "run": run.id,
        "result": finished.result,
        "exit": finished.exit,
        "error": _problem(finished.failure) if finished.failure else None,
        "errors": _problems(finished.errors),
        "tasks": finished.states,
        "collected": str(collected.folder),
        "checkpoints": [asdict(checkpoint) for checkpoint in collected.checkpoints],
        **_outputs(collected),
    }


def runs_document(runs: ProjectRuns) -> dict[str, Any]:
    return {
        "project": runs.project,
        "runs": [asdict(run) for run in runs.runs],
        "hosts": {host: _disk(disk) for host, disk in runs.disks.items()},
        "errors": _problems(runs.errors),
    }


def _disk(disk: HostDisk) -> dict[str, Any]:
    return {
        "releases": [
            {"release": release.release, "age_s": release.age_s, "bytes": release.bytes}
            for release in disk.releases
        ],
        "environments": [
            {"environment": each.environment, "age_s": each.age_s, "bytes": each.bytes}
            for each in disk.environments
        ],
        "left_bytes": disk.left_bytes,
        "used_bytes": disk.used_bytes,
        "free_bytes": disk.free_bytes,
        "total_bytes": disk.total_bytes,
    }


def prune_document(
    runs: ProjectRuns, plan: Mapping[str, Removal], pruned: PruneResult | None
) -> dict[str, Any]:
    """`freed_bytes` is null if nothing was deleted: in a dry run, or on a host that was lost."""
    freed = pruned.freed if pruned else {}
    errors = [*runs.errors, *(pruned.errors if pruned else ())]
    hosts = {
        host: {
            "runs": [run.run for run in removal.runs],
            "releases": [release.release for release in removal.releases],
            "environments": [each.environment for each in removal.environments],
            "bytes": removal.bytes,
            "freed_bytes": freed.get(host),
        }
        for host, removal in plan.items()
    }
    return {"project": runs.project, "hosts": hosts, "errors": _problems(errors)}


def compare_document(comparison: Comparison, picture: Path) -> dict[str, Any]:
    """All values are smoothed, except the curves' `value`. A value that is not finite is null."""
    return {
        "tag": comparison.tag,
        "smooth_steps": comparison.smooth,
        "best_is": "highest" if comparison.rises else "lowest",
        "target": comparison.target,
        "picture": str(picture),
        "runs": [_run_series(run, comparison) for run in comparison.runs],
    }


def _run_series(run: RunSeries, comparison: Comparison) -> dict[str, Any]:
    step, seconds = comparison.target_point(run) or (None, None)
    values = {"first": run.smoothed[0], "last": run.smoothed[-1], "best": comparison.best(run)}
    return {
        "label": run.label,
        "run": run.run,
        "folder": str(run.folder),
        "tasks": dict(run.tasks),
        "steps": run.series[-1].step,
        "seconds": _number(run.seconds[-1]),
        "steps_per_s": _number(run.steps_per_s),
        **{name: _number(value) for name, value in values.items()},
        "reached": None if step is None else {"step": step, "seconds": _number(seconds)},
        "curve": {
            "step": [point.step for point in run.series],
            "seconds": _numbers(run.seconds),
            "value": _numbers(point.value for point in run.series),
            "smoothed": _numbers(run.smoothed),
        },
    }


def _numbers(values: Iterable[float | None]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def _placement(placement: Placement) -> dict[str, Any]:
    return {
        "task": str(placement.task),
        "host": placement.host,
        "address": placement.address,
        "port": placement.port,
        "gpus": list(placement.gpus),
    }
