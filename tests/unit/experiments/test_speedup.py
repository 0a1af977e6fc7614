"""Rates without the warm-up, speed-ups, loads, and the report of a sweep."""

from __future__ import annotations

import pytest

from tfdeploy.agent.protocol.reports import Load as HostLoad
from tfdeploy.experiments import report, speedup
from tfdeploy.experiments.scalars import Point
from tfdeploy.experiments.speedup import FAILED, MEASURED, Cell, Load, Rate, Result, Sweep


def series(*points):
    return tuple(Point(step, time_s, None) for step, time_s in points)


def measured(ps, workers, steps_per_s, **load):
    rate = Rate(steps_per_s, 45.0)
    return Result(Cell(workers, ps), f"run-{ps}-{workers}", MEASURED, "", rate, Load(**load))


def failed(ps, workers, reason="worker:1 on b: it ended: exit 1\n  | Traceback"):
    return Result(Cell(workers, ps), f"run-{ps}-{workers}", FAILED, reason)


def make_sweep(*results, **fields):
    return Sweep({result.cell: result for result in results}, {"project": "p"}, **fields)


# Rates


def test_the_first_quarter_of_the_time_is_warm_up():
    slow_at_first = series((0, 0.0), (1, 10.0), (11, 20.0), (21, 30.0), (31, 40.0))
    assert speedup.rate(slow_at_first) == Rate(1.0, 30.0)


def test_a_rate_is_computed_between_the_points_after_the_warm_up():
    assert speedup.rate(series((100, 50.0), (100, 51.0), (200, 60.0), (400, 70.0))) == Rate(
        20.0, 10
    )


@pytest.mark.parametrize(
    "points", [(), ((0, 1.0),), ((0, 1.0), (9, 2.0)), ((0, 1.0), (5, 1.1), (9, 2.0))]
)
def test_too_few_points_have_no_rate(points):
    assert speedup.rate(series(*points)) is None


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
    assert [sweep.speedup(result) for result in sweep] == [1.0, 1.8, None]
    assert [sweep.ideal(count) for count in (1, 2, 4)] == [1.0, 2.0, 4.0]


def test_a_synchronous_step_takes_a_batch_from_every_worker():
    results = [measured(1, 1, 10.0), measured(1, 4, 9.0)]
    sweep = make_sweep(*results, synchronous=True, examples_per_step=128)
    assert [sweep.speedup(result) for result in sweep] == [1.0, 3.6]
    assert [sweep.examples_per_s(result) for result in sweep] == [1280.0, 4608.0]
    assert make_sweep(*results, examples_per_step=128).examples_per_s(results[1]) == 1152.0
    assert make_sweep(*results).examples_per_s(results[1]) is None


def test_without_ps_a_separate_chief_trains_too():
    alone = make_sweep(measured(0, 1, 10.0), measured(0, 3, 9.0), synchronous=True, chief=True)
    assert [alone.batches_per_s(result) for result in alone] == [20.0, 36.0]
    assert [alone.ideal(count) for count in (1, 3)] == [1.0, 2.0]
    beside_ps = make_sweep(measured(1, 1, 10.0), measured(1, 3, 9.0), synchronous=True, chief=True)
    assert [beside_ps.batches_per_s(result) for result in beside_ps] == [10.0, 27.0]


def test_the_ideal_is_relative_to_the_fewest_workers():
    sweep = make_sweep(measured(1, 2, 10.0), measured(1, 4, 15.0))
    assert [sweep.ideal(count) for count in (2, 4)] == [1.0, 2.0]


def test_the_fewest_ps_near_the_best_speed_are_enough():
    two = [measured(1, 2, 19.5), measured(2, 2, 20.0)]
    four = [measured(1, 4, 25.0), measured(2, 4, 38.0), measured(3, 4, 39.0)]
    assert make_sweep(*two, *four).enough() == {2: Cell(2, 1), 4: Cell(4, 2)}
    assert make_sweep(measured(1, 2, 9.0), failed(2, 2)).enough() == {}


# Loads


def sample(at, received=0, sent=0, busy_s=0.0, **cpu_s):
    """Return a sample; `worker_0=4` are the CPU seconds of worker:0."""
    by_task = {task.replace("_", ":"): seconds for task, seconds in cpu_s.items()}
    return HostLoad(at, by_task, busy_s, received, sent)


