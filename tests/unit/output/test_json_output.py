"""Errors in the documents of --json: the same object in each."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tfdeploy.commands.collect import CollectResult
from tfdeploy.commands.run import FinishedRun
from tfdeploy.commands.runs import HostDisk, ProjectRuns
from tfdeploy.commands.status import RunStatus
from tfdeploy.commands.stop import StopResult
from tfdeploy.errors import FleetError, RunError, TaskFailed, Unreachable
from tfdeploy.output import json_output
from tfdeploy.shared.protocol.runs import HeldRelease

from .samples import make_run

GONE = Unreachable("gpu-01", "no answer", "ssh gpu-01")
FAILED = TaskFailed("worker:1", "gpu-02", "exit 1", log=["Traceback"])
HOST = {"host": "gpu-01", "task": None, "message": "no answer", "hint": "ssh gpu-01", "log": []}
TASK = {
    "host": "gpu-02", "task": "worker:1", "message": "exit 1", "hint": None, "log": ["Traceback"]
}  # fmt: skip


def collected(*errors):
    return CollectResult(Path("/runs/r"), "", (), 0, 0, errors=errors)


def finished(failure=None, errors=()):
    return FinishedRun(int(bool(failure)), failure, "failed", collected(), {}, errors)


def project_runs(errors):
    return ProjectRuns("p", (), {}, errors)


DOCUMENTS = {
    "status": lambda *errors: json_output.status_document(RunStatus(make_run(), (), errors)),
    "collect": lambda *errors: json_output.collect_document(make_run(), collected(*errors)),
    "run": lambda *errors: json_output.run_document(make_run(), finished(errors=errors)),
    "runs": lambda *errors: json_output.runs_document(project_runs(errors)),
    "prune": lambda *errors: json_output.prune_document(project_runs(errors), {}, None),
    "stop": lambda *errors: json_output.stop_document(make_run(), StopResult({}, None, errors)),
    "a failed command": lambda *errors: json_output.failure_document(FleetError(errors)),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_errors_are_objects_that_name_their_host_and_task(name):
    assert asdict(DOCUMENTS[name](GONE, FAILED))["errors"] == [HOST, TASK]


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "a failed command"])
def test_errors_of_several_hosts_are_separate_objects(name):
    assert asdict(DOCUMENTS[name](FleetError([GONE, FAILED])))["errors"] == [HOST, TASK]


def test_the_failure_of_a_run_is_an_object():
    assert asdict(json_output.run_document(make_run(), finished(FAILED)))["error"] == TASK
    assert json_output.run_document(make_run(), finished()).error is None


def test_the_error_of_a_failed_command_is_an_object():
    document = asdict(json_output.failure_document(RunError("there is no run", "tfdeploy runs")))
    neither = {"host": None, "task": None, "log": []}
    error = {"message": "there is no run", "hint": "tfdeploy runs", **neither}
    assert document == {"error": error, "errors": [error]}


def test_runs_lists_the_releases_on_each_host():
    disk = HostDisk((), (HeldRelease("0123abcd", 60.0, 4096),), 0, 1000, 2000)
    document = asdict(json_output.runs_document(ProjectRuns("p", (), {"gpu-01": disk}, ())))
    assert document["hosts"]["gpu-01"]["releases"] == [
        {"release": "0123abcd", "age_s": 60.0, "bytes": 4096}
    ]
