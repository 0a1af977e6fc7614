"""Parts that are fetched in the same round trips do not take each other down."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfdeploy.errors import AgentError, Unreachable
from tfdeploy.hosts.pipeline import RoundPart, run_parts

AGENT = SimpleNamespace(host="h")


def make_part(rounds, error=None):
    """A part that waits for answers in `rounds` round trips, and then fails or returns."""

    def fetch(pipeline):
        for _ in range(rounds):
            yield
        if error:
            raise error
        return pipeline

    return RoundPart(fetch)


def test_parts_share_a_pipeline():
    parts = [make_part(2), make_part(0), make_part(1)]
    run_parts(AGENT, parts)
    assert len({part.results[0] for part in parts}) == 1


def test_what_is_fetched_with_a_part_that_fails_still_arrives():
    checkpoint, logs = make_part(2), make_part(0)
    outputs = make_part(1, AgentError("h", "the disk is full"))
    with pytest.raises(AgentError, match="full"):
        run_parts(AGENT, [checkpoint, logs, outputs])
    assert checkpoint.results[0] is not logs.results[0]


def test_after_a_second_error_the_first_one_is_raised():
    first = make_part(1, AgentError("h", "the disk is full"))
    lost = make_part(2, Unreachable("h", "the connection was lost"))
    never = make_part(2)
    with pytest.raises(AgentError, match="full"):
        run_parts(AGENT, [first, lost, never])
    assert not never.results
