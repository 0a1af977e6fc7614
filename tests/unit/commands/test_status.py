"""What a status says of tasks that wait for other tasks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.builders import make_inventory

from tfdeploy.commands.status import status
from tfdeploy.errors import Unreachable
from tfdeploy.planning import placing
from tfdeploy.run import Run
from tfdeploy.shared.protocol.record import replace
from tfdeploy.shared.protocol.reports import TaskReports
from tfdeploy.shared.records import LogProgress
from unit.output.samples import make_report

HOSTS = "".join(f'[hosts.gpu-{n}]\naddress = "10.0.0.{n}"\nworkers = 1\n' for n in range(1, 7))


class FleetOf:
    """A fleet whose hosts answer with these reports; None: the host is away."""

    def __init__(self, reports):
        self._reports = reports

    def outcomes(self, hosts, ask, on_wait=None):
        return {host: self._outcome(host, ask) for host in hosts}

    def _outcome(self, host, ask):
        report = self._reports[host]
        if report is None:
            return Unreachable(host, "no route")
        return ask(SimpleNamespace(host=host, ask=lambda request: TaskReports([report])))


def reason_of_the_first(reports, training=""):
    inventory = make_inventory(HOSTS, training=training)
    run = Run("run-1", "f00d", "a9e", inventory, placing.make_plan_from_addresses(inventory))
    return status(FleetOf(reports), run).report("worker:0").reason


@pytest.fixture
def reports():
    return {f"gpu-{n + 1}": make_report(task=f"worker:{n}", health="READY") for n in range(6)}


def waiting(reports, *tasks, **changes):
    said = LogProgress(waits_for=list(tasks))
    return {**reports, "gpu-1": replace(reports["gpu-1"], log_progress=said, **changes)}


def test_a_task_that_waits_for_nobody_has_no_reason(reports):
    assert reason_of_the_first(reports) == ""


def test_the_reason_says_how_the_missing_task_is(reports):
    reports["gpu-2"] = make_report(
        task="worker:1", state="BACKOFF", health="-", reason="exit 1", age_s=12.0
    )
    assert reason_of_the_first(waiting(reports, "worker:1")) == (
        "TensorFlow waits for worker:1 on gpu-2 (BACKOFF for 12s: exit 1)"
    )


def test_the_reason_says_what_its_port_answers_and_which_host_is_away(reports):
    reports["gpu-2"] = make_report(task="worker:1", state="RUNNING", health="FROZEN", age_s=3.0)
    reports["gpu-3"] = None
    assert reason_of_the_first(waiting(reports, "worker:1", "worker:2")) == (
        "TensorFlow waits for worker:1 on gpu-2 (RUNNING for 3s, port FROZEN) "
        "and worker:2 on gpu-3 (no report)"
    )


def test_of_many_missing_tasks_only_the_first_are_named(reports):
    reason = reason_of_the_first(waiting(reports, *(f"worker:{n}" for n in range(1, 6))))
    assert reason.count("worker:") == 3
    assert reason.endswith(" and 2 more")


def test_jobs_have_their_names_in_scripts(reports):
    training = '[training.worker]\nname = "trainer"'
    assert "worker:1 on gpu-2" in reason_of_the_first(waiting(reports, "trainer:1"), training)
    assert reason_of_the_first(waiting(reports, "worker:1"), training) == ""


def test_a_reason_of_the_supervisor_stays(reports):
    assert reason_of_the_first(waiting(reports, "worker:1", reason="exit 1")) == "exit 1"
