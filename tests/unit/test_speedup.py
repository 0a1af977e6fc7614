"""What runs come to: rates without the warm-up, speed-ups, loads, and how they are told."""

from __future__ import annotations

import pytest

from tfdeploy import speedup, verdict
from tfdeploy.curves import Point
from tfdeploy.speedup import FAILED, MEASURED, Cell, Load, Rate, Result, Sample, Sweep


def curve(*told):
    return tuple(Point(step, at, None) for step, at in told)


def measured(ps, workers, steps_per_s, **load):
    rate = Rate(steps_per_s, 45.0)
    return Result(Cell(workers, ps), f"run-{ps}-{workers}", MEASURED, "", rate, Load(**load))


def failed(ps, workers, reason="worker:1 on b: it ended: exit 1\n  | Traceback"):
    return Result(Cell(workers, ps), f"run-{ps}-{workers}", FAILED, reason)


def swept(*results, **more):
    return Sweep({each.cell: each for each in results}, {"project": "p"}, **more)


# Rates


def test_a_quarter_of_the_time_is_warm_up():
    slow_at_first = curve((0, 0.0), (1, 10.0), (11, 20.0), (21, 30.0), (31, 40.0))
    assert speedup.rate(slow_at_first) == Rate(1.0, 30.0)


def test_a_rate_is_of_the_told_moments_alone():
    assert speedup.rate(curve((100, 50.0), (100, 51.0), (200, 60.0), (400, 70.0))) == Rate(20.0, 10)


@pytest.mark.parametrize(
    "told", [(), ((0, 1.0),), ((0, 1.0), (9, 2.0)), ((0, 1.0), (5, 1.1), (9, 2.0))]
)
def test_too_few_points_have_no_rate(told):
    assert speedup.rate(curve(*told)) is None


# Speed-ups


def test_the_base_has_the_fewest_workers_and_of_these_the_fewest_ps():
    assert swept(measured(2, 1, 9), measured(1, 2, 9), measured(1, 1, 8)).base.cell == Cell(1, 1)
    assert swept(measured(2, 4, 9), measured(2, 2, 9)).base.cell == Cell(2, 2)


def test_what_failed_is_no_base():
    assert swept(failed(0, 1), measured(1, 1, 8)).base.cell == Cell(1, 1)
    assert swept(failed(0, 1)).base is None


def test_a_speed_up_is_of_steps():
    sweep = swept(measured(1, 1, 10.0), measured(1, 2, 18.0), failed(1, 4))
    assert [sweep.speedup(each) for each in sweep] == [1.0, 1.8, None]
    assert [sweep.ideal(count) for count in (1, 2, 4)] == [1.0, 2.0, 4.0]


def test_a_synchronous_step_takes_a_batch_from_every_worker():
    results = [measured(1, 1, 10.0), measured(1, 4, 9.0)]
    sweep = swept(*results, synchronous=True, examples_per_step=128)
    assert [sweep.speedup(each) for each in sweep] == [1.0, 3.6]
    assert [sweep.examples_per_s(each) for each in sweep] == [1280.0, 4608.0]
    assert swept(*results, examples_per_step=128).examples_per_s(results[1]) == 1152.0
    assert swept(*results).examples_per_s(results[1]) is None


def test_without_ps_a_chief_of_its_own_trains_too():
    alone = swept(measured(0, 1, 10.0), measured(0, 3, 9.0), synchronous=True, chief=True)
    assert [alone.pace(each) for each in alone] == [20.0, 36.0]
    assert [alone.ideal(count) for count in (1, 3)] == [1.0, 2.0]
    beside_ps = swept(measured(1, 1, 10.0), measured(1, 3, 9.0), synchronous=True, chief=True)
    assert [beside_ps.pace(each) for each in beside_ps] == [10.0, 27.0]


def test_without_one_worker_the_ideal_is_against_the_fewest():
    sweep = swept(measured(1, 2, 10.0), measured(1, 4, 15.0))
    assert [sweep.ideal(count) for count in (2, 4)] == [1.0, 2.0]


