"""The model of a worker's step: it finds known terms again, and says how wrong it is."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tfdeploy.experiments.speed.model import Model, Prediction, fit, predict, why_too_few
from tfdeploy.experiments.speed.results import MEASURED, Cell, Rate, Result, Sweep

TERMS = {"compute": 0.2, "update": 0.05, "bandwidth": 0.02}
GRID = [Cell(workers, ps) for workers in (1, 2, 4, 8) for ps in (1, 2, 4)]
LINE = [cell for cell in GRID if cell.ps == 1]


def step_s(cell):
    compute, update, bandwidth = TERMS.values()
    return compute + update / cell.ps + bandwidth * cell.workers / cell.ps


def sweep_of(rates, **fields):
    results = {
        (cell, 1): Result(cell, "r", MEASURED, "", Rate(rate, 45.0)) for cell, rate in rates.items()
    }
    return Sweep(results, {"project": "p"}, **fields)


def test_exact_measurements_give_the_terms_back():
    fitted = fit({cell: step_s(cell) for cell in GRID})
    assert fitted.terms == pytest.approx(TERMS)
    assert fitted.max_error < 1e-9
    assert fitted.is_trusted


def test_noisy_measurements_give_nearly_the_same_speeds():
    noise = random.Random(7)
    fitted = fit({cell: step_s(cell) * noise.uniform(0.97, 1.03) for cell in GRID})
    assert fitted.terms["compute"] == pytest.approx(TERMS["compute"], rel=0.1)
    assert fitted.terms["bandwidth"] == pytest.approx(TERMS["bandwidth"], rel=0.1)
    assert 0 < fitted.median_error < 0.05
    beyond = Cell(64, 4)
    assert fitted.worker_step_s(beyond) == pytest.approx(step_s(beyond), rel=0.1)


def test_with_one_number_of_ps_the_update_is_part_of_compute():
    fitted = fit({cell: step_s(cell) for cell in LINE})
    assert fitted.terms == pytest.approx({"compute": 0.25, "bandwidth": 0.02})


def test_no_term_is_negative():
    faster_together = fit({Cell(1, 1): 0.3, Cell(2, 1): 0.25, Cell(4, 1): 0.2})
    assert faster_together.terms["bandwidth"] == 0.0
    assert faster_together.terms["compute"] > 0.0


def test_an_error_is_that_of_a_cell_that_was_left_out():
    times = {cell: step_s(cell) for cell in LINE}
    times[Cell(8, 1)] *= 3
    fitted = fit(times)
    assert fitted.worst == Cell(8, 1)
    assert fitted.max_error == pytest.approx(2.0)  # the others predict a third of it
    assert not fitted.is_trusted


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([], "needs cells with ps"),
        ([Cell(1, 0), Cell(2, 0), Cell(4, 0)], "needs cells with ps"),
        ([Cell(2, 1), Cell(2, 2), Cell(2, 4)], "at least two numbers of workers"),
        ([Cell(1, 1), Cell(2, 2), Cell(4, 4)], "with the same number of ps"),
        ([Cell(1, 1), Cell(2, 1)], "at least 3 cells with ps; found 2"),
    ],
)
def test_too_few_cells_are_refused(cells, reason):
    assert reason in why_too_few(cells)
    if cells:
        assert reason in predict(sweep_of(dict.fromkeys(cells, 1.0)), 64)


@pytest.mark.parametrize("cells", [GRID, LINE, [*GRID[:3], Cell(2, 1)], [*LINE[:2], Cell(1, 2)]])
def test_each_fit_leaves_a_cell_for_its_error(cells):
    assert why_too_few(cells) == ""
    fitted = fit({cell: step_s(cell) for cell in cells})
    assert len(fitted.terms) < len(cells)
    assert set(fitted.errors) == set(cells)


def test_a_prediction_goes_in_powers_of_two_to_the_most_workers():
    asynchronous = sweep_of({cell: cell.workers / step_s(cell) for cell in LINE})
    prediction = predict(asynchronous, 48)
    assert isinstance(prediction, Prediction)
    assert [cell.workers for cell in prediction.cells] == [1, 2, 4, 8, 16, 32, 48]
    steps_per_s, speedup, _ = prediction.cells[Cell(48, 1)]
    assert steps_per_s == pytest.approx(48 / step_s(Cell(48, 1)))
    assert speedup == pytest.approx(steps_per_s * step_s(Cell(1, 1)))


def test_a_synchronous_step_is_predicted_for_all_workers():
    synchronous = sweep_of({cell: 1 / step_s(cell) for cell in LINE}, synchronous=True)
    steps_per_s, speedup, _ = predict(synchronous, 16).cells[Cell(16, 1)]
    assert steps_per_s == pytest.approx(1 / step_s(Cell(16, 1)))
    assert speedup == pytest.approx(16 * steps_per_s * step_s(Cell(1, 1)))


def test_the_range_of_a_prediction_is_that_of_models_of_each_repeat():
    def times(repeat):  # in each repeat the ps are slower
        return {cell: 0.2 + 0.02 * repeat * cell.workers for cell in LINE}

    results = {
        (cell, repeat): Result(cell, "r", MEASURED, "", Rate(cell.workers / seconds, 9.0))
        for repeat in (1, 2, 3)
        for cell, seconds in times(repeat).items()
    }
    found = predict(Sweep(results, {}), 64).cells[Cell(64, 1)]
    low, high = found.speedup_range
    assert high == pytest.approx(64 * 0.22 / (0.2 + 0.02 * 64))
    assert low == pytest.approx(64 * 0.26 / (0.2 + 0.06 * 64))
    assert low < found.speedup < high
    once = {key: result for key, result in results.items() if key[1] == 1}
    assert predict(Sweep(once, {}), 64).cells[Cell(64, 1)].speedup_range is None


def test_cells_without_ps_are_not_part_of_the_model():
    rates = {cell: cell.workers / step_s(cell) for cell in LINE}
    prediction = predict(sweep_of({**rates, Cell(1, 0): 99.0}), 4)
    assert prediction.model.terms == pytest.approx({"compute": 0.25, "bandwidth": 0.02})
    assert {cell.ps for cell in prediction.cells} == {1}


def test_the_simulated_table_of_the_documentation_is_that_of_the_model():
    page = (Path(__file__).parents[4] / "docs" / "measuring.md").read_text()
    comment, _, after = page.partition("<!-- simulated: ")[2].partition("-->")
    terms = {name: float(seconds) for name, seconds in re.findall(r"(\w+) ([0-9.]+)", comment)}
    rows = re.findall(r"^\| (\d+) \| (\S+) \| (\S+) \| (\S+) \|$", after, re.MULTILINE)
    simulated = Model(terms, {})
    one = simulated.worker_step_s(Cell(1, 1))
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    for row in rows:
        cells = [Cell(int(row[0]), ps) for ps in (1, 4, 16)]
        speedups = [cell.workers * one / simulated.worker_step_s(cell) for cell in cells]
        assert [f"{speedup:.1f}" for speedup in speedups] == list(row[1:])
