"""The view is drawn on a terminal, with Textual."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tfdeploy.environments import installation
from tfdeploy.errors import RunError
from tfdeploy.live.show import has_screen
from tfdeploy.output.console import Console

MISSING = RunError("Textual is not installed beside tfdeploy", "add watch")


@pytest.mark.parametrize(
    ("terminal", "term", "missing", "drawn", "printed"),
    [
        (True, "xterm", None, True, ""),
        (True, "dumb", MISSING, False, ""),
        (False, "xterm", MISSING, False, ""),
        (True, "xterm", MISSING, False, f"note: {MISSING}\n"),
    ],
)
def test_the_view_needs_a_terminal_and_textual(
    monkeypatch, capsys, terminal, term, missing, drawn, printed
):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(installation, "find_missing", lambda extra: missing)
    console = Console()
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(sys, stream, SimpleNamespace(isatty=lambda: terminal))
    assert has_screen(console) is drawn
    assert capsys.readouterr().err == printed
