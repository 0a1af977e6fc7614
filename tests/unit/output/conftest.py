"""A console whose output a test can read."""

from __future__ import annotations

import pytest

from tfdeploy.output.console import Console


@pytest.fixture
def printed(capsys):
    """Return a function that calls `show(console)`, with a console that has these options, and
    returns what it printed on standard output."""

    def call(show, **more):
        show(Console(**more))
        return capsys.readouterr().out

    return call
