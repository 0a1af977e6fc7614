"""docs/recipes.md says what its raw data says."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

REPOSITORY = Path(__file__).parents[2]
EXAMPLES, DOCS = REPOSITORY / "examples", REPOSITORY / "docs"


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Let `figures` be imported, as in the folder of the examples."""
    before = set(sys.modules)
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "figures":
            del sys.modules[name]


@pytest.fixture
def data():
    from figures import real

    return real.read()


def test_the_page_is_what_the_raw_data_gives(data):
    from figures import page

    assert (DOCS / "recipes.md").read_text() == page.render(data)


def test_the_losses_of_a_table_come_from_the_raw_data(data):
    from figures import page

    changed = {**data, "runs": [{**run, "loss": 9.0} for run in data["runs"]]}
    assert "| adag | 1 | ≥ 4 (≥ 4 to ≥ 4) | ≥ 4 (≥ 4 to ≥ 4) |" in page.render(changed)


def test_the_recipe_with_the_lowest_loss_comes_first(data):
    table = (DOCS / "recipes.md").read_text().split("## Real runs")[1].split("**So that")[0]
    named = re.findall(r"^\| ([a-z-]+) \| [\d.]", table, re.M)
    pause = data["constants"]["compute_ms"]

    def loss(name):
        runs = [run for run in data["runs"] if (run["algorithm"], run["workers"]) == (name, 8)]
        return median(run["loss"] for run in runs if run["compute_ms"] == pause)

    assert set(named) == set(data["rates"])
    assert named == sorted(named, key=loss)


def test_every_run_of_a_setting_was_repeated_three_times(data):
    settings = [(r["algorithm"], r["workers"], r["compute_ms"]) for r in data["runs"]]
    assert set(Counter(settings).values()) == {3}


def test_every_picture_of_the_page_exists_and_is_dark_on_a_dark_screen():
    pictures = re.findall(r"\]\((figures/\w+\.svg)\)", (DOCS / "recipes.md").read_text())
    assert len(pictures) == 1
    for picture in pictures:
        assert "prefers-color-scheme: dark" in (DOCS / picture).read_text()


def test_the_picture_can_be_drawn_from_the_raw_data(data):
    from figures import draw

    assert "<svg" in draw.svg(draw.curves(data))


def test_the_rates_of_the_raw_data_are_those_of_the_recipes_which_exist(data):
    from figures import real

    for recipe in real.RECIPES:
        assert (EXAMPLES / recipe.folder / recipe.hosts).is_file()
    assert {recipe.algorithm: recipe.rate for recipe in real.RECIPES} == data["rates"]


def test_the_log_of_a_run_is_read():
    from figures import real

    log = "centre at step 60 loss 1.2500 after 0.50 s\nstopped at step 605 in 2.4 s, own steps: 230"
    assert real.CENTRE.findall(log) == [("60", "1.2500", "0.50")]
    assert real.STOPPED.findall(log) == [("605", "2.4", "230")]


def test_a_loss_that_is_not_finite_is_written_as_a_high_number():
    from figures.real import finite

    assert finite(float("nan")) == finite(float("inf")) == 1000.0
    assert finite(0.123456) == 0.1235
