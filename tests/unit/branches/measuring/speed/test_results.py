"""Rates without the warm-up, speed-ups of repeated runs, and the report of a sweep."""

from __future__ import annotations

import pytest

from tfdeploy.branches.measuring.scalars import Point
from tfdeploy.branches.measuring.speed import report
from tfdeploy.branches.measuring.speed.results import (
    ENDED,
    FAILED,
    MEASURED,
    Cell,
    Rate,
    Result,
    Sweep,
    rate,
)


def series(*points):
    return tuple(Point(step, time_s, None) for step, time_s in points)


def measured(ps, workers, steps_per_s, *, repeat=1, source="events"):
    speed = Rate(steps_per_s, 45.0, source)
    name = f"run-{ps}-{workers}"
    return Result(Cell(workers, ps), name, MEASURED, "", speed, repeat)


def failed(ps, workers, reason="worker:1 on b: it ended: exit 1\n  | Traceback", repeat=1):
    return Result(Cell(workers, ps), f"run-{ps}-{workers}", FAILED, reason, repeat=repeat)


def ended(ps, workers, steps_per_s, repeat=1):
    reason, speed = "worker:0 ended after 9 of 60 s", Rate(steps_per_s, 6.0)
    return Result(Cell(workers, ps), "run", ENDED, reason, speed, repeat=repeat)


def make_sweep(*results, **fields):
    return Sweep(results, **fields)


def medians(spreads):
    return [spread and spread.median for spread in spreads]


# Rates


def test_the_first_quarter_of_the_time_is_warm_up():
    slow_at_first = series((0, 0.0), (1, 10.0), (11, 20.0), (21, 30.0), (31, 40.0))
    assert rate(slow_at_first) == Rate(1.0, 30.0)


def test_a_rate_is_computed_between_the_points_after_the_warm_up():
    assert rate(series((100, 50.0), (100, 51.0), (200, 60.0), (400, 70.0))) == Rate(20.0, 10)


@pytest.mark.parametrize(
    "points", [(), ((0, 1.0),), ((0, 1.0), (9, 2.0)), ((0, 1.0), (5, 1.1), (9, 2.0))]
)
def test_too_few_points_have_no_rate(points):
    assert rate(series(*points)) is None


# Speed-ups


def test_the_base_has_the_fewest_workers_and_of_these_the_fewest_ps():
    assert make_sweep(measured(2, 1, 9), measured(1, 2, 9), measured(1, 1, 8)).base.cell == Cell(
        1, 1
    )
    assert make_sweep(measured(2, 4, 9), measured(2, 2, 9)).base.cell == Cell(2, 2)


def test_a_failed_result_is_no_base():
    assert make_sweep(failed(0, 1), measured(1, 1, 8)).base.cell == Cell(1, 1)
    assert make_sweep(failed(0, 1)).base is None


def test_an_asynchronous_speed_up_counts_steps():
    sweep = make_sweep(measured(1, 1, 10.0), measured(1, 2, 18.0), failed(1, 4))
    assert medians(map(sweep.speedup, sweep)) == [1.0, 1.8, None]
    assert [sweep.efficiency(each) for each in sweep] == [1.0, 0.9, None]


def test_a_synchronous_step_takes_a_batch_from_every_worker():
    sweep = make_sweep(measured(1, 1, 10.0), measured(1, 4, 9.0), synchronous=True)
    assert medians(map(sweep.speedup, sweep)) == [1.0, 3.6]
    assert [sweep.efficiency(each) for each in sweep] == [1.0, 0.9]


def test_the_efficiency_is_relative_to_the_fewest_workers():
    sweep = make_sweep(measured(1, 2, 10.0), measured(1, 4, 15.0))
    assert [sweep.efficiency(each) for each in sweep] == [1.0, 0.75]


def test_repeats_give_a_median_and_a_range():
    speeds = [(1, 10.0), (1, 9.0), (1, 11.0), (2, 18.0), (2, 16.5), (2, 20.0)]
    results = [measured(1, w, s, repeat=n) for n, (w, s) in enumerate(speeds)]
    sweep = make_sweep(*results)
    one, two = sweep
    assert one.steps_per_s == (10.0, 9.0, 11.0, 3)
    assert sweep.speedup(two) == (1.8, 16.5 / 11.0, 20.0 / 9.0, 3)
    assert sweep.speedup(one) == (1.0, 1.0, 1.0, 3)


