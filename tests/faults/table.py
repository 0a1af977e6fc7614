"""One row a fault: after how long it was seen, after how long training went on, what was lost."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "TFDEPLOY_FAULTS_TABLE"  # names the Markdown file that the table goes to
HEAD = ("fault", "detected after", "recovered after", "of its start", "steps lost")
WAITING: list[Row] = []


@dataclass(frozen=True)
class Row:
    """Times are in seconds from the fault on; `startup_s` is what the same training took from
    `tfdeploy start` to READY. None is what this fault has no figure for."""

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
    """Add a row. `fault` begins with its number: `1 kill -9 of a worker`."""
    WAITING.append(Row(fault, detected_s, recovered_s, steps_lost, startup_s))


def taken() -> list[dict[str, Any]]:
    """The rows of the test that has just ended, as what a report can carry between processes."""
    rows = [asdict(row) for row in WAITING]
    WAITING.clear()
    return rows


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    lines = [HEAD, ("---", "--:", "--:", "--:", "--:"), *sorted(map(_cells, rows), key=_number)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def write(text: str) -> None:
    """Keep it where the environment says so."""
    if os.environ.get(FILE):
        Path(os.environ[FILE]).write_text(text)


def _cells(told: dict[str, Any]) -> tuple[str, ...]:
    row = Row(**told)
    share = row.recovered_s / row.startup_s if row.recovered_s and row.startup_s else None
    return (
        row.fault,
        _shown(row.detected_s, "{:.1f} s"),
        _shown(row.recovered_s, "{:.1f} s"),
        _shown(share, "{:.1f} ×"),
        _shown(row.steps_lost, "{}"),
    )


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _number(cells: tuple[str, ...]) -> tuple[int, str]:
    word = cells[0].split()[0].split("/")[0]
    return (int(word) if word.isdecimal() else 99), cells[0]
