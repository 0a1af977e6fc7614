"""The prices of hosts, of a million examples, and the cheapest cell."""

from __future__ import annotations

import pytest

from tfdeploy.errors import PlanError
from tfdeploy.experiments.speed import verdicts
from tfdeploy.experiments.speed.results import MEASURED, Cell, Prices, Rate, Result, Sweep

HOSTS = ("cpu", "gpu-01", "gpu-02")


def sweep_of(speeds, hosts, **fields):
    """Return a sweep of 1 ps; `speeds` and `hosts` are by the number of workers."""
    results = {
        (Cell(workers, 1), repeat): Result(
            Cell(workers, 1), "r", MEASURED, "", Rate(speed, 9.0), repeat=repeat,
            hosts=hosts[workers],
        )
        for workers, of_cell in speeds.items()
        for repeat, speed in enumerate(of_cell, 1)
    }  # fmt: skip
    return Sweep(results, {}, **fields)


def test_a_number_is_the_price_of_all_hosts_without_their_own():
    prices = verdicts.parse_prices(["0.4", "gpu-[01-02]=3"], HOSTS)
    assert [prices.of(host) for host in HOSTS] == [0.4, 3.0, 3.0]
    assert verdicts.parse_prices([], HOSTS) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cheap"], 'found "cheap"'),
        (["-1"], 'found "-1"'),
        (["nan"], 'found "nan"'),
        (["gpu-01="], 'found "gpu-01="'),
        (["gpu-[01=3"], 'expected a "]"'),
        (["1", "gpu-03=3"], 'there is no host "gpu-03"'),
        (["gpu-01=3", "cpu=1"], "host gpu-02 has no price"),
    ],
)
def test_bad_prices_are_refused(words, message):
    with pytest.raises(PlanError) as error:
        verdicts.parse_prices(words, HOSTS)
    assert message in error.value.message
    assert "--price-per-hour" in error.value.hint


def test_a_million_examples_cost_the_hours_of_all_hosts_that_the_cell_uses():
    prices = Prices({"gpu-01": 3.0}, 0.6)
    sweep = sweep_of({1: [10.0]}, {1: ("cpu", "gpu-01")}, prices=prices, examples_per_step=100)
    hours = 1e6 / (10.0 * 100) / 3600
    assert verdicts.per_million(sweep, sweep.base).median == pytest.approx(3.6 * hours)


def test_without_examples_batches_are_counted():
    fields = {"prices": Prices({}, 3.6), "synchronous": True}
    sweep = sweep_of({2: [10.0]}, {2: ("cpu",)}, **fields)
    assert verdicts.per_million(sweep, sweep.base).median == pytest.approx(1e6 / 20 / 1000)


def test_the_cheapest_cell_is_named_with_those_that_do_not_differ():
    hosts = {1: ("a",), 2: ("a", "b"), 4: ("a", "b", "c", "d")}
    speeds = {1: [10.0, 11.0, 12.0], 2: [21.0, 22.5, 25.0], 4: [25.0, 26.0, 27.0]}
    found = verdicts.cheapest(sweep_of(speeds, hosts, prices=Prices({}, 1.0)))
    assert (found.cell, found.equal) == (Cell(2, 1), (Cell(1, 1),))


def test_one_cell_or_no_prices_have_no_cheapest():
    assert verdicts.cheapest(sweep_of({1: [1.0]}, {1: ("a",)}, prices=Prices({}, 1.0))) is None
    assert verdicts.cheapest(sweep_of({1: [1.0], 2: [1.0]}, {1: (), 2: ()})) is None
