"""What is fetched from one host beside something that fails still arrives."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfdeploy.commands.collect import HostResults, _fetch
from tfdeploy.errors import AgentError, TransferFailed, Unreachable

AGENT = SimpleNamespace(host="h")


def failing(error):
    def fetch():
        raise error

    return fetch


def test_the_parts_beside_one_that_fails_are_fetched_before_its_error_is_raised():
    fetched = []
    full = failing(OSError(28, "No space left on device", "outputs/model"))
    parts = [full, lambda: fetched.append("logs") or HostResults(logs=1)]
    with pytest.raises(TransferFailed, match="outputs/model on the controller: No space left"):
        _fetch(AGENT, parts)
    assert fetched == ["logs"]


def test_after_a_second_error_nothing_more_is_tried_and_the_first_one_is_raised():
    fetched = []
    lost = failing(Unreachable("h", "the connection was lost"))
    parts = [failing(AgentError("h", "it is broken")), lost, lambda: fetched.append("logs")]
    with pytest.raises(AgentError, match="broken"):
        _fetch(AGENT, parts)
    assert not fetched
