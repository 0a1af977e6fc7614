"""The values of --since and --wait."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from tfdeploy.errors import InventoryError

DURATION = r"(\d{1,9}(?:\.\d{1,9})?)([smhd])"
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_wait(written: str) -> float:
    """Return the seconds of --wait: infinity for "forever". Raises InventoryError."""
    match = re.fullmatch(DURATION, written)
    if written == "forever":
        return math.inf
    if not match:
        raise InventoryError(
            f'--wait: found "{written}"; expected a duration such as 90s, 30m or 1h, or forever'
        )
    return float(match[1]) * SECONDS[match[2]]


def parse_since(written: str | None, now: datetime) -> timedelta | datetime | None:
    """Return the duration or the time of --since; None without the option.

    A time without a date is of the last 24 hours; one without a zone has the controller's, with its
    daylight saving time of that day. Raises InventoryError.
    """
    if written is None:
        return None
    match = re.fullmatch(DURATION, written)
    try:
        if match:
            return timedelta(seconds=float(match[1]) * SECONDS[match[2]])
        since = _parse_time(written, now)
        is_future = since > now
    except (ValueError, OverflowError):
        raise InventoryError(
            f'--since: found "{written:.40}"; expected a duration such as 90s, 10m, 2h or 1d, or a '
            "time such as 14:30 or 2026-05-01T14:30"
        ) from None
    if is_future:
        raise InventoryError(f"--since: found {written}, which is in the future")
    return since


def _parse_time(written: str, now: datetime) -> datetime:
    if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", written):
        clock = datetime.strptime(written, "%H:%M:%S" if written.count(":") > 1 else "%H:%M")
        today = datetime.combine(now.astimezone().date(), clock.time())
        since = today.astimezone()
        return since if since <= now else (today - timedelta(days=1)).astimezone()
    since = datetime.fromisoformat(written)
    return since if since.tzinfo else since.astimezone()