def test_a_run_that_ended_early_is_not_compared():
    sweep = make_sweep(measured(1, 1, 10.0), ended(1, 2, 24.9), ended(2, 1, 50.0, repeat=2))
    assert [each.result for each in sweep] == [MEASURED, ENDED, ENDED]
    assert medians(map(sweep.speedup, sweep)) == [1.0, None, None]
    assert [each.cell for each in sweep.measured] == [Cell(1, 1)]


def test_a_cell_is_measured_if_any_of_its_runs_was():
    [results] = make_sweep(measured(1, 1, 10.0), failed(1, 1, "it failed", repeat=2))
    assert (results.result, results.failure.reason) == (MEASURED, "it failed")
    assert results.steps_per_s == (10.0, 10.0, 10.0, 1)


# The report


def test_each_run_is_reported_in_a_line():
    results = [measured(1, 1, 17.4, repeat=2), failed(2, 1), ended(1, 2, 24.9)]
    assert [report.line(result) for result in results] == [
        "1 ps, 1 worker: 17.4 steps/s (repeat 2)",
        "2 ps, 1 worker: failed: worker:1 on b: it ended: exit 1",
        "1 ps, 2 workers: not compared: worker:0 ended after 9 of 60 s",
    ]


def test_each_cell_has_a_row():
    repeated = [measured(1, 4, n * 1000.0, repeat=n) for n in (2, 3, 4)]
    sweep = make_sweep(measured(1, 1, 1234.5), failed(1, 2), *repeated)
    why = "run-1-2: worker:1 on b: it ended: exit 1"
    rows = [report.row(sweep, each) for each in sweep]
    assert [tuple(row[name] for name in report.COLUMNS) for row in rows] == [
        ("1", "1", "1", "1234", "1.00x", "100%", ""),
        ("1", "2", "0 of 1", "failed", "-", "-", why),
        ("1", "4", "3", "3000 (2000-4000)", "2.43x", "61%", ""),
    ]


def remarks(*results, **fields):
    return "\n".join(report.remarks(make_sweep(*results, **fields)))


def thrice(ps, workers, steps_per_s, **fields):
    return [
        measured(ps, workers, steps_per_s * factor, repeat=repeat, **fields)
        for repeat, factor in enumerate((0.99, 1.0, 1.01), 1)
    ]


def test_the_remarks_name_the_base_and_what_was_measured_to_differ():
    found = remarks(*thrice(1, 1, 10.0), *thrice(2, 1, 10.1), *thrice(1, 2, 9.0), synchronous=True)
    assert found.startswith(
        "speed-up over 1 ps, 1 worker, in batches: a step takes one from every worker\n"
    )
    assert "with 1 ps: 2 workers after 1: faster\n" in found
    assert found.endswith("for 1 worker: no difference measured between 1 and 2 ps")
    found = remarks(*thrice(1, 2, 10.0), *thrice(2, 2, 14.0), *thrice(3, 2, 14.1))
    assert "for 2 workers: 2 ps are enough (" in found


def test_cells_with_few_runs_are_said_to_be_not_compared():
    assert "a cell with fewer than 3 runs is not compared: raise --repeats" in remarks(
        measured(1, 1, 10.0), measured(2, 1, 20.0)
    )
    assert "not compared" not in remarks(*thrice(1, 1, 10.0))


def test_steps_that_were_read_from_a_log_are_said_so():
    found = remarks(measured(1, 1, 10.0, source="log"), measured(1, 2, 10.0))
    assert "the steps of 1 run are those in the chief's log" in found


def test_if_nothing_was_measured_the_whole_first_reason_is_printed():
    failures = [failed(1, 1, "it failed\n  | Traceback"), failed(1, 2, "it failed, too")]
    assert list(report.remarks(make_sweep(*failures))) == ["it failed\n  | Traceback"]
