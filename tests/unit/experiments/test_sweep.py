"""How one cell of a sweep is run, stopped and deleted, and the plot of all cells."""

from __future__ import annotations

import pytest

from tfdeploy.errors import HostError
from tfdeploy.experiments.record import SweepRecord
from tfdeploy.experiments.speedup import FAILED, GOING, MEASURED, Cell, Rate, Result, Sweep
from tfdeploy.experiments.sweep import PICTURE, CellRunner, Watcher, draw
from unit.test_run import make_run

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
    return CellRunner(runs, record, Watcher())


def test_a_measured_run_is_deleted_from_the_hosts_and_a_failed_one_stays(runner, runs):
    runs.result = Result(ONE, runs.run.id, FAILED, "it failed")
    runner.measure(ONE, INTENT)
    assert runs.actions == []
    runs.result = Result(ONE, "second", MEASURED, "", Rate(1.0, 1.0))
    runner.measure(ONE, INTENT)
    assert runs.actions == [("remove", runs.run.id), ("remove", "second")]


def test_ctrl_c_stops_the_run_before_its_result_is_deleted(runner, runs, record):
    runs.result = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        runner.measure(ONE, INTENT)
    assert runs.actions == [("stop", runs.run.id), ("remove", runs.run.id)]
    assert record.sweep.results == {}


def test_a_run_that_can_not_be_stopped_at_ctrl_c_stays_in_the_record(runner, runs, record):
    runs.result, runs.stop_error = KeyboardInterrupt(), HostError("p", "it is gone")
    with pytest.raises(HostError):
        runner.measure(ONE, INTENT)
    assert record.sweep.results[ONE].result == GOING


# The plot


def test_the_plot_has_a_line_for_each_number_of_ps_and_the_ideal(tmp_path):
    one = Result(ONE, "r1", MEASURED, "", Rate(10.0, 45.0))
    two = Result(TWO, "r2", MEASURED, "", Rate(18.0, 45.0))
    draw(Sweep({ONE: one, TWO: two}, TERMS), tmp_path / PICTURE)
    text = (tmp_path / PICTURE).read_text()
    assert "speed-up over 1 ps, 1 worker" in text
    assert "ideal" in text


def test_without_results_there_is_no_plot(tmp_path):
    draw(Sweep({}, TERMS), tmp_path / PICTURE)
    assert not (tmp_path / PICTURE).exists()