def test_the_fewest_ps_that_come_near_are_enough():
    two = [measured(1, 2, 19.5), measured(2, 2, 20.0)]
    four = [measured(1, 4, 25.0), measured(2, 4, 38.0), measured(3, 4, 39.0)]
    assert swept(*two, *four).enough() == {2: Cell(2, 1), 4: Cell(4, 2)}
    assert swept(measured(1, 2, 9.0), failed(2, 2)).enough() == {}


# Loads


def sample(at, received=0, sent=0, busy_s=0.0, **cpu_s):
    of_tasks = {task.replace("_", ":"): spent for task, spent in cpu_s.items()}
    return Sample(at, of_tasks, busy_s, received, sent)


def test_the_busiest_of_each_kind_counts():
    told = {
        "a": [sample(100, 0, 50, ps_0=1, worker_0=4), sample(110, 1000, 150, ps_0=6, worker_0=9)],
        "b": [sample(7, ps_1=0, worker_1=2), sample(17, 10, 4000, ps_1=1, worker_1=22)],
    }
    assert speedup.load(told) == Load(0.5, 2.0, 400.0, 0.0)


def test_what_a_host_did_besides_is_told():
    told = {
        "a": [sample(0, busy_s=50, worker_0=4), sample(10, busy_s=60, worker_0=9)],
        "b": [sample(0, busy_s=9, worker_1=0), sample(10, busy_s=12, worker_1=3)],
    }
    assert speedup.load(told).other_cores == 0.5


def test_a_task_that_ended_is_judged_by_what_was_told_before():
    told = [sample(0, worker_0=0), sample(10, worker_0=5), sample(20)]
    assert speedup.load({"a": told}).worker_cores == 0.5


def test_what_an_ended_task_spent_is_nobody_elses():
    ends = [sample(0, busy_s=0), sample(5, busy_s=4, worker_0=4), sample(10, busy_s=5)]
    assert speedup.load({"a": ends}).other_cores == pytest.approx(0.1)


def test_an_interface_that_goes_away_took_nothing_back():
    assert speedup.load({"a": [sample(0, 900, 90), sample(10)]}).network_bytes_per_s == 0


def test_two_looks_at_one_moment_tell_no_load():
    assert speedup.load({"a": [sample(3, worker_0=0), sample(3, 9, worker_0=1)]}) == Load()


def test_one_look_tells_no_load():
    assert speedup.load({"a": [sample(0, worker_0=0)], "b": []}) == Load()


# What is told


def test_a_line_a_cell():
    sweep = swept(measured(1, 1, 17.4), measured(1, 2, 31.2), failed(2, 1))
    assert [verdict.line(sweep, each) for each in sweep] == [
        "1 ps, 1 worker: 17.4 steps/s, 1.00x",
        "2 ps, 1 worker: failed: worker:1 on b: it ended: exit 1",
        "1 ps, 2 workers: 31.2 steps/s, 1.79x",
    ]


def test_a_row_a_cell():
    load = {"ps_cores": 0.456, "worker_cores": 1.0, "network_bytes_per_s": 12_340_000.0}
    load["other_cores"] = 0.1
    sweep = swept(measured(1, 1, 1234.5, **load), failed(1, 2))
    assert [verdict.row(sweep, each) for each in sweep] == [
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
    assert all(len(verdict.row(sweep, each)) == len(verdict.columns(sweep)) for each in sweep)


def test_examples_have_a_column_where_they_are_counted():
    sweep = swept(measured(1, 1, 10.0), failed(1, 2), examples_per_step=128)
    place = verdict.columns(sweep).index("EXAMPLES/S")
    assert [verdict.row(sweep, each)[place] for each in sweep] == ["1280", "-"]


def test_it_says_against_what_and_which_ps_count_does():
    sweep = swept(measured(1, 2, 10.0), measured(2, 2, 10.1), synchronous=True)
    remarks = list(verdict.remarks(sweep))
    assert remarks[0] == (
        "speed-up against 1 ps, 2 workers, in examples: a step takes some from every worker"
    )
    assert remarks[-1] == "for 2 workers: 1 ps, as fast as any number here within 5%"


def test_where_nothing_was_measured_the_first_reason_is_told_at_length():
    fallen = [failed(1, 1, "it fell\n  | Traceback"), failed(1, 2, "it fell, too")]
    assert list(verdict.remarks(swept(*fallen))) == ["it fell\n  | Traceback"]
