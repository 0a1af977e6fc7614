"""`make recipes` writes a page with what was measured, and dashes for what was not."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LOAD = {"ps_cores": 0.5, "worker_cores": 1.25, "network_bytes_per_s": 31e6}
VERDICTS = [
    {"workers": 1, "ps": [1, 2], "enough": 1, "reason": ""},
    {"workers": 2, "ps": [1, 2], "enough": None, "reason": "no difference measured"},
]
UNMEASURED = dict.fromkeys(LOAD)


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("side_by_side", EXAMPLES / "side_by_side.py")
    module = sys.modules["side_by_side"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["side_by_side"]


def cell(workers, **figures):
    measured = {"steps_per_s": 80.0, "speedup": 1.5, "speedup_range": [1.4, 1.7], "load": LOAD}
    measured["runs"] = [{}, {}, {}]
    return {"ps": 1, "workers": workers, **measured, **figures}


def test_a_figure_that_was_not_reached_or_measured_is_a_dash(page):
    recipe = page.RECIPES[0]
    compared = {"steps": 600, "seconds": 3.25, "last": 0.125, "reached": None}
    failed = cell(2, steps_per_s=None, speedup=None, load=UNMEASURED)
    swept = {"cells": [cell(1), failed], "ps_verdicts": VERDICTS}
    text = page.page(
        [page.Outcome(recipe, Path("x"), 9.0, 0.98765)], {recipe.label: compared}, swept
    )
    assert "| 600 | 3.2 | - | - | 0.125 | 0.988 |" in text
    assert "| 1 | 1 | 80 | 1.50 | 0.50 | 1.25 | 31 |\n| 1 | 2 | - | - | - | - | - |" in text
    assert "the median of 3 runs. On this machine: 1 ps enough for 1 worker; no difference " in text
    assert "measured for 2 workers with 1 and 2 ps. The best speed-up is 1.50 times" in text
    assert "one worker (1.40 to 1.70)." in text


def test_each_recipe_has_its_hosts_file(page):
    for recipe in page.RECIPES:
        assert (EXAMPLES / recipe.folder / recipe.hosts).is_file()
    assert len({recipe.label for recipe in page.RECIPES}) == len(page.RECIPES)


def test_the_page_has_the_recipes_of_the_script(page):
    written = (EXAMPLES.parent / "docs" / "recipes.md").read_text()
    assert re.findall(r"^\| \[([\w-]+)\]", written, re.M) == [r.label for r in page.RECIPES]