def test_the_load_is_that_of_the_busiest_ps_worker_and_host():
    samples = {
        "a": [sample(100, 0, 50, ps_0=1, worker_0=4), sample(110, 1000, 150, ps_0=6, worker_0=9)],
        "b": [sample(7, ps_1=0, worker_1=2), sample(17, 10, 4000, ps_1=1, worker_1=22)],
    }
    assert speedup.load(samples) == Load(0.5, 2.0, 400.0, 0.0)


def test_other_cores_are_those_that_the_run_did_not_use():
    samples = {
        "a": [sample(0, busy_s=50, worker_0=4), sample(10, busy_s=60, worker_0=9)],
        "b": [sample(0, busy_s=9, worker_1=0), sample(10, busy_s=12, worker_1=3)],
    }
    assert speedup.load(samples).other_cores == 0.5


def test_a_task_that_exited_counts_until_its_last_sample():
    samples = [sample(0, worker_0=0), sample(10, worker_0=5), sample(20)]
    assert speedup.load({"a": samples}).worker_cores == 0.5


def test_the_cpu_time_of_an_exited_task_is_not_counted_as_others():
    samples = [sample(0, busy_s=0), sample(5, busy_s=4, worker_0=4), sample(10, busy_s=5)]
    assert speedup.load({"a": samples}).other_cores == pytest.approx(0.1)


def test_an_interface_that_disappears_gives_no_negative_traffic():
    assert speedup.load({"a": [sample(0, 900, 90), sample(10)]}).network_bytes_per_s == 0


def test_two_samples_at_the_same_time_give_no_load():
    assert speedup.load({"a": [sample(3, worker_0=0), sample(3, 9, worker_0=1)]}) == Load()


def test_one_sample_gives_no_load():
    assert speedup.load({"a": [sample(0, worker_0=0)], "b": []}) == Load()


# The report


def test_each_cell_is_reported_in_a_line():
    sweep = make_sweep(measured(1, 1, 17.4), measured(1, 2, 31.2), failed(2, 1))
    assert [report.line(sweep, result) for result in sweep] == [
        "1 ps, 1 worker: 17.4 steps/s, 1.00x",
        "2 ps, 1 worker: failed: worker:1 on b: it ended: exit 1",
        "1 ps, 2 workers: 31.2 steps/s, 1.79x",
    ]


def test_each_cell_has_a_row():
    load = {"ps_cores": 0.456, "worker_cores": 1.0, "network_bytes_per_s": 12_340_000.0}
    load["other_cores"] = 0.1
    sweep = make_sweep(measured(1, 1, 1234.5, **load), failed(1, 2))
    assert [report.row(sweep, result) for result in sweep] == [
        ("1", "1", "1234", "45", "1.00x", "0.456", "1", "0.1", "12.3 MB/s", "run-1-1", ""),
        (
            "1",
            "2",
            "failed",
            "-",
            "-",
            "-",
            "-",
            "-",
            "-",
            "run-1-2",
            "worker:1 on b: it ended: exit 1",
        ),
    ]
    assert all(len(report.row(sweep, result)) == len(report.columns(sweep)) for result in sweep)


def test_examples_have_a_column_if_they_are_counted():
    sweep = make_sweep(measured(1, 1, 10.0), failed(1, 2), examples_per_step=128)
    index = report.columns(sweep).index("EXAMPLES/S")
    assert [report.row(sweep, result)[index] for result in sweep] == ["1280", "-"]


def test_the_remarks_name_the_base_and_the_ps_that_are_enough():
    sweep = make_sweep(measured(1, 2, 10.0), measured(2, 2, 10.1), synchronous=True)
    remarks = list(report.remarks(sweep))
    assert remarks[0] == (
        "speed-up over 1 ps, 2 workers, in examples: a step takes a batch from every worker"
    )
    assert remarks[-1] == "for 2 workers: 1 ps is enough (within 5% of the fastest)"


def test_if_nothing_was_measured_the_whole_first_reason_is_printed():
    failures = [failed(1, 1, "it failed\n  | Traceback"), failed(1, 2, "it failed, too")]
    assert list(report.remarks(make_sweep(*failures))) == ["it failed\n  | Traceback"]
