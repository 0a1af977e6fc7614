"""The figures of docs/concepts.md are those that `make replication` stored."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORED = json.loads((ROOT / "docs" / "replication.json").read_text())


@pytest.fixture(scope="module")
def replication():
    file = ROOT / "examples" / "replication.py"
    spec = importlib.util.spec_from_file_location("replication", file)
    module = sys.modules["replication"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["replication"]


def test_the_page_has_the_table_of_the_stored_figures(replication):
    assert replication.table(STORED) + "\n" in (ROOT / "docs" / "concepts.md").read_text()


def test_each_setup_was_measured_as_often_as_the_others(replication):
    assert [*STORED["batches_per_s"]] == [setup.name for setup in replication.SETUPS]
    assert len({len(rates) for rates in STORED["batches_per_s"].values()}) == 1


def test_a_row_has_the_median_and_the_range(replication):
    table = replication.table({"batches_per_s": {"serial": [3.0, 1.0, 20.0]}})
    assert table.splitlines()[-1] == "| serial | 3 | 1 to 20 |"
