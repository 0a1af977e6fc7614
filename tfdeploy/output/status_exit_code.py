"""The exit code of `status --exit-code`, with the same meanings as systemctl's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.commands.following.training_history import progress_age_s
from tfdeploy.shared.records import ENDED, READY, RUNNING, STOPPED, SUCCEEDED

if TYPE_CHECKING:
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.shared.records import TaskReport

HEALTHY, UNHEALTHY, OVER = 0, 1, 3
PORTLESS = "-"
# A task whose last step is older is called stalled. Scripts write events far more often.
STALLED_S = 120.0


def exit_code(status: RunStatus) -> int:
    """Return HEALTHY if every task is READY and trains, or the run succeeded; OVER if it ended in
    any other way; UNHEALTHY in all other cases, and if a host did not answer."""
    reports = [task.report for task in status.tasks if task.report]
    if status.errors or len(reports) < len(status.tasks):
        return UNHEALTHY
    states = {report.state for report in reports}
    chief = status.report(str(status.run.plan.chief.task))
    if chief and chief.state == SUCCEEDED and states <= {SUCCEEDED, STOPPED}:
        return HEALTHY
    if states <= {*ENDED}:
        return OVER
    return HEALTHY if all(is_healthy(report) for report in reports) else UNHEALTHY


def is_healthy(report: TaskReport) -> bool:
    """Return whether the task succeeded, or is READY, answers on its port (if it has one), and is
    not known to be stalled."""
    answers = report.health in (READY, PORTLESS)
    return report.state == SUCCEEDED or (
        report.state == READY and answers and not is_stalled(report)
    )


def is_stalled(report: TaskReport) -> bool:
    """Return whether the task trains, and for STALLED_S has neither reported a step or a batch, nor
    printed anything, nor, as after a resume, changed its state. What it prints while TensorFlow
    waits for other tasks does not count."""
    trains = report.state in (READY, RUNNING) and report.step is not None
    signs = [progress_age_s(report), report.age_s]
    said = report.log_progress
    if report.quiet_s is not None and not (said and said.waits_for):
        signs.append(report.quiet_s)
    return trains and min(signs) > STALLED_S
