"""Which columns of the live view fit the width of the terminal, and their cells. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.live.rows import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.live.rows import Row

# Columns are left out in this order if they do not fit; first those that are empty.
OPTIONAL = ("NETWORK", "GPU MEMORY", "SINCE", "RESTARTS", "MEMORY", "CPU", "GPU")
GAP = 2
NO_VALUE = {"", "-", "0"}


def fitting_columns(rows: Sequence[Row], width: int) -> list[int]:
    """Return the indices of COLUMNS that fit `width` characters, in their order. Columns that have
    no value are left out first; HOST, TASK and STATE stay."""
    columns = list(range(len(COLUMNS)))
    for column in sorted(
        (COLUMNS.index(name) for name in OPTIONAL), key=lambda c: _has_value(rows, c)
    ):
        if _has_value(rows, column) and sum(_widths(rows, columns)) + GAP * len(columns) <= width:
            break
        columns.remove(column)
    return columns


def _has_value(rows: Sequence[Row], column: int) -> bool:
    return not {row.cells[column] for row in rows} <= NO_VALUE


def _widths(rows: Sequence[Row], columns: Sequence[int]) -> list[int]:
    return [max(len(COLUMNS[c]), *(len(row.cells[c]) for row in rows)) for c in columns]


def layout(rows: Sequence[Row], width: int) -> list[list[str]]:
    """Return the header's cells and each row's, padded, of the columns that fit."""
    columns = fitting_columns(rows, width)
    widths = _widths(rows, columns)
    lines = [COLUMNS, *(row.cells for row in rows)]
    return [[line[c].ljust(w) for c, w in zip(columns, widths, strict=True)] for line in lines]
