"""--since: a duration, or a time that has passed."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tfdeploy.config.overrides import parse_since
from tfdeploy.errors import InventoryError

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 5, 1, 14, 30, tzinfo=ZONE)


@pytest.fixture(autouse=True)
def central_europe(monkeypatch):
    """Let the controller's zone be UTC+1, and UTC+2 from March to October."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("written", "since"),
    [
        (None, None),
        ("90s", timedelta(seconds=90)),
        ("1.5h", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("14:00", datetime(2026, 5, 1, 14, tzinfo=ZONE)),
        ("9:05:07", datetime(2026, 5, 1, 9, 5, 7, tzinfo=ZONE)),
        ("15:00", datetime(2026, 4, 30, 15, tzinfo=ZONE)),
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=ZONE)),
        ("2026-05-01T10:15", datetime(2026, 5, 1, 10, 15, tzinfo=ZONE)),
        ("2026-05-01 10:15:00Z", datetime(2026, 5, 1, 10, 15, tzinfo=UTC)),
        ("2026-01-31T10:15", datetime(2026, 1, 31, 9, 15, tzinfo=UTC)),
    ],
)
def test_since_is_a_duration_or_a_time(written, since):
    assert parse_since(written, NOW) == since


@pytest.mark.parametrize(
    "written", ["", "soon", "10", "10 m", "25:00", "2026-13-01", "9999999999d"]
)
def test_anything_else_is_refused(written):
    with pytest.raises(InventoryError, match="expected a duration such as 90s"):
        parse_since(written, NOW)


@pytest.mark.parametrize("written", ["2026-05-01T15:00", "2027-01-01"])
def test_the_future_is_refused(written):
    with pytest.raises(InventoryError, match="in the future"):
        parse_since(written, NOW)


def test_a_time_of_yesterday_has_the_zone_of_yesterday():
    now = datetime(2026, 3, 29, 10, tzinfo=ZONE)  # the clocks were changed in this night
    assert parse_since("12:00", now) == datetime(2026, 3, 28, 11, tzinfo=UTC)
