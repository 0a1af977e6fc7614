"""What a sweep says of differences: only those that exceed the spread of its repeats."""

from __future__ import annotations

from unit.branches.measuring.speed.test_results import failed, make_sweep, measured

from tfdeploy.branches.measuring.speed import verdicts
from tfdeploy.branches.measuring.speed.verdicts import (
    FASTER,
    FEW_RUNS,
    NO_DIFFERENCE,
    SLOWER,
    PsVerdict,
)


def about(ps, workers, steps_per_s, spread=0.01):
    """Return three measured repeats around a speed."""
    return [
        measured(ps, workers, steps_per_s * factor, repeat=repeat)
        for repeat, factor in enumerate((1 - spread, 1.0, 1 + spread), 1)
    ]


def enough(*results):
    return list(verdicts.enough_ps(make_sweep(*results)))


def test_the_fewest_ps_that_are_not_measurably_slower_than_the_fastest_are_enough():
    results = [*about(1, 4, 25.0), *about(2, 4, 38.9), *about(3, 4, 39.0)]
    assert enough(*results) == [PsVerdict(4, (1, 2, 3), 2)]
    assert enough(*about(1, 4, 39.0), *about(2, 4, 25.0)) == [PsVerdict(4, (1, 2), 1)]


def test_a_difference_of_less_than_5_percent_does_not_make_more_ps_worth_it():
    results = [*about(1, 4, 38.0, 0.001), *about(2, 4, 39.0, 0.001), *about(3, 4, 20.0)]
    assert enough(*results) == [PsVerdict(4, (1, 2, 3), 1)]


def test_ranges_that_overlap_allow_no_verdict():
    [verdict] = enough(*about(1, 2, 19.0, 0.1), *about(2, 2, 20.0, 0.1))
    assert (verdict.enough, verdict.reason) == (None, NO_DIFFERENCE)


def test_fewer_than_three_runs_allow_no_verdict():
    [verdict] = enough(*about(1, 2, 10.0), *about(2, 2, 20.0)[:2])
    assert (verdict.enough, verdict.reason) == (None, FEW_RUNS)


def test_a_single_measured_number_of_ps_has_no_verdict():
    assert enough(*about(1, 2, 9.0), failed(2, 2)) == []


def test_more_workers_are_faster_slower_or_no_different():
    line = [*about(1, 1, 10.0), *about(1, 2, 18.0), *about(1, 4, 18.1), *about(1, 8, 15.0)]
    found = list(verdicts.more_workers(make_sweep(*line, *about(2, 1, 10.0))))
    assert [(each.before, each.workers, each.verdict) for each in found] == [
        (1, 2, FASTER), (2, 4, NO_DIFFERENCE), (4, 8, SLOWER),
    ]  # fmt: skip
    [once] = verdicts.more_workers(make_sweep(measured(1, 1, 10.0), measured(1, 2, 18.0)))
    assert once.verdict == FEW_RUNS


def test_the_batches_of_a_synchronous_step_are_compared():
    results = [*about(1, 1, 10.0), *about(1, 2, 9.0)]
    [verdict] = verdicts.more_workers(make_sweep(*results, synchronous=True))
    assert verdict.verdict == FASTER
