"""--notify of `run` and `attach`: send the summary of a run's end from the controller."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.agent.outputs import state_file
from tfdeploy.agent.records import is_url
from tfdeploy.agent.reports import notify, run_summary
from tfdeploy.agent.reports.run_summary import RunSummary
from tfdeploy.agent.runs.start_checks import expand_home
from tfdeploy.commands.status import status
from tfdeploy.config.option_values import parse_target
from tfdeploy.errors import PlanError, TfdeployError, individual_errors
from tfdeploy.transfer.checkpoints.state import read_state

if TYPE_CHECKING:
    from tfdeploy.commands.following.run_follow import RunEnd
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run


def find_target(written: str) -> list[str]:
    """Return the command, or the URL as its only word. Raises InventoryError, and PlanError if the
    program does not exist."""
    target = [expand_home(word) for word in parse_target(written)]
    if not is_url(target) and shutil.which(target[0]) is None:
        raise PlanError(f"--notify: the program {target[0]} is not on the controller")
    return target


def summarize(
    fleet: Fleet, run: Run, end: RunEnd | None, error: TfdeployError | None
) -> RunSummary:
    """Summarize a run that ended with `end`, or that `error` made unreachable (end: None)."""
    found = status(fleet, run)
    newest = read_state(run.open() / "checkpoints")[:1]
    steps = [state_file.step(name) for name in newest]
    result = end.result if end else "lost"
    verb = "logs" if result == "failed" else "status"
    return RunSummary(
        project=run.inventory.project,
        run=run.id,
        name=run.name,
        release=run.release,
        result=result,
        reason=_reason(found, end, error),
        exit=end.exit if end else 1,
        started=(run.folder / "run.json").stat().st_mtime,  # written at each start and resume
        ended=time.time(),
        restarts={
            str(task.placement.task): task.report.restarts for task in found.tasks if task.report
        },
        checkpoint_step=steps[0] if steps else None,
        hosts=list(run.plan.hosts),
        command=f"tfdeploy {verb} {run.flags}",
    )


def send_summary(target: list[str], run: Run, summary: RunSummary) -> None:
    """Send the summary to the command or the URL. Raises TfdeployError."""
    secrets = [os.environ.get(name, "") for name in run.inventory.training.secrets]
    document = json.dumps(run_summary.to_document(summary, secrets), ensure_ascii=False)
    names = {"TFDEPLOY_RUN": run.id, "TFDEPLOY_RELEASE": run.release}
    env = {**os.environ, **names, "TFDEPLOY_NAME": run.name or run.id}
    try:
        notify.send(target, document.encode(errors="replace"), env, str(Path.cwd()))
    except notify.NotSent as error:
        raise TfdeployError(f"--notify failed: {error}") from None


def _reason(found: RunStatus, end: RunEnd | None, error: TfdeployError | None) -> str:
    """Return one sentence: the root cause without the logs, or why the chief was stopped."""
    failure = (end.failure if end else None) or (None if end else error)
    if failure:
        first = individual_errors(failure)[0]
        names = f"{' on '.join(first.names)}: " if first.names else ""
        return names + first.message.splitlines()[0]
    report = found.report(str(found.run.plan.chief.task))
    return "" if not report or not end or end.result == "succeeded" else report.reason
