"""The comparison with other tools says where each row is from, and when it was last checked."""

from __future__ import annotations

import csv
import datetime
import re

import pytest

from unit.test_readme import DOCS, PAGES, section

SOURCES = (DOCS / "alternatives.csv").read_text().splitlines()
TODAY = datetime.datetime.now(datetime.UTC).date()
LAST_YEAR = TODAY.replace(year=TODAY.year - 1, day=1)


def rows(text):
    """Return the cells of each row of the tables of a text, without their heads."""
    lines = re.findall(r"^\| (.*) \|$", re.sub(r"^\|.*\n\|[-|]+$", "", text, flags=re.M), re.M)
    return [line.split(" | ") for line in lines]


def outdated(lines):
    """Return the names of rows without a source or a recent date."""

    def is_sourced(row):
        is_recent = re.fullmatch(r"\d{4}-\d\d", row["checked"]) and (
            row["checked"] >= f"{LAST_YEAR:%Y-%m}"
        )
        links = (row["sources"] or "").split()
        return is_recent and links and all(link.startswith("https://") for link in links)

    return [row["row"] for row in csv.DictReader(lines) if not is_sourced(row)]


def test_each_row_of_the_comparison_has_a_source_and_was_checked_within_a_year():
    assert outdated(SOURCES) == []
    names = [row["row"] for row in csv.DictReader(SOURCES)]
    table = section(PAGES["alternatives.md"], "The table")
    tools = re.search(r"^\| \| tfdeploy \| (.*) \|$", table, re.M)[1].split(" | ")
    compared = [name for name, *_ in rows(table)]
    assert compared
    assert names[: len(compared) + len(tools)] == compared + tools


@pytest.mark.parametrize("row", [
    f"a row,{LAST_YEAR - datetime.timedelta(days=1):%Y-%m},,https://example.org/",
    "a row,,,https://example.org/",
    f"a row,{TODAY:%Y-%m},,the documentation",
    f"a row,{TODAY:%Y-%m},,",
    f"a row,{TODAY:%Y-%m},,https://example.org/ b",
])  # fmt: skip
def test_a_row_without_a_source_or_a_recent_date_is_found(row):
    good = f"another,{LAST_YEAR:%Y-%m},,https://example.org/"
    assert outdated([SOURCES[0], good, row]) == ["a row"]
