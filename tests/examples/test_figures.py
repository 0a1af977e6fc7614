"""docs/recipes.md says what its raw data says, and the simulation behind it is sound."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from statistics import median

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[2]
EXAMPLES, DOCS = REPOSITORY / "examples", REPOSITORY / "docs"


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Let `digits` and `figures` be imported, as in the folder of the examples."""
    before = set(sys.modules)
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("digits", "figures"):
            del sys.modules[name]


@pytest.fixture
def data():
    from figures import store

    return store.read(store.SIMULATION), store.read(store.REAL)


def simulated(algorithm, **changes):
    from figures.simulate import Setting, Simulation

    setting = Setting(algorithm, workers=4, window=5, rate=0.2, seed=3, batches=400, points=5)
    return Simulation(setting._replace(**changes)).run()


def test_the_page_is_what_the_raw_data_gives(data):
    from figures import page

    assert (DOCS / "recipes.md").read_text() == page.render(*data)


def test_every_number_of_a_table_comes_from_the_raw_data(data):
    from figures import page

    def cells(text):
        return re.findall(r"^\| .*\d.*$", text, re.M)

    simulation, real = data
    other = {**simulation, "scaling": [{**run, "loss": 9.0} for run in simulation["scaling"]]}
    changed = {**real, "runs": [{**run, "loss": 9.0} for run in real["runs"]]}
    assert cells(page.render(other, real)) != cells(page.render(simulation, real))
    assert cells(page.render(simulation, changed)) != cells(page.render(simulation, real))


def test_the_recipe_with_the_lowest_real_loss_comes_first(data):
    _, real = data
    table = (DOCS / "recipes.md").read_text().split("## Real runs")[1].split("**So that")[0]
    named = re.findall(r"^\| ([a-z-]+) \| [\d.]", table, re.M)
    pause = real["constants"]["compute_ms"]

    def loss(name):
        runs = [run for run in real["runs"] if (run["algorithm"], run["workers"]) == (name, 8)]
        return median(run["loss"] for run in runs if run["compute_ms"] == pause)

    assert set(named) == set(real["rates"])
    assert named == sorted(named, key=loss)


def test_every_real_run_of_a_setting_was_repeated_three_times(data):
    _, real = data
    settings = [(r["algorithm"], r["workers"], r["compute_ms"]) for r in real["runs"]]
    assert set(Counter(settings).values()) == {3}


def test_every_point_has_at_least_five_seeds(data):
    simulation, _ = data
    points: dict[tuple[object, ...], set[int]] = {}
    for part in ("scaling", "rates", "slow"):
        for run in simulation[part]:
            point = (part, *(run[key] for key in ("algorithm", "workers", "window", "rate")))
            points.setdefault(point, set()).add(run["seed"])
    assert min(map(len, points.values())) >= 5
    assert {workers for part, _, workers, *_ in points if part == "scaling"} == {1, 2, 4, 8, 16}


def test_rates_were_not_chosen_on_the_seeds_that_are_shown(data):
    simulation, _ = data
    shown = {run["seed"] for run in simulation["scaling"]}
    assert not shown & {run["seed"] for run in simulation["trial"]}


def test_every_picture_of_the_page_exists_and_is_dark_on_a_dark_screen():
    pictures = re.findall(r"\]\((figures/\w+\.svg)\)", (DOCS / "recipes.md").read_text())
    assert len(pictures) == 5
    for picture in pictures:
        assert "prefers-color-scheme: dark" in (DOCS / picture).read_text()


def test_a_picture_can_be_drawn_from_the_raw_data(data, tmp_path, monkeypatch):
    from figures import draw, store

    monkeypatch.setattr(store, "FOLDER", tmp_path)
    draw.save("rates", draw.rates(data[0]))
    assert "<svg" in (tmp_path / "rates.svg").read_text()


def test_real_runs_name_recipes_and_hosts_files_that_exist():
    from figures import real

    for recipe in real.RECIPES:
        assert (EXAMPLES / recipe.folder / recipe.hosts).is_file()
    assert len({recipe.algorithm for recipe in real.RECIPES}) == len(real.RECIPES)


def test_the_log_of_a_real_run_is_read():
    from figures import real

    log = "centre at step 60 loss 1.2500 after 0.50 s\nstopped at step 605 in 2.4 s, own steps: 230"
    assert real.CENTRE.findall(log) == [("60", "1.2500", "0.50")]
    assert real.STOPPED.findall(log) == [("605", "2.4", "230")]


def test_a_seed_gives_the_same_training_again_and_another_seed_another_one():
    assert simulated("adag") == simulated("adag")
    assert simulated("adag").curve != simulated("adag", seed=4).curve


@pytest.mark.parametrize("algorithm", ["downpour", "adag", "dynsgd", "aeasgd", "aeamsgd", "sagn"])
def test_an_algorithm_learns_and_ends_after_its_batches(algorithm):
    result = simulated(algorithm, rate=0.05)
    assert [point.batches >= 100 * i for i, point in enumerate(result.curve)] == [True] * 5
    assert result.curve[-1].loss < result.curve[0].loss
    assert sum(result.shares) == result.curve[-1].batches


def test_an_exchange_is_one_update_and_a_round_as_well():
    assert simulated("adag").curve[-1].updates == 400 / 5
    assert simulated("sagn").curve[-1].updates == 400 / 5 / 4


def test_a_slow_worker_does_less_unless_all_wait_for_it():
    slow = {"slowest": 5.0, "batches": 1200}
    assert simulated("adag", **slow).shares[-1] < min(simulated("adag", **slow).shares[:3]) / 2
    assert len(set(simulated("sagn", **slow).shares)) == 1


def test_a_backup_worker_keeps_a_slow_one_from_holding_up_the_rounds():
    slow = {"slowest": 5.0, "window": 1}
    waiting, backup = simulated("ssgd", **slow), simulated("ssgd-backup", **slow)
    rounds = [result.curve[-1].updates / result.curve[-1].time for result in (waiting, backup)]
    assert rounds[1] > 2 * rounds[0]
    assert len(set(waiting.shares)) == 1
    assert backup.shares[-1] < min(backup.shares[:-1]) / 2


def test_one_synchronous_worker_is_plain_sgd():
    alone = {"workers": 1, "window": 1, "batches": 50}
    assert simulated("ssgd", **alone).curve == simulated("ssgd-backup", **alone).curve
    losses = [point.loss for point in simulated("ssgd", **alone).curve]
    assert losses == [point.loss for point in simulated("downpour-sgd", **alone).curve]


def test_the_gradient_is_the_slope_of_the_loss():
    from figures import net

    draw = np.random.default_rng(0)
    weights = net.initial(draw).astype(np.float64)
    images, labels = draw.random((8, 64)), draw.integers(10, size=8)
    g = net.gradient(weights, images, labels)
    for index in draw.integers(net.SIZE, size=20):
        ahead, behind = weights.copy(), weights.copy()
        ahead[index] += 1e-5
        behind[index] -= 1e-5
        slope = net.measure(ahead, images, labels)[0] - net.measure(behind, images, labels)[0]
        assert slope / 2e-5 == pytest.approx(g[index], abs=1e-6)


def test_a_loss_that_is_not_finite_is_written_as_a_high_number():
    from figures.grid import finite

    assert finite(float("nan")) == finite(float("inf")) == 1000.0
    assert finite(0.123456) == 0.1235
