"""The page that `make recipes` writes says what was measured, and what was not."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LOAD = {"ps_cores": 0.5, "worker_cores": 1.25, "network_bytes_per_s": 31e6}
UNTOLD = dict.fromkeys(LOAD)


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("side_by_side", EXAMPLES / "side_by_side.py")
    module = sys.modules["side_by_side"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["side_by_side"]


def cell(workers, **told):
    measured = {"steps_per_s": 80.0, "speedup": 1.5, "load": LOAD}
    return {"ps": 1, "workers": workers, **measured, **told}


def test_what_was_not_reached_or_not_measured_is_a_dash(page):
    recipe = page.RECIPES[0]
    told = {"steps": 600, "seconds": 3.25, "last": 0.125, "reached": None}
    failed = cell(2, steps_per_s=None, speedup=None, load=UNTOLD)
    swept = {"cells": [cell(1), failed], "enough_ps": {"1": 1}}
    text = page.page([page.Outcome(recipe, Path("x"), 9.0, 0.98765)], {recipe.label: told}, swept)
    assert "| 600 | 3.2 | - | - | 0.125 | 0.988 |" in text
    assert "| 1 | 1 | 80 | 1.50 | 0.50 | 1.25 | 31 |\n| 1 | 2 | - | - | - | - | - |" in text
    assert "Enough here: 1 ps for 1 worker(s). The most that was reached is 1.50 times" in text


def test_each_recipe_is_there_with_its_hosts(page):
    for recipe in page.RECIPES:
        assert (EXAMPLES / recipe.folder / recipe.hosts).is_file()
    assert len({recipe.label for recipe in page.RECIPES}) == len(page.RECIPES)


def test_the_page_is_of_these_recipes(page):
    written = (EXAMPLES.parent / "docs" / "recipes.md").read_text()
    assert re.findall(r"^\| \[([\w-]+)\]", written, re.M) == [r.label for r in page.RECIPES]
