"""The comparison with other tools says where each row is from, and when it was last checked."""

import datetime
import re

import pytest

from unit.test_readme import PAGES, section

PAGE = PAGES["alternatives.md"]
TODAY = datetime.datetime.now(datetime.UTC).date()
LAST_YEAR = TODAY.replace(year=TODAY.year - 1, day=1)


def rows(text):
    """Return the cells of each row of the tables of a text, without their heads."""
    lines = re.findall(r"^\| (.*) \|$", re.sub(r"^\|.*\n\|[-|]+$", "", text, flags=re.M), re.M)
    return [line.split(" | ") for line in lines]


def outdated(text):
    """Return the names of rows (name, YYYY-MM, …, sources) without a source or a recent date."""
    urls = dict(re.findall(r"^\[(.+)\]: (https://\S+)$", text, re.M))

    def is_sourced(name, checked="", *rest):
        links = re.findall(r"\[([^\]]+)\]", rest[-1]) if rest else []
        is_recent = re.fullmatch(r"\d{4}-\d\d", checked) and checked >= f"{LAST_YEAR:%Y-%m}"
        return is_recent and links and all(link in urls for link in links)

    return [row[0] for row in rows(text) if not is_sourced(*row)]


def test_each_row_of_the_comparison_has_a_source_and_was_checked_within_a_year():
    sources = section(PAGE, "The sources")
    assert outdated(sources) == []
    names = [name for name, *_ in rows(sources)]
    table = section(PAGE, "The table")
    tools = re.search(r"^\| \| tfdeploy \| (.*) \|$", table, re.M)[1].split(" | ")
    compared = [name for name, *_ in rows(table)]
    assert compared
    assert names[: len(compared) + len(tools)] == compared + tools


@pytest.mark.parametrize("row", [
    f"| a row | {LAST_YEAR - datetime.timedelta(days=1):%Y-%m} | [a] |",
    "| a row |  | [a] |",
    f"| a row | {TODAY:%Y-%m} | the documentation |",
    f"| a row | {TODAY:%Y-%m} | [a], [b] |",
])  # fmt: skip
def test_a_row_without_a_source_or_a_recent_date_is_found(row):
    good = f"| another | {LAST_YEAR:%Y-%m} | [a] |"
    text = (
        f"| row | checked | sources |\n|---|---|---|\n{good}\n{row}\n\n[a]: https://example.org/\n"
    )
    assert outdated(text) == ["a row"]
