"""Trainings with a fault: what is left of each afterwards is nothing, and its figures are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faults import table
from faults.training import Bystander, Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = "faults"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test's rows travel with its report, which comes home from pytest-xdist's workers too."""
    report = yield
    if report.when == "call":
        report.user_properties.append((ROWS, table.taken()))
    return report


def pytest_terminal_summary(terminalreporter):
    reports = [r for key in ("passed", "failed") for r in terminalreporter.stats.get(key, ())]
    rows = [
        row for r in reports for name, rows in r.user_properties if name == ROWS for row in rows
    ]
    if rows:
        text = table.markdown(rows)
        terminalreporter.section("faults")
        terminalreporter.write(text)
        table.write(text)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Makes a Training on this machine. After the test every one of them is stopped, and then no
    process of it is left, while its bystander was never touched."""
    made: list[Training] = []
    bystanders: list[Bystander] = []

    def make(script: str = "train_async.py", *flags: str, **more) -> Training:
        made.append(Training.of(script, tmp_path / f"{len(made)}", *flags, **more))
        bystanders.append(Bystander(made[-1]))
        return made[-1]

    yield make
    try:
        for each in made:
            each.stopped()
        assert [each.processes() for each in made] == [{} for _ in made]
        assert all(each.lives() for each in bystanders)
    finally:
        for each in (*made, *bystanders):
            each.end()
