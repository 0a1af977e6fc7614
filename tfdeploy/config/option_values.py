"""The values of --notify and --wait."""

from __future__ import annotations

import math
import re

from pydantic import TypeAdapter, ValidationError

from tfdeploy.config.types import Target
from tfdeploy.errors import InventoryError

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_target(written: str) -> tuple[str, ...]:
    """Return the command, or the URL as its only word, of --notify. Raises InventoryError."""
    try:
        target: tuple[str, ...] = TypeAdapter(Target).validate_python(written)
    except ValidationError as error:
        reason = error.errors()[0].get("ctx", {}).get("error", "expected a command or a URL")
        raise InventoryError(f"--notify: {reason}") from None
    return target


def parse_wait(written: str | None) -> float:
    """Return the seconds of --wait: infinity for "forever", 0 without the option. Raises
    InventoryError."""
    if written is None:
        return 0.0
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", written)
    if written == "forever":
        return math.inf
    if not match:
        raise InventoryError(
            f'--wait: found "{written}"; expected a duration such as 90s, 30m or 1h, or forever'
        )
    return float(match[1]) * SECONDS[match[2]]
