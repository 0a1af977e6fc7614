"""The table of results: one row for each fault, with times and lost steps."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "TFDEPLOY_FAULTS_TABLE"  # the variable with the path of the Markdown file
HEAD = ("fault", "detected after", "recovered after", "of its start", "steps lost")
ROWS: list[Row] = []


@dataclass(frozen=True)
class Row:
    """Times are in seconds since the fault. `startup_s` is how long the same training took from
    `tfdeploy start` to READY. None means that the fault has no such figure."""

    fault: str
    detected_s: float | None = None
    recovered_s: float | None = None
    steps_lost: int | None = None
    startup_s: float | None = None


def record(
    fault: str,
    detected_s: float | None = None,
    recovered_s: float | None = None,
    steps_lost: int | None = None,
    startup_s: float | None = None,
) -> None:
    """Add a row. `fault` starts with its number: `1 kill -9 of a worker`."""
    ROWS.append(Row(fault, detected_s, recovered_s, steps_lost, startup_s))


def take_rows() -> list[dict[str, Any]]:
    """Return and remove the rows of the test that has just ended, as JSON for its report."""
    rows = [asdict(row) for row in ROWS]
    ROWS.clear()
    return rows


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    lines = [HEAD, ("---", "--:", "--:", "--:", "--:"), *sorted(map(_cells, rows), key=_sort_key)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def write(text: str) -> None:
    """Write the table to the file that the environment names, if any."""
    if os.environ.get(FILE):
        Path(os.environ[FILE]).write_text(text)


def _cells(fields: dict[str, Any]) -> tuple[str, ...]:
    row = Row(**fields)
    share = row.recovered_s / row.startup_s if row.recovered_s and row.startup_s else None
    return (
        row.fault,
        _format(row.detected_s, "{:.1f} s"),
        _format(row.recovered_s, "{:.1f} s"),
        _format(share, "{:.1f} ×"),
        _format(row.steps_lost, "{}"),
    )


def _format(value: float | None, template: str) -> str:
    return "-" if value is None else template.format(value)


def _sort_key(cells: tuple[str, ...]) -> tuple[int, str]:
    """Sort by the fault's number; rows without a number are last."""
    word = cells[0].split()[0].split("/")[0]
    return (int(word) if word.isdecimal() else 99), cells[0]
