"""`status --exit-code`: 0 if all is well, 3 if the run ended in another way, else 1."""

from __future__ import annotations

import pytest

from tfdeploy.commands.status import RunStatus, TaskStatus
from tfdeploy.commands.watching.history import STALLED_S
from tfdeploy.errors import Unreachable
from unit.output.samples import make_report, make_run

HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2"
SILENT_S = STALLED_S + 1
STALLED = {"step": 7, "step_age_s": SILENT_S, "age_s": SILENT_S}
RESUMED = {**STALLED, "age_s": 1.0}
READY, PORTLESS = {}, {"health": "-"}
ENDED = {state: {"state": state, "health": "-"} for state in ("SUCCEEDED", "STOPPED", "FAILED",
                                                              "LOST")}  # fmt: skip


def exit_code(*reports, errors=()):
    """Return the exit code for the reports of the ps, the chief and a worker: each is a dict of
    what differs from READY, or None for no report."""
    run = make_run(HOSTS)
    tasks = tuple(
        TaskStatus(p, None if changes is None else make_report(task=str(p.task), **changes))
        for p, changes in zip(run.plan.placements, reports, strict=True)
    )
    return RunStatus(run, tasks, tuple(errors)).exit_code


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ((READY, READY, READY), 0),
        ((PORTLESS, PORTLESS, PORTLESS), 0),
        ((READY, READY, ENDED["SUCCEEDED"]), 0),
        ((ENDED["STOPPED"], ENDED["SUCCEEDED"], ENDED["SUCCEEDED"]), 0),
        ((ENDED["STOPPED"], ENDED["SUCCEEDED"], ENDED["STOPPED"]), 0),
        ((READY, READY, {"health": "FROZEN"}), 1),
        ((READY, READY, {"state": "BACKOFF", "health": "-"}), 1),
        ((READY, READY, {"state": "RUNNING", "health": "NOT_LISTENING"}), 1),
        ((READY, READY, STALLED), 1),
        ((READY, READY, RESUMED), 0),
        ((READY, READY, ENDED["LOST"]), 1),
        ((READY, READY, None), 1),
        ((ENDED["STOPPED"], ENDED["SUCCEEDED"], ENDED["FAILED"]), 0),
        ((ENDED["STOPPED"], ENDED["STOPPED"], ENDED["STOPPED"]), 3),
        ((ENDED["LOST"], ENDED["FAILED"], ENDED["SUCCEEDED"]), 3),
        ((None, None, None), 1),
    ],
)
def test_the_exit_code_follows_from_the_states_of_the_tasks(reports, expected):
    assert exit_code(*reports) == expected


def test_a_host_that_does_not_answer_is_unhealthy():
    assert exit_code(READY, READY, READY, errors=[Unreachable("gpu", "gone")]) == 1
