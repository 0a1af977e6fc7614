"""The order in which pytest-xdist's workers take the slow tests.

Tests that share a module's fixture run in one worker, so that the fixture is created once. The
longest start first, so that no worker has one left at the end.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

COSTS = Path(__file__).with_name("costs.json")  # seconds by test, written by `make costs`
MISSING_SHARE = 0.1


def arrange(items: list[pytest.Item]) -> None:
    """Group and sort the tests, in place."""
    costs = read()
    of_group: Counter[str] = Counter()
    for item in items:
        name = group(item)
        if name != item.nodeid:
            item.add_marker(pytest.mark.xdist_group(name))
        of_group[name] += costs.get(item.nodeid, 0)
    items.sort(key=lambda item: -of_group[group(item)])


def group(item: pytest.Item) -> str:
    """Return the module and the parameters of its fixtures that the test uses, or the test's id."""
    definitions = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    # pytest also stores a test's own parameters there, without the file of a fixture.
    shared = sorted(
        name
        for name, found in definitions.items()
        if found[-1].scope == "module" and found[-1].baseid
    )
    if not shared:
        return item.nodeid
    callspec = getattr(item, "callspec", None)
    values = [str(callspec.params[name]) for name in shared if callspec and name in callspec.params]
    return "-".join([item.location[0], *values])


def read() -> dict[str, int]:
    costs: dict[str, int] = json.loads(COSTS.read_text())
    return costs


def write(reports: Iterable[pytest.TestReport]) -> None:
    """Store the duration of each test, including its setup and teardown."""
    durations: Counter[str] = Counter()
    for report in reports:
        durations[_test(report)] += report.duration
    costs = {name: round(seconds) for name, seconds in sorted(durations.items())}
    COSTS.write_text(json.dumps(costs, indent=0) + "\n")


def hint(reports: Iterable[pytest.TestReport], costs: dict[str, int]) -> str:
    """Return what to do if more than a tenth of the tests have no cost: they do not start in the
    best order. Return "" if fewer do."""
    ran = {_test(report) for report in reports}
    missing = len(ran - costs.keys())
    if missing <= len(ran) * MISSING_SHARE:
        return ""
    return f"{missing} of {len(ran)} slow tests have no cost in {COSTS.name}: run make costs"


def _test(report: pytest.TestReport) -> str:
    """Return the test's id without the group that pytest-xdist adds."""
    return report.nodeid.rpartition("@")[0] or report.nodeid
