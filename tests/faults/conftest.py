"""Fixtures of the fault tests: trainings that leave no process behind, and a table of results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.training import Bystander, Training

from faults import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = "faults"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add a test's rows to its report, which pytest-xdist's workers send to the main process."""
    report = yield
    if report.when == "call":
        report.user_properties.append((ROWS, table.take_rows()))
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
    """Create trainings on this machine, each with a bystander.

    After the test every training is stopped; then none of its processes is left, and its bystander
    still runs.
    """
    trainings: list[Training] = []
    bystanders: list[Bystander] = []

    def create(script: str = "train_async.py", *flags: str, **more) -> Training:
        folder = tmp_path / f"{len(trainings)}"
        trainings.append(Training.create(script, folder, *flags, **more))
        bystanders.append(Bystander(trainings[-1]))
        return trainings[-1]

    yield create
    try:
        for created in trainings:
            created.stop()
        assert [created.processes() for created in trainings] == [{} for _ in trainings]
        assert all(bystander.is_alive() for bystander in bystanders)
    finally:
        for owner in (*trainings, *bystanders):
            owner.end()
