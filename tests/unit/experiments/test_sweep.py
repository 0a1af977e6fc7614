"""How one cell of a sweep is run, stopped and deleted, and the plot of all cells."""

from __future__ import annotations

import pytest
from support.builders import make_run

from tfdeploy.errors import HostError
from tfdeploy.experiments.record import SweepRecord
from tfdeploy.experiments.speed.results import (
    ENDED,
    FAILED,
    MEASURED,
    RUNNING,
    Cell,
    Rate,
    Result,
    Sweep,
)
from tfdeploy.experiments.sweep import CellRunner, SweepWatcher

ONE, TWO = Cell(1, 1), Cell(2, 1)
TERMS = {"project": "p"}
INTENT = None  # what the cell runs, which only the runs themselves use


class FakeRuns:
    """The runs of a cell, without hosts. A test sets the `result` of the measurement, an exception
    or not, and the `stop_error`, an exception or None. `actions` are what was done to runs."""

    def __init__(self, run):
        self.run, self.actions, self.result, self.stop_error = run, [], None, None

    def plan(self, intent):
        return self.run

    def measure(self, cell, planned):
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def stop(self, planned):
        self.actions.append(("stop", planned.id))
        if self.stop_error:
            raise self.stop_error

    def remove(self, intent, run_id):
        self.actions.append(("remove", run_id))


@pytest.fixture
def runs(tmp_path):
    return FakeRuns(make_run(tmp_path))


@pytest.fixture
def record(tmp_path):
    return SweepRecord(tmp_path, Sweep({}, TERMS))


@pytest.fixture
def runner(runs, record):
    return CellRunner(runs, record, SweepWatcher())


def test_a_measured_run_is_deleted_from_the_hosts_and_a_failed_one_stays(runs, record):
    runs.result = Result(ONE, runs.run.id, FAILED, "it failed")
    CellRunner(runs, record, SweepWatcher()).measure(ONE, 1, INTENT)
    assert runs.actions == []
    runs.result = Result(ONE, "second", MEASURED, "", Rate(1.0, 1.0))
    CellRunner(runs, record, SweepWatcher()).measure(ONE, 1, INTENT)
    assert runs.actions == [("remove", runs.run.id), ("remove", "second")]


def test_each_repeat_of_a_cell_is_measured_once_and_recorded_with_its_hosts(runner, runs, record):
    for cell, repeat in ((ONE, 1), (ONE, 2), (ONE, 1), (TWO, 1), (ONE, 2)):
        runs.result = Result(cell, "r", MEASURED, "", Rate(1.0, 1.0))
        runner.measure(cell, repeat, INTENT)
    assert runs.actions == [("remove", "r")] * 3
    assert list(record.sweep.results) == [(ONE, 1), (ONE, 2), (TWO, 1)]
    hosts = {run.hosts for run in record.sweep.results.values()}
    assert hosts == {tuple(runs.run.plan.hosts)}


@pytest.mark.parametrize("outcome", [FAILED, ENDED])
def test_a_cell_that_was_not_measured_is_not_repeated_by_the_same_sweep(runs, record, outcome):
    runs.result = Result(ONE, "r", outcome, "a reason", Rate(1.0, 1.0))
    runner = CellRunner(runs, record, SweepWatcher())
    for repeat in (1, 2):
        runner.measure(ONE, repeat, INTENT)
    assert list(record.sweep.results) == [(ONE, 1)]
    CellRunner(runs, record, SweepWatcher()).measure(ONE, 2, INTENT)
    assert list(record.sweep.results) == [(ONE, 1), (ONE, 2)]


def test_ctrl_c_stops_the_run_before_its_result_is_deleted(runner, runs, record):
    runs.result = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        runner.measure(ONE, 1, INTENT)
    assert runs.actions == [("stop", runs.run.id), ("remove", runs.run.id)]
    assert record.sweep.results == {}


def test_a_run_that_can_not_be_stopped_at_ctrl_c_stays_in_the_record(runner, runs, record):
    runs.result, runs.stop_error = KeyboardInterrupt(), HostError("p", "it is gone")
    with pytest.raises(HostError):
        runner.measure(ONE, 1, INTENT)
    assert record.sweep.results[ONE, 1].result == RUNNING


# The plot
