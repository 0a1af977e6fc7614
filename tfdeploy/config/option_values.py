"""The values of --notify, --since and --wait."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

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


def parse_since(written: str | None, now: datetime) -> float | None:
    """Return the seconds from --since until `now`, which has a time zone; None without the option.

    It is a duration, or a time: with the date or of the last 24 hours, in the zone of `now` unless
    it names another. Raises InventoryError.
    """
    if written is None:
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", written)
    if match:
        return float(match[1]) * SECONDS[match[2]]
    try:
        since = _parse_time(written, now)
        elapsed_s = (now - since).total_seconds()
    except (ValueError, OverflowError):
        raise InventoryError(
            f'--since: found "{written:.40}"; expected a duration such as 90s, 10m, 2h or 1d, or a '
            "time such as 14:30 or 2026-05-01T14:30"
        ) from None
    if elapsed_s < 0:
        raise InventoryError(f"--since: found {written}, which is in the future")
    return elapsed_s


def _parse_time(written: str, now: datetime) -> datetime:
    if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", written):
        clock = datetime.strptime(written, "%H:%M:%S" if written.count(":") > 1 else "%H:%M")
        today = now.replace(
            hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0
        )
        return today if today <= now else today - timedelta(days=1)
    since = datetime.fromisoformat(written)
    return since if since.tzinfo else since.replace(tzinfo=now.tzinfo)
