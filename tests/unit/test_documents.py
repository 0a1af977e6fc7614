"""What commands return becomes JSON; an error is the same object in each document."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from tfdeploy.commands.collect import CollectResult
from tfdeploy.commands.resume import ResumeResult
from tfdeploy.commands.running.run import FinishedRun
from tfdeploy.commands.runs import HostDisk, ProjectRuns
from tfdeploy.commands.scale import ScaleResult
from tfdeploy.commands.status import RunStatus
from tfdeploy.commands.stop import StopResult
from tfdeploy.config.cluster import Task
from tfdeploy.documents import Failure, to_json
from tfdeploy.errors import FleetError, RunError, TaskFailed, Unreachable
from tfdeploy.output.documents import prune_document
from tfdeploy.shared.protocol.runs import HeldEnvironment, HeldRelease

from .output.samples import make_run

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
    "status": lambda *errors: RunStatus(make_run(), (), errors),
    "collect": lambda *errors: collected(*errors),
    "run": lambda *errors: finished(errors=errors),
    "runs": lambda *errors: project_runs(errors),
    "prune": lambda *errors: prune_document(project_runs(errors), {}, None),
    "stop": lambda *errors: StopResult({}, None, errors),
    "a failed command": lambda *errors: Failure(FleetError(errors)),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_errors_are_objects_that_name_their_host_and_task(name):
    assert to_json(DOCUMENTS[name](GONE, FAILED))["errors"] == [HOST, TASK]


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "a failed command"])
def test_errors_of_several_hosts_are_separate_objects(name):
    assert to_json(DOCUMENTS[name](FleetError([GONE, FAILED])))["errors"] == [HOST, TASK]


def test_the_failure_of_a_run_is_an_object():
    assert to_json(finished(FAILED))["error"] == TASK
    assert to_json(finished())["error"] is None


def test_the_error_of_a_failed_command_is_an_object():
    document = to_json(Failure(RunError("there is no run", "tfdeploy runs")))
    neither = {"host": None, "task": None, "log": []}
    error = {"message": "there is no run", "hint": "tfdeploy runs", **neither}
    assert document == {"error": error, "errors": [error]}


def test_runs_lists_the_releases_on_each_host():
    disk = HostDisk((), (HeldRelease("0123abcd", 60.0, 4096),), 0, 1000, 2000)
    document = to_json(ProjectRuns("p", (), {"gpu-01": disk}, ()))
    assert document["hosts"]["gpu-01"]["releases"] == [
        {"release": "0123abcd", "age_s": 60.0, "bytes": 4096}
    ]


def test_a_resume_notes_the_tasks_that_may_still_run_on_hosts_that_were_left_out():
    left = TaskFailed("worker:1", "gpu-02", "may still be running")
    resumed = ResumeResult(make_run(), None, (), StopResult({}, None), 1.0, 2.0, (left,))
    found = to_json(ScaleResult("1 worker", "2 workers", resumed))
    assert [(note["task"], note["host"]) for note in found["notes"]] == [("worker:1", "gpu-02")]
    assert (found["run"], found["checkpoint"]) == (make_run().id, None)


@dataclass(frozen=True)
class Part:
    size: int
    where: Path


class Pair(NamedTuple):
    value: float
    task: Task


@dataclass(frozen=True)
class Whole:
    KEYS = ("name", "both", "part", "other")
    NAMES: ClassVar = {"both": "pairs"}
    MERGED: ClassVar = {"part": Part, "other": Part}

    name: str
    hidden: str
    part: Part
    other: Part | None

    @property
    def both(self):
        return (Pair(1.0, Task("ps", 0)), Pair(math.inf, Task("worker", 1)))


def test_keys_are_those_that_a_class_names_and_those_of_what_is_merged():
    pairs = [{"value": 1.0, "task": "ps:0"}, {"value": None, "task": "worker:1"}]
    assert to_json(Whole("a", "b", Part(3, Path("/x")), Part(4, Path("/y")))) == {
        "name": "a", "pairs": pairs, "size": 3, "where": "/x"
    }  # fmt: skip


def test_what_is_merged_and_missing_has_all_keys():
    @dataclass(frozen=True)
    class Missing:
        MERGED: ClassVar = {"part": Part}
        part: Part | None

    assert to_json(Missing(None)) == {"size": None, "where": None}


def test_a_record_of_a_host_shows_only_its_keys():
    found = to_json({1: [HeldEnvironment("e", 1.0, 2, "wheels-1")]})
    assert found == {"1": [{"environment": "e", "age_s": 1.0, "bytes": 2}]}
